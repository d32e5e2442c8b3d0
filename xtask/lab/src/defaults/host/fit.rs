//! The fit: numbers of a topology are changed, one after the other, as long as predictions come nearer to what was measured.

use antiphon::executor::selection::table::{Setting, Table};
use antiphon::plan::algorithms::devices::sizes;
use antiphon::plan::algorithms::hosts::{Place, placed};
use antiphon::plan::algorithms::{Algorithm, Rooted, Shape};
use antiphon::plan::model::Collective;
use antiphon::plan::program::{CallSizes, Layout};
use antiphon::plan::simulate::{Topology, simulate};

use super::error;
use crate::Result;

/// How much it counts by which factor the time of the fastest is off, beside by which those are that others take longer: a choice
/// hangs on the latter.
const ABSOLUTE: f64 = 0.25;
/// What the factors by which numbers leave where they began cost, beside those by which times are off: what no time hangs on
/// stays.
const AWAY: f64 = 0.002;
/// Factors by which numbers are changed.
const FACTORS: [f64; 5] = [2.0, 1.4, 1.2, 1.1, 1.05];
/// What must be gained by changing all numbers once more by the same factor.
const GAIN: f64 = 1e-4;
/// What must be gained by a change: more than what logarithms differ by from machine to machine, so that all fit alike.
const LEAST: f64 = 1e-9;

/// A number of a topology.
pub type Number = fn(&mut Topology) -> &mut f64;

/// One call that was measured: its plans, and what each took, in seconds.
#[derive(Clone)]
pub struct Call {
    sizes: CallSizes,
    plans: Vec<(Layout, f64)>,
}

/// What was measured of ranks in a place.
pub struct Measured {
    /// The ranks.
    pub place: Place,
    /// Their calls.
    pub calls: Vec<Call>,
}

/// The calls of ranks in such a place, and of some collectives, of a table of `antiphon tune`.
pub fn calls(table: &Table, place: Place, of: &dyn Fn(&Collective) -> bool) -> Vec<Call> {
    let ranks = place.nodes * place.per_node;
    let shape = Shape { nodes: place.nodes, ..Shape::new(ranks) };
    let layout = |name: &str| {
        let own = || Rooted::ALL.into_iter().find(|one| one.name() == name);
        let plan = match name.parse::<Algorithm>() {
            Ok(one) => one.plan(shape).ok(),
            Err(_) => own().and_then(|one| one.plan(shape).ok()),
        };
        Layout::new(&plan?).ok()
    };
    let mut all = Vec::new();
    let here = |setting: &Setting| {
        let same = (setting.ranks as usize, setting.nodes as usize) == (ranks, place.nodes);
        same && of(&setting.collective)
    };
    for (Setting { collective, .. }, times) in table.iter().filter(|(setting, _)| here(setting)) {
        for (&bytes, times) in times {
            let timed = times.iter().map(|(name, time)| (layout(name), time as f64 / 1e9));
            let plans = timed.filter_map(|(layout, time)| Some((layout?, time))).collect();
            all.push(Call::new(sizes(collective, bytes, ranks), plans));
        }
    }
    all
}

impl Call {
    /// A call of such buffers.
    pub fn new(sizes: CallSizes, plans: Vec<(Layout, f64)>) -> Self {
        Call { sizes, plans }
    }

    /// How far off a prediction is: by which factors, as logarithms.
    fn off(&self, topology: &Topology) -> Result<f64> {
        let mut pairs = Vec::with_capacity(self.plans.len());
        for (layout, measured) in &self.plans {
            let timeline = simulate(layout, self.sizes, topology);
            let predicted = timeline.map_err(error)?.end;
            pairs.push((*measured, (predicted / measured).ln()));
        }
        let fastest = pairs.iter().min_by(|one, other| one.0.total_cmp(&other.0));
        let Some(&(_, fastest)) = fastest else { return Ok(0.0) };
        let others = pairs.iter().map(|(_, off)| (off - fastest).abs()).sum::<f64>();
        Ok(ABSOLUTE * fastest.abs() + others / (pairs.len() - 1).max(1) as f64)
    }
}

/// Fits these numbers.
///
/// # Errors
/// What the simulator refuses.
pub fn fit(from: &Topology, measured: &[Measured], numbers: &[Number]) -> Result<Topology> {
    let mut best = from.clone();
    let mut least = badness(&best, from, measured, numbers)?;
    for factor in FACTORS {
        loop {
            let before = least;
            for number in numbers {
                for factor in [factor, 1.0 / factor] {
                    let mut other = best.clone();
                    let value = number(&mut other);
                    *value = rounded(*value * factor);
                    let bad = badness(&other, from, measured, numbers)?;
                    if bad < least - LEAST {
                        (best, least) = (other, bad);
                        break;
                    }
                }
            }
            if before - least < GAIN {
                break;
            }
        }
    }
    Ok(best)
}

/// How far off all calls are, on average, and what the numbers' way from where they began costs.
fn badness(
    topology: &Topology,
    from: &Topology,
    measured: &[Measured],
    numbers: &[Number],
) -> Result<f64> {
    let (mut sum, mut count) = (0.0, 0);
    for Measured { place, calls } in measured {
        let placed = placed(topology, *place);
        for call in calls {
            sum += call.off(&placed)?;
            count += 1;
        }
    }
    let (mut now, mut then) = (topology.clone(), from.clone());
    let away = numbers.iter().map(|number| (*number(&mut now) / *number(&mut then)).ln().abs());
    Ok(sum / f64::from(count.max(1)) + AWAY * away.sum::<f64>())
}

/// Four digits, as numbers are measured.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::plan::algorithms::hosts::host;

    const NEAR: Place = Place { crowded: false, nodes: 1, per_node: 2 };
    const NUMBERS: [Number; 3] = [
        |t| &mut t.device.overhead_us.launch,
        |t| &mut t.device.block.copy_gbs,
        |t| &mut t.device.overhead_us.barrier,
    ];

    #[test]
    fn numbers_come_near_those_of_the_machine_that_was_measured_and_others_stay() {
        let from = host().unwrap();
        let mut real = from.clone();
        real.device.overhead_us.launch *= 3.0;
        real.device.block.copy_gbs /= 4.0;
        let there = placed(&real, NEAR);
        let call = |bytes: u64| {
            let sizes = sizes(&Collective::AllGather, bytes, 2);
            let time = |one: Algorithm| {
                let layout = Layout::new(&one.plan(Shape::new(2)).unwrap()).unwrap();
                let end = simulate(&layout, sizes, &there).unwrap().end;
                (layout, end)
            };
            let both = [Algorithm::AllGatherPackets, Algorithm::AllGatherZeroCopy];
            Call::new(sizes, both.map(time).to_vec())
        };
        let calls = [64, 4096, 1 << 16, 1 << 20].map(call).to_vec();
        let measured = [Measured { place: NEAR, calls }];
        let fitted = fit(&from, &measured, &NUMBERS).unwrap();
        let near = |one: f64, other: f64| (one / other).ln().abs() < 0.1;
        let saw = (fitted.device.overhead_us.launch, fitted.device.block.copy_gbs);
        assert!(near(saw.0, real.device.overhead_us.launch), "{saw:?}");
        assert!(near(saw.1, real.device.block.copy_gbs), "{saw:?}");
        assert_eq!(fitted.device.overhead_us.barrier, from.device.overhead_us.barrier);
        assert_eq!(fit(&from, &measured, &NUMBERS).unwrap(), fitted);
    }
}
