//! The usual algorithms, as programs of this stage write them.

use super::*;

/// A program with this many instances of every block.
fn replicated(
    kind: Kind,
    ranks: u64,
    factor: u64,
    in_place: bool,
    instances: i64,
    replication: Replication,
) -> Program {
    let collective = Collective::new(kind, ranks, factor, in_place);
    let settings = Settings { instances, replication, ..Settings::new("test", collective) };
    Program::new(settings).unwrap()
}

/// One block per rank; sums travel once around, then results.
fn ring(p: &mut Program) {
    let n = p.ranks();
    let input = Buffer::Input;
    let before = |index: u64| (index + n - 1) % n;
    for step in 0..n - 1 {
        for index in 0..n {
            let rank = (index + step) % n;
            let (next, previous) = ((rank + 1) % n, (rank + n - 1) % n);
            let ready = at(p, rank, input, index, 1);
            p.signal(ready, next as i64, Target::SAME, 0, MEMORY).unwrap();
            let mine = at(p, rank, input, before(index), 1);
            p.wait(mine, previous as i64, Target::SAME, 0, MEMORY).unwrap();
            let other = at(p, previous, input, before(index), 1);
            p.reduce(mine, other, 0, MEMORY).unwrap();
        }
    }
    for step in 0..n - 1 {
        for index in 0..n {
            let rank = (index + n + step - 1) % n;
            let (next, previous) = ((rank + 1) % n, (rank + n - 1) % n);
            let sum = at(p, rank, input, index, 1);
            p.put(sum, next as i64, Target::at(input, index), 0, MEMORY).unwrap();
            p.signal(sum, next as i64, Target::at(input, index), 0, MEMORY).unwrap();
            let mine = at(p, rank, input, before(index), 1);
            p.wait(mine, previous as i64, Target::SAME, 0, MEMORY).unwrap();
        }
    }
}

/// Every block of a rank reduces its share of the rank's part from everybody, then puts or lets others get it.
fn all_pairs(p: &mut Program, get: bool) {
    let n = p.ranks();
    let input = Buffer::Input;
    let others = |rank: u64| (0..n).filter(move |&other| other != rank);
    for rank in 0..n {
        for tb in 0..n {
            let (block, index) = (tb as i64, rank * n + tb);
            let mine = at(p, rank, input, index, 1);
            for other in others(rank) {
                let theirs = at(p, rank, input, other * n + tb, 1);
                p.signal(theirs, other as i64, Target::SAME, block, MEMORY).unwrap();
            }
            for other in others(rank) {
                p.wait(mine, other as i64, Target::SAME, block, MEMORY).unwrap();
            }
            for other in others(rank) {
                let theirs = at(p, other, input, index, 1);
                p.reduce(mine, theirs, block, MEMORY).unwrap();
            }
            if !get {
                for other in others(rank) {
                    p.put(mine, other as i64, Target::SAME, block, MEMORY).unwrap();
                }
            }
            for other in others(rank) {
                p.signal(mine, other as i64, Target::SAME, block, MEMORY).unwrap();
            }
        }
    }
    for rank in 0..n {
        for tb in 0..n {
            for other in others(rank) {
                let theirs = at(p, rank, input, other * n + tb, 1);
                p.wait(theirs, other as i64, Target::SAME, tb as i64, MEMORY).unwrap();
            }
            for other in others(rank).filter(|_| get) {
                let theirs = at(p, rank, input, other * n + tb, 1);
                p.get(theirs, other as i64, Target::SAME, tb as i64, MEMORY).unwrap();
            }
        }
    }
}

/// The same over packets: whole parts are sent, shares of them are reduced, and whole parts are unpacked again.
fn packets(p: &mut Program) {
    let n = p.ranks();
    let (input, scratch) = (Buffer::Input, p.scratch("scratch"));
    let others = |rank: u64| (0..n).filter(move |&other| other != rank);
    let put = |p: &mut Program, from, to: u64, index, block: u64| {
        let (at, block) = (Target::at(scratch, index), block as i64);
        p.put_packet(from, to as i64, at, block, Format::Raw, MEMORY, None).unwrap();
    };
    for rank in 0..n {
        for other in others(rank) {
            let part = at(p, rank, input, other * n, n);
            put(p, part, other, rank * n, other);
        }
    }
    for rank in 0..n {
        for share in 0..n {
            let mine = at(p, rank, input, rank * n + share, 1);
            for other in others(rank) {
                let theirs = at(p, rank, scratch, other * n + share, 1);
                p.reduce_packet(mine, theirs, share as i64).unwrap();
            }
            for other in others(rank) {
                put(p, mine, other, n * n + rank * n + share, share);
            }
        }
    }
    for rank in 0..n {
        for other in others(rank) {
            let sums = at(p, rank, scratch, n * n + other * n, n);
            let target = Target::at(input, other * n);
            p.copy_packet(sums, rank as i64, target, other as i64).unwrap();
        }
    }
}

