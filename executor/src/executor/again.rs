//! Blocking calls that ask what an earlier one asked: what that one took is at hand, and found in one step.

use super::{Call, Executor};
use crate::error::ExecutorError;
use crate::sync::lock;
use antiphon_types::{DataType, ReduceOp};

/// What tells the calls by name of one communicator apart: as long as nothing else is registered, equal ones are served by the
/// same plan, at the same sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The registry's, when it was asked.
    pub generation: u64,
    /// Bytes, as a wish counts them.
    pub bytes: u64,
    pub root: u32,
    /// All else in one number.
    pub rest: u32,
}

/// The buffers of a call whose plan is to be found, as in [`Call`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    pub input: (*const u8, u64),
    pub output: (*mut u8, u64),
    pub dtype: DataType,
    pub op: Option<ReduceOp>,
}

impl Executor {
    /// Runs a call by what served an earlier one that asked the same. `None` if that is not at hand, or if something is wrong
    /// with the call: nothing was begun.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    pub(crate) unsafe fn run_again(
        &self,
        asked: Asked,
        &Buffers { input, output, dtype, op }: &Buffers,
    ) -> Option<Result<(), ExecutorError>> {
        let shared = &self.communicator.shared;
        // Sizes of elements are powers of two.
        let misplaced = (input.0.addr() | output.0.addr()) & (dtype.size() - 1);
        if shared.gpu.is_some() || misplaced != 0 || shared.failed() {
            return None;
        }
        // Calls take turns, as in `run_asked`.
        let recent = lock(&self.blocking);
        let known = recent.iter().find(|recent| recent.asked == Some(asked) && recent.lasts())?;
        let call = Call { op, ..Call::new(&known.plan, dtype, input, output) };
        // SAFETY: as this function's.
        unsafe { self.complete(known, &call) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::{Collectives, Request, What};
    use crate::communicator::{Communicator, Options};
    use crate::registry::{Registry, Terms};
    use antiphon_plan::builder::ProgramBuilder;
    use antiphon_plan::model::Collective;

    #[test]
    fn what_served_a_call_serves_the_next_unless_something_else_is_registered() {
        let registry = Registry::new();
        let options = Options::default().with_registry(registry.clone());
        let one = Communicator::in_process(1, &options).unwrap().remove(0);
        let collectives = Collectives::new(&one).unwrap();
        let executor = collectives.executor();
        let mut buffer = [3u32; 8];
        let at = buffer.as_mut_ptr().cast::<u8>();
        let (what, dtype, op) = (What::AllReduce, DataType::U32, ReduceOp::Sum);
        let request =
            |count| Request { what, input: at, output: at, count, dtype, op, factor: None };
        // SAFETY: the buffer holds eight elements, and outlives the calls.
        let call = |count| unsafe { collectives.call(&request(count), None) };
        // SAFETY: as above.
        let again = |count| unsafe { collectives.again(&request(count)) };
        assert!(again(8).is_none(), "nothing was asked yet");
        call(8).unwrap();
        assert!(again(8).is_some_and(|outcome| outcome.is_ok()));
        assert!(again(7).is_none(), "another size");
        call(7).unwrap();
        assert!(again(8).is_some() && again(7).is_some());
        // A plan's own call takes what is at hand, and leaves it there.
        let kept =
            executor.blocking.lock().unwrap().iter().map(|recent| recent.plan.clone()).next();
        let plan = kept.unwrap();
        // SAFETY: as above.
        unsafe { executor.run(&Call::new(&plan, dtype, (at, 32), (at, 32))) }.unwrap();
        assert!(again(8).is_some());
        let program = ProgramBuilder::new("mine", Collective::AllReduce, 1);
        program.block(0).copy(program.input(0).all(), program.output(0).all());
        registry.register(program.build().unwrap(), Terms::default()).unwrap();
        assert!(again(8).is_none(), "something else may serve it");
        call(8).unwrap();
        assert!(again(8).is_some());
        registry.set_selector(|_| None);
        call(8).unwrap();
        assert!(again(8).is_none(), "a selector is asked about every call");
        registry.clear_selector();
        call(8).unwrap();
        one.abort("enough");
        assert!(again(8).is_none() && call(8).is_err());
        assert_eq!(buffer, [3; 8]);
    }

    #[test]
    fn what_is_wrong_with_a_call_is_told_as_the_first_time() {
        let one = Communicator::in_process(1, &Options::default()).unwrap().remove(0);
        let collectives = Collectives::new(&one).unwrap();
        let mut buffer = [3u64; 4];
        let at = buffer.as_mut_ptr().cast::<u8>();
        let request = |at: *mut u8, what| Request {
            what,
            input: at,
            output: at,
            count: 2,
            dtype: DataType::U64,
            op: ReduceOp::Sum,
            factor: None,
        };
        for what in [What::AllReduce, What::Broadcast { root: 0 }] {
            // SAFETY: the buffer holds two elements from each of these places on, unless the call is refused.
            let call = |at| unsafe { collectives.call(&request(at, what), None) };
            call(at).unwrap();
            let texts = [at.wrapping_add(4), std::ptr::null_mut()]
                .map(|wrong| call(wrong).unwrap_err().to_string());
            assert!(texts[0].contains("multiples of the element size"), "{texts:?}");
            assert!(texts[1].contains("null"), "{texts:?}");
            call(at.wrapping_add(8)).unwrap();
        }
        // SAFETY: refused before anything is read.
        let wrong = unsafe { collectives.call(&request(at, What::Reduce { root: 1 }), None) };
        assert!(wrong.unwrap_err().to_string().contains("rank 1"));
    }
}
