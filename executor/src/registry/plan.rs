//! A registered plan.

use super::fits_some;
use super::terms::{Misfit, Terms, Whose};
use crate::error::ExecutorError;
use crate::plan_cache::LoadedPlan;
use crate::selection::{Question, Spread, reproducible};
use antiphon_plan::model::{ChannelTable, ChannelType, Collective, Plan};
use antiphon_plan::verify::{self, SumOrder, Verdict};
use antiphon_types::ReduceOp;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// A plan that calls by name may be served by.
#[derive(Debug)]
pub struct RegisteredPlan {
    name: String,
    plan: Plan,
    /// Tied to no communicator; nobody runs it.
    lowered: LoadedPlan,
    terms: Terms,
    /// Reductions that the plan says; none if it leaves them to the call.
    said: BTreeSet<ReduceOp>,
    /// How it touches or writes a buffer that it must not, if it does.
    trespass: Option<Misfit>,
    /// Pairs of ranks that share memory.
    near: BTreeSet<(u32, u32)>,
    /// Found out when it is first asked for.
    order: OnceLock<Option<SumOrder>>,
}

impl RegisteredPlan {
    /// # Errors
    /// For a plan that is not valid, cannot be lowered, or is of sendrecv, whose calls are served by what is built in; for
    /// terms that contradict it.
    pub(super) fn new(plan: Plan, terms: Terms) -> Result<Self, ExecutorError> {
        let made = RegisteredPlan::vouched(plan, terms)?;
        match made.terms.root {
            Some(root) => made.check_root(root).map(|()| made),
            None => Ok(made),
        }
    }

    /// The same, but trusts the caller that the root is right, since finding out takes as long as verifying the plan.
    ///
    /// # Errors
    /// As [`new`](Self::new), but for the root.
    pub(super) fn vouched(plan: Plan, terms: Terms) -> Result<Self, ExecutorError> {
        serves_some(&plan)?;
        fits_some(&terms)?;
        let lowered = LoadedPlan::new(&plan)?;
        let world = lowered.ranks();
        let contradicts = |saw: String, allowed| contradicts(&plan, &saw, allowed);
        if let Some(saw) = terms.world.filter(|&ranks| ranks != world) {
            return Err(contradicts(
                format!("{saw} ranks"),
                "the number of ranks it is written for",
            ));
        }
        if let Some(saw) = terms.in_place.filter(|&in_place| in_place != plan.in_place) {
            return Err(contradicts(format!("in place: {saw}"), "what the plan says itself"));
        }
        if let Some(root) = terms.root.filter(|&root| root >= world) {
            return Err(contradicts(format!("root {root}"), "its ranks"));
        }
        if lowered.layout().runtime_sizes && !terms.any_size() {
            // A rank knows only the sizes of its own blocks, and all ranks must choose alike. The plan itself has no limits.
            let saw = "limits of sizes".to_owned();
            return Err(contradicts(saw, "none on plans with runtime sizes"));
        }
        let reducing = || plan.operations().filter(|op| op.kind.reduces());
        let says = reducing().any(|op| op.reduce_op.is_some());
        // If some operations name their reduction, those that name none sum.
        let said = reducing().filter(|_| says).map(|op| op.reduce_op.unwrap_or(ReduceOp::Sum));
        let said = said.collect();
        let name = terms.name.clone().unwrap_or_else(|| plan.name.clone());
        let near = near(&plan);
        let trespass = trespass(&lowered, terms.root);
        let order = OnceLock::new();
        Ok(RegisteredPlan { name, plan, lowered, terms, said, trespass, near, order })
    }

    /// Checks that the plan is for this root, if its collective has one. The plan does not say so itself: the verifier finds its
    /// root.
    fn check_root(&self, root: u32) -> Result<(), ExecutorError> {
        if !self.plan.collective.has_root() {
            return Ok(());
        }
        let layout = self.lowered.layout();
        let report = verify::verify(&self.plan, layout, verify::Options::default());
        let (saw, allowed) = match (report.root, report.verdict) {
            (Some(own), _) if own == root => return Ok(()),
            (Some(own), _) => (own.to_string(), "the root it is written for"),
            // An executor that verifies refuses the plan, and one that does not takes more than its root on trust.
            (None, Verdict::Refuted(_)) => return Ok(()),
            (None, Verdict::NotProven(why)) => {
                let why = why.first().map_or("", String::as_str);
                (format!("no root ({why})"), "plans whose root the verifier finds")
            }
            (None, Verdict::Proven) => ("no root".to_owned(), "plans that have one"),
        };
        Err(contradicts(&self.plan, &format!("root {root} instead of {saw}"), allowed))
    }

    /// What selectors, tables and messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The plan, lowered; tied to no communicator.
    pub(super) fn lowered(&self) -> &LoadedPlan {
        &self.lowered
    }

    /// What tuning tables call it: `plan` and a number made of its content, so that another plan of the same name does not get
    /// its times.
    pub fn measured_as(&self) -> String {
        format!("plan {:016x}", self.fingerprint())
    }

    /// The terms under which it was registered.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// A hash of the plan's content, which ranks compare, and by which caches find it.
    pub fn fingerprint(&self) -> u64 {
        self.lowered.layout().fingerprint
    }

    /// The order in which its sums add; `None` if the plan is not proven, or reduces nothing. The first call has the verifier
    /// find it, which takes as long as verifying the plan.
    pub fn order(&self) -> Option<&SumOrder> {
        let find = || reproducible::order_of(&self.plan, self.lowered.layout());
        self.order.get_or_init(find).as_ref()
    }

