//! One document with every verdict, and with every kind of fault, actor and schedule.

use super::*;
use crate::cli::plans::testing::plan;
use antiphon::plan::interpret::BlockedOn;
use antiphon::plan::model::{Collective, OpKind};
use antiphon::plan::program::{Area, CallSizes};
use antiphon::plan::verify::{About, Report, Waiter};

fn site(rank: u32, tb: u32, inner: Option<u32>, kind: OpKind) -> Site {
    Site { rank, tb, op: 3, inner, kind }
}

fn moment(rank: u32) -> Moment {
    Moment { rank, block: 1, launch: 2, at: 5, iteration: 4 }
}

fn refuted(fault: verify::Fault, schedule: schedule::Schedule) -> Refutation {
    let sizes = CallSizes { input: 64, output: 128, element: 4, strict: false };
    let case = schedule::Case { sizes, in_place: true, launches: 2 };
    Refutation { fault, case, schedule, steps: vec!["first".into(), "then".into()] }
}

/// Every kind of fault, actor and schedule.
fn faults() -> Vec<Refutation> {
    let on = BlockedOn::Signal {
        channel_type: antiphon::plan::model::ChannelType::Memory,
        channel: 2,
        peer: 1,
        received: 3,
        needed: 4,
    };
    let blocked = vec![
        Waiter { site: site(0, 1, None, OpKind::Wait), on, for_whom: vec![(1, 0)] },
        Waiter { site: site(1, 0, Some(2), OpKind::RelaxedWait), on, for_whom: Vec::new() },
    ];
    let deadlock = verify::Fault::Deadlock { launch: 2, blocked, cycle: vec![1] };
    let race = verify::Fault::Race {
        first: schedule::Touch {
            actor: schedule::Actor::Proxy(moment(0)),
            site: Some(site(0, 1, Some(0), OpKind::Put)),
            write: true,
            owner: 1,
            area: Area::Packets,
            bytes: 16..32,
        },
        second: schedule::Touch {
            actor: schedule::Actor::User { rank: 1, launch: 1 },
            site: None,
            write: false,
            owner: 1,
            area: Area::Output,
            bytes: 0..64,
        },
    };
    let wrong = verify::Fault::Wrong {
        rank: 1,
        launch: 1,
        bytes: 0..16,
        expected: "the sum".into(),
        found: "the input of rank 0".into(),
    };
    let hold = schedule::Hold {
        held: schedule::Actor::Threads(moment(0)),
        until: schedule::Actor::Threads(moment(1)),
    };
    vec![
        refuted(deadlock, schedule::Schedule::Random(u64::MAX)),
        refuted(race, schedule::Schedule::Held(vec![hold])),
        refuted(wrong, schedule::Schedule::Adversarial { seed: 9, changes: 3 }),
    ]
}

fn verified(verdict: Verdict, same_bits: Option<bool>) -> Outcome {
    let order = same_bits.map(|_| verify::SumOrder::Fixed("(0 + 1) + (2 + 3)".into()));
    let notes = vec![verify::Note { about: About::Portability, text: "too many ops".into() }];
    let Refutation { case, .. } = faults().remove(0);
    let (repeats, elsewhere, root) = (false, None, None);
    let cases = vec![case; 3];
    let report = Report { verdict, same_bits, order, repeats, elsewhere, root, notes, cases };
    Outcome::Verified(Box::new((plan(Collective::AllReduce, 2, (2, 2)), report)))
}

#[test]
fn the_document_has_everything_that_the_report_has() {
    let outcomes = [
        ("right.json", verified(Verdict::Proven, Some(true))),
        ("wrong.json", verified(Verdict::Refuted(faults()), None)),
        ("long.json", verified(Verdict::NotProven(vec!["too many states".into()]), None)),
        ("none.json", Outcome::Unreadable("cannot read none.json".into())),
    ];
    let plans = outcomes.iter().map(|(file, outcome)| Entry::new((*file).to_owned(), outcome));
    let document = Document { status: 3, plans: plans.collect() };
    insta::assert_snapshot!(serde_json::to_string_pretty(&document).unwrap());
}
