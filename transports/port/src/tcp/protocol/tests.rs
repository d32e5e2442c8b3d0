//! Random schedules: both halves of the protocol, with pipes between them that are slow, short and cut.

use super::frame::Frame;
use super::{Fault, MOST_PIECE, Part, Post, Receiver, Regions, Sender};
use crate::tcp::regions::{RegionTable, Registered};
use antiphon_hal::{Backend, Memory, driver};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Small, seeded pseudo-random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

fn memory(bytes: u64) -> Arc<dyn Memory> {
    driver(Backend::Host).unwrap().open(0).unwrap().allocate(bytes).unwrap()
}

fn bytes(memory: &Arc<dyn Memory>) -> &[u8] {
    // SAFETY: mapped while the memory is borrowed; a test has one thread, and nothing is stored while it looks.
    unsafe { std::slice::from_raw_parts(memory.address(), memory.len() as usize) }
}

fn word(memory: &Arc<dyn Memory>, at: u64) -> u64 {
    // SAFETY: an aligned word inside the memory.
    unsafe { &*memory.address().wrapping_add(at as usize).cast::<AtomicU64>() }
        .load(Ordering::Acquire)
}

/// One direction of a link, its pipes, and what must have arrived when.
struct Stage {
    random: Random,
    sender: Sender,
    receiver: Receiver,
    pipes: Vec<VecDeque<u8>>,
    posts: VecDeque<Post>,
    table: Arc<RegionTable>,
    source: Arc<dyn Memory>,
    target: Arc<dyn Memory>,
    _keep: Registered,
    /// Every write: the number of its post, its range in source and target.
    writes: Vec<(u64, u64, u64, u64)>,
    /// Every signal: the number of its post; its value is one more than its place here.
    signals: Vec<u64>,
    /// Writes that were found to have landed, from the first on.
    checked: usize,
}

const COUNTER: u64 = 0;
const DATA: u64 = 64;

impl Stage {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let stripes = 1 + random.below(4) as usize;
        let (source, target) = (memory(8 << 20), memory(8 << 20));
        for at in 0..source.len() {
            let byte = ((at * 0x9e37 + seed) >> 5) as u8 | 1;
            // SAFETY: inside of fresh memory that nobody else uses yet.
            unsafe { source.address().add(at as usize).write(byte) };
        }
        let table = Arc::new(RegionTable::default());
        let keep = table.add(&target);
        let mut stage = Stage {
            random,
            sender: Sender::new(stripes),
            receiver: Receiver::new(stripes),
            pipes: vec![VecDeque::new(); stripes],
            posts: VecDeque::new(),
            table,
            source,
            target,
            _keep: keep,
            writes: Vec::new(),
            signals: Vec::new(),
            checked: 0,
        };
        stage.plan();
        stage
    }

    /// Writes to places of their own, with signals among them.
    fn plan(&mut self) {
        let region = self.target.id();
        let (mut at, mut post) = (DATA, 0);
        while at + (300 << 10) < self.target.len() && post < 400 {
            post += 1;
            if self.random.below(3) == 0 {
                self.signals.push(post);
                let value = self.signals.len() as u64;
                self.posts.push_back(Post::Signal { region, to: COUNTER, value });
                continue;
            }
            let packets = self.random.below(3) == 0;
            let most = [9, 600, 5000, 290 << 10][self.random.below(4) as usize];
            let bytes = self.random.below(most) & if packets { !7 } else { !0 };
            let to = if packets { at.next_multiple_of(8) } else { at };
            let from = if packets { to } else { self.random.below(self.source.len() - bytes) };
            at = to + bytes;
            self.writes.push((post, from, to, bytes));
            let memory = Arc::clone(&self.source);
            self.posts.push_back(Post::Write { memory, from, region, to, bytes, packets });
        }
    }

    /// Sends some bytes on a stripe, if its pipe has room.
    fn send(&mut self, stripe: usize) {
        let room = (64 << 10) - self.pipes[stripe].len() as u64;
        let mut parts = [Part::NONE; 5];
        let count = self.sender.gather(stripe, &mut parts);
        let most = if self.random.below(4) == 0 { 40 } else { 64 << 10 };
        let mut left = self.random.below(most + 1).min(room) as usize;
        let mut sent = 0;
        for part in &parts[..count] {
            let some = part.bytes.min(left);
            // SAFETY: a part is readable until the sender changes.
            self.pipes[stripe].extend(unsafe { std::slice::from_raw_parts(part.start, some) });
            left -= some;
            sent += some;
        }
        self.sender.sent(stripe, sent);
    }

    /// Delivers some bytes of a stripe.
    fn deliver(&mut self, stripe: usize) -> Result<(), Fault> {
        if stripe > 0 && !self.receiver.expects(stripe) {
            return Ok(());
        }
        let most = if self.random.below(4) == 0 { 40 } else { 64 << 10 };
        let mut left = self.random.below(most + 1) as usize;
        let mut filled = 0;
        for part in self.receiver.room(stripe) {
            let some = part.bytes.min(left).min(self.pipes[stripe].len());
            for (at, byte) in self.pipes[stripe].drain(..some).enumerate() {
                // SAFETY: a part is writable until the receiver changes.
                unsafe { part.start.add(at).write(byte) };
            }
            left -= some;
            filled += some;
            if some < part.bytes {
                break;
            }
        }
        if filled == 0 {
            return Ok(());
        }
        self.receiver.filled(stripe, filled, &*self.table)
    }

    /// What is promised: what a signal comes after, and what is said to have landed, is there.
    fn check(&mut self, seed: u64) {
        let signal = word(&self.target, COUNTER) as usize;
        assert!(signal <= self.signals.len(), "seed {seed}: signal {signal}");
        let signalled = signal.checked_sub(1).map_or(0, |last| self.signals[last]);
        let landed = self.receiver.landed();
        assert!(landed >= signalled, "seed {seed}: {landed} landed, the signal is {signalled}");
        assert!(landed <= self.sender.begun(), "seed {seed}");
        let set = self.signals.iter().filter(|post| **post <= landed).count();
        assert!(signal >= set, "seed {seed}: {landed} landed, but signal {set} did not");
        while let Some(&(post, from, to, length)) = self.writes.get(self.checked)
            && post <= landed
        {
            let range = |at: u64| at as usize..(at + length) as usize;
            let source = &bytes(&self.source)[range(from)];
            assert!(source == &bytes(&self.target)[range(to)], "seed {seed}: post {post}");
            self.checked += 1;
        }
    }
}

