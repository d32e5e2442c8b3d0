//! Loaded plans: checked and lowered once, with the byte ranges of recent sizes.

use crate::error::ExecutorError;
use crate::sync::lock;
use crate::touches::Touches;
use crate::verification::{Scope, Verdict};
use antiphon_plan::LowerError;
use antiphon_plan::check::check;
use antiphon_plan::model::{Collective, Plan};
use antiphon_plan::program::{
    Access, Area, BlockMove, CallSizes, Instruction, Layout, Program, RankLayout,
};
use antiphon_plan::recut::Recut;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Sizes whose byte ranges are kept for each plan.
const KEPT_SIZES: usize = 256;

/// A plan that is checked, lowered and ready to run. It is tied to no communicator and may serve several.
#[derive(Debug)]
pub struct LoadedPlan {
    layout: Layout,
    uses: Vec<Uses>,
    /// Several ranks have both of their buffers in it.
    sensitive: bool,
    recut: Recut,
    sized: Mutex<HashMap<CallSizes, Arc<Sized>>>,
    verdict: Verdict,
    scope: Scope,
    /// Something was said of calls that the verdict is not about.
    warned: AtomicBool,
    block_threads: u32,
    /// What it is installed as.
    installed: Option<String>,
}

/// What a rank's peers and blocks do with its buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    /// Another rank touches this rank's input.
    pub input_exposed: bool,
    /// Another rank touches this rank's output.
    pub output_exposed: bool,
    /// Some rank reads this rank's input.
    pub input_read: bool,
    /// Some rank writes this rank's input.
    pub input_written: bool,
    /// Some rank reads this rank's output.
    pub output_read: bool,
    /// Some rank writes this rank's output.
    pub output_written: bool,
    /// Ranks that write packets into this rank's scratch, ascending.
    pub packet_writers: Vec<u32>,
    /// Ranks that write this rank's input or output without a signal to this rank afterwards, ascending: that this rank
    /// is through does not mean that they are.
    pub late_writers: Vec<u32>,
    /// Ranks of which this rank is a late writer, ascending.
    pub written_late: Vec<u32>,
    /// Other ranks that read or write this rank's input or output, ascending.
    pub guests: Vec<u32>,
    /// Ranks whose scratch this rank writes as packets without hearing from them in the same launch, so that
    /// their earlier launches must be asked for.
    pub unheard: Vec<u32>,
    /// Ranks whose scratch this rank writes as packets.
    pub packet_targets: Vec<u32>,
    /// A transfer of a port channel reads or writes this rank's input.
    pub input_posted: bool,
    /// A transfer of a port channel reads or writes this rank's output.
    pub output_posted: bool,
    /// Ranks at the other end of this rank's port channels, and those with port channels to this rank, ascending.
    pub port_peers: Vec<u32>,
}

/// A plan's byte ranges for one set of sizes.
#[derive(Debug)]
pub(crate) struct Sized {
    sizes: CallSizes,
    admitted: OnceLock<Result<(), LowerError>>,
    programs: Vec<OnceLock<Result<Program, LowerError>>>,
    silent: Vec<OnceLock<bool>>,
    touches: Vec<OnceLock<Option<Touches>>>,
}

impl Uses {
    /// Whether both of the rank's buffers have a part in the plan.
    pub fn has_both(&self) -> bool {
        (self.input_read || self.input_written) && (self.output_read || self.output_written)
    }
}

impl LoadedPlan {
    /// Checks and lowers a plan; whether it is right is for others to say.
    ///
    /// # Errors
    /// [`ExecutorError::Plan`] lists every fault; [`ExecutorError::Lower`] says what is not supported.
    pub(crate) fn new(plan: &Plan) -> Result<Self, ExecutorError> {
        check(plan).map_err(|faults| ExecutorError::Plan {
            plan: plan.name.clone(),
            faults: Arc::new(faults),
        })?;
        let lower_error =
            |source| ExecutorError::Lower { plan: plan.name.clone(), source: Arc::new(source) };
        let layout = Layout::new(plan).map_err(lower_error)?;
        let (uses, recut) = (uses(&layout), Recut::new(&layout));
        let sensitive = uses.iter().filter(|uses| uses.has_both()).nth(1).is_some();
        let block_threads = block_threads(plan.num_threads_per_block);
        Ok(LoadedPlan {
            layout,
            uses,
            sensitive,
            recut,
            sized: Mutex::default(),
            verdict: Verdict::NotVerified,
            scope: Scope::default(),
            warned: AtomicBool::new(false),
            installed: None,
            block_threads,
        })
    }

