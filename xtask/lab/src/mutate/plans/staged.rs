//! Exchanges through scratch of which two halves take turns: a rank may be one launch ahead of the others, no more.

use super::{Base, Mesh, done};
use antiphon::plan::builder::{BuildError, ProgramBuilder};
use antiphon::plan::model::{Collective, Plan};

/// What is exchanged, and which way.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Put into every peer's scratch, copied out there.
    Put,
    /// Copied into own scratch, got from there by every peer.
    Get,
    /// Blocks put into the scratch of the peers that they are for.
    AllToAll,
    /// Put into every peer's scratch, summed there.
    Sum,
    /// Copied into own scratch, each block summed by its owner from everyone's scratch.
    ReadAndSum,
}

/// One exchange.
#[derive(Clone, Copy)]
struct Exchange {
    way: Way,
    ranks: usize,
    /// Chunks of a rank's part.
    chunks: usize,
    /// Thread blocks that share the work.
    blocks: usize,
    /// Whether the ranks meet at the end too, so that one scratch would do.
    meet: bool,
    /// Bytes of a window, if the whole is a pipeline.
    window: Option<u64>,
}

pub(super) fn plans() -> Result<Vec<Base>, BuildError> {
    let mut plans = Vec::new();
    let ways = [Way::Put, Way::Get, Way::AllToAll, Way::Sum, Way::ReadAndSum];
    for way in ways {
        for (ranks, chunks) in [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1)] {
            for (blocks, meet, window) in
                [(1, false, None), (2, false, None), (1, true, None), (1, false, Some(32))]
            {
                // Windows of several blocks of a message would have to be as long as each other.
                let divided = matches!(way, Way::AllToAll | Way::ReadAndSum) || ranks > 3;
                if (window.is_some() && divided) || (ranks > 3 && blocks > 1) {
                    continue;
                }
                let plan = exchange(Exchange { way, ranks, chunks, blocks, meet, window })?;
                let mut name = format!("staged {way:?} of {ranks}, {chunks} chunks");
                if blocks > 1 {
                    name += ", 2 blocks";
                }
                if meet {
                    name += ", meeting";
                }
                if let Some(window) = window {
                    name += &format!(", windows of {window}");
                }
                plans.push(Base { name, plan });
            }
        }
    }
    Ok(plans)
}

fn exchange(of: Exchange) -> Result<Plan, BuildError> {
    let Exchange { way, ranks, chunks, blocks, meet, window } = of;
    let collective = match way {
        Way::Put | Way::Get => Collective::AllGather,
        Way::AllToAll => Collective::AllToAll,
        Way::Sum => Collective::AllReduce,
        Way::ReadAndSum => Collective::ReduceScatter,
    };
    let p = ProgramBuilder::new("staged", collective, ranks).double_scratch(true);
    let p = match way {
        Way::Sum => p.chunk_counts(chunks, chunks),
        _ => p.chunk_factor(chunks),
    };
    let stages: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, ranks * chunks)).collect();
    let part = |rank: usize| rank * chunks..(rank + 1) * chunks;
    for block in 0..blocks {
        let mesh = Mesh::new(&p);
        for me in 0..ranks {
            let tb = p.block(me).slice(block, blocks);
            let (input, output, channels) = (p.input(me), p.output(me), mesh.of(me));
            let body = || {
                match way {
                    Way::Put | Way::Sum => p
                        .peers(me)
                        .for_each(|peer| tb.put(input.all(), stages[peer].chunks(part(me)))),
                    Way::AllToAll => p.peers(me).for_each(|peer| {
                        tb.put(input.chunks(part(peer)), stages[peer].chunks(part(me)));
                    }),
                    Way::Get => tb.copy(input.all(), stages[me].chunks(part(0))),
                    Way::ReadAndSum => (0..ranks).for_each(|rank| {
                        // Block by block, so that every thread block copies the slices that it sums.
                        tb.copy(input.chunks(part(rank)), stages[me].chunks(part(rank)));
                    }),
                }
                match way {
                    Way::Put | Way::Get => tb.copy(input.all(), output.chunks(part(me))),
                    Way::AllToAll => tb.copy(input.chunks(part(me)), output.chunks(part(me))),
                    Way::Sum | Way::ReadAndSum => {}
                }
                done(&tb, &channels);
                match way {
                    Way::Put | Way::AllToAll => p.peers(me).for_each(|peer| {
                        tb.copy(stages[me].chunks(part(peer)), output.chunks(part(peer)));
                    }),
                    Way::Get => p.peers(me).for_each(|peer| {
                        tb.get(stages[peer].chunks(part(0)), output.chunks(part(peer)));
                    }),
                    Way::Sum => {
                        let source = |rank: usize| {
                            let own = rank == me;
                            if own { input.all() } else { stages[me].chunks(part(rank)) }
                        };
                        let sources: Vec<_> = (0..ranks).map(source).collect();
                        tb.reduce(&sources, output.all());
                    }
                    Way::ReadAndSum => {
                        let sources: Vec<_> =
                            stages.iter().map(|stage| stage.chunks(part(me))).collect();
                        tb.reduce(&sources, output.all());
                    }
                }
                if meet {
                    done(&tb, &channels);
                }
            };
            match window {
                Some(unit) => p.pipeline(unit, chunks as u64, body),
                None => body(),
            }
        }
    }
    p.build()
}
