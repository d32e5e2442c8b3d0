//! Launch contexts: the state that launches of one plan on one stream share.
//!
//! Barriers, semaphores, channel counters, scratch and packet flags are private to a context, so several plans, or
//! one plan on several streams, run at once without touching each other. All ranks make the same contexts in the
//! same order, because they make the same launches; where a peer's arena lies, it says in its launch descriptor.

use crate::communicator::Shared;
use crate::error::{ExecutorError, TOO_LARGE};
use crate::host::moves::Pad;
use crate::host::table::Place;
use crate::launch::Active;
use crate::plan_cache::LoadedPlan;
use crate::reach;
use crate::shared::arena::{Arena, ArenaShape};
use crate::shared::control::RegionAt;
use crate::sync::lock;
use antiphon_hal::Memory;
use antiphon_plan::LowerError;
use antiphon_plan::program::{CallSizes, Layout};
use antiphon_plan::recut::Told;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// The smallest size class: calls with up to so many bytes of scratch share a context.
const SMALLEST_CLASS: u64 = 4096;
/// A context's packet flags run out then, and another takes its place.
pub const MOST_LAUNCHES: u64 = (1 << 24) - 1;

/// No process has more addresses.
const ADDRESSED: u64 = 1 << 47;

/// What distinguishes contexts of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContextKey {
    /// Content of the plan.
    pub plan: u64,
    /// Number of the stream, by first use; 0 for blocking calls.
    pub stream: u32,
    /// Calls that need scratch halves of up to this power of two share them.
    pub class: u64,
    /// And only those of these sizes, if one of other sizes might find something of the last one under way in scratch.
    pub sizes: Option<CallSizes>,
}

impl ContextKey {
    /// What calls of a plan on a stream share, by their sizes; `told` says what completed launches tell ranks of other nodes.
    ///
    /// # Errors
    /// Sizes that the plan does not take.
    pub fn new(
        shared: &Shared,
        plan: &LoadedPlan,
        stream: u32,
        sizes: CallSizes,
        told: Told,
    ) -> Result<ContextKey, ExecutorError> {
        let layout = plan.layout();
        let class = ContextKey::class(layout, sizes).map_err(|error| plan.lower_error(&error))?;
        let near = |one, other| shared.one_node || shared.are_near(one, other);
        let alike = plan.has_scratch() && !plan.recut().is_safe(told, near);
        Ok(ContextKey {
            plan: layout.fingerprint,
            stream,
            class,
            sizes: alike.then_some(CallSizes { strict: false, ..sizes }),
        })
    }

    /// A number that stands for the key on all ranks.
    pub fn number(&self) -> u64 {
        let words = [self.plan, self.stream.into(), self.class];
        let sizes =
            self.sizes.map(|CallSizes { input, output, element, .. }| [input, output, element]);
        words.into_iter().chain(sizes.into_iter().flatten()).fold(0, crate::executor::mix)
    }

    /// The size class of a call: by the rank that needs most, so that all ranks find the same.
    fn class(layout: &Layout, sizes: CallSizes) -> Result<u64, LowerError> {
        let mut most = SMALLEST_CLASS;
        for rank in 0..layout.ranks.len() as u32 {
            most = most.max(layout.scratch_bytes(rank, sizes)?);
        }
        Ok(most.checked_next_power_of_two().unwrap_or(u64::MAX))
    }
}

/// A launch context of one rank.
pub struct Context {
    /// The plan.
    pub plan: Arc<LoadedPlan>,
    /// Which calls share it. Every rank has as much scratch as calls of the class may need.
    pub key: ContextKey,
    /// Region number of this rank's arena.
    pub region: u64,
    /// Launches given out, under the communicator's log; [`MOST_LAUNCHES`] for one that takes no more.
    pub given: AtomicU64,
    /// The communicator's number of the last of them, likewise.
    pub last: AtomicU64,
    state: Mutex<ContextState>,
    /// An earlier launch is over.
    turn: Condvar,
}

/// How long a launch waits for its turn before it looks at its surroundings.
const TURN: Duration = Duration::from_millis(1);

/// A peer's region that is kept mapped: its number and the mapping.
pub type Held = (u64, Arc<dyn Memory>);

/// An own buffer that was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownBuffer {
    /// Its address.
    pub address: usize,
    /// Its bytes.
    pub bytes: u64,
    /// The device's, when it was looked up: later the address may be another memory's.
    pub epoch: u64,
    /// Where peers find it; `None` for plain memory.
    pub at: Option<RegionAt>,
}

/// Where a peer's memory is, as transfers over port channels name it.
pub struct Far {
    /// Region of the peer's arena.
    pub arena: u64,
    /// Where in it things are.
    pub shape: ArenaShape,
    /// A launch, and where its input and output are in it.
    pub buffers: Option<(u64, [RegionAt; 2])>,
    /// What this launch has written there.
    pub written: Written,
    /// The link's count of posts after the last one, until it is known to have read its source; otherwise 0.
    pub unread: u64,
}

