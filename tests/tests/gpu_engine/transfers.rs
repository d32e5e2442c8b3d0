//! Calls by name over nodes with different numbers of ranks, whose memory is on devices, transfers between pairs of ranks among them.

use crate::devices::devices;
use crate::{device, on_ranks, on_simulator, on_simulator_of, options};
use antiphon::executor::hal::Stream;
use antiphon::executor::{
    Collectives, Communicator, Counts, ExecutorError, Extent, Group, Request, What,
};
use antiphon::{DataType, ReduceOp};
use antiphon_tests::harness::{Area, Source};
use antiphon_tests::name_of;
use std::sync::{Arc, Barrier};

/// A node of one rank and one of two: transfers within a node, and between nodes.
const HOSTS: [&str; 3] = ["a", "b", "b"];
pub const WORLD: u32 = HOSTS.len() as u32;
const GUARD: u8 = 0x5A;

/// The byte `at` of what a rank sends.
fn byte(rank: u32, at: usize) -> u8 {
    (rank as u8).wrapping_mul(31) ^ at as u8
}

/// Bytes from one rank to another: none, a few, and more than packets carry.
fn length(from: u32, to: u32) -> u64 {
    [5, 0, 40_000][(from + 2 * to) as usize % 3]
}

/// One rank's buffers for every call.
struct Rank {
    on: Collectives,
    rank: u32,
    stream: Arc<dyn Stream>,
    /// What every call sends, from its beginning on.
    input: Area,
    sent: Vec<Extent>,
    exchanged: Area,
    received: Vec<Extent>,
    gathered: Area,
    scattered: Area,
    all: Area,
    parts: Vec<Extent>,
    passed: Area,
    summed: Area,
}

/// Bytes of a block of a gather, of a scatter, and of what is passed on.
const BLOCK: usize = 700;
/// Elements that a rank gives to all.
fn part(rank: u32) -> u64 {
    [9, 20_000, 0][rank as usize % 3]
}

impl Rank {
    fn new(communicator: &Communicator) -> Self {
        let rank = communicator.rank();
        let area = |bytes: u64| {
            let mut area = Area::new(communicator, Source::Own, bytes).unwrap();
            area.edit(|all| all.fill(GUARD));
            area
        };
        let of = |length: &dyn Fn(u32) -> u64| -> Vec<u64> { (0..WORLD).map(length).collect() };
        let whole = |lengths: &[u64]| lengths.iter().sum::<u64>().max(1);
        let (sent, received) = (of(&|to| length(rank, to)), of(&|from| length(from, rank)));
        let parts = of(&part);
        let mut input = area(whole(&sent).max(4 * BLOCK as u64).max(part(rank)));
        input.edit(|all| (0..).zip(all).for_each(|(at, cell)| *cell = byte(rank, at)));
        Rank {
            rank,
            stream: communicator.stream().unwrap(),
            input,
            exchanged: area(whole(&received)),
            sent: Extent::packed(&sent),
            received: Extent::packed(&received),
            gathered: area(WORLD as u64 * BLOCK as u64),
            scattered: area(BLOCK as u64),
            all: area(whole(&parts)),
            parts: Extent::packed(&parts),
            passed: area(BLOCK as u64),
            summed: area(BLOCK as u64),
            on: Collectives::new(communicator).unwrap(),
        }
    }

    fn request(&self, what: What, output: &Area) -> Request {
        Request {
            what,
            input: self.input.address().cast_const(),
            output: output.address(),
            count: BLOCK as u64,
            dtype: DataType::U8,
            op: ReduceOp::Sum,
            factor: None,
        }
    }

