//! The `antiphon` command. Everything it does is in `cli`; this file turns an outcome into an exit status.

mod cli;

use antiphon::hal::log_line;
use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

/// Names the variable that says what to log to standard error, e.g. `debug`; warnings, unless it is set.
const LOG: &str = "ANTIPHON_LOG";

/// Where ranks warn of plans that are not proven. The command does so itself, once for all ranks.
const DOOR: &str = "antiphon_executor::verification";

/// Says how many of a GPU's hardware queues the driver of CUDA uses: with more streams than queues, a copy may stand behind a
/// kernel that waits for it. The driver's own number is 8, the most there are 32.
const QUEUES: (&str, &str) = ("CUDA_DEVICE_MAX_CONNECTIONS", "32");

/// Has the CUDA driver load code when a module is loaded. By default it does so when a kernel is first launched, which waits for
/// running kernels, and those may wait for the very rank that launches.
const LOADING: (&str, &str) = ("CUDA_MODULE_LOADING", "EAGER");

fn main() -> ExitCode {
    for (name, value) in [QUEUES, LOADING] {
        if std::env::var_os(name).is_none() {
            // SAFETY: no other thread has been started, which could look at the environment meanwhile.
            unsafe { std::env::set_var(name, value) };
        }
    }
    let mut logger = env_logger::Builder::new();
    logger.filter_level(log::LevelFilter::Warn).filter_module(DOOR, log::LevelFilter::Off);
    logger.parse_env(LOG);
    logger.format(|out, record| out.write_all(log_line(record.level(), record.args()).as_bytes()));
    logger.init();
    match cli::execute(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            // In one piece: other ranks may fail at the same moment, and write to the same terminal.
            let line = format!("error: {error}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            ExitCode::from(error.exit_status())
        }
    }
}
