//! What ranks called, compared by the host: a launch that waits for a rank which called something else would wait for ever.
//!
//! A kernel that looks for a peer's buffers sees by itself that the peer calls something else. If it does not look for them, or
//! if the peer's call is of another plan or of other sizes, and so in another context, the host compares calls in their order on
//! the stream, which is the same on all ranks. It compares collectives by name in their order on the communicator as well, for
//! two cases: ranks make one on streams of different numbers, so that the stream has nothing to compare it with; or graphs have
//! some calls on the stream, whose replays nobody counts. All ranks record a collective by name, or none.

use super::Gpu;
use super::context::{Called, Context};
use crate::communicator::{Log, Shared};
use crate::error::{ExecutorError, Wait};
use crate::executor::{OrderOf, mix};
use crate::shared::control::{CallType, ControlPage, DeviceTurn, LaunchRecord};
use std::time::{Duration, Instant};

/// How long a watch waits for word of what a rank of another node has called, and between two looks for it.
const HEARSAY: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);

/// Why a launch that waits will wait for ever, if a peer has called something else in its turn on the stream. Replays of graphs
/// have no such turn.
pub fn differs(shared: &Shared, context: &Context) -> Option<ExecutorError> {
    let Called { turn, .. } = context.called()?;
    others(shared, &turn)
}

/// A call, and its place among those on its stream and on its communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The number of the stream.
    pub stream: u32,
    /// Its number among the calls on the stream that are not recorded.
    pub turn: u64,
    /// Whether graphs may have launched others between them.
    pub graphs: bool,
    /// Its number among the communicator's collectives by name that are not recorded; none if it is not by name.
    pub named: Option<u64>,
    /// Its number among the communicator's calls; 0 if it is recorded.
    pub seq: u64,
    /// What it is.
    pub fingerprint: u64,
}

/// A call, as peers are shown it.
pub struct Shown<'a> {
    /// What it is.
    pub fingerprint: u64,
    /// Bytes of input and output.
    pub bytes: (u64, u64),
    /// Data type and reduction.
    pub call_type: CallType,
    /// Its name, however long.
    pub name: &'a str,
    /// In which order it comes.
    pub order: OrderOf,
}

impl Gpu {
    /// Numbers a call among the communicator's and among those on a stream, and shows it to the peers.
    pub fn show(&self, shared: &Shared, log: &mut Log, stream: u32, shown: &Shown<'_>) -> Turn {
        let &Shown { fingerprint, bytes, call_type, name, order } = shown;
        log.seq += 1;
        log.chain = mix(log.chain, fingerprint);
        let (seq, (turn, graphs)) = (log.seq, log.call_on(stream));
        let named = (order == OrderOf::Communicator).then(|| log.call_by_name());
        let place = DeviceTurn { stream: stream.into(), turn, graphs, named };
        let record = LaunchRecord {
            seq,
            chain: log.chain,
            fingerprint,
            bytes,
            call_type,
            name: LaunchRecord::cut_name(name),
            ..LaunchRecord::default()
        };
        shared.control(shared.rank).publish(&record.with_device_turn(place));
        if let Some(proxy) = self.proxy.get() {
            // Ranks of other nodes are told, whether the call has to do with them or not: they may call something else.
            proxy.describe(seq);
        }
        Turn { stream, turn, graphs, named, seq, fingerprint }
    }
}

