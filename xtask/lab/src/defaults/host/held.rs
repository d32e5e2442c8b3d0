//! What is predicted of ranks that were measured, held against that, as a table of the manual.
//!
//! A collective's own times are left out of the fit that its choice is predicted by: what is predicted of more ranks is
//! predicted without any, too.

use std::path::Path;

use antiphon::executor::selection::table::{Setting, Table, Times};
use antiphon::plan::algorithms::hosts::{Place, placed, predict, predict_rooted};
use antiphon::plan::algorithms::{Algorithm, Rooted, SumOrder};
use antiphon::plan::model::Collective;
use antiphon::plan::simulate::Topology;

use super::super::named::BLOCKS;
use super::super::{ROOTED, collectives, derived};
use super::{FAR, NEAR, error};
use crate::bench::report::size;
use crate::{Result, section};

/// Where the manual's table is, and what its marks are named.
const MANUAL: (&str, &str) = ("docs/algorithms.md", "predictions held");

/// The ranks that were measured, and what the manual calls them.
const PLACES: [(&str, Place); 5] = [
    ("2 ranks", NEAR),
    ("2 nodes of 1 rank", FAR),
    ("4 ranks that share cores", shared(1, 4)),
    ("8 ranks that share cores", shared(1, 8)),
    ("2 nodes of 2 that share cores", shared(2, 2)),
];

const fn shared(nodes: usize, per_node: usize) -> Place {
    Place { crowded: true, nodes, per_node }
}

/// By size, how many times as long as the fastest the choice takes that is predicted; from the least on.
type Losses = Vec<(u64, f64)>;

/// How the choices do that are predicted for a collective, in each of [`PLACES`].
struct Held {
    collective: Collective,
    losses: Vec<Losses>,
}

/// Writes the manual's table.
///
/// # Errors
/// What cannot be read, simulated or written.
pub fn run() -> Result<()> {
    section::write(Path::new(MANUAL.0), MANUAL.1, &page(&held()?))
}

/// All collectives that were measured.
fn held() -> Result<Vec<Held>> {
    let tables: Vec<Table> = derived::tables()?.into_iter().map(|(_, table)| table).collect();
    let mut all = Vec::new();
    for collective in collectives().into_iter().chain(ROOTED) {
        let host = super::fitted(&|one| *one != collective)?;
        let of = |(_, place): &(&str, Place)| losses(&host, &tables, &collective, *place);
        let losses = PLACES.iter().map(of).collect::<Result<_>>()?;
        all.push(Held { collective, losses });
    }
    Ok(all)
}

/// What the choice loses that is predicted for ranks in such a place.
fn losses(
    host: &Topology,
    tables: &[Table],
    collective: &Collective,
    place: Place,
) -> Result<Losses> {
    let steps = steps(&placed(host, place), collective)?;
    let here = |setting: &Setting| {
        let ranks = (setting.ranks as usize, setting.nodes as usize);
        setting.collective == *collective && ranks == (place.nodes * place.per_node, place.nodes)
    };
    let lost = |(&bytes, times): (&u64, &Times)| {
        let (_, chosen) = steps.iter().find(|(up_to, _)| bytes <= *up_to)?;
        Some((bytes, loss(times, chosen)?))
    };
    let settings = tables.iter().flat_map(Table::iter).filter(|(setting, _)| here(setting));
    let mut losses: Losses =
        settings.flat_map(|(_, sizes)| sizes.iter().filter_map(lost)).collect();
    losses.sort_by(|one, other| one.1.total_cmp(&other.1));
    Ok(losses)
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

fn median(losses: &Losses) -> f64 {
    losses.get(losses.len() / 2).map_or(1.0, |(_, loss)| *loss)
}

fn worst(losses: &Losses) -> (u64, f64) {
    losses.last().copied().unwrap_or((0, 1.0))
}

fn page(all: &[Held]) -> String {
    let titles: String = PLACES.iter().map(|(name, _)| format!(" {name} |")).collect();
    let mut page = format!("| |{titles}\n|---|{}", "---|".repeat(PLACES.len()));
    for Held { collective, losses } in all {
        let cell = |losses: &Losses| {
            let (bytes, worst) = worst(losses);
            format!(" {:.2}; {worst:.2} at {} |", median(losses), size(bytes as usize))
        };
        let cells: String = losses.iter().map(cell).collect();
        page.push_str(&format!("\n| {collective} |{cells}"));
    }
    page.push('\n');
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many times as long as the fastest a choice that is predicted may take, at half of the sizes and at any.
    const MEDIAN: f64 = 1.05;
    const WORST: f64 = 1.5;

    #[test]
    fn the_manual_has_what_predictions_lose_and_what_is_predicted_loses_little() {
        let held = held().unwrap();
        let written = section::read(Path::new(MANUAL.0), MANUAL.1).unwrap();
        assert_eq!(written.trim(), page(&held).trim(), "run `cargo xtask defaults --predict`");
        for Held { collective, losses } in &held {
            assert!(losses.iter().all(|losses| losses.len() > 5), "{collective}");
            for losses in losses {
                let (bytes, worst) = worst(losses);
                assert!(median(losses) <= MEDIAN, "{collective}: {losses:?}");
                assert!(worst <= WORST, "{collective} {bytes}: {worst}");
            }
        }
        assert_eq!(held.len(), 9);
    }
}
