//! Gathers and scatters by name on devices: launches of plans of their own, on one node and on several, with what ranks have no
//! part in left out.

use crate::devices::devices;
use crate::{
    cuda_only, device, on_devices, on_ranks, on_simulator, on_simulator_of, options, there_are,
};
use antiphon::executor::hal::{Device, Stream};
use antiphon::executor::selection::{Candidate, Question, Selected};
use antiphon::executor::{Collectives, Communicator, Group, Request, What};
use antiphon::plan::algorithms::Rooted;
use antiphon::plan::model::Collective;
use antiphon::{DataType, ReduceOp};
use antiphon_tests::application::{Application, CHUNK};
use antiphon_tests::harness::{Area, Source};
use antiphon_tests::name_of;
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// The hosts of the ranks: one with several, and two with several each.
const NEAR: [&str; 4] = ["a"; 4];
const FAR: [&str; 4] = ["a", "a", "b", "b"];
/// A rank that is alone, and ranks that are alone on their nodes.
const ALONE: [&[&str]; 2] = [&["a"], &["a", "b"]];
/// Bytes of a block: few, what no packet divides, and what several thread blocks share, as packets and without.
const BLOCKS: [usize; 4] = [16, 701, 40_000, 300_000];
const GUARD: u8 = 0x5A;

/// The root of so many ranks: where there are several neither the first of its node, nor on the last node.
fn root_of(world: u32) -> u32 {
    if world == 4 { 1 } else { 0 }
}

/// A call, for all ranks.
#[derive(Clone, Copy, Debug)]
struct Call {
    gathers: bool,
    block: usize,
    number: u8,
    /// Whether the root is in place.
    in_place: bool,
}

/// What the byte `at` of a rank's buffer is in a call.
fn byte(call: Call, rank: u32, at: usize) -> u8 {
    call.number.wrapping_mul(31) ^ (rank as u8 * 7) ^ at as u8 ^ (at >> 8) as u8
}

/// One rank, with the buffers of a call.
struct Rank {
    on: Collectives,
    rank: u32,
    world: u32,
    root: u32,
    stream: Arc<dyn Stream>,
    whole: Area,
    part: Area,
}

impl Rank {
    fn new(communicator: &Communicator) -> Self {
        let most = BLOCKS.into_iter().max().unwrap_or_default() as u64;
        let area = |bytes| Area::new(communicator, Source::Own, bytes).unwrap();
        let world = communicator.world();
        Rank {
            on: Collectives::new(communicator).unwrap(),
            rank: communicator.rank(),
            world,
            root: root_of(world),
            stream: communicator.stream().unwrap(),
            whole: area(most * u64::from(world)),
            part: area(most),
        }
    }

    fn is_root(&self) -> bool {
        self.rank == self.root
    }

    /// Where the rank's own block is in the whole.
    fn own(&self, call: Call) -> usize {
        self.rank as usize * call.block
    }

    /// Fills the buffers, and asks for the call. Who has no part in a buffer gives none.
    fn request(&mut self, call: Call) -> Request {
        let (rank, own, root) = (self.rank, self.own(call), self.is_root());
        let given = |start: usize| (start..start + call.block).map(move |at| byte(call, rank, at));
        self.whole.edit(|all| {
            all.fill(GUARD);
            if root && !call.gathers {
                all.iter_mut().enumerate().for_each(|(at, cell)| *cell = byte(call, rank, at));
            } else if root && call.in_place {
                all[own..].iter_mut().zip(given(0)).for_each(|(cell, byte)| *cell = byte);
            }
        });
        self.part.edit(|all| {
            all.fill(GUARD);
            if call.gathers {
                all.iter_mut().zip(given(0)).for_each(|(cell, byte)| *cell = byte);
            }
        });
        let whole = if root { self.whole.address() } else { null_mut() };
        let part = match call.in_place && root {
            true => self.whole.address().wrapping_add(own),
            false => self.part.address(),
        };
        let (root, gathers) = (self.root, call.gathers);
        let what = if gathers { What::Gather { root } } else { What::Scatter { root } };
        let (input, output) = if gathers { (part, whole) } else { (whole, part) };
        Request {
            what,
            input: input.cast_const(),
            output,
            count: call.block as u64,
            dtype: DataType::U8,
            op: ReduceOp::Sum,
            factor: None,
        }
    }

