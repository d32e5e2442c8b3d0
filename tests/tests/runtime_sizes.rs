//! Plans whose sizes come with each call: any counts, in any memory, from launch to launch, over threads and processes;
//! and counts that two ranks do not agree on.

use antiphon::DataType;
use antiphon::executor::{Call, Communicator, Counts, Executor, ExecutorError, Extent, LoadedPlan};
use antiphon::plan::algorithms::{Handshake, Shape, allgatherv, alltoallv};
use antiphon::plan::builder::ProgramBuilder;
use antiphon::plan::model::{Collective, Plan};
use antiphon_tests::harness::processes::{Ranks, role};
use antiphon_tests::harness::{Area, Random, Source, on_threads, options, seed};
use antiphon_tests::name_of;
use std::fmt;
use std::sync::Arc;

/// What bytes that no block covers hold before and after a launch.
const GUARD: u8 = 0x5A;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    AllToAllV,
    AllGatherV,
    /// The input is the rank's own block of the output.
    AllGatherVInPlace,
}

const KINDS: [Kind; 3] = [Kind::AllToAllV, Kind::AllGatherV, Kind::AllGatherVInPlace];

impl Kind {
    fn plan(self, ranks: u32, blocks: usize, handshake: Handshake) -> Plan {
        let ranks = ranks as usize;
        let plan = match self {
            Kind::AllToAllV => {
                alltoallv::zero_copy(Shape { blocks, handshake, ..Shape::new(ranks) })
            }
            Kind::AllGatherV => {
                allgatherv::zero_copy(Shape { blocks, handshake, ..Shape::new(ranks) })
            }
            Kind::AllGatherVInPlace => allgatherv::zero_copy(Shape {
                in_place: true,
                blocks,
                handshake,
                ..Shape::new(ranks)
            }),
        };
        plan.unwrap()
    }
}

/// Elements that go from each rank to each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Matrix(Vec<Vec<u64>>);

impl Matrix {
    /// Entries by `pick`; in an allgatherv a rank sends the same to everyone.
    fn new(kind: Kind, world: u32, mut pick: impl FnMut() -> u64) -> Self {
        let mut row = || match kind {
            Kind::AllToAllV => (0..world).map(|_| pick()).collect(),
            _ => vec![pick(); world as usize],
        };
        Matrix((0..world).map(|_| row()).collect())
    }

    fn sent(&self, from: u32, to: u32) -> u64 {
        self.0[from as usize][to as usize]
    }
}

/// One launch of one rank: its blocks, at places of its own choice, and its memory.
struct Launch {
    send: Vec<Extent>,
    receive: Vec<Extent>,
    input: Option<Area>,
    output: Area,
    bytes: (u64, u64),
}

