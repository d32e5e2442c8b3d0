//! Groups of calls, transfers between ranks, premultiplied sums, and communicators of some ranks.

use crate::support::requests::sum;
use crate::support::threads;
use antiphon_executor::{
    Collectives, Communicator, Counts, DataType, ExecutorError, Extent, Factor, Group, Options,
    ReduceOp, Request, UniqueId, What,
};
use std::sync::Barrier;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, ExecutorError>;

fn ranks(world: u32) -> Vec<Collectives> {
    let options = Options::default().with_timeout(Some(Duration::from_secs(20)));
    let ends = Communicator::in_process(world, &options).unwrap();
    ends.iter().map(|end| Collectives::new(end).unwrap()).collect()
}

/// Runs `work` as every rank, each on a thread of its own.
fn on_threads(world: u32, work: impl Fn(u32, &Collectives) + Sync) {
    threads::on_threads(&ranks(world), |on| work(on.communicator().rank(), on));
}

/// What message `number` from one rank to another holds; some are long, and some empty.
fn message(from: u32, to: u32, number: usize) -> Vec<u32> {
    let length = [3, 0, 40_000][number];
    (0..length).map(|at| from * 1000 + to * 100 + number as u32 * 10 + at % 7).collect()
}

#[test]
fn transfers_of_a_group_may_come_in_any_order() {
    const WORLD: u32 = 4;
    on_threads(WORLD, |rank, on| {
        for round in 0..3 {
            let mut group = Group::new();
            let sent: Vec<_> =
                (0..WORLD).map(|to| [0, 1, 2].map(|number| message(rank, to, number))).collect();
            let mut received: Vec<_> = (0..WORLD)
                .map(|_| [0, 1, 2].map(|number| vec![9u32; message(0, 0, number).len()]))
                .collect();
            // Rank 0 sends first, others receive first, and each goes round in another direction. Itself is a peer, too.
            let peers = (0..WORLD).map(|step| (rank + step * (1 + 2 * (rank % 2))) % WORLD);
            for peer in peers {
                for kind in if rank == round { [0, 1] } else { [1, 0] } {
                    for number in 0..3 {
                        let (from, to) =
                            (&sent[peer as usize][number], &mut received[peer as usize][number]);
                        let (count, dtype) = (from.len() as u64, DataType::U32);
                        // SAFETY: the vectors are as long, and live until the group has ended.
                        unsafe {
                            if kind == 0 {
                                let from = from.as_ptr().cast();
                                group.send(on, from, count, dtype, peer, None).unwrap();
                            } else {
                                let to = to.as_mut_ptr().cast();
                                group.receive(on, to, count, dtype, peer, None).unwrap();
                            }
                        }
                    }
                }
            }
            group.end().unwrap();
            for (peer, got) in (0..).zip(&received) {
                for (number, got) in got.iter().enumerate() {
                    assert_eq!(*got, message(peer, rank, number), "{peer} to {rank}: {number}");
                }
            }
        }
    });
}

#[test]
fn transfers_of_several_streams_come_in_the_order_in_which_they_were_gathered() {
    on_threads(2, |rank, on| {
        let streams = [(); 2].map(|()| on.communicator().stream().unwrap());
        // Ranks take streams in turns of their own, and now and then none.
        let stream = |number: usize| match number % 3 {
            0 => Some(&streams[rank as usize]),
            1 => Some(&streams[1 - rank as usize]),
            _ => None,
        };
        let sent: Vec<u32> = (0..12).map(|number| 100 * rank + number).collect();
        let mut received = [0u32; 12];
        let (mut group, peer) = (Group::new(), 1 - rank);
        for (number, (from, to)) in sent.iter().zip(&mut received).enumerate() {
            let (from, to) = (std::ptr::from_ref(from).cast(), std::ptr::from_mut(to).cast());
            // SAFETY: both are one element, and live until the streams are through.
            unsafe {
                group.send(on, from, 1, DataType::U32, peer, stream(number)).unwrap();
                let stream = stream(number * (1 + rank as usize));
                group.receive(on, to, 1, DataType::U32, peer, stream).unwrap();
            }
        }
        group.end().unwrap();
        streams.iter().for_each(|stream| on.executor().synchronize(stream).unwrap());
        let expected: Vec<u32> = (0..12).map(|number| 100 * peer + number).collect();
        assert_eq!(received[..], expected);
    });
}

