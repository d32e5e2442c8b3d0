//! Ranks in processes of their own: the test binary starts itself again as each rank.
//!
//! A child is told by its environment what to do; without that its test passes at once.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use antiphon_bootstrap::tcp::{self, Place, Secret};
use antiphon_bootstrap::unix::{HOST_VARIABLE, Rendezvous, connect};
use antiphon_bootstrap::{Bootstrap, BootstrapError, Message, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Event, PATIENCE, Recorder, each_rank};

const ROLE: &str = "ANTIPHON_TEST_ROLE";

/// How long the children may take to meet. Who is through long before did not wait for it, on a busy machine too.
const MEETING: Duration = Duration::from_secs(60);

/// One rank in a process, which obeys lines and answers by lines.
struct Rank {
    child: Child,
    answers: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Rank {
    fn start(address: &str, rank: u32, world: u32) -> Rank {
        Rank::start_on(address, rank, world, "one node")
    }

    fn start_on(address: &str, rank: u32, world: u32, host: &str) -> Rank {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{address} {rank} {world}"))
            .env(HOST_VARIABLE, host)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        Rank { child, answers }
    }

    fn tell(&mut self, order: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{order}").unwrap();
    }

    /// The next answer; lines without the mark are the test harness's.
    fn hear(&mut self) -> String {
        loop {
            let line = self.answers.next().expect("the child ended without an answer").unwrap();
            if let Some((_, answer)) = line.split_once("ANSWER ") {
                return answer.to_owned();
            }
        }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(text: impl std::fmt::Display) {
    println!("ANSWER {text}");
}

/// Where the children live: obeys orders from its input.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let number = |at: usize| words[at].parse().unwrap();
    let (rank, world) = (number(1), number(2));
    let meet = || -> Result<Arc<dyn Bootstrap>> {
        let Some(place) = words[0].strip_prefix("tcp=") else {
            let address = words[0].into();
            return connect(&Rendezvous { address, rank, world, timeout: MEETING });
        };
        let place = Place::parse(place).unwrap().0;
        let job = tcp::Rendezvous::new(place, rank, world, Secret::random().unwrap());
        tcp::connect(&tcp::Rendezvous { timeout: MEETING, ..job })
    };
    let recorder = Recorder::new();
    let mut end = None;
    for order in std::io::stdin().lines() {
        let order = order.unwrap();
        let mesh = || -> &Arc<dyn Bootstrap> { end.as_ref().expect("joined") };
        if let Some(few) = order.strip_prefix("few ") {
            let open: Vec<u64> = std::fs::read_dir("/proc/self/fd")
                .unwrap()
                .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
                .collect();
            let mut free = (0..).filter(|number| !open.contains(number));
            // One of those that are open was for the folder.
            let current = free.nth(few.parse::<usize>().unwrap() - 1);
            setrlimit(Resource::Nofile, Rlimit { current, ..getrlimit(Resource::Nofile) }).unwrap();
            continue;
        }
        match &*order {
            "join" => match meet() {
                Ok(mesh) => {
                    mesh.subscribe(0, recorder.clone()).unwrap();
                    end = Some(mesh);
                    answer("joined");
                }
                Err(error) => answer(error),
            },
            "exchange" => match mesh().exchange(&std::process::id().to_le_bytes()) {
                Ok(parts) => answer(format!("{parts:?}")),
                Err(error) => answer(error),
            },
            "peers" => {
                let peers = (0..world).map(|rank| mesh().peer(rank).unwrap());
                let peers: Vec<_> = peers.map(|peer| (peer.pid, peer.same_process)).collect();
                answer(format!("{peers:?}"));
            }
            "hear" => match &recorder.wait_for(1)[0] {
                Event::Lost { peer, why } => answer(format!("lost rank {peer}: {why}")),
                other => answer(format!("{other:?}")),
            },
            "quiet" => answer(recorder.wait_for(0).len()),
            "odd" => {
                // A group of the ranks from 1 on.
                let members: Vec<u32> = (1..world).collect();
                let group = mesh().group(5, &members).unwrap();
                match group.exchange(&[rank as u8]) {
                    Ok(parts) => answer(format!("{:?}", parts.concat())),
                    Err(error) => answer(error),
                }
            }
            "say" => mesh().send(0, Message::default()).unwrap(),
            "hold" => {
                // A forked child that stays, as a data loader does, holds its parent's sockets open.
                // SAFETY: the child of this fork calls nothing but async-signal-safe functions.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    loop {
                        // SAFETY: pause has no preconditions.
                        unsafe { libc::pause() };
                    }
                }
                answer(pid);
            }
            "make" => answer(tcp::UniqueId::create(Some("127.0.0.1")).unwrap()),
            "leave" => {
                end = None;
                answer("left");
            }
            other => panic!("unknown order {other}"),
        }
    }
}

