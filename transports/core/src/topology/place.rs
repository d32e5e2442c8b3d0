//! Where a device is: the bridges above it, its memory node, and its link.

use super::nodes::{self, MemoryNode};
use antiphon_hal::PciAddress;
use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Where a device is on the buses of its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The host bridge, the bridges below it, and the device itself, as the kernel names them. Empty for what is not on PCI.
    path: Vec<String>,
    /// The memory node that the device is attached to, where that is known.
    pub node: Option<u32>,
    /// The link to the device, where the kernel tells.
    pub link: Option<PciLink>,
}

/// A PCI Express link as it is now: idle devices may have it slower than it can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciLink {
    /// Speed of a lane in the kernel's words, e.g. `16.0 GT/s PCIe`.
    pub speed: String,
    /// Lanes.
    pub width: u32,
}

impl fmt::Display for PciLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x{}", self.speed, self.width)
    }
}

/// How far two devices of a machine are apart, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// They are one device.
    Same,
    /// A PCI Express bridge below the host bridge leads to both: what goes between them need not reach the processor.
    Bridge,
    /// One host bridge leads to both.
    HostBridge,
    /// They are attached to one memory node.
    Node,
    /// The kernel does not tell.
    Unknown,
    /// They are attached to different memory nodes.
    Across,
}

impl Distance {
    /// As a number to choose by: what is not known counts as one memory node.
    pub(super) const fn steps(self) -> u8 {
        match self {
            Distance::Same => 0,
            Distance::Bridge => 1,
            Distance::HostBridge => 2,
            Distance::Node | Distance::Unknown => 3,
            Distance::Across => 4,
        }
    }

    /// One word, for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Distance::Same => "same",
            Distance::Bridge => "bridge",
            Distance::HostBridge => "host-bridge",
            Distance::Node => "node",
            Distance::Unknown => "unknown",
            Distance::Across => "across",
        }
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Distance::Same => "the same device",
            Distance::Bridge => "below the same PCI bridge",
            Distance::HostBridge => "below the same host bridge",
            Distance::Node => "on the same memory node",
            Distance::Unknown => "at an unknown distance",
            Distance::Across => "on another memory node",
        })
    }
}

impl Place {
    /// The place of the device that the folder `device`, or a link to one, is about; no place if that cannot be read.
    pub(super) fn of(device: &Path, nodes: &[MemoryNode]) -> Self {
        // Links that lead round in circles are an error here.
        let Ok(folder) = fs::canonicalize(device) else { return Place::default() };
        let (mut path, mut at, mut found) = (Vec::new(), PathBuf::new(), PathBuf::new());
        for component in folder.components() {
            at.push(component);
            let Component::Normal(name) = component else { continue };
            let name = name.to_str().unwrap_or_default();
            if is_host_bridge(name) || (!path.is_empty() && name.parse::<PciAddress>().is_ok()) {
                path.push(name.to_owned());
                found.clone_from(&at);
            } else if !path.is_empty() {
                break;
            }
        }
        if path.len() < 2 {
            return Place::default();
        }
        let node = text(&found.join("numa_node")).and_then(|node| node.parse().ok());
        let speed = text(&found.join("current_link_speed"));
        let width = text(&found.join("current_link_width")).and_then(|width| width.parse().ok());
        // What is not a PCI Express device of its own, as in virtual machines, has no lanes, or an unknown speed.
        let link = speed.zip(width).filter(|(speed, width)| *width > 0 && speed != "Unknown");
        Place {
            path,
            node: node.or_else(|| nodes::only(nodes)),
            link: link.map(|(speed, width)| PciLink { speed, width }),
        }
    }

    /// The device's PCI address; `None` for what is not on PCI.
    pub fn pci(&self) -> Option<PciAddress> {
        self.path.last()?.parse().ok()
    }

    /// How far another place is.
    pub fn distance(&self, other: &Place) -> Distance {
        let common = self.path.iter().zip(&other.path).take_while(|(a, b)| a == b).count();
        let whole = common == self.path.len() && common == other.path.len();
        match (common, self.node, other.node) {
            (1.., ..) if whole => Distance::Same,
            // A host bridge may hang below a device of another one.
            (1.., ..) if !is_host_bridge(&self.path[common - 1]) => Distance::Bridge,
            (1.., ..) => Distance::HostBridge,
            (0, Some(a), Some(b)) if a == b => Distance::Node,
            (0, Some(_), Some(_)) => Distance::Across,
            _ => Distance::Unknown,
        }
    }
}

/// Whether a folder is that of a host bridge: `pci0000:3a`.
fn is_host_bridge(name: &str) -> bool {
    let place = name.strip_prefix("pci").and_then(|rest| rest.split_once(':'));
    let hexadecimal = |digits: &str, least: usize| {
        digits.len() >= least && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    place.is_some_and(|(domain, bus)| hexadecimal(domain, 4) && hexadecimal(bus, 2))
}

/// A file's text without the space around it; `None` for one that is empty, or cannot be read.
pub(super) fn text(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