#[test]
fn transfers_go_through_whichever_collectives_of_a_communicator_each_rank_makes() {
    let options = Options::default().with_timeout(Some(Duration::from_secs(20)));
    let ends = Communicator::in_process(2, &options).unwrap();
    let second_is_through = Barrier::new(2);
    threads::on_threads(&ends, |end| {
        let (rank, peer) = (end.rank(), 1 - end.rank());
        let kept = Collectives::new(end).unwrap();
        for round in 0..50u32 {
            // Rank 0 takes new ones each time, and drops them before rank 1 is through; rank 1 has two in turn.
            let made = Collectives::new(end).unwrap();
            let on = if rank == 1 && round % 3 > 0 { &kept } else { &made };
            let (sent, mut got) = (round * 10 + rank, 0u32);
            // SAFETY: both are one element, and live past the calls.
            unsafe {
                if rank == 0 {
                    on.send((&raw const sent).cast(), 1, DataType::U32, peer, None).unwrap();
                    on.receive((&raw mut got).cast(), 1, DataType::U32, peer, None).unwrap();
                } else {
                    on.receive((&raw mut got).cast(), 1, DataType::U32, peer, None).unwrap();
                    on.send((&raw const sent).cast(), 1, DataType::U32, peer, None).unwrap();
                }
            }
            assert_eq!(got, round * 10 + peer);
            if rank == 0 {
                drop(made);
                second_is_through.wait();
            } else {
                second_is_through.wait();
                drop(made);
            }
        }
    });
}

#[test]
fn transfers_of_a_group_keep_their_order_through_several_collectives_of_a_communicator() {
    let options = Options::default().with_timeout(Some(Duration::from_secs(20)));
    let ends = Communicator::in_process(2, &options).unwrap();
    threads::on_threads(&ends, |end| {
        let (rank, peer) = (end.rank(), 1 - end.rank());
        let made = [(); 2].map(|()| Collectives::new(end).unwrap());
        // Whichever lies first in memory, one of these goes by the other first. The second round sends to the rank itself.
        for (round, first) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let sent = [10 * rank + 1, 10 * rank + 2];
            let (mut got, mut group) = ([0u32; 2], Group::new());
            for at in 0..2 {
                let (sends, receives) = (&made[(first + at) % 2], &made[(first + at + round) % 2]);
                let to = if round == 0 { peer } else { rank };
                // SAFETY: both are one element, and live until the group has ended.
                unsafe {
                    let from = (&raw const sent[at]).cast();
                    group.send(sends, from, 1, DataType::U32, to, None).unwrap();
                    let into = (&raw mut got[at]).cast();
                    group.receive(receives, into, 1, DataType::U32, to, None).unwrap();
                }
            }
            group.end().unwrap();
            let from = if round == 0 { peer } else { rank };
            assert_eq!(got, [10 * from + 1, 10 * from + 2], "round {round}, first {first}");
        }
    });
}

