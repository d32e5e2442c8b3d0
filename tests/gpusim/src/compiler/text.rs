//! Machine code as text, in the place of PTX: a first line that says so, and the bytes in hexadecimal digits.

use crate::abi::In;
use crate::status::Status;

const FIRST_LINE: &[u8] = b"// antiphon-gpusim: not PTX\n";

/// The text of `code`, with the zero that ends it.
pub fn encode(code: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = FIRST_LINE.to_vec();
    text.extend(
        code.iter()
            .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]),
    );
    text.push(0);
    text
}

/// The code of a text that [`encode`] made; nothing if `image` is something else.
pub fn decode(image: In<u8>) -> Result<Option<Vec<u8>>, Status> {
    if image.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // A byte at a time: an image of another kind may be shorter than the line.
    for (k, byte) in FIRST_LINE.iter().enumerate() {
        if image.offset(k).get()? != *byte {
            return Ok(None);
        }
    }
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let mut code = Vec::new();
    let mut at = FIRST_LINE.len();
    loop {
        let Some(high) = digit(image.offset(at).get()?) else {
            return Ok(Some(code));
        };
        let low = digit(image.offset(at + 1).get()?).ok_or(Status::INVALID_IMAGE)?;
        code.push(high << 4 | low);
        at += 2;
    }
}
