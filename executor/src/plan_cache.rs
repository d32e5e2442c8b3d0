//! Loaded plans: checked and lowered once, with the byte ranges of recent sizes.

use crate::communicator::Whose;
use crate::error::ExecutorError;
use crate::sync::lock;
use crate::touches::Touches;
use crate::uses::Uses;
use crate::verification::{Scope, Verdict};
use antiphon_plan::LowerError;
use antiphon_plan::check::check;
use antiphon_plan::model::{Collective, Plan};
use antiphon_plan::program::{Area, CallSizes, Instruction, Layout, Program};
use antiphon_plan::recut::Recut;
use std::collections::HashMap;
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
    reduces: bool,
    combines: bool,
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

/// A plan's byte ranges for one set of sizes.
#[derive(Debug)]
pub(crate) struct Sized {
    sizes: CallSizes,
    admitted: OnceLock<Result<(), LowerError>>,
    programs: Vec<OnceLock<Result<Program, LowerError>>>,
    silent: Vec<OnceLock<bool>>,
    touches: Vec<OnceLock<Option<Touches>>>,
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
        let (uses, recut) = (Uses::of_ranks(&layout), Recut::new(&layout));
        let sensitive = uses.iter().filter(|uses| uses.has_both()).nth(1).is_some();
        let block_threads = block_threads(plan.num_threads_per_block);
        let combines = layout.combines();
        Ok(LoadedPlan {
            layout,
            uses,
            sensitive,
            reduces: plan.reduces(),
            combines,
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
    pub(crate) fn warn_of_place(&self, whose: &Whose, place: &str) {
        if self.verdict == Verdict::Proven && !self.warned.swap(true, Ordering::Relaxed) {
            log::warn!(
                "{whose}: plan `{}` runs {place}, and is proven for calls that do not: nobody looked whether it is right there",
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

    /// Whether calls may ask for averages: its promise says where sums end, or it makes none, as that by which ranks meet before
    /// code runs.
    pub(crate) fn may_average(&self) -> bool {
        self.collective().may_average() || !self.reduces
    }

    /// [`Layout::combines`].
    pub(crate) fn combines(&self) -> bool {
        self.combines
    }

    /// Whether a rank's output holds sums that an average divides; `in_place` says that its input is the same memory.
    pub(crate) fn averages(&self, rank: u32, in_place: bool) -> bool {
        match self.collective() {
            Collective::AllReduce | Collective::ReduceScatter => true,
            Collective::Reduce => {
                let uses = self.uses(rank);
                uses.output.written || (in_place && uses.input.written)
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
