//! Calls by name over several nodes: transfers, and the calls that come to several of them.

use antiphon_executor::{
    Collectives, Communicator, Counts, DataType, ExecutorError, Extent, Group, Options, ReduceOp,
    Request, What,
};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::time::Duration;

type Result<T> = std::result::Result<T, ExecutorError>;

/// Runs `work` as every rank, each on a thread of its own and on the host of its name.
fn on_hosts(hosts: &[&str], work: impl Fn(u32, &Collectives) + Sync) {
    let options = Options::default().with_timeout(Some(Duration::from_secs(30)));
    let ranks = Communicator::in_process_on(hosts, &options).unwrap();
    std::thread::scope(|scope| {
        for (rank, communicator) in (0..).zip(&ranks) {
            let work = &work;
            scope.spawn(move || work(rank, &Collectives::new(communicator).unwrap()));
        }
    });
}

/// Two nodes of one rank, of two, and of different numbers of ranks, which lie apart.
const PLACES: [&[&str]; 4] =
    [&["a", "b"], &["a", "a", "b", "b"], &["a", "b", "a"], &["a", "b", "c"]];

fn request(what: What, input: &[u32], output: &mut [u32], count: usize) -> Request {
    let (input, output) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
    let (count, dtype, op) = (count as u64, DataType::U32, ReduceOp::Sum);
    Request { what, input, output, count, dtype, op, factor: None }
}

fn call(on: &Collectives, what: What, input: &[u32], output: &mut [u32], count: usize) {
    // SAFETY: the slices are as long as the call says where the rank has a part in them, and live past it.
    unsafe { on.call(&request(what, input, output, count), None) }.unwrap();
}

/// Element `at` of what a rank has.
fn element(rank: u32, at: usize) -> u32 {
    rank * 1_000_000 + at as u32
}

fn block(rank: u32, range: std::ops::Range<usize>) -> Vec<u32> {
    range.map(|at| element(rank, at)).collect()
}

/// Two nodes of one rank, of two, and three of one: equally many on each, as built-in algorithms need.
const EVEN: [&[&str]; 3] = [&["a", "b"], &["a", "a", "b", "b"], &["a", "b", "c"]];

#[test]
fn broadcast_and_reduce_reach_every_root_of_every_node_each_rank_in_place_or_not() {
    for hosts in EVEN {
        on_hosts(hosts, |rank, on| {
            let world = hosts.len() as u32;
            for (root, count) in (0..world).flat_map(|root| [(root, 3), (root, 70_001)]) {
                // Which ranks are in place changes from call to call.
                for turn in 0..2 {
                    let in_place = (rank + root + turn) % 2 == 0;
                    let own = block(rank, 0..count);
                    let mut there = if in_place { own.clone() } else { vec![7; count] };
                    let input = if in_place { there.clone() } else { own.clone() };
                    let from = if in_place { there.as_ptr() } else { input.as_ptr() };
                    let call = |what, output: &mut [u32]| {
                        let request = request(what, &[], output, count);
                        // SAFETY: both are as long as the call says, the same in place and else apart, and live past it.
                        unsafe { on.call(&Request { input: from.cast(), ..request }, None) }
                            .unwrap();
                    };
                    call(What::Reduce { root }, &mut there);
                    if rank == root {
                        let sum = |at| (0..world).map(|rank| element(rank, at)).sum::<u32>();
                        assert_eq!(there, (0..count).map(sum).collect::<Vec<_>>(), "{root} {turn}");
                    }
                    there.copy_from_slice(if in_place { &own } else { &[7; 70_001][..count] });
                    call(What::Broadcast { root }, &mut there);
                    assert_eq!(there, block(root, 0..count), "{rank} {root} {turn}");
                }
            }
        });
    }
}