    /// The plan, of which this is known.
    pub(crate) fn with_verdict(self, verdict: Verdict, scope: Scope) -> Self {
        LoadedPlan { verdict, scope, ..self }
    }

    /// The plan, which is right whichever ranks are in place.
    pub(crate) fn with_mixtures(self) -> Self {
        LoadedPlan { sensitive: false, ..self }
    }

    /// The plan as it serves calls that it was installed for, under this name.
    pub(crate) fn installed_as(self, name: &str) -> Self {
        LoadedPlan { installed: Some(name.to_owned()), ..self }
    }

    /// What went wrong with a launch of the plan; of an installed one, with the way to do without it.
    pub(crate) fn told(&self, error: ExecutorError) -> ExecutorError {
        match &self.installed {
            Some(name) => error.of_installed(name),
            None => error,
        }
    }

    /// What the verifier says of the plan.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Whether it is proven, for calls whose buffers share memory or do not, that no other rank touches a rank's buffers once that
    /// rank's blocks are done. Of test plans it is not: their authors know when to touch what.
    pub(crate) fn keeps_to_itself(&self, shares: bool) -> bool {
        if self.layout.collective == Collective::Test {
            return false;
        }
        let mixed = (self.collective().has_root() || self.layout.runtime_sizes) && self.sensitive;
        let known = shares == self.layout.in_place || self.scope.elsewhere == Some(true);
        self.verdict == Verdict::Proven && known && !mixed
    }

    /// Whether the plan is also right where input and output are one memory and it is written for two, or the other way round;
    /// `None` where nobody has found out. Calls that lie where it is wrong are refused.
    pub fn elsewhere(&self) -> Option<bool> {
        self.scope.elsewhere
    }

    /// Says once that a proven plan runs where its buffers lie otherwise than it was proven.
    pub(crate) fn warn_of_place(&self, place: &str) {
        if self.verdict == Verdict::Proven && !self.warned.swap(true, Ordering::Relaxed) {
            log::warn!(
                "plan `{}` runs {place}, and is proven for calls that do not: nobody looked whether it is right there",
                self.name()
            );
        }
    }

    /// Which calls the verdict is about.
    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// The plan's name.
    pub fn name(&self) -> &str {
        &self.layout.name
    }

    /// What the plan computes.
    pub fn collective(&self) -> &Collective {
        &self.layout.collective
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.layout.ranks.len() as u32
    }

    /// The lowered plan.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether a rank's output holds sums that an average divides; `in_place` says that its input is the same memory.
    pub(crate) fn averages(&self, rank: u32, in_place: bool) -> bool {
        match self.collective() {
            Collective::AllReduce | Collective::ReduceScatter => true,
            Collective::Reduce => {
                let uses = self.uses(rank);
                uses.output_written || (in_place && uses.input_written)
            }
            _ => false,
        }
    }

    /// Threads of each thread block where kernels run it, unless options say otherwise; on hosts blocks have none.
    pub(crate) fn block_threads(&self) -> u32 {
        self.block_threads
    }

    /// Whether some rank has scratch.
    pub(crate) fn has_scratch(&self) -> bool {
        self.layout.ranks.iter().any(|rank| rank.scratch_chunks > 0)
    }

    /// What stands against sizes that cut scratch differently following each other.
    pub(crate) fn recut(&self) -> &Recut {
        &self.recut
    }

    /// Whether a rank whose buffers are one memory may meet one that has two in a way in which nobody looked at the plan: it was
    /// looked at with all ranks alike, and what a rank does with one buffer alone is the same either way.
    pub(crate) fn is_sensitive(&self) -> bool {
        self.sensitive
    }

    pub(crate) fn uses(&self, rank: u32) -> &Uses {
        &self.uses[rank as usize]
    }

    pub(crate) fn sized(&self, sizes: CallSizes) -> Arc<Sized> {
        let mut kept = lock(&self.sized);
        if let Some(sized) = kept.get(&sizes) {
            return Arc::clone(sized);
        }
        if kept.len() >= KEPT_SIZES {
            kept.clear();
        }
        let programs = (0..self.ranks()).map(|_| OnceLock::new()).collect();
        let silent = (0..self.ranks()).map(|_| OnceLock::new()).collect();
        let touches = (0..self.ranks()).map(|_| OnceLock::new()).collect();
        let sized = Arc::new(Sized { sizes, admitted: OnceLock::new(), programs, silent, touches });
        kept.insert(sizes, Arc::clone(&sized));
        sized
    }

