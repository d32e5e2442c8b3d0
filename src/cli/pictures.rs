//! `plan show --html` and `--svg`: pictures of plans, written to files.

use super::error::print_line;
use super::shape::Shape;
use super::{CliError, PictureArgs, plans, topologies};
use antiphon::plan::model::Plan;
use antiphon::plan::picture::{self, Clock, Picture};
use antiphon::plan::program::{CallSizes, Layout};
use antiphon::plan::simulate::{SimulateError, simulate};
use antiphon::plan::verify;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Bytes of an element, where nothing else says so: a 32-bit float.
const ELEMENT: u64 = 4;

/// Draws a plan and writes what was asked for. The plan must have no faults that `plan check` finds.
pub fn write(plan: &Plan, args: &PictureArgs) -> Result<(), CliError> {
    let faults = plans::faults(plan);
    if !faults.is_empty() {
        return Err(CliError::InvalidPlan { name: plan.name.clone(), faults });
    }
    let usage = |error: &dyn std::fmt::Display| CliError::Usage(error.to_string());
    let layout = Layout::new(plan).map_err(|error| usage(&error))?;
    let topology = match &args.topology {
        Some(name) => topologies::find(name)?,
        None => topologies::find(&default_topology(plan.gpus.len()))?,
    };
    let size = args.size.unwrap_or_else(|| {
        (1u64 << 20).clamp(plan.min_message_size, plan.max_message_size.max(plan.min_message_size))
    });
    let Shape { input, output, .. } = Shape::new(plan, size, ELEMENT);
    let sizes = CallSizes { input, output, element: ELEMENT, strict: false };
    let why;
    let (timeline, clock) = match simulate(&layout, sizes, &topology) {
        Ok(timeline) => (timeline, Clock::Simulated(&topology.name)),
        Err(SimulateError::Stuck(stuck)) => {
            let drawn = picture::schematic(&layout, sizes).map_err(|error| usage(&error))?;
            why = format!("the launch never ends, {} blocks wait for ever", stuck.blocked.len());
            (drawn.timeline, Clock::Order(&why))
        }
        Err(error) => return Err(usage(&error)),
    };
    let report = verify::verify(plan, &layout, verify::Options::default());
    let picture =
        Picture { plan, layout: &layout, sizes, timeline: &timeline, clock, report: Some(&report) };
    for (path, draw) in [
        (&args.html, picture::html as fn(&Picture<'_>) -> String),
        (&args.svg, picture::svg as fn(&Picture<'_>) -> String),
    ] {
        if let Some(path) = path {
            save(path, &draw(&picture))?;
        }
    }
    Ok(())
}

/// H100 nodes of eight, as many as it takes.
fn default_topology(ranks: usize) -> String {
    match ranks.div_ceil(8) {
        0 | 1 => "h100x8".to_owned(),
        nodes => format!("h100x8-{nodes}"),
    }
}

/// Writes a file whole or not at all; `-` is standard output.
fn save(path: &Path, text: &str) -> Result<(), CliError> {
    if path.as_os_str() == "-" {
        return print_line(text.trim_end());
    }
    let failed = |source| CliError::Write { what: path.display().to_string(), source };
    let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let mut draft = std::ffi::OsString::from(".");
    draft.push(name);
    draft.push(format!(".{}", std::process::id()));
    let draft = path.with_file_name(draft);
    // A device or a pipe is written to, not replaced.
    let special = fs::metadata(path).is_ok_and(|found| !found.is_file());
    let written = if special {
        fs::write(path, text)
    } else {
        fs::File::create(&draft)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&draft, path))
    };
    if let Err(source) = written {
        let _ = fs::remove_file(&draft);
        return Err(failed(source));
    }
    print_line(&format!("wrote {} ({} KiB)", path.display(), text.len().div_ceil(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_topology_has_room_for_every_rank() {
        for ranks in [0, 1, 8, 9, 16, 64, 65, 1024] {
            let topology = topologies::find(&default_topology(ranks)).unwrap();
            assert!(topology.ranks() >= ranks, "{ranks}: {}", topology.name);
        }
    }
}
