//! Premultiplied sums: one by one and in groups, with and without streams, by factors that are given, or read on the device; and
//! recorded into graphs, whose replays read the factors of their time.

use crate::devices::devices;
use crate::{
    backend, device, on_devices, on_simulator, on_simulator_of, on_simulator_with, on_threads,
    options,
};
use antiphon::executor::hal::Stream;
use antiphon::executor::{Collectives, Communicator, Factor, Group, Request, What};
use antiphon::{DataType, ReduceOp};
use antiphon_tests::harness::{Area, Source};
use antiphon_tests::name_of;
use antiphon_tests::recorder::Recorder;
use std::sync::Arc;

const WORLD: u32 = 3;
/// Elements of a block, and of a send buffer.
const BLOCK: usize = 1500;
const WHOLE: usize = BLOCK * WORLD as usize;

/// The calls, and the elements that each counts.
const CALLS: [(What, usize); 3] =
    [(What::AllReduce, WHOLE), (What::ReduceScatter, BLOCK), (What::Reduce { root: 1 }, WHOLE)];

fn value(rank: u32, round: usize, at: usize) -> f32 {
    (at * (rank as usize + 1) % 1000 + round) as f32
}

/// A half for rank 0, one for rank 1 and so on; in round 1 twice that.
fn factor(rank: u32, round: usize) -> f32 {
    0.5 * (rank + 1) as f32 * (round + 1) as f32
}

fn sum(round: usize, at: usize) -> f32 {
    (0..WORLD).map(|rank| factor(rank, round) * value(rank, round, at)).sum()
}

fn area(communicator: &Communicator, elements: usize) -> Area {
    Area::new(communicator, Source::Own, 4 * elements as u64).unwrap()
}

fn write(area: &mut Area, values: impl Iterator<Item = f32>) {
    area.edit(|bytes| {
        let cells = bytes.as_chunks_mut::<4>().0.iter_mut();
        cells.zip(values).for_each(|(cell, value)| *cell = value.to_le_bytes());
    });
}

/// One rank's buffers.
struct Rank {
    on: Collectives,
    rank: u32,
    stream: Arc<dyn Stream>,
    input: Area,
    output: Area,
    factor: Area,
}

impl Rank {
    fn new(communicator: &Communicator, stream: Arc<dyn Stream>) -> Self {
        let (on, rank) = (Collectives::new(communicator).unwrap(), communicator.rank());
        let [input, output] = [WHOLE, WHOLE].map(|elements| area(communicator, elements));
        Rank { on, rank, stream, input, output, factor: area(communicator, 1) }
    }

    /// Values and factor of a round; nothing of what came before is left.
    fn fill(&mut self, round: usize) {
        let rank = self.rank;
        write(&mut self.input, (0..).map(|at| value(rank, round, at)));
        write(&mut self.output, std::iter::repeat(-1.));
        write(&mut self.factor, std::iter::once(factor(rank, round)));
    }

    fn request(&self, (what, count): (What, usize), factor: Factor) -> Request {
        Request {
            what,
            input: self.input.address().cast_const(),
            output: self.output.address(),
            count: count as u64,
            dtype: DataType::F32,
            op: ReduceOp::Sum,
            factor: Some(factor),
        }
    }

    /// Checks what a call of a round has left.
    fn check(&self, (what, count): (What, usize), round: usize, how: &str) {
        let first = if what == What::ReduceScatter { BLOCK * self.rank as usize } else { 0 };
        let untouched = what == What::Reduce { root: 1 } && self.rank != 1;
        let expected =
            |at: usize| if untouched || at >= count { -1. } else { sum(round, first + at) };
        let read = |area: &Area| -> Vec<f32> {
            area.bytes().as_chunks().0.iter().map(|cell| f32::from_le_bytes(*cell)).collect()
        };
        let found = read(&self.output);
        let wrong = found.iter().enumerate().find(|&(at, &found)| found != expected(at));
        assert_eq!(wrong, None, "{what:?} {how} on rank {}", self.rank);
        let input = read(&self.input);
        let changed = (0..).zip(&input).find(|&(at, &found)| found != value(self.rank, round, at));
        assert_eq!(changed, None, "{what:?} {how}: inputs stay as they are");
    }
}