#[test]
fn gather_and_scatter_reach_every_root_of_every_node() {
    for hosts in PLACES {
        on_hosts(hosts, |rank, on| {
            let world = hosts.len();
            for (root, count) in (0..world as u32).flat_map(|root| [(root, 3), (root, 70_001)]) {
                let at_root = rank == root;
                let whole = if at_root { world * count } else { 0 };
                let (input, mut output) = (block(rank, 0..count), vec![7; whole]);
                let all: Vec<u32> = (0..world as u32).flat_map(|r| block(r, 0..count)).collect();
                call(on, What::Gather { root }, &input, &mut output, count);
                assert_eq!(output, if at_root { &all[..] } else { &[] }, "{rank} {root}");

                // In place the root's block is where it belongs.
                let own = rank as usize * count..(rank as usize + 1) * count;
                if at_root {
                    output.fill(7);
                    output[own.clone()].copy_from_slice(&input);
                    let there = output[own.clone()].as_ptr();
                    let request = Request {
                        input: there.cast(),
                        ..request(What::Gather { root }, &[], &mut output, count)
                    };
                    // SAFETY: the block lies in the output, as in place it must.
                    unsafe { on.call(&request, None) }.unwrap();
                    assert_eq!(output, all);
                } else {
                    call(on, What::Gather { root }, &input, &mut output, count);
                }

                let mut part = vec![7; count];
                call(on, What::Scatter { root }, &output, &mut part, count);
                assert_eq!(part, block(rank, 0..count), "{rank} {root}");
            }
            for what in [What::Gather { root: 1 }, What::Scatter { root: 1 }] {
                call(on, what, &[], &mut [], 0);
            }
        });
    }
}

/// Elements from one rank to another: none, a few, and many.
fn count(from: u32, to: u32) -> usize {
    [0, 5, 40_000][(from + 2 * to) as usize % 3]
}

/// What a rank sends and receives by alltoallv: buffers, and the blocks in them.
fn exchange(rank: u32, world: u32) -> ([Vec<u32>; 3], [Vec<Extent>; 2]) {
    let counts = |of: &dyn Fn(u32) -> usize| {
        Extent::packed(&(0..world).map(|peer| of(peer) as u64).collect::<Vec<_>>())
    };
    let input = (0..world).flat_map(|to| block(rank * 10 + to, 0..count(rank, to))).collect();
    let expected: Vec<u32> =
        (0..world).flat_map(|from| block(from * 10 + rank, 0..count(from, rank))).collect();
    let blocks = [counts(&|to| count(rank, to)), counts(&|from| count(from, rank))];
    ([input, vec![7; expected.len()], expected], blocks)
}

fn all_to_all_v(
    on: &Collectives,
    input: &[u32],
    output: &mut [u32],
    [send, receive]: &[Vec<Extent>; 2],
) -> Result<()> {
    let sizes = (input.len() as u64, output.len() as u64);
    let at = (input.as_ptr().cast(), output.as_mut_ptr().cast());
    // SAFETY: the slices are as long as said, and live past the call.
    unsafe { on.all_to_all_v(at, sizes, Counts { send, receive }, DataType::U32, None) }
}

#[test]
fn blocks_of_any_length_go_from_every_rank_to_every_other() {
    for hosts in PLACES {
        on_hosts(hosts, |rank, on| {
            let world = hosts.len() as u32;
            for _ in 0..3 {
                let ([input, mut output, expected], blocks) = exchange(rank, world);
                all_to_all_v(on, &input, &mut output, &blocks).unwrap();
                assert_eq!(output, expected, "{rank}");
            }
            // Beside sends and receives between the same ranks, and a gather, all on a stream.
            let ([input, mut output, expected], blocks) = exchange(rank, world);
            let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);
            let (sent, mut received) = (block(rank, 0..9), vec![7; 9]);
            let (mut all, stream) = (vec![7; 9 * world as usize], on.communicator().stream());
            let stream = stream.unwrap();
            let mut group = Group::new();
            let gather = request(What::Gather { root: 0 }, &sent, &mut all, 9);
            let at = (input.as_ptr().cast(), output.as_mut_ptr().cast());
            let sizes = (input.len() as u64, output.len() as u64);
            let counts = Counts { send: &blocks[0], receive: &blocks[1] };
            let (from, to) = (sent.as_ptr().cast(), received.as_mut_ptr().cast());
            let (dtype, stream_of) = (DataType::U32, Some(&stream));
            // SAFETY: the vectors are as long as said, and live until the stream is synchronised.
            unsafe {
                group.send(on, from, 9, dtype, next, stream_of).unwrap();
                group.all_to_all_v(on, at, sizes, counts, dtype, stream_of).unwrap();
                group.call(on, &gather, stream_of).unwrap();
                group.receive(on, to, 9, dtype, previous, stream_of).unwrap();
            }
            group.end().unwrap();
            on.executor().synchronize(&stream).unwrap();
            assert_eq!((output, received), (expected, block(previous, 0..9)));
            let expected: Vec<u32> = (0..world).flat_map(|r| block(r, 0..9)).collect();
            assert!(rank != 0 || all == expected);
        });
    }
}

