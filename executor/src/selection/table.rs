//! What was measured on a machine: the time of each candidate for calls of several sizes. Pure data, which
//! `antiphon tune` writes and the choice of an algorithm reads.
//!
//! A call whose size lies between two that were measured takes times on the straight line between theirs: moving bytes takes
//! a time for the call and a time for each byte. One that is near a single measured size takes its times. What was measured
//! in place stands for calls out of place that were not measured, and the other way round, but for alltoall; likewise ranks
//! as threads and as processes.

mod text;

use crate::fingerprint::fingerprint;
use antiphon_plan::model::Collective;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// This library's version. What its built-in algorithms do, and how fast all plans are, may differ in another.
const LIBRARY: &str = env!("CARGO_PKG_VERSION");

/// How many times as large or as small as a measured size a call's may be: as far apart as `antiphon tune` measures.
const NEAR: u64 = 4;

pub use text::TableError;

/// The machine that times are of, or that ranks are on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// The cores that its ranks may keep busy together.
    pub cores: u32,
}

/// What ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Threads of one process.
    Threads,
    /// Processes.
    Processes,
}

/// The calls that a list of sizes is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// The collective.
    pub collective: Collective,
    /// Number of ranks.
    pub ranks: u32,
    /// Nodes that they are spread over.
    pub nodes: u32,
    /// What they are.
    pub kind: Kind,
    /// Whether input and output are the same memory.
    pub in_place: bool,
}

/// The times of the candidates for one call, the fastest first. Of equal times, names decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    times: Vec<(String, u64)>,
    moments: u32,
}

/// Times of candidates by setting and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    machine: Machine,
    /// The version of the library that measured; none is said in tables of the first ones.
    library: Option<String>,
    settings: Vec<(Setting, BTreeMap<u64, Times>)>,
}

/// What a table knows of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Near<'a> {
    /// The setting that was measured; it may differ from what was asked for in the kind of ranks and in the place of buffers.
    pub setting: &'a Setting,
    /// The sizes that were measured: the one next below the call's and the one next above, or the same one twice.
    pub bytes: (u64, u64),
    /// The times at the call's size.
    pub times: Cow<'a, Times>,
}

impl Machine {
    /// This machine, as far as the calling thread may use it.
    pub fn here() -> Self {
        let cpu = antiphon_hal::host::cpu_model();
        Machine { cpu, cores: antiphon_hal::host::usable_cores() }
    }

    /// Whether times of so many ranks here hold for as many there: the processor is the same, and they have as many cores. A rank
    /// keeps one busy, so that more than one for each rank are no more.
    pub fn holds_for(&self, ranks: u32, there: &Machine) -> bool {
        let busy = |machine: &Machine| machine.cores.min(ranks);
        self.cpu == there.cpu && busy(self) == busy(there)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.cores == 1 { "" } else { "s" };
        write!(f, "{} with {} usable core{plural}", self.cpu, self.cores)
    }
}

impl Kind {
    /// The name in files and output.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Threads => "threads",
            Kind::Processes => "processes",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Times {
    /// These times, in nanoseconds, measured in one moment. Of a name that comes twice, the last one counts.
    pub fn new(times: impl IntoIterator<Item = (String, u64)>) -> Self {
        let mut times: Vec<_> = times.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect();
        // Stable: equal times stay in the order of names.
        times.sort_by_key(|(_, time)| *time);
        Times { times, moments: 1 }
    }

    /// In how many moments, each a while after the one before, these were measured.
    pub fn moments(&self) -> u32 {
        self.moments
    }

    /// The times of further moments, together with these: of each candidate in those the geometric mean over all moments, so that
    /// one in which the machine was slow counts no more than another.
    pub fn and(&self, further: &Times) -> Times {
        let (known, new) = (f64::from(self.moments), f64::from(further.moments));
        let logarithm = |time: u64| (time.max(1) as f64).ln();
        let together = further.iter().map(|(name, time)| {
            let mean = self.of(name).map(|before| {
                let sum = known * logarithm(before) + new * logarithm(time);
                (sum / (known + new)).exp().round() as u64
            });
            (name.to_owned(), mean.unwrap_or(time))
        });
        Times { moments: self.moments.saturating_add(further.moments), ..Times::new(together) }
    }

    /// Names and times in nanoseconds, the fastest first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.times.iter().map(|(name, time)| (name.as_str(), *time))
    }

    /// The time of a candidate, in nanoseconds; none if it was not measured.
    pub fn of(&self, name: &str) -> Option<u64> {
        self.iter().find(|(known, _)| *known == name).map(|(_, time)| time)
    }

    /// The times at `part / whole` of the way from these to `other`. Who has a time in one of them alone has that.
    fn between(&self, other: &Times, part: u64, whole: u64) -> Times {
        let here = self.iter().map(|(name, from)| {
            let way = i128::from(other.of(name).unwrap_or(from)) - i128::from(from);
            let time = i128::from(from) + way * i128::from(part) / i128::from(whole);
            (name.to_owned(), time as u64)
        });
        let there = other.iter().filter(|(name, _)| self.of(name).is_none());
        Times::new(here.chain(there.map(|(name, time)| (name.to_owned(), time))))
    }

