//! Communicators with one lane, as those of NCCL's interface: ranks choose their streams for themselves, and calls follow each other.

use crate::coded::{Rank, adding, over};
use crate::copies::{read, write};
use crate::{backend, on_simulator, on_threads, options};
use antiphon::executor::hal::{Memory, Stream};
use antiphon::executor::{Collectives, Communicator, Factor, Group, Options, Request, What};
use antiphon::{DataType, ReduceOp};
use antiphon_tests::name_of;
use antiphon_tests::recorder::Recorder;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const ELEMENTS: usize = 640;
const BYTES: u64 = ELEMENTS as u64 * 4;
const CALLS: usize = 50;

fn one_lane() -> Options {
    options().with_one_lane(true)
}

fn values(rank: u32) -> Vec<u32> {
    (0..ELEMENTS as u32).map(|at| at * 3 + rank * 1000 + 1).collect()
}

/// What is in place of every rank's values once they were added up so many times, in place.
fn summed(world: u32, times: u32) -> Vec<u32> {
    let all: Vec<_> = (0..world).map(values).collect();
    let factor = world.wrapping_pow(times - 1);
    let sum = |at: usize| all.iter().map(|one| one[at]).sum::<u32>();
    (0..ELEMENTS).map(|at| sum(at).wrapping_mul(factor)).collect()
}

/// A collective in place.
fn request(what: What, memory: &Arc<dyn Memory>) -> Request {
    let (dtype, op, at, count) = (DataType::U32, ReduceOp::Sum, memory.address(), ELEMENTS as u64);
    Request { what, input: at, output: at, count, dtype, op, factor: None }
}

/// Adds up over all ranks, in place.
fn add_up(on: &Collectives, memory: &Arc<dyn Memory>, stream: &Arc<dyn Stream>) {
    // SAFETY: the memory holds the call's bytes, and lives until the streams were waited for.
    unsafe { on.call(&request(What::AllReduce, memory), Some(stream)) }.unwrap();
}

/// Memory with a rank's values.
fn filled(rank: &Communicator) -> Arc<dyn Memory> {
    let memory = rank.allocate(BYTES).unwrap();
    write(&rank.stream().unwrap(), memory.address(), &values(rank.rank()));
    memory
}

#[test]
fn ranks_choose_their_streams_for_themselves_and_each_call_sees_the_last() {
    let test = name_of(ranks_choose_their_streams_for_themselves_and_each_call_sees_the_last);
    if on_simulator(test).is_none() {
        return;
    }
    const WORLD: u32 = 3;
    on_threads(WORLD, &one_lane(), |rank| {
        let on = Collectives::new(&rank).unwrap();
        let streams = [(); 3].map(|()| rank.stream().unwrap());
        let memory = filled(&rank);
        for call in 0..CALLS {
            // Rank 0 stays on one stream, and the others change theirs, each in its own way.
            let stream = &streams[[0, call, call * call / 2][rank.rank() as usize] % streams.len()];
            add_up(&on, &memory, stream);
            if call % 5 == 0 {
                let root = call as u32 % WORLD;
                // SAFETY: as above.
                unsafe { on.call(&request(What::Broadcast { root }, &memory), Some(stream)) }
                    .unwrap();
            }
        }
        streams.iter().try_for_each(|stream| on.executor().synchronize(stream)).unwrap();
        let found = read(&streams[0], memory.address(), ELEMENTS);
        assert_eq!(found, summed(WORLD, CALLS as u32));
        rank.barrier().unwrap();
    });
}

