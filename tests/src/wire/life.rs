//! Cases on the life of ends, links and memory.

use super::Subject;
use super::support::{Pair, byte, differs, fill, pattern, plain, queued, words};
use antiphon_port::{Link, WireError, Write};
use antiphon_transport::Reach;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// When a peer goes, every method of its link says so, with the peer's number and a reason; other links go on.
pub fn the_loss_of_a_peer_is_told(subject: &Subject) {
    let mut ends = subject.ends(3);
    let Some(within) = ends.loss else {
        subject.skip("the wire has nothing to lose");
        return;
    };
    let (to_one, from_one) = ends.connect(0, 1);
    let (to_two, from_two) = ends.connect(0, 2);
    let lost = Pair { a: to_one, b: from_one, patience: ends.patience };
    let kept = Pair { a: to_two, b: from_two, patience: ends.patience };
    let source = ends.region(0, 64);
    let (at_one, at_two) = (ends.region(1, 64), ends.region(2, 64));
    at_one.tell(&lost.a);
    at_two.tell(&kept.a);
    lost.signal(at_one.number(), 0, 1);
    kept.signal(at_two.number(), 0, 1);
    lost.flush();
    kept.flush();
    let Pair { a: link, b: other, .. } = lost;
    drop(other);
    ends.wires.remove(1);
    let number = at_one.number();
    drop(at_one);
    let start = Instant::now();
    let error = loop {
        match link.progress() {
            Err(error) => break error,
            Ok(_) => assert!(start.elapsed() < within, "the loss was not told within {within:?}"),
        }
        thread::yield_now();
    };
    all_say_lost(&link, error, &plain(&source.memory, number, 0, 8));
    kept.signal(at_two.number(), 8, 2);
    kept.flush();
    assert_eq!(words(&at_two.memory, 2)[1].load(Ordering::Acquire), 2);
}

/// A peer whose half never comes up, where nothing else is done either, is lost in the end, whichever of the two it is, and
/// what was posted for it is given up.
pub fn a_peer_that_never_answers_is_lost(subject: &Subject) {
    if subject.ends(2).loss.is_none() {
        subject.skip("the wire has nothing to lose");
        return;
    }
    thread::scope(|scope| {
        for (here, there) in [(0, 1), (1, 0)] {
            scope.spawn(move || {
                let ends = subject.ends(2);
                let within = ends.loss.unwrap_or(ends.patience);
                let opening = ends.wires[here as usize].open(there).expect("an opening");
                // It lives, and is not connected.
                let silent = ends.wires[there as usize].open(here).expect("an opening");
                let link = opening.connect(&silent.address()).expect("the address is taken");
                let (source, counter) = (ends.region(here, 64), ends.region(there, 64));
                counter.tell(&link);
                assert!(queued(link.signal(counter.number(), 0, 1)));
                let start = Instant::now();
                let error = loop {
                    match link.progress() {
                        Err(error) => break error,
                        Ok(_) => assert!(start.elapsed() < within, "no loss within {within:?}"),
                    }
                    thread::yield_now();
                };
                all_say_lost(&link, error, &plain(&source.memory, counter.number(), 0, 8));
                assert_eq!(words(&counter.memory, 1)[0].load(Ordering::Acquire), 0);
            });
        }
    });
}

/// Every method of a lost link says so, with the peer's number and a reason; progress said `error`.
fn all_say_lost(link: &Arc<dyn Link>, error: WireError, write: &Write<'_>) {
    let answers = [
        ("progress", Err(error)),
        ("write", link.write(write).map(drop)),
        ("signal", link.signal(write.region, 0, 2).map(drop)),
        ("completed", link.completed().map(drop)),
        ("arm", link.arm().map(drop)),
        ("progress again", link.progress().map(drop)),
    ];
    for (what, answer) in answers {
        match answer {
            Err(WireError::Lost { peer, reason, .. }) if peer == link.peer() => {
                assert!(!reason.is_empty(), "{what}");
            }
            other => panic!("{what} after the loss: {other:?}"),
        }
    }
}

