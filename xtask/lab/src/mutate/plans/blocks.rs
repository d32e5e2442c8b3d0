//! Thread blocks of a rank that work together: by barriers, semaphores and pipelines.

use super::{Base, Mesh, done, ready};
use antiphon::plan::builder::{BuildError, ProgramBuilder};
use antiphon::plan::model::{Collective, Plan};

pub(super) fn plans() -> Result<Vec<Base>, BuildError> {
    let mut plans = Vec::new();
    let mut push = |name: String, plan| plans.push(Base { name, plan });
    for (ranks, blocks) in [(1, 2), (2, 2), (2, 3), (3, 2), (3, 3), (2, 4)] {
        push(format!("across {blocks} blocks of {ranks}"), across(ranks, blocks)?);
        push(format!("sums across {blocks} blocks of {ranks}"), sums(ranks, blocks)?);
    }
    for (ranks, chunks) in [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2)] {
        push(format!("hand-off of {ranks}, {chunks} chunks"), hand_off(ranks, chunks)?);
        push(format!("one slot of {ranks}, {chunks} chunks"), slot(ranks, chunks, None)?);
        push(
            format!("one slot of {ranks}, {chunks} chunks, windows"),
            slot(ranks, chunks, Some(32))?,
        );
        push(format!("stream of {ranks}, {chunks} chunks"), stream(ranks, chunks, 32)?);
    }
    for unit in [16, 48, 64] {
        push(format!("stream of 2, windows of {unit}"), stream(2, 1, unit)?);
    }
    Ok(plans)
}

/// An allgather in which every block sends what another block staged.
fn across(ranks: usize, blocks: usize) -> Result<Plan, BuildError> {
    let p = ProgramBuilder::new("across", Collective::AllGather, ranks).chunk_factor(blocks);
    let mesh = Mesh::new(&p);
    for me in 0..ranks {
        let (input, output, stage) = (p.input(me), p.output(me), p.scratch(me, blocks));
        let tbs: Vec<_> = (0..blocks).map(|_| p.block(me)).collect();
        for (at, tb) in tbs.iter().enumerate() {
            tb.copy(input.chunk(at), stage.chunk(at));
        }
        let channels = mesh.of(me);
        if ranks > 1 {
            ready(&tbs[0], &channels);
        }
        p.barrier(&tbs);
        for (at, tb) in tbs.iter().enumerate() {
            let other = (at + 1) % blocks;
            tb.copy(stage.chunk(other), output.chunk(me * blocks + other));
            for peer in p.peers(me) {
                tb.put(stage.chunk(other), p.output(peer).chunk(me * blocks + other));
            }
        }
        p.barrier(&tbs);
        if ranks > 1 {
            done(&tbs[0], &channels);
        }
    }
    p.build()
}

/// An allreduce whose blocks share two reductions, the second of which reads what other blocks wrote.
fn sums(ranks: usize, blocks: usize) -> Result<Plan, BuildError> {
    let p = ProgramBuilder::new("sums", Collective::AllReduce, ranks).chunk_counts(blocks, blocks);
    let mesh = Mesh::new(&p);
    for me in 0..ranks {
        let sum = p.scratch(me, blocks);
        let tbs: Vec<_> = (0..blocks).map(|_| p.block(me)).collect();
        let channels = mesh.of(me);
        if ranks > 1 {
            ready(&tbs[0], &channels);
            p.barrier(&tbs);
        }
        for (at, tb) in tbs.iter().enumerate() {
            let inputs: Vec<_> = (0..ranks).map(|rank| p.input(rank).all()).collect();
            let shared = tb.slice(at, blocks);
            if ranks > 1 {
                shared.reduce(&inputs, sum.all());
            } else {
                shared.copy(inputs[0], sum.all());
            }
        }
        p.barrier(&tbs);
        for (at, tb) in tbs.iter().enumerate() {
            let other = (at + 1) % blocks;
            tb.copy(sum.chunk(other), p.output(me).chunk(other));
        }
        if ranks > 1 {
            // The peers may still be reading the input.
            p.barrier(&tbs);
            done(&tbs[0], &channels);
        }
    }
    p.build()
}

