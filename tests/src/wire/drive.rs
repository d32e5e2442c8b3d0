//! Cases on who makes progress: a thread that sleeps on the descriptor, and several at once.

use super::Subject;
use super::support::{Driver, Pair, differs, fill, plain, queued, until, words};
use antiphon_port::{Link, Write};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// So long a lone write may take.
const LONE: Duration = Duration::from_millis(1500);

/// Sleeps on the link's descriptor and makes progress whenever it tells, until `stop`.
fn sleep_and_drive(link: &Arc<dyn Link>, stop: &AtomicBool, longest: &AtomicU64) {
    let Some(descriptor) = link.descriptor() else { return };
    while !stop.load(Ordering::Acquire) {
        if !link.arm().expect("arm") {
            link.progress().expect("progress");
            continue;
        }
        let start = Instant::now();
        // Long enough that a wake-up which never comes is seen, short enough to end.
        let timeout = Timespec { tv_sec: 5, tv_nsec: 0 };
        let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
        let ready = poll(&mut descriptors, Some(&timeout)).expect("poll");
        if ready == 0 && !stop.load(Ordering::Acquire) {
            longest.fetch_max(start.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
        link.progress().expect("progress");
    }
}

/// A link comes up, sends what other threads post, receives and completes, all by one thread per side that sleeps on
/// the descriptor.
pub fn the_descriptor_tells_of_everything(subject: &Subject) {
    let ends = subject.ends(2);
    let (a, b) = ends.connect(0, 1);
    if a.descriptor().is_none() {
        subject.skip("the wire needs no progress");
        return;
    }
    let large = (3u64 << 20).min(subject.largest);
    let (source, target) = (ends.region(0, large), ends.region(1, large));
    let (at_a, at_b) = (ends.region(0, 64), ends.region(1, 64));
    target.tell(&a);
    at_b.tell(&a);
    at_a.tell(&b);
    let (stop, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    let patience = ends.patience;
    let wait = |what: &str, condition: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !condition() {
            if start.elapsed() > patience {
                stop.store(true, Ordering::Release);
                panic!("waited {patience:?} in vain: {what}");
            }
            thread::sleep(Duration::from_micros(20));
        }
    };
    thread::scope(|scope| {
        for link in [&a, &b] {
            let (stop, longest) = (&stop, &longest);
            scope.spawn(move || sleep_and_drive(link, stop, longest));
        }
        for round in 1..=60u64 {
            let bytes = if round.is_multiple_of(10) { large } else { round };
            fill(&source.memory, 0, bytes, round);
            let write = plain(&source.memory, target.number(), 0, bytes);
            wait("room", &|| queued(a.write(&write)));
            wait("room", &|| queued(a.signal(at_b.number(), 0, round)));
            let data = &words(&at_b.memory, 1)[0];
            wait("a signal", &|| data.load(Ordering::Acquire) == round);
            assert_eq!(differs(&target.memory, 0, bytes, round), None, "round {round}");
            wait("room", &|| queued(b.signal(at_a.number(), 8, round)));
            let answer = &words(&at_a.memory, 2)[1];
            wait("an answer", &|| answer.load(Ordering::Acquire) == round);
            let posted = a.posted();
            wait("completion", &|| a.completed().expect("completed") == posted);
        }
        stop.store(true, Ordering::Release);
        // Whoever sleeps now is woken by a last signal.
        assert!(queued(a.signal(at_b.number(), 8, 1)) && queued(b.signal(at_a.number(), 0, 1)));
    });
    let longest = longest.into_inner();
    assert_eq!(longest, 0, "a sleeper was not woken for {longest} ms while there was work");
}

/// A small write that another thread posts, with nothing behind it, wakes who sleeps on the armed link and lands at once.
pub fn a_lone_write_wakes_who_sleeps(subject: &Subject) {
    let ends = subject.ends(2);
    let (a, b) = ends.connect(0, 1);
    let Some(descriptor) = a.descriptor() else {
        subject.skip("the wire needs no progress");
        return;
    };
    let (source, target) = (ends.region(0, 64), ends.region(1, 64));
    target.tell(&a);
    let pair = Pair { a: a.clone(), b: b.clone(), patience: ends.patience };
    // The link stands, and nothing is under way.
    pair.signal(target.number(), 0, u64::MAX);
    pair.flush();
    let landed = &words(&target.memory, 1)[0];
    for round in 1..=8u64 {
        words(&source.memory, 1)[0].store(round, Ordering::Relaxed);
        let drive = || {
            pair.a.progress().expect("progress");
            pair.b.progress().expect("progress");
        };
        let start = Instant::now();
        while !a.arm().expect("arm") {
            drive();
            assert!(start.elapsed() < ends.patience, "the link has always something to do");
        }
        let write = plain(&source.memory, target.number(), 0, 8);
        let other = thread::scope(|scope| scope.spawn(|| queued(a.write(&write))).join());
        assert!(other.expect("the post does not panic"), "the queue of an idle link has room");
        let posted = Instant::now();
        while landed.load(Ordering::Acquire) != round {
            b.progress().expect("progress of the receiver");
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&none)).expect("poll") > 0
            {
                a.progress().expect("progress of a woken sender");
            }
            // Far below what periodic looks at the link would take, and far above what any machine needs.
            assert!(
                posted.elapsed() < LONE,
                "round {round}: the write leaves after {LONE:?} or more"
            );
        }
        pair.flush();
    }
}

