//! How jobs form between ranks that do not fit, beside strangers, and without a trace.

mod support;

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use antiphon_bootstrap::unix::{Rendezvous, connect, connect_as};
use antiphon_bootstrap::{
    Bootstrap, BootstrapError, MOST_RANKS, Result, in_process, in_process_with, tcp,
};
use support::PATIENCE;

type Joined = Result<Arc<dyn Bootstrap>>;

fn join(address: &str, rank: u32, world: u32, timeout: Duration) -> Joined {
    connect(&Rendezvous { address: address.into(), rank, world, timeout })
}

/// Joins as all of `ranks` (rank, world) at once.
fn join_all(address: &str, ranks: &[(u32, u32)], timeout: Duration) -> Vec<Joined> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks
            .iter()
            .map(|&(rank, world)| scope.spawn(move || join(address, rank, world, timeout)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn errors(joined: Vec<Joined>) -> Vec<BootstrapError> {
    joined.into_iter().map(|end| end.map(drop).unwrap_err()).collect()
}

/// A connection to the rendezvous, as soon as somebody listens there.
fn stranger(address: &str) -> UnixStream {
    let name = SocketAddr::from_abstract_name(address).unwrap();
    let until = Instant::now() + PATIENCE;
    loop {
        match UnixStream::connect_addr(&name) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_wrong_world_is_named_on_all_sides() {
    let address = Rendezvous::unique().unwrap();
    for error in errors(join_all(&address, &[(0, 4), (1, 4), (2, 3)], PATIENCE)) {
        let text = error.to_string();
        assert!(text.contains("rank 2 (pid "), "{text}");
        assert!(text.contains("the world has 3 ranks, rank 0 says 4"), "{text}");
    }
}

#[test]
fn all_are_told_that_rank_0_has_a_smaller_world() {
    let address = Rendezvous::unique().unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| join_all(&address, &[(0, 3), (1, 4)], PATIENCE));
        // The last comes when the one before has been told.
        let mut joined: Vec<Joined> = [2, 3].map(|rank| join(&address, rank, 4, PATIENCE)).into();
        joined.extend(first.join().unwrap());
        for error in errors(joined) {
            let text = error.to_string();
            assert!(text.contains("the world has 4 ranks, rank 0 says 3"), "{text}");
        }
    });
}

#[test]
fn a_duplicate_rank_is_named_on_all_sides() {
    let pid = std::process::id();
    for twice in [0, 1] {
        let address = Rendezvous::unique().unwrap();
        for error in errors(join_all(&address, &[(0, 3), (1, 3), (twice, 3)], PATIENCE)) {
            let text = error.to_string();
            let claim = format!("rank {twice} is claimed by pid {pid} and by pid {pid}");
            assert!(text.contains(&claim), "{text}");
        }
    }
}

#[test]
fn a_timeout_names_the_missing_ranks_on_all_sides() {
    let address = Rendezvous::unique().unwrap();
    let ranks = [(0, 5), (1, 5), (3, 5)];
    for error in errors(join_all(&address, &ranks, Duration::from_secs(2))) {
        let text = error.to_string();
        assert!(text.contains("from rank 2, rank 4;"), "{text}");
    }
    let alone = join(&address, 1, 2, Duration::from_millis(30)).map(drop).unwrap_err();
    assert!(alone.to_string().contains("from rank 0;"), "{alone}");
}

#[test]
fn another_version_is_named_on_both_sides() {
    let address = &*Rendezvous::unique().unwrap();
    std::thread::scope(|scope| {
        let host = scope.spawn(move || join(address, 0, 2, PATIENCE));
        let mut other = stranger(address);
        let header = [b"ANTIPHON", &[7u8, 0, 16, 0][..], &[0; 28]].concat();
        other.write_all(&header).unwrap();
        let error = host.join().unwrap().map(drop).unwrap_err();
        let pid = std::process::id();
        assert_eq!(error, BootstrapError::WrongVersion { pid, saw: 7, expected: 2 });
        let mut answer = Vec::new();
        other.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[40..]);
        assert_eq!(answer, error.to_string());
    });
}

