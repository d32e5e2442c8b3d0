//! Launch contexts on a device: what launches of one plan share that are on one stream, or in the one lane of all streams.
//!
//! As on the host, channel counters, semaphores, barriers, scratch and packet flags are private to a context. What counts
//! launches lies on the device, so that graphs that are replayed count as well.

mod closed;
mod ends;
mod lists;
mod own;
mod sizes;

use super::compiled::{Compiled, KernelKind};
use super::groups::{self, Part};
use super::lost::Fate;
use super::proxy::Queue;
use super::shape::{ArenaShape, OwnShape, PinnedShape};
use super::tables::Needed;
use super::upload::Image;
use super::words::Words;
use super::{Gpu, far, free};
use crate::communicator::Shared;
use crate::context::ContextKey;
use crate::error::{ExecutorError, TOO_LARGE};
use crate::plan_cache::{LoadedPlan, Sized};
use crate::shared::arena::BlockBytes;
use crate::sync::lock;
use antiphon_codegen::Tables;
use antiphon_codegen::abi::{Address, Launch};
use antiphon_hal::{Device, Event, LaunchShape, Memory, Stream};
use antiphon_plan::program::{CallSizes, RuntimeBlock};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use closed::Closed;
pub use closed::Closer;
pub use ends::{Called, LaunchMarks};
use lists::{Lists, lists, readers};
use own::OwnTables;
pub use sizes::OnDevice;
use sizes::{Contents, Places, Sizes};

/// A launch context of one rank.
pub struct Context {
    /// The plan.
    pub plan: Arc<LoadedPlan>,
    /// Held while a launch is put into its stream, with all that it needs beside what is there: of one context they follow each
    /// other, and a driver may let one wait for kernels, also because its queue is full. Who launches in other contexts waits for
    /// none of it. Of several ranks it is taken in their order.
    turn: Mutex<()>,
    /// Launches given to streams.
    pub given: AtomicU64,
    /// What launches that were given are called, for whoever asks what one that runs is.
    calls: Mutex<VecDeque<Called>>,
    /// Bytes of the elements of the call that was recorded last.
    pub recorded_element: AtomicU64,
    /// The number of its stream, or of its lane, the same on all ranks.
    pub stream: u32,
    rank: u32,
    class: u64,
    arena_shape: ArenaShape,
    arena: Arc<dyn Memory>,
    /// The number by which peers' devices know it.
    region: u64,
    own_shape: OwnShape,
    own: Arc<dyn Memory>,
    pinned_shape: PinnedShape,
    pinned: Arc<Words>,
    lists: Lists,
    /// Ranks of other nodes that launches have to do with: their links follow those of the channels.
    partners: Vec<u32>,
    /// Some rank is on another node.
    apart: bool,
    /// The device adds to memory of all peers in single steps.
    adds: bool,
    /// Groups that switch channels may go through.
    pub parts: Vec<Part>,
    /// Where launches put what they ask of port channels.
    pub queue: Option<Queue>,
    /// Launches were recorded into graphs.
    recorded: AtomicBool,
    variants: Mutex<HashMap<KernelKind, Arc<Compiled>>>,
    sizes: Mutex<Sizes>,
    /// Runtime blocks of launches, and the launch that reads them.
    block_tables: Mutex<Vec<(u64, Arc<Words>)>>,
    /// Of everything of the launch that was submitted last: copies and a division follow its kernel.
    pub fate: Fate,
    closed: Closed,
    /// The event behind the launch that was submitted last, or a later one, and the launch's number.
    followed: Mutex<Option<(Arc<dyn Event>, u64)>>,
    /// Comes behind each launch of the rank alone.
    own_end: Arc<dyn Event>,
    /// Comes behind launches of ranks that are one kernel. It stands for nothing else, for the other ranks may wait for it.
    merged_end: Arc<dyn Event>,
    /// Joins the streams of ranks that are one kernel.
    join_event: OnceLock<Arc<dyn Event>>,
    /// Device memory that stands in for memory which peers cannot map.
    pub staging: Mutex<Option<Arc<dyn Memory>>>,
}

/// Where one buffer of a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// For this rank.
    pub address: u64,
    /// The region that peers know it by.
    pub region: u64,
    /// Its place there.
    pub offset: u64,
}

