//! Packets that are handed on and packets of several writers: the verifier against the search of all orders ([`orders`]).
//!
//! The search follows every order that there is. The proof follows less of what packets tell, so that it may refuse what
//! the search finds nothing wrong with; what it proves, no order may break.
//!
//! [`orders`]: super::orders

use super::orders::{Search, change};
use super::*;
use crate::model::Buffer::{Input, Output, Scratch};
use proptest::prelude::*;

fn put(rank: usize, to: &[(usize, u64)]) -> Op {
    let sources = vec![local(Input, 0, 1); to.len()];
    let slot = |&(peer, slot): &(usize, u64)| remote(rank, peer, Scratch, slot, 1);
    data(OpKind::PutPackets, &sources, &to.iter().map(slot).collect::<Vec<_>>())
}

fn hand_on(rank: usize, from: u64, (peer, slot): (usize, u64)) -> Op {
    let to = remote(rank, peer, Scratch, slot, 1);
    data(OpKind::ReadPutPackets, &[local(Scratch, from, 1)], &[to])
}

fn unpack(slot: u64) -> Op {
    data(OpKind::UnpackPackets, &[local(Scratch, slot, 1)], &[local(Output, slot, 1)])
}

fn signal(rank: usize, peer: usize) -> Op {
    sync(OpKind::Signal, &[channel(rank, peer)])
}

fn wait(rank: usize, peer: usize) -> Op {
    sync(OpKind::Wait, &[channel(rank, peer)])
}

/// Right plans: rank and block by block what they do.
fn base(which: usize) -> Vec<Vec<Vec<Op>>> {
    match which {
        // One block of rank 0 sends what the other sends too, and gets it back.
        0 => vec![
            vec![vec![put(0, &[(1, 0)]), unpack(1)], vec![put(0, &[(1, 0)])]],
            vec![vec![hand_on(1, 0, (0, 1)), unpack(0)]],
        ],
        // Rank 1 sends back to where it came from, and that once more.
        1 => vec![
            vec![vec![put(0, &[(1, 0)]), hand_on(0, 0, (1, 0)), unpack(0)]],
            vec![vec![hand_on(1, 0, (0, 0)), unpack(0)]],
        ],
        // Around a ring.
        2 => vec![
            vec![vec![put(0, &[(1, 0)]), hand_on(0, 2, (1, 2)), wait(0, 1)]],
            vec![vec![hand_on(1, 0, (2, 0)), unpack(2), nop(), signal(1, 0)]],
            vec![vec![put(2, &[(0, 2)]), unpack(0)]],
        ],
        // Two ways to rank 1.
        3 => vec![
            vec![vec![put(0, &[(1, 0), (2, 0)]), wait(0, 1), wait(0, 2)]],
            vec![vec![unpack(0), nop(), signal(1, 0), signal(1, 2)]],
            vec![vec![hand_on(2, 0, (1, 0)), nop(), signal(2, 0), wait(2, 1)]],
        ],
        // Rank 0 hands on to rank 1 what that has from rank 2 too; only what rank 0 says itself frees its slot.
        _ => vec![
            vec![vec![hand_on(0, 0, (1, 0)), nop(), signal(0, 2)]],
            vec![vec![unpack(0), nop(), signal(1, 2)]],
            vec![vec![put(2, &[(0, 0), (1, 0)]), wait(2, 0), wait(2, 1)]],
        ],
    }
}

const BASES: usize = 5;

/// What was compared: plans that are proven, that both refute, and that the verifier alone does.
#[derive(Debug, Default, PartialEq, Eq)]
struct Compared {
    proven: u32,
    both: u32,
    alone: u32,
}

impl Compared {
    /// Asks both of a plan, if it passes the checks and has no too many orders.
    fn compare(&mut self, blocks: &[Vec<Vec<Op>>]) -> Option<()> {
        let mut plan = plan(Collective::SendRecv, blocks.len(), [2, 4, 4]);
        connect(&mut plan);
        for (rank, blocks) in blocks.iter().enumerate() {
            blocks.iter().for_each(|ops| block(&mut plan, rank, ops.clone()));
        }
        plan.use_double_scratch_buffer = true;
        crate::check(&plan).ok()?;
        let layout = Layout::new(&plan).ok()?;
        let [mut free, mut strict] = [true, false].map(|free| Search::new(&plan, &layout, free));
        free.run()?;
        strict.run()?;
        let report = verify(&plan, &layout, Options::default());
        let faulty = free.race || strict.deadlock;
        match word(&report) {
            "proven" if faulty => {
                let (race, deadlock) = (free.race, strict.deadlock);
                panic!("the search says race: {race}, deadlock: {deadlock}\n{report}\n{plan:#?}");
            }
            "proven" => self.proven += 1,
            _ if faulty => self.both += 1,
            _ => self.alone += 1,
        }
        Some(())
    }
}

#[test]
fn right_relays_are_right_to_both() {
    let mut compared = Compared::default();
    for which in 0..BASES {
        compared.compare(&base(which)).unwrap_or_else(|| panic!("base {which}: too many orders"));
    }
    assert_eq!(compared, Compared { proven: BASES as u32, ..Compared::default() });
}

#[test]
fn every_single_fault_of_a_relay() {
    let mut compared = Compared::default();
    for which in 0..BASES {
        let count: usize = base(which).iter().flatten().map(Vec::len).sum();
        for (kind, at) in (0..7).flat_map(|kind| (0..count).map(move |at| (kind, at))) {
            let mut blocks = base(which);
            change(&mut blocks, (kind, at));
            compared.compare(&blocks);
        }
    }
    let Compared { proven, both, alone } = compared;
    assert!(proven >= 170 && both >= 80, "{compared:?}");
    // What the proof refuses for want of knowing more. It may become less.
    assert!(alone <= 12, "{compared:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn several_faults_of_a_relay(
        which in 0..BASES,
        changes in proptest::collection::vec((0..7_u8, 0..8_usize), 2..4),
    ) {
        let mut blocks = base(which);
        changes.into_iter().for_each(|fault| change(&mut blocks, fault));
        Compared::default().compare(&blocks);
    }
}
