//! The plans that another implementation wrote.

use super::*;
use antiphon_plan::model::Collective;
use std::collections::HashMap;
use std::path::Path;

/// Plans said to be right whose ranks may end a launch before the proxy has read what they posted: without a flush, the
/// user's next input goes out instead.
const FAULTY: [&str; 1] = ["multi_node.reducescatter-ge2.json"];

/// Name, verdict and bytes of every plan; none, with a note, where they are absent.
fn real_plans() -> Vec<(String, String, Plan)> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/plans"));
    let Ok(table) = std::fs::read_to_string(folder.join("README.md")) else {
        println!("SKIP: no plans at {}", folder.display());
        return Vec::new();
    };
    let rows = table.lines().filter(|line| line.contains(".json"));
    let rows = rows.map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let bytes = std::fs::read(folder.join(cells[1])).unwrap();
        let plan = antiphon_plan::read(&bytes).unwrap().plan;
        (cells[1].to_owned(), cells[4].to_owned(), plan)
    });
    rows.collect()
}

#[test]
fn verdicts_show_on_schedules() {
    let mut differing = HashMap::new();
    for (name, verdict, plan) in real_plans() {
        let free = matches!(
            plan.collective,
            Collective::Test | Collective::SendRecv | Collective::Other(_)
        );
        let layout = Layout::new(&plan).unwrap();
        let launches = if free { 1 } else { 3 };
        let chunk = plan.min_message_size.max(32);
        let mut machine = match Machine::new(&layout, case(&plan, chunk, launches), LANES) {
            Ok(machine) => machine,
            Err(error) => {
                println!("{name}: {error}");
                continue;
            }
        };
        let default = Schedule::Held(Vec::new());
        let played = machine.play(&default, &[], Way::default(), 0);
        let found = search(&mut machine, 50, 1);
        match verdict.as_str() {
            "deadlock" => assert!(!played.blocked.is_empty(), "{name} ends"),
            "wrong" => {
                assert!(played.blocked.is_empty(), "{name}: {:?}", played.blocked);
                assert_eq!(found, Some(default), "{name} is right in the default order");
            }
            _ => {
                assert!(played.blocked.is_empty(), "{name}: {:?}", played.blocked);
                if free {
                    if let Some(schedule) = found {
                        differing.insert(name, schedule);
                    }
                } else {
                    assert_eq!(found.is_some(), FAULTY.contains(&&*name), "{name}: {found:?}");
                }
            }
        }
    }
    for (name, schedule) in differing {
        println!("{name} gives other outputs with {schedule:?}");
    }
}
