//! What serves a call: chosen once for calls that ask the same, and loaded once.

use super::Collectives;
use crate::communicator::Communicator;
use crate::communicator::Options;
use crate::error::ExecutorError;
use crate::executor::{Asked, Executor};
use crate::plan_cache::LoadedPlan;
use crate::registry::{Installed, RegisteredCode, RegisteredPlan, Registry};
use crate::selection::order::{Candidate, Choice, Sources, choose, choose_by_size};
use crate::selection::transfers::{Made, made};
use crate::selection::{Question, Selected, Spread, Tuning, Wish};
use crate::shared::control::CallType;
use crate::sync::lock;
use antiphon_plan::algorithms::{self, Algorithm, Rooted};
use antiphon_plan::model::Collective;
use antiphon_types::{DataType, ReduceOp};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

/// Places for choices that are remembered; a choice takes the place of an older one that falls on the same.
const PLACES: usize = 256;

/// What serves a call, ready to run.
#[derive(Clone, Debug)]
pub(super) enum Served {
    Plan(Arc<LoadedPlan>),
    Code(Arc<RegisteredCode>),
    /// Transfers between pairs of ranks.
    Transfers,
}

/// What serves a call, and by what it is found again; none where every call asks anew.
#[derive(Debug)]
pub(super) struct Found {
    pub served: Served,
    pub asked: Option<Asked>,
}

/// The content of a plan that was registered or installed, and the name that it is installed as.
type Registered = (u64, Option<String>);

/// What a communicator's calls are served by.
#[derive(Debug)]
pub(super) struct Service {
    pub spread: Spread,
    registry: Registry,
    tuning: Tuning,
    /// Without those that turned out to be of no use.
    installed: Mutex<Installed>,
    built_in: Mutex<BTreeMap<Key, Arc<LoadedPlan>>>,
    registered: Mutex<BTreeMap<Registered, Arc<LoadedPlan>>>,
    memory: Mutex<Memory>,
    /// What built-in plans are called, where their callers know them by another name.
    called: Option<&'static str>,
}

/// What was chosen since the registry last changed. It keeps nothing alive that is not registered any more.
struct Memory {
    /// The registry's then.
    generation: u64,
    /// By what was asked: one step to look up, since every call does.
    chosen: Vec<Option<(Asked, Chosen)>>,
}

impl Memory {
    fn new(generation: u64) -> Self {
        Memory { generation, chosen: vec![None; PLACES] }
    }

    fn get(&self, asked: &Asked) -> Option<Served> {
        let (known, chosen) = self.chosen[place(asked)].as_ref()?;
        if known == asked { chosen.served() } else { None }
    }

    fn keep(&mut self, asked: Asked, served: &Served) {
        self.chosen[place(&asked)] = Some((asked, Chosen::of(served)));
    }
}

/// Where the choice for a question is kept.
fn place(&Asked { bytes, root, rest, .. }: &Asked) -> usize {
    // Fibonacci hashing; the low bits of sizes are mostly 0.
    let mixed = bytes.wrapping_mul(31) ^ u64::from(root) << 32 ^ u64::from(rest);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACES.ilog2())) as usize
}

#[derive(Clone, Debug)]
enum Chosen {
    Plan(Arc<LoadedPlan>),
    Code(Weak<RegisteredCode>),
    Transfers,
}

impl Chosen {
    fn of(served: &Served) -> Self {
        match served {
            Served::Plan(plan) => Chosen::Plan(Arc::clone(plan)),
            Served::Code(code) => Chosen::Code(Arc::downgrade(code)),
            Served::Transfers => Chosen::Transfers,
        }
    }

    /// `None` once the code is gone.
    fn served(&self) -> Option<Served> {
        match self {
            Chosen::Plan(plan) => Some(Served::Plan(Arc::clone(plan))),
            Chosen::Code(code) => code.upgrade().map(Served::Code),
            Chosen::Transfers => Some(Served::Transfers),
        }
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.chosen.fmt(f)
    }
}

/// What tells plans of one communicator apart, in an order that is quick to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// The algorithm, its thread blocks, whether it is in place, and its root.
    Sized(Algorithm, usize, bool, usize),
    AllToAllV,
    AllGatherV(bool),
    /// The algorithm, its thread blocks, and its root.
    Rooted(Rooted, usize, usize),
}

