//! Every refusal, with its text.

use super::*;
use crate::passes::pairing::SourceLine;

/// A program of three ranks on two nodes, of which the first two are linked, with a scratch buffer.
fn linked() -> (Program, Buffer) {
    let mut collective = Collective::new(Kind::AllReduce, 3, 2, false);
    collective.ranks_per_node = Some(2);
    let links = Some([(0, 1)].into());
    let mut p = Program::new(Settings { links, ..Settings::new("linked", collective) }).unwrap();
    let scratch = p.scratch("tmp");
    (p, scratch)
}

#[test]
fn calls_that_make_no_sense_say_why() {
    type Call = fn(&mut Program, Ref, Buffer) -> Result<(), Misuse>;
    let cases: &[(&str, Call)] = &[
        ("Cannot put to the same rank", |p, c, _| p.put(c, 0, Target::SAME, 0, MEMORY).map(drop)),
        ("Cannot get from the same rank", |p, c, _| p.get(c, 0, Target::SAME, 0, MEMORY)),
        ("Cannot signal to the same rank", |p, c, _| p.signal(c, 0, Target::SAME, 0, MEMORY)),
        ("Cannot wait on the same rank", |p, c, _| p.wait(c, 0, Target::SAME, 0, MEMORY)),
        ("Cannot flush to the same rank", |p, c, _| p.flush(c, 0, Target::SAME, 0, PORT)),
        ("Only port channel can use flush", |p, c, _| p.flush(c, 1, Target::SAME, 0, MEMORY)),
        ("cannot get over a port channel: allowed memory", |p, c, _| {
            p.get(c, 1, Target::SAME, 0, PORT)
        }),
        ("cannot put over a switch channel: allowed memory or port", |p, c, _| {
            p.put(c, 1, Target::SAME, 0, SWITCH).map(drop)
        }),
        ("cannot reduce over a port channel: allowed memory between ranks", |p, c, _| {
            p.reduce(c, Ref { rank: 1, ..c }, 0, PORT).map(drop)
        }),
        ("cannot group_load_reduce over a memory channel: allowed nvls", |p, c, _| {
            p.group_load_reduce(c, &[Ref { rank: 1, ..c }], 0, MEMORY).map(drop)
        }),
        (
            "cannot put: saw thread block -1, allowed 0 to 65535; give sendtb or recvtb",
            |p, c, _| p.put(c, 1, Target::SAME, -1, MEMORY).map(drop),
        ),
        ("cannot signal: saw thread block 65536", |p, c, _| {
            p.signal(c, 1, Target::SAME, 1 << 16, MEMORY)
        }),
        ("cannot use rank 3: allowed 0 to 2", |p, c, _| {
            p.put(c, 3, Target::SAME, 0, MEMORY).map(drop)
        }),
        ("cannot use rank -1: allowed 0 to 2", |p, _, _| {
            p.chunk(-1, Buffer::Input, 0, 1).map(drop)
        }),
        (
            "cannot use chunks 1 to 3 (exclusive) of the input of rank 0: it has 2 chunks",
            |p, _, _| p.chunk(0, Buffer::Input, 1, 2).map(drop),
        ),
        ("cannot use chunks 7 to 8 (exclusive) of the output of rank 1: it has 2", |p, c, _| {
            p.put(c, 1, Target::at(Buffer::Output, 7), 0, MEMORY).map(drop)
        }),
        ("of scratch buffer `tmp` of rank 1: it has 4194304", |p, c, tmp| {
            p.put(c, 1, Target::at(tmp, u64::MAX), 0, MEMORY).map(drop)
        }),
        ("of an unknown scratch buffer of rank 0: it has 0 chunks", |p, _, _| {
            p.chunk(0, Buffer::Scratch(9), 0, 1).map(drop)
        }),
        ("cannot use chunk -2: allowed 0 and more, or -1", |_, _, tmp| {
            Target::new(Some(tmp), -2).map(drop)
        }),
        ("cannot use chunk -1", |p, _, _| p.chunk(0, Buffer::Input, -1, 1).map(drop)),
        ("cannot put to the end of the output: only scratch buffers grow", |p, c, _| {
            p.put(c, 1, Target::new(Some(Buffer::Output), -1)?, 0, MEMORY).map(drop)
        }),
        (
            "cannot put on rank 0: chunk 1 of scratch buffer `tmp` has never been written",
            |p, c, tmp| {
                p.put(Ref { buffer: tmp, index: 1, ..c }, 1, Target::SAME, 0, MEMORY).map(drop)
            },
        ),
        ("cannot reduce on rank 0: chunk 0 of the output has never been written", |p, c, _| {
            p.reduce(Ref { buffer: Buffer::Output, ..c }, c, 0, MEMORY).map(drop)
        }),
        (
            "cannot copy between ranks 0 and 1: it only supports intra-rank communication; use put",
            |p, c, _| p.copy(c, 1, Target::SAME, 0).map(drop),
        ),
        ("cannot reduce_packet between ranks 0 and 1: it only supports intra-rank", |p, c, tmp| {
            p.reduce_packet(c, Ref { rank: 1, buffer: tmp, ..c }, 0).map(drop)
        }),
        ("cannot put_packet with packets in the output: packets live in scratch", |p, c, _| {
            let there = Target::at(Buffer::Output, 0);
            p.put_packet(c, 1, there, 0, Format::Raw, MEMORY, None).map(drop)
        }),
        ("cannot put_packet with packets in the input", |p, c, tmp| {
            let there = Target::at(tmp, 0);
            p.put_packet(c, 1, there, 0, Format::Packet, MEMORY, None).map(drop)
        }),
        ("cannot copy_packet with packets in the input", |p, c, _| {
            p.copy_packet(c, 0, Target::at(Buffer::Output, 0), 0).map(drop)
        }),
        ("cannot reduce_packet with packets in the input", |p, c, _| {
            p.reduce_packet(c, c, 0).map(drop)
        }),
        ("Need to specify a temporary buffer for port channels", |p, c, tmp| {
            p.put_packet(c, 1, Target::at(tmp, 0), 0, Format::Raw, PORT, None).map(drop)
        }),
        ("Need to specify a temporary buffer for port channels", |p, c, tmp| {
            let there = Target::at(tmp, 0);
            p.put_packet(c, 1, there, 0, Format::Raw, PORT, Some(Target::SAME)).map(drop)
        }),
        ("chunk 0 of scratch buffer `tmp` holds raw data, allowed packets", |p, c, tmp| {
            let copy = p.copy(c, 0, Target::at(tmp, 0), 0)?.unwrap();
            p.copy_packet(copy, 0, Target::at(Buffer::Output, 0), 0).map(drop)
        }),
        ("chunk 0 of scratch buffer `tmp` holds packets, allowed raw data", |p, c, tmp| {
            let packets = p.put_packet(c, 1, Target::at(tmp, 0), 0, Format::Raw, MEMORY, None)?;
            p.copy(packets, 1, Target::at(Buffer::Output, 0), 0).map(drop)
        }),
        ("cannot reduce: saw runs of 1 and 2 chunks, allowed equal sizes", |p, c, _| {
            p.reduce(c, Ref { size: 2, ..c }, 0, MEMORY).map(drop)
        }),
        ("No link from 0 to 2", |p, c, _| p.put(c, 2, Target::SAME, 0, MEMORY).map(drop)),
        ("No link from 0 to 2", |p, c, _| p.reduce(c, Ref { rank: 2, ..c }, 0, MEMORY).map(drop)),
        ("No link from 0 to 2", |p, c, _| p.group_store(c, &[2], Target::SAME, 0, SWITCH)),
        ("cannot group_load_reduce: saw no other rank, allowed 1 or more", |p, c, _| {
            p.group_load_reduce(c, &[], 0, SWITCH).map(drop)
        }),
        ("cannot group_store: saw no other rank", |p, c, _| {
            p.group_store(c, &[0], Target::SAME, 0, SWITCH)
        }),
        ("cannot group_load_reduce on rank 0: the chunks of rank 1 are elsewhere", |p, c, _| {
            p.group_load_reduce(c, &[Ref { rank: 1, index: 1, ..c }], 0, SWITCH).map(drop)
        }),
        ("cannot group_store on rank 0: the chunks of rank 1 are elsewhere", |p, c, _| {
            p.group_store(c, &[1], Target::at(Buffer::Output, 0), 0, SWITCH)
        }),
        (
            "cannot group_load_reduce between ranks 0 and 2: they are on different nodes",
            |p, c, _| p.group_load_reduce(c, &[Ref { rank: 2, ..c }], 0, SWITCH).map(drop),
        ),
        ("cannot make a switch channel over ranks [0, 1, 1]", |p, c, _| {
            let other = Ref { rank: 1, ..c };
            p.group_load_reduce(c, &[other, other], 0, SWITCH).map(drop)
        }),
        ("Barrier requires at least thread block.", |p, _, _| p.barrier(0, &[])),
        ("cannot make a barrier over blocks [1, 1]", |p, _, _| p.barrier(0, &[1, 1])),
        ("cannot barrier: saw thread block -1", |p, _, _| p.barrier(0, &[0, -1])),
        ("cannot use rank 9", |p, _, _| p.barrier(9, &[0])),
    ];
    for (wanted, call) in cases {
        let (mut p, scratch) = linked();
        let mine = at(&mut p, 0, Buffer::Input, 0, 1);
        let text = call(&mut p, mine, scratch).unwrap_err().to_string();
        assert!(text.contains(wanted), "wanted: {wanted}\nsaw: {text}");
    }
}

