//! Images of device code: whether one is whole. The driver is not told how long an image is, and reads as far as the
//! image says.

use crate::gpu::image::{ELF, check_elf, number};
use std::borrow::Cow;

/// A bundle of several images.
const BUNDLE: &[u8] = &[0x50, 0xed, 0x55, 0xba];

/// `image` as the driver may read it, or what is wrong with it. Text gets the zero byte that ends it.
pub(super) fn checked(image: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    if image.is_empty() {
        return Err("an empty image".to_owned());
    }
    if image.starts_with(ELF) {
        return match check_elf(image) {
            Some(()) => Ok(Cow::Borrowed(image)),
            None => Err(format!("machine code cut short, to {} bytes", image.len())),
        };
    }
    if image.starts_with(BUNDLE) {
        // Magic, version, length of the header, length of the rest.
        let whole = number(image, 6, 2).and_then(|header| header.checked_add(number(image, 8, 8)?));
        return match whole {
            Some(length) if length <= image.len() as u64 => Ok(Cow::Borrowed(image)),
            _ => Err(format!("a bundle cut short, to {} bytes", image.len())),
        };
    }
    if image.contains(&0) {
        return Ok(Cow::Borrowed(image));
    }
    let mut text = image.to_vec();
    text.push(0);
    Ok(Cow::Owned(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An image with one section of 16 bytes between its header and the table of sections.
    fn elf() -> Vec<u8> {
        let mut image = vec![0; 64 + 16 + 64];
        image[..4].copy_from_slice(ELF);
        image[40] = 80;
        image[54] = 56;
        image[58] = 64;
        image[60] = 1;
        image[80 + 4] = 1;
        image[80 + 24] = 64;
        image[80 + 32] = 16;
        image
    }

    #[test]
    fn machine_code_must_hold_its_sections() {
        let image = elf();
        assert_eq!(checked(&image).unwrap(), image);
        for length in 0..image.len() {
            if length < 4 && length > 0 {
                continue;
            }
            assert!(checked(&image[..length]).is_err(), "{length} bytes");
        }
        let mut long = elf();
        long[80 + 39] = 1;
        assert!(checked(&long).is_err());
        long[80 + 4] = 8;
        assert!(checked(&long).is_ok(), "a section without bytes may be of any length");
    }

    #[test]
    fn bundles_must_hold_what_they_say() {
        let mut image = vec![0; 16 + 8];
        image[..4].copy_from_slice(BUNDLE);
        image[6] = 16;
        image[8] = 8;
        assert!(checked(&image).is_ok());
        for length in 4..image.len() {
            assert!(checked(&image[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn text_ends_with_a_zero_byte() {
        assert_eq!(checked(b".version 8.0").unwrap().as_ref(), b".version 8.0\0");
        assert_eq!(checked(b".version 8.0\0").unwrap().as_ref(), b".version 8.0\0");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut image: Vec<u8>, kind in 0..3usize) {
            let magic: &[u8] = [ELF, BUNDLE, &[]][kind];
            image.splice(..0, magic.iter().copied());
            let _ = checked(&image);
        }

        #[test]
        fn changed_machine_code_never_panics(at in 4..144usize, value: u8) {
            let mut image = elf();
            image[at] = value;
            let _ = checked(&image);
        }
    }
}
