//! The built-in algorithms at small rank counts, and the example programs.

use super::Base;
use antiphon::plan::algorithms::{Algorithm, Handshake, Shape, examples};
use antiphon::plan::builder::{BuildError, ProgramBuilder};
use antiphon::plan::model::{Collective, Plan};

pub(super) fn plans() -> Result<Vec<Base>, BuildError> {
    let mut plans = Vec::new();
    for algorithm in Algorithm::ALL {
        for ranks in 2..=4 {
            for in_place in [false, true] {
                let plain = Shape { in_place, ..Shape::new(ranks) };
                let place = if in_place { "in place" } else { "out of place" };
                let mut shapes = vec![("", plain)];
                if algorithm.name().contains("zero_copy") && ranks < 4 {
                    shapes.push((", 2 blocks", Shape { blocks: 2, ..plain }));
                    shapes.push((", hub", Shape { handshake: Handshake::Hub, ..plain }));
                }
                for (what, shape) in shapes {
                    let plan = algorithm.plan(shape)?;
                    // A hub makes no difference to some.
                    if plans.iter().all(|base: &Base| base.plan != plan) {
                        let name = format!("{algorithm} of {ranks} {place}{what}");
                        plans.push(Base { name, plan });
                    }
                }
            }
        }
    }
    for (ranks, unit) in [(2, 16), (2, 48), (3, 32)] {
        let plan = examples::allgather_pipeline(ranks, unit)?;
        plans
            .push(Base { name: format!("allgather_pipeline of {ranks}, windows of {unit}"), plan });
    }
    for ranks in 2..=4 {
        plans.push(Base { name: format!("ring_allreduce of {ranks}"), plan: ring(ranks)? });
    }
    Ok(plans)
}

/// The example program: partial sums travel once round the ring of ranks, then the results do.
fn ring(ranks: usize) -> Result<Plan, BuildError> {
    let p = ProgramBuilder::new("ring_allreduce", Collective::AllReduce, ranks);
    let inbox: Vec<_> = (0..ranks).map(|rank| p.scratch(rank, ranks - 1)).collect();
    let to_next: Vec<_> = (0..ranks).map(|rank| p.channel(rank, (rank + 1) % ranks)).collect();
    for me in 0..ranks {
        let (tb, next) = (p.block(me), (me + 1) % ranks);
        let (input, output) = (p.input(me), p.output(me));
        let from_previous = to_next[(me + ranks - 1) % ranks];
        let pass_on = |step: usize| (me + 2 * ranks - step) % ranks;
        tb.put(input.chunk(pass_on(0)), inbox[next].chunk(0));
        for step in 1..2 * ranks - 1 {
            tb.signal(&[to_next[me]]);
            tb.wait(&[from_previous]);
            let target = p.output(next).chunk(pass_on(step));
            if step < ranks {
                let (received, own) = (inbox[me].chunk(step - 1), input.chunk(pass_on(step)));
                if step < ranks - 1 {
                    tb.reduce(&[received, own], received);
                    tb.put(received, inbox[next].chunk(step));
                    continue;
                }
                tb.reduce(&[received, own], output.chunk(pass_on(step)));
            }
            if step < 2 * ranks - 2 {
                tb.put(output.chunk(pass_on(step)), target);
            }
        }
    }
    p.build()
}
