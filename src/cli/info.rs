//! `info`: what this machine offers and what this version can use of it, with the reason where it cannot.

use super::CliError;
use super::error::print_line;
use super::machine;
use super::probe::{self, ProcessAccess};
use super::ranks::{self, Rank};
use antiphon::executor::hal::Backend;
use antiphon::executor::hal::host::cpu_model;
use antiphon::executor::topology::Topology;
use std::process::ExitCode;

/// Prints the report.
pub fn print() -> Result<ExitCode, CliError> {
    let gpus = [Backend::Cuda, Backend::Rocm].map(|one| (one.name(), ranks::devices(one)));
    let report = report(Rank::device_facts(), &probe::process_access(), &ranks::wires(), &gpus);
    let topology = machine::report(&Topology::of_machine(), &ranks::device_caps()).join("\n");
    print_line(&format!("{report}\n\n{topology}"))?;
    Ok(ExitCode::SUCCESS)
}

fn report(
    host: Result<Vec<String>, CliError>,
    access: &ProcessAccess,
    wires: &[(String, Result<String, String>)],
    gpus: &[(&str, Vec<String>)],
) -> String {
    let mut lines = vec![format!("antiphon {}", env!("CARGO_PKG_VERSION")), String::new()];
    lines.push("devices".into());
    match host {
        Ok(facts) => {
            for (position, fact) in facts.iter().enumerate() {
                lines.push(format!("  {}{fact}", if position == 0 { "host: " } else { "      " }));
            }
        }
        Err(error) => lines.push(format!("  host: unavailable: {error}")),
    }
    for (name, found) in gpus {
        lines.extend(found.iter().map(|line| format!("  {name}: {line}")));
    }
    lines.push(String::new());
    lines.push("transports".into());
    lines.push(format!("  memory: shared between processes; {}", process_access(access)));
    lines.push("  switch: in software (stores to every member, loads from every member)".into());
    lines.push("  port:   over the cheapest wire that both ranks have".into());
    for (name, wire) in wires {
        lines.push(match wire {
            Ok(over) => format!("    {name}: {over}"),
            Err(why) => format!("    {name}: {why}"),
        });
    }
    lines.push(String::new());
    lines.push("cpu".into());
    lines.push(format!("  {}", cpu_model()));
    let features = cpu_features();
    let features = if features.is_empty() { "none known".to_owned() } else { features.join(" ") };
    lines.push(format!("  vector features: {features}"));
    match std::thread::available_parallelism() {
        Ok(cores) => lines.push(format!("  usable cores: {cores}")),
        Err(error) => lines.push(format!("  usable cores: unknown: {error}")),
    }
    lines.join("\n")
}

fn process_access(access: &ProcessAccess) -> String {
    match access {
        ProcessAccess::Permitted => "other memory by process_vm_readv (permitted)".into(),
        ProcessAccess::Refused(why) => format!(
            "other memory by way of scratch (process_vm_readv between ranks is refused: {why})"
        ),
    }
}

/// The vector extensions that copies and reductions may use, narrowest first.
fn cpu_features() -> Vec<&'static str> {
    let mut found = Vec::new();
    macro_rules! detect {
        ($macro:ident: $($name:tt)*) => {
            $(if std::arch::$macro!($name) { found.push($name); })*
        };
    }
    #[cfg(target_arch = "x86_64")]
    detect!(is_x86_feature_detected: "sse2" "sse4.1" "avx" "f16c" "fma" "avx2" "avx512f" "avx512bw"
        "avx512vl" "avx512bf16" "avx512fp16");
    #[cfg(target_arch = "aarch64")]
    detect!(is_aarch64_feature_detected: "neon" "fp16" "bf16" "sve" "sve2");
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_every_transport_and_device() {
        let facts = vec!["a machine".to_owned(), "memory 7 MiB".to_owned()];
        let wires = [
            ("pigeon".to_owned(), Ok("a loft".to_owned())),
            ("drum".to_owned(), Err("no sticks".to_owned())),
        ];
        let gpus = [("cuda", vec!["0: a card".to_owned()]), ("rocm", vec!["no driver".to_owned()])];
        let access = ProcessAccess::Refused("not allowed".into());
        let report = report(Ok(facts), &access, &wires, &gpus);
        for word in [
            "host: a machine",
            "not allowed",
            "cuda: 0: a card",
            "rocm: no driver",
            "memory:",
            "switch:",
            "port:",
            "pigeon: a loft",
            "drum: no sticks",
            "usable cores",
        ] {
            assert!(report.contains(word), "no {word} in\n{report}");
        }
    }
}
