//! Extensions of the current format: what a plan needs that the original format does not have.
//!
//! A plan lists them by name and version under the top-level key `extensions`. Readers of the original format skip
//! the key, so an extension brings operations with names of their own, by which those readers refuse the plan. This
//! reader refuses what it does not know: a plan that needs an extension means something else without it.

use super::typed::{FromJson, KeySeed, Trail, once};
use crate::model::Plan;
use crate::place::Step;
use serde::Deserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fmt;

/// Name of the extension for runtime sizes.
const RUNTIME_SIZES: &str = "runtime_sizes";
/// The version of it that is read and written.
const RUNTIME_SIZES_VERSION: u64 = 1;

/// The extensions that a plan needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extensions {
    /// Chunks of inputs and outputs are runtime blocks.
    pub(super) runtime_sizes: bool,
}

impl Extensions {
    /// Those of a plan.
    pub(super) fn of(plan: &Plan) -> Self {
        Extensions { runtime_sizes: plan.runtime_sizes }
    }

    /// Whether a plan with these is one of the original format.
    pub(super) fn is_empty(self) -> bool {
        self == Extensions::default()
    }
}

impl<'de> FromJson<'de> for Extensions {
    fn from_json<D: Deserializer<'de>>(json: D, trail: &Trail) -> Result<Self, D::Error> {
        struct Versions<'t>(&'t Trail);
        impl<'de> Visitor<'de> for Versions<'_> {
            type Value = Extensions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Extensions, A::Error> {
                let mut version = None;
                while let Some(key) = map.next_key_seed(KeySeed)? {
                    if key != RUNTIME_SIZES {
                        return Err(A::Error::custom(format_args!(
                            "saw extension `{key}`, allowed `{RUNTIME_SIZES}`, the only one this version of Antiphon \
                             knows; use a newer version"
                        )));
                    }
                    once(&mut version, RUNTIME_SIZES, &mut map, self.0)?;
                }
                match version {
                    None | Some(RUNTIME_SIZES_VERSION) => {
                        Ok(Extensions { runtime_sizes: version.is_some() })
                    }
                    Some(other) => {
                        self.0.leave(Step::Key(RUNTIME_SIZES));
                        Err(A::Error::custom(format_args!(
                            "saw version {other} of the extension, allowed {RUNTIME_SIZES_VERSION}, the only one this \
                             version of Antiphon knows; use a newer version"
                        )))
                    }
                }
            }
        }
        json.deserialize_map(Versions(trail))
    }
}

impl Serialize for Extensions {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        let mut map = json.serialize_map(None)?;
        if self.runtime_sizes {
            map.serialize_entry(RUNTIME_SIZES, &RUNTIME_SIZES_VERSION)?;
        }
        map.end()
    }
}
