//! Plan files: [`read`] understands the current JSON format and the older chunk-oriented one in both its spellings,
//! [`write()`] writes the current format.
//!
//! Reading yields a [`Plan`] whose fields have the right types; whether its numbers make sense is for
//! [`check`](crate::check()) to say. Unknown keys are skipped, anything else that does not fit is an error
//! with its place, an extension it does not know included. Memory and time stay proportional to the file, and no
//! input makes the reader panic.

mod current;
mod extensions;
mod legacy;
mod names;
mod operations;
mod typed;
mod write;

#[cfg(test)]
mod tests;

use crate::model::{Buffer, ChannelTable, Plan};
use crate::place::Place;
use std::fmt;

pub use write::{Style, write};

/// A plan and the dialect its file was written in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The plan.
    pub plan: Plan,
    /// The dialect of the file.
    pub dialect: Dialect,
}

/// The dialects of plan files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Buffers and channels declared per rank, chunk references inside operations.
    Current,
    /// The chunk-oriented format with `sm` and `proxy` channels (msccl-tools).
    LegacySm,
    /// The chunk-oriented format with `memory` and `port` channels (MSCCL++ 0.6 and 0.7).
    LegacyMemory,
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Dialect::Current => "current",
            Dialect::LegacySm => "legacy (sm, proxy)",
            Dialect::LegacyMemory => "legacy (memory, port)",
        })
    }
}

/// Why a file could not be read as a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the plan: at {place}: {problem}{}", Position(*position))]
pub struct ReadError {
    /// Where in the structure of the file.
    pub place: Place,
    /// What was found, and what is allowed.
    pub problem: String,
    /// Line and column (both from 1) where reading stopped, if the text itself was at fault.
    pub position: Option<(usize, usize)>,
}

/// The tail of a message.
struct Position(Option<(usize, usize)>);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((line, column)) => write!(f, " (line {line}, column {column})"),
            None => Ok(()),
        }
    }
}

impl ReadError {
    /// An error met while parsing, with the steps that led to it.
    fn parsing(error: &serde_json::Error, trail: typed::Trail) -> Self {
        let text = error.to_string();
        let (line, column) = (error.line(), error.column());
        let bare = text.strip_suffix(&format!(" at line {line} column {column}"));
        ReadError {
            place: trail.into_place(),
            problem: reworded(bare.unwrap_or(&text)),
            position: (line > 0).then_some((line, column)),
        }
    }

    /// An error met while converting what was parsed.
    fn converting(place: Place, problem: String) -> Self {
        ReadError { place, problem, position: None }
    }

    /// The error for bytes that are not UTF-8.
    fn encoding(bytes: &[u8], valid: usize) -> Self {
        let line_start = bytes[..valid].iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        let line = 1 + bytes[..line_start].iter().filter(|&&b| b == b'\n').count();
        ReadError {
            place: Place::top(),
            problem: format!(
                "saw byte {:#04x} at offset {valid}, which is not UTF-8; save the file as UTF-8",
                bytes.get(valid).copied().unwrap_or_default()
            ),
            position: Some((line, valid - line_start + 1)),
        }
    }
}

/// A message of the JSON parser in the words of this crate's own messages.
fn reworded(text: &str) -> String {
    if let Some(what) = text.strip_prefix("EOF while parsing ") {
        return format!("saw the end of the file inside {what}; the file is cut off");
    }
    if text == "trailing characters" {
        return "saw more text after the plan, allowed white space".to_owned();
    }
    let mismatch = ["invalid type: ", "invalid value: "];
    let mismatch = mismatch.iter().find_map(|prefix| text.strip_prefix(prefix));
    match mismatch.and_then(|text| text.rsplit_once(", expected ")) {
        Some((found, allowed)) => {
            let found = match found {
                "sequence" => "a list",
                "map" => "an object",
                other => other,
            };
            format!("saw {found}, allowed {allowed}")
        }
        None => text.to_owned(),
    }
}

/// Reads a plan file of any dialect.
///
/// # Errors
///
/// [`ReadError`] if the bytes are not one JSON object of a known dialect: not UTF-8, malformed or cut off, a key
/// missing or repeated, an extension or a version of one that is not known, a value of the wrong type or out of its
/// range, text after the end. A legacy file also fails if it cannot be converted, e.g. because an operation names a
/// channel that its block does not have.
pub fn read(bytes: &[u8]) -> Result<Read, ReadError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| ReadError::encoding(bytes, error.valid_up_to()))?;
    match parse::<current::File>(text) {
        Ok(file) => Ok(Read { plan: file.0, dialect: Dialect::Current }),
        // Detecting only now keeps the usual case to one pass. Files of the two formats never parse as each
        // other, because the chunk counts are required and spelled differently.
        Err(_) if legacy::looks_legacy(text) => parse(text).and_then(legacy::convert),
        Err(error) => Err(error),
    }
}

/// Reads one value that spans the whole text.
fn parse<'de, T: typed::FromJson<'de>>(text: &'de str) -> Result<T, ReadError> {
    let trail = typed::Trail::default();
    let mut json = serde_json::Deserializer::from_str(text);
    T::from_json(&mut json, &trail)
        .and_then(|value| json.end().map(|()| value))
        .map_err(|error| ReadError::parsing(&error, trail))
}

/// The buffer of each switch channel of a rank.
fn switch_buffers(tables: &[ChannelTable]) -> Vec<Buffer> {
    let mut buffers = Vec::new();
    for table in tables {
        if let ChannelTable::Switch { buffer, groups } = table {
            buffers.extend(groups.iter().map(|_| *buffer));
        }
    }
    buffers
}
