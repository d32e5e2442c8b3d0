//! The part of `info` about places: GPUs and networks on this machine's buses, and how far they are apart.

use antiphon::executor::hal::{Caps, PeerLink};
use antiphon::executor::topology::{Network, NetworkKind, Place, Topology, Viewpoint};

/// What is known of the machine's buses, with the GPUs by their names, a line each.
pub fn report(topology: &Topology, gpus: &[(String, Result<Caps, String>)]) -> Vec<String> {
    let mut lines = vec!["topology".to_owned()];
    let nodes = topology.memory_nodes();
    let cores = |cores: &[usize]| match cores.len() {
        0 => "no cores".to_owned(),
        1 => "1 core".to_owned(),
        many => format!("{many} cores"),
    };
    let each = nodes.iter().map(|node| format!("{} ({})", node.number, cores(&node.cores)));
    let nodes = each.collect::<Vec<_>>().join(", ");
    lines.push(format!("  memory nodes: {}", if nodes.is_empty() { "unknown" } else { &nodes }));
    let networks = topology.networks();
    for network in &networks {
        lines.push(format!("  {}", describe(network)));
    }
    let of_cores = topology.viewpoint_of_thread(None);
    lines.extend(distances(topology, "cores", &of_cores, &networks));
    for (name, caps) in gpus {
        match caps {
            Ok(caps) => lines.extend(gpu(topology, name, caps, &networks)),
            Err(why) => lines.push(format!("  {name}: unavailable: {why}")),
        }
    }
    lines
}

fn describe(network: &Network) -> String {
    let Network { name, place, speed, up, kind } = network;
    let kind = match kind {
        NetworkKind::Interface => "network",
        NetworkKind::Rdma => "rdma",
    };
    let state = if *up { "up" } else { "not up" };
    let speed = speed.as_ref().map_or_else(String::new, |speed| format!(", {speed}"));
    format!("{kind} {name}: {state}{speed}; {}", at(place))
}

fn at(place: &Place) -> String {
    let Some(pci) = place.pci() else { return "not on PCI, as far as the kernel tells".to_owned() };
    let node = place.node.map_or_else(String::new, |node| format!(", memory node {node}"));
    let link = place.link.as_ref().map_or_else(String::new, |link| format!(", {link}"));
    format!("{pci}{node}{link}")
}

/// How far the networks are from a viewpoint, the nearest first; nothing where there is none.
fn distances(
    topology: &Topology,
    of: &str,
    from: &Viewpoint,
    networks: &[Network],
) -> Option<String> {
    let mut far: Vec<_> =
        networks.iter().map(|one| (topology.distance(from, &one.place), &one.name)).collect();
    far.sort();
    let each: Vec<_> = far.iter().map(|(far, name)| format!("{name} {}", far.name())).collect();
    (!each.is_empty()).then(|| format!("  from {of}: {}", each.join(", ")))
}

fn gpu(topology: &Topology, name: &str, caps: &Caps, networks: &[Network]) -> Vec<String> {
    let place = caps.pci.map(|pci| (pci, topology.place(pci)));
    let shown = match &place {
        None => "the driver does not tell where it is".to_owned(),
        Some((_, place)) if place.pci().is_some() => at(place),
        Some((pci, _)) => format!("{pci}, of which the kernel tells nothing"),
    };
    let has = |has, what: &'static str| if has { what } else { "" };
    let wired: Vec<_> = [
        has(caps.peer_mapping, "shared between processes"),
        has(caps.multicast, "multicast"),
        has(caps.dma_buf, "dma-buf"),
        has(caps.ordered_network_writes, "network writes in order"),
    ]
    .into_iter()
    .filter(|what| !what.is_empty())
    .collect();
    let wired = if wired.is_empty() { "none of them".to_owned() } else { wired.join(", ") };
    let mut lines = vec![format!("  {name}: {shown}; memory: {wired}")];
    if let Some((pci, _)) = place {
        lines.extend(distances(topology, name, &Viewpoint::Device(pci), networks));
    }
    lines.extend(caps.peers.iter().map(|link| format!("  {name} to {}", peer(link))));
    lines
}

fn peer(link: &PeerLink) -> String {
    let place = link.pci.map_or_else(String::new, |pci| format!(" ({pci})"));
    let reach = match (link.access, link.atomics) {
        (true, true) => "loads, stores and atomics, as over NVLink or xGMI",
        (true, false) => "loads and stores, and no atomics, as over PCIe",
        (false, _) => "out of reach",
    };
    format!("{}{place}: {reach}", link.index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn networks_and_gpus_have_places_and_distances() {
        let root = std::env::temp_dir().join(format!("antiphon-machine-{}", std::process::id()));
        let bridge = "devices/pci0000:3a/0000:3a:00.0";
        for (file, text) in [
            ("devices/system/node/node0/cpulist", "0-65535"),
            (&format!("{bridge}/0000:3b:00.0/numa_node"), "0"),
            (&format!("{bridge}/0000:3c:00.0/numa_node"), "0"),
            ("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
            ("class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)"),
            ("class/net/veth0/operstate", "down"),
        ] {
            let file = root.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let nic = root.join("class/infiniband/mlx5_0/device");
        symlink(root.join(format!("{bridge}/0000:3c:00.0")), nic).unwrap();
        fs::create_dir_all(root.join("bus/pci/devices")).unwrap();
        let gpu = root.join("bus/pci/devices/0000:3b:00.0");
        symlink(root.join(format!("{bridge}/0000:3b:00.0")), gpu).unwrap();
        // The host's capabilities, at a place: no others can be made here.
        let host = antiphon::executor::hal::driver(antiphon::executor::hal::Backend::Host);
        let mut caps = host.unwrap().open(0).unwrap().caps().clone();
        caps.pci = "0000:3b:00.0".parse().ok();
        let gpus = [("cuda:0".to_owned(), Ok(caps)), ("cuda:1".to_owned(), Err("busy".to_owned()))];
        let report = report(&Topology::at(&root), &gpus).join("\n");
        fs::remove_dir_all(&root).unwrap();
        for line in [
            "  memory nodes: 0 (65536 cores)",
            "  network veth0: not up; not on PCI, as far as the kernel tells",
            "  rdma mlx5_0: up, 100 Gb/sec (4X EDR); 0000:3c:00.0, memory node 0",
            "  from cores: mlx5_0 node, veth0 unknown",
            "  cuda:0: 0000:3b:00.0, memory node 0; memory: shared between processes",
            "  from cuda:0: mlx5_0 bridge, veth0 unknown",
            "  cuda:1: unavailable: busy",
        ] {
            assert!(report.contains(line), "no `{line}` in\n{report}");
        }
    }
}
