//! The launch contexts of a communicator on hosts: those that calls find, and those let go of.
//!
//! Each has memory, and a descriptor for it, on every rank of the node. Streams and plans come and go, and nobody says when one
//! is used no more; so there are only so many contexts, and the one that was used least recently makes room for another. All
//! ranks make the same launches in the same order, and so let go of the same contexts at the same launches, without a word. A
//! context's memory stays until every rank has completed its last launch.

use super::Shared;
use crate::context::{Context, ContextKey, MOST_LAUNCHES};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Contexts that are kept of a plan on a stream whose sizes have one each: each has scratch of its own.
const MOST_SIZES: usize = 8;

/// The contexts of one rank.
#[derive(Default)]
pub struct Contexts {
    /// How many ranks a process has at most; the same on all ranks. 0 before that is known.
    pub crowd: usize,
    known: HashMap<ContextKey, Arc<Context>>,
    /// How many of them have launches.
    used: usize,
    /// Contexts that were let go of, in which some rank may still have a launch.
    leaving: Vec<Arc<Context>>,
}

/// How many contexts are kept if a process has `crowd` ranks. Each context takes up to two descriptors of each of these ranks,
/// and a process often may have no more than a thousand.
fn most(crowd: usize) -> usize {
    (512 / crowd.max(1)).clamp(32, 128)
}

