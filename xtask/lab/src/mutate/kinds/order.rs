//! Mutations of what threads, blocks and ranks wait for each other by.

use super::super::edit::{At, Edit, Step, channels_of, operations};
use antiphon::plan::model::{ChannelTable, ChannelType, Op, OpKind, Plan};
use std::collections::BTreeMap;

/// The changes that `change` makes to operations of `kinds`.
fn of_kinds(
    plan: &Plan,
    kinds: &[OpKind],
    mut change: impl FnMut(At, &Op) -> Vec<Edit>,
) -> Vec<Edit> {
    let all = operations(plan).into_iter().filter(|(_, op)| kinds.contains(&op.kind));
    all.flat_map(|(at, op)| change(at, op)).collect()
}

/// An operation on one number less of a list, or none at all.
fn without_one(at: At, op: &Op, list: fn(&mut Op) -> &mut Vec<u64>, what: &str) -> Vec<Edit> {
    let count = list(&mut op.clone()).len();
    if count < 2 {
        return vec![Edit::remove(at, op)];
    }
    let shorter = |position| {
        let mut new = op.clone();
        let id = list(&mut new).remove(position);
        Edit::replace(at, op, new, format_args!("without {what} {id}"))
    };
    (0..count).map(shorter).collect()
}

/// The operation once more, for one number of its list only.
fn one_again(at: At, op: &Op, list: fn(&mut Op) -> &mut Vec<u64>, what: &str) -> Vec<Edit> {
    let ids = list(&mut op.clone()).clone();
    let again = |&id: &u64| {
        let mut new = op.clone();
        *list(&mut new) = vec![id];
        let step = Step::Insert(at.moved(at.position() + 1), Box::new(new));
        Edit::new(step, format!("{at} ({}): once more for {what} {id}", op.kind))
    };
    ids.iter().map(again).collect()
}

fn channel_ids(op: &mut Op) -> &mut Vec<u64> {
    &mut op.channel_ids
}

fn semaphore_ids(op: &mut Op) -> &mut Vec<u64> {
    &mut op.semaphore_ids
}

const SIGNALS: &[OpKind] = &[OpKind::Signal, OpKind::RelaxedSignal];
const WAITS: &[OpKind] = &[OpKind::Wait, OpKind::RelaxedWait];

pub(super) fn drop_signal(plan: &Plan) -> Vec<Edit> {
    let mut edits = of_kinds(plan, SIGNALS, |at, op| without_one(at, op, channel_ids, "channel"));
    edits.extend(of_kinds(plan, &[OpKind::PutWithSignal], |at, op| {
        vec![Edit::replace(at, op, Op { kind: OpKind::Put, ..op.clone() }, "without its signal")]
    }));
    edits
}

pub(super) fn duplicate_signal(plan: &Plan) -> Vec<Edit> {
    of_kinds(plan, SIGNALS, |at, op| one_again(at, op, channel_ids, "channel"))
}

pub(super) fn drop_wait(plan: &Plan) -> Vec<Edit> {
    of_kinds(plan, WAITS, |at, op| without_one(at, op, channel_ids, "channel"))
}

pub(super) fn duplicate_wait(plan: &Plan) -> Vec<Edit> {
    of_kinds(plan, WAITS, |at, op| one_again(at, op, channel_ids, "channel"))
}

fn relax(plan: &Plan, from: OpKind, to: OpKind) -> Vec<Edit> {
    of_kinds(plan, &[from], |at, op| {
        vec![Edit::replace(at, op, Op { kind: to, ..op.clone() }, format_args!("now {to}"))]
    })
}

pub(super) fn relax_signal(plan: &Plan) -> Vec<Edit> {
    relax(plan, OpKind::Signal, OpKind::RelaxedSignal)
}

pub(super) fn relax_wait(plan: &Plan) -> Vec<Edit> {
    relax(plan, OpKind::Wait, OpKind::RelaxedWait)
}

pub(super) fn drop_nop(plan: &Plan) -> Vec<Edit> {
    of_kinds(plan, &[OpKind::Nop], |at, op| vec![Edit::remove(at, op)])
}

pub(super) fn duplicate_nop(plan: &Plan) -> Vec<Edit> {
    of_kinds(plan, &[OpKind::Nop], |at, op| vec![again(at, op)])
}

fn again(at: At, op: &Op) -> Edit {
    Edit::new(Step::Insert(at, Box::new(op.clone())), format!("{at} ({}): once more", op.kind))
}

pub(super) fn move_nop(plan: &Plan) -> Vec<Edit> {
    of_kinds(plan, &[OpKind::Nop], |at, op| {
        let last = at.list(plan).map_or(0, |list| list.len().saturating_sub(1));
        let position = at.position();
        let targets = [position.checked_sub(2), position.checked_sub(1)];
        let later = [position + 1, position + 2].map(|to| (to <= last).then_some(to));
        let targets = targets.into_iter().chain(later).flatten();
        let moved = |to: usize| Edit {
            // The second step sees the list without the nop.
            steps: vec![Step::Remove(at), Step::Insert(at.moved(to), Box::new(op.clone()))],
            what: format!("{at} (nop): now at position {to}"),
        };
        targets.map(moved).collect()
    })
}

fn is_barrier(op: &Op) -> bool {
    op.num_threadblocks.is_some_and(|blocks| blocks > 1)
}

