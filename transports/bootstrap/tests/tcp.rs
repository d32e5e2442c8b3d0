//! How jobs form over TCP between ranks that do not fit, beside strangers, and without a trace.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use antiphon_bootstrap::tcp::{Place, Rendezvous, Secret, UniqueId, connect, connect_as};
use antiphon_bootstrap::{Bootstrap, BootstrapError, Result};
use support::PATIENCE;

type Joined = Result<Arc<dyn Bootstrap>>;

/// Enough for handshakes on a busy machine; such limits pass as a whole.
const SHORT: Duration = Duration::from_secs(6);

fn secret() -> Secret {
    Secret::passphrase("only the ranks of this test know").unwrap()
}

/// A port that is free, below those that the kernel gives to connections, and that no other test of this process gets.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(37);
    let next = || first.wrapping_add(NEXT.fetch_add(1, Ordering::SeqCst));
    let mut ports = std::iter::repeat_with(|| 20_000 + (next() % 12_000) as u16).take(12_000);
    ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok()).unwrap()
}

fn place() -> Place {
    Place::parse(&format!("127.0.0.1:{}", free_port())).unwrap().0
}

fn address(place: &Place) -> SocketAddr {
    place.to_string().parse().unwrap()
}

fn job(place: &Place, rank: u32, world: u32) -> Rendezvous {
    let job = Rendezvous::new(place.clone(), rank, world, secret());
    Rendezvous { timeout: PATIENCE, ..job }
}

fn join_all(jobs: &[Rendezvous]) -> Vec<Joined> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = jobs
            .iter()
            .map(|job| scope.spawn(move || connect_as(job, &format!("node {}", job.rank))))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn errors(joined: Vec<Joined>) -> Vec<BootstrapError> {
    joined.into_iter().map(|end| end.map(drop).unwrap_err()).collect()
}

/// All ranks stand and have each other.
fn works(joined: Vec<Joined>) -> Vec<Arc<dyn Bootstrap>> {
    let ends: Vec<_> = joined.into_iter().map(|end| end.unwrap()).collect();
    let begun: Vec<_> =
        ends.iter().map(|end| end.exchange_begin(&end.rank().to_le_bytes()).unwrap()).collect();
    for ticket in begun {
        let all = (0..ends.len() as u32).map(|rank| rank.to_le_bytes().to_vec());
        assert_eq!(ticket.wait().unwrap(), all.collect::<Vec<_>>());
    }
    ends
}

/// A connection to rank 0, as soon as it listens.
fn stranger(address: SocketAddr) -> TcpStream {
    let until = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect(address) {
            // A socket of this host may connect to itself where nobody listens yet.
            Ok(stream) if stream.local_addr().unwrap() != address => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Ok(_) => {}
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_wrong_world_is_named_on_all_sides() {
    let place = place();
    let jobs = [job(&place, 0, 4), job(&place, 1, 4), job(&place, 2, 3)];
    for error in errors(join_all(&jobs)) {
        let text = error.to_string();
        assert!(text.contains("rank 2 (pid "), "{text}");
        assert!(text.contains("the world has 3 ranks, rank 0 says 4"), "{text}");
    }
}

#[test]
fn all_are_told_that_rank_0_has_a_smaller_world() {
    let place = place();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| join_all(&[job(&place, 0, 3), job(&place, 1, 4)]));
        // The last comes when the one before has been told.
        let mut joined: Vec<Joined> = [2, 3].map(|rank| connect(&job(&place, rank, 4))).into();
        joined.extend(first.join().unwrap());
        for error in errors(joined) {
            let text = error.to_string();
            assert!(text.contains("the world has 4 ranks, rank 0 says 3"), "{text}");
        }
    });
}

#[test]
fn a_duplicate_rank_is_named_on_all_sides() {
    let (pid, place) = (std::process::id(), place());
    let jobs = [job(&place, 0, 3), job(&place, 1, 3), job(&place, 1, 3)];
    for error in errors(join_all(&jobs)) {
        let text = error.to_string();
        let claim = format!("rank 1 is claimed by pid {pid} and by pid {pid}");
        assert!(text.contains(&claim), "{text}");
    }
}

#[test]
fn a_timeout_names_the_missing_ranks_on_all_sides() {
    let place = place();
    let short = |rank| Rendezvous { timeout: SHORT, ..job(&place, rank, 5) };
    for error in errors(join_all(&[short(0), short(1), short(3)])) {
        let text = error.to_string();
        assert!(text.contains("from rank 2, rank 4;"), "{text}");
    }
    let alone = Rendezvous { timeout: Duration::from_millis(400), ..job(&place, 1, 2) };
    let alone = connect(&alone).map(drop).unwrap_err();
    let nobody = format!("from rank 0; nobody listens at {}: see whether", address(&place));
    assert!(alone.to_string().contains(&nobody), "{alone}");
}

