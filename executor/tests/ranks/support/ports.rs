//! Ranks of this process that may stand for several hosts, and a plan with a port between two of them.

use antiphon_executor::plan::builder::ProgramBuilder;
use antiphon_executor::plan::model::{Collective, Plan};
use antiphon_executor::{Communicator, Options};
use std::time::Duration;

/// How long the slowest step of a test may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Ranks of these hosts, which run plans without a proof.
pub fn ranks(hosts: &[&str]) -> Vec<Communicator> {
    let options = Options::default().with_timeout(Some(PATIENCE)).with_verification(false);
    Communicator::in_process_on(hosts, &options).unwrap()
}

/// A plan in which rank 1 sends all of its input to rank 0.
pub fn send() -> Plan {
    let program = ProgramBuilder::new("send", Collective::SendRecv, 2);
    let port = program.port(0, 1);
    program.block(1).put_with_signal(&port, program.input(1).all(), program.output(0).all());
    program.block(0).wait(&[port]);
    program.build().unwrap()
}
