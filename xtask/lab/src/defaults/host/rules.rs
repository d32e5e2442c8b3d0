//! What the simulator predicts for ranks on hosts that nobody has measured, as the table that the choice reads.

use antiphon::plan::algorithms::hosts::{
    Place, Rule, SIMULATED, placed, predict, predict_rooted, predicted, predicted_rooted,
};
use antiphon::plan::model::Collective;
use antiphon::plan::simulate::Topology;

use super::super::derived::{self, Derived, as_source, rooted_source, sized_source};
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
    if rules != written() {
        println!("{SOURCE} has changed: `cargo xtask defaults` writes the manual's tables");
    }
    write(&repo::root().join(SOURCE), &source(&rules))
}

/// The rules, by place and collective.
fn rules(host: &Topology) -> Result<Vec<Derived>> {
    let mut all = Vec::new();
    for place in SIMULATED {
        let topology = placed(host, place);
        for collective in collectives().into_iter().chain(ROOTED) {
            let steps = steps(&topology, &collective)?;
            all.push((place, collective, steps));
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

/// The rules that the choice reads now.
fn written() -> Vec<Derived> {
    fn of<A: Copy>(rule: &Rule<A>, name: fn(A) -> String) -> Derived {
        (rule.place, rule.collective.clone(), as_source(rule.steps, name))
    }
    let sized = predicted().iter().map(|rule| of(rule, sized_source));
    let rooted = predicted_rooted().iter().map(|rule| of(rule, rooted_source));
    let (mut all, own): (Vec<Derived>, Vec<Derived>) = (sized.collect(), rooted.collect());
    all.extend(own);
    let place = |place: &Place| SIMULATED.iter().position(|known| known == place);
    all.sort_by_key(|(at, ..)| place(at));
    all
}

fn source(rules: &[Derived]) -> String {
    let doc = "What the simulator predicts for hosts. Written by `cargo xtask defaults --predict`; a test holds it against the simulator.";
    derived::head(doc) + &derived::arrays(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_what_is_predicted() {
        let host = topology(&repo::root().join(super::super::FOLDER).join(super::super::FITTED));
        let text = super::super::read(&repo::root().join(SOURCE)).unwrap();
        let rules = rules(&host.unwrap()).unwrap();
        assert_eq!(text, source(&rules), "run `cargo xtask defaults --predict`");
        assert_eq!(written(), rules);
    }
}