#[test]
fn random_schedules_keep_every_promise() {
    for seed in 1..=40 {
        let mut stage = Stage::new(seed * 0x9e37_79b9);
        let total = stage.posts.len() as u64;
        // Every fourth link is cut at some time: what holds at every step holds then, too.
        let cut = if seed % 4 == 0 { stage.random.below(3000) } else { u64::MAX };
        let mut steps = 0u64;
        while stage.receiver.landed() < total && steps < cut {
            steps += 1;
            assert!(steps < 2_000_000, "seed {seed} does not end");
            let stripe = stage.random.below(stage.pipes.len() as u64) as usize;
            match stage.random.below(3) {
                0 => drop(stage.sender.take(&mut stage.posts)),
                1 => stage.send(stripe),
                _ => stage.deliver(stripe).unwrap_or_else(|fault| panic!("seed {seed}: {fault}")),
            }
            stage.check(seed);
        }
        if cut == u64::MAX {
            let last = stage.signals.len() as u64;
            assert_eq!(word(&stage.target, COUNTER), last, "seed {seed}");
            assert_eq!(stage.checked, stage.writes.len(), "seed {seed}");
            assert!((0..stage.pipes.len()).all(|at| stage.sender.waiting(at) == 0));
            assert!(!stage.receiver.expects_any());
        }
    }
}

/// Gives bytes of the first stripe to a receiver.
fn give(
    receiver: &mut Receiver,
    table: &dyn Regions,
    mut given: &[u8],
    most: usize,
) -> Result<(), Fault> {
    while !given.is_empty() {
        let mut filled = 0;
        for part in receiver.room(0) {
            let some = part.bytes.min(given.len()).min(most - filled);
            // SAFETY: a part is writable until the receiver changes.
            unsafe { part.start.copy_from_nonoverlapping(given.as_ptr(), some) };
            given = &given[some..];
            filled += some;
        }
        if filled == 0 {
            return Ok(());
        }
        receiver.filled(0, filled, table)?;
    }
    Ok(())
}

