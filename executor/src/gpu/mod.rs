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
mod context;
mod far;
mod kernels;
pub mod neighbours;
mod proxy;
mod shape;
mod tables;
mod upload;
mod watch;
mod words;

use crate::communicator::{KernelForm, Options, Shared};
use crate::context::ContextKey;
use crate::error::ExecutorError;
use crate::executor::{Call, mix};
use crate::plan_cache::LoadedPlan;
use crate::shared::arena::BlockBytes;
use crate::shared::control::LaunchRecord;
use antiphon_codegen::abi::Launch;
use antiphon_hal::{Backend, Device, HalError, Memory, Stream};
use antiphon_plan::program::CallSizes;
use antiphon_types::{DataType, ReduceOp};
use buffers::{Borrowed, Buffers};
use context::{Called, Compiled, Context, Given, OnDevice, Reader};
use far::{FAR_ARENA, PARCELS};
use proxy::Proxy;
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tables::{Slots, Tables};
use upload::Upload;
use watch::Watch;
use words::Words;

/// Message tag: a region is to be known to devices by a number.
const NUMBER: u32 = 32;
/// Message tag: the arena of a context.
const ARENA: u32 = 33;

/// What the ranks' control threads need: the peers' memory, and the word that ends launches.
#[derive(Debug)]
pub struct Peers {
    /// What devices know of peers' memory.
    pub tables: Tables,
    /// Ends launches.
    pub stop: Words,
    /// For each rank that sends over a wire, the region of the parcels that it takes.
    parcels: Mutex<HashMap<u32, u64>>,
}

impl Peers {
    /// Nothing known of `world` ranks.
    pub fn new(device: &Arc<dyn Device>, world: u32) -> Result<Self, HalError> {
        let (tables, stop) = (Tables::new(device, world)?, Words::new(&**device, 8)?);
        Ok(Peers { tables, stop, parcels: Mutex::default() })
    }

    /// Whether a message with this tag is about devices.
    pub fn takes(tag: u32) -> bool {
        matches!(tag, NUMBER | ARENA | FAR_ARENA | PARCELS)
    }

    /// Handles a peer's message; `mapped` finds its regions.
    pub fn receive(
        &self,
        peer: u32,
        tag: u32,
        payload: &[u8],
        mapped: impl Fn(u64) -> Option<Arc<dyn Memory>>,
    ) -> Result<(), String> {
        let words = payload.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let words: Vec<u64> = words.collect();
        if let (FAR_ARENA, &[context, address, bytes]) = (tag, &*words) {
            return self.tables.far_arena(peer, context, (address, bytes));
        }
        let &[first, second] = &*words else {
            return Err(format!("a message of {} bytes", payload.len()));
        };
        match tag {
            NUMBER => {
                let memory = mapped(second).ok_or("the number of a region it has not offered")?;
                self.tables.map(peer, first, memory)
            }
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
        self.parcels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the launches that run, and those that begin later.
    pub fn stop(&self) {
        self.stop.first().store(1, Ordering::Release);
    }
}

/// The engine of one rank of a communicator.
pub struct Gpu {
    device: Arc<dyn Device>,
    peers: Arc<Peers>,
    block_threads: Option<u32>,
    kernels: KernelForm,
    upload: Upload,
    slots: Arc<Mutex<Slots>>,
    /// Memory of the application, kept under the number by which peers know it; what was used last comes last.
    borrowed: Mutex<VecDeque<Borrowed>>,
    /// Staging that has become too small, which launches may still use.
    outgrown: Mutex<Vec<Arc<dyn Memory>>>,
    /// What graphs use, where the driver does not tell when they go.
    recorded: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    /// All that there are. Unlike `state` never held over a call of the driver, which waits where its queue is full: who
    /// ends launches looks here.
    contexts: Mutex<HashMap<ContextKey, Arc<Context>>>,
    /// Held while a launch is submitted.
    state: Mutex<State>,
    watch: OnceLock<Watch>,
    /// Serves port channels, once a plan has some.
    proxy: OnceLock<Proxy>,
    /// For calls without a stream.
    stream: OnceLock<Arc<dyn Stream>>,
}

#[derive(Default)]
struct State {
    recent: Vec<Recent>,
}

/// A call's context, found once.
struct Recent {
    /// Keeps the address in `shape` from being another plan's.
    plan: Arc<LoadedPlan>,
    shape: Shape,
    context: Arc<Context>,
    compiled: Arc<Compiled>,
    tables: Arc<OnDevice>,
    fingerprint: u64,
}

/// What distinguishes calls that need another context, kernel or other byte ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    plan: usize,
    sizes: CallSizes,
    dtype: DataType,
    op: Option<ReduceOp>,
    stream: u64,
}

/// How long launches that were told to end may take for it.
const QUIET_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks at launches that end soon.
const PAUSE: Duration = Duration::from_micros(100);
/// Elements that one block divides, where an average ends, and the most blocks that do so.
const DIVIDED_BY_BLOCK: u64 = 4096;
const DIVIDE_BLOCKS: u64 = 64;

/// Calls whose context is kept at hand.
const RECENT: usize = 16;

impl Gpu {
    /// The engine of a rank on `device`.
    pub fn new(
        device: &Arc<dyn Device>,
        peers: &Arc<Peers>,
        options: &Options,
    ) -> Result<Self, ExecutorError> {
        let most = antiphon_codegen::THREADS;
        if let Some(asked) = options.block_threads.filter(|asked| !(1..=most).contains(asked)) {
            return Err(ExecutorError::Argument {
                what: "launch thread blocks",
                saw: format!("{asked} threads in each"),
                allowed: "1 to 512 (`Options::with_block_threads`)",
            });
        }
        Ok(Gpu {
            upload: Upload::new(&**device)?,
            device: Arc::clone(device),
            peers: Arc::clone(peers),
            block_threads: options.block_threads,
            kernels: options.kernels,
            slots: Arc::default(),
            borrowed: Mutex::default(),
            outgrown: Mutex::default(),
            recorded: Mutex::default(),
            contexts: Mutex::default(),
            state: Mutex::default(),
            watch: OnceLock::new(),
            proxy: OnceLock::new(),
            stream: OnceLock::new(),
        })
    }

