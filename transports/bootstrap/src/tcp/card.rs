//! How ranks of a job over TCP present themselves, and which nodes their proofs make of them.

use std::net::{IpAddr, SocketAddr};

use crate::hello::{self, Introduction, Reader, put_text};

/// Everyone's card.
pub(super) type Table = hello::Table<Card>;

/// How a rank presents itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub rank: u32,
    pub world: u32,
    /// As its own pid namespace numbers it.
    pub pid: u32,
    /// Tells its process from others.
    pub process: [u8; 16],
    /// The abstract Unix name at which it takes links of its node; empty if none.
    pub door: String,
    /// Ranks with equal texts may be on one node.
    pub host: String,
    /// Where it takes links of other nodes.
    pub address: SocketAddr,
}

impl Introduction for Card {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [self.rank, self.world, self.pid] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.process);
        put_text(&mut bytes, &self.door);
        put_text(&mut bytes, &self.host);
        let address = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        bytes.extend(address.octets());
        bytes.extend(u32::from(self.address.port()).to_le_bytes());
        bytes
    }

    fn read(reader: &mut Reader<'_>) -> Option<Card> {
        let (rank, world, pid) = (reader.word()?, reader.word()?, reader.word()?);
        let (process, door, host) = (reader.token()?, reader.text()?, reader.text()?);
        let ip = IpAddr::from(reader.token()?).to_canonical();
        let port = u16::try_from(reader.word()?).ok()?;
        Some(Card { rank, world, pid, process, door, host, address: SocketAddr::new(ip, port) })
    }
}

/// Nodes of ranks, from 0 in the order of their first rank: a rank joins the first node of its host all of whose members it
/// is proven with. `edges[rank]` are the higher ranks that `rank` is proven with.
pub(super) fn nodes(cards: &[Card], edges: &[Vec<u32>]) -> Vec<u32> {
    let mut members: Vec<Vec<u32>> = Vec::new();
    let mut nodes = Vec::with_capacity(cards.len());
    let edges: Vec<std::collections::HashSet<u32>> =
        edges.iter().map(|higher| higher.iter().copied().collect()).collect();
    for card in cards {
        let fits = |node: &Vec<u32>| {
            let proven = |&lower: &u32| {
                edges.get(lower as usize).is_some_and(|higher| higher.contains(&card.rank))
            };
            let same_host =
                node.first().is_some_and(|&first| cards[first as usize].host == card.host);
            same_host && node.iter().all(proven)
        };
        let node = members.iter().position(fits).unwrap_or_else(|| {
            members.push(Vec::new());
            members.len() - 1
        });
        members[node].push(card.rank);
        nodes.push(node as u32);
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards(hosts: &[&str]) -> Vec<Card> {
        let card = |(rank, host): (u32, &&str)| Card {
            rank,
            world: hosts.len() as u32,
            pid: 100 + rank,
            process: [rank as u8; 16],
            door: format!("door {rank}"),
            host: (*host).to_owned(),
            address: if rank == 0 { "10.0.0.1:5" } else { "[fd00::1]:65535" }.parse().unwrap(),
        };
        (0..).zip(hosts).map(card).collect()
    }

    #[test]
    fn tables_survive_the_wire_and_every_cut_is_refused() {
        let table = Table { key: [7; 16], cards: cards(&["höst", "", "c"]) };
        let bytes = table.encode();
        assert_eq!(Table::decode(&bytes), Some(table.clone()));
        for cut in 0..bytes.len() {
            assert_eq!(Table::decode(&bytes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(Table::decode(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(Card::decode(&table.cards[1].encode()), Some(table.cards[1].clone()));
        let mut absurd = bytes;
        absurd[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Table::decode(&absurd), None);
        let swapped = Table { key: [7; 16], cards: cards(&["a", "b"]).into_iter().rev().collect() };
        assert_eq!(Table::decode(&swapped.encode()), None);
    }

    #[test]
    fn nodes_are_proven_and_not_believed() {
        for (hosts, edges, expected) in [
            // All is as the hosts say.
            (&["a", "b", "a", "b"][..], &[&[2][..], &[3], &[], &[]][..], &[0, 1, 0, 1][..]),
            // Equal hosts that cannot reach each other, as in containers.
            (&["a", "a", "a", "a"], &[&[2], &[3], &[], &[]], &[0, 1, 0, 1]),
            // Not every pair is proven.
            (&["a", "a", "a"], &[&[1, 2], &[], &[]], &[0, 0, 1]),
            // A claim about another host does not count.
            (&["a", "b"], &[&[1], &[]], &[0, 1]),
            (&["a"], &[&[7, 0]], &[0]),
        ] {
            let edges: Vec<Vec<u32>> = edges.iter().map(|higher| higher.to_vec()).collect();
            assert_eq!(nodes(&cards(hosts), &edges), expected);
        }
    }
}
