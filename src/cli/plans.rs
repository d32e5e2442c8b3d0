//! Plans: reading, checking, choosing and interpreting them. The calls of this command into the plan crate that
//! are more than looking at a [`Plan`] are in this file.

use super::{CliError, programs};
use antiphon::executor::selection::{
    self, Question, Selected, SelectionError, Spread, Wish, select,
};
use antiphon::plan::model::{Collective, Plan};
use antiphon::plan::{self, Read};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Reads a plan file in any dialect; `-` is standard input. A program in Python is compiled first.
pub fn load(path: &Path) -> Result<Read, CliError> {
    if programs::is_program(path) {
        return parse(&path.display().to_string(), &programs::compile(path)?);
    }
    let failed = |source| CliError::ReadFile { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(failed)?;
    } else {
        File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(failed)?;
    }
    parse(&path.display().to_string(), &bytes)
}

/// Reads a plan from bytes that came from `path`.
pub fn parse(path: &str, bytes: &[u8]) -> Result<Read, CliError> {
    plan::read(bytes)
        .map_err(|error| CliError::ReadPlan { path: path.to_owned(), message: error.to_string() })
}

/// The plan in the current format.
pub fn to_text(plan: &Plan, pretty: bool) -> String {
    let style = if pretty { plan::Style::Pretty } else { plan::Style::Compact };
    let mut bytes = Vec::new();
    plan::write(plan, style, &mut bytes).expect("writing to memory does not fail");
    String::from_utf8(bytes).expect("the writer writes UTF-8")
}

/// Every fault of a plan with its place, one a line.
pub fn faults(plan: &Plan) -> Vec<String> {
    match plan::check(plan) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.as_slice().iter().map(ToString::to_string).collect(),
    }
}

/// The built-in algorithm for a call, by the rule by size.
pub fn built_in(question: &Question<'_>) -> Result<Plan, CliError> {
    let selected = select(question.built_in_spread(), question.wish());
    selected.and_then(|selected| selected.plan()).map_err(|e| CliError::Usage(e.to_string()))
}

/// Every built-in algorithm that serves a collective, by name, with its plan; rank 0 is the root where there is one.
pub fn candidates(
    collective: &Collective,
    spread: Spread,
    in_place: bool,
) -> Result<Vec<(String, Plan)>, CliError> {
    let wish = Wish { collective, bytes: 0, in_place, root: 0 };
    let planned = |one: Selected| Ok((one.name().to_owned(), one.plan()?));
    let all = selection::candidates(spread, wish)
        .and_then(|all| all.into_iter().map(planned).collect::<Result<_, SelectionError>>());
    all.map_err(|error| CliError::Usage(error.to_string()))
}

#[cfg(test)]
pub mod testing {
    use super::*;
    use antiphon::plan::model::{Gpu, Protocol};

    /// A plan whose ranks do nothing.
    pub fn plan(collective: Collective, ranks: u64, (input, output): (u64, u64)) -> Plan {
        let gpu = |id| Gpu { id, input_chunks: input, output_chunks: output, ..Gpu::default() };
        Plan {
            name: "demo".into(),
            collective,
            protocol: Protocol::Simple,
            in_place: false,
            reuse_resources: false,
            gpus: (0..ranks).map(gpu).collect(),
            num_threads_per_block: 1024,
            use_double_scratch_buffer: false,
            buffer_alignment: 16,
            min_message_size: 0,
            max_message_size: u64::MAX,
            runtime_sizes: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_missing_file_is_named_with_the_cure() {
        let message = load(Path::new("no/such/plan.json")).err().unwrap().to_string();
        assert!(message.contains("no/such/plan.json") && message.contains("standard input"));
    }

    #[test]
    fn what_is_no_plan_is_refused_with_its_origin() {
        let message = parse("x.json", b"[]").err().unwrap().to_string();
        assert!(message.starts_with("cannot read a plan from x.json: "), "{message}");
    }
}