    /// The byte ranges for a call, which all ranks may make.
    ///
    /// # Errors
    /// Why not, on all ranks alike.
    pub(crate) fn admit(&self, sizes: CallSizes) -> Result<Arc<Sized>, ExecutorError> {
        let sized = self.sized(sizes);
        sized.admitted(&self.layout).map_err(|error| self.lower_error(error))?;
        Ok(sized)
    }

    pub(crate) fn lower_error(&self, source: &LowerError) -> ExecutorError {
        ExecutorError::Lower { plan: self.name().to_owned(), source: Arc::new(source.clone()) }
    }
}

impl Sized {
    /// The sizes.
    pub fn sizes(&self) -> CallSizes {
        self.sizes
    }

    /// Whether `rank` receives less at these sizes than the plan says, so that having completed a launch proves
    /// nothing of its peers.
    pub fn silent(&self, layout: &Layout, rank: u32) -> bool {
        *self.silent[rank as usize].get_or_init(|| {
            let Ok(program) = self.program(layout, rank) else { return true };
            let own = &layout.ranks[rank as usize];
            own.instructions.iter().any(|instruction| match *instruction {
                Instruction::Move { sources, index, .. } => {
                    let segments = &program.segments[program.moves[index as usize].range()];
                    own.accesses[sources.range()].iter().any(|side| side.area == Area::Packets)
                        && segments.iter().all(|segment| segment.padded == 0)
                }
                _ => false,
            })
        })
    }

    /// What is touched of a rank's buffers, found on first use.
    pub fn touches(&self, layout: &Layout, rank: u32) -> Option<&Touches> {
        self.touches[rank as usize].get_or_init(|| Touches::new(layout, self, rank)).as_ref()
    }

    /// What all ranks say alike: a call that one refuses, all refuse.
    pub fn admitted(&self, layout: &Layout) -> Result<(), &LowerError> {
        self.admitted.get_or_init(|| layout.admits(self.sizes)).as_ref().copied()
    }

    /// The byte ranges of a rank, made on first use.
    pub fn program(&self, layout: &Layout, rank: u32) -> Result<&Program, &LowerError> {
        self.programs[rank as usize].get_or_init(|| layout.program(rank, self.sizes)).as_ref()
    }
}

/// The threads of a block that a plan asks for, as devices run it: whole warps, and no more than kernels are compiled for, which
/// keep their values in registers.
fn block_threads(asked: u64) -> u32 {
    const WARP: u32 = 32;
    let most = antiphon_codegen::THREADS;
    u32::try_from(asked).unwrap_or(most).clamp(1, most).next_multiple_of(WARP)
}