#[test]
fn one_thread_drives_many_ranks_and_communicators() {
    const WORLD: usize = 3;
    let (first, second) = (ranks(WORLD as u32), ranks(WORLD as u32));
    for streams in [false, true] {
        let inputs: Vec<Vec<f32>> = (0..WORLD).map(|rank| vec![rank as f32 + 1.; 5000]).collect();
        let mut sums = vec![vec![vec![0f32; 5000]; WORLD]; 3];
        let mut passed = [[0u64; 2]; WORLD];
        let words: Vec<[u64; 2]> = (0..WORLD as u64).map(|rank| [rank, 10 + rank]).collect();
        let queues: Vec<_> = first.iter().map(|on| on.communicator().stream().unwrap()).collect();
        let mut group = Group::new();
        for rank in 0..WORLD {
            let stream = streams.then_some(&queues[rank]);
            let (next, previous) = ((rank + 1) % WORLD, (rank + WORLD - 1) % WORLD);
            let (from, to) = (words[rank].as_ptr().cast(), passed[rank].as_mut_ptr().cast());
            // SAFETY: all buffers are as long as said, and live until all is done.
            unsafe {
                for (number, on) in [&first, &second, &first].into_iter().enumerate() {
                    let request = sum(&inputs[rank], &mut sums[number][rank]);
                    group.call(&on[rank], &request, stream).unwrap();
                }
                group.receive(&first[rank], to, 2, DataType::U64, previous as u32, stream).unwrap();
                group.send(&first[rank], from, 2, DataType::U64, next as u32, stream).unwrap();
            }
        }
        assert!(!group.is_empty());
        group.end().unwrap();
        if streams {
            for (on, queue) in first.iter().zip(&queues) {
                on.executor().synchronize(queue).unwrap();
            }
        }
        for rank in 0..WORLD {
            assert!(sums.iter().all(|of| of[rank].iter().all(|&sum| sum == 6.)), "rank {rank}");
            assert_eq!(passed[rank], words[(rank + WORLD - 1) % WORLD], "rank {rank}");
        }
    }
}

#[test]
fn what_one_rank_groups_others_may_call_one_by_one() {
    on_threads(3, |rank, on| {
        let word = [u64::from(rank)];
        let mut got = [99u64];
        let (mut total, own) = ([0f32; 2], [1f32; 2]);
        let (from, to) = (word.as_ptr().cast(), got.as_mut_ptr().cast());
        let request = sum(&own, &mut total);
        // Rank 0 waits for rank 2, which waits for rank 1, which waits for rank 0.
        // SAFETY: all buffers are as long as said, and live until the calls are complete.
        unsafe {
            match rank {
                0 => {
                    let mut group = Group::new();
                    group.call(on, &request, None).unwrap();
                    group.receive(on, to, 1, DataType::U64, 2, None).unwrap();
                    group.send(on, from, 1, DataType::U64, 1, None).unwrap();
                    group.end().unwrap();
                }
                _ => {
                    on.call(&request, None).unwrap();
                    on.receive(to, 1, DataType::U64, rank - 1, None).unwrap();
                    on.send(from, 1, DataType::U64, (rank + 1) % 3, None).unwrap();
                }
            }
        }
        assert_eq!((got[0], total), (u64::from((rank + 2) % 3), [3f32; 2]));
    });
}

#[test]
fn a_rank_that_sends_to_itself_receives_as_much_or_nothing_is_launched() {
    let on = &ranks(1)[0];
    let (from, mut to) = ([5u8, 6], [0u8; 2]);
    let attempt = |received: &[u64], to: &mut [u8; 2]| {
        let mut group = Group::new();
        // SAFETY: the arrays have two elements each, and outlive the group.
        unsafe {
            group.send(on, from.as_ptr(), 2, DataType::U8, 0, None)?;
            for &count in received {
                group.receive(on, to.as_mut_ptr(), count, DataType::U8, 0, None)?;
            }
        }
        group.end()
    };
    for (received, saw) in [(&[][..], "1 sends and 0 receives"), (&[1], "2 of u8 for 1 of u8")] {
        let error = attempt(received, &mut to).unwrap_err().to_string();
        assert!(error.contains(saw), "{error}");
    }
    assert_eq!(to, [0, 0]);
    attempt(&[2], &mut to).unwrap();
    assert_eq!(to, from);
}

