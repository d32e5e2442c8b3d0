//! Ranks in two processes, where no rank steps another's blocks.

use antiphon_executor::plan::builder::ProgramBuilder;
use antiphon_executor::plan::model::{Collective, Plan};
use antiphon_executor::{Call, Communicator, DataType, Executor, Options, Rendezvous};
use std::process::Command;
use std::time::Duration;

const ADDRESS: &str = "ANTIPHON_TEST_ADDRESS";

/// The first block of each rank waits for what the second block of the other one sends.
fn plan() -> Plan {
    let program = ProgramBuilder::new("crossed", Collective::SendRecv, 2);
    let channel = program.channel(0, 1);
    for (rank, peer) in [(0, 1), (1, 0)] {
        program.block(rank).wait(&[channel]);
        let second = program.block(rank);
        second.put(program.input(rank).all(), program.output(peer).all());
        second.signal(&[channel]);
    }
    program.build().unwrap()
}

fn swap(rank: u32, address: &str) {
    let options = Options::default().with_timeout(Some(Duration::from_secs(5)));
    let communicator = Communicator::connect(&Rendezvous::new(address, rank, 2), &options).unwrap();
    let executor = Executor::new(&communicator);
    let plan = executor.load(&plan()).unwrap();
    for launch in 0..200u64 {
        let (input, mut output) = ([u64::from(rank) * 1000 + launch; 64], [0u64; 64]);
        let bytes = size_of_val(&input) as u64;
        let call = Call {
            plan: &plan,
            input: input.as_ptr().cast(),
            output: output.as_mut_ptr().cast(),
            input_bytes: bytes,
            output_bytes: bytes,
            dtype: DataType::U64,
            op: None,
        };
        // SAFETY: both arrays hold `bytes` bytes and live past the call.
        unsafe { executor.run(&call) }.unwrap();
        assert_eq!(output, [u64::from(1 - rank) * 1000 + launch; 64]);
    }
    communicator.barrier().unwrap();
}

#[test]
fn a_block_that_waits_does_not_keep_another_from_reaching_its_peer() {
    if let Ok(address) = std::env::var(ADDRESS) {
        return swap(1, &address);
    }
    let address = Rendezvous::unique().unwrap();
    let mut peer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_block_that_waits_does_not_keep_another_from_reaching_its_peer"])
        .env(ADDRESS, &address)
        .spawn()
        .unwrap();
    swap(0, &address);
    assert!(peer.wait().unwrap().success());
}
