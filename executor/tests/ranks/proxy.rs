//! Who has no port channels has no proxy thread.

use crate::support::processes::alone;
use antiphon_executor::{Communicator, Options};
use std::fs;

#[test]
fn a_communicator_without_port_channels_starts_no_proxy() {
    alone(a_communicator_without_port_channels_starts_no_proxy, &[], no_proxy_is_there);
}

fn no_proxy_is_there() {
    let ranks = Communicator::in_process(2, &Options::default()).unwrap();
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let names: Vec<_> = names.map(|name| name.trim().to_owned()).collect();
    assert!(names.iter().any(|name| name == "antiphon-contro"), "{names:?}");
    assert!(!names.iter().any(|name| name == "antiphon-proxy"), "{names:?}");
    drop(ranks);
}
