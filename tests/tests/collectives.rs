//! Every built-in algorithm computes its collective: any number of ranks, in place and out of place, every type and
//! operator, and the same bits every time.

use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::model::{Collective, Plan};
use antiphon::{DataType, ReduceOp};
use antiphon_tests::harness::plans::buffers;
use antiphon_tests::harness::{Case, Outcome, Random, Source, on_threads, options, run_case, seed};

const WORLDS: [u32; 6] = [1, 2, 3, 4, 5, 8];
/// Elements: one, a few that no packet or vector divides, and enough for whole vectors of every type.
const COUNTS: [u64; 4] = [1, 7, 129, 1000];

/// Two launches with the same buffers, of so many elements.
fn case<'a>(plan: &'a Plan, name: &'a str, dtype: DataType, count: u64) -> Case<'a> {
    let case = Case::new(name, plan, buffers(plan, count, dtype.size() as u64));
    Case { dtype, launches: 2, reuse: true, ..case }
}

/// Runs cases one after the other over the same ranks: for each case, what every rank found.
fn run_all(world: u32, cases: &[Case<'_>]) -> Vec<Vec<Outcome>> {
    let ranks = on_threads(world, &options(), |communicator| {
        let run =
            |case| run_case(&communicator, case).unwrap_or_else(|error| panic!("{error}; {case}"));
        cases.iter().map(run).collect::<Vec<_>>()
    });
    let ranks = ranks.unwrap();
    (0..cases.len())
        .map(|position| ranks.iter().map(|outcomes| outcomes[position].clone()).collect())
        .collect()
}

fn assert_right(outcomes: &[Vec<Outcome>]) {
    let wrong: Vec<&String> = outcomes.iter().flatten().filter_map(|o| o.wrong.as_ref()).collect();
    let shown: Vec<&str> = wrong.iter().take(20).map(|text| text.as_str()).collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), shown.join("\n"));
}

/// The operators to try: all where the plan reduces.
fn operators(algorithm: Algorithm, plan: &Plan) -> Vec<Option<ReduceOp>> {
    match algorithm.collective() {
        Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter => {
            assert!(plan.reduces() || plan.gpus.len() == 1, "{algorithm}");
            ReduceOp::ALL.map(Some).to_vec()
        }
        _ => vec![None],
    }
}

#[test]
fn every_algorithm_computes_its_collective() {
    let seed = seed();
    println!("seed {seed}");
    let mut random = Random::new(seed, 1);
    for world in WORLDS {
        for algorithm in Algorithm::ALL {
            for in_place in [false, true] {
                let shape = Shape { in_place, ..Shape::new(world as usize) };
                let plan = algorithm.plan(shape).unwrap();
                let name = algorithm.name();
                let mut cases = Vec::new();
                for dtype in DataType::ALL {
                    for op in operators(algorithm, &plan) {
                        // Every type with every operator; one number of elements each, by chance.
                        let count = random.one_of(&COUNTS);
                        let source = random.one_of(&[Source::Own, Source::Plain]);
                        cases.push(Case { op, source, ..case(&plan, name, dtype, count) });
                    }
                }
                assert_right(&run_all(world, &cases));
            }
        }
    }
}

#[test]
fn every_algorithm_takes_any_number_of_elements() {
    let seed = seed();
    println!("seed {seed}");
    let mut random = Random::new(seed, 2);
    for algorithm in Algorithm::ALL {
        let world = random.one_of(&[2, 3, 4, 5]);
        let blocks = 1 + random.below(3) as usize;
        let in_place = random.below(2) == 1;
        let plan =
            algorithm.plan(Shape { blocks, in_place, ..Shape::new(world as usize) }).unwrap();
        let name = algorithm.name();
        let mut cases = Vec::new();
        for count in [1, 2, 3, 5, 8, 13, 31, 64, 127, 1023, 4096, 20_011] {
            let dtype = random.one_of(&DataType::ALL);
            let mover = Some(random.below(world.into()) as u32);
            cases.push(Case { mover, mixed: true, ..case(&plan, name, dtype, count) });
        }
        assert_right(&run_all(world, &cases));
    }
}

#[test]
fn any_rank_may_be_the_root() {
    use Algorithm::{BroadcastPackets, BroadcastZeroCopy, ReducePackets, ReduceZeroCopy};
    for algorithm in [BroadcastPackets, BroadcastZeroCopy, ReducePackets, ReduceZeroCopy] {
        for (planned, expected) in [(0, 0), (2, 2), (2, 0)] {
            let plan = algorithm.plan(Shape { root: planned, ..Shape::new(3) }).unwrap();
            let case = case(&plan, algorithm.name(), DataType::F32, 100);
            let case = Case { root: expected, ..case };
            let outcomes = run_all(3, &[case]);
            let right = outcomes.iter().all(|rank| rank[0].wrong.is_none());
            assert_eq!(right, planned as u32 == expected, "{algorithm}, root {planned}");
        }
    }
}

#[test]
fn sums_have_the_same_bits_in_every_run_and_allreduce_on_every_rank() {
    for algorithm in Algorithm::ALL {
        let collective = algorithm.collective();
        for world in [2, 3, 5] {
            let plan = algorithm.plan(Shape::new(world as usize)).unwrap();
            if !plan.reduces() {
                continue;
            }
            let cases: Vec<Case<'_>> = [DataType::F32, DataType::Bf16, DataType::F16]
                .into_iter()
                .flat_map(|dtype| [1, 257, 3000].map(|count| (dtype, count)))
                .map(|(dtype, count)| case(&plan, algorithm.name(), dtype, count))
                .map(|case| Case { launches: 5, ..case })
                .collect();
            let (first, second) = (run_all(world, &cases), run_all(world, &cases));
            for ((case, first), second) in cases.iter().zip(&first).zip(&second) {
                // What a reduce leaves on other ranks than the root is not defined.
                let defined = if collective == Collective::Reduce { 1 } else { first.len() };
                for (rank, (one, other)) in first.iter().zip(second).take(defined).enumerate() {
                    assert_eq!(one.digests, other.digests, "rank {rank}, {case}");
                    if collective == Collective::AllReduce {
                        assert_eq!(one.digests, first[0].digests, "rank {rank} and rank 0, {case}");
                    }
                }
            }
            assert_right(&first);
        }
    }
}
