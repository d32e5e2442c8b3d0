//! Collectives as methods on buffers of devices: every one, what is refused, and buffers that go while launches run.

use crate::devices::devices;
use crate::{device, on_devices, on_simulator, on_simulator_of, on_threads, options};
use antiphon::executor::hal::{Backend, driver};
use antiphon::executor::{self, Request, What};
use antiphon::{Communicator, DataType, DeviceBuffer, ExecutorError, Op};
use antiphon_tests::methods::every_method;
use antiphon_tests::{name_of, until};
use std::sync::Mutex;
use std::sync::mpsc::channel;

const WORLD: u32 = 2;
/// Elements of a block: none, what no packet divides, and more than packets carry.
const COUNTS: [usize; 3] = [0, 37, 20_000];

/// Every method of a rank with each of these lengths of blocks.
fn all_methods(rank: &executor::Communicator, counts: &[usize]) {
    let rank = Communicator::new(rank).unwrap();
    for &count in counts {
        let buffer = |values: &[f32]| DeviceBuffer::from_slice(&rank, values);
        every_method(&rank, count, buffer, DeviceBuffer::to_vec)
            .unwrap_or_else(|error| panic!("rank {}, {count} elements: {error}", rank.rank()));
    }
}

#[test]
fn every_method_takes_device_buffers() {
    if on_simulator(name_of(every_method_takes_device_buffers)).is_some() {
        on_threads(WORLD, &options(), |rank| all_methods(&rank, &COUNTS));
    }
}

#[test]
fn every_method_takes_buffers_of_several_devices() {
    let test = name_of(every_method_takes_buffers_of_several_devices);
    if on_simulator_of(test, WORLD as usize).is_some() {
        on_devices(&devices(WORLD, WORLD), &options(), |rank| all_methods(&rank, &COUNTS[1..2]));
    }
}

#[test]
fn buffers_of_elsewhere_are_refused_and_the_next_call_works() {
    let test = name_of(buffers_of_elsewhere_are_refused_and_the_next_call_works);
    if on_simulator_of(test, 2).is_none() {
        return;
    }
    let one = |device| {
        let rank = executor::Communicator::in_process_over(&[device], &options()).unwrap();
        Communicator::new(&rank[0]).unwrap()
    };
    let here = one(device());
    let beside = one(driver(device().backend()).unwrap().open(1).unwrap());
    let host = one(driver(Backend::Host).unwrap().open(0).unwrap());
    let name = device().backend().name();
    let [mut at_host, mut at_other] =
        [&host, &beside].map(|rank| DeviceBuffer::from_slice(rank, &[1u32; 8]).unwrap());
    let mut own = DeviceBuffer::from_slice(&here, &[1u32; 8]).unwrap();
    let refused = [
        (here.all_reduce(&mut [1u32; 8], Op::Sum), "a slice of the host", name),
        (here.all_reduce(&mut at_host, Op::Sum), "a buffer of host 0", name),
        (here.all_reduce_into(&own, &mut at_other, Op::Sum), "1, on a rank of", name),
        (host.all_reduce(&mut own, Op::Sum), "a buffer of", "on a rank of host 0"),
        (host.send(&at_other, 0), "a buffer of", "on a rank of host 0"),
    ];
    for (result, what, whose) in refused {
        let error = result.expect_err(what);
        assert!(matches!(error, ExecutorError::Argument { .. }), "{error}");
        assert!(error.to_string().contains(what), "{what}: {error}");
        assert!(error.to_string().contains(whose), "{whose}: {error}");
    }
    for (rank, buffer) in [(&here, &mut own), (&beside, &mut at_other), (&host, &mut at_host)] {
        rank.all_reduce(buffer, Op::Sum).unwrap();
        assert_eq!(buffer.to_vec().unwrap(), [1; 8]);
    }
}

/// To unmap waits for all kernels in the simulator, as it may on a card: were it done at once, rank 1 would never come to
/// its call.
#[test]
fn buffers_come_and_go_while_a_launch_waits_for_its_peer() {
    if on_simulator(name_of(buffers_come_and_go_while_a_launch_waits_for_its_peer)).is_none() {
        return;
    }
    let (launched, is_launched) = channel();
    let is_launched = Mutex::new(is_launched);
    on_threads(WORLD, &options(), |rank| {
        let rank = Communicator::new(&rank).unwrap();
        let stream = rank.stream().unwrap();
        let mut sums = DeviceBuffer::from_slice(&rank, &[rank.rank() + 1; 8]).unwrap();
        let at = sums.as_mut_ptr().cast();
        let call = || {
            let (what, dtype, op) = (What::AllReduce, DataType::U32, Op::Sum);
            let request =
                Request { what, input: at, output: at, count: 8, dtype, op, factor: None };
            // SAFETY: the buffer holds as many elements, and lives until the stream is waited for.
            unsafe { rank.collectives().call(&request, Some(&stream)) }.unwrap();
        };
        let wait = || rank.collectives().executor().synchronize(&stream).unwrap();
        // First calls load code.
        call();
        wait();
        assert_eq!(sums.to_vec().unwrap(), [3; 8]);
        rank.barrier().unwrap();
        if rank.rank() == 0 {
            call();
            launched.send(()).unwrap();
        } else {
            let mut gone = DeviceBuffer::<u64>::zeroed(&rank, 1000).unwrap();
            is_launched.lock().unwrap().recv().unwrap();
            let address = gone.as_ptr().cast();
            let find = || rank.device().find(address, 8000).map(|(memory, _)| memory.id());
            let number = find().expect("the device knows the buffer");
            gone.upload(&[7; 1000]).unwrap();
            assert_eq!(gone.to_vec().unwrap(), [7; 1000]);
            drop(gone);
            assert_eq!(find(), Some(number), "freed while a launch is under way");
            call();
            wait();
            rank.barrier().unwrap();
            until("the buffer to be given back", || find() != Some(number));
            assert_eq!(sums.to_vec().unwrap(), [6; 8]);
            return;
        }
        wait();
        rank.barrier().unwrap();
        assert_eq!(sums.to_vec().unwrap(), [6; 8]);
    });
}
