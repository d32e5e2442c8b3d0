//! The text of a kernel.

use crate::calls::Call;
use crate::repeat::{Node, fold};
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
    /// For each block of the rank, which program it runs.
    pub programs: Vec<u32>,
    /// The operands of the rank's blocks.
    pub operands: Operands,
    /// The ranks that the rank's blocks touch.
    pub peers: Peers,
}

/// Divides what all kernels have from what this one has.
const PROGRAMS: &str = "// The programs of this kernel's blocks.\n\n";

/// The most threads that a block has.
pub const THREADS: u32 = 512;

/// The kernel's name. Its one parameter is an [`abi::Launch`], by value.
pub const ENTRY: &str = "antiphon";

/// Writes the kernel of a rank of a plan. Ranks whose blocks look alike get the same text.
///
/// # Errors
/// A rank that the plan does not have.
pub fn generate(layout: &Layout, rank: u32, variant: Variant) -> Result<Generated, Unsupported> {
    Unsupported::check(layout, rank)?;
    let Skeleton { blocks, operands, peers } = Skeleton::of(layout, rank);
    let unit = variant.unit(layout);
    let op = |own: ReduceOp| variant.op.unwrap_or(own);
    let mut numbers: HashMap<Vec<Node>, u32> = HashMap::new();
    let mut bodies = String::new();
    let mut programs = Vec::new();
    for block in &blocks {
        let nodes = fold(block);
        let next = numbers.len() as u32;
        let number = *numbers.entry(nodes).or_insert_with_key(|nodes| {
            program(&mut bodies, next, nodes, &op, unit);
            next
        });
        programs.push(number);
    }
    let mut text = String::new();
    text.push_str(&variant.target.prelude());
    text.push_str(&abi::declarations());
    text.push_str(&target::element(variant.dtype));
    text.push_str(target::LIBRARY);
    text.push_str(PROGRAMS);
    text.push_str(&bodies);
    kernel(&mut text, numbers.len() as u32);
    Ok(Generated { text, programs, operands, peers })
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

fn program(
    text: &mut String,
    number: u32,
    nodes: &[Node],
    op: &dyn Fn(ReduceOp) -> ReduceOp,
    unit: u64,
) {
    let _ = writeln!(text, "AP_INLINE void program_{number}(const Launch &l, const u32 *o0) {{");
    let _ = writeln!(text, "    const Window w0 = NO_WINDOW;");
    Body { text, op, unit, depth: 0 }.nodes(nodes, 0);
    text.push_str("}\n\n");
}

/// The body of a program, or of a loop in it.
struct Body<'a> {
    text: &'a mut String,
    op: &'a dyn Fn(ReduceOp) -> ReduceOp,
    /// Bytes of which slices of runtime blocks are whole multiples.
    unit: u64,
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
        let call = Call::of(code, self.op, self.unit);
        let text = call.text(&format!("o{depth} + {at}"), &call.numbers(), &format!("w{depth}"));
        self.line(format_args!("{text};"));
    }
}

fn kernel(text: &mut String, programs: u32) {
    let _ = writeln!(text, "AP_KERNEL({THREADS}) {ENTRY}(AP_PARAMETER Launch l) {{");
    text.push_str("    const BlockEntry b = ((const BlockEntry *)l.blocks)[AP_BLOCK()];\n");
    text.push_str("    const u32 *o = (const u32 *)l.operands + b.operands;\n");
    text.push_str("    if (begin(l, b)) {\n        switch (b.program) {\n");
    for number in 0..programs {
        let _ = writeln!(text, "        case {number}: program_{number}(l, o); break;");
    }
    text.push_str("        }\n    }\n    finish(l);\n}\n");
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
        assert_ne!(all[0].operands, all[1].operands);
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
        let library = format!("{}{}", target::LIBRARY, include_str!("device/divide.h"));
        for word in ["asm", "__shared__", "__syncthreads", "threadIdx", "__atomic", "#if __"] {
            assert!(!library.contains(word), "{word}");
        }
        let text = generated(&built_in(Algorithm::AllReduceTwoShotPackets, 8), 0).text;
        let programs = own(&text);
        assert!(!programs.contains("asm") && !programs.contains("#if"), "{programs}");
    }
}