#[test]
fn another_secret_is_told_to_both_sides_and_harms_nobody() {
    let place = place();
    let other = Rendezvous { secret: Secret::random().unwrap(), ..job(&place, 2, 3) };
    let open = Rendezvous { secret: Secret::open(), ..job(&place, 2, 3) };
    std::thread::scope(|scope| {
        let jobs = [job(&place, 0, 3), job(&place, 1, 3)];
        let honest = scope.spawn(move || join_all(&jobs));
        for wrong in [&other, &open] {
            let error = connect(wrong).map(drop).unwrap_err();
            let BootstrapError::WrongSecret { rank: 2, other: 0, address: at } = &error else {
                panic!("{error}");
            };
            assert_eq!(*at, address(&place).to_string());
        }
        let last = connect_as(&job(&place, 2, 3), "node 2");
        let mut ends = honest.join().unwrap();
        ends.push(last);
        works(ends);
    });
    // Where the right one never comes, rank 0 says what came instead.
    let short = Rendezvous { timeout: SHORT, ..job(&place, 0, 3) };
    std::thread::scope(|scope| {
        let host = scope.spawn(|| connect(&short).map(drop).unwrap_err().to_string());
        connect(&other).map(drop).unwrap_err();
        let text = host.join().unwrap();
        assert!(text.contains("from rank 1, rank 2;"), "{text}");
        assert!(text.contains("rank 2 at 127.0.0.1 has another secret"), "{text}");
    });
}

#[test]
fn rank_0_says_whom_it_turned_away_whatever_ends_the_forming() {
    const TURNED_AWAY: &str = "rank 3 at 127.0.0.1 has another secret";
    let cases = [
        // Its time is up long before rank 0's: it leaves the word to rank 0.
        (4, Duration::from_secs(5), "no answer within 5s from rank 2, rank 3;"),
        // Something that has nothing to do with it.
        (5, PATIENCE, "the world has 5 ranks, rank 0 says 4"),
    ];
    for (world, timeout, cause) in cases {
        let place = place();
        let other = Rendezvous { secret: Secret::random().unwrap(), ..job(&place, 3, 4) };
        let guest = Rendezvous { timeout, ..job(&place, 1, world) };
        std::thread::scope(|scope| {
            let host = scope.spawn(|| connect(&job(&place, 0, 4)).map(drop).unwrap_err());
            // By now rank 0 knows.
            connect(&other).map(drop).unwrap_err();
            let guest = connect(&guest).map(drop).unwrap_err();
            let host = host.join().unwrap();
            assert!(matches!(host, BootstrapError::TurnedAway { .. }), "{host}");
            assert!(host.to_string().contains("rank 1 (pid "), "{host}");
            for text in [host.to_string(), guest.to_string()] {
                assert!(text.contains(cause), "`{cause}` in: {text}");
                assert_eq!(text.matches(TURNED_AWAY).count(), 1, "{text}");
            }
        });
    }
}

#[test]
fn another_version_is_named_on_both_sides() {
    let place = place();
    let short = Rendezvous { timeout: SHORT, ..job(&place, 0, 2) };
    std::thread::scope(|scope| {
        let host = scope.spawn(|| connect(&short).map(drop).unwrap_err().to_string());
        let mut guest = stranger(address(&place));
        guest.write_all(b"ANTIPHON\x07\x00").unwrap();
        let mut answer = Vec::new();
        let _ = guest.read_to_end(&mut answer);
        assert_eq!(&answer[..10], b"ANTIPHON\x02\x00");
        let text = host.join().unwrap();
        assert!(text.contains("version 7, this one 2"), "{text}");
    });
    // A rank 0 of another version.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::parse(&listener.local_addr().unwrap().to_string()).unwrap().0;
    std::thread::scope(|scope| {
        let guest = scope.spawn(|| connect(&job(&place, 1, 2)).map(drop).unwrap_err());
        let mut host = listener.accept().unwrap().0;
        host.write_all(b"ANTIPHON\x07\x00").unwrap();
        let error = guest.join().unwrap();
        assert!(
            matches!(&error, BootstrapError::OtherVersion { saw: 7, expected: 2, .. }),
            "{error}"
        );
    });
}

const GARBAGE: [&[u8]; 5] = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"SSH-2.0-scan\r\n",
    &[0; 9000],
    // A hello of the right version with an unknown purpose.
    b"ANTIPHON\x02\x00\x01\x09\x01\x00\x00\x00\x00\x00\x00\x0000000000000000000000000000000000",
];

