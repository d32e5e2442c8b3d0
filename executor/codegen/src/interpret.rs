//! The interpreting kernel: one text for each element type and vendor, whose blocks read their steps from a table.
//!
//! It makes the same calls of the device library as generated kernels, so that its results are the same bits; what is code
//! there ([`generate`](crate::generate)) is data here. It can be compiled long before a plan is known: for machines without a
//! run-time compiler. Copies are done by the same functions; moves with more sides by ones of its own, which count sides while
//! they run, where generated kernels have one for each number of sides: so that it stays small.

use crate::abi::{self, Step};
use crate::calls::{Arguments, Call};
use crate::emit::{
    ENTRY, Generated, GeneratedTogether, RankBlocks, THREADS, TOGETHER, Unsupported, begin_together,
};
use crate::skeleton::{Code, Item, Row, Skeleton};
use crate::target::{self, Target, Variant};
use antiphon_plan::program::Layout;
use antiphon_plan::{DataType, ReduceOp};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

/// A step's number where the block's steps end.
const END: u32 = u32::MAX;
/// A step's number where a pipeline begins, and where it begins again.
const PIPELINE: u32 = u32::MAX - 1;
const AGAIN: u32 = u32::MAX - 2;
/// Words of a pipeline's own, before those of its steps.
const PIPELINE_WORDS: u32 = 3;

/// The name of the kernel that interprets for several ranks, as [`GeneratedTogether`] has it.
const ENTRY_TOGETHER: &str = "antiphon_together";

const OPS: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max];

/// What the kernel can call.
struct Calls {
    /// One for each function; its numbers are an example's.
    all: Vec<Call>,
    /// Where each function is among them.
    numbers: HashMap<String, u32>,
}

static CALLS: LazyLock<Calls> = LazyLock::new(|| {
    let mut calls = Calls { all: Vec::new(), numbers: HashMap::new() };
    let own = |op| op;
    let known = codes().into_iter().map(|code| Call::of(&code, &own, 1));
    for call in known.chain(counted().map(|code| Call::counted(&code, &own, 1))) {
        calls.numbers.insert(call.function.clone(), calls.all.len() as u32);
        calls.all.push(call);
    }
    calls
});

/// The steps that have the generated kernels' functions. There are few, for each is code in every kernel.
fn codes() -> Vec<Code> {
    let moves = |source, destination| Code::Move {
        sources: vec![source],
        destinations: vec![destination],
        op: ReduceOp::Sum,
        multicast: false,
    };
    let row = |row| Code::Row { row, count: 1, first: 0 };
    let signals = [false, true].map(|release| row(Row::Signals { release }));
    let waits = [false, true].map(|acquire| row(Row::Waits { acquire }));
    let others = [Row::PortSignals, Row::Acquires, Row::Releases, Row::Posts, Row::Flushes];
    let copies = [moves(false, false), moves(false, true), moves(true, false)];
    let whole = [Code::MoveBlock, Code::Barrier, Code::Sync];
    [&copies[..], &signals, &waits, &others.map(row), &whole].concat()
}

/// Moves whose functions count sides, of each kind and operator.
fn counted() -> impl Iterator<Item = Code> {
    let kinds = [(false, false), (true, false), (false, true)];
    OPS.into_iter().flat_map(move |op| {
        kinds.map(|(packets, multicast)| Code::Move {
            sources: vec![packets; 2],
            destinations: vec![false],
            op,
            multicast,
        })
    })
}

/// The text of the interpreting kernel: prelude, structs, device library, the calls, and the kernels [`ENTRY`], the same for several
/// ranks, [`divide::ENTRY`](crate::divide::ENTRY) and [`scale::ENTRY`](crate::scale::ENTRY).
pub fn text(target: Target, dtype: DataType) -> String {
    let mut text = target.prelude();
    text.push_str(&abi::declarations());
    text.push_str(&target::element(dtype));
    text.push_str(target::LIBRARY);
    for (name, number) in [("END", END), ("PIPELINE", PIPELINE), ("AGAIN", AGAIN)] {
        let _ = writeln!(text, "#define STEP_{name} {number:#x}u");
    }
    let _ = writeln!(text, "#define PIPELINE_WORDS {PIPELINE_WORDS}");
    text.push_str(target::COUNTED);
    text.push_str(include_str!("device/interpreter.h"));
    text.push_str(
        "AP_INLINE void call(const Launch &l, const Step &s, const u32 *o, Window w) {\n",
    );
    text.push_str("    switch (s.call) {\n");
    for (number, call) in CALLS.all.iter().enumerate() {
        let numbers: &[&str] = match call.arguments {
            Arguments::None | Arguments::Operands => &[],
            Arguments::Counts(..) => &["s.one", "s.two"],
            Arguments::Bytes(_) => &["(u64)s.one | (u64)s.two << 32"],
        };
        let numbers: Vec<String> = numbers.iter().map(|&number| number.to_owned()).collect();
        let call = call.text("o", &numbers, "w");
        let _ = writeln!(text, "    case {number}: {call}; break;");
    }
    text.push_str("    }\n}\n\n");
    let _ = writeln!(text, "AP_KERNEL({THREADS}) {ENTRY}(AP_PARAMETER Launch alone) {{");
    text.push_str("    const BlockEntry b = own(alone);\n");
    text.push_str(WALK);
    begin_together(&mut text, ENTRY_TOGETHER, TOGETHER);
    text.push_str(WALK);
    text.push_str(include_str!("device/divide.h"));
    text.push_str(include_str!("device/scale.h"));
    text
}

