//! How long it takes until a plan's kernel is there: compiled, and from the cache.

use super::machine::{Machine, error};
use super::page::{Goal, Line, Said};
use super::times::{Subject, in_turn};
use crate::Result;
use crate::gpu_compile::times::random;
use antiphon::DataType;
use antiphon::executor::hal::{Backend, KernelCode, KernelSource};
use antiphon::plan::program::Layout;
use antiphon_codegen::{ENTRY, Target, Variant, generate};
use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the numbers are.
pub const ABOUT: &str = "A program of random steps in 32 blocks, which nothing of it repeats, as text: compiled and loaded (first), then loaded \
     once more by what the cache on disk has (again).";

/// The most that each may take, up to 800 steps.
const MOST: [Duration; 2] = [Duration::from_millis(1500), Duration::from_millis(10)];

/// Measures.
pub fn lines(machine: &Machine) -> Result<Vec<Line>> {
    let steps = if machine.quick { vec![32] } else { vec![96, 384, 768] };
    let line = |steps| Line::new(format!("{steps} steps"), None, said(machine, steps));
    Ok(steps.into_iter().map(line).collect())
}

fn said(machine: &Machine, steps: usize) -> Result<Said> {
    let target = match machine.device.backend() {
        Backend::Rocm => Target::Hip,
        _ => Target::Cuda,
    };
    let layout = Layout::new(&random(steps).map_err(error)?).map_err(error)?;
    let variant = Variant { target, dtype: DataType::F16, op: None };
    let text = generate(&layout, 0, variant).map_err(error)?.text;
    // Another text each time, so that no cache has it, not even one of an earlier run.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let round = Cell::new(0u32);
    let load = |number: u32| {
        let text = format!("{text}\n// {now} {number}\n");
        let code = KernelCode::Source(&text);
        let loaded = machine.device.load(KernelSource { entry: ENTRY, code, options: &[] });
        loaded.map(drop).map_err(error)
    };
    let subjects = vec![
        Subject::whole("first", || {
            round.set(round.get() + 1);
            load(round.get())
        }),
        Subject::whole("again", || load(round.get())),
    ];
    let measured = in_turn(subjects, machine.rarely);
    let goals = [0, 1].map(|of| Goal::Time { of, most: MOST[of] }).to_vec();
    Ok((measured, goals))
}
