//! Launches that cannot finish name who is waited for, also where no block waits.

use crate::launch::QueuedLaunch;
use crate::{Call, Communicator, DataType, Executor, ExecutorError, LoadedPlan, Options};
use antiphon_hal::Effort;
use antiphon_plan::builder::ProgramBuilder;
use antiphon_plan::model::{Collective, Plan};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn plan(name: &str, ranks: usize, write: impl FnOnce(&ProgramBuilder)) -> Plan {
    let program = ProgramBuilder::new(name, Collective::SendRecv, ranks);
    write(&program);
    program.build().unwrap()
}

/// Ranks that are each on a host of its own, all driven by this thread.
struct Hosts {
    ranks: Vec<Communicator>,
    executors: Vec<Executor>,
    buffers: Vec<[[u32; 16]; 2]>,
}

impl Hosts {
    fn new(hosts: &[&str]) -> Self {
        let options = Options::default().with_verification(false);
        let options = options.with_timeout(Some(Duration::from_secs(5)));
        let ranks = Communicator::in_process_on(hosts, &options).unwrap();
        let executors = ranks.iter().map(Executor::new).collect();
        Hosts { buffers: vec![[[7; 16], [0; 16]]; ranks.len()], ranks, executors }
    }

    fn load(&self, plan: &Plan) -> Vec<Arc<LoadedPlan>> {
        self.executors.iter().map(|executor| executor.load(plan).unwrap()).collect()
    }

    fn launch(&mut self, rank: usize, plan: &Arc<LoadedPlan>, bytes: u64) -> QueuedLaunch {
        let [input, output] = &mut self.buffers[rank];
        let (input, output) = ((input.as_ptr().cast(), bytes), (output.as_mut_ptr().cast(), bytes));
        self.executors[rank]
            .queued(&Call::new(plan, DataType::U32, input, output), Some(1))
            .unwrap()
    }
}

/// Drives launches in turn until `done`.
fn drive(launches: &[&QueuedLaunch], done: impl Fn() -> bool) {
    let began = Instant::now();
    let mut running = launches.to_vec();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(30), "the launches do not come so far");
        running.retain(|launch| !launch.advance(Effort::Try).unwrap());
    }
}

/// What is said at the time limit.
fn stalled(launch: &QueuedLaunch) -> String {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(30) {
        match launch.advance(Effort::Wait) {
            Ok(over) => assert!(!over, "it is over"),
            Err(error @ ExecutorError::Stalled { .. }) => return error.to_string(),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the launch waits for ever");
}

#[test]
fn a_rank_of_another_host_that_may_still_write_is_named() {
    let plan = plan("late", 3, |p| {
        let (there, far) = (p.port(0, 1), p.port(1, 2));
        let block = p.block(1);
        block.put_over(&there, p.input(1).all(), p.output(0).all());
        block.wait(&[far]);
        p.block(2).signal(&[far]);
    });
    let mut hosts = Hosts::new(&["a", "b", "c"]);
    let plans = hosts.load(&plan);
    let (waits, writes) = (hosts.launch(0, &plans[0], 16), hosts.launch(1, &plans[1], 16));
    let shared = &hosts.ranks[0].shared;
    drive(&[&waits, &writes], || shared.control(1).entered(1));
    let text = stalled(&waits);
    assert!(text.contains("rank 0 block 0 waits at no op (rank 1 may still use"), "{text}");
}

#[test]
fn a_rank_that_is_linked_by_another_plan_and_behind_is_named() {
    let exchange = |name: &str, pairs: &[(usize, usize)]| {
        plan(name, 3, |p| {
            for rank in 0..3 {
                let (block, scratch) = (p.block(rank), p.scratch(rank, 1));
                block.copy(p.input(rank).all(), scratch.all());
                block.copy(scratch.all(), p.output(rank).all());
            }
            for &(one, other) in pairs {
                let port = p.port(one, other);
                p.block(one).signal(&[port]);
                p.block(other).wait(&[port]);
            }
        })
    };
    let mut hosts = Hosts::new(&["a", "b", "c"]);
    let all = hosts.load(&exchange("all", &[(0, 1), (0, 2), (1, 2)]));
    let one = hosts.load(&exchange("one", &[(0, 1)]));
    let first: Vec<_> = (0..3).map(|rank| hosts.launch(rank, &all[rank], 16)).collect();
    let first: Vec<_> = first.iter().collect();
    let through = |hosts: &Hosts, ranks: &[usize], seq| {
        let shared = |rank: usize| &hosts.ranks[rank].shared;
        let completed = |at: usize, of: usize| shared(at).landed(of as u32) >= seq;
        ranks.iter().all(|&at| ranks.iter().all(|&of| completed(at, of)))
    };
    drive(&first, || through(&hosts, &[0, 1, 2], 1));
    // Rank 2 does not come.
    let second: Vec<_> = (0..2).map(|rank| hosts.launch(rank, &one[rank], 32)).collect();
    drive(&second.iter().collect::<Vec<_>>(), || through(&hosts, &[0, 1], 2));
    let text = stalled(&hosts.launch(0, &one[0], 64));
    let named =
        "rank 2 must come further before this launch may begin; its last complete launch is 1";
    assert!(text.contains(named), "{text}");
}
