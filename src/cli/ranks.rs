//! A rank of a run. Every communicator and launch of this command is made in this file.

use super::CliError;
use super::job::{Item, Settings};
use super::shape::{Placement, Shape};
use antiphon::executor::hal::{self, Backend, Caps, Device, DeviceName, Stream};
use antiphon::executor::launcher::{self, Environment, Found};
use antiphon::executor::selection::Devices;
use antiphon::executor::{
    Call, Communicator, Counts, Executor, Extent, LoadedPlan, Rendezvous, Verdict, WireError,
    dealt_device, local_device, local_rank,
};
pub use antiphon::executor::{HOST_VARIABLE, KernelForm, Options};
use antiphon::plan::model::{Collective, Plan};
use antiphon::{DataType, ReduceOp};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

/// One rank, connected to its peers.
pub struct Rank {
    communicator: Communicator,
    executor: Executor,
}

/// A plan made ready for execution on one rank.
pub type Loaded = Arc<LoadedPlan>;

fn executor_error(error: impl Display) -> CliError {
    CliError::Executor(error.to_string())
}

/// How all ranks of a run behave.
fn common(settings: &Settings) -> Options {
    Options::default()
        .with_timeout(settings.timeout)
        .with_verification(settings.verify)
        .with_wire(settings.wire.clone())
        .with_block_threads(settings.block_threads)
        .with_kernels(settings.kernels)
}

/// How a rank of a run behaves.
pub fn options(settings: &Settings, rank: u32) -> Result<Options, CliError> {
    Ok(common(settings).with_device(device(settings.device, rank)?))
}

/// The device of a rank's buffers, where `rank` counts the ranks of the host; none for the host.
pub fn device(name: DeviceName, rank: u32) -> Result<Option<Arc<dyn Device>>, CliError> {
    let device = match name.index {
        None => dealt_device(name.backend, rank),
        // Of the host there is one; asked for another, it says so.
        Some(_) => local_device(name),
    };
    let device = device.map_err(executor_error)?;
    Ok(Some(device).filter(|_| name.backend != Backend::Host))
}

/// The number of this process, which a launcher has started, among the ranks of its host.
pub fn number_on_host() -> Result<u32, CliError> {
    local_rank().map_err(executor_error)
}

/// What the ranks of a run on this machine run on, which stands for so many nodes.
pub fn devices_of(name: DeviceName, world: u32, nodes: u32) -> Result<Devices, CliError> {
    let per_node = (world / nodes.max(1)).max(1);
    let nodes: Vec<u32> = (0..world).map(|rank| rank / per_node).collect();
    let all = (0..world).map(|rank| device(name, rank)).collect::<Result<Option<Vec<_>>, _>>()?;
    let multicast = Options::default().multicast;
    Ok(all.map_or(Devices::Host, |all| Devices::of_ranks(&all, &nodes, multicast)))
}

/// The devices of a kind of GPU, or why there is none, a line each.
pub fn devices(backend: Backend) -> Vec<String> {
    match hal::driver(backend).and_then(|driver| driver.devices()) {
        Ok(found) if found.is_empty() => vec!["none".to_owned()],
        Ok(found) => found.iter().map(|one| format!("{}: {}", one.index, one.name)).collect(),
        Err(error) => vec![error.to_string()],
    }
}

/// What the GPUs can do, by name (`cuda:0`); of one that cannot be opened why.
pub fn device_caps() -> Vec<(String, Result<Caps, String>)> {
    let gpus = hal::drivers().iter().filter(|driver| driver.backend() != Backend::Host);
    let found = gpus.flat_map(|driver| {
        let devices = driver.devices().unwrap_or_default();
        devices.into_iter().map(|one| {
            let opened = driver.open(one.index).map(|device| device.caps().clone());
            let name = DeviceName { backend: one.backend, index: Some(one.index) };
            (name.to_string(), opened.map_err(|error| error.to_string()))
        })
    });
    found.collect()
}

/// What a launcher left in this process's environment.
pub fn find_launcher() -> Result<Option<Found>, String> {
    launcher::find(&Environment::of_process()).map_err(|error| error.to_string())
}

