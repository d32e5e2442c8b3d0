//! What programs register to serve calls: plans, code and selectors.

use crate::hash;
use crate::program::Step;
use antiphon::executor::CodeCall;
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::model::{Collective, Plan};
use antiphon::{Call, Code, ExecutorError, Registry, Terms};
use std::sync::Arc;

/// Code that runs a built-in algorithm.
struct Runs(Algorithm);

impl Code for Runs {
    fn collective(&self) -> Collective {
        self.0.collective()
    }

    unsafe fn run(&self, call: &CodeCall<'_>) -> Result<(), ExecutorError> {
        let ranks = call.executor.communicator().world() as usize;
        let shape = Shape { in_place: call.in_place, ..Shape::new(ranks) };
        let plan =
            call.executor.load(&self.0.plan(shape).expect("a plan for any number of ranks"))?;
        let buffers = ((call.input, call.input_bytes), (call.output, call.output_bytes));
        let launch = Call { op: call.op, ..Call::new(&plan, call.dtype, buffers.0, buffers.1) };
        // SAFETY: this function's.
        unsafe {
            match call.stream {
                Some(stream) => call.executor.execute(&launch, stream),
                None => call.executor.run(&launch),
            }
        }
    }
}

fn name(entry: usize) -> String {
    format!("entry {entry}")
}

/// Whether code may run an algorithm on any ranks: it reduces or moves blocks of all ranks of a node.
pub fn runs_as_code(algorithm: Algorithm) -> bool {
    use Collective::{AllGather, AllReduce, AllToAll, ReduceScatter};
    let is_served =
        matches!(algorithm.collective(), AllReduce | AllGather | AllToAll | ReduceScatter);
    is_served && !algorithm.is_hierarchical()
}

/// Does a step for all ranks of a process: what is registered changes, or who chooses.
pub fn change(registry: &Registry, step: &Step) -> Result<(), String> {
    match *step {
        Step::Register { entry, algorithm, ranks, root, in_place, code } => {
            let terms = Terms { name: Some(name(entry)), ..Terms::default() };
            let made = if code {
                let one_node = Terms { ranks_per_node: Some(ranks as u32), ..terms };
                let terms = Terms { world: Some(ranks as u32), ..one_node };
                registry.register_code("code", 1, Arc::new(Runs(algorithm)), terms).map(drop)
            } else {
                let shape = Shape { in_place, root, ..Shape::new(ranks) };
                let plan: Plan = algorithm.plan(shape).map_err(|error| error.to_string())?;
                let root = plan.collective.has_root().then_some(root as u32);
                registry.register(plan, Terms { root, ..terms }).map(drop)
            };
            made.map_err(|error| error.to_string())
        }
        Step::Unregister { entry } => {
            registry.unregister(&name(entry));
            Ok(())
        }
        Step::Select { seed: Some(seed) } => {
            registry.set_selector(move |offer| {
                let question = &offer.question;
                let kind = question.collective.to_string().len() as u64;
                let choice = hash(&[seed, kind, question.bytes]) % (offer.fitting.len() as u64 + 1);
                offer.fitting.get(choice as usize).map(|one| one.name().to_owned())
            });
            Ok(())
        }
        Step::Select { seed: None } => {
            registry.clear_selector();
            Ok(())
        }
        _ => Ok(()),
    }
}
