//! Two ends of a staged link over a wire that is late, full, and out of order wherever it may be.

use super::parcels::{BYTES, PAYLOAD, Place};
use super::path::{Path, Peering, Reached};
use super::*;
use antiphon_hal::driver;
use antiphon_port::Attended;
use std::sync::atomic::AtomicBool;

/// Numbers that differ from seed to seed.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[derive(Debug)]
enum Op {
    Write { from: u64, region: u64, to: u64, bytes: u64 },
    Signal { to: u64, value: u64 },
}

/// The number of each end's parcels; other memory has its own.
const PARCELS: u64 = 1;

/// A wire that does as little as it may, as late as it may.
#[derive(Debug)]
struct Late {
    /// Where the peer's memory is.
    there: u64,
    /// The device's, in which both ends' buffers are.
    device: Arc<dyn Memory>,
    state: Mutex<(Dice, Vec<Op>, u64, bool)>,
}

/// What a wire says that was stopped.
fn cut() -> WireError {
    WireError::Lost { wire: "late".to_owned(), peer: 1, reason: "cut".to_owned() }
}

impl Late {
    fn post(&self, op: Op) -> Result<Posted, WireError> {
        let mut state = self.state.lock().unwrap();
        if state.3 {
            return Err(cut());
        }
        if state.1.len() > 12 || state.0.below(4) == 0 {
            return Ok(Posted::Full);
        }
        state.1.push(op);
        state.2 += 1;
        Ok(Posted::Queued)
    }
}

