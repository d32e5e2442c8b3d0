//! Mutations of what is moved and combined, and from where to where.

use super::super::edit::{At, Edit, Step, operations, remotes_of};
use antiphon::ReduceOp;
use antiphon::plan::model::{Buffer, ChannelType, ChunkRef, Op, OpKind, Plan, RefBase};

/// Operations that move data.
fn moves(plan: &Plan) -> impl Iterator<Item = (At, &Op)> {
    let moves = |op: &Op| !op.kind.synchronises() && op.kind != OpKind::Pipeline;
    operations(plan).into_iter().filter(move |(_, op)| moves(op))
}

/// One reference of an operation: position in the sources, then the destinations.
fn reference(op: &mut Op, position: usize) -> Option<&mut ChunkRef> {
    let sources = op.src.len();
    if position < sources { op.src.get_mut(position) } else { op.dst.get_mut(position - sources) }
}

fn references(op: &Op) -> impl Iterator<Item = ChunkRef> {
    op.src.iter().chain(&op.dst).copied()
}

fn name(op: &Op, position: usize) -> String {
    match position.checked_sub(op.src.len()) {
        None => format!("source {position}"),
        Some(position) => format!("destination {position}"),
    }
}

pub(super) fn drop_data(plan: &Plan) -> Vec<Edit> {
    moves(plan).map(|(at, op)| Edit::remove(at, op)).collect()
}

pub(super) fn duplicate_data(plan: &Plan) -> Vec<Edit> {
    let again = |(at, op): (At, &Op)| {
        let after = at.moved(at.position() + 1);
        let what = format!("{at} ({}): once more", op.kind);
        Edit::new(Step::Insert(after, Box::new(op.clone())), what)
    };
    moves(plan).map(again).collect()
}

/// Two references of one operation, or the same one of two operations that follow each other.
pub(super) fn swap_chunks(plan: &Plan) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (at, op) in moves(plan) {
        let all: Vec<_> = references(op).collect();
        for a in 0..all.len() {
            for b in a + 1..all.len() {
                let mut new = op.clone();
                if all[a] == all[b] {
                    continue;
                }
                for (position, chunk) in [(a, all[b]), (b, all[a])] {
                    if let Some(place) = reference(&mut new, position) {
                        *place = chunk;
                    }
                }
                let what = format!("{} and {} change places", name(op, a), name(op, b));
                edits.push(Edit::replace(at, op, new, what));
            }
        }
        let Some((other_at, other)) = at.next_other(plan) else { continue };
        let theirs: Vec<_> = references(other).collect();
        for position in 0..all.len().min(theirs.len()) {
            let (mut first, mut second) = (op.clone(), other.clone());
            if all[position] == theirs[position] {
                continue;
            }
            if let (Some(one), Some(two)) =
                (reference(&mut first, position), reference(&mut second, position))
            {
                std::mem::swap(one, two);
            }
            edits.push(Edit {
                steps: vec![
                    Step::Replace(at, Box::new(first)),
                    Step::Replace(other_at, Box::new(second)),
                ],
                what: format!("{at} and {other_at} change their {}", name(op, position)),
            });
        }
    }
    edits
}

/// The operation with another `field` of one reference.
fn with_reference(
    (at, op): (At, &Op),
    position: usize,
    what: impl std::fmt::Display,
    change: impl FnOnce(&mut ChunkRef),
) -> Option<Edit> {
    let mut new = op.clone();
    change(reference(&mut new, position)?);
    Some(Edit::replace(at, op, new, format_args!("{} {what}", name(op, position))))
}

pub(super) fn shift_index(plan: &Plan) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (at, op) in moves(plan) {
        for (position, chunk) in references(op).enumerate() {
            for index in [chunk.index.checked_sub(1), chunk.index.checked_add(1)] {
                let Some(index) = index else { continue };
                let what = format!("from chunk {index}, not {}", chunk.index);
                edits.extend(with_reference((at, op), position, what, |place| place.index = index));
            }
        }
    }
    edits
}

/// The operation with other sizes: of one source and its destination where those go in pairs, else of all.
fn resized(plan: &Plan, size: fn(u64) -> Option<u64>) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (at, op) in moves(plan) {
        let several = op.src.len() == op.dst.len() && op.src.len() > 1;
        let pairs = if several { op.src.len() } else { 1 };
        for pair in 0..pairs {
            let mut new = op.clone();
            let chosen = |(position, _): &(usize, _)| !several || *position == pair;
            let sources = new.src.iter_mut().enumerate().filter(chosen);
            let destinations = new.dst.iter_mut().enumerate().filter(chosen);
            let mut all = sources.chain(destinations).map(|(_, chunk)| chunk);
            let fits = all.try_for_each(|chunk| size(chunk.size).map(|size| chunk.size = size));
            if fits.is_some() {
                let what = if several { format!("pair {pair}") } else { "everything".to_owned() };
                let now = new.src.get(pair).map_or(0, |chunk| chunk.size);
                let size = op.src.get(pair).map_or(0, |chunk| chunk.size);
                edits.push(Edit::replace(
                    at,
                    op,
                    new,
                    format_args!("{what} of {now}, not {size} chunks"),
                ));
            }
        }
    }
    edits
}

pub(super) fn shrink_size(plan: &Plan) -> Vec<Edit> {
    resized(plan, |size| size.checked_sub(1))
}

pub(super) fn grow_size(plan: &Plan) -> Vec<Edit> {
    resized(plan, |size| size.checked_add(1))
}

pub(super) fn retarget_buffer(plan: &Plan) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (at, op) in moves(plan) {
        let remotes = remotes_of(plan, at, op.channel_type);
        for (position, chunk) in references(op).enumerate() {
            let others: Vec<RefBase> = match chunk.base {
                RefBase::Remote(id) if op.channel_type != ChannelType::None => {
                    (0..remotes).filter(|&other| other != id).map(RefBase::Remote).collect()
                }
                RefBase::Remote(_) | RefBase::Switch(_) => Vec::new(),
                RefBase::Local(old) => [Buffer::Input, Buffer::Output, Buffer::Scratch]
                    .into_iter()
                    .filter(|&buffer| buffer != old)
                    .map(RefBase::Local)
                    .collect(),
            };
            for base in others {
                let what = format!("is {base:?}, not {:?}", chunk.base);
                edits.extend(with_reference((at, op), position, what, |place| place.base = base));
            }
        }
    }
    edits
}

pub(super) fn drop_source(plan: &Plan) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (at, op) in moves(plan).filter(|(_, op)| op.kind.reduces() && op.src.len() > 1) {
        for position in 0..op.src.len() {
            let mut new = op.clone();
            new.src.remove(position);
            edits.push(Edit::replace(at, op, new, format_args!("without source {position}")));
        }
    }
    edits
}

pub(super) fn change_operator(plan: &Plan) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (at, op) in moves(plan).filter(|(_, op)| op.kind.reduces()) {
        let old = op.reduce_op.unwrap_or(ReduceOp::Sum);
        for operator in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod] {
            if operator != old {
                let new = Op { reduce_op: Some(operator), ..op.clone() };
                edits.push(Edit::replace(at, op, new, format_args!("{operator:?} for {old:?}")));
            }
        }
    }
    edits
}
