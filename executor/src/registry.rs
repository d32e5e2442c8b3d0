//! The registry: plans and code that serve calls by name beside the built-in algorithms, and who chooses among them.

mod code;
mod installed;
mod plan;
mod terms;

#[cfg(test)]
mod tests;

use crate::error::ExecutorError;
use crate::selection::order::{Choice, Offer, Sources};
use crate::selection::question::brings_sizes;
use crate::selection::transfers::explain;
use crate::selection::{Question, SelectionError, Tuning, is_built_in};
use antiphon_plan::model::{Collective, Plan};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

pub use code::{Code, CodeCall, RegisteredCode};
pub use installed::{InstallError, Installed, Skipped, Written};
pub use plan::RegisteredPlan;
pub use terms::{Misfit, Terms, Whose};

/// Chooses for a call, by name, among what fits it; `None` leaves the choice to the rules. All ranks must choose alike.
pub(crate) type Selector = dyn Fn(&Offer<'_>) -> Result<Option<String>, String> + Send + Sync;

/// What serves calls by name beside the built-in algorithms: plans, code, and a selector that chooses.
///
/// A process has [one](Self::process) that every communicator uses, unless its [`Options`](crate::Options) name another. All
/// ranks of a call must find the same in it: register between calls, on every rank, in the same order. Ranks that chose
/// differently get an error that says so. Clones are the same registry.
#[derive(Clone)]
pub struct Registry(Arc<Shelf>);

struct Shelf {
    contents: RwLock<Arc<Contents>>,
    /// That of the contents, to be read without the lock.
    generation: AtomicU64,
}

/// What is registered at one time.
#[derive(Clone, Default)]
pub(crate) struct Contents {
    /// Raised by every change, and never 0.
    pub generation: u64,
    /// The most recent last.
    pub plans: Vec<Arc<RegisteredPlan>>,
    /// Likewise.
    pub codes: Vec<Arc<RegisteredCode>>,
    pub selector: Option<Arc<Selector>>,
}

impl Contents {
    /// Whether every call is left to the built-in rule.
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty() && self.codes.is_empty() && self.selector.is_none()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        let codes = self.codes.iter().map(|code| code.name());
        self.plans.iter().map(|plan| plan.name()).chain(codes)
    }
}

impl Default for Registry {
    fn default() -> Self {
        Registry::new()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contents = self.contents();
        f.debug_struct("Registry")
            .field("names", &contents.names().collect::<Vec<_>>())
            .field("selector", &contents.selector.is_some())
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        let contents = Contents { generation: 1, ..Contents::default() };
        Registry(Arc::new(Shelf {
            contents: RwLock::new(Arc::new(contents)),
            generation: AtomicU64::new(1),
        }))
    }

    /// The registry of this process.
    pub fn process() -> Self {
        static PROCESS: LazyLock<Registry> = LazyLock::new(Registry::new);
        PROCESS.clone()
    }

    /// Registers a plan, so that it serves the calls by name that it fits.
    ///
    /// A communicator verifies the plan when it first serves a call, as [`Executor::load`](crate::Executor::load) does, and
    /// refuses the call if the plan is refuted.
    ///
    /// # Errors
    /// [`Plan`](ExecutorError::Plan) and [`Lower`](ExecutorError::Lower) for a plan that is not valid;
    /// [`Argument`](ExecutorError::Argument) for a plan of sendrecv (only built-in algorithms serve sends and receives), for
    /// terms that contradict the plan or fit no message, and for a name that is taken, that belongs to a built-in algorithm,
    /// or that has control characters.
    pub fn register(&self, plan: Plan, terms: Terms) -> Result<Arc<RegisteredPlan>, ExecutorError> {
        let plan = Arc::new(RegisteredPlan::new(plan, terms)?);
        let changed: Result<(), ExecutorError> = self.change(|contents| {
            free(contents, plan.name())?;
            contents.plans.push(Arc::clone(&plan));
            Ok(())
        });
        changed.map(|()| plan)
    }

