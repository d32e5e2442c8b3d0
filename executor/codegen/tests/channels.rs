//! What kernels do with hosts and switches, on the simulated driver, a test fixture: requests to proxies, runtime blocks,
//! multicast, and launches that end early.

#[macro_use]
#[path = "../../../tests/gpusim/tests/support/mod.rs"]
mod support;
mod world;

// Cargo builds the driver's library for it.
use antiphon_gpusim as _;

use antiphon_codegen::abi::{ContextWords, FOREIGN, Link, RuntimeBlock, Where};
use antiphon_codegen::interpret::interpreted;
use antiphon_codegen::{Target, Variant, generate};
use antiphon_plan::DataType;
use antiphon_plan::algorithms::{Shape, allreduce, alltoallv};
use antiphon_plan::builder::ProgramBuilder;
use antiphon_plan::model::Collective;
use antiphon_plan::program::{CallSizes, Layout};
use std::mem::offset_of;
use std::time::{Duration, Instant};
use support::Driver;
use world::{Make, World, group, upload, zeroed};

const F32: Variant = Variant { target: Target::Cuda, dtype: DataType::F32, op: None };

/// Looks until something is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::yield_now();
    }
}

fn sizes(input: u64, output: u64) -> CallSizes {
    CallSizes { input, output, element: 4, strict: false }
}

/// Where rank 0 asks a proxy for what goes to rank 1. The test stands for the proxy.
struct Queue {
    fifo: u64,
    /// How much of what was asked is done.
    done: u64,
}

impl Queue {
    /// One with `capacity` places, empty.
    fn new(driver: &Driver, world: &mut World<'_>, capacity: u64) -> Self {
        let [fifo, claims, done, asked] =
            [(capacity + 2) * 64, 16, 8, 8].map(|bytes| zeroed(driver, bytes));
        let link = Link {
            fifo: world::address(fifo),
            claims: world::address(claims),
            capacity,
            done: world::address(done),
            asked: world::address(asked),
            peer: 1,
            leads: 1,
            ..Link::default()
        };
        let launch = &mut world.ranks[0].launch;
        (launch.links, launch.link_count) = (upload(driver, &[link]), 1);
        Queue { fifo, done }
    }
}

#[test]
fn a_launch_that_waits_in_vain_says_where_and_ends_when_it_is_told_to() {
    let driver = Driver::start();
    let p = ProgramBuilder::new("vain", Collective::Test, 2).chunk_counts(1, 1);
    let channel = p.channel(0, 1);
    let (waits, goes) = (p.block(0), p.block(0));
    goes.copy(p.input(0).all(), p.output(0).all());
    waits.copy(p.input(0).all(), p.scratch(0, 1).all());
    waits.wait(&[channel]);
    waits.copy(p.scratch(0, 1).all(), p.output(0).all());
    p.block(1).signal(&[channel]);
    let layout = Layout::new(&p.build().unwrap()).unwrap();
    let mut world = World::new(&driver, &layout, F32, sizes(64, 64));
    let (input, output) = (upload(&driver, &[1.0_f32; 16]).0, upload(&driver, &[2.0_f32; 16]).0);
    (0..2).for_each(|rank| world.place(rank, input, output));
    let own = &layout.ranks[0];
    let code = &own.instructions[own.blocks[0].code.range()];
    let is_wait =
        |instruction: &_| matches!(instruction, antiphon_plan::program::Instruction::Wait { .. });
    let place = code.iter().position(is_wait).unwrap() as u32;
    world.start_only(0..1);
    let block = |world: &World<'_>| world.progress(0);
    let here = (1, Where::Instruction(place));
    let seen = |(launch, word)| (launch, Where::unpack(word).unwrap());
    until("the block says where it is", || block(&world).into_iter().any(|at| seen(at) == here));
    driver.write(world.stop, &[1_u32]);
    world.finish();
    assert_eq!(driver.read::<f32>(output, 1), [1.0], "the other block has done its part");
}