    /// Checks what came, and that nothing else was written.
    fn check(&self, call: Call) {
        let (block, rank, root) = (call.block, self.rank, self.is_root());
        let of = |from: u32, start: usize| -> Vec<u8> {
            (start..start + block).map(|at| byte(call, from, at)).collect()
        };
        let mut whole = vec![GUARD; self.whole.bytes().len()];
        let mut part = vec![GUARD; self.part.bytes().len()];
        if call.gathers {
            part[..block].copy_from_slice(&of(rank, 0));
            if root {
                let all: Vec<u8> = (0..self.world).flat_map(|from| of(from, 0)).collect();
                whole[..all.len()].copy_from_slice(&all);
            }
        } else {
            if root {
                whole.iter_mut().enumerate().for_each(|(at, cell)| *cell = byte(call, rank, at));
            }
            if !(root && call.in_place) {
                part[..block].copy_from_slice(&of(self.root, self.own(call)));
            }
        }
        for (what, area, expected) in [("whole", &self.whole, whole), ("part", &self.part, part)] {
            let found = area.bytes();
            let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            assert_eq!(wrong, None, "the {what} on rank {rank} after {call:?}");
        }
    }

    /// What serves a call, and with how many thread blocks.
    fn chosen(&self, call: Call) -> (Rooted, usize) {
        let collective = if call.gathers { Collective::Gather } else { Collective::Scatter };
        let bytes = call.block as u64 * u64::from(self.world);
        let question = self.on.question(&collective, bytes, DataType::U8);
        let choice = self.on.explain(&Question { root: self.root, ..question }).unwrap();
        let said = choice.to_string();
        assert!(said.contains("as the simulator predicts"), "{said}");
        match choice.candidate {
            Candidate::BuiltIn(Selected::Rooted(choice)) => (choice.algorithm, choice.shape.blocks),
            other => panic!("{other:?} serves: {said}"),
        }
    }

    /// Every call, several times; what served which.
    fn every_call(&mut self) -> Vec<(Rooted, usize)> {
        let mut chosen = Vec::new();
        for (block, gathers) in BLOCKS.into_iter().flat_map(|block| [(block, true), (block, false)])
        {
            for (number, in_place) in [(1, false), (2, true), (3, false)] {
                let call = Call { gathers, block, number, in_place };
                chosen.push(self.chosen(call));
                let request = self.request(call);
                let stream = (number != 2).then_some(&self.stream);
                // SAFETY: the buffers hold the call's bytes, and live until it is over.
                unsafe { self.on.call(&request, stream) }.unwrap();
                self.on.executor().synchronize(&self.stream).unwrap();
                self.check(call);
            }
        }
        chosen
    }
}

/// Makes every call on each of the ranks, which have these devices; what served them on all ranks.
fn every_call(hosts: &[&str], devices: &[Arc<dyn Device>]) -> Vec<(Rooted, usize)> {
    let ranks = Communicator::in_process_at(hosts, devices, &options()).unwrap();
    let all = on_ranks(ranks, |rank| Rank::new(&rank).every_call());
    assert!(all.iter().all(|one| *one == all[0]), "all ranks choose alike: {all:?}");
    all.into_iter().next().unwrap()
}

#[test]
fn gathers_and_scatters_are_launches_on_one_node_and_on_several() {
    let test = name_of(gathers_and_scatters_are_launches_on_one_node_and_on_several);
    if on_simulator_of(test, 4).is_none() {
        return;
    }
    for hosts in [NEAR, FAR] {
        let chosen = every_call(&hosts, &devices(4, 4));
        let far = hosts == FAR;
        assert!(chosen.iter().all(|(one, _)| one.is_hierarchical() == far), "{chosen:?}");
        assert!(chosen.iter().any(|(_, blocks)| *blocks > 1), "{chosen:?}");
        let packets = |(one, _): &&(Rooted, usize)| one.name().ends_with("packets");
        let count = chosen.iter().filter(packets).count();
        assert!(0 < count && count < chosen.len(), "packets and without: {chosen:?}");
    }
    for hosts in ALONE {
        let world = hosts.len() as u32;
        let chosen = every_call(hosts, &devices(world, world));
        assert!(chosen.iter().all(|(one, _)| one.is_hierarchical() == (world > 1)), "{chosen:?}");
    }
}

