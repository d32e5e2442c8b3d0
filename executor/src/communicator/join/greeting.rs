//! What ranks of a communicator that comes up tell each other first.

use crate::fingerprint::fingerprint;
use crate::gpu::neighbours::RankDevice;
use crate::shared::LAYOUT_VERSION;
use std::collections::{BTreeSet, HashMap};
use std::fmt;

/// Words of a greeting of this layout.
const WORDS: usize = 14;
/// The longest name of a version that another build is believed to have.
const LONGEST_VERSION: usize = 64;

/// What a build is told apart by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Build {
    /// The version of the package; empty of builds that do not say it.
    pub(super) version: String,
    /// That of what ranks share and tell each other.
    pub(super) layout: u64,
}

/// Why a greeting cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is of another build.
    Other(Build),
    /// It is no greeting.
    Garbled,
}

/// What ranks tell each other first.
pub(super) struct Greeting {
    pub(super) page: u64,
    /// The region of its mirrors; 0 for none.
    pub(super) mirrors: u64,
    pub(super) pid: u32,
    pub(super) token: (u64, u64),
    /// That of its tuning table; 0 for none.
    pub(super) tuning: u64,
    /// That of its installed plans; 0 for none.
    pub(super) installed: u64,
    /// Names the machine, whatever nodes are made of it: its ranks share its cores.
    pub(super) machine: u64,
    pub(super) cores: Cores,
    pub(super) device: RankDevice,
    pub(super) wires: Vec<String>,
}

/// The CPU time a rank may use.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cores {
    /// Numbers of the cores its thread may run on.
    numbers: Vec<u32>,
    /// How many of them the container's quota grants; `u64::MAX` without a quota.
    quota: u64,
}

impl Cores {
    pub(super) fn of_this_thread() -> Self {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap_or_default();
        let numbers = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        let numbers: Vec<u32> = numbers.map(|core| core as u32).collect();
        let usable = antiphon_hal::host::usable_cores();
        let limited = (usable as usize) < numbers.len();
        Cores { numbers, quota: if limited { usable.into() } else { u64::MAX } }
    }

    /// Cores that ranks with these may keep busy together.
    pub(super) fn together<'a>(all: impl Iterator<Item = &'a Cores> + Clone) -> u64 {
        let numbers: BTreeSet<u32> =
            all.clone().flat_map(|cores| cores.numbers.iter().copied()).collect();
        let quota = all.map(|cores| cores.quota).min().unwrap_or(u64::MAX);
        quota.min(numbers.len() as u64)
    }
}

/// How the ranks share machines and processes.
#[derive(Debug)]
pub(super) struct Crowds {
    /// The number of machines.
    pub(super) machines: usize,
    /// The ranks of this rank's machine are more than the cores that they may keep busy.
    pub(super) here: bool,
    /// The same of any machine.
    pub(super) anywhere: bool,
    /// The ranks of the process that has the most of them.
    pub(super) largest_process: usize,
}

impl Crowds {
    /// Of these ranks, as this one of them sees it.
    pub(super) fn of(greetings: &[Greeting], rank: u32) -> Self {
        let mut machines: HashMap<u64, Vec<&Greeting>> = HashMap::new();
        let mut processes: HashMap<(u64, u32), usize> = HashMap::new();
        for greeting in greetings {
            machines.entry(greeting.machine).or_default().push(greeting);
            *processes.entry((greeting.machine, greeting.pid)).or_default() += 1;
        }
        let is_crowd = |ranks: &Vec<&Greeting>| {
            ranks.len() as u64 > Cores::together(ranks.iter().map(|greeting| &greeting.cores))
        };
        let own = greetings[rank as usize].machine;
        Crowds {
            machines: machines.len(),
            here: machines.get(&own).is_some_and(is_crowd),
            anywhere: machines.values().any(is_crowd),
            largest_process: processes.into_values().max().unwrap_or(1),
        }
    }
}

impl Build {
    pub(super) fn own() -> Self {
        Build { version: env!("CARGO_PKG_VERSION").to_owned(), layout: LAYOUT_VERSION }
    }