#[test]
fn what_makes_no_sense_is_a_fault_and_touches_nothing() {
    let target = memory(4096);
    let table = Arc::new(RegionTable::default());
    let _keep = table.add(&target);
    let region = target.id();
    let write = |stripe, packets, bytes, to| Frame::Write {
        stripe,
        last: true,
        packets,
        bytes,
        region,
        to,
    };
    let frames = [
        (Frame::Signal { region: region + 1, to: 0, value: 1 }, "region"),
        (Frame::Signal { region, to: 4, value: 1 }, "multiples of 8"),
        (Frame::Signal { region, to: 4096, value: 1 }, "4096 bytes"),
        (Frame::Signal { region, to: u64::MAX - 7, value: 1 }, "4096 bytes"),
        (write(0, false, 1, 4096), "4096 bytes"),
        (write(0, false, 100, 4000), "4096 bytes"),
        (write(0, false, 16, u64::MAX - 3), "4096 bytes"),
        (write(0, true, 12, 0), "multiples of 8"),
        (write(0, true, 8, 4), "multiples of 8"),
        (write(1, true, 8, 0), "stripe"),
        (write(2, false, 8, 0), "2 stripes"),
        (write(1, false, 0, 0), "2 stripes"),
        (write(0, false, MOST_PIECE as u32 + 1, 0), "1048576"),
    ];
    for (frame, named) in frames {
        let mut given = Vec::new();
        frame.put(&mut given);
        given.extend([0xff; 64]);
        let fault = give(&mut Receiver::new(2), &*table, &given, 1 << 20).unwrap_err().to_string();
        assert!(fault.contains(named) && fault.contains("saw"), "{frame:?}: {fault}");
    }
    assert!(bytes(&target).iter().all(|byte| *byte == 0));
}

#[test]
fn garbage_never_panics_and_stays_inside_of_what_is_registered() {
    // Memory that is not registered, before and after it was given; and one that is.
    let (others, target) = ([memory(4096), memory(4096)], memory(4096));
    let table = Arc::new(RegionTable::default());
    let _keep = table.add(&target);
    let region = target.id();
    let mut random = Random(99);
    let (mut faults, mut passed) = (0, 0);
    for _ in 0..20_000 {
        let mut given = Vec::new();
        for _ in 0..1 + random.below(4) {
            let (bytes, to) = (random.below(80) as u32, random.below(4200));
            let (last, packets) = (random.below(2) == 0, random.below(4) == 0);
            let stripe = random.below(8) as u16 / 7;
            match random.below(4) {
                0 => Frame::Signal { region, to: to & !7, value: 3 }.put(&mut given),
                1 => Frame::Ask { position: random.below(9) }.put(&mut given),
                _ => {
                    Frame::Write { stripe, last, packets, bytes, region, to }.put(&mut given);
                    given.extend((0..bytes).map(|_| 7));
                }
            }
        }
        if random.below(2) == 0 {
            let at = random.below(given.len() as u64) as usize;
            given[at] ^= 1 << random.below(8);
        }
        let mut receiver = Receiver::new(2);
        let most = 1 + random.below(200) as usize;
        match give(&mut receiver, &*table, &given, most) {
            Ok(()) => passed += 1,
            Err(_) => faults += 1,
        }
        let _ = (receiver.landed(), receiver.answer(), receiver.acknowledged());
    }
    assert!(faults > 1000 && passed > 1000, "{faults} faults, {passed} passed");
    for other in &others {
        assert!(bytes(other).iter().all(|byte| *byte == 0));
    }
}

#[test]
fn units_of_packets_wait_for_all_of_their_bytes() {
    let target = memory(64);
    let table = Arc::new(RegionTable::default());
    let _keep = table.add(&target);
    let mut given = Vec::new();
    let region = target.id();
    Frame::Write { stripe: 0, last: true, packets: true, bytes: 16, region, to: 8 }.put(&mut given);
    given.extend([0x11; 8]);
    given.extend([0x22; 8]);
    let mut receiver = Receiver::new(1);
    let head = given.len() - 16;
    for (at, byte) in given.iter().enumerate() {
        give(&mut receiver, &*table, &[*byte], 1).unwrap();
        let come = at.saturating_sub(head - 1) / 8;
        let expected = [0, 0x1111_1111_1111_1111, 0x2222_2222_2222_2222];
        let seen = [word(&target, 0), word(&target, 8), word(&target, 16)];
        let wanted = [0, 1, 2].map(|unit| if unit <= come { expected[unit] } else { 0 });
        assert_eq!(seen, wanted, "after {} bytes", at + 1);
        assert_eq!(receiver.landed(), u64::from(come == 2));
    }
}

