//! The GPU engine: plans as kernels, launched in stream order.
//!
//! ```text
//! Executor::execute --> context (arena, tables, counters on the device) --> one kernel per rank and launch
//! ```
//!
//! A launch is one kernel on the caller's stream, and nothing of it waits on the host. What host engines do between
//! launches, the kernel does when it begins and ends: it counts launches, tells peers where its buffers are, and waits for
//! those that may still use what it overwrites (`executor/codegen/src/device/launch.h`). So a launch can be captured into a
//! graph, and replays count like launches.
//!
//! The host prepares: it maps what peers tell about ([`tables`]), compiles ([`kernels`]), uploads byte ranges once for each
//! size ([`context`]), and watches for launches that no longer move ([`watch`]). Ranks of other nodes take part through port
//! channels ([`far`]).

mod buffers;
mod calls;
mod coded_calls;
mod compiled;
mod context;
mod far;
mod finish;
mod groups;
mod kernels;
mod lane;
mod local;
mod lost;
mod merged;
pub mod neighbours;
mod pool;
mod proxy;
mod reaper;
mod scaling;
mod shape;
mod slots;
mod submission;
mod tables;
mod tender;
mod underway;
mod upload;
mod watch;
mod words;

use crate::communicator::{KernelForm, Options, Shared};
use crate::context::ContextKey;
use crate::error::ExecutorError;
use crate::executor::{Call, alike};
use crate::plan_cache::LoadedPlan;
use crate::shared::control::CallType;
use crate::sync::lock;
use crate::tags::{ARENA, FAR_ARENA, GROUP, NUMBER, PARCELS};
use antiphon_hal::{Device, HalError, Memory, Stream};
use antiphon_plan::program::CallSizes;
use antiphon_plan::recut::Told;
use buffers::Borrowed;
pub use coded_calls::CodedCallCheck;
use compiled::{Compiled, KernelKind};
use context::{Closer, Context, OnDevice};
use far::LinkMemory;
use lane::OneLane;
use local::Family;
use lost::Asker;
use merged::Merged;
pub use merged::{Member, launch_together};
use pool::Pool;
use proxy::Proxy;
use reaper::Reaper;
pub use scaling::Products;
use scaling::Scales;
use slots::Slots;
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use submission::Shape;
use tables::Tables;
use tender::Tender;
use underway::Underway;
pub use upload::Upload;
use watch::Watch;
use words::Words;

/// What the ranks' control threads need: the peers' memory, and the word that ends launches.
#[derive(Debug)]
pub struct Peers {
    /// What devices know of peers' memory.
    pub tables: Tables,
    /// Launches that run, and those that begin later, end once this word is not 0.
    stop_word: Words,
    /// Wakes the thread that watches launches.
    bell: Arc<watch::Bell>,
    /// For each rank that sends over a wire, the region of the parcels that it takes.
    parcels: Mutex<HashMap<u32, u64>>,
    /// What peers say about multicast groups.
    mail: groups::Mail,
}

impl Peers {
    /// Nothing known of `world` ranks.
    pub fn new(device: &Arc<dyn Device>, world: u32) -> Result<Self, HalError> {
        let (tables, stop_word) = (Tables::new(device, world)?, Words::new(&**device, 8)?);
        let (bell, parcels, mail) = (Arc::default(), Mutex::default(), groups::Mail::default());
        Ok(Peers { tables, stop_word, bell, parcels, mail })
    }

    /// Whether a message with this tag is about devices.
    pub fn takes(tag: u32) -> bool {
        matches!(tag, NUMBER | ARENA | FAR_ARENA | PARCELS | GROUP)
    }

