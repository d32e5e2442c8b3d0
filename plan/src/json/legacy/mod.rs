//! Reads the older, chunk-oriented format and converts it to the current model.
//!
//! There a channel belonged to a pair of buffers and an operation named a channel where it now names a remote
//! buffer. [`wire`] has the objects as they are spelled; [`mod@convert`] gives every channel its number per type
//! ([`channels`]) and every remote chunk its buffer, and translates the operations ([`ops`]).

mod channels;
mod convert;
mod ops;
mod wire;

pub(super) use convert::convert;

/// Whether a text that is not a plan of the current format was meant as one of the older format.
///
/// Looks for a key (text in quotes, then a colon) that only one of them has, anywhere: the file may be cut off or
/// otherwise broken, and the reader for the right format gives the better message.
pub(super) fn looks_legacy(text: &str) -> bool {
    let has = |keys: &[&str]| keys.iter().any(|key| has_key(text, key));
    has(&["\"inputChunks\"", "\"outputChunks\"", "\"scratchChunks\""])
        && !has(&["\"input_chunks\"", "\"output_chunks\"", "\"scratch_chunks\""])
}

/// Whether `quoted` appears as a key.
fn has_key(text: &str, quoted: &str) -> bool {
    text.match_indices(quoted).any(|(at, _)| {
        text[at + quoted.len()..].trim_start_matches([' ', '\t', '\n', '\r']).starts_with(':')
    })
}
