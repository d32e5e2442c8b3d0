//! `run` and `bench`: from options to a job.

use super::counts::{Blocks, Pattern, Rule};
use super::job::{Item, Job, Settings};
use super::launch::{Mode, launch};
use super::launched::Started;
use super::progress::{Pace, Progress};
use super::report::{Report, Start};
use super::shape::Shape;
use super::{BenchArgs, BuiltIn, CliError, MeasureArgs, RunArgs, launched, plans, ranks};
use antiphon::ReduceOp;
use antiphon::executor::selection::{Question, Spread};
use antiphon::plan::model::{Collective, Plan};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs a plan file.
pub fn run(args: &RunArgs) -> Result<ExitCode, CliError> {
    start(&args.measure, args.ranks, |_| plan_file(args))
}

/// Runs the built-in algorithms for a collective, choosing one for each size.
pub fn bench(args: &BenchArgs) -> Result<ExitCode, CliError> {
    start(&args.measure, args.ranks, |launched| built_in(args, launched))
}

/// Runs a job, here or as one rank of many. `plan` gets what is known of ranks that a launcher has started.
fn start(
    args: &MeasureArgs,
    ranks: Option<u32>,
    plan: impl FnOnce(Option<&Started>) -> Result<Job, CliError>,
) -> Result<ExitCode, CliError> {
    match launched::find(args, ranks)? {
        Some(found) => launched::run(&found, args, |started| plan(Some(started))),
        None => measure(plan(None)?, args),
    }
}

/// The job of a plan file.
fn plan_file(args: &RunArgs) -> Result<Job, CliError> {
    let plan = plans::load(&args.plan)?.plan;
    let faults = plans::faults(&plan);
    if !faults.is_empty() {
        return Err(CliError::InvalidPlan { name: plan.name, faults });
    }
    let ranks = plan.gpus.len() as u32;
    if let Some(asked) = args.ranks
        && asked != ranks
    {
        return Err(CliError::Usage(format!(
            "cannot run plan `{}` over {asked} ranks: it is made for {ranks}; leave --ranks out",
            plan.name
        )));
    }
    let sizes = args.measure.sweep.sizes()?;
    let items = sizes.into_iter().map(|size| (0, size)).collect();
    job(vec![plan], items, &args.measure)
}

/// The job of a collective's built-in algorithms.
fn built_in(args: &BenchArgs, launched: Option<&Started>) -> Result<Job, CliError> {
    const RANKS: u32 = 4;
    let spread = match launched {
        Some(&Started { ref nodes, crowded, devices }) => match args.measure.nodes {
            Some(count) => {
                let (ranks, nodes) = (nodes.len() as u32, count);
                Spread { ranks, nodes, crowded, devices }
            }
            None => Spread { devices, ..Spread::over(nodes, crowded) },
        },
        None => {
            let (ranks, nodes) = (args.ranks.unwrap_or(RANKS), args.measure.nodes.unwrap_or(1));
            let devices = ranks::devices_of(args.measure.device, ranks, nodes)?;
            Spread { devices, ..Spread::here(ranks, nodes) }
        }
    };
    let collective = args.collective.collective();
    let mut plans: Vec<Plan> = Vec::new();
    let mut items = Vec::new();
    for size in args.measure.sweep.sizes()? {
        let dtype = args.measure.dtype;
        let element = dtype.size() as u64;
        let bytes = Shape::message_of_call(&collective, spread.ranks, size, element);
        let question = Question::new(&collective, spread, bytes, dtype);
        let op = question.op.map(|sum| args.measure.op.unwrap_or(sum));
        let in_place = args.measure.in_place;
        let chosen = plans::built_in(&Question { op, in_place, ..question })?;
        if chosen.collective != collective {
            return Err(CliError::Usage(format!(
                "cannot bench {collective} of {size} bytes: saw `{}` chosen, a plan of {}, allowed one of {collective}; \
                 `antiphon tune {collective}` measures it, and `antiphon run` a plan of your own",
                chosen.name, chosen.collective
            )));
        }
        let position = plans.iter().position(|plan| *plan == chosen).unwrap_or(plans.len());
        if position == plans.len() {
            plans.push(chosen);
        }
        items.push((position, size));
    }
    job(plans, items, &args.measure)
}

impl BuiltIn {
    /// The collective.
    pub(super) fn collective(self) -> Collective {
        match self {
            BuiltIn::AllReduce => Collective::AllReduce,
            BuiltIn::AllGather => Collective::AllGather,
            BuiltIn::ReduceScatter => Collective::ReduceScatter,
            BuiltIn::AllToAll => Collective::AllToAll,
            BuiltIn::AllToAllV => Collective::AllToAllV,
            BuiltIn::AllGatherV => Collective::AllGatherV,
            BuiltIn::Broadcast => Collective::Broadcast,
            BuiltIn::Reduce => Collective::Reduce,
            BuiltIn::Gather => Collective::Gather,
            BuiltIn::Scatter => Collective::Scatter,
            BuiltIn::SendRecv => Collective::SendRecv,
        }
    }
}

/// Runs a job by processes or threads of this program.
fn measure(job: Job, args: &MeasureArgs) -> Result<ExitCode, CliError> {
    let mode = if args.threads { Mode::Threads } else { Mode::Processes };
    let start = Start { mode: mode.name(), launcher: None, nodes: job.settings.nodes as usize };
    let mut report = Report::begin(&job, start, args.json)?;
    let progress = Progress::new(job.settings.items.len() as u64, Pace::Uneven);
    let pids = launch(job, mode, &progress, |finished| report.take(finished, &progress))?;
    drop(progress);
    report.end(&pids, &BTreeMap::new())
}

