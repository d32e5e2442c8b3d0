//! Measures how long jobs take to form: `forming [processes] [ranks in one process]`, 64 and 1024 where not given.
//!
//! Processes are this program, started again once a rank. Each line is one kind of mesh; a time begins before the first
//! process (or rank) is there and ends when all have formed the job and finished one exchange of 64 bytes a rank. `slowest
//! rank` is the longest that one rank spent, its start as a process not counted.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use antiphon_bootstrap::tcp::{Place, Secret, UniqueId};
use antiphon_bootstrap::{Bootstrap, Result, in_process, tcp, unix};

const ROLE: &str = "ANTIPHON_FORMING";

type Failure = Box<dyn std::error::Error>;

fn exchange(end: &dyn Bootstrap) -> Result<()> {
    end.exchange(&[end.rank() as u8; 64]).map(drop)
}

/// One rank in a process of its own.
fn child(role: &str) -> std::result::Result<(), Failure> {
    let start = Instant::now();
    let words: Vec<&str> = role.split(' ').collect();
    let &[place, rank, world, host] = &*words else { return Err("a role of four words".into()) };
    let (rank, world) = (rank.parse()?, world.parse()?);
    let end = match place.strip_prefix("unix:") {
        Some(address) => unix::connect(&unix::Rendezvous::new(address, rank, world))?,
        None => {
            let job = tcp::Rendezvous::new(Place::parse(place)?.0, rank, world, Secret::open());
            tcp::connect_as(&job, host)?
        }
    };
    exchange(&*end)?;
    println!("{}", start.elapsed().as_micros());
    // Nobody leaves before all have measured.
    end.barrier()?;
    Ok(())
}

fn processes(
    name: &str,
    world: u32,
    place: &str,
    host: impl Fn(u32) -> String,
) -> std::result::Result<(), Failure> {
    let start = Instant::now();
    let mut children = Vec::new();
    for rank in 0..world {
        let role = format!("{place} {rank} {world} {}", host(rank));
        let mut command = Command::new(std::env::current_exe()?);
        children.push(command.env(ROLE, role).stdout(Stdio::piped()).spawn()?);
    }
    let mut slowest = 0;
    for child in &mut children {
        let output = child.stdout.take().ok_or("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        slowest = slowest.max(line.trim().parse::<u64>()?);
    }
    let total = start.elapsed();
    for mut child in children {
        if !child.wait()?.success() {
            return Err("a rank failed".into());
        }
    }
    report(name, world, total, Duration::from_micros(slowest));
    left(start);
    Ok(())
}

fn report(name: &str, world: u32, total: Duration, slowest: Duration) {
    let [total, slowest] = [total, slowest].map(|time| time.as_secs_f64() * 1e3);
    println!("{name:32} {world:5} ranks  all {total:8.1} ms  slowest rank {slowest:8.1} ms");
}

/// Drives all ranks from this thread.
fn together(
    name: &str,
    start: Instant,
    ends: Vec<Arc<dyn Bootstrap>>,
) -> std::result::Result<(), Failure> {
    let world = ends.len() as u32;
    let begun: Result<Vec<_>> = ends.iter().map(|end| end.exchange_begin(&[1; 64])).collect();
    for ticket in begun? {
        ticket.wait()?;
    }
    report(name, world, start.elapsed(), start.elapsed());
    drop(ends);
    left(start);
    Ok(())
}

fn left(start: Instant) {
    let time = start.elapsed().as_secs_f64() * 1e3;
    println!("{:32} all have left after {time:8.1} ms", "");
}

/// All ranks in this process, each joining over TCP from a thread of its own.
fn threads(
    name: &str,
    world: u32,
    host: impl Fn(u32) -> String + Sync,
) -> std::result::Result<(), Failure> {
    let start = Instant::now();
    let place = Place::Id(UniqueId::create(Some("127.0.0.1"))?);
    let join = |rank| {
        let job = tcp::Rendezvous::new(place.clone(), rank, world, Secret::open());
        tcp::connect_as(&job, &host(rank))
    };
    let join = &join;
    let ends: Result<Vec<_>> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..world).map(|rank| scope.spawn(move || join(rank))).collect();
        all.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    together(name, start, ends?)
}

fn main() -> std::result::Result<(), Failure> {
    if let Ok(role) = std::env::var(ROLE) {
        return child(&role);
    }
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u32>());
    let apart = arguments.next().transpose()?.unwrap_or(64);
    let inside = arguments.next().transpose()?.unwrap_or(1024);
    processes("unix, processes", apart, &format!("unix:{}", unix::Rendezvous::unique()?), |_| {
        "x".into()
    })?;
    let place = || -> std::result::Result<String, Failure> {
        let id = UniqueId::create(Some("127.0.0.1"))?;
        // Rank 0 is a process of its own, which listens there itself.
        id.retire();
        Ok(id.to_string())
    };
    processes("tcp, processes, one node", apart, &place()?, |_| "x".into())?;
    processes("tcp, processes, eight a node", apart, &place()?, |rank| format!("x{}", rank / 8))?;
    processes("tcp, processes, one a node", apart, &place()?, |rank| format!("x{rank}"))?;
    let start = Instant::now();
    together("in process", start, in_process(inside)?)?;
    threads("tcp, one process, one a node", inside.min(256), |rank| format!("x{rank}"))?;
    Ok(())
}
