//! What is predicted of two ranks with a core each, held against what was measured of them, as a table of the manual.
//!
//! A collective's own times are left out of the fit that its choice is predicted by: what is predicted of more ranks is
//! predicted without any, too.

use std::path::Path;

use antiphon::executor::selection::table::{Setting, Table, Times};
use antiphon::plan::algorithms::hosts::{placed, predict, predict_rooted};
use antiphon::plan::algorithms::{Algorithm, Rooted, SumOrder};
use antiphon::plan::model::Collective;
use antiphon::plan::simulate::Topology;

use super::super::named::BLOCKS;
use super::super::{ROOTED, collectives};
use super::{FAR, NEAR, error};
use crate::bench::report::size;
use crate::{Result, section};

/// Where the manual's table is, and what its marks are named.
const MANUAL: (&str, &str) = ("docs/algorithms.md", "predictions held");

/// How a choice that is predicted does by what was measured.
struct Held {
    collective: Collective,
    nodes: u32,
    /// The machine.
    on: String,
    /// By size, how many times as long as the fastest it takes; from the least on.
    losses: Vec<(u64, f64)>,
}

/// Writes the manual's table.
///
/// # Errors
/// What cannot be read, simulated or written.
pub fn run() -> Result<()> {
    section::write(Path::new(MANUAL.0), MANUAL.1, &page(&held()?))
}

/// All collectives that were measured, over one node and over two.
fn held() -> Result<Vec<Held>> {
    let tables: Vec<Table> = super::super::derived::tables()?.into_iter().map(|(_, t)| t).collect();
    let mut all = Vec::new();
    for collective in collectives().into_iter().chain(ROOTED) {
        let host = super::fitted(&|one| *one != collective)?;
        for (place, table) in
            [NEAR, FAR].iter().flat_map(|place| tables.iter().map(move |t| (place, t)))
        {
            let topology = placed(&host, *place);
            let steps = steps(&topology, &collective)?;
            let here = |setting: &Setting| {
                let ranks = place.nodes * place.per_node;
                setting.collective == collective
                    && (setting.ranks as usize, setting.nodes as usize) == (ranks, place.nodes)
            };
            for (setting, sizes) in table.iter().filter(|(setting, _)| here(setting)) {
                let lost = |(&bytes, times): (&u64, &Times)| {
                    let (_, chosen) = steps.iter().find(|(up_to, _)| bytes <= *up_to)?;
                    Some((bytes, loss(times, chosen)?))
                };
                let mut losses: Vec<(u64, f64)> = sizes.iter().filter_map(lost).collect();
                losses.sort_by(|one, other| one.1.total_cmp(&other.1));
                let on = table.machine().to_string();
                all.push(Held { collective: collective.clone(), nodes: setting.nodes, on, losses });
            }
        }
    }
    Ok(all)
}

/// The largest message of each step that is predicted, and the name of what serves it.
fn steps(topology: &Topology, collective: &Collective) -> Result<Vec<(u64, &'static str)>> {
    Ok(if ROOTED.contains(collective) {
        let steps = predict_rooted(topology, collective).map_err(error)?;
        let name = |one: Option<Rooted>| one.map_or(BLOCKS, Rooted::name);
        steps.iter().map(|step| (step.up_to, name(step.algorithm))).collect()
    } else {
        let steps = predict(topology, collective).map_err(error)?;
        steps.iter().map(|step| (step.up_to, step.algorithm.name())).collect()
    })
}

/// How many times as long as the fastest one takes, of those that a rule may choose.
fn loss(times: &Times, chosen: &str) -> Option<f64> {
    let may = |name: &str| {
        name.parse::<Algorithm>().map_or(true, |one| one.sum_order() != SumOrder::Ring)
    };
    let least = times.of(times.best(may)?)?;
    Some(times.of(chosen)? as f64 / least.max(1) as f64)
}

impl Held {
    fn median(&self) -> f64 {
        self.losses.get(self.losses.len() / 2).map_or(1.0, |(_, loss)| *loss)
    }

    fn worst(&self) -> (u64, f64) {
        self.losses.last().copied().unwrap_or((0, 1.0))
    }
}

fn page(all: &[Held]) -> String {
    let mut page = String::from(
        "| two ranks, on nodes | measured on | sizes | median | worst |\n|---|---|---|---|---|",
    );
    for one in all {
        let Held { collective, nodes, on, losses } = one;
        let (bytes, worst) = one.worst();
        let at =
            if worst > 1.005 { format!(" at {}", size(bytes as usize)) } else { String::new() };
        page.push_str(&format!(
            "\n| {collective}, {nodes} | {on} | {} | {:.2} | {worst:.2}{at} |",
            losses.len(),
            one.median()
        ));
    }
    page.push('\n');
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::plan::algorithms::hosts::is_simulated;

    /// How many times as long as the fastest a choice that is predicted may take, at half of the sizes and at any.
    const MEDIAN: f64 = 1.05;
    const WORST: f64 = 1.35;

    #[test]
    fn the_manual_has_what_predictions_lose_and_what_is_predicted_loses_little() {
        let held = held().unwrap();
        let written = section::read(Path::new(MANUAL.0), MANUAL.1).unwrap();
        assert_eq!(written.trim(), page(&held).trim(), "run `cargo xtask defaults --predict`");
        for one in held.iter().filter(|one| is_simulated(&one.collective)) {
            let (bytes, worst) = one.worst();
            assert!(one.median() <= MEDIAN, "{} {}", one.collective, one.nodes);
            assert!(worst <= WORST, "{} {} {bytes}: {worst}", one.collective, one.nodes);
        }
        // Each of the ranks that were measured: nine collectives, over one node and two.
        assert_eq!(held.len(), 18);
    }
}