    /// Whether a plan can run on the ranks' devices at all.
    pub fn admits(shared: &Shared, plan: &LoadedPlan) -> Result<(), ExecutorError> {
        let Some(saw) = shared.neighbours.refusal() else { return Ok(()) };
        Err(ExecutorError::Argument {
            what: "run a plan on a GPU",
            saw: format!("plan `{}` on {saw}", plan.name()),
            allowed: "ranks whose devices map each other's memory and have atomic operations on it (NVLink, xGMI), or \
                      that share a device; run it on the host",
        })
    }

    /// The stream of calls without one.
    pub fn own_stream(&self) -> Result<Arc<dyn Stream>, ExecutorError> {
        if let Some(stream) = self.stream.get() {
            return Ok(Arc::clone(stream));
        }
        let made = self.device.stream()?;
        Ok(Arc::clone(self.stream.get_or_init(|| made)))
    }

    /// Launches a call on a stream.
    ///
    /// # Safety
    /// As `Executor::execute`.
    pub unsafe fn launch(
        &self,
        shared: &Arc<Shared>,
        call: &Call<'_>,
        (sizes, blocks): (CallSizes, &[BlockBytes]),
        stream: &Arc<dyn Stream>,
    ) -> Result<(), ExecutorError> {
        self.takes(&**stream)?;
        let mut state = self.state();
        let watch = self.watch(shared)?;
        let plan = Arc::as_ptr(call.plan).addr();
        let shape = Shape { plan, sizes, dtype: call.dtype, op: call.op, stream: stream.id() };
        let known = state.recent.iter().position(|recent| recent.shape == shape);
        let at = match known {
            Some(at) => at,
            None => {
                let met = self.meet(shared, call, shape)?;
                if state.recent.len() >= RECENT {
                    state.recent.clear();
                }
                state.recent.push(met);
                state.recent.len() - 1
            }
        };
        let recent = &state.recent[at];
        let context = &recent.context;
        let recorded = stream.is_capturing()?;
        let reader =
            if recorded { Reader::Graph(&**stream) } else { Reader::Launch(context.next()) };
        let buffers = self.place(shared, context, call, &reader)?;
        let blocks = context.keep_blocks(self, &reader, blocks)?;
        context.read(self, &recent.tables, &reader)?;
        // Last of all that may be refused: the peers count on a launch that has a number.
        let number = if recorded {
            context.record();
            context.recorded_element.store(call.dtype.size() as u64, Ordering::Relaxed);
            0
        } else {
            self.count(shared, recent, call)
        };
        let given = Given {
            input: buffers.input,
            output: buffers.output,
            fingerprint: recent.fingerprint,
            number,
            late: buffers.copies_back(),
            blocks,
        };
        let sized = (&*recent.tables, sizes);
        let launch = context.launch(shared, self, &recent.compiled, sized, &given);
        let mut enqueued = false;
        // SAFETY: as this function's.
        let launched = unsafe {
            self.submit(shared, recent, call, &launch, (&buffers, stream), &mut enqueued)
        };
        if recorded {
            return launched;
        }
        if enqueued {
            // Also behind a kernel whose copies failed.
            let followed = context.follow(&**stream, number);
            launched.and(followed).inspect_err(|error| shared.fail(error.clone()))?;
        } else if let Err(error) = launched {
            context.given.store(number - 1, Ordering::Release);
            shared.fail(error.clone());
            return Err(error);
        }
        if let Some(proxy) = context.queue.as_ref().and(self.proxy.get()) {
            proxy.ring();
        }
        drop(state);
        watch.look();
        Ok(())
    }