/// A sleeper is woken for what others leave behind, also after they did its work for a while.
pub fn sleepers_take_over_from_others(subject: &Subject) {
    let ends = subject.ends(2);
    let (a, b) = ends.connect(0, 1);
    if a.descriptor().is_none() {
        subject.skip("the wire needs no progress");
        return;
    }
    let counter = ends.region(1, 64);
    counter.tell(&a);
    let (stop, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    let arrived = &words(&counter.memory, 1)[0];
    let links = [&b];
    thread::scope(|scope| {
        scope.spawn(|| sleep_and_drive(&a, &stop, &longest));
        for round in 1..=40u64 {
            // Time to fall asleep; without it the case proves less, but does not fail.
            thread::sleep(Duration::from_millis(2));
            for value in [round * 2, round * 2 + 1] {
                until(&links, ends.patience, "room", || {
                    queued(a.signal(counter.number(), 0, value))
                });
                if value.is_multiple_of(2) {
                    a.progress().expect("progress");
                    continue;
                }
                until(&links, ends.patience, "a signal that a sleeper sends", || {
                    arrived.load(Ordering::Acquire) == value
                });
            }
        }
        stop.store(true, Ordering::Release);
        assert!(queued(a.signal(counter.number(), 0, 0)));
    });
    let longest = longest.into_inner();
    assert_eq!(longest, 0, "the sleeper was not woken for {longest} ms while there was work");
}

/// Any number of threads may make progress on one link.
pub fn several_threads_make_progress(subject: &Subject) {
    let ends = subject.ends(2);
    let pair = ends.pair();
    let room = 300u64 << 10;
    let (source, target) = (ends.region(0, room), ends.region(1, room));
    let counter = ends.region(1, 64);
    target.tell(&pair.a);
    counter.tell(&pair.a);
    let _drivers = [[&pair.a, &pair.b], [&pair.b, &pair.a], [&pair.a, &pair.b]]
        .map(|links| Driver::new(&links));
    let arrived = &words(&counter.memory, 1)[0];
    for round in 1..=200u64 {
        let bytes = if round.is_multiple_of(20) { room } else { round * 11 };
        let from = room - bytes;
        fill(&source.memory, from, bytes, round);
        pair.write(&Write { from, ..plain(&source.memory, target.number(), from, bytes) });
        pair.signal(counter.number(), 0, round);
        pair.until("a signal", || arrived.load(Ordering::Acquire) == round);
        assert_eq!(differs(&target.memory, from, bytes, round), None, "round {round}");
    }
    pair.flush();
}
