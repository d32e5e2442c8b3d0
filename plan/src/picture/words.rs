//! Chunks, channels, times and bytes as text.

use super::scene::{Lane, Named};
use crate::model::{Buffer, ChannelTable, ChannelType, ChunkRef, Op, RefBase};
use std::fmt::Write;

/// A reference with its numbers resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) buffer: Buffer,
    /// The owner; of a switch channel, the rank's channel id.
    pub(super) owner: u64,
    pub(super) switch: bool,
    pub(super) index: u64,
    pub(super) size: u64,
}

/// What a reference of an operation means; `None` where it refers to nothing, which `check` refuses.
pub(super) fn resolve(lane: &Lane<'_>, op: &Op, chunk: &ChunkRef) -> Option<Chunk> {
    let ChunkRef { base, index, size } = *chunk;
    let (buffer, owner, switch) = match base {
        RefBase::Local(buffer) => (buffer, u64::from(lane.rank), false),
        RefBase::Remote(local) => {
            let global = lane.block.remote_buffer(op.channel_type, local)?;
            let remote = lane.gpu.remote_buffers.get(usize::try_from(global).ok()?)?;
            (remote.buffer, remote.rank, false)
        }
        RefBase::Switch(local) => {
            let global = lane.block.channel(ChannelType::Switch, local)?;
            let buffers = lane.gpu.channels.iter().filter_map(|table| match table {
                ChannelTable::Switch { buffer, groups } => Some(groups.iter().map(|_| *buffer)),
                ChannelTable::Peers { .. } => None,
            });
            (buffers.flatten().nth(usize::try_from(global).ok()?)?, global, true)
        }
    };
    Some(Chunk { buffer, owner, switch, index, size })
}

/// What an operation's other fields say: channels and peers, barrier, semaphores, slice, reduction, window.
pub(super) fn note(lane: &Lane<'_>, named: &Named<'_>) -> String {
    let op = named.op;
    let mut parts: Vec<String> = Vec::new();
    if let Some(reduce) = op.reduce_op {
        parts.push(reduce.to_string());
    }
    if !op.channel_ids.is_empty() {
        let each: Vec<_> =
            op.channel_ids.iter().map(|&id| channel(lane, op.channel_type, id)).collect();
        let plural = if each.len() == 1 { "" } else { "s" };
        parts.push(format!("{} channel{plural} {}", op.channel_type, each.join(", ")));
    }
    if let (Some(id), Some(blocks)) = (op.barrier_id, op.num_threadblocks) {
        parts.push(format!("barrier {id} of {blocks} blocks"));
    }
    if !op.semaphore_ids.is_empty() {
        let ids: Vec<_> = op.semaphore_ids.iter().map(u64::to_string).collect();
        let plural = if ids.len() == 1 { "" } else { "s" };
        parts.push(format!("semaphore{plural} {}", ids.join(", ")));
    }
    if let Some(group) = op.group {
        parts.push(format!("slice {} of {}", group.tb_id, group.tbg_size));
    }
    if let Some(body) = &op.pipeline {
        parts.push(format!("windows of {} over {} chunks", bytes(body.unit_size), body.num_chunks));
    }
    parts.join("; ")
}

fn channel(lane: &Lane<'_>, kind: ChannelType, local: u64) -> String {
    let Some(global) = lane.block.channel(kind, local) else { return format!("[{local}]?") };
    let peers = lane.gpu.channels.iter().filter_map(|table| match table {
        ChannelTable::Peers { channel_type, connected_to } if *channel_type == kind => {
            Some(connected_to)
        }
        _ => None,
    });
    match usize::try_from(global).ok().and_then(|global| peers.flatten().nth(global)) {
        Some(peer) => format!("#{global} to rank {peer}"),
        None => format!("#{global}"),
    }
}

/// The place of an operation in the plan's file.
pub(super) fn place(rank: u32, tb: u32, at: u32, inner: Option<u32>) -> String {
    let mut text = format!("gpus[{rank}].threadblocks[{tb}].ops[{at}]");
    if let Some(inner) = inner {
        let _ = write!(text, ".ops[{inner}]");
    }
    text
}

/// Bytes with a unit of powers of 1024, three digits.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", digits(value), UNITS[unit])
}

/// Seconds with a unit, three digits.
pub(super) fn duration(seconds: f64) -> String {
    let (factor, unit) = match seconds.abs() {
        0.0 => return "0 s".to_owned(),
        s if s < 1e-6 => (1e9, "ns"),
        s if s < 1e-3 => (1e6, "µs"),
        s if s < 1.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    format!("{} {unit}", digits(seconds * factor))
}

/// Three significant digits, without zeros that say nothing.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if decimals == 0 {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `text` as the text of an element or the value of a quoted attribute, in HTML and in XML. Characters that XML does not
/// allow become the replacement character.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let sizes = [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 20, "1 MiB")];
        for (count, text) in sizes {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(bytes(u64::MAX), "16 EiB");
        let times = [
            (0.0, "0 s"),
            (1.5e-9, "1.5 ns"),
            (12.34e-6, "12.3 µs"),
            (0.25, "250 ms"),
            (3.0, "3 s"),
        ];
        for (seconds, text) in times {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn markup_becomes_text() {
        assert_eq!(escape("<a b='\"'>&\u{1}"), "&lt;a b=&#39;&quot;&#39;&gt;&amp;\u{fffd}");
    }
}
