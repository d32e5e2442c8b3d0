//! The control block: one shared mapping with the harness's barrier and the times of every rank.
//!
//! The driver makes it, in memory that has no name in any file system; the ranks, of whatever library and language, open
//! it through `/proc/<driver>/fd/<n>`. bench/harness.c has the same layout.

use std::ffi::c_void;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::{Error, Result};

const MAGIC: u32 = 0x424e_4341;
/// Raised with every change of the layout, here and in harness.c.
const VERSION: u32 = 1;
const SAMPLES: usize = 4096;
const SERIES: usize = 2;

#[repr(C, align(64))]
struct Line<T>(T);

#[repr(C)]
struct Header {
    identity: Line<Identity>,
    arrived: Line<AtomicU32>,
    turn: Line<Turn>,
    iterations: Line<AtomicU32>,
}

#[repr(C)]
struct Identity {
    magic: AtomicU32,
    version: AtomicU32,
    participants: AtomicU32,
    capacity: AtomicU32,
}

#[repr(C)]
struct Turn {
    generation: AtomicU32,
    failed: AtomicU32,
}

const _: () = assert!(offset_of!(Header, arrived) == 64);
const _: () = assert!(offset_of!(Header, turn) == 128);
const _: () = assert!(offset_of!(Header, iterations) == 192);
const _: () = assert!(size_of::<Header>() <= SAMPLES);

/// Which clock reading a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    /// The collective alone.
    Collective = 0,
    /// The collective and the reading of its output.
    WithRead = 1,
}

/// A mapping of the control block, the driver's or a rank's.
pub struct Control {
    base: NonNull<u8>,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: the mapping is reached through atomics alone, lives as long as the value, and `base` is never handed out.
unsafe impl Send for Control {}
// SAFETY: as above; every method takes `&self` and only uses atomics.
unsafe impl Sync for Control {}

impl Control {
    /// A new block for `participants` ranks (processes, to be exact) of up to `capacity` timed iterations.
    pub fn create(participants: usize, capacity: usize) -> Result<Self> {
        let what = "make the control block";
        let file = rustix::fs::memfd_create("antiphon-bench", MemfdFlags::CLOEXEC)
            .map_err(|e| Error::io(what)(e.into()))?;
        let bytes = SAMPLES + SERIES * participants * capacity * size_of::<u64>();
        rustix::fs::ftruncate(&file, bytes as u64).map_err(|e| Error::io(what)(e.into()))?;
        let control = Self::map(file, bytes)?;
        let identity = &control.header().identity.0;
        let narrow = |n: usize| {
            u32::try_from(n).map_err(|_| Error::message(format!("cannot {what}: {n} is too many")))
        };
        identity.participants.store(narrow(participants)?, Ordering::Relaxed);
        identity.capacity.store(narrow(capacity)?, Ordering::Relaxed);
        identity.version.store(VERSION, Ordering::Relaxed);
        identity.magic.store(MAGIC, Ordering::Release);
        Ok(control)
    }

