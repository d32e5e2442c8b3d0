//! Multicast groups of switch channels: made by the lowest member, joined and bound by all, used by each launch on its own.
//!
//! ```text
//! launch --Region--> lowest member --Made--> all join --Next(Bind)--> all bind --Next(Use)--> kernels find it
//! memory freed --Freed--> lowest member --Next(Stop)--> all: no launch uses it --Next(Drop)--> all unbind
//! ```
//!
//! A group is bound to one region of each member. A launch that finds its buffers in just these, at equal offsets, goes
//! through it; any other goes to each member by itself, which leaves the same bytes: no rank needs to know what the others
//! do. So nothing waits for a group, and one that cannot be had is none. All of it is done by whoever tends
//! launches, never by the thread that ends them; the control thread only keeps what it hears.

mod lists;
mod message;
mod tells;

use super::Gpu;
use super::context::Context;
use super::shape::ArenaShape;
use crate::communicator::{CONTROL, Shared};
use crate::error::ExecutorError;
use crate::sync::lock;
use crate::tags::GROUP;
use antiphon_bootstrap::{BootstrapError, Message};
use antiphon_codegen::abi::FOREIGN;
use antiphon_hal::{HalError, Memory, MemoryHandle, Multicast};
use antiphon_plan::program::{Area, Layout};
use lists::Lists;
use message::{GroupMessage, Id, Key, Step};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;
use tells::Tells;

/// Groups of one switch channel at a time.
const MOST: usize = 8;
/// Messages that wait for the tender.
const MOST_MAIL: usize = 1 << 16;
/// Regions that a rank remembers to have told of, for each switch channel; and sets that could not be made a group.
const REMEMBERED: usize = 16;

/// What the control thread has heard about groups.
#[derive(Debug, Default)]
pub struct Mail(Mutex<Vec<Letter>>);

/// Who said what, with the handle that came along.
type Letter = (u32, GroupMessage, Option<MemoryHandle>);

impl Mail {
    /// Keeps a peer's message.
    pub fn receive(
        &self,
        from: u32,
        payload: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), String> {
        let read = GroupMessage::decode(payload);
        let (message, blob) =
            read.ok_or_else(|| format!("{} bytes about a group", payload.len()))?;
        let handle = || MemoryHandle::from_blob(blob, descriptors.into_iter().next());
        let handle = (!blob.is_empty()).then(handle).transpose();
        self.put((from, message, handle.map_err(|error| error.to_string())?))
    }

    fn put(&self, letter: Letter) -> Result<(), String> {
        let mut letters = lock(&self.0);
        if letters.len() >= MOST_MAIL {
            return Err(format!("{MOST_MAIL} messages about groups at once"));
        }
        letters.push(letter);
        Ok(())
    }

    fn take(&self) -> Vec<Letter> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// A rank's part in groups of the same members over the same area, in one context.
#[derive(Debug)]
pub struct Part {
    key: Key,
    members: Vec<u32>,
    area: Area,
    /// The rank's switch channels that are these.
    channels: Vec<u32>,
    /// Bytes from the bound memory's start to the area: of scratch alone.
    start: u64,
    /// Regions that the lowest member was told of.
    told: Mutex<VecDeque<u64>>,
}

impl Part {
    /// Whether scratch is bound.
    pub fn is_scratch(&self) -> bool {
        self.area == Area::Scratch
    }

    /// The members but `rank`.
    pub fn others(&self, rank: u32) -> impl Iterator<Item = u32> {
        self.members.iter().copied().filter(move |&member| member != rank)
    }

