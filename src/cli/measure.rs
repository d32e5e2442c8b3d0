//! What each rank of a run does: checked launches, warm-up, timed iterations, checked launches again.

use super::CliError;
use super::job::{Event, Item, Job};
use super::ranks::{self, Buffers, Loaded, Rank};
use super::reference;
use super::tune::rounds;
use antiphon::oracle::Verdict;
use std::time::Instant;

/// Checked launches before the timed ones, and again after: two, so that both halves of alternating scratch are
/// seen.
const CHECKED_LAUNCHES: u64 = 2;

/// Runs a job as one rank and reports. On an error the other ranks are told to stop.
pub fn run(rank: &Rank, job: &Job, report: &mut dyn FnMut(Event)) {
    report(Event::Ready);
    match measure_all(rank, job, report) {
        Ok(()) => report(Event::Done),
        Err(error) => {
            let message = error.to_string();
            // Reported first: the abort makes the others fail too, and the cause should be heard before them.
            report(Event::Failed { message: message.clone() });
            rank.abort(&message);
        }
    }
}

fn measure_all(rank: &Rank, job: &Job, report: &mut dyn FnMut(Event)) -> Result<(), CliError> {
    let mut loaded: Vec<Option<Loaded>> = vec![None; job.plans.len()];
    let items = &job.settings.items;
    let Some(rounds) = job.settings.rounds else {
        for (position, item) in items.iter().enumerate() {
            let plan = load(rank, job, (position, item), &mut loaded, report)?;
            measure(rank, job, (position, item), &plan, report)?;
        }
        return Ok(());
    };
    let mut position = 0;
    for cell in items.chunk_by(|one, other| one.cell == other.cell) {
        let plans = (position..).zip(cell);
        let plans = plans.map(|item| load(rank, job, item, &mut loaded, report));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        rounds::measure(rank, job, (position, cell), &plans, rounds, report)?;
        position += cell.len();
    }
    Ok(())
}

/// The plan of an item, loaded once.
fn load(
    rank: &Rank,
    job: &Job,
    (position, item): (usize, &Item),
    loaded: &mut [Option<Loaded>],
    report: &mut dyn FnMut(Event),
) -> Result<Loaded, CliError> {
    let slot = &mut loaded[item.plan];
    if let Some(plan) = slot {
        return Ok(plan.clone());
    }
    let plan = &job.plans[item.plan];
    let first = rank.number() == 0;
    if first && job.settings.verify {
        report(Event::Phase { item: position, phase: "verifying".to_owned() });
    }
    let loaded = slot.insert(rank.load(plan)?).clone();
    if let Some(why) = ranks::doubt(&loaded, job.settings.in_place).filter(|_| first) {
        let plan = plan.name.clone();
        report(Event::NotProven { plan, why });
    }
    Ok(loaded)
}

fn measure(
    rank: &Rank,
    job: &Job,
    (position, item): (usize, &Item),
    plan: &Loaded,
    report: &mut dyn FnMut(Event),
) -> Result<(), CliError> {
    let settings = &job.settings;
    let mut say = |phase: &str| {
        if rank.number() == 0 {
            report(Event::Phase { item: position, phase: phase.to_owned() });
        }
    };
    let element = settings.dtype.size() as u64;
    let placement = match settings.in_place {
        true => item.in_place(&job.plans[item.plan], rank.number(), element),
        false => None,
    };
    let mut buffers = rank.buffers(item, placement, element)?;
    let mut verdict = settings.check.then(Verdict::default);
    let mut launch = 0;
    if let Some(verdict) = &mut verdict {
        say("checking");
        for _ in 0..CHECKED_LAUNCHES {
            verdict.merge(checked(rank, job, item, plan, launch, &mut buffers)?);
            launch += 1;
        }
    }
    // Peers may still read this rank's input. Zeros stay zeros however often they are summed in place.
    rank.barrier()?;
    buffers.fill_input(|_, piece| piece.fill(0))?;
    say("warming up");
    for _ in 0..settings.warmup {
        rank.barrier()?;
        rank.run(plan, &buffers, settings.dtype, settings.op)?;
    }
    say("timing");
    let mut times = Vec::with_capacity(settings.iters as usize);
    for _ in 0..settings.iters {
        rank.barrier()?;
        let start = Instant::now();
        rank.run(plan, &buffers, settings.dtype, settings.op)?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    if let Some(verdict) = &mut verdict {
        say("checking again");
        for _ in 0..CHECKED_LAUNCHES {
            verdict.merge(checked(rank, job, item, plan, launch, &mut buffers)?);
            launch += 1;
        }
    }
    // The buffers go with this function: nobody may still be reading them.
    rank.barrier()?;
    let (wrong, first, chance) = match verdict {
        Some(Verdict { wrong, first, chance }) => {
            (Some(wrong), first.map(|first| first.to_string()), chance)
        }
        None => (None, None, 0),
    };
    report(Event::Measured { item: position, times, wrong, first, chance });
    Ok(())
}

/// One launch with fresh inputs, and the comparison of what it left.
fn checked(
    rank: &Rank,
    job: &Job,
    item: &Item,
    plan: &Loaded,
    launch: u64,
    buffers: &mut Buffers,
) -> Result<Verdict, CliError> {
    let dtype = job.settings.dtype;
    let stream = reference::inputs(job).stream(rank.number(), launch);
    // Peers may still be reading what the last launch left here.
    rank.barrier()?;
    // First the output: in place there is nothing to poison, and the input must survive.
    buffers.poison_output(reference::POISON)?;
    buffers.fill_input(|offset, piece| stream.fill(dtype, offset / dtype.size() as u64, piece))?;
    rank.barrier()?;
    rank.run(plan, buffers, dtype, job.settings.op)?;
    reference::check(rank, job, item, launch, buffers)
}
