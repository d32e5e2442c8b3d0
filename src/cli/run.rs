//! `run` and `bench`: from options to a job, and from what the ranks measured to a table.

use super::collect::Finished;
use super::error::print_line;
use super::job::{Item, Job, Settings};
use super::launch::{Mode, launch};
use super::progress::Progress;
use super::shape::Shape;
use super::table::{Heading, Row, header};
use super::{BenchArgs, BuiltIn, CliError, MeasureArgs, RunArgs, plans, size};
use antiphon::ReduceOp;
use antiphon::plan::model::{Collective, Plan};
use serde::Serialize;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs a plan file.
pub fn run(args: &RunArgs) -> Result<ExitCode, CliError> {
    let plan = plans::load(&args.plan)?.plan;
    let faults = plans::faults(&plan);
    if !faults.is_empty() {
        return Err(CliError::InvalidPlan { name: plan.name, faults });
    }
    if plan.runtime_sizes {
        return Err(CliError::Usage(format!(
            "cannot run plan `{}` by sizes: it has runtime sizes, and every call says its own counts; call it from a \
             program",
            plan.name
        )));
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
    let sizes = size::sweep(&args.measure)?;
    let items = sizes.into_iter().map(|size| (0, size)).collect();
    measure(vec![plan], items, &args.measure)
}

/// Runs the built-in algorithms for a collective, choosing one for each size.
pub fn bench(args: &BenchArgs) -> Result<ExitCode, CliError> {
    let collective = args.collective.collective();
    let mut plans: Vec<Plan> = Vec::new();
    let mut items = Vec::new();
    for size in size::sweep(&args.measure)? {
        let chosen = plans::built_in(&collective, args.ranks, size, args.measure.in_place)?;
        let position = plans.iter().position(|plan| *plan == chosen).unwrap_or(plans.len());
        if position == plans.len() {
            plans.push(chosen);
        }
        items.push((position, size));
    }
    measure(plans, items, &args.measure)
}

impl BuiltIn {
    fn collective(self) -> Collective {
        match self {
            BuiltIn::AllReduce => Collective::AllReduce,
            BuiltIn::AllGather => Collective::AllGather,
            BuiltIn::ReduceScatter => Collective::ReduceScatter,
            BuiltIn::AllToAll => Collective::AllToAll,
            BuiltIn::Broadcast => Collective::Broadcast,
            BuiltIn::Reduce => Collective::Reduce,
            BuiltIn::SendRecv => Collective::SendRecv,
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    collective: String,
    ranks: u32,
    in_place: bool,
    mode: &'a str,
    pids: &'a [u32],
    rows: &'a [Row],
}

/// Measures the items, each a position in the plans and a size in bytes. The plans compute the same collective.
fn measure(
    plans: Vec<Plan>,
    items: Vec<(usize, u64)>,
    args: &MeasureArgs,
) -> Result<ExitCode, CliError> {
    let job = job(plans, items, args)?;
    let Some(first) = job.plans.first() else {
        return Err(CliError::Usage("cannot run: there is no plan".into()));
    };
    let heading = Heading {
        collective: first.collective.clone(),
        ranks: job.settings.world,
        dtype: job.settings.dtype,
        op: reported_op(first, &job.settings),
    };
    let mode = if args.threads { Mode::Threads } else { Mode::Processes };
    let in_place = job.settings.in_place;
    if !args.json {
        let place = if in_place { "in place" } else { "out of place" };
        let names: Vec<_> = job.plans.iter().map(|plan| plan.name.as_str()).collect();
        print_line(&format!(
            "# antiphon {}: {} ({}), {} ranks as {}, {place}\n{}",
            env!("CARGO_PKG_VERSION"),
            heading.collective,
            names.join(", "),
            heading.ranks,
            mode.name(),
            header(),
        ))?;
    }
    let names: Vec<String> = job.plans.iter().map(|plan| plan.name.clone()).collect();
    let items = job.settings.items.clone();
    let progress = Progress::new(items.len() as u64);
    let mut rows = Vec::with_capacity(items.len());
    let mut wrong = 0;
    let checked = job.settings.check;
    let take = |finished: Finished| {
        let Finished { item, mut times, wrong: mismatches, first, chance } = finished;
        let Item { plan, shape } = &items[item];
        let row = Row::new(&heading, shape, &mut times, mismatches, &names[*plan]);
        wrong += row.wrong.unwrap_or(0);
        let printed = if args.json { Ok(()) } else { progress.aside(|| print_line(&row.line())) };
        if chance > 0 {
            progress.aside(|| {
                eprintln!(
                    "not compared at {} bytes: {chance} elements that the plan leaves to chance, because nothing \
                     orders the ranks that read and write them",
                    row.bytes
                );
            });
        }
        if let Some(first) = first {
            progress.aside(|| eprintln!("wrong result at {} bytes: {first}", row.bytes));
        }
        rows.push(row);
        printed
    };
    let pids = launch(job, mode, &progress, take)?;
    drop(progress);
    if args.json {
        let document = Document {
            collective: heading.collective.to_string(),
            ranks: heading.ranks,
            in_place,
            mode: mode.name(),
            pids: &pids,
            rows: &rows,
        };
        let text = serde_json::to_string(&document)
            .map_err(|error| CliError::Executor(format!("cannot write JSON: {error}")))?;
        print_line(&text)?;
    } else if checked {
        let verdict = if wrong == 0 { "OK" } else { "FAILED" };
        print_line(&format!("# wrong elements: {wrong} {verdict}"))?;
    } else {
        print_line("# results were not checked")?;
    }
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The reduction to show: none for plans that only move data.
fn reported_op(plan: &Plan, settings: &Settings) -> Option<ReduceOp> {
    settings.reduces.filter(|_| plans::reduces(plan))
}

/// Turns options into a job.
fn job(plans: Vec<Plan>, sizes: Vec<(usize, u64)>, args: &MeasureArgs) -> Result<Job, CliError> {
    let Some(first) = plans.first() else {
        return Err(CliError::Usage("cannot run: there is no plan".into()));
    };
    let element = args.dtype.size() as u64;
    let items: Vec<Item> = sizes
        .into_iter()
        .map(|(plan, size)| Item { plan, shape: Shape::new(&plans[plan], size, element) })
        .collect();
    let may_share = items.iter().all(|item| item.shape.in_place(&first.collective, 0).is_some());
    if args.in_place && !may_share {
        return Err(CliError::Usage(format!(
            "cannot run plan `{}` in place: a `{}` plan has no rule where input and output lie in one buffer; \
             leave --in-place out",
            first.name, first.collective
        )));
    }
    let op = args.op.filter(|_| plans::reduces(first));
    let averageable =
        !matches!(first.collective, Collective::SendRecv | Collective::Test | Collective::Other(_));
    if op == Some(ReduceOp::Avg) && !averageable {
        return Err(CliError::Usage(format!(
            "cannot average in plan `{}`: a `{}` plan does not say where a reduction ends; use sum",
            first.name, first.collective
        )));
    }
    let settings = Settings {
        world: first.gpus.len() as u32,
        in_place: may_share && (args.in_place || first.in_place),
        items,
        dtype: args.dtype,
        op,
        reduces: if plans::reduces(first) { op.or(plans::reduction(first)) } else { None },
        iters: args.iters,
        warmup: args.warmup,
        check: args.check == 1,
        timeout: args.timeout.0,
        verify: !args.no_verify,
        // Different inputs in every run; within a run they are the same everywhere.
        seed: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |since| since.as_nanos() as u64),
    };
    Ok(Job { settings, plans })
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
        let sizes = size::sweep(&args.measure).unwrap().into_iter().map(|size| (0, size)).collect();
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