    fn root(&self) -> u32 {
        self.members.iter().copied().min().unwrap_or(0)
    }
}

/// The groups that this rank takes part in, in a context of this number: those whose members are on one node, each on a device
/// of its own that multicasts.
pub fn parts(shared: &Shared, layout: &Layout, context: u64, arenas: &[ArenaShape]) -> Vec<Part> {
    let rank = shared.rank;
    let mut parts: Vec<Part> = Vec::new();
    let own = &layout.ranks[rank as usize].switches;
    for (channel, switch) in (0..).zip(own) {
        let members = &switch.members;
        let same = |part: &&mut Part| part.members == *members && part.area == switch.area;
        if let Some(known) = parts.iter_mut().find(same) {
            known.channels.push(channel);
            continue;
        }
        let start = |member: &u32| arenas[*member as usize].scratch.raw;
        let fits = match switch.area {
            Area::Input | Area::Output => true,
            Area::Scratch => members.iter().all(|member| start(member) == start(&rank)),
            Area::Packets => false,
        };
        let near = members.iter().all(|&member| shared.peers[member as usize].same_node);
        if !fits || !near || !members.contains(&rank) || !shared.neighbours.multicast(members) {
            continue;
        }
        let root = members.iter().copied().min().unwrap_or(rank);
        let first = layout.ranks[root as usize].switches.iter().position(|one| one == switch);
        let Some(first) = first else { continue };
        let start = if switch.area == Area::Scratch { start(&rank) } else { 0 };
        parts.push(Part {
            key: Key { context, channel: first as u32 },
            members: members.clone(),
            area: switch.area,
            channels: vec![channel],
            start,
            told: Mutex::default(),
        });
    }
    parts
}

/// The groups of a rank.
#[derive(Debug, Default)]
pub struct Groups {
    tells: Tells,
    groups: BTreeMap<Id, Group>,
    made: u64,
    /// Regions that made no group.
    failed: HashMap<Key, VecDeque<Vec<u64>>>,
    lists: Lists,
}

#[derive(Debug)]
struct Group {
    context: Weak<Context>,
    /// The position of its part in the context.
    part: usize,
    regions: Vec<u64>,
    object: Arc<dyn Multicast>,
    /// What this rank has bound, and where the group is mapped.
    bound: Option<(Weak<dyn Memory>, Arc<dyn Memory>)>,
    used: bool,
    /// The lowest member was told that the memory is gone.
    freed: bool,
    /// No launch that begins uses it: since when, as [`lists::Over`] says.
    stopping: Option<lists::Over>,
    /// What the lowest member knows of the others.
    lead: Option<Lead>,
}

#[derive(Debug)]
struct Lead {
    step: Step,
    done: BTreeSet<u32>,
    well: bool,
}

impl Gpu {
    /// Tells the lowest member of each group which regions a launch uses.
    pub fn tell_regions(
        &self,
        shared: &Shared,
        context: &Context,
        [input, output]: [u64; 2],
    ) -> Result<(), ExecutorError> {
        for part in &context.parts {
            let region = match part.area {
                Area::Input => input,
                Area::Output => output,
                _ => continue,
            };
            if region != FOREIGN {
                self.tell_region(shared, part, context.next(), region)?;
            }
        }
        Ok(())
    }

    /// Tells the lowest member that `region` holds the area of a part from a launch on, once.
    pub fn tell_region(
        &self,
        shared: &Shared,
        part: &Part,
        launch: u64,
        region: u64,
    ) -> Result<(), ExecutorError> {
        let mut told = lock(&part.told);
        if told.contains(&region) {
            return Ok(());
        }
        told.push_back(region);
        if told.len() > REMEMBERED {
            told.pop_front();
        }
        drop(told);
        // The application's own memory is not bound.
        if lock(&self.slots).look(region).is_none_or(|(_, is_borrowed)| is_borrowed) {
            return Ok(());
        }
        self.say(shared, part.root(), GroupMessage::Region { key: part.key, launch, region }, None)
    }

    fn say(
        &self,
        shared: &Shared,
        to: u32,
        message: GroupMessage,
        handle: Option<&MemoryHandle>,
    ) -> Result<(), ExecutorError> {
        self.is_told(shared, to, message, handle).map(drop)
    }

