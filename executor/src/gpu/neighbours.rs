//! Which devices the ranks use, and what these are to each other.
//!
//! Each rank tells the others what its device is, and then what it lacks to reach theirs. So all ranks know the same, and
//! refuse the same.

use crate::selection::Devices;
use antiphon_hal::{Backend, Device, DeviceUuid, HalError, PciAddress, PeerLink};
use antiphon_plan::algorithms::devices::DeviceClass;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A rank's device, as it names it to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankDevice {
    /// Whose it is.
    backend: Backend,
    /// Its number in the rank's process.
    index: u32,
    /// What it is told apart by.
    identity: Identity,
    /// Whether it takes part in multicast groups.
    multicast: bool,
    /// Whether network cards may write its memory: what they wrote is there once its host sees what they wrote later.
    ordered: bool,
    /// Its multiprocessors; of the host its cores.
    cores: u16,
}

/// What a device is told apart by in all processes, as far as its driver tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    uuid: Option<DeviceUuid>,
    /// Its place, which slices of one GPU share.
    pci: Option<PciAddress>,
}

/// What is missing between two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// They are of different backends.
    Backend,
    /// One does not reach the other's memory.
    Access,
}

impl Identity {
    /// Whether both are one device; `None` where nobody tells.
    fn is(&self, other: &Self) -> Option<bool> {
        let uuids = self.uuid.zip(other.uuid).map(|(own, theirs)| own == theirs);
        uuids.or_else(|| self.same_place(other))
    }

    /// Whether both are at one place; `None` where nobody tells.
    fn same_place(&self, other: &Self) -> Option<bool> {
        self.pci.zip(other.pci).map(|(own, theirs)| own == theirs)
    }

    /// Whether both are slices of one GPU (MIG), which do not reach each other's memory.
    fn are_slices(&self, other: &Self) -> bool {
        self.same_place(other) == Some(true) && self.is(other) == Some(false)
    }

    fn is_known(&self) -> bool {
        self.uuid.is_some() || self.pci.is_some()
    }

    /// Equal for one device.
    fn key(&self) -> (Option<DeviceUuid>, Option<PciAddress>) {
        (self.uuid, self.pci.filter(|_| self.uuid.is_none()))
    }
}

impl RankDevice {
    /// What a rank says of its device.
    pub fn of(device: &dyn Device) -> Self {
        let caps = device.caps();
        RankDevice {
            backend: device.backend(),
            index: device.index(),
            identity: Identity { uuid: caps.uuid, pci: caps.pci },
            multicast: caps.multicast,
            ordered: caps.ordered_network_writes,
            cores: u16::try_from(caps.cores).unwrap_or(u16::MAX),
        }
    }

    /// The same, without multicast groups unless they are `allowed`.
    pub fn with_multicast(self, allowed: bool) -> Self {
        RankDevice { multicast: self.multicast && allowed, ..self }
    }

    /// The same as words of a greeting.
    pub fn to_words(self) -> [u64; 4] {
        let number = Backend::ALL.iter().position(|&backend| backend == self.backend);
        let number = number.unwrap_or(0) as u64;
        let flags = u64::from(self.multicast) << 8 | u64::from(self.ordered) << 9;
        let what = number | flags | u64::from(self.cores) << 16;
        let Identity { uuid, pci } = self.identity;
        let uuid = uuid.map_or(0, |uuid| u128::from_le_bytes(uuid.to_bytes()));
        let place = pci.map_or(u64::MAX, PciAddress::to_bits);
        [what | u64::from(self.index) << 32, place, uuid as u64, (uuid >> 64) as u64]
    }

    /// What a peer's words say; `None` if they say nothing.
    pub fn from_words([what, place, low, high]: [u64; 4]) -> Option<Self> {
        let backend = *Backend::ALL.get((what & 0xFF) as usize)?;
        let [multicast, ordered] = [8, 9].map(|bit| what >> bit & 1 != 0);
        Some(RankDevice {
            backend,
            index: (what >> 32) as u32,
            identity: Identity {
                uuid: DeviceUuid::new((u128::from(low) | u128::from(high) << 64).to_le_bytes()),
                pci: PciAddress::from_bits(place),
            },
            multicast,
            ordered,
            cores: (what >> 16) as u16,
        })
    }