#[test]
fn a_launch_that_begins_once_its_context_is_closed_leaves_at_once() {
    let driver = Driver::start();
    let p = ProgramBuilder::new("late", Collective::Test, 1).chunk_counts(1, 1);
    for _ in 0..3 {
        p.block(0).copy(p.input(0).all(), p.output(0).all());
    }
    let layout = Layout::new(&p.build().unwrap()).unwrap();
    for make in [generate as Make, interpreted] {
        let mut world = World::with(make, &driver, &layout, F32, sizes(64, 64));
        let [input, output] = [1.0_f32, 2.0].map(|value| upload(&driver, &[value; 16]).0);
        world.place(0, input, output);
        let context = world.ranks[0].launch.context.0;
        let word = |offset: usize| context + offset as u64;
        driver.write(word(offset_of!(ContextWords, closed)), &[1_u32]);
        world.start();
        world.finish();
        assert_eq!(driver.read::<f32>(output, 1), [2.0]);
        assert_eq!(driver.read::<u64>(word(offset_of!(ContextWords, entered)), 1), [3]);
        assert_eq!(world.over(0), 1, "whoever looks finds that nothing is under way");
        driver.write(word(offset_of!(ContextWords, closed)), &[0_u32]);
        world.start();
        world.finish();
        assert_eq!(driver.read::<f32>(output, 1), [1.0]);
        assert_eq!(driver.read::<u64>(word(offset_of!(ContextWords, entered)), 1), [6]);
    }
}

#[test]
fn transfers_signals_and_flushes_go_to_the_proxy() {
    let driver = Driver::start();
    let p = ProgramBuilder::new("far", Collective::Test, 2).chunk_counts(6, 6).fuse(false);
    let port = p.port(0, 1);
    let (block, far) = (p.block(0), p.block(1));
    for chunk in 0..6 {
        block.put_with_signal_and_flush(
            &port,
            p.input(0).chunk(chunk),
            p.output(1).chunk(5 - chunk),
        );
        far.wait(&[port]);
    }
    let layout = Layout::new(&p.build().unwrap()).unwrap();
    let mut world = World::new(&driver, &layout, F32, sizes(6 * 64, 6 * 64));
    let values: Vec<f32> = (0..6 * 16).map(|k| k as f32).collect();
    let (input, output) = (upload(&driver, &values).0, zeroed(&driver, 6 * 64));
    (0..2).for_each(|rank| world.place(rank, input, output));
    // Two places for eighteen requests, and for one that the launch's end needs not: all is flushed.
    let capacity = 2_u64;
    let Queue { fifo, done } = Queue::new(&driver, &mut world, capacity);
    world.start();
    let mut counters = Vec::new();
    for ticket in 0..18 {
        let place = fifo + 64 * (2 + ticket % capacity);
        until("a request comes", || driver.read::<u64>(place, 1) == [ticket + 1]);
        let [_, kinds, to_rank, source, from, region, to, bytes] = driver.read::<u64>(place, 8)[..]
        else {
            panic!("eight words");
        };
        assert_eq!(to_rank, 1);
        let chunk = ticket / 3;
        match kinds {
            1 => {
                assert_eq!((source, from, bytes), (FOREIGN, input + 64 * chunk, 64));
                assert_eq!((region, to), (FOREIGN, output + 64 * (5 - chunk)));
                driver.write(to, &driver.read::<f32>(from, 16));
            }
            2 => {
                assert_eq!((source, from, region, bytes), (0, 0, FOREIGN, 0));
                driver.write(to, &[chunk + 1]);
                counters.push(to);
            }
            4 => driver.write(done, &[ticket + 1]),
            other => panic!("kinds {other}"),
        }
        driver.write(fifo + 64, &[ticket + 1]);
    }
    world.finish();
    assert!(counters.len() == 6 && counters.iter().all(|at| *at == counters[0]));
    let expected: Vec<f32> =
        values.chunks(16).rev().flat_map(|chunk| chunk.iter().copied()).collect();
    assert_eq!(driver.read::<f32>(output, values.len()), expected);
    assert_eq!([world.over(0), world.over(1)], [1, 1]);
}

