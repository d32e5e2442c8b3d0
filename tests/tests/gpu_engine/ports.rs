//! Port channels of kernels: results, launches that wait in vain, and peers that die.

use crate::faults::{assert_aborted, assert_stalls, await_death, kill_in_second_launch};
use crate::{on_simulator, on_threads, options};
use antiphon::DataType;
use antiphon::executor::{Call, Executor};
use antiphon::plan::builder::ProgramBuilder;
use antiphon::plan::model::{Collective, OpKind, Plan, Protocol};
use antiphon_tests::name_of;

/// The sum of two ranks' buffers, each sent to the other by port: as packets, or as bytes with a signal.
pub fn sum(packets: bool) -> Plan {
    let name = if packets { "sum of packets by port" } else { "sum by port" };
    let program = ProgramBuilder::new(name, Collective::AllReduce, 2);
    let program = program.chunk_counts(1, 1).double_scratch(true);
    let program = if packets { program.protocol(Protocol::LL) } else { program };
    let port = program.port(0, 1);
    let scratch = [0, 1].map(|rank| program.scratch(rank, 2));
    for rank in 0..2 {
        let block = program.block(rank);
        let (own, theirs) = (program.input(rank).all(), scratch[1 - rank].chunk(1));
        let came = scratch[rank].chunk(1);
        if packets {
            block.copy_packets(own, scratch[rank].chunk(0));
            block.read_put_packets_over(&port, scratch[rank].chunk(0), theirs);
            block.reduce_packets(own, &[came], program.output(rank).all());
            block.flush(&[port]);
        } else {
            block.put_with_signal(&port, own, theirs);
            block.wait(&[port]);
            block.flush(&[port]);
            block.reduce(&[own, came], program.output(rank).all());
        }
    }
    program.build().unwrap()
}

/// Rank 1 waits for a signal over a port that rank 0 never sends.
pub fn hangs() -> Plan {
    let program = ProgramBuilder::new("hangs", Collective::SendRecv, 2);
    let port = program.port(0, 1);
    program.block(0).put_with_signal(&port, program.input(0).all(), program.output(1).all());
    program.block(1).wait(&[port]);
    let mut plan = program.build().unwrap();
    for op in plan.gpus[0].threadblocks.iter_mut().flat_map(|block| &mut block.ops) {
        if op.kind == OpKind::PutWithSignal {
            op.kind = OpKind::Put;
        }
    }
    plan
}

/// Puts so many chunks, one after the other, that they do not fit the queue of requests.
fn many() -> Plan {
    const CHUNKS: usize = 700;
    let program = ProgramBuilder::new("many", Collective::Test, 2);
    let program = program.chunk_counts(CHUNKS, CHUNKS).fuse(false);
    let port = program.port(0, 1);
    let block = program.block(0);
    for chunk in 0..CHUNKS {
        block.put_over(&port, program.input(0).chunk(chunk), program.output(1).chunk(chunk));
    }
    block.signal(&[port]);
    program.block(1).wait(&[port]);
    program.build().unwrap()
}

#[test]
fn more_requests_than_the_queue_holds_are_carried_out() {
    if on_simulator(name_of(more_requests_than_the_queue_holds_are_carried_out)).is_none() {
        return;
    }
    const BYTES: u64 = 700 * 4;
    let plan = many();
    on_threads(2, &options().with_verification(false), |rank| {
        let executor = Executor::new(&rank);
        let plan = executor.load(&plan).unwrap();
        let stream = rank.stream().unwrap();
        let (input, output) = (rank.allocate(BYTES).unwrap(), rank.allocate(BYTES).unwrap());
        let mut values: Vec<u32> = (0..700).map(|at| at * 3 + 7).collect();
        let (from, to) = ((input.address().cast_const(), BYTES), (output.address(), BYTES));
        let call = Call::new(&plan, DataType::U32, from, to);
        // SAFETY: all are `BYTES` long and outlive the stream's work, which the rank waits for.
        unsafe {
            let _ = stream.copy(input.address(), values.as_ptr().cast(), BYTES).unwrap();
            executor.execute(&call, &stream).unwrap();
        }
        executor.synchronize(&stream).unwrap();
        let expected = std::mem::replace(&mut values, vec![0; 700]);
        if rank.rank() == 1 {
            // SAFETY: as above.
            let _ = unsafe { stream.copy(values.as_mut_ptr().cast(), output.address(), BYTES) };
            stream.synchronize().unwrap();
            assert_eq!(values, expected);
        }
        rank.barrier().unwrap();
    });
}

#[test]
fn a_wait_for_a_signal_by_port_ends_with_the_operation_and_the_channel() {
    let test = name_of(a_wait_for_a_signal_by_port_ends_with_the_operation_and_the_channel);
    if on_simulator(test).is_none() {
        return;
    }
    assert_stalls(
        &hangs(),
        ["rank 1 block 0 waits at op 0 (wait)", "port channel 0", "from rank 0"],
    );
}

#[test]
fn an_abort_ends_a_kernel_that_waits_for_a_port() {
    if on_simulator(name_of(an_abort_ends_a_kernel_that_waits_for_a_port)).is_none() {
        return;
    }
    assert_aborted(&sum(false));
}

#[test]
fn the_death_of_a_rank_ends_waits_for_its_port() {
    if on_simulator(name_of(the_death_of_a_rank_ends_waits_for_its_port)).is_none() {
        return;
    }
    kill_in_second_launch(name_of(rank_whose_peer_dies));
}

/// A process of the test above.
#[test]
fn rank_whose_peer_dies() {
    await_death(&sum(false));
}
