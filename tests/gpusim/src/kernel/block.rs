//! A thread block: one fiber a thread, all on one thread of the system, which steps them in turn.

use super::late::Late;
use super::launch::Launch;
use super::switch::{antiphon_gpusim_switch, prepare};
use crate::device::{self, WARP, atomics};
use crate::memory::device_of;
use crate::status::Status;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of a fiber's stack. Only what is used of it is ever memory. All stacks of a block lie side by side.
pub const STACK: usize = 128 << 10;
const CANARY: u64 = 0x51C0_F1BE_5C0D_E000;
/// Barriers that the program numbers; those of warps follow, one a lowest lane of a mask.
const NAMED: usize = 16;

/// Where a thread is, as compiled kernels read it.
#[repr(C)]
pub struct Thread {
    pub thread: [u32; 3],
    pub block: [u32; 3],
    pub block_size: [u32; 3],
    pub grid_size: [u32; 3],
    pub lane: u32,
    pub warp: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Ready,
    /// At a barrier, until its generation is another.
    Waiting(usize, u32),
    Done,
}

struct Fiber {
    thread: Thread,
    stack: *mut u8,
    state: State,
}

#[derive(Clone, Default)]
struct Barrier {
    generation: u32,
    arrived: u32,
    /// Threads that are waited for; 0 stands for all that have not returned.
    wanted: u32,
    lanes: u32,
    votes: [u32; 2],
}

/// A thread block that is resident.
pub struct Block {
    launch: Arc<Launch>,
    fibers: Vec<Fiber>,
    stacks: Stacks,
    scheduler: *mut u8,
    current: usize,
    yielded: bool,
    trapped: bool,
    alive: u32,
    alive_lanes: Vec<u32>,
    barriers: Vec<Barrier>,
    /// Values that the lanes of each warp show each other.
    slots: Vec<[[u64; 2]; WARP as usize]>,
    dynamic: Vec<[u64; 16]>,
    fixed: HashMap<usize, Vec<[u64; 16]>>,
    /// Stores that others see late, if this block's are.
    late: Option<Late>,
}

thread_local! {
    static CURRENT: Cell<*mut Block> = const { Cell::new(std::ptr::null_mut()) };
    static SPARE: RefCell<Vec<Stacks>> = const { RefCell::new(Vec::new()) };
}

/// The stacks of a block's fibers, in one mapping.
struct Stacks {
    base: *mut u8,
    bytes: usize,
}

