//! Strangers, wrong keys, recordings, cut connections: what happens on real sockets when things go wrong.

use super::address::Address;
use super::protocol::hello::{HELLO, Hello, PROOF, REPLY};
use super::{Options, TcpDriver};
use crate::WireError;
use crate::wire::{Link, Opening, Posted, Registration, Settings, Unit, Wire, WireDriver};
use antiphon_hal::{Backend, Memory, driver};
use rustix::io::Errno;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Nothing takes that long, also on a busy machine.
const LONG: Duration = Duration::from_secs(20);

fn wire(rank: u32, key: u8, patience: Duration) -> Arc<dyn Wire> {
    let options = Options { connections: 2, patience, ..Options::default() };
    let settings = Settings::new(rank, [key; 32]).with_interface(Some("127.0.0.1".to_owned()));
    TcpDriver::new(options).open(&settings).unwrap()
}

fn address(opening: &dyn Opening) -> Address {
    Address::read(&opening.address()).unwrap()
}

/// An opening of rank 0, which dials, and one of rank 1, which waits.
fn openings(zero: &Arc<dyn Wire>, one: &Arc<dyn Wire>) -> [Box<dyn Opening>; 2] {
    [zero.open(1).unwrap(), one.open(0).unwrap()]
}

/// Makes progress on all links until `done`.
fn until(links: &[&Arc<dyn Link>], what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        for link in links {
            link.progress().unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        assert!(start.elapsed() < LONG, "waited in vain: {what}");
        thread::yield_now();
    }
}

/// Makes progress until the link is lost; the reason.
fn lost(link: &Arc<dyn Link>) -> String {
    let start = Instant::now();
    loop {
        match link.progress() {
            Err(error @ WireError::Lost { .. }) => return error.to_string(),
            Err(error) => panic!("{error}"),
            Ok(_) => assert!(start.elapsed() < LONG, "the link is not lost: {link:?}"),
        }
        thread::yield_now();
    }
}

/// A memory of rank 1 that rank 0 signals.
struct Counter(Arc<dyn Memory>, Registration);

impl Counter {
    fn new(one: &Arc<dyn Wire>) -> Self {
        let memory = driver(Backend::Host).unwrap().open(0).unwrap().allocate(64).unwrap();
        let registration = one.register(&memory).unwrap();
        Counter(memory, registration)
    }

    /// Signals over a link, and waits until it is there.
    fn works(&self, zero: &Arc<dyn Link>, one: &Arc<dyn Link>, value: u64) {
        zero.accept(self.1.region, self.1.bytes, &self.1.blob).unwrap();
        assert_eq!(zero.signal(self.1.region, 0, value).unwrap(), Posted::Queued);
        // SAFETY: an aligned word inside the memory.
        let counter = unsafe { &*self.0.address().cast::<AtomicU64>() };
        until(&[zero, one], "a signal", || counter.load(Ordering::Acquire) == value);
    }
}

#[test]
fn without_an_interface_the_wire_goes_by_where_the_ranks_met() {
    let settings = Settings::new(0, [1; 32]);
    let at = |settings: &Settings| TcpDriver::default().open(settings).unwrap().describe();
    for met in ["127.0.0.1", "::1"] {
        let Ok(listener) = TcpListener::bind((met, 0)) else { continue };
        let listens = listener.local_addr().unwrap().ip();
        let text = at(&settings.clone().with_met(Some(listens)));
        let expected = SocketAddr::new(listens, 0).to_string();
        assert!(text.contains(expected.trim_end_matches('0')), "{text}");
        let asked = settings.clone().with_met(Some(listens));
        let text = at(&asked.with_interface(Some("127.0.0.0/8".to_owned())));
        assert!(text.contains("127.0.0.1:"), "{text}");
    }
}

