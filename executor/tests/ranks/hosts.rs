//! Ranks of one process that stand for several hosts: what links between them must bear.

use crate::support::ports::{PATIENCE, ranks, send};
use antiphon_executor::plan::builder::{Channel, ProgramBuilder};
use antiphon_executor::plan::model::{Collective, Plan};
use antiphon_executor::{
    Call, Communicator, DataType, Executor, ExecutorError, LoadedPlan, Options, PortLink,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs a plan on four numbers, which are this rank's number.
fn run(communicator: &Communicator, plan: &Plan) -> Result<[u32; 4], ExecutorError> {
    call(communicator, &Executor::new(communicator).load(plan)?)
}

/// As [`run`], with a plan that is loaded.
fn call(communicator: &Communicator, plan: &Arc<LoadedPlan>) -> Result<[u32; 4], ExecutorError> {
    let (input, mut output) = ([communicator.rank(); 4], [u32::MAX; 4]);
    let (from, to) = ((input.as_ptr().cast(), 16), (output.as_mut_ptr().cast(), 16));
    let call = Call::new(plan, DataType::U32, from, to);
    // SAFETY: both arrays hold 16 bytes and live past the call.
    unsafe { Executor::new(communicator).run(&call) }?;
    Ok(output)
}

/// Returns once the loss of a link counts.
fn lose(communicator: &Communicator, peer: u32) {
    let began = Instant::now();
    let lost = |link: &PortLink| link.peer == peer && link.lost.is_some();
    while !communicator.links().iter().any(lost) {
        assert!(began.elapsed() < PATIENCE, "the link to rank {peer} is not lost");
        std::thread::yield_now();
    }
}

/// Gives a launch that waits the time in which it would find that a link is lost.
fn bears(communicator: &Communicator, what: &str) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(100) {
        assert!(communicator.failure().is_none(), "{what}: {:?}", communicator.failure());
        std::thread::yield_now();
    }
}

/// Rank 0 waits for ranks 1, on another host, and 2, for what `say` has them say.
fn of_two(say: impl FnOnce(&ProgramBuilder, &Channel, &Channel)) -> Plan {
    let program = ProgramBuilder::new("of two", Collective::SendRecv, 3);
    let (port, near) = (program.port(0, 1), program.channel(0, 2));
    say(&program, &port, &near);
    program.build().unwrap()
}

/// The peer has said all that it will in the launch before the last link to it is gone; another rank is still waited for.
#[test]
fn a_launch_that_waits_for_others_does_not_mind_that_a_rank_has_left() {
    let put = of_two(|program, port, near| {
        program.block(1).put_with_signal(port, program.input(1).all(), program.output(0).all());
        program.block(2).signal(&[*near]);
        program.block(0).wait(&[*port]);
        program.block(0).wait(&[*near]);
    });
    let signals = of_two(|program, port, near| {
        program.block(1).signal(&[*port]);
        program.block(2).signal(&[*near]);
        program.block(0).wait(&[*port]);
        program.block(0).wait(&[*near]);
        program.block(0).copy(program.input(0).all(), program.output(0).all());
    });
    let packets = of_two(|program, port, _| {
        let (inbox, packed) = (program.scratch(0, 2), program.scratch(1, 1));
        program.block(1).copy_packets(program.input(1).all(), packed.all());
        program.block(1).put_packets_over(port, packed.all(), inbox.chunk(0));
        program.block(2).put_packets(program.input(2).all(), inbox.chunk(1));
        let (from, to) = (program.input(0).all(), program.output(0).all());
        program.block(0).reduce_packets(from, &[inbox.chunk(0), inbox.chunk(1)], to);
    });
    // A launch that its peer is ahead of begins when that has left; where the peer needs it, it waits already.
    let leave = |name: &str, plan: &Plan, before: u32, ahead: bool, expected: u32| {
        let what = format!("{name}, {before} launches before, ahead {ahead}");
        let [waits, leaves, late] = <[_; 3]>::try_from(ranks(&["here", "there", "here"])).unwrap();
        std::thread::scope(|scope| {
            for rank in [&waits, &leaves, &late] {
                scope.spawn(move || (0..before).for_each(|_| assert!(run(rank, plan).is_ok())));
            }
        });
        std::thread::scope(|scope| {
            let first = (!ahead).then(|| scope.spawn(|| run(&waits, plan)));
            run(&leaves, plan).unwrap();
            drop(leaves);
            lose(&waits, 1);
            let first = first.unwrap_or_else(|| scope.spawn(|| run(&waits, plan)));
            bears(&waits, &what);
            run(&late, plan).unwrap();
            assert_eq!(first.join().unwrap().unwrap(), [expected; 4], "{what}");
        });
    };
    std::thread::scope(|scope| {
        for (name, plan, before, ahead, expected) in [
            ("put", &put, 0, false, 1),
            ("put", &put, 2, false, 1),
            ("signals", &signals, 1, true, 0),
            ("signals", &signals, 4, true, 0),
            ("packets", &packets, 0, false, 3),
            ("packets", &packets, 2, true, 3),
        ] {
            scope.spawn(move || leave(name, plan, before, ahead, expected));
        }
    });
}

