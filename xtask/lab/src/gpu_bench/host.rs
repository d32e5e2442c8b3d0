//! How long a call keeps the thread that makes it.

use super::machine::Machine;
use super::page::{Goal, Line, Said};
use super::times::{Subject, in_turn};
use super::world::{World, plan};
use crate::Result;
use crate::bench::report::size;
use antiphon::executor::KernelForm;
use antiphon::plan::algorithms::Algorithm;
use std::time::{Duration, Instant};

/// What the numbers are.
pub const ABOUT: &str = "From the call to its return, on a context that has been used and streams that are empty. `execute` is one rank's call, \
     `execute_together` that of all ranks at once; `launch` is the driver's launch of an empty kernel, which either makes, too.";

/// The most that `execute` may take.
const MOST: Duration = Duration::from_micros(5);
/// The bytes of a call.
const BYTES: u64 = 1 << 10;

/// Measures.
pub fn lines(machine: &Machine) -> Result<Vec<Line>> {
    let algorithms = [Algorithm::AllReduceOneShotPackets, Algorithm::AllReduceZeroCopy];
    let mut lines = Vec::new();
    for algorithm in machine.some(&algorithms) {
        for ranks in machine.some(&[2, 8]) {
            let what = format!("{}, {ranks} ranks, {}", algorithm.name(), size(BYTES as usize));
            lines.push(Line::new(what, None, line(machine, algorithm, ranks)));
        }
    }
    Ok(lines)
}

fn line(machine: &Machine, algorithm: Algorithm, ranks: usize) -> Result<Said> {
    let plan = plan(algorithm, ranks, 1)?;
    let shared = machine.stream()?;
    let one = World::new(machine, &plan, BYTES, KernelForm::Generated, Some(&shared))?;
    let many = World::new(machine, &plan, BYTES, KernelForm::Generated, None)?;
    let timed = |call: &dyn Fn() -> Result<()>| {
        let start = Instant::now();
        call().map(|()| start.elapsed())
    };
    let subjects = vec![
        Subject::part("launch", || {
            let took = timed(&|| machine.launch_empty(&*shared, many.blocks[0], false))?;
            one.finish().map(|()| took)
        }),
        Subject::part("execute", || {
            let took = timed(&|| many.one(0))?;
            (1..many.len()).try_for_each(|rank| many.one(rank))?;
            many.finish().map(|()| took)
        }),
        Subject::part("execute_together", || {
            let took = timed(&|| one.together())?;
            one.finish().map(|()| took)
        }),
    ];
    let measured = in_turn(subjects, machine.often);
    Ok((measured, vec![Goal::Time { of: 1, most: MOST }]))
}
