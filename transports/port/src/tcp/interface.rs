//! Where a wire listens: an address of this machine that its peers reach.

use antiphon_transport::interface::{Interface, find, list};
use antiphon_transport::topology::{Distance, Place, Topology, Viewpoint};
use std::net::IpAddr;

/// The address that is meant, in this order: `wanted`, which names an interface, an address or a prefix; `met`, by which the
/// ranks met, where it is this machine's own; whatever suits, which is the `likely` one.
pub(super) fn choose(
    wanted: Option<&str>,
    met: Option<IpAddr>,
    all: &[Interface],
    likely: impl FnOnce() -> std::io::Result<IpAddr>,
) -> Result<IpAddr, String> {
    let Some(wanted) = wanted else {
        let own = met.filter(|met| all.iter().any(|known| known.address == *met));
        return match own {
            Some(met) => Ok(met),
            None => likely().map_err(|error| format!("the interfaces cannot be listed: {error}")),
        };
    };
    if let Some(address) = find(all, wanted) {
        return Ok(address);
    }
    let bare = wanted.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => {
            Err(format!("{address} is no address that peers reach"))
        }
        Ok(IpAddr::V6(address)) if address.is_unicast_link_local() => {
            Err(format!("{address} means nothing on another machine"))
        }
        // Not every address of a machine is listed: all of 127.0.0.0/8 is its own. Listening tells.
        Ok(address) => Ok(address),
        Err(_) => Err(format!(
            "no interface that is up has the name, address or prefix {wanted}; there are {}",
            list(all)
        )),
    }
}

/// Among addresses by which this machine is reached alike, the one whose interface is nearest to `from`. It is `own` if that
/// is among the nearest, or if nobody knows how far that is; if it is another, the reason comes with it.
pub(super) fn nearest(
    own: IpAddr,
    alike: Vec<Interface>,
    (topology, from): (&Topology, &Viewpoint),
) -> (IpAddr, Option<String>) {
    let placed = alike.into_iter().map(|one| (topology.network_place(&one.name), one));
    let placed: Vec<_> = placed.collect();
    let unknown = |(place, one): &(Place, Interface)| {
        one.address == own && topology.distance(from, place) == Distance::Unknown
    };
    if placed.iter().any(unknown) {
        return (own, None);
    }
    let (near, distance) = topology.nearest(from, placed, |(place, _)| place);
    match near.first() {
        Some((_, first)) if near.iter().all(|(_, one)| one.address != own) => {
            let why = format!("{}, nearest to {from}: {distance}", first.name);
            (first.address, Some(why))
        }
        _ => (own, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine() -> Vec<Interface> {
        [
            ("lo", "127.0.0.1"),
            ("lo", "::1"),
            ("docker0", "172.17.0.1"),
            ("eth0", "2001:db8::2"),
            ("eth1", "10.0.0.2"),
        ]
        .map(|(name, address)| Interface {
            name: name.to_owned(),
            address: address.parse().unwrap(),
        })
        .to_vec()
    }

    fn chosen(wanted: Option<&str>, met: Option<&str>) -> Result<IpAddr, String> {
        let met = met.map(|met| met.parse().unwrap());
        choose(wanted, met, &machine(), || Ok("172.17.0.1".parse().unwrap()))
    }

    #[test]
    fn names_addresses_prefixes_and_the_meeting_choose_an_address() {
        for (wanted, met, expected) in [
            (None, None, "172.17.0.1"),
            (None, Some("10.0.0.2"), "10.0.0.2"),
            (None, Some("127.0.0.1"), "127.0.0.1"),
            // What others reach it by need not be an address that it has.
            (None, Some("203.0.113.9"), "172.17.0.1"),
            (Some("eth0"), Some("10.0.0.2"), "2001:db8::2"),
            (Some("eth1"), None, "10.0.0.2"),
            (Some("10.0.0.0/8"), None, "10.0.0.2"),
            (Some("10."), None, "10.0.0.2"),
            (Some("lo"), None, "127.0.0.1"),
            (Some("::1"), None, "::1"),
            (Some("[::1]"), None, "::1"),
            (Some("127.0.0.9"), None, "127.0.0.9"),
        ] {
            let address = chosen(wanted, met).unwrap();
            assert_eq!(address, expected.parse::<IpAddr>().unwrap(), "{wanted:?} {met:?}");
        }
    }

    #[test]
    fn of_addresses_alike_the_nearest_counts_and_the_own_among_equals() {
        let root = std::env::temp_dir().join(format!("antiphon-tcp-near-{}", std::process::id()));
        for (name, bus, node) in [("eth0", "10", "0"), ("eth1", "20", "1"), ("eth2", "21", "1")] {
            let device = root.join(format!("devices/pci0000:{bus}/0000:{bus}:00.0"));
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("numa_node"), node).unwrap();
            fs::create_dir_all(root.join(format!("class/net/{name}"))).unwrap();
            let link = root.join(format!("class/net/{name}/device"));
            std::os::unix::fs::symlink(device, link).unwrap();
        }
        let topology = Topology::at(&root);
        let alike = |names: &[(&str, &str)]| -> Vec<Interface> {
            let known = |&(name, address): &(&str, &str)| Interface {
                name: name.to_owned(),
                address: address.parse().unwrap(),
            };
            names.iter().map(known).collect()
        };
        let all = [("eth0", "10.0.0.1"), ("eth1", "10.0.0.2"), ("eth2", "10.0.0.3")];
        let chosen = |names: &[(&str, &str)], node, own: &str| {
            let from = Viewpoint::Nodes(vec![node]);
            nearest(own.parse().unwrap(), alike(names), (&topology, &from))
        };
        let found = [(0, "10.0.0.2"), (1, "10.0.0.3"), (1, "10.0.0.1"), (2, "10.0.0.1")]
            .map(|(node, own)| chosen(&all, node, own).0.to_string());
        let why = chosen(&all, 1, "10.0.0.1").1;
        let alone = chosen(&all[..1], 1, "10.0.0.1");
        let none = chosen(&[], 1, "10.0.0.9");
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, ["10.0.0.1", "10.0.0.3", "10.0.0.2", "10.0.0.1"]);
        let expected = "eth1, nearest to this process's cores: on the same memory node";
        assert_eq!(why.as_deref(), Some(expected));
        assert_eq!(alone, ("10.0.0.1".parse().unwrap(), None));
        assert_eq!(none, ("10.0.0.9".parse().unwrap(), None));
    }

    #[test]
    fn what_is_no_address_for_peers_is_refused() {
        for (wanted, text) in [
            ("eth9", "eth9; there are lo (127.0.0.1), lo (::1), docker0 (172.17.0.1)"),
            ("10.9.0.0/16", "prefix 10.9.0.0/16; there are"),
            ("::", ":: is no address"),
            ("fe80::1", "fe80::1 means nothing"),
        ] {
            let error = chosen(Some(wanted), Some("10.0.0.2")).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
