//! Ranks of one machine whose devices do not reach each other's memory: they count as on different nodes, and what goes between them
//! goes over the shared wire, by way of the host's memory, unless another is forced.

use crate::devices::{device_of, devices};
use crate::faults::{await_death_on, call, kill_in_second_launch};
use crate::hosts::{a_wait_ends_with_a_name, every_right_plan_over_wire};
use crate::ports::sum;
use crate::transfers::{WORLD, every_call, in_groups};
use crate::{backend, on_devices, on_simulator, on_simulator_with, options};
use antiphon::executor::hal::{Backend, driver};
use antiphon::executor::{Communicator, ExecutorError};
use antiphon_tests::harness::processes::{Ranks, role};
use antiphon_tests::name_of;
use antiphon_tests::simulated::{Simulated, pass_over};
use std::collections::BTreeSet;

const WITHOUT_PEERS: [(&str, &str); 1] = [("ANTIPHON_GPUSIM_PEERS", "0")];

/// The process with the simulated driver, whose devices reach no other's memory.
fn apart(test: &str) -> Option<Simulated> {
    on_simulator_with(test, &WITHOUT_PEERS)
}

/// The nodes that all ranks count as on.
fn nodes(of: &Communicator) -> Vec<u32> {
    (0..of.world()).map(|rank| of.node_of(rank).unwrap()).collect()
}

/// Names of the wires that a rank's links go over.
fn wires(rank: &Communicator) -> Vec<String> {
    let all: BTreeSet<_> = rank.links().into_iter().map(|link| link.wire).collect();
    all.into_iter().collect()
}

#[test]
fn ranks_whose_devices_do_not_reach_each_other_count_as_on_different_nodes() {
    let test = name_of(ranks_whose_devices_do_not_reach_each_other_count_as_on_different_nodes);
    if apart(test).is_none() {
        return;
    }
    let forced = options().with_wire(Some("tcp".to_owned()));
    on_devices(&devices(WORLD, WORLD), &forced, |communicator| {
        every_call(&communicator);
        assert_eq!(wires(&communicator), ["tcp"]);
    });
    // Each on a device of its own, and communicators made of such a communicator.
    on_devices(&devices(WORLD, WORLD), &options(), |communicator| {
        assert_eq!(nodes(&communicator), [0, 1, 2]);
        every_call(&communicator);
        assert_eq!(wires(&communicator), ["shared"]);
        let again = communicator.split(Some(0), WORLD - communicator.rank()).unwrap().unwrap();
        assert_eq!(nodes(&again), [2, 1, 0]);
        every_call(&again);
        assert_eq!(wires(&again), ["shared"]);
    });
    // Two that share one, which one thread drives: code for the one is not loaded while the other waits for it.
    let shared = Communicator::in_process_over(&devices(WORLD, 2), &options()).unwrap();
    assert_eq!(nodes(&shared[0]), [0, 1, 0]);
    in_groups(&shared);
    // And as processes.
    let environment = [&WITHOUT_PEERS[..]; WORLD as usize];
    Ranks::start_in(name_of(rank_on_an_island), &environment, "").succeed();
}

/// One process of the test above.
#[test]
fn rank_on_an_island() {
    let Some(role) = role() else { return };
    let seen = driver(backend()).unwrap().devices().unwrap().len() as u32;
    let device = device_of(role.rendezvous.rank, WORLD.min(seen));
    let communicator = role.connect(&options().with_device(Some(device))).unwrap();
    assert_eq!(nodes(&communicator), [0, 1, 2]);
    every_call(&communicator);
    assert_eq!(wires(&communicator), ["shared"]);
    communicator.barrier().unwrap();
}

/// Slices of a GPU (MIG), of which a process sees one, are at one place and do not reach each other's memory.
#[test]
fn slices_of_a_gpu_count_as_on_different_nodes() {
    let test = name_of(slices_of_a_gpu_count_as_on_different_nodes);
    if on_simulator(test).is_none() {
        return;
    }
    if backend() != Backend::Cuda {
        return pass_over(test, "of HIP's devices only the places are known");
    }
    let [zero, one, two] = ["0", "1", "2"].map(|slice| [("ANTIPHON_GPUSIM_SLICE", slice)]);
    Ranks::start_in(name_of(rank_on_an_island), &[&zero, &one, &two], "").succeed();
}

#[test]
fn every_right_plan_with_ports_gives_the_right_result_between_islands() {
    let test = name_of(every_right_plan_with_ports_gives_the_right_result_between_islands);
    if apart(test).is_none() {
        return;
    }
    every_right_plan_over_wire("shared", |nodes, options, work| {
        // The ranks of a node of the plan's share a device.
        let on = |node: &u32| driver(backend()).unwrap().open(*node).unwrap();
        let devices: Vec<_> = nodes.iter().map(on).collect();
        on_devices(&devices, options, work)
    });
}

#[test]
fn a_wait_for_a_rank_on_another_island_ends_with_its_name() {
    if apart(name_of(a_wait_for_a_rank_on_another_island_ends_with_its_name)).is_none() {
        return;
    }
    a_wait_ends_with_a_name(|options, work| on_devices(&devices(2, 2), options, work));
}

#[test]
fn who_leaves_its_island_is_not_waited_for() {
    if apart(name_of(who_leaves_its_island_is_not_waited_for)).is_none() {
        return;
    }
    for wire in [None, Some("tcp".to_owned())] {
        let options = options().with_wire(wire.clone());
        let errors = on_devices(&devices(2, 2), &options, |rank| {
            call(&rank, &sum(false), 4096).unwrap();
            (rank.rank() == 0).then(|| call(&rank, &sum(false), 4096).unwrap_err())
        });
        let error = errors.into_iter().flatten().next().unwrap();
        let text = error.to_string();
        assert!(matches!(error, ExecutorError::Link { peer: 1, .. }), "{wire:?}: {text}");
        for part in ["it has left the communicator", "waits at op 1 (wait) on port channel 0"] {
            assert!(text.contains(part), "{wire:?}: no {part} in {text}");
        }
    }
}

#[test]
fn the_death_of_a_rank_on_another_island_ends_waits_for_it() {
    if apart(name_of(the_death_of_a_rank_on_another_island_ends_waits_for_it)).is_none() {
        return;
    }
    kill_in_second_launch(name_of(rank_whose_peer_dies));
}

/// A process of the test above.
#[test]
fn rank_whose_peer_dies() {
    await_death_on(&sum(false), |rank| device_of(rank, 2));
}
