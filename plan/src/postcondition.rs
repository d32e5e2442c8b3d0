//! What a collective promises about every chunk of every output, and whether a plan keeps it.
//!
//! [`PostCondition::check`] interprets the plan on symbols: each input chunk is a name, a reduction is the collection
//! of the names it combined. It does so for a few orders of the blocks' turns, which finds mistakes of the author;
//! it is no proof that no other order goes wrong.

use crate::interpret::{InterpretError, Interpreter, Memory, Turns, Value};
use crate::lower::LowerError;
use crate::model::{Collective, Plan};
use crate::program::{CallSizes, Layout};
use antiphon_types::ReduceOp;
use std::fmt;
use thiserror::Error;

/// An input chunk: the rank whose input it is, and its position there.
pub type Origin = (u64, u64);

/// What an output chunk must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Whatever is there.
    Anything,
    /// The reduction of these input chunks, ascending; of one chunk, the chunk itself.
    Chunks(Vec<Origin>),
}

/// What every rank's output must hold after a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostCondition {
    outputs: Vec<Vec<Wanted>>,
}

/// A plan that does not keep a post-condition.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A chunk holds something else.
    #[error(
        "rank {rank}, output chunk {chunk}: expected {}, found {}", Named(.expected), Named(.found)
    )]
    Chunk {
        /// The rank.
        rank: u64,
        /// The chunk of its output.
        chunk: u64,
        /// The input chunks whose reduction should be there.
        expected: Vec<Origin>,
        /// The input chunks whose reduction is there.
        found: Vec<Origin>,
    },
    /// The plan does not come to its end, or cannot be lowered.
    #[error(transparent)]
    Run(#[from] InterpretError),
    /// The plan cannot be lowered for any size.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The plan is for other numbers of ranks or chunks than the post-condition.
    #[error(
        "cannot check the plan: the post-condition is for {allowed} {what}, the plan has {saw}"
    )]
    Shape {
        /// What was counted.
        what: &'static str,
        /// How many the plan has.
        saw: u64,
        /// How many the post-condition is for.
        allowed: u64,
    },
}

struct Named<'a>(&'a [Origin]);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (rank, chunk)) in self.0.iter().enumerate() {
            let plus = if position == 0 { "" } else { " + " };
            if *rank == NOBODY {
                write!(f, "{plus}what was there before")?;
            } else {
                write!(f, "{plus}chunk {chunk} of rank {rank}")?;
            }
        }
        if self.0.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}

/// The owner of what an output holds before a launch.
const NOBODY: u64 = u64::MAX;

impl PostCondition {
    /// What `collective` promises `ranks` ranks, of which `chunks` chunks belong to each rank's part of the message
    /// (of an allreduce, to each rank's share of the whole). The root of rooted collectives is rank 0. `None` for
    /// collectives without a promise of their own.
    pub fn of(collective: &Collective, ranks: u64, chunks: u64) -> Option<Self> {
        let all = |chunk| Wanted::Chunks((0..ranks).map(|rank| (rank, chunk)).collect());
        let one = |rank, chunk| Wanted::Chunks(vec![(rank, chunk)]);
        let whole = ranks.saturating_mul(chunks);
        let rule = |count: u64, wanted: &dyn Fn(u64, u64) -> Wanted| {
            PostCondition::custom(ranks, count, wanted)
        };
        Some(match collective {
            Collective::AllReduce => rule(whole, &|_, chunk| all(chunk)),
            Collective::AllGather => rule(whole, &|_, chunk| one(chunk / chunks, chunk % chunks)),
            Collective::ReduceScatter => rule(chunks, &|rank, chunk| all(rank * chunks + chunk)),
            Collective::AllToAll => {
                rule(whole, &|rank, chunk| one(chunk / chunks, rank * chunks + chunk % chunks))
            }
            Collective::Broadcast => rule(chunks, &|_, chunk| one(0, chunk)),
            Collective::Reduce => {
                rule(chunks, &|rank, chunk| if rank == 0 { all(chunk) } else { Wanted::Anything })
            }
            Collective::Gather => rule(whole, &|rank, chunk| match rank {
                0 => one(chunk / chunks, chunk % chunks),
                _ => Wanted::Anything,
            }),
            Collective::Scatter => rule(chunks, &|rank, chunk| one(0, rank * chunks + chunk)),
            // What is where depends on the counts of each call.
            Collective::AllToAllV | Collective::AllGatherV => return None,
            Collective::SendRecv | Collective::Test | Collective::Other(_) => return None,
        })
    }

