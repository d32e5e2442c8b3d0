//! Several plans at once, and launches that follow each other in stream order.

use crate::copies::{read, write};
use crate::{on_simulator, on_simulator_with, on_threads, options};
use antiphon::executor::hal::{Backend, driver};
use antiphon::executor::{Call, Collectives, Communicator, Executor, Factor, Request, What};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::{DataType, ReduceOp};
use antiphon_tests::name_of;

const ELEMENTS: usize = 640;
const BYTES: u64 = ELEMENTS as u64 * 4;

/// What rank `rank` contributes to round `round`.
fn values(rank: u32, round: u32) -> Vec<u32> {
    (0..ELEMENTS as u32).map(|at| at * 3 + rank * 1000 + round * 7).collect()
}

fn sums(world: u32, round: u32) -> Vec<u32> {
    let all: Vec<_> = (0..world).map(|rank| values(rank, round)).collect();
    (0..ELEMENTS).map(|at| all.iter().map(|one| one[at]).sum()).collect()
}

#[test]
fn plans_on_two_streams_do_not_meet() {
    // To load the second plan's code waits for kernels, and those of the first for all ranks.
    let test = name_of(plans_on_two_streams_do_not_meet);
    if on_simulator_with(test, &[("ANTIPHON_GPUSIM_WAITS", "load")]).is_none() {
        return;
    }
    const WORLD: u32 = 3;
    on_threads(WORLD, &options(), |rank| {
        let executor = Executor::new(&rank);
        let algorithms = [Algorithm::AllReduceTwoShotPackets, Algorithm::AllReduceZeroCopy];
        let plans = algorithms
            .map(|algorithm| executor.load(&algorithm.plan(Shape::new(3)).unwrap()).unwrap());
        let streams = [(); 2].map(|()| rank.stream().unwrap());
        let buffers = [(); 2].map(|()| {
            [(); 5].map(|()| (rank.allocate(BYTES).unwrap(), rank.allocate(BYTES).unwrap()))
        });
        for (number, stream) in streams.iter().enumerate() {
            for (round, (input, _)) in buffers[number].iter().enumerate() {
                write(
                    stream,
                    input.address(),
                    &values(rank.rank(), round as u32 + 10 * number as u32),
                );
            }
        }
        // Ranks submit to the two streams in opposite orders, but all number the streams alike.
        let later = if rank.rank() == 1 { [1, 0] } else { [0, 1] };
        for (round, order) in [[0, 1], later, later, later, later].into_iter().enumerate() {
            for number in order {
                let (input, output) = &buffers[number][round];
                let from = (input.address().cast_const(), BYTES);
                let to = (output.address(), BYTES);
                let call = Call::new(&plans[number], DataType::U32, from, to);
                // SAFETY: the buffers hold the call's bytes and outlive the streams' work.
                unsafe { executor.execute(&call, &streams[number]) }.unwrap();
            }
        }
        for (number, stream) in streams.iter().enumerate() {
            executor.synchronize(stream).unwrap();
            for (round, (_, output)) in buffers[number].iter().enumerate() {
                let expected = sums(WORLD, round as u32 + 10 * number as u32);
                assert_eq!(
                    read(stream, output.address(), ELEMENTS),
                    expected,
                    "stream {number} round {round}"
                );
            }
        }
        rank.barrier().unwrap();
    });
}

#[test]
fn an_average_leaves_alone_what_holds_no_sum() {
    if on_simulator(name_of(an_average_leaves_alone_what_holds_no_sum)).is_none() {
        return;
    }
    let plans = [Algorithm::ReduceZeroCopy, Algorithm::AllToAllZeroCopy];
    for algorithm in plans {
        on_threads(2, &options(), |rank| {
            let executor = Executor::new(&rank);
            let plan = executor.load(&algorithm.plan(Shape::new(2)).unwrap()).unwrap();
            let stream = rank.stream().unwrap();
            let (input, output) = (rank.allocate(BYTES).unwrap(), rank.allocate(BYTES).unwrap());
            write(&stream, input.address(), &values(0, 0));
            write(&stream, output.address(), &[u32::MAX; ELEMENTS]);
            let (from, to) = ((input.address().cast_const(), BYTES), (output.address(), BYTES));
            let call =
                Call { op: Some(ReduceOp::Avg), ..Call::new(&plan, DataType::U32, from, to) };
            // SAFETY: as above.
            unsafe { executor.execute(&call, &stream) }.unwrap();
            executor.synchronize(&stream).unwrap();
            rank.barrier().unwrap();
            let found = read(&stream, output.address(), ELEMENTS);
            match algorithm {
                // The mean of equal values, on the root.
                Algorithm::ReduceZeroCopy if rank.rank() == 0 => assert_eq!(found, values(0, 0)),
                Algorithm::ReduceZeroCopy => assert_eq!(found, [u32::MAX; ELEMENTS]),
                _ => {
                    let half = ELEMENTS / 2;
                    let own = rank.rank() as usize * half..(rank.rank() as usize + 1) * half;
                    assert_eq!(found[..half], values(0, 0)[own.clone()]);
                    assert_eq!(found[half..], values(0, 0)[own]);
                }
            }
        });
    }
}

