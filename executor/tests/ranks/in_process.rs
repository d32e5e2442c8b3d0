//! Ranks of one process: as threads, and driven by one thread.

use crate::support::threads::on_threads;
use antiphon_executor::hal::{HalError, MemoryHandle};
use antiphon_executor::plan::algorithms::{Algorithm, Shape};
use antiphon_executor::plan::model::{Collective, Plan};
use antiphon_executor::{
    BootstrapError, Call, Collectives, Communicator, DataType, Executor, ExecutorError, Factor,
    Group, Options, ReduceOp, Request, What,
};
use std::time::Duration;

fn options() -> Options {
    Options::default().with_timeout(Some(Duration::from_secs(10)))
}

fn value(rank: u32, launch: u32, element: usize) -> f32 {
    (rank as usize * 7 + launch as usize * 3 + element % 13) as f32
}

/// Runs `launches` allreduces of `count` elements on every rank, and compares every result.
fn allreduce(plan: &Plan, world: u32, count: usize, launches: u32) {
    let communicators = Communicator::in_process(world, &options()).unwrap();
    std::thread::scope(|scope| {
        for communicator in communicators {
            scope.spawn(move || {
                let executor = Executor::new(&communicator);
                let loaded = executor.load(plan).unwrap();
                let rank = communicator.rank();
                let mut output = vec![0f32; count];
                for launch in 0..launches {
                    let input: Vec<f32> = (0..count).map(|i| value(rank, launch, i)).collect();
                    let bytes = (count * 4) as u64;
                    let from = (input.as_ptr().cast(), bytes);
                    let to = (output.as_mut_ptr().cast(), bytes);
                    let call = Call::new(&loaded, DataType::F32, from, to);
                    // SAFETY: both vectors hold `count` elements and live past the call.
                    unsafe { executor.run(&call) }.unwrap();
                    for (i, &found) in output.iter().enumerate() {
                        let expected: f32 = (0..world).map(|rank| value(rank, launch, i)).sum();
                        assert_eq!(found, expected, "rank {rank} launch {launch} element {i}");
                    }
                }
            });
        }
    });
}

#[test]
fn every_allreduce_gives_the_sum_on_threads() -> Result<(), ExecutorError> {
    for world in [1, 2, 3, 4] {
        for algorithm in Algorithm::all_for(&Collective::AllReduce) {
            let plan = algorithm.plan(Shape::new(world as usize)).unwrap();
            for count in [1, 33, 4097] {
                println!("{algorithm} {world} {count}");
                allreduce(&plan, world, count, 20);
            }
        }
    }
    Ok(())
}

#[test]
fn buffers_may_be_in_memory_that_other_processes_made() {
    for hosts in [["here"; 2], ["here", "there"]] {
        let ranks = Communicator::in_process_on(&hosts, &options()).unwrap();
        on_threads(&ranks, |communicator| {
            let on = Collectives::new(communicator).unwrap();
            let device = communicator.device();
            let made = communicator.allocate(64).unwrap();
            let MemoryHandle::SharedMemory { descriptor, bytes, .. } = made.export().unwrap()
            else {
                panic!("host memory goes by a descriptor");
            };
            // As from a process that says nothing of a mapping here: who imports it cannot pass it on.
            let handle = MemoryHandle::SharedMemory { descriptor, home: None, bytes };
            let memory = device.import(&handle).unwrap();
            assert!(matches!(memory.export(), Err(HalError::NotShareable { .. })));
            let at = memory.address();
            assert!(device.find(at, 64).is_some());
            // SAFETY: the memory is as long, and aligned to pages.
            let values = unsafe { std::slice::from_raw_parts_mut(at.cast::<u32>(), 16) };
            for launch in 0..3 {
                values.fill(communicator.rank() + launch);
                let request = Request {
                    what: What::AllReduce,
                    input: at,
                    output: at,
                    count: 16,
                    dtype: DataType::U32,
                    op: ReduceOp::Sum,
                    factor: None,
                };
                // SAFETY: the memory lives past the call, which alone uses it.
                unsafe { on.call(&request, None) }.unwrap();
                assert_eq!(*values, [1 + 2 * launch; 16], "{hosts:?}");
            }
            communicator.barrier().unwrap();
        });
    }
}

/// A block of each rank, in elements.
const BLOCK: usize = 8;
const WORLD: usize = 3;

