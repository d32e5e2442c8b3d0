//! `plan kernels`: the kernels of plans, compiled ahead into a folder.

use super::error::print_line;
use super::{CliError, KernelArgs, plans};
use antiphon::executor::ahead;
use antiphon::executor::hal::{Backend, driver};
use antiphon::plan::program::Layout;
use antiphon::{DataType, ReduceOp};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Does what the options say.
pub fn compile(args: &KernelArgs) -> Result<ExitCode, CliError> {
    let mut layouts = Vec::new();
    for file in &args.files {
        let plan = plans::load(file)?.plan;
        let faults = plans::faults(&plan);
        if !faults.is_empty() {
            return Err(CliError::InvalidPlan { name: plan.name, faults });
        }
        let failed = |error| format!("cannot lower plan `{}`: {error}", plan.name);
        layouts.push(Layout::new(&plan).map_err(|error| CliError::Executor(failed(error)))?);
    }
    let refused = |error: &dyn std::fmt::Display| CliError::Executor(error.to_string());
    for architecture in &args.architectures {
        let backend = backend(architecture);
        let driver = driver(backend).map_err(|error| refused(&error))?;
        let mut texts = BTreeSet::new();
        for layout in &layouts {
            for (dtype, op) in variants(args) {
                let made = ahead::texts(layout, backend, dtype, op);
                texts.extend(made.map_err(|error| refused(&error))?);
            }
        }
        let mut bytes = 0;
        for text in &texts {
            let code = driver.compile(text, architecture).map_err(|error| refused(&error))?;
            bytes += code.len();
            ahead::write(&args.output, architecture, text, &code).map_err(|source| {
                CliError::Write { what: args.output.display().to_string(), source }
            })?;
        }
        print_line(&format!("{architecture}: {} kernels, {bytes} bytes", texts.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whose an architecture is: AMD's begin with `gfx`.
fn backend(architecture: &str) -> Backend {
    if architecture.starts_with("gfx") { Backend::Rocm } else { Backend::Cuda }
}

/// What kernels are specialised for.
fn variants(args: &KernelArgs) -> impl Iterator<Item = (DataType, Option<ReduceOp>)> + '_ {
    let ops: Vec<_> = match &args.ops[..] {
        [] => vec![None],
        ops => ops.iter().copied().map(Some).collect(),
    };
    args.dtypes.iter().flat_map(move |&dtype| ops.clone().into_iter().map(move |op| (dtype, op)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, PlanCommand};
    use clap::Parser;

    #[test]
    fn every_type_is_compiled_with_every_reduction() {
        let line = "antiphon plan kernels a.json -a sm_90 -a gfx90a --dtype f16 --dtype f32 --op sum --op max -o code";
        let args = match Cli::try_parse_from(line.split_whitespace()).unwrap().command {
            Command::Plan(PlanCommand::Kernels(args)) => args,
            other => panic!("{other:?}"),
        };
        let named: Vec<_> = variants(&args)
            .map(|(dtype, op)| format!("{} {}", dtype.name(), op.map_or("", ReduceOp::name)))
            .collect();
        assert_eq!(named, ["f16 sum", "f16 max", "f32 sum", "f32 max"]);
        let backends: Vec<_> = args.architectures.iter().map(|name| backend(name)).collect();
        assert_eq!(backends, [Backend::Cuda, Backend::Rocm]);
    }
}