#[test]
fn programs_that_make_no_sense_say_why() {
    let text = |collective, change: fn(&mut Settings)| {
        let mut settings = Settings::new("none", collective);
        change(&mut settings);
        Program::new(settings).unwrap_err().to_string()
    };
    let allreduce = |ranks, factor| Collective::new(Kind::AllReduce, ranks, factor, true);
    let cases = [
        (text(allreduce(0, 1), |_| {}), "cannot make a program: saw 0 ranks"),
        (text(allreduce(2, 1), |s| s.ranks = 3), "for 3 ranks: its collective has 2"),
        (text(allreduce(2, 1), |s| s.instances = 0), "cannot replicate: saw 0 instances"),
        (text(allreduce(2, 0), |_| {}), "by a chunk factor of 0: allowed 1 to 4194304 chunks"),
        (
            text(Collective::new(Kind::AllToAll, 2, u64::MAX, true), |_| {}),
            "cannot divide the buffers of 2 ranks",
        ),
        (
            text(Collective::new(Kind::SendRecv, 3, 1, true), |_| {}),
            "of 3 ranks: SendRecv only supports 2 ranks",
        ),
        (
            text(Collective::new(Kind::Broadcast { root: 2 }, 2, 1, true), |_| {}),
            "cannot broadcast from rank 2: allowed 0 to 1",
        ),
    ];
    for (saw, wanted) in cases {
        assert!(saw.contains(wanted), "wanted: {wanted}\nsaw: {saw}");
    }
}

