//! `explain`: what would serve a call on this machine, and what else was considered.

use super::error::print_line;
use super::shape::Shape;
use super::{CliError, ExplainArgs};
use antiphon::executor::Installed;
use antiphon::executor::selection::table::Kind;
use antiphon::executor::selection::{Devices, Question, Spread, Tuning};
use antiphon::plan::algorithms::devices::DeviceClass;
use antiphon::{Options, Registry};
use std::process::ExitCode;

/// The devices that a built-in topology stands for, by its name.
pub fn class(name: &str) -> Result<DeviceClass, String> {
    let named = |class: &DeviceClass| class.topology_name() == name;
    let names = || DeviceClass::ALL.map(DeviceClass::topology_name).join(", ");
    let found = DeviceClass::ALL.into_iter().find(named);
    found.ok_or_else(|| format!("there is no such topology of one node: allowed are {}", names()))
}

/// Prints the choice.
pub fn explain(args: &ExplainArgs) -> Result<ExitCode, CliError> {
    let collective = args.collective.collective();
    if args.root >= args.ranks {
        return Err(CliError::Usage(format!(
            "cannot explain a call with rank {} as its root: allowed ranks below {}",
            args.root, args.ranks
        )));
    }
    let devices = args.topology.map_or(Devices::Host, Devices::of);
    let spread = Spread { devices, ..Spread::here(args.ranks, args.nodes) };
    let element = args.dtype.size() as u64;
    let bytes = Shape::message_of_call(&collective, args.ranks, args.size, element);
    let question = Question::new(&collective, spread, bytes, args.dtype);
    // Collectives that do not reduce have no reduction to change.
    let op = question.op.map(|sum| args.op.unwrap_or(sum));
    let Options { reproducible, tags, .. } = Options::default();
    let (in_place, root) = (args.in_place, args.root);
    let question = Question { op, in_place, root, reproducible, tags: &tags, ..question };
    let kind = if args.threads { Kind::Threads } else { Kind::Processes };
    let tuning = match args.topology {
        // As a communicator of ranks on devices says.
        Some(_) => Tuning::none("the ranks are on a device"),
        None => Tuning::of_process().with_kind(kind),
    };
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