#[test]
fn sums_of_products_have_a_factor_for_each_rank() {
    let test = name_of(sums_of_products_have_a_factor_for_each_rank);
    if on_simulator_of(test, WORLD as usize).is_none() {
        return;
    }
    on_devices(&devices(WORLD, WORLD), &options(), |communicator| {
        let mut rank = Rank::new(&communicator, communicator.stream().unwrap());
        let mut given = [0; 8];
        given[..4].copy_from_slice(&factor(rank.rank, 0).to_le_bytes());
        let read = Factor::At(rank.factor.address().cast_const());
        for (how, factor) in [("given", Factor::Value(given)), ("read", read)] {
            for call in CALLS {
                for (grouped, on_stream) in
                    [(false, true), (true, true), (false, false), (true, false)]
                {
                    rank.fill(0);
                    let request = rank.request(call, factor);
                    let stream = on_stream.then_some(&rank.stream);
                    // SAFETY: the areas are as long as said, and live until the calls are complete.
                    unsafe {
                        if grouped {
                            let mut group = Group::new();
                            group.call(&rank.on, &request, stream).unwrap();
                            group.end().unwrap();
                        } else {
                            rank.on.call(&request, stream).unwrap();
                        }
                    }
                    rank.on.executor().synchronize(&rank.stream).unwrap();
                    rank.check(call, 0, &format!("{how}, grouped {grouped}, stream {on_stream}"));
                }
            }
            // In place, and of nothing.
            rank.fill(0);
            let (what, count) = CALLS[0];
            let at = rank.input.address();
            let request = Request { output: at, ..rank.request((what, count), factor) };
            let nothing = Request { count: 0, ..request };
            // SAFETY: as above.
            unsafe {
                rank.on.call(&request, None).unwrap();
                rank.on.call(&nothing, None).unwrap();
            }
            let found = rank.input.bytes();
            let found = found.as_chunks().0.iter().map(|cell| f32::from_le_bytes(*cell));
            let wrong = found.enumerate().find(|&(at, found)| found != sum(0, at));
            assert_eq!(wrong, None, "in place, rank {}", rank.rank);
        }
    });
}

/// All that a first call asks a driver for waits for the device's kernels here, and one thread calls for all ranks: the first
/// kernels wait for the last.
#[test]
fn ranks_that_share_a_device_have_room_for_products_before_the_first_of_them_launches() {
    let test =
        name_of(ranks_that_share_a_device_have_room_for_products_before_the_first_of_them_launches);
    let slow = [("ANTIPHON_GPUSIM_WAITS", "pin,open,peer,map,load")];
    if on_simulator_with(test, &slow).is_none() {
        return;
    }
    let ranks = Communicator::in_process_over(&vec![device(); WORLD as usize], &options()).unwrap();
    let streams = ranks.iter().map(|rank| rank.stream().unwrap());
    let mut ranks: Vec<_> =
        ranks.iter().zip(streams).map(|(rank, stream)| Rank::new(rank, stream)).collect();
    // So small that no buffer of a peer is mapped.
    let call = (What::Reduce { root: 1 }, 48);
    for round in 0..2 {
        ranks.iter_mut().for_each(|rank| rank.fill(round));
        for rank in &ranks {
            let mut given = [0; 8];
            given[..4].copy_from_slice(&factor(rank.rank, round).to_le_bytes());
            let request = rank.request(call, Factor::Value(given));
            // SAFETY: the areas are as long as said, and live until the streams have come past.
            unsafe { rank.on.call(&request, Some(&rank.stream)) }.unwrap();
        }
        for rank in &ranks {
            rank.on.executor().synchronize(&rank.stream).unwrap();
            rank.check(call, round, "one thread");
        }
    }
}

#[test]
fn what_is_no_sum_of_products_is_refused() {
    if on_simulator(name_of(what_is_no_sum_of_products_is_refused)).is_none() {
        return;
    }
    on_threads(2, &options(), |communicator| {
        let rank = Rank::new(&communicator, communicator.stream().unwrap());
        let given = rank.request((What::AllReduce, 8), Factor::Value([0; 8]));
        let odd = rank.factor.address().cast_const().wrapping_add(2);
        for (request, part) in [
            (Request { op: ReduceOp::Prod, ..given }, "prod"),
            (Request { what: What::AllGather, ..given }, "does not sum"),
            (Request { factor: Some(Factor::At(std::ptr::null())), ..given }, "factor"),
            (Request { factor: Some(Factor::At(odd)), ..given }, "factor"),
            (Request { input: std::ptr::null(), ..given }, "null for a send buffer"),
        ] {
            // SAFETY: nothing of a refused call is read or written.
            let errors = unsafe {
                let grouped = Group::new().call(&rank.on, &request, None);
                [rank.on.call(&request, Some(&rank.stream)), grouped]
            };
            for error in errors.map(Result::unwrap_err) {
                assert!(error.to_string().contains(part), "{error}");
            }
        }
    });
}

#[test]
fn replays_read_the_factors_of_their_time() {
    let Some(simulated) = on_simulator(name_of(replays_read_the_factors_of_their_time)) else {
        return;
    };
    let application = &Recorder::new(&simulated, backend());
    on_threads(WORLD, &options(), |communicator| {
        let (raw, stream) = application.adopt(communicator.device());
        let mut rank = Rank::new(&communicator, stream);
        for call in CALLS {
            let make = |rank: &Rank| {
                let factor = Factor::At(rank.factor.address().cast_const());
                // SAFETY: the areas are as long as said, and outlive all launches and replays.
                unsafe { rank.on.call(&rank.request(call, factor), Some(&rank.stream)) }.unwrap();
            };
            rank.fill(0);
            communicator.barrier().unwrap();
            make(&rank);
            application.finish(raw);
            rank.check(call, 0, "before it is recorded");
            let recorded = application.record_on_thread(raw, || make(&rank));
            for round in [1, 0, 2] {
                rank.fill(round);
                communicator.barrier().unwrap();
                application.replay(recorded, raw);
                application.finish(raw);
                rank.check(call, round, "replayed");
            }
            rank.on.executor().synchronize(&rank.stream).unwrap();
            application.destroy(recorded);
            communicator.barrier().unwrap();
        }
    });
}