    /// Handles a peer's message; `mapped` finds its regions, but those that were gone before they were mapped.
    pub fn receive(
        &self,
        peer: u32,
        tag: u32,
        (payload, descriptors): (&[u8], Vec<OwnedFd>),
        mapped: impl Fn(u64) -> Result<Option<Arc<dyn Memory>>, String>,
    ) -> Result<(), String> {
        if tag == GROUP {
            return self.mail.receive(peer, payload, descriptors);
        }
        let words = payload.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let words: Vec<u64> = words.collect();
        if let (FAR_ARENA, &[context, address, bytes]) = (tag, &*words) {
            return self.tables.far_arena(peer, context, (address, bytes));
        }
        let &[first, second] = &*words else {
            return Err(format!("a message of {} bytes", payload.len()));
        };
        match tag {
            NUMBER => match mapped(second)? {
                Some(memory) => self.tables.map(peer, first, memory),
                None => self.tables.miss(peer, first),
            },
            ARENA => self.tables.arena(peer, first, second),
            PARCELS if second == proxy::PARCELS_BYTES => {
                self.all_parcels().insert(peer, first);
                Ok(())
            }
            PARCELS => Err(format!("{second} bytes of parcels")),
            other => Err(format!("a message with tag {other}")),
        }
    }

    /// The region of a peer's parcels, once it has told of it.
    pub fn parcels(&self, peer: u32) -> Option<u64> {
        self.all_parcels().get(&peer).copied()
    }

    fn all_parcels(&self) -> MutexGuard<'_, HashMap<u32, u64>> {
        lock(&self.parcels)
    }

    /// Ends the launches that run, and those that begin later.
    pub fn stop(&self) {
        self.stop_word.first().store(1, Ordering::Release);
        self.bell.ring();
    }

    /// Whether the rank may have made a launch: then the thread that watches launches knows when none runs.
    pub fn is_watched(&self) -> bool {
        self.bell.is_watched()
    }
}

/// The engine of one rank of a communicator.
pub struct Gpu {
    device: Arc<dyn Device>,
    pool: Pool,
    peers: Arc<Peers>,
    block_threads: Option<u32>,
    kernels: KernelForm,
    upload: Arc<Upload>,
    slots: Arc<Mutex<Slots>>,
    groups: Mutex<groups::Groups>,
    /// Memory of the application, kept under the number by which peers know it; what was used last comes last.
    borrowed: Mutex<VecDeque<Borrowed>>,
    /// Staging that has become too small, which launches may still use.
    outgrown: Mutex<Vec<Arc<dyn Memory>>>,
    /// For premultiplied sums.
    scales: Mutex<Scales>,
    /// What graphs use, where the driver does not tell when they go.
    recorded: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    /// Held by graphs as long as they, or replays of them, are there.
    graphs: Arc<()>,
    /// All that there are. Never held over a call of the driver: who ends launches looks here.
    contexts: Mutex<HashMap<ContextKey, Arc<Context>>>,
    /// Where all launches follow each other, whatever their streams.
    lane: Option<OneLane>,
    /// Kernels of several ranks of this process, of which this is the lowest.
    merged: Mutex<Merged>,
    /// Held while such a kernel is made.
    merging: Mutex<()>,
    /// The ranks of this process that share the device.
    family: Arc<Family>,
    /// Calls that were made lately. Never held over a call of the driver.
    recent: Mutex<RecentCalls>,
    watch: OnceLock<Watch>,
    /// Held while that is started, beside which nothing else happens: launches wait for nothing that a driver may hold up.
    watching: Mutex<()>,
    /// Asks what became of launches that do not end.
    asker: Asker,
    /// Closes contexts after a failure.
    closer: Closer,
    tender: Tender,
    /// Frees what nobody uses any more.
    reaper: Reaper,
    /// Launches of all ranks of the process.
    underway: Arc<Underway>,
    /// Serves port channels, once a plan has some.
    proxy: OnceLock<Proxy>,
    /// Memory of links over wires that are not made yet.
    link_memory: LinkMemory,
    /// For calls without a stream.
    stream: OnceLock<Arc<dyn Stream>>,
    /// For what the application copies, which may be long: the engine's tables wait for none of it.
    copies: OnceLock<Arc<Upload>>,
}

#[derive(Default)]
struct RecentCalls(Vec<Arc<Recent>>);

