//! What the tests of this crate share: meshes of both kinds, threads for their ranks, a handler that writes down.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon_bootstrap::unix::{Rendezvous, connect};
use antiphon_bootstrap::{Bootstrap, Handler, Lost, tcp};

/// Longer than anything takes that works.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Set in a process that runs one test alone.
const ALONE: &str = "ANTIPHON_TEST_ALONE";

/// Whether this process runs the test `name` alone, for which the other tests' descriptors are in the way. Where it does not,
/// runs it in such a process, and checks that it passes there.
pub fn alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--test-threads=1"])
        .env(ALONE, name)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
    false
}

pub fn in_process(world: u32, limit: Duration) -> Vec<Arc<dyn Bootstrap>> {
    antiphon_bootstrap::in_process_with(&vec![""; world as usize], limit).unwrap()
}

pub fn unix(world: u32, timeout: Duration) -> Vec<Arc<dyn Bootstrap>> {
    let address = &*Rendezvous::unique().unwrap();
    let join = move |rank| connect(&Rendezvous { address: address.into(), rank, world, timeout });
    std::thread::scope(|scope| {
        // The host comes last, so that the others have to try again.
        let threads: Vec<_> =
            (0..world).rev().map(|rank| scope.spawn(move || join(rank))).collect();
        let ends: Vec<_> = threads.into_iter().rev().map(|thread| thread.join().unwrap()).collect();
        let failures: Vec<_> = ends.iter().filter_map(|end| end.as_ref().err()).collect();
        assert!(failures.is_empty(), "{failures:#?}");
        ends.into_iter().map(Result::unwrap).collect()
    })
}

fn over_tcp(world: u32, timeout: Duration, interface: &str, nodes: u32) -> Vec<Arc<dyn Bootstrap>> {
    let id = tcp::UniqueId::create(Some(interface)).unwrap();
    let join = |rank| {
        let place = tcp::Place::Id(id.clone());
        let job = tcp::Rendezvous::new(place, rank, world, tcp::Secret::open());
        tcp::connect_as(&tcp::Rendezvous { timeout, ..job }, &format!("node {}", rank % nodes))
    };
    std::thread::scope(|scope| {
        let join = &join;
        let threads: Vec<_> =
            (0..world).rev().map(|rank| scope.spawn(move || join(rank))).collect();
        let ends: Vec<_> = threads.into_iter().rev().map(|thread| thread.join().unwrap()).collect();
        let failures: Vec<_> = ends.iter().filter_map(|end| end.as_ref().err()).collect();
        assert!(failures.is_empty(), "{failures:#?}");
        ends.into_iter().map(Result::unwrap).collect()
    })
}

/// All ranks on one node.
pub fn tcp_one_node(world: u32, timeout: Duration) -> Vec<Arc<dyn Bootstrap>> {
    over_tcp(world, timeout, "127.0.0.1", 1)
}

/// Every rank on a node of its own.
pub fn tcp_many_nodes(world: u32, timeout: Duration) -> Vec<Arc<dyn Bootstrap>> {
    over_tcp(world, timeout, "127.0.0.1", u32::MAX)
}

/// The same over IPv6; on hosts without it, over IPv4.
pub fn tcp_six(world: u32, timeout: Duration) -> Vec<Arc<dyn Bootstrap>> {
    let six = std::net::TcpListener::bind("[::1]:0").is_ok();
    over_tcp(world, timeout, if six { "::1" } else { "127.0.0.1" }, u32::MAX)
}

/// Ranks on two nodes, in turn.
pub fn tcp_two_nodes(world: u32, timeout: Duration) -> Vec<Arc<dyn Bootstrap>> {
    over_tcp(world, timeout, "127.0.0.1", 2)
}

/// Runs `work` for all ranks, each on a thread; a rank's end is dropped when its work is done.
pub fn each_rank(ends: Vec<Arc<dyn Bootstrap>>, work: impl Fn(u32, &dyn Bootstrap) + Sync) {
    std::thread::scope(|scope| {
        for (rank, end) in (0..).zip(ends) {
            let work = &work;
            scope.spawn(move || work(rank, &*end));
        }
    });
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Message { from: u32, tag: u32, payload: Vec<u8> },
    Lost { peer: u32, why: Lost },
    Aborted { by: u32, reason: String },
}

type Reaction = Box<dyn Fn(&Event) + Send + Sync>;

/// A handler that writes down what it hears.
#[derive(Default)]
pub struct Recorder {
    events: Mutex<(Vec<Event>, Vec<OwnedFd>)>,
    heard: Condvar,
    reaction: Option<Reaction>,
}

impl Recorder {
    pub fn new() -> Arc<Recorder> {
        Arc::default()
    }

    /// A recorder that also reacts.
    pub fn then(self: Arc<Self>, react: impl Fn(&Event) + Send + Sync + 'static) -> Arc<Recorder> {
        Arc::new(Recorder { reaction: Some(Box::new(react)), ..Recorder::default() })
    }

    /// All events, once there are `count`.
    pub fn wait_for(&self, count: usize) -> Vec<Event> {
        let guard = self.lock();
        let few = |all: &mut (Vec<Event>, Vec<OwnedFd>)| all.0.len() < count;
        let (guard, timeout) = self.heard.wait_timeout_while(guard, PATIENCE, few).unwrap();
        assert!(!timeout.timed_out(), "{} of {count} events: {:?}", guard.0.len(), guard.0);
        guard.0.clone()
    }

    pub fn descriptors(&self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.lock().1)
    }

    fn lock(&self) -> MutexGuard<'_, (Vec<Event>, Vec<OwnedFd>)> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, event: Event, descriptors: Vec<OwnedFd>) {
        if let Some(reaction) = &self.reaction {
            reaction(&event);
        }
        let mut all = self.lock();
        all.0.push(event);
        all.1.extend(descriptors);
        self.heard.notify_all();
    }
}

impl Handler for Recorder {
    fn message(&self, from: u32, tag: u32, payload: &[u8], descriptors: Vec<OwnedFd>) {
        self.note(Event::Message { from, tag, payload: payload.to_vec() }, descriptors);
    }

    fn peer_lost(&self, peer: u32, why: &Lost) {
        self.note(Event::Lost { peer, why: why.clone() }, Vec::new());
    }

    fn aborted(&self, by: u32, reason: &str) {
        self.note(Event::Aborted { by, reason: reason.to_owned() }, Vec::new());
    }
}
