//! What it gains that plans are compiled.

use super::machine::Machine;
use super::page::{Goal, Line, Said};
use super::times::{Subject, in_turn};
use super::world::{World, plan};
use crate::Result;
use crate::bench::report::size;
use antiphon::executor::KernelForm;
use antiphon::plan::algorithms::Algorithm;

/// What the numbers are.
pub const ABOUT: &str = "The same plan by its generated kernel and by the interpreting one, which gives the same bits: launch and completion of 4 \
     ranks, each a kernel of its own on a stream of its own.";

const RANKS: usize = 4;
/// Up to where generated kernels should win clearly.
const SMALL: u64 = 64 << 10;
/// How much of the interpreting kernel's time they may take there.
const PART: f64 = 1.0 / 1.3;
const SIZES: [u64; 7] = [4 << 10, 1 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20];

/// Algorithms, the blocks of each rank, and the most bytes that they are for.
const ALGORITHMS: [(Algorithm, usize, u64); 5] = [
    (Algorithm::AllReduceTwoShotPackets, 1, 1 << 20),
    (Algorithm::AllReduceOneShotPackets, 1, 64 << 10),
    (Algorithm::AllReduceZeroCopy, 16, u64::MAX),
    (Algorithm::AllReduceRing, 16, u64::MAX),
    (Algorithm::AllGatherZeroCopy, 16, u64::MAX),
];

/// Measures.
pub fn lines(machine: &Machine) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (algorithm, blocks, most) in machine.some(&ALGORITHMS) {
        for bytes in machine.some(&SIZES).into_iter().filter(|&bytes| bytes <= most) {
            let what = format!("{}, {}", algorithm.name(), size(bytes as usize));
            lines.push(Line::new(what, None, line(machine, algorithm, blocks, bytes)));
        }
    }
    Ok(lines)
}

fn line(machine: &Machine, algorithm: Algorithm, blocks: usize, bytes: u64) -> Result<Said> {
    let plan = plan(algorithm, RANKS, blocks)?;
    let forms = [("generated", KernelForm::Generated), ("interpreted", KernelForm::Interpreted)];
    let subjects = forms.map(|(name, form)| match World::new(machine, &plan, bytes, form, None) {
        Ok(world) => Subject::whole(name, move || world.each().and_then(|()| world.finish())),
        Err(why) => Subject::missing(name, why),
    });
    let small = bytes <= SMALL;
    let effort = if small { machine.often } else { machine.seldom };
    let measured = in_turn(subjects.into(), effort);
    let goals = vec![Goal::Ratio { of: 0, over: 1, most: if small { PART } else { 1.0 } }];
    Ok((measured, goals))
}