    /// Whether the plan may serve calls of ranks that are spread over nodes and devices like this.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn fits_ranks(&self, spread: Spread) -> Result<(), Misfit> {
        if self.lowered.ranks() != spread.ranks {
            return Err(Misfit::World(self.lowered.ranks()));
        }
        self.terms.admit_ranks(spread)?;
        let per_node = spread.per_node().max(1);
        match self.near.iter().find(|(a, b)| a / per_node != b / per_node) {
            Some(&(a, b)) => Err(Misfit::Reach(a, b)),
            None => Ok(()),
        }
    }

    /// Whether the plan may serve a call.
    ///
    /// # Errors
    /// Why not.
    pub fn fits(&self, question: &Question<'_>) -> Result<(), Misfit> {
        let layout = self.lowered.layout();
        let question = &question.of_plan(&layout.collective);
        if layout.collective != *question.collective {
            return Err(Misfit::collective(&layout.collective, question));
        }
        self.fits_ranks(question.spread)?;
        self.terms.admit(question)?;
        let rooted = question.collective.has_root();
        if rooted && self.terms.root.is_none() {
            return Err(Misfit::Root(None));
        }
        if !rooted && layout.in_place != question.in_place {
            return Err(Misfit::InPlace(layout.in_place));
        }
        if let Some(trespass) = &self.trespass {
            return Err(trespass.clone());
        }
        if rooted && self.lowered.is_sensitive() {
            return Err(Misfit::Mixed);
        }
        if let Some(op) = question.op
            && self.terms.ops.is_empty()
            && self.said.iter().any(|&said| said != op)
        {
            return Err(Misfit::Op(op));
        }
        let sizes = question.sizes();
        if layout.runtime_sizes != sizes.is_none() {
            return Err(Misfit::RuntimeSizes(layout.runtime_sizes));
        }
        let admitted = sizes.map_or(Ok(()), |sizes| layout.admits(sizes));
        admitted.map_err(|error| Misfit::Sizes(Box::new(error)))?;
        reproducible::admit(question, || self.order().cloned())
    }

    /// The same plan for the other of in place and out of place, if it is for a collective with a root, whose ranks may choose.
    pub(crate) fn other_place(&self) -> Option<Plan> {
        let either = self.plan.collective.has_root();
        either.then(|| Plan { in_place: !self.plan.in_place, ..self.plan.clone() })
    }
}

/// Whether calls by name of the plan's collective may be served by plans of that collective.
fn serves_some(plan: &Plan) -> Result<(), ExecutorError> {
    if plan.collective != Collective::SendRecv {
        return Ok(());
    }
    let allowed =
        "no plans of it, since sends and receives are served by what is built in; run it as a plan";
    let saw = format!("plan `{}` of {}", plan.name, plan.collective);
    Err(ExecutorError::Argument { what: "register a plan", saw, allowed })
}

/// The error of terms that contradict their plan.
fn contradicts(plan: &Plan, saw: &str, allowed: &'static str) -> ExecutorError {
    let saw = format!("{saw} for plan `{}`", plan.name);
    ExecutorError::Argument { what: "register a plan", saw, allowed }
}

/// The first buffer that a plan uses as callers by name are promised it will not. It must not write a send buffer that is no
/// receive buffer, nor what a rank that is not the root passes to a reduce, and must not touch a buffer that only the root of a
/// gather or scatter has.
fn trespass(lowered: &LoadedPlan, root: Option<u32>) -> Option<Misfit> {
    use Collective::{Gather, Other, Reduce, Scatter, Test};
    let collective = lowered.collective();
    let rooted = collective.has_root();
    // In place there is one buffer, which is to be written.
    if matches!(collective, Test | Other(_)) || (!rooted && lowered.layout().in_place) {
        return None;
    }
    (0..lowered.ranks()).find_map(|rank| {
        let (uses, at_root) = (lowered.uses(rank), root == Some(rank));
        let [input, output] = [false, true].map(|output| Whose { rank, output });
        if *collective == Scatter && !at_root {
            return uses.input.any().then_some(Misfit::Touches(input));
        }
        if *collective == Gather && !at_root && uses.output.any() {
            return Some(Misfit::Touches(output));
        }
        // A rank that is not the root of a broadcast has its receive buffer by both names.
        let input_is_kept = !rooted || matches!(collective, Reduce | Gather) || at_root;
        if uses.input.written && input_is_kept {
            return Some(Misfit::Writes(input));
        }
        let output_is_kept = *collective == Reduce && !at_root;
        (uses.output.written && output_is_kept).then_some(Misfit::Writes(output))
    })
}

/// Pairs of ranks that a plan joins by shared memory.
fn near(plan: &Plan) -> BTreeSet<(u32, u32)> {
    let mut pairs = BTreeSet::new();
    let mut join = |a: u64, b: u64| {
        if a != b {
            pairs.insert((a.min(b) as u32, a.max(b) as u32));
        }
    };
    for (rank, gpu) in (0..).zip(&plan.gpus) {
        for table in &gpu.channels {
            match table {
                ChannelTable::Peers { channel_type: ChannelType::Memory, connected_to } => {
                    connected_to.iter().for_each(|&peer| join(rank, peer));
                }
                ChannelTable::Peers { .. } => {}
                ChannelTable::Switch { groups, .. } => {
                    let members = groups.iter().flat_map(|group| &group.ranks);
                    members.for_each(|&peer| join(rank, peer));
                }
            }
        }
        let remote = gpu.remote_buffers.iter();
        remote
            .filter(|remote| remote.access.contains(&ChannelType::Memory))
            .for_each(|remote| join(rank, remote.rank));
    }
    pairs
}
