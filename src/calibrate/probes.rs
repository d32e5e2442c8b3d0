//! Plans that each show one cost: how much longer they take with more of one thing is what that thing costs.

use crate::plan::builder::{BuildError, ProgramBuilder};
use crate::plan::model::{Collective, Plan};

fn program(name: &str, ranks: usize, [input, output]: [usize; 2]) -> ProgramBuilder {
    ProgramBuilder::new(format!("probe_{name}"), Collective::Test, ranks)
        .chunk_counts(input, output)
        .fuse(false)
}

/// Every rank copies `chunks` chunks, one after the other; with a meeting of the block's threads after each, if wanted.
pub fn copies(ranks: usize, chunks: usize, nops: bool) -> Result<Plan, BuildError> {
    let p = program("copies", ranks, [chunks, chunks]);
    for rank in 0..ranks {
        let tb = p.block(rank);
        for chunk in 0..chunks {
            tb.copy(p.input(rank).chunk(chunk), p.output(rank).chunk(chunk));
            if nops {
                tb.nop();
            }
        }
    }
    p.build()
}

/// A lone rank reduces `sources` chunks into one.
pub fn reduce(sources: usize) -> Result<Plan, BuildError> {
    let p = program("reduce", 1, [sources, 1]);
    let from: Vec<_> = (0..sources).map(|chunk| p.input(0).chunk(chunk)).collect();
    p.block(0).reduce(&from, p.output(0).chunk(0));
    p.build()
}

/// A lone rank writes `chunks` chunks as packets and reads them, one after the other.
pub fn packets(chunks: usize) -> Result<Plan, BuildError> {
    let p = program("packets", 1, [chunks, chunks]);
    let (tb, scratch) = (p.block(0), p.scratch(0, chunks));
    for chunk in 0..chunks {
        tb.copy_packets(p.input(0).chunk(chunk), scratch.chunk(chunk));
        tb.unpack_packets(scratch.chunk(chunk), p.output(0).chunk(chunk));
    }
    p.build()
}

/// Two ranks signal each other in turn, `rounds` times.
pub fn ping_pong(rounds: usize, release: bool) -> Result<Plan, BuildError> {
    let p = program("ping_pong", 2, [1, 1]);
    let channel = [p.channel(0, 1)];
    let (a, b) = (p.block(0), p.block(1));
    for _ in 0..rounds {
        if release {
            a.signal(&channel);
            b.wait(&channel);
            b.signal(&channel);
            a.wait(&channel);
        } else {
            a.signal_relaxed(&channel);
            b.wait_relaxed(&channel);
            b.signal_relaxed(&channel);
            a.wait_relaxed(&channel);
        }
    }
    p.build()
}

/// One rank signals another `rounds` times.
pub fn signals(rounds: usize) -> Result<Plan, BuildError> {
    let p = program("signals", 2, [1, 1]);
    let channel = [p.channel(0, 1)];
    let (a, b) = (p.block(0), p.block(1));
    for _ in 0..rounds {
        a.signal_relaxed(&channel);
        b.wait_relaxed(&channel);
    }
    p.build()
}

/// A lone rank takes and gives back a semaphore `rounds` times.
pub fn semaphores(rounds: usize) -> Result<Plan, BuildError> {
    let p = program("semaphores", 1, [1, 1]);
    let semaphore = [p.semaphore(0, 1)];
    let tb = p.block(0);
    for _ in 0..rounds {
        tb.acquire(&semaphore);
        tb.release(&semaphore);
    }
    p.build()
}

/// Two blocks of a rank let each other go on, `rounds` times.
pub fn turns(rounds: usize) -> Result<Plan, BuildError> {
    let p = program("turns", 1, [1, 1]);
    let (first, second) = ([p.semaphore(0, 1)], [p.semaphore(0, 0)]);
    let (a, b) = (p.block(0), p.block(0));
    for _ in 0..rounds {
        a.acquire(&first);
        a.release(&second);
        b.acquire(&second);
        b.release(&first);
    }
    p.build()
}

/// Two blocks of a rank meet `rounds` times, with a copy in between.
pub fn barriers(rounds: usize, meet: bool) -> Result<Plan, BuildError> {
    let p = program("barriers", 1, [2 * rounds, 2 * rounds]);
    let blocks = [p.block(0), p.block(0)];
    for round in 0..rounds {
        for (at, tb) in blocks.iter().enumerate() {
            let chunk = 2 * round + at;
            tb.copy(p.input(0).chunk(chunk), p.output(0).chunk(chunk));
        }
        if meet {
            p.barrier(&blocks);
        }
    }
    p.build()
}

/// A rank lets another one copy its input, which it has just written.
pub fn remote() -> Result<Plan, BuildError> {
    let p = program("remote", 2, [1, 1]);
    let channel = [p.channel(0, 1)];
    let (a, b) = (p.block(0), p.block(1));
    a.signal(&channel);
    b.wait(&channel);
    b.get(p.input(0).all(), p.output(1).all());
    b.signal(&channel);
    a.wait(&channel);
    p.build()
}

/// Each rank lets the next one go, the last one the first.
pub fn chain(ranks: usize) -> Result<Plan, BuildError> {
    let p = program("chain", ranks, [1, 1]);
    let blocks: Vec<_> = (0..ranks).map(|rank| p.block(rank)).collect();
    let links: Vec<_> = (1..ranks).map(|rank| p.channel(rank - 1, rank)).collect();
    let back = p.channel(ranks - 1, 0);
    for (rank, tb) in blocks.iter().enumerate() {
        if rank > 0 {
            tb.wait_relaxed(&links[rank - 1..rank]);
        }
        if rank + 1 < ranks {
            tb.signal_relaxed(&links[rank..rank + 1]);
        } else {
            tb.signal_relaxed(&[back]);
        }
    }
    blocks[0].wait_relaxed(&[back]);
    p.build()
}
