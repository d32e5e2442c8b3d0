//! Pages of plans in a real browser: each clicks through itself, and says what came of it.
//!
//! The browser is Chromium, without a window. Where there is none the test is skipped, unless `ANTIPHON_NEEDS_BROWSER` is
//! set; `ANTIPHON_BROWSER` names another one than those of the path.

use antiphon::plan::Site;
use antiphon::plan::algorithms::{Shape, allreduce, examples, sendrecv};
use antiphon::plan::interpret::BlockedOn;
use antiphon::plan::model::{ChannelType, Plan};
use antiphon::plan::picture::{Clock, Picture, html, schematic};
use antiphon::plan::program::{Area, CallSizes, Layout};
use antiphon::plan::schedule::{Actor, Case, Moment, Schedule, Touch};
use antiphon::plan::simulate::{Topology, simulate};
use antiphon::plan::verify::{About, Fault, Note, Refutation, Report, Verdict, Waiter};
use antiphon_tests::harness::text;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// The browser's program; `None`, with a note, where there is none.
fn browser() -> Option<String> {
    let named = std::env::var("ANTIPHON_BROWSER").ok();
    let names = named.clone().map_or_else(|| BROWSERS.map(str::to_owned).to_vec(), |n| vec![n]);
    let found = names.into_iter().find(|name| {
        let mut command = Command::new(name);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    });
    let needed = named.is_some() || std::env::var_os("ANTIPHON_NEEDS_BROWSER").is_some();
    assert!(found.is_some() || !needed, "no browser, but the environment asks for one");
    if found.is_none() {
        println!("SKIP: no browser ({})", BROWSERS.join(", "));
    }
    found
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn sizes(input: u64, output: u64) -> CallSizes {
    CallSizes { input, output, element: 4, strict: false }
}

fn page(plan: &Plan, sizes: CallSizes, report: Option<&Report>) -> String {
    let layout = Layout::new(plan).unwrap();
    let name = format!("h100x8-{}", plan.gpus.len().div_ceil(8));
    let topology = Topology::built_in(&name).unwrap();
    let timeline = simulate(&layout, sizes, &topology).unwrap();
    let clock = Clock::Simulated(&topology.name);
    html(&Picture { plan, layout: &layout, sizes, timeline: &timeline, clock, report })
}

/// Lets a page click through itself: the names of the checks that failed, and the milliseconds of a frame.
fn click_through(browser: &str, name: &str, page: &str) -> (Vec<String>, f64) {
    let path = folder().join(format!("{name}.html"));
    std::fs::write(&path, page).unwrap();
    let profile = folder().join(format!("{name}-profile"));
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1440,900"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("--dump-dom")
        .arg(format!("file://{}#selftest", path.display()))
        .output()
        .unwrap();
    // What the browser kept for itself is of no use to anyone.
    let _ = std::fs::remove_dir_all(&profile);
    let (dom, said) = (text(&output.stdout), text(&output.stderr));
    let found = dom
        .split_once(r#"<pre id="selftest">"#)
        .and_then(|(_, rest)| rest.split_once("</pre>").map(|(text, _)| text));
    let Some(text) = found else {
        panic!("{name}: the page did not finish ({}):\n{said}", output.status)
    };
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let outcome: Value = serde_json::from_str(&text).unwrap();
    let checks = outcome["outcome"].as_array().unwrap();
    assert!(checks.len() > 12, "{name}: only {} checks ran", checks.len());
    let failed = checks.iter().filter(|check| check[1] != true).map(Value::to_string);
    (failed.collect(), outcome["frame"].as_f64().unwrap())
}

fn passes(name: &str, page: &str) -> Option<f64> {
    let (failed, frame) = click_through(&browser()?, name, page);
    assert!(failed.is_empty(), "{name}:\n{}", failed.join("\n"));
    Some(frame)
}

#[test]
fn a_page_of_a_pipeline_passes_its_selftest() {
    let plan = examples::allgather_pipeline(2, 4096).unwrap();
    passes("pipeline", &page(&plan, sizes(32768, 65536), None));
}

#[test]
fn a_page_with_faults_in_place_passes_its_selftest() {
    let plan = sendrecv::zero_copy(Shape::new(2)).unwrap();
    let site = |rank: u32, op: u32| {
        let kind = plan.gpus[rank as usize].threadblocks[0].ops[op as usize].kind;
        Site { rank, tb: 0, op, inner: None, kind }
    };
    let touch = |rank, at, write| {
        let moment = Moment { rank, block: 0, launch: 1, at, iteration: 0 };
        let (actor, site) = (Actor::Threads(moment), Some(site(rank, at)));
        Touch { actor, site, write, owner: 1, area: Area::Output, bytes: 0..1024 }
    };
    let waiter = |rank| Waiter {
        site: site(rank, 1),
        on: BlockedOn::Signal {
            channel_type: ChannelType::Memory,
            channel: 0,
            peer: 1 - rank,
            received: 0,
            needed: 1,
        },
        for_whom: vec![(1 - rank, 0)],
    };
    let case = Case { sizes: sizes(1024, 1024), in_place: false, launches: 2 };
    let race = Fault::Race { first: touch(0, 3, true), second: touch(1, 3, false) };
    let blocked = vec![waiter(0), waiter(1)];
    let deadlock = Fault::Deadlock { launch: 1, blocked, cycle: vec![0, 1] };
    let refutation = |fault, steps: Vec<String>| Refutation {
        fault,
        case,
        schedule: Schedule::Held(Vec::new()),
        steps,
    };
    let steps = vec![
        format!("{} is done in launch 1", site(0, 0)),
        format!("{} reads too early", site(1, 3)),
        "the user of rank 1 reads its output".to_owned(),
    ];
    let text = "rank 0 tb 0 op 5 </script><script>document.title = 1</script>".to_owned();
    let report = Report {
        verdict: Verdict::Refuted(vec![refutation(race, steps), refutation(deadlock, Vec::new())]),
        same_bits: None,
        order: None,
        repeats: false,
        elsewhere: None,
        root: None,
        notes: vec![Note { about: About::Order, text }],
        cases: vec![case],
    };
    passes("faults", &page(&plan, sizes(1 << 20, 1 << 20), Some(&report)));
}

#[test]
fn a_page_whose_name_is_markup_passes_its_selftest() {
    let mut plan = sendrecv::zero_copy(Shape::new(2)).unwrap();
    plan.name =
        "</script><script>document.body.remove()</script><img src=x onerror=alert(1)>".into();
    passes("markup", &page(&plan, sizes(1024, 1024), None));
}

#[test]
fn a_page_of_a_launch_that_never_ends_passes_its_selftest() {
    let mut plan = sendrecv::zero_copy(Shape::new(2)).unwrap();
    plan.gpus[1].threadblocks[0].ops.remove(0);
    let layout = Layout::new(&plan).unwrap();
    let sizes = sizes(1024, 1024);
    let drawn = schematic(&layout, sizes).unwrap();
    assert!(!drawn.stuck.is_empty());
    let clock = Clock::Order("the launch never ends");
    let timeline = &drawn.timeline;
    let picture = Picture { plan: &plan, layout: &layout, sizes, timeline, clock, report: None };
    passes("stuck", &html(&picture));
}

#[test]
fn pages_of_64_ranks_pass_their_selftest() {
    let plans = [
        ("packets_64", allreduce::two_shot_packets(Shape::new(64)).unwrap()),
        ("ring_64", allreduce::ring(Shape { blocks: 4, ..Shape::new(64) }).unwrap()),
    ];
    for (name, plan) in plans {
        let Some(frame) = passes(name, &page(&plan, sizes(1 << 20, 1 << 20), None)) else { return };
        println!("{name}: {frame:.1} ms a frame");
    }
}