/// Places blocks of these lengths in an order and with gaps by chance; gives the elements they need in all.
fn place(counts: &[u64], random: &mut Random) -> (Vec<Extent>, u64) {
    let mut order: Vec<usize> = (0..counts.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    let mut extents = vec![Extent::default(); counts.len()];
    let mut end = random.below(3);
    for block in order {
        extents[block] = Extent::new(end, counts[block]);
        end += counts[block] + random.below(4);
    }
    (extents, end)
}

/// Byte `at` of what goes from one rank to another.
fn byte(kind: Kind, launch: u64, from: u32, to: u32, at: usize) -> u8 {
    // In an allgatherv everyone gets the same.
    let to = if kind == Kind::AllToAllV { u64::from(to) } else { 0 };
    let mixed = (launch * 1009 + u64::from(from) * 131 + to * 31 + at as u64)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

impl Launch {
    fn new(
        communicator: &Communicator,
        kind: Kind,
        matrix: &Matrix,
        (launch, dtype, source): (u64, DataType, Source),
        random: &mut Random,
    ) -> Launch {
        let (rank, world) = (communicator.rank(), communicator.world());
        let element = dtype.size() as u64;
        let from_all: Vec<u64> = (0..world).map(|from| matrix.sent(from, rank)).collect();
        let (receive, received) = place(&from_all, random);
        let to_all: Vec<u64> = match kind {
            Kind::AllToAllV => (0..world).map(|to| matrix.sent(rank, to)).collect(),
            _ => vec![matrix.sent(rank, 0)],
        };
        let (send, sent) = match kind {
            Kind::AllGatherVInPlace => (vec![receive[rank as usize]], received),
            _ => place(&to_all, random),
        };
        let mut area = |elements: u64| {
            let bytes = elements * element;
            let mut area = Area::anywhere(communicator, source, bytes, element, random).unwrap();
            area.edit(|bytes| bytes.fill(GUARD));
            area
        };
        let mut output = area(received);
        let mut input = (kind != Kind::AllGatherVInPlace).then(|| area(sent));
        for (to, extent) in (0..).zip(&send) {
            let (start, len) = (extent.offset * element, extent.count * element);
            input.as_mut().unwrap_or(&mut output).edit(|bytes| {
                let block = &mut bytes[start as usize..(start + len) as usize];
                for (at, cell) in block.iter_mut().enumerate() {
                    *cell = byte(kind, launch, rank, to, at);
                }
            });
        }
        let bytes = (sent * element, received * element);
        Launch { send, receive, input, output, bytes }
    }

    fn call<'a>(&'a self, plan: &'a Arc<LoadedPlan>, dtype: DataType) -> Call<'a> {
        let input = self.input.as_ref().unwrap_or(&self.output).address().cast_const();
        let counts = Counts { send: &self.send, receive: &self.receive };
        let (input, output) = ((input, self.bytes.0), (self.output.address(), self.bytes.1));
        Call::new(plan, dtype, input, output).with_counts(counts)
    }

    /// Compares the whole output with what all ranks sent, and with guards elsewhere.
    fn check(&self, kind: Kind, launch: u64, rank: u32, dtype: DataType, what: &dyn fmt::Debug) {
        let element = dtype.size() as u64;
        let mut expected = vec![GUARD; self.bytes.1 as usize];
        for (from, extent) in (0..).zip(&self.receive) {
            let start = (extent.offset * element) as usize;
            let len = (extent.count * element) as usize;
            for (at, cell) in expected[start..start + len].iter_mut().enumerate() {
                *cell = byte(kind, launch, from, rank, at);
            }
        }
        let found = self.output.bytes();
        let wrong = expected.iter().zip(&*found).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "rank {rank} launch {launch} {kind:?} {dtype} {what:?}");
    }
}

/// What a test runs on every rank: launches one after the other, each with counts of its own.
struct Job<'a> {
    kind: Kind,
    plan: &'a Plan,
    matrices: &'a [Matrix],
    dtype: DataType,
    source: Source,
    /// Launches go to a stream, all before the first is waited for.
    streamed: bool,
}

impl Job<'_> {
    fn run(&self, communicator: &Communicator) {
        let Job { kind, plan, matrices, dtype, source, streamed } = *self;
        let executor = Executor::new(communicator);
        let loaded = executor.load(plan).unwrap();
        let rank = communicator.rank();
        let mut random = Random::new(seed(), u64::from(rank) << 32 | matrices.len() as u64);
        let launches: Vec<Launch> = (0..)
            .zip(matrices)
            .map(|(launch, matrix)| {
                Launch::new(communicator, kind, matrix, (launch, dtype, source), &mut random)
            })
            .collect();
        let stream = communicator.stream().unwrap();
        for launch in &launches {
            let call = launch.call(&loaded, dtype);
            // SAFETY: the launch's memory has the call's lengths and outlives the launches.
            let outcome = unsafe {
                if streamed { executor.execute(&call, &stream) } else { executor.run(&call) }
            };
            outcome.unwrap_or_else(|error| panic!("rank {rank}: {error}"));
        }
        executor.synchronize(&stream).unwrap_or_else(|error| panic!("rank {rank}: {error}"));
        for ((number, launch), matrix) in (0..).zip(&launches).zip(matrices) {
            launch.check(kind, number, rank, dtype, &(matrix, source, streamed));
        }
        communicator.barrier().unwrap();
    }
}

/// Counts that say something: nothing at all, nothing but one block, all kinds at once, very unequal, and by chance.
fn matrices(kind: Kind, world: u32, large: u64, random: &mut Random) -> Vec<Matrix> {
    let mut at = 0;
    let mut only = |count: u64, which: u64| {
        at = 0;
        Matrix::new(kind, world, || {
            at += 1;
            if at == which { count } else { 0 }
        })
    };
    let mut all = vec![only(0, 0), only(7, 1), only(large, u64::from(world)), only(1, 2)];
    for values in [&[0, 1][..], &[0, 1, 7, 64], &[0, 1, 7, large], &[33]] {
        all.push(Matrix::new(kind, world, || random.one_of(values)));
    }
    all.push(Matrix::new(kind, world, || random.below(300)));
    all.push(Matrix::new(kind, world, || 0));
    all.push(Matrix::new(kind, world, || random.below(3)));
    all
}

