//! This host's network addresses, and which of them is meant: one grammar for all that choose a network.

use crate::route;
use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// One address of a network interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The address.
    pub address: IpAddr,
}

impl Interface {
    /// Whether an interface name, an address, or an address prefix (`10.1.0.0/16`, `10.1.`) means this.
    pub fn is_meant(&self, asked: &str) -> bool {
        let bare = asked.strip_prefix('[').and_then(|bare| bare.strip_suffix(']'));
        // A whole address is no prefix, though `::` ends like one.
        if let Ok(address) = bare.unwrap_or(asked).parse::<IpAddr>() {
            return address == self.address;
        }
        let network = asked.split_once('/').is_some_and(|(network, bits)| {
            let (network, bits) = (network.parse(), bits.parse());
            matches!((network, bits), (Ok(network), Ok(bits)) if within(self.address, network, bits))
        });
        let ends_part = asked.ends_with('.') || asked.ends_with(':');
        let begins = ends_part && self.address.to_string().starts_with(asked);
        self.name == asked || network || begins
    }
}

/// An address as the kernel lists it.
#[derive(Clone, Debug)]
struct Listed {
    known: Interface,
    /// Bits of its network's prefix; all of them where the kernel does not tell.
    bits: u32,
    /// The interface has a carrier.
    running: bool,
}

/// The addresses of all interfaces that are up. Link-local IPv6 addresses are left out: they mean nothing without the name of
/// an interface, which differs from host to host.
///
/// # Errors
/// Where the kernel does not list them.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    Ok(listed()?.into_iter().map(|one| one.known).collect())
}

/// The addresses of this host that can take the place of `address`: those in the same network whose interface has a carrier
/// and sends the packets from them. `address` is among them if it is this host's.
///
/// Two interfaces in one network need a rule by source address: without it packets of both leave by one of them, and hosts
/// that look at where packets come from drop what comes by the other.
///
/// # Errors
/// Where the kernel does not list the interfaces.
pub fn alike(address: IpAddr) -> io::Result<Vec<Interface>> {
    let listed = listed()?;
    let mut alike = in_one_network(&listed, address);
    let neighbour = neighbour(&listed, address);
    alike
        .retain(|one| one.address == address || neighbour.is_some_and(|to| leaves_by_own(one, to)));
    Ok(alike)
}

/// Whether packets from an interface's address leave by that interface; not where the kernel does not tell.
fn leaves_by_own(own: &Interface, to: IpAddr) -> bool {
    let Ok(name) = CString::new(own.name.as_str()) else { return false };
    // SAFETY: the name is a text that ends.
    let number = unsafe { libc::if_nametoindex(name.as_ptr()) };
    number != 0 && route::interface_of(own.address, to).is_ok_and(|by| by == number)
}

/// An address in the network of `address`, which is this host's, that is not this host's.
fn neighbour(all: &[Listed], address: IpAddr) -> Option<IpAddr> {
    let bits = all.iter().find(|one| one.known.address == address)?.bits;
    let (own, width) = match address {
        IpAddr::V4(own) => (u128::from(own.to_bits()), 32u32),
        IpAddr::V6(own) => (own.to_bits(), 128),
    };
    let hosts = 1u128.checked_shl(width.checked_sub(bits)?).map_or(u128::MAX, |size| size - 1);
    // The last of a network of IPv4 is everybody.
    let last = if address.is_ipv4() && hosts > 1 { hosts - 1 } else { hosts };
    let mut others = (1..=last).take(all.len() + 1).map(|host| match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(((own & !hosts) | host) as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits((own & !hosts) | host)),
    });
    others.find(|other| all.iter().all(|one| one.known.address != *other))
}

fn in_one_network(all: &[Listed], address: IpAddr) -> Vec<Interface> {
    let Some(own) = all.iter().find(|one| one.known.address == address) else { return Vec::new() };
    let alike = |one: &&Listed| {
        let both = one.bits == own.bits && within(one.known.address, address, own.bits);
        one.known.address == address || (both && one.running)
    };
    all.iter().filter(alike).map(|one| one.known.clone()).collect()
}

