//! Counterexamples: one touch held until another has happened.

use super::faults::{port_send, relay, without};
use super::*;
use antiphon_plan::model::OpKind;
use antiphon_plan::program::{Area, Instruction};
use antiphon_plan::schedule::{Hold, Moment, Touch};
use antiphon_plan::verify::{Fault, Refutation};

fn moment(rank: u32, at: u32, launch: u32) -> Moment {
    Moment { rank, block: 0, launch, at, iteration: 0 }
}

fn touch(actor: Actor, write: bool, area: Area) -> Touch {
    let owner = if area == Area::Input { 0 } else { 1 };
    Touch { actor, site: None, write, owner, area, bytes: 0..64 }
}

/// The position of the block's only move.
fn data(layout: &Layout, rank: usize) -> u32 {
    let all = layout.ranks[rank].instructions.iter();
    let is_data =
        |i: &Instruction| matches!(i, Instruction::Move { .. } | Instruction::Post { .. });
    all.into_iter().position(is_data).unwrap() as u32
}

fn race(plan: &Plan, launches: u32, touches: [Touch; 2], held: usize) -> Option<Shown> {
    let layout = Layout::new(plan).unwrap();
    let [first, second] = touches;
    let actors = [first.actor, second.actor];
    let hold = Hold { held: actors[held], until: actors[1 - held] };
    let refutation = Refutation {
        fault: Fault::Race { first, second },
        case: case(plan, 64, launches),
        schedule: Schedule::Held(vec![hold]),
        steps: Vec::new(),
    };
    shows(&layout, &refutation).unwrap()
}

/// The sender's store and the receiver's load.
fn relayed(plan: &Plan, launches: [u32; 2]) -> [Touch; 2] {
    let layout = Layout::new(plan).unwrap();
    let [stores, loads] = [0u32, 1].map(|rank| {
        Actor::Threads(moment(rank, data(&layout, rank as usize), launches[rank as usize]))
    });
    [touch(stores, true, Area::Scratch), touch(loads, false, Area::Scratch)]
}

#[test]
fn races_show_and_ordered_touches_do_not() {
    let whole = relay();
    assert_eq!(race(&whole, 2, relayed(&whole, [1, 1]), 0), None);
    let cases = [
        ("nop between put and signal", without(relay(), 0, 0, OpKind::Nop, 0)),
        ("nop between wait and copy", without(relay(), 1, 0, OpKind::Nop, 0)),
        ("wait before copy", without(relay(), 1, 0, OpKind::Wait, 0)),
    ];
    for (missing, plan) in cases {
        let shown = race(&plan, 2, relayed(&plan, [1, 1]), 0);
        assert!(shown.is_some(), "the missing {missing} does not show");
    }
    // The next launch's store may come before this launch's load.
    let plan = without(relay(), 0, 0, OpKind::Wait, 0);
    let [stores, loads] = relayed(&plan, [2, 1]);
    assert!(race(&plan, 2, [loads, stores], 0).is_some());
}

#[test]
fn a_user_may_not_rewrite_what_a_proxy_has_yet_to_read() {
    let race_with_user = |plan: &Plan| {
        let layout = Layout::new(plan).unwrap();
        let proxy = Actor::Proxy(moment(0, data(&layout, 0), 1));
        let user = Actor::User { rank: 0, launch: 1 };
        let touches = [touch(proxy, false, Area::Input), touch(user, true, Area::Input)];
        race(plan, 1, touches, 0)
    };
    assert_eq!(race_with_user(&port_send()), None);
    let mut plan = port_send();
    plan.gpus[0].threadblocks[0].ops[0].kind = OpKind::PutWithSignal;
    assert!(race_with_user(&plan).is_some());
}

#[test]
fn holds_that_cannot_be_kept_are_taken_off_and_said_so() {
    let plan = relay();
    let layout = Layout::new(&plan).unwrap();
    let [stores, loads] = relayed(&plan, [1, 1]).map(|touch| touch.actor);
    let hold = |held, until| Schedule::Held(vec![Hold { held, until }]);
    let case = case(&plan, 64, 2);
    let default = play(&layout, case, &hold(loads, stores), &[stores, loads]).unwrap();
    assert!(!default.released && default.blocked.is_empty());
    assert_eq!(default.seen[0].read, default.seen[1].read, "what was stored is loaded");
    let reversed = play(&layout, case, &hold(stores, loads), &[]).unwrap();
    assert!(reversed.released && reversed.blocked.is_empty());
    assert_eq!(default.outputs, reversed.outputs);
}

#[test]
fn deadlocks_and_wrong_results_show() {
    let plan = without(relay(), 0, 0, OpKind::Signal, 0);
    let deadlock = Fault::Deadlock { launch: 1, blocked: Vec::new(), cycle: Vec::new() };
    let refutation = |plan: &Plan, fault| Refutation {
        fault,
        case: case(plan, 64, 1),
        schedule: Schedule::Held(Vec::new()),
        steps: Vec::new(),
    };
    let shown =
        |plan: &Plan, fault| shows(&Layout::new(plan).unwrap(), &refutation(plan, fault)).unwrap();
    assert_eq!(shown(&plan, deadlock.clone()), Some(Shown::Blocked));
    assert_eq!(shown(&relay(), deadlock), None);
    use antiphon_plan::algorithms::{Algorithm, Shape};
    let gather = Algorithm::AllGatherZeroCopy.plan(Shape::new(2)).unwrap();
    let nothing = String::new;
    let wrong =
        Fault::Wrong { rank: 0, launch: 1, bytes: 0..64, expected: nothing(), found: nothing() };
    assert_eq!(shown(&gather, wrong.clone()), None);
    let mut swapped = gather;
    for op in &mut swapped.gpus[0].threadblocks[0].ops {
        for to in &mut op.dst {
            to.index = 1 - to.index;
        }
    }
    assert_eq!(shown(&swapped, wrong), Some(Shown::WrongOutput));
}
