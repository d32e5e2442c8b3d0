//! Plans to read and to try out: the built-in algorithms at small rank counts, and two that show more of the
//! format.

use super::common::zero_copy_program;
use super::meeting::{Mesh, ready};
use super::{Shape, allgather, allreduce, alltoall, reducescatter, sendrecv};
use crate::builder::BuildError;
use crate::model::{Collective::AllGather, Plan};

/// Example plans with the names of their files.
pub fn examples() -> Result<Vec<(&'static str, Plan)>, BuildError> {
    Ok(vec![
        ("allreduce_one_shot_packets_4.json", allreduce::one_shot_packets(Shape::new(4))?),
        ("allreduce_two_shot_packets_4.json", allreduce::two_shot_packets(Shape::new(4))?),
        ("allreduce_zero_copy_4.json", allreduce::zero_copy(Shape::new(4))?),
        ("allreduce_ring_4.json", allreduce::ring(Shape::new(4))?),
        ("allreduce_switch_4.json", allreduce::switch(Shape { in_place: true, ..Shape::new(4) })?),
        (
            "allreduce_zero_copy_8.json",
            allreduce::zero_copy(Shape { in_place: true, blocks: 2, ..Shape::new(8) })?,
        ),
        ("allgather_packets_4.json", allgather::packets(Shape::new(4))?),
        ("allgather_zero_copy_4.json", allgather::zero_copy(Shape::new(4))?),
        ("allgather_pipeline_2.json", allgather_pipeline(2, PIPELINE_UNIT)?),
        ("reducescatter_packets_4.json", reducescatter::packets(Shape::new(4))?),
        ("reducescatter_zero_copy_4.json", reducescatter::zero_copy(Shape::new(4))?),
        ("alltoall_packets_4.json", alltoall::packets(Shape::new(4))?),
        ("alltoall_zero_copy_4.json", alltoall::zero_copy(Shape::new(4))?),
        ("sendrecv_zero_copy_2.json", sendrecv::zero_copy(Shape::new(2))?),
    ])
}

/// Bytes that the pipelined example hands from block to block at a time.
const PIPELINE_UNIT: u64 = 16 << 10;

/// An allgather in two stages: block 0 stages the input in scratch, window by window, and a semaphore tells block 1
/// which windows it may send to the other ranks. For 2 ranks or more, out of place.
pub fn allgather_pipeline(ranks: usize, unit: u64) -> Result<Plan, BuildError> {
    let p = zero_copy_program("pipeline", AllGather, ranks);
    let mesh = Mesh::new(&p);
    for me in 0..ranks {
        let (input, output) = (p.input(me).all(), p.output(me).chunk(me));
        let staged = p.scratch(me, 1).all();
        let filled = p.semaphore(me, 0);

        let stage = p.block(me);
        p.pipeline(unit, 1, || {
            stage.copy(input, staged);
            stage.release(&[filled]);
            stage.copy(input, output);
        });

        let send = p.block(me);
        let channels = mesh.of(me);
        ready(&send, &channels);
        p.pipeline(unit, 1, || {
            send.acquire(&[filled]);
            for peer in p.peers(me) {
                send.put(staged, p.output(peer).chunk(me));
            }
            send.signal(&channels);
            send.wait(&channels);
        });
    }
    p.build()
}