/// The wires of port channels that this version and this machine's plugins have: over what they go, or why they cannot be
/// used.
pub fn wires() -> Vec<(String, Result<String, String>)> {
    let text = |wire: Result<String, _>| wire.map_err(|error: WireError| error.to_string());
    antiphon::executor::wires().into_iter().map(|(name, wire)| (name, text(wire))).collect()
}

/// Why a plan that runs is not known to be right, where that was asked.
pub fn doubt(plan: &Loaded, in_place: bool) -> Option<String> {
    use Collective::{Other, SendRecv, Test};
    let elsewhere = in_place != plan.layout().in_place
        && !matches!(plan.collective(), SendRecv | Test | Other(_));
    match plan.verdict() {
        Verdict::NotProven(reasons) => Some(reasons.to_string()),
        Verdict::Proven if elsewhere && plan.elsewhere().is_none() => {
            let place = if in_place { "in place" } else { "out of place" };
            Some(format!(
                "nobody has found out whether it is right {place}, for which it is not written"
            ))
        }
        _ => None,
    }
}

impl Rank {
    /// All ranks of a run, for threads of this process.
    pub fn all_in_process(settings: &Settings) -> Result<Vec<Rank>, CliError> {
        let ranks = 0..settings.world;
        let devices = ranks.clone().map(|rank| device(settings.device, rank));
        let devices = devices.collect::<Result<Option<Vec<_>>, _>>();
        let options = common(settings);
        let hosts: Vec<String> =
            ranks.map(|rank| settings.host(rank).unwrap_or_default()).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let communicators = match devices? {
            Some(devices) => Communicator::in_process_at(&hosts, &devices, &options),
            None => Communicator::in_process_on(&hosts, &options),
        };
        communicators.map_err(executor_error)?.into_iter().map(Rank::new).collect()
    }

    /// This process's rank of a run whose processes meet at `address`. Waits for all of them.
    pub fn connect(
        address: String,
        rank: u32,
        world: u32,
        options: &Options,
    ) -> Result<Rank, CliError> {
        let rendezvous = Rendezvous::new(address, rank, world);
        Rank::new(Communicator::connect(&rendezvous, options).map_err(executor_error)?)
    }

    /// This process's rank of a job that a launcher started. Waits for all of them.
    pub fn join(found: &Found, options: Options) -> Result<Rank, CliError> {
        let bootstrap = found.connect().map_err(executor_error)?;
        let options = options.with_interface(found.interface.clone());
        Rank::new(Communicator::join(bootstrap, &options).map_err(executor_error)?)
    }

    /// A meeting place no other run uses.
    pub fn unique_address() -> Result<String, CliError> {
        Rendezvous::unique().map_err(executor_error)
    }

    fn new(communicator: Communicator) -> Result<Rank, CliError> {
        let executor = Executor::new(&communicator);
        Ok(Rank { communicator, executor })
    }

    /// What the device of a rank of this machine calls itself and can do, a line each.
    pub fn device_facts() -> Result<Vec<String>, CliError> {
        let device = hal::driver(Backend::Host).and_then(|driver| driver.open(0));
        let device = device.map_err(executor_error)?;
        let caps = device.caps();
        let yes = |wired| if wired { "yes" } else { "no" };
        Ok(vec![
            device.name().to_owned(),
            format!("memory       {} MiB for this process", caps.memory_bytes >> 20),
            format!("usable cores {} (affinity and container quota counted)", caps.cores),
            format!("peers map its memory: {}", yes(caps.peer_mapping)),
            format!("multicast in hardware: {}", yes(caps.multicast)),
        ])
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.communicator.rank()
    }

    /// The node of each rank.
    pub fn nodes(&self) -> Result<Vec<u32>, CliError> {
        let nodes = (0..self.communicator.world()).map(|rank| self.communicator.node_of(rank));
        nodes.collect::<Result<_, _>>().map_err(executor_error)
    }

    /// What the ranks run on.
    pub fn devices(&self) -> Result<Devices, CliError> {
        self.communicator.devices().map_err(executor_error)
    }

    /// Whether some machine has more ranks than cores.
    pub fn crowded(&self) -> bool {
        self.communicator.crowded_anywhere()
    }

    /// The process id of each rank, as its own host has it.
    pub fn pids(&self) -> Vec<u32> {
        let pid = |rank| self.communicator.pid_of(rank).unwrap_or(0);
        (0..self.communicator.world()).map(pid).collect()
    }

