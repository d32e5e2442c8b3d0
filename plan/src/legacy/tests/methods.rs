//! References, what they hold, and what the replay finds.

use super::*;

#[test]
fn references_split_and_group() {
    let mut p = program(Kind::AllReduce, 2, 6, true);
    let all = at(&mut p, 1, Buffer::Input, 1, 4);
    let parts = all.split(2).unwrap();
    assert_eq!(
        parts.iter().map(|part| (part.index, part.size)).collect::<Vec<_>>(),
        [(1, 2), (3, 2)]
    );
    assert_eq!(parts[1].group(&parts[0]).unwrap(), all);
    let text = all.split(3).unwrap_err().to_string();
    assert_eq!(text, "cannot split a run of 4 chunks into 3 parts: allowed divisors of 4");
    assert!(all.split(0).is_err());
    let elsewhere = at(&mut p, 0, Buffer::Input, 1, 4);
    let text = all.group(&elsewhere).unwrap_err().to_string();
    assert!(
        text.starts_with("cannot group chunks of i of rank 1 with chunks of i of rank 0"),
        "{text}"
    );
}

#[test]
fn one_memory_has_one_name() {
    let chunk = |kind, buffer, index| {
        let mut p = program(kind, 2, 2, true);
        let found = p.chunk(1, buffer, index, 1).unwrap().unwrap();
        (found.buffer, found.index)
    };
    assert_eq!(chunk(Kind::AllReduce, Buffer::Output, 1), (Buffer::Input, 1));
    assert_eq!(chunk(Kind::SendRecv, Buffer::Output, 1), (Buffer::Input, 1));
    assert_eq!(chunk(Kind::AllGather, Buffer::Input, 1), (Buffer::Output, 3));
    assert_eq!(chunk(Kind::AllGather, Buffer::Output, 1), (Buffer::Output, 1));
    assert_eq!(chunk(Kind::ReduceScatter, Buffer::Output, 1), (Buffer::Input, 3));
    assert_eq!(chunk(Kind::ReduceScatter, Buffer::Input, 1), (Buffer::Input, 1));
    assert_eq!(chunk(Kind::AllToAll, Buffer::Output, 1), (Buffer::Input, 1));
    assert_eq!(chunk(Kind::Broadcast { root: 0 }, Buffer::Output, 1), (Buffer::Input, 1));
}

#[test]
fn chunks_that_hold_nothing_are_none() {
    let mut p = program(Kind::AllReduce, 2, 2, false);
    assert_eq!(p.chunk(0, Buffer::Output, 0, 1), Ok(None));
    let mine = at(&mut p, 0, Buffer::Input, 0, 1);
    p.copy(mine, 0, Target::at(Buffer::Output, 0), 0).unwrap();
    assert!(p.chunk(0, Buffer::Output, 0, 1).unwrap().is_some());
    assert_eq!(p.chunk(0, Buffer::Output, 1, 1), Ok(None));
    // Scratch is there as soon as it is named, and so are the other ranks' parts of an allgather.
    let scratch = p.scratch("scratch");
    assert!(p.chunk(0, scratch, 5, 2).unwrap().is_some());
    assert_eq!(p.len(0, scratch), Ok(7));
    let mut p = program(Kind::AllGather, 2, 2, false);
    assert!(p.chunk(0, Buffer::Output, 3, 1).unwrap().is_some());
    let mut p = program(Kind::Broadcast { root: 1 }, 2, 1, false);
    assert_eq!(p.chunk(0, Buffer::Input, 0, 1), Ok(None));
    assert!(p.chunk(1, Buffer::Input, 0, 1).unwrap().is_some());
}