const POLICIES: [Replication; 3] =
    [Replication::Duplicated, Replication::Interleaved, Replication::Packed];

#[test]
fn allreduce_around_a_ring() {
    for ranks in 2..=8 {
        let mut p = program(Kind::AllReduce, ranks, ranks, true);
        ring(&mut p);
        right(&p);
    }
    for policy in POLICIES {
        let mut p = replicated(Kind::AllReduce, 4, 4, true, 3, policy);
        ring(&mut p);
        let plan = right(&p);
        assert_eq!(plan.gpus[0].threadblocks.len(), 3);
        assert_eq!((plan.gpus[0].input_chunks, plan.gpus[0].output_chunks), (12, 0));
    }
}

#[test]
fn allreduce_of_all_pairs() {
    for ranks in 2..=8 {
        for get in [false, true] {
            let mut p = program(Kind::AllReduce, ranks, ranks * ranks, true);
            all_pairs(&mut p, get);
            right(&p);
        }
    }
    for policy in POLICIES {
        let mut p = replicated(Kind::AllReduce, 3, 9, true, 2, policy);
        all_pairs(&mut p, false);
        right(&p);
    }
}

#[test]
fn allreduce_of_all_pairs_over_packets() {
    let settings = |ranks, instances, replication| Settings {
        protocol: Protocol::LL,
        instances,
        replication,
        ..Settings::new("ll", Collective::new(Kind::AllReduce, ranks, ranks * ranks, true))
    };
    let cases = (2..=8).map(|ranks| (ranks, 1, Replication::Duplicated));
    // The parts are sent whole and reduced by the chunk: interleaved, they must be divided.
    for (ranks, instances, policy) in cases.chain(POLICIES.map(|policy| (3, 2, policy))) {
        let mut p = Program::new(settings(ranks, instances, policy)).unwrap();
        packets(&mut p);
        let plan = right(&p);
        assert!(plan.use_double_scratch_buffer);
        for gpu in &plan.gpus {
            assert_eq!(gpu.scratch_chunks, 2 * ranks * ranks * instances as u64);
            let ops = || gpu.threadblocks.iter().flat_map(|block| &block.ops);
            assert!(ops().all(|op| !matches!(op.kind, OpKind::Signal | OpKind::Wait)));
        }
    }
}

#[test]
fn allreduce_over_switches() {
    for ranks in 2..=6 {
        for (instances, policy) in [(1, POLICIES[0]), (2, POLICIES[0]), (2, POLICIES[1])] {
            let mut p = replicated(Kind::AllReduce, ranks, ranks, true, instances, policy);
            for rank in 0..ranks {
                let mine = at(&mut p, rank, Buffer::Input, rank, 1);
                let others: Vec<u64> = (0..ranks).filter(|&other| other != rank).collect();
                for &other in &others {
                    let theirs = at(&mut p, rank, Buffer::Input, other, 1);
                    p.signal(theirs, other as i64, Target::SAME, 0, MEMORY).unwrap();
                }
                for &other in &others {
                    p.wait(mine, other as i64, Target::SAME, 0, MEMORY).unwrap();
                }
                let refs: Vec<Ref> = others.iter().map(|&rank| Ref { rank, ..mine }).collect();
                let sum = p.group_load_reduce(mine, &refs, 0, SWITCH).unwrap();
                let others: Vec<i64> = others.iter().map(|&rank| rank as i64).collect();
                p.group_store(sum, &others, Target::SAME, 0, SWITCH).unwrap();
            }
            let plan = right(&p);
            let switches = plan.gpus[0]
                .channels
                .iter()
                .filter(|table| matches!(table, crate::model::ChannelTable::Switch { .. }));
            assert_eq!(switches.count(), 1, "all blocks share the switch");
        }
    }
}