const WALK: &str = "    const Launch &l = own_launch();
    if (begin(l, b) && b.program != NOBODY) {
        walk(l, (const Step *)(numbers(l.operands) + b.program), numbers(state().operands));
    }
    finish(l);
}

";

/// The kernel of [`text`], with the steps of a rank's blocks.
///
/// # Errors
/// A rank that the plan does not have.
pub fn interpreted(layout: &Layout, rank: u32, variant: Variant) -> Result<Generated, Unsupported> {
    let blocks = steps(layout, rank, variant)?;
    Ok(Generated { text: text(variant.target, variant.dtype), blocks, steps: 0 })
}

/// The same for several ranks, which are one kernel: the blocks of the first, behind them those of the second, and so on.
///
/// # Errors
/// A rank that the plan does not have.
pub fn interpreted_together(
    layout: &Layout,
    ranks: &[u32],
    variant: Variant,
) -> Result<GeneratedTogether, Unsupported> {
    let ranks = ranks.iter().map(|&rank| steps(layout, rank, variant));
    let ranks = ranks.collect::<Result<_, _>>()?;
    let text = text(variant.target, variant.dtype);
    Ok(GeneratedTogether { text, entry: ENTRY_TOGETHER, ranks, steps: 0 })
}

/// The steps of a rank's blocks, behind the words of its operands. Blocks of equal steps share them.
fn steps(layout: &Layout, rank: u32, variant: Variant) -> Result<RankBlocks, Unsupported> {
    Unsupported::check(layout, rank)?;
    let Skeleton { blocks, mut operands, peers } = Skeleton::of(layout, rank);
    let writer = Writer { variant, unit: variant.unit(layout) };
    let mut known: HashMap<&[Item], u32> = HashMap::new();
    let mut programs = Vec::new();
    for block in &blocks {
        let words = &mut operands.words;
        let at = *known.entry(block).or_insert_with(|| {
            // Where a step begins at a multiple of its bytes, it is read at once.
            words.resize(words.len().next_multiple_of(4), 0);
            let at = words.len() as u32;
            let mut steps = Vec::new();
            writer.items(block, &mut steps);
            steps.push(Step { call: END, ..Step::default() });
            words.extend(steps.iter().flat_map(|step| [step.call, step.words, step.one, step.two]));
            at
        });
        programs.push(at);
    }
    Ok(RankBlocks { programs, operands, peers })
}

/// Writes steps.
struct Writer {
    variant: Variant,
    unit: u64,
}

impl Writer {
    fn items(&self, items: &[Item], steps: &mut Vec<Step>) {
        for item in items {
            match item {
                Item::Step(code, words) => steps.push(self.step(code, *words)),
                Item::Pipeline(body) => {
                    let begin = steps.len();
                    steps.push(Step { call: PIPELINE, words: PIPELINE_WORDS, ..Step::default() });
                    self.items(body, steps);
                    let two = steps[begin + 1..].iter().map(|step| step.words).sum();
                    steps.push(Step { call: AGAIN, ..Step::default() });
                    let one = (steps.len() - begin - 1) as u32;
                    steps[begin] = Step { one, two, ..steps[begin] };
                }
            }
        }
    }

