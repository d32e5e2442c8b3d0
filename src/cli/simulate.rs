//! `plan simulate`: predictions as text for people, and as JSON.

use super::error::print_line;
use super::shape::{Shape, bus_factor};
use super::table::microseconds;
use super::{CliError, SimulateArgs, plans, topologies};
use antiphon::DataType;
use antiphon::plan::model::Plan;
use antiphon::plan::program::{CallSizes, Layout};
use antiphon::plan::simulate::{OpSpan, Timeline, Topology, simulate as predict};
use serde::Serialize;
use std::fmt::Write;
use std::process::ExitCode;

/// Lines of a critical path, and of a table of links, beyond which the smaller ones are summed up.
const LINES: usize = 12;

/// Predicts the time of each plan at each size.
pub fn simulate(args: &SimulateArgs) -> Result<ExitCode, CliError> {
    let topology = topologies::find(&args.topology)?;
    let sizes = args.sweep.sizes()?;
    let mut predictions = Vec::with_capacity(args.files.len());
    for file in &args.files {
        let plan = plans::load(file)?.plan;
        let faults = plans::faults(&plan);
        if !faults.is_empty() {
            return Err(CliError::InvalidPlan { name: plan.name, faults });
        }
        let prediction = Prediction::new(&plan, &topology, &sizes, args.dtype)?;
        predictions.push((file.display().to_string(), prediction));
    }
    let text = if args.json {
        json(&topology, args.dtype, &predictions)
    } else if let [(_, prediction)] = &predictions[..] {
        report(&topology, prediction)
    } else {
        comparison(&topology, &predictions)
    };
    print_line(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// What is predicted of one plan.
struct Prediction {
    plan: String,
    collective: String,
    ranks: usize,
    rows: Vec<Row>,
}

/// What is predicted of one size.
struct Row {
    bytes: u64,
    algbw: f64,
    busbw: f64,
    timeline: Timeline,
}

impl Prediction {
    fn new(
        plan: &Plan,
        topology: &Topology,
        sizes: &[u64],
        dtype: DataType,
    ) -> Result<Prediction, CliError> {
        let usage = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
        let layout = Layout::new(plan).map_err(|error| usage(&error))?;
        let mut rows = Vec::with_capacity(sizes.len());
        for &size in sizes {
            let element = dtype.size() as u64;
            let shape = Shape::new(plan, size, element);
            let Shape { input, output, .. } = shape;
            let call = CallSizes { input, output, element, strict: false };
            let timeline = predict(&layout, call, topology).map_err(|error| usage(&error))?;
            let bytes = shape.message();
            let algbw = if timeline.end > 0.0 { bytes as f64 / timeline.end / 1e9 } else { 0.0 };
            let busbw = algbw * bus_factor(&plan.collective, plan.gpus.len() as u32);
            rows.push(Row { bytes, algbw, busbw, timeline });
        }
        let (ranks, collective) = (plan.gpus.len(), plan.collective.to_string());
        Ok(Prediction { plan: plan.name.clone(), collective, ranks, rows })
    }
}

fn heading(topology: &Topology) -> String {
    let mut text = format!("# predicted on topology {}", topology.name);
    if !topology.source.is_empty() {
        let _ = write!(text, " ({})", topology.source);
    }
    text
}

/// One plan: a table of sizes, then for each size its critical path and the load of the links.
fn report(topology: &Topology, prediction: &Prediction) -> String {
    let Prediction { plan, collective, ranks, rows } = prediction;
    let mut text = format!("{}\n# plan {plan}: {collective}, {ranks} ranks\n", heading(topology));
    let mut line = |cells: [&str; 4]| {
        let [size, time, algbw, busbw] = cells;
        let _ = writeln!(text, "{size:>12} {time:>11} {algbw:>8} {busbw:>8}");
    };
    line(["size", "time", "algbw", "busbw"]);
    line(["(B)", "(us)", "(GB/s)", "(GB/s)"]);
    for row in rows {
        let time = microseconds(row.timeline.end * 1e6);
        let (algbw, busbw) = (format!("{:.2}", row.algbw), format!("{:.2}", row.busbw));
        line([&row.bytes.to_string(), &time, &algbw, &busbw]);
    }
    for row in rows {
        let _ = writeln!(text, "\n{} bytes", row.bytes);
        text += &critical_path(&row.timeline);
        text += &loads(&row.timeline);
    }
    text
}

/// One step of the critical path: from the end of the step before to its own.
struct Step<'a> {
    span: &'a OpSpan,
    /// The span of another block that it waited for.
    after: Option<&'a OpSpan>,
    waited: f64,
    worked: f64,
}

fn steps(timeline: &Timeline) -> Vec<Step<'_>> {
    let mut before: Option<&OpSpan> = None;
    let mut steps = Vec::with_capacity(timeline.critical.len());
    for &at in &timeline.critical {
        let span = &timeline.spans[at as usize];
        let from = before.map_or(0.0, |before| before.end);
        // An operation of several instructions may have begun before what it waited for last was done.
        let ready = span.ready.max(from).min(span.end);
        let block = |span: &OpSpan| (span.site.rank, span.site.tb);
        steps.push(Step {
            span,
            after: before.filter(|before| block(before) != block(span)),
            waited: (ready - from).max(0.0),
            worked: span.end - ready,
        });
        before = Some(span);
    }
    steps
}

