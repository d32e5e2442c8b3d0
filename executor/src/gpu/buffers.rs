//! Where a launch's own buffers are for its peers: mapped by them, in the address space they share, or staged.

use super::Gpu;
use super::context::{Context, LaunchMarks, Reader, Seat};
use crate::communicator::Shared;
use crate::error::ExecutorError;
use crate::executor::Call;
use crate::sync::lock;
use antiphon_bootstrap::MAX_DESCRIPTORS;
use antiphon_codegen::abi::FOREIGN;
use antiphon_hal::{HalError, Memory, Stream};
use antiphon_plan::model::Collective;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// Memory of the application that peers or wires know.
pub struct Borrowed {
    memory: Arc<dyn Memory>,
    /// Peers know it.
    told: bool,
    /// The last launch that named it, in each context.
    uses: Vec<(Weak<Context>, u64)>,
}

impl Borrowed {
    /// Whether no launch that peers know of names it any more.
    fn is_unused(&self, gpu: &Gpu) -> bool {
        self.uses.iter().all(|(context, number)| {
            context.upgrade().is_none_or(|context| context.is_read(gpu, *number))
        })
    }

    fn note(&mut self, context: &Arc<Context>, number: u64) {
        let same = |(known, _): &&mut (Weak<Context>, u64)| known.as_ptr() == Arc::as_ptr(context);
        match self.uses.iter_mut().find(same) {
            Some((_, last)) => *last = number,
            None => self.uses.push((Arc::downgrade(context), number)),
        }
    }
}

/// A launch's own buffers: where the kernel finds them, and what is copied before and after it.
pub struct Buffers {
    /// The send buffer.
    pub input: Seat,
    /// The receive buffer.
    pub output: Seat,
    /// Destination, source, bytes.
    before: Vec<(u64, u64, u64)>,
    after: Vec<(u64, u64, u64)>,
}

/// Whether peers can be told by one message how to map `memory`: it may be of a kind that cannot be mapped, or in too many
/// pieces.
fn fits_a_message(memory: &dyn Memory) -> bool {
    memory.export_parts().is_ok_and(|parts| parts.len() <= MAX_DESCRIPTORS)
}

/// Whether no peer maps `memory`, because in another process that would wait for kernels.
fn stays_private(shared: &Shared, memory: &dyn Memory) -> bool {
    let elsewhere = || shared.peers.iter().any(|peer| peer.same_node && !peer.same_process);
    memory.is_legacy_ipc() && !shared.options.legacy_ipc && elsewhere()
}

/// A copy on a stream of device memory.
fn copy(stream: &dyn Stream, (to, from, bytes): (u64, u64, u64)) -> Result<(), ExecutorError> {
    if bytes == 0 {
        return Ok(());
    }
    let to = std::ptr::with_exposed_provenance_mut(to as usize);
    let from = std::ptr::with_exposed_provenance(from as usize);
    // SAFETY: both ranges are the call's, valid until it is complete by the contract of `Executor::execute`, or staging
    // of the context, which is as long; they do not overlap.
    let _ = unsafe { stream.copy(to, from, bytes)? };
    Ok(())
}

impl Buffers {
    /// Whether results are staged, so that they are copied once the launch is over.
    pub fn copies_back(&self) -> bool {
        !self.after.is_empty()
    }

    /// Copies to staging what the kernel reads there.
    pub fn copy_in(&self, stream: &dyn Stream) -> Result<(), ExecutorError> {
        self.before.iter().try_for_each(|&one| copy(stream, one))
    }

    /// Copies results from staging.
    pub fn copy_out(&self, stream: &dyn Stream) -> Result<(), ExecutorError> {
        self.after.iter().try_for_each(|&one| copy(stream, one))
    }
}

/// One buffer of a call.
#[derive(Clone, Copy)]
struct Side {
    address: u64,
    bytes: u64,
    exposed: bool,
    /// The region and the offset, where peers can map it.
    at: Option<(u64, u64)>,
}

impl Side {
    fn overlaps(&self, other: &Side) -> bool {
        let filled = self.bytes > 0 && other.bytes > 0;
        filled
            && self.address < other.address + other.bytes
            && other.address < self.address + self.bytes
    }

    /// Where it is without staging.
    fn seat(&self) -> Seat {
        let (region, offset) = self.at.unwrap_or((FOREIGN, self.address));
        Seat { address: self.address, region, offset }
    }
}

