//! Communicators: the ranks that make calls together.

mod barrier;
mod by_code;
mod contexts;
mod exit;
mod failure;
mod groups;
mod invitations;
mod join;
mod listener;
mod losses;
mod meet;
mod name;
mod options;
mod progress;
mod registration;
mod turns;

use crate::collectives::Queues;
use crate::error::{Doing, ExecutorError};
use crate::gpu::neighbours::Neighbours;
use crate::gpu::{self, Gpu};
use crate::ports::{Mirrors, PortLink, Ports};
use crate::regions::Regions;
use crate::registry::Installed;
use crate::selection::{Devices, Tuning};
use crate::shared::RankPage;
use crate::shared::control::{BROKEN, ControlPage, LEFT};
use crate::shared::verdicts::VerdictTable;
use crate::waiting::{Verdict, Waiter};
use antiphon_bootstrap::{
    Bootstrap, BootstrapError, Handler, Lost, Operation, PeerName, Ticket, unix,
};
use antiphon_hal::{Backend, Device, Effort, Memory, Stream};
use antiphon_memory::process;
use antiphon_switch::SoftwareGroups;
use antiphon_transport::{Peer, Registry, Transport};
use by_code::CodedCalls;
use contexts::Contexts;
use failure::Failure;
use invitations::Invitations;
use join::{Greeted, Join, Parted, Probed, Settled};
use listener::{Hearing, Listener, Subscription};
pub(crate) use name::Whose;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub use antiphon_bootstrap::unix::{HOST_VARIABLE, Rendezvous};
pub use by_code::CallSeries;
pub(crate) use groups::{Direction, Purpose, Way};
pub(crate) use join::nodes;
pub use options::{KernelForm, Options};
pub(crate) use turns::Lane;

/// The time limit that the bootstrap gets when there is to be none.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);
/// The bootstrap channel that carries region handles and what links need.
pub(crate) const CONTROL: u64 = 1;
/// Names the key by which links prove themselves.
const WIRES: &str = "wires";

/// One rank's end of a group of ranks that make calls together.
///
/// All ranks must make the same launches and splits in the same order; ranks that differ get an error that says so. Clones
/// are the same end. When the last one is dropped, this rank leaves the group; in a process that was forked from the one that
/// made it, dropping it does nothing.
#[derive(Clone)]
pub struct Communicator {
    pub(crate) shared: Arc<Shared>,
}

/// What all clones of a communicator, its executors and its launches share.
pub(crate) struct Shared {
    /// The first field, so it is dropped first: nothing is heard any more while the others are dropped.
    _subscription: Subscription,
    pub rank: u32,
    pub world: u32,
    /// What errors and the log call it.
    pub whose: Whose,
    /// Equal on all ranks, and on no other communicator.
    pub identity: u64,
    pub options: Options,
    /// The table that all ranks have.
    pub tuning: Tuning,
    pub installed: Installed,
    pub device: Arc<dyn Device>,
    /// The engine of ranks whose device is a GPU.
    pub gpu: Option<Gpu>,
    pub bootstrap: Arc<dyn Bootstrap>,
    pub regions: Arc<Regions>,
    pub ports: Arc<Ports>,
    /// What is known of every rank, this one included.
    pub peers: Vec<Peer>,
    /// The devices of all ranks.
    pub neighbours: Neighbours,
    /// The transports that serve plans' channels.
    pub registry: Registry,
    /// Whether every rank of this node may read and write every other's memory through the kernel.
    pub process_access: bool,
    /// All ranks are on this node.
    pub one_node: bool,
    /// More ranks than cores: whoever has a core steps every rank's blocks.
    pub crowded: bool,
    pub crowded_anywhere: bool,
    /// Waits yield: there are more ranks than cores, here or in the communicator that this is part of.
    pub yields: bool,
    /// All ranks live in this process.
    pub one_process: bool,
    /// Some other rank lives in this process.
    pub shared_process: bool,
    control: Vec<Page>,
    /// This rank's page.
    pub page: Arc<dyn Memory>,
    /// The page of the node's lowest rank.
    first_page: Arc<dyn Memory>,
    failure: Arc<Failure>,
    splits: AtomicU64,
    /// How many subsets were made so far, for each list of ranks.
    subsets: Mutex<BTreeMap<Vec<u32>, u64>>,
    mirrors: Option<Mirrors>,
    invitations: Arc<Invitations>,
    coded: Arc<CodedCalls>,
    /// The communicators of these queues end after this one, and do not know of it.
    pub queues: Queues,
}