    /// Whether both are one device. Processes may number devices differently, so the numbers count only within one process.
    fn is(&self, other: &Self, same_process: bool) -> bool {
        let told = self.identity.is(&other.identity);
        self.backend == other.backend && told.unwrap_or(same_process && self.index == other.index)
    }

    /// Lets kernels of `own` use the memory of this device, which is of the same process.
    pub fn enable(&self, own: &dyn Device) -> Result<(), HalError> {
        if self.is(&RankDevice::of(own), true) { Ok(()) } else { own.enable_peer(self.index) }
    }

    /// What `own`, of this process, lacks to reach this device.
    pub fn gap(&self, own: &dyn Device, same_process: bool) -> Option<Gap> {
        if own.backend() != self.backend {
            return Some(Gap::Backend);
        }
        let this = RankDevice::of(own);
        if self.is(&this, same_process) {
            return None;
        }
        if self.identity.are_slices(&this.identity) {
            return Some(Gap::Access);
        }
        // Whether a device that this process does not see can be reached shows only when its memory is mapped.
        let link = self.link_of(&own.caps().peers, same_process)?;
        (!link.access).then_some(Gap::Access)
    }

    /// How a device with these links reaches this one, if this one is another device that the process sees.
    fn link_of<'a>(&self, links: &'a [PeerLink], same_process: bool) -> Option<&'a PeerLink> {
        links.iter().find(|link| {
            let told = Identity { uuid: link.uuid, pci: link.pci }.is(&self.identity);
            told.unwrap_or(same_process && link.index == self.index)
        })
    }
}

impl fmt::Display for RankDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.backend, self.index)?;
        self.identity.pci.map_or(Ok(()), |place| write!(f, " at {place}"))
    }
}

impl Gap {
    /// The gap between these ranks, in words.
    pub fn between(self, ranks: [(u32, &RankDevice); 2]) -> String {
        let [first, second] = ranks.map(|(_, device)| device.identity);
        let [one, other] = ranks.map(|(rank, device)| format!("rank {rank} ({device})"));
        match self {
            Gap::Backend => format!("{one} and {other}, on devices of different kinds"),
            Gap::Access if first.are_slices(&second) => {
                format!(
                    "{one} and {other}, on slices of one GPU, which do not reach each other's memory"
                )
            }
            Gap::Access => {
                format!("{one} and {other}, whose devices do not reach each other's memory")
            }
        }
    }

    /// As a byte of an answer, where 0 stands for no gap.
    pub fn to_byte(gap: Option<Self>) -> u8 {
        match gap {
            None => 0,
            Some(Gap::Backend) => 1,
            Some(Gap::Access) => 2,
        }
    }

    /// What a byte stands for; `None` for no such byte.
    pub fn from_byte(byte: u8) -> Option<Option<Self>> {
        [None, Some(Gap::Backend), Some(Gap::Access)].get(usize::from(byte)).copied()
    }
}

/// The devices of all ranks of a communicator.
#[derive(Clone, Debug)]
pub struct Neighbours {
    devices: Vec<RankDevice>,
    /// By rank, whether it lives in this process.
    here: Vec<bool>,
    rank: u32,
    /// The first two ranks of a node whose devices lack something to work together.
    gap: Option<(u32, u32, Gap)>,
    /// The nodes that ranks are on, if some count as on other nodes because their devices do not reach each other.
    homes: Option<Vec<u32>>,
}

impl Neighbours {
    /// What `rank` has heard: each rank's device and whether it lives in this process, and what each said of the others.
    pub fn new(
        rank: u32,
        devices: Vec<(RankDevice, bool)>,
        mut gaps: impl Iterator<Item = (u32, u32, Gap)>,
    ) -> Self {
        let (devices, here) = devices.into_iter().unzip();
        Neighbours { devices, here, rank, gap: gaps.next(), homes: None }
    }

    /// The same, for ranks that are on the nodes `homes`, but count as on others; `None` if no rank does.
    pub fn at_home_on(self, homes: Option<Vec<u32>>) -> Self {
        Neighbours { homes, ..self }
    }

    /// Whether ranks of one node count as on different ones.
    pub fn are_parted(&self) -> bool {
        self.homes.is_some()
    }

    /// Why two ranks of one node count as on different ones, in words; `None` if they are not on one node, or no ranks count so.
    pub fn parted(&self, one: u32, other: u32) -> Option<String> {
        let homes = self.homes.as_ref()?;
        let same = homes[one as usize] == homes[other as usize];
        same.then(|| self.apart(one, other, Gap::Access))
    }