/// What is to use memory that is handed out.
pub enum Reader<'a> {
    /// A launch, by its number among those given to the context.
    Launch(u64),
    /// A graph that this stream is recorded into.
    Graph(&'a dyn Stream),
}

/// Peers whose ends of a launch this rank's end of it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    Nobody,
    /// Those that may write to staging to the end: the results are copied from there.
    LateWriters,
    /// All that touch the rank's buffers: nobody has proven that they are done with them before.
    Guests,
}

/// What one launch adds to its context.
pub struct PerLaunch {
    /// The send buffer.
    pub input: Seat,
    /// The receive buffer.
    pub output: Seat,
    /// What is called.
    pub fingerprint: u64,
    /// The number of the launch among those of the context; 0 for one that is recorded into a graph.
    pub number: u64,
    /// Whom its end waits for.
    pub awaited: Awaited,
    /// Where this rank's runtime blocks are, in a plan that has such.
    pub blocks: Option<Arc<Words>>,
}

fn too_large(key: ContextKey) -> ExecutorError {
    ExecutorError::Argument {
        what: TOO_LARGE,
        saw: format!("{} bytes for each half", key.class),
        allowed: "sizes that fit 64 bits",
    }
}

impl Context {
    /// Makes this rank's side of a context, and tells the peers where its arena is.
    pub fn new(
        shared: &Shared,
        gpu: &Gpu,
        plan: Arc<LoadedPlan>,
        key: ContextKey,
    ) -> Result<Self, ExecutorError> {
        let arenas = (0..shared.world).map(|rank| ArenaShape::new(plan.layout(), rank, key.class));
        let arenas = arenas.collect::<Option<Vec<_>>>().ok_or_else(|| too_large(key))?;
        let arena = gpu.device.allocate(arenas[shared.rank as usize].bytes)?;
        let made = Context::around(shared, gpu, (plan, key), (arenas, Arc::clone(&arena)));
        made.inspect_err(|_| free(arena))
    }

    /// The rest of it, around this rank's arena.
    fn around(
        shared: &Shared,
        gpu: &Gpu,
        (plan, key): (Arc<LoadedPlan>, ContextKey),
        (arenas, arena): (Vec<ArenaShape>, Arc<dyn Memory>),
    ) -> Result<Self, ExecutorError> {
        let (layout, device) = (plan.layout(), &*gpu.device);
        let rank = shared.rank;
        let (words, lists) = lists(&plan, rank);
        let partners = far::partners(shared, &plan);
        let own_shape = OwnShape::new(layout, rank, words.len(), partners.len());
        let own_shape = own_shape.ok_or_else(|| too_large(key))?;
        let pinned_shape = PinnedShape::new(layout, rank).ok_or_else(|| too_large(key))?;
        let own = gpu.pool.take(own_shape.bytes)?;
        let channels = &layout.ranks[rank as usize].channels;
        let queue = match channels.iter().any(|channel| channel.port) || !partners.is_empty() {
            true => Some(Queue::new(device, shared.world)?),
            false => None,
        };
        let own_tables = OwnTables {
            shared,
            layout,
            arenas: &arenas,
            arena: &*arena,
            lists: &words,
            partners: &partners,
            queue: queue.as_ref(),
        };
        gpu.upload.copy(&*own, &own_tables.bytes(&own_shape, &*own))?;
        let pinned = Arc::new(Words::new(device, pinned_shape.bytes)?);
        let needed = (0..).zip(&arenas).map(|(peer, arena)| {
            let far = peer != rank && shared.is_far(peer);
            Needed { bytes: arena.bytes, far }
        });
        let needed = needed.collect();
        gpu.peers.tables.listen(key.number(), (&pinned, pinned_shape.arenas), needed).map_err(
            |(peer, found)| ExecutorError::Layout {
                what: "message about device memory",
                peer,
                found,
            },
        )?;
        let region = gpu.announce_arena(shared, key.number(), &arena)?;
        gpu.announce_far(shared, key.number(), (&arena, &partners))?;
        let parts = match shared.options.multicast {
            true => groups::parts(shared, layout, key.number(), &arenas),
            false => Vec::new(),
        };
        Ok(Context {
            turn: Mutex::default(),
            join_event: OnceLock::new(),
            given: AtomicU64::new(0),
            calls: Mutex::default(),
            recorded_element: AtomicU64::new(1),
            stream: key.stream,
            rank,
            class: key.class,
            arena_shape: arenas[rank as usize],
            arena,
            region,
            own_shape,
            own,
            pinned_shape,
            pinned,
            lists,
            partners,
            apart: !shared.one_node,
            adds: shared.neighbours.adds(&device.caps().peers, |peer| !shared.is_far(peer)),
            parts,
            queue,
            recorded: AtomicBool::new(false),
            variants: Mutex::default(),
            sizes: Mutex::default(),
            block_tables: Mutex::default(),
            fate: Fate::default(),
            closed: Closed::default(),
            followed: Mutex::default(),
            own_end: device.event()?,
            merged_end: device.event()?,
            staging: Mutex::default(),
            plan,
        })
    }