#[test]
fn every_count_arrives_whatever_the_type_and_the_memory() {
    let seed = seed();
    println!("seed {seed}");
    let mut random = Random::new(seed, 11);
    let mut worlds = [1, 2, 3, 5].into_iter().cycle();
    for kind in KINDS {
        // Not a multiple of the types, so that every kind meets every world, with another type each.
        for (dtype, world) in DataType::ALL.into_iter().zip(&mut worlds) {
            let blocks = 1 + random.below(3) as usize;
            let handshake = random.one_of(&[Handshake::Everyone, Handshake::Hub]);
            let plan = kind.plan(world, blocks, handshake);
            let matrices = matrices(kind, world, 4099, &mut random);
            let plan = &plan;
            let matrices = &matrices;
            let first = random.below(2) == 1;
            let jobs = [(Source::Own, first), (Source::Plain, !first)];
            let jobs = jobs.map(|(source, streamed)| Job {
                kind,
                plan,
                matrices,
                dtype,
                source,
                streamed,
            });
            let work = |communicator| jobs.iter().for_each(|job| job.run(&communicator));
            on_threads(world, &options(), work).unwrap();
        }
    }
}

#[test]
fn counts_may_be_wildly_unequal() {
    let mut random = Random::new(seed(), 12);
    for kind in KINDS {
        for blocks in [1, 3] {
            let plan = kind.plan(4, blocks, Handshake::Everyone);
            let large = Matrix::new(kind, 4, || random.one_of(&[0, 1, 7, 1 << 20]));
            let small = Matrix::new(kind, 4, || random.below(2));
            let matrices = [small.clone(), large.clone(), small, large];
            for source in [Source::Own, Source::Plain] {
                let (dtype, streamed) = (DataType::F32, false);
                let job = Job { kind, plan: &plan, matrices: &matrices, dtype, source, streamed };
                on_threads(4, &options(), |communicator| job.run(&communicator)).unwrap();
            }
        }
    }
}

#[test]
fn many_launches_with_changing_counts_follow_each_other() {
    let mut random = Random::new(seed(), 13);
    for kind in KINDS {
        let plan = kind.plan(3, 2, Handshake::Everyone);
        let count = |_| Matrix::new(kind, 3, || random.below(40));
        let matrices: Vec<Matrix> = (0..300).map(count).collect();
        for streamed in [false, true] {
            let (dtype, source) = (DataType::F16, Source::Own);
            let job = Job { kind, plan: &plan, matrices: &matrices, dtype, source, streamed };
            on_threads(3, &options(), |communicator| job.run(&communicator)).unwrap();
        }
    }
}

/// Rank 0 reads rank 1's block, and nobody tells rank 1 when.
fn one_way() -> Plan {
    let p = ProgramBuilder::new("one_way", Collective::SendRecv, 2).runtime_blocks(1, 1);
    p.channel(0, 1);
    p.block(0).get(p.input(1).all(), p.output(0).all());
    p.build().unwrap()
}

#[test]
fn a_rank_may_run_ahead_of_those_that_read_its_blocks() {
    let plan = one_way();
    // The reader's peer may not know, but this test does, when its input has been read.
    let options = options().with_verification(false);
    let [reader, ahead] = <[_; 2]>::try_from(Communicator::in_process(2, &options).unwrap())
        .expect("two communicators");
    let launches: Vec<u32> = (0..40).collect();
    let input: Vec<u32> = (0..1000).collect();
    let mut output = vec![vec![u32::MAX; 50]; launches.len()];
    let sent: Vec<_> =
        launches.iter().map(|&n| [Extent::new(7 * u64::from(n), n.into())]).collect();
    let received: Vec<_> = launches.iter().map(|&n| [Extent::new(1, n.into())]).collect();
    let nothing = [Extent::default()];
    // All launches of the one rank before the first of the other.
    let streams = [reader.stream().unwrap(), ahead.stream().unwrap()];
    let executors = [Executor::new(&reader), Executor::new(&ahead)];
    let loaded = executors.each_ref().map(|executor| executor.load(&plan).unwrap());
    let source = (input.as_ptr().cast::<u8>(), 4000);
    let unused = (std::ptr::dangling_mut::<u64>().cast::<u8>(), 0);
    for send in &sent {
        let call = Call::new(&loaded[1], DataType::U32, source, unused);
        let call = call.with_counts(Counts { send, receive: &nothing });
        // SAFETY: the input outlives the launches.
        unsafe { executors[1].execute(&call, &streams[1]) }.unwrap();
    }
    for (receive, output) in received.iter().zip(&mut output) {
        let target = (output.as_mut_ptr().cast::<u8>(), 200);
        let call = Call::new(&loaded[0], DataType::U32, (unused.0.cast_const(), 0), target);
        let call = call.with_counts(Counts { send: &nothing, receive });
        // SAFETY: the output outlives the launches.
        unsafe { executors[0].execute(&call, &streams[0]) }.unwrap();
    }
    for (executor, stream) in executors.iter().zip(&streams) {
        executor.synchronize(stream).unwrap();
    }
    for (&n, output) in launches.iter().zip(&output) {
        let mut expected = vec![u32::MAX; 50];
        (0..n).for_each(|at| expected[1 + at as usize] = 7 * n + at);
        assert_eq!(*output, expected, "launch {n}");
    }
}