#[test]
fn one_thread_gathers_and_scatters_of_ranks_that_share_a_device_in_a_group() {
    let test = name_of(one_thread_gathers_and_scatters_of_ranks_that_share_a_device_in_a_group);
    if on_simulator(test).is_none() {
        return;
    }
    for hosts in [NEAR, FAR] {
        let devices = vec![device(); hosts.len()];
        let ranks = Communicator::in_process_at(&hosts, &devices, &options()).unwrap();
        let mut ranks: Vec<[Rank; 2]> =
            ranks.iter().map(|rank| [(); 2].map(|()| Rank::new(rank))).collect();
        for (block, number) in [(701, 1), (40_000, 2)] {
            let calls =
                [true, false].map(|gathers| Call { gathers, block, number, in_place: number == 2 });
            let mut group = Group::new();
            for [gathers, scatters] in &mut ranks {
                let requests = [gathers.request(calls[0]), scatters.request(calls[1])];
                for request in &requests {
                    // SAFETY: the buffers hold the calls' bytes, and live until the group is over.
                    unsafe { group.call(&gathers.on, request, Some(&gathers.stream)) }.unwrap();
                }
                let (_, blocks) = gathers.chosen(calls[0]);
                assert_eq!(blocks, 1, "ranks that share a device have a block each");
            }
            group.end().unwrap();
            for [gathers, scatters] in &ranks {
                gathers.on.executor().synchronize(&gathers.stream).unwrap();
                gathers.check(calls[0]);
                scatters.check(calls[1]);
            }
        }
    }
}

/// Which the root alone has: it is staged there, and nowhere else.
#[test]
fn memory_that_nobody_can_import_is_staged_where_there_is_some() {
    let test = name_of(memory_that_nobody_can_import_is_staged_where_there_is_some);
    let Some(simulated) = cuda_only(test).filter(|_| there_are(test, 2)) else { return };
    let application = &Application::new(&simulated);
    let (words, root) = (CHUNK / 8, 1);
    on_devices(&devices(2, 2), &options(), |rank| {
        let own = rank.rank().cast_signed();
        application.enter(own);
        let (on, stream) = (Collectives::new(&rank).unwrap(), rank.stream().unwrap());
        let [part, back] = [(); 2].map(|()| application.segment(own, 1, false));
        let whole = (rank.rank() == root).then(|| application.segment(own, 2, false));
        let values = |rank: u64| (0..words as u64).map(move |at| at * 2 + rank);
        let given: Vec<u64> = values(u64::from(rank.rank())).collect();
        application.write(part, &given);
        let at = |address| std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        let call = |what, input: *const u8, output: *mut u8| {
            let (count, dtype, op) = (words as u64, DataType::U64, ReduceOp::Sum);
            let request = Request { what, input, output, count, dtype, op, factor: None };
            // SAFETY: the buffers hold the call's bytes, and live as long as the process.
            unsafe { on.call(&request, Some(&stream)) }.unwrap();
            on.executor().synchronize(&stream).unwrap();
        };
        call(What::Gather { root }, at(part).cast_const(), whole.map_or(null_mut(), at));
        if let Some(whole) = whole {
            let all: Vec<u64> = values(0).chain(values(1)).collect();
            assert!(application.read(whole, 2 * words) == all);
        }
        call(
            What::Scatter { root },
            whole.map_or(null(), |whole| at(whole).cast_const()),
            at(back),
        );
        assert!(application.read(back, words) == given);
        rank.barrier().unwrap();
    });
}
