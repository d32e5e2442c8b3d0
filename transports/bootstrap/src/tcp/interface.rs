//! This host's network addresses, and which of them a rank shows to the others.

use std::ffi::CStr;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use rustix::io::Errno;

use crate::error::{BootstrapError, Result};

/// One address of an interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    name: String,
    address: IpAddr,
}

/// The address that an interface name, an address, or an address prefix (`10.1.0.0/16`, `10.1.`) stands for.
///
/// # Errors
/// `NoInterface` with those that there are.
pub(super) fn address_of(asked: &str) -> Result<IpAddr> {
    let all = list()?;
    choose(&all, asked).ok_or_else(|| {
        let mut known = String::new();
        for Found { name, address } in &all {
            let comma = if known.is_empty() { "" } else { ", " };
            let _ = write!(known, "{comma}{name} ({address})");
        }
        if known.is_empty() {
            known.push_str("none that is up");
        }
        BootstrapError::NoInterface { asked: asked.to_owned(), known }
    })
}

/// An address of this host that others are likely to reach: that of its default route, or else of an interface that
/// leaves the host, or else its loopback.
///
/// # Errors
/// `Network` where the kernel does not list the interfaces.
pub(super) fn default_address() -> Result<IpAddr> {
    // Addresses for documentation: connecting a datagram socket chooses a route and sends nothing.
    let routes = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    let routed = routes.into_iter().find_map(|(from, to)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    });
    if let Some(address) = routed.filter(|address| !address.is_unspecified()) {
        return Ok(address);
    }
    let all = list()?;
    let first = |loopback| {
        all.iter().map(|found| found.address).find(|address| address.is_loopback() == loopback)
    };
    Ok(first(false).or_else(|| first(true)).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)))
}

fn choose(all: &[Found], asked: &str) -> Option<IpAddr> {
    let mut matching: Vec<IpAddr> = Vec::new();
    for Found { name, address } in all {
        let exact = asked.parse() == Ok(*address);
        let network = asked.split_once('/').is_some_and(|(network, bits)| {
            let (network, bits) = (network.parse(), bits.parse());
            matches!((network, bits), (Ok(network), Ok(bits)) if within(*address, network, bits))
        });
        let ends_part = asked.ends_with('.') || asked.ends_with(':');
        if name == asked || exact || network || ends_part && address.to_string().starts_with(asked)
        {
            matching.push(*address);
        }
    }
    // Of an interface with both families the older one, as the rest of the world does.
    matching.iter().find(|address| address.is_ipv4()).or(matching.first()).copied()
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

/// All addresses of interfaces that are up. Link-local IPv6 addresses are left out: they mean nothing without the name of
/// an interface, which differs from host to host.
fn list() -> Result<Vec<Found>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is a live place for the list, which this function frees below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        let errno = Errno::from_raw_os_error(code);
        return Err(BootstrapError::Os { doing: "list the network interfaces", errno });
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: the kernel's list ends with a null pointer and stays valid until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP.cast_unsigned() == 0 {
            continue;
        }
        // SAFETY: `ifa_addr` is null or points to an address of the length its family has; `ifa_name` to a C string.
        let (address, name) =
            unsafe { (address_at(entry.ifa_addr), CStr::from_ptr(entry.ifa_name)) };
        if let Some(address) = address {
            found.push(Found { name: name.to_string_lossy().into_owned(), address });
        }
    }
    // SAFETY: the list came from `getifaddrs` and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
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

    #[test]
    fn interfaces_are_found_by_name_address_and_prefix() {
        let found = |name: &str, address: &str| Found {
            name: name.to_owned(),
            address: address.parse().unwrap(),
        };
        let all = [
            found("lo", "127.0.0.1"),
            found("lo", "::1"),
            found("eth0", "fd00::7"),
            found("eth0", "10.1.2.3"),
            found("ib0", "10.11.0.1"),
            found("v6", "fd01::1"),
        ];
        for (asked, expected) in [
            ("lo", Some("127.0.0.1")),
            ("eth0", Some("10.1.2.3")),
            ("v6", Some("fd01::1")),
            ("::1", Some("::1")),
            ("10.1.", Some("10.1.2.3")),
            ("10.11.0.0/16", Some("10.11.0.1")),
            ("fd00::/16", Some("fd00::7")),
            ("fd01:", Some("fd01::1")),
            ("0.0.0.0/0", Some("127.0.0.1")),
            ("::/129", None),
            ("10.2.0.0/16", None),
            ("10.1", None),
            ("eth", None),
            ("", None),
        ] {
            let expected = expected.map(|address| address.parse().unwrap());
            assert_eq!(choose(&all, asked), expected, "{asked:?}");
        }
    }

    #[test]
    fn an_unknown_interface_lists_those_of_this_host() {
        assert!(address_of("127.0.0.1").unwrap().is_loopback());
        let error = address_of("no-such-interface").unwrap_err().to_string();
        assert!(
            error.contains("\"no-such-interface\"") && error.contains("(127.0.0.1)"),
            "{error}"
        );
        assert!(!default_address().unwrap().is_unspecified());
    }
}