/// A rank's control page, or its mirror.
#[derive(Clone)]
struct Page {
    page: NonNull<ControlPage>,
    _memory: Arc<dyn Memory>,
}

// SAFETY: a control page is all atomics, and is mapped while the `Page` lives.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    fn get(&self) -> &ControlPage {
        // SAFETY: the page is mapped while this object lives, and is all atomics.
        unsafe { self.page.as_ref() }
    }
}

/// The launches of a communicator.
#[derive(Default)]
pub(crate) struct Log {
    /// Number of the last launch.
    pub seq: u64,
    /// Hash of all launches.
    pub chain: u64,
    /// Launch contexts.
    pub contexts: Contexts,
    streams: HashMap<u64, u32>,
    /// By the number of a stream: calls on devices, and whether some were recorded into graphs.
    calls: HashMap<u32, (u64, bool)>,
    /// Collectives by name on devices.
    named: u64,
    completed: u64,
    early: BTreeSet<u64>,
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank())
            .field("world", &self.world())
            .field("crowded", &self.shared.crowded)
            .field("process_access", &self.shared.process_access)
            .finish_non_exhaustive()
    }
}

impl Communicator {
    /// The ends of `world` ranks that live in this process, in rank order. Each may move to a thread of its own, or
    /// one thread may drive them all.
    ///
    /// # Errors
    /// `Argument` for a world of zero ranks, or of more than [`MOST_IN_PROCESS`](Self::MOST_IN_PROCESS); what the device or the
    /// bootstrap reports.
    pub fn in_process(world: u32, options: &Options) -> Result<Vec<Communicator>, ExecutorError> {
        Communicator::check_in_process(world)?;
        Communicator::in_process_on(&vec!["this"; world as usize], options)
    }

    /// The most ranks that may live in one process: a mistaken number of ranks should not take all memory.
    pub const MOST_IN_PROCESS: u32 = 1 << 16;

    /// Checks that `world` ranks may live in this process.
    ///
    /// # Errors
    /// `Argument` for more than [`MOST_IN_PROCESS`](Self::MOST_IN_PROCESS).
    pub fn check_in_process(world: u32) -> Result<(), ExecutorError> {
        if world <= Communicator::MOST_IN_PROCESS {
            return Ok(());
        }
        const { assert!(Communicator::MOST_IN_PROCESS == 65536, "the text below says so") };
        Err(ExecutorError::Argument {
            what: "bring up ranks in this process",
            saw: format!("{world} of them"),
            allowed: "up to 65536",
        })
    }

    /// The ends of one rank for each entry of `hosts`, in rank order, all in this process. Ranks with equal names are on one
    /// node; others reach each other through port channels only. So one machine can stand for several hosts.
    ///
    /// # Errors
    /// As [`in_process`](Self::in_process).
    pub fn in_process_on(
        hosts: &[&str],
        options: &Options,
    ) -> Result<Vec<Communicator>, ExecutorError> {
        let device = options.device()?;
        let ends = meet::ends_in_process(hosts, options)?;
        form(ends.into_iter().map(|end| (end, Arc::clone(&device))), options)
    }

    /// The ends of one rank for each entry of `devices`, in rank order, all in this process and on one node. Each rank's
    /// buffers are on its device; several ranks may share one.
    ///
    /// # Errors
    /// As [`in_process`](Self::in_process).
    pub fn in_process_over(
        devices: &[Arc<dyn Device>],
        options: &Options,
    ) -> Result<Vec<Communicator>, ExecutorError> {
        Communicator::in_process_at(&vec!["this"; devices.len()], devices, options)
    }

    /// As [`in_process_over`](Self::in_process_over), with ranks whose entries of `hosts` differ on different nodes, as in
    /// [`in_process_on`](Self::in_process_on).
    ///
    /// # Errors
    /// As [`in_process`](Self::in_process); `Argument` for more or fewer hosts than devices.
    pub fn in_process_at(
        hosts: &[&str],
        devices: &[Arc<dyn Device>],
        options: &Options,
    ) -> Result<Vec<Communicator>, ExecutorError> {
        if hosts.len() != devices.len() {
            return Err(ExecutorError::Argument {
                what: "bring up ranks in this process",
                saw: format!("{} hosts and {} devices", hosts.len(), devices.len()),
                allowed: "a host and a device for each rank",
            });
        }
        let ends = meet::ends_in_process(hosts, options)?;
        form(ends.into_iter().zip(devices.iter().map(Arc::clone)), options)
    }