#[test]
fn a_launch_is_over_when_what_it_handed_to_the_proxy_has_landed() {
    let driver = Driver::start();
    let p = ProgramBuilder::new("late", Collective::Test, 2).chunk_counts(1, 1);
    let port = p.port(0, 1);
    p.block(0).put_with_signal(&port, p.input(0).all(), p.output(1).all());
    p.block(1).wait(&[port]);
    let layout = Layout::new(&p.build().unwrap()).unwrap();
    let mut world = World::new(&driver, &layout, F32, sizes(64, 64));
    let buffer = zeroed(&driver, 64);
    (0..2).for_each(|rank| world.place(rank, buffer, buffer));
    let capacity = 4_u64;
    let Queue { fifo, done } = Queue::new(&driver, &mut world, capacity);
    world.start();
    let request = |ticket: u64| driver.read::<u64>(fifo + 64 * (2 + ticket % capacity), 8);
    for (ticket, kinds) in [(0, 1), (1, 2), (2, 4)] {
        until("a request comes", || request(ticket)[0] == ticket + 1);
        assert_eq!(request(ticket)[1], kinds);
    }
    driver.write(request(1)[6], &[1_u64]);
    let here = (1, Where::Landing(0));
    let seen = |(launch, word)| (launch, Where::unpack(word).unwrap());
    until("the launch says what it waits for", || {
        world.progress(0).into_iter().any(|at| seen(at) == here)
    });
    assert_eq!(world.over(0), 0);
    driver.write(done, &[3_u64]);
    world.finish();
    assert_eq!([world.over(0), world.over(1)], [1, 1]);
}

#[test]
fn a_block_that_finds_the_queue_full_ends_when_it_is_told_to_or_when_the_queue_is_closed() {
    for closed in [false, true] {
        let driver = Driver::start();
        let p = ProgramBuilder::new("full", Collective::Test, 2).chunk_counts(4, 4).fuse(false);
        let port = p.port(0, 1);
        let block = p.block(0);
        (0..4).for_each(|k| block.put_over(&port, p.input(0).chunk(k), p.output(1).chunk(k)));
        block.signal(&[port]);
        p.block(1).wait(&[port]);
        let layout = Layout::new(&p.build().unwrap()).unwrap();
        let mut world = World::new(&driver, &layout, F32, sizes(256, 256));
        let buffer = zeroed(&driver, 256);
        (0..2).for_each(|rank| world.place(rank, buffer, buffer));
        // Two places, and nobody who takes what is there.
        let queue = Queue::new(&driver, &mut world, 2);
        if closed {
            driver.write(queue.fifo + 72, &[1_u64]);
        }
        world.start();
        let seen = |(_, word)| Where::unpack(word).unwrap();
        until("the block says that it waits, or that nobody serves it", || {
            world.progress(0).into_iter().map(seen).any(|at| match at {
                Where::Instruction(_) => !closed,
                Where::Closed(_) => closed,
                _ => false,
            })
        });
        driver.write(world.stop, &[1_u32]);
        world.finish();
    }
}

