//! `plan check`, `plan show` and `plan convert`.

use super::error::print_line;
use super::{CliError, PictureArgs, pictures, plans, show};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Lists every fault of a plan, one a line, or prints OK. Channels that only one side declares are warned of.
pub fn check(file: &Path) -> Result<ExitCode, CliError> {
    let plan = plans::load(file)?.plan;
    let faults = plans::faults(&plan);
    for fault in &faults {
        print_line(fault)?;
    }
    for warning in show::unpaired_channels(&plan) {
        print_line(&format!("warning: {warning}"))?;
    }
    if !faults.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    print_line("OK")?;
    Ok(ExitCode::SUCCESS)
}

/// Summarises a plan, or lists the operations of one rank, also of plans with faults; or draws it.
pub fn show(file: &Path, rank: Option<u32>, picture: &PictureArgs) -> Result<ExitCode, CliError> {
    let read = plans::load(file)?;
    if picture.html.is_some() || picture.svg.is_some() {
        pictures::write(&read.plan, picture)?;
        return Ok(ExitCode::SUCCESS);
    }
    if picture.topology.is_some() || picture.size.is_some() {
        return Err(CliError::Usage(
            "cannot use --topology or --size without a picture: add --html OUT or --svg OUT".into(),
        ));
    }
    let text = match rank {
        None => show::summary(&read.plan, &read.dialect.to_string()),
        Some(rank) => show::rank(&read.plan, rank)?,
    };
    print_line(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a plan in the current format.
pub fn convert(file: &Path, output: Option<&Path>, pretty: bool) -> Result<ExitCode, CliError> {
    let plan = plans::load(file)?.plan;
    let text = plans::to_text(&plan, pretty);
    match output.filter(|path| path.as_os_str() != "-") {
        None => print_line(text.trim_end())?,
        Some(path) => fs::write(path, text.trim_end().to_owned() + "\n")
            .map_err(|source| CliError::Write { what: path.display().to_string(), source })?,
    }
    Ok(ExitCode::SUCCESS)
}