#[test]
fn durations_may_be_of_any_length() {
    let (patience, silence) = (Duration::MAX, Duration::MAX);
    let options = Options { patience, silence, ..Options::default() };
    let wire = |rank| {
        let settings = Settings::new(rank, [1; 32]).with_interface(Some("127.0.0.1".to_owned()));
        TcpDriver::new(options.clone()).open(&settings).unwrap()
    };
    let (zero, one) = (wire(0), wire(1));
    let counter = Counter::new(&one);
    let [from_zero, from_one] = openings(&zero, &one);
    let (at_zero, at_one) = (from_zero.address(), from_one.address());
    let (zero, one) = (from_zero.connect(&at_one).unwrap(), from_one.connect(&at_zero).unwrap());
    counter.works(&zero, &one, 7);
}

#[test]
fn sides_with_different_keys_do_not_meet_and_say_why() {
    let (zero, one) = (wire(0, 1, LONG), wire(1, 2, Duration::from_secs(10)));
    let [from_zero, from_one] = openings(&zero, &one);
    let (at_zero, at_one) = (from_zero.address(), from_one.address());
    let (zero, one) = (from_zero.connect(&at_one).unwrap(), from_one.connect(&at_zero).unwrap());
    let start = Instant::now();
    let told = loop {
        one.progress().unwrap();
        if let Err(error) = zero.progress() {
            break error.to_string();
        }
        assert!(start.elapsed() < LONG);
    };
    assert!(told.contains("rank 1") && told.contains("key"), "{told}");
    let told = lost(&one);
    let named = address_of(&at_one).to_string();
    for word in ["rank 0", "within 10s", "before it had proven the communicator's key", &named] {
        assert!(told.contains(word), "no {word} in: {told}");
    }
}

fn address_of(bytes: &[u8]) -> SocketAddr {
    Address::read(bytes).unwrap().listens
}

#[test]
fn a_peer_that_is_not_there_or_never_comes_is_told_with_its_address() {
    let zero = wire(0, 1, Duration::from_millis(300));
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let there = Address { rank: 1, stripes: 2, token: [1; 16], listens: gone };
    let told = lost(&zero.open(1).unwrap().connect(&there.bytes()).unwrap());
    assert!(told.contains(&gone.to_string()) && told.contains("refused"), "{told}");

    // One that takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = Address { listens: silent.local_addr().unwrap(), ..there };
    let told = lost(&zero.open(1).unwrap().connect(&there.bytes()).unwrap());
    assert!(told.contains("did not answer within 300ms"), "{told}");

    let one = wire(1, 1, Duration::from_millis(300));
    let caller = Address { rank: 0, ..there };
    let told = lost(&one.open(0).unwrap().connect(&caller.bytes()).unwrap());
    assert!(told.contains("did not connect to 127.0.0.1:") && told.contains("300ms"), "{told}");
}

#[test]
fn what_answers_in_another_version_or_language_is_named() {
    let zero = wire(0, 1, LONG);
    let mut answer = [0; REPLY];
    answer[..8].copy_from_slice(b"antiwire");
    answer[8] = 77;
    for (answer, words) in [(answer, "version 77, this one 1"), ([0x48; REPLY], "not a TCP wire")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listens = listener.local_addr().unwrap();
        let peer = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.read_exact(&mut [0; HELLO]).unwrap();
            socket.write_all(&answer).unwrap();
            // Until the other side has gone.
            let _ = socket.read(&mut [0]);
        });
        let there = Address { rank: 1, stripes: 1, token: [1; 16], listens };
        let link = zero.open(1).unwrap().connect(&there.bytes()).unwrap();
        let told = lost(&link);
        assert!(told.contains(words), "{told}");
        drop(link);
        peer.join().unwrap();
    }
}