#[test]
fn buffers_that_share_bytes_and_are_not_in_place_are_refused() {
    use What::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter, Scatter};
    let ranks = Communicator::in_process(WORLD as u32, &options()).unwrap();
    on_threads(&ranks, |communicator| {
        let on = Collectives::new(communicator).unwrap();
        let (rank, root, whole) = (communicator.rank(), 1, WORLD * BLOCK);
        let mut memory = [0u32; 4 * WORLD * BLOCK];
        let base = memory.as_mut_ptr();
        let own = rank as usize * BLOCK;
        for (what, lengths, own) in [
            (AllReduce, [BLOCK, BLOCK], [0, 0]),
            (AllToAll, [whole, whole], [0, 0]),
            (AllGather, [BLOCK, whole], [own, 0]),
            (ReduceScatter, [whole, BLOCK], [0, own]),
            (Broadcast { root }, [BLOCK, BLOCK], [0, 0]),
            (Reduce { root }, [BLOCK, BLOCK], [0, 0]),
            (Gather { root }, [BLOCK, whole], [own, 0]),
            (Scatter { root }, [whole, BLOCK], [0, own]),
        ] {
            let request = |[input, output]: [usize; 2]| Request {
                what,
                input: base.wrapping_add(input).cast(),
                output: base.wrapping_add(output).cast(),
                count: BLOCK as u64,
                dtype: DataType::U32,
                op: ReduceOp::Sum,
                factor: None,
            };
            // SAFETY: the memory is long enough for all of these, and lives past the calls, which alone use it.
            let call = |at: [usize; 2]| unsafe { on.call(&request(at), None) };
            call(own).unwrap();
            let has_both = match what {
                Broadcast { .. } | Reduce { .. } | Gather { .. } | Scatter { .. } => rank == root,
                _ => true,
            };
            let sums = matches!(what, AllReduce | ReduceScatter | Reduce { .. });
            // By an element either way, with one in common, and with the block of another rank as one's own.
            let moved = |by: [usize; 2]| [0, 1].map(|side| whole + own[side] + by[side]);
            let touching = [[whole + lengths[1] - 1, whole], [whole, whole + lengths[0] - 1]];
            let others = (lengths[0] != lengths[1]).then(|| match lengths[0] {
                BLOCK => [whole + (own[0] + BLOCK) % whole, whole],
                _ => [whole, whole + (own[1] + BLOCK) % whole],
            });
            let wrong = [moved([1, 0]), moved([0, 1])].into_iter().chain(touching).chain(others);
            for at in wrong.filter(|_| has_both) {
                let mut refused = vec![call(at)];
                // SAFETY: as above.
                refused.push(unsafe { Group::new().call(&on, &request(at), None) });
                if sums {
                    let factor = Some(Factor::Value([2, 0, 0, 0, 0, 0, 0, 0]));
                    // SAFETY: as above.
                    refused.push(unsafe { on.call(&Request { factor, ..request(at) }, None) });
                }
                for outcome in refused {
                    let error = outcome.unwrap_err();
                    let text = error.to_string();
                    assert!(matches!(error, ExecutorError::Argument { .. }), "{what:?}: {text}");
                    assert!(text.contains("share no byte"), "{what:?} {at:?}: {text}");
                }
            }
            call([0, lengths[0]]).unwrap();
            call([lengths[1], 0]).unwrap();
        }
    });
}

#[test]
fn a_barrier_says_who_has_left() {
    for hosts in [["here"; 3], ["here", "here", "there"]] {
        let mut ranks = Communicator::in_process_on(&hosts, &options()).unwrap();
        drop(ranks.remove(1));
        for rank in &ranks {
            let error = rank.barrier().unwrap_err();
            let ExecutorError::Bootstrap(BootstrapError::PeerLeft { doing, peer }) = &error else {
                panic!("rank {} on {hosts:?}: {error}", rank.rank());
            };
            assert_eq!((*doing, peer.rank, peer.pid), ("barrier", 1, std::process::id()));
            rank.failure().map_or(Ok(()), Err).unwrap();
        }
    }
}

#[test]
fn a_rank_may_leave_as_soon_as_its_barrier_is_over() {
    for _ in 0..50 {
        let ranks = Communicator::in_process(4, &options()).unwrap();
        std::thread::scope(|scope| {
            for rank in ranks {
                scope.spawn(move || rank.barrier().unwrap());
            }
        });
    }
}