/// A call's context, found once.
struct Recent {
    /// Keeps the address in `shape` from being another plan's.
    plan: Arc<LoadedPlan>,
    shape: Shape,
    /// The ranks that are one kernel; none of a call that is launched alone.
    ranks: Vec<u32>,
    context: Arc<Context>,
    compiled: Arc<Compiled>,
    tables: Arc<OnDevice>,
    fingerprint: u64,
}

/// What stands for all that a call needs which is made once.
#[derive(Clone, Copy)]
struct Demand<'a> {
    plan: &'a Arc<LoadedPlan>,
    /// Of the context.
    key: ContextKey,
    /// Of the byte ranges.
    sizes: CallSizes,
    /// Of the kernel.
    kind: KernelKind,
}

/// What a call needs that is made once.
struct Parts {
    context: Arc<Context>,
    compiled: Arc<Compiled>,
    tables: Arc<OnDevice>,
}

impl RecentCalls {
    /// A call's context.
    fn find(&self, shape: Shape, ranks: &[u32]) -> Option<Arc<Recent>> {
        let known = self.0.iter().find(|recent| recent.shape == shape && recent.ranks == ranks);
        known.map(Arc::clone)
    }

    /// Keeps a call's context at hand.
    fn add(&mut self, recent: &Arc<Recent>) {
        if self.0.len() >= RECENT {
            self.0.clear();
        }
        self.0.push(Arc::clone(recent));
    }
}

/// How long launches that were told to end may take for it.
pub(crate) const QUIET_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks at launches that end soon.
pub(crate) const PAUSE: Duration = Duration::from_micros(100);
/// Calls whose context is kept at hand.
const RECENT: usize = 16;

impl Gpu {
    /// The engine of a rank on `device`, in the communicator of this identity.
    pub fn new(
        identity: u64,
        device: &Arc<dyn Device>,
        peers: &Arc<Peers>,
        options: &Options,
    ) -> Result<Self, ExecutorError> {
        let most = antiphon_codegen::THREADS;
        if let Some(asked) = options.block_threads.filter(|asked| !(1..=most).contains(asked)) {
            return Err(ExecutorError::Argument {
                what: "launch thread blocks",
                saw: format!("{asked} threads in each"),
                allowed: "1 to 512 (`block_threads` of the options; --block-threads of the command)",
            });
        }
        let underway = Underway::here();
        Ok(Gpu {
            upload: Upload::of(device)?,
            device: Arc::clone(device),
            pool: Pool::new(device),
            peers: Arc::clone(peers),
            block_threads: options.block_threads,
            kernels: options.kernels,
            slots: Arc::default(),
            groups: Mutex::default(),
            borrowed: Mutex::default(),
            outgrown: Mutex::default(),
            scales: Mutex::default(),
            recorded: Mutex::default(),
            graphs: Arc::default(),
            contexts: Mutex::default(),
            lane: options.one_lane.then(OneLane::default),
            merged: Mutex::default(),
            merging: Mutex::default(),
            family: Family::of(identity, &**device),
            recent: Mutex::default(),
            watch: OnceLock::new(),
            watching: Mutex::default(),
            asker: Asker::default(),
            closer: Closer::default(),
            tender: Tender::default(),
            reaper: Reaper::new(&underway),
            underway,
            proxy: OnceLock::new(),
            link_memory: LinkMemory::default(),
            stream: OnceLock::new(),
            copies: OnceLock::new(),
        })
    }

    /// Whether a plan can run on the ranks' devices at all.
    pub fn admits(shared: &Shared, plan: &LoadedPlan) -> Result<(), ExecutorError> {
        let Some(saw) = shared.neighbours.refusal() else { return Ok(()) };
        Err(ExecutorError::Apart { saw: format!("plan `{}` on {saw}", plan.name()) })
    }

    /// The stream of calls without one.
    pub fn own_stream(&self) -> Result<Arc<dyn Stream>, ExecutorError> {
        if let Some(stream) = self.stream.get() {
            return Ok(Arc::clone(stream));
        }
        let made = self.device.stream()?;
        Ok(Arc::clone(self.stream.get_or_init(|| made)))
    }