pub(super) fn drop_barrier(plan: &Plan) -> Vec<Edit> {
    of_kinds(plan, &[OpKind::Barrier], |at, op| {
        if is_barrier(op) { vec![Edit::remove(at, op)] } else { Vec::new() }
    })
}

pub(super) fn duplicate_barrier(plan: &Plan) -> Vec<Edit> {
    of_kinds(plan, &[OpKind::Barrier], |at, op| {
        if is_barrier(op) { vec![again(at, op)] } else { Vec::new() }
    })
}

/// The k-th use of a barrier by each block is one meeting.
pub(super) fn drop_whole_barrier(plan: &Plan) -> Vec<Edit> {
    let mut uses: BTreeMap<(usize, usize, Option<u64>), usize> = BTreeMap::new();
    let mut meetings: BTreeMap<(usize, Option<u64>, usize), Vec<At>> = BTreeMap::new();
    for (at, op) in operations(plan) {
        if op.kind == OpKind::Barrier && is_barrier(op) {
            let count = uses.entry((at.rank, at.block, op.barrier_id)).or_default();
            meetings.entry((at.rank, op.barrier_id, *count)).or_default().push(at);
            *count += 1;
        }
    }
    let whole = |((rank, id, number), places): ((usize, Option<u64>, usize), Vec<At>)| Edit {
        // Every block has its own list, so no removal moves another.
        steps: places.into_iter().map(Step::Remove).collect(),
        what: format!(
            "rank {rank}: drop meeting {number} at barrier {} of all blocks",
            id.unwrap_or_default()
        ),
    };
    meetings.into_iter().map(whole).collect()
}

pub(super) fn drop_release(plan: &Plan) -> Vec<Edit> {
    of_kinds(plan, &[OpKind::SemaphoreRelease], |at, op| {
        without_one(at, op, semaphore_ids, "semaphore")
    })
}

pub(super) fn duplicate_release(plan: &Plan) -> Vec<Edit> {
    of_kinds(plan, &[OpKind::SemaphoreRelease], |at, op| {
        one_again(at, op, semaphore_ids, "semaphore")
    })
}

pub(super) fn drop_acquire(plan: &Plan) -> Vec<Edit> {
    of_kinds(plan, &[OpKind::SemaphoreAcquire], |at, op| {
        without_one(at, op, semaphore_ids, "semaphore")
    })
}

pub(super) fn semaphore_start(plan: &Plan) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (rank, gpu) in plan.gpus.iter().enumerate() {
        for (id, &value) in gpu.semaphores.iter().enumerate() {
            for value in [value - 1, value + 1] {
                let step = Step::Semaphore { rank, id, value };
                edits.push(Edit::new(
                    step,
                    format!("rank {rank} semaphore {id}: starts with {value}"),
                ));
            }
        }
    }
    edits
}

pub(super) fn drop_flush(plan: &Plan) -> Vec<Edit> {
    let mut edits =
        of_kinds(plan, &[OpKind::Flush], |at, op| without_one(at, op, channel_ids, "channel"));
    edits.extend(of_kinds(plan, &[OpKind::PutWithSignalAndFlush], |at, op| {
        let new = Op { kind: OpKind::PutWithSignal, ..op.clone() };
        vec![Edit::replace(at, op, new, "without its flush")]
    }));
    edits
}

/// Channels of operations, and of the tables that their numbers lead through.
pub(super) fn retarget_channel(plan: &Plan) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (at, op) in operations(plan) {
        let known = channels_of(plan, at, op.channel_type);
        for (position, &id) in op.channel_ids.iter().enumerate() {
            for other in (0..known).filter(|&other| other != id) {
                let mut new = op.clone();
                new.channel_ids[position] = other;
                edits.push(Edit::replace(at, op, new, format_args!("channel {other} for {id}")));
            }
        }
    }
    for (rank, gpu) in plan.gpus.iter().enumerate() {
        for (block, tb) in gpu.threadblocks.iter().enumerate() {
            for (list, (channel_type, ids)) in tb.channels.iter().enumerate() {
                let known = rank_channels(&gpu.channels, *channel_type);
                for (position, &old) in ids.iter().enumerate() {
                    for id in (0..known).filter(|&id| id != old) {
                        let step = Step::Channel { rank, block, list, position, id };
                        let what = format!(
                            "rank {rank} tb {block}: {channel_type} channel {position} is the rank's {id}, not {old}"
                        );
                        edits.push(Edit::new(step, what));
                    }
                }
            }
        }
    }
    edits
}

fn rank_channels(tables: &[ChannelTable], wanted: ChannelType) -> u64 {
    let count = |table: &ChannelTable| match table {
        ChannelTable::Peers { channel_type, connected_to } if *channel_type == wanted => {
            connected_to.len() as u64
        }
        ChannelTable::Switch { groups, .. } if wanted == ChannelType::Switch => groups.len() as u64,
        _ => 0,
    };
    tables.iter().map(count).sum()
}

/// Neighbours but for the nops between them, which stay.
pub(super) fn swap_operations(plan: &Plan) -> Vec<Edit> {
    let first = operations(plan).into_iter().filter(|(_, op)| op.kind != OpKind::Nop);
    let swapped = first.filter_map(|(at, op)| {
        let (other, next) = at.next_other(plan)?;
        let what = format!("{at} ({}) and {other} ({}) change places", op.kind, next.kind);
        (op != next).then(|| Edit::new(Step::Exchange(at, other), what))
    });
    swapped.collect()
}