/// Rank 0 sends 5 elements to rank 1, which expects 3.
fn disagree(communicator: &Communicator, kind: Kind, source: Source) -> ExecutorError {
    let (rank, world) = (communicator.rank(), communicator.world());
    let plan = kind.plan(world, 1, Handshake::Everyone);
    let executor = Executor::new(communicator);
    let loaded = executor.load(&plan).unwrap();
    let agreed = Matrix::new(kind, world, || 5);
    let mut random = Random::new(seed(), 14);
    for differs in [false, true] {
        let content = (0, DataType::I32, source);
        let mut launch = Launch::new(communicator, kind, &agreed, content, &mut random);
        if differs && rank == 1 {
            launch.receive[0].count = 3;
        }
        let call = launch.call(&loaded, DataType::I32);
        // SAFETY: the launch's memory has the call's lengths and outlives it.
        let outcome = unsafe { executor.run(&call) };
        if !differs {
            outcome.unwrap();
            launch.check(kind, 0, rank, DataType::I32, &"before");
            communicator.barrier().unwrap();
            continue;
        }
        // What does not fit was not written.
        let received = launch.receive[0].offset as usize * 4;
        if rank == 1 {
            let block = &launch.output.bytes()[received..received + 12];
            assert_eq!(block, [GUARD; 12], "before the check");
        }
        return outcome.unwrap_err();
    }
    unreachable!("the second launch returns")
}

fn assert_names_both(error: &ExecutorError, rank: u32) {
    let text = error.to_string();
    let kind = matches!(error, ExecutorError::Unequal { .. } | ExecutorError::Aborted { .. });
    assert!(kind, "rank {rank}: {text}");
    assert!(error.breaks_communicator());
    for needed in ["rank 0 sends 5 elements", "rank 1 expects 3", "launch 2"] {
        assert!(text.contains(needed), "rank {rank}: no `{needed}` in: {text}");
    }
}

