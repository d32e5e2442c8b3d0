//! The text of a kernel.

use crate::abi::BlockEntry;
use crate::calls::Call;
use crate::repeat::{Node, fold};
use crate::shapes::{Shapes, Shared};
use crate::skeleton::{Code, Operands, Peers, Skeleton};
use crate::target::Variant;
use crate::{abi, target};
use antiphon_plan::ReduceOp;
use antiphon_plan::program::Layout;
use std::collections::HashMap;
use std::fmt::Write;

/// A kernel, as text, and the data that make it a rank's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// The whole text: prelude, structs, device library, programs, and the kernel [`ENTRY`].
    pub text: String,
    /// Its data.
    pub blocks: RankBlocks,
    /// Steps that stand in the text, those of a loop once: the time that it takes to compile grows with them. 0 where the text
    /// is no plan's.
    pub steps: usize,
}

/// A kernel of several ranks, as text, and the data that make its blocks a rank's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedTogether {
    /// The whole text, as [`Generated::text`]. The kernel's one parameter is an [`abi::Launch`] for each rank, one behind
    /// the other, by value. Behind those of the ranks are [`NO_RANK`]s, up to [`TOGETHER`] in all.
    pub text: String,
    /// The kernel's name.
    pub entry: &'static str,
    /// The ranks, in the order of their blocks.
    pub ranks: Vec<RankBlocks>,
    /// As [`Generated::steps`], of all ranks; what is equal counts once.
    pub steps: usize,
}

/// What makes a kernel's blocks a rank's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankBlocks {
    /// For each block of the rank, which program it runs.
    pub programs: Vec<u32>,
    /// The operands of the rank's blocks.
    pub operands: Operands,
    /// The ranks that the rank's blocks touch.
    pub peers: Peers,
}

impl RankBlocks {
    /// The entries of the rank's blocks. A rank without blocks has one that does nothing: it still tells its peers that it came,
    /// and left.
    pub fn entries(&self) -> Vec<BlockEntry> {
        let RankBlocks { programs, operands, peers } = self;
        if programs.is_empty() {
            return vec![BlockEntry { program: u32::MAX, ..BlockEntry::default() }];
        }
        let ends = peers.blocks.iter().skip(1).copied().chain([peers.words.len() as u32]);
        let all = programs.iter().zip(&operands.blocks).zip(peers.blocks.iter().zip(ends));
        all.map(|((&program, operands), (&peers, end))| BlockEntry {
            program,
            operands: operands.start,
            operand_count: operands.len() as u32,
            peers,
            peer_count: end - peers,
        })
        .collect()
    }
}

/// Divides what all kernels have from what this one has.
const PROGRAMS: &str = "// The programs of this kernel's blocks.\n\n";

/// The most threads that a block has.
pub const THREADS: u32 = 512;

/// The kernel's name. Its one parameter is an [`abi::Launch`], by value.
pub const ENTRY: &str = "antiphon";

/// The most ranks that one kernel has: their [`abi::Launch`]es are its parameter, of which every device takes 4 KiB.
pub const TOGETHER: usize = 4096 / <abi::Launch as abi::DeviceStruct>::BYTES;

/// What stands behind the ranks of a kernel of several: no block is as far.
pub const NO_RANK: u32 = u32::MAX;

/// Writes the kernel of a rank of a plan. Ranks whose blocks look alike get the same text.
///
/// # Errors
/// A rank that the plan does not have.
pub fn generate(layout: &Layout, rank: u32, variant: Variant) -> Result<Generated, Unsupported> {
    let mut programs = Programs::new(layout, variant);
    let blocks = programs.add(rank)?;
    let mut text = programs.text();
    let _ = writeln!(text, "AP_KERNEL({THREADS}) {ENTRY}(AP_PARAMETER Launch alone) {{");
    text.push_str("    const BlockEntry b = own(alone);\n");
    programs.branch(&mut text);
    let steps = programs.steps();
    Ok(Generated { text, blocks, steps })
}