    /// This process's end of a group of processes of this machine that all pass the same address and number of ranks, and
    /// each a rank of its own. Waits until all have come.
    ///
    /// # Errors
    /// What the bootstrap reports: a rank that did not come in time, another number of ranks, a rank that is there twice.
    pub fn connect(
        rendezvous: &Rendezvous,
        options: &Options,
    ) -> Result<Communicator, ExecutorError> {
        Communicator::join_alone(|| Ok(unix::connect(rendezvous)?), options)
    }

    /// This rank's end of a group whose ranks have met: every rank passes its end of the same bootstrap.
    ///
    /// # Errors
    /// What the device or the bootstrap reports; [`ExecutorError::Wire`] where the wire that
    /// [`Options::wire`] names cannot be used.
    pub fn join(
        bootstrap: Arc<dyn Bootstrap>,
        options: &Options,
    ) -> Result<Communicator, ExecutorError> {
        options.check()?;
        let join = || Join::begin(bootstrap, &options.device()?, options)?.come();
        join().map_err(|error| options.names(error))
    }

    /// This rank, in `0..world`.
    pub fn rank(&self) -> u32 {
        self.shared.rank
    }

    /// The number of ranks.
    pub fn world(&self) -> u32 {
        self.shared.world
    }

    /// The number of the node that a rank is on. Ranks on one node map each other's memory.
    ///
    /// # Errors
    /// If there is no such rank.
    pub fn node_of(&self, rank: u32) -> Result<u32, ExecutorError> {
        Ok(self.shared.bootstrap.node_of(rank)?)
    }

    /// What kind of devices the ranks have, as the choice of a built-in algorithm takes it; the same on every rank.
    ///
    /// # Errors
    /// As [`node_of`](Self::node_of).
    pub fn devices(&self) -> Result<Devices, ExecutorError> {
        Ok(self.shared.neighbours.devices(&nodes(&*self.shared.bootstrap)?))
    }

    /// The process id of a rank; `None` if there is no such rank.
    pub fn pid_of(&self, rank: u32) -> Option<u32> {
        self.shared.peers.get(rank as usize).map(|peer| peer.pid)
    }

    /// Whether all launches of this rank are complete, on whatever streams, and all replays of graphs that have begun. Does not
    /// wait, and may say so a moment late. After a failure of the communicator all are over once nobody works on one, nothing is
    /// copied for one, and no rank of the node reaches into this rank's memory any more; one of another process that does not stop by
    /// itself is not looked for longer than half a second, and on devices nobody is for longer than five.
    pub fn is_complete(&self) -> bool {
        match &self.shared.gpu {
            Some(gpu) => gpu.is_over() && (!self.shared.failed() || self.shared.is_settled()),
            None => {
                let through = |log: MutexGuard<'_, Log>| log.completed == log.seq;
                through(self.shared.log()) || self.shared.failed() && self.shared.is_settled()
            }
        }
    }

    /// The links that this rank has for port channels, by peer: over which wire each goes, and whether it is lost.
    pub fn links(&self) -> Vec<PortLink> {
        self.shared.ports.all()
    }

    /// Whether this machine has more ranks than cores (affinity and container quotas of all its ranks counted together).
    /// All ranks of a machine get the same answer.
    pub fn crowded(&self) -> bool {
        self.shared.crowded
    }

    /// Whether any machine of the communicator has more ranks than cores. All ranks get the same answer, so that all may
    /// choose the same plan by it.
    pub fn crowded_anywhere(&self) -> bool {
        self.shared.crowded_anywhere
    }

    /// The transports that serve plans' channels: each says how it reaches a rank, or why it does not.
    pub fn transports(&self) -> &[Arc<dyn Transport>] {
        self.shared.registry.transports()
    }