impl Link for Late {
    fn peer(&self) -> u32 {
        1
    }
    fn accept(&self, _: u64, _: u64, _: &[u8]) -> Result<(), WireError> {
        Ok(())
    }
    fn retire(&self, _: u64) {}
    fn write(&self, write: &Write<'_>) -> Result<Posted, WireError> {
        let Write { source, from, region, to, bytes, .. } = *write;
        let room = if region == PARCELS { BYTES } else { self.device.len() };
        assert!(to + bytes <= room && from + bytes <= source.len());
        assert!(region == PARCELS || region == self.device.id());
        let from = source.address() as u64 + from;
        self.post(Op::Write { from, region, to, bytes })
    }
    fn signal(&self, _: u64, to: u64, value: u64) -> Result<Posted, WireError> {
        self.post(Op::Signal { to, value })
    }
    fn posted(&self) -> u64 {
        self.state.lock().unwrap().2
    }
    fn completed(&self) -> Result<u64, WireError> {
        let state = self.state.lock().unwrap();
        Ok(state.2 - state.1.len() as u64)
    }
    /// Carries out one post: a write of those before the first signal, or that, once there is none.
    fn progress(&self) -> Result<bool, WireError> {
        let mut state = self.state.lock().unwrap();
        if state.3 {
            return Err(cut());
        }
        let signal = |op: &Op| matches!(op, Op::Signal { .. });
        let writes = state.1.iter().position(signal).unwrap_or(state.1.len()) as u64;
        if state.1.is_empty() || state.0.below(3) == 0 {
            return Ok(false);
        }
        let at = if writes > 0 { state.0.below(writes) } else { 0 };
        let there =
            |at: u64| std::ptr::with_exposed_provenance_mut::<u8>((self.there + at) as usize);
        match state.1.remove(at as usize) {
            Op::Write { from, region, to, bytes } => {
                let from = std::ptr::with_exposed_provenance::<u8>(from as usize);
                let to = match region {
                    PARCELS => there(to),
                    _ => self.device.address().wrapping_add(to as usize),
                };
                // SAFETY: inside of both ends' memories, as `write` has seen.
                unsafe { std::ptr::copy_nonoverlapping(from, to, bytes as usize) }
            }
            Op::Signal { to, value } => {
                // SAFETY: a word of the peer's memory, which is touched by atomic accesses alone.
                unsafe { &*there(to).cast::<AtomicU64>() }.store(value, Ordering::Release);
            }
        }
        Ok(true)
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn arm(&self) -> Result<bool, WireError> {
        Ok(true)
    }
    fn stop(&self) {
        self.state.lock().unwrap().3 = true;
    }
    fn describe(&self) -> String {
        "late".to_owned()
    }
}

/// Names are addresses, of which those from `start` on are allowed.
#[derive(Debug)]
struct Fixed {
    left: AtomicBool,
    reached: Mutex<Option<Reached>>,
    start: u64,
    /// The device's memory, as far as the wire has it.
    lent: Mutex<Option<Arc<dyn Memory>>>,
    direct: AtomicU64,
}

impl Path for Arc<Fixed> {
    fn reach(&self) -> Peering {
        if self.left.load(Ordering::Relaxed) {
            return Peering::Lost("it has left".to_owned());
        }
        self.reached.lock().unwrap().clone().map_or(Peering::Soon, Peering::Reached)
    }
    fn name(&self, address: u64, _: u64) -> Place {
        Place { region: FOREIGN, offset: address }
    }
    fn find(&self, _: u64, offset: u64, _: u64) -> Option<u64> {
        (offset >= self.start).then_some(offset)
    }
    fn keeps(&self, region: u64) -> bool {
        self.knows(region)
    }
    fn takes(&self, region: u64) -> bool {
        self.knows(region)
    }
    fn lends(&self, region: u64) -> Option<Arc<dyn Memory>> {
        self.lent.lock().unwrap().clone().filter(|memory| memory.id() == region)
    }
    fn knows(&self, region: u64) -> bool {
        self.lends(region).is_some()
    }
    fn count(&self, bytes: u64) {
        self.direct.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Two ends on the host's memory, and the memory that is written.
struct Bench {
    ends: [Staged; 2],
    paths: [Arc<Fixed>; 2],
    memory: Arc<dyn Memory>,
}

const ROOM: u64 = 8 * PAYLOAD;

impl Bench {
    fn new(seed: u64) -> Self {
        let device = driver(Backend::Host).unwrap().open(0).unwrap();
        let memory = device.allocate(2 * ROOM).unwrap();
        let start = memory.address() as u64;
        let path = || {
            let (reached, lent, direct) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
            Arc::new(Fixed { left: AtomicBool::new(false), reached, start, lent, direct })
        };
        let paths = [path(), path()];
        let end = |peer: u32| {
            let path = Arc::clone(&paths[1 - peer as usize]);
            Staged::new(&device, peer, device.pinned(BYTES).unwrap(), |_| {
                Ok(Box::new(path) as Box<dyn Path>)
            })
            .unwrap()
        };
        let ends = [end(1), end(0)];
        for own in 0..2 {
            let there = ends[1 - own].memory.address() as u64;
            let dice = Dice(seed * 2 + own as u64);
            let (device, state) = (Arc::clone(&memory), Mutex::new((dice, Vec::new(), 0, false)));
            let late = Late { there, device, state };
            let attended = Attended::new(Arc::new(late), |_| {}).unwrap();
            let source = Arc::clone(&ends[own].memory);
            let reached = Reached { attended, source, region: PARCELS };
            *paths[own].reached.lock().unwrap() = Some(reached);
        }
        Bench { ends, paths, memory }
    }

    /// Has the wire take the device's memory at both ends, whatever the device says of order: the host keeps it.
    fn lend(&mut self) {
        let memory = &self.memory;
        let (region, start, bytes) = (memory.id(), memory.address() as u64, memory.len());
        for (end, path) in self.ends.iter_mut().zip(&self.paths) {
            *path.lent.lock().unwrap() = Some(Arc::clone(memory));
            end.open = true;
            end.lend(Range { region, number: 7, start, bytes, open: true });
        }
    }

    fn at(&self, offset: u64) -> u64 {
        self.memory.address() as u64 + offset
    }

    fn byte(&self, offset: u64) -> u8 {
        // SAFETY: inside; what is written there has landed, or is a byte of whatever comes.
        unsafe { self.memory.address().add(offset as usize).read_volatile() }
    }

    fn word(&self, offset: u64) -> u64 {
        // SAFETY: inside, and aligned; a word that a copy may write.
        let word = unsafe { &*self.memory.address().add(offset as usize).cast::<AtomicU64>() };
        word.load(Ordering::Acquire)
    }

    fn write(&self, from: u64, to: u64, bytes: u64) -> Posted {
        let source: Arc<dyn Memory> = Arc::new(Everything(Backend::Host));
        let (from, to, unit) = (self.at(from), self.at(to), Unit::Bytes);
        let write = Write { source: &source, from, region: FOREIGN, to, bytes, unit };
        self.ends[0].write(&write).unwrap()
    }
}

#[test]
fn bytes_land_whole_before_the_word_that_follows_them_whatever_the_wire_does() {
    const ROUNDS: u64 = 16;
    // Rounds take turns with four areas, each of two parcels, and so many rounds are under way at once.
    const AREAS: u64 = 4;
    const AREA: u64 = ROOM / AREAS;
    for seed in 0..12 {
        let mut bench = Bench::new(seed);
        // With parcels alone, and from some time on without.
        let direct = seed % 2 == 1;
        if direct {
            bench.lend();
        }
        let mut dice = Dice(seed + 100);
        // The word is behind all bytes.
        let word = 2 * ROOM - 8;
        let mut lengths = Vec::new();
        let mut seen = 0;
        while seen < ROUNDS {
            let round = lengths.len() as u64;
            let done = bench.ends[0].completed().unwrap() / 2;
            if round < ROUNDS && round < done + AREAS && dice.below(3) == 0 {
                let (from, bytes) = (round % AREAS * AREA, 1 + dice.below(AREA - 16));
                // SAFETY: inside; what was sent from here has landed.
                unsafe {
                    let start = bench.memory.address().add(from as usize);
                    start.write_bytes(round as u8 + 1, bytes as usize);
                }
                assert_eq!(bench.write(from, ROOM + from, bytes), Posted::Queued);
                let to = bench.at(word);
                assert_eq!(bench.ends[0].signal(FOREIGN, to, round + 1), Ok(Posted::Queued));
                lengths.push(bytes);
            }
            bench.ends[dice.below(2) as usize].progress().unwrap();
            let now = bench.word(word);
            assert!(now >= seen, "seed {seed}: {now} after {seen}");
            seen = now;
            if seen > 0 {
                let (area, bytes) = ((seen - 1) % AREAS, lengths[seen as usize - 1]);
                for at in [0, bytes - 1] {
                    let byte = u64::from(bench.byte(ROOM + area * AREA + at));
                    // Of this round, or of a later one in the same area.
                    let fits = byte >= seen && (byte - seen).is_multiple_of(AREAS);
                    assert!(fits, "seed {seed}: {byte} at {at} of {bytes} in round {seen}");
                }
            }
        }
        let is_done = || bench.ends[0].completed() == Ok(2 * ROUNDS) && bench.ends[1].is_calm();
        while !is_done() {
            bench.ends.iter().for_each(|end| assert!(end.progress().is_ok()));
        }
        assert_eq!(bench.ends[0].posted(), 2 * ROUNDS);
        let written = bench.paths[0].direct.load(Ordering::Relaxed);
        assert!(written <= lengths.iter().sum() && (written > 0) == direct, "{written} bytes");
    }
}

/// The peer tells that all has landed, and leaves. Its wire is lost then, or the path, before this end has looked.
#[test]
fn what_has_landed_when_the_peer_leaves_is_done() {
    for (seed, wire_first) in [(1, true), (2, false)] {
        let bench = Bench::new(seed);
        let leave = |bench: &Bench, wire: bool| match wire {
            true => {
                let reached = bench.paths[0].reached.lock().unwrap().clone().unwrap();
                reached.attended.link().stop();
            }
            false => bench.paths[0].left.store(true, Ordering::Relaxed),
        };
        assert_eq!(bench.write(0, ROOM, 3 * PAYLOAD), Posted::Queued);
        let told = || bench.ends[0].word(LANDED).load(Ordering::Acquire);
        while told() < 3 {
            // Nothing of the peer's word is taken in before it is all that it says.
            if bench.ends[0].enter().told < 3 {
                bench.ends[0].progress().unwrap();
            }
            bench.ends[1].progress().unwrap();
            let reached = bench.paths[0].reached.lock().unwrap().clone().unwrap();
            reached.attended.progress().unwrap();
        }
        leave(&bench, wire_first);
        bench.ends[0].progress().unwrap();
        assert_eq!(bench.ends[0].completed(), Ok(1), "seed {seed}");
        leave(&bench, false);
        bench.ends[0].progress().unwrap();
        assert!(bench.ends[0].is_lost() && bench.ends[0].is_calm());
        assert_eq!((bench.ends[0].completed(), bench.ends[0].fault()), (Ok(1), None));
        // What comes now cannot be done.
        let error = bench.ends[0].signal(FOREIGN, bench.at(0), 1).unwrap_err();
        assert!(error.to_string().contains("it has left"), "{error}");
    }
}

/// What has not landed when the peer leaves never does, and says so.
#[test]
fn what_is_under_way_when_the_peer_leaves_is_lost() {
    let bench = Bench::new(3);
    assert_eq!(bench.write(0, ROOM, PAYLOAD), Posted::Queued);
    bench.ends[0].progress().unwrap();
    bench.paths[0].left.store(true, Ordering::Relaxed);
    for lost in [bench.ends[0].progress().map(drop), bench.ends[0].completed().map(drop)] {
        let error = lost.unwrap_err();
        assert!(error.to_string().contains("it has left"), "{error}");
    }
    assert!(bench.ends[0].is_lost());
}

#[test]
fn memory_that_is_taken_back_is_written_in_parcels_again() {
    let mut bench = Bench::new(5);
    bench.lend();
    let finish = |bench: &Bench| {
        while bench.ends[0].completed().unwrap() < bench.ends[0].posted()
            || !bench.ends.iter().all(Staged::is_calm)
        {
            bench.ends.iter().for_each(|end| assert!(end.progress().is_ok()));
        }
    };
    let direct = |bench: &Bench| bench.paths[0].direct.load(Ordering::Relaxed);
    for round in 0..20 {
        assert_eq!(bench.write(0, ROOM, 100), Posted::Queued, "round {round}");
        finish(&bench);
    }
    let before = direct(&bench);
    assert!(before > 0 && before % 100 == 0, "{before}");
    // The receiver's memory is another one, which its wire does not have.
    let start = bench.at(ROOM);
    bench.ends[1].lend(Range { region: 99, number: 8, start, bytes: ROOM, open: true });
    finish(&bench);
    // Whatever the sender has heard before, it hears this before what comes back.
    let source: Arc<dyn Memory> = Arc::new(Everything(Backend::Host));
    let (from, to, unit) = (bench.at(ROOM), bench.at(0), Unit::Packets);
    let back = Write { source: &source, from, region: FOREIGN, to, bytes: 8, unit };
    assert_eq!(bench.ends[1].write(&back), Ok(Posted::Queued));
    while bench.ends[1].completed() != Ok(1) {
        bench.ends.iter().for_each(|end| assert!(end.progress().is_ok()));
    }
    assert_eq!(bench.write(0, ROOM, 100), Posted::Queued);
    finish(&bench);
    assert_eq!(direct(&bench), before);
}

#[test]
fn a_place_that_is_no_memory_of_the_receiver_ends_the_link() {
    let bench = Bench::new(9);
    assert_eq!(bench.ends[0].signal(FOREIGN, 64, 1), Ok(Posted::Queued));
    let error = loop {
        bench.ends[0].progress().unwrap();
        if let Err(error) = bench.ends[1].progress() {
            break error.to_string();
        }
    };
    assert!(error.contains("allowed this rank's device memory"), "{error}");
    assert!(bench.ends[1].progress().is_err() && bench.ends[1].completed().is_err());
    assert_eq!([0, 1].map(|end| bench.ends[end].fault().is_some()), [false, true]);
}

#[test]
fn posts_wait_for_a_wire_that_does_not_stand_yet_and_a_stopped_link_takes_none() {
    let bench = Bench::new(3);
    let reached = bench.paths[0].reached.lock().unwrap().take();
    assert_eq!(bench.write(0, ROOM, 8), Posted::Queued);
    bench.ends[0].progress().unwrap();
    assert_eq!(bench.ends[0].completed(), Ok(0));
    *bench.paths[0].reached.lock().unwrap() = reached;
    while bench.ends[0].completed() != Ok(1) {
        bench.ends.iter().for_each(|end| assert!(end.progress().is_ok()));
    }
    bench.ends[0].stop();
    assert!(bench.ends[0].signal(FOREIGN, bench.at(8), 1).is_err());
}