fn uses(layout: &Layout) -> Vec<Uses> {
    let mut uses = vec![Uses::default(); layout.ranks.len()];
    let mut heard = vec![Vec::new(); layout.ranks.len()];
    for (rank, own) in layout.ranks.iter().enumerate() {
        for channel in own.channels.iter().filter(|channel| channel.port) {
            uses[rank].port_peers.push(channel.peer);
            uses[channel.peer as usize].port_peers.push(rank as u32);
        }
        for instruction in &own.instructions {
            match *instruction {
                Instruction::Move { .. } | Instruction::Post { .. } => {
                    let posted = matches!(instruction, Instruction::Post { .. });
                    let (reads, writes) = sides(own, instruction);
                    let reads = reads.map(|access| (access, false));
                    for (access, written) in reads.chain(writes.map(|access| (access, true))) {
                        let owner = &mut uses[access.rank as usize];
                        let remote = access.rank as usize != rank;
                        if remote && matches!(access.area, Area::Input | Area::Output) {
                            owner.guests.push(rank as u32);
                        }
                        match access.area {
                            Area::Input => {
                                owner.input_exposed |= remote;
                                owner.input_read |= !written;
                                owner.input_written |= written;
                                owner.input_posted |= posted;
                            }
                            Area::Output => {
                                owner.output_exposed |= remote;
                                owner.output_read |= !written;
                                owner.output_written |= written;
                                owner.output_posted |= posted;
                            }
                            Area::Packets if written => owner.packet_writers.push(rank as u32),
                            _ => {}
                        }
                    }
                }
                Instruction::MoveBlock { index } => {
                    let BlockMove { source, destination, .. } = own.block_moves[index as usize];
                    for owner in [source.rank, destination.rank] {
                        if owner as usize != rank {
                            uses[owner as usize].guests.push(rank as u32);
                        }
                    }
                    let reader = &mut uses[source.rank as usize];
                    let remote = source.rank as usize != rank;
                    if source.output {
                        reader.output_exposed |= remote;
                        reader.output_read = true;
                    } else {
                        reader.input_exposed |= remote;
                        reader.input_read = true;
                    }
                    let written = &mut uses[destination.rank as usize];
                    written.output_exposed |= destination.rank as usize != rank;
                    written.output_written = true;
                }
                Instruction::Wait { channel, .. } => {
                    heard[rank].push(own.channels[channel as usize].peer);
                }
                _ => {}
            }
        }
    }
    for (rank, own) in layout.ranks.iter().enumerate() {
        for block in &own.blocks {
            for target in late_targets(own, &own.instructions[block.code.range()]) {
                if target as usize != rank {
                    uses[target as usize].late_writers.push(rank as u32);
                    uses[rank].written_late.push(target);
                }
            }
        }
    }
    for (rank, own) in uses.iter_mut().enumerate() {
        for ranks in [&mut own.late_writers, &mut own.written_late, &mut own.guests] {
            ranks.sort_unstable();
            ranks.dedup();
        }
        own.port_peers.sort_unstable();
        own.port_peers.dedup();
        own.port_peers.retain(|&peer| peer as usize != rank);
        own.packet_writers.sort_unstable();
        own.packet_writers.dedup();
        heard[rank].extend_from_slice(&own.packet_writers);
    }
    for writer in 0..uses.len() as u32 {
        let targets = (0..uses.len() as u32).filter(|&target| {
            target != writer && uses[target as usize].packet_writers.contains(&writer)
        });
        let targets: Vec<u32> = targets.collect();
        let unheard = targets.iter().copied();
        let unheard = unheard.filter(|target| !heard[writer as usize].contains(target)).collect();
        let own = &mut uses[writer as usize];
        (own.unheard, own.packet_targets) = (unheard, targets);
    }
    uses
}

/// What a move or a transfer reads, and what it writes.
pub(crate) fn sides<'a>(
    own: &'a RankLayout,
    instruction: &Instruction,
) -> (impl Iterator<Item = &'a Access>, impl Iterator<Item = &'a Access>) {
    let (reads, writes) = match *instruction {
        Instruction::Move { sources, destinations, .. } => (sources.range(), destinations.range()),
        Instruction::Post { source, destination, .. } => {
            let one = |at: u32| at as usize..at as usize + 1;
            (one(source), one(destination))
        }
        _ => (0..0, 0..0),
    };
    (own.accesses[reads].iter(), own.accesses[writes].iter())
}

