//! Network interfaces and RDMA devices: where they are, and how fast their links are.

use super::place::text;
use super::{Place, Topology};
use std::fs;
use std::path::Path;

/// How many interfaces may stand on each other.
const DEPTH: u32 = 8;

/// A kind of network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkKind {
    /// A network interface.
    Interface,
    /// An RDMA device.
    Rdma,
}

/// A network interface or RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// What it is.
    pub kind: NetworkKind,
    /// Its name, e.g. `eth0`, `mlx5_0`.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// Speed of its link, or of its first port's, in the kernel's words, where it tells.
    pub speed: Option<String>,
    /// Whether its link, or that of some port, is up.
    pub up: bool,
}

/// All of them, without loopbacks.
pub(super) fn all(topology: &Topology) -> Vec<Network> {
    let class = |class: &str| {
        let folder = topology.root().join("class").join(class);
        // Beside the devices' folders there may be a module's own files.
        let devices = children(&folder).into_iter().filter(move |name| folder.join(name).is_dir());
        devices.collect::<Vec<_>>()
    };
    let loopback = |name: &String| {
        // ARPHRD_LOOPBACK.
        let kind = topology.root().join("class/net").join(name).join("type");
        text(&kind).as_deref() == Some("772")
    };
    let interfaces = class("net").into_iter().filter(|name| !loopback(name));
    let rdma = class("infiniband").into_iter().map(|name| rdma(topology, name));
    interfaces.map(|name| interface(topology, name)).chain(rdma).collect()
}

fn interface(topology: &Topology, name: String) -> Network {
    let folder = topology.root().join("class/net").join(&name);
    // Reading the speed of one that is down fails, and -1 is what virtual ones say.
    let speed = text(&folder.join("speed")).and_then(|speed| speed.parse::<u32>().ok());
    let speed = speed.filter(|speed| *speed != u32::MAX).map(|speed| format!("{speed} Mb/s"));
    // Drivers that do not report a state have a carrier nonetheless.
    let carrier = || text(&folder.join("carrier")).is_some_and(|carrier| carrier == "1");
    let up = match text(&folder.join("operstate")).as_deref() {
        Some("up") => true,
        Some("unknown") => carrier(),
        _ => false,
    };
    let place = interface_place(topology, &name);
    Network { kind: NetworkKind::Interface, name, place, speed, up }
}

fn rdma(topology: &Topology, name: String) -> Network {
    let ports = topology.root().join("class/infiniband").join(&name).join("ports");
    let of = |port: &String, file: &str| text(&ports.join(port).join(file));
    let all = children(&ports);
    let up = all.iter().any(|port| of(port, "state").is_some_and(|text| text.ends_with("ACTIVE")));
    let speed = all.first().and_then(|port| of(port, "rate"));
    let place = rdma_place(topology, &name);
    Network { kind: NetworkKind::Rdma, name, place, speed, up }
}

pub(super) fn interface_place(topology: &Topology, name: &str) -> Place {
    let mut name = name.to_owned();
    for _ in 0..DEPTH {
        if !is_name(&name) {
            break;
        }
        let folder = topology.root().join("class/net").join(&name);
        let place = Place::of(&folder.join("device"), topology.memory_nodes());
        if place != Place::default() {
            return place;
        }
        let mut below = children(&folder).into_iter().filter_map(|entry| {
            let lower = entry.strip_prefix("lower_")?;
            Some(lower.to_owned())
        });
        match (below.next(), below.next()) {
            (Some(lower), None) => name = lower,
            // One that stands on several is at no one place.
            _ => break,
        }
    }
    Place::default()
}

pub(super) fn rdma_place(topology: &Topology, name: &str) -> Place {
    if !is_name(name) {
        return Place::default();
    }
    let folder = topology.root().join("class/infiniband").join(name);
    let place = Place::of(&folder.join("device"), topology.memory_nodes());
    if place != Place::default() {
        return place;
    }
    let parent = text(&folder.join("parent"));
    parent.map_or_else(Place::default, |parent| interface_place(topology, &parent))
}

/// Whether a text is one folder's name, and leads nowhere else.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '\0'])
}

/// Names of what is in a folder, in order; none where it cannot be read.
fn children(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}
