//! Which ports to use and under which addresses: decided from what the kernel's files say, without touching a device.

pub mod filter;
pub mod gid;
pub mod sysfs;

use crate::flow::MAX_LANES;
use crate::settings::RdmaSettings;
use antiphon_transport::topology::{Topology, Viewpoint};
use filter::{Filter, Selector};
use gid::GidEntry;
use sysfs::Port;

/// A port, and the address that connections over it have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The port.
    pub port: Port,
    /// The entry of its address table; `None` on InfiniBand without routing, where the local identifier is enough.
    pub gid: Option<GidEntry>,
}

/// The ports to use, and why these, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The ports, in the order of their names.
    pub ports: Vec<Choice>,
    /// Why not others that could be used as well.
    pub why: String,
}

/// The ports to use, four at most, in the order of their names. Unless ports are named, only the nearest to `from`.
///
/// The ends of a link pair equal positions of what each has chosen for itself. Where ranks choose by their GPUs those may be
/// different cards on different networks, between which the network must route.
///
/// # Errors
/// Why no port can be used, and what would help.
pub fn choose(
    ports: &[Port],
    settings: &RdmaSettings,
    (topology, from): (&Topology, &Viewpoint),
) -> Result<Chosen, (String, String)> {
    if ports.is_empty() {
        return Err((
            "this machine has no RDMA device (/sys/class/infiniband is empty)".to_owned(),
            "load the driver of the network card, or use another wire".to_owned(),
        ));
    }
    let selector = by_name(ports, &settings.selector);
    let mut refused = Vec::new();
    let mut usable = Vec::new();
    for port in ports {
        let name = format!("{}:{}", port.device, port.number);
        let asked = match &selector {
            Selector::Ports(filter) => filter.admits(&port.device, port.number),
            // Whether the port has that address is seen below.
            Selector::Interface(_) | Selector::Address(_) => true,
        };
        if !asked {
            refused.push(format!("{name} is excluded by {selector}"));
        } else if !port.active {
            refused.push(format!("{name} is not active ({})", port.state));
        } else {
            match gid::choose(port, &selector, settings.gid_index) {
                Ok(gid) => usable.push(Choice { port: port.clone(), gid }),
                Err(why) => refused.push(format!("{name}: {why}")),
            }
        }
    }
    if usable.is_empty() {
        return Err((
            format!("no port can be used: {}", refused.join("; ")),
            "bring a port up (`rdma link` shows them), or choose with ANTIPHON_HCA and ANTIPHON_GID_INDEX".to_owned(),
        ));
    }
    // Who names ports wants those, near or not.
    let named = matches!(&selector, Selector::Ports(Filter::Only(_)));
    let why = if named {
        format!("as {selector} says")
    } else {
        let (nearest, distance) = topology.nearest(from, usable, |choice| &choice.port.place);
        usable = nearest;
        format!("nearest to {from}: {distance}")
    };
    usable.sort_by(|a, b| (&a.port.device, a.port.number).cmp(&(&b.port.device, b.port.number)));
    usable.truncate(MAX_LANES);
    Ok(Chosen { ports: usable, why })
}

/// Positions of the ports that a link between two ranks uses, out of `ports`: `lanes` at most. Both ends come to the same
/// where both have equally many.
///
/// Links mostly join ranks that are as far apart as the ranks of nodes are, or a multiple of it: those of one node, at the
/// same distance, take the ports in turn; those of one rank, at distances that are multiples of each other, change ports as
/// the number of ones in the distance does.
pub fn share(ranks: [u32; 2], ports: usize, lanes: usize) -> impl Iterator<Item = usize> {
    let [a, b] = ranks;
    let first = a.min(b) as usize + a.abs_diff(b).count_ones() as usize;
    (0..lanes.min(ports)).map(move |lane| (first % ports + lane) % ports)
}

/// What is given as an interface may also name a device.
fn by_name(ports: &[Port], selector: &Selector) -> Selector {
    if let Selector::Interface(name) = selector
        && let Ok(filter @ Filter::Only(_)) = Filter::parse(name)
        && ports.iter().any(|port| filter.admits(&port.device, port.number))
    {
        return Selector::Ports(filter);
    }
    selector.clone()
}

#[cfg(test)]
mod tests {
    use super::gid::{GidKind, tests::entry};
    use super::*;
    use antiphon_transport::topology::Place;
    use std::path::Path;

