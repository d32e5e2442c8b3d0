//! `cargo xtask defaults --presets`: where the presets of the Python package are faster on GPUs than what is built in, as the
//! simulator predicts, as a table of the manual.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use antiphon::plan::algorithms::devices::{AS_GOOD, DeviceClass, select, sizes};
use antiphon::plan::algorithms::{Choice, Shape};
use antiphon::plan::model::Plan;
use antiphon::plan::program::Layout;
use antiphon::plan::simulate::simulate;

use crate::bench::report::size;
use crate::{Error, Result, repo, section};

/// Where the table is, and what its marks are named.
const MANUAL: (&str, &str) = ("docs/algorithms.md", "presets");
/// Names the Python that has the package; `python3` of the path where it is not set.
const INTERPRETER: &str = "ANTIPHON_PYTHON";
/// What that Python runs to write the plans into a folder, in the repository.
const PROGRAM: &str = "xtask/lab/src/defaults/presets.py";
/// Ranks of a node.
const PER_NODE: usize = 8;
/// The smallest and the largest message, where a plan is for all; between them each is twice as large as the one before.
const SIZES: (u64, u64) = (1 << 8, 1 << 28);

/// Writes the table into the manual, or holds the one that is there against it.
///
/// # Errors
/// No Python with the package; a plan that cannot be simulated; a manual that cannot be written, or has another table.
pub fn run(check: bool) -> Result<()> {
    let table = table(&plans()?)?;
    let (document, name) = (Path::new(MANUAL.0), MANUAL.1);
    if !check {
        return section::write(document, name, &table);
    }
    match section::read(document, name)?.trim() == table.trim() {
        true => Ok(()),
        false => Err(Error::message(format!(
            "{} has another table of presets than this: run `cargo xtask defaults --presets`\n{table}",
            MANUAL.0
        ))),
    }
}

/// The presets' plans, as the package of Python writes them, by name.
fn plans() -> Result<Vec<Plan>> {
    let folder = repo::target_dir().join("presets");
    // Of another time, when there were others.
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(Error::io(format!("clear {}", folder.display())))?;
    }
    fs::create_dir_all(&folder).map_err(Error::io(format!("make {}", folder.display())))?;
    let python = std::env::var(INTERPRETER).unwrap_or_else(|_| "python3".to_owned());
    let mut command = repo::outside(&python);
    command.arg(PROGRAM).arg(&folder);
    repo::capture("write the presets' plans", &mut command)?;
    repo::files(&folder)?.iter().map(|file| read(&folder.join(file))).collect()
}

fn read(file: &Path) -> Result<Plan> {
    let text = fs::read(file).map_err(Error::io(format!("read {}", file.display())))?;
    let read = antiphon::plan::read(&text);
    Ok(read.map_err(|error| other(format!("read {}", file.display()), &error))?.plan)
}

fn other(what: impl Display, error: &dyn Display) -> Error {
    Error::message(format!("cannot {what}: {error}"))
}

/// What is predicted for a message.
#[derive(Clone, Copy, Debug)]
struct Time {
    bytes: u64,
    /// How many times as long the preset takes as what is built in.
    ratio: f64,
}

/// The table.
fn table(plans: &[Plan]) -> Result<String> {
    let titles = DeviceClass::ALL.map(|class| format!(" nodes of `{}` |", class.topology_name()));
    let mut table = format!("| | nodes | sizes |{}\n|---|---|---|---|---|---|\n", titles.concat());
    for plan in plans {
        let (nodes, messages) = (plan.gpus.len().div_ceil(PER_NODE), messages(plan));
        table.push_str(&format!("| `{}` | {nodes} | {} |", plan.name, range(&messages)));
        for class in DeviceClass::ALL {
            let times = times(plan, class, nodes, &messages)
                .map_err(|error| other(format!("simulate {}", plan.name), &error))?;
            table.push_str(&format!(" {} |", cell(&times)));
        }
        table.push('\n');
    }
    Ok(table)
}

/// The bytes of the messages that are looked at: every power of two that is the plan's.
fn messages(plan: &Plan) -> Vec<u64> {
    let first = plan.min_message_size.max(SIZES.0).next_power_of_two();
    let doubled = |bytes: &u64| bytes.checked_mul(2);
    let all = std::iter::successors(Some(first), doubled);
    all.take_while(|&bytes| bytes <= plan.max_message_size.min(SIZES.1)).collect()
}