/// The ranks whose buffers a block writes after its last signal to them. A signal over memory says nothing of what a wire
/// writes.
fn late_targets(own: &RankLayout, code: &[Instruction]) -> BTreeSet<u32> {
    let (mut targets, mut posted) = (BTreeSet::new(), BTreeSet::new());
    for instruction in code {
        match *instruction {
            Instruction::Move { .. } | Instruction::Post { .. } => {
                let (_, written) = sides(own, instruction);
                let buffers =
                    written.filter(|side| matches!(side.area, Area::Input | Area::Output));
                let by_wire = matches!(instruction, Instruction::Post { .. });
                let list = if by_wire { &mut posted } else { &mut targets };
                list.extend(buffers.map(|side| side.rank));
            }
            Instruction::MoveBlock { index } => {
                targets.insert(own.block_moves[index as usize].destination.rank);
            }
            Instruction::Signal { channel, .. } => {
                let channel = &own.channels[channel as usize];
                targets.remove(&channel.peer);
                if channel.port {
                    posted.remove(&channel.peer);
                }
            }
            _ => {}
        }
    }
    targets.extend(posted);
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_plan::builder::ProgramBuilder;

    fn loaded(write: impl FnOnce(&ProgramBuilder)) -> LoadedPlan {
        let program = ProgramBuilder::new("uses", Collective::SendRecv, 3);
        write(&program);
        LoadedPlan::new(&program.build().unwrap()).unwrap()
    }

    #[test]
    fn a_block_has_whole_warps_and_no_more_threads_than_kernels() {
        for (asked, threads) in [(1, 32), (33, 64), (512, 512), (513, 512), (1024, 512)] {
            let program = ProgramBuilder::new("threads", Collective::SendRecv, 2);
            program.block(0).copy(program.input(0).all(), program.output(0).all());
            let mut plan = program.build().unwrap();
            plan.num_threads_per_block = asked;
            assert_eq!(LoadedPlan::new(&plan).unwrap().block_threads(), threads, "{asked}");
        }
    }

    #[test]
    fn a_rank_whose_buffers_only_itself_touches_exposes_nothing() {
        let plan = loaded(|p| p.block(1).copy(p.input(1).all(), p.output(1).all()));
        let own = Uses { input_read: true, output_written: true, ..Uses::default() };
        assert_eq!(
            [0, 1, 2].map(|rank| plan.uses(rank)),
            [&Uses::default(), &own, &Uses::default()]
        );
    }

    #[test]
    fn puts_and_gets_expose_the_far_side() {
        let plan = loaded(|p| {
            p.channel(0, 1);
            p.channel(0, 2);
            let block = p.block(0);
            block.put(p.input(0).all(), p.output(1).all());
            block.get(p.input(2).all(), p.output(0).all());
        });
        let own = Uses {
            input_read: true,
            output_written: true,
            written_late: vec![1],
            ..Uses::default()
        };
        assert_eq!(*plan.uses(0), own);
        let written = Uses {
            output_exposed: true,
            output_written: true,
            late_writers: vec![0],
            guests: vec![0],
            ..Uses::default()
        };
        assert_eq!(*plan.uses(1), written);
        let read =
            Uses { input_exposed: true, input_read: true, guests: vec![0], ..Uses::default() };
        assert_eq!(*plan.uses(2), read);
    }

    #[test]
    fn the_author_of_a_test_plan_looks_after_its_buffers() {
        for (collective, keeps) in [(Collective::SendRecv, true), (Collective::Test, false)] {
            let program = ProgramBuilder::new("proven", collective, 2);
            program.block(0).copy(program.input(0).all(), program.output(0).all());
            let plan = LoadedPlan::new(&program.build().unwrap()).unwrap();
            assert!(!plan.keeps_to_itself(false), "nobody proved it");
            let plan = plan.with_verdict(Verdict::Proven, Scope::default());
            assert_eq!(plan.keeps_to_itself(false), keeps);
            assert!(!plan.keeps_to_itself(true), "in place nothing is known");
        }
    }

    #[test]
    fn a_signal_over_memory_says_nothing_of_what_a_wire_writes() {
        for by_port in [false, true] {
            let plan = loaded(|p| {
                let (port, near) = (p.port(0, 1), p.channel(0, 1));
                let block = p.block(0);
                block.put_over(&port, p.input(0).all(), p.output(1).all());
                let signals = [if by_port { port } else { near }];
                block.signal(&signals);
                p.block(1).wait(&signals);
            });
            assert_eq!(plan.uses(1).late_writers, if by_port { vec![] } else { vec![0] });
        }
    }

    #[test]
    fn a_target_of_packets_is_heard_by_its_packets_or_its_signals() {
        // Rank 0 sends packets to 1, which answers with packets, and to 2, which does not.
        for signals in [false, true] {
            let plan = loaded(|p| {
                let (one, two) = (p.channel(0, 1), p.channel(0, 2));
                let scratch = [0, 1, 2].map(|rank| p.scratch(rank, 1));
                let block = p.block(0);
                block.put_packets(p.input(0).all(), scratch[1].all());
                block.put_packets(p.input(0).all(), scratch[2].all());
                p.block(1).put_packets(p.input(1).all(), scratch[0].all());
                let _ = one;
                if signals {
                    p.block(2).signal(&[two]);
                    block.wait(&[two]);
                }
            });
            let uses = plan.uses(0);
            assert_eq!(uses.packet_targets, [1, 2]);
            assert_eq!(uses.unheard, if signals { vec![] } else { vec![2] });
            assert_eq!(uses.packet_writers, [1]);
            assert_eq!(plan.uses(1).unheard, [] as [u32; 0]);
        }
    }

    #[test]
    fn a_launch_without_bytes_is_silent_for_ranks_that_read_packets() {
        let plan = loaded(|p| {
            p.channel(0, 1);
            let scratch = p.scratch(1, 1);
            p.block(0).put_packets(p.input(0).all(), scratch.all());
            p.block(1).unpack_packets(scratch.all(), p.output(1).all());
        });
        let sized = |bytes| {
            plan.sized(CallSizes { input: bytes, output: bytes, element: 4, strict: false })
        };
        let silent = |bytes| [0, 1, 2].map(|rank| sized(bytes).silent(plan.layout(), rank));
        assert_eq!(silent(0), [false, true, false]);
        assert_eq!(silent(4), [false; 3]);
    }
}
