//! What a run prints: a heading and a row for each size, as soon as it is measured, and a verdict; or one JSON object.

use super::CliError;
use super::collect::Finished;
use super::error::print_line;
use super::job::{Item, Job};
use super::progress::Progress;
use super::table::{Heading, Row, header};
use antiphon::ReduceOp;
use antiphon::executor::hal::Backend;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// How a run's ranks were started.
pub struct Start<'a> {
    /// `processes`, `threads` or `launched`.
    pub mode: &'a str,
    /// Who did, where it was not the run itself.
    pub launcher: Option<&'a str>,
    /// The nodes they are on.
    pub nodes: usize,
}

/// The report of a run, as far as it has come.
pub struct Report<'a> {
    start: Start<'a>,
    heading: Heading,
    in_place: bool,
    counts: Option<String>,
    checked: bool,
    json: bool,
    /// The heading, until it is printed: before the first row, since a job may be refused.
    title: Option<String>,
    names: Vec<String>,
    items: Vec<Item>,
    rows: Vec<Row>,
    wrong: u64,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    collective: String,
    ranks: u32,
    in_place: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<&'a str>,
    mode: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    launcher: Option<&'a str>,
    nodes: usize,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    wires: &'a BTreeMap<String, Vec<u32>>,
    pids: &'a [u32],
    rows: &'a [Row],
}

impl<'a> Report<'a> {
    /// Begins a report.
    pub fn begin(job: &Job, start: Start<'a>, json: bool) -> Result<Self, CliError> {
        let Some(first) = job.plans.first() else {
            return Err(CliError::Usage("cannot run: there is no plan".into()));
        };
        let settings = &job.settings;
        // No reduction is shown for plans that only move data.
        let op: Option<ReduceOp> = settings.reduces.filter(|_| first.reduces());
        let heading = Heading {
            collective: first.collective.clone(),
            ranks: settings.world,
            dtype: settings.dtype,
            op,
        };
        let names: Vec<String> = job.plans.iter().map(|plan| plan.name.clone()).collect();
        let title = || {
            let place = if settings.in_place { "in place" } else { "out of place" };
            let how = match start.launcher {
                Some(launcher) => {
                    let plural = if start.nodes == 1 { "" } else { "s" };
                    format!("started by {launcher} on {} node{plural}", start.nodes)
                }
                None => format!("as {}", start.mode),
            };
            let wire =
                settings.wire.as_ref().map_or(String::new(), |wire| format!(", wire {wire}"));
            let counts =
                settings.counts.as_ref().map_or(String::new(), |rule| format!(", counts {rule}"));
            let device = match settings.device.backend {
                Backend::Host => String::new(),
                _ => format!(" on {}", settings.device),
            };
            format!(
                "# antiphon {}: {} ({}), {} ranks {how}{device}{wire}, {place}{counts}\n{}",
                env!("CARGO_PKG_VERSION"),
                heading.collective,
                names.join(", "),
                heading.ranks,
                header(),
            )
        };
        Ok(Report {
            title: (!json).then(title),
            start,
            heading,
            in_place: settings.in_place,
            counts: settings.counts.clone(),
            checked: settings.check,
            json,
            names,
            items: settings.items.clone(),
            rows: Vec::with_capacity(settings.items.len()),
            wrong: 0,
        })
    }

    /// Takes an item that all ranks have finished.
    pub fn take(&mut self, finished: Finished, progress: &Progress) -> Result<(), CliError> {
        let Finished { item, mut times, wrong: mismatches, first, chance } = finished;
        let Item { plan, shape, blocks, .. } = &self.items[item];
        let times = &mut times;
        let row = Row::new(
            &self.heading,
            (shape, blocks.as_ref()),
            times,
            mismatches,
            &self.names[*plan],
        );
        self.wrong += row.wrong.unwrap_or(0);
        let title = self.title.take();
        let line = || {
            if let Some(title) = title {
                print_line(&title)?;
            }
            if let Some(blocks) = blocks {
                let words = blocks.describe(&self.heading.collective);
                print_line(&format!("# counts at {} bytes: {words}", row.bytes))?;
            }
            print_line(&row.line())
        };
        let printed = if self.json { Ok(()) } else { progress.aside(line) };
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
        self.rows.push(row);
        printed
    }

    /// Ends the report with the verdict, which is also the exit status.
    pub fn end(
        self,
        pids: &[u32],
        wires: &BTreeMap<String, Vec<u32>>,
    ) -> Result<ExitCode, CliError> {
        if self.json {
            let document = Document {
                collective: self.heading.collective.to_string(),
                ranks: self.heading.ranks,
                in_place: self.in_place,
                counts: self.counts.as_deref(),
                mode: self.start.mode,
                launcher: self.start.launcher,
                nodes: self.start.nodes,
                wires,
                pids,
                rows: &self.rows,
            };
            let text = serde_json::to_string(&document)
                .map_err(|error| CliError::Executor(format!("cannot write JSON: {error}")))?;
            print_line(&text)?;
        } else {
            for (wire, ranks) in wires {
                let ranks: Vec<_> = ranks.iter().map(u32::to_string).collect();
                print_line(&format!("# wire {wire}: rank 0 to {}", ranks.join(", ")))?;
            }
            if self.checked {
                let verdict = if self.wrong == 0 { "OK" } else { "FAILED" };
                print_line(&format!("# wrong elements: {} {verdict}", self.wrong))?;
            } else {
                print_line("# results were not checked")?;
            }
        }
        Ok(if self.wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