#[test]
fn ranks_of_one_thread_are_one_kernel_on_whatever_streams() {
    let test = name_of(ranks_of_one_thread_are_one_kernel_on_whatever_streams);
    if on_simulator(test).is_none() {
        return;
    }
    const WORLD: u32 = 3;
    let devices = vec![crate::device(); WORLD as usize];
    let ranks = Communicator::in_process_over(&devices, &one_lane()).unwrap();
    let on: Vec<_> = ranks.iter().map(|rank| Collectives::new(rank).unwrap()).collect();
    let memory: Vec<_> = ranks.iter().map(filled).collect();
    let streams = [(); 4].map(|()| ranks[0].stream().unwrap());
    for call in 0..CALLS {
        let mut group = Group::new();
        for (rank, (on, memory)) in on.iter().zip(&memory).enumerate() {
            // All on one now and then, and each on another.
            let stream = &streams[call * rank / 3 % streams.len()];
            // SAFETY: as above.
            unsafe { group.call(on, &request(What::AllReduce, memory), Some(stream)) }.unwrap();
        }
        group.end().unwrap();
    }
    for (on, memory) in on.iter().zip(&memory) {
        streams.iter().try_for_each(|stream| on.executor().synchronize(stream)).unwrap();
        let found = read(&streams[0], memory.address(), ELEMENTS);
        assert_eq!(found, summed(WORLD, CALLS as u32));
    }
}

#[test]
fn a_call_on_another_stream_begins_behind_the_last_one() {
    let test = name_of(a_call_on_another_stream_begins_behind_the_last_one);
    if on_simulator(test).is_none() {
        return;
    }
    let devices = vec![crate::device(); 2];
    // What holds up a stream of rank 0: a call that rank 1 makes later.
    let before = Communicator::in_process_over(&devices, &options()).unwrap();
    let before: Vec<_> = before.iter().map(|rank| Collectives::new(rank).unwrap()).collect();
    on_threads(2, &one_lane(), |rank| {
        let on = Collectives::new(&rank).unwrap();
        let streams = [(); 2].map(|()| rank.stream().unwrap());
        let [held, memory, other] = [(); 3].map(|()| filled(&rank));
        let before = &before[rank.rank() as usize];
        let warm = rank.stream().unwrap();
        add_up(before, &held, &warm);
        add_up(&on, &other, &warm);
        on.executor().synchronize(&warm).unwrap();
        rank.barrier().unwrap();
        if rank.rank() == 0 {
            add_up(before, &held, &streams[0]);
        }
        add_up(&on, &memory, &streams[0]);
        add_up(&on, &other, &streams[1]);
        rank.barrier().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(
            !streams[1].query().unwrap(),
            "the second call is over, and the first has not begun"
        );
        rank.barrier().unwrap();
        if rank.rank() == 1 {
            add_up(before, &held, &warm);
        }
        on.executor().synchronize(&streams[1]).unwrap();
        assert_eq!(read(&streams[1], memory.address(), ELEMENTS), summed(2, 1));
        assert_eq!(read(&streams[1], other.address(), ELEMENTS), summed(2, 2));
        rank.barrier().unwrap();
    });
}

#[test]
fn what_a_premultiplied_sum_multiplies_is_what_the_last_call_has_left() {
    let test = name_of(what_a_premultiplied_sum_multiplies_is_what_the_last_call_has_left);
    if on_simulator(test).is_none() {
        return;
    }
    const WORLD: u32 = 2;
    on_threads(WORLD, &one_lane(), |rank| {
        let on = Collectives::new(&rank).unwrap();
        let streams = [rank.stream().unwrap(), rank.stream().unwrap()];
        let memory = filled(&rank);
        let mut expected = summed(WORLD, 1);
        add_up(&on, &memory, &streams[0]);
        for call in 1..20 {
            let factor = Some(Factor::Value(3u64.to_le_bytes()));
            let request = Request { factor, ..request(What::AllReduce, &memory) };
            // SAFETY: the memory holds the call's bytes, and lives until the streams were waited for.
            unsafe { on.call(&request, Some(&streams[call as usize % 2])) }.unwrap();
            expected.iter_mut().for_each(|value| *value = value.wrapping_mul(3 * WORLD));
        }
        for stream in &streams {
            on.executor().synchronize(stream).unwrap();
        }
        assert_eq!(read(&streams[0], memory.address(), ELEMENTS), expected);
    });
}

