//! Collectives as methods, over threads: every one, with slices and device buffers, roots, and what is wrong with calls.

use antiphon::executor::selection::{Devices, Spread, Wish, select};
use antiphon::plan::model::Collective;
use antiphon::plan::program::Layout;
use antiphon::plan::verify::{self, Verdict};
use antiphon::{Communicator, DeviceBuffer, ExecutorError, Op, Options, Result};
use antiphon_tests::methods::{Small, every_method};
use std::time::Duration;

const WORLDS: [u32; 4] = [1, 2, 3, 5];
/// Elements of a block: none, one, what no packet divides, and more than any packet carries.
const COUNTS: [usize; 4] = [0, 1, 37, 5000];

fn options() -> Options {
    Options::default().with_timeout(Some(Duration::from_secs(30)))
}

/// Runs `work` as every rank, each on a thread of its own.
fn on_threads(world: u32, work: impl Fn(&Communicator) -> Result<()> + Sync) {
    let ranks = Communicator::in_process_with(world, &options()).unwrap();
    std::thread::scope(|scope| {
        for rank in &ranks {
            let work = &work;
            scope.spawn(move || {
                work(rank).unwrap_or_else(|error| panic!("{} of {world}: {error}", rank.rank()));
            });
        }
    });
}

#[test]
fn every_method_takes_slices_of_every_type() {
    fn vectors<T: Small>(rank: &Communicator, count: usize) -> Result<()> {
        every_method(rank, count, |values: &[T]| Ok(values.to_vec()), |values| Ok(values.clone()))
    }
    for world in WORLDS {
        on_threads(world, |rank| {
            for count in COUNTS {
                vectors::<f32>(rank, count)?;
                vectors::<i64>(rank, count)?;
            }
            vectors::<f64>(rank, 9)?;
            vectors::<u8>(rank, 9)?;
            vectors::<i8>(rank, 9)?;
            vectors::<i32>(rank, 9)?;
            vectors::<u32>(rank, 9)?;
            vectors::<u64>(rank, 9)?;
            vectors::<half::f16>(rank, 9)?;
            vectors::<half::bf16>(rank, 9)
        });
    }
}

#[test]
fn every_method_takes_device_buffers_of_the_host() {
    for world in WORLDS {
        on_threads(world, |rank| {
            let buffer = |values: &[f32]| DeviceBuffer::from_slice(rank, values);
            for count in COUNTS {
                every_method(rank, count, buffer, DeviceBuffer::to_vec)?;
            }
            Ok(())
        });
    }
}

#[test]
fn a_call_may_mix_kinds_of_buffers() {
    on_threads(2, |rank| {
        let me = rank.rank() as f32;
        let sum = [1.0; 6];
        let input: &[f32] = &[me; 6];
        // References to references, as one has them in the middle of a program.
        let mut boxed: Box<[f32]> = vec![9.0; 6].into();
        rank.all_reduce_into(&input, &mut boxed, Op::Sum)?;
        assert_eq!(*boxed, sum);
        let mut whole = vec![9.0; 8];
        let mut part: &mut [f32] = &mut whole[1..7];
        rank.all_reduce_into(&Box::<[f32]>::from(input), &mut part, Op::Sum)?;
        assert_eq!(whole, [9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0]);
        let mut device = DeviceBuffer::zeroed(rank, 6)?;
        rank.all_reduce_into(&[me; 6], &mut device, Op::Sum)?;
        let mut back = [9.0; 6];
        rank.all_reduce_into(&device, &mut back, Op::Max)?;
        assert_eq!(back, sum);
        Ok(())
    });
}

#[test]
fn a_device_buffer_holds_what_it_is_given() {
    let rank = Communicator::in_process(1).unwrap().remove(0);
    let mut buffer = DeviceBuffer::<u32>::zeroed(&rank, 3).unwrap();
    let empty = DeviceBuffer::<u32>::zeroed(&rank, 0).unwrap();
    // A buffer outlives what it came from.
    drop(rank);
    assert_eq!((buffer.to_vec().unwrap(), buffer.len()), (vec![0; 3], 3));
    buffer.upload(&[1, 2, 3]).unwrap();
    let mut found = [0; 3];
    buffer.download(&mut found).unwrap();
    assert_eq!(found, [1, 2, 3]);
    assert!(empty.is_empty() && empty.to_vec().unwrap().is_empty());
    for result in [buffer.upload(&[1; 4]), buffer.download(&mut [1; 2])] {
        let error = result.unwrap_err();
        assert!(matches!(error, ExecutorError::Argument { .. }), "{error}");
        assert!(error.to_string().contains("for 3 elements"), "{error}");
    }
}

