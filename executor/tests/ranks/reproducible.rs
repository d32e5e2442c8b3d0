//! Sums, products and averages have the same bits wherever an element lies in a message, and however long the message is:
//! whatever built-in algorithm serves it. Where "sum" is said here, all three are meant.

use crate::support::threads::on_threads;
use antiphon_executor::plan::algorithms::{Algorithm, Shape, SumOrder};
use antiphon_executor::plan::model::Collective;
use antiphon_executor::{
    Call, Collectives, Communicator, DataType, Executor, Factor, LoadedPlan, Options, ReduceOp,
    Request, What,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Elements of the tensor whose sum is looked at.
const TENSOR: usize = 24;
/// Elements of each rank's block of a message, on both sides of every size at which another algorithm is taken.
const BLOCKS: [usize; 5] = [TENSOR, 200, 900, 5000, 40_000];
const TYPES: [DataType; 6] = [
    DataType::F32,
    DataType::F16,
    DataType::Bf16,
    DataType::F64,
    DataType::F8E4m3,
    DataType::F8E5m2,
];
/// Those of them that are summed by every algorithm.
const MOST: &[DataType] = TYPES.split_at(3).0;
/// Reductions that round.
const OPS: [ReduceOp; 3] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Avg];
/// The hosts of the ranks, and the number of nodes they make.
const PLACES: [(&[&str], usize); 3] =
    [(&["a"; 5], 1), (&["a", "a", "a", "b", "b", "b"], 2), (&["a", "b", "c"], 3)];
/// Of nodes with different numbers of ranks.
const UNEVEN: &[&str] = &["a", "b", "b", "a"];

fn kinds(types: &[DataType]) -> impl Iterator<Item = (DataType, ReduceOp)> {
    types.iter().flat_map(|&dtype| OPS.map(|op| (dtype, op)))
}