#[test]
fn one_thread_drives_all_ranks() {
    if on_simulator(name_of(one_thread_drives_all_ranks)).is_none() {
        return;
    }
    let devices = vec![crate::device(); 4];
    let ranks = Communicator::in_process_over(&devices, &options()).unwrap();
    let plan = Algorithm::AllReduceRing.plan(Shape::new(4)).unwrap();
    let mut launched = Vec::new();
    for rank in &ranks {
        let executor = Executor::new(rank);
        let plan = executor.load(&plan).unwrap();
        let stream = rank.stream().unwrap();
        let (input, output) = (rank.allocate(BYTES).unwrap(), rank.allocate(BYTES).unwrap());
        write(&stream, input.address(), &values(rank.rank(), 0));
        launched.push((executor, plan, stream, input, output));
    }
    for _ in 0..3 {
        for (executor, plan, stream, input, output) in launched.iter().rev() {
            let (from, to) = ((input.address().cast_const(), BYTES), (output.address(), BYTES));
            let call = Call::new(plan, DataType::U32, from, to);
            // SAFETY: as above.
            unsafe { executor.execute(&call, stream) }.unwrap();
        }
    }
    for (executor, _, stream, _, output) in &launched {
        executor.synchronize(stream).unwrap();
        assert_eq!(read(stream, output.address(), ELEMENTS), sums(4, 0));
    }
}

#[test]
fn an_average_is_divided_and_sizes_may_change_from_launch_to_launch() {
    let test = name_of(an_average_is_divided_and_sizes_may_change_from_launch_to_launch);
    if on_simulator(test).is_none() {
        return;
    }
    on_threads(2, &options(), |rank| {
        let executor = Executor::new(&rank);
        let plan = Algorithm::AllReduceOneShotPackets.plan(Shape::new(2)).unwrap();
        let plan = executor.load(&plan).unwrap();
        let stream = rank.stream().unwrap();
        let (input, output) = (rank.allocate(BYTES).unwrap(), rank.allocate(BYTES).unwrap());
        write(&stream, input.address(), &values(rank.rank(), 0));
        let whole: Vec<u32> = sums(2, 0).into_iter().map(|sum| sum / 2).collect();
        for elements in [640, 4, 640, 33, 2, 638] {
            write(&stream, output.address(), &[u32::MAX; ELEMENTS]);
            let bytes = elements as u64 * 4;
            let from = (input.address().cast_const(), bytes);
            let call = Call::new(&plan, DataType::U32, from, (output.address(), bytes));
            let call = Call { op: Some(ReduceOp::Avg), ..call };
            // SAFETY: as above.
            unsafe { executor.execute(&call, &stream) }.unwrap();
            executor.synchronize(&stream).unwrap();
            let found = read(&stream, output.address(), ELEMENTS);
            assert_eq!(found[..elements], whole[..elements], "{elements} elements");
            assert!(found[elements..].iter().all(|&rest| rest == u32::MAX));
        }
        rank.barrier().unwrap();
    });
}

/// Bytes of address space that this process has.
fn mapped_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn sizes_that_vary_without_end_take_no_more_memory() {
    let test = name_of(sizes_that_vary_without_end_take_no_more_memory);
    // Else each thread that the process starts may map an arena for what it allocates.
    if on_simulator_with(test, &[("MALLOC_ARENA_MAX", "1")]).is_none() {
        return;
    }
    /// More than a context keeps, and as many again.
    const KEPT: usize = 60;
    const MORE: usize = 240;
    on_threads(2, &options(), |rank| {
        let executor = Executor::new(&rank);
        let plan = Algorithm::AllReduceOneShotPackets.plan(Shape::new(2)).unwrap();
        let plan = executor.load(&plan).unwrap();
        let stream = rank.stream().unwrap();
        let (input, output) = (rank.allocate(BYTES).unwrap(), rank.allocate(BYTES).unwrap());
        write(&stream, input.address(), &values(rank.rank(), 0));
        let (whole, mut before) = (sums(2, 0), 0);
        for round in 1..=KEPT + MORE {
            // All differ, and come in no order of their sizes.
            let elements = round * 211 % 641;
            write(&stream, output.address(), &[u32::MAX; ELEMENTS]);
            let bytes = elements as u64 * 4;
            let from = (input.address().cast_const(), bytes);
            let call = Call::new(&plan, DataType::U32, from, (output.address(), bytes));
            // SAFETY: as above.
            unsafe { executor.execute(&call, &stream) }.unwrap();
            executor.synchronize(&stream).unwrap();
            let found = read(&stream, output.address(), ELEMENTS);
            assert_eq!(found[..elements], whole[..elements], "{elements} elements");
            assert!(found[elements..].iter().all(|&rest| rest == u32::MAX));
            if round == KEPT {
                before = mapped_bytes();
            }
        }
        rank.barrier().unwrap();
        // The two ranks would take an allocation for each.
        let grown = mapped_bytes().saturating_sub(before);
        assert!(grown < MORE as u64 * (2 << 20), "{grown} bytes more");
    });
}