    fn step(&self, code: &Code, words: u32) -> Step {
        let op = |own| self.variant.operator(own);
        let mut call = Call::of(code, &op, self.unit);
        let number = CALLS.numbers.get(&call.function).copied();
        let number = number.unwrap_or_else(|| {
            call = Call::counted(code, &op, self.unit);
            // There is one for any number of sides, of each kind and operator.
            CALLS.numbers[&call.function]
        });
        let (one, two) = match call.arguments {
            Arguments::None | Arguments::Operands => (0, 0),
            Arguments::Counts(one, two) => (one, two),
            Arguments::Bytes(bytes) => (bytes as u32, (bytes >> 32) as u32),
        };
        Step { call: number, words, one, two }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_plan::algorithms::{Algorithm, Shape, examples};
    use antiphon_plan::model::Plan;

    const F16: Variant = Variant { target: Target::Cuda, dtype: DataType::F16, op: None };

    /// The steps of a block as names of functions, with their numbers.
    fn named_steps(plan: &Plan, variant: Variant, block: usize) -> Vec<String> {
        let made = interpreted(&Layout::new(plan).unwrap(), 0, variant).unwrap();
        let all =
            made.blocks.operands.words[made.blocks.programs[block] as usize..].as_chunks::<4>().0;
        let numbers = |one: u32, two: u32| {
            if (one, two) == (0, 0) { String::new() } else { format!(" {one} {two}") }
        };
        let name = |&[call, _, one, two]: &[u32; 4]| match call {
            PIPELINE => format!("pipeline{}", numbers(one, two)),
            AGAIN => "again".to_owned(),
            call => CALLS.all[call as usize].function.clone() + &numbers(one, two),
        };
        all.iter().take_while(|step| step[0] != END).map(name).collect()
    }

    #[test]
    fn tables_read_like_this() {
        let plan = Algorithm::AllReduceTwoShotPackets.plan(Shape::new(8)).unwrap();
        let prod = Variant { op: Some(ReduceOp::Prod), ..F16 };
        insta::assert_snapshot!("table_of_packets", named_steps(&plan, prod, 0).join("\n"));
        let pipeline = |(name, _): &(&str, Plan)| name.starts_with("allgather_pipeline");
        let (_, plan) = examples().unwrap().into_iter().find(pipeline).unwrap();
        insta::assert_snapshot!("table_of_a_pipeline", named_steps(&plan, F16, 0).join("\n"));
        let switch = |(name, _): &(&str, Plan)| name.starts_with("allreduce_switch");
        let (_, plan) = examples().unwrap().into_iter().find(switch).unwrap();
        insta::assert_snapshot!("table_of_a_switch", named_steps(&plan, F16, 0).join("\n"));
    }

    #[test]
    fn steps_begin_where_they_are_read_at_once_and_blocks_of_equal_steps_share_them() {
        for algorithm in [Algorithm::AllReduceRing, Algorithm::AllReduceTwoShotPackets] {
            let layout = Layout::new(&algorithm.plan(Shape::new(8)).unwrap()).unwrap();
            let made = interpreted(&layout, 3, F16).unwrap();
            let plain = crate::generate(&layout, 3, F16).unwrap();
            assert_eq!(made.blocks.operands.blocks, plain.blocks.operands.blocks);
            assert!(made.blocks.operands.words.starts_with(&plain.blocks.operands.words));
            assert!(made.blocks.programs.iter().all(|at| at % 4 == 0));
            // Equal where the generated programs are.
            let mut pairs: Vec<_> =
                made.blocks.programs.iter().zip(&plain.blocks.programs).collect();
            pairs.sort();
            pairs.dedup();
            let programs = plain.blocks.programs.iter().max().map_or(0, |most| most + 1);
            assert_eq!(pairs.len(), programs as usize);
        }
    }

    #[test]
    fn ranks_that_are_one_kernel_have_the_tables_of_each_alone() {
        // The root of a reduction does something else than the others.
        let layout = Layout::new(&Algorithm::ReduceZeroCopy.plan(Shape::new(4)).unwrap()).unwrap();
        let all = interpreted_together(&layout, &[1, 0, 2], F16).unwrap();
        let alone = [1, 0, 2].map(|rank| interpreted(&layout, rank, F16).unwrap());
        assert_eq!(all.ranks, alone.clone().map(|alone| alone.blocks));
        assert_eq!(all.text, alone[0].text, "one text for all");
        for entry in [ENTRY, all.entry] {
            assert!(all.text.contains(&format!(" {entry}(AP_PARAMETER ")), "{entry}");
        }
        assert!(interpreted_together(&layout, &[3, 4], F16).is_err());
    }

    #[test]
    fn there_is_a_call_for_any_number_of_sides() {
        let own = |op| op;
        for op in OPS {
            for (reads, writes) in
                (1..12).flat_map(|reads| (1..12).map(move |writes| (reads, writes)))
            {
                for (packets, multicast) in [(false, false), (true, false), (false, true)] {
                    let sources = vec![packets; reads];
                    let destinations = vec![false; writes];
                    let code = Code::Move { sources, destinations, op, multicast };
                    let call = Call::counted(&code, &own, 1);
                    assert!(CALLS.numbers.contains_key(&call.function), "{}", call.function);
                }
            }
        }
    }

    #[test]
    fn no_rank_beyond_the_last_has_a_table() {
        let layout = Layout::new(&Algorithm::AllReduceRing.plan(Shape::new(2)).unwrap()).unwrap();
        let error = interpreted(&layout, 2, F16).unwrap_err().to_string();
        assert!(error.ends_with("saw rank 2, allowed 0 to 2 (exclusive)"), "{error}");
    }
}