/// Turns options into a job.
fn job(plans: Vec<Plan>, sizes: Vec<(usize, u64)>, args: &MeasureArgs) -> Result<Job, CliError> {
    let Some(first) = plans.first() else {
        return Err(CliError::Usage("cannot run: there is no plan".into()));
    };
    let element = args.dtype.size() as u64;
    // Different in every run; within a run they are the same everywhere.
    let seed =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
    let rule = counts(first, args, seed)?;
    let item = |(plan, size): (usize, u64)| {
        let Some(rule) = &rule else {
            let shape = Shape::new(&plans[plan], size, element);
            return Ok(Item { plan, shape, blocks: None, cell: 0 });
        };
        let blocks = Blocks::new(&plans[plan], rule, size, element)?;
        Ok(Item { plan, shape: blocks.widest(element), blocks: Some(blocks), cell: 0 })
    };
    let items = sizes.into_iter().map(item).collect::<Result<Vec<Item>, CliError>>()?;
    if !first.gpus.len().is_multiple_of(args.nodes.unwrap_or(1) as usize) {
        return Err(CliError::Usage(format!(
            "cannot spread {0} ranks over {1} nodes: each must have equally many; choose --nodes that divides {0}",
            first.gpus.len(),
            args.nodes.unwrap_or(1)
        )));
    }
    let may_share = items.iter().all(|item| item.in_place(first, 0, element).is_some());
    if args.in_place && !may_share && first.collective == Collective::AllGatherV {
        return Err(CliError::Usage(format!(
            "cannot run plan `{}` in place: it is made for an input and an output of their own; leave --in-place out",
            first.name
        )));
    }
    if args.in_place && !may_share {
        return Err(CliError::Usage(format!(
            "cannot run plan `{}` in place: a `{}` plan has no rule where input and output lie in one buffer; \
             leave --in-place out",
            first.name, first.collective
        )));
    }
    let op = args.op.filter(|_| first.reduces());
    if op == Some(ReduceOp::Avg) && !first.collective.may_average() {
        return Err(CliError::Usage(format!(
            "cannot average in plan `{}`: a `{}` plan does not say where a reduction ends; use sum",
            first.name, first.collective
        )));
    }
    let options = args.options()?;
    let settings = Settings {
        world: first.gpus.len() as u32,
        nodes: args.nodes.unwrap_or(1),
        in_place: may_share && (args.in_place || first.in_place),
        items,
        dtype: args.dtype,
        op,
        reduces: if first.reduces() { op.or(first.reduction()) } else { None },
        iters: args.iters,
        warmup: args.warmup,
        check: args.check == 1,
        rounds: None,
        timeout: options.timeout,
        verify: options.verification,
        device: args.device,
        block_threads: options.block_threads,
        kernels: options.kernels,
        wire: options.wire,
        seed,
        counts: rule.map(|rule| rule.to_string()),
    };
    Ok(Job { settings, plans })
}

/// How the lengths of runtime blocks are chosen; none for plans without runtime sizes.
fn counts(plan: &Plan, args: &MeasureArgs, seed: u64) -> Result<Option<Rule>, CliError> {
    if !plan.runtime_sizes {
        return match args.counts {
            None => Ok(None),
            Some(_) => Err(CliError::Usage(format!(
                "cannot run plan `{}` with --counts: its chunks are as large as the message makes them; use --size",
                plan.name
            ))),
        };
    }
    let rule = args.counts.as_ref().unwrap_or(&Pattern::Uneven).rule(seed % 1_000_000)?;
    if matches!(rule, Rule::Given(_)) && args.sweep.is_given() {
        return Err(CliError::Usage(format!(
            "cannot run plan `{}` with numbers in --counts and a size too: the numbers say how large everything is; leave \
             one out",
            plan.name
        )));
    }
    Ok(Some(rule))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::plans::testing::plan;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn settings(plan: Plan, options: &str) -> Result<Settings, String> {
        let line = format!("antiphon run p.json {options}");
        let Command::Run(args) = Cli::try_parse_from(line.split_whitespace()).unwrap().command
        else {
            panic!("not a run")
        };
        let sizes = args.measure.sweep.sizes().unwrap().into_iter().map(|size| (0, size)).collect();
        job(vec![plan], sizes, &args.measure).map(|job| job.settings).map_err(|e| e.to_string())
    }

    #[test]
    fn the_plan_says_whether_to_run_in_place_unless_the_user_does() {
        let mut allreduce = plan(Collective::AllReduce, 2, (2, 2));
        assert!(!settings(allreduce.clone(), "").unwrap().in_place);
        assert!(settings(allreduce.clone(), "--in-place").unwrap().in_place);
        allreduce.in_place = true;
        assert!(settings(allreduce, "").unwrap().in_place);
        let mut test = plan(Collective::Test, 2, (1, 1));
        let message = settings(test.clone(), "--in-place").unwrap_err();
        assert!(message.contains("`test`") && message.contains("leave --in-place out"));
        test.in_place = true;
        assert!(!settings(test, "").unwrap().in_place);
    }

    #[test]
    fn a_plan_that_moves_data_has_no_reduction() {
        let settings = settings(plan(Collective::AllGather, 2, (1, 2)), "--op max").unwrap();
        assert_eq!((settings.op, settings.reduces), (None, None));
    }
}
