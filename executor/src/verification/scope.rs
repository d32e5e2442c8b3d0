//! Which calls of a plan a verdict is about.

use crate::communicator::Whose;
use crate::error::ExecutorError;
use crate::executor::Call;
use crate::plan_cache::LoadedPlan;
use crate::verification::Verdict;
use antiphon_plan::verify::Report;

/// What was found of calls that differ from how their plan is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// Some input is taken more than once, which is right for minima and maxima alone.
    pub repeats: bool,
    /// Whether the plan is right in the other place, if that is known: in place if it is written for buffers apart, or apart if
    /// it is written for in place.
    pub elsewhere: Option<bool>,
    /// The root, of collectives that have one: the rank that has both buffers.
    pub root: Option<u32>,
}

impl Scope {
    pub fn of(report: &Report) -> Scope {
        Scope { repeats: report.repeats, elsewhere: report.elsewhere, root: report.root }
    }

    /// The scope as a number below 2^36; 0 is the scope of a plan of which nothing is known.
    pub fn bits(self) -> u64 {
        let elsewhere = self.elsewhere.map_or(0, |right| 1 + u64::from(right));
        let root = self.root.map_or(0, |root| 1 + u64::from(root));
        u64::from(self.repeats) | elsewhere << 1 | root << 3
    }

    /// The scope of a number that [`bits`](Self::bits) gave.
    pub fn from_bits(bits: u64) -> Scope {
        let elsewhere = match bits >> 1 & 3 {
            0 => None,
            known => Some(known == 2),
        };
        let root = (bits >> 3).checked_sub(1).and_then(|root| u32::try_from(root).ok());
        Scope { repeats: bits & 1 == 1, elsewhere, root }
    }

    /// Whether a rank may make a call: not if its plan was found to be wrong for such calls, nor if its buffers share bytes in a
    /// way that nobody has verified.
    ///
    /// # Errors
    /// Why not.
    pub fn admit(self, call: &Call<'_>, whose: &Whose) -> Result<(), ExecutorError> {
        let (plan, rank) = (call.plan, whose.rank());
        if let Some(op) = call.op
            && self.repeats
            && !op.is_idempotent()
        {
            return Err(ExecutorError::Argument {
                what: "replace a plan's operator",
                saw: format!(
                    "{op} for plan `{}`, which takes some input more than once",
                    plan.name()
                ),
                allowed: "min and max, for which it is right; leave the operator out, or turn verification off",
            });
        }
        // Runtime blocks are looked at by themselves: `admit_blocks`.
        if plan.layout().runtime_sizes {
            return Ok(());
        }
        if call.shares() && *plan.verdict() != Verdict::NotVerified && !call.is_in_place(rank) {
            return Err(ExecutorError::Argument {
                what: "run a plan",
                saw: format!(
                    "an input of {} bytes at {:p} and an output of {} at {:p}, which share some, for plan `{}`",
                    call.input_bytes,
                    call.input,
                    call.output_bytes,
                    call.output,
                    plan.name()
                ),
                allowed: "buffers that share no byte, or in place: the same memory, or the smaller as the rank's own block of the larger; as long, where the collective ties no sizes, as the plan's numbers of chunks have it",
            });
        }
        let other = match (plan.layout().in_place, call.shares()) {
            (false, true) => Some("in place"),
            (true, false) if !call.is_empty() && !self.has_one(plan, rank) => Some("out of place"),
            _ => None,
        };
        other.map_or(Ok(()), |place| self.admit_place(plan, whose, place))
    }

    /// Whether a call may be made of whose runtime blocks some lie in place (`own`), or some `elsewhere`: not if its plan is
    /// wrong for them. (With a plan for buffers apart none lie in place.)
    ///
    /// # Errors
    /// Why not.
    pub fn admit_blocks(
        self,
        plan: &LoadedPlan,
        whose: &Whose,
        [own, elsewhere]: [bool; 2],
    ) -> Result<(), ExecutorError> {
        if !plan.layout().in_place || !elsewhere || *plan.verdict() == Verdict::NotVerified {
            return Ok(());
        }
        if own {
            return Err(ExecutorError::Argument {
                what: "run a plan",
                saw: format!("blocks in place and others for plan `{}`", plan.name()),
                allowed: "all blocks that are sent in place, or none of them",
            });
        }
        self.admit_place(plan, whose, "out of place")
    }

    /// Refuses a plan in this place, for which it is not written, if it is known to be wrong there. Warns if nothing is known.
    fn admit_place(
        self,
        plan: &LoadedPlan,
        whose: &Whose,
        place: &str,
    ) -> Result<(), ExecutorError> {
        // With a root, or runtime sizes, each rank is in place or not as it likes: a plan that is right with all ranks in the
        // other place need not be right with some.
        let mixed =
            (plan.collective().has_root() || plan.layout().runtime_sizes) && plan.is_sensitive();
        match self.elsewhere.filter(|&right| !(right && mixed)) {
            Some(false) => Err(ExecutorError::Argument {
                what: "run a plan",
                saw: format!("plan `{}`, which is not right {place}", plan.name()),
                allowed: if plan.layout().in_place {
                    "an input and an output in one memory; use a plan that is written for it, or turn verification off"
                } else {
                    "an input and an output of their own; use a plan that is written for it, or turn verification off"
                },
            }),
            None => {
                plan.warn_of_place(whose, place);
                Ok(())
            }
            Some(true) => Ok(()),
        }
    }

    /// Whether a rank has a part in only one buffer of a plan, as a rank that is not the root may: what its caller passes as the
    /// other is not used.
    fn has_one(self, plan: &LoadedPlan, rank: u32) -> bool {
        self.root.is_some_and(|root| root != rank) && !plan.uses(rank).has_both()
    }
}
