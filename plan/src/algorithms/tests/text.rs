//! Plans as compact text, one operation to a line.

use crate::model::*;
use std::fmt::Write;

/// The tables and operations of one rank.
pub fn render(plan: &Plan, rank: usize) -> String {
    let gpu = &plan.gpus[rank];
    let mut text = format!(
        "{} {} rank {rank}/{} i{} o{} s{}\n",
        plan.name,
        plan.protocol.name(),
        plan.gpus.len(),
        gpu.input_chunks,
        gpu.output_chunks,
        gpu.scratch_chunks
    );
    for tb in &gpu.threadblocks {
        writeln!(text, "block {}", tb.id).expect("text");
        for op in &tb.ops {
            line(&mut text, gpu, tb, op, 1);
        }
    }
    text
}

fn line(text: &mut String, gpu: &Gpu, tb: &ThreadBlock, op: &Op, depth: usize) {
    write!(text, "{}{}", "  ".repeat(depth), op.kind).expect("text");
    let refs = |refs: &[ChunkRef]| {
        let all = refs.iter().map(|r| {
            let base = match r.base {
                RefBase::Local(buffer) => buffer.to_string(),
                RefBase::Remote(id) => {
                    let refs = tb.remote_buffer_refs.iter().find(|(t, _)| *t == op.channel_type);
                    let (_, refs) = refs.expect("a table of remote buffers");
                    let remote = &gpu.remote_buffers[refs[id as usize] as usize];
                    format!("{}@{}", remote.buffer, remote.rank)
                }
                RefBase::Switch(id) => format!("switch{id}"),
            };
            format!("{base}[{}..{}]", r.index, r.index + r.size)
        });
        all.collect::<Vec<_>>().join(" ")
    };
    if !op.src.is_empty() {
        write!(text, " {} -> {}", refs(&op.src), refs(&op.dst)).expect("text");
    }
    if !op.channel_ids.is_empty() {
        let peers = gpu.channels.iter().find_map(|table| match table {
            ChannelTable::Peers { channel_type, connected_to }
                if *channel_type == op.channel_type =>
            {
                Some(connected_to)
            }
            _ => None,
        });
        let table = tb.channels.iter().find(|(t, _)| *t == op.channel_type);
        let (Some(peers), Some((_, table))) = (peers, table) else { return };
        let kind = if op.channel_type == ChannelType::Port { "port" } else { "" };
        for &id in &op.channel_ids {
            let id = table[id as usize];
            write!(text, " {kind}#{id}:{}", peers[id as usize]).expect("text");
        }
    }
    if let Some(group) = op.group {
        write!(text, " slice {}/{}", group.tb_id, group.tbg_size).expect("text");
    }
    for id in &op.semaphore_ids {
        write!(text, " sem{id}").expect("text");
    }
    match &op.pipeline {
        Some(pipeline) => {
            writeln!(text, " {} chunks by {}", pipeline.num_chunks, pipeline.unit_size)
                .expect("text");
            for inner in &pipeline.ops {
                line(text, gpu, tb, inner, depth + 1);
            }
        }
        None => text.push('\n'),
    }
}