/// The error if a peer has called something else in the same turn on the stream, or as the same collective by name.
pub fn others(shared: &Shared, own: &Turn) -> Option<ExecutorError> {
    let mine = shared.control(shared.rank);
    let peers = || (0..shared.world).filter(|&peer| peer != shared.rank);
    let on_stream = |peer| Some((peer, other_on_stream(own, shared.control(peer))?));
    let by_name = |peer| Some((peer, other_by_name(own, mine, shared.control(peer))?));
    let found = peers().find_map(on_stream).or_else(|| peers().find_map(by_name));
    let (peer, theirs) = found?;
    let their_stream = theirs.device_turn().stream;
    let name = |record: Option<&LaunchRecord>, stream: u64| {
        if their_stream == u64::from(own.stream) {
            return in_words(record);
        }
        format!("{} on its stream {stream} by first use", in_words(record))
    };
    let called = name(mine.record(own.seq).as_ref(), own.stream.into());
    let theirs = name(Some(&theirs), their_stream);
    Some(ExecutorError::Mismatch { rank: shared.rank, seq: own.seq, own: called, peer, theirs })
}

/// What a peer has called in the same turn on the stream, if that is something else.
fn other_on_stream(own: &Turn, theirs: &ControlPage) -> Option<LaunchRecord> {
    theirs.find(|record| {
        let DeviceTurn { stream, turn, graphs, .. } = record.device_turn();
        !own.graphs
            && !graphs
            && (stream, turn) == (own.stream.into(), own.turn)
            && record.fingerprint != own.fingerprint
    })
}

/// What a peer has called as the same collective by name, if that is something else. If one rank makes a call by its plan and
/// another makes it by a name, they count it differently though they agree. So a call that has its like in the same turn of a
/// stream is compared with no other.
fn other_by_name(own: &Turn, mine: &ControlPage, theirs: &ControlPage) -> Option<LaunchRecord> {
    let number = own.named?;
    let other = theirs.find(|record| record.device_turn().named == Some(number))?;
    let DeviceTurn { stream, turn, .. } = other.device_turn();
    let is_paired = has_made(theirs, own.stream.into(), own.turn, own.fingerprint)
        || has_made(mine, stream, turn, other.fingerprint);
    (other.fingerprint != own.fingerprint && !is_paired).then_some(other)
}

/// Whether a rank has made a call in a turn of a stream. If the turn is so old that the rank's page no longer has it, the rank
/// counts as having made that call.
fn has_made(page: &ControlPage, stream: u64, turn: u64, fingerprint: u64) -> bool {
    let turn_on_stream = |record: &LaunchRecord| {
        let place = record.device_turn();
        (place.stream == stream).then_some(place.turn)
    };
    match page.find(|record| turn_on_stream(record) == Some(turn)) {
        Some(record) => record.fingerprint == fingerprint,
        None => page.find(|record| turn_on_stream(record).is_some_and(|its| its > turn)).is_some(),
    }
}

/// Whether a peer has made the call of the launch that has begun last; `None` of replays of graphs, which have no turn.
pub fn has_entered(shared: &Shared, context: &Context, peer: u32) -> Option<bool> {
    let Called { turn: own, .. } = context.called()?;
    let (page, stream) = (shared.control(peer), own.stream.into());
    (!own.graphs).then(|| has_made(page, stream, own.turn, own.fingerprint))
}

/// The error of a launch whose kernel has seen that a peer called something else.
pub fn mismatched(shared: &Shared, context: &Context, peer: u32) -> ExecutorError {
    let seq = context.called().map_or(0, |called| called.turn.seq);
    let name = |rank: u32| {
        if rank == shared.rank && seq == 0 {
            return format!("a replay of plan `{}`", context.plan.name());
        }
        let known = || shared.control(rank).record(seq).filter(|_| seq != 0);
        // From another node the record may come a little later than what shows that something is wrong.
        let began = Instant::now();
        while seq != 0 && shared.is_far(rank) && known().is_none() && began.elapsed() < HEARSAY {
            std::thread::sleep(PAUSE);
        }
        in_words(known().as_ref())
    };
    let [own, theirs] = [shared.rank, peer].map(name);
    ExecutorError::Mismatch { rank: shared.rank, seq, own, peer, theirs }
}