/// Writes one kernel for several ranks of a plan: the blocks of the first, behind them those of the second, and so on. Equal
/// blocks of all of them share their code, so sets of ranks that look alike get the same text.
///
/// # Errors
/// A rank that the plan does not have.
pub fn generate_together(
    layout: &Layout,
    ranks: &[u32],
    variant: Variant,
) -> Result<GeneratedTogether, Unsupported> {
    let mut programs = Programs::new(layout, variant);
    let blocks = ranks.iter().map(|&rank| programs.add(rank));
    let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
    let mut text = programs.text();
    begin_together(&mut text, ENTRY, ranks.len());
    programs.branch(&mut text);
    let steps = programs.steps();
    Ok(GeneratedTogether { text, entry: ENTRY, ranks: blocks, steps })
}

/// The beginning of a kernel of up to `count` ranks: each block finds its rank, and what is known of the block, `b`.
pub(crate) fn begin_together(text: &mut String, entry: &str, count: usize) {
    let _ = writeln!(text, "struct Together {{\n    Launch ranks[{count}];\n}};\n");
    let _ = writeln!(text, "AP_KERNEL({THREADS}) {entry}(AP_PARAMETER Together all) {{");
    text.push_str("    u32 rank = 0;\n");
    let _ = writeln!(
        text,
        "    while (rank + 1 < {count} && AP_BLOCK() >= all.ranks[rank + 1].first_block) ++rank;"
    );
    text.push_str("    const BlockEntry b = own(all.ranks[rank]);\n");
}

/// The programs of a kernel: one for all blocks that are equal.
struct Programs<'a> {
    layout: &'a Layout,
    variant: Variant,
    numbers: HashMap<Vec<Node>, u32>,
    /// The moves of all blocks.
    shapes: Shapes,
}

impl<'a> Programs<'a> {
    fn new(layout: &'a Layout, variant: Variant) -> Self {
        Programs { layout, variant, numbers: HashMap::new(), shapes: Shapes::default() }
    }

    /// Steps in the text.
    fn steps(&self) -> usize {
        self.numbers.keys().flatten().map(Node::steps).sum()
    }

    /// Adds what the blocks of a rank run.
    fn add(&mut self, rank: u32) -> Result<RankBlocks, Unsupported> {
        Unsupported::check(self.layout, rank)?;
        let Skeleton { blocks, operands, peers } = Skeleton::of(self.layout, rank);
        let variant = self.variant;
        let mut programs = Vec::new();
        for block in &blocks {
            let nodes = fold(block);
            self.shapes.add(&nodes, &|own| variant.operator(own));
            let next = self.numbers.len() as u32;
            programs.push(*self.numbers.entry(nodes).or_insert(next));
        }
        Ok(RankBlocks { programs, operands, peers })
    }

    /// The text of a kernel up to its entry.
    fn text(&self) -> String {
        let variant = self.variant;
        let mut text = variant.target.prelude();
        text.push_str(&abi::declarations());
        text.push_str(&target::element(variant.dtype));
        text.push_str(target::LIBRARY);
        let shared = self.shapes.shared();
        if !shared.is_empty() {
            text.push_str(target::COUNTED);
        }
        text.push_str(PROGRAMS);
        let calls = Calls {
            op: &|own| variant.operator(own),
            unit: variant.unit(self.layout),
            shared: &shared,
        };
        let mut programs: Vec<_> = self.numbers.iter().collect();
        programs.sort_by_key(|(_, number)| **number);
        for (nodes, number) in programs {
            program(&mut text, *number, nodes, &calls);
        }
        text
    }

    /// The end of the kernel: each block to its program. The rank's launch is `l`.
    fn branch(&self, text: &mut String) {
        text.push_str("    const Launch &l = own_launch();\n");
        text.push_str(
            "    if (begin(l, b)) {\n        const u32 *o = numbers(state().operands);\n",
        );
        text.push_str("        switch (b.program) {\n");
        for number in 0..self.numbers.len() {
            let _ = writeln!(text, "        case {number}: program_{number}(l, o); break;");
        }
        text.push_str("        }\n    }\n    finish(l);\n}\n");
    }
}

/// A rank that a plan does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot generate a kernel of plan `{plan}`: saw rank {rank}, allowed 0 to {ranks} (exclusive)"
)]
pub struct Unsupported {
    /// The plan's name.
    pub plan: String,
    /// The rank.
    pub rank: u32,
    /// How many ranks the plan has.
    pub ranks: usize,
}

