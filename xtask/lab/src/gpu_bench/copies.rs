//! How near large plans that only copy come to the card's own copies.

use super::machine::{Machine, error};
use super::page::{Goal, Line, Said};
use super::times::{Subject, in_turn};
use super::world::{World, plan};
use crate::Result;
use crate::bench::report::size;
use antiphon::executor::KernelForm;
use antiphon::plan::algorithms::Algorithm;

/// What the numbers are.
pub const ABOUT: &str = "One copy of the card from its memory to its memory, beside a plan whose ranks write as many bytes in all: launch and \
     completion. All ranks are one kernel. B blocks are those of all ranks together. An alltoall reads as many bytes as it writes, \
     as the copy does, and has a goal; an allgather reads each input once for every rank, so that caches serve most reads.";

/// Part of the bandwidth of copies that a plan should reach.
const PART: f64 = 0.9;
/// Bytes that are written.
const SIZES: [u64; 3] = [256 << 20, 64 << 20, 1 << 30];
/// The bytes of a quick run.
const QUICK: u64 = 64 << 10;
/// Blocks of all ranks together, beside as many as the card has multiprocessors.
const BLOCKS: [usize; 3] = [64, 16, 128];

/// Measures.
pub fn lines(machine: &Machine) -> Result<Vec<Line>> {
    let (sizes, blocks) = match machine.quick {
        true => (vec![QUICK], vec![2]),
        false => {
            let cores = machine.device.caps().cores as usize;
            (SIZES.to_vec(), BLOCKS.into_iter().chain([cores]).collect())
        }
    };
    let mut lines = Vec::new();
    for algorithm in [Algorithm::AllGatherZeroCopy, Algorithm::AllToAllZeroCopy] {
        for ranks in machine.some(&[2, 4, 8]) {
            for &bytes in &sizes {
                let what = format!("{}, {ranks} ranks, {}", algorithm.name(), size(bytes as usize));
                let said = line(machine, (algorithm, ranks), bytes, &blocks);
                lines.push(Line::new(what, Some(bytes), said));
            }
        }
    }
    Ok(lines)
}

fn line(
    machine: &Machine,
    (algorithm, ranks): (Algorithm, usize),
    bytes: u64,
    blocks: &[usize],
) -> Result<Said> {
    let stream = machine.stream()?;
    let (from, to) = (machine.allocate(bytes)?, machine.allocate(bytes)?);
    let (source, destination) = (from.address().cast_const(), to.address());
    let mut subjects = vec![Subject::whole("copy", || {
        // SAFETY: both ranges have so many bytes, are apart, and are nobody else's; the copy is waited for.
        let copied = unsafe { stream.copy(destination, source, bytes) };
        copied.and_then(|_| stream.synchronize()).map_err(error)
    })];
    for &blocks in blocks {
        let name = format!("{blocks} blocks");
        let each = (blocks / ranks).max(1);
        let world = plan(algorithm, ranks, each).and_then(|plan| {
            World::new(machine, &plan, bytes / ranks as u64, KernelForm::Generated, Some(&stream))
        });
        subjects.push(match world {
            Ok(world) => {
                Subject::whole(name, move || world.together().and_then(|()| world.finish()))
            }
            Err(why) => Subject::missing(name, why),
        });
    }
    let goals = match algorithm {
        Algorithm::AllToAllZeroCopy => vec![Goal::Best { over: 0, most: 1.0 / PART }],
        _ => Vec::new(),
    };
    Ok((in_turn(subjects, machine.seldom), goals))
}