impl Stacks {
    fn take(count: usize) -> Result<Self, Status> {
        let bytes = count * STACK;
        let spare = SPARE.with_borrow_mut(|spare| {
            let place = spare.iter().position(|stacks| stacks.bytes == bytes)?;
            Some(spare.swap_remove(place))
        });
        if let Some(stacks) = spare {
            return Ok(stacks);
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping at an address of the system's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if base == libc::MAP_FAILED {
            Err(Status::OUT_OF_MEMORY)
        } else {
            Ok(Self { base: base.cast(), bytes })
        }
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no fiber of a block that is gone runs.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// Whether a block's stores are late: by `ANTIPHON_GPUSIM_LATE`, and else those of half the blocks are, now these and now those.
fn late(launch: &Launch, index: u64) -> bool {
    static CHOICE: OnceLock<Option<bool>> = OnceLock::new();
    let chosen = CHOICE.get_or_init(|| match std::env::var("ANTIPHON_GPUSIM_LATE").as_deref() {
        Ok("0") => Some(false),
        Ok("1") => Some(true),
        _ => None,
    });
    // The same for the same launches: whoever hashes so begins with the same keys.
    let mixed = || BuildHasherDefault::<DefaultHasher>::default().hash_one((launch.number, index));
    chosen.unwrap_or_else(|| mixed() % 2 == 0)
}

fn position(size: [u32; 3], linear: u64) -> [u32; 3] {
    let (x, y) = (u64::from(size[0]), u64::from(size[1]));
    [(linear % x) as u32, (linear / x % y) as u32, (linear / (x * y)) as u32]
}

impl Block {
    pub fn new(launch: Arc<Launch>, index: u64) -> Result<Box<Self>, Status> {
        let count = launch.threads();
        let stacks = Stacks::take(count as usize)?;
        let warps = count.div_ceil(WARP);
        let lanes = |warp: u32| u32::MAX >> (WARP - (count - warp * WARP).min(WARP));
        let mut fibers = Vec::with_capacity(count as usize);
        for k in 0..count {
            // SAFETY: the place lies in the mapping, which has `STACK` bytes for each fiber.
            let stack = unsafe {
                let bottom = stacks.base.add(k as usize * STACK);
                bottom.cast::<u64>().write(CANARY);
                prepare(bottom.add(STACK), run)
            };
            let thread = Thread {
                thread: position(launch.block, k.into()),
                block: position(launch.grid, index),
                block_size: launch.block,
                grid_size: launch.grid,
                lane: k % WARP,
                warp: k / WARP,
            };
            fibers.push(Fiber { thread, stack, state: State::Ready });
        }
        Ok(Box::new(Self {
            fibers,
            stacks,
            scheduler: std::ptr::null_mut(),
            current: 0,
            yielded: false,
            trapped: false,
            alive: count,
            alive_lanes: (0..warps).map(lanes).collect(),
            barriers: vec![Barrier::default(); NAMED + (warps * WARP) as usize],
            slots: vec![[[0; 2]; WARP as usize]; warps as usize],
            dynamic: vec![[0; 16]; (launch.shared_bytes as usize).div_ceil(128)],
            fixed: HashMap::new(),
            late: late(&launch, index).then(|| Late::new(count as usize)),
            launch,
        }))
    }

    /// Whether every thread has returned, or one trapped.
    pub fn done(&self) -> bool {
        self.alive == 0 || self.trapped
    }

    /// Gives the stacks back; says how the block ended.
    pub fn finish(mut self: Box<Self>) -> Result<(), Status> {
        for k in 0..self.fibers.len() {
            // SAFETY: the lowest word of the fiber's stack, in the mapping.
            let canary = unsafe { self.stacks.base.add(k * STACK).cast::<u64>().read() };
            if canary != CANARY {
                eprintln!(
                    "antiphon-gpusim: a thread of a kernel needs more than {STACK} bytes of stack"
                );
                std::process::abort();
            }
        }
        let empty = Stacks { base: std::ptr::NonNull::dangling().as_ptr(), bytes: 0 };
        let stacks = std::mem::replace(&mut self.stacks, empty);
        SPARE.with_borrow_mut(|spare| {
            spare.push(stacks);
            if spare.len() > 8 {
                spare.swap_remove(0);
            }
        });
        let how = || device::fault(self.launch.device).unwrap_or(Status::LAUNCH_FAILED);
        if self.trapped { Err(how()) } else { Ok(()) }
    }

    /// Lets every thread that can go on do so until it waits, gives way or returns; says whether any did more than
    /// look and give way.
    pub fn step(&mut self) -> bool {
        if device::fault(self.launch.device).is_some() {
            self.trapped = true;
            return true;
        }
        let block: *mut Self = self;
        let mut progress = false;
        CURRENT.set(block);
        // From here on the block is reached only through this pointer, as the fibers reach it too.
        // SAFETY: the pointer is good for the length of the call; fibers run only inside `switch`, on this very
        // thread of the system, so nobody else holds a reference meanwhile.
        unsafe {
            for k in 0..(*block).fibers.len() {
                let blocked = match (&(*block).fibers)[k].state {
                    State::Done => true,
                    State::Waiting(barrier, generation) => {
                        (&(*block).barriers)[barrier].generation == generation
                    }
                    State::Ready => false,
                };
                if blocked {
                    continue;
                }
                (*block).current = k;
                (*block).yielded = false;
                let load = (&(*block).fibers)[k].stack;
                antiphon_gpusim_switch(&raw mut (*block).scheduler, load);
                progress |= !(*block).yielded;
                if (*block).trapped {
                    break;
                }
            }
        }
        CURRENT.set(std::ptr::null_mut());
        progress
    }

    fn release_after_return(&mut self, warp: u32) {
        let all = self.alive;
        let lanes = self.alive_lanes[warp as usize];
        let first = NAMED + (warp * WARP) as usize;
        for barrier in self.barriers[..NAMED].iter_mut().filter(|barrier| barrier.wanted == 0) {
            barrier.release_at(all);
        }
        for barrier in &mut self.barriers[first..first + WARP as usize] {
            barrier.release_at((barrier.lanes & lanes).count_ones());
        }
    }
}

impl Barrier {
    fn release_at(&mut self, wanted: u32) -> bool {
        let full = self.arrived > 0 && self.arrived >= wanted;
        if full {
            self.arrived = 0;
            self.generation = self.generation.wrapping_add(1);
        }
        full
    }
}

/// Where every fiber begins.
extern "C" fn run() -> ! {
    let block = CURRENT.get();
    // SAFETY: `step` set the pointer, and steps this fiber now; see there.
    unsafe {
        (*block).launch.enter();
        // The same block: a fiber never leaves its thread of the system.
        let k = (*block).current;
        let fiber = &mut (&mut (*block).fibers)[k];
        fiber.state = State::Done;
        let (lane, warp) = (fiber.thread.lane, fiber.thread.warp);
        (*block).alive -= 1;
        (&mut (*block).alive_lanes)[warp as usize] &= !(1 << lane);
        if let Some(late) = &mut (*block).late {
            late.meet(k);
            // What a kernel has stored is there once it is over.
            if (*block).alive == 0 {
                late.release(k);
            }
        }
        (*block).release_after_return(warp);
    }
    leave();
    // A fiber that has returned is never stepped again.
    std::process::abort()
}

/// Back to the scheduler, until it steps this fiber again.
fn leave() {
    let block = CURRENT.get();
    // SAFETY: called from a fiber, so `step` of its block waits in `switch`; see there.
    unsafe {
        let k = (*block).current;
        let save = &raw mut (&mut (*block).fibers)[k].stack;
        antiphon_gpusim_switch(save, (*block).scheduler);
    }
}

/// The device that the calling thread runs on.
pub fn device() -> usize {
    // SAFETY: as in `leave`; a block's launch stays.
    let launch = unsafe { &(*CURRENT.get()).launch };
    launch.device
}

/// Lets the other threads go on.
pub fn give_way() {
    // SAFETY: as in `leave`.
    unsafe { (*CURRENT.get()).yielded = true };
    leave();
}

/// Where the calling thread is.
pub fn thread() -> *const Thread {
    let block = CURRENT.get();
    // SAFETY: as in `leave`; the fibers' list does not move while the block is resident.
    unsafe { &raw const (&(*block).fibers)[(*block).current].thread }
}

/// Waits at a barrier for `wanted` threads, 0 for all of the block; answers how many gave a predicate.
pub fn meet(barrier: u32, wanted: u32, predicate: bool) -> u32 {
    show();
    let block = CURRENT.get();
    let index = barrier as usize % NAMED;
    // SAFETY: as in `leave`; no reference lives across the wait.
    let votes = unsafe {
        let place = &mut (&mut (*block).barriers)[index];
        place.wanted = wanted;
        arrive(place, predicate, if wanted == 0 { (*block).alive } else { wanted })
    };
    wait(index, votes)
}

/// Waits for the lanes of `mask` in the calling thread's warp.
pub fn meet_warp(mask: u32) {
    show();
    let block = CURRENT.get();
    // SAFETY: as in `meet`.
    let (index, votes) = unsafe {
        let warp = (*thread()).warp;
        let index = NAMED + (warp * WARP + mask.trailing_zeros().min(WARP - 1)) as usize;
        let lanes = mask & (&(*block).alive_lanes)[warp as usize];
        let place = &mut (&mut (*block).barriers)[index];
        place.lanes = mask;
        (index, arrive(place, false, lanes.count_ones()))
    };
    wait(index, votes);
}

/// Notes an arrival; answers the generation to wait out, if that was not the last one.
fn arrive(barrier: &mut Barrier, predicate: bool, wanted: u32) -> (u32, bool) {
    let generation = barrier.generation;
    let votes = &mut barrier.votes[generation as usize & 1];
    if barrier.arrived == 0 {
        *votes = 0;
    }
    *votes += u32::from(predicate);
    barrier.arrived += 1;
    (generation, barrier.release_at(wanted))
}

/// Shows whoever meets the calling thread what it has stored.
fn show() {
    let block = CURRENT.get();
    // SAFETY: as in `leave`.
    unsafe {
        if let Some(late) = &mut (*block).late {
            late.meet((*block).current);
        }
    }
}

fn wait(index: usize, (generation, released): (u32, bool)) -> u32 {
    let block = CURRENT.get();
    if !released {
        // SAFETY: as in `leave`.
        unsafe {
            (&mut (*block).fibers)[(*block).current].state = State::Waiting(index, generation)
        };
        leave();
        // SAFETY: as in `leave`; `current` is this fiber again.
        unsafe { (&mut (*block).fibers)[(*block).current].state = State::Ready };
    }
    // SAFETY: as in `leave`.
    unsafe { (&(*block).barriers)[index].votes[generation as usize & 1] }
}

/// The places by which the lanes of the calling thread's warp show each other values.
pub fn slots() -> *mut [u64; 2] {
    let block = CURRENT.get();
    // SAFETY: as in `leave`; the list does not move while the block is resident.
    unsafe { (&mut (*block).slots)[(*thread()).warp as usize].as_mut_ptr() }
}

/// Shared memory: of a declaration, or, with a null tag, what the launch asked for.
pub fn shared(tag: *const c_void, bytes: usize) -> *mut c_void {
    let block = CURRENT.get();
    // SAFETY: as in `leave`; memory once given for a tag does not move.
    unsafe {
        if tag.is_null() {
            let dynamic = &mut (*block).dynamic;
            return dynamic.as_mut_ptr().cast();
        }
        let fresh = || vec![[0; 16]; bytes.div_ceil(128)];
        let fixed = &mut (*block).fixed;
        fixed.entry(tag as usize).or_insert_with(fresh).as_mut_ptr().cast()
    }
}

/// Reads what the calling thread finds at `from`.
pub fn load(from: *const u8, to: *mut u8, bytes: usize) {
    let block = CURRENT.get();
    // SAFETY: the kernel's own load, into a value of its own; the rest as in `leave`.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, bytes);
        if let Some(late) = &(*block).late {
            let to = std::slice::from_raw_parts_mut(to, bytes);
            late.load((*block).current, from.addr(), to);
        }
    }
}

/// Stores what is at `from`, a value of the calling thread's own, at `to`: late, if the block's stores are.
pub fn store(to: *mut u8, from: *const u8, bytes: usize) {
    let block = CURRENT.get();
    // SAFETY: as in `load`.
    unsafe {
        match &mut (*block).late {
            Some(late) => {
                // A store to where nothing is faults here, not at some release.
                to.read_volatile();
                let from = std::slice::from_raw_parts(from, bytes);
                late.store((*block).current, to.expose_provenance(), from);
            }
            None => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

/// What the calling thread has stored, and what it has met others behind, all see from here on.
pub fn release() {
    let block = CURRENT.get();
    // SAFETY: as in `leave`; `store` has read where its bytes go.
    unsafe {
        if let Some(late) = &mut (*block).late {
            late.release((*block).current);
        }
    }
}

/// Adds to a word that is aligned: to another device's where there are no atomic operations among devices, the sum is stored a while
/// after the word was read.
pub fn add(to: *mut u64, value: u64) {
    let apart = || device_of(to.addr() as u64).is_some_and(|owner| owner != device());
    // SAFETY: the kernel's own word, which other threads change by atomic operations alone.
    let word = unsafe { AtomicU64::from_ptr(to) };
    if atomics() || !apart() {
        word.fetch_add(value, Ordering::AcqRel);
        return;
    }
    let seen = word.load(Ordering::Acquire);
    give_way();
    word.store(seen.wrapping_add(value), Ordering::Release);
}

/// Ends the block, and with it the launch, as failed.
pub fn trap() {
    // SAFETY: as in `leave`.
    unsafe { (*CURRENT.get()).trapped = true };
    leave();
}