fn listed() -> io::Result<Vec<Listed>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is a live place for the list, which this function frees below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: the list ends with a null pointer, and its entries stay valid until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP.cast_unsigned() == 0 {
            continue;
        }
        // SAFETY: an entry's address is null or points to an address of the length its family has.
        if let Some(address) = unsafe { address_at(entry.ifa_addr) } {
            // SAFETY: an entry's name is a string that ends with a zero.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            let known = Interface { name: name.to_string_lossy().into_owned(), address };
            // SAFETY: as an address.
            let bits = match unsafe { address_at(entry.ifa_netmask) } {
                Some(IpAddr::V4(mask)) => mask.to_bits().leading_ones(),
                Some(IpAddr::V6(mask)) => mask.to_bits().leading_ones(),
                None => u128::BITS,
            };
            let running = entry.ifa_flags & libc::IFF_RUNNING.cast_unsigned() != 0;
            found.push(Listed { known, bits, running });
        }
    }
    // SAFETY: the list came from `getifaddrs` and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// The address that is meant. Of an interface with both families the IPv4 one, as the rest of the world does.
pub fn find(all: &[Interface], asked: &str) -> Option<IpAddr> {
    let matching = || all.iter().filter(|known| known.is_meant(asked)).map(|known| known.address);
    matching().find(IpAddr::is_ipv4).or_else(|| matching().next())
}

/// Those that there are, for errors.
pub fn list(all: &[Interface]) -> String {
    if all.is_empty() {
        return "none that is up".to_owned();
    }
    let each = all.iter().map(|Interface { name, address }| format!("{name} ({address})"));
    each.collect::<Vec<_>>().join(", ")
}

/// An address of this host that others are likely to reach: that of its default route, or else of an interface that
/// leaves the host, or else its loopback.
///
/// # Errors
/// Where the kernel does not list the interfaces.
pub fn default_address() -> io::Result<IpAddr> {
    // Addresses for documentation: connecting a datagram socket chooses a route and sends nothing.
    let routes = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    let routed = routes.into_iter().find_map(|(from, to)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    });
    let usable = |address: &IpAddr| match address {
        IpAddr::V4(_) => !address.is_unspecified(),
        IpAddr::V6(six) => !address.is_unspecified() && !six.is_unicast_link_local(),
    };
    match routed.filter(usable) {
        Some(address) => Ok(address),
        None => Ok(fallback(&interfaces()?)),
    }
}

/// Where there is no default route.
fn fallback(all: &[Interface]) -> IpAddr {
    let first = |loopback| {
        all.iter().map(|known| known.address).find(|address| address.is_loopback() == loopback)
    };
    first(false).or_else(|| first(true)).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let (a, b, width) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    // A prefix of no bits would shift by the whole width.
    bits <= width && (bits == 0 || (a ^ b) >> (width - bits) == 0)
}

