//! In which order sums add, as the verifier reads it off plans.

use super::*;
use crate::algorithms::{Algorithm, Handshake, Shape, allreduce};
use crate::builder::ProgramBuilder;
use crate::verify::SumOrder;

/// The order of the plan of an algorithm.
fn order(algorithm: Algorithm, shape: Shape) -> Option<SumOrder> {
    judge(&algorithm.plan(shape).unwrap_or_else(|error| panic!("{error}"))).order
}

fn reduces(algorithm: Algorithm) -> bool {
    use Collective::{AllReduce, Reduce, ReduceScatter};
    matches!(algorithm.collective(), AllReduce | Reduce | ReduceScatter)
}

#[test]
fn built_in_algorithms_of_one_node_add_in_rank_order_but_for_the_ring() {
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| !algorithm.is_hierarchical()) {
        for ranks in [1, 2, 3, 5] {
            for (in_place, blocks, handshake) in
                [(false, 1, Handshake::Everyone), (true, 2, Handshake::Hub)]
            {
                let root = ranks - 1;
                let shape = Shape { in_place, blocks, handshake, root, ..Shape::new(ranks) };
                let expected = match algorithm {
                    // Of two, it does not matter which comes first.
                    Algorithm::AllReduceRing if ranks > 2 => Some(SumOrder::Varies),
                    Algorithm::AllReduceSwitch if ranks > 1 => Some(SumOrder::Hardware),
                    _ => reduces(algorithm).then_some(SumOrder::Ranks),
                };
                assert_eq!(order(algorithm, shape), expected, "{algorithm} {shape:?}");
            }
        }
    }
}

#[test]
fn built_in_algorithms_over_nodes_add_in_one_order_all() {
    let places = [
        ((2, 1), "ranks"),
        ((4, 1), "ranks"),
        ((2, 2), "(0 + 1) + (2 + 3)"),
        ((3, 2), "(0 + 1) + (2 + 3) + (4 + 5)"),
        ((2, 4), "(0 + … + 3) + (4 + … + 7)"),
    ];
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.is_hierarchical()) {
        for ((nodes, per_node), expected) in places {
            for (in_place, blocks, last) in [(false, 1, false), (true, 2, true)] {
                let ranks = nodes * per_node;
                let root = if last { ranks - 1 } else { 0 };
                let shape = Shape { nodes, in_place, blocks, root, ..Shape::new(ranks) };
                let expected = reduces(algorithm).then(|| match expected {
                    "ranks" => SumOrder::Ranks,
                    tree => SumOrder::Fixed(tree.to_owned()),
                });
                assert_eq!(order(algorithm, shape), expected, "{algorithm} {shape:?}");
            }
        }
    }
}

#[test]
fn what_hardware_decides_is_said() {
    let report = judge(&allreduce::switch(Shape { in_place: true, ..Shape::new(3) }).unwrap());
    assert_eq!(report.order, Some(SumOrder::Hardware));
    assert!(report.to_string().contains("\nsums add as the hardware"), "{report}");
}

/// Rank 0 adds the inputs of three ranks, those that are listed together at once.
fn root_adds(steps: &[&[usize]]) -> Plan {
    let p = ProgramBuilder::new("steps", Collective::Reduce, 3);
    let channels: Vec<_> = (1..3).map(|peer| p.channel(0, peer)).collect();
    let (tb, output) = (p.block(0), p.output(0).all());
    tb.wait_relaxed(&channels);
    for (number, step) in steps.iter().enumerate() {
        let mut sources: Vec<_> = step.iter().map(|&rank| p.input(rank).all()).collect();
        if number > 0 {
            sources.insert(0, output);
        }
        tb.reduce(&sources, output);
        tb.nop();
    }
    tb.signal(&channels);
    for (peer, &channel) in (1..3).zip(&channels) {
        let tb = p.block(peer);
        tb.signal_relaxed(&[channel]);
        tb.wait(&[channel]);
    }
    p.build().unwrap()
}

#[test]
fn what_is_rounded_on_the_way_is_another_order() {
    let fixed = |text: &str| SumOrder::Fixed(text.to_owned());
    let cases: [(&[&[usize]], SumOrder); 5] = [
        (&[&[0, 1, 2]], SumOrder::Ranks),
        (&[&[1, 0, 2]], SumOrder::Ranks),
        (&[&[2, 0, 1]], fixed("0 + 2 + 1")),
        (&[&[0, 1], &[2]], fixed("(0 + 1) + 2")),
        (&[&[2, 1], &[0]], fixed("0 + (1 + 2)")),
    ];
    for (steps, expected) in cases {
        let report = judge(&root_adds(steps));
        assert_eq!(report.order, Some(expected), "{steps:?}: {report}");
    }
}

