//! Gathers and scatters: what they compute, from and to any root, and that no rank needs a buffer in which it has no part.

use super::*;
use crate::program::{Area, Layout};
use crate::verify::{Options, Verdict, verify};

/// Every plan of these ranks, with its root.
fn plans(ranks: usize) -> impl Iterator<Item = (Rooted, usize, Plan)> {
    let roots = move |one: Rooted| {
        (0..ranks).flat_map(move |root| {
            [1, 2].map(|blocks| (one, root, one.plan(ranks, root, blocks).expect("a valid shape")))
        })
    };
    Rooted::ALL.into_iter().flat_map(roots)
}

#[test]
fn the_root_gets_every_block_and_every_rank_its_own() {
    for ranks in 1..=6 {
        for (one, root, plan) in plans(ranks) {
            for in_place in [false, true] {
                let setting = setting(in_place, 0);
                let block = plan.gpus[0].input_chunks.min(plan.gpus[0].output_chunks) as usize;
                let block = block * setting.cells;
                let promise = |launch, rank, cell| -> Value {
                    match one.collective() {
                        Collective::Gather if rank == root => {
                            input((launch, cell / block, cell % block))
                        }
                        Collective::Scatter => input((launch, root, rank * block + cell)),
                        // Nobody writes what its rank has no part in; in place its own block is there.
                        _ if in_place && cell / block == rank => {
                            input((launch, rank, cell % block))
                        }
                        _ => None,
                    }
                };
                for seed in 1..=8 {
                    let result = simulate(&plan, Setting { seed, ..setting }, &promise);
                    assert_eq!(result, Ok(()), "{one} of {ranks}, root {root}, seed {seed}");
                }
            }
        }
    }
}

#[test]
fn plans_for_apart_buffers_are_proven_in_place_as_well() {
    for ranks in [1, 2, 3, 5] {
        for (one, root, plan) in plans(ranks) {
            for in_place in [false, true] {
                let plan = Plan { in_place, ..plan.clone() };
                let layout = Layout::new(&plan).expect("a valid plan");
                let report = verify(&plan, &layout, Options::default());
                let proven = report.verdict == Verdict::Proven;
                assert!(proven, "{one} of {ranks}, root {root}, in place {in_place}: {report}");
            }
        }
    }
}

#[test]
fn nobody_touches_a_buffer_in_which_its_rank_has_no_part() {
    for (one, root, plan) in plans(4) {
        let absent = match one.collective() {
            Collective::Gather => Area::Output,
            _ => Area::Input,
        };
        let layout = Layout::new(&plan).expect("a valid plan");
        let accesses = layout.ranks.iter().flat_map(|own| &own.accesses);
        let mut touched = 0;
        for access in accesses.filter(|access| access.area == absent) {
            assert_eq!(access.rank as usize, root, "{one}, root {root}");
            touched += 1;
        }
        assert!(touched > 0, "{one}");
    }
}

#[test]
fn what_cannot_be_is_refused_and_names_are_their_own() {
    for one in Rooted::ALL {
        assert!(one.plan(0, 0, 1).is_err(), "{one}");
        let text = one.plan(3, 3, 1).unwrap_err().to_string();
        assert!(text.contains("cannot name rank 3: allowed 0..3"), "{text}");
        assert!(one.name().starts_with(one.collective().name()), "{one}");
        assert!(one.name().parse::<Algorithm>().is_err(), "{one}");
        assert!(Rooted::all_for(&one.collective()).any(|known| known == one));
        let plan = one.plan(2, 0, 1).unwrap();
        assert_eq!(plan.name, format!("{one}_2"));
    }
    assert_eq!(Rooted::all_for(&Collective::AllGather).count(), 0);
}

/// The simulator must see what is wrong, or its approval means nothing.
#[test]
fn a_plan_without_its_handshake_is_found_out() {
    for one in Rooted::ALL {
        let mut plan = one.plan(3, 0, 1).unwrap();
        for tb in plan.gpus.iter_mut().flat_map(|gpu| &mut gpu.threadblocks) {
            tb.ops.retain(|op| !matches!(op.kind, OpKind::Signal | OpKind::Wait));
        }
        let promise = |launch, rank, cell| match one.collective() {
            Collective::Gather if rank == 0 => input((launch, cell / 3, cell % 3)),
            Collective::Scatter => input((launch, 0, rank * 3 + cell)),
            _ => None,
        };
        let found = (1..=60).any(|seed| {
            let setting = Setting { launches: 6, ..setting(false, seed) };
            simulate(&plan, setting, &promise).is_err()
        });
        assert!(found, "{one}");
    }
}