    /// Maps the block that the driver published as `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let what = || format!("open the control block {}", path.display());
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| Error::io(what())(e.into()))?;
        let size = rustix::fs::fstat(&file).map_err(|e| Error::io(what())(e.into()))?.st_size;
        let bytes = usize::try_from(size).unwrap_or(0);
        if bytes < SAMPLES {
            return Err(Error::message(format!("cannot {}: saw {bytes} bytes", what())));
        }
        let control = Self::map(file, bytes)?;
        let identity = &control.header().identity.0;
        let saw =
            (identity.magic.load(Ordering::Acquire), identity.version.load(Ordering::Relaxed));
        let needed =
            SAMPLES + SERIES * control.participants() * control.capacity() * size_of::<u64>();
        if saw != (MAGIC, VERSION) || bytes < needed {
            return Err(Error::message(format!(
                "cannot {}: saw magic {:x}, version {}, {bytes} bytes; allowed {MAGIC:x}, {VERSION}, {needed}",
                what(),
                saw.0,
                saw.1
            )));
        }
        Ok(control)
    }

    fn map(file: OwnedFd, bytes: usize) -> Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel picks overlaps nothing; `file` has `bytes` bytes and no one shrinks it.
        let base =
            unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, &file, 0) }
                .map_err(|e| Error::io("map the control block")(e.into()))?;
        let base = NonNull::new(base.cast())
            .ok_or_else(|| Error::message("cannot map the control block: saw address 0"))?;
        Ok(Self { base, bytes, file })
    }

    /// The path under which other processes of this user can open the block while this one lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is page-aligned, at least SAMPLES bytes long, and Header is made of atomics, valid for any bits.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    /// How many processes meet in the barrier.
    pub fn participants(&self) -> usize {
        self.header().identity.0.participants.load(Ordering::Relaxed) as usize
    }

    /// How many samples a series of one participant can hold.
    pub fn capacity(&self) -> usize {
        self.header().identity.0.capacity.load(Ordering::Relaxed) as usize
    }

    /// How many iterations rank 0 decided on, for all to see after the next barrier.
    pub fn iterations(&self) -> &AtomicU32 {
        &self.header().iterations.0
    }

    /// Tells every participant to give up; they do at their next barrier.
    pub fn fail(&self) {
        self.header().turn.0.failed.store(1, Ordering::Release);
    }

    /// The samples, in nanoseconds, of one participant.
    pub fn samples(&self, series: Series, participant: usize) -> &[AtomicU64] {
        let (participants, capacity) = (self.participants(), self.capacity());
        let first = (series as usize * participants + participant) * capacity;
        let end = SAMPLES + (first + capacity) * size_of::<u64>();
        assert!(
            participant < participants && end <= self.bytes,
            "participant {participant} is not one of {participants}"
        );
        // SAFETY: the range was just checked to lie in the mapping, SAMPLES is a multiple of 8, and AtomicU64 is valid for any bits.
        unsafe {
            let at = self.base.as_ptr().add(SAMPLES).cast::<AtomicU64>().add(first);
            std::slice::from_raw_parts(at, capacity)
        }
    }

    /// Waits until every participant is here; `yields` gives the core away meanwhile.
    ///
    /// Fails when someone called [`Control::fail`].
    pub fn barrier(&self, yields: bool) -> Result<()> {
        let Header { arrived: Line(arrived), turn: Line(turn), .. } = self.header();
        let generation = turn.generation.load(Ordering::Acquire);
        if arrived.fetch_add(1, Ordering::AcqRel) as usize + 1 == self.participants() {
            arrived.store(0, Ordering::Relaxed);
            turn.generation.store(generation.wrapping_add(1), Ordering::Release);
            return Ok(());
        }
        while turn.generation.load(Ordering::Acquire) == generation {
            if turn.failed.load(Ordering::Relaxed) != 0 {
                return Err(Error::message("cannot go on: another rank gave up"));
            }
            if yields {
                rustix::thread::sched_yield();
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: base and bytes are those of our own mapping, and every reference into it borrowed from self.
        // A failure would leave the mapping until the process ends, which harms no one.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_mapping_sees_the_first_ones_samples() {
        let made = Control::create(2, 8).expect("memfd");
        let opened = Control::open(&made.path()).expect("own /proc entry");
        made.samples(Series::WithRead, 1)[7].store(42, Ordering::Relaxed);
        assert_eq!(opened.samples(Series::WithRead, 1)[7].load(Ordering::Relaxed), 42);
        assert_eq!(opened.samples(Series::Collective, 1)[7].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let error = Control::open(Path::new(env!("CARGO_MANIFEST_PATH"))).err().expect("refused");
        assert!(error.to_string().starts_with("cannot open the control block"), "{error}");
    }

    #[test]
    fn nobody_passes_the_barrier_before_the_last() {
        let control = Control::create(3, 1).expect("memfd");
        let arrivals = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=200 {
                        arrivals.fetch_add(1, Ordering::Relaxed);
                        control.barrier(true).expect("nobody fails");
                        assert!(arrivals.load(Ordering::Relaxed) >= 3 * round);
                    }
                });
            }
        });
    }

    #[test]
    fn a_failed_participant_frees_the_others() {
        let control = Control::create(2, 1).expect("memfd");
        control.fail();
        assert!(control.barrier(true).is_err());
    }
}