    /// Whether launches of this rank can be put into a stream.
    fn takes(&self, stream: &dyn Stream) -> Result<(), ExecutorError> {
        let name = |backend: Backend, index: u32| format!("{}:{index}", backend.name());
        let (backend, index) = (stream.backend(), stream.device());
        if (backend, index) == (self.device.backend(), self.device.index()) {
            return Ok(());
        }
        let own = name(self.device.backend(), self.device.index());
        Err(ExecutorError::Argument {
            what: "launch on a stream",
            saw: format!("a stream of {} on a rank of {own}", name(backend, index)),
            allowed: "streams of the rank's own device",
        })
    }

    /// Puts the kernel of a launch into a stream, with the copies before and after it; `enqueued` says whether it is there.
    ///
    /// # Safety
    /// As [`launch`](Self::launch).
    unsafe fn submit(
        &self,
        shared: &Shared,
        recent: &Recent,
        call: &Call<'_>,
        launch: &Launch,
        (buffers, stream): (&Buffers, &Arc<dyn Stream>),
        enqueued: &mut bool,
    ) -> Result<(), ExecutorError> {
        buffers.copy_in(&**stream)?;
        let arguments = [std::ptr::from_ref(launch).cast::<c_void>()];
        let shape = self.shape(&recent.plan, recent.compiled.blocks);
        // SAFETY: the kernel's one parameter is a `Launch`; what it points to belongs to the context and to the call, whose
        // buffers are valid until it is complete by the caller's contract.
        unsafe { recent.compiled.kernel.launch(&**stream, shape, &arguments)? };
        *enqueued = true;
        buffers.copy_out(&**stream)?;
        let in_place = call.input == call.output.cast_const();
        let divides = recent.plan.averages(shared.rank, in_place);
        let Some(divide) = recent.compiled.divide.as_ref().filter(|_| divides) else {
            return Ok(());
        };
        let output = call.output.expose_provenance() as u64;
        let elements = call.output_bytes / call.dtype.size() as u64;
        let arguments = [
            (&raw const output).cast::<c_void>(),
            (&raw const elements).cast(),
            (&raw const shared.world).cast(),
        ];
        let blocks = elements.div_ceil(DIVIDED_BY_BLOCK).clamp(1, DIVIDE_BLOCKS) as u32;
        let shape = self.shape(&recent.plan, blocks);
        // SAFETY: the parameters are the output, its elements, and the divisor; the output is the call's.
        unsafe { divide.launch(&**stream, shape, &arguments)? };
        Ok(())
    }

    /// Finds or makes the context of a call.
    fn meet(
        &self,
        shared: &Arc<Shared>,
        call: &Call<'_>,
        shape: Shape,
    ) -> Result<Recent, ExecutorError> {
        let plan = call.plan;
        Gpu::admits(shared, plan)?;
        let sized = plan.sized(shape.sizes);
        // Refused before it takes a number: a call that one rank refuses, all refuse.
        sized.program(plan.layout(), shared.rank).map_err(|error| plan.lower_error(error))?;
        let class =
            ContextKey::class(plan.layout(), shape.sizes).map_err(|e| plan.lower_error(&e))?;
        let number = shared.log().stream(shape.stream);
        let content = plan.layout().fingerprint;
        let key = ContextKey { plan: content, stream: number, class, epoch: 0 };
        // The caller holds the state, so nobody else makes one.
        let known = self.known().get(&key).map(Arc::clone);
        let context = match known {
            Some(context) => context,
            None => {
                let context = Arc::new(Context::new(shared, self, Arc::clone(plan), key)?);
                self.serve(shared, &context)?;
                self.known().insert(key, Arc::clone(&context));
                context
            }
        };
        let compiled = context.compiled(shared, self, shape.dtype, shape.op)?;
        let tables = context.on_device(self, &sized)?;
        let op = shape.op.map_or(0, |op| op as u64 + 1);
        let CallSizes { input, output, .. } = shape.sizes;
        let what = [content, input, output, shape.dtype as u64, op, number.into()];
        let fingerprint = what.into_iter().fold(0xA17F_1BAD, mix);
        Ok(Recent { plan: Arc::clone(plan), shape, context, compiled, tables, fingerprint })
    }

