//! The door that plans pass when they are loaded: whether a plan is proven correct, refuted, or neither.
//!
//! A plan is verified once, whoever loads it: a process keeps verdicts by content, and of the processes of a node one
//! verifies and the others take its word ([`VerdictTable`](crate::shared::verdicts::VerdictTable)). Nobody's word is
//! waited for longer than the communicator is whole and its time limit; then a process verifies for itself, so that
//! loading stays a local call that ends. Ranks that are threads of one process take what the first of them learns, and
//! wait as long as that one does.

mod scope;

use crate::communicator::Shared;
use crate::shared::verdicts::Look;
use crate::sync::lock;
use crate::waiting::{self, Waiter};
use antiphon_hal::Effort;
use antiphon_plan::model::Plan;
use antiphon_plan::program::Layout;
use antiphon_plan::verify::{self, Refutation, Report};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::{Duration, Instant};

pub(crate) use scope::Scope;

/// Longest text of a judgement, in bytes; a multiple of 8. The whole report is for `antiphon plan verify`.
pub(crate) const TEXT: usize = 2016;

/// Longest text of the reasons in a warning, in bytes.
const WARNED: usize = 400;

/// Verdicts that a process keeps.
const KEPT: usize = 4096;

/// What is known of a loaded plan. A refuted one cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No schedule of any valid size deadlocks, races or computes something else.
    Proven,
    /// Neither correct nor wrong as far as can be told, for these reasons. The process's log has a warning of it.
    NotProven(Arc<str>),
    /// Nobody looked: verification is off.
    NotVerified,
}

/// What the verifier says of a plan, in few words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Proven(Scope),
    /// How it goes wrong; at most [`TEXT`] bytes.
    Refuted(Arc<str>),
    /// Why nothing was shown; at most [`TEXT`] bytes.
    NotProven(Arc<str>, Scope),
}

/// What plans are told apart by: their content, not their name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The layout's fingerprint.
    pub content: u64,
    /// Counts of the layout, should two fingerprints be equal by chance.
    pub shape: u64,
}

impl Key {
    fn of(layout: &Layout) -> Key {
        let ranks = layout.ranks.iter();
        let counts = ranks.flat_map(|rank| {
            [rank.blocks.len(), rank.instructions.len(), rank.accesses.len(), rank.channels.len()]
        });
        let shape = counts.fold(layout.ranks.len() as u64, |hash, count| {
            (hash ^ count as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
        });
        Key { content: layout.fingerprint, shape }
    }
}

impl Judgement {
    fn of(report: &Report) -> Judgement {
        match &report.verdict {
            verify::Verdict::Proven => Judgement::Proven(Scope::of(report)),
            verify::Verdict::Refuted(refutations) => {
                let mut text = String::new();
                if let Some(Refutation { fault, case, .. }) = refutations.first() {
                    let place = if case.in_place { ", in place" } else { "" };
                    let (input, output) = (case.sizes.input, case.sizes.output);
                    text = format!("{fault}\n  with {input} bytes in, {output} out{place}");
                }
                match refutations.len() {
                    0 | 1 => {}
                    2 => text += "\n  and 1 fault more",
                    more => text += &format!("\n  and {} faults more", more - 1),
                }
                Judgement::Refuted(cut(&text, TEXT).into())
            }
            verify::Verdict::NotProven(reasons) => {
                let text = reasons.join("; ");
                Judgement::NotProven(cut(&text, TEXT).into(), Scope::of(report))
            }
        }
    }
}

/// The first `most` bytes of a text, or a little less.
fn cut(text: &str, most: usize) -> String {
    const MARK: &str = " …";
    if text.len() <= most {
        return text.to_owned();
    }
    let whole = |&end: &usize| text.is_char_boundary(end);
    let end = (0..=most - MARK.len()).rev().find(whole).unwrap_or(0);
    text[..end].to_owned() + MARK
}

/// Says what is known of a checked and lowered plan.
type Verifier = dyn Fn(&Plan, &Layout) -> Judgement + Send + Sync;

/// Verdicts of a process. Whoever asks first finds the verdict; others who ask meanwhile wait for it.
type Cache = Mutex<HashMap<Key, Arc<OnceLock<Judgement>>>>;

static CACHE: LazyLock<Arc<Cache>> = LazyLock::new(Arc::default);

/// What an executor asks about plans.
#[derive(Clone)]
pub(crate) struct Door {
    cache: Arc<Cache>,
    verifier: Arc<Verifier>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").finish_non_exhaustive()
    }
}

impl Default for Door {
    fn default() -> Self {
        let verifier = |plan: &Plan, layout: &Layout| {
            Judgement::of(&verify::verify(plan, layout, verify::Options::default()))
        };
        Door { cache: Arc::clone(&CACHE), verifier: Arc::new(verifier) }
    }
}

impl Door {
    /// What is known of a plan that `check` accepted and that was lowered to `layout`. Of one that is not proven the process warns
    /// when it first hears so.
    pub fn judge(&self, shared: &Shared, plan: &Plan, layout: &Layout) -> Judgement {
        let key = Key::of(layout);
        let verdict = {
            let mut kept = lock(&self.cache);
            if kept.len() >= KEPT {
                kept.retain(|_, verdict| verdict.get().is_none());
            }
            Arc::clone(kept.entry(key).or_default())
        };
        // Whoever is inside computes, or waits for another process that does: no two wait for each other.
        let mut is_new = false;
        let agreed = verdict.get_or_init(|| {
            is_new = true;
            agree(shared, key, || (self.verifier)(plan, layout))
        });
        let judgement = agreed.clone();
        if let (true, Judgement::NotProven(reasons, _)) = (is_new, &judgement) {
            // The command's `main` turns this module's warnings off, since the command says it in its own words.
            let (name, place) = (&plan.name, if plan.in_place { " (in place)" } else { "" });
            let why = cut(reasons, WARNED);
            log::warn!(
                "plan `{name}`{place} is not proven correct, and runs all the same: {why}; see `antiphon plan verify`"
            );
        }
        judgement
    }
}

/// The verdict of whichever process of the node was first to ask, while there is hope of one; else this one's own.
fn agree(shared: &Shared, key: Key, verify: impl FnOnce() -> Judgement) -> Judgement {
    let table = shared.verdicts();
    let began = Instant::now();
    loop {
        let mut waiter = Waiter::new(Effort::Wait, shared.yields);
        loop {
            match table.look(key) {
                Look::Known(judgement) => return judgement,
                Look::Claimed(claim) => {
                    let judgement = verify();
                    claim.publish(&judgement);
                    return judgement;
                }
                Look::Alone => return verify(),
                Look::Pending => {}
            }
            if waiter.pause(began.elapsed()) == waiting::Verdict::GiveUp {
                break;
            }
        }
        let late = |limit: Duration| began.elapsed() >= limit;
        if shared.is_bereft() || shared.options.timeout.is_some_and(late) {
            return verify();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