fn job(world: u32) -> Vec<Rank> {
    let address = Rendezvous::unique().unwrap();
    let mut ranks: Vec<Rank> = (0..world).map(|rank| Rank::start(&address, rank, world)).collect();
    ranks.iter_mut().for_each(|rank| rank.tell("join"));
    for rank in &mut ranks {
        assert_eq!(rank.hear(), "joined");
    }
    ranks
}

#[test]
fn processes_meet_and_know_each_other() {
    let mut ranks = job(4);
    let pids: Vec<u32> = ranks.iter().map(|rank| rank.child.id()).collect();
    ranks.iter_mut().for_each(|rank| rank.tell("exchange"));
    let parts: Vec<_> = pids.iter().map(|pid| pid.to_le_bytes().to_vec()).collect();
    for rank in &mut ranks {
        assert_eq!(rank.hear(), format!("{parts:?}"));
    }
    for (me, rank) in ranks.iter_mut().enumerate() {
        rank.tell("peers");
        let all: Vec<_> = pids.iter().enumerate().map(|(at, &pid)| (pid, at == me)).collect();
        assert_eq!(rank.hear(), format!("{all:?}"));
    }
    // An orderly end is quiet: the message behind the goodbye is the first thing that rank 0 hears.
    for at in [3, 2] {
        ranks[at].tell("leave");
        assert_eq!(ranks[at].hear(), "left");
        drop(ranks.remove(at));
    }
    ranks[1].tell("say");
    ranks[0].tell("hear");
    let heard = ranks[0].hear();
    assert!(heard.starts_with("Message { from: 1"), "{heard}");
}

/// The same over TCP, with these hosts.
fn tcp_job(hosts: &[&str]) -> Vec<Rank> {
    let id = tcp::UniqueId::create(Some("127.0.0.1")).unwrap();
    // Rank 0 is another process, which listens there itself.
    id.retire();
    let world = hosts.len() as u32;
    let start =
        |(rank, host): (u32, &&str)| Rank::start_on(&format!("tcp={id}"), rank, world, host);
    let mut ranks: Vec<Rank> = (0..).zip(hosts).map(start).collect();
    ranks.iter_mut().for_each(|rank| rank.tell("join"));
    for rank in &mut ranks {
        assert_eq!(rank.hear(), "joined");
    }
    ranks
}

/// Ranks in processes of their own, on two nodes, which meet by an id.
fn ranks_of_id(id: &str, ranks: &[u32], world: u32) -> Vec<Rank> {
    let host = |rank| if rank % 2 == 0 { "a" } else { "b" };
    let start = |&rank: &u32| Rank::start_on(&format!("tcp={id}"), rank, world, host(rank));
    let mut ranks: Vec<Rank> = ranks.iter().map(start).collect();
    ranks.iter_mut().for_each(|rank| rank.tell("join"));
    ranks
}

fn all_join(ranks: &mut [Rank]) {
    for rank in &mut *ranks {
        assert_eq!(rank.hear(), "joined");
    }
    ranks.iter_mut().for_each(|rank| rank.tell("exchange"));
    let pids = ranks.iter().map(|rank| rank.child.id().to_le_bytes().to_vec());
    let parts = format!("{:?}", pids.collect::<Vec<_>>());
    for rank in ranks {
        assert_eq!(rank.hear(), parts);
    }
}

