//! Cases on bytes and signals: everything arrives, where it should, and in order.

use super::Subject;
use super::support::{Driver, byte, differs, fill, plain, queued, until, words};
use crate::harness::Random;
use antiphon_port::{Link, Unit, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

/// Writes of nothing, of a byte, and of tens of megabytes arrive at odd offsets, and touch nothing beside.
pub fn writes_of_all_sizes_arrive(subject: &Subject) {
    let ends = subject.ends(2);
    let pair = ends.pair();
    let sizes = [0, 1, 7, 8, 9, 63, 64, 255, 256, 257, 511, 512, 513, 1025, 4095, 4096, 16385];
    let large = [65535, 65536, 65537, 262_144, 1 << 20, (1 << 20) + 13, (8 << 20) + 5, 64 << 20];
    let sizes: Vec<u64> =
        sizes.into_iter().chain(large).filter(|&b| b <= subject.largest).collect();
    let room = subject.largest + 64;
    let (source, target) = (ends.region(0, room), ends.region(1, room));
    let counter = ends.region(1, 64);
    target.tell(&pair.a);
    counter.tell(&pair.a);
    for (round, &bytes) in sizes.iter().enumerate() {
        let (from, to) = (round as u64 * 3 % 17, 1 + round as u64 * 5 % 19);
        fill(&source.memory, from, bytes, round as u64);
        // What lies on both sides of the write.
        let outside = [to - 1, to + bytes];
        let before = outside.map(|at| byte(&target.memory, at));
        let region = target.number();
        pair.write(&Write { from, to, ..plain(&source.memory, region, 0, bytes) });
        pair.signal(counter.number(), 8, round as u64 + 1);
        let arrived = &words(&counter.memory, 2)[1];
        pair.until("a signal", || arrived.load(Ordering::Acquire) == round as u64 + 1);
        let wrong = differs(&target.memory, to, bytes, round as u64);
        assert_eq!(wrong, None, "{bytes} bytes from {from} to {to}");
        assert_eq!(outside.map(|at| byte(&target.memory, at)), before, "beside {bytes} bytes");
        pair.flush();
    }
}

/// Both ends write and signal at once, as fast as they can: what a signal promises is there when it is seen.
pub fn signals_come_after_their_data_both_ways(subject: &Subject) {
    const ROUNDS: u64 = 300;
    const SLOTS: u64 = 4;
    const SLOT: u64 = 200 << 10;
    let ends = subject.ends(2);
    let pair = ends.pair();
    let boxes = [ends.region(0, SLOTS * SLOT), ends.region(1, SLOTS * SLOT)];
    let counters = [ends.region(0, 64), ends.region(1, 64)];
    let sources = [ends.region(0, SLOTS * SLOT), ends.region(1, SLOTS * SLOT)];
    for region in [&boxes, &counters] {
        region[1].tell(&pair.a);
        region[0].tell(&pair.b);
    }
    // The same numbers on both sides: what a round's writes are.
    let writes = |rank: usize, round: u64| {
        let mut random = Random::new(0x5eed, round << 8 | rank as u64);
        let mut at = round % SLOTS * SLOT;
        let end = at + SLOT;
        let mut list = Vec::new();
        for _ in 0..1 + random.below(12) {
            let most = if random.below(8) == 0 { 100 << 10 } else { 700 };
            let bytes = random.below(most).min(end - at);
            list.push((at, bytes));
            at += bytes;
        }
        list
    };
    let patience = ends.patience;
    let play = |me: usize, link: &Arc<dyn Link>| {
        let (own, other) = (&counters[me], counters[1 - me].number());
        let [data, taken] = [0, 1].map(|at| &words(&own.memory, 2)[at]);
        let wait = |what: &str, condition: &dyn Fn() -> bool| {
            until(&[link], patience, &format!("rank {me}: {what}"), condition);
        };
        for round in 1..=ROUNDS {
            wait("a free slot", &|| taken.load(Ordering::Acquire) + SLOTS >= round);
            for (at, bytes) in writes(me, round) {
                fill(&sources[me].memory, at, bytes, round + at);
                let target = boxes[1 - me].number();
                let write = Write { from: at, ..plain(&sources[me].memory, target, at, bytes) };
                wait("room", &|| queued(link.write(&write)));
            }
            wait("room", &|| queued(link.signal(other, 0, round)));
            wait("data", &|| data.load(Ordering::Acquire) >= round);
            for (at, bytes) in writes(1 - me, round) {
                let wrong = differs(&boxes[me].memory, at, bytes, round + at);
                assert_eq!(wrong, None, "rank {me}, round {round}: {bytes} bytes at {at}");
            }
            wait("room", &|| queued(link.signal(other, 8, round)));
        }
        wait("the last", &|| taken.load(Ordering::Acquire) == ROUNDS);
        let all = link.posted();
        wait("completion", &|| link.completed().expect("completed") == all);
    };
    // Whoever is done first goes on, as the other may need its answers.
    thread::scope(|scope| {
        let threads = [(0, &pair.a), (1, &pair.b)]
            .map(|(me, link)| scope.spawn(move || (play(me, link), me)));
        let _both = Driver::new(&[&pair.a, &pair.b]);
        for thread in threads {
            thread.join().expect("a rank");
        }
    });
}

/// Of two counters that are set in turn, the second is never ahead of the first.
pub fn signals_land_in_order(subject: &Subject) {
    const ROUNDS: u64 = 5000;
    let ends = subject.ends(2);
    let pair = ends.pair();
    let counters = ends.region(1, 64);
    counters.tell(&pair.a);
    let [first, second] = [0, 7].map(|at| &words(&counters.memory, 8)[at]);
    let patience = ends.patience;
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (start, mut last) = (Instant::now(), 0);
            while last < ROUNDS {
                let late = second.load(Ordering::Acquire);
                let early = first.load(Ordering::Acquire);
                assert!(late >= last && early >= late, "{last}, then {late} with {early} before");
                assert!(start.elapsed() < patience, "saw {late} of {ROUNDS} signals");
                last = late;
            }
        });
        for round in 1..=ROUNDS {
            pair.signal(counters.number(), 0, round);
            pair.signal(counters.number(), 56, round);
        }
        pair.until("the last signal", || second.load(Ordering::Acquire) == ROUNDS);
        reader.join().expect("the reader");
    });
}

