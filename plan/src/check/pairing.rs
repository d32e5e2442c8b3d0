//! Compares signals with waits, channel by channel, without running the plan.

use super::report::{Fault, Report};
use super::tables::{BlockTables, RankTables, Tables, nth};
use crate::model::{ChannelTable, ChannelType, Op, OpKind, Plan};
use crate::place::Place;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// What does not balance in a plan, as far as counting can tell; empty if everything does.
///
/// In one run of a plan, a channel must carry as many signals as the other end of the channel waits for, and a
/// semaphore must be released as often as it is acquired; a difference blocks a block or leaks into the next run.
/// Counts are per run, with the operations of a pipeline counted per window. The k-th channel of a type from
/// rank r to rank p is paired with the k-th of that type from p to r.
///
/// A plan that [`check`](super::check) accepts may have findings here: they are warnings. Ids that lead nowhere
/// are skipped.
pub fn pairing(plan: &Plan) -> Vec<Fault> {
    let tables = Tables::new(plan);
    let uses: Vec<Uses> = tables.ranks.iter().map(Uses::new).collect();
    let mut report = Report::default();
    for channel_type in [ChannelType::Memory, ChannelType::Port] {
        pair(&tables, &uses, channel_type, &mut report);
    }
    for (rank, uses) in uses.iter().enumerate() {
        for (semaphore, [acquired, released]) in uses.semaphores.iter().enumerate() {
            if acquired != released {
                report.fault(
                    || Place::top().at("gpus", rank).at("semaphores", semaphore),
                    format_args!("acquires: {acquired}; releases: {released}"),
                    "as many releases as acquires",
                );
            }
        }
    }
    report.into_vec()
}

/// How often something happens in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Count {
    /// Outside of pipelines.
    once: u64,
    /// Per window of pipelines, by the ratio of their length in chunks to their window in bytes, which decides
    /// how many windows there are.
    windows: BTreeMap<(u64, u64), u64>,
}

impl Count {
    fn add(&mut self, window: Option<(u64, u64)>) {
        match window {
            None => self.once += 1,
            Some(ratio) => *self.windows.entry(ratio).or_default() += 1,
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.once)?;
        self.windows.iter().try_for_each(|((chunks, bytes), times)| {
            write!(f, " + {times} per window ({chunks} chunks in windows of {bytes} bytes)")
        })
    }
}

/// What the blocks of a rank do to its channels and semaphores.
struct Uses {
    memory: Vec<[Count; 2]>,
    port: Vec<[Count; 2]>,
    semaphores: Vec<[Count; 2]>,
}

/// Positions in the pairs of counts.
const SIGNALS: usize = 0;
const WAITS: usize = 1;
const ACQUIRES: usize = 0;
const RELEASES: usize = 1;

impl Uses {
    fn new(rank: &RankTables<'_>) -> Self {
        let zero = |len| vec![<[Count; 2]>::default(); len];
        let mut uses = Uses {
            memory: zero(rank.memory.len()),
            port: zero(rank.port.len()),
            semaphores: zero(rank.gpu.semaphores.len()),
        };
        for block in &rank.gpu.threadblocks {
            let lists = BlockTables::new(block);
            for op in &block.ops {
                uses.note(op, &lists, None);
                if let Some(pipeline) = &op.pipeline
                    && pipeline.num_chunks > 0
                {
                    let divisor = gcd(pipeline.num_chunks, pipeline.unit_size);
                    let ratio = (pipeline.num_chunks / divisor, pipeline.unit_size / divisor);
                    pipeline.ops.iter().for_each(|op| uses.note(op, &lists, Some(ratio)));
                }
            }
        }
        uses
    }

    fn channels(&self, channel_type: ChannelType) -> &[[Count; 2]] {
        match channel_type {
            ChannelType::Memory => &self.memory,
            ChannelType::Port => &self.port,
            ChannelType::Switch | ChannelType::None => &[],
        }
    }

    fn note(&mut self, op: &Op, block: &BlockTables<'_>, window: Option<(u64, u64)>) {
        use OpKind::*;
        let (which, ids) = match op.kind {
            Signal | RelaxedSignal | PutWithSignal | PutWithSignalAndFlush => {
                (SIGNALS, &op.channel_ids)
            }
            Wait | RelaxedWait => (WAITS, &op.channel_ids),
            SemaphoreAcquire => (ACQUIRES, &op.semaphore_ids),
            SemaphoreRelease => (RELEASES, &op.semaphore_ids),
            _ => return,
        };
        if matches!(op.kind, SemaphoreAcquire | SemaphoreRelease) {
            for &id in ids {
                if let Some(counts) = at_mut(&mut self.semaphores, id) {
                    counts[which].add(window);
                }
            }
            return;
        }
        let all = match op.channel_type {
            ChannelType::Memory => &mut self.memory,
            ChannelType::Port => &mut self.port,
            ChannelType::Switch | ChannelType::None => return,
        };
        let known = block.channels(op.channel_type);
        for &global in ids.iter().filter_map(|&id| nth(known, id)) {
            if let Some(counts) = at_mut(all, global) {
                counts[which].add(window);
            }
        }
    }
}

fn at_mut<T>(list: &mut [T], id: u64) -> Option<&mut T> {
    list.get_mut(usize::try_from(id).ok()?)
}

/// The greatest common divisor; `a` is not 0.
fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Compares the two ends of every channel of a type.
fn pair(tables: &Tables<'_>, uses: &[Uses], channel_type: ChannelType, report: &mut Report) {
    let mut between: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
    for (rank, of_rank) in tables.ranks.iter().enumerate() {
        for (channel, &peer) in of_rank.peers(channel_type).iter().enumerate() {
            between.entry((rank as u64, peer)).or_default().push(channel);
        }
    }
    for (rank, of_rank) in tables.ranks.iter().enumerate() {
        let mut ordinals: HashMap<u64, usize> = HashMap::new();
        for (channel, &peer) in of_rank.peers(channel_type).iter().enumerate() {
            let next = ordinals.entry(peer).or_default();
            let ordinal = std::mem::replace(next, *next + 1);
            let [signals, waits] = &uses[rank].channels(channel_type)[channel];
            let place = || place(of_rank, rank, channel_type, channel);
            let other = between.get(&(peer, rank as u64)).and_then(|list| list.get(ordinal));
            match (other, nth(uses, peer)) {
                (Some(&other), Some(theirs)) => {
                    let their_waits = &theirs.channels(channel_type)[other][WAITS];
                    if signals != their_waits {
                        report.fault(
                            place,
                            format_args!("signals: {signals}"),
                            format_args!(
                                "as many as rank {peer} waits for on its {channel_type} channel {other}: {their_waits}"
                            ),
                        );
                    }
                }
                _ if *signals != Count::default() || *waits != Count::default() => report.fault(
                    place,
                    format_args!(
                        "signals: {signals}; waits: {waits}; on a channel without other end"
                    ),
                    format_args!("a channel that rank {peer} declares too"),
                ),
                _ => {}
            }
        }
    }
}

/// The place of a rank's channel of a type.
fn place(rank: &RankTables<'_>, number: usize, wanted: ChannelType, channel: usize) -> Place {
    let place = Place::top().at("gpus", number);
    let mut rest = channel;
    for (entry, table) in rank.gpu.channels.iter().enumerate() {
        if let ChannelTable::Peers { channel_type, connected_to } = table
            && *channel_type == wanted
        {
            if rest < connected_to.len() {
                return place.at("channels", entry).at("connected_to", rest);
            }
            rest -= connected_to.len();
        }
    }
    place
}