#[test]
fn groups_have_collectives_of_their_own() {
    on_threads(4, |rank| {
        let me = rank.rank();
        let group = rank.split(Some(me % 2), me)?.expect("a color was passed");
        assert_eq!((group.rank(), group.world()), (me / 2, 2));
        let mut sum = [me];
        group.all_reduce(&mut sum, Op::Sum)?;
        assert_eq!(sum, [2 + 2 * (me % 2)]);
        assert!(rank.split(None, 0)?.is_none());
        let turned = rank.split(Some(0), -i64::from(me))?.expect("a color was passed");
        assert_eq!(turned.rank(), 3 - me);
        Ok(())
    });
}

#[test]
fn what_is_wrong_with_a_call_is_told_and_the_next_one_works() {
    on_threads(2, |rank| {
        let mut two = [0.0f32; 2];
        let refused = [
            (rank.all_gather(&[1.0f32; 2], &mut [0.0; 3]), "3 elements for 2 ranks with 2 each"),
            (rank.all_gather_in_place(&mut [0u8; 3]), "3 elements for 2 ranks"),
            (rank.reduce_scatter(&[1u8; 3], &mut [0; 1], Op::Sum), "3 elements for 2 ranks"),
            (rank.all_to_all(&[1u8; 4], &mut [0; 2]), "2 elements for 4"),
            (rank.all_reduce_into(&[1u8; 4], &mut [0; 2], Op::Sum), "2 elements for 4"),
            (rank.broadcast(&mut two, 2), "rank 2"),
            (rank.reduce(&mut two, Op::Sum, 7), "rank 7"),
            (rank.gather(&two, &mut [], 2), "rank 2"),
            (rank.scatter(&[], &mut two, 2), "rank 2"),
            (rank.send(&two, rank.rank()), "other ranks"),
            (rank.receive(&mut two, 2), "rank 2 of 2"),
        ];
        for (result, part) in refused {
            let error = result.expect_err(part);
            assert!(matches!(error, ExecutorError::Argument { .. }), "{error}");
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
        rank.all_reduce(&mut two, Op::Sum)
    });
}

#[test]
fn ranks_that_call_different_things_are_told_so() {
    let ranks = Communicator::in_process_with(2, &options()).unwrap();
    let errors = std::thread::scope(|scope| {
        let calls = ranks.iter().map(|rank| {
            scope.spawn(move || match rank.rank() {
                0 => rank.all_reduce(&mut [1.0f32; 4], Op::Sum),
                _ => rank.all_reduce(&mut [1.0f32; 5], Op::Sum),
            })
        });
        let calls: Vec<_> = calls.collect();
        calls.into_iter().map(|call| call.join().unwrap().unwrap_err()).collect::<Vec<_>>()
    });
    assert!(errors.iter().any(|e| matches!(e, ExecutorError::Mismatch { .. })), "{errors:?}");
}

#[test]
fn an_abort_ends_a_receive() {
    let ranks = Communicator::in_process_with(2, &options()).unwrap();
    let received = |rank: &Communicator, peer| {
        let error = rank.receive(&mut [0u8], peer).unwrap_err().to_string();
        assert!(error.contains("enough"), "{error}");
    };
    let (sent, is_sent) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let [zero, one] = [&ranks[0], &ranks[1]];
        scope.spawn(move || {
            zero.send(&[1u8], 1).unwrap();
            sent.send(()).unwrap();
            // What never comes.
            received(zero, 1);
        });
        one.receive(&mut [0u8], 0).unwrap();
        is_sent.recv().unwrap();
        one.abort("enough");
        received(one, 0);
    });
}

/// Roots and others pass buffers as they like: the plans for them must be right in place as well.
#[test]
fn plans_with_a_root_are_right_in_place_too() {
    for ranks in [1, 2, 3] {
        for crowded in [false, true] {
            for collective in [Collective::Broadcast, Collective::Reduce] {
                for bytes in [4, 1 << 20] {
                    let spread = Spread { ranks, nodes: 1, crowded, devices: Devices::Host };
                    let wish = Wish { collective: &collective, bytes, in_place: false, root: 0 };
                    let plan = select(spread, wish).unwrap().plan().unwrap();
                    let layout = Layout::new(&plan).unwrap();
                    let report = verify::verify(&plan, &layout, verify::Options::default());
                    assert!(matches!(report.verdict, Verdict::Proven), "{report}");
                    let note = report.to_string();
                    assert!(note.contains("also right in place"), "{note}");
                }
            }
        }
    }
}
