//! An allgatherv over hosts, whose blocks cross once to each and are passed on there, beside the alltoallv that sends the same to
//! all: `cargo run --release -p antiphon-executor --example passed_on`.
//!
//! Ranks are threads, hosts are names, and what crosses goes by TCP over loopback. Both calls take turns; a time is that of a call on
//! rank 0, from a barrier on.

use antiphon_executor::{
    Collectives, Communicator, Counts, DataType, ExecutorError, Extent, Options,
};
use std::time::{Duration, Instant};

/// Hosts, and ranks on each.
const PLACES: [(usize, usize); 4] = [(2, 1), (2, 2), (3, 2), (2, 4)];
/// Bytes of a rank's block.
const BLOCKS: [usize; 5] = [16, 1 << 10, 1 << 14, 1 << 18, 1 << 22];
const ELEMENT: usize = 4;

/// What a rank calls with: its own block, that of all, and where those are.
struct Job {
    own: Vec<u32>,
    all: Vec<u32>,
    receive: Vec<Extent>,
}

impl Job {
    fn new(world: usize, count: usize) -> Self {
        let receive = Extent::packed(&vec![count as u64; world]);
        Job { own: vec![1; count], all: vec![0; world * count], receive }
    }

    fn gather(&mut self, on: &Collectives) -> Result<(), ExecutorError> {
        let (buffers, sizes) = self.buffers();
        // SAFETY: both are as long as said, apart, and there until the call is complete.
        unsafe { on.all_gather_v(buffers, sizes, &self.receive, DataType::U32, None) }
    }

    fn exchange(&mut self, on: &Collectives) -> Result<(), ExecutorError> {
        let (buffers, sizes) = self.buffers();
        let send = vec![Extent::new(0, sizes.0); self.receive.len()];
        let counts = Counts { send: &send, receive: &self.receive };
        // SAFETY: as above.
        unsafe { on.all_to_all_v(buffers, sizes, counts, DataType::U32, None) }
    }

    fn buffers(&mut self) -> ((*const u8, *mut u8), (u64, u64)) {
        let buffers = (self.own.as_ptr().cast(), self.all.as_mut_ptr().cast());
        (buffers, (self.own.len() as u64, self.all.len() as u64))
    }
}

/// Times of both calls, sorted.
fn measure(on: &Collectives, bytes: usize) -> Result<[Vec<Duration>; 2], ExecutorError> {
    let world = on.communicator().world() as usize;
    let rounds = if bytes < 1 << 18 { 400 } else { 60 };
    let mut job = Job::new(world, bytes / ELEMENT);
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..rounds + 5 {
        for (which, times) in times.iter_mut().enumerate() {
            on.communicator().barrier()?;
            let began = Instant::now();
            if which == 0 {
                job.gather(on)?
            } else {
                job.exchange(on)?
            }
            if round >= 5 {
                times.push(began.elapsed());
            }
        }
    }
    times.iter_mut().for_each(|times| times.sort());
    Ok(times)
}

fn run(on: &Collectives, (hosts, per_host): (usize, usize)) -> Result<(), ExecutorError> {
    for bytes in BLOCKS {
        let [gathered, exchanged] = measure(on, bytes)?;
        if on.communicator().rank() > 0 {
            continue;
        }
        let at = |times: &[Duration], part: usize| {
            times[(times.len() - 1) * part / 100].as_secs_f64() * 1e6
        };
        let [p50, p99] = [50, 99].map(|part| (at(&gathered, part), at(&exchanged, part)));
        println!(
            "{hosts} hosts of {per_host}, {bytes:>8} B   p50 {:>8.1} us, sent to all {:>8.1} us, ratio {:.2};  p99 {:>8.1} us, {:>8.1} us, ratio {:.2}",
            p50.0,
            p50.1,
            p50.0 / p50.1,
            p99.0,
            p99.1,
            p99.0 / p99.1,
        );
    }
    Ok(())
}

fn main() -> Result<(), ExecutorError> {
    for place in PLACES {
        let names: Vec<String> = (0..place.0).map(|host| format!("host {host}")).collect();
        let hosts: Vec<&str> = names.iter().flat_map(|name| vec![name.as_str(); place.1]).collect();
        let ranks = Communicator::in_process_on(&hosts, &Options::default())?;
        std::thread::scope(|scope| {
            let run = |rank| move || run(&Collectives::new(rank)?, place);
            let ranks: Vec<_> = ranks.iter().map(|rank| scope.spawn(run(rank))).collect();
            ranks.into_iter().try_for_each(|rank| match rank.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
    }
    Ok(())
}