/// A number that looks random.
fn mix(seed: u64) -> u64 {
    let mut word = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

/// The bits of an element: of any sign, and sizes so far apart that every order of a sum rounds in its own way, or so near to 1
/// that no product leaves its type.
fn element(dtype: DataType, op: ReduceOp, rank: u32, at: usize) -> u64 {
    let random = mix(u64::from(rank) << 32 | at as u64);
    let (below, powers) = if op == ReduceOp::Prod { (1, 2) } else { (5, 10) };
    // Bits of the mantissa, and the exponent of 1.
    let (bits, one) = match dtype {
        DataType::F64 => (52, 1023),
        DataType::F32 => (23, 127),
        DataType::F16 => (10, 15),
        DataType::Bf16 => (7, 127),
        DataType::F8E4m3 => (3, 7),
        DataType::F8E5m2 => (2, 15),
        other => unreachable!("{other} is not among the types"),
    };
    let sign = (random & 1) << (8 * dtype.size() - 1);
    let mantissa = (random >> 8) & ((1 << bits) - 1);
    sign | (one - below + mix(random) % powers) << bits | mantissa
}

/// Elements in bytes: the tensor from element `offset` on, and around it what is in no other message.
fn message(
    (dtype, op): (DataType, ReduceOp),
    rank: u32,
    elements: usize,
    offset: usize,
) -> Vec<u64> {
    let mut bytes = Vec::with_capacity(elements * dtype.size());
    for at in 0..elements {
        let number = match at.checked_sub(offset) {
            Some(at) if at < TENSOR => at,
            _ => 1_000_000 + elements * 7 + at,
        };
        bytes.extend(&element(dtype, op, rank, number).to_le_bytes()[..dtype.size()]);
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let words = bytes.as_chunks::<8>().0;
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// The tensor's bits, where it lies from element `offset` on.
fn tensor(dtype: DataType, words: &[u64], offset: usize) -> Vec<u8> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes[offset * dtype.size()..(offset + TENSOR) * dtype.size()].to_vec()
}

/// A sum of messages in which the tensor lies somewhere.
#[derive(Clone, Debug)]
struct Bucket {
    collective: Collective,
    dtype: DataType,
    op: ReduceOp,
    /// Elements of each rank's block.
    block: usize,
    /// Where the tensor lies in the input.
    offset: usize,
}

impl Bucket {
    fn all(world: usize, types: &[DataType]) -> Vec<Bucket> {
        let mut all = Vec::new();
        for collective in [Collective::AllReduce, Collective::ReduceScatter, Collective::Reduce] {
            let scatters = collective == Collective::ReduceScatter;
            for (dtype, op) in kinds(types) {
                for block in BLOCKS {
                    // The others differ from these in how elements are read and written alone.
                    if block > 5000 && !MOST.contains(&dtype) {
                        continue;
                    }
                    // The first and the last place, and one that nothing divides.
                    let last = if scatters { (world - 1) * block } else { 0 } + block - TENSOR;
                    let middle = (block - TENSOR) * 5 / 11;
                    let offsets = BTreeSet::from([0, middle, last]);
                    let collective = || collective.clone();
                    let bucket =
                        |offset| Bucket { collective: collective(), dtype, op, block, offset };
                    all.extend(offsets.into_iter().map(bucket));
                }
            }
        }
        all
    }

    fn scatters(&self) -> bool {
        self.collective == Collective::ReduceScatter
    }

    fn elements(&self, world: usize) -> [usize; 2] {
        [if self.scatters() { world * self.block } else { self.block }, self.block]
    }

    /// Where a rank has the tensor's sum, if it has.
    fn place(&self, rank: u32, root: u32) -> Option<usize> {
        match self.collective {
            Collective::ReduceScatter => {
                (self.offset / self.block == rank as usize).then(|| self.offset % self.block)
            }
            Collective::Reduce => (rank == root).then_some(self.offset),
            _ => Some(self.offset),
        }
    }

    /// What a rank sends.
    fn input(&self, rank: u32, world: usize) -> Vec<u64> {
        message((self.dtype, self.op), rank, self.elements(world)[0], self.offset)
    }

    /// The tensor's sum, as `run` computes it from buffers of so many bytes.
    fn sum(
        &self,
        (rank, world, root): (u32, usize, u32),
        input: &[u64],
        run: impl FnOnce((*const u8, u64), (*mut u8, u64)),
    ) -> Option<Vec<u8>> {
        let [sent, received] = self.elements(world);
        let mut output = vec![0u64; (received * self.dtype.size()).div_ceil(8)];
        let bytes = |elements: usize| (elements * self.dtype.size()) as u64;
        run((input.as_ptr().cast(), bytes(sent)), (output.as_mut_ptr().cast(), bytes(received)));
        Some(tensor(self.dtype, &output, self.place(rank, root)?))
    }
}

/// Runs `work` as every rank.
fn on_hosts<T: Send>(hosts: &[&str], work: impl Fn(&Communicator) -> T + Sync) -> Vec<T> {
    let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
    let options = options.with_verification(false).with_reproducible(true);
    let ranks = Communicator::in_process_on(hosts, &options).unwrap();
    on_threads(&ranks, work)
}

fn run_plan(
    executor: &Executor,
    plan: &Arc<LoadedPlan>,
    (dtype, op): (DataType, ReduceOp),
) -> impl FnOnce((*const u8, u64), (*mut u8, u64)) {
    move |input, output| {
        let call = Call { op: Some(op), ..Call::new(plan, dtype, input, output) };
        // SAFETY: both buffers are as long as said, and live past the call.
        unsafe { executor.run(&call) }.unwrap();
    }
}

/// Sums that were seen, by collective, type and reduction, with how each came about.
type Seen = BTreeMap<(String, &'static str, &'static str), BTreeMap<Vec<u8>, Vec<String>>>;

fn note(seen: &mut Seen, bucket: &Bucket, how: String, sum: Option<Vec<u8>>) {
    let kind = (bucket.collective.to_string(), bucket.dtype.name(), bucket.op.name());
    if let Some(sum) = sum {
        seen.entry(kind).or_default().entry(sum).or_default().push(how);
    }
}

/// All sums of a kind must be one, on whatever rank.
fn assert_one(types: &[DataType], reductions: usize, ranks: Vec<Seen>) {
    let mut all = Seen::new();
    for (kind, sums) in ranks.into_iter().flatten() {
        for (sum, mut how) in sums {
            all.entry(kind.clone()).or_default().entry(sum).or_default().append(&mut how);
        }
    }
    assert_eq!(all.len(), 3 * types.len() * reductions, "three collectives");
    for (kind, sums) in all {
        let how: Vec<_> = sums.values().map(|how| &how[0]).collect();
        assert_eq!(sums.len(), 1, "{kind:?} has several sums: {how:?}");
    }
}

#[test]
fn whatever_algorithm_is_taken_and_wherever_a_tensor_lies_its_sum_has_the_same_bits() {
    for (hosts, nodes) in PLACES {
        let world = hosts.len();
        let ranks = on_hosts(hosts, |communicator| {
            let rank = communicator.rank();
            let (mut seen, mut names) = (Seen::new(), BTreeSet::new());
            let (executor, mut loaded) = (Executor::new(communicator), BTreeMap::new());
            for bucket in Bucket::all(world, MOST) {
                let root = if bucket.block % 400 == 0 { world - 1 } else { 0 };
                let shape = Shape { nodes, root, ..Shape::new(world) };
                // Whichever a rule may choose for some size.
                let orders = |algorithm: &Algorithm| {
                    let other =
                        matches!(algorithm.sum_order(), SumOrder::Ring | SumOrder::Hardware);
                    !other && algorithm.is_hierarchical() == (nodes > 1)
                };
                let all = Algorithm::all_for(&bucket.collective).filter(orders);
                let input = bucket.input(rank, world);
                for algorithm in all {
                    // Not all are for these ranks.
                    let load = || Some(executor.load(&algorithm.plan(shape).ok()?).unwrap());
                    let plan = loaded.entry((algorithm, root)).or_insert_with(load);
                    let Some(plan) = plan else { continue };
                    names.insert(algorithm);
                    let run = run_plan(&executor, plan, (bucket.dtype, bucket.op));
                    let sum = bucket.sum((rank, world, root as u32), &input, run);
                    note(&mut seen, &bucket, format!("{bucket:?} by {algorithm}"), sum);
                }
            }
            (seen, names)
        });
        // Every algorithm took part that may be chosen: switches are for devices, and a ring sums in another order.
        let names = &ranks[0].1;
        let reduces = |algorithm: &Algorithm| {
            let collective = algorithm.collective();
            let known = [Collective::AllReduce, Collective::ReduceScatter, Collective::Reduce];
            let other = matches!(algorithm.sum_order(), SumOrder::Ring | SumOrder::Hardware);
            known.contains(&collective) && algorithm.is_hierarchical() == (nodes > 1) && !other
        };
        for algorithm in Algorithm::ALL.into_iter().filter(reduces) {
            assert!(names.contains(&algorithm), "{algorithm} on {hosts:?}");
        }
        assert_one(MOST, OPS.len(), ranks.into_iter().map(|(seen, _)| seen).collect());
    }
}

#[test]
fn calls_by_name_sum_alike_in_any_bucket() {
    // On uneven nodes as on one.
    let alone: &[&str] = &["a"; UNEVEN.len()];
    let even = PLACES.map(|(hosts, _)| vec![hosts]);
    for alike in even.into_iter().chain([vec![UNEVEN, alone]]) {
        let summed =
            |multiplied| alike.iter().flat_map(move |hosts| summed_by_name(hosts, multiplied));
        assert_one(&TYPES, OPS.len(), summed(false).collect());
        assert_one(&TYPES, 1, summed(true).collect());
    }
}

/// What calls by name give in every bucket, by rank; or those that add, with a factor for each rank.
fn summed_by_name(hosts: &[&str], multiplied: bool) -> Vec<Seen> {
    let world = hosts.len();
    on_hosts(hosts, |communicator| {
        let on = Collectives::new(communicator).unwrap();
        let (rank, mut seen) = (communicator.rank(), Seen::new());
        for bucket in Bucket::all(world, &TYPES) {
            if multiplied && bucket.op != ReduceOp::Sum {
                continue;
            }
            // As what is multiplied: near to 1.
            let factor = element(bucket.dtype, ReduceOp::Prod, rank, TENSOR).to_le_bytes();
            let what = match bucket.collective {
                Collective::AllReduce => What::AllReduce,
                Collective::ReduceScatter => What::ReduceScatter,
                _ => What::Reduce { root: 0 },
            };
            let sent = bucket.input(rank, world);
            let sum = bucket.sum((rank, world, 0), &sent, |(input, _), (output, _)| {
                let request = Request {
                    what,
                    input,
                    output,
                    count: bucket.block as u64,
                    dtype: bucket.dtype,
                    op: bucket.op,
                    factor: multiplied.then_some(Factor::Value(factor)),
                };
                // SAFETY: both buffers are as long as said, and live past the call.
                unsafe { on.call(&request, None) }.unwrap();
            });
            note(&mut seen, &bucket, format!("{bucket:?} on {hosts:?}"), sum);
        }
        seen
    })
}

/// If the ring passed, the values would not show an order.
#[test]
fn round_a_ring_the_bits_depend_on_where_a_tensor_lies() {
    let hosts = ["a"; 4];
    let plan = Algorithm::AllReduceRing.plan(Shape::new(hosts.len())).unwrap();
    for (dtype, op) in kinds(&TYPES) {
        let ranks = on_hosts(&hosts, |communicator| {
            let executor = Executor::new(communicator);
            let plan = executor.load(&plan).unwrap();
            let sums = [0, 1200, 2400, 3600].map(|offset| {
                let collective = Collective::AllReduce;
                let bucket = Bucket { collective, dtype, op, block: 4800, offset };
                let run = run_plan(&executor, &plan, (dtype, op));
                let (rank, world) = (communicator.rank(), hosts.len());
                bucket.sum((rank, world, 0), &bucket.input(rank, world), run)
            });
            BTreeSet::from(sums)
        });
        for sums in ranks {
            assert!(sums.len() > 1, "{op} of {dtype}: four places, {} sums", sums.len());
        }
    }
}
