//! A small measurement of the verifier, every time: a few mutants of every kind, of plans that use most of the format.

use antiphon_lab::mutate::judge::{Judgement, Said};
use antiphon_lab::mutate::kinds::KINDS;
use antiphon_lab::mutate::measure::{self, Effort};
use antiphon_lab::mutate::{choose, plans, show};
use std::collections::BTreeSet;

const SEED: u64 = 5;
const EFFORT: Effort = Effort { schedules: 60, seed: SEED, jobs: 2 };
const PER_KIND: usize = 4;

/// Plans in which every kind of mutation has a place.
const PLANS: [&str; 6] = [
    "allreduce_zero_copy of 2 out of place, 2 blocks",
    "staged Put of 2, 2 chunks",
    "one slot of 2, 1 chunks, windows",
    "across 2 blocks of 2",
    "allgather_packets of 2 out of place",
    "port Slot of 2, 2 chunks",
];

#[test]
fn what_shows_is_flagged_and_what_is_flagged_shows() {
    println!("seed {SEED}");
    let names = PLANS.map(str::to_owned);
    let plans = plans::all(&names, &mut |note| println!("{note}")).unwrap();
    let silent = &|_: usize| {};
    for (base, judgement) in plans.iter().zip(measure::bases(&plans, EFFORT, silent)) {
        let Judgement { shown, said, broken, .. } = judgement;
        assert!(shown.is_none(), "{}: {shown:?}", base.name);
        assert!(matches!(&said, Said::Proven(_)), "{}: {said:?}", base.name);
        assert!(broken.is_empty(), "{}: {broken:?}", base.name);
    }
    let mutants = choose::choose(&plans, PER_KIND, SEED).mutants;
    let kinds: BTreeSet<_> = mutants.iter().map(|mutant| mutant.kind).collect();
    assert_eq!(kinds.len(), KINDS.len(), "a kind has no mutants");
    let judgements = measure::mutants(&mutants, &plans, EFFORT, silent);
    let mut wrong = Vec::new();
    let (mut shown, mut flagged) = (0, 0);
    for (mutant, judgement) in mutants.iter().zip(&judgements) {
        let concluded = judgement.conclusion();
        shown += usize::from(concluded.shows);
        flagged += usize::from(concluded.flagged);
        if concluded.unnoticed() || concluded.false_alarm() || !judgement.broken.is_empty() {
            wrong.push(show::show(mutant, judgement).unwrap());
        }
    }
    println!("{} mutants, {shown} show a fault, {flagged} are refuted", mutants.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), mutants.len(), wrong.join("\n\n"));
    assert!(shown * 2 > mutants.len(), "hardly any mutant shows a fault");
}

#[test]
fn the_measurement_is_the_same_on_any_number_of_threads() {
    let plans = plans::all(&[PLANS[1].to_owned()], &mut |_| {}).unwrap();
    let mutants = choose::choose(&plans, 2, SEED).mutants;
    let on = |jobs| {
        let judgements =
            measure::mutants(&mutants, &plans, Effort { jobs, schedules: 10, ..EFFORT }, &|_| {});
        let said = judgements.into_iter().map(|judgement| (judgement.shown, judgement.said));
        said.collect::<Vec<_>>()
    };
    assert_eq!(on(1), on(3));
}
