//! Which wires there are, and what the log says of them. The environment is a process's, so that test runs itself again.

use antiphon_executor::plan::builder::ProgramBuilder;
use antiphon_executor::plan::model::Collective;
use antiphon_executor::{Communicator, Executor, Options};
use std::process::Command;

const TEST: &str = "who_asks_for_a_wire_that_cannot_be_used_is_warned_once";
const CHILD: &str = "ANTIPHON_TEST_CHILD";

/// Prints everything down to `info`.
struct Printer;

impl log::Log for Printer {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Info
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!("[{}] {}", record.level(), record.args());
        }
    }

    fn flush(&self) {}
}

/// Twice has ranks of two nodes make the links of a plan.
fn link() {
    log::set_logger(&Printer).unwrap();
    log::set_max_level(log::LevelFilter::Info);
    let program = ProgramBuilder::new("signal", Collective::SendRecv, 2);
    let port = program.port(0, 1);
    program.block(0).signal(&[port]);
    program.block(1).wait(&[port]);
    let plan = program.build().unwrap();
    for _ in 0..2 {
        let ranks = Communicator::in_process_on(&["here", "there"], &Options::default()).unwrap();
        std::thread::scope(|scope| {
            for rank in &ranks {
                scope.spawn(|| {
                    let executor = Executor::new(rank);
                    let plan = executor.load(&plan).unwrap();
                    let empty = std::ptr::without_provenance_mut(64);
                    let call = antiphon_executor::Call::new(
                        &plan,
                        antiphon_executor::DataType::U32,
                        (empty, 0),
                        (empty.cast(), 0),
                    );
                    // SAFETY: buffers without bytes.
                    unsafe { executor.run(&call) }.unwrap();
                });
            }
        });
    }
}

/// The lines that the child says with these variables, of a level and with a word.
fn said(variables: &[(&str, &str)], level: &str, word: &str) -> Vec<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", TEST, "--nocapture"]).env(CHILD, "1");
    for name in ["ANTIPHON_HCA", "ANTIPHON_WIRE_PLUGINS"] {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let lines = text.lines().filter(|line| line.starts_with(level) && line.contains(word));
    lines.map(str::to_owned).collect()
}

#[test]
fn who_asks_for_a_wire_that_cannot_be_used_is_warned_once() {
    if std::env::var_os(CHILD).is_some() {
        return link();
    }
    let plugin = [("ANTIPHON_WIRE_PLUGINS", "/nowhere/libantiphon_wire_lost.so")];
    for (variables, wire) in
        [(&plugin[..], "the wire lost"), (&[("ANTIPHON_HCA", "no_such_card")], "the wire rdma")]
    {
        let warnings = said(variables, "[WARN]", wire);
        let [warning] = &warnings[..] else { panic!("{variables:?}: {warnings:?}") };
        assert!(warning.contains(variables[0].0) && warning.contains("; "), "{warning}");
    }
    assert_eq!(said(&[], "[WARN]", "the wire"), [""; 0]);
    let taken = said(&[], "[INFO]", "the wire to other nodes is tcp");
    assert_eq!(taken.len(), 1, "{taken:?}");
}

/// Whether it can be used hangs on the machine's devices; that it is there does not.
#[cfg(feature = "rdma")]
#[test]
fn the_rdma_wire_is_built_in() {
    let found: Vec<_> =
        antiphon_executor::wires().into_iter().filter(|(name, _)| name == "rdma").collect();
    let [(_, end)] = &found[..] else { panic!("{found:?}") };
    if let Err(error) = end {
        assert!(!error.to_string().contains("without libibverbs"), "{error}");
    }
}