#[test]
fn a_link_to_a_rank_that_has_left_is_an_error_that_names_it() {
    let plan = send();
    for (group, leaver, late) in
        [(false, 0, false), (false, 1, false), (true, 0, false), (true, 1, false), (false, 1, true)]
    {
        let what = format!("group {group}, rank {leaver} leaves, late {late}");
        std::thread::scope(|scope| {
            let split = |rank: Communicator| {
                let end = if group { rank.split(Some(0), rank.rank()).unwrap() } else { None };
                (end.unwrap_or(rank.clone()), group.then_some(rank))
            };
            // Of groups only near ranks are told.
            let ranks: Vec<_> = ranks(&["here", if group { "here" } else { "there" }])
                .into_iter()
                .map(|rank| scope.spawn(move || split(rank)))
                .collect();
            let mut ends: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
            let (leaves, _root) = ends.remove(leaver);
            let (stays, _) = ends.remove(0);
            let began = Instant::now();
            let error = if late {
                // While its peer has asked for a link, and waits for it.
                let plan = &plan;
                let waits = scope.spawn(move || run(&stays, plan).map(|_| ()).unwrap_err());
                while leaves.links().is_empty() {
                    assert!(began.elapsed() < PATIENCE, "{what}: no link");
                    std::thread::yield_now();
                }
                drop(leaves);
                waits.join().unwrap()
            } else {
                drop(leaves);
                run(&stays, &plan).unwrap_err()
            };
            let named = error.to_string().contains(&format!("rank {leaver}"));
            assert!(named && error.to_string().contains("left"), "{what}: {error}");
            assert!(began.elapsed() < Duration::from_secs(10), "{what}: {error}");
        });
    }
}

/// Half a link may be answered by a rank that has said already that it leaves.
#[test]
fn a_rank_that_leaves_while_links_are_made_breaks_nothing() {
    let plan = send();
    for round in 0..300 {
        let [stays, leaves] = <[_; 2]>::try_from(ranks(&["here", "here"])).unwrap();
        std::thread::scope(|scope| {
            let plan = &plan;
            let other = scope.spawn(move || drop(Executor::new(&leaves).load(plan)));
            drop(Executor::new(&stays).load(plan));
            other.join().unwrap();
        });
        // Time for what the other said last.
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(2) {
            std::thread::yield_now();
        }
        assert!(stays.failure().is_none(), "round {round}: {:?}", stays.failure());
    }
}

