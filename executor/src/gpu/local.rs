//! Ranks of one communicator that share a device in this process: what the first of them makes for a call, it makes for all.
//!
//! A driver may let a thread that allocates memory, maps it or loads code wait for all kernels of the device, and a kernel may
//! wait for a rank whose call comes after it. So before one of these ranks launches a plan for the first time with some sizes and
//! types, all of them have contexts, kernels and byte ranges for it, and find each other's arenas. None waits for another's call:
//! the first does it by itself, beside the control threads.

use super::underway::let_go;
use super::{Demand, Gpu, PAUSE, QUIET_LIMIT};
use crate::communicator::Shared;
use crate::sync::lock;
use antiphon_hal::{Backend, Device};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::Instant;

/// The ranks of a communicator that share a device in this process.
#[derive(Default)]
pub struct Family {
    /// Whether a thread makes something for calls. A driver may let it wait for kernels, and these wait for launches, so a launch
    /// that needs nothing made does not wait for it.
    making: Mutex<bool>,
    /// Something was made.
    made: Condvar,
    members: Mutex<BTreeMap<u32, Weak<Shared>>>,
}

/// The communicator, and the device.
type Key = (u64, Backend, u32);

impl Family {
    /// The family of the ranks of a communicator on a device.
    pub fn of(identity: u64, device: &dyn Device) -> Arc<Self> {
        static FAMILIES: OnceLock<Mutex<HashMap<Key, Weak<Family>>>> = OnceLock::new();
        let mut families = lock(FAMILIES.get_or_init(Mutex::default));
        families.retain(|_, family| family.strong_count() > 0);
        let known = families.entry((identity, device.backend(), device.index())).or_default();
        known.upgrade().unwrap_or_else(|| {
            let made = Arc::default();
            *known = Arc::downgrade(&made);
            made
        })
    }

    /// The right to make what calls need, which one thread has at a time.
    pub fn making(&self) -> Making<'_> {
        let Ok(making) = self.making_unless(|| None::<Infallible>);
        making
    }

    /// The same, unless `known` finds what is to be made, perhaps because another thread has made it meanwhile: that thread may
    /// be making the next thing already, which waits for launches of what it has made.
    pub fn making_unless<T>(&self, known: impl Fn() -> Option<T>) -> Result<Making<'_>, T> {
        loop {
            if let Some(known) = known() {
                return Err(known);
            }
            let mut making = lock(&self.making);
            if !*making {
                *making = true;
                break;
            }
            drop(self.made.wait(making).unwrap_or_else(PoisonError::into_inner));
        }
        let making = Making(self);
        // Whoever had it last may have made just this.
        known().map_or(Ok(making), Err)
    }

    /// Whether all members are among these ranks.
    pub fn is_all(&self, ranks: &[u32]) -> bool {
        lock(&self.members).keys().all(|rank| ranks.contains(rank))
    }

    /// Calls `make` for each of the other members that are there. Their handles are not kept longer: dropping the last one waits
    /// for launches.
    pub fn for_others(&self, rank: u32, mut make: impl FnMut(&Arc<Shared>)) {
        let members: Vec<Weak<Shared>> = {
            let members = lock(&self.members);
            let others = members.iter().filter(|&(&other, _)| other != rank);
            others.map(|(_, shared)| Weak::clone(shared)).collect()
        };
        for other in members {
            let other = Other(other.upgrade());
            other.0.iter().for_each(&mut make);
        }
    }
}

/// The right to make what calls need, given back when dropped.
pub struct Making<'a>(&'a Family);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        *lock(&self.0.making) = false;
        self.0.made.notify_all();
    }
}

/// Another rank's communicator, while something is made for it.
struct Other(Option<Arc<Shared>>);

impl Drop for Other {
    fn drop(&mut self) {
        // Dropping the last handle waits for its launches, which may wait for this rank's: so another thread does it.
        if let Some(last) = self.0.take().and_then(Arc::into_inner) {
            let named = std::thread::Builder::new().name("antiphon-leaves".to_owned());
            let whose = last.whose.clone();
            if let Err(error) = named.spawn(move || drop(last)) {
                log::warn!("{whose} leaves on another's thread: {error}");
            }
        }
    }
}

impl Gpu {
    /// The rank is there: others make for it what they make for themselves.
    pub fn come(&self, shared: &Arc<Shared>) {
        lock(&self.family.members).insert(shared.rank, Arc::downgrade(shared));
    }

    /// Makes for the other ranks on the device what a call of this rank needed, and waits a while until all find each other. If
    /// something cannot be had for a rank, that rank makes it when it calls, and says what is wrong. `making` is the family's.
    pub(super) fn make_for_others(
        &self,
        shared: &Shared,
        demand: &Demand<'_>,
        _making: &Making<'_>,
    ) {
        let &Demand { plan, key, kind, .. } = demand;
        // What goes over wires needs links, which a rank asks for when it loads the plan. Ranks of this process that stand for
        // other nodes map nothing of each other's.
        let is_apart =
            |other: &Shared| shared.is_far(other.rank) || other.staged_peers(plan).next().is_some();
        let mut contexts = Vec::new();
        contexts.extend(self.known().get(&key).map(Arc::clone));
        self.family.for_others(shared.rank, |other| {
            let Some(gpu) = other.gpu.as_ref().filter(|_| !is_apart(other)) else { return };
            let made = gpu.make_parts(other, demand, |context| context.kernel(other, gpu, kind));
            match made {
                Ok(parts) => contexts.push(parts.context),
                Err(error) => {
                    let name = plan.name();
                    log::debug!("{} makes what `{name}` needs itself: {error}", other.whose);
                }
            }
        });
        // The control threads map the arenas, without anybody calling anything.
        let ranks: Vec<u32> = contexts.iter().map(|context| context.rank()).collect();
        let limit = shared.options.timeout.map_or(QUIET_LIMIT, |limit| limit.min(QUIET_LIMIT));
        let began = Instant::now();
        let found = || contexts.iter().all(|context| context.finds(ranks.iter().copied()));
        while !found() && !shared.failed() {
            if began.elapsed() >= limit {
                log::debug!("ranks {ranks:?} do not find each other's memory within {limit:?}");
                break;
            }
            std::thread::sleep(PAUSE);
        }
        // Another rank may have left meanwhile.
        let_go(contexts);
    }
}