#[test]
fn a_process_that_is_no_rank_makes_the_id() {
    let id = tcp::UniqueId::create(Some("127.0.0.1")).unwrap();
    let place = Place::Id(id.clone()).to_string();
    let mut ranks = ranks_of_id(&id.to_string(), &[0, 1, 2], 3);
    all_join(&mut ranks);
    // The job stands, and nobody listens for it any more.
    let until = Instant::now() + PATIENCE;
    while std::net::TcpListener::bind(&place).is_err() {
        assert!(Instant::now() < until, "the id's address is still taken");
        std::thread::yield_now();
    }
    // As in one process, rank 0 makes do without who made the id.
    ranks.iter_mut().for_each(|rank| rank.tell("join"));
    all_join(&mut ranks);
}

#[test]
fn the_process_of_any_rank_makes_the_id() {
    let mut maker = Rank::start("", 0, 0);
    maker.tell("make");
    let id = maker.hear();
    let place = Place::parse(&id).unwrap().0;
    let mut ranks = ranks_of_id(&id, &[1, 2], 3);
    let job = tcp::Rendezvous::new(place, 0, 3, Secret::random().unwrap());
    let job = tcp::Rendezvous { timeout: PATIENCE, ..job };
    let end = tcp::connect_as(&job, "a").unwrap();
    for rank in &mut ranks {
        assert_eq!(rank.hear(), "joined");
    }
    drop(end);

    let id = tcp::UniqueId::create(Some("127.0.0.1")).unwrap();
    let mut ranks = ranks_of_id(&id.to_string(), &[0, 2], 3);
    let place = Place::Id(id);
    let end = tcp::connect_as(&tcp::Rendezvous { place, rank: 1, ..job }, "b").unwrap();
    for rank in &mut ranks {
        assert_eq!(rank.hear(), "joined");
    }
    drop(end);
}

#[test]
fn rank_0_goes_on_where_the_process_that_made_the_id_has_ended() {
    let mut maker = Rank::start("", 0, 0);
    maker.tell("make");
    let id = maker.hear();
    let mut ranks = ranks_of_id(&id, &[0, 1], 3);
    // Whether or not these have been there.
    drop(maker);
    ranks.extend(ranks_of_id(&id, &[2], 3));
    all_join(&mut ranks);
}

#[test]
fn a_second_rank_0_is_named_wherever_the_id_was_made() {
    let claimed = |text: &str| assert!(text.contains("rank 0 is claimed by pid"), "{text}");
    let id = tcp::UniqueId::create(Some("127.0.0.1")).unwrap();
    for rank in &mut ranks_of_id(&id.to_string(), &[0, 0], 3) {
        claimed(&rank.hear());
    }
    let id = tcp::UniqueId::create(Some("127.0.0.1")).unwrap();
    let mut ranks = ranks_of_id(&id.to_string(), &[0], 3);
    let job = tcp::Rendezvous::new(Place::Id(id), 0, 3, Secret::random().unwrap());
    let job = tcp::Rendezvous { timeout: PATIENCE, ..job };
    claimed(&tcp::connect(&job).map(drop).unwrap_err().to_string());
    claimed(&ranks[0].hear());
}

#[test]
fn a_killed_process_is_named_on_all_nodes() {
    dies_in(tcp_job(&["a", "b", "c", "d"]), false);
}

#[test]
fn a_killed_process_is_noticed_on_other_nodes_though_its_child_holds_its_sockets() {
    // Only rank 3 sees its process.
    dies_in(tcp_job(&["a", "b", "c", "c"]), true);
}