#[test]
fn allgather_with_a_barrier_and_blocks_that_differ_between_the_ends() {
    for ranks in 2..=8 {
        for (instances, policy) in [(1, POLICIES[0]), (3, POLICIES[0]), (2, POLICIES[1])] {
            let mut p = replicated(Kind::AllGather, ranks, 1, false, instances, policy);
            let all: Vec<i64> = (0..ranks as i64).collect();
            for rank in 0..ranks {
                let mine = at(&mut p, rank, Buffer::Input, 0, 1);
                let target = Target::at(Buffer::Output, rank);
                for &block in &all {
                    if block == rank as i64 {
                        p.copy(mine, block, target, block).unwrap();
                    } else {
                        p.put(mine, block, target, block, MEMORY).unwrap();
                    }
                }
                p.barrier(rank as i64, &all).unwrap();
                for &block in all.iter().filter(|&&block| block != rank as i64) {
                    p.signal(mine, block, target, block, MEMORY).unwrap();
                }
            }
            for rank in 0..ranks {
                for peer in (0..ranks).filter(|&peer| peer != rank) {
                    let theirs = at(&mut p, rank, Buffer::Output, peer, 1);
                    // A chunk that the peer's input does not even have: only its buffer matters.
                    let from = Target::at(Buffer::Input, peer);
                    p.wait(theirs, peer as i64, from, peer as i64, MEMORY).unwrap();
                }
            }
            right(&p);
        }
    }
}

#[test]
fn allgather_in_place_over_ports_between_nodes() {
    for (ranks, per_node) in [(2, 1), (4, 2), (6, 3), (8, 4)] {
        for (instances, replication) in [(1, POLICIES[0]), (2, POLICIES[1]), (2, POLICIES[0])] {
            let collective = Collective::new(Kind::AllGather, ranks, 1, true);
            let mut p = Program::new(Settings {
                protocol: Protocol::LL,
                instances,
                replication,
                ..Settings::new("nodes", collective)
            })
            .unwrap();
            let scratch = p.scratch("scratch");
            for rank in 0..ranks {
                let mine = at(&mut p, rank, Buffer::Input, 0, 1);
                for other in (1..ranks).map(|step| (rank + step) % ranks) {
                    let tb = if other < rank { other } else { other - 1 };
                    let there = Target::at(scratch, rank);
                    let (kind, packed) = if rank / per_node == other / per_node {
                        (MEMORY, None)
                    } else {
                        (PORT, Some(there))
                    };
                    let (to, tb) = (other as i64, tb as i64);
                    p.put_packet(mine, to, there, tb, Format::Raw, kind, packed).unwrap();
                }
            }
            for from in 0..ranks {
                for rank in (1..ranks).map(|step| (from + step) % ranks) {
                    let tb = if from < rank { from } else { from - 1 };
                    let block = (tb + ranks - 1) as i64;
                    let packets = at(&mut p, rank, scratch, from, 1);
                    let target = Target::at(Buffer::Output, from);
                    p.copy_packet(packets, rank as i64, target, block).unwrap();
                }
            }
            right(&p);
        }
    }
}

#[test]
fn reducescatter_and_alltoall() {
    for ranks in 2..=8 {
        for (factor, instances, policy) in
            [(1, 1, POLICIES[0]), (2, 2, POLICIES[0]), (2, 2, POLICIES[1])]
        {
            for in_place in [false, true] {
                let kind = Kind::ReduceScatter;
                let mut p = replicated(kind, ranks, factor, in_place, instances, policy);
                reduce_scatter(&mut p, factor);
                right(&p);
            }
            let mut p = replicated(Kind::AllToAll, ranks, factor, false, instances, policy);
            for rank in 0..ranks {
                for other in 0..ranks {
                    let part = at(&mut p, rank, Buffer::Input, other * factor, factor);
                    let target = Target::at(Buffer::Output, rank * factor);
                    if other == rank {
                        p.copy(part, rank as i64, target, 0).unwrap();
                    } else {
                        p.put(part, other as i64, target, 0, MEMORY).unwrap();
                        p.signal(part, other as i64, target, 0, MEMORY).unwrap();
                    }
                }
            }
            for rank in 0..ranks {
                for other in (0..ranks).filter(|&other| other != rank) {
                    let part = at(&mut p, rank, Buffer::Output, other * factor, factor);
                    let from = Target::at(Buffer::Input, rank * factor);
                    p.wait(part, other as i64, from, 0, MEMORY).unwrap();
                }
            }
            right(&p);
        }
    }
}