#[test]
fn answers_come_when_what_was_asked_for_has_landed() {
    let target = memory(4096);
    let table = Arc::new(RegionTable::default());
    let _keep = table.add(&target);
    let region = target.id();
    let mut receiver = Receiver::new(2);
    let mut given = Vec::new();
    Frame::Write { stripe: 1, last: true, packets: false, bytes: 10, region, to: 0 }
        .put(&mut given);
    Frame::Signal { region, to: 64, value: 5 }.put(&mut given);
    Frame::Ask { position: 2 }.put(&mut given);
    Frame::Write { stripe: 1, last: true, packets: false, bytes: 7, region, to: 16 }
        .put(&mut given);
    Frame::Ask { position: 3 }.put(&mut given);
    give(&mut receiver, &*table, &given, 1 << 20).unwrap();
    assert_eq!((receiver.landed(), receiver.answer(), word(&target, 64)), (0, None, 0));
    receiver.filled(1, 9, &*table).unwrap();
    assert_eq!((receiver.landed(), receiver.answer(), word(&target, 64)), (0, None, 0));
    receiver.filled(1, 1, &*table).unwrap();
    assert_eq!((receiver.landed(), word(&target, 64)), (2, 5));
    assert_eq!((receiver.answer(), receiver.answer()), (Some(2), None));
    receiver.filled(1, 7, &*table).unwrap();
    assert_eq!((receiver.answer(), receiver.answer()), (Some(3), None));
    let mut more = Vec::new();
    Frame::Acknowledge { position: 8 }.put(&mut more);
    Frame::Acknowledge { position: 6 }.put(&mut more);
    give(&mut receiver, &*table, &more, 1 << 20).unwrap();
    assert_eq!(receiver.acknowledged(), 8);
}

/// Takes up to `most` of the bytes that wait on the first stripe.
fn leave(sender: &mut Sender, most: usize) -> Vec<u8> {
    let mut parts = [Part::NONE; 8];
    let count = sender.gather(0, &mut parts);
    let mut left = Vec::new();
    for part in &parts[..count] {
        // SAFETY: what `gather` shows is there until the sender is changed, below.
        left.extend_from_slice(unsafe { std::slice::from_raw_parts(part.start, part.bytes) });
    }
    left.truncate(most);
    sender.sent(0, left.len());
    left
}

/// A peer that sends and does not read must not make acknowledgements pile up; one that has begun to leave is left alone.
#[test]
fn an_acknowledgement_that_has_not_left_is_replaced() {
    let mut sender = Sender::new(1);
    sender.control(&Frame::Ask { position: 7 });
    (1..=10_000).for_each(|position| sender.acknowledge(position));
    assert_eq!(sender.waiting(0), 16 + 16);
    let mut all = leave(&mut sender, 16 + 3);
    (10_001..=20_000).for_each(|position| sender.acknowledge(position));
    sender.control(&Frame::Ask { position: 8 });
    sender.acknowledge(20_001);
    assert_eq!(sender.waiting(0), 13 + 16 + 16);
    all.extend(leave(&mut sender, usize::MAX));
    sender.acknowledge(20_002);
    all.extend(leave(&mut sender, usize::MAX));
    let mut frames = Vec::new();
    let mut rest = &all[..];
    while let Some((frame, bytes)) = Frame::take(rest).unwrap() {
        frames.push(frame);
        rest = &rest[bytes..];
    }
    let said = [
        Frame::Ask { position: 7 },
        Frame::Acknowledge { position: 10_000 },
        Frame::Acknowledge { position: 20_001 },
        Frame::Ask { position: 8 },
        Frame::Acknowledge { position: 20_002 },
    ];
    assert_eq!((&frames[..], rest), (&said[..], &[][..]));
}