    /// The device of this rank's buffers.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.shared.device
    }

    /// Allocates `bytes` of zeroed memory on this rank's device. Peers map it, so that launches use it without a copy.
    ///
    /// # Errors
    /// What the device reports; it refuses 0 bytes.
    pub fn allocate(&self, bytes: u64) -> Result<Arc<dyn Memory>, ExecutorError> {
        Ok(self.shared.device.allocate(bytes)?)
    }

    /// A new stream: launches on it run in order, and independently of other streams; but on the host a launch begins when all ranks
    /// have completed the one that came 64 launches before it, on whatever stream.
    ///
    /// # Errors
    /// What the device reports.
    pub fn stream(&self) -> Result<Arc<dyn Stream>, ExecutorError> {
        Ok(self.shared.device.stream()?)
    }

    /// Gives every rank the bytes of all ranks, in rank order; they may have different lengths. All ranks call it, and it waits for
    /// them. An exchange that fails breaks the communicator, except with `TooLarge`, or because a rank has left in good order.
    ///
    /// # Errors
    /// The communicator's failure; `Bootstrap(TooLarge)`, before anything is sent; `Bootstrap` with the ranks that did not come
    /// within the time limit, or with a rank that has left, that makes a split instead, or (if the ranks are on several nodes)
    /// that is in a barrier.
    pub fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ExecutorError> {
        let all = self.exchange_for(Operation::Exchange, bytes);
        all.map_err(|error| self.shared.whose.names(error))
    }

    fn exchange_for(
        &self,
        operation: Operation,
        bytes: &[u8],
    ) -> Result<Vec<Vec<u8>>, ExecutorError> {
        self.shared.check()?;
        self.shared.sweep()?;
        self.shared.meet(|end| end.begin(operation, bytes))
    }

    /// Ends every wait of every rank of this communicator, those of transfers between two ranks included. Later calls fail with
    /// the same reason; if a [failure](Self::failure) was known before, they fail with that one. Any thread may call it.
    pub fn abort(&self, reason: &str) {
        let (by, doing) = (self.rank(), Doing::default());
        let aborted = ExecutorError::Aborted { by, reason: reason.to_owned(), doing };
        // This also ends all pairs on every rank, those that are formed and those that are being formed.
        self.shared.fail(self.shared.failure.known().unwrap_or(aborted));
        self.shared.failure.give_up_forming(reason);
        self.settle_broken();
    }

    /// Ends a pair that transfers go through when this communicator is broken.
    pub(crate) fn ends_too(&self, pair: &Communicator) {
        self.shared.failure.ends_too(&pair.shared.failure);
    }

    /// The error that broke the communicator, if it is broken, also while the peers are still being told of it.
    pub(crate) fn broken(&self) -> Option<ExecutorError> {
        self.shared.failure.cause()
    }

    /// The error that broke the communicator, if it is broken; or else the error that a peer's process has ended, with which
    /// later calls that need that peer fail. Does not wait.
    pub fn failure(&self) -> Option<ExecutorError> {
        self.shared.failure.known().map(|error| self.shared.whose.names(error))
    }
}

/// The host, as a device.
pub(crate) fn host() -> Result<Arc<dyn Device>, ExecutorError> {
    Ok(antiphon_hal::driver(Backend::Host)?.open(0)?)
}

/// Brings up the ranks that have these ends and devices.
fn form(
    ends: impl Iterator<Item = (Arc<dyn Bootstrap>, Arc<dyn Device>)>,
    options: &Options,
) -> Result<Vec<Communicator>, ExecutorError> {
    let form = || {
        let begin = |end, device| Join::begin(end, &device, options).map(Greeted::in_own_group);
        let joins = ends.map(|(end, device)| begin(end, device));
        let joins = joins.collect::<Result<Vec<_>, _>>()?;
        let joins = joins.into_iter().map(Greeted::probe).collect::<Result<Vec<_>, _>>()?;
        let joins = joins.into_iter().map(Probed::part).collect::<Result<Vec<_>, _>>()?;
        let joins = joins.into_iter().map(Parted::probe).collect::<Result<Vec<_>, _>>()?;
        let joins = joins.into_iter().map(Probed::settle).collect::<Result<Vec<_>, _>>()?;
        joins.into_iter().map(Settled::finish).collect::<Result<_, _>>()
    };
    form().map_err(|error: ExecutorError| options.names(error))
}

fn garbled(peer: u32, bytes: usize) -> ExecutorError {
    ExecutorError::Layout { what: "greeting", peer, found: format!("{bytes} bytes") }
}

pub(crate) fn rank_page(memory: &Arc<dyn Memory>) -> &RankPage {
    // SAFETY: the memory is at least `RankPage::BYTES` long (allocated so, or checked by the caller), page-aligned,
    // mapped while the `Arc` lives, and a rank's page is all atomics.
    unsafe { &*memory.address().cast::<RankPage>() }
}

impl Shared {
    #[inline]
    pub fn control(&self, rank: u32) -> &ControlPage {
        self.control[rank as usize].get()
    }

    /// The verdicts that the ranks of this node share: those in the page of its lowest rank.
    pub fn verdicts(&self) -> &VerdictTable {
        &rank_page(&self.first_page).verdicts
    }

    /// Tells the peers about a region of this rank, and gives its number.
    pub fn announce(&self, memory: &Arc<dyn Memory>) -> Result<u64, ExecutorError> {
        self.ports.announce(memory)?;
        self.regions.announce(memory, &*self.bootstrap)
    }