/// Every rank sends each other one its part; all of it goes to scratch, where it is added up.
fn reduce_scatter(p: &mut Program, factor: u64) {
    let (ranks, scratch) = (p.ranks(), p.scratch("parts"));
    for rank in 0..ranks {
        for other in (0..ranks).filter(|&other| other != rank) {
            let part = at(p, rank, Buffer::Input, other * factor, factor);
            let there = Target::at(scratch, rank * factor);
            p.put(part, other as i64, there, 0, MEMORY).unwrap();
            p.signal(part, other as i64, there, 0, MEMORY).unwrap();
        }
    }
    for rank in 0..ranks {
        let mine = at(p, rank, Buffer::Input, rank * factor, factor);
        let mine = p.copy(mine, rank as i64, Target::at(Buffer::Output, 0), 0).unwrap();
        let mine = mine.unwrap_or_else(|| at(p, rank, Buffer::Output, 0, factor));
        for other in (0..ranks).filter(|&other| other != rank) {
            let part = at(p, rank, scratch, other * factor, factor);
            p.wait(part, other as i64, Target::at(Buffer::Input, rank * factor), 0, MEMORY)
                .unwrap();
            // Sums chunk by chunk of what was sent as one run.
            for (mine, part) in mine.split(factor).unwrap().iter().zip(part.split(factor).unwrap())
            {
                p.reduce(*mine, part, 0, MEMORY).unwrap();
            }
        }
    }
}

#[test]
fn alltoall_in_place_uses_one_name_for_the_memory() {
    let mut p = program(Kind::AllToAll, 2, 1, true);
    let scratch = p.scratch("scratch");
    for rank in 0..2 {
        let theirs = at(&mut p, rank, Buffer::Input, 1 - rank, 1);
        let peer = 1 - rank as i64;
        p.put_packet(theirs, peer, Target::append(scratch), 0, Format::Raw, MEMORY, None).unwrap();
    }
    for rank in 0..2 {
        let packets = at(&mut p, rank, scratch, 0, 1);
        p.copy_packet(packets, rank as i64, Target::at(Buffer::Output, 1 - rank), 0).unwrap();
    }
    let plan = right(&p);
    assert_eq!((plan.gpus[0].input_chunks, plan.gpus[0].output_chunks), (2, 0));
}

#[test]
fn sendrecv_over_ports_fuses_put_signal_and_flush() {
    for (flush, wanted) in [(false, OpKind::PutWithSignal), (true, OpKind::PutWithSignalAndFlush)] {
        for instances in [1, 2] {
            let mut p = replicated(Kind::SendRecv, 2, 1, false, instances, Replication::Duplicated);
            let scratch = p.scratch("scratch");
            for rank in 0..2 {
                let mine = at(&mut p, rank, Buffer::Input, 0, 1);
                let (peer, there) = (1 - rank as i64, Target::at(scratch, 1));
                p.put(mine, peer, there, 0, PORT).unwrap();
                p.signal(mine, peer, there, 0, PORT).unwrap();
                if flush {
                    p.flush(mine, peer, there, 0, PORT).unwrap();
                }
            }
            for rank in 0..2 {
                let theirs = at(&mut p, rank, scratch, 1, 1);
                let from = Target::at(Buffer::Input, 0);
                p.wait(theirs, 1 - rank as i64, from, 0, PORT).unwrap();
                p.copy(theirs, rank as i64, Target::at(Buffer::Output, 0), 0).unwrap();
            }
            let plan = right(&p);
            assert_eq!(kinds(&plan, 0, 0), [wanted, OpKind::Wait, OpKind::Copy]);
        }
    }
}

#[test]
fn broadcast_from_any_root() {
    for ranks in 2..=8 {
        for (root, in_place) in [(0, false), (ranks - 1, false), (ranks / 2, true)] {
            let mut p = program(Kind::Broadcast { root }, ranks, 2, in_place);
            let mine = at(&mut p, root, Buffer::Input, 0, 2);
            p.copy(mine, root as i64, Target::at(Buffer::Output, 0), 0).unwrap();
            for rank in (0..ranks).filter(|&rank| rank != root) {
                p.put(mine, rank as i64, Target::at(Buffer::Output, 0), 0, MEMORY).unwrap();
                p.signal(mine, rank as i64, Target::at(Buffer::Output, 0), 0, MEMORY).unwrap();
                let theirs = at(&mut p, rank, Buffer::Output, 0, 2);
                let from = Target::at(Buffer::Input, 0);
                p.wait(theirs, root as i64, from, 0, MEMORY).unwrap();
            }
            right(&p);
        }
    }
}
