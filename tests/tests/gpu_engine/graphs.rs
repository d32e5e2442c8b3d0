//! Launches that the application records into graphs: replays count as launches, and see the data of their time.

use crate::copies::{read, write};
use crate::devices::devices;
use crate::faults::of_two;
use crate::{backend, on_devices, on_simulator, on_simulator_of, on_threads, options};
use antiphon::DataType;
use antiphon::executor::hal::{Memory, Stream};
use antiphon::executor::{Call, Communicator, Executor, ExecutorError};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::model::Plan;
use antiphon_tests::name_of;
use antiphon_tests::recorder::{Recorded, Recorder};
use std::sync::Arc;
use std::time::Duration;

const ELEMENTS: usize = 500;
const BYTES: u64 = ELEMENTS as u64 * 4;
const WORLD: u32 = 2;

fn values(rank: u32, round: u32) -> Vec<u32> {
    (0..ELEMENTS as u32).map(|at| at * (rank + 1) + round * 100_000).collect()
}

#[test]
fn replays_are_launches_of_their_own() {
    let Some(simulated) = on_simulator(name_of(replays_are_launches_of_their_own)) else { return };
    let application = &Recorder::new(&simulated, backend());
    let algorithms = [
        Algorithm::AllReduceOneShotPackets,
        Algorithm::AllReduceTwoShotPackets,
        Algorithm::AllReduceZeroCopy,
    ];
    let plans = algorithms.map(|algorithm| algorithm.plan(Shape::new(2)).unwrap());
    for plan in plans.into_iter().chain([false, true].map(crate::ports::sum)) {
        on_threads(WORLD, &options(), |rank| replay(application, &plan, &rank));
    }
}

#[test]
fn replays_may_cross_nodes() {
    let Some(simulated) = on_simulator(name_of(replays_may_cross_nodes)) else { return };
    let application = &Recorder::new(&simulated, backend());
    for plan in [false, true].map(crate::ports::sum) {
        crate::hosts::apart(&["a", "b"], &options(), |rank| replay(application, &plan, &rank));
    }
}

/// Launches a plan that sums, records it, and replays it, as one of two ranks.
fn replay(application: &Recorder, plan: &Plan, rank: &Communicator) {
    let executor = Executor::new(rank);
    let name = &plan.name;
    let plan = executor.load(plan).unwrap();
    let (raw, stream) = application.adopt(rank.device());
    let other = rank.stream().unwrap();
    let (input, output) = (rank.allocate(BYTES).unwrap(), rank.allocate(BYTES).unwrap());
    let (from, to) = ((input.address().cast_const(), BYTES), (output.address(), BYTES));
    let call = Call::new(&plan, DataType::U32, from, to);
    let mut round = 0;
    let mut check = |what: &str, launch: &dyn Fn()| {
        round += 1;
        write(&other, input.address(), &values(rank.rank(), round));
        rank.barrier().unwrap();
        launch();
        application.finish(raw);
        let all = [0, 1].map(|rank| values(rank, round));
        let expected: Vec<u32> = all[0].iter().zip(&all[1]).map(|(a, b)| a + b).collect();
        assert_eq!(read(&other, output.address(), ELEMENTS), expected, "{what} of {name}");
    };
    // SAFETY: the buffers hold the call's bytes, and outlive all launches and replays.
    let execute = || unsafe { executor.execute(&call, &stream) }.unwrap();
    check("a launch", &execute);
    // Two launches in one graph, that the second replay of it follows at once.
    let recorded = application.record_on_thread(raw, || {
        execute();
        execute();
    });
    check("a replay", &|| application.replay(recorded, raw));
    check("two replays", &|| {
        application.replay(recorded, raw);
        application.replay(recorded, raw);
    });
    check("a launch after replays", &execute);
    check("a replay after that", &|| application.replay(recorded, raw));
    executor.synchronize(&stream).unwrap();
    application.destroy(recorded);
    rank.barrier().unwrap();
}

/// A launch that a rank has recorded into a graph.
struct OwnGraph<'a> {
    application: &'a Recorder,
    executor: Executor,
    stream: Arc<dyn Stream>,
    raw: u64,
    graph: Recorded,
    _buffers: [Arc<dyn Memory>; 2],
}

impl<'a> OwnGraph<'a> {
    /// Makes a launch of a plan, records another, and returns once all ranks have.
    fn new(application: &'a Recorder, plan: &Plan, rank: &Communicator) -> Self {
        let (raw, stream) = application.adopt(rank.device());
        let executor = Executor::new(rank);
        let plan = executor.load(plan).unwrap();
        let buffers = [(); 2].map(|()| rank.allocate(BYTES).unwrap());
        let [from, to] = buffers.each_ref().map(|memory| memory.address());
        let call = Call::new(&plan, DataType::U32, (from.cast_const(), BYTES), (to, BYTES));
        // SAFETY: the buffers hold the call's bytes, and outlive all launches and replays.
        let execute = || unsafe { executor.execute(&call, &stream) }.unwrap();
        execute();
        application.finish(raw);
        let graph = application.record_on_thread(raw, execute);
        rank.barrier().unwrap();
        OwnGraph { application, executor, stream, raw, graph, _buffers: buffers }
    }

    fn replay(&self) {
        self.application.replay(self.graph, self.raw);
    }

    /// Waits for all replays, and has no more.
    fn end(self) -> Result<(), ExecutorError> {
        self.application.finish(self.raw);
        let ended = self.executor.synchronize(&self.stream);
        self.application.destroy(self.graph);
        ended
    }
}

#[test]
fn a_rank_that_leaves_without_its_replay_is_named_though_there_is_no_limit() {
    let test = name_of(a_rank_that_leaves_without_its_replay_is_named_though_there_is_no_limit);
    let Some(simulated) = on_simulator_of(test, 2) else { return };
    let application = &Recorder::new(&simulated, backend());
    let algorithms = [Algorithm::AllReduceZeroCopy, Algorithm::AllReduceTwoShotPackets];
    for plan in algorithms.map(|algorithm| algorithm.plan(Shape::new(2)).unwrap()) {
        let options = options().with_timeout(None);
        let errors = on_devices(&devices(2, 2), &options, |rank| {
            let recorded = OwnGraph::new(application, &plan, &rank);
            if rank.rank() == 0 {
                recorded.replay();
            }
            recorded.end().err()
        });
        assert!(errors[1].is_none(), "{errors:?}");
        let text = errors[0].as_ref().unwrap().to_string();
        for part in ["rank 1", "left the communicator without making this call"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

/// A block of rank 0 has waited for rank 1, which is through with its replay; another still waits for rank 2.
#[test]
fn a_rank_that_leaves_after_its_replay_breaks_nothing() {
    let test = name_of(a_rank_that_leaves_after_its_replay_breaks_nothing);
    let Some(simulated) = on_simulator_of(test, 3) else { return };
    let application = &Recorder::new(&simulated, backend());
    let plan = of_two();
    let options = options().with_timeout(None).with_verification(false);
    on_devices(&devices(3, 3), &options, |rank| {
        let recorded = OwnGraph::new(application, &plan, &rank);
        // Time in which a wait is noted, and in which it would be found that rank 1 has left.
        std::thread::sleep(Duration::from_millis([0, 100, 400][rank.rank() as usize]));
        recorded.replay();
        recorded.end().unwrap();
    });
}