/// What a rank has, in memory that ends the process when it is written.
struct ReadOnly(std::ptr::NonNull<std::ffi::c_void>, usize);

// SAFETY: nobody writes it.
unsafe impl Sync for ReadOnly {}

impl ReadOnly {
    fn new(rank: u32, elements: usize) -> Self {
        let content = block(rank, 0..elements);
        let bytes = (elements * 4).max(1);
        let anywhere = std::ptr::null_mut();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new memory.
        let at = unsafe { mmap_anonymous(anywhere, bytes, access, MapFlags::PRIVATE) }.unwrap();
        // SAFETY: it is as long, and nobody else knows of it.
        unsafe { at.cast::<u32>().copy_from_nonoverlapping(content.as_ptr(), elements) };
        // SAFETY: it is a mapping of this function's, as long.
        unsafe { mprotect(at, bytes, MprotectFlags::READ) }.unwrap();
        ReadOnly(std::ptr::NonNull::new(at).unwrap(), bytes)
    }

    fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr().cast_const().cast()
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        // SAFETY: its own mapping, which ends with it.
        unsafe { munmap(self.0.as_ptr(), self.1) }.unwrap();
    }
}

#[test]
fn transfers_go_both_ways_between_nodes_and_what_is_sent_is_only_read() {
    on_hosts(PLACES[1], |rank, on| {
        let world = PLACES[1].len() as u32;
        for length in [0, 1, 100_000] {
            for step in 1..world {
                let (to, from) = ((rank + step) % world, (rank + world - step) % world);
                let (sent, mut received) = (ReadOnly::new(rank, length), vec![7; length]);
                let count = length as u64;
                let send = || {
                    // SAFETY: the memory is as long, and lives past the call.
                    unsafe { on.send(sent.as_ptr(), count, DataType::U32, to, None) }
                };
                // Without a group, someone has to send first.
                std::thread::scope(|scope| {
                    let sending = scope.spawn(send);
                    let at = received.as_mut_ptr().cast();
                    // SAFETY: the vector is as long, and lives past the call.
                    unsafe { on.receive(at, count, DataType::U32, from, None) }.unwrap();
                    sending.join().unwrap().unwrap();
                });
                assert_eq!(received, block(from, 0..length), "{from} to {rank}");
            }
        }
    });
}

#[test]
fn who_disagrees_on_lengths_is_told_on_both_nodes() {
    on_hosts(PLACES[0], |rank, on| {
        // Each sends three to the other, and rank 1 expects four.
        let lengths = |peer: u64| Extent::packed(&if rank == 0 { [0, peer] } else { [peer, 0] });
        let blocks = [lengths(3), lengths(3 + u64::from(rank))];
        let (input, mut output) = (block(rank, 0..3), vec![7; 4]);
        let error = all_to_all_v(on, &input, &mut output, &blocks).unwrap_err().to_string();
        assert!(error.contains("broadcast"), "{error}");
    });
    on_hosts(PLACES[0], |rank, on| {
        let outside = [Extent::packed(&[2, 2]), Extent::packed(&[2, 2])];
        let (input, mut output) = (block(rank, 0..3), vec![7; 4]);
        let error = all_to_all_v(on, &input, &mut output, &outside).unwrap_err();
        assert!(matches!(error, ExecutorError::Counts { .. }), "{error}");
    });
}
