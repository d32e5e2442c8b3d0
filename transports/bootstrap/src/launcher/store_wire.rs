//! The frames of PyTorch's TCPStore: what a client asks and what a server answers, without a connection.
//!
//! A request is a byte that says what is asked, then its arguments: texts and values, each after its length in 64 bits.
//! Most answers have a fixed length. The numbers of the requests have changed once, when clients began to introduce
//! themselves; see [`Dialect`].

/// No value that this crate puts there is longer.
const LONGEST_VALUE: u64 = 4096;
/// What a client shows first, so that the server can tell it from strangers.
const MAGIC: u32 = 0x3C85_F7CE;
/// In answers to `Wait` and `Check`: the key is there.
const THERE: u8 = 0;
/// In answers to `Check` alone.
const NOT_THERE: u8 = 1;

/// How a server wants to be spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Clients introduce themselves, and may ask for a sign of life. Tried with PyTorch 2.15.
    Introduced,
    /// Of older ones: requests come as they are. Tried with PyTorch 1.13.
    Bare,
}

/// What is asked of a server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request<'a> {
    /// To be known, and for a sign of life. A server of the other dialect closes the connection.
    Hello,
    /// Whether a key is there.
    Check(&'a str),
    /// To put a value under a key, in place of what is there. Nothing is answered.
    Set(&'a str, &'a str),
    /// To answer once a key is there.
    Wait(&'a str),
    /// The value of a key that is there. A server may close the connection if it is not.
    Get(&'a str),
    /// To take a key away.
    Delete(&'a str),
}

impl Request<'_> {
    /// The frame. It has to be sent as a whole: some servers serve nobody else until they have read all of it.
    pub fn encode(&self, dialect: Dialect) -> Vec<u8> {
        let number = |introduced: u8, bare: u8| match dialect {
            Dialect::Introduced => vec![introduced],
            Dialect::Bare => vec![bare],
        };
        match *self {
            Request::Hello => {
                let mut frame = vec![0];
                frame.extend(MAGIC.to_le_bytes());
                frame.push(13);
                frame.extend(nonce());
                frame
            }
            Request::Check(key) => text(one(number(5, 4)), key),
            Request::Set(key, value) => text(text(number(1, 0), key), value),
            Request::Wait(key) => text(one(number(6, 5)), key),
            Request::Get(key) => text(number(3, 2), key),
            Request::Delete(key) => text(number(8, 8), key),
        }
    }

    /// The answer in what was received since the request; `None` while some of it is missing. Answers to other requests
    /// than `Get` come back empty, since their content does not matter.
    ///
    /// # Errors
    /// In words, what was received that no server answers to this.
    pub fn decode(&self, received: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let length = match self {
            Request::Set(..) => 0,
            Request::Check(_) | Request::Wait(_) => 1,
            Request::Hello => 4,
            Request::Delete(_) => 8,
            Request::Get(_) => {
                match received.first_chunk::<8>().map(|all| u64::from_le_bytes(*all)) {
                    None => return Ok(None),
                    Some(length @ 0..=LONGEST_VALUE) => 8 + length as usize,
                    Some(length) => {
                        return Err(format!(
                            "an answer of {length} bytes, allowed up to {LONGEST_VALUE}"
                        ));
                    }
                }
            }
        };
        // An incomplete answer is checked as well: an end that greets without being asked is no Store.
        let right = match self {
            Request::Hello => nonce().starts_with(&received[..received.len().min(length)]),
            Request::Check(_) => matches!(received, [] | [THERE | NOT_THERE, ..]),
            Request::Wait(_) => matches!(received, [] | [THERE, ..]),
            _ => true,
        };
        if !right || received.len() > length {
            let shown = &received[..received.len().min(24)];
            return Err(format!("the answer \"{}\", which is no Store's", shown.escape_ascii()));
        }
        if received.len() < length {
            return Ok(None);
        }
        Ok(Some(match self {
            Request::Get(_) => received[8..].to_vec(),
            _ => Vec::new(),
        }))
    }
}

/// What a server repeats as a sign of life. A server that does not know `Hello` takes the first bytes for a length: these
/// make one that it cannot even try to take memory for.
fn nonce() -> [u8; 4] {
    [0xff, 0xff, 0xff, std::process::id().to_le_bytes()[0]]
}

/// The number of keys that follow.
fn one(mut frame: Vec<u8>) -> Vec<u8> {
    frame.extend(1u64.to_le_bytes());
    frame
}

fn text(mut frame: Vec<u8>, text: &str) -> Vec<u8> {
    frame.extend((text.len() as u64).to_le_bytes());
    frame.extend(text.as_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_the_bytes_that_servers_read() {
        let frame = |head: &[u8], rest: &[u8]| [head, rest].concat();
        let key = [2, 0, 0, 0, 0, 0, 0, 0, b'a', b'b'];
        let count = [1, 0, 0, 0, 0, 0, 0, 0];
        let cases = [
            (Request::Check("ab"), 5, 4, frame(&count, &key)),
            (Request::Set("ab", ""), 1, 0, frame(&key, &[0; 8])),
            (Request::Set("ab", "ab"), 1, 0, frame(&key, &key)),
            (Request::Wait("ab"), 6, 5, frame(&count, &key)),
            (Request::Get("ab"), 3, 2, key.to_vec()),
            (Request::Delete("ab"), 8, 8, key.to_vec()),
        ];
        for (request, introduced, bare, rest) in cases {
            let expected = frame(&[introduced], &rest);
            assert_eq!(request.encode(Dialect::Introduced), expected, "{request:?}");
            assert_eq!(request.encode(Dialect::Bare), frame(&[bare], &rest), "{request:?}");
        }
        let hello = Request::Hello.encode(Dialect::Introduced);
        assert_eq!(hello[..9], [0, 0xce, 0xf7, 0x85, 0x3c, 13, 0xff, 0xff, 0xff]);
        assert_eq!(hello.len(), 10);
        // What a server that expects a length in its place sees: more than there can be.
        let length = u64::from_le_bytes(*hello[1..].first_chunk().unwrap());
        assert!(length > i64::MAX as u64);
    }

    #[test]
    fn answers_are_taken_at_their_last_byte_and_not_before() {
        let value = [&3u64.to_le_bytes()[..], b"abc", &0u64.to_le_bytes()].concat();
        let cases: [(Request, &[u8], &[u8]); 7] = [
            (Request::Hello, &nonce(), b""),
            (Request::Check("k"), &[0], b""),
            (Request::Check("k"), &[1], b""),
            (Request::Wait("k"), &[0], b""),
            (Request::Get("k"), &value[..11], b"abc"),
            (Request::Get("k"), &value[11..], b""),
            (Request::Delete("k"), &[1, 0, 0, 0, 0, 0, 0, 0], b""),
        ];
        for (request, answer, expected) in cases {
            for cut in 0..answer.len() {
                assert_eq!(request.decode(&answer[..cut]), Ok(None), "{request:?} {cut}");
            }
            assert_eq!(request.decode(answer), Ok(Some(expected.to_vec())), "{request:?}");
            let surplus = request.decode(&[answer, b"x"].concat());
            assert!(surplus.is_err(), "{request:?}: {surplus:?}");
        }
        assert_eq!(Request::Set("k", "v").decode(b""), Ok(Some(Vec::new())));
    }

    #[test]
    fn what_no_server_answers_is_told_at_once() {
        let long = 4097u64.to_le_bytes();
        let cases: [(Request, &[u8], &str); 7] = [
            (Request::Hello, b"SSH-2.0-OpenSSH", "SSH-2.0-OpenSSH"),
            (Request::Hello, b"\0", "x00"),
            (Request::Wait("k"), &[1], "x01"),
            (Request::Check("k"), &[2], "x02"),
            (Request::Get("k"), &long, "4097 bytes, allowed up to 4096"),
            (Request::Get("k"), &[0xff; 8], "18446744073709551615 bytes"),
            (Request::Set("k", "v"), b"HTTP/1.1 400", "HTTP/1.1"),
        ];
        for (request, received, part) in cases {
            let problem = request.decode(received).unwrap_err();
            assert!(problem.contains(part), "{request:?}: {problem}");
        }
    }
}