impl Key {
    fn of(selected: &Selected) -> Key {
        match selected {
            Selected::Sized(algorithms::Choice { algorithm, shape }) => {
                Key::Sized(*algorithm, shape.blocks, shape.in_place, shape.root)
            }
            Selected::AllToAllV(_) => Key::AllToAllV,
            Selected::AllGatherV(_, in_place) => Key::AllGatherV(*in_place),
            Selected::Rooted(algorithms::Choice { algorithm, shape }) => {
                Key::Rooted(*algorithm, shape.blocks, shape.root)
            }
        }
    }
}

impl Asked {
    /// What a question asks at this generation of the registry; `None` for collectives that are not called by name.
    #[inline]
    pub(super) fn of(
        generation: u64,
        Wish { collective, bytes, in_place, root }: Wish<'_>,
        (dtype, op, premultiplied): (DataType, Option<ReduceOp>, bool),
    ) -> Option<Asked> {
        let collective = match collective {
            Collective::AllReduce => 0,
            Collective::AllGather => 1,
            Collective::ReduceScatter => 2,
            Collective::AllToAll => 3,
            Collective::AllToAllV => 4,
            Collective::Broadcast => 5,
            Collective::Reduce => 6,
            Collective::AllGatherV => 7,
            Collective::Gather => 8,
            Collective::Scatter => 9,
            _ => return None,
        };
        let flags = u32::from(in_place) | u32::from(premultiplied) << 1;
        let CallType { dtype, op } = CallType::new(dtype, op);
        let rest = flags | u32::from(op) << 8 | u32::from(dtype) << 16 | collective << 24;
        Some(Asked { generation, bytes, root, rest })
    }
}

impl Service {
    pub fn new(spread: Spread, registry: Registry, tuning: Tuning, installed: Installed) -> Self {
        // No registry's generation, so that the first call looks.
        let memory = Memory::new(0);
        Service {
            spread,
            registry,
            tuning,
            installed: Mutex::new(installed),
            built_in: Mutex::default(),
            registered: Mutex::default(),
            memory: Mutex::new(memory),
            called: None,
        }
    }

    /// What serves transfers between two ranks: built-in plans, by the name of what they are for.
    pub fn of_transfers(spread: Spread) -> Self {
        // What is registered or installed for alltoallv is no transfer, and what was measured is none either.
        let (registry, installed) = (Registry::new(), Installed::none("transfers use none"));
        let tuning = Tuning::none("transfers use none");
        Service { called: Some("transfer"), ..Service::new(spread, registry, tuning, installed) }
    }

