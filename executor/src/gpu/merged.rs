//! Ranks of this process that are one kernel.
//!
//! Ranks that share a device wait for each other, so all their blocks must run at the same time. As kernels of their own
//! nothing promises that: a stream that has other work before it, or a driver that starts kernels of several streams one
//! after the other, leaves one rank waiting for blocks that have not begun. One kernel has the blocks of all of them, and
//! where these are all the ranks that there are, the device promises to run them together.
//!
//! Stream order stays: the kernel waits, on the device, for what is before it in each rank's stream, and what follows in
//! each waits for it.

use super::compiled::{Compiled, KernelKind};
use super::context::Context;
use super::submission::{Behind, LaunchTarget, Ready, Shape};
use super::{Demand, Gpu, Recent};
use crate::communicator::Shared;
use crate::error::ExecutorError;
use crate::executor::{Call, OrderOf};
use crate::shared::arena::BlockBytes;
use crate::sync::lock;
use antiphon_codegen::abi::Launch;
use antiphon_codegen::{NO_RANK, TOGETHER};
use antiphon_hal::{LaunchShape, Stream};
use antiphon_plan::program::CallSizes;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

/// A call of one rank, among those that are launched together.
pub struct Member<'a> {
    /// The rank's communicator.
    pub shared: &'a Arc<Shared>,
    /// Its engine.
    pub gpu: &'a Gpu,
    /// In which order it comes.
    pub order: OrderOf,
    /// The call.
    pub call: &'a Call<'a>,
    /// Its sizes.
    pub sizes: CallSizes,
    /// Its runtime blocks.
    pub blocks: Vec<BlockBytes>,
    /// The rank's stream.
    pub stream: &'a Arc<dyn Stream>,
}

/// Kernels of several ranks: by the plan's content, the types, and the ranks in the order of their blocks; what each rank has
/// of one.
pub type Merged = HashMap<(u64, KernelKind, Vec<u32>), Vec<Arc<Compiled>>>;

/// Launches calls of several ranks of this process, each rank once: those that make the same call on one device as one
/// kernel, the others as kernels of their own.
///
/// # Safety
/// As `Executor::execute`, for each call.
pub unsafe fn launch_together(members: &[Member<'_>]) -> Result<(), ExecutorError> {
    let twice = |at: usize, one: &Member<'_>| {
        members[..at].iter().any(|other| Arc::ptr_eq(other.shared, one.shared))
    };
    if let Some((_, one)) = members.iter().enumerate().find(|(at, one)| twice(*at, one)) {
        return Err(ExecutorError::Argument {
            what: "launch ranks together",
            saw: format!("two calls of rank {}", one.shared.rank),
            allowed: "one call of each rank; launch the others by another call",
        });
    }
    let mut left: Vec<&Member<'_>> = members.iter().collect();
    while let Some(&first) = left.first() {
        let (mut group, rest): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|one| first.joins(one));
        left = rest;
        group.sort_by_key(|one| one.shared.rank);
        check_split(&group)?;
        for part in group.chunks(TOGETHER) {
            match part {
                [alone] => {
                    // SAFETY: as this function's.
                    unsafe { alone.launch()? };
                }
                _ => {
                    // SAFETY: as this function's.
                    if unsafe { launch_merged(part)? } {
                        continue;
                    }
                    for alone in part {
                        // SAFETY: as this function's.
                        unsafe { alone.launch()? };
                    }
                }
            }
        }
    }
    Ok(())
}

impl Member<'_> {
    fn shape(&self, recorded: bool) -> Shape {
        let lane = self.shared.lane(self.stream.id(), recorded);
        Shape::of((self.order, self.call), self.sizes, lane)
    }

    /// Where it is launched; `recorded` says whether that is into a graph.
    fn target(&self, recorded: bool) -> LaunchTarget<'_> {
        LaunchTarget { stream: &**self.stream, recorded }
    }

    /// Launches it as a kernel of its own.
    ///
    /// # Safety
    /// As [`launch_together`].
    unsafe fn launch(&self) -> Result<(), ExecutorError> {
        let (call, what) = ((self.order, self.call), (self.sizes, &*self.blocks));
        // SAFETY: as this function's.
        unsafe { self.gpu.launch(self.shared, call, what, self.stream) }
    }

    fn kind(&self) -> KernelKind {
        KernelKind::of(self.call)
    }

    /// Whether its blocks and another's can be of one kernel.
    fn joins(&self, other: &Self) -> bool {
        let content = |one: &Self| one.call.plan.layout().fingerprint;
        let shape = |one: &Self| one.gpu.shape(one.call.plan, 1);
        self.shared.identity == other.shared.identity
            && Arc::ptr_eq(&self.gpu.device, &other.gpu.device)
            && self.gpu.kernels == other.gpu.kernels
            && (content(self), self.kind(), shape(self))
                == (content(other), other.kind(), shape(other))
    }
}