    /// Every call, in one group.
    fn gather_calls(&self, group: &mut Group, on_stream: bool) -> Result<(), ExecutorError> {
        let stream = on_stream.then_some(&self.stream);
        let (on, dtype) = (&self.on, DataType::U8);
        let from = self.input.address().cast_const();
        let counts = Counts { send: &self.sent, receive: &self.received };
        let sizes = |area: &Area| (self.input.bytes().len() as u64, area.bytes().len() as u64);
        let (next, previous) = ((self.rank + 1) % WORLD, (self.rank + WORLD - 1) % WORLD);
        let gathers = (part(self.rank), self.all.bytes().len() as u64);
        // SAFETY: the areas are as long as said, and live until the calls are complete.
        unsafe {
            group.call(on, &self.request(What::AllReduce, &self.summed), stream)?;
            group.call(on, &self.request(What::Gather { root: 1 }, &self.gathered), stream)?;
            group.call(on, &self.request(What::Scatter { root: 0 }, &self.scattered), stream)?;
            let exchanged = (from, self.exchanged.address());
            group.all_to_all_v(on, exchanged, sizes(&self.exchanged), counts, dtype, stream)?;
            let all = (from, self.all.address());
            group.all_gather_v(on, all, gathers, &self.parts, dtype, stream)?;
            group.send(on, from, BLOCK as u64, dtype, next, stream)?;
            group.receive(on, self.passed.address(), BLOCK as u64, dtype, previous, stream)
        }
    }

    /// The same, one by one.
    fn call(&self, on_stream: bool) -> Result<(), ExecutorError> {
        let stream = on_stream.then_some(&self.stream);
        let (on, dtype) = (&self.on, DataType::U8);
        let from = self.input.address().cast_const();
        let counts = Counts { send: &self.sent, receive: &self.received };
        let sizes = (self.input.bytes().len() as u64, self.exchanged.bytes().len() as u64);
        let gathers = (part(self.rank), self.all.bytes().len() as u64);
        // SAFETY: as above.
        unsafe {
            on.call(&self.request(What::AllReduce, &self.summed), stream)?;
            on.call(&self.request(What::Gather { root: 1 }, &self.gathered), stream)?;
            on.call(&self.request(What::Scatter { root: 0 }, &self.scattered), stream)?;
            on.all_to_all_v((from, self.exchanged.address()), sizes, counts, dtype, stream)?;
            on.all_gather_v((from, self.all.address()), gathers, &self.parts, dtype, stream)?;
        }
        let (next, previous) = ((self.rank + 1) % WORLD, (self.rank + WORLD - 1) % WORLD);
        let mut both = Group::new();
        // SAFETY: as above.
        unsafe {
            both.send(on, from, BLOCK as u64, dtype, next, stream)?;
            both.receive(on, self.passed.address(), BLOCK as u64, dtype, previous, stream)?;
        }
        both.end()
    }

    /// Checks what came, and clears it.
    fn check(&mut self) {
        let given = |from: u32, start: usize, count: usize| -> Vec<u8> {
            (start..start + count).map(|at| byte(from, at)).collect()
        };
        let rank = self.rank;
        let sent_to = |from: u32| -> usize { (0..rank).map(|to| length(from, to) as usize).sum() };
        let exchanged: Vec<u8> = (0..WORLD)
            .flat_map(|from| given(from, sent_to(from), length(from, rank) as usize))
            .collect();
        let all: Vec<u8> =
            (0..WORLD).flat_map(|from| given(from, 0, part(from) as usize)).collect();
        let gathered: Vec<u8> = (0..WORLD).flat_map(|from| given(from, 0, BLOCK)).collect();
        let scattered = given(0, rank as usize * BLOCK, BLOCK);
        let passed = given((rank + WORLD - 1) % WORLD, 0, BLOCK);
        let sum = |at| (0..WORLD).fold(0_u8, |sum, rank| sum.wrapping_add(byte(rank, at)));
        let summed: Vec<u8> = (0..BLOCK).map(sum).collect();
        let untouched = vec![GUARD; WORLD as usize * BLOCK];
        let gathered = if rank == 1 { gathered } else { untouched };
        let areas = [
            ("alltoallv", &mut self.exchanged, exchanged),
            ("allgatherv", &mut self.all, all),
            ("gather", &mut self.gathered, gathered),
            ("scatter", &mut self.scattered, scattered),
            ("receive", &mut self.passed, passed),
            ("allreduce", &mut self.summed, summed),
        ];
        for (what, area, expected) in areas {
            let found = area.bytes();
            let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            assert_eq!(wrong, None, "{what} on rank {rank}");
            area.edit(|all| all.fill(GUARD));
        }
    }
}

