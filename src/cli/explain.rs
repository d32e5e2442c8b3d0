//! `explain`: what would serve a call on this machine, and what else was considered.

use super::error::print_line;
use super::{CliError, ExplainArgs};
use antiphon::executor::Installed;
use antiphon::executor::selection::table::Kind;
use antiphon::executor::selection::{Question, Spread, Tuning};
use antiphon::{Options, Registry};
use std::process::ExitCode;

/// Prints the choice.
pub fn explain(args: &ExplainArgs) -> Result<ExitCode, CliError> {
    let collective = args.collective.collective();
    if args.root >= args.ranks {
        return Err(CliError::Usage(format!(
            "cannot explain a call with rank {} as its root: allowed ranks below {}",
            args.root, args.ranks
        )));
    }
    let spread = Spread::here(args.ranks, args.nodes);
    let question = Question::new(&collective, spread, args.size, args.dtype);
    // Collectives that do not reduce have no reduction to change.
    let op = question.op.map(|sum| args.op.unwrap_or(sum));
    let reproducible = Options::default().reproducible;
    let (in_place, root) = (args.in_place, args.root);
    let question = Question { op, in_place, root, reproducible, ..question };
    let kind = if args.threads { Kind::Threads } else { Kind::Processes };
    let tuning = Tuning::of_process().with_kind(kind);
    let installed = Installed::of_process();
    let choice = Registry::process().choose_with(&question, &tuning, &installed);
    let choice = choice.map_err(|error| CliError::Usage(error.to_string()))?;
    if args.json {
        print_line(&choice.to_json())?;
    } else {
        print_line(&format!("{question}\n{}", choice.to_string().trim_end()))?;
    }
    Ok(ExitCode::SUCCESS)
}