/// Throws garbage at a listener; none of it is answered.
fn scan(address: SocketAddr) {
    for bytes in GARBAGE {
        let mut scan = stranger(address);
        // It may be dropped after the first bytes.
        let _ = scan.write_all(bytes);
        let mut answer = Vec::new();
        let _ = scan.read_to_end(&mut answer);
        assert_eq!(answer, b"", "to {bytes:?}");
    }
}

/// Ports of this process's listeners on 127.0.0.1.
fn listeners() -> Vec<SocketAddr> {
    let sockets: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let listening = |line: &str| -> Option<SocketAddr> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = words.get(1)?.split_once(':')?;
        let ours = sockets.contains(&format!("socket:[{}]", words.get(9)?));
        let port = u16::from_str_radix(port, 16).ok()?;
        (ours && ip == "0100007F" && words[3] == "0A").then(|| ([127, 0, 0, 1], port).into())
    };
    table.lines().filter_map(listening).collect()
}

#[test]
fn strangers_are_dropped_and_disturb_nobody_while_the_job_forms_and_after() {
    // They come to whatever listens in the process.
    if !support::alone("strangers_are_dropped_and_disturb_nobody_while_the_job_forms_and_after") {
        return;
    }
    let place = place();
    std::thread::scope(|scope| {
        let first = job(&place, 0, 2);
        let host = scope.spawn(move || connect_as(&first, "node 0"));
        let at = address(&place);
        let silent: Vec<TcpStream> = (0..100).map(|_| stranger(at)).collect();
        let mut partial = stranger(at);
        partial.write_all(b"ANTI").unwrap();
        scan(at);
        let guest = connect_as(&job(&place, 1, 2), "node 1");
        let ends = works(vec![host.join().unwrap(), guest]);
        assert!(TcpStream::connect(at).is_err(), "the rendezvous is still open");
        // The same at the doors of the formed mesh.
        let doors = listeners();
        assert!(doors.len() >= 2, "{doors:?}");
        let half_open: Vec<TcpStream> =
            doors.iter().map(|door| TcpStream::connect(door).unwrap()).collect();
        for door in doors {
            for bytes in GARBAGE {
                let _ = TcpStream::connect(door).unwrap().write_all(bytes);
            }
        }
        works(ends.into_iter().map(Ok).collect());
        drop((silent, partial, half_open));
    });
}

/// Passes bytes between a guest and rank 0, and keeps what the guest said.
fn record(listener: &TcpListener, host: SocketAddr) -> Vec<u8> {
    let (mut guest, _) = listener.accept().unwrap();
    let mut host = stranger(host);
    let mut back = (host.try_clone().unwrap(), guest.try_clone().unwrap());
    let answers = std::thread::spawn(move || {
        let _ = std::io::copy(&mut back.0, &mut back.1);
        let _ = back.1.shutdown(std::net::Shutdown::Write);
    });
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(got @ 1..) = guest.read(&mut buffer) {
        said.extend(&buffer[..got]);
        if host.write_all(&buffer[..got]).is_err() {
            break;
        }
    }
    let _ = host.shutdown(std::net::Shutdown::Write);
    answers.join().unwrap();
    said
}

#[test]
fn a_replayed_guest_is_turned_away() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Place::parse(&listener.local_addr().unwrap().to_string()).unwrap().0;
    let (first, second) = (place(), place());
    let said = std::thread::scope(|scope| {
        let said = scope.spawn(|| record(&listener, address(&first)));
        drop(works(join_all(&[job(&first, 0, 2), job(&proxy, 1, 2)])));
        said.join().unwrap()
    });
    assert!(said.len() > 104, "hello, proof and card: {} bytes", said.len());
    std::thread::scope(|scope| {
        let host = scope.spawn(|| connect_as(&job(&second, 0, 2), "node 0"));
        let mut replay = stranger(address(&second));
        let _ = replay.write_all(&said);
        let mut answer = Vec::new();
        let _ = replay.read_to_end(&mut answer);
        // The challenge, and at most the verdict that it proved nothing.
        assert!(answer.len() <= 104 && !answer[52..].starts_with(b"ANTIPHON\x02\x00\x04\x00"));
        // Rank 1 is not taken: the true one gets in.
        let guest = connect_as(&job(&second, 1, 2), "node 1");
        works(vec![host.join().unwrap(), guest]);
    });
}

/// A path of this test's own, without a file; gone with whatever is there in the end.
struct Path(PathBuf);

