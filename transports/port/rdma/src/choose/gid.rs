//! Which of a port's addresses (GIDs) connections use.
//!
//! A RoCE port lists one address per address of its network interface and version of the protocol. Only version 2 can
//! be routed, and addresses made of IPv4 ones work in the most fabrics, so the order of preference is: version 2 before
//! version 1; among them IPv4, then IPv6, then link-local IPv6. InfiniBand needs none inside a subnet.

use super::filter::Selector;
use super::sysfs::Port;
use antiphon_transport::interface::Interface;
use std::net::{IpAddr, Ipv6Addr};

/// The version of the protocol that an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GidKind {
    /// RoCE over UDP: routable.
    RoceV2,
    /// InfiniBand, or RoCE directly over Ethernet.
    IbOrRoceV1,
}

/// An entry of a port's address table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Where in the table it is.
    pub index: u8,
    /// The address.
    pub gid: Ipv6Addr,
    /// What it is for.
    pub kind: GidKind,
    /// The network interface whose address it is; empty on InfiniBand.
    pub interface: String,
}

impl GidEntry {
    /// The address as its interface has it.
    pub fn address(&self) -> IpAddr {
        self.gid.to_canonical()
    }

    /// Lower is better.
    fn rank(&self) -> (GidKind, u8, u8) {
        let family = match self.address() {
            IpAddr::V4(_) => 0,
            IpAddr::V6(v6) if !v6.is_unicast_link_local() => 1,
            IpAddr::V6(_) => 2,
        };
        (self.kind, family, self.index)
    }
}

/// The entry to use of a port; `None` where it needs none.
///
/// # Errors
/// Why none fits.
pub fn choose(
    port: &Port,
    selector: &Selector,
    forced: Option<u8>,
) -> Result<Option<GidEntry>, String> {
    let has = || {
        let list: Vec<_> = port
            .gids
            .iter()
            .map(|e| format!("{} {} {:?} {}", e.index, e.address(), e.kind, e.interface))
            .collect();
        if list.is_empty() { "no addresses".to_owned() } else { list.join(", ") }
    };
    if let Some(index) = forced {
        let entry = port.gids.iter().find(|e| e.index == index);
        return entry
            .cloned()
            .map(Some)
            .ok_or_else(|| format!("ANTIPHON_GID_INDEX is {index}, but it has {}", has()));
    }
    let fits = |entry: &&GidEntry| match selector {
        Selector::Ports(_) => true,
        Selector::Interface(asked) => {
            let (name, address) = (entry.interface.clone(), entry.address());
            Interface { name, address }.is_meant(asked)
        }
        Selector::Address(address) => entry.address() == *address,
    };
    let best = port.gids.iter().filter(fits).min_by_key(|entry| entry.rank()).cloned();
    let any = matches!(selector, Selector::Ports(_));
    match best {
        _ if !port.ethernet && any => Ok(None),
        Some(entry) => Ok(Some(entry)),
        None if any => {
            Err("its address table is empty; give its network interface an address".into())
        }
        None => Err(format!("nothing there fits {selector}: it has {}", has())),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::choose) fn entry(
        index: u8,
        gid: [u8; 16],
        kind: GidKind,
        interface: &str,
    ) -> GidEntry {
        GidEntry { index, gid: Ipv6Addr::from(gid), kind, interface: interface.to_owned() }
    }

    fn port(ethernet: bool, gids: &[(&str, GidKind, &str)]) -> Port {
        let gids = gids
            .iter()
            .enumerate()
            .map(|(index, (gid, kind, interface))| {
                let gid: Ipv6Addr = gid.parse().expect("an address");
                entry(index as u8, gid.octets(), *kind, interface)
            })
            .collect();
        Port {
            device: "mlx5_0".to_owned(),
            number: 1,
            active: true,
            state: "4: ACTIVE".to_owned(),
            ethernet,
            place: antiphon_transport::topology::Place::default(),
            gids,
        }
    }

    #[test]
    fn the_most_routable_address_wins() {
        use GidKind::{IbOrRoceV1 as V1, RoceV2 as V2};
        let any = Selector::Ports(super::super::filter::Filter::Any);
        let eth1 = Selector::Interface("eth1".to_owned());
        let prefix = Selector::Interface("10.1.0.0/16".to_owned());
        let four = Selector::Address("10.0.0.1".parse().expect("an address"));
        let all: &[_] = &[
            ("fe80::1", V1, "eth0"),
            ("fe80::1", V2, "eth0"),
            ("2001:db8::1", V2, "eth0"),
            ("::ffff:10.0.0.1", V1, "eth0"),
            ("::ffff:10.0.0.1", V2, "eth0"),
            ("::ffff:10.1.0.1", V2, "eth1"),
            ("fe80::2", V2, "eth1"),
        ];
        for (gids, selector, forced, expected) in [
            (all, &any, None, Ok(Some(4))),
            (&all[..4], &any, None, Ok(Some(2))),
            (&all[..2], &any, None, Ok(Some(1))),
            (&all[..1], &any, None, Ok(Some(0))),
            (all, &eth1, None, Ok(Some(5))),
            (&all[..5], &eth1, None, Err("nothing there fits interface eth1")),
            (all, &prefix, None, Ok(Some(5))),
            (all, &four, None, Ok(Some(4))),
            (all, &any, Some(6), Ok(Some(6))),
            (all, &any, Some(7), Err("ANTIPHON_GID_INDEX is 7, but it has 0 fe80::1")),
            (&[], &any, None, Err("address table is empty")),
        ] {
            let chosen = choose(&port(true, gids), selector, forced);
            match (&chosen, expected) {
                (Ok(chosen), Ok(index)) => {
                    assert_eq!(chosen.as_ref().map(|e| e.index), index, "{gids:?} {selector}");
                }
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                _ => panic!("{gids:?} {selector} {forced:?}: {chosen:?}"),
            }
        }
    }

    #[test]
    fn infiniband_needs_an_address_only_if_one_is_asked_for() {
        let any = Selector::Ports(super::super::filter::Filter::Any);
        let port = port(false, &[("fe80::1", GidKind::IbOrRoceV1, "")]);
        assert_eq!(choose(&port, &any, None), Ok(None));
        assert!(matches!(choose(&port, &any, Some(0)), Ok(Some(GidEntry { index: 0, .. }))));
    }
}
