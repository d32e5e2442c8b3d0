//! Jobs over network namespaces: two hosts of two ranks with nothing between them but a cable whose bytes are counted,
//! and what happens when it is cut, when a rank dies, and when strangers knock.

use antiphon::plan::builder::{Block, Channel, Chunks, ProgramBuilder};
use antiphon::plan::model::{Collective, Plan};
use antiphon_tests::Folder;
use antiphon_tests::harness::plans::json;
use antiphon_tests::net::{Finished, Network, Process, Tap, listening_ports, pester, replay, skip};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_antiphon");
const SECRET: &str = "a secret of the tests of namespaces";
const PORT: u16 = 29500;
/// For a job to form and run on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);
/// For ranks to notice that another is gone, and to say so: silence counts after ten seconds.
const NOTICE: Duration = Duration::from_secs(30);

const HOSTS: usize = 2;
const RANKS_PER_HOST: usize = 2;
const RANKS: usize = HOSTS * RANKS_PER_HOST;

/// The hosts, or a line that says why there are none.
fn network() -> Option<Network> {
    Network::build(HOSTS).map_err(|reason| skip("jobs over network namespaces", &reason)).ok()
}

/// One rank's command, as torchrun would start it.
fn rank(network: &Network, rank: usize, arguments: &[&str]) -> Command {
    let mut command = network.command(rank / RANKS_PER_HOST, PROGRAM);
    command
        .args(arguments)
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", RANKS.to_string())
        .env("LOCAL_RANK", (rank % RANKS_PER_HOST).to_string())
        .env("LOCAL_WORLD_SIZE", RANKS_PER_HOST.to_string())
        .env("MASTER_ADDR", network.address(0).to_string())
        .env("MASTER_PORT", (PORT - 1).to_string())
        .env("ANTIPHON_SECRET", SECRET)
        .env("ANTIPHON_TIMEOUT", "60s");
    command
}

fn start(network: &Network, arguments: &[&str]) -> Vec<Process> {
    (0..RANKS).map(|number| Process::start(&mut rank(network, number, arguments))).collect()
}

fn finish(ranks: Vec<Process>, limit: Duration) -> Vec<Finished> {
    let deadline = Instant::now() + limit;
    let left = || deadline.saturating_duration_since(Instant::now());
    ranks.into_iter().map(|rank| rank.finish(left())).collect()
}

/// A job that runs until it is disturbed.
const LONG: [&str; 8] =
    ["bench", "allreduce", "--size", "64K", "--iters", "10000000", "--timeout", "20s"];