#[test]
fn what_is_wrong_with_a_call_is_told_when_it_is_gathered() {
    let on = &ranks(2)[0];
    let mut group = Group::new();
    let null = std::ptr::null_mut();
    // SAFETY: none of these is launched.
    unsafe {
        let send = |group: &mut Group, count, peer| {
            group.send(on, null, count, DataType::F32, peer, None).unwrap_err().to_string()
        };
        assert!(send(&mut group, 1, 1).contains("null for a send buffer"));
        assert!(send(&mut group, 0, 2).contains("rank 2 of 2"));
        assert!(send(&mut group, u64::MAX, 1).contains("address space"));
        let (odd, mut room) = (std::ptr::without_provenance::<u8>(6), [0f32; 2]);
        let error = group.send(on, odd, 1, DataType::F32, 1, None).unwrap_err().to_string();
        assert!(error.contains("address 0x6"), "{error}");
        let unaligned = Request { input: odd, count: 1, ..sum(&room, &mut [0f32; 2]) };
        let error = group.call(on, &unaligned, None).unwrap_err().to_string();
        assert!(error.contains("address 0x6"), "{error}");
        let (far, none) = (Extent { offset: 9, count: 9 }, Extent::default());
        let counts = Counts { send: &[far, none], receive: &[none, none] };
        let (from, to) = (room.as_ptr().cast(), room.as_mut_ptr().cast());
        assert!(group.all_to_all_v(on, (from, to), (2, 2), counts, DataType::F32, None).is_err());
        let root = Request { what: What::Gather { root: 7 }, ..sum::<f32>(&[], &mut []) };
        assert!(group.call(on, &root, None).unwrap_err().to_string().contains("rank 7"));
        let factor = Some(Factor::Value([0; 8]));
        let product = Request { op: ReduceOp::Prod, factor, ..sum::<f32>(&[], &mut []) };
        assert!(group.call(on, &product, None).unwrap_err().to_string().contains("prod"));
        let gather = Request { what: What::AllGather, factor, ..sum::<f32>(&[], &mut []) };
        assert!(group.call(on, &gather, None).unwrap_err().to_string().contains("does not sum"));
        let nowhere = Request { factor: Some(Factor::At(null)), ..sum::<f32>(&[], &mut []) };
        assert!(on.call(&nowhere, None).unwrap_err().to_string().contains("factor"));
    }
    assert!(group.is_empty());
    group.end().unwrap();
}

#[test]
fn sums_of_products_have_a_factor_for_each_rank() {
    const WORLD: u32 = 3;
    on_threads(WORLD, |rank, on| {
        let factor = 0.5 * (rank + 1) as f32;
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&factor.to_le_bytes());
        let input: Vec<f32> = (0..33).map(|at| (at * (rank + 1)) as f32).collect();
        let expected = |at: usize| (0.5 + 2. + 4.5) * at as f32;
        let place = std::ptr::from_ref(&factor).cast();
        for factor in [Factor::Value(bytes), Factor::At(place)] {
            for (what, grouped) in [
                (What::AllReduce, false),
                (What::AllReduce, true),
                (What::ReduceScatter, false),
                (What::ReduceScatter, true),
                (What::Reduce { root: 1 }, true),
            ] {
                let stream = on.communicator().stream().unwrap();
                let count = if what == What::ReduceScatter { 11 } else { 33 };
                let first = if what == What::ReduceScatter { 11 * rank as usize } else { 0 };
                let mut output = vec![-1f32; count];
                let factor = Some(factor);
                let request = sum(&input, &mut output);
                let request = Request { what, count: count as u64, factor, ..request };
                // SAFETY: the buffers are as long as said, and live until the calls are complete.
                unsafe {
                    if grouped {
                        let mut group = Group::new();
                        group.call(on, &request, Some(&stream)).unwrap();
                        group.end().unwrap();
                    } else {
                        on.call(&request, Some(&stream)).unwrap();
                    }
                }
                on.executor().synchronize(&stream).unwrap();
                for (at, &got) in output.iter().enumerate() {
                    let nothing = what == What::Reduce { root: 1 } && rank != 1;
                    let right = if nothing { -1. } else { expected(first + at) };
                    assert_eq!(got, right, "{what:?} rank {rank} element {at}");
                }
                assert_eq!(input[2], 2. * (rank + 1) as f32, "inputs stay as they are");
            }
            // In place.
            let mut both = input.clone();
            let at = both.as_mut_ptr();
            let request = Request { input: at.cast(), output: at.cast(), ..sum(&input, &mut both) };
            // SAFETY: as above.
            unsafe { on.call(&Request { factor: Some(factor), ..request }, None).unwrap() };
            let wrong = both.iter().enumerate().find(|&(at, &got)| got != expected(at));
            assert_eq!(wrong, None, "in place, rank {rank}");
        }
    });
}