    /// The front of every greeting, which stays the same in all versions: the layout, then the length of the version's name, and
    /// that name.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.layout.to_le_bytes().to_vec();
        bytes.push(self.version.len() as u8);
        bytes.extend(self.version.as_bytes());
        bytes
    }

    /// The build of a greeting's sender, and what follows it; `None` if there is not even a layout.
    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (layout, rest) = bytes.split_first_chunk()?;
        let named = rest.split_first().and_then(|(&length, rest)| {
            let (name, rest) = rest.split_at_checked(length.into())?;
            let is_name = name.len() <= LONGEST_VERSION && name.iter().all(u8::is_ascii_graphic);
            is_name.then(|| (String::from_utf8_lossy(name).into_owned(), rest))
        });
        // Early builds had other words here.
        let (version, rest) = named.unwrap_or_default();
        Some((Build { version, layout: u64::from_le_bytes(*layout) }, rest))
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.version.is_empty() { "of an early version" } else { &self.version };
        write!(f, "Antiphon {version} (layout {})", self.layout)
    }
}

impl Greeting {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Build::own().encode();
        let Greeting { page, mirrors, token, tuning, installed, machine, cores, device, .. } = self;
        let [what, place, low, high] = device.to_words();
        let numbers = cores.numbers.len() as u64;
        let words: [u64; WORDS] = [
            *page,
            *mirrors,
            self.pid.into(),
            token.0,
            token.1,
            *tuning,
            *installed,
            *machine,
            cores.quota,
            what,
            place,
            low,
            high,
            numbers,
        ];
        let cores = cores.numbers.iter().copied().map(u64::from);
        for word in words.into_iter().chain(cores) {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.wires.join("\n").into_bytes());
        bytes
    }

    /// # Errors
    /// Which other build it is of, or that it is none.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Unread> {
        let (build, rest) = Build::decode(bytes).ok_or(Unread::Garbled)?;
        if build != Build::own() {
            return Err(Unread::Other(build));
        }
        Self::of_this_build(rest).ok_or(Unread::Garbled)
    }

    fn of_this_build(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<{ 8 * WORDS }>()?;
        let words: [u64; WORDS] = std::array::from_fn(|word| {
            u64::from_le_bytes(std::array::from_fn(|byte| head[8 * word + byte]))
        });
        let [
            page,
            mirrors,
            pid,
            address,
            token,
            tuning,
            installed,
            machine,
            quota,
            what,
            place,
            low,
            high,
            numbers,
        ] = words;
        let (numbers, names) =
            rest.split_at_checked(usize::try_from(numbers).ok()?.checked_mul(8)?)?;
        let numbers =
            numbers.as_chunks::<8>().0.iter().map(|core| u64::from_le_bytes(*core) as u32);
        let cores = Cores { numbers: numbers.collect(), quota };
        let names = std::str::from_utf8(names).ok()?;
        let wires = names.lines().map(str::to_owned).collect();
        let token = (address, token);
        let device = RankDevice::from_words([what, place, low, high])?;
        let pid = pid as u32;
        Some(Greeting {
            page,
            mirrors,
            pid,
            token,
            tuning,
            installed,
            machine,
            cores,
            device,
            wires,
        })
    }
}

/// Names this machine, whatever `ANTIPHON_HOSTID` says.
pub(super) fn machine() -> u64 {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    fingerprint(&id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_of_another_build_says_which() {
        let own = Build::own();
        let layout = own.layout + 1;
        for other in
            [Build { layout, ..own.clone() }, Build { version: "99.1.0".to_owned(), ..own }]
        {
            let read = Greeting::decode(&other.encode()).err();
            assert_eq!(read, Some(Unread::Other(other)));
        }
    }

    #[test]
    fn bytes_of_early_builds_and_of_nobody_are_no_version() {
        // A layout, and then words, as greetings began that did not say the version.
        let early: Vec<u8> = [11_u64, 3, 0, 4711].into_iter().flat_map(u64::to_le_bytes).collect();
        let Some(Unread::Other(build)) = Greeting::decode(&early).err() else {
            panic!("a greeting of layout 11 was read");
        };
        assert_eq!(build.to_string(), "Antiphon of an early version (layout 11)");
        let front = Build::own().encode();
        assert_eq!(Greeting::decode(&front[..7]).err(), Some(Unread::Garbled));
        assert_eq!(Greeting::decode(&front).err(), Some(Unread::Garbled));
    }
}