/// Threads share a link; every one's signals come after its own writes, and nothing is lost or mixed.
pub fn many_threads_post_at_once(subject: &Subject) {
    const THREADS: u64 = 6;
    const ROUNDS: u64 = 200;
    let ends = subject.ends(2);
    let pair = ends.pair();
    let size = |round: u64| if round.is_multiple_of(50) { 70 << 10 } else { 1 + round * 7 % 900 };
    let slot = 70 << 10;
    let bytes = THREADS * slot * 8;
    let (source, target) = (ends.region(0, bytes), ends.region(1, bytes));
    let counters = ends.region(1, THREADS * 8);
    target.tell(&pair.a);
    counters.tell(&pair.a);
    let patience = ends.patience;
    let _driver = Driver::new(&[&pair.a, &pair.b]);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (source, target, counters, pair) = (&source, &target, &counters, &pair);
            scope.spawn(move || {
                let counter = &words(&counters.memory, THREADS as usize)[thread as usize];
                for round in 1..=ROUNDS {
                    let (at, bytes) = ((thread * 8 + round % 8) * slot, size(round));
                    let seed = thread << 32 | round;
                    fill(&source.memory, at, bytes, seed);
                    let write =
                        Write { from: at, ..plain(&source.memory, target.number(), at, bytes) };
                    let links = [&pair.a];
                    until(&links, patience, "room", || queued(pair.a.write(&write)));
                    until(&links, patience, "room", || {
                        queued(pair.a.signal(counters.number(), thread * 8, round))
                    });
                    until(&links, patience, "a signal", || {
                        counter.load(Ordering::Acquire) == round
                    });
                    let wrong = differs(&target.memory, at, bytes, seed);
                    assert_eq!(wrong, None, "thread {thread}, round {round}, {bytes} bytes");
                }
            });
        }
    });
    assert_eq!(pair.a.posted(), THREADS * ROUNDS * 2);
    pair.flush();
}

