//! What each rank of a tuning does: the candidates for a call take turns, so that whatever else the machine does meets all
//! of them alike; and those that are close do again, until it is clear which is the fastest.

use super::contest::Contest;
use crate::cli::CliError;
use crate::cli::job::{Event, Item, Job};
use crate::cli::ranks::{Loaded, Rank, View};
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

    /// Whether there is time to let close candidates take turns again, after so much of it: they may go on until all
    /// passes have taken twice the time of one.
    fn again(&self, spent: Duration) -> bool {
        spent < self.budget * 2
    }

    /// The rounds that there is time for, by what one took.
    fn fit(&self, round: Duration) -> u32 {
        let fit = self.budget.as_nanos() / round.as_nanos().max(1);
        u32::try_from(fit).unwrap_or(u32::MAX).clamp(self.least, self.most)
    }
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
    let element = settings.dtype.size() as u64;
    let views: Vec<View> = items.iter().map(|item| rank.view(item, element)).collect();
    // A plan with runtime sizes takes no more of a buffer than there is for this rank; there is room for all in the others'.
    let widest = items.iter().zip(&views).max_by_key(|(_, view)| view.bytes());
    let Some((widest, _)) = widest else { return Ok(()) };
    let placement = match settings.in_place {
        true => widest.in_place(&job.plans[widest.plan], rank.number(), element),
        false => None,
    };
    if rank.number() == 0 {
        report(Event::Phase { item: position, phase: "timing".to_owned() });
    }
    let mut times = vec![Vec::new(); plans.len()];
    let mut who: Vec<usize> = (0..plans.len()).collect();
    let (mut contest, mut spent) = (Contest::default(), Duration::ZERO);
    while !who.is_empty() {
        // Of zeros, which stay zeros however often they are summed in place. New ones, since their places matter, too.
        let buffers = rank.buffers(widest, placement, element)?;
        let mut run = |turn: usize| -> Result<u64, CliError> {
            rank.barrier()?;
            let start = Instant::now();
            rank.run_over(&plans[turn], &buffers, &views[turn], settings.dtype, settings.op)?;
            Ok(start.elapsed().as_nanos() as u64)
        };
        let (pass, took) = pass(rank, rounds, &who, &mut run)?;
        // The buffers go: nobody may still be reading them.
        rank.barrier()?;
        let medians: Vec<u64> = pass.iter().map(|times| median(times)).collect();
        let medians = slowest(rank, &medians)?;
        contest.record(plans.len(), &who, &medians);
        for (&turn, pass) in who.iter().zip(pass) {
            times[turn].extend(pass);
        }
        spent += took;
        who = if rounds.again(spent) { contest.again() } else { Vec::new() };
    }
    for (item, times) in (position..).zip(times) {
        report(Event::Measured { item, times, wrong: None, first: None, chance: 0 });
    }
    Ok(())
}

/// Lets candidates take turns: the times of each, and what all took on the slowest rank.
fn pass(
    rank: &Rank,
    rounds: Rounds,
    who: &[usize],
    run: &mut impl FnMut(usize) -> Result<u64, CliError>,
) -> Result<(Vec<Vec<u64>>, Duration), CliError> {
    let begin = Instant::now();
    let mut times = vec![Vec::new(); who.len()];
    let mut round = |number: u32, times: &mut [Vec<u64>]| -> Result<(), CliError> {
        for turn in order(who.len(), number as usize) {
            times[turn].push(run(who[turn])?);
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
    let took = slowest(rank, &[took.as_nanos() as u64])?;
    let fit = rounds.fit(Duration::from_nanos(took.first().copied().unwrap_or(0)));
    times.iter_mut().for_each(Vec::clear);
    for number in 0..fit {
        round(number, &mut times)?;
    }
    let all = slowest(rank, &[begin.elapsed().as_nanos() as u64])?;
    Ok((times, Duration::from_nanos(all.first().copied().unwrap_or(0))))
}

/// The order of so many in a round. What ran before matters: each is equally often first, second, and so on, and everyone's
/// successor, since the orders are a Williams design: to and fro from the middle, one further in each round, and back again.
fn order(count: usize, round: usize) -> impl Iterator<Item = usize> {
    let back = round / count.max(1) % 2 == 1;
    (0..count).map(move |at| {
        let at = if back { count - 1 - at } else { at };
        let start = if at % 2 == 1 { at.div_ceil(2) } else { count - at / 2 };
        (start + round) % count
    })
}

/// Of each number the largest that any rank has.
fn slowest(rank: &Rank, own: &[u64]) -> Result<Vec<u64>, CliError> {
    let bytes: Vec<u8> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut most = vec![0; own.len()];
    for bytes in rank.exchange(&bytes)? {
        for (most, number) in most.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *most = u64::from_le_bytes(*number).max(*most);
        }
    }
    Ok(most)
}

fn median(times: &[u64]) -> u64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
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
        let again = |millis| rounds.again(Duration::from_millis(millis));
        assert_eq!((again(0), again(199), again(200)), (true, true, false));
    }
    #[test]
    fn everyone_is_everyones_successor_equally_often_and_in_each_place() {
        for count in 0..=7 {
            let mut follows = vec![vec![0; count]; count];
            let mut places = follows.clone();
            for round in 0..2 * count {
                let all: Vec<usize> = order(count, round).collect();
                all.iter().enumerate().for_each(|(place, &one)| places[one][place] += 1);
                all.windows(2).for_each(|pair| follows[pair[0]][pair[1]] += 1);
            }
            assert!(places.iter().flatten().all(|&times| times == 2), "{count}: {places:?}");
            let others = |one: usize| (0..count).map(move |other| if one == other { 0 } else { 2 });
            assert!((0..count).all(|one| others(one).eq(follows[one].iter().copied())), "{count}");
        }
    }
}
