//! Large programs that benchmarks share.

use antiphon_plan::builder::{BuildError, ProgramBuilder};
use antiphon_plan::dsl::Compiled;
use antiphon_plan::model::{Collective, Protocol};

/// The two-shot packet allreduce: each rank puts the peers' parts into their scratch, reduces its own part chunk by chunk and
/// peer by peer, puts the result into the peers' scratch, and unpacks theirs.
pub fn two_shot(ranks: usize, fuse: bool) -> Result<Compiled, BuildError> {
    let p = ProgramBuilder::new("two_shot_packets", Collective::AllReduce, ranks)
        .chunk_factor(ranks)
        .protocol(Protocol::LL)
        .double_scratch(true)
        .fuse(fuse);
    let inputs: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, ranks * ranks)).collect();
    let results: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, ranks * ranks)).collect();
    let part = |rank: usize| rank * ranks..(rank + 1) * ranks;
    for me in 0..ranks {
        let tb = p.block(me);
        for peer in p.peers(me) {
            tb.put_packets(p.input(me).chunks(part(peer)), inputs[peer].chunks(part(me)));
        }
        for chunk in 0..ranks {
            let own = p.input(me).chunk(me * ranks + chunk);
            for peer in p.peers(me) {
                tb.reduce_packets(own, &[inputs[me].chunk(peer * ranks + chunk)], own);
            }
        }
        for peer in p.peers(me) {
            tb.put_packets(p.input(me).chunks(part(me)), results[peer].chunks(part(me)));
        }
        for peer in p.peers(me) {
            tb.unpack_packets(results[me].chunks(part(peer)), p.input(me).chunks(part(peer)));
        }
    }
    p.in_place(true).compile()
}

/// Every block goes round the ring, a step at a time.
#[allow(dead_code, reason = "not every benchmark has every program")]
pub fn ring_alltoall(ranks: usize) -> Result<Compiled, BuildError> {
    let p = ProgramBuilder::new("ring_alltoall", Collective::AllToAll, ranks);
    // What a rank still has to pass on after each step, one chunk for each distance still to go.
    let inbox: Vec<Vec<_>> = (0..ranks)
        .map(|rank| (1..ranks).map(|step| p.scratch(rank, ranks - step)).collect())
        .collect();
    let to_next: Vec<_> = (0..ranks).map(|rank| p.channel(rank, (rank + 1) % ranks)).collect();
    for me in 0..ranks {
        let (tb, next) = (p.block(me), (me + 1) % ranks);
        tb.copy(p.input(me).chunk(me), p.output(me).chunk(me));
        for away in 1..ranks {
            tb.put(p.input(me).chunk((me + away) % ranks), inbox[next][0].chunk(away - 1));
        }
        for step in 1..ranks {
            tb.signal(&[to_next[me]]);
            tb.wait(&[to_next[(me + ranks - 1) % ranks]]);
            let from = (me + ranks - step) % ranks;
            tb.copy(inbox[me][step - 1].chunk(0), p.output(me).chunk(from));
            for left in 1..ranks - step {
                tb.put(inbox[me][step - 1].chunk(left), inbox[next][step].chunk(left - 1));
            }
        }
    }
    p.compile()
}