impl Gpu {
    /// Finds or makes a place for a call's buffers.
    pub fn place(
        &self,
        shared: &Shared,
        context: &Arc<Context>,
        call: &Call<'_>,
        reader: &Reader<'_>,
    ) -> Result<Buffers, ExecutorError> {
        let uses = context.plan.uses(shared.rank);
        let wired = shared.staged_peers(&context.plan).next().is_some();
        let side = |address: usize, bytes: u64, exposed: bool| -> Result<Side, ExecutorError> {
            let address = address as u64;
            let at = if bytes > 0 && exposed {
                self.region_of(shared, (context, reader), address, bytes)?
            } else {
                if bytes > 0 && wired {
                    self.lend_to_wires((context, reader), address, bytes)?;
                }
                None
            };
            Ok(Side { address, bytes, exposed: exposed && bytes > 0, at })
        };
        let (input_bytes, output_bytes) = call.bytes_there();
        let input = side(call.input.expose_provenance(), input_bytes, uses.input.exposed)?;
        let output = side(call.output.expose_provenance(), output_bytes, uses.output.exposed)?;
        // Ranks of one process use each other's addresses, where one device serves all. Over wires peers reach what they were
        // told of only.
        let shares = shared.neighbours.all_share() && !wired;
        let stage = |side: &Side| side.exposed && side.at.is_none() && !shares;
        let staged = [stage(&input), stage(&output)];
        if staged.contains(&true) {
            return self.staged(shared, (context, reader), [input, output], staged);
        }
        let (before, after) = (Vec::new(), Vec::new());
        Ok(Buffers { input: input.seat(), output: output.seat(), before, after })
    }

