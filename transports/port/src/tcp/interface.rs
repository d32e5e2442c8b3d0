//! Where a wire listens: an address of this machine that its peers reach.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// An address of an interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Local {
    pub interface: String,
    pub address: SocketAddr,
    pub loopback: bool,
}

/// The address, with port 0, that `wanted` means: an address, an interface's name, or whatever suits.
pub(super) fn choose(wanted: Option<&str>, locals: &[Local]) -> Result<SocketAddr, String> {
    let Some(wanted) = wanted else {
        let best = locals.iter().min_by_key(|local| (local.loopback, rank(local)));
        let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        return Ok(best.map_or(loopback, |local| local.address));
    };
    let bare = wanted.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        if address.is_unspecified() {
            return Err(format!("{address} is no address that peers reach"));
        }
        // An address that comes with a scope is taken from the interface, others as they are.
        let known = locals.iter().find(|local| local.address.ip() == address);
        return Ok(known.map_or(SocketAddr::new(address, 0), |local| local.address));
    }
    let named = locals.iter().filter(|local| local.interface == wanted);
    named.min_by_key(|local| rank(local)).map(|local| local.address).ok_or_else(|| {
        let mut names: Vec<_> = locals.iter().map(|local| local.interface.as_str()).collect();
        names.dedup();
        format!(
            "no interface that is up has the name or address {wanted}; there are {}",
            names.join(", ")
        )
    })
}

/// Lower is better: IPv4, then IPv6, then addresses of one cable only.
fn rank(local: &Local) -> u32 {
    match local.address.ip() {
        IpAddr::V4(ip) if ip.is_link_local() => 2,
        IpAddr::V4(_) => 0,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => 3,
        IpAddr::V6(_) => 1,
    }
}

/// The addresses of this machine's interfaces that are up.
pub(super) fn locals() -> io::Result<Vec<Local>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: `list` is live; on success it holds a list that is ours until it is given back below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: entries of the list, which ends with null, are valid until it is given back.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let flag = |flag: libc::c_int| entry.ifa_flags & flag.cast_unsigned() != 0;
        // SAFETY: an entry's address is null or a socket address of the family that it names.
        let address = unsafe { socket_address(entry.ifa_addr) };
        if let Some(address) = address.filter(|_| flag(libc::IFF_UP)) {
            // SAFETY: an entry's name is a string that ends with a zero.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            let interface = name.to_string_lossy().into_owned();
            found.push(Local { interface, address, loopback: flag(libc::IFF_LOOPBACK) });
        }
    }
    // SAFETY: the list came from `getifaddrs`, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// The Internet address that `address` points to, with port 0.
///
/// # Safety
/// It is null, or points to a socket address as long as its family says.
unsafe fn socket_address(address: *const libc::sockaddr) -> Option<SocketAddr> {
    // SAFETY: the caller's promise.
    let family = unsafe { address.as_ref() }?.sa_family;
    match libc::c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: by its family, it is one of these, though perhaps not aligned as one.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Some(SocketAddr::new(ip.into(), 0))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, 0, 0, address.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Vec<Local> {
        let local = |interface: &str, ip: &str, loopback| {
            let address = SocketAddr::new(ip.parse().unwrap(), 0);
            Local { interface: interface.to_owned(), address, loopback }
        };
        vec![
            local("lo", "127.0.0.1", true),
            local("lo", "::1", true),
            local("eth0", "fe80::1", false),
            local("eth0", "2001:db8::2", false),
            local("eth1", "10.0.0.2", false),
            local("eth1", "fe80::2", false),
        ]
    }

    #[test]
    fn names_addresses_and_nothing_choose_an_address() {
        for (wanted, chosen) in [
            (None, "10.0.0.2"),
            (Some("eth0"), "2001:db8::2"),
            (Some("eth1"), "10.0.0.2"),
            (Some("lo"), "127.0.0.1"),
            (Some("::1"), "::1"),
            (Some("[::1]"), "::1"),
            (Some("192.0.2.1"), "192.0.2.1"),
        ] {
            let address = choose(wanted, &machine()).unwrap();
            assert_eq!(address.ip(), chosen.parse::<IpAddr>().unwrap(), "{wanted:?}");
            assert_eq!(address.port(), 0);
        }
        let text = choose(Some("eth9"), &machine()).unwrap_err();
        assert!(text.contains("eth9") && text.contains("lo, eth0, eth1"), "{text}");
        assert!(choose(Some("::"), &machine()).unwrap_err().contains(":: is no address"));
        let alone = choose(None, &machine()[..2]).unwrap();
        assert_eq!(alone.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert_eq!(choose(None, &[]).unwrap(), alone);
    }

    #[test]
    fn this_machine_has_a_loopback() {
        assert!(locals().unwrap().iter().any(|local| local.loopback));
    }
}