    /// What copies between the application's memory of the host and its memory of the device, beside kernels that run.
    pub fn copies(&self) -> Result<Arc<Upload>, HalError> {
        if let Some(copies) = self.copies.get() {
            return Ok(Arc::clone(copies));
        }
        let made = Arc::new(Upload::new(&*self.device)?);
        Ok(Arc::clone(self.copies.get_or_init(|| made)))
    }

    /// What a call demands. A call that is refused is so before it takes a number.
    fn demand<'a>(
        &self,
        shared: &Shared,
        call: &Call<'a>,
        Shape { sizes, kind, lane, .. }: Shape,
    ) -> Result<Demand<'a>, ExecutorError> {
        let plan = call.plan;
        Gpu::admits(shared, plan)?;
        plan.admit(sizes)?;
        let stream = shared.log().lane(lane);
        let key = ContextKey::new(shared, plan, stream, sizes, Told::Unread)?;
        Ok(Demand { plan, key, sizes, kind: kind.in_plan(plan) })
    }

    /// What a call needs, if all of it is there; `kernel` looks for the kernel.
    fn find_parts(
        &self,
        demand: &Demand<'_>,
        kernel: impl FnOnce(&Context) -> Option<Arc<Compiled>>,
    ) -> Option<Parts> {
        let context = self.known().get(&demand.key).map(Arc::clone)?;
        let (compiled, tables) = (kernel(&context)?, context.known_ranges(demand.sizes)?);
        Some(Parts { context, compiled, tables })
    }

    /// Makes what a call needs, as far as it is not there; `kernel` gives the kernel. The caller makes alone.
    fn make_parts(
        &self,
        shared: &Arc<Shared>,
        &Demand { plan, key, sizes, .. }: &Demand<'_>,
        kernel: impl FnOnce(&Context) -> Result<Arc<Compiled>, ExecutorError>,
    ) -> Result<Parts, ExecutorError> {
        let known = self.known().get(&key).map(Arc::clone);
        let context = match known {
            Some(context) => context,
            None => {
                let context = Arc::new(Context::new(shared, self, Arc::clone(plan), key)?);
                if let Err(error) = self.serve(shared, &context) {
                    free(context);
                    return Err(error);
                }
                self.underway.add(&*self.device, &context);
                self.known().insert(key, Arc::clone(&context));
                // Only now: who hears of it looks for the context.
                context.tell_scratch(shared, self)?;
                context
            }
        };
        let (compiled, tables) = (kernel(&context)?, context.ranges(self, &plan.sized(sizes))?);
        Ok(Parts { context, compiled, tables })
    }

    /// Keeps at hand what a call needs.
    fn keep_call(
        &self,
        call: &Call<'_>,
        shape: Shape,
        ranks: &[u32],
        Parts { context, compiled, tables }: Parts,
    ) -> Arc<Recent> {
        let KernelKind { dtype, op } = shape.kind;
        let types = CallType::new(dtype, op);
        let fingerprint = alike(call.plan, shape.sizes, types, context.stream);
        let (plan, ranks) = (Arc::clone(call.plan), ranks.to_vec());
        let kept = Recent { plan, shape, ranks, context, compiled, tables, fingerprint };
        let kept = Arc::new(kept);
        self.recent().add(&kept);
        kept
    }

    /// The number of a memory of this rank by which peers' devices know it; tells them the first time.
    fn announce(&self, shared: &Shared, memory: &Arc<dyn Memory>) -> Result<u64, ExecutorError> {
        shared.regions.sweep(&*shared.bootstrap)?;
        let region = shared.regions.announce(memory, &*shared.bootstrap)?;
        let mut slots = lock(&self.slots);
        let (number, new) = slots.number(memory);
        if new {
            self.tell(shared, NUMBER, [number, region])?;
        }
        drop(slots);
        if let Some(proxy) = self.proxy.get() {
            proxy.lend(memory, Some(number));
        }
        Ok(number)
    }

    /// Tells the peers where the arena of a context is; its number.
    fn announce_arena(
        &self,
        shared: &Shared,
        context: u64,
        arena: &Arc<dyn Memory>,
    ) -> Result<u64, ExecutorError> {
        let number = self.announce(shared, arena)?;
        self.tell(shared, ARENA, [context, number])?;
        Ok(number)
    }

    fn tell(&self, shared: &Shared, tag: u32, words: [u64; 2]) -> Result<(), ExecutorError> {
        let near = |&peer: &u32| peer != shared.rank && !shared.is_far(peer);
        (0..shared.world).filter(near).try_for_each(|peer| shared.tell_device(peer, tag, &words))
    }

    /// The watch, which no launch goes without.
    fn watch(&self, shared: &Arc<Shared>) -> Result<&Watch, ExecutorError> {
        if let Some(watch) = self.watch.get() {
            return Ok(watch);
        }
        let _watching = lock(&self.watching);
        if let Some(watch) = self.watch.get() {
            return Ok(watch);
        }
        let started = Watch::start(Arc::downgrade(shared), Arc::clone(&self.peers.bell))?;
        Ok(self.watch.get_or_init(|| started))
    }

    /// The contexts.
    fn contexts(&self) -> Vec<Arc<Context>> {
        self.known().values().map(Arc::clone).collect()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<ContextKey, Arc<Context>>> {
        lock(&self.contexts)
    }

    /// Whether everything that was submitted is over.
    pub fn is_over(&self) -> bool {
        self.contexts().iter().all(|context| context.is_over(&self.asker))
    }

    /// Frees what graphs kept that are gone, some time. No launch is under way.
    fn free_abandoned(&self) {
        let abandoned = self.device.take_abandoned();
        if !abandoned.is_empty() {
            self.reaper.free(abandoned);
        }
    }

    fn recent(&self) -> MutexGuard<'_, RecentCalls> {
        lock(&self.recent)
    }
}

