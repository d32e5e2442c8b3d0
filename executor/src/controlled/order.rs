//! Who goes next: in turn but for holds, at random, or by priorities.

use super::machine::{Machine, Status};
use super::values::mix;
use antiphon_plan::schedule::{Actor, Hold, Schedule};
use std::collections::{BinaryHeap, VecDeque};

/// How a run takes its decisions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    /// Whether work is dealt to lanes at random.
    pub random: bool,
    /// From what, then.
    pub salt: u64,
    /// By how many lanes the regular deal is rotated.
    pub rotate: u32,
    /// How many of 256 units happen when they are issued; all if it is above 255.
    pub at_once: u32,
    /// Before how many of 256 steps a pending unit happens.
    pub drain: u32,
    pub way: Way,
}

/// How a hold keeps a block's threads back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// They go on, but what they do to raw memory happens later. Packets, as in `Stopped`.
    #[default]
    Unseen,
    /// They stop before the instruction.
    Stopped,
    /// This lane stops before the instruction, the others go on.
    OneLane(u32),
}

impl Default for Ways {
    fn default() -> Self {
        Ways { random: false, salt: 0, rotate: 0, at_once: 256, drain: 0, way: Way::Unseen }
    }
}

/// Small and fast, and the same everywhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(mix(seed) | 1)
    }

    pub fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Less than `limit`, which is at least 1.
    pub fn below(&mut self, limit: u32) -> u32 {
        (((self.next() >> 32) * u64::from(limit)) >> 32) as u32
    }

    fn one_of(&mut self, choices: &[u32]) -> u32 {
        choices[self.below(choices.len() as u32) as usize]
    }
}

/// How a run ended.
pub(super) struct Ended {
    /// Whether holds had to be taken off for anyone to go on.
    pub released: bool,
    /// Whether it was stopped because it took too many steps.
    pub endless: bool,
}