    fn port(device: &str, active: bool, node: Option<u32>) -> Port {
        let address = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
        let mut place = Place::default();
        place.node = node;
        Port {
            device: device.to_owned(),
            number: 1,
            active,
            state: if active { "4: ACTIVE" } else { "1: DOWN" }.to_owned(),
            ethernet: true,
            place,
            gids: vec![entry(0, address, GidKind::RoceV2, "eth0")],
        }
    }

    fn names(ports: &[Port], settings: &RdmaSettings, nodes: &[u32]) -> Result<String, String> {
        let topology = Topology::at(Path::new("/nowhere"));
        let from = Viewpoint::Nodes(nodes.to_vec());
        let chosen = choose(ports, settings, (&topology, &from)).map_err(|(why, _)| why)?;
        let why = &chosen.why;
        assert!(why.contains("this process's cores") || why.starts_with("as mlx5"), "{why}");
        Ok(chosen.ports.iter().map(|c| c.port.device.clone()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn ports_are_chosen_by_name_state_and_locality() {
        let ports = [
            port("mlx5_3", true, Some(1)),
            port("mlx5_0", true, Some(0)),
            port("mlx5_2", false, Some(0)),
            port("mlx5_1", true, Some(0)),
        ];
        for (hca, nodes, expected) in [
            ("", &[0][..], "mlx5_0 mlx5_1"),
            ("", &[1], "mlx5_3"),
            ("", &[0, 1], "mlx5_0 mlx5_1 mlx5_3"),
            ("", &[7], "mlx5_0 mlx5_1 mlx5_3"),
            ("^mlx5_0", &[0], "mlx5_1"),
            ("mlx5_3,mlx5_0:1", &[0], "mlx5_0 mlx5_3"),
        ] {
            let settings = RdmaSettings::parse(None, |name| {
                (name == "ANTIPHON_HCA" && !hca.is_empty()).then(|| hca.to_owned())
            })
            .expect("settings");
            assert_eq!(names(&ports, &settings, nodes).as_deref(), Ok(expected), "{hca} {nodes:?}");
        }
    }

    #[test]
    fn both_ends_of_a_link_share_ports_and_links_are_spread() {
        for (lanes, ranks, expected) in [
            (1, [0, 0], &[0][..]),
            (1, [0, 2], &[1]),
            (1, [3, 2], &[0]),
            (2, [2, 2], &[2, 0]),
            (4, [0, 1], &[1, 2, 0]),
            (1, [u32::MAX, 0], &[2]),
        ] {
            let [a, b] = ranks;
            assert_eq!(share([a, b], 3, lanes).collect::<Vec<_>>(), expected, "{ranks:?}");
            assert_eq!(share([b, a], 3, lanes).collect::<Vec<_>>(), expected, "{ranks:?}");
        }
    }

    #[test]
    fn links_of_a_node_and_of_a_rank_use_all_ports() {
        let first = |ranks, ports| share(ranks, ports, 1).next().expect("a port");
        for (ports, per_node) in [(2, 8), (4, 8), (2, 2), (3, 6)] {
            for node in 1..5 {
                let mut links = vec![0; ports];
                (0..per_node)
                    .for_each(|rank| links[first([rank, rank + node * per_node], ports)] += 1);
                assert!(links.iter().all(|&count| count == links[0]), "{links:?} of {ports} ports");
            }
        }
        for per_node in [1, 2, 8] {
            let mut links = [0_u32; 2];
            (1..16).for_each(|node| links[first([0, node * per_node], 2)] += 1);
            assert!(links[0].abs_diff(links[1]) <= 1, "{links:?}");
        }
    }

    #[test]
    fn where_no_port_is_left_every_refusal_is_named() {
        let settings = RdmaSettings::parse(None, |name| {
            (name == "ANTIPHON_HCA").then(|| "^mlx5_0".to_owned())
        })
        .expect("settings");
        let ports = [port("mlx5_0", true, None), port("mlx5_1", false, None)];
        let why = names(&ports, &settings, &[0]).expect_err("nothing to use");
        assert!(why.contains("mlx5_0:1 is excluded by ^mlx5_0"), "{why}");
        assert!(why.contains("mlx5_1:1 is not active (1: DOWN)"), "{why}");
        let why = names(&[], &settings, &[0]).expect_err("nothing there");
        assert!(why.contains("no RDMA device"), "{why}");
    }
}