#[test]
fn ranks_that_disagree_on_a_count_are_told_so() {
    for kind in [Kind::AllToAllV, Kind::AllGatherV] {
        for world in [2, 4] {
            for source in [Source::Own, Source::Plain] {
                let errors = on_threads(world, &options(), |c| disagree(&c, kind, source)).unwrap();
                (0..).zip(&errors).for_each(|(rank, error)| assert_names_both(error, rank));
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_at_the_door() {
    let ranks = on_threads(2, &options(), |communicator| {
        let executor = Executor::new(&communicator);
        let plan = executor.load(&Kind::AllToAllV.plan(2, 1, Handshake::Everyone)).unwrap();
        let gather = Kind::AllGatherVInPlace.plan(2, 1, Handshake::Everyone);
        let gather = executor.load(&gather).unwrap();
        let fixed = antiphon::plan::algorithms::allreduce::ring(Shape::new(2)).unwrap();
        let fixed = executor.load(&fixed).unwrap();
        let mut memory = [[0u64; 8]; 2];
        let [input, output] = &mut memory;
        let (input, output) = ((input.as_ptr().cast::<u8>(), 64), (output.as_mut_ptr().cast(), 64));
        let call = Call::new(&plan, DataType::U64, input, output);
        let fixed = Call { plan: &fixed, ..call };
        let shared = Call { input: output.0, ..call };
        let in_place = Call { plan: &gather, ..shared };
        let uneven = Call { input_bytes: 63, ..call };
        let e = Extent::new;
        let two = vec![e(0, 4), e(4, 4)];
        // SAFETY: the memory has the call's lengths and outlives it.
        let run = |call: Call<'_>| unsafe { executor.run(&call) };
        let refused = |call: Call<'_>, word: &str| {
            let error = run(call).unwrap_err();
            assert!(!error.breaks_communicator(), "{error}");
            assert!(error.to_string().contains(word), "no `{word}` in: {error}");
        };
        refused(call, "says no counts");
        let apart = "share memory; pass buffers that are apart";
        let same = "or the block that is sent as exactly the rank's own";
        let cases: [(Call<'_>, Vec<Extent>, Vec<Extent>, &str); 11] = [
            (fixed, two.clone(), two.clone(), "no runtime sizes"),
            (call, vec![e(0, 8)], two.clone(), "saw 1 send blocks, allowed 2"),
            (call, two.clone(), vec![], "saw 0 receive blocks, allowed 2"),
            (call, vec![e(0, 4), e(5, 4)], two.clone(), "send block 1 is 4 elements from 5"),
            (call, two.clone(), vec![e(9, 0), e(0, 1)], "receive block 0 is 0 elements from 9"),
            (call, two.clone(), vec![e(u64::MAX, 2), e(0, 1)], "the buffer has 8"),
            (call, two.clone(), vec![e(4, 2), e(3, 2)], "receive blocks 0 and 1 overlap"),
            (call, two.clone(), vec![e(0, 8), e(3, 1)], "receive blocks 0 and 1 overlap"),
            (shared, two.clone(), two.clone(), apart),
            (in_place, vec![e(1, 4)], two.clone(), same),
            (uneven, two.clone(), two.clone(), "not a whole number of elements"),
        ];
        for (call, send, receive, word) in &cases {
            refused(call.with_counts(Counts { send, receive }), word);
        }
        // Send blocks may overlap: several ranks may get the same elements.
        let send = [e(2, 4), e(2, 4)];
        run(call.with_counts(Counts { send: &send, receive: &two })).unwrap();
        communicator.barrier().unwrap();
    });
    ranks.unwrap();
}

#[test]
fn buffers_and_bytes_may_differ_from_rank_to_rank() {
    // Rank 0 has everything, the others have no input at all: a scatter.
    let kind = Kind::AllToAllV;
    let plan = kind.plan(3, 1, Handshake::Everyone);
    let scatter = Matrix(vec![vec![0, 10, 1000], vec![0; 3], vec![0; 3]]);
    let gather = Matrix(vec![vec![5, 0, 0], vec![0; 3], vec![999, 0, 0]]);
    let matrices = [scatter.clone(), gather, scatter];
    for source in [Source::Own, Source::Plain] {
        let (dtype, streamed) = (DataType::F64, false);
        let job = Job { kind, plan: &plan, matrices: &matrices, dtype, source, streamed };
        on_threads(3, &options(), |communicator| job.run(&communicator)).unwrap();
    }
}

/// Starts processes that each run one of the jobs below, and demands that all succeed.
fn job(world: u32, name: &str) {
    Ranks::start(name_of(rank_of_a_job), world, name).succeed();
}

#[test]
fn counts_arrive_between_processes() {
    for world in [2, 3] {
        job(world, "own");
        job(world, "plain");
    }
    job(2, "staged");
}

#[test]
fn counts_arrive_where_processes_share_cores() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let world = (cores + 1).clamp(4, 8);
    job(world, "own");
    job(world, "plain");
}

#[test]
fn processes_that_disagree_on_a_count_are_told_so() {
    for world in [2, 4] {
        job(world, "disagree");
    }
}

/// One process of the tests above.
#[test]
fn rank_of_a_job() {
    let Some(role) = role() else { return };
    let allowed = options().with_process_access(role.job != "staged");
    let communicator = role.connect(&allowed).unwrap();
    let (rank, world) = (communicator.rank(), communicator.world());
    let source = if role.job == "own" { Source::Own } else { Source::Plain };
    if role.job == "disagree" {
        let kind = Kind::AllToAllV;
        return assert_names_both(&disagree(&communicator, kind, source), rank);
    }
    let mut random = Random::new(seed(), 15);
    for kind in KINDS {
        // Two ranks have cores of their own, and then large plain buffers are not staged.
        let large = if world == 2 { 1 << 20 } else { 1 << 16 };
        for (dtype, large) in [(DataType::U8, 4099), (DataType::F64, large)] {
            let plan = kind.plan(world, 2, random.one_of(&[Handshake::Everyone, Handshake::Hub]));
            let matrices = matrices(kind, world, large, &mut random);
            for streamed in [false, true] {
                let job = Job { kind, plan: &plan, matrices: &matrices, dtype, source, streamed };
                job.run(&communicator);
            }
        }
    }
}