    /// Whether a peer's device is this rank's, in the same process: their blocks share it.
    pub fn share(&self, peer: u32) -> bool {
        let (own, theirs) = (&self.devices[self.rank as usize], &self.devices[peer as usize]);
        self.here[peer as usize] && own.is(theirs, true)
    }

    /// Whether all ranks live in this process and use one device: what one can address, all can.
    pub fn all_share(&self) -> bool {
        (0..self.devices.len() as u32).all(|peer| self.share(peer))
    }

    /// Whether the device of this rank, which has these links, adds to memory of all ranks that are `near` in single steps.
    /// `false` if this process does not see one of their devices: the driver says nothing about such a device.
    pub fn adds(&self, links: &[PeerLink], near: impl Fn(u32) -> bool) -> bool {
        let own = self.devices[self.rank as usize];
        let mut others = (0..).zip(self.devices.iter().zip(&self.here));
        others.all(|(rank, (device, &here))| {
            let adds = || device.link_of(links, here).is_some_and(|link| link.atomics);
            !near(rank) || own.is(device, here) || adds()
        })
    }

    /// Whether network cards may write the memory of some rank's device. If they may not, they need not read device memory either.
    pub fn take_writes(&self) -> bool {
        self.devices.iter().any(|device| device.ordered)
    }

    /// Whether the devices of some ranks make a multicast group: each supports that in hardware, and no two ranks share one.
    pub fn multicast(&self, members: &[u32]) -> bool {
        let devices = || members.iter().map(|&member| &self.devices[member as usize]);
        let able = devices().all(|device| device.multicast && device.identity.is_known());
        let different: BTreeSet<_> = devices().map(|device| device.identity.key()).collect();
        members.len() > 1 && able && different.len() == members.len()
    }

    /// What the choice of built-in algorithms depends on, for ranks on these nodes; the same on every rank.
    ///
    /// A launch gets at most half of the blocks that fit a device with one on each multiprocessor: another stream's may be
    /// there. Ranks that share a device, or may, get one block each.
    pub fn devices(&self, nodes: &[u32]) -> Devices {
        let all = &self.devices;
        let Some(backend) = all.first().map(|first| first.backend) else { return Devices::Host };
        if backend == Backend::Host {
            return Devices::Host;
        }
        let key = |device: &RankDevice| {
            let known = device.identity.is_known();
            (device.identity.key(), if known { 0 } else { device.index })
        };
        let different: BTreeSet<_> =
            nodes.iter().zip(all).map(|(node, device)| (*node, key(device))).collect();
        let apart = different.len() == all.len();
        let able = |one: &RankDevice| one.multicast && one.identity.is_known();
        let multicast = apart && all.iter().all(able);
        let class = match backend {
            Backend::Rocm => DeviceClass::Amd,
            _ if multicast => DeviceClass::NvidiaMulticast,
            _ => DeviceClass::Nvidia,
        };
        let cores = all.iter().map(|device| u32::from(device.cores)).min().unwrap_or(1);
        let most_blocks = if apart { (cores / 2).max(1) } else { 1 };
        Devices::Gpus { class, most_blocks }
    }

    /// The first two ranks whose devices cannot work together, and why, in words.
    pub fn refusal(&self) -> Option<String> {
        let (one, other, gap) = self.gap?;
        Some(self.apart(one, other, gap))
    }

    /// The first ranks whose devices are of different kinds, whatever nodes they are on, in words: rank 0, and the first of
    /// another kind. All ranks say the same.
    pub fn mixed(&self) -> Option<String> {
        let kind = |device: &RankDevice| device.backend;
        let first = self.devices.first().map(kind)?;
        let other = self.devices.iter().map(kind).position(|other| other != first)?;
        Some(self.apart(0, other as u32, Gap::Backend))
    }

    fn apart(&self, one: u32, other: u32, gap: Gap) -> String {
        gap.between([one, other].map(|rank| (rank, &self.devices[rank as usize])))
    }
}

