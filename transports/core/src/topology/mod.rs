//! Which devices of this machine are near each other: read from the kernel's files, without touching a device.
//!
//! A [`Topology`] looks below a root, `/sys` or a made-up tree of a test. It knows the [`Place`] of a device of a given PCI
//! address, of network interfaces and of RDMA devices, and the memory nodes with their cores. How far two places are apart
//! is a [`Distance`], and [`Topology::nearest`] is the one rule by which wires choose among devices. What the kernel does not
//! tell, as in containers and virtual machines, is unknown: that is no error, and counts as being on the same memory node.

mod network;
mod nodes;
mod place;

#[cfg(test)]
mod tests;

pub use network::{Network, NetworkKind};
pub use nodes::MemoryNode;
pub use place::{Distance, PciLink, Place};

use antiphon_hal::PciAddress;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where the kernel says what there is.
const ROOT: &str = "/sys";

/// What is known of this machine's buses, read anew at each question but for the memory nodes.
#[derive(Clone, Debug)]
pub struct Topology {
    root: PathBuf,
    nodes: Vec<MemoryNode>,
}

/// From where distances count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Viewpoint {
    /// A device of this machine, in whose memory a rank's buffers are.
    Device(PciAddress),
    /// The memory nodes whose cores a process may use.
    Nodes(Vec<u32>),
}

impl fmt::Display for Viewpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Viewpoint::Device(pci) => write!(f, "device {pci}"),
            Viewpoint::Nodes(_) => f.write_str("this process's cores"),
        }
    }
}

impl Topology {
    /// This machine's.
    pub fn of_machine() -> Self {
        Topology::at(Path::new(ROOT))
    }

    /// What the tree below `root` says, which has the form of `/sys`. One without the files is a machine of which nothing is
    /// known.
    pub fn at(root: &Path) -> Self {
        Topology { root: root.to_owned(), nodes: nodes::read(root) }
    }

    /// Where the tree is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The memory nodes, in the order of their numbers.
    pub fn memory_nodes(&self) -> &[MemoryNode] {
        &self.nodes
    }

    /// The place of a device.
    pub fn place(&self, pci: PciAddress) -> Place {
        let device = self.root.join("bus/pci/devices").join(pci.to_string());
        Place::of(&device, &self.nodes)
    }

    /// The network interfaces and RDMA devices of this machine, those of each kind in the order of their names. Loopbacks
    /// are left out.
    pub fn networks(&self) -> Vec<Network> {
        network::all(self)
    }

    /// The place of a network interface; if it stands on another one (a VLAN, a bond of one), the place of that one.
    pub fn network_place(&self, interface: &str) -> Place {
        network::interface_place(self, interface)
    }

    /// The place of an RDMA device; if it is one in software, the place of the network interface below it.
    pub fn rdma_place(&self, device: &str) -> Place {
        network::rdma_place(self, device)
    }

    /// From where a rank sees devices: its own device, where the kernel tells its place, or else the memory nodes that have a
    /// core for which `usable` holds.
    pub fn viewpoint(
        &self,
        device: Option<PciAddress>,
        usable: impl Fn(usize) -> bool,
    ) -> Viewpoint {
        if let Some(pci) = device.filter(|pci| self.place(*pci) != Place::default()) {
            return Viewpoint::Device(pci);
        }
        let near = self.nodes.iter().filter(|node| node.cores.iter().any(|core| usable(*core)));
        Viewpoint::Nodes(near.map(|node| node.number).collect())
    }

    /// From where a rank of the calling thread sees devices: [`viewpoint`](Self::viewpoint) with the cores that the thread
    /// may use.
    pub fn viewpoint_of_thread(&self, device: Option<PciAddress>) -> Viewpoint {
        let cores = rustix::thread::sched_getaffinity(None);
        self.viewpoint(device, |core| {
            let known = core < rustix::thread::CpuSet::MAX_CPU;
            cores.as_ref().is_ok_and(|cores| !known || cores.is_set(core))
        })
    }

    /// How far a place is from a viewpoint.
    pub fn distance(&self, from: &Viewpoint, place: &Place) -> Distance {
        match from {
            Viewpoint::Device(pci) => self.place(*pci).distance(place),
            Viewpoint::Nodes(near) => match place.node {
                Some(node) if near.contains(&node) => Distance::Node,
                Some(_) if !near.is_empty() => Distance::Across,
                _ => Distance::Unknown,
            },
        }
    }

    /// Those of `choices` that are nearest, in their order, and how far they are. What has no known place counts as being on
    /// the same memory node.
    pub fn nearest<T>(
        &self,
        from: &Viewpoint,
        choices: Vec<T>,
        place: impl Fn(&T) -> &Place,
    ) -> (Vec<T>, Distance) {
        let far: Vec<_> = choices.iter().map(|one| self.distance(from, place(one))).collect();
        let least = far.iter().map(|distance| distance.steps()).min().unwrap_or_default();
        let most = far.iter().copied().filter(|distance| distance.steps() == least).max();
        let kept = choices.into_iter().zip(far).filter(|(_, distance)| distance.steps() == least);
        (kept.map(|(one, _)| one).collect(), most.unwrap_or(Distance::Unknown))
    }
}
