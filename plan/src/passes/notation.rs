//! Steps as lines of text, for tests: `put @0.1+2 <- i1+2`, `signal both`, `pipeline {` … `}`.
//!
//! An operand is a buffer (`i`, `o`, `s`, `@0.` for remote buffer 0, `%0.` for switch channel 0), an index and, unless
//! it is 1, a size. `/port` after an operation names its channel type, `[0/2]` a slice of a thread-block group.

use super::{DataSync, Step, Surroundings};
use crate::model::{Buffer, ChannelType, ChunkRef, Collective, GroupSlice, Op, OpKind, RefBase};
use std::fmt::Write;

/// The steps that a text says.
pub fn steps(text: &str) -> Vec<Step> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let steps = block(&mut lines);
    assert_eq!(lines.next(), None, "a brace too many");
    steps
}

fn block<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some(line) = lines.next() {
        match line {
            "}" => break,
            "pipeline {" => steps.push(Step::pipeline(64, 1, block(lines))),
            _ => steps.push(step(line)),
        }
    }
    steps
}

fn step(line: &str) -> Step {
    let mut words = line.split([' ', ',']).filter(|word| !word.is_empty());
    let mut name = words.next().expect("a name");
    let mut channel_type = ChannelType::None;
    if let Some(port) = name.strip_suffix("/port") {
        (name, channel_type) = (port, ChannelType::Port);
    }
    let mut step = Step::new(Op::new(OpKind::from_name(name).expect(name)));
    step.op.channel_type = channel_type;
    let mut sources = false;
    for word in words {
        let sync = (0..4).filter_map(DataSync::from_bits).find(|sync| sync.to_string() == word);
        match sync {
            Some(sync) => step.sync = sync,
            None if word == "<-" => sources = true,
            None if word.starts_with('[') => {
                let (tb, size) = word[1..word.len() - 1].split_once('/').expect(word);
                let number = |text: &str| text.parse().expect(word);
                step.op.group = Some(GroupSlice { tb_id: number(tb), tbg_size: number(size) });
            }
            None if sources => step.op.src.push(chunk(word)),
            None => step.op.dst.push(chunk(word)),
        }
    }
    step
}

fn chunk(word: &str) -> ChunkRef {
    let number = |text: &str| text.parse().expect(word);
    let (base, rest) = match word.split_at(1) {
        ("i", rest) => (RefBase::Local(Buffer::Input), rest),
        ("o", rest) => (RefBase::Local(Buffer::Output), rest),
        ("s", rest) => (RefBase::Local(Buffer::Scratch), rest),
        (kind, rest) => {
            let (id, rest) = rest.split_once('.').expect(word);
            let base = if kind == "@" { RefBase::Remote } else { RefBase::Switch };
            (base(number(id)), rest)
        }
    };
    let (index, size) = rest.split_once('+').unwrap_or((rest, "1"));
    ChunkRef { base, index: number(index), size: number(size) }
}

/// The text of steps, line by line, indented by two spaces a level.
pub fn text(steps: &[Step]) -> String {
    let mut out = String::new();
    write_block(&mut out, steps, 0);
    out
}

fn write_block(out: &mut String, steps: &[Step], depth: usize) {
    for step in steps {
        let indent = "  ".repeat(depth);
        write!(out, "{indent}{}", step.kind()).unwrap();
        if step.op.channel_type == ChannelType::Port {
            out.push_str("/port");
        }
        if step.kind() == OpKind::Pipeline {
            out.push_str(" {\n");
            write_block(out, &step.body, depth + 1);
            writeln!(out, "{indent}}}").unwrap();
            continue;
        }
        if step.carries_data_sync() {
            write!(out, " {}", step.sync).unwrap();
        }
        write_chunks(out, &step.op.dst);
        if !step.op.src.is_empty() {
            out.push_str(" <-");
            write_chunks(out, &step.op.src);
        }
        if let Some(GroupSlice { tb_id, tbg_size }) = step.op.group {
            write!(out, " [{tb_id}/{tbg_size}]").unwrap();
        }
        out.push('\n');
    }
}

fn write_chunks(out: &mut String, chunks: &[ChunkRef]) {
    for (position, chunk) in chunks.iter().enumerate() {
        out.push_str(if position == 0 { " " } else { ", " });
        match chunk.base {
            RefBase::Local(buffer) => write!(out, "{buffer}"),
            RefBase::Remote(id) => write!(out, "@{id}."),
            RefBase::Switch(id) => write!(out, "%{id}."),
        }
        .unwrap();
        write!(out, "{}", chunk.index).unwrap();
        if chunk.size != 1 {
            write!(out, "+{}", chunk.size).unwrap();
        }
    }
}

/// A text's steps and what a pass makes of them, side by side.
pub fn before_and_after(before: &str, pass: impl FnOnce(Vec<Step>) -> Vec<Step>) -> String {
    let before = steps(before);
    let left = text(&before);
    let right = text(&pass(before));
    let (mut left, mut right) = (left.lines().peekable(), right.lines().peekable());
    let mut out = String::new();
    loop {
        // What a pass inserts stands beside nothing, and so does what it drops.
        let (before, after) = match (left.peek(), right.peek()) {
            (None, None) => return out,
            (before, after) if before == after => (left.next(), right.next()),
            (_, Some(after)) if after.trim() == "nop" => (None, right.next()),
            (Some(_), _) => (left.next(), None),
            (None, Some(_)) => (None, right.next()),
        };
        let line = format!("{:<32}| {}", before.unwrap_or(""), after.unwrap_or(""));
        writeln!(out, "{}", line.trim_end()).unwrap();
    }
}

/// A block of rank 1 whose buffers have these chunks, with one switch channel for each buffer.
pub fn surroundings(collective: &Collective, in_place: bool) -> Surroundings<'_> {
    let (input_chunks, output_chunks) = match collective {
        Collective::AllGather => (2, 8),
        Collective::ReduceScatter => (8, 2),
        _ => (8, 8),
    };
    Surroundings {
        collective,
        in_place,
        rank: 1,
        input_chunks,
        output_chunks,
        switches: &Buffer::ALL,
        auto_sync: true,
    }
}