/// One block sends, one waits for what arrives, and a third copies it out when the second says so.
fn hand_off(ranks: usize, chunks: usize) -> Result<Plan, BuildError> {
    let p = ProgramBuilder::new("hand_off", Collective::AllGather, ranks)
        .chunk_factor(chunks)
        .double_scratch(true);
    let mesh = Mesh::new(&p);
    let inbox: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, ranks * chunks)).collect();
    for me in 0..ranks {
        let (send, wait, copy) = (p.block(me), p.block(me), p.block(me));
        let (input, output, channels) = (p.input(me), p.output(me), mesh.of(me));
        let arrived = p.semaphore(me, 0);
        for chunk in 0..chunks {
            for peer in p.peers(me) {
                send.put(input.chunk(chunk), inbox[peer].chunk(me * chunks + chunk));
            }
            send.signal(&channels);
            wait.wait(&channels);
            wait.release(&[arrived]);
            copy.copy(input.chunk(chunk), output.chunk(me * chunks + chunk));
            copy.acquire(&[arrived]);
            for peer in p.peers(me) {
                let at = peer * chunks + chunk;
                copy.copy(inbox[me].chunk(at), output.chunk(at));
            }
        }
    }
    p.build()
}

/// One block fills a slot of scratch, another empties it into all outputs; two semaphores say whose turn it is. With a
/// window, each chunk goes through the slot window by window.
fn slot(ranks: usize, chunks: usize, window: Option<u64>) -> Result<Plan, BuildError> {
    let p = ProgramBuilder::new("slot", Collective::AllGather, ranks).chunk_factor(chunks);
    let mesh = Mesh::new(&p);
    for me in 0..ranks {
        let (fill, empty) = (p.block(me), p.block(me));
        let (input, output, stage) = (p.input(me), p.output(me), p.scratch(me, 1).all());
        let channels = mesh.of(me);
        let (free, full) = (p.semaphore(me, 1), p.semaphore(me, 0));
        ready(&empty, &channels);
        for chunk in 0..chunks {
            let body = || {
                fill.acquire(&[free]);
                fill.copy(input.chunk(chunk), stage);
                fill.release(&[full]);
                empty.acquire(&[full]);
                empty.copy(stage, output.chunk(me * chunks + chunk));
                for peer in p.peers(me) {
                    empty.put(stage, p.output(peer).chunk(me * chunks + chunk));
                }
                empty.release(&[free]);
            };
            match window {
                Some(unit) => p.pipeline(unit, 1, body),
                None => body(),
            }
        }
        done(&empty, &channels);
    }
    p.build()
}

/// Everyone streams its input through everyone's scratch, a window at a time, one block to send and one to receive.
fn stream(ranks: usize, chunks: usize, unit: u64) -> Result<Plan, BuildError> {
    let p = ProgramBuilder::new("stream", Collective::AllGather, ranks)
        .chunk_factor(chunks)
        .double_scratch(true);
    let mesh = Mesh::new(&p);
    let inbox: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, ranks * chunks)).collect();
    let part = |rank: usize| rank * chunks..(rank + 1) * chunks;
    for me in 0..ranks {
        let (send, receive) = (p.block(me), p.block(me));
        let (input, output, channels) = (p.input(me), p.output(me), mesh.of(me));
        send.copy(input.all(), output.chunks(part(me)));
        p.pipeline(unit, chunks as u64, || {
            for peer in p.peers(me) {
                send.put(input.all(), inbox[peer].chunks(part(me)));
            }
            send.signal(&channels);
            receive.wait(&channels);
            for peer in p.peers(me) {
                receive.copy(inbox[me].chunks(part(peer)), output.chunks(part(peer)));
            }
        });
    }
    p.build()
}
