//! Instructions of the hot loops, as NVIDIA's compiler makes them: counts, not times.
//!
//! A kernel of one operation is compiled as kernels of plans are, and disassembled. Its hot loop is the one without another loop
//! in it that has the most accesses of 16 bytes. Registers and what spills are ptxas's words; for what spills, the operation is
//! compiled with everything inlined, as around calls some are saved in any case.

use super::compilers::{Code, Compiler, disassemble};
use super::{CUDA, failed};
use crate::{Error, Result};
use antiphon_codegen::{Target, Variant, generate};
use antiphon_plan::builder::{BuildError, ProgramBuilder};
use antiphon_plan::model::{Collective, Plan};
use antiphon_plan::program::Layout;
use antiphon_plan::{DataType, ReduceOp};
use std::collections::HashMap;
use std::fmt::Write as _;

/// An operation of which a kernel is made.
#[derive(Clone, Copy)]
enum Operation {
    Copy,
    Reduce(usize),
    PutPackets,
}

/// What is looked at: a name, the operation, the type.
const ROWS: [(&str, Operation, DataType); 12] = [
    ("copy, put, get", Operation::Copy, DataType::F32),
    ("sum of 2, f32", Operation::Reduce(2), DataType::F32),
    ("sum of 4, f32", Operation::Reduce(4), DataType::F32),
    ("sum of 8, f32", Operation::Reduce(8), DataType::F32),
    ("sum of 2, bf16", Operation::Reduce(2), DataType::Bf16),
    ("sum of 8, bf16", Operation::Reduce(8), DataType::Bf16),
    ("sum of 2, f16", Operation::Reduce(2), DataType::F16),
    ("sum of 8, f16", Operation::Reduce(8), DataType::F16),
    ("sum of 2, f8e4m3", Operation::Reduce(2), DataType::F8E4m3),
    ("sum of 8, f8e4m3", Operation::Reduce(8), DataType::F8E4m3),
    ("sum of 8, f8e5m2", Operation::Reduce(8), DataType::F8E5m2),
    ("put packets", Operation::PutPackets, DataType::F32),
];

/// A loop of machine code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Loop {
    instructions: usize,
    /// Loads and stores of 16 bytes.
    loads: usize,
    stores: usize,
}

/// The table: a row for each operation, columns for each architecture.
///
/// # Errors
/// A compiler or disassembler that cannot be had, what does not compile, has no such loop, or spills.
pub fn table() -> Result<String> {
    let compiler = Compiler::open(Target::Cuda, Code::Machine)?;
    let mut architectures = CUDA;
    architectures.sort_by_key(|name| name[3..].parse::<u32>().unwrap_or(0));
    let mut out = String::from("| loop of a thread |");
    architectures.iter().for_each(|name| {
        let _ = write!(out, " {name} |");
    });
    let _ = writeln!(out, "\n|---|{}", "---|".repeat(architectures.len()));
    for (name, operation, dtype) in ROWS {
        let text = text(operation, dtype)?;
        let _ = write!(out, "| {name} |");
        for architecture in architectures {
            let what = format!("{name} for {architecture}");
            let compiled = compiler.compile(&text, architecture, false)?;
            let (registers, _) = compiled.resources();
            let code = compiled.code.map_err(|log| failed(&what, &log))?;
            let hot = hot(&disassemble(&code)?);
            let hot = hot.ok_or_else(|| {
                Error::message(format!("cannot count {what}: no loop with accesses of 16 bytes"))
            })?;
            let inlined = compiler.compile(&text, architecture, true)?;
            let (_, spilled) = inlined.resources();
            inlined.code.map_err(|log| failed(&what, &log))?;
            if spilled > 0 {
                let saw = format!("{spilled} bytes of registers that spill");
                return Err(Error::message(format!("cannot accept {what}: saw {saw}, allowed 0")));
            }
            let Loop { instructions, loads, stores } = hot;
            let each = instructions as f64 / (loads + stores) as f64;
            let _ = write!(
                out,
                " {instructions} for {loads} + {stores}: {each:.1} each; {registers} registers |"
            );
        }
        out.push('\n');
    }
    Ok(out)
}