    /// The wires by which port channels of this rank reach others, with the ranks.
    pub fn wires(&self) -> BTreeMap<String, Vec<u32>> {
        let mut wires = BTreeMap::<String, Vec<u32>>::new();
        for link in self.communicator.links() {
            wires.entry(link.wire).or_default().push(link.peer);
        }
        wires
    }

    /// Gives every rank the bytes of all ranks, in rank order.
    pub fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, CliError> {
        self.communicator.exchange(bytes).map_err(executor_error)
    }

    /// Waits until every rank has called this.
    pub fn barrier(&self) -> Result<(), CliError> {
        self.communicator.barrier().map_err(executor_error)
    }

    /// Ends every wait of every rank with an error.
    pub fn abort(&self, why: &str) {
        self.communicator.abort(why);
    }

    /// Checks, lowers and, unless that is off, verifies a plan.
    pub fn load(&self, plan: &Plan) -> Result<Loaded, CliError> {
        self.executor.load(plan).map_err(executor_error)
    }

    /// What a call takes of this rank's buffers, of elements of `element` bytes.
    pub fn view(&self, item: &Item, element: u64) -> View {
        let shape = item.shape_of(self.number(), element);
        let blocks = item.blocks.as_ref().map(|blocks| blocks.extents(self.number()));
        View { shape, blocks }
    }

    /// Allocates this rank's buffers of a call, of elements of `element` bytes; one for both where a placement is given.
    pub fn buffers(
        &self,
        item: &Item,
        in_place: Option<Placement>,
        element: u64,
    ) -> Result<Buffers, CliError> {
        let view = self.view(item, element);
        let shape = view.shape;
        let device = self.communicator.device();
        // A zero-sized buffer still needs an address.
        let allocate = |bytes: u64| device.allocate(bytes.max(1)).map_err(executor_error);
        let (memory, input, output) = match in_place {
            Some(Placement { bytes, input, output }) => {
                let both = allocate(bytes)?;
                let address = both.address();
                let at = |offset: u64| address.wrapping_add(offset as usize);
                (vec![both], at(input), at(output))
            }
            None => {
                let (send, receive) = (allocate(shape.input)?, allocate(shape.output)?);
                let addresses = (send.address(), receive.address());
                (vec![send, receive], addresses.0, addresses.1)
            }
        };
        let in_place = in_place.is_some();
        let memory = memory.into_iter().map(|memory| Box::new(memory) as Box<dyn Send>).collect();
        // Only the host's own memory is reached without copies: on a GPU the CPU's view of it may be slow, or none.
        let near = device.backend() == Backend::Host;
        let stream = if near { None } else { Some(device.stream().map_err(executor_error)?) };
        let tiles = Tiles { stream };
        Ok(Buffers { _memory: memory, input, output, view, in_place, tiles })
    }

    /// Runs a plan once over the buffers and waits for this rank's part of it.
    pub fn run(
        &self,
        plan: &Loaded,
        buffers: &Buffers,
        dtype: DataType,
        op: Option<ReduceOp>,
    ) -> Result<(), CliError> {
        self.run_over(plan, buffers, &buffers.view, dtype, op)
    }

    /// The same for a call that takes other parts of the buffers than the one that they were allocated for, and no more.
    pub fn run_over(
        &self,
        plan: &Loaded,
        buffers: &Buffers,
        view: &View,
        dtype: DataType,
        op: Option<ReduceOp>,
    ) -> Result<(), CliError> {
        let (taken, there) = (view.shape, buffers.view.shape);
        if taken.input > there.input || taken.output > there.output {
            return Err(CliError::Executor(format!(
                "cannot run plan `{}` over buffers of {} and {} bytes: it takes {} and {}",
                plan.name(),
                there.input,
                there.output,
                taken.input,
                taken.output
            )));
        }
        let call = Call {
            plan,
            input: buffers.input,
            output: buffers.output,
            input_bytes: taken.input,
            output_bytes: taken.output,
            dtype,
            op,
            counts: view.counts(),
        };
        // SAFETY: both pointers lie in allocations of at least these lengths, as was just seen, which `buffers` keeps
        // alive over this blocking call; nobody else of this process touches them meanwhile, since `Buffers` is not
        // shared between threads.
        unsafe { self.executor.run(&call) }.map_err(executor_error)
    }
}

