//! The hosts are apart, their traffic is counted, and nothing stays.

use super::*;
use crate::until;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

fn names() -> Vec<String> {
    names_of(&format!("{PREFIX}{}-", std::process::id()))
}

fn names_of(prefix: &str) -> Vec<String> {
    let folder = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    folder
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(prefix))
        .collect()
}

#[test]
fn hosts_reach_each_other_by_the_bridge_alone_and_leave_nothing() {
    let network = match Network::build(2) {
        Ok(network) => network,
        Err(reason) => return skip("network namespaces", &reason),
    };
    let mine = network.hosts().to_vec();
    const BYTES: usize = 1 << 20;
    let listener = network.on(1, || TcpListener::bind("0.0.0.0:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    assert!(network.on(1, listening_ports).contains(&port));
    assert!(!network.on(0, listening_ports).contains(&port));
    let at = SocketAddr::new(network.address(1), port);
    let before = (network.traffic(0), network.traffic(1));
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
        (bytes.len(), listener)
    });
    network.on(0, || {
        let mut socket = TcpStream::connect_timeout(&at, LIMIT).unwrap();
        socket.write_all(&vec![7; BYTES]).unwrap();
    });
    let (read, listener) = reader.join().unwrap();
    assert_eq!(read, BYTES);
    let after = (network.traffic(0), network.traffic(1));
    assert!(after.0.sent - before.0.sent >= BYTES as u64, "{before:?} {after:?}");
    assert!(after.1.received - before.1.received >= BYTES as u64, "{before:?} {after:?}");

    network.cut(1);
    let short = Duration::from_millis(200);
    assert!(network.on(0, || TcpStream::connect_timeout(&at, short)).is_err());
    drop(listener);

    let sleeper = Process::start(network.command(0, "sleep").arg("1000"));
    let pid = sleeper.id() as i32;
    until("the process to run on the host", || network.processes().contains(&pid));
    drop(network);
    let finished = sleeper.finish(LIMIT);
    assert!(finished.status.is_some_and(|status| !status.success()), "{finished:?}");
    assert!(!names().iter().any(|name| mine.contains(name)), "{:?}", names());
}

#[test]
fn a_panic_leaves_nothing_either() {
    let mine = std::sync::Mutex::new(Vec::new());
    let outcome = std::panic::catch_unwind(|| {
        let network = match Network::build(1) {
            Ok(network) => network,
            Err(reason) => return reason,
        };
        *mine.lock().unwrap() = network.hosts().to_vec();
        panic!("on purpose, with a network of {}", network.hosts().len());
    });
    let mine = mine.into_inner().unwrap();
    if let Ok(reason) = outcome {
        return skip("network namespaces", &reason);
    }
    assert!(!names().iter().any(|name| mine.contains(name)), "{:?}", names());
}

/// Whether a process is there, and no zombie.
fn lives(pid: i32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

#[test]
fn what_runs_in_namespaces_is_ended_with_them_however_stubborn() {
    let names = vec![format!("{PREFIX}{}-guarded", std::process::id())];
    let namespaces = match Namespaces::make(names.clone(), None) {
        Ok(namespaces) => namespaces,
        Err(reason) => return skip("network namespaces", &reason),
    };
    let mut stubborn = Command::new("ip");
    stubborn.args(["netns", "exec", &names[0], "sh", "-c", "trap '' TERM; echo ready; sleep 1000"]);
    let mut stubborn = stubborn.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 5];
    stubborn.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    drop(namespaces);
    assert!(stubborn.wait().is_ok_and(|status| !status.success()));
    assert!(!names_of(PREFIX).contains(&names[0]));
}

#[test]
fn counters_are_read_from_the_kernels_table() {
    let text = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n\
                veth0: 99 1 0 0 0 0 0 0 1234 1 0 0 0 0 0 0\n";
    assert_eq!(traffic(text, "veth0"), Some(Traffic { received: 99, sent: 1234 }));
    assert_eq!(traffic(text, "lo"), Some(Traffic { received: 7, sent: 8 }));
    assert_eq!(traffic(text, "eth0"), None);
    assert_eq!(traffic("lo: 1 2", "lo"), None);
}

#[test]
fn a_process_that_takes_too_long_is_ended_with_all_that_it_started() {
    let script = "sleep 1000 & echo $!; exec sleep 1000";
    let process = Process::start(Command::new("sh").args(["-c", script]));
    // Else the limit could pass before it has printed anything.
    let name = format!("/proc/{}/comm", process.id());
    until("the shell to go", || std::fs::read_to_string(&name).unwrap() == "sleep\n");
    let finished = process.finish(Duration::from_millis(50));
    assert_eq!(finished.status, None, "{finished:?}");
    let child: i32 = finished.printed.trim().parse().expect("what was printed before the end");
    until("the child to end", || !lives(child));
}

#[test]
fn who_keeps_the_output_of_a_process_that_has_ended_is_not_waited_for() {
    // It ends with a session of its own, and else with the shell.
    let script = "echo here; setsid sleep 1000 &
                  until [ \"$(cut -d' ' -f6 /proc/$!/stat)\" = $! ]; do :; done; echo $!";
    let finished = Process::start(Command::new("sh").args(["-c", script])).finish(LIMIT);
    assert!(finished.succeeded(), "{finished:?}");
    let (here, pid) = finished.printed.trim().split_once('\n').expect("what was printed");
    assert_eq!(here, "here");
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
