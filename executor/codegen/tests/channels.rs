//! What kernels do with hosts and switches, on the simulated driver, a test fixture: requests to proxies, runtime blocks,
//! multicast, and launches that end early.

#[macro_use]
#[path = "../../../tests/gpusim/tests/support/mod.rs"]
mod support;
mod world;

// Cargo builds the driver's library for it.
use antiphon_gpusim as _;

use antiphon_codegen::abi::{Link, PortSide, RuntimeBlock, Where};
use antiphon_codegen::{Target, Variant};
use antiphon_plan::DataType;
use antiphon_plan::algorithms::{allreduce, alltoallv};
use antiphon_plan::builder::ProgramBuilder;
use antiphon_plan::model::Collective;
use antiphon_plan::program::{CallSizes, Layout};
use std::time::{Duration, Instant};
use support::Driver;
use world::{World, group, upload, zeroed};

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
    let buffer = zeroed(&driver, 6 * 64);
    (0..2).for_each(|rank| world.place(rank, buffer, buffer));
    // Two places for eighteen requests.
    let (capacity, channel) = (2_u64, 77);
    let fifo = zeroed(&driver, (capacity + 2) * 64);
    let done = zeroed(&driver, 8);
    let link = Link { fifo: world::address(fifo), capacity, channel, done: world::address(done) };
    let side = |region, start| PortSide { region, start };
    let mut port_sides = [PortSide::default(); 8];
    (port_sides[0], port_sides[5]) = (side(3, 1000), side(4, 5000));
    world.ranks[0].launch.links = upload(&driver, &[link]);
    world.ranks[0].launch.port_sides = upload(&driver, &port_sides);
    world.start_only(0..1);
    let mut seen = Vec::new();
    for ticket in 0..18 {
        let place = fifo + 64 * (2 + ticket % capacity);
        until("a request comes", || driver.read::<u64>(place, 1) == [ticket + 1]);
        let request = driver.read::<u64>(place, 8);
        assert_eq!(request[2], channel);
        if request[1] == 4 {
            driver.write(done, &[ticket + 1]);
        }
        seen.push((request[1], request[3..].to_vec()));
        driver.write(fifo + 64, &[ticket + 1]);
    }
    world.finish();
    for (chunk, requests) in seen.chunks(3).enumerate() {
        let (from, to) = (1000 + 64 * chunk as u64, 5000 + 64 * (5 - chunk as u64));
        assert_eq!(requests[0], (1, vec![3, from, 4, to, 64]));
        assert_eq!(requests[1..], [(2, vec![0; 5]), (4, vec![0; 5])]);
    }
    assert_eq!(world.over(0), 1);
}

/// Runs an alltoallv whose blocks have these lengths, in elements, by sender and receiver.
fn blocks(driver: &Driver, sent: [[u64; 3]; 3], received: [[u64; 3]; 3]) -> Vec<Vec<f32>> {
    let plan = alltoallv::zero_copy(3, 2, Default::default()).unwrap();
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
    let driver = Driver::start();
    let (multicast, members) = group::group(&driver, 4);
    let plan = allreduce::switch(4).unwrap();
    let layout = Layout::new(&plan).unwrap();
    // Whole vectors alone, of which none goes another way; and some elements beside them.
    for (chunk, elsewhere) in [(76_usize, true), (75, false)] {
        let (count, at) = (4 * chunk, 256_u64);
        let sizes = sizes(4 * count as u64, 4 * count as u64);
        let mut world = World::new(&driver, &layout, F32, sizes);
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