#[test]
fn losses_are_noticed_after_the_first_ranks_have_left() {
    let mut ranks = tcp_job(&["a", "b", "c", "d", "e"]);
    ranks.iter_mut().skip(1).for_each(|rank| rank.tell("odd"));
    for rank in &mut ranks[1..] {
        assert_eq!(rank.hear(), "[1, 2, 3, 4]");
    }
    ranks[0].tell("leave");
    assert_eq!(ranks[0].hear(), "left");
    let mut victim = ranks.remove(3);
    // Ranks 2 and 4 have no links to it.
    ranks.iter_mut().skip(1).for_each(|rank| rank.tell("odd"));
    victim.child.kill().unwrap();
    let pid = victim.child.id();
    for rank in &mut ranks[1..] {
        let error = rank.hear();
        assert!(error.contains(&format!("rank 2 (pid {pid}) is lost")), "{error}");
        rank.tell("hear");
        let heard = rank.hear();
        assert!(heard.starts_with(&format!("lost rank 3: pid {pid}: ")), "{heard}");
    }
}

#[test]
fn a_process_that_is_killed_while_the_first_rank_leaves_is_lost() {
    let mut ranks = tcp_job(&["a", "b", "c", "d"]);
    let mut victim = ranks.remove(3);
    ranks[0].tell("leave");
    assert_eq!(ranks[0].hear(), "left");
    // Nobody has a link to it.
    victim.child.kill().unwrap();
    let pid = victim.child.id();
    for rank in &mut ranks[1..] {
        rank.tell("hear");
        let heard = rank.hear();
        assert!(heard.starts_with(&format!("lost rank 3: pid {pid}: ")), "{heard}");
    }
}

fn dies(hold: bool) {
    dies_in(job(4), hold);
}

fn dies_in(mut ranks: Vec<Rank>, hold: bool) {
    let mut victim = ranks.remove(2);
    let mut held = None;
    if hold {
        victim.tell("hold");
        held = Some(victim.hear().parse::<i32>().unwrap());
    }
    // They are blocked, or about to block, when it dies.
    ranks.iter_mut().for_each(|rank| rank.tell("exchange"));
    let start = Instant::now();
    victim.child.kill().unwrap();
    let pid = victim.child.id();
    for rank in &mut ranks {
        let error = rank.hear();
        assert!(error.contains(&format!("rank 2 (pid {pid}) is lost")), "{error}");
    }
    for rank in &mut ranks {
        rank.tell("hear");
        let heard = rank.hear();
        assert!(heard.starts_with(&format!("lost rank 2: pid {pid}: ")), "{heard}");
        assert_eq!(heard.contains("a child of it"), hold, "{heard}");
    }
    let took = start.elapsed();
    if let Some(held) = held.and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(held, rustix::process::Signal::KILL);
    }
    // Well before a connection is given up because it is silent.
    assert!(took < tcp::DEFAULT_SILENCE / 2, "{took:?}");
}

#[test]
fn a_killed_process_is_named_before_any_limit() {
    dies(false);
}

#[test]
fn a_killed_process_is_noticed_though_its_child_holds_its_sockets() {
    dies(true);
}

#[test]
fn a_process_that_dies_while_the_job_forms_is_named() {
    let address = Rendezvous::unique().unwrap();
    let mut ranks: Vec<Rank> = (1..3).map(|rank| Rank::start(&address, rank, 4)).collect();
    let pid = ranks[1].child.id();
    std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            let job = Rendezvous { timeout: PATIENCE, ..Rendezvous::new(&*address, 0, 4) };
            connect(&job).map(drop).unwrap_err()
        });
        ranks.iter_mut().for_each(|rank| rank.tell("join"));
        // Dead before or after it came, but rank 3 never comes: either way this one is known as lost or missing.
        wait_until_connected(pid);
        ranks[1].child.kill().unwrap();
        let error = host.join().unwrap();
        let other = ranks[0].hear();
        if let BootstrapError::PeerLost { peer, .. } = &error {
            assert_eq!((peer.rank, peer.pid), (2, pid));
            assert!(other.contains(&format!("rank 2 (pid {pid}) is lost")), "{other}");
        } else {
            // It died before rank 0 had read who it is.
            let text = error.to_string();
            assert!(text.contains("from rank 2") && other.contains("rank 2"), "{text}; {other}");
        }
    });
}

