//! Cases on completion, on full queues, and on what is posted early.

use super::Subject;
use super::support::{Pair, differs, fill, plain, queued, words};
use crate::harness::Random;
use antiphon_port::{Posted, Write};
use std::sync::atomic::Ordering;

/// When a post is complete its bytes are there, and its source may change.
pub fn completed_posts_have_landed(subject: &Subject) {
    let ends = subject.ends(2);
    let pair = ends.pair();
    let room = 1 << 20;
    let (source, target) = (ends.region(0, room), ends.region(1, room));
    target.tell(&pair.a);
    let mut random = Random::new(0xc0ffee, 0);
    for round in 1..=200u64 {
        let most = if random.below(4) == 0 { room } else { 2000 };
        let bytes = random.below(most);
        let (from, to) = (random.below(room - bytes + 1), random.below(room - bytes + 1));
        fill(&source.memory, from, bytes, round);
        pair.write(&Write { from, to, ..plain(&source.memory, target.number(), 0, bytes) });
        let posted = pair.a.posted();
        assert_eq!(posted, round);
        pair.until("completion", || {
            let completed = pair.a.completed().expect("completed");
            assert!(completed <= posted, "{completed} of {posted} posts are complete");
            completed == posted
        });
        fill(&source.memory, from, bytes, round + 1);
        assert_eq!(differs(&target.memory, to, bytes, round), None, "{bytes} bytes, round {round}");
    }
    assert_eq!(pair.b.posted(), 0);
    assert_eq!(pair.b.completed().expect("completed"), 0);
}

/// When a post has released its source, what is written there does not travel any more.
pub fn sources_that_are_released_may_change(subject: &Subject) {
    let ends = subject.ends(2);
    let pair = ends.pair();
    let room = subject.largest.min(16 << 20);
    let (source, target) = (ends.region(0, room), ends.region(1, room));
    target.tell(&pair.a);
    let mut random = Random::new(0xbeef, 0);
    for round in 1..=12u64 {
        let bytes = if round % 3 == 0 { room } else { random.below(100_000).min(room) };
        fill(&source.memory, 0, bytes, round);
        pair.write(&plain(&source.memory, target.number(), 0, bytes));
        let posted = pair.a.posted();
        pair.until("the source to be released", || {
            let landed = pair.a.completed().expect("completed");
            let released = pair.a.released().expect("released");
            assert!((landed..=posted).contains(&released), "{landed}, {released}, {posted}");
            released == posted
        });
        fill(&source.memory, 0, bytes, round + 1);
        pair.flush();
        assert_eq!(differs(&target.memory, 0, bytes, round), None, "{bytes} bytes, round {round}");
    }
}

/// Posts without any progress fill the queue or do not; in neither case is one lost or done twice.
pub fn a_full_queue_says_so_and_loses_nothing(subject: &Subject) {
    const POSTS: u64 = 20_000;
    let ends = subject.ends(2);
    let pair = ends.pair();
    let (source, target) = (ends.region(0, POSTS * 8), ends.region(1, POSTS * 8));
    let counter = ends.region(1, 64);
    target.tell(&pair.a);
    counter.tell(&pair.a);
    for (at, word) in words(&source.memory, POSTS as usize).iter().enumerate() {
        word.store(at as u64 + 1, Ordering::Relaxed);
    }
    let (mut accepted, mut refused) = (0, 0);
    for at in 0..POSTS {
        let write = Write { from: at * 8, ..plain(&source.memory, target.number(), at * 8, 8) };
        if pair.a.write(&write).expect("a right write") == Posted::Full {
            refused += 1;
            assert_eq!(pair.a.posted(), accepted, "what was refused does not count");
            pair.until("room", || queued(pair.a.write(&write)));
        }
        accepted += 1;
        assert_eq!(pair.a.posted(), accepted);
    }
    println!("{}: {refused} of {POSTS} posts found the queue full", subject.test);
    pair.signal(counter.number(), 0, 1);
    let arrived = &words(&counter.memory, 1)[0];
    pair.until("the signal", || arrived.load(Ordering::Acquire) == 1);
    for (at, word) in words(&target.memory, POSTS as usize).iter().enumerate() {
        assert_eq!(word.load(Ordering::Relaxed), at as u64 + 1, "post {at}");
    }
    pair.flush();
}

/// A rank may post before its peer's half of the link knows it.
pub fn what_is_posted_before_the_peer_connects_arrives(subject: &Subject) {
    for first in [0, 1] {
        let ends = subject.ends(2);
        let (source, target) = (ends.region(first, 4096), ends.region(1 - first, 4096));
        let early = ends.wires[first as usize].open(1 - first).expect("an opening");
        let late = ends.wires[1 - first as usize].open(first).expect("an opening");
        let (at_early, at_late) = (early.address(), late.address());
        let a = early.connect(&at_late).expect("the peer's address");
        target.tell(&a);
        fill(&source.memory, 0, 4088, 1);
        assert!(queued(a.write(&plain(&source.memory, target.number(), 0, 4088))));
        assert!(queued(a.signal(target.number(), 4088, 5)));
        for _ in 0..50 {
            a.progress().expect("a link whose peer is not there yet");
        }
        let b = late.connect(&at_early).expect("the peer's address");
        let pair = Pair { a, b, patience: ends.patience };
        let arrived = &words(&target.memory, 512)[511];
        pair.until("the signal", || arrived.load(Ordering::Acquire) == 5);
        assert_eq!(differs(&target.memory, 0, 4088, 1), None, "rank {first} was first");
    }
}