impl Path {
    fn new(name: &str) -> Path {
        let path = std::env::temp_dir().join(format!("antiphon-{name}-{}", std::process::id()));
        Path(path)
    }

    fn place(&self) -> Place {
        Place::File(self.0.clone())
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What rank 0 of a job that nobody joins writes.
fn note(path: &Path, secret: Secret) -> String {
    let alone = Rendezvous { timeout: SHORT, secret, ..job(&path.place(), 0, 2) };
    let alone = Rendezvous { interface: Some("127.0.0.1".to_owned()), ..alone };
    std::thread::scope(|scope| {
        let host = scope.spawn(move || connect(&alone).map(drop).unwrap_err());
        let until = Instant::now() + PATIENCE;
        let text = loop {
            if let Ok(text) = std::fs::read_to_string(&path.0) {
                break text;
            }
            assert!(Instant::now() < until && !host.is_finished(), "no file at {:?}", path.0);
        };
        let mode = std::fs::metadata(&path.0).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        host.join().unwrap();
        text
    })
}

#[test]
fn ranks_meet_by_a_file_whatever_earlier_jobs_left_there() {
    let (path, other) = (Path::new("meet"), Path::new("strange"));
    let (dead, strange) = std::thread::scope(|scope| {
        let dead = scope.spawn(|| note(&path, secret()));
        let strange = note(&other, Secret::random().unwrap());
        (dead.join().unwrap(), strange)
    });
    assert!(!path.0.exists() && !other.0.exists(), "rank 0 gave up and left its file");
    // One where something listens that is no rank 0.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let misled =
        dead.replacen(dead.lines().nth(1).unwrap(), &listener.local_addr().unwrap().to_string(), 1);
    for stale in [Some(&*dead), Some(&*strange), Some(&*misled), Some("garbage"), Some(""), None] {
        if let Some(stale) = stale {
            std::fs::write(&path.0, stale).unwrap();
        }
        let interface = Some("127.0.0.1".to_owned());
        let job = |rank| Rendezvous { interface: interface.clone(), ..job(&path.place(), rank, 3) };
        works(join_all(&[job(2), job(1), job(0)]).into_iter().rev().collect());
        assert!(!path.0.exists(), "the file stayed behind");
    }
    // On the guest's side the stale file is the hint.
    std::fs::write(&path.0, &strange).unwrap();
    let timeout = Duration::from_millis(100);
    let late = Rendezvous { timeout, ..job(&path.place(), 1, 2) };
    let text = connect(&late).map(drop).unwrap_err().to_string();
    assert!(
        text.contains("from rank 0;") && text.contains("was not written with this secret"),
        "{text}"
    );
}

#[test]
fn an_id_brings_address_and_secret_and_is_good_for_one_job() {
    let id = UniqueId::create(Some("lo")).unwrap();
    let text = id.to_string();
    let place = Place::parse(&text).unwrap().0;
    let open = |rank| Rendezvous { secret: Secret::open(), ..job(&place, rank, 2) };
    drop(works(join_all(&[open(0), open(1)])));
    let id = UniqueId::create(None).unwrap();
    id.retire();
    let timeout = Duration::from_millis(100);
    let late = Rendezvous { timeout, ..job(&Place::Id(id), 1, 2) };
    let text = connect(&late).map(drop).unwrap_err().to_string();
    assert!(text.contains("within 100ms from rank 0; nobody listens at"), "{text}");
    let lost = Rendezvous { timeout: Duration::MAX, search: timeout, ..late };
    let error = connect(&lost).map(drop).unwrap_err();
    assert!(matches!(error, BootstrapError::Unmet { .. }), "{error}");
    let text = error.to_string();
    for part in ["cannot meet at ", "who answers for 100ms; nobody listens", "keep the process"] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

#[test]
fn interfaces_are_checked_and_shown_to_the_others() {
    let (place, interface) = Place::parse(&format!("lo:127.0.0.1:{}", free_port())).unwrap();
    let with = |interface: Option<&str>, rank| Rendezvous {
        interface: interface.map(str::to_owned),
        ..job(&place, rank, 2)
    };
    let text = connect(&with(Some("ib7"), 0)).map(drop).unwrap_err().to_string();
    assert!(text.contains("\"ib7\"") && text.contains("lo (127.0.0.1)"), "{text}");
    let ends = works(join_all(&[with(interface.as_deref(), 0), with(Some("127."), 1)]));
    for end in &ends {
        for rank in 0..2 {
            let peer = end.peer(rank).unwrap();
            assert_eq!(peer.address, Some([127, 0, 0, 1].into()));
            assert_eq!(peer.node, rank);
        }
    }
    let far = Place::parse("192.0.2.77:4000").unwrap().0;
    let text = connect(&job(&far, 0, 2)).map(drop).unwrap_err().to_string();
    assert!(text.contains("192.0.2.77") && text.contains("this host has"), "{text}");
}

#[test]
fn names_are_looked_up() {
    let place = Place::Address { host: "localhost".to_owned(), port: free_port() };
    works(join_all(&[job(&place, 1, 2), job(&place, 0, 2)]).into_iter().rev().collect());
    // What a rank is reached by may be elsewhere.
    let other = antiphon_transport::interface::default_address().unwrap().to_string();
    let jobs = [0, 1].map(|rank| {
        let interface = Some(other.clone());
        Rendezvous { interface, listen_everywhere: true, ..job(&place, rank, 2) }
    });
    works(join_all(&jobs));
    let none = Some("no-such-interface".to_owned());
    let refused = Rendezvous { interface: none, listen_everywhere: true, ..job(&place, 0, 2) };
    let text = connect(&refused).map(drop).unwrap_err().to_string();
    assert!(text.contains("\"no-such-interface\": this host has"), "{text}");
    let nowhere = Place::Address { host: "no-such-host.invalid".to_owned(), port: 9 };
    let timeout = Duration::from_millis(100);
    let lost = Rendezvous { timeout, ..job(&nowhere, 1, 2) };
    let text = connect(&lost).map(drop).unwrap_err().to_string();
    assert!(text.contains("\"no-such-host.invalid\" cannot be looked up"), "{text}");
    let alone = Rendezvous { timeout: Duration::from_millis(400), ..job(&place, 1, 2) };
    let text = connect(&alone).map(drop).unwrap_err().to_string();
    for part in ["nobody listens at ", ", where \"localhost\" leads from here: see whether rank 0"]
    {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

#[test]
fn hosts_make_nodes_by_proof() {
    let hosts = ["b", "a", "b", "c", "a"];
    let place = place();
    let ends: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(hosts)
            .map(|(rank, host)| {
                let job = job(&place, rank, 5);
                scope.spawn(move || connect_as(&job, host))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for end in works(ends) {
        let nodes: Vec<u32> = (0..5).map(|rank| end.node_of(rank).unwrap()).collect();
        assert_eq!(nodes, [0, 1, 0, 2, 1]);
    }
}

#[test]
fn descriptors_do_not_leave_the_node() {
    let ends = support::tcp_two_nodes(3, PATIENCE);
    let null = || vec![std::fs::File::open("/dev/null").unwrap().into()];
    let message = || antiphon_bootstrap::Message { descriptors: null(), ..Default::default() };
    let error = ends[0].send(1, message()).unwrap_err();
    assert!(
        error.to_string().contains("rank 1 (pid ") && error.to_string().contains("another node")
    );
    let recorder = support::Recorder::new();
    ends[2].subscribe(0, recorder.clone()).unwrap();
    ends[0].send(2, message()).unwrap();
    recorder.wait_for(1);
    assert_eq!(recorder.descriptors().len(), 1);
}

#[test]
fn impossible_arguments_are_refused() {
    for (rank, world) in [(0, 0), (2, 2), (u32::MAX, 1)] {
        let error = connect(&job(&place(), rank, world)).map(drop).unwrap_err();
        assert_eq!(error, BootstrapError::BadShape { rank, world });
    }
    drop(works(vec![connect(&job(&place(), 0, 1))]));
}

#[test]
fn both_sides_may_open_a_link_at_once() {
    // Neither is rank 0, so that none of these links stands yet.
    for _ in 0..20 {
        let ends = support::tcp_many_nodes(5, PATIENCE);
        let recorders: Vec<_> = ends.iter().map(|_| support::Recorder::new()).collect();
        for (end, recorder) in ends.iter().zip(&recorders) {
            end.subscribe(0, recorder.clone()).unwrap();
        }
        std::thread::scope(|scope| {
            for end in &ends {
                scope.spawn(move || {
                    for tag in 0..10 {
                        for to in (0..5).filter(|&to| to != end.rank()) {
                            let message = antiphon_bootstrap::Message { tag, ..Default::default() };
                            end.send(to, message).unwrap();
                        }
                    }
                });
            }
        });
        for recorder in &recorders {
            let mut next = [0; 5];
            for event in recorder.wait_for(40) {
                let support::Event::Message { from, tag, .. } = event else { panic!("{event:?}") };
                assert_eq!(tag, next[from as usize], "from rank {from}");
                next[from as usize] += 1;
            }
        }
        assert!(ends.iter().all(|end| end.check().is_ok()));
    }
}