/// Whatever it lacks a descriptor for: a connection, what a peer passes, or the listeners. It must have one for the way to rank 0, and
/// what it needs for its own listeners before.
#[test]
fn a_rank_with_few_descriptors_is_named_and_not_waited_for() {
    let unix = || Rendezvous::unique().unwrap();
    let tcp = || {
        let id = tcp::UniqueId::create(Some("127.0.0.1")).unwrap();
        id.retire();
        format!("tcp={id}")
    };
    const WORLD: u32 = 5;
    let try_all = |address: &(dyn Fn() -> String + Sync), poor: usize, least: usize| {
        let mut failed = 0;
        for few in least..16 {
            let address = address();
            let mut ranks: Vec<Rank> =
                (0..WORLD).map(|rank| Rank::start(&address, rank, WORLD)).collect();
            let began = Instant::now();
            ranks[poor].tell(&format!("few {few}"));
            ranks.iter_mut().for_each(|rank| rank.tell("join"));
            let answers: Vec<String> = ranks.iter_mut().map(Rank::hear).collect();
            if answers[poor] == "joined" {
                continue;
            }
            failed += 1;
            let told = |(rank, answer): (usize, &String)| match rank == poor {
                true => answer.contains("ulimit -n"),
                // It may have joined before the poor one's control thread lacks something.
                false => {
                    answer == "joined"
                        || answer.contains(&format!("rank {poor} ")) && answer.contains("ulimit -n")
                }
            };
            let told = answers.iter().enumerate().all(told);
            assert!(told, "{few} for rank {poor}: {answers:#?}");
            assert!(began.elapsed() < MEETING / 2, "{few} for rank {poor}: {answers:#?}");
        }
        assert!(failed > 0, "of rank {poor}");
    };
    std::thread::scope(|scope| {
        for poor in [0, 1, WORLD as usize - 1] {
            scope.spawn(move || try_all(&unix, poor, 2));
            scope.spawn(move || try_all(&tcp, poor, 3));
        }
    });
}

/// Waits until a process sleeps in the poll of a connection that rank 0 has answered: it then has more sockets than its
/// door.
fn wait_until_connected(pid: u32) {
    let until = Instant::now() + PATIENCE;
    loop {
        let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let target = |entry: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_link(entry.ok()?.path()).ok()?.into_os_string().into_string().ok()
        };
        if links.filter_map(target).filter(|name| name.starts_with("socket:")).count() >= 2 {
            return;
        }
        assert!(Instant::now() < until, "the child did not connect");
        std::thread::yield_now();
    }
}

/// Nothing is left behind: neither by jobs that formed nor by those that failed.
#[test]
fn descriptors_are_given_back() {
    if !support::alone("descriptors_are_given_back") {
        return;
    }
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let work = || {
        let ends = support::unix(3, PATIENCE);
        let null = std::fs::File::open("/dev/null").unwrap().into();
        let kept = Message { descriptors: vec![null], ..Message::default() };
        ends[0].send(1, kept).unwrap();
        ends[0].send(2, Message::default()).unwrap();
        let tickets: Vec<_> = ends.iter().map(|end| end.barrier_begin().unwrap()).collect();
        tickets.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
        drop(ends);
        let short = Duration::from_millis(5);
        let late =
            Rendezvous { timeout: short, ..Rendezvous::new(&*Rendezvous::unique().unwrap(), 0, 2) };
        assert!(connect(&late).is_err());
        drop(support::in_process(4, PATIENCE));
        each_rank(support::tcp_two_nodes(5, PATIENCE), |rank, end| {
            let group = end.group(1, &[4, 3, 2, 1, 0]).unwrap();
            group.exchange(&[rank as u8]).unwrap();
        });
    };
    work();
    let before = open();
    for _ in 0..20 {
        work();
    }
    // The control thread may hold the last of them for a moment.
    let until = Instant::now() + PATIENCE;
    while open() > before {
        assert!(Instant::now() < until, "{before} descriptors before, {} after", open());
        std::thread::yield_now();
    }
}
