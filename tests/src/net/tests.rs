//! The hosts are apart, their traffic is counted, and nothing stays.

use super::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

fn names() -> Vec<String> {
    let ours = format!("{PREFIX}{}-", std::process::id());
    let folder = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    folder
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&ours))
        .collect()
}

#[test]
fn hosts_reach_each_other_by_the_bridge_alone_and_leave_nothing() {
    let network = match Network::build(2) {
        Ok(network) => network,
        Err(reason) => return println!("SKIP network namespaces: {reason}"),
    };
    let mine = network.hosts.clone();
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
    let started = std::time::Instant::now();
    while !network.processes().contains(&pid) && started.elapsed() < LIMIT {
        std::thread::yield_now();
    }
    assert!(network.processes().contains(&pid), "the process runs on the host");
    drop(network);
    let finished = sleeper.finish(LIMIT);
    assert!(finished.status.is_some_and(|status| !status.success()), "{finished:?}");
    assert!(!names().iter().any(|name| mine.contains(name)), "{:?}", names());
}

#[test]
fn a_panic_leaves_nothing_either() {
    let mine = std::sync::Mutex::new(Vec::new());
    let outcome = std::panic::catch_unwind(|| {
        let Ok(network) = Network::build(1) else { return };
        *mine.lock().unwrap() = network.hosts.clone();
        panic!("on purpose, with a network of {}", network.hosts.len());
    });
    let mine = mine.into_inner().unwrap();
    if outcome.is_ok() {
        return println!("SKIP network namespaces: see the other test");
    }
    assert!(!names().iter().any(|name| mine.contains(name)), "{:?}", names());
}
