//! Ranks that call different things are told so before anybody takes what the other's call left for this one's.

use crate::support::processes;
use antiphon_executor::plan::builder::ProgramBuilder;
use antiphon_executor::plan::model::{Collective, Plan};
use antiphon_executor::{
    Call, Communicator, DataType, Executor, ExecutorError, Options, ReduceOp, Rendezvous,
};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// A plan in which each rank but the last hands its input to the next one's output, once it has what comes before.
fn chain(ranks: usize, by_port: bool) -> Plan {
    let program = ProgramBuilder::new("chain", Collective::Other("chain".into()), ranks);
    let links: Vec<_> =
        (1..ranks)
            .map(|next| {
                if by_port { program.port(next - 1, next) } else { program.channel(next - 1, next) }
            })
            .collect();
    for rank in 0..ranks {
        let tb = program.block(rank);
        if rank > 0 {
            tb.wait(&[links[rank - 1]]);
        }
        if rank + 1 < ranks {
            let from = if rank == 0 { program.input(rank) } else { program.output(rank) };
            let to = program.output(rank + 1).all();
            if by_port {
                tb.put_with_signal(&links[rank], from.all(), to);
            } else {
                tb.put(from.all(), to);
                tb.signal(&[links[rank]]);
            }
        }
    }
    program.build().unwrap()
}

/// A plan in which rank 0 reduces what rank 1 puts into its scratch: nobody looks where the other's buffers are.
fn by_scratch() -> Plan {
    let program = ProgramBuilder::new("by_scratch", Collective::Other("by_scratch".into()), 2);
    let (inbox, link) = (program.scratch(0, 1), program.channel(1, 0));
    let (from, to) = (program.block(1), program.block(0));
    from.put(program.input(1).all(), inbox.chunk(0));
    from.signal(&[link]);
    to.wait(&[link]);
    to.reduce(&[inbox.chunk(0), program.input(0).all()], program.output(0).all());
    program.build().unwrap()
}

/// What one rank asks for.
#[derive(Clone, Copy)]
struct Ask {
    elements: usize,
    op: Option<ReduceOp>,
}

const SAME: Ask = Ask { elements: 4, op: Some(ReduceOp::Sum) };

fn options() -> Options {
    Options::default().with_timeout(Some(LIMIT)).with_verification(false)
}

/// The same of one rank.
fn after_equal(
    rank: &Communicator,
    plan: &Plan,
    ask: Ask,
) -> (Result<(), ExecutorError>, [u32; 4]) {
    let executor = Executor::new(rank);
    let plan = executor.load(plan).unwrap();
    let call = |ask: Ask, input: &[u32; 4], output: &mut [u32; 4]| {
        let bytes = 4 * ask.elements as u64;
        let (from, to) = ((input.as_ptr().cast(), bytes), (output.as_mut_ptr().cast(), bytes));
        let call = Call { op: ask.op, ..Call::new(&plan, DataType::U32, from, to) };
        // SAFETY: both arrays outlive the call.
        unsafe { executor.run(&call) }
    };
    for _ in 0..3 {
        call(SAME, &[1; 4], &mut [0; 4]).unwrap();
    }
    // Who is told by what comes now may else be in these still.
    rank.barrier().unwrap();
    let mut output = [0; 4];
    let outcome = call(ask, &[2; 4], &mut output);
    (outcome, output)
}

