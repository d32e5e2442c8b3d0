//! A 64-bit hash of a plan's content that is the same in every process, build and architecture.
//!
//! The standard `Hash` promises none of that (it hashes `usize` lengths and discriminants as it pleases), so the
//! walk is written out: every field in declaration order, every list after its length, every variant as a
//! number that is never reused. The plan's name is left out: it is for people, and two ranks that read the same
//! plan under two names run the same thing.

use crate::model::{
    Buffer, ChannelTable, ChannelType, ChunkRef, Collective, Gpu, Op, OpKind, Plan, Protocol,
    RefBase, ThreadBlock,
};
use antiphon_types::ReduceOp;

/// The fingerprint of `plan`.
pub(super) fn fingerprint(plan: &Plan) -> u64 {
    // Changes with the meaning of a fingerprint, so that two versions never agree by accident.
    let mut hasher = Hasher::new(1);
    hasher.text(plan.collective.name());
    hasher.word(match plan.protocol {
        Protocol::Simple => 0,
        Protocol::LL => 1,
    });
    hasher.flag(plan.in_place);
    hasher.flag(plan.reuse_resources);
    hasher.list(&plan.gpus, gpu);
    hasher.word(plan.num_threads_per_block);
    hasher.flag(plan.use_double_scratch_buffer);
    hasher.word(plan.buffer_alignment);
    hasher.word(plan.min_message_size);
    hasher.word(plan.max_message_size);
    // `Other("allreduce")` is spelled like `AllReduce` but is not checked like it.
    hasher.flag(matches!(plan.collective, Collective::Other(_)));
    // Only where it is so: plans of the original format keep the fingerprints they had.
    if plan.runtime_sizes {
        hasher.flag(true);
    }
    hasher.finish()
}

fn gpu(hasher: &mut Hasher, gpu: &Gpu) {
    hasher.word(gpu.id);
    hasher.word(gpu.input_chunks);
    hasher.word(gpu.output_chunks);
    hasher.word(gpu.scratch_chunks);
    hasher.list(&gpu.threadblocks, block);
    hasher.list(&gpu.channels, |hasher, table| match table {
        ChannelTable::Peers { channel_type, connected_to } => {
            hasher.word(0);
            hasher.word(channel(*channel_type));
            hasher.words(connected_to);
        }
        ChannelTable::Switch { buffer, groups } => {
            hasher.word(1);
            hasher.word(buffer_code(*buffer));
            // The group's `size` is not used by anything, so it does not make a different plan.
            hasher.list(groups, |hasher, group| hasher.words(&group.ranks));
        }
    });
    hasher.list(&gpu.remote_buffers, |hasher, remote| {
        hasher.word(remote.rank);
        hasher.word(buffer_code(remote.buffer));
        hasher.list(&remote.access, |hasher, &access| hasher.word(channel(access)));
    });
    hasher.list(&gpu.semaphores, |hasher, &value| hasher.word(value.cast_unsigned()));
}

fn block(hasher: &mut Hasher, block: &ThreadBlock) {
    hasher.word(block.id);
    hasher.list(&block.ops, op);
    for lists in [&block.channels, &block.remote_buffer_refs] {
        hasher.list(lists, |hasher, (kind, ids)| {
            hasher.word(channel(*kind));
            hasher.words(ids);
        });
    }
}

fn op(hasher: &mut Hasher, operation: &Op) {
    hasher.text(OpKind::name(operation.kind));
    hasher.word(channel(operation.channel_type));
    hasher.words(&operation.channel_ids);
    hasher.list(&operation.src, chunk);
    hasher.list(&operation.dst, chunk);
    hasher.option(operation.group.as_ref(), |hasher, group| {
        hasher.word(group.tb_id);
        hasher.word(group.tbg_size);
    });
    hasher.option(operation.reduce_op.as_ref(), |hasher, &reduce| {
        hasher.word(match reduce {
            ReduceOp::Sum => 0,
            ReduceOp::Prod => 1,
            ReduceOp::Min => 2,
            ReduceOp::Max => 3,
            ReduceOp::Avg => 4,
        });
    });
    hasher.option(operation.barrier_id.as_ref(), |hasher, &id| hasher.word(id));
    hasher.option(operation.num_threadblocks.as_ref(), |hasher, &count| hasher.word(count));
    hasher.words(&operation.semaphore_ids);
    hasher.option(operation.pipeline.as_ref(), |hasher, pipeline| {
        hasher.word(pipeline.unit_size);
        hasher.word(pipeline.num_chunks);
        hasher.list(&pipeline.ops, op);
    });
}

fn chunk(hasher: &mut Hasher, chunk: &ChunkRef) {
    let (tag, id) = match chunk.base {
        RefBase::Local(buffer) => (0, buffer_code(buffer)),
        RefBase::Remote(id) => (1, id),
        RefBase::Switch(id) => (2, id),
    };
    hasher.word(tag);
    hasher.word(id);
    hasher.word(chunk.index);
    hasher.word(chunk.size);
}

fn channel(kind: ChannelType) -> u64 {
    match kind {
        ChannelType::Memory => 0,
        ChannelType::Port => 1,
        ChannelType::Switch => 2,
        ChannelType::None => 3,
    }
}

fn buffer_code(buffer: Buffer) -> u64 {
    match buffer {
        Buffer::Input => 0,
        Buffer::Output => 1,
        Buffer::Scratch => 2,
    }
}

/// One multiply-rotate round per 64-bit word, avalanched at the end. Not for adversaries: peers compare
/// fingerprints to catch mistakes.
struct Hasher {
    state: u64,
}

impl Hasher {
    fn new(seed: u64) -> Self {
        Hasher { state: avalanche(seed) }
    }

    fn word(&mut self, word: u64) {
        let mixed = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        self.state = (self.state ^ mixed).rotate_left(27).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.state = self.state.wrapping_add(0x94d0_49bb_1331_11eb);
    }

    fn flag(&mut self, flag: bool) {
        self.word(u64::from(flag));
    }

    fn words(&mut self, words: &[u64]) {
        self.list(words, |hasher, &word| hasher.word(word));
    }

    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.word(items.len() as u64);
        for item in items {
            each(self, item);
        }
    }

    fn option<T>(&mut self, item: Option<&T>, each: impl FnOnce(&mut Self, &T)) {
        self.flag(item.is_some());
        if let Some(item) = item {
            each(self, item);
        }
    }

    fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        for piece in text.as_bytes().chunks(8) {
            let mut bytes = [0; 8];
            bytes[..piece.len()].copy_from_slice(piece);
            self.word(u64::from_le_bytes(bytes));
        }
    }

    fn finish(self) -> u64 {
        avalanche(self.state)
    }
}

fn avalanche(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