#[test]
fn strangers_are_turned_away_while_links_come_up() {
    let (zero, one) = (wire(0, 1, LONG), wire(1, 1, LONG));
    let counter = Counter::new(&one);
    let [from_zero, from_one] = openings(&zero, &one);
    let there = address(&*from_one);
    let token = there.token;
    let door = there.listens;
    let (at_zero, at_one) = (from_zero.address(), from_one.address());
    let one = from_one.connect(&at_zero).unwrap();
    // More than are waited for: silent ones, garbage, half a hello, and a hello with the right token but no key.
    let hello =
        Hello { ranks: [0, 1], tokens: [[7; 16], token], stripe: 0, stripes: 2, nonce: [1; 32] };
    let mut strangers: Vec<TcpStream> = Vec::new();
    for number in 0..400 {
        let mut stranger = TcpStream::connect(door).unwrap();
        let _ = match number % 5 {
            0 => Ok(()),
            1 => stranger.write_all(b"GET / HTTP/1.1\r\nHost: antiphon\r\n\r\n"),
            2 => stranger.write_all(&hello.bytes()[..50]),
            3 => stranger.write_all(&hello.bytes()),
            _ => stranger.write_all(&[&hello.bytes()[..], &[9; PROOF]].concat()),
        };
        strangers.push(stranger);
        one.progress().unwrap();
    }
    let zero = from_zero.connect(&at_one).unwrap();
    counter.works(&zero, &one, 5);
    // Those that showed themselves to be wrong were closed, and of the others no more than a bounded number is kept.
    let (mut open, mut claiming) = (0, 0);
    for (number, stranger) in strangers.iter_mut().enumerate() {
        stranger.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut bytes = [0; REPLY + 1];
        let mut rest = &mut bytes[..];
        let closed = loop {
            match stranger.read(rest) {
                Ok(0) => break true,
                Ok(some) => rest = &mut rest[some..],
                Err(error) => break error.kind() == ErrorKind::ConnectionReset,
            }
        };
        *(if number % 5 == 3 { &mut claiming } else { &mut open }) += usize::from(!closed);
        assert!(closed || number % 5 != 4, "stranger {number} had a wrong proof");
    }
    // Beside the two connections that are expected.
    assert!(open <= 64 + 2, "{open} strangers are still there");
    assert!(claiming <= 64, "{claiming} that claim to be the peer are still there");
}

/// All dial one before it looks at its door, with more connections than strangers are let in.
#[test]
fn many_peers_that_come_at_once_are_let_in() {
    const PEERS: u32 = 40;
    let last = wire(PEERS, 1, LONG);
    let counter = Counter::new(&last);
    let wires: Vec<_> = (0..PEERS).map(|rank| wire(rank, 1, LONG)).collect();
    let (mut theirs, mut here) = (Vec::new(), Vec::new());
    for (rank, wire) in (0..PEERS).zip(&wires) {
        let (from, to) = (wire.open(PEERS).unwrap(), last.open(rank).unwrap());
        let (at, there) = (from.address(), to.address());
        theirs.push(from.connect(&there).unwrap());
        here.push(to.connect(&at).unwrap());
    }
    for link in &theirs {
        link.progress().unwrap();
    }
    for (value, (from, to)) in (1..).zip(theirs.iter().zip(&here)) {
        counter.works(from, to, value);
    }
}

/// Stands between a caller and a door, and writes down what the caller says.
struct Between {
    listens: SocketAddr,
    relay: thread::JoinHandle<Vec<(TcpStream, TcpStream, Vec<u8>)>>,
}

impl Between {
    /// Relays `connections` handshakes to `door`.
    fn new(door: SocketAddr, connections: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listens = listener.local_addr().unwrap();
        let relay = thread::spawn(move || {
            let pass = |from: &mut TcpStream, to: &mut TcpStream, bytes: usize| {
                let mut said = vec![0; bytes];
                from.read_exact(&mut said).unwrap();
                to.write_all(&said).unwrap();
                said
            };
            let mut all = Vec::new();
            for _ in 0..connections {
                let (mut caller, _) = listener.accept().unwrap();
                let mut callee = TcpStream::connect(door).unwrap();
                let mut said = pass(&mut caller, &mut callee, HELLO);
                pass(&mut callee, &mut caller, REPLY);
                said.extend(pass(&mut caller, &mut callee, PROOF));
                all.push((caller, callee, said));
            }
            all
        });
        Between { listens, relay }
    }
}

