//! The making of communicators: while the caller waits, or behind its back where they need not block.

use crate::communicator::{Closed, Communicator};
use crate::ending::abort_end;
use crate::failure::{Failure, Progress, Result};
use crate::handle::{Promise, issue, promise};
use crate::types::Comm;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Makes a communicator, or none for a rank that joins none.
type Make = Box<dyn FnOnce() -> Result<Option<Arc<Communicator>>> + Send>;

/// What is asked for.
pub struct Ask {
    /// Where its handle goes; this place holds null by now.
    pub out: *mut Comm,
    /// The communicator of whose ranks it is, if there is one.
    pub parent: Option<Arc<Communicator>>,
    /// Whether the call, or the end of its group, waits until it is made.
    pub blocking: bool,
    /// Whether this rank joins it.
    pub joins: bool,
    /// Has the parent report that this is under way, where it need not block.
    pub under_way: Option<UnderWay>,
    /// Whether the parent makes no calls meanwhile, where it need not block.
    pub divides: bool,
}

/// Where an outcome goes.
enum To {
    /// Where the program waits for a handle.
    Place(*mut Comm),
    /// To the handle that the program has already.
    Promise(Promise),
    /// To the parent, if this rank joins none: the parent reports a failure.
    Parent(Arc<Communicator>),
}

// SAFETY: the caller of `Lines::add` promises that the place is writable, by any thread, until the lines have run.
unsafe impl Send for To {}

impl To {
    /// # Safety
    /// The place of what is asked for is writable.
    unsafe fn of(ask: &Ask) -> To {
        match (&ask.parent, ask.blocking) {
            (_, true) => To::Place(ask.out),
            (Some(parent), false) if !ask.joins => To::Parent(Arc::clone(parent)),
            (_, false) => {
                let (comm, promise) = promise();
                // SAFETY: as this function's.
                unsafe { ask.out.write(comm) };
                To::Promise(promise)
            }
        }
    }

    fn settle(self, outcome: Result<Option<Arc<Communicator>>>) -> Result<()> {
        match self {
            To::Place(out) => {
                let made = outcome?.map_or(ptr::null_mut(), issue);
                // SAFETY: writable, as the type's invariant has it.
                unsafe { out.write(made) };
                Ok(())
            }
            To::Promise(promise) => {
                let none = || Failure::usage("cannot make a communicator: this rank joins none");
                let given_up = promise.keep(outcome.and_then(|made| made.ok_or_else(none)));
                // Its peers may wait in it.
                given_up.map_or(Ok(()), |made| {
                    abort_end(&made, c"ncclCommAbort was called while it was made")
                })
            }
            To::Parent(parent) => {
                outcome.map_or_else(|failure| parent.tell_later(failure), drop);
                Ok(())
            }
        }
    }
}

/// How many others are being made of a communicator behind the program's back.
#[derive(Default)]
pub struct Making {
    all: AtomicU32,
    /// Those of them that it is shrunk to.
    shrunk: AtomicU32,
}

impl Making {
    /// Begins one of them.
    pub fn begin(self: &Arc<Self>, shrinks: bool) -> UnderWay {
        self.all.fetch_add(1, Ordering::AcqRel);
        self.shrunk.fetch_add(u32::from(shrinks), Ordering::AcqRel);
        UnderWay { making: Arc::clone(self), shrinks }
    }

    pub fn is_under_way(&self) -> bool {
        self.all.load(Ordering::Acquire) > 0
    }

    /// Whether it is being shrunk.
    pub fn shrinks(&self) -> bool {
        self.shrunk.load(Ordering::Acquire) > 0
    }
}

/// One of those that are being made. It does not keep the communicator, which is its users' alone when all are made.
pub struct UnderWay {
    making: Arc<Making>,
    shrinks: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.making.shrunk.fetch_sub(u32::from(self.shrinks), Ordering::AcqRel);
        self.making.all.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A communicator that is split or shrunk behind the program's back, and makes no calls meanwhile.
struct Divided(Arc<Communicator>);

impl Divided {
    fn new(parent: &Arc<Communicator>) -> Result<Self> {
        parent.close(Closed::Divided)?;
        Ok(Divided(Arc::clone(parent)))
    }
}

impl Drop for Divided {
    fn drop(&mut self) {
        self.0.reopen();
    }
}

/// Communicators that are made one after the other: all those of one parent, whose ranks tell them apart by this order, or a
/// single one without a parent.
pub struct Line {
    parent: Option<Arc<Communicator>>,
    blocking: bool,
    asked: Vec<(To, Make)>,
    /// Where none of them blocks, keeps the parent closed to calls until all are made.
    divided: Option<Divided>,
    /// Counts them as under way until it is known what became of them.
    under_way: Vec<UnderWay>,
}

impl Line {
    fn is_of(&self, parent: &Arc<Communicator>) -> bool {
        self.parent.as_ref().is_some_and(|own| Arc::ptr_eq(own, parent))
    }

    fn run(self) -> Result<()> {
        let Line { asked, divided, parent, under_way, .. } = self;
        let made: Vec<_> = asked.into_iter().map(|(to, make)| (to, make())).collect();
        let (parents, others): (Vec<_>, Vec<_>) =
            made.into_iter().partition(|(to, _)| matches!(to, To::Parent(_)));
        let settle = |all: Vec<_>| -> Result<()> {
            let told: Vec<_> =
                all.into_iter().map(|(to, outcome)| To::settle(to, outcome)).collect();
            told.into_iter().collect()
        };
        // In this order: once a parent is seen to make calls again, it has all that it has to tell; once a communicator is seen
        // to be made, its parent may be used; and once the parent is seen to have nothing under way, all that was made of it may
        // be used.
        let told = settle(parents);
        drop((parent, divided));
        let told = told.and(settle(others));
        drop(under_way);
        told
    }