/// What becomes of calls of ranks on these hosts that ask for such, after three that were alike, and what they have in their outputs.
fn after_equal_ones(
    plan: &Plan,
    hosts: &[&str],
    asks: &[Ask],
) -> Vec<(Result<(), ExecutorError>, [u32; 4])> {
    let ranks = Communicator::in_process_on(hosts, &options()).unwrap();
    std::thread::scope(|scope| {
        let ranks = ranks.iter().zip(asks);
        let ranks = ranks.map(|(rank, &ask)| scope.spawn(move || after_equal(rank, plan, ask)));
        ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// No rank that asked for something succeeds without it, and the errors say what the ranks called.
fn none_is_deceived(outcomes: &[(Result<(), ExecutorError>, [u32; 4])], asks: &[Ask]) {
    let mut told = false;
    for (rank, ((outcome, output), ask)) in outcomes.iter().zip(asks).enumerate() {
        match outcome {
            Ok(()) if rank > 0 && ask.elements > 0 => assert_eq!(output, &[2; 4], "rank {rank}"),
            Ok(()) => {}
            Err(error) => {
                let text = error.to_string();
                told |= matches!(error, ExecutorError::Mismatch { .. });
                assert!(text.contains("(16 bytes in") && text.contains("(0 bytes in"), "{text}");
            }
        }
    }
    assert!(told, "{outcomes:?}");
}

#[test]
fn a_rank_that_has_nothing_to_move_deceives_nobody() {
    let none = Ask { elements: 0, op: SAME.op };
    for hosts in [["here", "here", "here"], ["here", "there", "away"]] {
        let plan = chain(3, hosts[0] != hosts[1]);
        for asks in [[none, SAME, SAME], [SAME, none, SAME]] {
            none_is_deceived(&after_equal_ones(&plan, &hosts, &asks), &asks);
        }
    }
}

/// Where each rank has a core, none steps another's blocks, and so sees what they ask for.
#[test]
fn a_process_that_has_nothing_to_move_deceives_nobody() {
    let test = a_process_that_has_nothing_to_move_deceives_nobody;
    processes::in_two_processes(test, |rank, address| {
        let rank = Communicator::connect(&Rendezvous::new(address, rank, 2), &options()).unwrap();
        let elements = 4 * rank.rank() as usize;
        let (outcome, output) = after_equal(&rank, &chain(2, false), Ask { elements, ..SAME });
        if rank.rank() == 1 {
            assert!(matches!(outcome, Err(ExecutorError::Mismatch { peer: 0, .. })), "{output:?}");
        }
    });
}

#[test]
fn another_reduction_is_told_though_nobody_looks_for_buffers() {
    let max = Ask { op: Some(ReduceOp::Max), ..SAME };
    let outcomes = after_equal_ones(&by_scratch(), &["here", "here"], &[SAME, max]);
    let error = outcomes[0].0.as_ref().unwrap_err();
    assert!(matches!(error, ExecutorError::Mismatch { peer: 1, .. }), "{error}");
}

/// A plan in which rank 1 alone cannot move chunks that are not equally long.
fn shifted() -> Plan {
    let program = ProgramBuilder::new("shifted", Collective::AllReduce, 2).chunk_counts(2, 2);
    for (rank, to) in [(0, 0), (1, 1)] {
        let tb = program.block(rank);
        tb.copy(program.input(rank).chunk(0), program.output(rank).chunk(to));
    }
    program.build().unwrap()
}

#[test]
fn sizes_that_one_rank_cannot_move_are_refused_by_all() {
    let (plan, plenty) = (shifted(), [2u32; 16]);
    let refused = |rank: Communicator| {
        let executor = Executor::new(&rank);
        let loaded = executor.load(&plan).unwrap();
        let call = |elements: u64, output: &mut [u32; 16]| {
            let from = (plenty.as_ptr().cast(), 4 * elements);
            let to = (output.as_mut_ptr().cast(), 4 * elements);
            // SAFETY: both arrays have at most so many elements, and outlive the call.
            unsafe { executor.run(&Call::new(&loaded, DataType::U32, from, to)) }
        };
        let mut output = [0; 16];
        let error = call(13, &mut output).unwrap_err();
        // Nothing of it is left behind.
        call(16, &mut output).unwrap();
        assert_eq!(output[8 * rank.rank() as usize], 2);
        error.to_string()
    };
    let ranks = Communicator::in_process(2, &options()).unwrap();
    let errors = std::thread::scope(|scope| {
        let ranks = ranks.into_iter().map(|rank| scope.spawn(|| refused(rank)));
        ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(errors[0].contains("rank 1") && errors[0].contains("32 bytes"), "{}", errors[0]);
    assert_eq!(errors[0], errors[1]);
}
