//! The verifier and its judge: what is refuted shows its fault when the controlled engine plays the counterexample, and what
//! is right is proven.

use antiphon::executor::controlled::{Shown, shows};
use antiphon::plan::algorithms::{Algorithm, Handshake, Shape};
use antiphon::plan::program::Layout;
use antiphon::plan::verify::{self, Fault, Options, Refutation};
use antiphon_tests::harness::{Entry, Verdict, entries};

fn verdict(entry: &Entry) -> (Layout, verify::Verdict) {
    let layout = Layout::new(&entry.plan).unwrap_or_else(|error| panic!("{}: {error}", entry.name));
    let report = verify::verify(&entry.plan, &layout, Options::default());
    (layout, report.verdict)
}

/// How a counterexample shows.
fn shown(name: &str, layout: &Layout, refutation: &Refutation) -> Shown {
    let fault = &refutation.fault;
    match shows(layout, refutation) {
        Ok(Some(shown)) if shown != Shown::NoDifference => shown,
        other => panic!("{name}: {other:?} when this is played: {fault}"),
    }
}

#[test]
fn every_plan_is_proven_or_shows_its_fault() {
    for entry in entries() {
        let name = &entry.name;
        let (layout, verdict) = verdict(&entry);
        match (&verdict, entry.verdict) {
            (verify::Verdict::Proven, Verdict::Ok | Verdict::Unknown) => {}
            (verify::Verdict::Refuted(refutations), expected) => {
                let first = &refutations[0].fault;
                match expected {
                    Verdict::Deadlock => {
                        assert!(matches!(first, Fault::Deadlock { .. }), "{name}: {first}");
                    }
                    Verdict::Wrong => {
                        assert!(matches!(first, Fault::Wrong { .. }), "{name}: {first}")
                    }
                    // Its table of verdicts was sampled; the fault is real if it shows.
                    Verdict::Ok | Verdict::Unknown => println!("{name}: {first}"),
                }
                for refutation in refutations {
                    shown(name, &layout, refutation);
                }
            }
            (verdict, expected) => panic!("{name}: {verdict:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn built_in_algorithms_are_proven_for_2_to_16_ranks() {
    let mut proven = 0;
    for algorithm in Algorithm::ALL {
        for ranks in 2..=16 {
            for in_place in [false, true] {
                for handshake in [Handshake::Everyone, Handshake::Hub] {
                    let shape = Shape { in_place, handshake, ..Shape::new(ranks) };
                    let Ok(plan) = algorithm.plan(shape) else { continue };
                    let layout = Layout::new(&plan).unwrap();
                    let report = verify::verify(&plan, &layout, Options::default());
                    assert_eq!(report.status(), 0, "{algorithm}, {shape:?}: {report}");
                    proven += 1;
                }
            }
        }
    }
    assert!(proven > 15 * Algorithm::ALL.len(), "only {proven} plans");
}
