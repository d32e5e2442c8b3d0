//! Launch contexts: the state that launches of one plan on one stream share.
//!
//! Barriers, semaphores, channel counters, scratch and packet flags are private to a context, so several plans, or
//! one plan on several streams, run at once without touching each other. All ranks make the same contexts in the
//! same order, because they make the same launches; where a peer's arena lies, it says in its launch descriptor.

use crate::communicator::Shared;
use crate::error::ExecutorError;
use crate::host::moves::Pad;
use crate::host::table::Place;
use crate::launch::Active;
use crate::plan_cache::LoadedPlan;
use crate::shared::arena::{Arena, ArenaShape};
use antiphon_hal::Memory;
use antiphon_plan::LowerError;
use antiphon_plan::program::{CallSizes, Layout, RankLayout};
use antiphon_transport::ChannelKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// The smallest size class: calls with up to so many bytes of scratch share a context.
const SMALLEST_CLASS: u64 = 4096;
/// A context ends when its packet flags run out.
pub const LAUNCHES_PER_EPOCH: u64 = (1 << 24) - 1;

/// What distinguishes contexts of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContextKey {
    /// Content of the plan.
    pub plan: u64,
    /// Number of the stream, by first use; 0 for blocking calls.
    pub stream: u32,
    /// Calls that need scratch halves of up to this power of two share them.
    pub class: u64,
    /// How often the flags of this context ran out.
    pub epoch: u64,
}

impl ContextKey {
    /// The size class of a call: by the rank that needs most, so that all ranks find the same.
    pub fn class(layout: &Layout, sizes: CallSizes) -> Result<u64, LowerError> {
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
    /// Region number of this rank's arena.
    pub region: u64,
    /// Launches given out, under the communicator's log.
    pub given: std::sync::atomic::AtomicU64,
    state: Mutex<ContextState>,
}

/// A peer's region that is kept mapped: its number and the mapping.
pub type Held = (u64, Arc<dyn Memory>);

/// What launches of a context change; one launch at a time.
pub struct ContextState {
    /// The arenas of all ranks, as far as they are known.
    pub arenas: Vec<Option<Arena>>,
    /// What keeps the arenas mapped.
    pub arena_memory: Vec<Option<Arc<dyn Memory>>>,
    /// Where the current launch's buffers are.
    pub places: Vec<[Place; 2]>,
    /// The mapped regions the current or last launch used, by rank and side.
    pub held: Vec<[Option<Held>; 2]>,
    /// `Regions::retired` when `held` was filled.
    pub retired: u64,
    /// Temporary memory of moves.
    pub pad: Pad,
    /// Launches that have begun.
    pub begun: u64,
    /// The launch that runs.
    pub active: Option<Active>,
    /// The communicator's numbers of the context's last two launches.
    pub recent: [u64; 2],
    /// The last launch heard from fewer peers than the plan says, for want of bytes.
    pub silent: bool,
    /// The sizes of the last launch.
    pub sizes: Option<CallSizes>,
    /// Own buffers that were looked up: address, bytes, epoch of the device, region, offset.
    pub known: Vec<(usize, u64, u64, u64, u64)>,
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
        reachable(shared, &layout.ranks[rank])?;
        // Whatever a call of the class needs, on any rank.
        let scratch = if layout.ranks[rank].scratch_chunks > 0 { key.class } else { 0 };
        let shape =
            ArenaShape::new(&layout.ranks[rank], scratch, layout.double_scratch, layout.packets);
        let Some(shape) = shape else {
            return Err(ExecutorError::Argument {
                what: "allocate scratch",
                saw: format!("{scratch} bytes for each half"),
                allowed: "sizes that fit 64 bits",
            });
        };
        let memory = shared.device.allocate(shape.bytes)?;
        // SAFETY: fresh, zeroed, page-aligned memory of `shape.bytes` bytes that the context keeps.
        let arena = unsafe { Arena::initialise(memory.address(), shape, &layout.ranks[rank]) };
        let region = shared.regions.announce(&memory, &*shared.bootstrap)?;
        let world = shared.world as usize;
        let mut arenas = vec![None; world];
        let mut arena_memory = vec![None; world];
        arenas[rank] = Some(arena);
        arena_memory[rank] = Some(memory);
        let state = ContextState {
            arenas,
            arena_memory,
            places: vec![[Place::Unknown; 2]; world],
            held: (0..world).map(|_| [None, None]).collect(),
            retired: 0,
            pad: Pad::default(),
            begun: 0,
            active: None,
            recent: [0; 2],
            silent: false,
            sizes: None,
            known: Vec::new(),
            staging: None,
            floor: 0,
        };
        Ok(Context {
            plan,
            region,
            given: std::sync::atomic::AtomicU64::new(0),
            state: Mutex::new(state),
        })
    }

    /// Whether nobody works on a launch of this context at this moment.
    pub fn is_idle(&self) -> bool {
        !matches!(self.state.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// The state, for the launch that runs.
    pub fn state(&self) -> MutexGuard<'_, ContextState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether some transport serves every channel of a rank.
fn reachable(shared: &Shared, layout: &RankLayout) -> Result<(), ExecutorError> {
    let far = layout.buffer_peers.iter().chain(&layout.scratch_peers);
    let members = layout.switches.iter().flat_map(|switch| &switch.members);
    let memory = far.map(|&peer| (ChannelKind::Memory, peer));
    for (kind, peer) in memory.chain(members.map(|&peer| (ChannelKind::Switch, peer))) {
        if peer != shared.rank {
            shared.registry.pick(kind, &shared.peers[peer as usize])?;
        }
    }
    Ok(())
}
