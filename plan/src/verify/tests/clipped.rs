//! Sizes at which the last chunks of a block are shorter than the others, or empty.

use super::*;
use crate::model::Buffer::{Input, Output, Scratch};
use crate::program::CallSizes;

/// A broadcast of two chunks: rank 0 puts them into scratch, and rank 1 does `moves` with them.
fn broadcast(moves: &[(ChunkRef, ChunkRef)]) -> Plan {
    let mut plan = plan(Collective::Broadcast, 2, [2, 2, 3]);
    connect(&mut plan);
    let give = vec![
        data(OpKind::Copy, &[local(Input, 0, 2)], &[local(Output, 0, 2)]),
        data(OpKind::Put, &[local(Input, 0, 2)], &[remote(0, 1, Scratch, 0, 2)]),
        nop(),
        sync(OpKind::Signal, &[0]),
        sync(OpKind::Wait, &[0]),
    ];
    let mut take = vec![sync(OpKind::Wait, &[0]), nop()];
    for &(from, to) in moves {
        take.extend([data(OpKind::Copy, &[from], &[to]), nop()]);
    }
    take.push(sync(OpKind::Signal, &[0]));
    block(&mut plan, 0, give);
    block(&mut plan, 1, take);
    plan
}

/// A broadcast in which the bytes of one chunk of rank 1's output come through another.
fn through(chunk: u64, last: u64) -> Plan {
    let [scratch, output] = [Scratch, Output].map(|buffer| move |at| local(buffer, at, 1));
    broadcast(&[
        (scratch(last), output(chunk)),
        (output(chunk), scratch(2)),
        (scratch(2), output(last)),
        (scratch(1 - last), output(1 - last)),
    ])
}

#[test]
fn bytes_that_come_through_a_chunk_that_may_be_shorter_are_missing_where_it_is() {
    let [scratch, output] = [Scratch, Output].map(|buffer| move |at| local(buffer, at, 1));
    expect(&[
        ("its own", broadcast(&[(scratch(0), output(0)), (scratch(1), output(1))]), "proven"),
        ("a shorter one", through(1, 0), "not proven"),
        ("a longer one", through(0, 1), "proven"),
    ]);
    // The second chunk is shorter than the first at such a size, and the call is not refused.
    let layout = Layout::new(&through(1, 0)).unwrap();
    let sizes = CallSizes { input: 24, output: 24, element: 1, strict: false };
    assert!((0..2).all(|rank| layout.program(rank, sizes).is_ok()));
    let report = judge(&through(1, 0));
    assert!(report.to_string().contains("chunk 0 of a block relies on bytes"), "{report}");
}

#[test]
fn they_are_missing_in_what_a_caller_promises_too() {
    use crate::postcondition::{PostCondition, Wanted};
    let all = PostCondition::custom(2, 2, |_, chunk| Wanted::Chunks(vec![(0, chunk)]));
    // Where nobody is promised the chunk, nobody misses it.
    let second = PostCondition::custom(2, 2, |_, chunk| match chunk {
        0 => Wanted::Anything,
        chunk => Wanted::Chunks(vec![(0, chunk)]),
    });
    for (name, plan, promise, expected) in [
        ("a shorter one", through(1, 0), &all, "not proven"),
        ("a shorter one that is not promised", through(1, 0), &second, "proven"),
        ("a longer one", through(0, 1), &all, "proven"),
    ] {
        let layout = Layout::new(&plan).unwrap();
        let options = Options { promise: Some(promise), ..Options::default() };
        let report = verify(&plan, &layout, options);
        assert_eq!(word(&report), expected, "{name}: {report}");
    }
}

/// Moves between chunks of different numbers are refused at such sizes, so that nothing is missing.
#[test]
fn sizes_at_which_sides_of_a_move_differ_need_no_proof() {
    let moved = |direct: bool| {
        let mut ops = vec![data(OpKind::Copy, &[local(Input, 1, 1)], &[local(Scratch, 0, 1)])];
        if direct {
            ops.push(data(OpKind::Copy, &[local(Input, 1, 1)], &[local(Output, 0, 1)]));
            ops.push(nop());
        }
        ops.push(nop());
        ops.push(data(OpKind::Copy, &[local(Scratch, 0, 1)], &[local(Output, 0, 1)]));
        pair([2, 2, 1], &[&[ops], &[]])
    };
    // Promised nothing but that: where the input is not there, neither is the promise.
    expect(&[("direct, too", moved(true), "proven"), ("by scratch", moved(false), "proven")]);
}