#[test]
fn a_recorded_handshake_opens_nothing_and_a_cut_link_is_told_to_both() {
    let (wire_zero, wire_one) = (wire(0, 1, LONG), wire(1, 1, LONG));
    let [from_zero, from_one] = openings(&wire_zero, &wire_one);
    let there = address(&*from_one);
    let between = Between::new(there.listens, 2);
    let at_zero = from_zero.address();
    let seen = Address { listens: between.listens, ..there.clone() };
    let zero = from_zero.connect(&seen.bytes()).unwrap();
    let one = from_one.connect(&at_zero).unwrap();
    until(&[&zero, &one], "both handshakes", || between.relay.is_finished());
    let relayed = between.relay.join().unwrap();
    // Another link that waits keeps the door served, and lives on.
    let [other_zero, other_one] = openings(&wire_zero, &wire_one);
    let (at_other_zero, at_other_one) = (other_zero.address(), other_one.address());
    let other_one = other_one.connect(&at_other_zero).unwrap();
    for (_, _, said) in &relayed {
        let mut again = TcpStream::connect(there.listens).unwrap();
        again.write_all(said).unwrap();
        again.set_nonblocking(true).unwrap();
        let mut bytes = [0; 4 * REPLY];
        let mut rest = &mut bytes[..];
        until(&[&other_one, &one], "the recording to be refused", || match again.read(rest) {
            Ok(0) => true,
            Ok(some) => {
                rest = &mut std::mem::take(&mut rest)[some..];
                false
            }
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        });
    }
    for (caller, callee, _) in &relayed {
        caller.shutdown(Shutdown::Both).unwrap();
        callee.shutdown(Shutdown::Both).unwrap();
    }
    for (link, peer) in [(&zero, "rank 1"), (&one, "rank 0")] {
        let told = lost(link);
        assert!(told.contains(peer) && told.contains("127.0.0.1:"), "{told}");
        assert!(told.contains("closed") || told.contains("reset"), "{told}");
    }
    let other_zero = other_zero.connect(&at_other_one).unwrap();
    Counter::new(&wire_one).works(&other_zero, &other_one, 3);
}

#[test]
fn one_broken_connection_of_several_loses_the_link() {
    let (wire_zero, wire_one) = (wire(0, 1, LONG), wire(1, 1, LONG));
    let [from_zero, from_one] = openings(&wire_zero, &wire_one);
    let there = address(&*from_one);
    let between = Between::new(there.listens, 2);
    let at_zero = from_zero.address();
    let seen = Address { listens: between.listens, ..there };
    let zero = from_zero.connect(&seen.bytes()).unwrap();
    let one = from_one.connect(&at_zero).unwrap();
    until(&[&zero, &one], "both handshakes", || between.relay.is_finished());
    let relayed = between.relay.join().unwrap();
    let stripe = |said: &[u8]| Hello::read(said.first_chunk().unwrap()).unwrap().stripe;
    let (caller, ..) = relayed.iter().find(|(_, _, said)| stripe(said) == 1).unwrap();
    caller.shutdown(Shutdown::Both).unwrap();
    let device = driver(Backend::Host).unwrap().open(0).unwrap();
    let source = device.allocate(16 << 20).unwrap();
    zero.accept(7, source.len(), &[]).unwrap();
    let (from, to, bytes, unit) = (0, 0, source.len(), crate::Unit::Bytes);
    let write = crate::Write { source: &source, from, region: 7, to, bytes, unit };
    assert_eq!(zero.write(&write).unwrap(), Posted::Queued);
    let told = lost(&zero);
    assert!(told.contains("a connection broke"), "{told}");
}