    /// As if its communicators could not be made.
    fn refuse(self, failure: &Failure) {
        for (to, _) in self.asked {
            // The place of a handle stays null, and who ends the group is told.
            if let To::Promise(promise) = to {
                promise.keep(Err(failure.clone()));
            }
        }
    }

    /// Runs it on a thread of its own without waiting for it; the handles tell what becomes of it.
    fn start(self) {
        let parent = self.parent.clone();
        let started = thread::Builder::new().spawn(move || self.run());
        // If no thread starts, the promises are dropped, and so say themselves that they were not kept.
        if let (Some(parent), Err(error)) = (parent, started) {
            parent.tell_later(Failure::no_thread(&error));
        }
    }
}

/// Lines side by side.
pub struct Lines(Vec<Line>);

impl Lines {
    pub const NONE: Lines = Lines(Vec::new());

    /// Whether a communicator is divided by these.
    pub fn divide(&self, parent: &Arc<Communicator>) -> bool {
        self.0.iter().any(|line| line.divided.is_some() && line.is_of(parent))
    }

    /// Adds what is asked for. Its handle is there at once, if it need not block.
    ///
    /// # Safety
    /// The place is writable until the lines have run.
    pub unsafe fn add(
        &mut self,
        ask: Ask,
        make: impl FnOnce() -> Result<Option<Arc<Communicator>>> + Send + 'static,
    ) -> Result<()> {
        let known = ask
            .parent
            .as_ref()
            .and_then(|parent| self.0.iter().position(|line| line.is_of(parent)));
        let alone = known.is_none_or(|at| self.0[at].divided.is_none());
        let divides = ask.divides && !ask.blocking && alone;
        let divided = ask.parent.as_ref().filter(|_| divides).map(Divided::new).transpose()?;
        // SAFETY: as this function's.
        let asked = (unsafe { To::of(&ask) }, Box::new(make) as Make);
        match known {
            Some(at) => {
                let line = &mut self.0[at];
                line.asked.push(asked);
                line.divided = line.divided.take().or(divided);
                line.under_way.extend(ask.under_way);
            }
            None => self.0.push(Line {
                parent: ask.parent,
                blocking: ask.blocking,
                asked: vec![asked],
                divided,
                under_way: ask.under_way.into_iter().collect(),
            }),
        }
        Ok(())
    }

    /// The lines that are waited for, and then the others: those without a parent, and those with one.
    pub fn parted(self) -> (Lines, [Lines; 2]) {
        let (waited, behind) = self.0.into_iter().partition(|line| line.blocking);
        let (first, last) = Vec::into_iter(behind).partition(|line| line.parent.is_none());
        (Lines(waited), [Lines(first), Lines(last)])
    }

    /// Runs all together: each waits for its peers, which may be others of them.
    pub fn run(mut self) -> Result<()> {
        if self.0.len() < 2 {
            return self.0.pop().map_or(Ok(()), Line::run);
        }
        thread::scope(|scope| {
            let start = |line: Line| thread::Builder::new().spawn_scoped(scope, || line.run());
            let started: Vec<_> = self.0.into_iter().map(start).collect();
            let crashed = |_| Failure::system("cannot make a communicator: its thread crashed");
            let outcomes = started.into_iter().map(|thread| match thread {
                Ok(thread) => thread.join().map_err(crashed)?,
                Err(error) => Err(Failure::no_thread(&error)),
            });
            outcomes.collect::<Vec<_>>().into_iter().collect()
        })
    }

    /// Starts all behind the caller's back; their handles tell what becomes of them.
    pub fn start(self) -> Progress {
        let progress = if self.0.is_empty() { Progress::Done } else { Progress::UnderWay };
        self.0.into_iter().for_each(Line::start);
        progress
    }

    /// Makes none of them; the handles that exist already tell this reason.
    pub fn refuse(self, failure: &Failure) {
        self.0.into_iter().for_each(|line| line.refuse(failure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::{awaited, hold};
    use std::time::Duration;

    #[test]
    fn nothing_is_under_way_only_when_all_that_is_made_is_known() {
        let parent = Arc::new(Communicator::nobodys());
        let (mut comm, mut lines) = (ptr::null_mut(), Lines::NONE);
        let ask = Ask {
            out: &raw mut comm,
            parent: Some(Arc::clone(&parent)),
            blocking: false,
            joins: true,
            under_way: Some(parent.making.begin(false)),
            divides: true,
        };
        // SAFETY: the place is writable for the whole test.
        unsafe { lines.add(ask, || Ok(Some(Arc::new(Communicator::nobodys())))) }.unwrap();
        let held = hold(comm);
        assert_eq!(lines.start(), Progress::UnderWay);
        while parent.closed().is_some() {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        assert!(parent.making.is_under_way());
        drop(held);
        while parent.making.is_under_way() {
            thread::yield_now();
        }
        // SAFETY: promised above.
        assert!(unsafe { awaited(comm) }.is_none());
    }
}
