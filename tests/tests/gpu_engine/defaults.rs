//! Calls by name on devices: served by what the simulator of plans predicts for them, with several thread blocks, and right.

use crate::devices::devices;
use crate::{backend, on_devices, on_simulator_of, options};
use antiphon::DataType;
use antiphon::executor::hal::{Backend, Stream};
use antiphon::executor::selection::{Candidate, Devices, Selected};
use antiphon::executor::{Collectives, Communicator, ReduceOp, Request, What};
use antiphon::plan::algorithms::Algorithm;
use antiphon::plan::model::Collective;
use antiphon_tests::name_of;
use antiphon_tests::simulated::pass_over;
use std::sync::Arc;

const WORLD: u32 = 4;

/// The algorithm that serves a call of so many bytes, its thread blocks, and what `explain` says.
fn chosen(on: &Collectives, collective: &Collective, bytes: u64) -> (Algorithm, usize, String) {
    let question = on.question(collective, bytes, DataType::U32);
    let choice = on.explain(&question).unwrap();
    let said = choice.to_string();
    match choice.candidate {
        Candidate::BuiltIn(Selected::Sized(choice)) => {
            (choice.algorithm, choice.shape.blocks, said)
        }
        other => panic!("{other:?} serves: {said}"),
    }
}

/// Makes a call on each rank, twice, and holds every output against what it must be.
fn call(rank: &Communicator, on: &Collectives, stream: &Arc<dyn Stream>, what: What, block: u64) {
    let world = u64::from(WORLD);
    let (inputs, outputs) = match what {
        What::AllGather => (block, block * world),
        _ => (block, block),
    };
    let [input, output] = [inputs, outputs].map(|count| rank.allocate(count * 4).unwrap());
    for launch in 1..=2u32 {
        let value =
            |rank: u64, at: u64| (at as u32 % 1000 * (rank as u32 + 1)).wrapping_add(launch);
        let values: Vec<u32> = (0..inputs).map(|at| value(rank.rank().into(), at)).collect();
        // SAFETY: the memory is as long, and nobody uses it until the copy is over.
        let copied = unsafe { stream.copy(input.address(), values.as_ptr().cast(), inputs * 4) };
        let _ = copied.unwrap();
        stream.synchronize().unwrap();
        let request = Request {
            what,
            input: input.address().cast_const(),
            output: output.address(),
            count: block,
            dtype: DataType::U32,
            op: ReduceOp::Sum,
            factor: None,
        };
        // SAFETY: both memories hold the call's bytes, and live until it is over.
        unsafe { on.call(&request, Some(stream)) }.unwrap();
        on.executor().synchronize(stream).unwrap();
        let mut found = vec![0u32; outputs as usize];
        // SAFETY: as above.
        let copied =
            unsafe { stream.copy(found.as_mut_ptr().cast(), output.address(), outputs * 4) };
        let _ = copied.unwrap();
        stream.synchronize().unwrap();
        let expected = |at: u64| match what {
            What::AllGather => value(at / block, at % block),
            _ => (0..world).map(|rank| value(rank, at)).fold(0, u32::wrapping_add),
        };
        let wrong = (0..).zip(&found).find(|&(at, found)| *found != expected(at));
        assert_eq!(wrong, None, "rank {}, {what:?} of {block}, launch {launch}", rank.rank());
    }
}

#[test]
fn calls_by_name_go_by_the_predictions_for_their_devices() {
    let test = name_of(calls_by_name_go_by_the_predictions_for_their_devices);
    if on_simulator_of(test, WORLD as usize).is_none() {
        return;
    }
    if backend() == Backend::Cuda && !devices(WORLD, WORLD).iter().all(|one| one.caps().multicast) {
        return pass_over(test, "it is for devices that multicast");
    }
    // A few sizes between which the choice changes, in elements; the larger ones take several thread blocks.
    const COUNTS: [u64; 3] = [16, 1 << 10, 40_000];
    let told = on_devices(&devices(WORLD, WORLD), &options(), |rank| {
        let on = Collectives::new(&rank).unwrap();
        let stream = rank.stream().unwrap();
        let mut told = Vec::new();
        for count in COUNTS {
            for (what, collective, bytes) in [
                (What::AllReduce, Collective::AllReduce, count * 4),
                (What::AllGather, Collective::AllGather, count * 4 * u64::from(WORLD)),
            ] {
                told.push(chosen(&on, &collective, bytes));
                call(&rank, &on, &stream, what, count);
            }
        }
        told
    });
    for one in &told {
        assert_eq!(one, &told[0], "all ranks choose alike");
    }
    let blocks: Vec<usize> = told[0].iter().map(|(_, blocks, _)| *blocks).collect();
    assert_eq!(blocks[..2], [1, 1], "{told:?}");
    assert!(blocks[2..].iter().all(|&blocks| blocks > 1), "{told:?}");
    let switch = told[0].iter().any(|(algorithm, ..)| *algorithm == Algorithm::AllReduceSwitch);
    assert_eq!(switch, backend() == Backend::Cuda, "{told:?}");
    let name = if switch { "`h100x8`" } else { "`mi300x8`" };
    assert!(told[0][0].2.contains(name), "{}", told[0][0].2);
}

#[test]
fn without_multicast_and_on_one_device_no_switch_is_chosen() {
    let test = name_of(without_multicast_and_on_one_device_no_switch_is_chosen);
    if on_simulator_of(test, WORLD as usize).is_none() {
        return;
    }
    for (count, multicast) in [(WORLD, false), (WORLD - 1, true)] {
        let options = options().with_multicast(multicast);
        let devices = devices(WORLD, count);
        // Who starts ranks can tell beforehand.
        let told = Devices::of_ranks(&devices, &[0; WORLD as usize], multicast);
        on_devices(&devices, &options, |rank| {
            let on = Collectives::new(&rank).unwrap();
            assert_eq!(rank.devices().unwrap(), told);
            let question = on.question(&Collective::AllReduce, 4, DataType::U32);
            assert_eq!(question.spread.devices, told);
            let (algorithm, blocks, said) = chosen(&on, &Collective::AllReduce, 1 << 20);
            assert_ne!(algorithm, Algorithm::AllReduceSwitch, "{said}");
            assert!(!said.contains("allreduce_switch"), "{said}");
            assert_eq!(blocks > 1, count == WORLD, "ranks that share a device have a block each");
            let stream = rank.stream().unwrap();
            call(&rank, &on, &stream, What::AllReduce, 1 << 12);
        });
    }
}
