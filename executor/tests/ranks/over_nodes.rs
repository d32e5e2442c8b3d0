//! Calls by name over nodes: launches of all ranks, transfers, and the calls that come to several of them.

use crate::support::requests::request;
use crate::support::threads::on_threads;
use antiphon_executor::{
    Collectives, Communicator, Counts, DataType, ExecutorError, Extent, Factor, Group, Options,
    Request, What,
};
use antiphon_plan::model::Collective;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::time::Duration;

type Result<T> = std::result::Result<T, ExecutorError>;

/// Runs `work` as every rank, each on a thread of its own and on the host of its name.
fn on_hosts(hosts: &[&str], work: impl Fn(u32, &Collectives) + Sync) {
    let options = Options::default().with_timeout(Some(Duration::from_secs(30)));
    let ranks = Communicator::in_process_on(hosts, &options).unwrap();
    on_threads(&ranks, |communicator| {
        work(communicator.rank(), &Collectives::new(communicator).unwrap());
    });
}

/// Two nodes of one rank, of two, of two dealt out in turn, and of different numbers of ranks, which lie apart or not.
const PLACES: [&[&str]; 6] = [
    &["a", "b"],
    &["a", "a", "b", "b"],
    &["a", "b", "a", "b"],
    &["a", "b", "a"],
    &["a", "a", "a", "b"],
    &["a", "b", "c"],
];

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

