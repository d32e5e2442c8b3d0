//! The measuring loop for subjects written in Rust: the twin of bench/harness.c over the same control block.
//!
//! A [`Subject`] is one process's share of a group: one rank, or all ranks driven from one thread. Which subjects
//! there are is listed in [`super::executor`].

use std::hint::black_box;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::control::{Control, Series};
use super::job::{self, Collective, Job, Place};
use super::results::{Key, Times};
use crate::{Error, Result};

/// What a process knows when it joins its group.
#[derive(Clone, Debug)]
pub struct Seat {
    /// Which process of the group this is.
    pub participant: usize,
    /// How many processes the group has: the number of ranks, or 1 where one thread drives them all.
    pub participants: usize,
    /// How many ranks the group has.
    pub ranks: usize,
    /// A fresh folder that all processes of the group see, to meet in.
    pub rendezvous: PathBuf,
}

/// Whether a subject can run a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Buffers are there and the collective can be called.
    Ready,
    /// There is no such operation; all processes of a group must agree on that.
    Unsupported,
}

/// One process's share of a group that runs collectives.
pub trait Subject {
    /// The ranks that this process drives.
    fn ranks(&self) -> Range<usize>;

    /// Makes the buffers for `job` and whatever else can be done once, and drops those of the job before.
    fn prepare(&mut self, job: &Job) -> Result<Prepared, String>;

    /// The input of one of this process's ranks, `job.in_count()` elements.
    fn input(&mut self, rank: usize) -> &mut [f32];

    /// The output of one of this process's ranks, `job.out_count()` elements.
    fn output(&self, rank: usize) -> &[f32];

    /// One collective on all ranks of this process; complete when it returns.
    fn collective(&mut self) -> Result<(), String>;
}

/// How much is measured; the same for all subjects of a run.
#[derive(Clone, Debug)]
pub struct Load {
    /// What is run.
    pub collective: Collective,
    /// The sizes of the rows in bytes.
    pub sizes: Vec<usize>,
    /// The places of the rows.
    pub places: Vec<Place>,
    /// Timed iterations of a row up to 1 MiB.
    pub iterations: usize,
    /// Timed iterations of a row above 1 MiB.
    pub iterations_large: usize,
    /// The time after which a row ends early, though never before 20 iterations.
    pub budget: Duration,
    /// Whether waiting gives the core away: more ranks than cores.
    pub yields: bool,
}

const FEWEST: usize = 20;

impl Load {
    /// The wanted iterations of a row of `bytes`.
    pub fn wanted(&self, bytes: usize) -> usize {
        if job::is_large(bytes) { self.iterations_large } else { self.iterations }
    }
}

/// One line for every finished row, from participant 0.
pub type Report<'a> = dyn FnMut(Key, Option<Times>) + 'a;

/// Runs all rows of `load` on this process's share of the group.
pub fn measure(
    control: &Control,
    seat: &Seat,
    load: &Load,
    subject: &mut dyn Subject,
    report: &mut Report<'_>,
) -> Result<()> {
    let mut rank = Rank { control, seat, load, iteration: 0 };
    let outcome = rank.rows(subject, report);
    if outcome.is_err() {
        control.fail();
    }
    outcome
}

struct Rank<'a> {
    control: &'a Control,
    seat: &'a Seat,
    load: &'a Load,
    iteration: usize,
}