#[test]
fn blocks_of_own_lengths_go_with_a_group() {
    on_threads(2, |rank, on| {
        let send = Extent::packed(&[1, 2]);
        let receive = Extent::packed(&[u64::from(rank) + 1; 2]);
        let (input, mut output) = ([rank, 10 + rank, 20 + rank], [99u32; 4]);
        let mut group = Group::new();
        let counts = Counts { send: &send, receive: &receive };
        let buffers = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: the arrays are as long as said, and outlive the group.
        unsafe {
            let sizes = (3, 2 * (u64::from(rank) + 1));
            group.all_to_all_v(on, buffers, sizes, counts, DataType::U32, None).unwrap();
        }
        group.end().unwrap();
        let expected = if rank == 0 { [0, 1, 99, 99] } else { [10, 20, 11, 21] };
        assert_eq!(output, expected);
    });
}

#[test]
fn some_ranks_go_on_when_a_communicator_is_broken() {
    on_threads(4, |rank, on| {
        if rank == 2 {
            on.abort("out of order");
            return;
        }
        for (round, ranks) in [[0, 1, 3], [3, 1, 0], [0, 1, 3]].iter().enumerate() {
            let some = on.communicator().subset(ranks).unwrap();
            assert_eq!(ranks[some.rank() as usize], rank);
            let some = Collectives::new(&some).unwrap();
            let mut total = [0f32];
            // SAFETY: the arrays have one element, and outlive the call.
            unsafe { some.call(&sum(&[rank as f32 + round as f32], &mut total), None).unwrap() };
            assert_eq!(total, [4. + 3. * round as f32]);
        }
        for (ranks, saw) in
            [(&[1, 1, rank][..], "twice"), (&[rank, 4], "rank 4 of 4"), (&[2], "without")]
        {
            let error = on.communicator().subset(ranks).unwrap_err().to_string();
            assert!(error.contains(saw), "{error}");
        }
    });
}

#[test]
fn an_abort_of_this_ranks_ends_a_subset_whose_ranks_do_not_come() {
    on_threads(3, |rank, on| {
        if rank != 0 {
            return;
        }
        let communicator = on.communicator();
        let error = std::thread::scope(|scope| {
            let subset = scope.spawn(|| communicator.subset(&[0, 1]));
            // Until it is seen: it may not have begun yet.
            while !subset.is_finished() {
                communicator.abort("enough");
                std::thread::yield_now();
            }
            subset.join().unwrap().unwrap_err()
        });
        assert!(error.to_string().contains("enough"), "{error}");
    });
}

/// Rank 1 comes to what rank 0 has given up, and then both come to it.
#[test]
fn a_subset_that_some_have_given_up_can_be_made_again() {
    let options = Options::default().with_timeout(Some(Duration::from_secs(5)));
    let given_up_and_made = |hosts: [&str; 2]| {
        let ends = Communicator::in_process_on(&hosts, &options).unwrap();
        let given_up = Barrier::new(2);
        threads::on_threads(&ends, |on| {
            if on.rank() == 0 {
                let text = on.subset(&[0, 1]).unwrap_err().to_string();
                assert!(text.contains("rank 1"), "{text}");
            }
            given_up.wait();
            let subset = on.subset(&[0, 1]).unwrap();
            assert_eq!(subset.exchange(&[on.rank() as u8]).unwrap(), [[0], [1]]);
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| given_up_and_made(["a", "a"]));
        scope.spawn(|| given_up_and_made(["a", "b"]));
    });
}

#[test]
fn an_abort_ends_the_wait_for_the_first_transfer() {
    on_threads(2, |rank, on| {
        if rank == 1 {
            on.abort("enough");
            return;
        }
        let outcome: Result<()> = {
            let mut group = Group::new();
            // SAFETY: nothing is sent.
            unsafe { group.send(on, std::ptr::null(), 0, DataType::F32, 1, None).unwrap() };
            group.end()
        };
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("enough") || error.contains("abort"), "{error}");
    });
}

