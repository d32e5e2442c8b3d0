//! Collectives as methods, over threads: every one, with typed slices, roots, and what is wrong with calls.

use antiphon::executor::selection::{Devices, Spread, Wish, select};
use antiphon::plan::model::Collective;
use antiphon::plan::program::Layout;
use antiphon::plan::verify::{self, Verdict};
use antiphon::{Communicator, Element, ExecutorError, Op, Options, Result};
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

/// Numbers that are different everywhere, small enough that sums of them are exact in every type.
fn value(rank: u32, index: usize) -> i64 {
    (i64::from(rank) * 7 + index as i64 * 3) % 11 + 1
}

/// A type that holds them.
trait Small: Element + PartialEq + std::fmt::Debug {
    fn small(value: i64) -> Self;
}

macro_rules! small {
    ($($type:ty)*) => { $(impl Small for $type { fn small(value: i64) -> Self { value as $type } })* };
}

small!(f32 f64 i8 u8 i32 u32 i64 u64);

fn filled<T: Small>(len: usize, of: impl Fn(usize) -> i64) -> Vec<T> {
    (0..len).map(|index| T::small(of(index))).collect()
}

fn sum(world: u32, index: usize) -> i64 {
    (0..world).map(|rank| value(rank, index)).sum()
}

/// Every collective once, on one rank.
fn all_of<T: Small>(rank: &Communicator, count: usize) -> Result<()> {
    let (me, world) = (rank.rank(), rank.world());
    let whole = count * world as usize;
    let own = |len| filled::<T>(len, |index| value(me, index));
    let block = |index: usize| ((index / count.max(1)) as u32, index % count.max(1));
    let poison = |len| filled::<T>(len, |_| 99);
    let gathered = filled::<T>(whole, |index| value(block(index).0, block(index).1));
    let mine = me as usize * count;

    let mut buffer = own(count);
    rank.all_reduce(&mut buffer, Op::Sum)?;
    assert_eq!(buffer, filled::<T>(count, |index| sum(world, index)), "allreduce");

    let mut output = poison(count);
    rank.all_reduce_into(&own(count), &mut output, Op::Max)?;
    let most = |index| (0..world).map(|rank| value(rank, index)).max().unwrap();
    assert_eq!(output, filled::<T>(count, most), "allreduce into");

    let mut output = poison(whole);
    rank.all_gather(&own(count), &mut output)?;
    assert_eq!(output, gathered, "allgather");

    let mut output = poison(whole);
    output[mine..mine + count].copy_from_slice(&own(count));
    rank.all_gather_in_place(&mut output)?;
    assert_eq!(output, gathered, "allgather in place");

    let mut output = poison(count);
    rank.reduce_scatter(&own(whole), &mut output, Op::Sum)?;
    assert_eq!(output, filled::<T>(count, |index| sum(world, mine + index)), "reducescatter");

    let mut output = poison(whole);
    rank.all_to_all(&own(whole), &mut output)?;
    let exchanged = filled::<T>(whole, |index| value(block(index).0, mine + block(index).1));
    assert_eq!(output, exchanged, "alltoall");

    for root in [0, world - 1] {
        let mut buffer = own(count);
        rank.broadcast(&mut buffer, root)?;
        assert_eq!(buffer, filled::<T>(count, |index| value(root, index)), "broadcast {root}");

        let mut buffer = own(count);
        rank.reduce(&mut buffer, Op::Sum, root)?;
        let reduced = filled::<T>(count, |index| sum(world, index));
        assert_eq!(buffer, if me == root { reduced } else { own(count) }, "reduce {root}");

        let mut output = poison(if me == root { whole } else { 0 });
        rank.gather(&own(count), &mut output, root)?;
        assert!(me != root || output == gathered, "gather {root}");

        let mut output = poison(count);
        let input = own(if me == root { whole } else { 0 });
        rank.scatter(&input, &mut output, root)?;
        let scattered = filled::<T>(count, |index| value(root, mine + index));
        assert_eq!(output, scattered, "scatter {root}");
    }

    if world > 1 {
        // Round the ring: rank 0 sends first, the others receive first.
        let (next, previous) = ((me + 1) % world, (me + world - 1) % world);
        let mut received = poison(count);
        if me == 0 {
            rank.send(&own(count), next)?;
        }
        rank.receive(&mut received, previous)?;
        if me > 0 {
            rank.send(&own(count), next)?;
        }
        assert_eq!(received, filled::<T>(count, |index| value(previous, index)), "send");
    }
    rank.barrier()
}

#[test]
fn every_collective_moves_every_type() {
    for world in WORLDS {
        on_threads(world, |rank| {
            for count in COUNTS {
                all_of::<f32>(rank, count)?;
                all_of::<i64>(rank, count)?;
            }
            all_of::<f64>(rank, 9)?;
            all_of::<u8>(rank, 9)?;
            all_of::<i8>(rank, 9)?;
            all_of::<i32>(rank, 9)?;
            all_of::<u32>(rank, 9)?;
            all_of::<u64>(rank, 9)
        });
    }
}

#[test]
fn blocks_may_have_lengths_of_their_own() {
    on_threads(3, |rank| {
        let (me, world) = (u64::from(rank.rank()), 3);
        // Rank r sends r + s elements to rank s.
        let counts: Vec<u64> = (0..world).map(|peer| me + peer).collect();
        let input = vec![me as u32; counts.iter().sum::<u64>() as usize];
        let mut output = vec![9u32; input.len()];
        rank.all_to_all_v((&input, &counts), (&mut output, &counts))?;
        let expected =
            (0..world).flat_map(|peer| std::iter::repeat_n(peer as u32, (me + peer) as usize));
        assert!(output.iter().copied().eq(expected), "{output:?}");
        Ok(())
    });
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