#[test]
fn a_stream_that_is_gone_is_not_asked_for_anything() {
    let test = name_of(a_stream_that_is_gone_is_not_asked_for_anything);
    if on_simulator(test).is_none() {
        return;
    }
    on_threads(2, &one_lane(), |rank| {
        let on = Collectives::new(&rank).unwrap();
        let (memory, stays) = (filled(&rank), rank.stream().unwrap());
        for call in 0..6 {
            // What is in a stream that goes still runs to its end.
            let goes = rank.stream().unwrap();
            let stream = if call % 2 == rank.rank() { &goes } else { &stays };
            add_up(&on, &memory, stream);
        }
        add_up(&on, &memory, &stays);
        on.executor().synchronize(&stays).unwrap();
        assert_eq!(read(&stays, memory.address(), ELEMENTS), summed(2, 7));
        rank.barrier().unwrap();
    });
}

#[test]
fn what_is_recorded_on_streams_that_differ_agrees_and_replays_come_beside_calls() {
    let test =
        name_of(what_is_recorded_on_streams_that_differ_agrees_and_replays_come_beside_calls);
    let Some(simulated) = on_simulator(test) else { return };
    let application = &Recorder::new(&simulated, backend());
    on_threads(2, &one_lane(), |rank| {
        let on = Collectives::new(&rank).unwrap();
        let (raw, origin) = application.adopt(rank.device());
        let (_, fork) = application.adopt(rank.device());
        let (calls, other) = (rank.stream().unwrap(), rank.stream().unwrap());
        let (memory, beside) = (filled(&rank), filled(&rank));
        add_up(&on, &memory, &calls);
        // As the rank likes it: which stream has the first call, and which the second.
        let order = if rank.rank() == 0 { [&fork, &origin] } else { [&origin; 2] };
        let joins = [(); 2].map(|()| rank.device().event().unwrap());
        let mut recorded = Vec::new();
        for _ in 0..2 {
            recorded.push(application.record_on_thread(raw, || {
                origin.record(&*joins[0]).unwrap();
                fork.wait(&*joins[0]).unwrap();
                order.iter().for_each(|stream| add_up(&on, &memory, stream));
                fork.record(&*joins[1]).unwrap();
                origin.wait(&*joins[1]).unwrap();
            }));
            rank.barrier().unwrap();
        }
        on.executor().synchronize(&calls).unwrap();
        application.replay(recorded[0], raw);
        application.finish(raw);
        assert_eq!(read(&calls, memory.address(), ELEMENTS), summed(2, 3));
        for (graph, stream) in [(0, &calls), (1, &other), (0, &other)] {
            application.replay(recorded[graph], raw);
            // Beside the replay, which may not be over.
            add_up(&on, &beside, stream);
        }
        application.finish(raw);
        [&calls, &other].into_iter().try_for_each(|one| on.executor().synchronize(one)).unwrap();
        assert_eq!(read(&calls, memory.address(), ELEMENTS), summed(2, 9));
        assert_eq!(read(&calls, beside.address(), ELEMENTS), summed(2, 3));
        rank.barrier().unwrap();
        recorded.into_iter().for_each(|graph| application.destroy(graph));
        rank.barrier().unwrap();
    });
}

#[test]
fn code_comes_in_its_turn_on_whatever_stream() {
    if on_simulator(name_of(code_comes_in_its_turn_on_whatever_stream)).is_none() {
        return;
    }
    let (registry, code) = adding();
    let options = over(&registry).with_one_lane(true);
    on_threads(2, &options, |communicator| {
        let streams = [(); 3].map(|()| communicator.stream().unwrap());
        let rank = Rank::new(&communicator, Arc::clone(&streams[0]));
        let step = communicator.rank() as usize + 1;
        for round in 0..6 {
            rank.fill(round as u32);
            communicator.barrier().unwrap();
            // The first and the last are the code's.
            let chain = [DataType::U32, DataType::I32, DataType::U32];
            for (from, dtype) in chain.into_iter().enumerate() {
                let stream = &streams[(from + round) * step % 3];
                // SAFETY: the buffers are as long as said, and outlive the streams' work.
                unsafe { rank.on.call(&rank.request(from, dtype), Some(stream)) }.unwrap();
            }
            // Who waits for the last call has waited for all.
            rank.on.executor().synchronize(&streams[(2 + round) * step % 3]).unwrap();
            rank.check(3, round as u32, "on streams that differ");
            communicator.barrier().unwrap();
        }
    });
    assert_eq!(code.calls.load(Ordering::Relaxed), 2 * 12);
}