/// Posts go to the region they name.
pub fn several_regions_are_told_apart(subject: &Subject) {
    const REGIONS: u64 = 40;
    let ends = subject.ends(2);
    let pair = ends.pair();
    let source = ends.region(0, REGIONS * 8);
    let regions: Vec<_> = (0..REGIONS).map(|_| ends.region(1, 4096)).collect();
    for (at, region) in regions.iter().enumerate() {
        region.tell(&pair.a);
        words(&source.memory, REGIONS as usize)[at].store(at as u64 + 100, Ordering::Relaxed);
    }
    for (at, region) in regions.iter().enumerate() {
        let from = at as u64 * 8;
        pair.write(&Write { from, ..plain(&source.memory, region.number(), 4088, 8) });
        pair.signal(region.number(), from, at as u64 + 1);
    }
    pair.flush();
    for (at, region) in regions.iter().enumerate() {
        let found: Vec<_> = words(&region.memory, 512)
            .iter()
            .map(|word| word.load(Ordering::Acquire))
            .enumerate()
            .filter(|(_, value)| *value != 0)
            .collect();
        assert_eq!(found, [(at, at as u64 + 1), (511, at as u64 + 100)], "region {at}");
    }
}

/// Each of several ranks writes to each other one.
pub fn all_ranks_reach_each_other(subject: &Subject) {
    const RANKS: u32 = 4;
    let ends = subject.ends(RANKS);
    let row = 16u64 << 10;
    let memory: Vec<_> = (0..RANKS).map(|rank| ends.region(rank, row * u64::from(RANKS))).collect();
    let counters: Vec<_> = (0..RANKS).map(|rank| ends.region(rank, 64)).collect();
    let mut links = Vec::new();
    for a in 0..RANKS {
        for b in a + 1..RANKS {
            let (from_a, from_b) = ends.connect(a, b);
            links.extend([(a, b, from_a), (b, a, from_b)]);
        }
    }
    for (from, to, link) in &links {
        assert_eq!(link.peer(), *to);
        memory[*to as usize].tell(link);
        counters[*to as usize].tell(link);
        fill(&memory[*from as usize].memory, u64::from(*from) * row, row, u64::from(*from));
    }
    let all: Vec<_> = links.iter().map(|(_, _, link)| link).collect();
    for (from, to, link) in &links {
        let at = u64::from(*from) * row;
        let source = &memory[*from as usize].memory;
        let write = Write { from: at, ..plain(source, memory[*to as usize].number(), at, row) };
        until(&all, ends.patience, "room", || queued(link.write(&write)));
        until(&all, ends.patience, "room", || {
            queued(link.signal(counters[*to as usize].number(), u64::from(*from) * 8, 1))
        });
    }
    for rank in 0..RANKS {
        for from in (0..RANKS).filter(|from| *from != rank) {
            let counter = &words(&counters[rank as usize].memory, 8)[from as usize];
            until(&all, ends.patience, "a signal", || counter.load(Ordering::Acquire) == 1);
            let at = u64::from(from) * row;
            let wrong = differs(&memory[rank as usize].memory, at, row, u64::from(from));
            assert_eq!(wrong, None, "from {from} to {rank}");
        }
    }
}

/// Links of one pair of ranks are apart from each other.
pub fn one_pair_may_have_many_links(subject: &Subject) {
    const LINKS: u64 = 12;
    let ends = subject.ends(2);
    let (source, target) = (ends.region(0, 8 * LINKS), ends.region(1, 8 * LINKS));
    let pairs: Vec<_> = (0..LINKS).map(|_| ends.pair()).collect();
    for (at, pair) in pairs.iter().enumerate() {
        target.tell(&pair.a);
        words(&source.memory, LINKS as usize)[at].store(at as u64 + 7, Ordering::Relaxed);
    }
    for (at, pair) in pairs.iter().enumerate() {
        let (from, region) = (at as u64 * 8, target.number());
        let unit = Unit::Packets;
        pair.write(&Write { from, unit, ..plain(&source.memory, region, from, 8) });
    }
    for (at, pair) in pairs.iter().enumerate() {
        pair.flush();
        let value = words(&target.memory, LINKS as usize)[at].load(Ordering::Acquire);
        assert_eq!((pair.a.posted(), value), (1, at as u64 + 7));
    }
}
