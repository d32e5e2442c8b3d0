//! Calls that registered code serves: all ranks meet first, and see that they chose the same.

use super::uneven::Means;
use super::{Collectives, NOWHERE, argument};
use crate::communicator::nodes;
use crate::error::ExecutorError;
use crate::executor::Call;
use crate::gpu::CodedCallCheck;
use crate::plan_cache::LoadedPlan;
use crate::registry::{CodeCall, RegisteredCode};
use crate::selection::order::panicked;
use crate::sync::lock;
use antiphon_hal::Stream;
use antiphon_plan::builder::{BuildError, ProgramBuilder};
use antiphon_plan::counts::{Counts, Extent};
use antiphon_plan::model::{Collective, Plan};
use antiphon_types::{DataType, ReduceOp};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Which buffers code takes on devices, and what to do about others: what the error says is allowed.
const OWN_MEMORY: &str = "memory of the rank's own device; allocate the buffer there, or narrow the code's terms, so that a plan \
     serves the call, which takes other memory, too";

/// Plans of meetings that are kept.
const MOST_MEETINGS: usize = 64;

/// A call, and the code that serves it; other fields as those of [`CodeCall`].
#[derive(Debug)]
pub(super) struct Coded {
    pub code: Arc<RegisteredCode>,
    /// Bytes of the send and of the receive buffer, as ranks compare them: counted also for a buffer that this rank has no part in.
    pub bytes: (u64, u64),
    pub in_place: bool,
    pub input: (*const u8, u64),
    pub output: (*mut u8, u64),
    /// The blocks sent and the blocks received, for collectives whose blocks have lengths of their own.
    pub blocks: Option<[Vec<Extent>; 2]>,
    pub dtype: DataType,
    pub op: Option<ReduceOp>,
    pub root: u32,
}

impl Coded {
    /// A name that differs for different codes, versions and roots.
    fn name(&self) -> String {
        format!("code {} {} root {}", self.code.name(), self.code.version(), self.root)
    }

    /// Refuses what is wrong with this rank's buffers, before others count on it.
    pub fn check(&self, on: &Collectives) -> Result<(), ExecutorError> {
        let buffers = [self.input, (self.output.0.cast_const(), self.output.1)];
        on.executor().aligned(self.dtype, buffers.map(|(at, _)| at.addr()))?;
        // Code is given the device's own memory alone. Launches also take other memory, which they copy, or whose addresses hold
        // on the device.
        let device = on.communicator().device();
        let other = |&(at, bytes): &(*const u8, u64)| bytes > 0 && device.find(at, bytes).is_none();
        match buffers.into_iter().filter(|_| on.on_device()).find(other) {
            None => Ok(()),
            Some((at, bytes)) => {
                let (code, device) = (self.code.name(), device.name());
                let saw = format!(
                    "{bytes} bytes at {at:?}, which no memory of {device} holds, for registered code `{code}`"
                );
                Err(argument("give code a buffer", saw, OWN_MEMORY))
            }
        }
    }
}

impl Collectives {
    /// Refuses code if some ranks are on hosts and others on devices, since these would come to different meetings. All ranks
    /// refuse it; otherwise some would wait for the others.
    pub(super) fn check_alike(&self, code: &RegisteredCode) -> Result<(), ExecutorError> {
        match self.communicator().shared.neighbours.mixed() {
            Some(saw) => {
                Err(ExecutorError::Apart { saw: format!("code `{}` on {saw}", code.name()) })
            }
            None => Ok(()),
        }
    }

    /// Checks a call that code serves, and makes it.
    ///
    /// # Safety
    /// As [`call`](Self::call).
    pub(super) unsafe fn run_checked_code(
        &self,
        coded: &Coded,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        coded.check(self)?;
        if coded.blocks.is_some() {
            self.count(&Means::Code(Arc::clone(&coded.code)));
        }
        // SAFETY: as this function's.
        unsafe { self.run_code(coded, stream) }
    }

    /// Makes a call that code serves, and that was [checked](Coded::check).
    ///
    /// # Safety
    /// As [`call`](Self::call).
    pub(super) unsafe fn run_code(
        &self,
        coded: &Coded,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let Some(gpu) = &self.communicator().shared.gpu else {
            self.meet(coded)?;
            // SAFETY: as this function's.
            return unsafe { self.enter(coded, stream) };
        };
        let queue = &stream.map_or_else(|| self.own_stream(), |own| Ok(Arc::clone(own)))?;
        let &Coded { dtype, op, .. } = coded;
        let code = &coded.code.with_version();
        let check = CodedCallCheck { name: &coded.name(), code, bytes: coded.bytes, dtype, op };
        let shared = &self.communicator().shared;
        gpu.check_coded_call(shared, &**queue, &check)?;
        // SAFETY: as this function's.
        let entered = gpu.in_lane(shared, &**queue, || unsafe { self.enter(coded, Some(queue)) });
        // Also of code that has failed, which may have put something into the stream before.
        let ended = match stream {
            // It is no launch, so nothing else counts it.
            Some(_) => self.note_copy(&**queue),
            None => self.executor().synchronize(queue),
        };
        entered.and(ended)
    }

