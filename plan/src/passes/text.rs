//! Steps as text, for tests: `re i0 s1+2 -> i0 | put mem i0 -> r3.1 | pipeline 64 2 { nop ; copy i0 -> o0 }`.
//!
//! A step is its operation's name, then what it has of: channel type (`mem`, `port`, `switch`), operator, slice
//! (`#0/2`), channels or semaphores (`@0,1`; of a barrier its number and blocks), chunks (sources, `->`,
//! destinations), and where the threads meet (`before`, `after`, `both`). A chunk is `i4`, `o4` or `s4`, of remote
//! buffer 3 `r3.4`, of switch channel 0 `w0.4`, and with `+2` two chunks.

use super::{DataSync, Step};
use crate::model::{Buffer, ChannelType, ChunkRef, GroupSlice, Op, OpKind, RefBase};
use antiphon_types::ReduceOp;
use std::fmt::Write;

const TYPES: [(ChannelType, &str); 3] =
    [(ChannelType::Memory, "mem"), (ChannelType::Port, "port"), (ChannelType::Switch, "switch")];
const OPERATORS: [(ReduceOp, &str); 4] = [
    (ReduceOp::Sum, "sum"),
    (ReduceOp::Min, "min"),
    (ReduceOp::Max, "max"),
    (ReduceOp::Prod, "prod"),
];
const SYNCS: [(DataSync, &str); 3] =
    [(DataSync::BEFORE, "before"), (DataSync::AFTER, "after"), (DataSync::BOTH, "both")];
const BUFFERS: [(Buffer, char); 3] =
    [(Buffer::Input, 'i'), (Buffer::Output, 'o'), (Buffer::Scratch, 's')];

/// Reads steps; panics on text that is none.
pub fn parse(text: &str) -> Vec<Step> {
    list(text, '|')
}

/// Writes steps.
pub fn print(steps: &[Step]) -> String {
    joined(steps, " | ")
}

fn list(text: &str, separator: char) -> Vec<Step> {
    let (mut depth, mut start, mut steps) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            c if c == separator && depth == 0 => {
                steps.push(step(&text[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        steps.push(step(&text[start..]));
    }
    steps
}

fn step(text: &str) -> Step {
    let text = text.trim();
    let (head, body) = match text.split_once('{') {
        Some((head, body)) => (head, Some(body.trim_end().trim_end_matches('}'))),
        None => (text, None),
    };
    let mut words = head.split_whitespace();
    let name = words.next().expect("an operation");
    let kind = OpKind::from_name(name).unwrap_or_else(|| panic!("no operation: {text}"));
    if let Some(body) = body {
        let numbers: Vec<u64> = words.map(number).collect();
        return Step::pipeline(numbers[0], numbers[1], list(body, ';'));
    }
    let mut step = Step::new(Op::new(kind));
    let op = &mut step.op;
    let mut destinations = false;
    for word in words {
        if word == "->" {
            destinations = true;
        } else if let Some(&(channel_type, _)) = TYPES.iter().find(|(_, name)| *name == word) {
            op.channel_type = channel_type;
        } else if let Some(&(operator, _)) = OPERATORS.iter().find(|(_, name)| *name == word) {
            op.reduce_op = Some(operator);
        } else if let Some(&(sync, _)) = SYNCS.iter().find(|(_, name)| *name == word) {
            step.sync = sync;
        } else if let Some(slice) = word.strip_prefix('#') {
            let (tb_id, tbg_size) = slice.split_once('/').expect("a slice");
            op.group = Some(GroupSlice { tb_id: number(tb_id), tbg_size: number(tbg_size) });
        } else if let Some(ids) = word.strip_prefix('@') {
            let ids: Vec<u64> = ids.split(',').map(number).collect();
            match kind {
                OpKind::Barrier => {
                    (op.barrier_id, op.num_threadblocks) = (Some(ids[0]), Some(ids[1]));
                }
                OpKind::SemaphoreAcquire | OpKind::SemaphoreRelease => op.semaphore_ids = ids,
                _ => op.channel_ids = ids,
            }
        } else {
            let side = if destinations { &mut op.dst } else { &mut op.src };
            side.push(chunk(word));
        }
    }
    step
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

fn chunk(text: &str) -> ChunkRef {
    let (place, size) = text.split_once('+').unwrap_or((text, "1"));
    let (base, index) = match place.split_once('.') {
        Some((id, index)) => {
            let local = number(&id[1..]);
            let remote = id.starts_with('r');
            (if remote { RefBase::Remote(local) } else { RefBase::Switch(local) }, index)
        }
        None => {
            let buffer = BUFFERS.iter().find(|(_, name)| place.starts_with(*name));
            let (buffer, _) = buffer.unwrap_or_else(|| panic!("no chunk: {text}"));
            (RefBase::Local(*buffer), &place[1..])
        }
    };
    ChunkRef { base, index: number(index), size: number(size) }
}

fn joined(steps: &[Step], separator: &str) -> String {
    steps.iter().map(line).collect::<Vec<_>>().join(separator)
}

fn line(step: &Step) -> String {
    let Step { op, sync, body, .. } = step;
    let mut text = op.kind.name().to_owned();
    if let Some(pipeline) = &op.pipeline {
        let (unit, chunks) = (pipeline.unit_size, pipeline.num_chunks);
        write!(text, " {unit} {chunks} {{ {} }}", joined(body, " ; ")).expect("a String takes all");
    }
    let mut word = |word: &str| text.extend([" ", word]);
    TYPES.iter().filter(|(known, _)| *known == op.channel_type).for_each(|(_, name)| word(name));
    OPERATORS.iter().filter(|(known, _)| Some(*known) == op.reduce_op).for_each(|(_, n)| word(n));
    if let Some(GroupSlice { tb_id, tbg_size }) = op.group {
        word(&format!("#{tb_id}/{tbg_size}"));
    }
    let barrier = op.barrier_id.into_iter().chain(op.num_threadblocks);
    let ids = op.channel_ids.iter().chain(&op.semaphore_ids).copied().chain(barrier);
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    if !ids.is_empty() {
        word(&format!("@{}", ids.join(",")));
    }
    op.src.iter().for_each(|chunk| word(&chunk_text(chunk)));
    if !op.dst.is_empty() {
        word("->");
        op.dst.iter().for_each(|chunk| word(&chunk_text(chunk)));
    }
    SYNCS.iter().filter(|(known, _)| known == sync).for_each(|(_, name)| word(name));
    text
}

fn chunk_text(chunk: &ChunkRef) -> String {
    let base = match chunk.base {
        RefBase::Local(buffer) => buffer.name().to_owned(),
        RefBase::Remote(id) => format!("r{id}."),
        RefBase::Switch(id) => format!("w{id}."),
    };
    let size = if chunk.size == 1 { String::new() } else { format!("+{}", chunk.size) };
    format!("{base}{}{size}", chunk.index)
}