    /// Tells the peers of memory that was freed since this was called last; cheap if none was. A communicator that launches tells
    /// them in its launches; others tell them only here.
    pub fn sweep(&self) -> Result<(), ExecutorError> {
        let swept = self.regions.sweep(&*self.bootstrap);
        if self.gpu.is_none() {
            // On GPUs the thread that watches launches does this, while nothing runs.
            self.ports.sweep();
        }
        swept.map_err(|error| self.check().err().unwrap_or(error))
    }

    /// Mirrors the descriptor of launch `seq` to a peer; `false` if that has to be done again.
    pub fn publish(&self, peer: u32, seq: u64) -> Result<bool, ExecutorError> {
        self.ports.publish(peer, seq, &self.page)
    }

    /// The number of a peer's launches that are complete, and of which all that it posted to this rank has landed.
    pub fn landed(&self, peer: u32) -> u64 {
        self.mirror(peer).unwrap_or(self.control(peer)).completed.0.load(Ordering::Acquire)
    }

    /// The mirror of a peer's page, if a wire keeps one up.
    pub fn mirror(&self, peer: u32) -> Option<&ControlPage> {
        let mirrors = self.mirrors.as_ref().filter(|_| self.ports.is_mirrored(peer));
        let page = mirrors.and_then(|mirrors| mirrors.page(peer));
        // SAFETY: the mirrors are mapped as long as the communicator, and a control page is all atomics.
        page.map(|page| unsafe { page.as_ref() })
    }

    /// Whether two ranks are on one node.
    pub fn are_near(&self, one: u32, other: u32) -> bool {
        self.bootstrap.node_of(one).ok() == self.bootstrap.node_of(other).ok()
    }

    /// Whether this rank and a peer see each other's launches: on one node, or by a link.
    pub fn sees(&self, peer: u32) -> bool {
        self.peers[peer as usize].same_node || self.ports.is_mirrored(peer)
    }

    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.failure.log()
    }

    /// Whether other ranks' blocks may be stepped here.
    pub fn assists(&self) -> bool {
        self.world > 1 && (self.crowded || self.shared_process)
    }

    /// Whether this rank may step the blocks of `peer`: only if `peer` locks its own cursors, which it does if it
    /// [`assists`](Self::assists). A rank alone in its process, on a node with cores for all, does not.
    pub fn may_assist(&self, peer: u32) -> bool {
        let other = &self.peers[peer as usize];
        peer != self.rank && other.same_node && (self.crowded || other.same_process)
    }

    /// Whether another process may step this rank's blocks, so that its buffers must be mapped there.
    pub fn assisted_from_elsewhere(&self) -> bool {
        self.crowded && !self.one_process
    }

    /// Notes that a launch is over, so that peers see how far this rank has come.
    pub fn complete(&self, seq: u64) {
        let mut log = self.log();
        if log.completed + 1 == seq {
            log.completed = seq;
            while log.early.first() == Some(&(log.completed + 1)) {
                log.early.pop_first();
                log.completed += 1;
            }
            let completed = log.completed;
            self.control(self.rank).completed.0.store(completed, Ordering::Release);
            self.ports.complete(completed);
        } else {
            log.early.insert(seq);
        }
    }

    /// Shows the peers how this rank left: in good order, or broken.
    fn part(&self) {
        if !self.failed() {
            return self.leave();
        }
        if !self.one_node
            && let Err(error) = self.check()
        {
            // The failure may be a broken link that other ranks do not notice, and perhaps no call reported it. On one node every
            // rank notices a loss by itself, and what it was.
            self.fail(error);
        }
        // Stored after the peers were told: a rank that sees it waits to hear why.
        self.control(self.rank).left.0.store(BROKEN, Ordering::Release);
    }

    /// Leaves in good order, and shows that to the peers, after waiting, within bounds, until what this rank posted has come to them.
    fn leave(&self) {
        self.ports.linger(|peer| if self.failed() { u64::MAX } else { self.landed(peer) });
        self.ports.leave();
        // A rank that knows of a loss may leave because of it: its peers are to name the lost rank, of which they hear as this
        // one did.
        let how = if self.failure.bereavement().is_some() { BROKEN } else { LEFT };
        self.control(self.rank).left.0.store(how, Ordering::Release);
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // Of the process that this one was forked from: whatever is said or closed here peers take for that one's.
        if self.is_inherited() {
            std::mem::forget(Arc::clone(&self.shared));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // First of all, while peers are still heard: launches need what they say, also that they end.
        if let Some(gpu) = &self.gpu {
            gpu.finish(self);
        }
        // Before memory is freed: that may wait for launches of peers, and these for this rank's launches.
        self.part();
    }
}