    /// Tells the lowest members of switch channels over scratch where this rank's is. The engine knows the context by now.
    pub fn tell_scratch(&self, shared: &Shared, gpu: &Gpu) -> Result<(), ExecutorError> {
        let mut scratch = self.parts.iter().filter(|part| part.is_scratch());
        scratch.try_for_each(|part| gpu.tell_region(shared, part, 0, self.region))
    }

    /// Whoever has this launches, alone in the context.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// Joins streams. Whoever has the context's turn uses it.
    pub fn join_event(&self, device: &dyn Device) -> Result<&dyn Event, ExecutorError> {
        if let Some(event) = self.join_event.get() {
            return Ok(&**event);
        }
        let made = device.event()?;
        Ok(&**self.join_event.get_or_init(|| made))
    }

    /// The kernel for an element type and operator, if it is there.
    pub fn known_kernel(&self, kind: KernelKind) -> Option<Arc<Compiled>> {
        let variants = lock(&self.variants);
        variants.get(&kind).map(Arc::clone)
    }

    /// The same, loaded unless it is there. Only one at a time is.
    pub fn kernel(
        &self,
        shared: &Shared,
        gpu: &Gpu,
        kind: KernelKind,
    ) -> Result<Arc<Compiled>, ExecutorError> {
        if let Some(known) = self.known_kernel(kind) {
            return Ok(known);
        }
        let compiled = match gpu.kernel_elsewhere(self.plan.layout().fingerprint, kind) {
            Some(known) => known,
            None => Arc::new(Compiled::load(shared, gpu, &self.plan, kind)?),
        };
        let mut variants = lock(&self.variants);
        variants.insert(kind, Arc::clone(&compiled));
        Ok(compiled)
    }

    /// The byte ranges of some sizes, if they are there.
    pub fn known_ranges(&self, sizes: CallSizes) -> Option<Arc<OnDevice>> {
        lock(&self.sizes).find(sizes)
    }

    /// The same, put there unless they are. Only one at a time is.
    pub fn ranges(&self, gpu: &Gpu, sized: &Sized) -> Result<Arc<OnDevice>, ExecutorError> {
        if let Some(known) = self.known_ranges(sized.sizes()) {
            return Ok(known);
        }
        let layout = self.plan.layout();
        let program = sized.program(layout, self.rank);
        let program = program.map_err(|error| self.plan.lower_error(error))?;
        let tables = Tables::of(program, layout);
        let mut image = Image::default();
        let places = Places {
            ranges: image.add(&tables.ranges),
            moves: image.add(&tables.moves),
            pieces: image.add(&tables.pieces),
            offsets: image.add(&tables.offsets),
            loops: image.add(&tables.loops),
        };
        let silent = sized.silent(layout, self.rank);
        let contents = Contents { bytes: &image.bytes, places, silent };
        let (over, whom) = (self.over(), (&gpu.pool, &*gpu.upload));
        let mut unused = Vec::new();
        let made = sizes::make(&self.sizes, sized.sizes(), contents, whom, (over, &mut unused));
        lock(&gpu.outgrown).append(&mut unused);
        Ok(made?)
    }

    /// The rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Whether this rank's kernels find the arenas of these.
    pub fn finds(&self, ranks: impl IntoIterator<Item = u32>) -> bool {
        let word = |rank: u32| self.pinned_word(self.pinned_shape.arenas + u64::from(rank) * 8);
        ranks.into_iter().all(|rank| rank == self.rank || word(rank) != 0)
    }

    /// Notes who reads byte ranges: a launch, or a graph, which holds them.
    pub fn read(
        &self,
        gpu: &Gpu,
        tables: &Arc<OnDevice>,
        reader: &Reader<'_>,
    ) -> Result<(), ExecutorError> {
        match reader {
            Reader::Launch(number) => {
                tables.note(*number);
                Ok(())
            }
            Reader::Graph(stream) => gpu.keep_for_graph(*stream, Arc::clone(tables) as _),
        }
    }

