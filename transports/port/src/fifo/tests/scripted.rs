//! A link that refuses, delays and breaks, by a seed.

use crate::WireError;
use crate::wire::{Link, Posted, Unit, Write};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

/// xorshift.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 |= 1;
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Write { to: u64, packets: bool },
    Signal { region: u64, to: u64, value: u64 },
}

#[derive(Debug)]
struct State {
    random: Random,
    /// Posts that may be under way.
    room: u64,
    /// After so many posts the link breaks.
    lost_at: Option<u64>,
    log: Vec<Op>,
    landed: u64,
}

impl State {
    fn check(&self) -> Result<(), WireError> {
        if self.lost_at.is_none_or(|at| (self.log.len() as u64) < at) {
            return Ok(());
        }
        let reason = "the test said so".to_owned();
        Err(WireError::Lost { wire: "scripted".to_owned(), peer: 1, reason })
    }

    fn post(&mut self, op: Op) -> Result<Posted, WireError> {
        self.check()?;
        let under_way = self.log.len() as u64 - self.landed;
        if under_way >= self.room || self.random.below(4) == 0 {
            return Ok(Posted::Full);
        }
        self.log.push(op);
        Ok(Posted::Queued)
    }
}

#[derive(Debug)]
pub struct Scripted(Mutex<State>);

impl Scripted {
    pub fn new(seed: u64, room: u64, lost_at: Option<u64>) -> Arc<Self> {
        let random = Random(seed);
        let state = State { random, room, lost_at, log: Vec::new(), landed: 0 };
        Arc::new(Scripted(Mutex::new(state)))
    }

    /// What was posted, and whether the link broke.
    pub fn log(&self) -> (Vec<Op>, bool) {
        let state = self.0.lock().unwrap();
        (state.log.clone(), state.check().is_err())
    }

    pub fn landed(&self) -> u64 {
        self.0.lock().unwrap().landed
    }

    pub fn widen(&self, room: u64) {
        self.0.lock().unwrap().room = room;
    }
}

impl Link for Scripted {
    fn peer(&self) -> u32 {
        1
    }

    fn accept(&self, _: u64, _: u64, _: &[u8]) -> Result<(), WireError> {
        Ok(())
    }

    fn retire(&self, _: u64) {}

    fn write(&self, write: &Write<'_>) -> Result<Posted, WireError> {
        assert_eq!((write.from, write.region, write.bytes), (8, 1 << 40, 16));
        let op = Op::Write { to: write.to, packets: write.unit == Unit::Packets };
        self.0.lock().unwrap().post(op)
    }

    fn signal(&self, region: u64, to: u64, value: u64) -> Result<Posted, WireError> {
        self.0.lock().unwrap().post(Op::Signal { region, to, value })
    }

    fn posted(&self) -> u64 {
        self.0.lock().unwrap().log.len() as u64
    }

    fn completed(&self) -> Result<u64, WireError> {
        let state = self.0.lock().unwrap();
        state.check()?;
        Ok(state.landed)
    }

    fn progress(&self) -> Result<bool, WireError> {
        let mut state = self.0.lock().unwrap();
        state.check()?;
        let under_way = state.log.len() as u64 - state.landed;
        let landing = if under_way == 0 { 0 } else { state.random.below(under_way + 1) };
        state.landed += landing;
        Ok(landing > 0)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&self) -> Result<bool, WireError> {
        Ok(true)
    }

    fn stop(&self) {}

    fn describe(&self) -> String {
        "a script".to_owned()
    }
}