    /// A promise of one's own: `wanted` says what each of `chunks` output chunks of each of `ranks` ranks must hold,
    /// called with rank and chunk.
    pub fn custom(ranks: u64, chunks: u64, wanted: impl Fn(u64, u64) -> Wanted) -> Self {
        let sorted = |wanted| match wanted {
            Wanted::Chunks(mut origins) => {
                origins.sort_unstable();
                Wanted::Chunks(origins)
            }
            Wanted::Anything => Wanted::Anything,
        };
        let rank = |rank| (0..chunks).map(|chunk| sorted(wanted(rank, chunk))).collect();
        PostCondition { outputs: (0..ranks).map(rank).collect() }
    }

    /// What a chunk of a rank's output must hold; nothing is said of chunks beyond the last.
    pub(crate) fn wanted(&self, rank: usize, chunk: usize) -> &Wanted {
        self.outputs.get(rank).and_then(|chunks| chunks.get(chunk)).unwrap_or(&Wanted::Anything)
    }

    /// Whether a plan keeps the promise, in place if it is written so.
    ///
    /// # Errors
    /// The first chunk that holds something else; a deadlock; a plan that cannot be lowered, or is for other numbers of
    /// ranks or chunks.
    pub fn check(&self, plan: &Plan) -> Result<(), Violation> {
        let shape = |what, saw, allowed| {
            if saw == allowed { Ok(()) } else { Err(Violation::Shape { what, saw, allowed }) }
        };
        shape("ranks", plan.gpus.len() as u64, self.outputs.len() as u64)?;
        let most =
            |count: fn(&crate::model::Gpu) -> u64| plan.gpus.iter().map(count).max().unwrap_or(0);
        let wanted = self.outputs.iter().map(Vec::len).max().unwrap_or(0) as u64;
        let (inputs, outputs) = (most(|gpu| gpu.input_chunks), most(|gpu| gpu.output_chunks));
        // In place a plan may leave one of the counts to the other.
        let outputs = if outputs == 0 { wanted } else { outputs };
        let inputs = if inputs == 0 { outputs } else { inputs };
        // Instances divide chunks: then several chunks of the plan make one of the promise.
        if wanted == 0
            || !outputs.is_multiple_of(wanted)
            || !inputs.is_multiple_of(outputs / wanted)
        {
            return shape("output chunks", outputs, wanted);
        }
        let parts = outputs / wanted;
        let layout = Layout::new(plan)?;
        let element = plan.buffer_alignment;
        let sizes = CallSizes {
            input: inputs * element,
            output: outputs * element,
            element,
            strict: false,
        };
        for turns in [Turns::Alternate, Turns::FirstFirst, Turns::LastFirst] {
            let mut memories: Vec<_> =
                (0..self.outputs.len() as u64).map(|rank| memory(plan, rank, sizes)).collect();
            Interpreter::new(&layout).with_turns(turns).launch(sizes, &mut memories)?;
            for ((rank, memory), wanted) in (0..).zip(&memories).zip(&self.outputs) {
                for (chunk, found) in (0..).zip(memory.output()) {
                    let Some(Wanted::Chunks(expected)) = wanted.get((chunk / parts) as usize)
                    else {
                        continue;
                    };
                    let part = |&(rank, origin): &Origin| (rank, origin * parts + chunk % parts);
                    let expected: Vec<Origin> = expected.iter().map(part).collect();
                    if *found.0 != *expected {
                        let found = found.0.clone();
                        return Err(Violation::Chunk { rank, chunk, expected, found });
                    }
                }
            }
        }
        Ok(())
    }
}

/// A rank's buffers before a launch, as the plan's convention for calls in place has them.
fn memory(plan: &Plan, rank: u64, sizes: CallSizes) -> Memory<Names> {
    let count = |bytes: u64| (bytes / sizes.element) as usize;
    let (inputs, outputs) = (count(sizes.input), count(sizes.output));
    let input = (0..inputs as u64).map(|chunk| Names(vec![(rank, chunk)]));
    let before = || Names(vec![(NOBODY, 0)]);
    let separate =
        |input: Vec<Names>| Memory::separate(input, (0..outputs).map(|_| before()).collect());
    if !plan.in_place {
        return separate(input.collect());
    }
    let start = inputs.min(outputs) * rank as usize;
    let (own, other) = (start..start + inputs.min(outputs), 0..inputs.max(outputs));
    let placed = match inputs.cmp(&outputs) {
        std::cmp::Ordering::Equal => Memory::in_place(input.collect(), 0..inputs, 0..outputs),
        std::cmp::Ordering::Less => {
            let mut values: Vec<_> = (0..outputs).map(|_| before()).collect();
            for (place, value) in values.iter_mut().skip(start).zip(input) {
                *place = value;
            }
            Memory::in_place(values, own, other)
        }
        std::cmp::Ordering::Greater => Memory::in_place(input.collect(), other, own),
    };
    // A plan whose buffers cannot lie so is not in place, whatever it says.
    placed.unwrap_or_else(|| {
        separate((0..inputs as u64).map(|chunk| Names(vec![(rank, chunk)])).collect())
    })
}