impl Devices {
    /// What ranks with these devices on these nodes, both in rank order, run on: as a communicator of such ranks finds it.
    /// `multicast` says whether they allow [multicast groups](crate::Options::multicast).
    pub fn of_ranks(devices: &[Arc<dyn Device>], nodes: &[u32], multicast: bool) -> Self {
        let told = devices.iter().map(|device| {
            let told = RankDevice::of(&**device).with_multicast(multicast);
            (told, true)
        });
        Neighbours::new(0, told.collect(), std::iter::empty()).devices(nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(index: u32, pci: &str) -> RankDevice {
        let identity = Identity { uuid: None, pci: pci.parse().ok() };
        let (multicast, ordered) = (index == 1, index == 0);
        RankDevice { backend: Backend::Cuda, index, identity, multicast, ordered, cores: 108 }
    }

    /// The same with a number of its own.
    fn numbered(index: u32, pci: &str, uuid: u8) -> RankDevice {
        let device = device(index, pci);
        let uuid = DeviceUuid::new([uuid; 16]);
        RankDevice { identity: Identity { uuid, ..device.identity }, ..device }
    }

    #[test]
    fn devices_are_told_apart_by_their_numbers_and_places() {
        let [first, second] = ["0000:10:00.0", "0000:11:00.0"];
        for (own, theirs, same_process, same) in [
            (device(0, first), device(0, first), true, true),
            // Each process sees one device, and counts from 0.
            (device(0, first), device(0, second), false, false),
            (device(0, first), device(1, first), false, true),
            (device(0, ""), device(0, ""), true, true),
            (device(0, ""), device(0, ""), false, false),
            (device(0, ""), device(1, ""), true, false),
            // Slices of one GPU, and a GPU of which a driver does not tell the number.
            (numbered(0, first, 1), numbered(0, first, 2), false, false),
            (numbered(0, first, 1), numbered(1, first, 1), false, true),
            (numbered(0, first, 1), device(1, first), false, true),
        ] {
            assert_eq!(own.is(&theirs, same_process), same, "{own}, {theirs}");
            assert_eq!(RankDevice::from_words(own.to_words()), Some(own));
        }
        assert_eq!(RankDevice::from_words([9, 0, 0, 0]), None);
    }

    #[test]
    fn slices_of_a_gpu_are_devices_that_do_not_reach_each_other() {
        let place = "0000:10:00.0";
        let slices = [1, 2].map(|uuid| numbered(0, place, uuid));
        let all = slices.map(|device| (device, false)).to_vec();
        let neighbours = Neighbours::new(0, all, [(0, 1, Gap::Access)].into_iter());
        let expected = Devices::Gpus { class: DeviceClass::Nvidia, most_blocks: 54 };
        assert_eq!(neighbours.devices(&[0, 0]), expected);
        let text = neighbours.refusal().unwrap();
        assert!(text.contains("on slices of one GPU, which do not reach"), "{text}");
        let [one, other] = slices.map(|device| device.identity);
        assert!(one.are_slices(&other) && !one.are_slices(&one));
        assert!(!one.are_slices(&numbered(0, "0000:11:00.0", 2).identity));
        assert!(!one.are_slices(&device(0, place).identity));
    }

    #[test]
    fn the_choice_goes_by_whose_devices_they_are_and_whether_they_are_apart() {
        let [first, second] = ["0000:10:00.0", "0000:11:00.0"];
        let able = |pci| RankDevice { multicast: true, ..device(0, pci) };
        let small = |pci| RankDevice { cores: 14, ..device(0, pci) };
        let of = |backend, pci| RankDevice { backend, ..able(pci) };
        let gpus = |class, most_blocks| Devices::Gpus { class, most_blocks };
        use DeviceClass::{Amd, Nvidia, NvidiaMulticast};
        for (devices, nodes, expected) in [
            ([able(first), able(second)], [0, 0], gpus(NvidiaMulticast, 54)),
            ([able(first), able(first)], [0, 1], gpus(NvidiaMulticast, 54)),
            ([able(first), able(first)], [0, 0], gpus(Nvidia, 1)),
            ([able(first), device(0, second)], [0, 0], gpus(Nvidia, 54)),
            ([able(first), able(second).with_multicast(false)], [0, 0], gpus(Nvidia, 54)),
            ([able(first), small(second)], [0, 0], gpus(Nvidia, 7)),
            // Which device it is, nobody knows.
            ([able(""), able("")], [0, 0], gpus(Nvidia, 1)),
            ([of(Backend::Rocm, first), of(Backend::Rocm, second)], [0, 0], gpus(Amd, 54)),
            ([of(Backend::Host, ""), of(Backend::Host, "")], [0, 0], Devices::Host),
        ] {
            let all = devices.map(|device| (device, true)).to_vec();
            let neighbours = Neighbours::new(0, all, std::iter::empty());
            assert_eq!(neighbours.devices(&nodes), expected, "{devices:?} {nodes:?}");
        }
    }

    #[test]
    fn one_device_that_cards_may_write_is_enough_for_others_to_be_read() {
        let [able, unable] = [device(0, ""), device(1, "")];
        for (devices, expected) in
            [([able, unable], true), ([unable, able], true), ([unable, unable], false)]
        {
            let all = devices.map(|device| (device, false)).to_vec();
            assert_eq!(Neighbours::new(0, all, std::iter::empty()).take_writes(), expected);
        }
    }

    #[test]
    fn a_device_adds_to_no_memory_of_which_nobody_says_that_it_may() {
        let [own, hidden] = ["10", "11"].map(|at| device(0, &format!("0000:{at}:00.0")));
        for (other, expected) in [(own, true), (hidden, false)] {
            let all = [own, other].map(|device| (device, false)).to_vec();
            let neighbours = Neighbours::new(0, all, std::iter::empty());
            assert_eq!(neighbours.adds(&[], |_| true), expected, "{other}");
            // Over a wire nothing is added.
            assert!(neighbours.adds(&[], |rank| rank == 0));
        }
    }

    #[test]
    fn what_lacks_is_named_with_both_ranks() {
        let devices = || vec![(device(0, "0000:10:00.0"), true), (device(1, ""), true)];
        assert_eq!(Neighbours::new(0, devices(), std::iter::empty()).refusal(), None);
        for (gap, word) in
            [(Gap::Backend, "different kinds"), (Gap::Access, "reach each other's memory")]
        {
            assert_eq!(Gap::from_byte(Gap::to_byte(Some(gap))), Some(Some(gap)));
            let neighbours = Neighbours::new(0, devices(), [(0, 1, gap)].into_iter());
            let text = neighbours.refusal().unwrap();
            assert!(text.starts_with("rank 0 (cuda:0 at 0000:10:00.0) and rank 1 (cuda:1)"));
            assert!(text.contains(word), "{text}");
            // All ranks name the same two.
            let gaps = || [(1, 0, gap), (0, 2, gap)].into_iter();
            let all = [devices(), devices()].concat();
            let told = [0, 3].map(|rank| Neighbours::new(rank, all.clone(), gaps()).refusal());
            assert!(told[0].as_ref().is_some_and(|text| text.starts_with("rank 1")));
            assert_eq!(told[0], told[1]);
        }
        assert_eq!(Gap::from_byte(0), Some(None));
        assert_eq!(Gap::from_byte(3), None);
    }

    #[test]
    fn ranks_on_devices_of_different_kinds_are_found_by_all_alike() {
        let host = RankDevice { backend: Backend::Host, ..device(0, "") };
        let gpu = device(0, "0000:10:00.0");
        for (devices, expected) in [
            (vec![gpu, gpu], None),
            (vec![host, host], None),
            (
                vec![gpu, gpu, host, host],
                Some("rank 0 (cuda:0 at 0000:10:00.0) and rank 2 (host:0)"),
            ),
            (vec![host, gpu], Some("rank 0 (host:0) and rank 1 (cuda:0 at 0000:10:00.0)")),
        ] {
            let expected = expected.map(|two| format!("{two}, on devices of different kinds"));
            // What lacks on a node besides says nothing of it, and between nodes nobody looks for what lacks.
            for gap in [None, Some((0, 1, Gap::Access))] {
                for rank in 0..devices.len() as u32 {
                    let all = devices.iter().map(|&device| (device, false)).collect();
                    assert_eq!(Neighbours::new(rank, all, gap.into_iter()).mixed(), expected);
                }
            }
        }
    }

    #[test]
    fn ranks_that_share_a_device_are_counted_for_each() {
        let place = ["0000:10:00.0", "0000:11:00.0"];
        let devices = (0..4).map(|rank| (device(rank % 2, place[rank as usize % 2]), rank != 2));
        let neighbours = Neighbours::new(0, devices.collect(), std::iter::empty());
        let share: Vec<bool> = (0..4).map(|peer| neighbours.share(peer)).collect();
        assert_eq!(share, [true, false, false, false]);
        assert!(!neighbours.all_share());
    }
}