    /// The parameter of the kernel of a launch.
    pub fn kernel_parameter(
        &self,
        shared: &Shared,
        gpu: &Gpu,
        compiled: &Compiled,
        sized: (&OnDevice, CallSizes),
        per_launch: &PerLaunch,
    ) -> Launch {
        let at = |memory: &dyn Memory, offset: u64| {
            Address(memory.address().expose_provenance() as u64 + offset)
        };
        let own = |offset: u64| at(&*self.own, offset);
        let pinned = |offset: u64| Address(self.pinned.address() + offset);
        let list = |(start, _): (u64, u32)| own(self.own_shape.lists + start);
        let (tables, sizes) = sized;
        let table = |place: u64| at(&*tables.memory, place);
        let late = match per_launch.awaited {
            Awaited::Nobody => (0, 0),
            Awaited::LateWriters => self.lists.late,
            Awaited::Guests => self.lists.readers,
        };
        let behind = if tables.silent { self.lists.behind_silent } else { self.lists.behind };
        Launch {
            blocks: at(&*compiled.memory, 0),
            operands: at(&*compiled.memory, compiled.operands),
            peers: at(&*compiled.memory, compiled.peers),
            ranges: table(tables.places.ranges),
            moves: table(tables.places.moves),
            pieces: table(tables.places.pieces),
            offsets: table(tables.places.offsets),
            loops: table(tables.places.loops),
            context: own(self.own_shape.context),
            expected: own(self.own_shape.expected),
            sent: if self.adds { Address(0) } else { own(self.own_shape.sent) },
            semaphores: own(self.own_shape.semaphores),
            barriers: own(self.own_shape.barriers),
            resolved: own(self.own_shape.resolved),
            arena: at(&*self.arena, 0),
            arenas: own(self.own_shape.arenas),
            mapped_arenas: pinned(self.pinned_shape.arenas),
            scratch: own(self.own_shape.scratch),
            multicasts: own(self.own_shape.multicasts),
            runtime: own(self.own_shape.runtime[0]),
            runtime_places: own(self.own_shape.runtime[1]),
            own_blocks: Address(per_launch.blocks.as_ref().map_or(0, |blocks| blocks.address())),
            links: own(self.own_shape.links),
            ways: if self.apart { own(self.own_shape.ways) } else { Address(0) },
            groups: if !self.parts.is_empty() {
                pinned(self.pinned_shape.groups)
            } else {
                Address(0)
            },
            switch_count: self.plan.layout().ranks[self.rank as usize].switches.len() as u32,
            regions: Address(gpu.peers.tables.address()),
            readers: list(self.lists.readers),
            behind: list(behind),
            late: list(late),
            progress: pinned(self.pinned_shape.progress),
            marks: pinned(self.pinned_shape.marks),
            stop: Address(gpu.peers.stop_word.address()),
            input: Address(per_launch.input.address),
            output: Address(per_launch.output.address),
            input_region: per_launch.input.region,
            input_offset: per_launch.input.offset,
            output_region: per_launch.output.region,
            output_offset: per_launch.output.offset,
            fingerprint: per_launch.fingerprint,
            shape: self.cut(sizes),
            counters: self.arena_shape.counters,
            given: per_launch.number,
            block_count: compiled.blocks,
            rank: self.rank,
            world: shared.world,
            reader_count: self.lists.readers.1,
            behind_count: behind.1,
            late_count: late.1,
            own_block_count: if per_launch.blocks.is_some() { self.own_blocks() } else { 0 },
            link_count: self
                .queue
                .as_ref()
                .map_or(0, |_| self.channels() + self.partners.len() as u32),
            first_block: 0,
        }
    }

    /// The rank of another node that a link is for, of those that follow the channels'.
    pub fn partner(&self, link: u32) -> Option<u32> {
        let at = link.checked_sub(self.channels())?;
        self.partners.get(at as usize).copied()
    }

    /// Ranks to which requests go.
    pub fn asked(&self) -> BTreeSet<u32> {
        let channels = &self.plan.layout().ranks[self.rank as usize].channels;
        let ports = channels.iter().filter(|channel| channel.port).map(|channel| channel.peer);
        ports.chain(self.partners.iter().copied()).collect()
    }