/// Runs an alltoallv whose blocks have these lengths, in elements, by sender and receiver.
fn blocks(driver: &Driver, sent: [[u64; 3]; 3], received: [[u64; 3]; 3]) -> Vec<Vec<f32>> {
    let plan = alltoallv::zero_copy(Shape { blocks: 2, ..Shape::new(3) }).unwrap();
    let layout = Layout::new(&plan).unwrap();
    let mut world = World::new(driver, &layout, F32, sizes(4, 4));
    let mut outputs = Vec::new();
    let mut tables = Vec::new();
    for rank in 0..3 {
        let mut table = Vec::new();
        let room = |lens: &[u64; 3]| lens.iter().sum::<u64>();
        for lens in [&sent[rank], &received[rank]] {
            let mut offset = 0;
            for len in lens {
                table.push(RuntimeBlock { offset: 4 * offset, len: 4 * len });
                offset += len;
            }
        }
        let odd: Vec<_> =
            vec![RuntimeBlock::default(); table.len()].into_iter().chain(table).collect();
        // The first launch is an odd one.
        tables.push(upload(driver, &odd).0);
        let values: Vec<f32> =
            (0..room(&sent[rank])).map(|k| (rank * 1000) as f32 + k as f32).collect();
        let (input, output) =
            (upload(driver, &values).0, zeroed(driver, 4 * room(&received[rank])));
        world.place(rank, input, output);
        outputs.push((output, room(&received[rank]) as usize));
    }
    let runtime = upload(driver, &tables);
    world.ranks.iter_mut().for_each(|rank| rank.launch.runtime = runtime);
    world.start();
    let unequal = sent.iter().enumerate().any(|(s, row)| (0..3).any(|r| row[r] != received[r][s]));
    if unequal {
        let told = |(_, word)| matches!(Where::unpack(word), Some(Where::Unequal(_)));
        until("a rank says that blocks differ", || {
            (0..3).any(|rank| world.progress(rank).into_iter().any(told))
        });
        driver.write(world.stop, &[1_u32]);
    }
    world.finish();
    outputs.into_iter().map(|(at, count)| driver.read(at, count)).collect()
}

#[test]
fn runtime_blocks_have_the_lengths_of_the_call() {
    let driver = Driver::start();
    let sent = [[0, 5, 133], [70, 1, 2], [3, 0, 64]];
    let received = [[0, 70, 3], [5, 1, 0], [133, 2, 64]];
    let found = blocks(&driver, sent, received);
    for (receiver, values) in found.iter().enumerate() {
        let mut expected = Vec::new();
        for (sender, lens) in sent.iter().enumerate() {
            let before: u64 = lens[..receiver].iter().sum();
            expected.extend(
                (before..before + lens[receiver]).map(|k| (sender * 1000) as f32 + k as f32),
            );
        }
        assert_eq!(values, &expected, "rank {receiver}");
    }
    // Ends, and says why.
    let mut other = received;
    other[2][0] -= 1;
    let _ = blocks(&driver, sent, other);
}

#[test]
fn switches_go_through_the_multicast() {
    multicast(generate);
}

#[test]
fn switches_of_the_interpreting_kernel_do_too() {
    multicast(interpreted);
}

fn multicast(make: Make) {
    let driver = Driver::start();
    let (multicast, members) = group::group(&driver, 4);
    let plan = allreduce::switch(Shape { in_place: true, ..Shape::new(4) }).unwrap();
    let layout = Layout::new(&plan).unwrap();
    // Whole vectors alone, of which none goes another way; and some elements beside them.
    for (chunk, elsewhere) in [(76_usize, true), (75, false)] {
        let (count, at) = (4 * chunk, 256_u64);
        let sizes = sizes(4 * count as u64, 4 * count as u64);
        let mut world = World::with(make, &driver, &layout, F32, sizes);
        for (rank, member) in members.iter().enumerate() {
            let values: Vec<f32> = (0..count).map(|k| ((rank + 1) * (k % 50)) as f32).collect();
            driver.write(member + at, &values);
            let own = if elsewhere { zeroed(&driver, sizes.input) } else { member + at };
            world.place(rank, own, own);
            world.ranks[rank].launch.multicasts = upload(&driver, &[multicast + at]);
        }
        world.start();
        world.finish();
        let expected: Vec<f32> = (0..count).map(|k| (10 * (k % 50)) as f32).collect();
        for member in &members {
            assert_eq!(driver.read::<f32>(member + at, count), expected);
        }
    }
}
