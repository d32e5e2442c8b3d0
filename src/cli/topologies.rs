//! Topologies by name or file, and the one of this machine: `info --measure`.

use super::CliError;
use super::error::print_line;
use super::files::{cache_folder, replace};
use antiphon::calibrate;
use antiphon::plan::simulate::{Topology, TopologyError};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// This machine, as it was measured.
const HOST: &str = "host";

/// Measures this machine and writes its topology.
pub fn measure(output: Option<&Path>) -> Result<ExitCode, CliError> {
    let topology = calibrate::host().map_err(|error| CliError::Executor(error.to_string()))?;
    let text = topology.to_text();
    if output.is_some_and(|path| path.as_os_str() == "-") {
        print_line(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let path = match output {
        Some(path) => path.to_owned(),
        None => host_file()?,
    };
    replace(&path, (text + "\n").as_bytes())?;
    print_line(&format!("wrote {}", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The topology of this name: built in, measured, or in a file.
pub fn find(name: &str) -> Result<Topology, CliError> {
    if name == HOST {
        return host(&host_file()?);
    }
    let unknown = match Topology::built_in(name) {
        Ok(topology) => return Ok(topology),
        Err(unknown) => unknown,
    };
    match fs::read_to_string(name) {
        Ok(text) => parse(Path::new(name), &text),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(refused(unknown)),
        Err(source) => Err(CliError::Usage(format!("cannot read topology {name}: {source}"))),
    }
}

fn host(path: &Path) -> Result<Topology, CliError> {
    match fs::read_to_string(path) {
        Ok(text) => parse(path, &text),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(CliError::Usage(format!(
            "cannot use topology `{HOST}`: this machine has not been measured (no {}); run `antiphon info --measure` \
             first",
            path.display()
        ))),
        Err(source) => {
            Err(CliError::Usage(format!("cannot read topology {}: {source}", path.display())))
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<Topology, CliError> {
    Topology::parse(text).map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))
}

fn refused(error: TopologyError) -> CliError {
    let host = "; `host` is this machine, once measured";
    CliError::Usage(format!("{error}{host}"))
}

/// Where the topology of this machine is kept.
fn host_file() -> Result<PathBuf, CliError> {
    Ok(cache_folder()?.join("host-topology.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_topologies_are_refused_with_what_there_is() {
        let message = find("h100x9").unwrap_err().to_string();
        for word in ["h100x9", "h100x8", "mi300x8", "-N", "host"] {
            assert!(message.contains(word), "no {word} in {message}");
        }
        let message = host(Path::new("no/such/file.json")).unwrap_err().to_string();
        assert!(message.contains("antiphon info --measure"), "{message}");
    }
}
