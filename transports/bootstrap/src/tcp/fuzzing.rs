//! For fuzzers: handshakes that somebody disturbs, and payloads that only jobs over TCP have.

use std::array;

use super::card::{Card, Table, nodes};
use super::handshake::{Caller, Listener, Purpose, RECORD, Step, Verdict};
use super::links::watch as news;
use crate::hello::{Introduction, decode_words};

const KEYS: [[u8; 32]; 2] = [[7; 32], [8; 32]];
const NONCES: [[u8; 32]; 2] = [[1; 32], [2; 32]];
const CALLER: u32 = 3;
const LISTENER: u32 = 5;

/// A stranger's bytes, which prove nothing, then a handshake whose records somebody changes on their way: each end lets the
/// other in exactly if both have one key and nothing that counts was changed. Returns how many were let in.
pub fn handshake(bytes: &[u8]) -> usize {
    let Some((&how, rest)) = bytes.split_first() else { return 0 };
    let piece = 1 + usize::from(how >> 2);
    let (caller, _) = Caller::new(KEYS[0], Purpose::Link, CALLER, LISTENER, NONCES[0]);
    stranger(rest, piece, caller, Caller::wants, Caller::feed);
    let listener = Listener::new(KEYS[0], LISTENER, NONCES[1]);
    stranger(rest, piece, listener, Listener::wants, Listener::feed);

    let same = how & 1 == 0;
    let purpose = if how & 2 == 0 { Purpose::Join } else { Purpose::Link };
    // Of each change the record, the byte, and what is done to it.
    let mut changes = [[0; RECORD]; 4];
    for &[record, at, change] in rest.as_chunks().0 {
        changes[usize::from(record) % 4][usize::from(at) % RECORD] ^= change;
    }
    let proven = relay(KEYS[usize::from(!same)], purpose, &changes);
    let changed = |record: usize| {
        let counts = |at: &usize| match record {
            // The words of a challenge and of a proof say nothing, and neither does a proof's listener.
            1 => *at != 11,
            2 => *at != 11 && !(16..20).contains(at),
            _ => true,
        };
        (0..RECORD).filter(counts).any(|at| changes[record][at] != 0)
    };
    let expected = match (0..4).find(|&record| changed(record)) {
        _ if !same => 0,
        None => 2,
        Some(3) => 1,
        Some(_) => 0,
    };
    assert_eq!(proven, expected, "{changes:?}");
    proven
}

fn stranger<End>(
    mut bytes: &[u8],
    piece: usize,
    mut end: End,
    wants: fn(&End) -> usize,
    feed: fn(&mut End, &[u8]) -> Step,
) {
    while !bytes.is_empty() {
        let wanted = wants(&end);
        assert!((1..=RECORD).contains(&wanted));
        let (now, later) = bytes.split_at(bytes.len().min(wanted).min(piece));
        match feed(&mut end, now) {
            Step::Send(_) => bytes = later,
            Step::Fail(..) => return,
            Step::Proven { .. } => panic!("a stranger has proven itself"),
        }
    }
}

/// A handshake; how many of its ends were let in.
fn relay(key: [u8; 32], purpose: Purpose, changes: &[[u8; RECORD]; 4]) -> usize {
    let change = |record: [u8; RECORD], at: usize| -> [u8; RECORD] {
        array::from_fn(|byte| record[byte] ^ changes[at][byte])
    };
    let (mut caller, hello) = Caller::new(key, purpose, CALLER, LISTENER, NONCES[0]);
    let mut listener = Listener::new(KEYS[0], LISTENER, NONCES[1]);
    let Step::Send(Some(challenge)) = listener.feed(&change(hello, 0)) else { return 0 };
    let Step::Send(Some(proof)) = caller.feed(&change(challenge, 1)) else { return 0 };
    let step = listener.feed(&change(proof, 2));
    if !matches!(step, Step::Proven { .. }) {
        return 0;
    }
    assert_eq!(step, Step::Proven { purpose, rank: CALLER });
    let step = caller.feed(&change(listener.verdict(Verdict::Welcome), 3));
    if !matches!(step, Step::Proven { .. }) {
        return 1;
    }
    assert_eq!(step, Step::Proven { purpose, rank: LISTENER });
    2
}

/// Returns the number of parsers that take the bytes.
pub(crate) fn payloads(bytes: &[u8]) -> usize {
    let mut taken = 0;
    if let Some(card) = Card::decode(bytes) {
        assert_eq!(card.encode(), bytes);
        taken += 1;
    }
    if let Some(table) = Table::decode(bytes) {
        assert_eq!(table.encode(), bytes);
        let edges: Vec<Vec<u32>> = bytes.chunks(8).map(decode_words).collect();
        let nodes = nodes(&table.cards, &edges);
        assert_eq!(nodes.len(), table.cards.len());
        // Numbered in the order of their first ranks.
        let mut next = 0;
        for node in nodes {
            assert!(node <= next);
            next = next.max(node + 1);
        }
        taken += 1;
    }
    if let Some(read) = news::decode(bytes) {
        assert_eq!(news::decode(&news::encode(&read)), Some(read));
        taken += usize::from(!bytes.is_empty());
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_let_in_unless_something_that_counts_was_changed() {
        for (how, changes, expected) in [
            (0, &[][..], 2),
            (2, &[], 2),
            (1, &[], 0),
            (0, &[0, 20, 1], 0),
            (0, &[0, 20, 1, 0, 20, 1], 2),
            (0, &[1, 11, 255, 2, 17, 1], 2),
            (2, &[3, 51, 128], 1),
        ] {
            assert_eq!(handshake(&[&[how][..], changes].concat()), expected, "{changes:?}");
        }
    }
}
