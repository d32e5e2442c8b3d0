//! What it costs, or gains, that launches come from graphs.

use super::machine::Machine;
use super::page::{Goal, Line, Said};
use super::times::{Subject, in_turn};
use super::world::{World, plan};
use crate::Result;
use crate::bench::report::size;
use antiphon::executor::KernelForm;
use antiphon::plan::algorithms::Algorithm;

/// What the numbers are.
pub const ABOUT: &str = "Launches and their completion, all ranks as one kernel on one stream: called, and replayed from a graph that they were \
     recorded into once. A graph may cost what one empty kernel costs beside the same calls, and one of many launches no more than the calls.";

/// Launches in the longer graph.
const MANY: usize = 10;

/// Measures.
pub fn lines(machine: &Machine) -> Result<Vec<Line>> {
    let algorithms = [Algorithm::AllReduceOneShotPackets, Algorithm::AllReduceZeroCopy];
    let mut lines = Vec::new();
    for (algorithm, sizes) in
        machine.some(&algorithms).into_iter().zip([[1 << 10, 16 << 10], [64 << 10, 1 << 20]])
    {
        for ranks in machine.some(&[2, 4]) {
            for bytes in machine.some(&sizes) {
                for launches in machine.some(&[1, MANY]) {
                    let what = format!(
                        "{}, {ranks} ranks, {}, {launches} launches",
                        algorithm.name(),
                        size(bytes as usize)
                    );
                    let said = line(machine, algorithm, (ranks, bytes), launches);
                    lines.push(Line::new(what, None, said));
                }
            }
        }
    }
    Ok(lines)
}

fn line(
    machine: &Machine,
    algorithm: Algorithm,
    (ranks, bytes): (usize, u64),
    launches: usize,
) -> Result<Said> {
    let (recorder, raw, stream) = machine.recorder()?;
    let plan = plan(algorithm, ranks, 8)?;
    let world = World::new(machine, &plan, bytes, KernelForm::Generated, Some(&stream))?;
    let blocks = world.blocks.iter().sum();
    let empty = || machine.launch_empty(&*stream, blocks, true);
    let times = |work: &dyn Fn() -> Result<()>| (0..launches).try_for_each(|_| work());
    // What is launched for the first time is prepared by that, which nothing recorded may be.
    let prepared = [(&empty) as &dyn Fn() -> Result<()>, &|| world.together()];
    let mut graphs = Vec::new();
    for work in prepared {
        work().and_then(|()| world.finish())?;
        let mut outcome = Ok(());
        graphs.push(recorder.record(raw, || outcome = times(work)));
        outcome?;
    }
    let replay = |graph: usize| {
        recorder.replay(graphs[graph], raw);
        world.finish()
    };
    let subjects = vec![
        Subject::whole("empty kernel", || empty().and_then(|()| world.finish())),
        Subject::whole("empty kernels", || times(&empty).and_then(|()| world.finish())),
        Subject::whole("empty kernels, graph", || replay(0)),
        Subject::whole("plan", || times(&|| world.together()).and_then(|()| world.finish())),
        Subject::whole("plan, graph", || replay(1)),
    ];
    let measured = in_turn(subjects, machine.often);
    world.finish()?;
    graphs.into_iter().for_each(|graph| recorder.destroy(graph));
    let mut goals = vec![Goal::Sum { of: 4, over: [3, 0] }];
    if launches > 1 {
        goals.push(Goal::Ratio { of: 4, over: 3, most: 1.0 });
    }
    Ok((measured, goals))
}