#[test]
fn an_abort_ends_a_transfer_between_ranks_that_have_made_one() {
    let by_either: [fn(&Collectives); 2] =
        [|on| on.abort("enough"), |on| on.communicator().abort("enough")];
    for abort in by_either {
        let began = Instant::now();
        on_threads(2, |rank, on| {
            let mut byte = 7u8;
            if rank == 1 {
                // SAFETY: the byte outlives the call.
                unsafe { on.send(&byte, 1, DataType::U8, 0, None).unwrap() };
                abort(on);
                return;
            }
            // SAFETY: as above. What is to come after the first never does.
            let mut receive = || unsafe { on.receive(&mut byte, 1, DataType::U8, 1, None) };
            let error = receive().and_then(|()| receive()).unwrap_err().to_string();
            assert!(error.contains("enough"), "{error}");
        });
        // Calls may wait as long.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

#[test]
fn a_rank_that_waits_for_a_first_transfer_hears_another_ranks_abort() {
    for _ in 0..20 {
        let began = Instant::now();
        let begins = Barrier::new(2);
        on_threads(3, |rank, on| match rank {
            1 => {
                let mut byte = 0u8;
                begins.wait();
                // SAFETY: the byte outlives the call. Rank 0 never comes.
                let error = unsafe { on.receive(&mut byte, 1, DataType::U8, 0, None) };
                let text = error.unwrap_err().to_string();
                assert!(text.contains("enough") && text.contains("rank 2"), "{text}");
            }
            2 => {
                begins.wait();
                on.abort("enough");
            }
            _ => {}
        });
        // Calls may wait as long.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

#[test]
fn a_first_receive_waits_as_long_as_calls_do_however_long_ranks_may_take_to_meet() {
    // Ranks that meet by an id may take two minutes at the least.
    let id = UniqueId::create(None).unwrap();
    let options = Options::default().with_timeout(Some(Duration::from_secs(5)));
    let (began, over) = (Instant::now(), Barrier::new(2));
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (id, options, over) = (&id, &options, &over);
            scope.spawn(move || {
                let end = Communicator::from_id(id, rank, 2, options).unwrap();
                let on = Collectives::new(&end).unwrap();
                let result = (rank == 0).then(|| {
                    let mut byte = 0u8;
                    // SAFETY: the byte outlives the call. Rank 1 never sends it.
                    unsafe { on.receive(&mut byte, 1, DataType::U8, 1, None) }
                });
                over.wait();
                let Some(result) = result else { return };
                let text = result.unwrap_err().to_string();
                let start = "receive on rank 0, from rank 1: ";
                assert!(text.starts_with(start) && text.contains("5s"), "{text}");
            });
        }
    });
    assert!(began.elapsed() < Duration::from_secs(100), "{:?}", began.elapsed());
}

#[test]
fn of_two_ranks_that_did_not_find_each_other_for_a_transfer_both_are_told() {
    let options = Options::default().with_timeout(Some(Duration::from_secs(1)));
    let ranks = Communicator::in_process(2, &options).unwrap();
    let [early, late] = [0, 1].map(|rank: usize| Collectives::new(&ranks[rank]).unwrap());
    let mut byte = 0u8;
    // SAFETY: the byte outlives the call. Nobody sends it.
    let mut receive = || unsafe { early.receive(&mut byte, 1, DataType::U8, 1, None) };
    let first = receive().unwrap_err().to_string();
    assert!(first.contains("no answer within 1s from rank 1"), "{first}");
    // Its other half may be on its way, and is not to be that of another receive.
    assert_eq!(receive().unwrap_err().to_string(), first);
    assert_eq!(early.failure().unwrap().to_string(), first);
    // SAFETY: as above.
    let text = unsafe { late.send(&7u8, 1, DataType::U8, 0, None) }.unwrap_err().to_string();
    assert!(text.contains("aborted by rank 0") && text.contains("no answer within 1s"), "{text}");
}