impl Unsupported {
    /// Whether a plan has a rank.
    pub(crate) fn check(layout: &Layout, rank: u32) -> Result<(), Self> {
        let ranks = layout.ranks.len();
        if (rank as usize) < ranks {
            return Ok(());
        }
        Err(Unsupported { plan: layout.name.clone(), rank, ranks })
    }
}

/// How steps become calls.
struct Calls<'a> {
    op: &'a dyn Fn(ReduceOp) -> ReduceOp,
    /// Bytes of which slices of runtime blocks are whole multiples.
    unit: u64,
    shared: &'a Shared,
}

fn program(text: &mut String, number: u32, nodes: &[Node], calls: &Calls<'_>) {
    let _ = writeln!(text, "AP_INLINE void program_{number}(const Launch &l, const u32 *o0) {{");
    let _ = writeln!(text, "    const Window w0 = NO_WINDOW;");
    Body { text, calls, depth: 0 }.nodes(nodes, 0);
    text.push_str("}\n\n");
}

/// The body of a program, or of a loop in it.
struct Body<'a> {
    text: &'a mut String,
    calls: &'a Calls<'a>,
    /// How many loops are around it. Its operands begin at `o<depth>`; its window is `w<depth>`.
    depth: usize,
}

impl Body<'_> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{:width$}{line}", "", width = 4 * (self.depth + 1));
    }

    /// Nodes whose operands begin with word `at`.
    fn nodes(&mut self, nodes: &[Node], mut at: u32) {
        for node in nodes {
            self.node(node, at);
            at += node.operands();
        }
    }

    fn node(&mut self, node: &Node, at: u32) {
        let (depth, inner) = (self.depth, self.depth + 1);
        match node {
            Node::Step(code, _) => self.step(code, at),
            Node::Times(times, body) => {
                if let Some(call) = Call::each(body, *times) {
                    let (o, w) = (format!("o{depth} + {at}"), format!("w{depth}"));
                    let text = call.text(&o, &call.numbers(), &w);
                    self.line(format_args!("{text};"));
                    return;
                }
                let stride: u32 = body.iter().map(Node::operands).sum();
                self.line(format_args!(
                    "for (u32 i{inner} = 0; i{inner} < {times}; ++i{inner}) {{"
                ));
                self.depth += 1;
                self.line(format_args!(
                    "const u32 *o{inner} = o{depth} + {at} + i{inner} * {stride};"
                ));
                self.line(format_args!("const Window w{inner} = w{depth};"));
                self.nodes(body, 0);
                self.depth -= 1;
                self.line(format_args!("}}"));
            }
            Node::Pipeline(body) => {
                self.line(format_args!(
                    "const u64 n{inner}_{at} = loop_count(l, o{depth} + {at});"
                ));
                self.line(format_args!(
                    "for (u64 i{inner} = 0; i{inner} < n{inner}_{at}; ++i{inner}) {{"
                ));
                self.depth += 1;
                self.line(format_args!("const u32 *o{inner} = o{depth} + {};", at + 3));
                self.line(format_args!(
                    "const Window w{inner} = loop_window(o{depth} + {at}, i{inner});"
                ));
                self.nodes(body, 0);
                self.depth -= 1;
                self.line(format_args!("}}"));
            }
        }
    }

    fn step(&mut self, code: &Code, at: u32) {
        let depth = self.depth;
        let Calls { op, unit, shared } = self.calls;
        let call = shared.call(code, op, *unit);
        let text = call.text(&format!("o{depth} + {at}"), &call.numbers(), &format!("w{depth}"));
        self.line(format_args!("{text};"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;
    use antiphon_plan::DataType;
    use antiphon_plan::algorithms::{Algorithm, Shape};
    use antiphon_plan::model::Plan;

    fn generated(plan: &Plan, rank: u32) -> Generated {
        let layout = Layout::new(plan).unwrap();
        let variant = Variant { target: Target::Cuda, dtype: DataType::F32, op: None };
        generate(&layout, rank, variant).unwrap()
    }

    fn built_in(algorithm: Algorithm, ranks: usize) -> Plan {
        algorithm.plan(Shape::new(ranks)).unwrap()
    }

    /// What a kernel does not share with all others.
    fn own(text: &str) -> &str {
        text.split_once(PROGRAMS).unwrap().1
    }

    #[test]
    fn kernels_read_like_this() {
        for algorithm in [
            Algorithm::AllReduceTwoShotPackets,
            Algorithm::AllReduceZeroCopy,
            Algorithm::AllReduceRing,
            Algorithm::AllToAllZeroCopy,
        ] {
            let text = generated(&built_in(algorithm, 8), 0).text;
            insta::assert_snapshot!(algorithm.name(), own(&text));
        }
    }

    #[test]
    fn ranks_that_look_alike_share_a_kernel() {
        let plan = built_in(Algorithm::AllReduceTwoShotPackets, 8);
        let all: Vec<_> = (0..8).map(|rank| generated(&plan, rank)).collect();
        assert!(all.iter().all(|kernel| kernel.text == all[0].text));
        assert_ne!(all[0].blocks.operands, all[1].blocks.operands);
    }

    fn together(plan: &Plan, ranks: &[u32]) -> GeneratedTogether {
        let layout = Layout::new(plan).unwrap();
        let variant = Variant { target: Target::Cuda, dtype: DataType::F32, op: None };
        generate_together(&layout, ranks, variant).unwrap()
    }

    #[test]
    fn ranks_that_are_one_kernel_keep_their_programs_and_their_data() {
        // The root of a reduction does something else than the others.
        let plan = built_in(Algorithm::ReduceZeroCopy, 4);
        let all = together(&plan, &[1, 0, 2]);
        insta::assert_snapshot!("reduce_zero_copy_together", own(&all.text));
        let alone = [1, 0, 2].map(|rank| generated(&plan, rank));
        assert_eq!(alone[0].text, alone[2].text);
        assert_ne!(alone[0].text, alone[1].text);
        for (blocks, alone) in all.ranks.iter().zip(&alone) {
            let alone = &alone.blocks;
            assert_eq!((&blocks.operands, &blocks.peers), (&alone.operands, &alone.peers));
            assert_eq!(blocks.programs.len(), alone.programs.len());
        }
        assert_eq!(all.ranks[0].programs, all.ranks[2].programs);
        assert_ne!(all.ranks[0].programs, all.ranks[1].programs);
    }

    #[test]
    fn sets_of_ranks_that_look_alike_share_a_kernel() {
        let plan = built_in(Algorithm::AllReduceTwoShotPackets, 8);
        assert_eq!(together(&plan, &[0, 1]).text, together(&plan, &[2, 7]).text);
        let every: Vec<u32> = (0..8).collect();
        let all = together(&plan, &every);
        assert_eq!(all.ranks[5].operands, generated(&plan, 5).blocks.operands);
        const { assert!(TOGETHER == 10, "docs/gpu.md says so") };
    }

    #[test]
    fn the_text_does_not_grow_with_what_repeats() {
        let length =
            |ranks| own(&generated(&built_in(Algorithm::AllReduceRing, ranks), 1).text).len();
        assert!(length(64) < length(8) + 200, "{} and {}", length(8), length(64));
    }

    #[test]
    fn no_rank_beyond_the_last_has_a_kernel() {
        let layout = Layout::new(&built_in(Algorithm::AllReduceRing, 2)).unwrap();
        let variant = Variant { target: Target::Hip, dtype: DataType::F32, op: None };
        let error = generate(&layout, 2, variant).unwrap_err().to_string();
        assert!(error.ends_with("saw rank 2, allowed 0 to 2 (exclusive)"), "{error}");
    }

    #[test]
    fn what_belongs_to_a_vendor_is_in_its_prelude() {
        let around =
            [target::COUNTED, include_str!("device/divide.h"), include_str!("device/scale.h")];
        let library = target::LIBRARY.to_owned() + &around.concat();
        for word in ["asm", "__shared__", "__syncthreads", "threadIdx", "__atomic", "#if __"] {
            assert!(!library.contains(word), "{word}");
        }
        let text = generated(&built_in(Algorithm::AllReduceTwoShotPackets, 8), 0).text;
        let programs = own(&text);
        assert!(!programs.contains("asm") && !programs.contains("#if"), "{programs}");
    }
}