/// Where a launch's transfers to one peer write: wires keep no order among writes, but a later one to the same bytes must
/// come later.
#[derive(Debug, Default)]
pub struct Written {
    launch: u64,
    ranges: Vec<Range>,
    /// The link's count of posts after the last write whose range is not kept: any write may be to the same bytes.
    rest: Option<u64>,
}

/// Region, first byte, one past the last, and the link's count of posts after it.
type Range = (u64, u64, u64, u64);

/// Ranges that are kept apart; of more, those that meet are joined, and if that is too little all of a region. Of more regions, as
/// launches of a loose plan may have had, the later ones are kept.
const MOST_RANGES: usize = 64;

impl Written {
    /// The count of posts that must have landed before `launch` may write to a range; `None` for none. For a plan that is
    /// `loose`, writes of earlier launches count, too.
    pub fn before(
        &mut self,
        launch: u64,
        loose: bool,
        (region, start, end): (u64, u64, u64),
    ) -> Option<u64> {
        if std::mem::replace(&mut self.launch, launch) != launch && !loose {
            // It has been read, or is over.
            self.ranges.clear();
            self.rest = None;
        }
        let meets = |range: &&Range| range.0 == region && start < range.2 && range.1 < end;
        self.ranges.iter().filter(meets).map(|range| range.3).max().max(self.rest)
    }

    /// Notes a write, after which the link has so many posts.
    pub fn note(&mut self, (region, start, end): (u64, u64, u64), posted: u64) {
        if let Some(last) = self.ranges.last_mut()
            && last.0 == region
            && last.2 == start
        {
            (last.2, last.3) = (end, posted);
            return;
        }
        if self.ranges.len() >= MOST_RANGES {
            // Blocks that take turns write runs of bytes, each of which is one range.
            self.ranges.sort_unstable();
            self.join(|last, next| next.1 <= last.2);
            if self.ranges.len() >= MOST_RANGES {
                self.join(|_, _| true);
            }
            if self.ranges.len() >= MOST_RANGES {
                self.ranges.sort_unstable_by_key(|range| range.3);
                let earlier = self.ranges.drain(..MOST_RANGES / 2);
                self.rest = earlier.map(|range| range.3).max().max(self.rest);
            }
        }
        self.ranges.push((region, start, end, posted));
    }

    /// Joins sorted ranges of one region that `meet`.
    fn join(&mut self, meet: impl Fn(&Range, &Range) -> bool) {
        self.ranges.dedup_by(|next, last| {
            let joined = next.0 == last.0 && meet(last, next);
            if joined {
                (last.2, last.3) = (last.2.max(next.2), last.3.max(next.3));
            }
            joined
        });
    }
}

/// What launches of a context change; one launch at a time.
pub struct ContextState {
    /// The arenas of all ranks, as far as they are known.
    pub arenas: Vec<Option<Arena>>,
    /// What keeps the arenas mapped.
    pub arena_memory: Vec<Option<Arc<dyn Memory>>>,
    /// What is known of the peers that transfers go to.
    pub far: Vec<Option<Far>>,
    /// Where the current launch's buffers are.
    pub places: Vec<[Place; 2]>,
    /// By rank, the last launch, by its number on the communicator, of which it is known that the rank called the same.
    pub agreed: Vec<u64>,
    /// The mapped regions the current or last launch used, by rank and side.
    pub held: Vec<[Option<Held>; 2]>,
    /// `Regions::retired` when `held` was filled.
    pub retired: u64,
    /// Temporary memory of moves.
    pub pad: Pad,
    /// Launches that have begun.
    pub begun: u64,
    /// Threads that wait for their launch's turn.
    pub queued: u32,
    /// The launch that runs.
    pub active: Option<Active>,
    /// What is to be said of a launch that waits, once nobody holds the context.
    pub word: Option<String>,
    /// The communicator is broken, and whoever comes back to a launch that has begun leaves it: the peers are told that this rank
    /// reaches into their memory no more.
    pub ended: bool,
    /// The communicator's numbers of the context's last two launches.
    pub recent: [u64; 2],
    /// The last launch heard from fewer peers than the plan says, for want of bytes.
    pub silent: bool,
    /// The sizes of the last launch.
    pub sizes: Option<CallSizes>,
    /// Own buffers that were looked up.
    pub known: Vec<KnownBuffer>,
    /// Mapped memory that stands in for plain memory.
    pub staging: Option<Arc<dyn Memory>>,
    /// All peers have completed the communicator's launches up to here.
    pub floor: u64,
}