impl Machine<'_> {
    /// Runs all launches from the beginning in the order of `schedule`.
    pub(super) fn run(
        &mut self,
        schedule: &Schedule,
        watch: &[Actor],
        way: Way,
        rotate: u32,
    ) -> Ended {
        let holds: &[Hold] = match schedule {
            Schedule::Held(holds) => holds,
            _ => &[],
        };
        let one_lane = if let Way::OneLane(lane) = way { Some(lane) } else { None };
        self.tracker.reset(&self.code, self.width, holds, watch, one_lane);
        self.ways = Ways { way, rotate, ..Ways::default() };
        let limit = self.usual.saturating_mul(64).saturating_add(1 << 16);
        match *schedule {
            Schedule::Held(_) => {
                self.reset();
                self.in_turn(limit)
            }
            Schedule::Random(seed) => {
                self.chance(seed, &[0, 0, 64, 192, 256], &[0, 2, 16, 64, 128]);
                self.reset();
                self.at_random(limit)
            }
            Schedule::Adversarial { seed, changes } => {
                self.chance(!seed, &[0, 0, 0, 128, 256], &[0, 0, 0, 4, 32]);
                self.reset();
                self.by_priority(changes, limit)
            }
        }
    }

    fn chance(&mut self, seed: u64, at_once: &[u32], drain: &[u32]) {
        self.rng = Rng::new(seed);
        self.ways.random = true;
        self.ways.salt = self.rng.next();
        self.ways.at_once = self.rng.one_of(at_once);
        self.ways.drain = self.rng.one_of(drain);
    }

    /// Everyone in turn, as far as they can; proxies and users at once; holds hold.
    fn in_turn(&mut self, limit: u64) -> Ended {
        let mut line: VecDeque<u32> = VecDeque::new();
        let mut ended = Ended { released: false, endless: false };
        loop {
            self.line_up(&mut line);
            let Some(actor) = line.pop_front() else {
                if self.tracker.freed {
                    self.tracker.freed = false;
                    self.drain_freed();
                    continue;
                }
                if !self.tracker.off && self.tracker.holding() {
                    (self.tracker.off, self.tracker.freed) = (true, true);
                    ended.released = true;
                    self.wake(super::machine::Keys::HOLD);
                    continue;
                }
                return ended;
            };
            while self.step(actor) {
                if self.tracker.freed {
                    self.tracker.freed = false;
                    self.drain_freed();
                }
                if self.steps > limit {
                    return Ended { endless: true, ..ended };
                }
                let at_once = self.woken.iter().any(|&woken| self.outside(woken));
                if at_once && !self.outside(actor) {
                    // It goes on when the proxies and users have done what there is to do.
                    line.push_front(actor);
                    break;
                }
            }
            if self.tracker.freed {
                self.tracker.freed = false;
                self.drain_freed();
            }
        }
    }

    /// Lanes that have become ready go to the end, proxies and users to the front.
    fn line_up(&mut self, line: &mut VecDeque<u32>) {
        let mut woken = std::mem::take(&mut self.woken);
        // Whoever is numbered first goes first, however they were woken.
        woken.sort_unstable();
        let lanes = woken.partition_point(|&actor| !self.outside(actor));
        line.extend(&woken[..lanes]);
        for &actor in woken[lanes..].iter().rev() {
            line.push_front(actor);
        }
        woken.clear();
        self.woken = woken;
    }

    /// Every decision by chance. How long turns are is itself drawn for each run.
    fn at_random(&mut self, limit: u64) -> Ended {
        let turn = self.rng.one_of(&[1, 1, 2, 8, 64]);
        let mut ready: Vec<u32> = Vec::new();
        loop {
            ready.append(&mut self.woken);
            if ready.is_empty() || self.steps > limit {
                return Ended { released: false, endless: !ready.is_empty() };
            }
            let at = self.rng.below(ready.len() as u32) as usize;
            let actor = ready[at];
            let mut steps = 1 + self.rng.below(turn);
            loop {
                if self.ways.drain > 0 && self.rng.below(256) < self.ways.drain {
                    self.drain_one();
                }
                if !self.step(actor) {
                    ready.swap_remove(at);
                    break;
                }
                steps -= 1;
                if steps == 0 {
                    break;
                }
            }
        }
    }

    /// The ready one with the highest priority, always; at some steps, it becomes the one with the lowest.
    fn by_priority(&mut self, changes: u32, limit: u64) -> Ended {
        let lanes = self.lanes.len() as u32;
        // By lanes, or by blocks and within them by lanes.
        let whole_blocks = self.rng.below(2) == 0;
        let mut priorities: Vec<u64> = (0..self.status.len() as u32)
            .map(|actor| {
                let own = self.rng.next() >> 34;
                let group = if actor < lanes && whole_blocks { actor / self.width } else { actor };
                let shared = mix(self.ways.salt ^ u64::from(group)) >> 34;
                (if whole_blocks { shared << 30 } else { 0 }) + own + (1 << 32)
            })
            .collect();
        let usual = u32::try_from(self.usual).unwrap_or(u32::MAX).max(1);
        let mut points: Vec<u64> = (0..changes).map(|_| self.rng.below(usual).into()).collect();
        points.sort_unstable_by(|a, b| b.cmp(a));
        let mut lowest = u64::from(changes);
        let mut ready = BinaryHeap::new();
        loop {
            ready.extend(self.woken.drain(..).map(|actor| (priorities[actor as usize], actor)));
            let Some((_, actor)) = ready.pop() else {
                return Ended { released: false, endless: false };
            };
            if self.steps > limit {
                return Ended { released: false, endless: true };
            }
            loop {
                if self.ways.drain > 0 && self.rng.below(256) < self.ways.drain {
                    self.drain_one();
                }
                let goes_on = self.step(actor);
                while points.last().is_some_and(|&point| point <= self.steps) {
                    points.pop();
                    priorities[actor as usize] = lowest;
                    lowest = lowest.saturating_sub(1);
                    if goes_on && self.woken.is_empty() {
                        // Others that wait for their turn come before it now.
                        self.woken.push(actor);
                    }
                }
                if !goes_on {
                    break;
                }
                if !self.woken.is_empty() {
                    if !self.woken.contains(&actor) {
                        self.woken.push(actor);
                    }
                    break;
                }
            }
            debug_assert!(self.status.len() == priorities.len());
        }
    }

    /// Lanes that wait, as actors, block by block.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u32> {
        let waits = |&lane: &u32| self.status[lane as usize] == Status::Waiting;
        (0..self.lanes.len() as u32).filter(waits)
    }
}