    /// Shows launches that begin from now on the multicasts of a switch channel.
    pub fn show_groups(&self, channel: u32, list: u64) {
        if let Some(word) = self.pinned.word(self.pinned_shape.groups + u64::from(channel) * 8) {
            word.store(list, Ordering::Release);
        }
    }

    /// Channels of this rank.
    fn channels(&self) -> u32 {
        self.plan.layout().ranks[self.rank as usize].channels.len() as u32
    }

    /// A launch was recorded into a graph: from now on there are launches that the host does not hear of.
    pub fn record(&self) {
        self.recorded.store(true, Ordering::Release);
    }

    /// Whether some launch was recorded.
    pub fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Acquire)
    }

    /// Bytes of a runtime block in a launch that is under way, as this rank sees it; `None` where it cannot be told.
    pub fn block_bytes(&self, gpu: &Gpu, launch: u64, block: RuntimeBlock) -> Option<u64> {
        let blocks = self.plan.layout().ranks[block.rank as usize].runtime_blocks.map(u64::from);
        let entry = u64::from(block.index) + if block.output { blocks[0] } else { 0 };
        let base = if block.rank == self.rank {
            self.arena.address().expose_provenance() as u64
        } else {
            self.pinned_word(self.pinned_shape.arenas + u64::from(block.rank) * 8)
        };
        let shape = ArenaShape::new(self.plan.layout(), block.rank, self.class)?;
        let table = base + shape.runtime + (launch & 1) * (blocks[0] + blocks[1]) * 16;
        if base == 0 {
            return None;
        }
        // SAFETY: inside of an arena that the launch has found, and that stays mapped while it is under way: the reaper frees a
        // mapping only once nothing runs.
        let bytes = unsafe { gpu.upload.read(table + entry * 16, 16) }.ok()?;
        let [_, len] = bytes.as_chunks::<8>().0 else { return None };
        Some(u64::from_le_bytes(*len))
    }

    /// Runtime blocks of this rank.
    fn own_blocks(&self) -> u32 {
        self.plan.layout().ranks[self.rank as usize].runtime_blocks.iter().sum()
    }

    /// Words in pinned memory that hold the runtime blocks of a call for whoever reads them: a launch, or a graph, as often
    /// as it is replayed.
    pub fn keep_blocks(
        &self,
        gpu: &Gpu,
        reader: &Reader<'_>,
        blocks: &[BlockBytes],
    ) -> Result<Option<Arc<Words>>, ExecutorError> {
        if self.own_blocks() == 0 {
            return Ok(None);
        }
        let make = || Words::new(&*gpu.device, u64::from(self.own_blocks()) * 16).map(Arc::new);
        let words = match reader {
            Reader::Graph(stream) => {
                let words = make()?;
                gpu.keep_for_graph(*stream, Arc::clone(&words) as _)?;
                words
            }
            Reader::Launch(number) => {
                let over = self.over();
                let mut tables = lock(&self.block_tables);
                match tables.iter_mut().find(|(reader, _)| *reader <= over) {
                    Some((reader, words)) => {
                        *reader = *number;
                        Arc::clone(words)
                    }
                    None => {
                        let words = make()?;
                        tables.push((*number, Arc::clone(&words)));
                        words
                    }
                }
            }
        };
        for (place, value) in (0..).zip(blocks.iter().flat_map(|block| [block.offset, block.len])) {
            if let Some(word) = words.word(place * 8) {
                word.store(value, Ordering::Release);
            }
        }
        Ok(Some(words))
    }

    /// Differs for sizes that cut scratch differently; never 0.
    fn cut(&self, sizes: CallSizes) -> u64 {
        if !self.plan.has_scratch() {
            return 1;
        }
        [sizes.input, sizes.output, sizes.element].into_iter().fold(1, crate::executor::mix) | 1
    }

    fn pinned_word(&self, at: u64) -> u64 {
        self.pinned.word(at).map_or(0, |word| word.load(Ordering::Acquire))
    }
}

impl Gpu {
    /// The shape of a launch of a plan's kernels.
    pub fn shape(&self, plan: &LoadedPlan, blocks: u32) -> LaunchShape {
        let threads = self.block_threads.unwrap_or_else(|| plan.block_threads());
        LaunchShape { blocks, threads, shared_bytes: 0 }
    }
}
