//! Packets that go from rank to rank, and packets that several ranks write.

use super::Base;
use antiphon::plan::builder::{BuildError, ProgramBuilder};
use antiphon::plan::model::{Collective, Plan};

/// How everyone's packets come to everyone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Around a ring.
    Ring,
    /// From each to all, and once more from whoever is beside both.
    Twice,
    /// Around a ring, and to the next but one at once.
    Ahead,
}

pub(super) fn plans() -> Result<Vec<Base>, BuildError> {
    let mut plans = Vec::new();
    for way in [Way::Ring, Way::Twice, Way::Ahead] {
        for (ranks, blocks) in [(3, 1), (3, 2), (4, 1), (4, 2)] {
            let name = format!("relay {way:?} of {ranks}, {blocks} blocks");
            plans.push(Base { name, plan: gather(way, ranks, blocks)? });
        }
    }
    Ok(plans)
}

/// An allgather: a slot of every rank's scratch is for the packets of each rank.
fn gather(way: Way, ranks: usize, blocks: usize) -> Result<Plan, BuildError> {
    let p = ProgramBuilder::new("relay", Collective::AllGather, ranks).double_scratch(true);
    let stages: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, ranks)).collect();
    for me in 0..ranks {
        let (input, output, stage) = (p.input(me), p.output(me), stages[me]);
        let after = |distance: usize| (me + distance) % ranks;
        let send = p.block(me);
        match way {
            Way::Ring => send.put_packets(input.all(), stages[after(1)].chunk(me)),
            Way::Twice => {
                p.peers(me).for_each(|peer| send.put_packets(input.all(), stages[peer].chunk(me)));
            }
            Way::Ahead => [1, 2].into_iter().for_each(|distance| {
                send.put_packets(input.all(), stages[after(distance)].chunk(me));
            }),
        }
        let receive = if blocks > 1 { p.block(me) } else { send };
        for distance in 1..ranks {
            let from = after(ranks - distance);
            // The last has it; twice, the neighbour alone hands it on.
            if distance + 1 < ranks && (way != Way::Twice || distance == 1) {
                receive.read_put_packets(stage.chunk(from), &[stages[after(1)].chunk(from)]);
            }
            receive.unpack_packets(stage.chunk(from), output.chunk(from));
        }
        receive.copy(input.all(), output.chunk(me));
    }
    p.build()
}