fn critical_path(timeline: &Timeline) -> String {
    let steps = steps(timeline);
    let took = |at: &usize| steps[*at].waited + steps[*at].worked;
    let mut shown: Vec<usize> = (0..steps.len()).collect();
    shown.sort_by(|a, b| took(b).total_cmp(&took(a)).then(a.cmp(b)));
    let rest = shown.split_off(shown.len().min(LINES));
    shown.sort_unstable();
    let mut text = "critical path\n".to_owned();
    let _ = writeln!(text, "{:>11} {:>11} {:>11}", "from (us)", "waits (us)", "works (us)");
    for at in shown {
        let Step { span, after, waited, worked } = &steps[at];
        let [from, waited, worked] =
            [span.end - waited - worked, *waited, *worked].map(|s| microseconds(s * 1e6));
        let _ = write!(text, "{from:>11} {waited:>11} {worked:>11}  {}", span.site);
        if span.iteration > 0 {
            let _ = write!(text, ", iteration {}", span.iteration);
        }
        if span.bytes > 0 {
            let _ = write!(text, ", {} B", span.bytes);
        }
        if let Some(after) = after {
            let _ = write!(text, ", after {}", after.site);
        }
        text.push('\n');
    }
    if !rest.is_empty() {
        let together = rest.iter().map(took).sum::<f64>() * 1e6;
        let _ = writeln!(
            text,
            "and {} shorter steps, {} us together",
            rest.len(),
            microseconds(together)
        );
    }
    text
}

fn loads(timeline: &Timeline) -> String {
    let mut links: Vec<_> = timeline.links.iter().collect();
    links.sort_by(|a, b| b.busy.total_cmp(&a.busy));
    let share = |part: f64| if timeline.end > 0.0 { 100.0 * part / timeline.end } else { 0.0 };
    let mut text = "links\n".to_owned();
    let [name, bytes, busy, used, bandwidth] = ["", "(B)", "busy (%)", "used (%)", "(GB/s)"];
    let _ = writeln!(text, "{name:<20} {bytes:>14} {busy:>9} {used:>9} {bandwidth:>9}");
    for link in links.iter().take(LINES) {
        let _ = writeln!(
            text,
            "{:<20} {:>14} {:>9.1} {:>9.1} {:>9}",
            link.name,
            link.bytes,
            share(link.busy),
            share(link.bytes as f64 / link.bandwidth),
            link.bandwidth / 1e9,
        );
    }
    if let Some(next) = links.get(LINES) {
        let (more, busy) = (links.len() - LINES, share(next.busy));
        let _ = writeln!(text, "and {more} more, at most {busy:.1} % busy");
    }
    text
}

/// Several plans: the time of each at each size, and how it compares with the first one's.
fn comparison(topology: &Topology, predictions: &[(String, Prediction)]) -> String {
    let mut text = format!("{}\n", heading(topology));
    for (number, (file, prediction)) in (1..).zip(predictions) {
        let Prediction { plan, collective, ranks, .. } = prediction;
        let _ = writeln!(text, "# [{number}] {file}: {plan}, {collective}, {ranks} ranks");
    }
    let _ = write!(text, "{:>12}", "size (B)");
    for number in 1..=predictions.len() {
        let _ = write!(text, " {:>12}", format!("[{number}] (us)"));
        if number > 1 {
            let _ = write!(text, " {:>7}", "/ [1]");
        }
    }
    text.push('\n');
    let rows = predictions.first().map_or(0, |(_, first)| first.rows.len());
    for at in 0..rows {
        let first = &predictions[0].1.rows[at];
        let _ = write!(text, "{:>12}", first.bytes);
        for (number, (_, prediction)) in predictions.iter().enumerate() {
            let time = prediction.rows[at].timeline.end;
            let _ = write!(text, " {:>12}", microseconds(time * 1e6));
            if number > 0 {
                let ratio = time / first.timeline.end;
                let _ = write!(text, " {ratio:>7.3}");
            }
        }
        text.push('\n');
    }
    text
}

#[derive(Serialize)]
struct Document<'a> {
    topology: &'a str,
    source: &'a str,
    dtype: &'static str,
    plans: Vec<PlanDocument<'a>>,
}

#[derive(Serialize)]
struct PlanDocument<'a> {
    file: &'a str,
    plan: &'a str,
    collective: &'a str,
    ranks: usize,
    rows: Vec<RowDocument<'a>>,
}