    /// Has all ranks meet on the host, and compare what they call.
    fn meet(&self, coded: &Coded) -> Result<(), ExecutorError> {
        let meeting = self.meeting(coded.name())?;
        let (send, receive) = coded.bytes;
        // The plan touches neither buffer.
        let (input, output) = ((NOWHERE.cast_const(), send), (NOWHERE, receive));
        let mut meet = Call::new(&meeting, coded.dtype, input, output);
        meet.op = coded.op;
        // SAFETY: there are no buffers.
        unsafe { self.executor().run(&meet) }
    }

    /// Runs the code, once all ranks have met.
    ///
    /// # Safety
    /// As [`call`](Self::call).
    unsafe fn enter(
        &self,
        coded: &Coded,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let &Coded { ref code, in_place, input, output, ref blocks, dtype, op, root, .. } = coded;
        let executor = self.executor();
        let ((input, input_bytes), (output, output_bytes)) = (input, output);
        let call = CodeCall {
            executor,
            in_place,
            input,
            output,
            input_bytes,
            output_bytes,
            counts: blocks.as_ref().map(|[send, receive]| Counts { send, receive }),
            dtype,
            op,
            root,
            stream,
        };
        // SAFETY: as this function's.
        let run = || unsafe { code.code().run(&call) };
        let reason = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("it panicked: {}", panicked(&*panic)),
        };
        // If a failure, here or on another rank, ended the code's launches, that failure says more than the code's own error.
        let broken = || self.communicator().broken();
        if let Some(failure) = broken().or_else(|| self.communicator().pair_failure()) {
            return Err(failure);
        }
        // Others may wait for what this rank would have done.
        let (name, rank) = (code.name().to_owned(), self.communicator().rank());
        let error = ExecutorError::Code { name, rank, reason };
        self.abort(&error.to_string());
        Err(error)
    }

    /// The plan by which all ranks of a host meet before code runs; its content is told apart by its name.
    fn meeting(&self, name: String) -> Result<Arc<LoadedPlan>, ExecutorError> {
        if let Some(plan) = lock(&self.0.meetings).get(&name) {
            return Ok(Arc::clone(plan));
        }
        let plan = meeting(&name, &nodes(&*self.communicator().shared.bootstrap)?);
        let plan = plan.map_err(crate::selection::SelectionError::Build)?;
        let plan = self.executor().loaded(&plan).map(Arc::new)?;
        let mut meetings = lock(&self.0.meetings);
        if meetings.len() >= MOST_MEETINGS {
            // Most of these belong to code that is not registered any more; those still needed are loaded again.
            meetings.clear();
        }
        Ok(Arc::clone(meetings.entry(name).or_insert(plan)))
    }
}

/// A plan in which ranks of these nodes meet: everyone tells rank 0, which tells everyone.
fn meeting(name: &str, nodes: &[u32]) -> Result<Plan, BuildError> {
    let collective = Collective::Other(name.to_owned());
    let program = ProgramBuilder::new(name, collective, nodes.len());
    let peers = 1..nodes.len();
    let channels: Vec<_> = peers
        .map(|peer| match nodes[peer] == nodes[0] {
            true => program.channel(0, peer),
            false => program.port(0, peer),
        })
        .collect();
    if !channels.is_empty() {
        let hub = program.block(0);
        hub.wait(&channels);
        hub.signal(&channels);
    }
    for (peer, channel) in (1..).zip(&channels) {
        let block = program.block(peer);
        block.signal(std::slice::from_ref(channel));
        block.wait(std::slice::from_ref(channel));
    }
    let mut plan = program.build()?;
    for gpu in &mut plan.gpus {
        // Buffers of any lengths.
        (gpu.input_chunks, gpu.output_chunks) = (0, 0);
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_plan::program::Layout;
    use antiphon_plan::verify::{self, Verdict};

    #[test]
    fn ranks_meet_on_any_nodes_and_codes_meet_in_plans_of_their_own() {
        let nodes: [&[u32]; 4] = [&[0], &[0, 0], &[0, 0, 0, 0, 0], &[0, 0, 1, 1]];
        for nodes in nodes {
            let plans = ["code a 1", "code a 2"].map(|name| meeting(name, nodes).unwrap());
            let layouts = plans.each_ref().map(|plan| Layout::new(plan).unwrap());
            assert_ne!(layouts[0].fingerprint, layouts[1].fingerprint);
            let report = verify::verify(&plans[0], &layouts[0], verify::Options::default());
            assert!(matches!(report.verdict, Verdict::Proven), "{nodes:?}: {report}");
        }
    }
}