/// The IP address in a socket address, if it is one that others can use.
///
/// # Safety
/// `address` is null or points to a socket address of the length its family has.
unsafe fn address_at(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: by the contract it is null or live, and every family begins with its number.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: by the contract an address of this family is a whole `sockaddr_in`; it may be unaligned.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: by the contract an address of this family is a whole `sockaddr_in6`; it may be unaligned.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let address = Ipv6Addr::from(address.sin6_addr.s6_addr);
            (!address.is_unicast_link_local()).then_some(IpAddr::V6(address))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str, address: &str) -> Interface {
        Interface { name: name.to_owned(), address: address.parse().unwrap() }
    }

    #[test]
    fn interfaces_are_found_by_name_address_and_prefix() {
        let all = [
            known("lo", "127.0.0.1"),
            known("lo", "::1"),
            known("eth0", "fd00::7"),
            known("eth0", "10.1.2.3"),
            known("ib0", "10.11.0.1"),
            known("v6", "fd01::1"),
        ];
        for (asked, expected) in [
            ("lo", Some("127.0.0.1")),
            ("eth0", Some("10.1.2.3")),
            ("v6", Some("fd01::1")),
            ("::1", Some("::1")),
            ("[::1]", Some("::1")),
            ("10.1.", Some("10.1.2.3")),
            ("10.11.0.0/16", Some("10.11.0.1")),
            ("fd00::/16", Some("fd00::7")),
            ("fd01:", Some("fd01::1")),
            ("0.0.0.0/0", Some("127.0.0.1")),
            ("::/129", None),
            ("10.2.0.0/16", None),
            ("10.1", None),
            ("eth", None),
            ("::", None),
            ("", None),
        ] {
            let expected = expected.map(|address| address.parse().unwrap());
            assert_eq!(find(&all, asked), expected, "{asked:?}");
        }
        assert_eq!(list(&all[..2]), "lo (127.0.0.1), lo (::1)");
        assert_eq!(list(&[]), "none that is up");
    }

    #[test]
    fn addresses_of_one_network_are_alike_where_there_is_a_carrier() {
        let listed = |name: &str, address: &str, bits, running| {
            let known = known(name, address);
            Listed { known, bits, running }
        };
        let all = [
            listed("eth0", "10.1.2.3", 16, true),
            listed("eth1", "10.1.9.9", 16, true),
            listed("eth2", "10.1.9.8", 16, false),
            listed("eth3", "10.1.9.7", 24, true),
            listed("eth4", "10.2.0.1", 16, true),
            listed("tun0", "10.9.0.1", 32, true),
            listed("eth0", "fd00::7", 64, true),
            listed("eth1", "fd00::8", 64, true),
        ];
        for (address, expected) in [
            ("10.1.2.3", "eth0 eth1"),
            ("10.1.9.8", "eth0 eth1 eth2"),
            ("10.9.0.1", "tun0"),
            ("fd00::8", "eth0 eth1"),
            ("10.1.0.0", ""),
        ] {
            let alike = in_one_network(&all, address.parse().unwrap());
            let names: Vec<_> = alike.iter().map(|known| known.name.as_str()).collect();
            assert_eq!(names.join(" "), expected, "{address}");
        }
    }

    #[test]
    fn a_neighbour_is_in_the_network_and_not_this_host() {
        let listed = |address: &str, bits| {
            let known = known("eth0", address);
            Listed { known, bits, running: true }
        };
        let all = [
            listed("10.1.0.1", 16),
            listed("10.1.0.2", 16),
            listed("10.2.0.1", 30),
            listed("10.2.0.2", 30),
            listed("10.3.0.0", 31),
            listed("10.4.0.1", 32),
            listed("fd00::1", 64),
            listed("fd01::1", 127),
        ];
        for (address, expected) in [
            ("10.1.0.2", Some("10.1.0.3")),
            ("10.2.0.1", None),
            ("10.3.0.0", Some("10.3.0.1")),
            ("10.4.0.1", None),
            ("fd00::1", Some("fd00::2")),
            ("fd01::1", None),
            ("10.9.0.1", None),
        ] {
            let expected = expected.map(|address| address.parse().unwrap());
            assert_eq!(neighbour(&all, address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn without_a_route_what_leaves_the_host_comes_first() {
        let all = [known("lo", "127.0.0.1"), known("eth0", "fd00::7")];
        assert_eq!(fallback(&all), all[1].address);
        assert_eq!(fallback(&all[..1]), all[0].address);
        assert_eq!(fallback(&[]), all[0].address);
    }

    #[test]
    fn this_host_has_addresses_and_none_that_needs_a_scope() {
        let all = interfaces().unwrap();
        assert!(all.iter().any(|known| known.address.is_loopback()), "{all:?}");
        let scoped = |known: &Interface| match known.address {
            IpAddr::V4(_) => false,
            IpAddr::V6(six) => six.is_unicast_link_local(),
        };
        assert!(!all.iter().any(scoped), "{all:?}");
        let address = default_address().unwrap();
        assert!(!address.is_unspecified());
        assert!(alike(address).unwrap().iter().any(|known| known.address == address));
    }
}
