//! Links between ranks that see each other's device memory: transfers are copies, on streams of the proxy's own.
//!
//! The kernel has resolved what is read and what is written, so requests name bytes by their addresses in this process. Copies
//! of one link run in their order. A signal is a word that the stream writes behind the copies; where streams cannot, a copy of 8
//! bytes, begun once all that was posted before it is over.

use crate::gpu::words::Words;
use crate::sync::lock;
use antiphon_codegen::abi::FOREIGN;
use antiphon_hal::{Backend, Device, Event, HalError, Memory, MemoryHandle, Stream};
use antiphon_port::{Link, Posted, WireError, Write};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

const NAME: &str = "copies";

/// Posts under way at once.
const MOST: u64 = 64;

/// All addresses of this process, as one memory whose offsets are addresses.
#[derive(Debug)]
pub struct Everything(pub Backend);

// SAFETY: only copies of the device use addresses in it, whose callers vouch for their ranges.
unsafe impl Memory for Everything {
    fn backend(&self) -> Backend {
        self.0
    }

    fn address(&self) -> *mut u8 {
        ptr::null_mut()
    }

    fn len(&self) -> u64 {
        u64::MAX
    }

    fn id(&self) -> u64 {
        FOREIGN
    }

    fn export(&self) -> Result<MemoryHandle, HalError> {
        Err(HalError::Unsupported { op: "export all addresses", backend: self.0 })
    }
}

/// A link to a rank whose memory is mapped here, or that is in this process.
#[derive(Debug)]
pub struct Copies {
    peer: u32,
    device: Arc<dyn Device>,
    data: Arc<dyn Stream>,
    /// Signals do not stand behind bytes that were posted after them.
    signals: Arc<dyn Stream>,
    /// Values of counters, from where they are copied.
    values: Words,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    posted: u64,
    landed: u64,
    /// What has not landed, in order.
    under_way: VecDeque<Step>,
    /// Events that nothing stands for any more.
    events: Vec<Arc<dyn Event>>,
    /// The device's streams write no words: signals are copies.
    copies_signals: bool,
    /// Why nothing goes on.
    lost: Option<String>,
}

#[derive(Debug)]
enum Step {
    /// It has landed when the event is done.
    Copied(Arc<dyn Event>),
    /// To be begun when all before it has landed.
    Signal { to: u64, value: u64 },
}

impl Copies {
    /// The name, in errors.
    pub const NAME: &'static str = NAME;

    /// The link to `peer`.
    ///
    /// # Errors
    /// What the device reports.
    pub fn new(device: &Arc<dyn Device>, peer: u32) -> Result<Self, HalError> {
        Ok(Copies {
            peer,
            data: device.urgent_stream()?,
            signals: device.urgent_stream()?,
            values: Words::new(&**device, MOST * 8)?,
            device: Arc::clone(device),
            state: Mutex::default(),
        })
    }

    fn lost(&self, reason: String) -> WireError {
        WireError::Lost { wire: NAME.to_owned(), peer: self.peer, reason }
    }

