//! The code of the packed plans' kernels, for machines without a run-time compiler.

use crate::gpu_compile::compilers::{Code, Compiler};
use crate::gpu_compile::each;
use crate::{Error, Result};
use antiphon::DataType;
use antiphon::executor::ahead;
use antiphon::executor::hal::Backend;
use antiphon::plan::program::Layout;
use antiphon_codegen::Target;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The architectures, and who compiles for them: the common compiler where it knows them, since older drivers take its code.
const ARCHITECTURES: [(&str, Code); 3] =
    [("sm_80", Code::Common), ("sm_90", Code::Common), ("sm_100", Code::Machine)];

/// Compiles the kernels of these plan files, for the element type that the command takes unasked, into a folder; how many.
pub fn pack<'a>(folder: &Path, plans: impl IntoIterator<Item = &'a Path>) -> Result<usize> {
    let mut texts = BTreeSet::new();
    for path in plans {
        let wrong = |error: &dyn std::fmt::Display| {
            Error::message(format!("cannot compile {}: {error}", path.display()))
        };
        let bytes = fs::read(path).map_err(Error::io(format!("read {}", path.display())))?;
        let plan = antiphon::plan::read(&bytes).map_err(|error| wrong(&error))?.plan;
        let layout = Layout::new(&plan).map_err(|error| wrong(&error))?;
        let made = ahead::texts(&layout, Backend::Cuda, DataType::F32, None);
        texts.extend(made.map_err(|error| wrong(&error))?);
    }
    let texts: Vec<String> = texts.into_iter().collect();
    for (architecture, code) in ARCHITECTURES {
        let compiler = Compiler::open(Target::Cuda, code)?;
        let compiled = each(&texts, |text| compiler.compile(text, architecture, false));
        for (text, compiled) in texts.iter().zip(compiled) {
            let failed = |log| Error::message(format!("cannot compile for {architecture}:\n{log}"));
            let code = compiled?.code.map_err(failed)?;
            ahead::write(folder, architecture, text, &code)
                .map_err(Error::io(format!("write to {}", folder.display())))?;
        }
    }
    Ok(texts.len() * ARCHITECTURES.len())
}
