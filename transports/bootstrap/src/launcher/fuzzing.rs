//! For fuzzers: what launchers say, and what they leave in the environment.

use super::host_list::{first_host, tasks_of};
use super::pmi_wire::parse;
use super::store_wire::Request;

/// Answers of a Store, lines of PMI, and Slurm's lists. Returns the number of parsers that take the bytes.
pub fn launchers(bytes: &[u8]) -> usize {
    let mut taken = 0;
    for request in [
        Request::Hello,
        Request::Check("k"),
        Request::Set("k", "v"),
        Request::Wait("k"),
        Request::Get("k"),
        Request::Delete("k"),
    ] {
        taken += usize::from(is_answer(request, bytes));
    }
    let text = String::from_utf8_lossy(bytes);
    for (key, value) in parse(&text) {
        assert!(text.contains(&format!("{key}={value}")));
        assert!(!key.contains('=') && !value.contains(|c: char| c.is_ascii_whitespace()));
    }
    let host = first_host(&text);
    assert!(host.iter().all(|host| !host.is_empty() && !host.contains([' ', ',', '[', ']'])));
    let tasks = [0, 1, u32::MAX].map(|node| tasks_of(&text, node));
    taken + usize::from(host.is_some()) + tasks.into_iter().flatten().count()
}

/// Whether a Store may answer so. Whatever comes byte by byte: first nothing is known, then at most one answer is whole, and
/// everything longer is a fault, as is everything after a fault.
fn is_answer(request: Request<'_>, bytes: &[u8]) -> bool {
    let answers: Vec<_> =
        (0..=bytes.len().min(64)).map(|end| request.decode(&bytes[..end])).collect();
    let waits = answers.iter().take_while(|answer| **answer == Ok(None)).count();
    let whole = usize::from(matches!(answers.get(waits), Some(Ok(Some(_)))));
    assert!(answers.iter().skip(waits + whole).all(Result::is_err), "{request:?}: {answers:?}");
    if let Ok(Some(value)) = request.decode(bytes) {
        assert!(value.is_empty() || bytes.ends_with(&value));
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sound_is_taken() {
        let value = [&3u64.to_le_bytes()[..], b"abc"].concat();
        for (bytes, expected) in [
            // Nothing is the answer to `Set`.
            (&b""[..], 1),
            // It is there, says `Check` as well as `Wait`; and it is no list.
            (b"\0", 2),
            (&value, 1),
            (b"node[07-09],login", 1),
            // Also the name of a host.
            (b"4", 2),
            (b"4(x2),1", 2),
            (b"cmd=maxes vallen_max=7", 0),
        ] {
            assert_eq!(launchers(bytes), expected, "{}", bytes.escape_ascii());
        }
    }
}