#[test]
fn a_lost_link_is_told_with_the_launch_that_needs_it() {
    let plan = send();
    let [waits, leaves] = <[_; 2]>::try_from(ranks(&["here", "there"])).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run(&leaves, &plan).unwrap();
            drop(leaves);
        });
        run(&waits, &plan).unwrap();
        let error = run(&waits, &plan).unwrap_err();
        assert!(matches!(error, ExecutorError::Link { peer: 1, .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("of plan `send` on rank 0: rank 0 block 0 waits at op 0"), "{text}");
    });
}

#[test]
fn memory_channels_between_hosts_are_refused_though_one_process_has_both() {
    let program = ProgramBuilder::new("near", Collective::SendRecv, 2);
    program.channel(0, 1);
    program.block(0).put(program.input(0).all(), program.output(1).all());
    let plan = program.build().unwrap();
    for rank in &ranks(&["here", "there"])[..1] {
        let error = Executor::new(rank).load(&plan).unwrap_err();
        assert!(matches!(error, ExecutorError::Transport { .. }), "{error}");
        assert!(error.to_string().contains("another node"), "{error}");
    }
}

/// Nobody waits for what cannot come: neither the ranks for each other, nor a plan for its links.
#[test]
fn ranks_that_no_wire_connects_are_told_why_when_a_plan_needs_one() {
    let options = Options::default().with_verification(false);
    let program = ProgramBuilder::new("alone", Collective::SendRecv, 2);
    for rank in 0..2 {
        program.block(rank).copy(program.input(rank).all(), program.output(rank).all());
    }
    let (alone, send) = (program.build().unwrap(), send());
    for (options, why) in [
        (options.clone().with_wire(Some("local".to_owned())), "tcp: local is forced"),
        (options.with_interface(Some("nosuch0".to_owned())), "nosuch0"),
    ] {
        let began = Instant::now();
        for rank in &Communicator::in_process_on(&["here", "there"], &options).unwrap() {
            let error = Executor::new(rank).load(&send).unwrap_err();
            assert!(matches!(error, ExecutorError::Transport { .. }), "{error:?}");
            let text = error.to_string();
            let peer = format!("cannot open a port channel to rank {}", 1 - rank.rank());
            assert!(text.contains(&peer) && text.contains("another node"), "{text}");
            assert!(text.contains(why), "{text}");
            // What needs no wire runs.
            assert_eq!(run(rank, &alone).unwrap(), [rank.rank(); 4]);
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
}

#[test]
fn a_link_may_come_after_more_launches_than_descriptors_are_kept() {
    let program = ProgramBuilder::new("alone", Collective::SendRecv, 2);
    for rank in 0..2 {
        program.block(rank).copy(program.input(rank).all(), program.output(rank).all());
    }
    let (alone, send) = (program.build().unwrap(), send());
    std::thread::scope(|scope| {
        for rank in ranks(&["here", "there"]) {
            let (alone, send) = (&alone, &send);
            scope.spawn(move || {
                for round in 0..3 {
                    for _ in 0..100 {
                        assert_eq!(run(&rank, alone).unwrap(), [rank.rank(); 4]);
                    }
                    for _ in 0..100 {
                        let found = run(&rank, send).unwrap();
                        assert!(rank.rank() == 1 || found == [1; 4], "round {round}: {found:?}");
                    }
                }
            });
        }
    });
}

#[test]
fn a_plan_that_another_communicator_loaded_gets_its_links() {
    let plan = send();
    std::thread::scope(|scope| {
        for rank in ranks(&["here", "there"]) {
            let plan = &plan;
            scope.spawn(move || {
                let split = rank.split(Some(0), rank.rank()).unwrap().unwrap();
                let loaded = Executor::new(&rank).load(plan).unwrap();
                let found = call(&split, &loaded).unwrap();
                assert!(rank.rank() == 1 || found == [1; 4], "{found:?}");
            });
        }
    });
}

#[test]
fn memory_that_two_communicators_used_is_freed_when_its_user_lets_go() {
    let plan = send();
    std::thread::scope(|scope| {
        for rank in ranks(&["here", "there"]) {
            let plan = &plan;
            scope.spawn(move || {
                let both = [rank.split(Some(0), rank.rank()).unwrap().unwrap(), rank];
                let memory = both[0].allocate(4096).unwrap();
                for communicator in &both {
                    let executor = Executor::new(communicator);
                    let plan = executor.load(plan).unwrap();
                    let (input, output) = (memory.address(), memory.address().wrapping_add(2048));
                    let from = (input.cast_const().cast(), 2048);
                    let call = Call::new(&plan, DataType::U32, from, (output.cast(), 2048));
                    // SAFETY: two halves of memory that lives past the call.
                    unsafe { executor.run(&call) }.unwrap();
                }
                let gone = Arc::downgrade(&memory);
                drop(memory);
                // Both ranks make the same launches, however many.
                for communicator in both.iter().chain(&both) {
                    run(communicator, plan).unwrap();
                }
                let began = Instant::now();
                while gone.strong_count() > 0 {
                    assert!(began.elapsed() < Duration::from_secs(10), "the memory is kept");
                    std::thread::yield_now();
                }
            });
        }
    });
}

/// All ranks of a plan with scratch must have completed a launch before one of another size begins, since its scratch lies
/// elsewhere: here that of rank 1, which rank 0 writes. They hear of it over links that the plan uses, and over others, which
/// nobody drives meanwhile.
#[test]
fn launches_of_other_sizes_begin_once_the_ones_before_are_complete() {
    let exchange = |name: &str, pairs: &[(usize, usize)]| {
        let program = ProgramBuilder::new(name, Collective::SendRecv, 3);
        let scratch = [0, 1, 2].map(|rank| program.scratch(rank, 1));
        let blocks = [0, 1, 2].map(|rank| program.block(rank));
        for &(one, other) in pairs {
            let port = program.port(one, other);
            match (one, other) {
                (0, 1) => {
                    let (from, to) = (program.input(0).all(), scratch[1].all());
                    blocks[0].put_with_signal_and_flush(&port, from, to);
                }
                _ => blocks[one].signal(&[port]),
            }
            blocks[other].wait(&[port]);
        }
        for (rank, (block, scratch)) in blocks.iter().zip(&scratch).enumerate() {
            if rank != 1 {
                block.copy(program.input(rank).all(), scratch.all());
            }
            block.copy(scratch.all(), program.output(rank).all());
        }
        program.build().unwrap()
    };
    let all = exchange("all", &[(0, 1), (0, 2), (1, 2)]);
    let one = exchange("one", &[(0, 1)]);
    std::thread::scope(|scope| {
        for rank in ranks(&["a", "b", "c"]) {
            let (all, one) = (&all, &one);
            scope.spawn(move || {
                run(&rank, all).unwrap();
                let executor = Executor::new(&rank);
                let one = executor.load(one).unwrap();
                for launch in 0..300u32 {
                    let numbers = if launch % 2 == 0 { 8 } else { 16 };
                    let own = 4 * launch + rank.rank();
                    let expected = if rank.rank() == 1 { own - 1 } else { own };
                    let (input, mut output) = ([own; 16], [u32::MAX; 16]);
                    let bytes = 4 * numbers as u64;
                    let from = (input.as_ptr().cast(), bytes);
                    let to = (output.as_mut_ptr().cast(), bytes);
                    let call = Call::new(&one, DataType::U32, from, to);
                    // SAFETY: both arrays hold 64 bytes and live past the call.
                    unsafe { executor.run(&call) }.unwrap();
                    assert!(
                        output[..numbers].iter().all(|number| *number == expected),
                        "rank {} launch {launch}: {output:?}",
                        rank.rank()
                    );
                    assert!(output[numbers..].iter().all(|number| *number == u32::MAX));
                }
                rank.barrier().unwrap();
            });
        }
    });
}