/// Runs `work` as each rank, on a thread and a device of its own: what a driver may let wait for kernels, such as making the
/// communicator of a pair, waits for no other rank's.
fn apart(work: impl Fn(Communicator) + Sync) {
    let devices = devices(WORLD, WORLD);
    on_ranks(Communicator::in_process_at(&HOSTS, &devices, &options()).unwrap(), work);
}

#[test]
fn calls_by_name_reach_ranks_of_other_nodes() {
    let test = name_of(calls_by_name_reach_ranks_of_other_nodes);
    if on_simulator_of(test, WORLD as usize).is_none() {
        return;
    }
    apart(|communicator| every_call(&communicator));
}

/// Makes every call by name, on the host's time and on a stream.
pub fn every_call(communicator: &Communicator) {
    let mut rank = Rank::new(communicator);
    for on_stream in [false, true, false] {
        rank.call(on_stream).unwrap();
        rank.on.executor().synchronize(&rank.stream).unwrap();
        rank.check();
    }
}

#[test]
fn a_groups_alltoallv_passes_on_what_its_collectives_have_left() {
    let test = name_of(a_groups_alltoallv_passes_on_what_its_collectives_have_left);
    if on_simulator_of(test, WORLD as usize).is_none() {
        return;
    }
    apart(|communicator| {
        let rank = Rank::new(&communicator);
        let (on, stream, dtype) = (&rank.on, Some(&rank.stream), DataType::U8);
        let lengths = [100; WORLD as usize];
        let each = Extent::packed(&lengths);
        let counts = Counts { send: &each, receive: &each };
        let through = (rank.summed.address().cast_const(), rank.gathered.address());
        let sizes = (BLOCK as u64, rank.gathered.bytes().len() as u64);
        let mut group = Group::new();
        // SAFETY: the areas are as long as said, and live until the calls are complete.
        unsafe {
            group.call(on, &rank.request(What::AllReduce, &rank.summed), stream).unwrap();
            group.all_to_all_v(on, through, sizes, counts, dtype, stream).unwrap();
        }
        group.end().unwrap();
        rank.on.executor().synchronize(&rank.stream).unwrap();
        let own = &rank.summed.bytes()[rank.rank as usize * 100..][..100];
        for (from, block) in rank.gathered.bytes()[..300].chunks(100).enumerate() {
            assert_eq!(block, own, "from rank {from} to {}", rank.rank);
        }
    });
}

#[test]
fn one_thread_drives_ranks_of_several_nodes_in_a_group() {
    if on_simulator(name_of(one_thread_drives_ranks_of_several_nodes_in_a_group)).is_none() {
        return;
    }
    let devices = vec![device(); HOSTS.len()];
    in_groups(&Communicator::in_process_at(&HOSTS, &devices, &options()).unwrap());
}

/// Makes every call by name as all ranks at once, a group each time.
pub fn in_groups(ranks: &[Communicator]) {
    let mut ranks: Vec<_> = ranks.iter().map(Rank::new).collect();
    for on_stream in [true, false, true] {
        let mut group = Group::new();
        ranks.iter().for_each(|rank| rank.gather_calls(&mut group, on_stream).unwrap());
        group.end().unwrap();
        for rank in &ranks {
            rank.on.executor().synchronize(&rank.stream).unwrap();
        }
        ranks.iter_mut().for_each(Rank::check);
    }
}