    /// Gives a call its number among the context's, and says in the control page what it is, for the messages of peers.
    fn count(&self, shared: &Shared, recent: &Recent, call: &Call<'_>) -> u64 {
        let mut log = shared.log();
        log.seq += 1;
        log.chain = mix(log.chain, recent.fingerprint);
        let number = recent.context.next();
        let (seq, element) = (log.seq, call.dtype.size() as u64);
        recent.context.note(Called { number, seq, element });
        shared.control(shared.rank).publish(&LaunchRecord {
            seq: log.seq,
            chain: log.chain,
            fingerprint: recent.fingerprint,
            bytes: (call.input_bytes, call.output_bytes),
            shape: (call.dtype as u8, call.op.map_or(0, |op| op as u8 + 1)),
            name: LaunchRecord::cut_name(recent.plan.name()),
            ..LaunchRecord::default()
        });
        if let Some(proxy) = self.proxy.get().filter(|_| recent.context.has_partners()) {
            proxy.describe(log.seq);
        }
        // The caller holds the state, so nobody else counts.
        recent.context.given.store(number, Ordering::Release);
        number
    }

    /// The number of a memory of this rank by which peers' devices know it; tells them the first time.
    fn announce(&self, shared: &Shared, memory: &Arc<dyn Memory>) -> Result<u64, ExecutorError> {
        shared.regions.sweep(&*shared.bootstrap)?;
        let region = shared.regions.announce(memory, &*shared.bootstrap)?;
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, new) = slots.number(memory);
        if new {
            self.tell(shared, NUMBER, [number, region])?;
        }
        Ok(number)
    }

    /// Tells the peers where the arena of a context is.
    fn announce_arena(
        &self,
        shared: &Shared,
        context: u64,
        arena: &Arc<dyn Memory>,
    ) -> Result<(), ExecutorError> {
        let number = self.announce(shared, arena)?;
        self.tell(shared, ARENA, [context, number])
    }

    fn tell(&self, shared: &Shared, tag: u32, words: [u64; 2]) -> Result<(), ExecutorError> {
        let near = |&peer: &u32| peer != shared.rank && !shared.is_far(peer);
        (0..shared.world).filter(near).try_for_each(|peer| shared.tell_device(peer, tag, &words))
    }

    /// The watch, which no launch goes without. The caller holds the state, so that only one is started.
    fn watch(&self, shared: &Arc<Shared>) -> Result<&Watch, ExecutorError> {
        if let Some(watch) = self.watch.get() {
            return Ok(watch);
        }
        let started = Watch::start(Arc::downgrade(shared))?;
        Ok(self.watch.get_or_init(|| started))
    }

    /// The contexts.
    fn contexts(&self) -> Vec<Arc<Context>> {
        self.known().values().map(Arc::clone).collect()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<ContextKey, Arc<Context>>> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a launch of this rank is under way on the device.
    fn runs(&self) -> bool {
        self.contexts().iter().any(|context| {
            let [begun, ended] = context.marks();
            begun != ended
        })
    }

    /// Whether everything that was submitted is over.
    fn is_over(&self) -> bool {
        self.contexts().iter().all(|context| context.is_over())
    }

    /// Waits for everything that was launched, while peers are still heard: it uses memory that goes next. What makes no
    /// progress for the time limit is ended, and the peers are told.
    pub fn finish(&self, shared: &Shared) {
        let mut looks = watch::Looks::default();
        let mut failed = None;
        while !self.is_over() {
            looks.tick(shared, self);
            if shared.failed() && failed.get_or_insert_with(Instant::now).elapsed() >= QUIET_LIMIT {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        self.linger(shared);
        if let (Some(_), Err(error)) = (failed, shared.check()) {
            log::warn!("launches that nobody waited for have ended: {error}");
        }
    }

    /// After a stop: waits until no launch runs. Each ends by itself within moments, unless the device is lost.
    pub fn quiet(&self) {
        let began = Instant::now();
        while self.runs() && began.elapsed() < QUIET_LIMIT {
            std::thread::sleep(PAUSE);
        }
        if let Some(proxy) = self.proxy.get() {
            proxy.stop();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Gpu {
    /// What did not end, though it was told to, keeps its memory.
    fn drop(&mut self) {
        if self.is_over() {
            return;
        }
        log::warn!("launches on {} do not end; their memory is kept", self.device.name());
        let state = (std::mem::take(&mut *self.state()), std::mem::take(&mut *self.known()));
        let outgrown = self.outgrown.get_mut().map(std::mem::take);
        std::mem::forget((state, outgrown, Arc::clone(&self.peers)));
    }
}

impl std::ops::Deref for Gpu {
    type Target = Peers;

    fn deref(&self) -> &Peers {
        &self.peers
    }
}