impl Context {
    /// Makes this rank's side of a context, with scratch for every call of the size class.
    pub fn new(
        shared: &Shared,
        plan: Arc<LoadedPlan>,
        key: ContextKey,
    ) -> Result<Self, ExecutorError> {
        let layout = plan.layout();
        let rank = shared.rank as usize;
        // The plan may have been loaded for another communicator.
        reach::prepare(shared, &plan)?;
        // Of all ranks, so that all refuse it alike.
        let shapes = (0..shared.world).map(|rank| shape(layout, rank, key.class));
        let shapes = shapes.collect::<Option<Vec<_>>>();
        let fits = |shapes: &Vec<ArenaShape>| shapes.iter().all(|shape| shape.bytes <= ADDRESSED);
        let Some(shapes) = shapes.filter(fits) else {
            return Err(ExecutorError::Argument {
                what: TOO_LARGE,
                saw: format!("{} bytes for each half", key.class),
                allowed: "what a process can address",
            });
        };
        let shape = shapes[rank];
        let memory = shared.device.allocate(shape.bytes)?;
        // SAFETY: fresh, zeroed, page-aligned memory of `shape.bytes` bytes that the context keeps.
        let arena = unsafe { Arena::initialise(memory.address(), shape, &layout.ranks[rank]) };
        let region = shared.announce(&memory)?;
        let world = shared.world as usize;
        let mut arenas = vec![None; world];
        let mut arena_memory = vec![None; world];
        arenas[rank] = Some(arena);
        arena_memory[rank] = Some(memory);
        let state = ContextState {
            arenas,
            arena_memory,
            far: (0..world).map(|_| None).collect(),
            places: vec![[Place::Unknown; 2]; world],
            agreed: vec![0; world],
            held: (0..world).map(|_| [None, None]).collect(),
            retired: 0,
            pad: Pad::default(),
            begun: 0,
            queued: 0,
            active: None,
            recent: [0; 2],
            word: None,
            ended: false,
            silent: false,
            sizes: None,
            known: Vec::new(),
            staging: None,
            floor: 0,
        };
        Ok(Context {
            plan,
            key,
            region,
            given: AtomicU64::new(0),
            last: AtomicU64::new(0),
            state: Mutex::new(state),
            turn: Condvar::new(),
        })
    }

    /// Where things are in a rank's arena: all ranks make equal contexts.
    pub fn shape_of(&self, rank: u32) -> Option<ArenaShape> {
        shape(self.plan.layout(), rank, self.key.class)
    }

    /// The state, unless somebody works on a launch of this context at this moment.
    pub fn idle_state(&self) -> Option<MutexGuard<'_, ContextState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The state, for the launch that runs.
    pub fn state(&self) -> MutexGuard<'_, ContextState> {
        lock(&self.state)
    }

    /// Waits a while for an earlier launch to end, without holding the state: the lock favours the thread that has just had it,
    /// so the thread that drives that launch might not get it for long.
    pub fn queue(&self, mut state: MutexGuard<'_, ContextState>) {
        state.queued += 1;
        let waited = self.turn.wait_timeout(state, TURN);
        waited.unwrap_or_else(PoisonError::into_inner).0.queued -= 1;
    }

    /// A launch is over: whoever is next may begin.
    pub fn hand_on(&self, state: &ContextState) {
        if state.queued > 0 {
            self.turn.notify_all();
        }
    }
}

/// The shape of a rank's arena, with scratch for whatever a call of the class needs.
fn shape(layout: &Layout, rank: u32, class: u64) -> Option<ArenaShape> {
    let own = &layout.ranks[rank as usize];
    let scratch = if own.scratch_chunks > 0 { class } else { 0 };
    ArenaShape::new(own, scratch, layout.double_scratch, layout.packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_to_bytes_that_the_launch_wrote_waits_for_the_earlier_one() {
        let mut written = Written::default();
        let at = |start, end| (7, start, end);
        assert_eq!(written.before(1, false, at(0, 8)), None);
        written.note(at(0, 8), 1);
        written.note(at(8, 16), 2);
        written.note(at(32, 40), 5);
        for (range, waits) in [
            (at(16, 32), None),
            (at(15, 16), Some(2)),
            (at(0, 1), Some(2)),
            (at(4, 33), Some(5)),
            ((8, 0, 64), None),
        ] {
            assert_eq!(written.before(1, false, range), waits, "{range:?}");
        }
        assert_eq!(written.before(2, true, at(0, 8)), Some(2), "another launch of a loose plan");
        assert_eq!(written.before(3, false, at(0, 8)), None, "another launch");
    }

    #[test]
    fn blocks_that_take_turns_do_not_wait_for_each_other() {
        let mut written = Written::default();
        for step in 0..1000 {
            for block in 0..16 {
                let start = 100_000 * block + 8 * step;
                assert_eq!(
                    written.before(1, false, (0, start, start + 8)),
                    None,
                    "{step} of {block}"
                );
                written.note((0, start, start + 8), 16 * step + block + 1);
            }
        }
    }

    #[test]
    fn of_many_ranges_none_is_forgotten() {
        for regions in [2, 1000] {
            let mut written = Written::default();
            let at = |number: u64, bytes| (number % regions, 16 * number, 16 * number + bytes);
            assert_eq!(written.before(3, false, (0, 0, 1)), None);
            for number in 0..1000 {
                written.note(at(number, 8), number + 1);
                assert!(written.ranges.len() <= MOST_RANGES, "{regions} regions");
            }
            for number in 0..1000 {
                let found = written.before(3, false, at(number, 1));
                assert!(found.is_some_and(|posted| posted > number), "{number}: {found:?}");
            }
            let recent = written.before(3, false, (regions, 0, 8));
            assert!(recent.is_none_or(|posted| posted < 1000), "the last are kept: {recent:?}");
            assert_eq!(written.before(4, false, at(0, 8)), None, "another launch");
        }
    }
}