    /// The fastest of those that are allowed.
    pub fn best(&self, allowed: impl Fn(&str) -> bool) -> Option<&str> {
        self.iter().map(|(name, _)| name).find(|name| allowed(name))
    }
}

impl Setting {
    /// How far another setting is from this one; none if its times say nothing here.
    fn distance(&self, other: &Setting) -> Option<u32> {
        let (place, kind) = (self.in_place != other.in_place, self.kind != other.kind);
        let alike = self.ranks == other.ranks
            && self.nodes == other.nodes
            && self.collective == other.collective
            // Other algorithms serve it in place.
            && !(place && self.collective == Collective::AllToAll);
        // The place changes what algorithms do; what ranks are does not.
        alike.then_some(2 * u32::from(place) + u32::from(kind))
    }
}

impl Table {
    /// A table without times, of this version of the library.
    pub fn new(machine: Machine) -> Self {
        Table { machine, library: Some(LIBRARY.to_owned()), settings: Vec::new() }
    }

    /// A table without times, of the machine and the version of the library that this one is of.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Table { settings: Vec::new(), ..self.clone() }
    }

    /// Whose the times are, if they are of another version of the library, so that they say nothing of this one.
    pub fn stale(&self) -> Option<String> {
        let of = match self.library.as_deref() {
            Some(LIBRARY) => return None,
            Some(other) => format!("version {other} of Antiphon"),
            None => "an early version of Antiphon".to_owned(),
        };
        Some(format!("its times are of {of}, and this is {LIBRARY}"))
    }

    /// The machine that the times are of.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The settings that were measured, with their sizes in bytes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (&Setting, &BTreeMap<u64, Times>)> {
        self.settings.iter().map(|(setting, sizes)| (setting, sizes))
    }

    /// Writes down the times of a size, in the place of what there was.
    pub fn record(&mut self, setting: &Setting, bytes: u64, times: Times) {
        let found = self.settings.iter_mut().find(|(known, _)| known == setting);
        let sizes = match found {
            Some((_, sizes)) => sizes,
            None => {
                let order = |one: &Setting| {
                    let name = one.collective.name().to_owned();
                    (name, one.ranks, one.nodes, one.kind, one.in_place)
                };
                let own = order(setting);
                let at = self.settings.partition_point(|(known, _)| order(known) < own);
                self.settings.insert(at, (setting.clone(), BTreeMap::new()));
                &mut self.settings[at].1
            }
        };
        sizes.insert(bytes, times);
    }

    /// The times of exactly this size.
    pub fn at(&self, setting: &Setting, bytes: u64) -> Option<&Times> {
        let (_, sizes) = self.settings.iter().find(|(known, _)| known == setting)?;
        sizes.get(&bytes)
    }

    /// The times for a call of `asked` bytes: of the nearest setting of those that have times of all `wanted` candidates, if any
    /// has. (A plan for calls in place is measured in place alone.) Sizes more than four times as large or as small say nothing
    /// of the call.
    pub fn near(&self, setting: &Setting, asked: u64, wanted: &[&str]) -> Option<Near<'_>> {
        let known = self.settings.iter().filter_map(|(known, sizes)| {
            let (bytes, times) = near(sizes, asked)?;
            let lacks = wanted.iter().any(|name| times.of(name).is_none());
            let order = (lacks, setting.distance(known)?);
            Some((order, Near { setting: known, bytes, times }))
        });
        known.min_by_key(|(order, _)| *order).map(|(_, near)| near)
    }

    /// Tells tables apart: equal ones have equal fingerprints, and only by accident others. Never 0, which is for no table.
    pub fn fingerprint(&self) -> u64 {
        fingerprint(self.to_text().as_bytes()).max(1)
    }
}

#[cfg(test)]
mod tests;

/// The sizes next to a call's, and the times at its own.
fn near(sizes: &BTreeMap<u64, Times>, asked: u64) -> Option<((u64, u64), Cow<'_, Times>)> {
    let is_near = |&(&bytes, _): &(&u64, _)| {
        let (small, large) = (asked.min(bytes), asked.max(bytes));
        large <= small.saturating_mul(NEAR)
    };
    let below = sizes.range(..=asked).next_back().filter(is_near);
    let above = sizes.range(asked..).next().filter(is_near);
    match (below, above) {
        (Some((&low, from)), Some((&high, to))) if low < high => {
            let times = from.between(to, asked - low, high - low);
            Some(((low, high), Cow::Owned(times)))
        }
        (below, above) => {
            let (&bytes, times) = below.or(above)?;
            Some(((bytes, bytes), Cow::Borrowed(times)))
        }
    }
}
