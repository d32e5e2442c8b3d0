//! Three small programs whose plans are known operation by operation.

use super::*;
use crate::model::{Buffer as PlanBuffer, ChunkRef, RefBase};

fn local(buffer: PlanBuffer, index: u64) -> ChunkRef {
    ChunkRef { base: RefBase::Local(buffer), index, size: 1 }
}

fn remote(id: u64, index: u64) -> ChunkRef {
    ChunkRef { base: RefBase::Remote(id), index, size: 1 }
}

#[test]
fn allgather_of_two() {
    let mut p = program(Kind::AllGather, 2, 1, true);
    for rank in 0..2 {
        let mine = at(&mut p, rank, Buffer::Output, rank, 1);
        let there = Target::at(Buffer::Output, rank);
        p.put(mine, 1 - rank as i64, there, 0, MEMORY).unwrap();
        p.signal(mine, 1 - rank as i64, there, 0, MEMORY).unwrap();
    }
    for rank in 0..2 {
        let theirs = at(&mut p, rank, Buffer::Output, 1 - rank, 1);
        let from = Target::at(Buffer::Output, 1 - rank);
        p.wait(theirs, 1 - rank as i64, from, 0, MEMORY).unwrap();
    }
    let plan = right(&p);
    assert!(plan.in_place && !plan.use_double_scratch_buffer && !plan.reuse_resources);
    for (rank, gpu) in (0..).zip(&plan.gpus) {
        let chunks = (gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks);
        assert_eq!(chunks, (1, 2, 0));
        let [block] = &gpu.threadblocks[..] else { panic!("{gpu:?}") };
        let moving: Vec<_> = block.ops.iter().filter(|op| op.kind != OpKind::Nop).collect();
        let [put, signal, wait] = &moving[..] else { panic!("{moving:?}") };
        assert_eq!((put.kind, signal.kind, wait.kind), (OpKind::Put, OpKind::Signal, OpKind::Wait));
        assert_eq!(
            (&put.src[..], &put.dst[..]),
            (&[local(PlanBuffer::Output, rank)][..], &[remote(0, rank)][..])
        );
        // The signal follows when all threads are done.
        assert_eq!(block.ops[1].kind, OpKind::Nop);
        assert_eq!((&signal.channel_ids, &wait.channel_ids), (&vec![0], &vec![0]));
        assert_eq!(block.channels, [(ChannelType::Memory, vec![0])]);
        assert_eq!(
            gpu.channels,
            [crate::model::ChannelTable::Peers {
                channel_type: ChannelType::Memory,
                connected_to: vec![1 - rank],
            }]
        );
    }
}

#[test]
fn packet_allreduce_of_two() {
    let collective = Collective::new(Kind::AllReduce, 2, 2, true);
    let settings = Settings { protocol: Protocol::LL, ..Settings::new("ll2", collective) };
    let mut p = Program::new(settings).unwrap();
    let scratch = p.scratch("scratch");
    let pairs = [(0, 1), (1, 0)];
    for (me, you) in pairs {
        let theirs = at(&mut p, me, Buffer::Input, you, 1);
        let there = Target::at(scratch, 0);
        p.put_packet(theirs, you as i64, there, 0, Format::Raw, MEMORY, None).unwrap();
    }
    for (me, you) in pairs {
        let mine = at(&mut p, me, Buffer::Input, me, 1);
        let received = at(&mut p, me, scratch, 0, 1);
        let mine = p.reduce_packet(mine, received, 0).unwrap();
        let there = Target::at(scratch, 1);
        p.put_packet(mine, you as i64, there, 0, Format::Raw, MEMORY, None).unwrap();
    }
    for (me, you) in pairs {
        let received = at(&mut p, me, scratch, 1, 1);
        p.copy_packet(received, me as i64, Target::at(Buffer::Input, you), 0).unwrap();
    }
    let plan = right(&p);
    assert!(plan.use_double_scratch_buffer);
    let gpu = &plan.gpus[0];
    assert_eq!((gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks), (2, 0, 2));
    let ops = || gpu.threadblocks[0].ops.iter().filter(|op| op.kind != OpKind::Nop);
    assert_eq!(
        kinds(&plan, 0, 0),
        [OpKind::PutPackets, OpKind::ReduceSendPackets, OpKind::UnpackPackets]
    );
    let put = ops().next().unwrap();
    assert_eq!(put.src, [local(PlanBuffer::Input, 1)]);
    assert_eq!(put.dst, [remote(0, 0)]);
    let unpack = ops().nth(2).unwrap();
    assert_eq!(unpack.src, [local(PlanBuffer::Scratch, 1)]);
    assert_eq!(unpack.dst, [local(PlanBuffer::Input, 1)]);
    let reduce = ops().nth(1).unwrap();
    assert_eq!(reduce.src, [local(PlanBuffer::Input, 0), local(PlanBuffer::Scratch, 0)]);
    assert_eq!(reduce.dst, [local(PlanBuffer::Input, 0), remote(0, 1)]);
}

#[test]
fn read_reduce_with_two_instances() {
    let collective = Collective::new(Kind::AllReduce, 2, 2, true);
    let mut p = Program::new(Settings {
        instances: 2,
        replication: Replication::Interleaved,
        ..Settings::new("rrcs", collective)
    })
    .unwrap();
    for rank in 0..2 {
        let peer = 1 - rank as i64;
        let mine = at(&mut p, rank, Buffer::Input, rank, 1);
        let theirs = at(&mut p, rank, Buffer::Input, 1 - rank, 1);
        p.signal(theirs, peer, Target::SAME, 0, MEMORY).unwrap();
        p.wait(mine, peer, Target::SAME, 0, MEMORY).unwrap();
        p.reduce(mine, Ref { rank: 1 - rank, ..mine }, 0, MEMORY).unwrap();
        p.put(mine, peer, Target::SAME, 0, MEMORY).unwrap();
        p.signal(mine, peer, Target::SAME, 0, MEMORY).unwrap();
        p.wait(theirs, peer, Target::SAME, 0, MEMORY).unwrap();
    }
    let plan = right(&p);
    let gpu = &plan.gpus[0];
    assert_eq!(gpu.input_chunks, 4);
    assert_eq!(
        gpu.channels,
        [crate::model::ChannelTable::Peers {
            channel_type: ChannelType::Memory,
            connected_to: vec![1, 1],
        }]
    );
    for (instance, block) in (0..).zip(&gpu.threadblocks) {
        assert_eq!(block.channels, [(ChannelType::Memory, vec![instance])]);
        let moving = block.ops.iter().filter(|op| !op.src.is_empty());
        for op in moving {
            let chunks = op.src.iter().chain(&op.dst);
            assert!(chunks.clone().all(|chunk| chunk.index == instance && chunk.size == 1));
        }
        use OpKind::{ReadReduceSend, Signal, Wait};
        let wanted = [Signal, Wait, ReadReduceSend, Signal, Wait];
        assert_eq!(kinds(&plan, 0, instance as usize), wanted);
    }
}