/// The input chunks that were combined, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Names(Vec<Origin>);

impl Value for Names {
    fn zero() -> Self {
        Names(Vec::new())
    }

    fn combine(&self, other: &Self, _: ReduceOp) -> Self {
        let mut all = Vec::with_capacity(self.0.len() + other.0.len());
        all.extend(self.0.iter().chain(&other.0).copied());
        all.sort_unstable();
        Names(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::{Algorithm, Shape};
    use crate::builder::ProgramBuilder;

    #[test]
    fn built_in_algorithms_keep_their_promise() {
        for algorithm in Algorithm::ALL {
            let collective = algorithm.collective();
            for ranks in [1, 2, 3, 8] {
                let mut promised = 0;
                for in_place in [false, true] {
                    let plan = algorithm.plan(Shape { in_place, ..Shape::new(ranks) });
                    let Ok(plan) = plan else { continue };
                    let ranks = ranks as u64;
                    let chunks = plan.gpus[0].input_chunks.min(plan.gpus[0].output_chunks);
                    let whole = matches!(collective, Collective::AllReduce | Collective::AllToAll);
                    let share = if whole { chunks.div_ceil(ranks) } else { chunks };
                    let Some(wanted) = PostCondition::of(&collective, ranks, share) else {
                        continue;
                    };
                    if whole && chunks % ranks != 0 {
                        let all =
                            |_, chunk| Wanted::Chunks((0..ranks).map(|r| (r, chunk)).collect());
                        PostCondition::custom(ranks, chunks, all).check(&plan).unwrap();
                    } else {
                        wanted.check(&plan).unwrap_or_else(|e| panic!("{algorithm} {ranks}: {e}"));
                    }
                    promised += 1;
                }
                let free = matches!(collective, Collective::SendRecv);
                assert!(promised > 0 || free, "{algorithm} of {ranks} ranks was not checked");
            }
        }
    }

    /// Rank 1 gets rank 0's input.
    fn send(to: usize) -> Plan {
        let program = ProgramBuilder::new("send", Collective::Other("custom".into()), 2);
        program.block(0).put(program.input(0).all(), program.output(to).all());
        program.build().unwrap()
    }

    #[test]
    fn rooted_collectives_promise_their_root_and_every_block() {
        for in_place in [false, true] {
            let gather = ProgramBuilder::new("gather", Collective::Gather, 3);
            let scatter = ProgramBuilder::new("scatter", Collective::Scatter, 3);
            for rank in 0..3 {
                let (own, there) = (gather.input(rank).all(), gather.output(0).chunk(rank));
                let (block, here) = (scatter.input(0).chunk(rank), scatter.output(rank).all());
                if rank > 0 {
                    gather.block(rank).put(own, there);
                    scatter.block(0).put(block, here);
                } else if !in_place {
                    gather.block(0).copy(own, there);
                    scatter.block(0).copy(block, here);
                }
            }
            for program in [gather, scatter] {
                let plan = program.in_place(in_place).build().unwrap();
                let promise = PostCondition::of(&plan.collective, 3, 1).unwrap();
                assert_eq!(promise.check(&plan), Ok(()), "{}", plan.name);
            }
        }
    }

    #[test]
    fn a_promise_of_ones_own_is_checked() {
        let wanted = |rank, chunk| match rank {
            1 => Wanted::Chunks(vec![(0, chunk)]),
            _ => Wanted::Anything,
        };
        let promise = PostCondition::custom(2, 1, wanted);
        assert_eq!(promise.check(&send(1)), Ok(()));
        let other = PostCondition::custom(2, 1, |_, chunk| Wanted::Chunks(vec![(0, chunk)]));
        let text = other.check(&send(1)).unwrap_err().to_string();
        let expected =
            "rank 0, output chunk 0: expected chunk 0 of rank 0, found what was there before";
        assert_eq!(text, expected);
        let text = PostCondition::custom(3, 1, wanted).check(&send(1)).unwrap_err().to_string();
        assert_eq!(
            text,
            "cannot check the plan: the post-condition is for 3 ranks, the plan has 2"
        );
    }
}