#[test]
fn broadcast_and_reduce_reach_every_root_of_every_node_each_rank_in_place_or_not() {
    for hosts in PLACES {
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
fn what_all_ranks_give_and_get_reaches_them_wherever_they_are() {
    for hosts in PLACES {
        on_hosts(hosts, |rank, on| {
            let (rank, world) = (rank as usize, hosts.len());
            for count in [3, 70_001] {
                let whole = block(rank as u32, 0..world * count);
                let own = &whole[..count];
                let from = |peer: usize, blocks: std::ops::Range<usize>| {
                    block(peer as u32, blocks.start * count..blocks.end * count)
                };
                let sum = |blocks: std::ops::Range<usize>| -> Vec<u32> {
                    let sum = |at| (0..world).map(|rank| element(rank as u32, at)).sum::<u32>();
                    (blocks.start * count..blocks.end * count).map(sum).collect()
                };
                let mut small = vec![7; count];
                call(on, What::AllReduce, own, &mut small, count);
                assert_eq!(small, sum(0..1), "allreduce on {hosts:?}");
                // Each rank's input times its number, and one.
                let factor = Some(Factor::Value((rank as u64 + 1).to_le_bytes()));
                let scaled = Request { factor, ..request(What::AllReduce, own, &mut small, count) };
                // SAFETY: the slices are as long as the call says, and live past it.
                unsafe { on.call(&scaled, None) }.unwrap();
                let times = |at| {
                    let times = |rank: u32| element(rank, at).wrapping_mul(rank + 1);
                    (0..world as u32).map(times).fold(0, u32::wrapping_add)
                };
                assert_eq!(small, (0..count).map(times).collect::<Vec<_>>(), "{hosts:?}");
                call(on, What::ReduceScatter, &whole, &mut small, count);
                assert_eq!(small, sum(rank..rank + 1), "reducescatter on {hosts:?}");
                let mut large = vec![7; world * count];
                call(on, What::AllGather, own, &mut large, count);
                let gathered: Vec<u32> = (0..world).flat_map(|peer| from(peer, 0..1)).collect();
                assert_eq!(large, gathered, "allgather on {hosts:?}");
                call(on, What::AllToAll, &whole, &mut large, count);
                let exchanged: Vec<u32> =
                    (0..world).flat_map(|peer| from(peer, rank..rank + 1)).collect();
                assert_eq!(large, exchanged, "alltoall on {hosts:?}");
            }
        });
    }
}

#[test]
fn gather_and_scatter_reach_every_root_of_every_node() {
    for hosts in PLACES {
        on_hosts(hosts, |rank, on| {
            let world = hosts.len();
            for (collective, count) in [(Collective::Gather, 3), (Collective::Scatter, 70_001)] {
                let bytes = (4 * world * count) as u64;
                let question = on.question(&collective, bytes, DataType::U32);
                let choice = on.explain(&question).unwrap();
                let name = choice.candidate.name();
                assert!(name.starts_with(&format!("{collective}_hierarchical_")), "{name}");
            }
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
        assert!(error.contains("plan `transfer`"), "{error}");
        let call = format!("alltoallv on rank {rank}, ");
        assert!(error.starts_with(&call) || error.contains(&format!("; {call}")), "{error}");
    });
    // Rank 2 gives more than rank 0 takes, which was to pass it on to rank 1.
    on_hosts(PLACES[1], |rank, on| {
        let mut lengths = [3; 4];
        lengths[2] += u64::from(rank == 2);
        let extents = Extent::packed(&lengths);
        let (input, mut output) = (block(rank, 0..lengths[rank as usize] as usize), vec![7; 16]);
        let buffers = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        let sizes = (input.len() as u64, output.len() as u64);
        // SAFETY: the vectors are as long as said, and live past the call.
        let called = unsafe { on.all_gather_v(buffers, sizes, &extents, DataType::U32, None) };
        let error = called.unwrap_err();
        let timed_out = matches!(error.cause(), ExecutorError::Stalled { .. });
        assert!(error.breaks_communicator() && !timed_out, "{error}");
        let text = error.to_string();
        let passed_on = "what this rank was to pass on did not come to it";
        assert!(
            text.contains("allgatherv on rank") && (rank != 1 || text.contains(passed_on)),
            "{text}"
        );
    });
    on_hosts(PLACES[0], |rank, on| {
        let outside = [Extent::packed(&[2, 2]), Extent::packed(&[2, 2])];
        let (input, mut output) = (block(rank, 0..3), vec![7; 4]);
        let error = all_to_all_v(on, &input, &mut output, &outside).unwrap_err();
        assert!(matches!(error, ExecutorError::Counts { .. }), "{error}");
    });
}

#[test]
fn errors_of_transfers_name_the_call_and_the_ranks_as_their_caller_knows_them() {
    // Ranks 1 and 3 are ranks 0 and 1 of their pair, which others need not know.
    on_hosts(PLACES[1], |rank, on| {
        let (input, mut output) = (block(rank, 0..8), vec![7; 32]);
        let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        let error = match rank {
            // SAFETY: the vectors are as long as said, and live past the call.
            1 => unsafe { on.send(from, 3, DataType::U32, 3, None) },
            // SAFETY: as above.
            3 => unsafe { on.receive(to, 4, DataType::U32, 1, None) },
            _ => return,
        };
        let error = error.unwrap_err();
        let (what, peer) = if rank == 1 { ("send", 3) } else { ("receive", 1) };
        let named = match &error {
            ExecutorError::Transfer { what, rank, peer, .. } => (*what, *rank, *peer),
            other => panic!("{other}"),
        };
        assert_eq!(named, (what, rank, peer), "{error}");
        let kinds = matches!(
            error.cause(),
            ExecutorError::Mismatch { rank: own, peer: other, .. } if (*own, *other) == (rank, peer)
        ) || matches!(error.cause(), ExecutorError::Aborted { by, .. } if *by == peer);
        let text = error.to_string();
        assert!(kinds && error.breaks_communicator(), "{text}");
        assert!(!text.contains("rank 0") && !text.contains("rank 2"), "{text}");
        assert!(text.contains("12 bytes in") && text.contains("16 bytes in"), "{text}");
        // None where the peer gave up while this rank was still on its way to it.
        if let Some(failure) = on.failure() {
            assert!(failure.to_string().starts_with(what), "{failure}");
        }
    });
}

/// The collectives of ranks on these hosts, for one thread to drive them all.
fn driven(hosts: &[&str]) -> Vec<Collectives> {
    let options = Options::default().with_timeout(Some(Duration::from_secs(30)));
    let ranks = Communicator::in_process_on(hosts, &options).unwrap();
    ranks.iter().map(|rank| Collectives::new(rank).unwrap()).collect()
}

#[test]
fn a_call_on_a_stream_does_not_wait_for_peers_that_have_not_called() {
    for hosts in PLACES.into_iter().chain([&["a", "a", "a"][..]]) {
        let ranks = driven(hosts);
        let world = ranks.len();
        let streams: Vec<_> = ranks.iter().map(|on| on.communicator().stream().unwrap()).collect();
        let inputs: Vec<_> = (0..world as u32).map(|rank| block(rank, 0..9)).collect();
        let mut received = vec![vec![7; 9]; world];
        let mut all = vec![vec![7; 9 * world]; world];
        let mut exchanged = vec![vec![7; 3 * world]; world];
        let threes = Extent::packed(&vec![3; world]);
        let same = vec![Extent::new(0, 3); world];
        let dtype = DataType::U32;
        // Rank by rank, by a thread that would wait for its own later calls; twice, so that some find pairs being formed.
        for (rank, on) in ranks.iter().enumerate() {
            let stream = Some(&streams[rank]);
            let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);
            for _ in 0..2 {
                let gather = request(What::Gather { root: 0 }, &inputs[rank], &mut all[rank], 9);
                // SAFETY: the vectors are as long as said, and live until the streams are synchronised.
                unsafe {
                    on.call(&gather, stream).unwrap();
                    let from: *const u8 = inputs[rank].as_ptr().cast();
                    let counts = Counts { send: &same, receive: &threes };
                    let buffers = (from, exchanged[rank].as_mut_ptr().cast());
                    let sizes = (9, 3 * world as u64);
                    on.all_to_all_v(buffers, sizes, counts, dtype, stream).unwrap();
                    let to = received[rank].as_mut_ptr().cast();
                    let mut both = Group::new();
                    both.send(on, from, 9, dtype, next as u32, stream).unwrap();
                    both.receive(on, to, 9, dtype, previous as u32, stream).unwrap();
                    both.end().unwrap();
                }
            }
        }
        for (rank, on) in ranks.iter().enumerate() {
            on.executor().synchronize(&streams[rank]).unwrap();
            assert_eq!(received[rank], inputs[(rank + world - 1) % world], "{rank}");
        }
        assert_eq!(all[0], inputs.concat());
        let firsts: Vec<u32> = inputs.iter().flat_map(|input| input[..3].to_vec()).collect();
        assert!(exchanged.iter().all(|blocks| *blocks == firsts), "{hosts:?}");
    }
}

#[test]
fn sends_and_receives_on_streams_come_in_their_order_whenever_their_pair_is_formed() {
    let ranks = driven(&["a", "b"]);
    let streams: Vec<_> = ranks.iter().map(|on| on.communicator().stream().unwrap()).collect();
    let sent: Vec<Vec<u32>> = (0..20).map(|turn| block(turn, 0..5)).collect();
    let mut received = vec![vec![7; 5]; 20];
    for (sent, received) in sent.iter().zip(&mut received) {
        // SAFETY: the vectors are as long as said, and live until the streams are synchronised.
        unsafe {
            let dtype = DataType::U32;
            ranks[0].send(sent.as_ptr().cast(), 5, dtype, 1, Some(&streams[0])).unwrap();
            let to = received.as_mut_ptr().cast();
            ranks[1].receive(to, 5, dtype, 0, Some(&streams[1])).unwrap();
        }
    }
    for (on, stream) in ranks.iter().zip(&streams) {
        on.executor().synchronize(stream).unwrap();
    }
    assert_eq!(received, sent);
}

#[test]
fn a_stream_tells_of_a_peer_that_never_comes_and_an_abort_ends_its_wait() {
    let options = Options::default().with_timeout(Some(Duration::from_millis(200)));
    let ranks = Communicator::in_process_on(&["a", "b", "b"], &options).unwrap();
    let on = Collectives::new(&ranks[0]).unwrap();
    let stream = ranks[0].stream().unwrap();
    let input = block(0, 0..3);
    // SAFETY: the vector is as long as said, and lives until the stream is synchronised.
    unsafe { on.send(input.as_ptr().cast(), 3, DataType::U32, 2, Some(&stream)) }.unwrap();
    let error = on.executor().synchronize(&stream).unwrap_err().to_string();
    assert!(error.starts_with("send on rank 0, to rank 2: "), "{error}");
    assert!(error.contains("no answer within 200ms from rank 2"), "{error}");

    let ranks = driven(&["a", "b", "b"]);
    let stream = ranks[0].communicator().stream().unwrap();
    // SAFETY: as above.
    unsafe { ranks[0].send(input.as_ptr().cast(), 3, DataType::U32, 2, Some(&stream)) }.unwrap();
    ranks[0].abort("enough");
    let error = ranks[0].executor().synchronize(&stream).unwrap_err().to_string();
    assert!(error.contains("enough"), "{error}");
}

#[test]
fn inputs_of_any_length_go_to_every_rank_each_in_place_or_not() {
    // On one node, and where several ranks of several nodes pass blocks on.
    let further: [&[&str]; 4] = [
        &["a", "a", "a"],
        &["a"],
        &["a", "a", "a", "b", "b", "b"],
        &["a", "a", "b", "b", "c", "c"],
    ];
    for hosts in PLACES.into_iter().chain(further) {
        on_hosts(hosts, |rank, on| {
            let world = hosts.len() as u32;
            let stream = on.communicator().stream().unwrap();
            let lengths: Vec<usize> = (0..world).map(|from| count(from, 0)).collect();
            // One element lies between the blocks, which nobody touches.
            let starts =
                (0..world as usize).map(|from| lengths[..from].iter().sum::<usize>() + from);
            let extents: Vec<Extent> = starts
                .zip(&lengths)
                .map(|(start, &count)| Extent::new(start as u64, count as u64))
                .collect();
            let whole = lengths.iter().sum::<usize>() + world as usize;
            let mut expected = vec![7; whole];
            for (from, extent) in (0..).zip(&extents) {
                let end = (extent.offset + extent.count) as usize;
                expected[extent.offset as usize..end]
                    .copy_from_slice(&block(from, 0..extent.count as usize));
            }
            let input = block(rank, 0..lengths[rank as usize]);
            // What a rank gives is as long as its own block: known before anything is launched.
            let more = vec![0_u32; input.len() + 1];
            let mut output = vec![7_u32; whole];
            let buffers = (more.as_ptr().cast(), output.as_mut_ptr().cast());
            let sizes = (more.len() as u64, whole as u64);
            // SAFETY: the vectors are as long as said, and live past the call.
            let error = unsafe { on.all_gather_v(buffers, sizes, &extents, DataType::U32, None) };
            let Err(error @ ExecutorError::Counts { .. }) = error else { panic!("{error:?}") };
            assert!(error.to_string().contains("pass equal counts"), "{error}");
            for turn in 0..4 {
                let in_place = (rank + turn) % 2 == 0;
                let mut output = vec![7; whole];
                let own = extents[rank as usize].offset as usize;
                let mut from = input.as_ptr();
                if in_place {
                    output[own..own + input.len()].copy_from_slice(&input);
                    from = output[own..].as_ptr();
                }
                let buffers = (from.cast(), output.as_mut_ptr().cast());
                let sizes = (input.len() as u64, whole as u64);
                let stream = (turn > 1).then_some(&stream);
                // SAFETY: the vectors are as long as said, and live until the call is complete.
                unsafe { on.all_gather_v(buffers, sizes, &extents, DataType::U32, stream) }
                    .unwrap();
                if let Some(stream) = stream {
                    on.executor().synchronize(stream).unwrap();
                }
                assert_eq!(output, expected, "{rank} {turn}");
            }
            // Over somebody else's block is not in place.
            if world > 1 {
                let extents = Extent::packed(&vec![2; world as usize]);
                let mut output = vec![7_u32; 2 * world as usize];
                let to: *mut u8 = output.as_mut_ptr().cast();
                let other = &extents[(rank as usize + 1) % world as usize];
                let at = to.wrapping_add(other.offset as usize * 4).cast_const();
                let sizes = (other.count, output.len() as u64);
                // SAFETY: both lie in the vector, and the call is refused.
                let error =
                    unsafe { on.all_gather_v((at, to), sizes, &extents, DataType::U32, None) };
                let Err(error @ ExecutorError::Counts { .. }) = error else { panic!("{error:?}") };
                assert!(error.to_string().contains("share memory"), "{error}");
            }
        });
    }
}
