//! Ranks that share the card, driven by one thread.

use super::machine::{Machine, error};
use crate::Result;
use antiphon::DataType;
use antiphon::executor::hal::{Memory, Stream};
use antiphon::executor::{Call, Communicator, Executor, KernelForm, LoadedPlan, Options, RankCall};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::model::{Collective, Plan};
use antiphon::plan::program::Layout;
use std::sync::Arc;
use std::time::Duration;

/// No launch takes as long, unless something is wrong.
const LIMIT: Duration = Duration::from_secs(60);

/// A plan, ready to be launched by all its ranks.
pub struct World {
    ranks: Vec<Rank>,
    /// Thread blocks of each rank.
    pub blocks: Vec<u32>,
}

struct Rank {
    executor: Executor,
    plan: Arc<LoadedPlan>,
    stream: Arc<dyn Stream>,
    input: Arc<dyn Memory>,
    output: Arc<dyn Memory>,
    bytes: [u64; 2],
}

/// A built-in algorithm's plan.
pub fn plan(algorithm: Algorithm, ranks: usize, blocks: usize) -> Result<Plan> {
    algorithm.plan(Shape { blocks, ..Shape::new(ranks) }).map_err(error)
}

/// Bytes of a rank's input and output, of which the larger has `bytes`.
fn buffers(plan: &Plan, bytes: u64) -> [u64; 2] {
    let ranks = plan.gpus.len() as u64;
    let part = (bytes / ranks).max(4);
    match plan.collective {
        Collective::AllGather => [part, part * ranks],
        Collective::ReduceScatter => [part * ranks, part],
        _ => [bytes; 2],
    }
}

impl World {
    /// All ranks of a plan, each with buffers of which the larger has `bytes`, on `stream`, or each on one of its own.
    pub fn new(
        machine: &Machine,
        plan: &Plan,
        bytes: u64,
        form: KernelForm,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<World> {
        let layout = Layout::new(plan).map_err(error)?;
        let blocks = layout.ranks.iter().map(|rank| rank.blocks.len() as u32).collect();
        let devices = vec![Arc::clone(&machine.device); layout.ranks.len()];
        let options = Options::default().with_timeout(Some(LIMIT)).with_kernels(form);
        let options = options.with_block_threads(Some(machine.threads)).with_verification(false);
        let bytes = buffers(plan, bytes);
        let rank = |communicator: Communicator| {
            let executor = Executor::new(&communicator);
            Ok(Rank {
                plan: executor.load(plan).map_err(error)?,
                stream: match stream {
                    Some(stream) => Arc::clone(stream),
                    None => machine.stream()?,
                },
                input: machine.allocate(bytes[0])?,
                output: machine.allocate(bytes[1])?,
                executor,
                bytes,
            })
        };
        let all = Communicator::in_process_over(&devices, &options).map_err(error)?;
        Ok(World { ranks: all.into_iter().map(rank).collect::<Result<_>>()?, blocks })
    }

    /// Ranks.
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// The stream of a rank.
    pub fn stream(&self, rank: usize) -> &dyn Stream {
        &*self.ranks[rank].stream
    }

    /// Launches all ranks as one kernel.
    pub fn together(&self) -> Result<()> {
        let calls: Vec<_> = self.ranks.iter().map(Rank::call).collect();
        // SAFETY: the buffers have the calls' lengths, and go with `self`, whose communicators wait for all launches first.
        unsafe { Executor::execute_together(&calls) }.map_err(error)
    }

    /// Launches one rank as a kernel of its own.
    pub fn one(&self, rank: usize) -> Result<()> {
        let RankCall { executor, call, stream } = self.ranks[rank].call();
        // SAFETY: as above.
        unsafe { executor.execute(&call, stream) }.map_err(error)
    }

    /// Launches every rank as a kernel of its own.
    pub fn each(&self) -> Result<()> {
        (0..self.len()).try_for_each(|rank| self.one(rank))
    }

    /// Waits for the streams of all ranks, each once; the first of what went wrong in any rank's launches.
    pub fn finish(&self) -> Result<()> {
        let (mut outcome, mut waited) = (Ok(()), None);
        for Rank { executor, stream, .. } in &self.ranks {
            let shared = waited.replace(stream.id()) == Some(stream.id());
            // A stream that was waited for is asked again only where something is wrong: that takes time, which is measured.
            if !shared || executor.communicator().failure().is_some() {
                outcome = outcome.and(executor.synchronize(stream).map_err(error));
            }
        }
        outcome
    }
}

impl Drop for World {
    /// Launches that failed on the way are waited for before their memory goes.
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

impl Rank {
    fn call(&self) -> RankCall<'_> {
        let from = (self.input.address().cast_const(), self.bytes[0]);
        let to = (self.output.address(), self.bytes[1]);
        let call = Call::new(&self.plan, DataType::F32, from, to);
        RankCall { executor: &self.executor, call, stream: &self.stream }
    }
}