/// Rank 1 reads a chunk of scratch that rank 0 may still be writing, with the value that is there already.
#[test]
fn a_write_that_is_not_there_at_some_sizes_excuses_nothing() {
    let plan = |by: u64| {
        let mut plan = plan(Collective::Broadcast, 2, [2, 2, 3]);
        connect(&mut plan);
        connect(&mut plan);
        let give = vec![
            data(OpKind::Copy, &[local(Input, 0, 2)], &[local(Output, 0, 2)]),
            data(OpKind::Put, &[local(Input, 0, 2)], &[remote(0, 1, Scratch, 1, 2)]),
            nop(),
            sync(OpKind::Signal, &[0]),
            sync(OpKind::Wait, &[0]),
        ];
        let again = vec![
            data(OpKind::Put, &[local(Input, 0, 1)], &[remote(0, 1, Scratch, 0, 1)]),
            nop(),
            sync(OpKind::Signal, &[1]),
        ];
        let copy = |from: ChunkRef, to: ChunkRef| data(OpKind::Copy, &[from], &[to]);
        let take = vec![
            sync(OpKind::Wait, &[0]),
            nop(),
            copy(local(Scratch, 1, 1), local(Output, by, 1)),
            nop(),
            copy(local(Output, by, 1), local(Scratch, 0, 1)),
            nop(),
            copy(local(Scratch, 0, 1), local(Output, 0, 1)),
            copy(local(Scratch, 2, 1), local(Output, 1, 1)),
            sync(OpKind::Wait, &[1]),
            nop(),
            sync(OpKind::Signal, &[0]),
        ];
        block(&mut plan, 0, give);
        block(&mut plan, 0, again);
        block(&mut plan, 1, take);
        plan
    };
    expect(&[("by its own", plan(0), "proven"), ("by another", plan(1), "not proven")]);
}

/// Where nothing ties the size of outputs to that of inputs, a chunk of the one may be short where all of the other are full.
#[test]
fn chunks_of_outputs_are_not_there_because_those_of_inputs_are() {
    use crate::postcondition::{PostCondition, Wanted};
    let through = |detour: u64| {
        let copy = |from: ChunkRef, to: ChunkRef| data(OpKind::Copy, &[from], &[to]);
        let zero = vec![
            data(OpKind::Put, &[local(Input, 3, 1)], &[remote(0, 1, Scratch, 0, 1)]),
            nop(),
            sync(OpKind::Signal, &[0]),
            sync(OpKind::Wait, &[0]),
        ];
        let one = vec![
            sync(OpKind::Wait, &[0]),
            nop(),
            copy(local(Scratch, 0, 1), local(Output, detour, 1)),
            nop(),
            copy(local(Output, detour, 1), local(Scratch, 1, 1)),
            nop(),
            copy(local(Scratch, 1, 1), local(Output, 1, 1)),
            nop(),
            sync(OpKind::Signal, &[0]),
        ];
        pair([4, 4, 2], &[&[zero], &[one]])
    };
    let promise = PostCondition::custom(2, 4, |rank, chunk| match (rank, chunk) {
        (1, 1) => Wanted::Chunks(vec![(0, 3)]),
        _ => Wanted::Anything,
    });
    let sizes = CallSizes { input: 64, output: 36, element: 4, strict: false };
    for (detour, expected) in [(0, "proven"), (1, "proven"), (2, "not proven")] {
        let plan = through(detour);
        let layout = Layout::new(&plan).unwrap();
        assert!((0..2).all(|rank| layout.program(rank, sizes).is_ok()));
        let report = verify(&plan, &layout, Options { promise: Some(&promise), results: false });
        assert_eq!(word(&report), expected, "through {detour}: {report}");
    }
}