#[test]
fn errors_name_the_call_and_the_ranks_as_their_caller_knows_them() {
    let test = name_of(errors_name_the_call_and_the_ranks_as_their_caller_knows_them);
    if on_simulator_of(test, WORLD as usize).is_none() {
        return;
    }
    let differ = |on_stream: bool| {
        apart(move |communicator| {
            let rank = Rank::new(&communicator);
            // Rank 0 sends less than rank 2 expects.
            let (from, to) = (rank.input.address().cast_const(), rank.exchanged.address());
            let stream = on_stream.then_some(&rank.stream);
            let called = match rank.rank {
                // SAFETY: the areas are as long as said, and live until the stream has come so far.
                0 => unsafe { rank.on.send(from, 3, DataType::U8, 2, stream) },
                // SAFETY: as above.
                2 => unsafe { rank.on.receive(to, 4000, DataType::U8, 0, stream) },
                _ => return,
            };
            let error = match stream {
                Some(stream) => called.and_then(|()| rank.on.executor().synchronize(stream)),
                None => called,
            };
            // Who has sent its packets need not have waited.
            let Err(error) = error else { return assert_eq!(rank.rank, 0) };
            let start = if rank.rank == 0 {
                "send on rank 0, to rank 2: "
            } else {
                "receive on rank 2, from rank 0: "
            };
            let text = error.to_string();
            assert!(text.starts_with(start) && !text.contains("rank 1"), "{text}");
            assert!(error.breaks_communicator(), "{text}");
            // None where the peer gave up while this rank was still on its way to it.
            if let Some(failure) = rank.on.failure() {
                assert!(failure.to_string().starts_with(start), "{failure}");
            }
        })
    };
    [false, true].into_iter().for_each(differ);
}

#[test]
fn a_first_transfer_on_a_stream_waits_for_no_call_of_the_peer() {
    let test = name_of(a_first_transfer_on_a_stream_waits_for_no_call_of_the_peer);
    if on_simulator_of(test, WORLD as usize).is_none() {
        return;
    }
    let sent = Barrier::new(WORLD as usize);
    apart(|communicator| {
        let (rank, own) = (Rank::new(&communicator), communicator.rank());
        let (from, to) = (rank.input.address().cast_const(), rank.passed.address());
        let (stream, count) = (Some(&rank.stream), BLOCK as u64);
        // Rank 0 sends over nodes, rank 1 within its own. Rank 2 receives from both, and calls only then.
        let peer = if own == 2 { 0 } else { 2 };
        if own < 2 {
            // SAFETY: the areas are as long as said, and live until the stream has come so far.
            unsafe { rank.on.send(from, count, DataType::U8, peer, stream) }.unwrap();
        }
        sent.wait();
        if own == 2 {
            for peer in 0..2 {
                // SAFETY: as above; the second overwrites what the first has received.
                unsafe { rank.on.receive(to, count, DataType::U8, peer, stream) }.unwrap();
            }
        }
        rank.on.executor().synchronize(&rank.stream).unwrap();
        if own == 2 {
            let expected: Vec<u8> = (0..BLOCK).map(|at| byte(1, at)).collect();
            assert_eq!(rank.passed.bytes(), expected);
        }
        communicator.barrier().unwrap();
    });
}

#[test]
fn pairs_belong_to_the_communicator_whoever_makes_collectives_of_it() {
    let test = name_of(pairs_belong_to_the_communicator_whoever_makes_collectives_of_it);
    if on_simulator_of(test, WORLD as usize).is_none() {
        return;
    }
    apart(|communicator| {
        let (own, count) = (communicator.rank(), BLOCK as u64);
        let rank = Rank::new(&communicator);
        let (next, previous) = ((own + 1) % WORLD, (own + WORLD - 1) % WORLD);
        for round in 0..4 {
            // What is there longest, or what was made for this round alone, with the last to be made gone.
            let made = Collectives::new(&communicator).unwrap();
            drop(Collectives::new(&communicator).unwrap());
            let on = if round == own { &rank.on } else { &made };
            let mut group = Group::new();
            let from = rank.input.address().cast_const().wrapping_add(round as usize * BLOCK);
            // SAFETY: the areas are as long as said, and live until the group has ended.
            unsafe {
                group.send(on, from, count, DataType::U8, next, None).unwrap();
                let to = rank.passed.address();
                group.receive(on, to, count, DataType::U8, previous, None).unwrap();
            }
            group.end().unwrap();
            let first = round as usize * BLOCK;
            let expected = (first..first + BLOCK).map(|at| byte(previous, at));
            assert_eq!(rank.passed.bytes(), expected.collect::<Vec<_>>(), "round {round}");
        }
    });
}