    /// The region and the offset by which peers know a buffer; `None` for memory that they cannot map.
    fn region_of(
        &self,
        shared: &Shared,
        user: (&Arc<Context>, &Reader<'_>),
        address: u64,
        bytes: u64,
    ) -> Result<Option<(u64, u64)>, ExecutorError> {
        let Some((memory, offset)) = self.mappable(shared, address, bytes) else {
            return Ok(None);
        };
        if memory.is_borrowed() {
            self.keep(&memory, Some(user), true)?;
        }
        Ok(Some((self.announce(shared, &memory)?, offset)))
    }

    /// The memory that a buffer is in, and its place there; `None` for memory that peers cannot map.
    fn mappable(
        &self,
        shared: &Shared,
        address: u64,
        bytes: u64,
    ) -> Option<(Arc<dyn Memory>, u64)> {
        let pointer = std::ptr::with_exposed_provenance(address as usize);
        let Some((memory, offset)) = self.device.find(pointer, bytes) else {
            self.take_back(address, bytes);
            return None;
        };
        let stays = || {
            stays_private(shared, &*memory) || !self.is_kept(&memory) && !fits_a_message(&*memory)
        };
        if memory.is_borrowed() && stays() { None } else { Some((memory, offset)) }
    }

    /// Tells peers about a buffer before a launch names it; `false` for memory that they cannot map.
    pub fn register(
        &self,
        shared: &Shared,
        address: u64,
        bytes: u64,
    ) -> Result<bool, ExecutorError> {
        let Some((memory, _)) = self.mappable(shared, address, bytes) else { return Ok(false) };
        if memory.is_borrowed() {
            self.keep(&memory, None, true)?;
        }
        self.announce(shared, &memory)?;
        Ok(true)
    }

    /// Lends wires a buffer that no peer touches, as far as they take memory of GPUs: transfers may be read from it.
    fn lend_to_wires(
        &self,
        user: (&Arc<Context>, &Reader<'_>),
        address: u64,
        bytes: u64,
    ) -> Result<(), ExecutorError> {
        let Some(proxy) = self.proxy.get().filter(|proxy| proxy.lends()) else {
            return Ok(());
        };
        let pointer = std::ptr::with_exposed_provenance(address as usize);
        let Some((memory, _)) = self.device.find(pointer, bytes) else {
            self.take_back(address, bytes);
            return Ok(());
        };
        if memory.is_borrowed() {
            self.keep(&memory, Some(user), false)?;
        }
        proxy.lend(&memory, None);
        Ok(())
    }

    /// Has wires forget the memory that lay at these addresses: what is there now cannot be given to them.
    fn take_back(&self, address: u64, bytes: u64) {
        if let Some(proxy) = self.proxy.get().filter(|proxy| proxy.lends()) {
            proxy.take_back(address, bytes);
        }
    }

    /// Whether there is memory of the application's that may be gone.
    pub fn has_borrowed(&self) -> bool {
        !lock(&self.borrowed).is_empty()
    }

    /// Lets go of memory that the application has freed, once no launch that names it is left: peers are to unmap it.
    pub fn let_go(&self, shared: &Shared) -> Result<(), ExecutorError> {
        let mut borrowed = lock(&self.borrowed);
        let before = borrowed.len();
        borrowed.retain(|known| !(known.memory.is_freed() && known.is_unused(self)));
        let gone = borrowed.len() < before;
        drop(borrowed);
        // Memory that wires had is freed while no launch is under way that could wait for it.
        let lent = shared.ports.take_abandoned();
        if !lent.is_empty() {
            self.reaper.free(lent);
        }
        if gone { shared.regions.sweep(&*shared.bootstrap) } else { Ok(()) }
    }

    /// Whether peers have been told about the application's memory.
    fn is_kept(&self, memory: &Arc<dyn Memory>) -> bool {
        let borrowed = lock(&self.borrowed);
        borrowed.iter().any(|known| known.told && known.memory.id() == memory.id())
    }

    /// Keeps the application's memory, under the number by which peers know it if they were `told`: at least until its last
    /// launch is over on all ranks, or as long as the graph that uses it. It counts as used last, by `user` if there is one.
    fn keep(
        &self,
        memory: &Arc<dyn Memory>,
        user: Option<(&Arc<Context>, &Reader<'_>)>,
        told: bool,
    ) -> Result<(), ExecutorError> {
        let mut borrowed = lock(&self.borrowed);
        let at = borrowed.iter().position(|known| known.memory.id() == memory.id());
        let known = at.and_then(|at| borrowed.remove(at));
        let mut known = known.unwrap_or_else(|| Borrowed {
            memory: Arc::clone(memory),
            told,
            uses: Vec::new(),
        });
        known.told |= told;
        match user {
            Some((context, Reader::Launch(number))) => known.note(context, *number),
            Some((_, Reader::Graph(stream))) => {
                self.keep_for_graph(*stream, Arc::new(Arc::clone(memory)))?;
            }
            None => {}
        }
        borrowed.push_back(known);
        self.drop_oldest(&mut borrowed);
        Ok(())
    }

    /// Lets go of memory that was used long ago.
    fn drop_oldest(&self, borrowed: &mut VecDeque<Borrowed>) {
        // In order, so that one look at the oldest shows that there is nothing to do. Memory that queued launches use may stay
        // longer.
        while borrowed.len() > MOST_BORROWED
            && borrowed.front().is_some_and(|oldest| oldest.is_unused(self))
        {
            borrowed.pop_front();
        }
    }

    /// How far the contexts have come whose launches are in graphs.
    pub fn replays(&self) -> Vec<LaunchMarks> {
        let contexts = self.contexts();
        contexts.iter().filter(|context| context.is_recorded()).map(|one| one.marks()).collect()
    }

    /// Keeps what a recorded launch uses as long as its graph.
    pub fn keep_for_graph(
        &self,
        stream: &dyn Stream,
        object: Arc<dyn Any + Send + Sync>,
    ) -> Result<(), ExecutorError> {
        match stream.keep(Arc::clone(&object)) {
            // A driver that does not tell when graphs go.
            Err(HalError::Unsupported { .. }) => {
                lock(&self.recorded).push(object);
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Replaces the caller's buffers by memory that peers map. Buffers that overlap keep their distance.
    fn staged(
        &self,
        shared: &Shared,
        (context, reader): (&Context, &Reader<'_>),
        [input, output]: [Side; 2],
        [stage_input, stage_output]: [bool; 2],
    ) -> Result<Buffers, ExecutorError> {
        let uses = context.plan.uses(shared.rank);
        let overlap = input.overlaps(&output);
        let both = [stage_input || overlap, stage_output || overlap];
        let start = input.address.min(output.address);
        let places = if overlap {
            [input.address - start, output.address - start]
        } else {
            [0, if both[0] { input.bytes.next_multiple_of(128) } else { 0 }]
        };
        let end =
            |staged: bool, place: u64, side: &Side| if staged { place + side.bytes } else { 0 };
        let needed = end(both[0], places[0], &input).max(end(both[1], places[1], &output));
        let staging = self.staging(context, needed)?;
        if let Reader::Graph(stream) = reader {
            self.keep_for_graph(*stream, Arc::new(Arc::clone(&staging)))?;
        }
        let region = self.announce(shared, &staging)?;
        let base = staging.address().expose_provenance() as u64;
        let seat = |side: &Side, staged: bool, offset: u64| {
            if staged { Seat { address: base + offset, region, offset } } else { side.seat() }
        };
        // A collective that writes its whole output needs nothing of what was there before.
        let whole = matches!(
            context.plan.collective(),
            Collective::AllReduce
                | Collective::AllGather
                | Collective::ReduceScatter
                | Collective::AllToAll
        );
        let (mut before, mut after) = (Vec::new(), Vec::new());
        if both[1] {
            if uses.output.read || !whole {
                before.push((base + places[1], output.address, output.bytes));
            }
            if uses.output.written || (overlap && uses.input.written) {
                after.push((output.address, base + places[1], output.bytes));
            }
        }
        if both[0] {
            before.push((base + places[0], input.address, input.bytes));
            if uses.input.written {
                after.push((input.address, base + places[0], input.bytes));
            }
        }
        Ok(Buffers {
            input: seat(&input, both[0], places[0]),
            output: seat(&output, both[1], places[1]),
            before,
            after,
        })
    }

    fn staging(&self, context: &Context, needed: u64) -> Result<Arc<dyn Memory>, ExecutorError> {
        let mut staging = lock(&context.staging);
        if let Some(known) = staging.as_ref().filter(|known| known.len() >= needed) {
            return Ok(Arc::clone(known));
        }
        let made = self.device.allocate(needed.next_power_of_two())?;
        if let Some(before) = staging.replace(Arc::clone(&made)) {
            // Launches that use it may still run.
            lock(&self.outgrown).push(before);
        }
        Ok(made)
    }
}

/// Memories of the application that are kept under their numbers though no launch uses them.
const MOST_BORROWED: usize = 64;
