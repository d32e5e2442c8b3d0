//! What is read off one of the sizes that are looked at must not be read off empty buffers, or slices.

use super::*;
use crate::model::Buffer::{Input, Output, Scratch};

/// Rank 1's input goes to rank 0's output in windows, and to its own.
fn broadcast_from_one() -> Plan {
    let mut plan = plan(Collective::Broadcast, 2, [1, 1, 0]);
    connect(&mut plan);
    let own = data(OpKind::Copy, &[local(Input, 0, 1)], &[local(Output, 0, 1)]);
    let put = data(OpKind::Put, &[local(Input, 0, 1)], &[remote(1, 0, Output, 0, 1)]);
    let signal = vec![nop(), sync(OpKind::Signal, &[0])];
    block(&mut plan, 0, vec![sync(OpKind::Wait, &[0])]);
    let windows = pipeline(64, 1, vec![own, put]);
    block(&mut plan, 1, [vec![windows], signal].concat());
    plan
}

#[test]
fn which_rank_is_the_root_shows_where_there_is_something_to_send() {
    let report = judge(&broadcast_from_one());
    assert_eq!(word(&report), "proven", "{report}");
    assert_eq!(report.root, Some(1), "{report}");
}

/// Three ranks add what the others have put into their scratch as packets, in slices, each rank in an order of its own.
fn sums(window: Option<u64>, parts: u64) -> Plan {
    let mut plan = plan(Collective::AllReduce, 3, [1, 1, 3]);
    plan.use_double_scratch_buffer = true;
    connect(&mut plan);
    for rank in 0..3 {
        let others = (1..3).map(|step| (rank + step) % 3);
        for part in 0..parts {
            let mut ops: Vec<Op> = others
                .clone()
                .map(|peer| {
                    let to = remote(rank, peer, Scratch, rank as u64, 1);
                    data(OpKind::PutPackets, &[local(Input, 0, 1)], &[to])
                })
                .collect();
            let mut order: Vec<usize> = (0..3).filter(|&peer| peer != rank).collect();
            // The last slice alone is added in another order by each.
            if part + 1 < parts || parts == 1 && rank == 0 {
                order.reverse();
            }
            let slots = order.iter().map(|&peer| local(Scratch, peer as u64, 1));
            let sources: Vec<ChunkRef> = [local(Input, 0, 1)].into_iter().chain(slots).collect();
            ops.push(data(OpKind::ReducePackets, &sources, &[local(Output, 0, 1)]));
            if parts > 1 {
                ops = ops.into_iter().map(|op| sliced(op, part, parts)).collect();
            }
            if let Some(unit) = window {
                ops = vec![pipeline(unit, 1, ops)];
            }
            block(&mut plan, rank, ops);
        }
    }
    plan
}

#[test]
fn whether_all_ranks_hold_the_same_bits_shows_where_there_are_some() {
    for (name, plan) in [("plain", sums(None, 1)), ("in windows", sums(Some(64), 1))] {
        let report = judge(&plan);
        assert_eq!(word(&report), "proven", "{name}: {report}");
        assert_eq!(report.same_bits, Some(false), "{name}: {report}");
    }
}

#[test]
fn what_is_computed_is_said_of_sizes_at_which_something_is() {
    let ops = vec![data(OpKind::Copy, &[local(Input, 0, 1)], &[local(Output, 0, 1)])];
    let plan = pair([1, 1, 0], &[&[vec![pipeline(64, 1, ops)]], &[]]);
    let layout = Layout::new(&plan).unwrap();
    let report = verify(&plan, &layout, Options { results: true, promise: None });
    assert!(report.to_string().contains("rank 0 output bytes"), "{report}");
}