#[test]
fn strangers_are_dropped_and_disturb_nobody() {
    let address = &*Rendezvous::unique().unwrap();
    std::thread::scope(|scope| {
        let host = scope.spawn(move || join(address, 0, 2, PATIENCE));
        let silent: Vec<UnixStream> = (0..100).map(|_| stranger(address)).collect();
        // The header of a join, whose card is nonsense.
        let mut card = [b"ANTIPHON", &[2u8, 0, 16, 0][..], &[0; 28], b"????"].concat();
        card[16] = 4;
        // A frame that no guest may send: kind 24 lets a rank go.
        let go = [b"ANTIPHON", &[2u8, 0, 24, 0][..], &[0; 28]].concat();
        for bytes in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0; 9000], vec![255], card, go] {
            let mut scan = stranger(address);
            // The host may have dropped it after the first bytes.
            let _ = scan.write_all(&bytes);
            let mut answer = Vec::new();
            let end = scan.read_to_end(&mut answer);
            assert!(end.is_ok() || answer.is_empty(), "{end:?}");
            assert_eq!(answer, b"", "to {bytes:?}");
        }
        let mut partial = stranger(address);
        partial.write_all(b"ANTI").unwrap();
        let guest = join(address, 1, 2, PATIENCE).unwrap();
        let host = host.join().unwrap().unwrap();
        let begun = host.exchange_begin(b"0").unwrap();
        assert_eq!(guest.exchange(b"1").unwrap().concat(), b"01");
        assert_eq!(begun.wait().unwrap().concat(), b"01");
        drop((silent, partial));
    });
}

#[test]
fn impossible_arguments_are_refused() {
    let address = Rendezvous::unique().unwrap();
    for (rank, world) in [(0, 0), (2, 2), (u32::MAX, 1)] {
        let error = join(&address, rank, world, PATIENCE).map(drop).unwrap_err();
        assert_eq!(error, BootstrapError::BadShape { rank, world });
    }
    // No room is made for so many, in any kind of mesh.
    for world in [MOST_RANKS + 1, u32::MAX] {
        let place = tcp::Place::Address { host: "127.0.0.1".to_owned(), port: 9 };
        let over_tcp = tcp::Rendezvous::new(place, 0, world, tcp::Secret::open());
        let joined =
            [join(&address, 0, world, PATIENCE).map(drop), tcp::connect(&over_tcp).map(drop)];
        for error in joined.into_iter().chain([in_process(world).map(drop)]) {
            let text = error.unwrap_err().to_string();
            assert!(text.contains(&format!("{world} ranks: allowed up to 1048576")), "{text}");
        }
    }
    for address in ["", "nul\0", &"x".repeat(108)] {
        let error = join(address, 0, 1, PATIENCE).map(drop).unwrap_err();
        assert!(matches!(error, BootstrapError::BadAddress { .. }), "{error}");
    }
    assert!(in_process_with(&[], PATIENCE).is_err());
}

#[test]
fn a_host_that_dies_while_the_job_forms_is_named() {
    let address = &*Rendezvous::unique().unwrap();
    let name = SocketAddr::from_abstract_name(address).unwrap();
    let listener = UnixListener::bind_addr(&name).unwrap();
    std::thread::scope(|scope| {
        let guest = scope.spawn(move || join(address, 1, 2, PATIENCE));
        drop(listener.accept().unwrap());
        let error = guest.join().unwrap().map(drop).unwrap_err();
        let BootstrapError::PeerLost { peer, .. } = &error else { panic!("{error}") };
        assert_eq!((peer.rank, peer.pid), (0, std::process::id()));
    });
}

#[test]
fn a_thousand_ranks_fit_into_one_process() {
    let ends = in_process_with(&["x"; 1024], PATIENCE).unwrap();
    let begun: Vec<_> = (0u32..)
        .zip(&ends)
        .map(|(at, end)| end.exchange_begin(&at.to_le_bytes()).unwrap())
        .collect();
    for ticket in begun {
        let parts = ticket.wait().unwrap();
        assert_eq!(parts.len(), 1024);
        assert!((0u32..).zip(parts).all(|(at, part)| part == at.to_le_bytes()));
    }
}

#[test]
fn hosts_make_nodes() {
    let hosts = ["b", "a", "b", "c", "a"];
    let address = &*Rendezvous::unique().unwrap();
    let unix: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(hosts)
            .map(|(rank, host)| {
                let job = Rendezvous::new(address, rank, 5);
                scope.spawn(move || connect_as(&job, host).unwrap())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for ends in [unix, in_process_with(&hosts, PATIENCE).unwrap()] {
        for end in &ends {
            let nodes: Vec<u32> = (0..5).map(|rank| end.node_of(rank).unwrap()).collect();
            assert_eq!(nodes, [0, 1, 0, 2, 1]);
        }
        // A group renumbers ranks, not nodes.
        let group = ends[3].group(0, &[3, 1]).unwrap();
        assert_eq!([group.node_of(0), group.node_of(1)], [Ok(2), Ok(1)]);
    }
}