    /// The registry's generation now.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.registry.generation()
    }

    /// What serves a call of an executor's communicator; `addresses` are those of its buffers.
    pub fn serve(
        &self,
        executor: &Executor,
        question: &Question<'_>,
        addresses: [usize; 2],
    ) -> Result<Found, ExecutorError> {
        let Question { dtype, op, premultiplied, .. } = *question;
        let asked = |generation| Asked::of(generation, question.wish(), (dtype, op, premultiplied));
        {
            // Dropped after the lock: what is registered may have anybody's destructor.
            let fresh;
            let mut memory = lock(&self.memory);
            if memory.generation != self.registry.generation() {
                fresh = self.registry.contents();
                *memory = Memory::new(fresh.generation);
                let installed = lock(&self.installed);
                let kept = fresh.plans.iter().chain(installed.plans());
                let kept: Vec<_> = kept.map(|plan| plan.fingerprint()).collect();
                lock(&self.registered).retain(|(content, _), _| kept.contains(content));
            }
            let asked = asked(memory.generation);
            if let Some(served) = asked.and_then(|asked| memory.get(&asked)) {
                return Ok(Found { served, asked });
            }
        }
        let contents = self.registry.contents();
        let served = loop {
            let installed = lock(&self.installed).clone();
            // Not under a lock: loading may wait for another process that verifies the same plan.
            let tuned = self.tuning.is_used(question.spread.ranks);
            if contents.is_empty() && installed.plans().is_empty() && !tuned {
                break match made(question.collective, question.spread) {
                    Made::Launch => self.built_in(executor, &choose_by_size(question)?)?,
                    Made::Transfers => Served::Transfers,
                };
            }
            let sources =
                Sources { contents: &contents, tuning: &self.tuning, installed: &installed };
            match &choose(&sources, question, addresses)?.candidate {
                Candidate::Plan(plan) => break self.registered(executor, plan, None)?,
                Candidate::Code(code) => break Served::Code(Arc::clone(code)),
                Candidate::BuiltIn(selected) => break self.built_in(executor, selected)?,
                Candidate::Installed(plan) => {
                    match self.registered(executor, plan, Some(plan.name())) {
                        // As any rank finds that has the plan, and all have it.
                        Err(error @ ExecutorError::Refuted { .. }) => {
                            self.leave_out(executor.communicator(), plan, &error);
                        }
                        served => break served.map_err(|error| error.of_installed(plan.name()))?,
                    }
                }
                Candidate::Transfers => break Served::Transfers,
            }
        };
        // A selector is asked about every call.
        let asked = asked(contents.generation).filter(|_| contents.selector.is_none());
        let mut memory = lock(&self.memory);
        if memory.generation == contents.generation
            && let Some(asked) = asked
        {
            memory.keep(asked, &served);
        }
        Ok(Found { served, asked })
    }

    /// An installed plan serves no call, whatever it was when it was installed.
    fn leave_out(&self, on: &Communicator, plan: &RegisteredPlan, error: &ExecutorError) {
        let whose = &on.shared.whose;
        log::warn!("{whose}: the installed plan `{}` serves nothing: {error}", plan.name());
        let mut installed = lock(&self.installed);
        *installed = installed.without(plan.name(), &error.to_string());
    }

    fn built_in(&self, executor: &Executor, selected: &Selected) -> Result<Served, ExecutorError> {
        let selected = selected.in_either_place();
        let key = Key::of(&selected);
        if let Some(plan) = lock(&self.built_in).get(&key) {
            return Ok(Served::Plan(Arc::clone(plan)));
        }
        let mut plan = selected.plan()?;
        if let Some(called) = self.called {
            plan.name = called.to_owned();
        }
        let plan = executor.load_mixed(&plan)?;
        Ok(Served::Plan(Arc::clone(lock(&self.built_in).entry(key).or_insert(plan))))
    }

    fn registered(
        &self,
        executor: &Executor,
        plan: &RegisteredPlan,
        installed_as: Option<&str>,
    ) -> Result<Served, ExecutorError> {
        let key = (plan.fingerprint(), installed_as.map(str::to_owned));
        if let Some(plan) = lock(&self.registered).get(&key) {
            return Ok(Served::Plan(Arc::clone(plan)));
        }
        // Each rank has its buffers as it likes, so the plan must be right either way.
        if let Some(other) = plan.other_place() {
            executor.loaded(&other)?;
        }
        let loaded = match installed_as {
            Some(name) => executor.load_installed(plan.plan(), name)?,
            None => executor.loaded(plan.plan()).map(Arc::new)?,
        };
        Ok(Served::Plan(Arc::clone(lock(&self.registered).entry(key).or_insert(loaded))))
    }
}

impl Collectives {
    /// A question about a call of `bytes` bytes on this communicator, out of place; the rest is for the caller to change.
    pub fn question<'a>(
        &'a self,
        collective: &'a Collective,
        bytes: u64,
        dtype: DataType,
    ) -> Question<'a> {
        let spread = self.0.service.spread;
        let Options { reproducible, ref tags, .. } = self.communicator().shared.options;
        Question { reproducible, tags, ..Question::new(collective, spread, bytes, dtype) }
    }

    /// What would serve a call on this communicator, why, and what else was considered. A selector is asked, with null
    /// addresses.
    ///
    /// # Errors
    /// [`Selection`](ExecutorError::Selection) where nothing serves it, or the selector's answer does not fit.
    pub fn explain(&self, question: &Question<'_>) -> Result<Choice, ExecutorError> {
        let Service { registry, tuning, installed, .. } = &self.0.service;
        let installed = lock(installed).clone();
        let chosen = registry.choose_with(question, tuning, &installed);
        chosen.map_err(|error| self.names(error.into()))
    }
}
