//! Which installed plans ranks use: those that all have, and all can load.

use super::{Installed, Skipped, file};
use crate::communicator::Whose;
use crate::error::ExecutorError;
use crate::plan_cache::LoadedPlan;
use crate::selection::Spread;
use std::sync::Arc;

impl Installed {
    /// The plans that the ranks use, given their fingerprints in rank order: these plans, if all ranks have them.
    pub(crate) fn agreed(self, fingerprints: impl IntoIterator<Item = u64>) -> Self {
        let own = self.fingerprint;
        let other = (0_u32..).zip(fingerprints).find(|(_, other)| *other != own);
        let Some((rank, other)) = other else { return self };
        let has = if other == 0 { "none" } else { "others" };
        let here = if own == 0 { "has none" } else { "has some" };
        let why = format!("ranks differ: this one {here}, and rank {rank} has {has}");
        Installed { skipped: Arc::clone(&self.skipped), ..Installed::none(&why) }
    }

    /// What this rank tells the others: a line, with position and reason, for each plan that may serve calls of these ranks and
    /// that this rank cannot load, as `check` says.
    pub(crate) fn refused(
        &self,
        spread: Spread,
        check: impl Fn(&LoadedPlan) -> Result<(), ExecutorError>,
    ) -> Vec<u8> {
        let mut text = String::new();
        for (position, plan) in self.plans.iter().enumerate() {
            if plan.fits_ranks(spread).is_err() {
                continue;
            }
            if let Err(error) = check(plan.lowered()) {
                let why = error.to_string().replace('\n', " ");
                text.push_str(&format!("{position} {why}\n"));
            }
        }
        text.into_bytes()
    }

    /// The plans that all ranks can load, by what each rank `told`, in rank order. The others serve nothing; the first rank
    /// that cannot load such a plan warns of it, so this one does if it is that rank.
    pub(crate) fn loadable(&self, told: &[Vec<u8>], own: &Whose) -> Self {
        let mut left = self.clone();
        for (rank, told) in (0..).zip(told) {
            for line in String::from_utf8_lossy(told).lines() {
                let Some((position, why)) = line.split_once(' ') else { continue };
                let named = position.parse().ok().and_then(|at: usize| self.plans.get(at));
                let Some(plan) = named.map(|plan| plan.name()) else { continue };
                if left.plans.iter().any(|known| known.name() == plan) {
                    let why = format!("it cannot be loaded on rank {rank}: {why}");
                    if rank == own.rank() {
                        log::warn!(
                            "{own}: the installed plan `{plan}` serves nothing on this communicator: {why}; `antiphon install --remove {plan}` removes it"
                        );
                    }
                    left = left.without(plan, &why);
                }
            }
        }
        left
    }

    /// These plans without one of them.
    pub(crate) fn without(&self, name: &str, why: &str) -> Self {
        let plans = self.plans.iter().filter(|plan| plan.name() != name);
        let skipped = Skipped { path: file::name_of(name).into(), why: why.to_owned() };
        let skipped = self.skipped.iter().cloned().chain([skipped]);
        Installed { plans: plans.cloned().collect(), skipped: skipped.collect(), ..self.clone() }
    }
}
