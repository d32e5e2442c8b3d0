//! Launches that the application records into graphs: replays count as launches, and see the data of their time.

use crate::copies::{read, write};
use crate::{backend, on_simulator, on_threads, options};
use antiphon::DataType;
use antiphon::executor::{Call, Communicator, Executor};
use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::model::Plan;
use antiphon_tests::recorder::Recorder;

const ELEMENTS: usize = 500;
const BYTES: u64 = ELEMENTS as u64 * 4;
const WORLD: u32 = 2;

fn values(rank: u32, round: u32) -> Vec<u32> {
    (0..ELEMENTS as u32).map(|at| at * (rank + 1) + round * 100_000).collect()
}

#[test]
fn replays_are_launches_of_their_own() {
    let Some(simulated) = on_simulator("graphs::replays_are_launches_of_their_own") else { return };
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
    let Some(simulated) = on_simulator("graphs::replays_may_cross_nodes") else { return };
    let application = &Recorder::new(&simulated, backend());
    for plan in [false, true].map(crate::ports::sum) {
        crate::hosts::apart(&["a", "b"], &options(), |rank| replay(application, &plan, &rank));
    }
}

/// Launches a plan that sums, records it, and replays it, as one of two ranks.
fn replay(application: &Recorder, plan: &Plan, rank: &Communicator) {
    application.enter();
    let executor = Executor::new(rank);
    let name = &plan.name;
    let plan = executor.load(plan).unwrap();
    let raw = application.stream();
    let place = std::ptr::without_provenance_mut(raw as usize);
    // SAFETY: the stream was made just now, and nobody destroys it.
    let stream = unsafe { rank.device().adopt_stream(place) }.unwrap();
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