/// What a call takes of a rank's buffers.
pub struct View {
    shape: Shape,
    /// The runtime blocks of the input and of the output, where the plan has such.
    blocks: Option<[Vec<Extent>; 2]>,
}

impl View {
    /// Bytes of both buffers together.
    pub fn bytes(&self) -> u64 {
        self.shape.input.saturating_add(self.shape.output)
    }

    /// What a call says of its runtime blocks.
    fn counts(&self) -> Option<Counts<'_>> {
        let [send, receive] = self.blocks.as_ref()?;
        Some(Counts { send, receive })
    }
}

/// A rank's send and receive buffer.
pub struct Buffers {
    /// Keeps the memory alive.
    _memory: Vec<Box<dyn Send>>,
    input: *mut u8,
    output: *mut u8,
    /// All of them.
    view: View,
    in_place: bool,
    tiles: Tiles,
}

/// The way to the buffers' bytes, piece by piece.
struct Tiles {
    /// Copies, where the CPU does not reach them.
    stream: Option<Arc<dyn Stream>>,
}

/// Bytes handed out at a time: enough to amortise the call, and small enough to stay in the cache.
const TILE: usize = 1 << 18;

impl Buffers {
    /// Rewrites the send buffer: `fill` gets its pieces with their offsets in bytes.
    pub fn fill_input(&mut self, fill: impl FnMut(u64, &mut [u8])) -> Result<(), CliError> {
        self.tiles.write(self.input, self.view.shape.input, fill)
    }

    /// Sets every byte of the receive buffer, unless it is also the send buffer.
    pub fn poison_output(&mut self, value: u8) -> Result<(), CliError> {
        if self.in_place {
            return Ok(());
        }
        self.tiles.write(self.output, self.view.shape.output, |_, tile| tile.fill(value))
    }

    /// Reads the receive buffer: `look` gets its pieces with their offsets in bytes.
    pub fn read_output(&self, look: impl FnMut(u64, &[u8])) -> Result<(), CliError> {
        self.tiles.read(self.output, self.view.shape.output, look)
    }

    /// Reads the send buffer likewise.
    pub fn read_input(&self, look: impl FnMut(u64, &[u8])) -> Result<(), CliError> {
        self.tiles.read(self.input, self.view.shape.input, look)
    }
}

impl Tiles {
    /// Reads `bytes` bytes at `address`, piece by piece.
    fn read(
        &self,
        address: *mut u8,
        bytes: u64,
        mut look: impl FnMut(u64, &[u8]),
    ) -> Result<(), CliError> {
        let mut tile = vec![0; TILE.min(bytes as usize)];
        for offset in (0..bytes as usize).step_by(TILE) {
            let piece = &mut tile[..TILE.min(bytes as usize - offset)];
            let source = address.wrapping_add(offset).cast_const();
            self.copy(piece.as_mut_ptr(), source, piece.len())?;
            look(offset as u64, piece);
        }
        Ok(())
    }

    /// Writes `bytes` bytes at `address`, piece by piece, with what `fill` makes of each.
    fn write(
        &self,
        address: *mut u8,
        bytes: u64,
        mut fill: impl FnMut(u64, &mut [u8]),
    ) -> Result<(), CliError> {
        let mut tile = vec![0; TILE.min(bytes as usize)];
        for offset in (0..bytes as usize).step_by(TILE) {
            let piece = &mut tile[..TILE.min(bytes as usize - offset)];
            fill(offset as u64, piece);
            self.copy(address.wrapping_add(offset), piece.as_ptr(), piece.len())?;
        }
        Ok(())
    }

    fn copy(&self, to: *mut u8, from: *const u8, bytes: usize) -> Result<(), CliError> {
        let Some(stream) = &self.stream else {
            // SAFETY: callers pass a tile of their own and a piece of a buffer of `Buffers`, which its `_memory` keeps
            // alive. No launch is under way: `Rank::run` blocks, and the run's barriers keep peers' launches apart.
            unsafe { to.copy_from_nonoverlapping(from, bytes) };
            return Ok(());
        };
        // SAFETY: as above; the copy is waited for.
        let copied = unsafe { stream.copy(to, from, bytes as u64) };
        copied.and_then(|_| stream.synchronize()).map_err(executor_error)
    }
}