#[test]
fn of_what_is_not_proven_no_order_is_told() {
    let mut plan = root_adds(&[&[0, 1, 2]]);
    plan.gpus[1].threadblocks[0].ops.pop();
    let report = judge(&plan);
    assert_ne!(word(&report), "proven");
    assert_eq!(report.order, None);
}

#[test]
fn what_all_ranks_add_in_one_order_has_the_same_bits_on_all() {
    let of = |algorithm: &Algorithm| algorithm.collective() == Collective::AllReduce;
    for algorithm in Algorithm::ALL.into_iter().filter(of) {
        for (nodes, ranks) in [(1, 2), (1, 3), (2, 2), (2, 4)] {
            if (nodes > 1) != algorithm.is_hierarchical() {
                continue;
            }
            let report = judge(&algorithm.plan(Shape { nodes, ..Shape::new(ranks) }).unwrap());
            let one = matches!(report.order, Some(SumOrder::Ranks | SumOrder::Fixed(_)));
            let noted = report.to_string().contains("different orders");
            assert!(!one || report.same_bits == Some(true) && !noted, "{algorithm}: {report}");
            assert_ne!(report.same_bits == Some(true), noted, "{algorithm}: {report}");
        }
    }
}

/// Every rank of three adds all inputs into its own output, some of them through a switch.
fn everyone_adds(through_switch: [bool; 3]) -> Plan {
    let p = ProgramBuilder::new("everyone", Collective::AllReduce, 3);
    let inputs = p.switch(&[0, 1, 2], crate::model::Buffer::Input);
    let channels = [p.channel(0, 1), p.channel(0, 2), p.channel(1, 2)];
    for (rank, switched) in through_switch.into_iter().enumerate() {
        let own = [[0, 1], [0, 2], [1, 2]][rank].map(|at| channels[at]);
        let tb = p.block(rank);
        tb.signal_relaxed(&own);
        tb.wait_relaxed(&own);
        let output = p.output(rank).all();
        if switched {
            tb.switch_reduce(&inputs, 0, output);
        } else {
            tb.reduce(&[0, 1, 2].map(|peer| p.input(peer).all()), output);
        }
        tb.signal(&own);
        tb.wait(&own);
    }
    p.build().unwrap()
}

#[test]
fn what_hardware_adds_on_one_rank_is_not_what_another_adds() {
    for (through_switch, expected) in
        [([false; 3], true), ([false, true, true], false), ([true; 3], false)]
    {
        let report = judge(&everyone_adds(through_switch));
        assert_eq!(word(&report), "proven", "{report}");
        assert_eq!(report.same_bits, Some(expected), "{through_switch:?}: {report}");
    }
}

/// A block of rank 0 writes the sum of three inputs to every output: what it has added once, or once for each.
fn one_adds(often: bool) -> Plan {
    let p = ProgramBuilder::new("one", Collective::AllReduce, 3);
    let inputs = p.switch(&[0, 1, 2], crate::model::Buffer::Input);
    let channels = [p.channel(0, 1), p.channel(0, 2)];
    let tb = p.block(0);
    tb.wait_relaxed(&channels);
    let own = p.output(0).all();
    tb.switch_reduce(&inputs, 0, own);
    for rank in 1..3 {
        let peer = p.block(rank);
        peer.signal_relaxed(&channels[rank - 1..rank]);
        if often {
            let sum = p.scratch(0, 3).all();
            tb.switch_reduce(&inputs, 0, sum);
            tb.put(sum, p.output(rank).all());
        } else {
            tb.put(own, p.output(rank).all());
        }
        peer.wait(&channels[rank - 1..rank]);
    }
    // Until then all inputs are read.
    tb.signal(&channels);
    p.build().unwrap()
}

#[test]
fn what_hardware_adds_once_more_is_not_what_it_has_added() {
    for (often, expected) in [(false, true), (true, false)] {
        let report = judge(&one_adds(often));
        assert_eq!(word(&report), "proven", "{report}");
        assert_eq!(report.same_bits, Some(expected), "{often}: {report}");
    }
}

#[test]
fn two_write_one_sum_only_if_both_add_it_in_software() {
    let plan = |through_switch: [bool; 2]| {
        let p = ProgramBuilder::new("twice", Collective::SendRecv, 2);
        let inputs = p.switch(&[0, 1], crate::model::Buffer::Input);
        for switched in through_switch {
            let channel = [p.channel(0, 1)];
            let (tb, peer, output) = (p.block(0), p.block(1), p.output(0).all());
            peer.signal_relaxed(&channel);
            tb.wait_relaxed(&channel);
            if switched {
                tb.switch_reduce(&inputs, 0, output);
            } else {
                tb.reduce(&[p.input(0).all(), p.input(1).all()], output);
            }
            tb.signal(&channel);
            peer.wait(&channel);
        }
        p.build().unwrap()
    };
    expect(&[
        ("software", plan([false; 2]), "proven"),
        ("one of each", plan([false, true]), "race"),
        ("hardware", plan([true; 2]), "race"),
    ]);
}
