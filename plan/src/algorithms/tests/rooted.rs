//! Gathers and scatters: what they compute, from and to any root, and that no rank needs a buffer in which it has no part.

use super::*;
use crate::program::{Area, Layout};
use crate::verify::{Options, Verdict, verify};

/// Nodes, and ranks of each.
const PLACES: [(usize, usize); 13] = [
    (1, 1),
    (1, 2),
    (1, 3),
    (1, 5),
    (1, 6),
    (2, 1),
    (3, 1),
    (2, 2),
    (2, 3),
    (3, 2),
    (2, 4),
    (4, 2),
    (8, 1),
];

/// Every plan of these ranks, with its shape; on one node, the plans for several as well.
fn plans((nodes, per_node): (usize, usize)) -> impl Iterator<Item = (Rooted, Shape, Plan)> {
    let ranks = nodes * per_node;
    let fitting = Rooted::ALL.into_iter().filter(move |one| nodes == 1 || one.is_hierarchical());
    fitting.flat_map(move |one| {
        (0..ranks).flat_map(move |root| {
            [1, 2].map(|blocks| {
                let shape = Shape { nodes, root, blocks, ..Shape::new(ranks) };
                (one, shape, one.plan(shape).expect("a valid shape"))
            })
        })
    })
}

/// What cells end as: where the rank has no part, in place its own block, which nobody writes.
fn promised(
    one: Rooted,
    root: usize,
    in_place: bool,
    block: usize,
) -> impl Fn(u32, usize, usize) -> Value {
    move |launch, rank, cell| match one.collective() {
        Collective::Gather if rank == root => input((launch, cell / block, cell % block)),
        Collective::Scatter => input((launch, root, rank * block + cell)),
        _ if in_place && cell / block == rank => input((launch, rank, cell % block)),
        _ => None,
    }
}

#[test]
fn the_root_gets_every_block_and_every_rank_its_own() {
    for place in PLACES {
        for (one, shape, plan) in plans(place) {
            for in_place in [false, true] {
                let setting = setting(in_place, 0);
                let block = plan.gpus[0].input_chunks.min(plan.gpus[0].output_chunks) as usize;
                let promise = promised(one, shape.root, in_place, block * setting.cells);
                for seed in 1..=if shape.ranks > 6 { 3 } else { 8 } {
                    let result = simulate(&plan, Setting { seed, ..setting }, &promise);
                    assert_eq!(result, Ok(()), "{one} {shape:?} in place {in_place}, seed {seed}");
                }
            }
        }
    }
}

#[test]
fn plans_for_apart_buffers_are_proven_in_place_as_well() {
    for place in PLACES {
        for (one, shape, plan) in plans(place) {
            for in_place in [false, true] {
                let plan = Plan { in_place, ..plan.clone() };
                let layout = Layout::new(&plan).expect("a valid plan");
                let report = verify(&plan, &layout, Options::default());
                let proven = report.verdict == Verdict::Proven;
                assert!(proven, "{one} {shape:?}, in place {in_place}: {report}");
            }
        }
    }
}

#[test]
fn nobody_touches_a_buffer_in_which_its_rank_has_no_part() {
    for (one, shape, plan) in [(1, 4), (2, 2), (4, 1)].into_iter().flat_map(plans) {
        let absent = match one.collective() {
            Collective::Gather => Area::Output,
            _ => Area::Input,
        };
        let layout = Layout::new(&plan).expect("a valid plan");
        let accesses = layout.ranks.iter().flat_map(|own| &own.accesses);
        let mut touched = 0;
        for access in accesses.filter(|access| access.area == absent) {
            assert_eq!(access.rank as usize, shape.root, "{one} {shape:?}");
            touched += 1;
        }
        assert!(touched > 0, "{one}");
    }
}

#[test]
fn what_cannot_be_is_refused_and_names_are_their_own() {
    for one in Rooted::ALL {
        assert!(one.plan(Shape::new(0)).is_err(), "{one}");
        let text = one.plan(Shape { root: 3, ..Shape::new(3) }).unwrap_err().to_string();
        assert!(text.contains("cannot name rank 3: allowed 0..3"), "{text}");
        assert!(one.name().starts_with(one.collective().name()), "{one}");
        assert!(one.name().parse::<Algorithm>().is_err(), "{one}");
        assert!(Rooted::all_for(&one.collective()).any(|known| known == one));
        assert_eq!(one.is_hierarchical(), one.name().contains("hierarchical"), "{one}");
        let plan = one.plan(Shape { nodes: 2, ..Shape::new(2) }).unwrap();
        let place = if one.is_hierarchical() { "2x1" } else { "2" };
        assert_eq!(plan.name, format!("{one}_{place}"));
        for nodes in [0, 4] {
            let uneven = one.plan(Shape { nodes, ..Shape::new(6) });
            assert_eq!(uneven.is_err(), one.is_hierarchical(), "{one} on {nodes} nodes");
        }
    }
    assert_eq!(Rooted::all_for(&Collective::AllGather).count(), 0);
}

/// The simulator must see what is wrong, or its approval means nothing.
#[test]
fn a_plan_without_its_handshake_is_found_out() {
    for (one, shape, plan) in [(1, 3), (2, 2), (3, 1)].into_iter().flat_map(plans) {
        let Shape { ranks, nodes, root, blocks, .. } = shape;
        if root > 0 || blocks > 1 || nodes > 1 && !one.is_hierarchical() {
            continue;
        }
        let meets = |kind| matches!(kind, OpKind::Signal | OpKind::Wait);
        let dropped: &[&dyn Fn(OpKind) -> bool] = match (nodes > 1, one) {
            (false, _) => &[&meets],
            // The others of a node write into what the proxy sends.
            (true, Rooted::GatherHierarchicalPackets) if ranks == nodes => &[&meets],
            // Roots send what only they write.
            (true, Rooted::ScatterHierarchicalPackets) => &[&meets],
            (true, _) => &[&meets, &|kind| kind == OpKind::Flush],
        };
        for (at, drop) in dropped.iter().enumerate() {
            let mut plan = plan.clone();
            for tb in plan.gpus.iter_mut().flat_map(|gpu| &mut gpu.threadblocks) {
                tb.ops.retain(|op| !drop(op.kind));
            }
            let found = (1..=200).any(|seed| {
                let setting = Setting { launches: 6, ..setting(false, seed) };
                let promise = promised(one, 0, false, setting.cells);
                simulate(&plan, setting, &promise).is_err()
            });
            assert!(found, "{one} {shape:?} without {at}");
        }
    }
}

#[test]
fn small_hierarchical_plans_read_like_this() {
    for one in Rooted::ALL.into_iter().filter(|one| one.is_hierarchical()) {
        let plan = one.plan(Shape { nodes: 2, ..Shape::new(4) }).expect("a valid shape");
        insta::assert_snapshot!(one.name(), text::render(&plan, 0));
    }
}
