//! Runs the conformance suite of wires where there is no test harness: `wire-conformance tcp [CASE]`.
//!
//! Prints one line per case; the exit status says whether all passed, 2 that the wire cannot be had here.

use antiphon_port::{TcpDriver, WireDriver, plugin};
use antiphon_tests::wire::{Ends, Subject, run};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const USAGE: &str =
    "usage: wire-conformance WIRE [--interface NAME] [--largest BYTES] [--patience SECONDS] [CASE]

Runs the conformance cases whose name contains CASE on a wire: local, shared, tcp, or the plugin in a file (a path
with a slash).
  --interface  the interface or address to use
  --largest    the largest write (67108864)
  --patience   how long something may take before it is called missing (30)";

struct Call {
    wire: String,
    interface: Option<String>,
    largest: Option<u64>,
    patience: Option<u64>,
    only: String,
}

fn main() -> ExitCode {
    let call = match read(std::env::args().skip(1)) {
        Ok(call) => call,
        Err(why) => return unavailable(&format!("{why}\n{USAGE}")),
    };
    let mut subject = match subject(&call) {
        Ok(subject) => subject,
        Err(why) => return unavailable(&why),
    };
    subject.largest = call.largest.unwrap_or(subject.largest);
    subject.patience = call.patience.map_or(subject.patience, Duration::from_secs);
    let mut passed = 0;
    let failed = run(&subject, &call.only, |name, result| match result {
        Ok(()) => {
            passed += 1;
            println!("ok {name}");
        }
        Err(why) => println!("FAILED {name}: {why}"),
    });
    println!("{passed} passed, {failed} failed");
    if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read(mut arguments: impl Iterator<Item = String>) -> Result<Call, String> {
    let wire = arguments.next().ok_or("no wire is named")?;
    let only = String::new();
    let mut call = Call { wire, interface: None, largest: None, patience: None, only };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} wants a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text} is no number"));
        match argument.as_str() {
            "--interface" => call.interface = Some(value()?),
            "--largest" => call.largest = Some(number(value()?)?),
            "--patience" => call.patience = Some(number(value()?)?),
            _ if argument.starts_with('-') => return Err(format!("{argument} is unknown")),
            _ => call.only = argument,
        }
    }
    Ok(call)
}

/// What runs on the wire that was named; whether it can be had is found out first.
fn subject(call: &Call) -> Result<Subject, String> {
    let driver = match call.wire.as_str() {
        "local" => return Ok(Subject::new("wire::local", Ends::local)),
        "shared" => return Ok(Subject::new("wire::shared", Ends::shared)),
        "tcp" => Arc::new(TcpDriver::default()) as Arc<dyn WireDriver>,
        file if file.contains('/') => {
            plugin::load(Path::new(file)).map_err(|error| error.to_string())?
        }
        other => return Err(format!("there is no wire {other}\n{USAGE}")),
    };
    let interface = call.interface.clone();
    Ends::open(&*driver, interface.as_deref(), 2).map_err(|error| error.to_string())?;
    let name = format!("wire::{}", driver.name());
    Ok(Subject::new(name, move |ranks| {
        Ends::open(&*driver, interface.as_deref(), ranks).expect("an end, as before")
    }))
}

fn unavailable(text: &str) -> ExitCode {
    eprintln!("{text}");
    ExitCode::from(2)
}