#[test]
fn contents_are_known_as_the_program_is_written() {
    let mut p = program(Kind::AllToAll, 2, 2, false);
    let part = at(&mut p, 1, Buffer::Input, 0, 2);
    let text = |p: &Program, of, chunk| p.contents(of, chunk).unwrap().map(|c| c.to_string());
    assert_eq!(text(&p, part, 1).as_deref(), Some("(1, 1)"));
    let collective = p.settings().collective;
    assert_eq!(collective.destination(Origin { rank: 1, index: 1 }), (Some(0), 3));
    let there = p.put(part, 0, Target::at(Buffer::Output, 2), 0, MEMORY).unwrap();
    assert_eq!(text(&p, there, 0).as_deref(), Some("(1, 0)"));
    let mine = at(&mut p, 0, Buffer::Input, 0, 2);
    p.reduce(there, mine, 0, MEMORY).unwrap();
    p.reduce(there, there, 0, MEMORY).unwrap();
    assert_eq!(text(&p, there, 0).as_deref(), Some("(0, 0) + (0, 0) + (1, 0) + (1, 0)"));
    let never = Ref { index: 0, ..there };
    assert_eq!(p.contents(never, 0), Ok(None));
    assert!(p.contents(never, 4).is_err());
    for _ in 0..60 {
        p.reduce(there, there, 0, MEMORY).unwrap();
    }
    assert!(p.contents(there, 0).unwrap().unwrap().more);
    let of =
        |kind, rank, index| Collective::new(kind, 2, 2, false).destination(Origin { rank, index });
    assert_eq!(of(Kind::AllReduce, 1, 1), (None, 1));
    assert_eq!(of(Kind::AllGather, 1, 1), (None, 3));
    assert_eq!(of(Kind::ReduceScatter, 1, 3), (Some(1), 1));
}

/// An exchange of two chunks, with as much of it as `what` says: put, signal, wait.
fn exchange(what: [bool; 3]) -> Program {
    let mut p = program(Kind::SendRecv, 2, 2, false);
    for rank in 0..2 {
        let mine = at(&mut p, rank, Buffer::Input, 0, 2);
        let (peer, there) = (1 - rank as i64, Target::at(Buffer::Output, 0));
        if what[0] || rank == 1 {
            p.put(mine, peer, there, 0, MEMORY).unwrap();
        }
        if what[1] {
            p.signal(mine, peer, there, 0, MEMORY).unwrap();
        }
    }
    for rank in 0..2 {
        let theirs = Ref { rank, buffer: Buffer::Output, index: 0, size: 2 };
        if what[2] {
            p.wait(theirs, 1 - rank as i64, Target::at(Buffer::Input, 0), 0, MEMORY).unwrap();
        }
    }
    p
}

fn findings(p: &Program) -> Vec<String> {
    p.check().iter().map(ToString::to_string).collect()
}

#[test]
fn the_replay_finds_what_a_missing_put_leaves_out() {
    right(&exchange([true; 3]));
    assert_eq!(
        findings(&exchange([false, true, true])),
        [
            "Rank 1 chunk 0 of buffer o is incorrect: should be (0, 0) given nothing",
            "Rank 1 chunk 1 of buffer o is incorrect: should be (0, 1) given nothing",
        ]
    );
}

#[test]
fn the_replay_finds_who_waits_for_ever() {
    assert_eq!(
        findings(&exchange([true, false, true])),
        [
            "Rank 0 thread block 0 waits for ever for a memory signal of rank 1",
            "Rank 1 thread block 0 waits for ever for a memory signal of rank 0",
        ]
    );
}

#[test]
fn the_replay_finds_a_wait_that_is_missing() {
    // Rank 1 adds to what it receives before it may be there.
    let build = |waits: bool| {
        let mut p = program(Kind::AllReduce, 2, 1, true);
        let scratch = p.scratch("scratch");
        for rank in 0..2 {
            let mine = at(&mut p, rank, Buffer::Input, 0, 1);
            p.put(mine, 1 - rank as i64, Target::at(scratch, 0), 0, MEMORY).unwrap();
            p.signal(mine, 1 - rank as i64, Target::at(scratch, 0), 0, MEMORY).unwrap();
        }
        for rank in 0..2 {
            let theirs = at(&mut p, rank, scratch, 0, 1);
            if waits {
                p.wait(theirs, 1 - rank as i64, Target::at(Buffer::Input, 0), 0, MEMORY).unwrap();
            }
            let mine = at(&mut p, rank, Buffer::Input, 0, 1);
            p.reduce(mine, theirs, 0, MEMORY).unwrap();
        }
        p
    };
    right(&build(true));
    assert!(!findings(&build(false)).is_empty());
}

#[test]
fn blocks_that_wait_in_the_text_do_not_hold_up_others() {
    // Each rank's text waits in one block before it signals in the other: the blocks run side by side.
    let mut p = program(Kind::SendRecv, 2, 1, false);
    for rank in 0..2 {
        let (peer, blocks) = (1 - rank as i64, [rank as i64, 1 - rank as i64]);
        let theirs = Ref { rank, buffer: Buffer::Output, index: 0, size: 1 };
        p.wait(theirs, peer, Target::at(Buffer::Input, 0), blocks[0], MEMORY).unwrap();
        let mine = at(&mut p, rank, Buffer::Input, 0, 1);
        p.put(mine, peer, Target::at(Buffer::Output, 0), blocks[1], MEMORY).unwrap();
        p.signal(mine, peer, Target::at(Buffer::Output, 0), blocks[1], MEMORY).unwrap();
    }
    right(&p);
}