    /// Says something to a rank; whether that is still there.
    fn is_told(
        &self,
        shared: &Shared,
        to: u32,
        message: GroupMessage,
        handle: Option<&MemoryHandle>,
    ) -> Result<bool, ExecutorError> {
        if to == shared.rank {
            let kept = self.peers.mail.put((to, message, None));
            let what = "message about a group";
            kept.map_err(|found| ExecutorError::Layout { what, peer: to, found })?;
            return Ok(true);
        }
        let mut payload = message.encode();
        payload.extend(handle.map(MemoryHandle::to_blob).unwrap_or_default());
        let descriptor = handle.and_then(MemoryHandle::descriptor);
        let descriptor = descriptor.map(|descriptor| descriptor.try_clone_to_owned()).transpose();
        let descriptors = descriptor.map_err(|source| HalError::System {
            what: "duplicate the descriptor of a multicast group".to_owned(),
            source,
        })?;
        let descriptors = descriptors.into_iter().collect();
        let message = Message { channel: CONTROL, tag: GROUP, payload, descriptors };
        match shared.bootstrap.send(to, message) {
            Ok(()) => Ok(true),
            // Whoever is through needs no groups any more.
            Err(BootstrapError::PeerLeft { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether there may be something to do about groups.
    pub fn has_groups(&self) -> bool {
        self.contexts().iter().any(|context| !context.parts.is_empty())
    }

    /// Does what is to be done about groups. Called every few milliseconds, beside launches by a thread that ends none.
    pub fn attend_groups(&self, shared: &Shared) -> Result<(), ExecutorError> {
        let mut groups = lock(&self.groups);
        let groups = &mut *groups;
        loop {
            let letters = self.peers.mail.take();
            if letters.is_empty() {
                break;
            }
            for (from, message, handle) in letters {
                self.hear(shared, groups, from, message, handle)?;
            }
        }
        for context in self.contexts() {
            for (at, part) in context.parts.iter().enumerate() {
                if part.root() == shared.rank {
                    self.make(shared, groups, (&context, at))?;
                }
            }
        }
        self.look_for_freed(shared, groups)?;
        for (&(root, number), group) in &mut groups.groups {
            if group.stopping.as_mut().is_some_and(lists::Over::look) {
                group.stopping = None;
                let step = Step::Stop;
                self.say(shared, root, GroupMessage::Done { number, step, well: true }, None)?;
            }
        }
        let unread = groups.lists.unread();
        if !unread.is_empty() {
            self.reaper.free(unread);
        }
        Ok(())
    }

    /// Makes the groups that are wanted.
    fn make(
        &self,
        shared: &Shared,
        groups: &mut Groups,
        (context, at): (&Arc<Context>, usize),
    ) -> Result<(), ExecutorError> {
        let part = &context.parts[at];
        for regions in groups.tells.settled(part.key, &part.members, Instant::now()) {
            let of_part = |group: &&Group| group.is_of(context, at);
            let known = groups.groups.values().filter(of_part);
            let failed = groups.failed.get(&part.key).is_some_and(|sets| sets.contains(&regions));
            if failed
                || known.clone().any(|group| group.regions == regions)
                || known.count() >= MOST
            {
                continue;
            }
            let lengths = part.members.iter().zip(&regions).map(|(&member, &region)| {
                let own = || lock(&self.slots).look(region).map(|(bytes, _)| bytes);
                if member == shared.rank { own() } else { self.peers.tables.bytes(member, region) }
            });
            // Memory that is gone again.
            let Some(lengths) = lengths.collect::<Option<Vec<_>>>() else { continue };
            let bytes = lengths.into_iter().min().unwrap_or(0);
            let made = self.device.multicast(part.members.len() as u32, bytes);
            let made = made.and_then(|object| Ok((object.export()?, object)));
            let (handle, object) = match made {
                Ok(made) => made,
                Err(error) => {
                    log::info!("switch channels go to each member by itself: {error}");
                    groups.forget(part.key, regions);
                    continue;
                }
            };
            groups.made += 1;
            let number = groups.made;
            let mut group = Group::new(context, at, regions.clone(), object);
            let (done, step) = (BTreeSet::from([shared.rank]), Step::Join);
            group.lead = Some(Lead { step, done, well: true });
            groups.groups.insert((shared.rank, number), group);
            for &member in part.members.iter().filter(|&&member| member != shared.rank) {
                let (key, regions) = (part.key, regions.clone());
                let message = GroupMessage::Made { number, key, regions };
                self.say(shared, member, message, Some(&handle))?;
            }
        }
        Ok(())
    }

    fn hear(
        &self,
        shared: &Shared,
        groups: &mut Groups,
        from: u32,
        message: GroupMessage,
        handle: Option<MemoryHandle>,
    ) -> Result<(), ExecutorError> {
        match message {
            GroupMessage::Region { key, launch, region } => {
                groups.tells.note(key, from, launch, region);
            }
            GroupMessage::Made { number, key, regions } => {
                let joined = self.join(from, key, regions, handle.as_ref());
                let (step, well) = (Step::Join, joined.is_some());
                groups.groups.extend(joined.map(|group| ((from, number), group)));
                self.say(shared, from, GroupMessage::Done { number, step, well }, None)?;
            }
            GroupMessage::Next { number, step } => {
                self.take_step(shared, groups, (from, number), step)?;
            }
            GroupMessage::Done { number, step, well } => {
                self.count_done(shared, groups, number, (from, step, well))?;
            }
            GroupMessage::Freed { number } => {
                let Some(group) = groups.groups.get_mut(&(shared.rank, number)) else {
                    return Ok(());
                };
                let Some(lead) = &mut group.lead else { return Ok(()) };
                lead.well = false;
                if lead.step == Step::Use {
                    self.next_step(shared, group, number, Step::Stop)?;
                }
            }
        }
        Ok(())
    }

    /// Joins a group that `root` has made; `None` if that cannot be.
    fn join(
        &self,
        root: u32,
        key: Key,
        regions: Vec<u64>,
        handle: Option<&MemoryHandle>,
    ) -> Option<Group> {
        let contexts = self.contexts();
        let found = contexts.iter().find_map(|context| {
            let at = context.parts.iter().position(|part| part.key == key && part.root() == root);
            at.map(|at| (context, at))
        });
        let (context, at) = found?;
        if regions.len() != context.parts[at].members.len() {
            return None;
        }
        match self.device.import_multicast(handle?) {
            Ok(object) => Some(Group::new(context, at, regions, object)),
            Err(error) => {
                log::info!("switch channels go to each member by itself: {error}");
                None
            }
        }
    }

    fn take_step(
        &self,
        shared: &Shared,
        groups: &mut Groups,
        id: Id,
        step: Step,
    ) -> Result<(), ExecutorError> {
        let (root, number) = id;
        let Some(group) = groups.groups.get_mut(&id) else { return Ok(()) };
        match step {
            // By [`GroupMessage::Made`].
            Step::Join => return Ok(()),
            Step::Bind => {
                let bound = group.bind(self, shared.rank);
                let well = bound.inspect_err(|error| {
                    log::info!("switch channels go to each member by itself: {error}");
                });
                let well = well.is_ok();
                return self.say(shared, root, GroupMessage::Done { number, step, well }, None);
            }
            Step::Use => group.used = group.bound.is_some(),
            Step::Stop | Step::Drop => group.used = false,
        }
        let (Some(context), at) = (group.context.upgrade(), group.part) else { return Ok(()) };
        if step == Step::Stop {
            group.stopping = Some(lists::Over::new(&context));
        }
        let used = groups.groups.values().filter(|group| group.used && group.is_of(&context, at));
        let used = used.filter_map(|group| {
            let (_, mapped) = group.bound.as_ref()?;
            Some((mapped.address().expose_provenance() as u64, &group.regions[..]))
        });
        groups.lists.publish(self, &context, &context.parts[at], &used.collect::<Vec<_>>())?;
        if step == Step::Drop {
            self.reaper.free(groups.groups.remove(&id));
        }
        Ok(())
    }

    /// Tells all members what comes next.
    fn next_step(
        &self,
        shared: &Shared,
        group: &mut Group,
        number: u64,
        step: Step,
    ) -> Result<(), ExecutorError> {
        if let Some(lead) = &mut group.lead {
            lead.step = step;
            lead.done.clear();
        }
        let Some(context) = group.context.upgrade() else { return Ok(()) };
        for &member in &context.parts[group.part].members {
            let told = self.is_told(shared, member, GroupMessage::Next { number, step }, None)?;
            // Whoever has left does nothing any more.
            if let (false, Some(lead)) = (told, &mut group.lead) {
                lead.done.insert(member);
            }
        }
        Ok(())
    }

    /// A member has done a step, of a group that this rank leads.
    fn count_done(
        &self,
        shared: &Shared,
        groups: &mut Groups,
        number: u64,
        (from, step, well): (u32, Step, bool),
    ) -> Result<(), ExecutorError> {
        let Some(group) = groups.groups.get_mut(&(shared.rank, number)) else { return Ok(()) };
        let Some(context) = group.context.upgrade() else { return Ok(()) };
        let part = &context.parts[group.part];
        let Some(lead) = &mut group.lead else { return Ok(()) };
        if lead.step != step || !part.members.contains(&from) {
            return Ok(());
        }
        lead.well &= well;
        lead.done.insert(from);
        if lead.done.len() < part.members.len() {
            return Ok(());
        }
        let next = match (step, lead.well) {
            (Step::Join, true) => Step::Bind,
            (Step::Bind, true) => Step::Use,
            _ => Step::Drop,
        };
        let regions = (next == Step::Drop && step != Step::Stop).then(|| group.regions.clone());
        self.next_step(shared, group, number, next)?;
        if let Some(regions) = regions {
            groups.forget(part.key, regions);
        }
        Ok(())
    }

    /// Tells the lowest members of memory that nobody but groups keeps.
    fn look_for_freed(&self, shared: &Shared, groups: &mut Groups) -> Result<(), ExecutorError> {
        let mut bindings: HashMap<usize, usize> = HashMap::new();
        let address = |memory: &Weak<dyn Memory>| memory.as_ptr().addr();
        for (memory, _) in groups.groups.values().filter_map(|group| group.bound.as_ref()) {
            *bindings.entry(address(memory)).or_default() += 1;
        }
        for (&(root, number), group) in &mut groups.groups {
            let Some((memory, _)) = &group.bound else { continue };
            if !group.freed && memory.strong_count() <= bindings[&address(memory)] {
                group.freed = true;
                self.say(shared, root, GroupMessage::Freed { number }, None)?;
            }
        }
        Ok(())
    }

    /// Keeps all groups for ever. If a communicator has failed, or its launches do not end, kernels may still go through groups,
    /// which must never be unbound then.
    pub fn abandon_groups(&self) {
        let mut groups = lock(&self.groups);
        std::mem::forget(std::mem::take(&mut *groups));
    }
}

impl Groups {
    /// Notes that some regions make no group.
    fn forget(&mut self, key: Key, regions: Vec<u64>) {
        let failed = self.failed.entry(key).or_default();
        failed.push_back(regions);
        if failed.len() > REMEMBERED {
            failed.pop_front();
        }
    }
}

impl Group {
    fn new(
        context: &Arc<Context>,
        part: usize,
        regions: Vec<u64>,
        object: Arc<dyn Multicast>,
    ) -> Self {
        let context = Arc::downgrade(context);
        let (bound, used, freed, stopping, lead) = (None, false, false, None, None);
        Group { context, part, regions, object, bound, used, freed, stopping, lead }
    }

    fn is_of(&self, context: &Arc<Context>, part: usize) -> bool {
        self.part == part && self.context.as_ptr() == Arc::as_ptr(context)
    }

    /// Binds this rank's memory.
    fn bind(&mut self, gpu: &Gpu, rank: u32) -> Result<(), String> {
        let context = self.context.upgrade().ok_or("the context is gone")?;
        let members = &context.parts[self.part].members;
        let at = members.iter().position(|&member| member == rank).ok_or("not a member")?;
        let memory = lock(&gpu.slots).memory(self.regions[at]).ok_or("memory that was freed")?;
        let mapped = self.object.bind(&memory).map_err(|error| error.to_string());
        let memory_of = Arc::downgrade(&memory);
        // Whoever else has it may have let go of it meanwhile.
        gpu.reaper.free(memory);
        self.bound = Some((memory_of, mapped?));
        Ok(())
    }
}