#[test]
fn signals_and_waits_in_different_blocks_say_which() {
    let mut p = program(Kind::SendRecv, 2, 1, false);
    let line = |line| Some(SourceLine { file: "prog.py".into(), line });
    for rank in 0..2 {
        let mine = at(&mut p, rank, Buffer::Input, 0, 1);
        let (peer, there) = (1 - rank as i64, Target::at(Buffer::Output, 0));
        p.at(line(3));
        p.put(mine, peer, there, 0, MEMORY).unwrap();
        p.signal(mine, peer, there, 0, MEMORY).unwrap();
        let theirs = Ref { rank, buffer: Buffer::Output, ..mine };
        p.at(line(7));
        p.wait(theirs, peer, Target::at(Buffer::Input, 0), 1 - rank as i64, MEMORY).unwrap();
    }
    let text = p.finish().unwrap_err().to_string();
    assert_eq!(
        text,
        "cannot pair the memory signals from rank 1 to rank 0, i to o: saw 1 signals in thread block 0 and 0 waits in \
         thread block 0, allowed as many waits as signals; rank 1 signals in thread blocks [0], rank 0 waits in [1]: \
         use the same thread block, and the same two buffers, on both ranks (prog.py:7)"
    );
}

#[test]
fn a_signal_for_other_buffers_than_the_wait_is_not_its_signal() {
    let mut p = program(Kind::SendRecv, 2, 1, false);
    let mine = at(&mut p, 0, Buffer::Input, 0, 1);
    p.put(mine, 1, Target::at(Buffer::Output, 0), 0, MEMORY).unwrap();
    p.signal(mine, 1, Target::SAME, 0, MEMORY).unwrap();
    let theirs = Ref { rank: 1, buffer: Buffer::Output, ..mine };
    p.wait(theirs, 0, Target::at(Buffer::Input, 0), 0, MEMORY).unwrap();
    let text = p.finish().unwrap_err().to_string();
    assert!(text.contains("from rank 0 to rank 1, i to i: saw 1 signals in thread block 0 and 0 waits in no thread block"), "{text}");
}

#[test]
fn what_switches_reach_must_lie_alike_in_the_scratch_of_all_ranks() {
    let mut p = program(Kind::AllReduce, 2, 1, false);
    let (first, second) = (p.scratch("first"), p.scratch("second"));
    for (rank, order) in [(0, [first, second]), (1, [second, first])] {
        let mine = at(&mut p, rank, Buffer::Input, 0, 1);
        for scratch in order {
            p.copy(mine, rank as i64, Target::at(scratch, 0), 0).unwrap();
        }
    }
    let mine = at(&mut p, 0, first, 0, 1);
    p.group_load_reduce(mine, &[Ref { rank: 1, ..mine }], 0, SWITCH).unwrap();
    let text = p.finish().unwrap_err().to_string();
    assert!(text.starts_with("cannot group_load_reduce on rank 0: the chunks of rank 1"), "{text}");
}