#[test]
fn packets_are_forwarded() {
    // Around three ranks, as packets all the way.
    let collective = Collective::new(Kind::Broadcast { root: 0 }, 3, 1, true);
    for (kind, temporary) in [(MEMORY, false), (PORT, true)] {
        let settings = Settings { protocol: Protocol::LL, ..Settings::new("forward", collective) };
        let mut p = Program::new(settings).unwrap();
        let scratch = p.scratch("scratch");
        let temporary = temporary.then(|| Target::append(scratch));
        let mine = at(&mut p, 0, Buffer::Input, 0, 1);
        let there = Target::at(scratch, 3);
        let first = p.put_packet(mine, 1, there, 0, Format::Raw, kind, temporary).unwrap();
        let second = p.put_packet(first, 2, there, 0, Format::Packet, kind, None).unwrap();
        for packets in [first, second] {
            let rank = packets.rank as i64;
            p.copy_packet(packets, rank, Target::at(Buffer::Input, 0), 1).unwrap();
        }
        let plan = right(&p);
        assert_eq!(kinds(&plan, 1, 0), [OpKind::ReadPutPackets]);
        let chunks: Vec<u64> = plan.gpus.iter().map(|gpu| gpu.scratch_chunks).collect();
        assert_eq!(chunks, [4; 3], "all ranks have the longest scratch");
    }
}

#[test]
fn a_copy_to_itself_is_ignored() {
    let mut p = program(Kind::AllReduce, 1, 1, true);
    let mine = at(&mut p, 0, Buffer::Input, 0, 1);
    assert_eq!(p.copy(mine, 0, Target::at(Buffer::Output, 0), 0), Ok(None));
    assert_eq!(right(&p).gpus[0].threadblocks.len(), 0);
}

#[test]
fn puts_are_fused_across_what_does_not_concern_them() {
    // Rank 0 puts to both others, then signals both.
    let build = |touch: bool| {
        let mut p = program(Kind::Broadcast { root: 0 }, 3, 1, true);
        let mine = at(&mut p, 0, Buffer::Input, 0, 1);
        let scratch = p.scratch("scratch");
        for rank in 1..3 {
            p.put(mine, rank, Target::SAME, 0, PORT).unwrap();
        }
        let other = p.copy(mine, 0, Target::at(scratch, 0), 0).unwrap().unwrap();
        if touch {
            p.copy(other, 0, Target::at(Buffer::Input, 0), 0).unwrap();
        }
        for rank in 1..3 {
            p.signal(mine, rank, Target::SAME, 0, PORT).unwrap();
            let theirs = at(&mut p, rank as u64, Buffer::Input, 0, 1);
            p.wait(theirs, 0, Target::SAME, 0, PORT).unwrap();
        }
        let plan = right(&p);
        let fused = OpKind::PutWithSignal;
        kinds(&plan, 0, 0).iter().filter(|&&kind| kind == fused).count()
    };
    assert_eq!(build(true), 0);
    assert_eq!(build(false), 1);
}

#[test]
fn nothing_is_fused_where_the_author_says_so() {
    let collective = Collective::new(Kind::SendRecv, 2, 1, false);
    let mut p =
        Program::new(Settings { fuse: false, ..Settings::new("plain", collective) }).unwrap();
    for rank in 0..2 {
        let mine = at(&mut p, rank, Buffer::Input, 0, 1);
        p.put(mine, 1 - rank as i64, Target::at(Buffer::Output, 0), 0, PORT).unwrap();
        p.signal(mine, 1 - rank as i64, Target::at(Buffer::Output, 0), 0, PORT).unwrap();
        let theirs = Ref { rank, buffer: Buffer::Output, ..mine };
        p.wait(theirs, 1 - rank as i64, Target::at(Buffer::Input, 0), 0, PORT).unwrap();
    }
    assert_eq!(kinds(&right(&p), 0, 0), [OpKind::Put, OpKind::Signal, OpKind::Wait]);
}
