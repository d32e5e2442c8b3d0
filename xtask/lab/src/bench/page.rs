//! A section of the performance page: how its tables were made, on what, and the tables.

use std::fmt::Write;

use super::CACHES;
use super::probe::Distance;
use super::report::{self, Column};
use super::results::Results;

/// The section. `made` says by which commands, `facts` describe the machine and the subjects, one a line.
pub fn section(results: &Results, columns: &[Column], made: &str, facts: &[String]) -> String {
    let mut text = format!("{made}\n\n");
    for fact in facts {
        let _ = writeln!(text, "- {fact}");
    }
    if let Some((shortest, longest)) = results.lines() {
        let _ = writeln!(text, "- a cache line between two cores: {shortest} to {longest} ns");
    }
    text += "\nTimes in µs: p50 / p99 of the slowest rank of each iteration, in parentheses the p50 with the reading of the \
             output inside the timing; medians over rounds, in each of which the subjects take turns. n counts the iterations of a \
             cell's rounds together, the fewest of any cell; a row that would take longer than the budget ends early. Sizes are \
             bytes of f32: allreduce the whole buffer, allgather one rank's contribution, alltoall the block for one peer, \
             reducescatter one rank's result.\n\n";
    let census = results.census();
    let rows = |distance| census.get(&distance).copied().unwrap_or(0);
    if rows(Some(Distance::Any)) > 0 {
        let _ = writeln!(
            text,
            "{} rows are not told apart by the distance of the cores: those with more ranks than cores, and those whose buffers, \
             of all ranks together, are {} or more.\n",
            rows(Some(Distance::Any)),
            report::size(CACHES)
        );
    }
    if rows(Some(Distance::Far)) + rows(None) > 0 {
        let _ = writeln!(
            text,
            "The cores of this machine moved: a cache line took up to {} ns from one to the other during {} rows (near), longer \
             during {} (far), and {} rows were dropped because it changed meanwhile. Near and far are tabled apart; medians are \
             over the rounds that each row has there.\n",
            results.limit(),
            rows(Some(Distance::Near)),
            rows(Some(Distance::Far)),
            rows(None)
        );
    }
    let titles = [
        (Distance::Far, "Cores far"),
        (Distance::Near, "Cores near"),
        (Distance::Any, "At any distance"),
    ];
    for (distance, title) in titles {
        let tables = report::tables(results, columns, distance);
        if !tables.is_empty() && census.keys().flatten().count() > 1 {
            let _ = writeln!(text, "## {title}\n");
        }
        text += &tables;
    }
    text
}
