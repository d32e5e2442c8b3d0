//! What instances make of runs of different lengths.

use super::*;

/// Rank 0 copies three chunks at once to scratch and one by one to the output; rank 1 gets them from there.
fn mixed(replication: Replication) -> Plan {
    let collective = Collective::new(Kind::Broadcast { root: 0 }, 2, 3, false);
    let mut p =
        Program::new(Settings { instances: 2, replication, ..Settings::new("mixed", collective) })
            .unwrap();
    let scratch = p.scratch("scratch");
    let all = at(&mut p, 0, Buffer::Input, 0, 3);
    let all = p.copy(all, 0, Target::at(scratch, 0), 0).unwrap().unwrap();
    for part in all.split(3).unwrap() {
        let index = part.index;
        let part = p.copy(part, 0, Target::at(Buffer::Output, index), 0).unwrap().unwrap();
        p.put(part, 1, Target::at(Buffer::Output, index), 0, MEMORY).unwrap();
    }
    let out = at(&mut p, 0, Buffer::Output, 0, 3);
    p.signal(out, 1, Target::SAME, 0, MEMORY).unwrap();
    let out = at(&mut p, 1, Buffer::Output, 0, 3);
    p.wait(out, 0, Target::SAME, 0, MEMORY).unwrap();
    right(&p)
}

/// First chunks and sizes of what a block copies from the input.
fn copied(plan: &Plan, block: usize) -> Vec<(u64, u64)> {
    let ops = plan.gpus[0].threadblocks[block].ops.iter();
    let from = crate::model::RefBase::Local(crate::model::Buffer::Input);
    let copies = ops.filter(|op| op.kind == OpKind::Copy && op.src[0].base == from);
    copies.map(|op| (op.src[0].index, op.src[0].size)).collect()
}

#[test]
fn interleaved_runs_are_divided_where_others_begin() {
    let plan = mixed(Replication::Interleaved);
    assert_eq!(copied(&plan, 0), [(0, 1), (2, 1), (4, 1)]);
    assert_eq!(copied(&plan, 1), [(1, 1), (3, 1), (5, 1)]);
}

#[test]
fn duplicated_runs_stay_whole() {
    let plan = mixed(Replication::Duplicated);
    assert_eq!(copied(&plan, 0), [(0, 3)]);
    assert_eq!(copied(&plan, 1), [(3, 3)]);
}

#[test]
fn duplicated_runs_over_several_parts_are_divided_between_them() {
    for replication in [Replication::Duplicated, Replication::Interleaved] {
        // Rank 0 collects everything and then sends all of it at once.
        let collective = Collective::new(Kind::AllGather, 3, 2, true);
        let settings = Settings { instances: 2, replication, ..Settings::new("hub", collective) };
        let mut p = Program::new(settings).unwrap();
        for rank in 1..3 {
            let mine = at(&mut p, rank, Buffer::Input, 0, 2);
            p.put(mine, 0, Target::SAME, 0, MEMORY).unwrap();
            p.signal(mine, 0, Target::SAME, 0, MEMORY).unwrap();
            let theirs = at(&mut p, 0, Buffer::Output, 2 * rank, 2);
            p.wait(theirs, rank as i64, Target::SAME, 0, MEMORY).unwrap();
        }
        let all = at(&mut p, 0, Buffer::Output, 0, 6);
        for rank in 1..3 {
            p.put(all, rank, Target::SAME, 0, MEMORY).unwrap();
            p.signal(all, rank, Target::SAME, 0, MEMORY).unwrap();
            let all = at(&mut p, rank as u64, Buffer::Output, 0, 6);
            p.wait(all, 0, Target::SAME, 0, MEMORY).unwrap();
        }
        right(&p);
    }
}

#[test]
fn barriers_join_the_blocks_of_an_instance() {
    let collective = Collective::new(Kind::Broadcast { root: 0 }, 1, 1, true);
    let settings = Settings { instances: 2, ..Settings::new("barriers", collective) };
    let mut p = Program::new(settings).unwrap();
    p.barrier(0, &[0, 1]).unwrap();
    p.barrier(0, &[1, 0]).unwrap();
    p.barrier(0, &[0, 1]).unwrap();
    let plan = right(&p);
    let ids = plan.gpus[0].threadblocks.iter().map(|block| {
        let barriers = block.ops.iter().filter(|op| op.kind == OpKind::Barrier);
        barriers.map(|op| (op.barrier_id.unwrap(), op.num_threadblocks.unwrap())).collect()
    });
    let ids: Vec<Vec<(u64, u64)>> = ids.collect();
    assert_eq!(ids[0], ids[2]);
    assert_eq!(ids[1], ids[3]);
    assert!(ids[0].iter().all(|id| !ids[1].contains(id)), "{ids:?}");
    assert!(ids.iter().flatten().all(|&(_, blocks)| blocks == 2));
}

#[test]
fn scratch_buffers_lie_one_after_another() {
    for replication in [Replication::Duplicated, Replication::Interleaved] {
        let collective = Collective::new(Kind::Broadcast { root: 0 }, 1, 2, false);
        let settings = Settings { instances: 2, replication, ..Settings::new("two", collective) };
        let mut p = Program::new(settings).unwrap();
        let (first, second) = (p.scratch("first"), p.scratch("second"));
        assert_eq!(p.scratch("first"), first);
        let mut chunk = at(&mut p, 0, Buffer::Input, 0, 2);
        for target in [Target::append(second), Target::append(first), Target::append(second)] {
            chunk = p.copy(chunk, 0, target, 0).unwrap().unwrap();
        }
        assert_eq!((chunk.buffer, chunk.index), (second, 2));
        assert_eq!((p.len(0, first).unwrap(), p.len(0, second).unwrap()), (2, 4));
        p.copy(chunk, 0, Target::at(Buffer::Output, 0), 0).unwrap();
        let plan = right(&p);
        assert_eq!(plan.gpus[0].scratch_chunks, 12);
        let starts: Vec<u64> = plan.gpus[0].threadblocks[0]
            .ops
            .iter()
            .filter(|op| op.kind == OpKind::Copy)
            .map(|op| op.dst[0].index)
            .collect();
        // `second` came first; it has 4 chunks twice over.
        let last = if replication == Replication::Interleaved { 4 } else { 2 };
        assert_eq!(starts, [0, 8, last, 0]);
    }
}