/// Frees what is a device's: at once while no launch of the process is under way, else when that is so. Waits for no kernel.
pub fn free(gone: impl Any + Send) {
    if let Some(gone) = Underway::here().quietly(gone, drop) {
        free_later(gone);
    }
}

/// The same, but on another thread in any case: for threads that other ranks' launches wait for, and where locks are held.
pub fn free_later(gone: impl Any + Send) {
    /// Of no communicator: launches that outlive theirs keep it waiting.
    static LATER: OnceLock<Reaper> = OnceLock::new();
    LATER.get_or_init(|| Reaper::new(&Underway::here())).free(gone);
}

impl Drop for Gpu {
    /// What did not end, though it was told to, keeps its memory.
    fn drop(&mut self) {
        // Before the memory that it copies to and from.
        if let Some(proxy) = self.proxy.get() {
            proxy.stop();
        }
        let stopped = self.peers.stop_word.first().load(Ordering::Acquire) != 0;
        if stopped {
            self.abandon_groups();
        }
        // What followed the last kernels ends by itself, and is asked for. So do replays that have begun since everything was over.
        let began = Instant::now();
        let idle = |gpu: &Self| gpu.contexts().iter().all(|context| context.is_idle());
        while !self.is_over() && (idle(self) || !stopped) && began.elapsed() < QUIET_LIMIT {
            std::thread::sleep(PAUSE);
        }
        if self.is_over() {
            // Its thread holds contexts, whose memory goes with the others'.
            self.closer.finish();
            // Of the device's graphs, whoever launched them: other communicators may have launches under way.
            let abandoned = self.device.take_abandoned();
            if !abandoned.is_empty() {
                free(abandoned);
            }
            return;
        }
        log::warn!("launches on {} do not end; their memory is kept", self.device.name());
        self.reaper.leave();
        let calls = (std::mem::take(&mut *self.recent()), std::mem::take(&mut *self.known()));
        let outgrown = self.outgrown.get_mut().map(std::mem::take);
        let merged = self.merged.get_mut().map(std::mem::take);
        let scales = self.scales.get_mut().map(std::mem::take);
        let recorded = self.recorded.get_mut().map(std::mem::take);
        let links = std::mem::take(&mut *lock(&self.link_memory));
        let peers = Arc::clone(&self.peers);
        std::mem::forget((calls, outgrown, merged, scales, recorded, links, peers));
        self.abandon_groups();
    }
}