    fn enter(&self) -> Result<MutexGuard<'_, State>, WireError> {
        let state = lock(&self.state);
        match &state.lost {
            Some(reason) => Err(self.lost(reason.clone())),
            None => Ok(state),
        }
    }

    /// Copies on a stream, and notes when it is done.
    fn copy(
        &self,
        state: &mut State,
        stream: &dyn Stream,
        (to, from, bytes): (*mut u8, *const u8, u64),
    ) -> Result<Arc<dyn Event>, WireError> {
        let known = state.events.pop();
        let begun = || {
            let event = known.map_or_else(|| self.device.event(), Ok)?;
            // SAFETY: the ranges are a kernel's, which has resolved them to memory that is mapped while it runs; it ends when
            // what it posted has landed, and one that is ended early, once the link is stopped. Or they are a word of
            // `values` and a counter that is mapped as long. The plan orders the accesses.
            let _ = unsafe { stream.copy(to, from, bytes)? };
            stream.record(&*event)?;
            Ok(event)
        };
        begun().map_err(|error: HalError| self.lose(state, &error))
    }

    /// Has the stream of copies write a counter behind them, and notes when that is done; `None` where streams cannot.
    fn write_behind(
        &self,
        state: &mut State,
        to: u64,
        value: u64,
    ) -> Result<Option<Arc<dyn Event>>, WireError> {
        if state.copies_signals {
            return Ok(None);
        }
        let to = ptr::with_exposed_provenance_mut(to as usize);
        // SAFETY: a counter, mapped as long as the kernel that asked for it runs, or its graph; nobody else writes it.
        match unsafe { self.data.write(to, value) } {
            Ok(()) => {}
            Err(HalError::Unsupported { .. }) => {
                state.copies_signals = true;
                return Ok(None);
            }
            Err(error) => return Err(self.lose(state, &error)),
        }
        let known = state.events.pop();
        let noted = || {
            let event = known.map_or_else(|| self.device.event(), Ok)?;
            self.data.record(&*event)?;
            Ok(event)
        };
        noted().map(Some).map_err(|error: HalError| self.lose(state, &error))
    }

    /// Nothing goes on after an error of the device.
    fn lose(&self, state: &mut State, error: &HalError) -> WireError {
        let reason = error.to_string();
        state.lost = Some(reason.clone());
        self.lost(reason)
    }

    /// Notes what has landed, and begins the signals that come next; whether there was anything.
    fn advance(&self, state: &mut State) -> Result<bool, WireError> {
        let mut moved = false;
        loop {
            match state.under_way.front() {
                Some(Step::Copied(event)) => {
                    if !event.query().map_err(|error| self.lose(state, &error))? {
                        return Ok(moved);
                    }
                    if let Some(Step::Copied(event)) = state.under_way.pop_front() {
                        state.events.push(event);
                    }
                    state.landed += 1;
                }
                Some(&Step::Signal { to, value }) => {
                    // So many posts later its place is free again.
                    let at = (state.landed % MOST) * 8;
                    let Some(word) = self.values.word(at) else { return Ok(moved) };
                    word.store(value, Ordering::Release);
                    let to = ptr::with_exposed_provenance_mut(to as usize);
                    let copy = (to, word.as_ptr().cast_const().cast(), 8);
                    let event = self.copy(state, &*self.signals, copy)?;
                    state.under_way[0] = Step::Copied(event);
                }
                None => return Ok(moved),
            }
            moved = true;
        }
    }

    fn invalid(&self, operation: &'static str, region: u64, unit: u64) -> Result<(), WireError> {
        if region == FOREIGN && unit.is_multiple_of(8) {
            return Ok(());
        }
        Err(WireError::Invalid {
            operation,
            wire: NAME.to_owned(),
            saw: format!("region {region:#x}, {unit} bytes"),
            allowed: "addresses of this process, and packets and counters at multiples of 8"
                .to_owned(),
        })
    }
}

impl Link for Copies {
    fn peer(&self) -> u32 {
        self.peer
    }

    fn accept(&self, _: u64, _: u64, _: &[u8]) -> Result<(), WireError> {
        Ok(())
    }

    fn retire(&self, _: u64) {}

    /// Packets too: copy engines write aligned units of 8 bytes whole.
    fn write(&self, write: &Write<'_>) -> Result<Posted, WireError> {
        let Write { source, from, region, to, bytes, .. } = *write;
        self.invalid("write", region, 0)?;
        let mut state = self.enter()?;
        if state.under_way.len() as u64 >= MOST {
            return Ok(Posted::Full);
        }
        let start = source.address().expose_provenance() as u64;
        let from = ptr::with_exposed_provenance(start.wrapping_add(from) as usize);
        let to = ptr::with_exposed_provenance_mut(to as usize);
        let event = self.copy(&mut state, &*self.data, (to, from, bytes))?;
        state.under_way.push_back(Step::Copied(event));
        state.posted += 1;
        Ok(Posted::Queued)
    }

    fn signal(&self, region: u64, to: u64, value: u64) -> Result<Posted, WireError> {
        self.invalid("signal", region, to)?;
        let mut state = self.enter()?;
        if state.under_way.len() as u64 >= MOST {
            return Ok(Posted::Full);
        }
        let step = match self.write_behind(&mut state, to, value)? {
            Some(event) => Step::Copied(event),
            None => Step::Signal { to, value },
        };
        state.under_way.push_back(step);
        state.posted += 1;
        self.advance(&mut state)?;
        Ok(Posted::Queued)
    }

