//! Verdicts of plans that others wrote, and of the built-in ones.

use super::*;
use crate::algorithms::{Algorithm, Handshake, Shape};

/// The first line of the first fault.
fn fault(report: &Report) -> String {
    let text = match &report.verdict {
        Verdict::Refuted(found) => found.first().map(|refutation| refutation.fault.to_string()),
        Verdict::NotProven(reasons) => reasons.first().cloned(),
        Verdict::Proven => None,
    };
    text.unwrap_or_default().lines().take(2).map(str::trim).collect::<Vec<_>>().join(" ")
}

#[test]
fn real_plans() {
    let mut lines = Vec::new();
    for (name, bytes) in crate::real_samples::real_plans() {
        let plan = match crate::json::read(&bytes) {
            Ok(read) => read.plan,
            Err(error) => {
                lines.push(format!("{name}: {error}"));
                continue;
            }
        };
        match crate::check(&plan) {
            Err(faults) => lines.push(format!("{name}: refused: {faults}")),
            Ok(()) => {
                let report = judge(&plan);
                lines.push(format!("{name}: {} {}", word(&report), fault(&report)));
            }
        }
    }
    if !lines.is_empty() {
        let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
        insta::assert_snapshot!("real_plans", lines.join("\n"));
    }
}

#[test]
fn the_built_in_algorithms_are_proven() {
    let mut refused = Vec::new();
    for algorithm in Algorithm::ALL {
        for ranks in 2..=8 {
            for in_place in [false, true] {
                for (blocks, handshake) in [(1, Handshake::Everyone), (2, Handshake::Hub)] {
                    let shape = Shape { in_place, blocks, handshake, ..Shape::new(ranks) };
                    let Ok(plan) = algorithm.plan(shape) else { continue };
                    let report = judge(&plan);
                    if word(&report) != "proven" {
                        refused.push(format!("{algorithm} {shape:?}: {report}"));
                    }
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n\n"));
}
