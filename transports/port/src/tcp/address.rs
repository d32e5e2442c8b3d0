//! The address of an opening: where its wire listens, which opening it is, and by how many connections it would like to
//! be reached.

use super::protocol::hello::Token;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const MAGIC: [u8; 4] = *b"ATW\x01";
const BYTES: usize = 4 + 4 + 2 + 16 + 1 + 16 + 2;

/// What the peer's half of a link must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub rank: u32,
    pub stripes: u16,
    pub token: Token,
    pub listens: SocketAddr,
}

impl Address {
    /// As it travels.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend(MAGIC);
        bytes.extend(self.rank.to_le_bytes());
        bytes.extend(self.stripes.to_le_bytes());
        bytes.extend(self.token);
        let (family, ip) = match self.listens.ip() {
            IpAddr::V4(ip) => (4, ip.to_ipv6_mapped()),
            IpAddr::V6(ip) => (6, ip),
        };
        bytes.push(family);
        bytes.extend(ip.octets());
        bytes.extend(self.listens.port().to_le_bytes());
        bytes
    }

    /// From what a peer sent; an address that makes no sense is none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (rank, rest) = rest.split_first_chunk::<4>()?;
        let (stripes, rest) = rest.split_first_chunk::<2>()?;
        let (token, rest) = rest.split_first_chunk::<16>()?;
        let (family, rest) = rest.split_first()?;
        let (ip, rest) = rest.split_first_chunk::<16>()?;
        let ip = Ipv6Addr::from(*ip);
        let ip = match family {
            4 => IpAddr::V4(ip.to_ipv4_mapped()?),
            6 => IpAddr::V6(ip),
            _ => return None,
        };
        let port = u16::from_le_bytes(rest.try_into().ok()?);
        let (rank, stripes) = (u32::from_le_bytes(*rank), u16::from_le_bytes(*stripes));
        let sane = *magic == MAGIC && stripes > 0 && port > 0 && !ip.is_unspecified();
        let listens = SocketAddr::new(ip, port);
        sane.then_some(Address { rank, stripes, token: *token, listens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_and_others_are_refused() {
        for listens in ["127.0.0.1:80", "[2001:db8::1]:65535", "[::1]:1"] {
            let (listens, token) = (listens.parse().unwrap(), [9; 16]);
            let address = Address { rank: 7, stripes: 4, token, listens };
            let bytes = address.bytes();
            assert_eq!(bytes.len(), BYTES);
            assert_eq!(Address::read(&bytes), Some(address));
            for some in 0..bytes.len() {
                assert_eq!(Address::read(&bytes[..some]), None, "{some} bytes");
            }
            assert_eq!(Address::read(&[&bytes[..], &[0]].concat()), None);
            for (at, value) in [(0, 0), (3, 2), (8, 0), (26, 5)] {
                let mut changed = bytes.clone();
                changed[at] = value;
                assert_eq!(Address::read(&changed), None, "byte {at}");
            }
        }
    }
}