impl Rank<'_> {
    fn rows(&mut self, subject: &mut dyn Subject, report: &mut Report<'_>) -> Result<()> {
        let Load { collective, ref sizes, ref places, .. } = *self.load;
        for &bytes in sizes {
            for &place in places {
                let ranks = self.seat.ranks;
                let job = Job { collective, place, count: bytes / size_of::<f32>(), ranks };
                let times = match subject.prepare(&job).map_err(Error::Message)? {
                    Prepared::Ready => Some(self.row(subject, &job, bytes)?),
                    Prepared::Unsupported => None,
                };
                if self.seat.participant == 0 {
                    report(Key { ranks, collective, place, bytes }, times);
                }
                self.control.barrier(self.load.yields)?;
            }
        }
        Ok(())
    }

    fn row(&mut self, subject: &mut dyn Subject, job: &Job, bytes: usize) -> Result<Times> {
        let Self { control, seat, load, .. } = *self;
        self.iteration = 0;
        self.once(subject, job)?;
        self.verify(subject, job)?;
        control.barrier(load.yields)?;
        let warmup = job::warmup(bytes);
        let started = Instant::now();
        for _ in 0..warmup {
            self.once(subject, job)?;
        }
        if seat.participant == 0 {
            let each = started.elapsed().as_nanos() / warmup as u128 + 1;
            let fit = usize::try_from(load.budget.as_nanos() / each).unwrap_or(usize::MAX);
            let n = load.wanted(bytes).min(fit.max(FEWEST)).min(control.capacity());
            control.iterations().store(u32::try_from(n).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
        control.barrier(load.yields)?;
        let n = control.iterations().load(Ordering::Relaxed) as usize;
        let alone = &control.samples(Series::Collective, seat.participant)[..n];
        let with_read = &control.samples(Series::WithRead, seat.participant)[..n];
        for (alone, with_read) in alone.iter().zip(with_read) {
            let (took, took_with_read) = self.once(subject, job)?;
            alone.store(took.as_nanos() as u64, Ordering::Relaxed);
            with_read.store(took_with_read.as_nanos() as u64, Ordering::Relaxed);
        }
        self.verify(subject, job)?;
        control.barrier(load.yields)?;
        let (p50, p99) = percentiles(maxima(control, Series::Collective, n));
        let (read_p50, read_p99) = percentiles(maxima(control, Series::WithRead, n));
        Ok(Times { iterations: n, p50, p99, read_p50, read_p99 })
    }

    /// One iteration; how long the collective took, alone and with the reading of its output.
    fn once(&mut self, subject: &mut dyn Subject, job: &Job) -> Result<(Duration, Duration)> {
        self.iteration += 1;
        for rank in subject.ranks() {
            job.fill(subject.input(rank), rank, self.iteration);
        }
        self.control.barrier(self.load.yields)?;
        self.control.barrier(self.load.yields)?;
        let start = Instant::now();
        let outcome = subject.collective();
        let end = Instant::now();
        for rank in subject.ranks() {
            let words = subject.output(rank).iter();
            black_box(words.fold(0, |x, word| x ^ word.to_bits()));
        }
        let read = Instant::now();
        outcome.map_err(Error::Message)?;
        Ok((end - start, read - start))
    }

    fn verify(&self, subject: &dyn Subject, job: &Job) -> Result<()> {
        for rank in subject.ranks() {
            job.verify(subject.output(rank), rank, self.iteration)
                .map_err(|fault| Error::message(format!("wrong result: {fault}")))?;
        }
        Ok(())
    }
}

/// Each iteration's slowest participant, sorted.
fn maxima(control: &Control, series: Series, n: usize) -> Vec<u64> {
    let sample = |p: usize, i: usize| control.samples(series, p)[i].load(Ordering::Relaxed);
    let slowest = |i| (0..control.participants()).map(|p| sample(p, i)).max().unwrap_or(0);
    let mut all: Vec<u64> = (0..n).map(slowest).collect();
    all.sort_unstable();
    all
}

/// The 50th and 99th percentile by the nearest-rank rule, of sorted nanoseconds.
fn percentiles(sorted: Vec<u64>) -> (u64, u64) {
    let at = |percent: usize| (sorted.len() * percent).div_ceil(100).max(1) - 1;
    let get = |percent| sorted.get(at(percent)).copied().unwrap_or(0);
    (get(50), get(99))
}

/// Binds this thread to the `participant`-th of the cores it may use, modulo their number.
pub fn pin(participant: usize) -> Result<()> {
    let what = "pin the rank to a core";
    let allowed = sched_getaffinity(None).map_err(|e| Error::io(what)(e.into()))?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&c| allowed.is_set(c)).collect();
    let mut one = CpuSet::new();
    one.set(cores[participant % cores.len().max(1)]);
    sched_setaffinity(None, &one).map_err(|e| Error::io(what)(e.into()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Allreduce among threads over one locked sum, wrong on purpose in iteration `wrong`.
    struct Threads<'a> {
        rank: usize,
        control: &'a Control,
        sum: &'a Mutex<Vec<f32>>,
        buffers: (Vec<f32>, Vec<f32>),
        calls: usize,
        wrong: Option<usize>,
    }

    impl Subject for Threads<'_> {
        fn ranks(&self) -> Range<usize> {
            self.rank..self.rank + 1
        }

        fn prepare(&mut self, job: &Job) -> Result<Prepared, String> {
            if job.place == Place::In {
                return Ok(Prepared::Unsupported);
            }
            self.buffers = (vec![0.0; job.in_count()], vec![f32::NAN; job.out_count()]);
            Ok(Prepared::Ready)
        }

        fn input(&mut self, _: usize) -> &mut [f32] {
            &mut self.buffers.0
        }

        fn output(&self, _: usize) -> &[f32] {
            &self.buffers.1
        }

        fn collective(&mut self) -> Result<(), String> {
            let step = |_| self.control.barrier(true).map_err(|e| e.to_string());
            if self.rank == 0 {
                *self.sum.lock().expect("no panic") = vec![0.0; self.buffers.0.len()];
            }
            step(())?;
            for (sum, x) in self.sum.lock().expect("no panic").iter_mut().zip(&self.buffers.0) {
                *sum += x;
            }
            step(())?;
            self.buffers.1.clone_from(&self.sum.lock().expect("no panic"));
            self.calls += 1;
            if self.wrong == Some(self.calls) {
                self.buffers.1[0] += 1.0;
            }
            step(())
        }
    }

    type Rows = Vec<(Key, Option<Times>)>;

    fn run(wrong: Option<usize>) -> (Rows, Vec<Result<()>>) {
        let control = Control::create(2, 30).expect("memfd");
        let load = Load {
            collective: Collective::Allreduce,
            sizes: vec![4, 4096],
            places: Place::ALL.to_vec(),
            iterations: 25,
            iterations_large: 20,
            budget: Duration::from_secs(60),
            yields: true,
        };
        let sum = Mutex::new(Vec::new());
        let rows = Mutex::new(Vec::new());
        let outcomes = std::thread::scope(|scope| {
            let start = |rank| {
                let (control, load, sum, rows) = (&control, &load, &sum, &rows);
                scope.spawn(move || {
                    let rendezvous = PathBuf::new();
                    let seat = Seat { participant: rank, participants: 2, ranks: 2, rendezvous };
                    let wrong = wrong.filter(|_| rank == 1);
                    let buffers = (Vec::new(), Vec::new());
                    let mut subject = Threads { rank, control, sum, buffers, calls: 0, wrong };
                    measure(control, &seat, load, &mut subject, &mut |key, times| {
                        rows.lock().expect("no panic").push((key, times));
                    })
                })
            };
            [0, 1].map(start).map(|thread| thread.join().expect("no panic")).into()
        });
        (rows.into_inner().expect("no panic"), outcomes)
    }

    #[test]
    fn every_row_is_reported_once_with_all_iterations() {
        let (rows, outcomes) = run(None);
        assert!(outcomes.iter().all(|o| o.is_ok()), "{outcomes:?}");
        let seen: Vec<_> =
            rows.iter().map(|(k, t)| (k.bytes, k.place, t.map(|t| t.iterations))).collect();
        let expected = [
            (4, Place::Out, Some(25)),
            (4, Place::In, None),
            (4096, Place::Out, Some(25)),
            (4096, Place::In, None),
        ];
        assert_eq!(seen, expected);
        for times in rows.iter().filter_map(|(_, times)| *times) {
            assert!(0 < times.p50 && times.p50 <= times.p99 && times.p50 <= times.read_p50);
        }
    }

    #[test]
    fn a_wrong_result_stops_all_ranks() {
        let (rows, outcomes) = run(Some(1));
        assert!(rows.is_empty());
        let texts: Vec<String> =
            outcomes.iter().filter_map(|o| o.as_ref().err()).map(ToString::to_string).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts.iter().any(|t| t.contains("element 0 of 1 on rank 1")), "{texts:?}");
    }

    #[test]
    fn percentiles_follow_the_nearest_rank() {
        assert_eq!(percentiles((1..=200).collect()), (100, 198));
        assert_eq!(percentiles(vec![7]), (7, 7));
    }
}