/// Waits until a job is under way: its ranks move bytes over the cable at a rate that forming it never does.
fn await_traffic(network: &Network, ranks: &mut [Process]) {
    let deadline = Instant::now() + LIMIT;
    let before = network.traffic(1).sent;
    while network.traffic(1).sent < before + (8 << 20) {
        let all_run = ranks.iter().all(Process::runs);
        assert!(all_run && Instant::now() < deadline, "the job does not get under way");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What every rank but those in `except` says after a disturbance contains one of the words, within the limit.
fn all_say(finished: &[Finished], except: &[usize], words: &[&str]) {
    for (rank, finished) in finished.iter().enumerate() {
        if except.contains(&rank) {
            continue;
        }
        let failed = finished.status.is_some_and(|status| status.code().is_some_and(|c| c != 0));
        assert!(failed, "rank {rank} ends by itself with an error: {finished:?}");
        let named = words.iter().any(|word| finished.said.contains(word));
        assert!(named, "rank {rank}: one of {words:?} in: {}", finished.said);
    }
}

#[test]
fn every_collective_is_right_and_crosses_the_cable() {
    let Some(network) = network() else { return };
    const ITERATIONS: u64 = 5;
    const WARMUP: u64 = 5;
    const CHECKED: u64 = 4;
    const SIZE: u64 = 1 << 20;
    // The least that each host has to hear from the other in one launch, by what it cannot know otherwise: in parts of
    // the size.
    for (collective, numerator, denominator) in
        [("allreduce", 1, 1), ("allgather", 1, 2), ("reducescatter", 1, 2), ("alltoall", 1, 1)]
    {
        let iterations = ITERATIONS.to_string();
        let arguments = ["bench", collective, "--size", "1M", "--iters", &iterations];
        let before: Vec<_> = (0..HOSTS).map(|host| network.traffic(host)).collect();
        let finished = finish(start(&network, &arguments), LIMIT);
        for (rank, finished) in finished.iter().enumerate() {
            assert!(finished.succeeded(), "{collective}, rank {rank}: {finished:?}");
        }
        let printed = &finished[0].printed;
        assert!(printed.contains("started by torchrun on 2 nodes"), "{printed}");
        assert!(printed.contains("# wrong elements: 0 OK"), "{printed}");
        let least = (ITERATIONS + WARMUP + CHECKED) * SIZE * numerator / denominator;
        for (host, before) in before.iter().enumerate() {
            let received = network.traffic(host).received - before.received;
            assert!(received >= least, "{collective}: host {host} got {received}, not {least}");
            // Twice for packets, a tenth for headers, and the same again of room for answers.
            let most = 5 * least + (8 << 20);
            assert!(received <= most, "{collective}: host {host} got {received}, over {most}");
        }
    }
    assert_eq!(network.processes(), Vec::<i32>::new(), "nothing runs on");
}

/// A channel of the kind that two ranks need.
struct Way {
    channel: Channel,
    by_port: bool,
}

impl Way {
    fn new(p: &ProgramBuilder, a: usize, b: usize) -> Self {
        let by_port = a / RANKS_PER_HOST != b / RANKS_PER_HOST;
        Way { channel: if by_port { p.port(a, b) } else { p.channel(a, b) }, by_port }
    }

    fn send(&self, tb: &Block<'_>, from: Chunks, to: Chunks) {
        if self.by_port {
            tb.put_with_signal(&self.channel, from, to);
        } else {
            tb.put(from, to);
            tb.signal(&[self.channel]);
        }
    }

    fn flush(&self, tb: &Block<'_>) {
        if self.by_port {
            tb.flush(&[self.channel]);
        }
    }
}

/// Rank 0 sends its input to all others, each of which says first that it is there.
fn broadcast() -> Plan {
    let p = ProgramBuilder::new("broadcast", Collective::Broadcast, RANKS);
    let ways: Vec<Way> = (1..RANKS).map(|peer| Way::new(&p, 0, peer)).collect();
    let root = p.block(0);
    root.copy(p.input(0).all(), p.output(0).all());
    for (peer, way) in (1..).zip(&ways) {
        root.wait(&[way.channel]);
        way.send(&root, p.input(0).all(), p.output(peer).all());
        let tb = p.block(peer);
        tb.signal(&[way.channel]);
        tb.wait(&[way.channel]);
    }
    ways.iter().for_each(|way| way.flush(&root));
    p.build().unwrap()
}

/// All others send their input to rank 0, which says first that there is room.
fn reduce() -> Plan {
    let p = ProgramBuilder::new("reduce", Collective::Reduce, RANKS);
    let ways: Vec<Way> = (1..RANKS).map(|peer| Way::new(&p, 0, peer)).collect();
    let (root, slots) = (p.block(0), p.scratch(0, RANKS - 1));
    ways.iter().for_each(|way| root.signal(&[way.channel]));
    for (peer, way) in (1..).zip(&ways) {
        let tb = p.block(peer);
        tb.wait(&[way.channel]);
        way.send(&tb, p.input(peer).all(), slots.chunk(peer - 1));
        way.flush(&tb);
        root.wait(&[way.channel]);
    }
    let inputs = std::iter::once(p.input(0).all()).chain((0..RANKS - 1).map(|at| slots.chunk(at)));
    root.reduce(&inputs.collect::<Vec<_>>(), p.output(0).all());
    p.build().unwrap()
}

/// Everyone sends its input to the next rank, which says first that it is there.
fn sendrecv() -> Plan {
    let p = ProgramBuilder::new("sendrecv", Collective::SendRecv, RANKS);
    let ways: Vec<Way> = (0..RANKS).map(|rank| Way::new(&p, rank, (rank + 1) % RANKS)).collect();
    for me in 0..RANKS {
        let (next, previous) = (&ways[me], &ways[(me + RANKS - 1) % RANKS]);
        let tb = p.block(me);
        tb.signal(&[previous.channel]);
        tb.wait(&[next.channel]);
        next.send(&tb, p.input(me).all(), p.output((me + 1) % RANKS).all());
        tb.wait(&[previous.channel]);
        next.flush(&tb);
    }
    p.build().unwrap()
}

#[test]
fn collectives_without_a_built_in_algorithm_over_hosts_run_from_plans() {
    let Some(network) = network() else { return };
    let folder = Folder::new(std::env::temp_dir(), "antiphon-namespaces").unwrap();
    for plan in [broadcast(), reduce(), sendrecv()] {
        let file = folder.join(&plan.name).with_extension("json");
        std::fs::write(&file, json(&plan)).unwrap();
        let before = network.traffic(1);
        let arguments =
            ["run", file.to_str().unwrap(), "--begin", "4K", "--end", "1M", "--factor", "16"];
        let finished = finish(start(&network, &arguments), LIMIT);
        for (rank, finished) in finished.iter().enumerate() {
            assert!(finished.succeeded(), "{}, rank {rank}: {finished:?}", plan.name);
        }
        let printed = &finished[0].printed;
        assert!(printed.contains("# wrong elements: 0 OK"), "{printed}");
        let traffic = network.traffic(1);
        let crossed = traffic.received + traffic.sent - before.received - before.sent;
        assert!(crossed >= 20 << 20, "{}: {crossed} bytes crossed", plan.name);
    }
}

#[test]
fn the_log_says_which_wire_goes_where_and_why() {
    let Some(network) = network() else { return };
    // So large that every rank has a link of its own, however many share a core.
    let arguments = ["bench", "allreduce", "--size", "1M"];
    let log = |number| {
        let mut command = rank(&network, number, &arguments);
        command.env("ANTIPHON_LOG", "debug");
        Process::start(&mut command)
    };
    for (rank, finished) in finish((0..RANKS).map(log).collect(), LIMIT).iter().enumerate() {
        assert!(finished.succeeded(), "rank {rank}: {finished:?}");
        let peer = (rank + RANKS_PER_HOST) % RANKS;
        let over = format!("rank {rank} writes to rank {peer} over the wire tcp: tcp from ");
        assert!(finished.said.contains(&over), "`{over}` in: {}", finished.said);
        let why = format!("rank {rank}: the wire to rank {peer} is tcp, of cost 100; not local: ");
        assert_eq!(finished.said.contains(&why), rank < peer, "{}", finished.said);
    }
}

#[test]
fn a_cut_cable_is_an_error_on_both_sides() {
    let Some(network) = network() else { return };
    let mut ranks = start(&network, &LONG);
    await_traffic(&network, &mut ranks);
    network.cut(1);
    let finished = finish(ranks, NOTICE + LIMIT);
    // Every rank names one of the other host.
    all_say(&finished, &[2, 3], &["rank 2", "rank 3"]);
    all_say(&finished, &[0, 1], &["rank 0", "rank 1"]);
    let words = ["is silent", "no answer within"];
    all_say(&finished, &[], &words);
    assert_eq!(network.processes(), Vec::<i32>::new(), "nothing runs on");
}

#[test]
fn a_killed_rank_is_named_by_all_others() {
    let Some(network) = network() else { return };
    for victim in [3, 0] {
        let mut ranks = start(&network, &LONG);
        await_traffic(&network, &mut ranks);
        ranks[victim].kill();
        let killed = Instant::now();
        let finished = finish(ranks, NOTICE);
        let took = killed.elapsed();
        all_say(&finished, &[victim], &[&format!("rank {victim}")]);
        println!("rank {victim} was killed: all others had ended after {took:?}");
    }
    assert_eq!(network.processes(), Vec::<i32>::new(), "nothing runs on");
}

#[test]
fn a_wrong_secret_is_named_and_lets_nobody_in() {
    let Some(network) = network() else { return };
    let begin = |number| {
        let mut command = rank(&network, number, &["bench", "allreduce", "--size", "4K"]);
        if number == 3 {
            command.env("ANTIPHON_SECRET", "another secret than all the others");
        }
        Process::start(command.env("ANTIPHON_TIMEOUT", "10s"))
    };
    let finished = finish((0..RANKS).map(begin).collect(), LIMIT);
    all_say(&finished, &[0, 1, 2], &["secret"]);
    all_say(&finished, &[3], &["rank 3"]);
    let said = &finished[0].said;
    assert!(said.contains("another secret"), "rank 0 says who was refused: {said}");
    let told = finished.iter().any(|finished| finished.said.contains(SECRET));
    assert!(!told, "no error holds the secret: {finished:?}");
}

#[test]
fn strangers_at_every_port_disturb_nobody() {
    let Some(network) = network() else { return };
    let iterations = ["bench", "allreduce", "--size", "64K", "--iters", "300"];
    // Rank 0 comes first, and has strangers before it has ranks.
    let mut ranks = vec![Process::start(&mut rank(&network, 0, &iterations))];
    let deadline = Instant::now() + LIMIT;
    while !network.on(0, listening_ports).contains(&PORT) {
        assert!(ranks[0].runs() && Instant::now() < deadline, "rank 0 listens");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Half-open ones among them, held until the job is over.
    let at_the_rendezvous = network.on(1, || pester(network.address(0), PORT));
    assert!(!at_the_rendezvous.is_empty(), "the rendezvous can be reached");
    ranks.extend((1..RANKS).map(|number| Process::start(&mut rank(&network, number, &iterations))));
    let mut later = Vec::new();
    while ranks.iter().any(Process::runs) {
        assert!(Instant::now() < deadline + LIMIT, "the job ends");
        // At most so many, so that the machine has time for the job.
        if later.len() < 200 {
            for host in 0..HOSTS {
                let ports = network.on(host, listening_ports);
                let from = HOSTS - 1 - host;
                let calls = || ports.iter().flat_map(|&port| pester(network.address(host), port));
                later.extend(network.on(from, || calls().collect::<Vec<_>>()));
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for (rank, finished) in finish(ranks, LIMIT).iter().enumerate() {
        assert!(finished.succeeded(), "rank {rank}: {finished:?}");
    }
    println!("{} connections of strangers, {} later", at_the_rendezvous.len(), later.len());
}

/// An eavesdropper on the cable says again what ranks said to each other: to those they said it to, and to all others.
#[test]
fn handshakes_that_were_recorded_open_nothing() {
    let Some(network) = network() else { return };
    // The most that a connection is told before it has proven the secret: a challenge and a refusal, of which a byte says
    // that it is one.
    const MOST: usize = 104;
    const REFUSAL: usize = 52 + 11;
    let tap = network.on(1, || Tap::open().expect("a tap on the cable"));
    let under_way = AtomicBool::new(false);
    let (mut ranks, recorded) = std::thread::scope(|scope| {
        let recorder = scope.spawn(|| tap.beginnings(|| under_way.load(Ordering::Acquire)));
        let mut ranks = start(&network, &LONG);
        await_traffic(&network, &mut ranks);
        under_way.store(true, Ordering::Release);
        (ranks, recorder.join().expect("the recorder"))
    });
    assert!(!recorded.is_empty(), "nothing was heard");
    let secret = |bytes: &[u8]| bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
    assert!(!recorded.iter().any(|beginning| secret(&beginning.said)), "the secret was heard");
    let (mut told, mut silent) = (0, 0);
    for host in 0..HOSTS {
        let ports = network.on(host, listening_ports);
        let address = network.address(host);
        let calls: Vec<_> = ports
            .iter()
            .flat_map(|&port| recorded.iter().map(move |beginning| (port, beginning)))
            .map(|(port, beginning)| (SocketAddr::new(address, port), &beginning.said))
            .collect();
        // All at once: some are not answered at all.
        let answers: Vec<_> = network.on(HOSTS - 1 - host, || {
            let calls = calls.iter().map(|(to, said)| {
                let (to, said) = (*to, (*said).clone());
                let host = std::thread::Builder::new();
                host.spawn(move || (to, replay(&said, to))).expect("a thread")
            });
            let calls: Vec<_> = calls.collect();
            calls.into_iter().map(|call| call.join().expect("a call")).collect()
        });
        for (to, answer) in answers {
            let answer = answer.unwrap_or_default();
            assert!(answer.len() <= MOST && !secret(&answer), "{to} told a stranger: {answer:?}");
            assert_ne!(answer.get(REFUSAL), Some(&0), "{to} lets a stranger in: {answer:?}");
            *(if answer.is_empty() { &mut silent } else { &mut told }) += 1;
        }
    }
    let heard = recorded.len();
    println!(
        "{heard} beginnings, replayed: {told} were asked for proof, {silent} were not answered"
    );
    assert!(told > 0, "no replay came as far as the handshake");
    // The job goes on as if nothing had been.
    await_traffic(&network, &mut ranks);
    drop(ranks);
}

#[test]
fn another_job_is_unharmed_by_a_cut_cable_elsewhere() {
    let (Some(broken), Some(whole)) = (network(), network()) else { return };
    let mut victim = start(&broken, &LONG);
    await_traffic(&broken, &mut victim);
    let other = start(&whole, &["bench", "allgather", "--size", "64K", "--iters", "300"]);
    broken.cut(0);
    for (rank, finished) in finish(other, LIMIT).iter().enumerate() {
        assert!(finished.succeeded(), "rank {rank}: {finished:?}");
    }
    let finished = finish(victim, NOTICE + LIMIT);
    assert!(finished.iter().all(|finished| !finished.succeeded()), "{finished:?}");
}
