//! The `antiphon` command. Everything it does is in `cli`; this file turns an outcome into an exit status.

mod cli;

use clap::Parser;
use std::process::ExitCode;

/// Names the variable that says what to log to standard error, e.g. `debug`.
const LOG: &str = "ANTIPHON_LOG";

fn main() -> ExitCode {
    env_logger::Builder::new().parse_env(LOG).init();
    match cli::execute(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}
