//! What each rank of a tuning does: the candidates for a call take turns, so that whatever else the machine does meets all
//! of them alike.

use crate::cli::CliError;
use crate::cli::job::{Event, Item, Job};
use crate::cli::ranks::{Loaded, Rank};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// How often candidates take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rounds {
    /// Time for all rounds of a call.
    budget: Duration,
    /// Rounds at least, however long they take.
    least: u32,
    /// Rounds at most.
    most: u32,
}

/// Rounds before the timed ones: both halves of alternating scratch are touched then.
const WARM_UP: u32 = 2;

impl Rounds {
    /// As many as this takes, but no fewer than make a median.
    pub fn within(budget: Duration) -> Self {
        Rounds { budget, least: 7, most: 1000 }
    }

    /// The rounds that there is time for, by what one took.
    fn fit(&self, round: Duration) -> u32 {
        let fit = self.budget.as_nanos() / round.as_nanos().max(1);
        u32::try_from(fit).unwrap_or(u32::MAX).clamp(self.least, self.most)
    }
}

/// Whether two items measure the same call: so do consecutive ones whose buffers are alike.
pub fn alike(job: &Job, one: &Item, other: &Item) -> bool {
    let collective = |item: &Item| &job.plans[item.plan].collective;
    one.shape == other.shape && one.blocks == other.blocks && collective(one) == collective(other)
}

/// Measures consecutive items, the first of which is `position`, that measure the same call with these plans.
pub fn measure(
    rank: &Rank,
    job: &Job,
    (position, items): (usize, &[Item]),
    plans: &[Loaded],
    rounds: Rounds,
    report: &mut dyn FnMut(Event),
) -> Result<(), CliError> {
    let settings = &job.settings;
    let Some(first) = items.first() else { return Ok(()) };
    let element = settings.dtype.size() as u64;
    let placement = match settings.in_place {
        true => first.in_place(&job.plans[first.plan], rank.number(), element),
        false => None,
    };
    if rank.number() == 0 {
        report(Event::Phase { item: position, phase: "timing".to_owned() });
    }
    // Of zeros, which stay zeros however often they are summed in place.
    let buffers = rank.buffers(first, placement, element)?;
    let mut times = vec![Vec::new(); plans.len()];
    let round = |number: u32, times: &mut [Vec<u64>]| -> Result<(), CliError> {
        for turn in 0..plans.len() {
            // Each is everyone's successor at some time.
            let turn = (turn + number as usize) % plans.len();
            rank.barrier()?;
            let start = Instant::now();
            rank.run(&plans[turn], &buffers, settings.dtype, settings.op)?;
            times[turn].push(start.elapsed().as_nanos() as u64);
        }
        Ok(())
    };
    let mut took = Duration::MAX;
    for number in 0..WARM_UP {
        let start = Instant::now();
        round(number, &mut times)?;
        took = start.elapsed();
    }
    // All ranks must make as many rounds.
    let slowest = rank.exchange(&(took.as_nanos() as u64).to_le_bytes())?;
    let slowest = slowest.iter().filter_map(|bytes| bytes.as_slice().try_into().ok());
    let slowest = slowest.map(u64::from_le_bytes).max().unwrap_or(0);
    times.iter_mut().for_each(Vec::clear);
    for number in 0..rounds.fit(Duration::from_nanos(slowest)) {
        round(number, &mut times)?;
    }
    // The buffers go with this function: nobody may still be reading them.
    rank.barrier()?;
    for (item, times) in (position..).zip(times) {
        report(Event::Measured { item, times, wrong: None, first: None, chance: 0 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_fill_their_time_within_bounds() {
        let rounds = Rounds::within(Duration::from_millis(100));
        let fit = |nanos| rounds.fit(Duration::from_nanos(nanos));
        assert_eq!(fit(1_000_000), 100);
        assert_eq!((fit(0), fit(1), fit(u64::MAX)), (1000, 1000, 7));
    }
}
