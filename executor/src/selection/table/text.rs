//! Tables as JSON.

use super::{Kind, Machine, Setting, Table, Times};
use antiphon_plan::model::Collective;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the format that is written, and the only one that is read.
const VERSION: u64 = 1;

/// Why a text is no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// It is no JSON, or has other fields.
    #[error("cannot read a tuning table: {0}; `antiphon tune` writes one")]
    Text(String),
    /// It is of another version.
    #[error(
        "cannot read a tuning table: saw version {saw}, allowed {VERSION}; measure again with `antiphon tune --again`"
    )]
    Version {
        /// The version found.
        saw: u64,
    },
    /// A value makes no sense.
    #[error("cannot read a tuning table: saw {what} of {saw}, allowed {allowed}")]
    Value {
        /// What it is the value of.
        what: &'static str,
        /// The value.
        saw: String,
        /// What it may be.
        allowed: &'static str,
    },
}

#[derive(Deserialize)]
struct Version {
    antiphon_tuning: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    antiphon_tuning: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    library: Option<String>,
    cpu: String,
    cores: u32,
    settings: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    collective: String,
    ranks: u32,
    nodes: u32,
    kind: String,
    in_place: bool,
    sizes: Vec<Size>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Size {
    bytes: u64,
    #[serde(default = "once", skip_serializing_if = "is_once")]
    moments: u32,
    times_ns: BTreeMap<String, u64>,
}

/// What is not said.
fn once() -> u32 {
    1
}

fn is_once(moments: &u32) -> bool {
    *moments == once()
}

impl Table {
    /// Reads a table.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let garbled = |error: serde_json::Error| TableError::Text(error.to_string());
        // First, since another version may have other fields.
        let Version { antiphon_tuning: saw } = serde_json::from_str(text).map_err(garbled)?;
        if saw != VERSION {
            return Err(TableError::Version { saw });
        }
        let document = serde_json::from_str(text).map_err(garbled)?;
        let Document { library, cpu, cores, settings, .. } = document;
        let mut table = Table { library, ..Table::new(Machine { cpu, cores }) };
        for Entry { collective, ranks, nodes, kind, in_place, sizes } in settings {
            let fault = |what, saw: String, allowed| Err(TableError::Value { what, saw, allowed });
            if ranks == 0 {
                return fault("ranks", ranks.to_string(), "1 or more");
            }
            if nodes == 0 || !ranks.is_multiple_of(nodes) {
                return fault("nodes", nodes.to_string(), "numbers that divide the ranks");
            }
            let kind = match [Kind::Threads, Kind::Processes].into_iter().find(|k| k.name() == kind)
            {
                Some(kind) => kind,
                None => return fault("kind", format!("`{kind}`"), "threads and processes"),
            };
            let collective = Collective::from_name(&collective);
            let setting = Setting { collective, ranks, nodes, kind, in_place };
            for Size { bytes, moments, times_ns } in sizes {
                if times_ns.is_empty() {
                    return fault("times_ns", "nothing".to_owned(), "a time or more");
                }
                if table.at(&setting, bytes).is_some() {
                    return fault("bytes", bytes.to_string(), "each size once");
                }
                if moments == 0 {
                    return fault("moments", moments.to_string(), "1 or more");
                }
                table.record(&setting, bytes, Times { moments, ..Times::new(times_ns) });
            }
        }
        Ok(table)
    }

    /// The table as JSON, which [`parse`](Self::parse) reads; the same text for equal tables.
    pub fn to_text(&self) -> String {
        let settings = self.iter().map(|(setting, sizes)| Entry {
            collective: setting.collective.name().to_owned(),
            ranks: setting.ranks,
            nodes: setting.nodes,
            kind: setting.kind.name().to_owned(),
            in_place: setting.in_place,
            sizes: sizes
                .iter()
                .map(|(&bytes, times)| Size {
                    bytes,
                    moments: times.moments,
                    times_ns: times.iter().map(|(name, time)| (name.to_owned(), time)).collect(),
                })
                .collect(),
        });
        let document = Document {
            antiphon_tuning: VERSION,
            library: self.library.clone(),
            cpu: self.machine().cpu.clone(),
            cores: self.machine().cores,
            settings: settings.collect(),
        };
        serde_json::to_string_pretty(&document).expect("strings and numbers always are JSON")
    }
}