/// Refuses members that are too many for one kernel if members of different kernels share a stream: the first kernel would wait
/// for the second, which is behind it.
fn check_split(members: &[&Member<'_>]) -> Result<(), ExecutorError> {
    for (at, member) in members.iter().enumerate() {
        let before = &members[..at - at % TOGETHER];
        let Some(other) = before.iter().find(|one| one.stream.id() == member.stream.id()) else {
            continue;
        };
        return Err(ExecutorError::Argument {
            what: "launch ranks together",
            saw: format!(
                "{} ranks on one device, of which ranks {} and {} share a stream, where a kernel has up to {TOGETHER}",
                members.len(),
                other.shared.rank,
                member.shared.rank
            ),
            allowed: "ranks that share a stream only within one kernel; give each rank a stream of its own",
        });
    }
    Ok(())
}

/// Whether members whose blocks could be one kernel may be launched one by one: each has a kernel of its own, and its own stream.
fn may_split(members: &[&Member<'_>], demands: &[Demand<'_>]) -> bool {
    let is_ready = |(member, demand): (&&Member<'_>, &Demand<'_>)| {
        let alone = |context: &Context| context.known_kernel(demand.kind);
        member.gpu.find_parts(demand, alone).is_some()
    };
    have_streams_of_their_own(members) && members.iter().zip(demands).all(is_ready)
}

fn have_streams_of_their_own(members: &[&Member<'_>]) -> bool {
    let mut streams: Vec<u64> = members.iter().map(|member| member.stream.id()).collect();
    streams.sort_unstable();
    streams.dedup();
    streams.len() == members.len()
}

/// A member, with what its launch uses.
struct Prepared<'a> {
    member: &'a Member<'a>,
    recent: &'a Arc<Recent>,
    ready: Ready,
    number: u64,
}

/// Launches calls of several ranks as one kernel, whose blocks are in the order of the members. `false`, with nothing launched, if they
/// are to be kernels of their own.
///
/// # Safety
/// As [`launch_together`].
unsafe fn launch_merged(members: &[&Member<'_>]) -> Result<bool, ExecutorError> {
    let lacking = |error| members.iter().fold(error, |error, member| member.shared.lacking(error));
    for member in members {
        member.shared.takes(&**member.stream)?;
        member.gpu.watch(member.shared).map_err(lacking)?;
    }
    let recorded = one_graph_or_none(members)?;
    let Some(recent) = find(members, recorded).map_err(lacking)? else { return Ok(false) };
    // In the order of ranks, as every thread takes several, so that none waits in a circle.
    let turns: Vec<_> = recent.iter().map(|recent| recent.context.turn()).collect();
    let mut prepared = Vec::with_capacity(members.len());
    for (member, recent) in members.iter().zip(&recent) {
        let Member { shared, gpu, call, blocks, .. } = member;
        let ready = gpu.ready(shared, recent, call, blocks, member.target(recorded));
        let ready = ready.map_err(lacking)?;
        prepared.push(Prepared { member, recent, ready, number: 0 });
    }
    let mut lanes: Vec<_> = members.iter().map(|member| member.gpu.lane_turn()).collect();
    for (member, lane) in members.iter().zip(&mut lanes) {
        if let Some(lane) = lane {
            lane.enter(member.target(recorded)).map_err(lacking)?;
        }
    }
    let launching = members[0].gpu.underway.launching();
    for (member, recent) in members.iter().zip(&recent) {
        recent.context.note_use();
        member.shared.check()?;
    }
    // Nothing is refused from here on, so that either all are launched or none.
    for one in &mut prepared {
        let Member { shared, gpu, call, .. } = one.member;
        one.number = gpu.number(shared, one.recent, call, one.ready.recorded);
    }
    // SAFETY: as this function's.
    let enqueued = unsafe { enqueue_merged(&prepared) };
    // Also where what follows the kernel fails: the kernel is in the stream.
    let is_enqueued = enqueued.is_ok();
    let launched = enqueued.and_then(|()| release_others(&prepared));
    let mut failed = launched.as_ref().err().cloned();
    let finished = prepared.iter().map(|one| {
        let Member { shared, gpu, call, stream, .. } = one.member;
        launched.clone()?;
        let sent = (&one.ready.buffers, *stream);
        // SAFETY: as this function's.
        unsafe { gpu.finish_call(shared, one.recent, call, sent) }
    });
    let finished: Vec<_> = finished.collect();
    let mut ends: Vec<(u64, Behind)> = Vec::new();
    for ((one, own), lane) in prepared.iter().zip(finished).zip(&mut lanes) {
        let Member { shared, gpu, stream, .. } = one.member;
        let behind = (is_enqueued && one.number > 0).then(|| {
            let same = ends.iter().find(|(id, _)| *id == stream.id());
            // In a lane, streams wait for this event. Another rank's soon stands for a launch that may wait for this rank's next.
            if let Some((_, known)) = same.filter(|_| lane.is_none()) {
                return known.clone();
            }
            let made = one.recent.context.put_merged_end(&***stream);
            ends.push((stream.id(), made.clone()));
            made
        });
        let event = behind.as_ref().and_then(|behind| behind.clone().ok());
        let settled = gpu.settle(shared, one.recent, one.number, behind, own);
        let left = settled.and_then(|()| match lane {
            Some(lane) => lane.leave(shared, one.member.target(recorded), event),
            None => Ok(()),
        });
        failed = failed.or(left.err());
    }
    drop(launching);
    drop(prepared);
    drop(lanes);
    drop(turns);
    for member in members {
        if let Some(watch) = member.gpu.watch.get() {
            watch.look();
        }
    }
    failed.map_or(Ok(true), Err)
}

/// Whether these members' kernel is part of a graph. Refuses members of which only some are recorded.
fn one_graph_or_none(members: &[&Member<'_>]) -> Result<bool, ExecutorError> {
    let mut recorded: Vec<bool> = Vec::with_capacity(members.len());
    for (at, member) in members.iter().enumerate() {
        let same = |other: &&Member<'_>| other.stream.id() == member.stream.id();
        recorded.push(match members[..at].iter().position(same) {
            Some(known) => recorded[known],
            None => member.stream.is_capturing()?,
        });
    }
    if recorded.iter().all(|one| *one == recorded[0]) {
        return Ok(recorded[0]);
    }
    let count = recorded.iter().filter(|one| **one).count();
    Err(ExecutorError::Argument {
        what: "launch ranks together",
        saw: format!("{count} of {} streams recorded into a graph", members.len()),
        allowed: "all or none; let the others wait for an event of the stream that is recorded first",
    })
}

/// Finds or makes the contexts of the members' calls. `None` if they are to be kernels of their own: the one kernel of all would
/// have to be loaded beside a launch, for which the driver may wait, and which may wait for theirs.
fn find<'a>(
    members: &[&Member<'a>],
    recorded: bool,
) -> Result<Option<Vec<Arc<Recent>>>, ExecutorError> {
    let ranks: Vec<u32> = members.iter().map(|member| member.shared.rank).collect();
    let shape = |member: &Member<'a>| member.shape(recorded);
    let known = |member: &&Member<'a>| member.gpu.recent().find(shape(member), &ranks);
    if let Some(recent) = members.iter().map(known).collect() {
        return Ok(Some(recent));
    }
    let own = members[0];
    let demand =
        |member: &&Member<'a>| member.gpu.demand(member.shared, member.call, shape(member));
    let demands = members.iter().map(demand).collect::<Result<Vec<_>, _>>()?;
    let own_demand = &demands[0];
    let known = |position: usize| {
        let member = members[position];
        let merged = own.gpu.known_merged_kernel(own_demand, &ranks);
        let kernel = |_: &Context| Some(Arc::clone(merged.as_ref()?.get(position)?));
        let parts = member.gpu.find_parts(&demands[position], kernel)?;
        Some(member.gpu.keep_call(member.call, shape(member), &ranks, parts))
    };
    // One device, and one communicator.
    let family = &own.gpu.family;
    // If not, nothing is known of what the others need for their calls.
    let is_all = family.is_all(&ranks);
    let all_known = || (0..members.len()).map(known).collect::<Option<_>>();
    let must_split = || {
        own.gpu.known_merged_kernel(own_demand, &ranks).is_none()
            && may_split(members, &demands)
            && own.gpu.underway.alone(Some(&*own.gpu.device)).is_none()
    };
    let settled = || {
        let found = all_known().filter(|_| is_all);
        found.map(Some).or_else(|| must_split().then_some(None))
    };
    let making = match family.making_unless(settled) {
        Ok(making) => making,
        Err(settled) => return Ok(settled),
    };
    if !is_all {
        // Done before this thread launches anything that may wait for launches of others, so that none of these has to load code.
        let alone = |context: &Context| context.kernel(own.shared, own.gpu, own_demand.kind);
        own.gpu.make_parts(own.shared, own_demand, alone)?;
        own.gpu.make_for_others(own.shared, own_demand, &making);
    }
    let splits = may_split(members, &demands);
    let merged = own.gpu.merged_kernel(own.shared, own_demand, (&ranks, splits))?;
    let Some(merged) = merged else { return Ok(None) };
    let mut found = Vec::with_capacity(members.len());
    for ((member, demand), of_member) in members.iter().zip(&demands).zip(&merged) {
        let Member { shared, gpu, call, .. } = member;
        let parts = gpu.make_parts(shared, demand, |_| Ok(Arc::clone(of_member)))?;
        found.push(gpu.keep_call(call, shape(member), &ranks, parts));
    }
    Ok(Some(found))
}

impl Gpu {
    /// The kernel of several ranks of which this is the lowest, loaded unless it is there: what each has of it. `None` if loading
    /// would have to wait for launches, and the ranks may be kernels of their own.
    fn merged_kernel(
        &self,
        shared: &Shared,
        demand: &Demand<'_>,
        (ranks, may_split): (&[u32], bool),
    ) -> Result<Option<Vec<Arc<Compiled>>>, ExecutorError> {
        if let Some(known) = self.known_merged_kernel(demand, ranks) {
            return Ok(Some(known));
        }
        // Loading code may wait for kernels: threads that want another kernel that is there do not take this lock.
        let _merging = lock(&self.merging);
        if let Some(known) = self.known_merged_kernel(demand, ranks) {
            return Ok(Some(known));
        }
        let &Demand { plan, kind, .. } = demand;
        let loaded = Compiled::load_together(shared, self, plan, kind, (ranks, may_split))?;
        let Some(loaded) = loaded else { return Ok(None) };
        let key = (plan.layout().fingerprint, kind, ranks.to_vec());
        lock(&self.merged).insert(key, loaded.clone());
        Ok(Some(loaded))
    }

    /// The same, if it is there.
    fn known_merged_kernel(
        &self,
        demand: &Demand<'_>,
        ranks: &[u32],
    ) -> Option<Vec<Arc<Compiled>>> {
        let key = (demand.plan.layout().fingerprint, demand.kind, ranks.to_vec());
        let merged = lock(&self.merged);
        merged.get(&key).cloned()
    }
}

/// Those whose streams are others than the first one's.
fn elsewhere<'a, 'b>(prepared: &'b [Prepared<'a>]) -> impl Iterator<Item = &'b Prepared<'a>> {
    let stream = prepared[0].member.stream.id();
    prepared.iter().filter(move |one| one.member.stream.id() != stream)
}

/// Puts the kernel of several ranks into the first one's stream, behind the copies before it and what is in all their streams.
///
/// # Errors
/// What the driver says. The kernel is not in the stream then.
///
/// # Safety
/// As [`launch_together`].
unsafe fn enqueue_merged(prepared: &[Prepared<'_>]) -> Result<(), ExecutorError> {
    let first = &prepared[0];
    let stream = first.member.stream;
    for one in prepared {
        one.ready.buffers.copy_in(&**one.member.stream)?;
    }
    for one in elsewhere(prepared) {
        let join_event = one.recent.context.join_event(&*one.member.gpu.device)?;
        one.member.stream.record(join_event)?;
        stream.wait(join_event)?;
    }
    let mut blocks = 0;
    let mut launches = [Launch { first_block: NO_RANK, ..Launch::default() }; TOGETHER];
    for (place, Prepared { member, recent, ready, number }) in launches.iter_mut().zip(prepared) {
        let launch = member.gpu.kernel_parameter(member.shared, recent, ready, *number);
        *place = Launch { first_block: blocks, ..launch };
        blocks += recent.compiled.blocks;
    }
    let arguments = [launches.as_ptr().cast::<c_void>()];
    let gpu = first.member.gpu;
    let shape: LaunchShape = gpu.shape(&first.recent.plan, blocks);
    // One that waits for other launches must not be cooperative.
    let all = prepared.len() == first.member.shared.world as usize;
    let kernel = &first.recent.compiled.kernel;
    // SAFETY: the kernel's one parameter is a `Launch` for each of `TOGETHER` ranks at most; what those of the members point to
    // belongs to the members' contexts and calls, whose buffers are valid until they are complete by the caller's contract.
    unsafe {
        if all && gpu.device.caps().cooperative {
            kernel.launch_cooperative(&**stream, shape, &arguments)?;
        } else {
            kernel.launch(&**stream, shape, &arguments)?;
        }
    }
    Ok(())
}

/// Lets the streams of the others wait for the kernel that was put into the first one's.
fn release_others(prepared: &[Prepared<'_>]) -> Result<(), ExecutorError> {
    if elsewhere(prepared).next().is_none() {
        return Ok(());
    }
    let Prepared { member: first, recent, .. } = &prepared[0];
    let join_event = recent.context.join_event(&*first.gpu.device)?;
    first.stream.record(join_event)?;
    for one in elsewhere(prepared) {
        one.member.stream.wait(join_event)?;
    }
    Ok(())
}
