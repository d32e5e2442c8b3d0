//! From a parsed file of the older format to the model.

use super::ops::Translator;
use super::{channels, wire};
use crate::json::{Dialect, Read, ReadError};
use crate::model::{Gpu, Plan, Protocol, ThreadBlock};
use crate::place::Place;

/// Converts a whole file.
pub(in crate::json) fn convert(file: wire::File) -> Result<Read, ReadError> {
    let dialect = if spelled_sm(&file) { Dialect::LegacySm } else { Dialect::LegacyMemory };
    let ranks = file.gpus.into_iter().enumerate();
    let plan = Plan {
        name: file.name,
        collective: file.collective,
        protocol: file.protocol,
        in_place: file.in_place,
        reuse_resources: false,
        gpus: ranks
            .map(|(position, rank)| convert_rank(rank, position))
            .collect::<Result<_, _>>()?,
        num_threads_per_block: file.num_threads_per_block,
        // The runtime of that format alternated halves for every packet plan and for no other, whatever the
        // file said.
        use_double_scratch_buffer: file.protocol == Protocol::LL,
        buffer_alignment: 16,
        min_message_size: file.min_message_size,
        max_message_size: file.max_message_size,
        runtime_sizes: false,
    };
    Ok(Read { plan, dialect })
}

/// Whether any channel type is spelled as msccl-tools does.
fn spelled_sm(file: &wire::File) -> bool {
    file.gpus.iter().any(|rank| {
        let blocks = || rank.threadblocks.iter();
        rank.channels.iter().any(|table| table.kind.sm)
            || blocks().flat_map(|block| &block.channels).any(|list| list.kind.sm)
            || blocks().flat_map(|block| &block.ops).any(|op| op.kind.is_some_and(|kind| kind.sm))
    })
}

fn convert_rank(rank: wire::Rank, position: usize) -> Result<Gpu, ReadError> {
    let place = Place::top().at("gpus", position);
    let (known, tables) = channels::of_rank(rank.channels, &place)?;
    let mut remote_buffers = Default::default();
    let mut threadblocks = Vec::with_capacity(rank.threadblocks.len());
    for (position, block) in rank.threadblocks.into_iter().enumerate() {
        let place = place.clone().at("threadblocks", position);
        let (known, used) = channels::of_block(&block.channels, &known, &place)?;
        let mut translator = Translator::new(&known, &mut remote_buffers, &place);
        let ops = block.ops.iter().enumerate();
        let ops = ops.map(|(at, op)| translator.translate(op, at)).collect::<Result<_, _>>()?;
        threadblocks.push(ThreadBlock {
            id: block.id,
            ops,
            channels: used,
            remote_buffer_refs: translator.into_refs(),
        });
    }
    Ok(Gpu {
        id: rank.id,
        input_chunks: rank.input_chunks,
        output_chunks: rank.output_chunks,
        scratch_chunks: rank.scratch_chunks,
        threadblocks,
        channels: tables,
        remote_buffers: remote_buffers.into_list(),
        semaphores: Vec::new(),
    })
}
