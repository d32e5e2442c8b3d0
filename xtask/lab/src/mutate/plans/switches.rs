//! Multicast: loads from and stores to every member of a group at once.

use super::{Base, Mesh, done, ready};
use antiphon::plan::algorithms::{Shape, allreduce};
use antiphon::plan::builder::{BuildError, ProgramBuilder};
use antiphon::plan::model::{Buffer, Collective, Plan};

pub(super) fn plans() -> Result<Vec<Base>, BuildError> {
    let mut plans = Vec::new();
    for ranks in 2..=4 {
        let mut push = |what, plan| plans.push(Base { name: format!("{what} of {ranks}"), plan });
        push("allreduce_switch", allreduce::switch(Shape { in_place: true, ..Shape::new(ranks) })?);
        push("switch store", store(ranks, 2)?);
        push("switch packets", packets(ranks)?);
        push("switch reduce", reduce(ranks, 2)?);
    }
    Ok(plans)
}

/// An allgather of stores to every output.
fn store(ranks: usize, chunks: usize) -> Result<Plan, BuildError> {
    let p = ProgramBuilder::new("store", Collective::AllGather, ranks).chunk_factor(chunks);
    let everyone: Vec<_> = (0..ranks).collect();
    let (mesh, outputs) = (Mesh::new(&p), p.switch(&everyone, Buffer::Output));
    for me in 0..ranks {
        let (tb, channels) = (p.block(me), mesh.of(me));
        ready(&tb, &channels);
        tb.switch_store(p.input(me).all(), &outputs, me * chunks);
        done(&tb, &channels);
    }
    p.build()
}

/// An allgather of packets that are stored in every scratch.
fn packets(ranks: usize) -> Result<Plan, BuildError> {
    let p = ProgramBuilder::new("packets", Collective::AllGather, ranks).double_scratch(true);
    let everyone: Vec<_> = (0..ranks).collect();
    // Own packets first, then everyone's.
    let stages: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, ranks + 1)).collect();
    let switch = p.switch(&everyone, Buffer::Scratch);
    for (me, stage) in stages.iter().enumerate() {
        let (tb, output) = (p.block(me), p.output(me));
        tb.copy_packets(p.input(me).all(), stage.chunk(0));
        tb.switch_store_packets(stage.chunk(0), &switch, me + 1);
        for rank in 0..ranks {
            tb.unpack_packets(stage.chunk(rank + 1), output.chunk(rank));
        }
    }
    p.build()
}

/// A reducescatter of loads from every input.
fn reduce(ranks: usize, chunks: usize) -> Result<Plan, BuildError> {
    let p = ProgramBuilder::new("reduce", Collective::ReduceScatter, ranks).chunk_factor(chunks);
    let everyone: Vec<_> = (0..ranks).collect();
    let (mesh, inputs) = (Mesh::new(&p), p.switch(&everyone, Buffer::Input));
    for me in 0..ranks {
        let (tb, channels) = (p.block(me), mesh.of(me));
        ready(&tb, &channels);
        tb.switch_reduce(&inputs, me * chunks, p.output(me).all());
        done(&tb, &channels);
    }
    p.build()
}
