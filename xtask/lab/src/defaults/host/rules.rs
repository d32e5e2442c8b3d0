//! What the simulator predicts for ranks on hosts that nobody has measured, as the table that the choice reads.

use antiphon::plan::algorithms::hosts::{
    SIMULATED, placed, predict, predict_rooted, predicted, predicted_rooted,
};
use antiphon::plan::model::Collective;
use antiphon::plan::simulate::Topology;

use super::super::derived::{self, Derived, as_source, in_source, rooted_source, sized_source};
use super::super::{ROOTED, collectives};
use super::{error, topology, write};
use crate::{Result, repo};

/// Where the table is that the choice reads.
const SOURCE: &str = "plan/src/algorithms/hosts/predicted.rs";

/// Asks the simulator about the machine that stands for hosts, and writes the table.
///
/// # Errors
/// A simulation that fails; a file that cannot be read or written.
pub fn run() -> Result<()> {
    let host = topology(&repo::root().join(super::FOLDER).join(super::FITTED))?;
    let rules = rules(&host)?;
    if rules != in_source(predicted(), predicted_rooted()) {
        println!("{SOURCE} has changed: `cargo xtask defaults` writes the manual's tables");
    }
    write(&repo::root().join(SOURCE), &source(&rules))
}

/// The rules, by place and collective: first those of all but gather and scatter.
fn rules(host: &Topology) -> Result<Vec<Derived>> {
    let mut all = Vec::new();
    for collectives in [&collectives()[..], &ROOTED] {
        for place in SIMULATED {
            let topology = placed(host, place);
            for collective in collectives {
                all.push((place, collective.clone(), steps(&topology, collective)?));
            }
        }
    }
    Ok(all)
}

/// The steps that are predicted, as source.
fn steps(topology: &Topology, collective: &Collective) -> Result<Vec<(u64, String)>> {
    Ok(if ROOTED.contains(collective) {
        as_source(&predict_rooted(topology, collective).map_err(error)?, rooted_source)
    } else {
        as_source(&predict(topology, collective).map_err(error)?, sized_source)
    })
}

fn source(rules: &[Derived]) -> String {
    let doc = "What the simulator predicts for hosts. Written by `cargo xtask defaults --predict`; a test holds it against the simulator.";
    derived::head(doc) + &derived::arrays(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test of the tables' own crate holds the rules against the simulator.
    #[test]
    fn the_table_is_written_as_it_is_read() {
        let text = super::super::read(&repo::root().join(SOURCE)).unwrap();
        let rules = in_source(predicted(), predicted_rooted());
        assert_eq!(text, source(&rules), "run `cargo xtask defaults --predict`");
    }
}
