//! By which interface this host's packets leave: the kernel's routes, rules by source address among them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::{FromRawFd, OwnedFd};

/// Bytes of a message's header, of a route's, and of an attribute's.
const HEADER: usize = 16;
const ROUTE: usize = 12;
const ATTRIBUTE: usize = 4;

/// The number of the interface by which packets from an address of this host to another leave.
///
/// # Errors
/// Where the kernel knows no such route, or does not tell.
pub(crate) fn interface_of(from: IpAddr, to: IpAddr) -> io::Result<u32> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is passed.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the socket is open, and nobody else has it.
    let mut kernel = File::from(unsafe { OwnedFd::from_raw_fd(socket) });
    kernel.write_all(&question(from, to))?;
    let mut answer = [0u8; 4096];
    let bytes = kernel.read(&mut answer)?;
    interface_in(&answer[..bytes])
}

/// Asks for one route.
fn question(from: IpAddr, to: IpAddr) -> Vec<u8> {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let (family, from, to) = match to {
        IpAddr::V4(_) => (libc::AF_INET, octets(from), octets(to)),
        IpAddr::V6(_) => (libc::AF_INET6, octets(from), octets(to)),
    };
    let bits = |address: &[u8]| address.len() as u8 * 8;
    // struct rtmsg: family, bits of destination and source; the rest asks for nothing.
    let mut body = vec![family as u8, bits(&to), bits(&from)];
    body.resize(ROUTE, 0);
    for (kind, address) in [(libc::RTA_DST, &to), (libc::RTA_SRC, &from)] {
        body.extend(((ATTRIBUTE + address.len()) as u16).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(address);
    }
    let mut message = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(libc::RTM_GETROUTE.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // Number and sender: one question a socket.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// The interface in the kernel's answer.
fn interface_in(answer: &[u8]) -> io::Result<u32> {
    let garbled = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is garbled");
    let short = |at: usize| Some(u16::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
    let long = |at: usize| Some(u32::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
    match short(4).ok_or_else(garbled)? {
        libc::RTM_NEWROUTE => {}
        kind if i32::from(kind) == libc::NLMSG_ERROR => {
            let code = long(HEADER).ok_or_else(garbled)?.cast_signed();
            return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
        }
        _ => return Err(garbled()),
    }
    let mut at = HEADER + ROUTE;
    while let (Some(length), Some(kind)) = (short(at), short(at + 2)) {
        if kind == libc::RTA_OIF {
            return long(at + ATTRIBUTE).ok_or_else(garbled);
        }
        // Attributes are aligned to four bytes.
        at += usize::from(length).max(ATTRIBUTE).next_multiple_of(4);
    }
    Err(garbled())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_on_this_host_leaves_by_its_loopback() {
        let [from, to] = ["127.0.0.1", "127.0.0.2"].map(|address| address.parse().unwrap());
        // SAFETY: the name is a text that ends.
        let loopback = unsafe { libc::if_nametoindex(c"lo".as_ptr()) };
        assert_eq!(interface_of(from, to).unwrap(), loopback);
        // An address of nobody here.
        assert!(interface_of("192.0.2.77".parse().unwrap(), to).is_err());
    }

    #[test]
    fn answers_are_read_and_garbled_ones_are_errors() {
        let answer = |kind: u16, body: &[u8]| {
            let mut answer = vec![0u8; HEADER];
            answer[4..6].copy_from_slice(&kind.to_ne_bytes());
            answer.extend(body);
            answer
        };
        let attribute = |kind: u16, value: &[u8]| {
            let mut attribute = ((ATTRIBUTE + value.len()) as u16).to_ne_bytes().to_vec();
            attribute.extend(kind.to_ne_bytes());
            attribute.extend(value);
            attribute.resize(attribute.len().next_multiple_of(4), 0);
            attribute
        };
        let route = |attributes: &[u8]| {
            let body = [[0u8; ROUTE].as_slice(), attributes].concat();
            answer(libc::RTM_NEWROUTE, &body)
        };
        let out = attribute(libc::RTA_OIF, &7u32.to_ne_bytes());
        let odd = attribute(libc::RTA_TABLE, &[1]);
        assert_eq!(interface_in(&route(&[odd.as_slice(), &out].concat())).unwrap(), 7);
        let refused = answer(libc::NLMSG_ERROR as u16, &(-libc::ENETUNREACH).to_ne_bytes());
        let error = interface_in(&refused).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENETUNREACH));
        let bad = [route(&odd), route(&out[..6]), route(&[0; 4]), answer(9, &[]), vec![1, 2, 3]];
        for bad in bad {
            let error = interface_in(&bad).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{bad:?}");
        }
    }
}
