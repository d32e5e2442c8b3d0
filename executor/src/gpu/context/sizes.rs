//! Byte ranges on the device, for the sizes that a context's launches had lately.
//!
//! Memory of sizes that were not asked for lately is written again for others, once no launch and no graph reads it: nothing
//! is allocated or freed for sizes that vary without end.

use crate::gpu::pool::Pool;
use crate::gpu::upload::Upload;
use crate::sync::lock;
use antiphon_hal::{HalError, Memory};
use antiphon_plan::program::CallSizes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Sets of sizes that a context keeps. Launches that are under way, and graphs, may need more.
const MOST: usize = 32;
/// The least bytes of a set: those of others shall fit, too.
const LEAST: u64 = 4096;

/// The byte ranges of one set of sizes, on the device.
pub struct OnDevice {
    /// Holds their tables.
    pub memory: Arc<dyn Memory>,
    /// Where the tables are in it.
    pub places: Places,
    /// The last launch heard from fewer peers than the plan says.
    pub silent: bool,
    /// The last launch that reads them, by its number among those given to the context.
    reader: AtomicU64,
}

/// Where the tables of a set are, in bytes from its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places {
    /// Each block's ranges.
    pub ranges: u64,
    /// Pieces of moves.
    pub moves: u64,
    /// Pieces.
    pub pieces: u64,
    /// Offsets.
    pub offsets: u64,
    /// Iterations of pipelines.
    pub loops: u64,
}

/// What a set is made from.
pub struct Contents<'a> {
    /// The bytes of its tables.
    pub bytes: &'a [u8],
    /// Where the tables are in them.
    pub places: Places,
    /// As in [`OnDevice`].
    pub silent: bool,
}

impl OnDevice {
    /// Notes that a launch reads them. Numbers ascend.
    pub fn note(&self, launch: u64) {
        self.reader.store(launch, Ordering::Release);
    }
}

/// The sets of a context. What was asked for last comes last.
#[derive(Default)]
pub struct Sizes(VecDeque<(CallSizes, Arc<OnDevice>)>);

impl Sizes {
    /// The set of some sizes.
    pub fn find(&mut self, sizes: CallSizes) -> Option<Arc<OnDevice>> {
        let at = self.0.iter().position(|(known, _)| *known == sizes)?;
        let known = self.0.remove(at)?;
        let found = Arc::clone(&known.1);
        self.0.push_back(known);
        Some(found)
    }

    /// Memory of at least `bytes` bytes that can be written again, if as many sets as are kept are there. All launches up to number
    /// `over` have ended. Memory that is of no use any more goes to `outgrown`: the caller frees it once nothing runs.
    fn spare(
        &mut self,
        bytes: u64,
        over: u64,
        outgrown: &mut Vec<Arc<dyn Memory>>,
    ) -> Option<Arc<dyn Memory>> {
        let mut reused = None;
        while self.0.len() >= MOST {
            let Some(unread) = self.take_unread(over) else { break };
            if reused.is_none() && unread.len() >= bytes {
                reused = Some(unread);
            } else {
                outgrown.push(unread);
            }
        }
        reused
    }

    /// Forgets the set that nobody reads and that was not asked for the longest; its memory.
    fn take_unread(&mut self, over: u64) -> Option<Arc<dyn Memory>> {
        // Graphs hold the sets that they read, and so do calls that were found lately.
        let is_unread = |set: &Arc<OnDevice>| {
            Arc::strong_count(set) == 1 && set.reader.load(Ordering::Acquire) <= over
        };
        let at = self.0.iter().position(|(_, set)| is_unread(set))?;
        self.0.remove(at).map(|(_, set)| Arc::clone(&set.memory))
    }
}

