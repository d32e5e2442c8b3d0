//! The file of an installed plan: a plan like any other, with one more key that says what it is for. Readers of plans skip it.

use crate::fingerprint::fingerprint;
use crate::registry::plan::RegisteredPlan;
use crate::registry::{Contents, Terms, free};
use antiphon_plan::{Style, read, write};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The version of the key that is written, and the only one that is read.
const VERSION: u64 = 1;

/// The most bytes of a plan's name that its file's name has.
const LONGEST: usize = 100;

/// The part of a file that is not the plan's.
#[derive(Deserialize)]
struct Envelope {
    antiphon_installed: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Version {
    version: u64,
}

/// The key's value: the terms that the plan does not say itself.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    version: u64,
    /// Tells whether plan and terms are what was verified when the plan was installed.
    seal: String,
    name: String,
    tags: BTreeSet<String>,
    ranks_per_node: Option<u32>,
    min_bytes: u64,
    max_bytes: u64,
    dtypes: Vec<String>,
    ops: Vec<String>,
    root: Option<u32>,
}

impl Header {
    fn of(plan: &RegisteredPlan) -> Self {
        let Terms { tags, ranks_per_node, min_bytes, max_bytes, dtypes, ops, root, .. } =
            plan.terms();
        let mut header = Header {
            version: VERSION,
            seal: String::new(),
            name: plan.name().to_owned(),
            tags: tags.clone(),
            ranks_per_node: *ranks_per_node,
            min_bytes: *min_bytes,
            max_bytes: *max_bytes,
            dtypes: dtypes.iter().map(|dtype| dtype.name().to_owned()).collect(),
            ops: ops.iter().map(|op| op.name().to_owned()).collect(),
            root: *root,
        };
        header.seal = format!("{:016x}", header.seal(plan.fingerprint()));
        header
    }

    /// The seal of what this says and of a plan's content.
    fn seal(&self, content: u64) -> u64 {
        let Header { version, name, tags, ranks_per_node, min_bytes, max_bytes, .. } = self;
        let said = (version, name, tags, ranks_per_node, min_bytes, max_bytes);
        let said = (said, &self.dtypes, &self.ops, self.root, content);
        fingerprint(text(&said).as_bytes())
    }

    fn terms(&self) -> Result<Terms, String> {
        Ok(Terms {
            name: Some(self.name.clone()),
            tags: self.tags.clone(),
            ranks_per_node: self.ranks_per_node,
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            dtypes: named(&self.dtypes)?,
            ops: named(&self.ops)?,
            root: self.root,
            ..Terms::default()
        })
    }
}

fn named<T: std::str::FromStr<Err: std::fmt::Display>>(names: &[String]) -> Result<Vec<T>, String> {
    names.iter().map(|name| name.parse().map_err(|error| format!("{error}"))).collect()
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings and numbers always are JSON")
}

/// The text of a plan's file: the same for the same plan and terms.
pub(super) fn encode(plan: &RegisteredPlan) -> String {
    let mut bytes = Vec::new();
    write(plan.plan(), Style::Compact, &mut bytes).expect("writing to memory does not fail");
    let written = String::from_utf8_lossy(&bytes);
    let rest = written.trim_start_matches('{');
    format!("{{\"antiphon_installed\":{},{rest}\n", text(&Header::of(plan)))
}

/// The plan of a file, and its seal, which tells plans with their terms apart.
///
/// # Errors
/// Why it is no installed plan: "it …".
pub(super) fn decode(bytes: &[u8]) -> Result<(RegisteredPlan, u64), String> {
    let garbled = |error: serde_json::Error| format!("it cannot be read: {error}");
    let Envelope { antiphon_installed: header } = serde_json::from_slice(bytes).map_err(garbled)?;
    let Some(header) = header else {
        return Err("it was put there by other means; install it by `antiphon install`".to_owned());
    };
    // The version comes first, since another version may have other fields.
    let Version { version } = Version::deserialize(&header).map_err(garbled)?;
    if version != VERSION {
        let again = "install the plan again";
        return Err(format!("it is of version {version}, allowed {VERSION}; {again}"));
    }
    let header = Header::deserialize(&header).map_err(garbled)?;
    let plan = read(bytes).map_err(|error| format!("it is no plan: {error}"))?.plan;
    let terms = header.terms().map_err(|error| format!("its terms make no sense: {error}"))?;
    // Its root was checked when it was installed, for which the seal vouches.
    let plan = RegisteredPlan::vouched(plan, terms)
        .map_err(|error| format!("it is of no use: {error}"))?;
    free(&Contents::default(), plan.name()).map_err(|error| format!("it is of no use: {error}"))?;
    let seal = header.seal(plan.fingerprint());
    if header.seal != format!("{seal:016x}") {
        return Err("it was changed since it was installed; install the plan again".to_owned());
    }
    Ok((plan, seal))
}

/// The name of a plan's file: the plan's own name, as far as that can be one. Plans of different names have different files.
pub(super) fn name_of(name: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let short = (1..=LONGEST).contains(&name.len());
    if short && !name.starts_with('.') && name.chars().all(plain) {
        return format!("{name}.json");
    }
    let kept = name.chars().map(|letter| if plain(letter) { letter } else { '_' });
    let kept: String = kept.take(LONGEST).collect();
    let kept = kept.trim_start_matches('.');
    format!("{kept}+{:016x}.json", fingerprint(name.as_bytes()))
}
