//! The threads of the system that step resident blocks.
//!
//! A block becomes resident when its device has room, as on a GPU: a cooperative launch only with all its blocks at
//! once, others block by block. Resident blocks all make progress, however long any of them spins. Of the launches that
//! want to be alone, a device runs one at a time, in the order in which they came.

use super::block::Block;
use super::launch::Launch;
use crate::abi::Answer;
use crate::device::{MULTIPROCESSORS, RESIDENT_THREADS};
use crate::status::Status;
use crate::table::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// What a device has room for; a block takes its share of it.
const ROOM: u32 = MULTIPROCESSORS * RESIDENT_THREADS;

/// Rounds without progress after which a thread sleeps between rounds, so that others get the core.
const PATIENCE: u32 = 2000;

struct Running {
    launch: Arc<Launch>,
    share: u32,
    next: u64,
    reserved: bool,
    end: Arc<End>,
}

/// How a launch's blocks ended.
struct End {
    left: Mutex<(u64, Option<Status>)>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    launches: VecDeque<Running>,
    used: [u32; 8],
    /// Blocks that are left of the launch that wants to be alone.
    alone: [u64; 8],
}

/// A block in the hands of a thread.
struct Resident {
    block: Box<Block>,
    launch: Arc<Launch>,
    share: u32,
    end: Arc<End>,
}

static WAITING: Mutex<Waiting> =
    Mutex::new(Waiting { launches: VecDeque::new(), used: [0; 8], alone: [0; 8] });
static ADDED: Condvar = Condvar::new();

/// Runs a launch to its end.
pub fn run(launch: &Arc<Launch>) -> Answer {
    start();
    let end = Arc::new(End { left: Mutex::new((launch.blocks(), None)), changed: Condvar::new() });
    let share = RESIDENT_THREADS / launch.per_multiprocessor().max(1);
    let running =
        Running { launch: launch.clone(), share, next: 0, reserved: false, end: end.clone() };
    lock(&WAITING).launches.push_back(running);
    ADDED.notify_all();
    let left = end.changed.wait_while(lock(&end.left), |left| left.0 > 0);
    let failed = left.unwrap_or_else(PoisonError::into_inner).1;
    failed.map_or(Ok(()), Err)
}

/// Starts the threads, once.
fn start() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let count = thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
        for _ in 0..count {
            // With no thread at all a launch never ends; the first failure of a system so short of means is loud.
            let named = thread::Builder::new().name("gpusim-blocks".into());
            named.spawn(work).expect("the system starts a thread");
        }
    });
}

impl Waiting {
    /// The next block that its device has room for.
    fn take(&mut self) -> Option<(Arc<Launch>, u64, u32, Arc<End>)> {
        for place in 0..self.launches.len() {
            let running = &mut self.launches[place];
            let alone = &mut self.alone[running.launch.device];
            if running.launch.alone && !running.reserved && *alone > 0 {
                continue;
            }
            let used = &mut self.used[running.launch.device];
            let wanted = match (running.launch.cooperative, running.reserved) {
                (true, true) => 0,
                (true, false) => running.share * running.launch.blocks() as u32,
                (false, _) => running.share,
            };
            if *used + wanted > ROOM {
                continue;
            }
            *used += wanted;
            if running.launch.alone && !running.reserved {
                *alone = running.launch.blocks();
            }
            running.reserved = true;
            let taken = (running.launch.clone(), running.next, running.share, running.end.clone());
            running.next += 1;
            if running.next == running.launch.blocks() {
                self.launches.remove(place);
            }
            return Some(taken);
        }
        None
    }
}

/// A block to step; waits for one only if the thread has no other.
fn next(idle: bool) -> Option<Resident> {
    let mut waiting = lock(&WAITING);
    loop {
        if let Some((launch, index, share, end)) = waiting.take() {
            drop(waiting);
            match Block::new(launch.clone(), index) {
                Ok(block) => return Some(Resident { block, launch, share, end }),
                Err(status) => {
                    account(&launch, share, &end, Err(status));
                    return None;
                }
            }
        }
        if !idle {
            return None;
        }
        waiting = ADDED.wait(waiting).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Notes the end of a block.
fn account(launch: &Launch, share: u32, end: &End, how: Answer) {
    let mut waiting = lock(&WAITING);
    waiting.used[launch.device] -= share;
    waiting.alone[launch.device] -= u64::from(launch.alone);
    drop(waiting);
    ADDED.notify_all();
    let mut left = lock(&end.left);
    left.0 -= 1;
    left.1 = left.1.or(how.err());
    end.changed.notify_all();
}

/// What each thread does.
fn work() {
    let mut residents: Vec<Resident> = Vec::new();
    let mut rounds_without = 0_u32;
    loop {
        residents.extend(next(residents.is_empty()));
        let mut progress = false;
        let mut place = 0;
        while place < residents.len() {
            progress |= residents[place].block.step();
            if residents[place].block.done() {
                let Resident { block, launch, share, end } = residents.swap_remove(place);
                account(&launch, share, &end, block.finish());
            } else {
                place += 1;
            }
        }
        rounds_without = if progress { 0 } else { rounds_without.saturating_add(1) };
        if rounds_without > PATIENCE {
            thread::sleep(Duration::from_micros(50));
        } else if !progress {
            thread::yield_now();
        }
    }
}