    /// Registers code under a name; a name in the terms goes before this one. Ranks compare names and versions before code
    /// runs: raise the version whenever the code would no longer work together with what it was before.
    ///
    /// # Errors
    /// [`Argument`](ExecutorError::Argument) for a collective that code cannot serve (sendrecv, test, custom); for terms that
    /// fit no message, or that limit sizes or places of an alltoallv or allgatherv; for a name as with
    /// [`register`](Self::register).
    pub fn register_code(
        &self,
        name: &str,
        version: u64,
        code: Arc<dyn Code>,
        terms: Terms,
    ) -> Result<Arc<RegisteredCode>, ExecutorError> {
        let collective = code.collective();
        if !SERVED_BY_CODE.contains(&collective) {
            let (what, saw) = ("register code", format!("the collective `{collective}`"));
            let allowed = "allreduce, allgather, reducescatter, alltoall, broadcast, reduce, gather, scatter, alltoallv \
                           and allgatherv";
            return Err(ExecutorError::Argument { what, saw, allowed });
        }
        fits_some(&terms)?;
        let narrow = !terms.any_size() || terms.in_place.is_some();
        if narrow && brings_sizes(&collective) {
            // A rank knows the sizes and the place of its own blocks alone, and all must choose alike.
            let saw = format!("limits of sizes, or a place, for {collective}");
            let (what, allowed) = ("register code", "none where blocks have lengths of their own");
            return Err(ExecutorError::Argument { what, saw, allowed });
        }
        let name = terms.name.clone().unwrap_or_else(|| name.to_owned());
        let code = Arc::new(RegisteredCode::new(name, version, code, terms));
        let changed: Result<(), ExecutorError> = self.change(|contents| {
            free(contents, code.name())?;
            contents.codes.push(Arc::clone(&code));
            Ok(())
        });
        changed.map(|()| code)
    }

    /// Registers installed plans, with their terms, and returns the names of those that were registered, in order.
    ///
    /// Communicators find the [installed plans of this machine](Installed::of_process) without it. It is for programs that want
    /// them to go before what else serves, as registered plans do, and for those that run where they are switched off
    /// (`ANTIPHON_INSTALLED=off`). Of several that fit a call, the first by name serves it, as without this. A plan whose name
    /// is registered already is left out, since the program's own goes first.
    pub fn load_installed(&self, installed: &Installed) -> Vec<String> {
        let mut added = Vec::new();
        let changed: Result<(), ExecutorError> = self.change(|contents| {
            // Of what is registered the most recent goes first.
            for plan in installed.plans().iter().rev() {
                if free(contents, plan.name()).is_ok() {
                    contents.plans.push(Arc::clone(plan));
                    added.push(plan.name().to_owned());
                }
            }
            Ok(())
        });
        debug_assert!(changed.is_ok());
        added.reverse();
        added
    }

    /// Removes a plan or code by its name, and returns whether it was there. Calls that are under way go on.
    pub fn unregister(&self, name: &str) -> bool {
        let removed = self.change(|contents| {
            let before = contents.names().count();
            contents.plans.retain(|plan| plan.name() != name);
            contents.codes.retain(|code| code.name() != name);
            if contents.names().count() < before { Ok(()) } else { Err(()) }
        });
        removed.is_ok()
    }

