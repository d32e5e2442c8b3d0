//! How near small plans of packets come to kernels that do nothing.

use super::machine::Machine;
use super::page::{Goal, Line, Said};
use super::times::{Subject, in_turn};
use super::world::{World, plan};
use crate::Result;
use crate::bench::report::size;
use antiphon::executor::KernelForm;
use antiphon::plan::algorithms::Algorithm;

/// What the numbers are.
pub const ABOUT: &str = "Allreduce by packets in one shot, launch and completion, beside as many empty kernels with as many blocks: all ranks as \
     one kernel, and each rank as a kernel of its own on a stream of its own.";

/// How many times the empty kernels a plan may take.
const MOST: f64 = 1.5;

/// Measures.
pub fn lines(machine: &Machine) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for ranks in machine.some(&[2, 4, 8]) {
        for bytes in machine.some(&[16, 256, 1 << 10, 4 << 10]) {
            let what = format!("{ranks} ranks, {}", size(bytes as usize));
            lines.push(Line::new(what, None, line(machine, ranks, bytes)));
        }
    }
    Ok(lines)
}

fn line(machine: &Machine, ranks: usize, bytes: u64) -> Result<Said> {
    let plan = plan(Algorithm::AllReduceOneShotPackets, ranks, 1)?;
    let shared = machine.stream()?;
    let one = World::new(machine, &plan, bytes, KernelForm::Generated, Some(&shared))?;
    let many = World::new(machine, &plan, bytes, KernelForm::Generated, None)?;
    let blocks = one.blocks.iter().sum();
    let subjects = vec![
        Subject::whole("empty, one kernel", || {
            machine.launch_empty(&*shared, blocks, true)?;
            one.finish()
        }),
        Subject::whole("plan, one kernel", || one.together().and_then(|()| one.finish())),
        Subject::whole("empty, a kernel each", || {
            for (rank, &blocks) in many.blocks.iter().enumerate() {
                machine.launch_empty(many.stream(rank), blocks, false)?;
            }
            many.finish()
        }),
        Subject::whole("plan, a kernel each", || many.each().and_then(|()| many.finish())),
    ];
    let goals = [(1, 0), (3, 2)].map(|(of, over)| Goal::Ratio { of, over, most: MOST }).to_vec();
    Ok((in_turn(subjects, machine.often), goals))
}