/// A kernel of one operation.
fn text(operation: Operation, dtype: DataType) -> Result<String> {
    let wrong = |error: BuildError| Error::message(format!("cannot write a plan: {error}"));
    let plan = plan(operation).map_err(wrong)?;
    let lower = |error| Error::message(format!("cannot lower an operation: {error}"));
    let layout = Layout::new(&plan).map_err(lower)?;
    let variant = Variant { target: Target::Cuda, dtype, op: Some(ReduceOp::Sum) };
    let made = generate(&layout, 0, variant);
    Ok(made.map_err(|error| Error::message(error.to_string()))?.text)
}

fn plan(operation: Operation) -> std::result::Result<Plan, BuildError> {
    let p = ProgramBuilder::new("loop", Collective::Test, 2).chunk_counts(8, 8).fuse(false);
    let (input, output, far) = (p.input(0), p.output(0), p.scratch(1, 8));
    let _ = p.channel(0, 1);
    match operation {
        Operation::Copy => p.block(0).copy(input.chunk(0), output.chunk(0)),
        Operation::Reduce(count) => {
            let from: Vec<_> = (0..count).map(|at| input.chunk(at)).collect();
            p.block(0).reduce(&from, output.chunk(0));
        }
        Operation::PutPackets => p.block(0).put_packets(input.chunk(0), far.chunk(0)),
    }
    p.build()
}

/// The hot loop of disassembled code; `None` if no loop has accesses of 16 bytes.
fn hot(listing: &str) -> Option<Loop> {
    let mut labels: HashMap<&str, usize> = HashMap::new();
    let mut code: Vec<&str> = Vec::new();
    let mut loops = Vec::new();
    for line in listing.lines().map(str::trim) {
        if let Some(label) = line.strip_suffix(':') {
            labels.insert(label, code.len());
        } else if let Some(instruction) = instruction(line) {
            code.push(instruction);
            // Labels that are known lie before: a jump to one closes a loop.
            let target = instruction.contains("BRA").then(|| instruction.split(['(', ')', '`']));
            let begin = target.and_then(|mut words| words.find_map(|word| labels.get(word)));
            loops.extend(begin.map(|&begin| (begin, code.len())));
        }
    }
    let inner = |&(begin, end): &(usize, usize)| {
        let within = |&(first, last): &(usize, usize)| {
            (first, last) != (begin, end) && first >= begin && last <= end
        };
        !loops.iter().any(within)
    };
    let counted = loops.iter().filter(|one| inner(one)).map(|&(begin, end)| {
        let body = &code[begin..end];
        let wide = |kind: &str| {
            let named = |line: &&&str| {
                let mut words = line.split_whitespace().filter(|word| !word.starts_with('@'));
                let name = words.next().unwrap_or_default();
                name.starts_with(kind) && name.split('.').any(|part| part == "128")
            };
            body.iter().filter(named).count()
        };
        Loop { instructions: body.len(), loads: wide("LD"), stores: wide("ST") }
    });
    let with_both = counted.filter(|one| one.stores > 0);
    with_both.max_by_key(|one| (one.loads + one.stores, usize::MAX - one.instructions))
}

/// The instruction of a line such as `/*0010*/  @P0 BRA (.L_x_1) ;`.
fn instruction(line: &str) -> Option<&str> {
    let (_, rest) = line.strip_prefix("/*")?.split_once("*/")?;
    let instruction = rest.split(';').next()?.trim();
    let is_one = instruction.starts_with(|c: char| c.is_ascii_uppercase() || c == '@' || c == '{');
    is_one.then_some(instruction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hot_loop_is_the_inner_one_with_the_most_wide_accesses() {
        let listing = "
.L_x_0:
        /*0000*/                   IADD3 R1, R1, 0x1, RZ ;
.L_x_1:
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/              @P1 STG.E.128 desc[UR4][R6.64], R4 ;
        /*0030*/              @!P0 BRA `(.L_x_1) ;
.L_x_2:
        /*0040*/                   LD.E.64 R4, [R2.64] ;
        /*0050*/                   ST.E.64 [R6.64], R4 ;
        /*0060*/               @P0 BRA `(.L_x_2) ;
        /*0070*/                   BRA `(.L_x_0) ;
        /*0080*/                   BRA `(.L_x_9) ;
.L_x_9:
        /*0090*/                   EXIT ;
";
        assert_eq!(hot(listing), Some(Loop { instructions: 3, loads: 1, stores: 1 }));
        assert_eq!(hot(&listing.replace("128", "64")), None);
    }
}