/// What each of the other ranks called last, as far as this one sees it.
pub fn last(shared: &Shared) -> Vec<Wait> {
    let others = (0..shared.world).filter(|&peer| peer != shared.rank && shared.sees(peer));
    let wait = |rank: u32| {
        let what = match shared.control(rank).last() {
            Some(record) => {
                format!("(its last call is launch {}, {})", record.seq, in_words(Some(&record)))
            }
            None => "(it has called nothing)".to_owned(),
        };
        Wait { rank, block: 0, op: "no op".to_owned(), what }
    };
    others.map(wait).collect()
}

fn in_words(record: Option<&LaunchRecord>) -> String {
    record.map_or_else(|| "another call".to_owned(), crate::diagnose::call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::control::RING;

    /// A rank's calls: on which stream, whether by name, and what. Each as peers see it, and as its rank does.
    fn calls(rank: &[(u32, bool, u64)]) -> (Box<ControlPage>, Vec<Turn>) {
        let (page, mut turns) = (ControlPage::blank(), Vec::new());
        let mut log = Log::default();
        for (&(stream, is_by_name, fingerprint), seq) in rank.iter().zip(1..) {
            let (turn, _) = log.call_on(stream);
            let named = is_by_name.then(|| log.call_by_name());
            let place = DeviceTurn { stream: stream.into(), turn, graphs: false, named };
            let record = LaunchRecord { seq, fingerprint, ..LaunchRecord::default() };
            page.publish(&record.with_device_turn(place));
            turns.push(Turn { stream, turn, graphs: false, named, seq, fingerprint });
        }
        (page, turns)
    }

    #[test]
    fn calls_that_agree_are_no_mismatch_however_far_each_rank_is_and_others_are() {
        let (plan, name) = (false, true);
        // Of a stream, and so what is called there, 10 and more.
        let by_name = [(1, name, 11), (1, name, 12), (2, name, 21), (1, name, 13)];
        let partly = [(1, plan, 11), (1, name, 12), (2, plan, 21), (1, name, 13)];
        let differs = |own: &[_], other: &[_]| {
            let ((mine, turns), (theirs, _)) = (calls(own), calls(other));
            let own = turns.last().unwrap();
            other_on_stream(own, &theirs).or_else(|| other_by_name(own, &mine, &theirs))
        };
        for own in 1..=by_name.len() {
            for other in 0..=by_name.len() {
                assert_eq!(differs(&by_name[..own], &partly[..other]), None, "{own} {other}");
                assert_eq!(differs(&partly[..own], &by_name[..other]), None, "{own} {other}");
            }
        }
        // Also where a page has the calls no more in which the ranks' numbers came apart, and one waits far behind the other.
        let many = |first: &[_], from: u64| -> Vec<_> {
            let rest = (from..from + 3 * RING).map(|what| (1, name, 100 + what));
            first.iter().copied().chain(rest).collect()
        };
        let (by_name, partly) =
            (many(&[(1, name, 11), (1, name, 12)], 0), many(&[(1, plan, 11), (1, plan, 12)], 0));
        for own in 1..=by_name.len() {
            for other in [1, 3, 10, own.saturating_sub(RING as usize), own, by_name.len()] {
                assert_eq!(differs(&by_name[..own], &partly[..other]), None, "{own} {other}");
                assert_eq!(differs(&partly[..own], &by_name[..other]), None, "{own} {other}");
            }
        }
        let by_name = [(1, name, 11), (1, name, 12), (2, name, 21), (1, name, 13)];
        // The second collective is on another stream, as the ranks number them.
        let elsewhere = [(1, name, 11), (2, name, 22)];
        assert_eq!(differs(&by_name[..2], &elsewhere).map(|call| call.fingerprint), Some(22));
        assert_eq!(differs(&elsewhere, &by_name[..2]).map(|call| call.fingerprint), Some(12));
        // Another plan in the same turn.
        let another = [(1, name, 11), (1, plan, 14)];
        assert_eq!(differs(&by_name[..2], &another).map(|call| call.fingerprint), Some(14));
    }
}