/// Whichever side stops a link, with writes under way: nothing lands any more where the stopping side could be written to,
/// nothing is read where it could be read from, both sides are told, and a thread that sleeps on it is woken.
pub fn a_link_that_is_stopped_leaves_memory_alone(subject: &Subject) {
    for receiver_stops in [true, false] {
        let ends = subject.ends(2);
        let (a, b) = ends.connect(0, 1);
        let bytes = (4u64 << 20).min(subject.largest);
        let (source, target) = (ends.region(0, bytes), ends.region(1, bytes));
        target.tell(&a);
        let write = plain(&source.memory, target.number(), 0, bytes);
        fill(&source.memory, 0, bytes, 1);
        if ends.loss.is_none() {
            // Whoever posts copies, and nobody else does anything.
            assert!(queued(a.write(&write)));
            a.stop();
            all_say_lost(&a, a.progress().expect_err("progress of a stopped link"), &write);
            continue;
        }
        let within = ends.loss.unwrap_or(ends.patience);
        let (stops, other) = if receiver_stops { (&b, &a) } else { (&a, &b) };
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                while a.write(&write).is_ok() && a.progress().is_ok() {}
                while start.elapsed() < ends.patience && a.progress().is_ok() {
                    thread::yield_now();
                }
            });
            scope.spawn(|| while start.elapsed() < ends.patience && b.progress().is_ok() {});
            while differs(&target.memory, 0, 64, 1).is_some() {
                assert!(start.elapsed() < ends.patience, "nothing arrives");
                thread::yield_now();
            }
            stops.stop();
            // Any byte of seed 1 in the target, or of seed 2 that was sent, came too late.
            let left = if receiver_stops { &target } else { &source };
            fill(&left.memory, 0, bytes, 2);
            let stopped = Instant::now();
            while other.progress().is_ok() {
                assert!(stopped.elapsed() < within, "the peer was not told within {within:?}");
                thread::yield_now();
            }
        });
        for (link, rank) in [(stops, other.peer()), (other, stops.peer())] {
            let own = ends.region(rank, 64);
            let error = link.progress().expect_err("progress of a lost link");
            all_say_lost(link, error, &plain(&own.memory, 0, 0, 8));
        }
        // Nothing shows that nothing will come; this is long enough for what was under way.
        thread::sleep(Duration::from_millis(50));
        if receiver_stops {
            assert_eq!(differs(&target.memory, 0, bytes, 2), None, "a write landed after the end");
        } else {
            // Where nothing has landed there are zeros.
            let early = |at: u64| [0, pattern(at, 1)].contains(&byte(&target.memory, at));
            let late = (0..bytes).find(|&at| !early(at));
            assert_eq!(late, None, "bytes that were read after the end were sent");
        }
        // A sleeper would find its descriptor readable.
        if let Some(descriptor) = stops.descriptor() {
            let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
            let timeout = Timespec { tv_sec: 5, tv_nsec: 0 };
            assert_eq!(poll(&mut descriptors, Some(&timeout)), Ok(1), "nobody would be woken");
        }
    }
}

/// Neither side holds memory when registrations are dropped and posts complete.
pub fn memory_is_given_back(subject: &Subject) {
    let ends = subject.ends(2);
    let pair = ends.pair();
    for bytes in [8, 4096, 2 << 20] {
        let (source, target) = (ends.region(0, bytes), ends.region(1, bytes));
        target.tell(&pair.a);
        pair.write(&plain(&source.memory, target.number(), 0, bytes));
        pair.flush();
        pair.a.retire(target.number());
        let held = [Arc::downgrade(&source.memory), Arc::downgrade(&target.memory)];
        ends.withdraw(0, &source);
        ends.withdraw(1, &target);
        drop((source, target));
        pair.until("memory to be given back", || held.iter().all(|weak| weak.strong_count() == 0));
    }
}

/// Ends, openings and links may be dropped at any time and opened again; they say what they are.
pub fn ends_come_and_go(subject: &Subject) {
    for round in 0..5 {
        let ends = subject.ends(2);
        for (rank, wire) in ends.wires.iter().enumerate() {
            assert!(!wire.name().is_empty() && !wire.describe().is_empty());
            let peer = ends.peer(1 - rank as u32);
            assert!(matches!(wire.reach(&peer), Reach::At { .. }), "{:?}", wire.reach(&peer));
        }
        drop(ends.wires[0].open(1).expect("an opening"));
        let pair = ends.pair();
        assert!(!pair.a.describe().is_empty());
        let (at_a, at_b) = (ends.region(0, 64), ends.region(1, 64));
        at_b.tell(&pair.a);
        if round % 2 == 0 {
            // Dropped with something under way.
            pair.signal(at_b.number(), 0, 1);
            continue;
        }
        pair.signal(at_b.number(), 0, 1);
        pair.flush();
        // A link goes on when its wire's owner is gone.
        let mut ends = ends;
        ends.wires.clear();
        pair.signal(at_b.number(), 8, 1);
        pair.flush();
        drop(at_a);
    }
}