/// Makes the set of some sizes that are not known, from its contents. Only one at a time is made; the sets are locked for a moment
/// alone, as what the driver is asked for may wait for kernels. All launches up to `over` have ended; memory of no use any more goes to `outgrown`.
///
/// # Errors
/// What the device reports.
pub fn make(
    sets: &Mutex<Sizes>,
    sizes: CallSizes,
    contents: Contents<'_>,
    (pool, upload): (&Pool, &Upload),
    (over, outgrown): (u64, &mut Vec<Arc<dyn Memory>>),
) -> Result<Arc<OnDevice>, HalError> {
    let Contents { bytes, places, silent } = contents;
    let spare = lock(sets).spare(bytes.len() as u64, over, outgrown);
    let memory = match spare {
        Some(memory) => memory,
        None => pool.take((bytes.len() as u64).next_power_of_two().max(LEAST))?,
    };
    upload.copy(&*memory, bytes)?;
    let reader = AtomicU64::new(0);
    let made = Arc::new(OnDevice { memory, places, silent, reader });
    lock(sets).0.push_back((sizes, Arc::clone(&made)));
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_hal::{Backend, driver};
    use std::collections::HashSet;

    struct Bench {
        pool: Pool,
        upload: Upload,
        sizes: Mutex<Sizes>,
        outgrown: Vec<Arc<dyn Memory>>,
    }

    impl Bench {
        fn new() -> Self {
            let device = driver(Backend::Host).unwrap().open(0).unwrap();
            let (upload, sizes) = (Upload::new(&*device).unwrap(), Mutex::default());
            Bench { pool: Pool::new(&device), upload, sizes, outgrown: Vec::new() }
        }

        fn add(&mut self, input: u64, bytes: usize, over: u64) -> Arc<OnDevice> {
            let sizes = sizes_of(input);
            assert!(lock(&self.sizes).find(sizes).is_none(), "it is not known");
            let whom = (&self.pool, &self.upload);
            let image = vec![input as u8; bytes];
            let contents = Contents { bytes: &image, places: Places::default(), silent: false };
            let made = make(&self.sizes, sizes, contents, whom, (over, &mut self.outgrown));
            made.unwrap()
        }
    }

    fn sizes_of(input: u64) -> CallSizes {
        CallSizes { input, output: 0, element: 1, strict: false }
    }

    fn first(set: &OnDevice) -> u8 {
        // SAFETY: memory of the host, written before; it is as long as the set.
        unsafe { set.memory.address().read() }
    }

    #[test]
    fn memory_of_sizes_that_nobody_reads_is_written_again() {
        let mut bench = Bench::new();
        let mut met = HashSet::new();
        for launch in 1..=10 * MOST as u64 {
            let set = bench.add(launch, 100, launch - 1);
            set.note(launch);
            assert_eq!(first(&set), launch as u8);
            met.insert(set.memory.id());
        }
        assert_eq!(met.len(), MOST);
        assert!(bench.outgrown.is_empty());
    }

    #[test]
    fn what_a_launch_or_a_graph_still_reads_stays() {
        let mut bench = Bench::new();
        let held = bench.add(1, 100, 0);
        let mut running = Vec::new();
        for launch in 2..=3 * MOST as u64 {
            // None of them has ended.
            let set = bench.add(launch, 100, 0);
            set.note(launch);
            running.push((launch, Arc::downgrade(&set)));
        }
        assert_eq!(first(&held), 1);
        for (launch, set) in &running {
            assert_eq!(first(&set.upgrade().unwrap()), *launch as u8);
        }
        // Those of all but the last one may go now, and do.
        bench.add(0, 100, 3 * MOST as u64 - 1);
        assert!(lock(&bench.sizes).0.len() <= MOST);
        let kept = running.iter().filter(|(_, set)| set.strong_count() > 0).count();
        assert_eq!(kept, MOST - 2);
        assert_eq!((first(&held), running.last().unwrap().1.strong_count()), (1, 1));
    }

    #[test]
    fn sets_that_grow_leave_memory_to_be_freed() {
        let mut bench = Bench::new();
        for launch in 1..=MOST as u64 {
            bench.add(launch, 100, launch).note(launch);
        }
        let large = bench.add(0, 3 * LEAST as usize, MOST as u64);
        assert!(large.memory.len() >= 3 * LEAST);
        assert_eq!(bench.outgrown.len(), 1);
    }

    #[test]
    fn what_was_asked_for_lately_is_kept() {
        let mut bench = Bench::new();
        for launch in 1..=MOST as u64 {
            bench.add(launch, 100, launch);
        }
        assert!(lock(&bench.sizes).find(sizes_of(1)).is_some());
        bench.add(0, 100, 0);
        assert!(lock(&bench.sizes).find(sizes_of(1)).is_some());
        assert!(lock(&bench.sizes).find(sizes_of(2)).is_none());
    }
}