impl Contexts {
    /// The context that calls of this key share; made by `make` unless it is there.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn find_or<E>(
        &mut self,
        key: ContextKey,
        make: impl FnOnce() -> Result<Context, E>,
    ) -> Result<Arc<Context>, E> {
        if let Some(context) = self.known.get(&key) {
            return Ok(Arc::clone(context));
        }
        let context = Arc::new(make()?);
        self.known.insert(key, Arc::clone(&context));
        Ok(context)
    }

    /// All contexts in which some launch may be under way.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Context>> {
        self.known.values().chain(&self.leaving)
    }

    /// Gives launch `seq` of the communicator to a context; returns its number in the context, from 1. `None` if the context
    /// takes no more launches, as one that was let go of, so that another must be found.
    #[inline]
    pub fn launch(&mut self, context: &Context, seq: u64) -> Option<u64> {
        let given = context.given.load(Ordering::Relaxed);
        if given >= MOST_LAUNCHES {
            return None;
        }
        context.given.store(given + 1, Ordering::Relaxed);
        context.last.store(seq, Ordering::Relaxed);
        if given == 0 {
            self.used += 1;
            if context.key.sizes.is_some() {
                self.let_go_of_a_size(context.key);
            }
            if self.used > most(self.crowd) {
                self.let_go_of_the_least_recent();
            }
        } else if given + 1 == MOST_LAUNCHES {
            self.let_go(|one| std::ptr::eq(one, context));
        }
        Some(given + 1)
    }

    /// Lets go of the least recently used of the contexts that the sizes of a plan on a stream have of their own, if these are
    /// too many. All ranks make these launches in one order, and so let go of the same one.
    #[cold]
    fn let_go_of_a_size(&mut self, key: ContextKey) {
        let alike = |one: &&ContextKey| {
            one.sizes.is_some() && (one.plan, one.stream) == (key.plan, key.stream)
        };
        let last = |key: &ContextKey| self.known[key].last.load(Ordering::Relaxed);
        let used = self.known.keys().filter(alike).map(last).filter(|&last| last > 0);
        let used: Vec<u64> = used.collect();
        if used.len() > MOST_SIZES
            && let Some(&least) = used.iter().min()
        {
            self.let_go(|context| context.last.load(Ordering::Relaxed) == least);
        }
    }

    #[cold]
    fn let_go_of_the_least_recent(&mut self) {
        let used = self.known.values().map(|context| context.last.load(Ordering::Relaxed));
        if let Some(least) = used.filter(|&last| last > 0).min() {
            self.let_go(|context| context.last.load(Ordering::Relaxed) == least);
        }
    }

    #[cold]
    fn let_go(&mut self, which: impl Fn(&Context) -> bool) {
        for (_, context) in self.known.extract_if(|_, context| which(context)) {
            // It takes no more launches, also from callers that have it at hand.
            context.given.store(MOST_LAUNCHES, Ordering::Relaxed);
            self.used -= 1;
            self.leaving.push(context);
        }
    }

    /// Takes out the contexts let go of whose last launch every rank has completed. The caller drops them without holding the log.
    pub fn left(&mut self, shared: &Shared) -> Vec<Arc<Context>> {
        if self.leaving.is_empty() {
            return Vec::new();
        }
        let seen = (0..shared.world).filter(|&rank| shared.sees(rank));
        let completed = seen.map(|rank| shared.landed(rank)).min().unwrap_or(0);
        let over = |context: &mut Arc<Context>| context.last.load(Ordering::Relaxed) <= completed;
        self.leaving.extract_if(.., over).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicator::{Communicator, Options};
    use crate::executor::tests::copy;
    use crate::executor::{Call, Executor};
    use crate::launch::QueuedLaunch;
    use antiphon_hal::Effort;
    use antiphon_plan::builder::ProgramBuilder;
    use antiphon_plan::model::Collective;
    use antiphon_types::DataType;

    struct Two {
        ranks: Vec<Communicator>,
        executors: Vec<Executor>,
        input: [u32; 8],
        output: [u32; 8],
    }

    impl Two {
        fn new() -> Self {
            let ranks = Communicator::in_process(2, &Options::default()).unwrap();
            let executors = ranks.iter().map(Executor::new).collect();
            Two { ranks, executors, input: [7; 8], output: [0; 8] }
        }

        /// A launch of a rank on a stream.
        fn launch(&mut self, rank: usize, stream: u64) -> QueuedLaunch {
            let executor = &self.executors[rank];
            let plan = executor.load(&copy()).unwrap();
            let from = (self.input.as_ptr().cast(), 32);
            let call = Call::new(&plan, DataType::U32, from, (self.output.as_mut_ptr().cast(), 32));
            executor.queued(&call, Some(stream)).unwrap()
        }

        /// Contexts that a rank finds, and those let go of that are still there.
        fn count(&self, rank: usize) -> (usize, usize) {
            let log = self.ranks[rank].shared.log();
            (log.contexts.known.len(), log.contexts.leaving.len())
        }
    }

    fn run(launch: &QueuedLaunch) {
        assert!(launch.advance(Effort::Try).unwrap());
    }

    #[test]
    fn the_least_recent_context_goes_and_its_memory_stays_until_all_are_through() {
        let mut two = Two::new();
        let kept = most(2);
        // Rank 0 is far ahead.
        let mut own: Vec<_> = (0..kept as u64).map(|stream| two.launch(0, stream)).collect();
        own[..30].iter().for_each(run);
        assert_eq!(two.count(0), (kept, 0));
        // The first stream's was used since, so that it is the second's that goes.
        let later = [0, 1000, 1001, 0, 1];
        own.extend(later.map(|stream| two.launch(0, stream)));
        let (old, new) = own.split_at(kept);
        assert_eq!(two.count(0), (kept, 3));
        assert!(Arc::ptr_eq(&old[0].context, &new[0].context));
        assert!(Arc::ptr_eq(&old[0].context, &new[3].context));
        assert!(!Arc::ptr_eq(&old[1].context, &new[4].context));
        let arena = old[1].context.state().arena_memory[0].clone().unwrap();
        assert!(two.ranks[0].shared.regions.is_announced(&arena));

        // Rank 1 makes the same launches, and lets go of the same contexts.
        let streams = (0..kept as u64).chain(later);
        let theirs: Vec<_> = streams.map(|stream| two.launch(1, stream)).collect();
        assert_eq!(two.count(1), (kept, 3));
        theirs[..30].iter().for_each(run);
        for (own, theirs) in own[30..].iter().zip(&theirs[30..]) {
            run(own);
            run(theirs);
        }
        assert_eq!(two.output, [7; 8]);
        // Whoever makes the next context finds that all are through with those.
        let weak = Arc::downgrade(&own[1].context);
        assert_eq!(two.count(0), (kept, 3));
        drop((own, arena));
        let _last = two.launch(0, 2000);
        assert_eq!(two.count(0), (kept, 0));
        assert!(weak.upgrade().is_none());
    }

    /// What lands late in scratch that was cut for another size would be taken for something else.
    #[test]
    fn sizes_whose_transfers_may_land_late_have_contexts_of_their_own_but_only_so_many() {
        let plan = |flushes: bool| {
            let program = ProgramBuilder::new("late", Collective::SendRecv, 2);
            let (port, scratch) = (program.port(0, 1), program.scratch(1, 1));
            let block = program.block(0);
            block.put_over(&port, program.input(0).all(), scratch.all());
            if flushes {
                block.flush(&[port]);
            }
            program.build().unwrap()
        };
        let sizes = MOST_SIZES as u64 + 3;
        for (flushes, contexts) in [(false, (MOST_SIZES, 3)), (true, (1, 0))] {
            let options = Options::default().with_verification(false);
            let ranks = Communicator::in_process_on(&["one", "two"], &options).unwrap();
            let buffers = [[0u32; 64]; 2];
            let [from, to] =
                buffers.each_ref().map(|buffer| buffer.as_ptr().cast_mut().cast::<u8>());
            // What nobody drives breaks the communicator once it is dropped.
            let mut kept = Vec::new();
            for rank in &ranks {
                let executor = Executor::new(rank);
                let plan = executor.load(&plan(flushes)).unwrap();
                let launch = |bytes| {
                    let call = Call::new(&plan, DataType::U32, (from, bytes), (to, bytes));
                    executor.queued(&call, Some(1)).unwrap()
                };
                let launches: Vec<_> = (1..=sizes).map(|size| launch(16 * size)).collect();
                let log = rank.shared.log();
                assert_eq!((log.contexts.known.len(), log.contexts.leaving.len()), contexts);
                drop(log);
                // The last ones stay, and the first comes anew.
                let again = [launch(16 * sizes), launch(16)];
                assert!(Arc::ptr_eq(&again[0].context, &launches[sizes as usize - 1].context));
                let first = Arc::ptr_eq(&again[1].context, &launches[0].context);
                assert_eq!(first, contexts.1 == 0);
                kept.extend(launches.into_iter().chain(again));
            }
        }
    }

    #[test]
    fn a_context_whose_flags_have_run_out_is_followed_by_another() {
        let mut two = Two::new();
        for rank in 0..2 {
            let first = two.launch(rank, 1);
            run(&first);
            // As if it had been used for long.
            first.context.given.store(MOST_LAUNCHES - 1, Ordering::Relaxed);
            first.context.state().begun = MOST_LAUNCHES - 1;
            let (last, next) = (two.launch(rank, 1), two.launch(rank, 1));
            assert!(Arc::ptr_eq(&first.context, &last.context));
            assert!(!Arc::ptr_eq(&first.context, &next.context));
            run(&last);
            run(&next);
            assert_eq!(two.count(rank).0, 1);
        }
        assert_eq!(two.output, [7; 8]);
    }
}
