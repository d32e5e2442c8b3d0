//! The check of calls that code serves: before the code runs, all ranks compare what they call. They do so on the host, beside
//! whatever their streams do.
//!
//! A check launches nothing, so that it is no part of a graph that its stream is recorded into. It has a number and a turn on its
//! stream as launches have, by which a rank that called something else is found before the time limit. While the stream is recorded it
//! has neither, and the ranks tell each other which of the calls that they record code makes.

use super::Gpu;
use super::calls::{self, Shown, Turn};
use crate::communicator::{CallSeries, Shared};
use crate::error::{ExecutorError, Waits};
use crate::executor::{OrderOf, mix};
use crate::shared::control::CallType;
use antiphon_bootstrap::{BootstrapError, Operation};
use antiphon_hal::Stream;
use antiphon_types::{DataType, ReduceOp};
use std::time::{Duration, Instant};

/// Between two looks at what the other ranks called.
const TICK: Duration = Duration::from_millis(20);

/// What a rank calls, which all ranks compare.
#[derive(Clone, Copy, Debug)]
pub struct CodedCallCheck<'a> {
    /// What is called.
    pub name: &'a str,
    /// The code that makes the call, as ranks name it that make it by something else.
    pub code: &'a str,
    /// Bytes of input and output.
    pub bytes: (u64, u64),
    /// Their type.
    pub dtype: DataType,
    /// The reduction.
    pub op: Option<ReduceOp>,
}

impl CodedCallCheck<'_> {
    fn call_type(&self) -> CallType {
        CallType::new(self.dtype, self.op)
    }

    fn fingerprint(&self) -> u64 {
        let name = self.name.bytes().map(u64::from);
        let CallType { dtype, op } = self.call_type();
        let call_type = [dtype, op].map(u64::from);
        name.chain([self.bytes.0, self.bytes.1]).chain(call_type).fold(0xC0DE_4A11, mix)
    }
}

impl Gpu {
    /// Returns once all ranks have come to the same check, each with its stream in the place that the call has there.
    ///
    /// # Errors
    /// [`Mismatch`](ExecutorError::Mismatch) where ranks called different things, what ended the communicator, or
    /// [`Stalled`](ExecutorError::Stalled) when the time limit has passed: all of these break it.
    pub fn check_coded_call(
        &self,
        shared: &Shared,
        stream: &dyn Stream,
        check: &CodedCallCheck<'_>,
    ) -> Result<(), ExecutorError> {
        shared.check()?;
        shared.takes(stream)?;
        let turn = self.turn(shared, stream, check)?;
        wait(shared, &turn, check).inspect_err(|error| shared.end(error.clone()))
    }

    /// Numbers a check, and shows it to the peers.
    fn turn(
        &self,
        shared: &Shared,
        stream: &dyn Stream,
        check: &CodedCallCheck<'_>,
    ) -> Result<Turn, ExecutorError> {
        let recorded = stream.is_capturing()?;
        let fingerprint = check.fingerprint();
        let mut log = shared.log();
        let stream = log.lane(shared.lane(stream.id(), recorded));
        if recorded {
            // As a launch that is recorded.
            log.record_on(stream);
            drop(log);
            shared.count_by_code(CallSeries::Recorded, check.code);
            let (turn, graphs, named, seq) = (0, true, None, 0);
            return Ok(Turn { stream, turn, graphs, named, seq, fingerprint });
        }
        let (bytes, call_type) = (check.bytes, check.call_type());
        let (name, order) = (check.name, OrderOf::Communicator);
        let shown = Shown { fingerprint, bytes, call_type, name, order };
        Ok(self.show(shared, &mut log, stream, &shown))
    }
}

/// Waits for all ranks, and compares what they called.
fn wait(shared: &Shared, turn: &Turn, check: &CodedCallCheck<'_>) -> Result<(), ExecutorError> {
    let (rank, seq) = (shared.rank, turn.seq);
    let own = crate::diagnose::named(check.name, check.bytes, check.call_type());
    let began = Instant::now();
    let stalled = |limit| ExecutorError::Stalled {
        rank,
        seq,
        call: own.clone(),
        limit,
        waits: Waits(calls::last(shared)),
    };
    let begun = shared.bootstrap.begin(Operation::Call, own.as_bytes());
    let mut ticket = begun.map_err(|error| shared.failure_or(error))?;
    let texts = loop {
        match ticket.wait_for(TICK) {
            Ok(Some(texts)) => break texts,
            Ok(None) => {}
            Err(BootstrapError::Timeout { limit, .. }) => return Err(stalled(limit)),
            Err(error) => return Err(shared.failure_or(error)),
        }
        shared.check()?;
        if let Some(error) = calls::others(shared, turn) {
            return Err(error);
        }
        let waited = began.elapsed();
        if let Some(limit) = shared.options.timeout.filter(|&limit| waited >= limit) {
            return Err(stalled(limit));
        }
    };
    let differs = |(_, theirs): &(u32, &Vec<u8>)| **theirs != *own.as_bytes();
    let Some((peer, theirs)) = (0..).zip(&texts).find(differs) else { return Ok(()) };
    let theirs = String::from_utf8_lossy(theirs).into_owned();
    Err(ExecutorError::Mismatch { rank, seq, own, peer, theirs })
}