    fn posted(&self) -> u64 {
        lock(&self.state).posted
    }

    fn completed(&self) -> Result<u64, WireError> {
        Ok(self.enter()?.landed)
    }

    fn progress(&self) -> Result<bool, WireError> {
        let mut state = self.enter()?;
        self.advance(&mut state)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&self) -> Result<bool, WireError> {
        self.enter().map(|_| true)
    }

    fn stop(&self) {
        {
            let mut state = lock(&self.state);
            state.lost.get_or_insert_with(|| "this rank ended it".to_owned());
        }
        // What has begun cannot be taken back, and is over soon. That it failed changes nothing.
        let _ = self.data.synchronize();
        let _ = self.signals.synchronize();
    }

    fn describe(&self) -> String {
        format!("copies by {}", self.device.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_hal::driver;
    use antiphon_port::Unit;

    struct Bench {
        copies: Copies,
        everything: Arc<dyn Memory>,
        memory: Arc<dyn Memory>,
    }

    impl Bench {
        fn new() -> Self {
            let device = driver(Backend::Host).unwrap().open(0).unwrap();
            let everything = Arc::new(Everything(Backend::Host));
            Bench {
                copies: Copies::new(&device, 3).unwrap(),
                everything,
                memory: device.allocate(4096).unwrap(),
            }
        }

        fn at(&self, offset: u64) -> u64 {
            self.memory.address().expose_provenance() as u64 + offset
        }

        fn word(&self, offset: usize) -> u64 {
            // SAFETY: inside the memory; the copies that were asked about are over.
            unsafe { self.memory.address().add(offset).cast::<u64>().read() }
        }

        fn write(&self, from: u64, to: u64, bytes: u64) -> Result<Posted, WireError> {
            let (from, to) = (self.at(from), self.at(to));
            let (source, region, unit) = (&self.everything, FOREIGN, Unit::Bytes);
            self.copies.write(&Write { source, from, region, to, bytes, unit })
        }

        fn finish(&self) {
            while self.copies.completed().unwrap() < self.copies.posted() {
                self.copies.progress().unwrap();
            }
        }
    }

    #[test]
    fn bytes_land_before_the_signal_that_follows_them() {
        let bench = Bench::new();
        for round in 1..=2 * MOST {
            // SAFETY: nothing is under way.
            unsafe { bench.memory.address().cast::<u64>().write(round * 7) };
            assert_eq!(bench.write(0, 64, 8), Ok(Posted::Queued));
            assert_eq!(bench.copies.signal(FOREIGN, bench.at(128), round), Ok(Posted::Queued));
            assert_eq!(bench.copies.posted(), 2 * round);
            bench.finish();
            assert_eq!([bench.word(64), bench.word(128)], [round * 7, round]);
        }
    }

    #[test]
    fn a_full_link_takes_nothing_until_something_has_landed() {
        let bench = Bench::new();
        for _ in 0..MOST {
            assert_eq!(bench.write(0, 64, 8), Ok(Posted::Queued));
        }
        assert_eq!(bench.write(0, 64, 8), Ok(Posted::Full));
        assert_eq!(bench.copies.signal(FOREIGN, bench.at(128), 1), Ok(Posted::Full));
        bench.finish();
        assert_eq!(bench.write(0, 64, 8), Ok(Posted::Queued));
        bench.finish();
    }

    #[test]
    fn a_link_that_has_ended_copies_nothing_and_says_so() {
        let bench = Bench::new();
        assert!(bench.copies.signal(FOREIGN, bench.at(4), 1).is_err(), "no counter lies there");
        assert!(bench.copies.signal(5, bench.at(8), 1).is_err(), "no such region");
        bench.copies.stop();
        let lost = |answer: Result<Posted, WireError>| {
            assert!(matches!(answer, Err(WireError::Lost { peer: 3, .. })), "{answer:?}");
        };
        lost(bench.write(0, 64, 8));
        lost(bench.copies.signal(FOREIGN, bench.at(128), 1));
        assert!(bench.copies.completed().is_err() && bench.copies.progress().is_err());
        assert_eq!(bench.word(128), 0);
    }
}