    /// Sets the selector, a function that is asked first about every call; it replaces the one before. It answers with the name
    /// of a candidate, or with `None` to leave the choice to the rules, alike on all ranks. It runs on the thread that makes
    /// the call, and may not make calls itself. If its answer does not fit the call, the call fails.
    pub fn set_selector<F>(&self, selector: F)
    where
        F: Fn(&Offer<'_>) -> Option<String> + Send + Sync + 'static,
    {
        self.set_fallible_selector(move |offer| Ok(selector(offer)));
    }

    /// As [`set_selector`](Self::set_selector), with a selector that may fail: then the call fails with its words.
    pub fn set_fallible_selector<F>(&self, selector: F)
    where
        F: Fn(&Offer<'_>) -> Result<Option<String>, String> + Send + Sync + 'static,
    {
        self.put_selector(Some(Arc::new(selector)));
    }

    /// Removes the selector: the rules choose again.
    pub fn clear_selector(&self) {
        self.put_selector(None);
    }

    fn put_selector(&self, selector: Option<Arc<Selector>>) {
        let changed: Result<(), ()> = self.change(|contents| {
            contents.selector = selector;
            Ok(())
        });
        debug_assert!(changed.is_ok());
    }

    /// The registered plans, the most recent last.
    pub fn plans(&self) -> Vec<Arc<RegisteredPlan>> {
        self.contents().plans.clone()
    }

    /// The registered code, the most recent last.
    pub fn codes(&self) -> Vec<Arc<RegisteredCode>> {
        self.contents().codes.clone()
    }

    /// What would serve a call if there were no tuning table and no installed plans, why, and what else was considered. The
    /// selector, if there is one, is asked with null for the addresses.
    ///
    /// # Errors
    /// Where nothing serves it, or the selector's answer does not fit.
    pub fn choose(&self, question: &Question<'_>) -> Result<Choice, SelectionError> {
        let tuning = Tuning::none("none was given");
        self.choose_with(question, &tuning, &Installed::none("none were given"))
    }

    /// As [`choose`](Self::choose), with a tuning table and installed plans.
    ///
    /// # Errors
    /// As [`choose`](Self::choose).
    pub fn choose_with(
        &self,
        question: &Question<'_>,
        tuning: &Tuning,
        installed: &Installed,
    ) -> Result<Choice, SelectionError> {
        explain(&Sources { contents: &self.contents(), tuning, installed }, question)
    }

    /// Raised by every change.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// What is registered now.
    pub(crate) fn contents(&self) -> Arc<Contents> {
        Arc::clone(&self.0.contents.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<E>(&self, edit: impl FnOnce(&mut Contents) -> Result<(), E>) -> Result<(), E> {
        // Dropped after the lock: a selector's destructor may be anybody's.
        let _before = {
            let mut contents = self.0.contents.write().unwrap_or_else(PoisonError::into_inner);
            let mut next = Contents::clone(&contents);
            edit(&mut next)?;
            next.generation += 1;
            self.0.generation.store(next.generation, Ordering::Release);
            std::mem::replace(&mut *contents, Arc::new(next))
        };
        Ok(())
    }
}

/// The collectives of calls that code may serve: those that all ranks make.
const SERVED_BY_CODE: [Collective; 10] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::AllToAll,
    Collective::Broadcast,
    Collective::Reduce,
    Collective::Gather,
    Collective::Scatter,
    Collective::AllToAllV,
    Collective::AllGatherV,
];

/// Whether a message of some size is within the terms.
fn fits_some(&Terms { min_bytes, max_bytes, .. }: &Terms) -> Result<(), ExecutorError> {
    if min_bytes <= max_bytes {
        return Ok(());
    }
    let (what, saw) =
        ("register a plan or code", format!("messages of {min_bytes} to {max_bytes} bytes"));
    Err(ExecutorError::Argument { what, saw, allowed: "a least size up to the largest" })
}

/// Whether a name may be given.
fn free(contents: &Contents, name: &str) -> Result<(), ExecutorError> {
    let saw = if name.is_empty() {
        "no name".to_owned()
    } else if name.contains(char::is_control) {
        format!("{name:?}, with control characters")
    } else if is_built_in(name) {
        format!("`{name}`, a built-in algorithm")
    } else if contents.names().any(|known| known == name) {
        format!("`{name}`, which is registered")
    } else {
        return Ok(());
    };
    let allowed = "a name of its own, which its terms may give it";
    Err(ExecutorError::Argument { what: "register a plan or code", saw, allowed })
}