#[derive(Serialize)]
struct RowDocument<'a> {
    bytes: u64,
    time_us: f64,
    algbw_gbs: f64,
    busbw_gbs: f64,
    critical: Vec<StepDocument>,
    links: Vec<LinkDocument<'a>>,
}

#[derive(Serialize)]
struct StepDocument {
    rank: u32,
    tb: u32,
    op: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    inner: Option<u32>,
    kind: String,
    iteration: u64,
    start_us: f64,
    ready_us: f64,
    end_us: f64,
    bytes: u64,
}

#[derive(Serialize)]
struct LinkDocument<'a> {
    name: &'a str,
    bytes: u64,
    busy_us: f64,
    gbs: f64,
}

impl StepDocument {
    fn new(span: &OpSpan) -> Self {
        StepDocument {
            rank: span.site.rank,
            tb: span.site.tb,
            op: span.site.op,
            inner: span.site.inner,
            kind: span.site.kind.to_string(),
            iteration: span.iteration,
            start_us: span.start * 1e6,
            ready_us: span.ready * 1e6,
            end_us: span.end * 1e6,
            bytes: span.bytes,
        }
    }
}

impl<'a> RowDocument<'a> {
    fn new(row: &'a Row) -> Self {
        let Row { bytes, algbw, busbw, timeline } = row;
        let critical = timeline.critical.iter().map(|&at| &timeline.spans[at as usize]);
        let links = timeline.links.iter().map(|link| LinkDocument {
            name: &link.name,
            bytes: link.bytes,
            busy_us: link.busy * 1e6,
            gbs: link.bandwidth / 1e9,
        });
        RowDocument {
            bytes: *bytes,
            time_us: timeline.end * 1e6,
            algbw_gbs: *algbw,
            busbw_gbs: *busbw,
            critical: critical.map(StepDocument::new).collect(),
            links: links.collect(),
        }
    }
}

fn json(topology: &Topology, dtype: DataType, predictions: &[(String, Prediction)]) -> String {
    let document = Document {
        topology: &topology.name,
        source: &topology.source,
        dtype: dtype.name(),
        plans: predictions
            .iter()
            .map(|(file, prediction)| PlanDocument {
                file,
                plan: &prediction.plan,
                collective: &prediction.collective,
                ranks: prediction.ranks,
                rows: prediction.rows.iter().map(RowDocument::new).collect(),
            })
            .collect(),
    };
    serde_json::to_string(&document).expect("numbers and strings always have a text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::plan::algorithms::{Algorithm, Shape as Wanted};

    fn prediction(algorithm: Algorithm, topology: &Topology, sizes: &[u64]) -> Prediction {
        let plan = algorithm.plan(Wanted::new(4)).unwrap();
        Prediction::new(&plan, topology, sizes, DataType::F32).unwrap()
    }

    #[test]
    fn a_report_shows_the_path_and_the_links() {
        let topology = Topology::built_in("h100x8").unwrap();
        let prediction = prediction(Algorithm::AllReduceZeroCopy, &topology, &[1 << 20, 1 << 24]);
        insta::assert_snapshot!(report(&topology, &prediction));
    }

    #[test]
    fn a_comparison_divides_by_the_first() {
        let topology = Topology::built_in("mi300x8").unwrap();
        let algorithms = [
            Algorithm::AllReduceTwoShotPackets,
            Algorithm::AllReduceRing,
            Algorithm::AllReduceZeroCopy,
        ];
        let predictions = algorithms.map(|algorithm| {
            (format!("{algorithm}.json"), prediction(algorithm, &topology, &[1 << 10, 1 << 22]))
        });
        insta::assert_snapshot!(comparison(&topology, &predictions));
    }

    #[test]
    fn json_has_what_the_tables_have() {
        let topology = Topology::built_in("a100x8").unwrap();
        let predicted = prediction(Algorithm::AllGatherPackets, &topology, &[4096]);
        let time = predicted.rows[0].timeline.end * 1e6;
        let text = json(&topology, DataType::F32, &[("x.json".to_owned(), predicted)]);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let row = &value["plans"][0]["rows"][0];
        assert_eq!(
            (value["topology"].as_str(), row["time_us"].as_f64()),
            (Some("a100x8"), Some(time))
        );
        assert_eq!(row["links"][0]["name"], "rank 0 memory");
        assert!(row["critical"].as_array().is_some_and(|path| !path.is_empty()));
    }

    #[test]
    fn more_ranks_than_the_topology_has_are_refused() {
        let plan = Algorithm::AllReduceRing.plan(Wanted::new(9)).unwrap();
        let topology = Topology::built_in("h100x8").unwrap();
        let error = Prediction::new(&plan, &topology, &[4096], DataType::F32).err().unwrap();
        assert!(error.to_string().contains("saw 9 ranks, allowed 1 to 8"), "{error}");
    }
}
