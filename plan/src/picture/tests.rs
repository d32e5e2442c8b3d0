//! Golden pictures, names that are markup, and how large pages get.

use super::*;
use crate::algorithms::{Algorithm, Shape, allreduce, examples, sendrecv};
use crate::interpret::BlockedOn;
use crate::lower::Site;
use crate::model::ChannelType;
use crate::schedule::{Actor, Case, Moment, Schedule, Touch};
use crate::simulate::{SimulateError, Topology, simulate};
use crate::verify::{About, Fault, Note, Refutation, Verdict, Waiter};

fn sizes(bytes: u64) -> CallSizes {
    CallSizes { input: bytes, output: bytes, element: 4, strict: false }
}

/// Draws one launch with `draw`, on as many H100 nodes as it takes.
fn drawn(
    plan: &Plan,
    sizes: CallSizes,
    report: Option<&Report>,
    draw: fn(&Picture<'_>) -> String,
) -> String {
    let layout = Layout::new(plan).unwrap();
    let name = format!("h100x8-{}", plan.gpus.len().div_ceil(8));
    let topology = Topology::built_in(&name).unwrap();
    let timeline = simulate(&layout, sizes, &topology).unwrap();
    let clock = Clock::Simulated(&topology.name);
    draw(&Picture { plan, layout: &layout, sizes, timeline: &timeline, clock, report })
}

/// The data block of a page, as the page reads it.
fn data_of(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once(r#"id="data">"#).unwrap();
    let (data, _) = rest.split_once("</script>").unwrap();
    serde_json::from_str(data).unwrap()
}

fn site(rank: u32, op: u32, plan: &Plan) -> Site {
    let kind = plan.gpus[rank as usize].threadblocks[0].ops[op as usize].kind;
    Site { rank, tb: 0, op, inner: None, kind }
}

/// A race, a deadlock and a wrong result, as a verifier would tell them of [`sendrecv::zero_copy`] of two ranks.
fn faulty(plan: &Plan) -> Report {
    let case = Case { sizes: sizes(1024), in_place: false, launches: 2 };
    let touch = |rank, op, write| {
        let moment = Moment { rank, block: 0, launch: 1, at: op, iteration: 0 };
        let (owner, area) = (1, crate::program::Area::Output);
        let site = Some(site(rank, op, plan));
        Touch { actor: Actor::Threads(moment), site, write, owner, area, bytes: 0..1024 }
    };
    let refutation = |fault, steps: &[&str]| Refutation {
        fault,
        case,
        schedule: Schedule::Held(Vec::new()),
        steps: steps.iter().map(|&step| step.to_owned()).collect(),
    };
    let waiter = |rank, op| Waiter {
        site: site(rank, op, plan),
        on: BlockedOn::Signal {
            channel_type: ChannelType::Memory,
            channel: 0,
            peer: 1 - rank,
            received: 0,
            needed: 1,
        },
        for_whom: vec![(1 - rank, 0)],
    };
    let steps =
        ["rank 0 tb 0 op 0 (signal): runs", "rank 1 tb 0 op 1, <b>late</b>", "the user reads"];
    Report {
        verdict: Verdict::Refuted(vec![
            refutation(
                Fault::Race { first: touch(0, 3, true), second: touch(1, 3, false) },
                &steps,
            ),
            refutation(
                Fault::Deadlock {
                    launch: 1,
                    blocked: vec![waiter(0, 1), waiter(1, 1)],
                    cycle: vec![0, 1],
                },
                &[],
            ),
            refutation(
                Fault::Wrong {
                    rank: 1,
                    launch: 1,
                    bytes: 0..64,
                    expected: "input of rank 0".into(),
                    found: "what was there".into(),
                },
                &[],
            ),
        ]),
        same_bits: Some(true),
        order: None,
        repeats: false,
        elsewhere: None,
        root: None,
        notes: vec![Note { about: About::Order, text: "rank 0 tb 0 op 0 <i>releases</i>".into() }],
        cases: vec![case],
    }
}

#[test]
fn a_figure_of_two_ranks() {
    let plan = sendrecv::zero_copy(Shape::new(2)).unwrap();
    insta::assert_snapshot!(drawn(&plan, sizes(1 << 16), None, svg));
}

#[test]
fn a_figure_of_a_pipeline() {
    let plan = examples::allgather_pipeline(2, 4096).unwrap();
    let call = CallSizes { input: 8192, output: 16384, element: 4, strict: false };
    insta::assert_snapshot!(drawn(&plan, call, None, svg));
}

#[test]
fn a_figure_with_faults() {
    let plan = sendrecv::zero_copy(Shape::new(2)).unwrap();
    insta::assert_snapshot!(drawn(&plan, sizes(1024), Some(&faulty(&plan)), svg));
}

#[test]
fn the_data_of_a_page() {
    let plan = sendrecv::zero_copy(Shape::new(2)).unwrap();
    let data = data_of(&drawn(&plan, sizes(1024), Some(&faulty(&plan)), html));
    // One line for each column, so that a change shows where it is.
    let mut lines = String::new();
    for (key, value) in data.as_object().unwrap() {
        match value.as_object() {
            Some(columns) => columns.iter().for_each(|(name, column)| {
                lines += &format!("{key}.{name} {column}\n");
            }),
            None => lines += &format!("{key} {value}\n"),
        }
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn steps_and_marks_point_to_operations() {
    let plan = sendrecv::zero_copy(Shape::new(2)).unwrap();
    let data = data_of(&drawn(&plan, sizes(1024), Some(&faulty(&plan)), html));
    let faults = data["report"]["faults"].as_array().unwrap();
    let first_of_rank_1 = plan.gpus[0].threadblocks[0].ops.len() as u64;
    assert_eq!(faults[0]["steps"][0][1], 0);
    assert_eq!(faults[0]["steps"][1][1], first_of_rank_1 + 1);
    assert!(faults[0]["steps"][2][1].is_null());
    assert_eq!(faults[0]["marks"][0][0], 3);
    assert_eq!(faults[0]["marks"][1][0], first_of_rank_1 + 3);
    assert_eq!(faults[1]["edges"], serde_json::json!([[0, 1], [1, 0]]));
    // Rank 0 puts what rank 1's output holds.
    assert_eq!(faults[2]["marks"][0][0], 3);
}

#[test]
fn names_that_are_markup_stay_text() {
    let name = "</script><script>alert(1)</script>{{data}}<!--";
    let mut plan = sendrecv::zero_copy(Shape::new(2)).unwrap();
    plan.name = name.to_owned();
    let page = drawn(&plan, sizes(1024), Some(&faulty(&plan)), html);
    assert_eq!(page.matches("<script").count(), 2, "the page's own scripts");
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(!page.contains("<!--") && !page.contains("<b>late") && !page.contains("<i>releases"));
    assert_eq!(data_of(&page)["plan"]["name"], name);
    assert!(page.contains("&lt;script&gt;alert(1)"), "the title");
    let figure = drawn(&plan, sizes(1024), Some(&faulty(&plan)), svg);
    assert!(!figure.contains("<script") && figure.contains("&lt;script&gt;alert(1)"));
}

#[test]
fn pages_load_nothing() {
    let plan = sendrecv::zero_copy(Shape::new(2)).unwrap();
    let page = drawn(&plan, sizes(1024), None, html);
    for loads in ["http://", "https://", " src=", "@import", "url(", "fetch(", "{{"] {
        assert!(!page.contains(loads), "{loads}");
    }
}

#[test]
fn pages_of_64_ranks_stay_small() {
    let call = sizes(1 << 20);
    let shape = Shape { blocks: 4, ..Shape::new(64) };
    let plans = [
        (allreduce::two_shot_packets(Shape::new(64)).unwrap(), 4416),
        (Algorithm::AllReduceRing.plan(shape).unwrap(), 100_000),
        (allreduce::zero_copy(Shape { blocks: 8, ..Shape::new(64) }).unwrap(), 512),
    ];
    for (plan, least) in plans {
        let page = drawn(&plan, call, None, html);
        let spans = data_of(&page)["spans"]["op"].as_array().unwrap().len();
        assert!(spans >= least, "{}: {spans} spans", plan.name);
        assert!(page.len() < 20_000_000, "{}: {} bytes", plan.name, page.len());
    }
}

#[test]
fn every_example_is_drawn() {
    for (name, plan) in crate::algorithms::examples().unwrap() {
        let ranks = plan.gpus.len() as u64;
        let whole = 64 * 1024;
        let (input, output) = match plan.collective {
            crate::model::Collective::AllGather => (whole / ranks, whole),
            crate::model::Collective::ReduceScatter => (whole, whole / ranks),
            _ => (whole, whole),
        };
        let call = CallSizes { input, output, element: 4, strict: false };
        let data = data_of(&drawn(&plan, call, None, html));
        let column = |name: &str| data["spans"][name].as_array().unwrap().clone();
        let lanes = data["lanes"].as_array().unwrap();
        let of_lanes: u64 = lanes.iter().map(|lane| lane[3].as_u64().unwrap()).sum();
        assert_eq!(of_lanes, column("op").len() as u64, "{name}");
        assert!(of_lanes > 0 && column("gap").len() == column("run").len(), "{name}");
        let figure = drawn(&plan, call, None, svg);
        assert_eq!(figure.matches("<g").count(), figure.matches("</g>").count(), "{name}");
        assert!(figure.matches(r#"class="run""#).count() as u64 >= of_lanes, "{name}");
    }
}

#[test]
fn a_schematic_has_every_operation_once_and_no_arrow_back_in_time() {
    for (name, plan) in crate::algorithms::examples().unwrap() {
        if name.contains("pipeline") {
            continue;
        }
        let ranks = plan.gpus.len() as u64;
        let (input, output) = match plan.collective {
            crate::model::Collective::AllGather => (4096 / ranks, 4096),
            crate::model::Collective::ReduceScatter => (4096, 4096 / ranks),
            _ => (4096, 4096),
        };
        let layout = Layout::new(&plan).unwrap();
        let call = CallSizes { input, output, element: 4, strict: false };
        let drawn = schematic(&layout, call).unwrap();
        assert!(drawn.stuck.is_empty(), "{name}: {:?}", drawn.stuck);
        let mut sites: Vec<_> = drawn.timeline.spans.iter().map(|span| span.site).collect();
        sites.sort_by_key(|site| (site.rank, site.tb, site.op));
        sites.dedup();
        let ops = plan.gpus.iter().flat_map(|gpu| &gpu.threadblocks).map(|tb| tb.ops.len());
        assert_eq!(sites.len(), drawn.timeline.spans.len(), "{name}");
        assert_eq!(sites.len(), ops.sum::<usize>(), "{name}");
        let spans = &drawn.timeline.spans;
        for arrow in &drawn.timeline.arrows {
            let (from, to) = (&spans[arrow.from as usize], &spans[arrow.to as usize]);
            assert!(from.start <= to.end, "{name}: {from:?} {to:?}");
        }
    }
}

#[test]
fn a_launch_that_never_ends_is_drawn_up_to_where_it_stops() {
    let mut plan = sendrecv::zero_copy(Shape::new(2)).unwrap();
    // Rank 1 never says that it is ready.
    let ops = &mut plan.gpus[1].threadblocks[0].ops;
    let signal = ops.iter().position(|op| op.kind.name().ends_with("signal")).unwrap();
    ops.remove(signal);
    let layout = Layout::new(&plan).unwrap();
    let topology = Topology::built_in("h100x8").unwrap();
    let simulated = simulate(&layout, sizes(1024), &topology);
    assert!(matches!(simulated, Err(SimulateError::Stuck(_))), "{simulated:?}");
    let drawn = schematic(&layout, sizes(1024)).unwrap();
    assert!(drawn.stuck.iter().any(|site| site.rank == 0), "{:?}", drawn.stuck);
    for site in &drawn.stuck {
        let last = drawn.timeline.spans.iter().rfind(|span| span.site == *site).unwrap();
        assert_eq!(last.end, drawn.timeline.end, "waits to the end of the picture");
        assert!(last.ready > last.start);
    }
    let picture = Picture {
        plan: &plan,
        layout: &layout,
        sizes: sizes(1024),
        timeline: &drawn.timeline,
        clock: Clock::Order("the launch never ends"),
        report: None,
    };
    assert_eq!(data_of(&html(&picture))["plan"]["timed"], false);
    assert!(svg(&picture).contains("order only: the launch never ends"));
}