#[test]
fn ranks_whose_streams_come_in_another_order_are_told_so() {
    if on_simulator(name_of(ranks_whose_streams_come_in_another_order_are_told_so)).is_none() {
        return;
    }
    let told = on_threads(2, &options(), |rank| {
        let on = Collectives::new(&rank).unwrap();
        let streams = [(); 2].map(|()| rank.stream().unwrap());
        let memory = rank.allocate(BYTES).unwrap();
        // The second call: on the second stream of rank 0, and on the first that rank 1 uses.
        let order = if rank.rank() == 0 { [0, 1] } else { [1, 1] };
        let made = order.into_iter().try_for_each(|number| {
            let at = memory.address();
            let (what, dtype, op) = (What::AllReduce, DataType::U32, ReduceOp::Sum);
            let count = ELEMENTS as u64;
            let request = Request { what, input: at, output: at, count, dtype, op, factor: None };
            // SAFETY: the memory is as long, and lives until the communicator has ended its launches.
            unsafe { on.call(&request, Some(&streams[number])) }
        });
        let ended = made
            .and_then(|()| streams.iter().try_for_each(|stream| on.executor().synchronize(stream)));
        let error = ended.expect_err("the second calls never meet");
        assert!(error.breaks_communicator(), "{error}");
        error.to_string()
    });
    let names = |text: &&String| {
        ["make the same calls", "on its stream 1", "on its stream 2"]
            .iter()
            .all(|what| text.contains(what))
    };
    assert!(told.iter().any(|text| names(&text)), "{told:?}");
}

#[test]
fn a_stream_of_another_device_is_refused_before_its_call_counts() {
    if on_simulator(name_of(a_stream_of_another_device_is_refused_before_its_call_counts)).is_none()
    {
        return;
    }
    let host = driver(Backend::Host).unwrap().open(0).unwrap().stream().unwrap();
    on_threads(2, &options(), |rank| {
        let on = Collectives::new(&rank).unwrap();
        let executor = on.executor();
        let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap();
        let plan = executor.load(&plan).unwrap();
        let (input, output) = (rank.allocate(BYTES).unwrap(), rank.allocate(BYTES).unwrap());
        let (from, to) = ((input.address().cast_const(), BYTES), (output.address(), BYTES));
        let call = Call::new(&plan, DataType::U32, from, to);
        let sum = |dtype, factor| Request {
            what: What::AllReduce,
            input: from.0,
            output: to.0,
            count: ELEMENTS as u64,
            dtype,
            op: ReduceOp::Sum,
            factor,
        };
        // One rank alone: what counts here would be a call that the other never makes.
        if rank.rank() == 0 {
            let scaled = sum(DataType::F32, Some(Factor::Value([0; 8])));
            // SAFETY: the buffers hold the calls' bytes and outlive them.
            let refused = unsafe {
                [
                    executor.execute(&call, &host).map(drop),
                    on.call(&sum(DataType::U32, None), Some(&host)),
                    on.call(&scaled, Some(&host)),
                    on.send(from.0, BYTES, DataType::U8, 1, Some(&host)),
                ]
            };
            for one in refused {
                let error = one.unwrap_err().to_string();
                assert!(error.contains("a stream of host:0 on a rank of"), "{error}");
            }
        }
        // What was refused has loaded code, for which launches are waited for that are under way.
        rank.barrier().unwrap();
        let stream = rank.stream().unwrap();
        write(&stream, input.address(), &values(rank.rank(), 0));
        // SAFETY: as above.
        unsafe { executor.execute(&call, &stream) }.unwrap();
        executor.synchronize(&stream).unwrap();
        assert_eq!(read(&stream, output.address(), ELEMENTS), sums(2, 0));
        write(&stream, input.address(), &values(rank.rank(), 1));
        // SAFETY: as above.
        unsafe { on.call(&sum(DataType::U32, None), Some(&stream)) }.unwrap();
        executor.synchronize(&stream).unwrap();
        assert_eq!(read(&stream, output.address(), ELEMENTS), sums(2, 1));
        // SAFETY: as above.
        let moved = unsafe {
            match rank.rank() {
                0 => on.send(from.0, BYTES, DataType::U8, 1, Some(&stream)),
                _ => on.receive(to.0, BYTES, DataType::U8, 0, Some(&stream)),
            }
        };
        moved.unwrap();
        executor.synchronize(&stream).unwrap();
        let expected = if rank.rank() == 0 { sums(2, 1) } else { values(0, 1) };
        assert_eq!(read(&stream, output.address(), ELEMENTS), expected);
        rank.barrier().unwrap();
    });
}