#[test]
fn slow_strangers_are_turned_away_in_time() {
    let one = wire(1, 1, Duration::from_millis(200));
    let opening = one.open(0).unwrap();
    let there = address(&*opening);
    let mut slow = TcpStream::connect(there.listens).unwrap();
    slow.set_nonblocking(true).unwrap();
    let link = opening.connect(&Address { rank: 0, ..there.clone() }.bytes()).unwrap();
    let start = Instant::now();
    let mut links = vec![link];
    while !matches!(slow.read(&mut [0]), Ok(0)) {
        // One byte after the other, for as long as it is allowed.
        let _ = slow.write(b"a");
        if links.last().is_some_and(|link| link.progress().is_err()) {
            // Somebody must still serve the door.
            let next = one.open(0).unwrap();
            links.push(next.connect(&Address { rank: 0, ..there.clone() }.bytes()).unwrap());
        }
        assert!(start.elapsed() < LONG, "a slow stranger is still there");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn addresses_that_make_no_sense_are_refused() {
    let one = wire(1, 1, LONG);
    let right = address(&*wire(0, 1, LONG).open(1).unwrap());
    let other_rank = Address { rank: 5, ..right }.bytes();
    for address in [vec![], vec![0; 45], b"hello".to_vec(), vec![0xff; 4000], other_rank] {
        let refused = one.open(0).unwrap().connect(&address);
        assert!(matches!(refused, Err(WireError::Invalid { .. })), "{address:?}: {refused:?}");
    }
}

#[test]
fn an_end_closes_with_its_last_link() {
    let (zero, one) = (wire(0, 1, LONG), wire(1, 1, LONG));
    let counter = Counter::new(&one);
    let [from_zero, from_one] = openings(&zero, &one);
    let (at_zero, at_one) = (from_zero.address(), from_one.address());
    let (a, b) = (from_zero.connect(&at_one).unwrap(), from_one.connect(&at_zero).unwrap());
    drop((zero, one));
    counter.works(&a, &b, 1);
    assert!(TcpStream::connect(address_of(&at_one)).is_ok());
    drop(b);
    assert!(TcpStream::connect(address_of(&at_one)).is_err());
    assert!(lost(&a).contains("closed"));
}

#[test]
fn ends_need_an_interface_that_is_there_and_a_sane_number_of_connections() {
    let open = |interface: &str, connections| {
        let options = Options { connections, ..Options::default() };
        let settings = Settings::new(0, [0; 32]).with_interface(Some(interface.to_owned()));
        TcpDriver::new(options).open(&settings)
    };
    assert!(open("lo", 4).unwrap().describe().contains("127.0.0.1:"));
    for interface in ["no-such-thing", "192.0.2.77"] {
        let error = open(interface, 4).unwrap_err();
        assert!(matches!(error, WireError::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains(interface), "{error}");
    }
    for connections in [0, 33] {
        assert!(matches!(open("lo", connections), Err(WireError::Invalid { .. })));
    }
    let chosen = TcpDriver::default().open(&Settings::new(0, [0; 32])).unwrap();
    assert!(chosen.describe().starts_with("tcp at "), "{}", chosen.describe());
}

#[test]
fn who_cannot_listen_is_told_what_it_lacks() {
    for (errno, cure) in [
        (Errno::MFILE, "`ulimit -n`"),
        (Errno::NFILE, "`ulimit -n`"),
        (Errno::NOBUFS, "free memory"),
        (Errno::ACCESS, "permitted"),
        (Errno::ADDRNOTAVAIL, "an interface or address"),
    ] {
        let said = super::to_listen(&errno.into());
        assert!(said.contains(cure), "{errno}: {said}");
    }
}

#[test]
fn one_that_armed_is_woken_whoever_arms_besides() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let (wire_zero, wire_one) = (wire(0, 1, LONG), wire(1, 1, LONG));
    let [from_zero, from_one] = openings(&wire_zero, &wire_one);
    let (at_zero, at_one) = (from_zero.address(), from_one.address());
    let (zero, one) = (from_zero.connect(&at_one).unwrap(), from_one.connect(&at_zero).unwrap());
    let counter = Counter::new(&wire_one);
    counter.works(&zero, &one, 1);
    let arm = |link: &Arc<dyn Link>| {
        until(&[&zero, &one], "the link to be armed", || link.arm().unwrap());
    };
    let region = counter.1.region;
    let elsewhere = |work: &(dyn Fn() + Sync)| {
        thread::scope(|scope| scope.spawn(work).join().unwrap());
    };
    let post =
        |value| elsewhere(&|| assert_eq!(zero.signal(region, 0, value).unwrap(), Posted::Queued));
    arm(&zero);
    post(2);
    // Another thread sends it, arms, and is awake again for a reason of its own.
    elsewhere(&|| {
        arm(&zero);
        zero.progress().unwrap();
    });
    post(3);
    let descriptor = zero.descriptor().unwrap();
    let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
    let told = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(told, 1, "the first to arm is not told of the last post");
}

/// A post that comes while its link is being lost is refused, or given up with the others: nothing keeps its memory.
#[test]
fn no_post_stays_in_a_link_that_is_lost() {
    let (zero, one) = (wire(0, 1, LONG), wire(1, 1, LONG));
    let device = driver(Backend::Host).unwrap().open(0).unwrap();
    let (source, target) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    let _registered = zero.register(&source).unwrap();
    let Registration { region, bytes, blob, .. } = &one.register(&target).unwrap();
    let write = crate::Write {
        source: &source,
        from: 0,
        region: *region,
        to: 0,
        bytes: 8,
        unit: Unit::Bytes,
    };
    for round in 0..200 {
        let [to_one, to_zero] = openings(&zero, &one);
        let link = to_one.connect(&to_zero.address()).unwrap();
        link.accept(*region, *bytes, blob).unwrap();
        let before = Arc::strong_count(&source);
        thread::scope(|scope| {
            scope.spawn(|| while link.write(&write).is_ok() {});
            while link.posted() == 0 {
                thread::yield_now();
            }
            link.stop();
        });
        assert_eq!(Arc::strong_count(&source), before, "round {round}");
    }
}

/// Ranks that wait for each other hear from it whether anything but signals comes.
#[test]
fn what_a_link_carries_grows_within_a_write_and_by_no_signal() {
    const BYTES: u64 = 32 << 20;
    let (wire_zero, wire_one) = (wire(0, 1, LONG), wire(1, 1, LONG));
    let [from_zero, from_one] = openings(&wire_zero, &wire_one);
    let (at_zero, at_one) = (from_zero.address(), from_one.address());
    let (zero, one) = (from_zero.connect(&at_one).unwrap(), from_one.connect(&at_zero).unwrap());
    Counter::new(&wire_one).works(&zero, &one, 1);
    assert_eq!([zero.carried(), one.carried()], [0; 2]);
    let device = driver(Backend::Host).unwrap().open(0).unwrap();
    let [source, target] = [(); 2].map(|()| device.allocate(BYTES).unwrap());
    let Registration { region, bytes, blob, .. } = &wire_one.register(&target).unwrap();
    zero.accept(*region, *bytes, blob).unwrap();
    let (from, region, to) = (0, *region, 0);
    let write = crate::Write { source: &source, from, region, to, bytes: BYTES, unit: Unit::Bytes };
    assert_eq!(zero.write(&write).unwrap(), Posted::Queued);
    let mut seen = [Vec::new(), Vec::new()];
    until(&[&zero, &one], "a write", || {
        for (seen, link) in seen.iter_mut().zip([&zero, &one]) {
            seen.push(link.carried());
        }
        zero.completed().unwrap() == zero.posted()
    });
    for (seen, link) in seen.iter_mut().zip([&zero, &one]) {
        assert!(seen.is_sorted() && link.carried() == BYTES);
        seen.dedup();
        assert!(seen.len() > 3, "all at once: {seen:?}");
    }
}