/// The predictions for a plan.
fn times(plan: &Plan, class: DeviceClass, nodes: usize, messages: &[u64]) -> Result<Vec<Time>> {
    let error = |error: &dyn Display| Error::message(error.to_string());
    let topology = class.topology(nodes, PER_NODE).map_err(|e| error(&e))?;
    let shape = Shape { nodes, in_place: plan.in_place, ..Shape::new(nodes * PER_NODE) };
    let end = |layout: &Layout, bytes: u64| {
        let sizes = sizes(&plan.collective, bytes, topology.ranks());
        simulate(layout, sizes, &topology).map(|timeline| timeline.end).map_err(|e| error(&e))
    };
    let own = Layout::new(plan).map_err(|e| error(&e))?;
    // Neighbouring sizes are mostly served alike.
    let mut built_in: Option<(Choice, Layout)> = None;
    let mut times = Vec::new();
    for &bytes in messages {
        let choice = select(class, &plan.collective, bytes, shape, usize::MAX);
        let choice = choice
            .ok_or_else(|| error(&format_args!("nothing built in serves {}", plan.collective)))?;
        let layout = match built_in.take() {
            Some((same, layout)) if same == choice => layout,
            _ => {
                let plan = choice.plan().map_err(|e| error(&e))?;
                Layout::new(&plan).map_err(|e| error(&e))?
            }
        };
        times.push(Time { bytes, ratio: end(&own, bytes)? / end(&layout, bytes)? });
        built_in = Some((choice, layout));
    }
    Ok(times)
}

/// From the first size to the last.
fn range(messages: &[u64]) -> String {
    match messages {
        [] => "none".to_owned(),
        [one] => size(*one as usize),
        [first, .., last] => format!("{} to {}", size(*first as usize), size(*last as usize)),
    }
}

/// The sizes at which a preset is faster, and how much it is at its best.
fn cell(times: &[Time]) -> String {
    let wins = |time: &Time| time.ratio * AS_GOOD < 1.0;
    let runs = times.chunk_by(|one, next| wins(one) == wins(next)).filter(|run| wins(&run[0]));
    let bytes = |run: &[Time]| run.iter().map(|time| time.bytes).collect::<Vec<_>>();
    let won: Vec<String> = runs.map(|run| range(&bytes(run))).collect();
    let won = if won.is_empty() { "none".to_owned() } else { won.join(", ") };
    match times.iter().min_by(|one, next| one.ratio.total_cmp(&next.ratio)) {
        Some(best) => format!("{won} (best: {:.2} at {})", best.ratio, size(best.bytes as usize)),
        None => won,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::plan::algorithms::Algorithm;
    use antiphon::plan::model::Collective;

    #[test]
    fn a_plan_that_is_the_built_in_choice_is_nowhere_faster() {
        let shape = Shape { in_place: true, ..Shape::new(PER_NODE) };
        let bytes = 1 << 20;
        for class in DeviceClass::ALL {
            let choice = select(class, &Collective::AllReduce, bytes, shape, usize::MAX).unwrap();
            let mut plan = choice.plan().unwrap();
            (plan.min_message_size, plan.max_message_size) = (bytes, bytes);
            let times = times(&plan, class, 1, &messages(&plan)).unwrap();
            assert_eq!(cell(&times), "none (best: 1.00 at 1M)");
        }
    }

    #[test]
    fn the_table_has_all_sizes_of_a_plan_and_says_where_it_is_slower() {
        let mut plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(PER_NODE)).unwrap();
        (plan.min_message_size, plan.max_message_size) = (1 << 10, 5 << 10);
        let table = table(&[plan]).unwrap();
        let [_, _, row] = table.lines().collect::<Vec<_>>()[..] else { panic!("{table}") };
        assert!(
            row.starts_with("| `allreduce_zero_copy_8` | 1 | 1K to 4K | none (best: "),
            "{row}"
        );
        assert_eq!(row.matches("none (best: ").count(), DeviceClass::ALL.len(), "{row}");
    }

    #[test]
    fn where_a_preset_is_faster_by_more_than_a_tenth_it_wins() {
        let at = |ratios: &[f64]| {
            let times = ratios.iter().enumerate();
            cell(&times.map(|(n, &ratio)| Time { bytes: 1024 << n, ratio }).collect::<Vec<_>>())
        };
        assert_eq!(at(&[0.5, 0.9, 0.95, 2.0, 0.75]), "1K to 2K, 16K (best: 0.50 at 1K)");
        assert_eq!(at(&[0.92, 1.5]), "none (best: 0.92 at 1K)");
        assert_eq!(at(&[]), "none");
    }
}
