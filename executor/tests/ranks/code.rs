//! Code that serves calls in which ranks have buffers of their own kinds and blocks of their own lengths.

use crate::support::requests::request;
use crate::support::threads::on_threads;
use antiphon_executor::plan::model::Collective;
use antiphon_executor::{
    Code, CodeCall, Collectives, Communicator, Counts, DataType, ExecutorError, Extent, Group,
    Options, Registry, Terms, What,
};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

type Result<T = ()> = std::result::Result<T, ExecutorError>;

/// Runs `work` as each of two ranks of these hosts, on a thread of its own.
fn on_ranks<T: Send>(
    hosts: [&str; 2],
    registry: &Registry,
    work: impl Fn(u32, &Collectives) -> T + Sync,
) -> Vec<T> {
    let options = Options::default().with_timeout(Some(Duration::from_secs(20)));
    let options = options.with_registry(registry.clone());
    let ends = Communicator::in_process_on(&hosts, &options).unwrap();
    let ends: Vec<_> = ends.iter().map(|end| Collectives::new(end).unwrap()).collect();
    on_threads(&ends, |on| {
        let done = work(on.communicator().rank(), on);
        on.communicator().barrier().unwrap();
        done
    })
}

/// Moves the blocks of a collective with a root, and whole inputs, through the bootstrap; it sums nothing.
struct Exchanging(Collective);

impl Code for Exchanging {
    fn collective(&self) -> Collective {
        self.0.clone()
    }

    unsafe fn run(&self, call: &CodeCall<'_>) -> Result {
        let communicator = call.executor.communicator();
        let (rank, root) = (communicator.rank(), call.root as usize);
        // A rank with no part in a buffer is given none of it.
        let (block, whole) = (8, 16);
        let expected = match (&self.0, rank == call.root) {
            (Collective::Reduce, true) => (block, block),
            (Collective::Gather, true) => (block, whole),
            (Collective::Reduce | Collective::Gather, false) => (block, 0),
            (Collective::Scatter, true) => (whole, block),
            _ => (0, block),
        };
        assert_eq!((call.input_bytes, call.output_bytes), expected, "rank {rank}");
        assert!(!call.in_place);
        // SAFETY: the send buffer is as long, and nobody writes it now.
        let input = unsafe { std::slice::from_raw_parts(call.input, call.input_bytes as usize) };
        let all = communicator.exchange(input)?;
        let output: Vec<u8> = match self.0 {
            Collective::Gather => all.concat(),
            Collective::Scatter => {
                all[root].chunks(block as usize).nth(rank as usize).unwrap().to_vec()
            }
            _ => all[1].clone(),
        };
        let length = call.output_bytes as usize;
        // SAFETY: the receive buffer is as long, and nobody else touches it now.
        unsafe { std::ptr::copy(output.as_ptr(), call.output, length) };
        Ok(())
    }
}

#[test]
fn code_for_collectives_with_a_root_has_the_buffers_that_ranks_have_a_part_in() {
    let codes = [Collective::Reduce, Collective::Gather, Collective::Scatter];
    for (collective, root) in codes.into_iter().flat_map(|one| [(one.clone(), 0), (one, 1)]) {
        let registry = Registry::new();
        let code = Arc::new(Exchanging(collective.clone()));
        registry.register_code("exchanging", 1, code, Terms::default()).unwrap();
        let what = match collective {
            Collective::Reduce => What::Reduce { root },
            Collective::Gather => What::Gather { root },
            _ => What::Scatter { root },
        };
        let found = on_ranks(["a"; 2], &registry, |rank, on| {
            let (input, mut output) = ([10 * rank, 1, 10 * rank + 2, 3], [7; 4]);
            // SAFETY: both are as long as the larger buffer, and outlive the call.
            unsafe { on.call(&request(what, &input, &mut output, 2), None).unwrap() };
            let question = on.question(&collective, 16, DataType::U32);
            assert_eq!(on.explain(&question).unwrap().candidate.name(), "exchanging");
            output
        });
        let untouched = [7; 4];
        let expected = match collective {
            Collective::Reduce => [[10, 1, 7, 7]; 2],
            Collective::Gather => [[0, 1, 10, 1]; 2],
            // Of the root's.
            _ => [[10 * root, 1, 7, 7], [10 * root + 2, 3, 7, 7]],
        };
        let has_part = |rank: usize| collective == Collective::Scatter || rank == root as usize;
        for (rank, found) in found.into_iter().enumerate() {
            let expected = if has_part(rank) { expected[rank] } else { untouched };
            assert_eq!(found, expected, "{collective} from {root}: rank {rank}");
        }
    }
}

/// Moves blocks of lengths of their own through the bootstrap, and counts its calls.
struct Moving {
    collective: Collective,
    calls: AtomicU32,
}

impl Code for Moving {
    fn collective(&self) -> Collective {
        self.collective.clone()
    }

    unsafe fn run(&self, call: &CodeCall<'_>) -> Result {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let communicator = call.executor.communicator();
        let Counts { send, receive } = call.counts.unwrap();
        let element = call.dtype.size();
        let bytes = |block: &Extent| {
            let begin = block.offset as usize * element;
            begin..begin + block.count as usize * element
        };
        // SAFETY: the send buffer is as long, and nobody writes it now.
        let input = unsafe { std::slice::from_raw_parts(call.input, call.input_bytes as usize) };
        // What goes to each rank, with its length before it.
        let mut parcel = Vec::new();
        for to in 0..communicator.world() as usize {
            let block = &input[bytes(send.get(to).unwrap_or(&send[0]))];
            parcel.extend(block.len().to_le_bytes());
            parcel.extend(block);
        }
        for (parcel, block) in communicator.exchange(&parcel)?.iter().zip(receive) {
            let mut rest = parcel.as_slice();
            for to in 0..=communicator.rank() {
                let (length, behind) = rest.split_first_chunk().unwrap();
                let (found, behind) = behind.split_at(usize::from_le_bytes(*length));
                rest = behind;
                if to == communicator.rank() {
                    assert_eq!(found.len(), bytes(block).len());
                    // SAFETY: the block is within the receive buffer, which nobody else touches now; in place it is the input.
                    unsafe {
                        let at = call.output.add(bytes(block).start);
                        std::ptr::copy(found.as_ptr(), at, found.len());
                    }
                }
            }
        }
        Ok(())
    }
}

/// What two ranks get by an alltoallv and by two allgathervs, of which rank 0 makes the second in place; one by one or as a group.
fn of_blocks(rank: u32, on: &Collectives, grouped: bool) -> [Vec<u32>; 3] {
    let input: Vec<u32> = (0..8).map(|at| 100 * rank + at).collect();
    let [mut all, mut gathered, mut placed] = [vec![0; 8], vec![0; 8], vec![0; 8]];
    // Rank r sends r + 2 p elements to rank p.
    let send = [Extent::new(4, rank.into()), Extent::new(0, u64::from(rank) + 2)];
    let receive = [Extent::new(5, 2 * u64::from(rank)), Extent::new(1, 1 + 2 * u64::from(rank))];
    let counts = Counts { send: &send, receive: &receive };
    let lengths = [Extent::new(0, 3), Extent::new(4, 4)];
    let own = lengths[rank as usize];
    let (at, count) = (own.offset as usize, own.count as usize);
    placed[at..at + count].copy_from_slice(&input[..count]);
    let place = placed.as_mut_ptr();
    let from = if rank == 0 { place.wrapping_add(at).cast_const() } else { input.as_ptr() };
    let bytes = |at: *const u32| at.cast::<u8>();
    let (from, input) = (bytes(from), bytes(input.as_ptr()));
    let outputs = [all.as_mut_ptr(), gathered.as_mut_ptr(), place].map(|at| at.cast::<u8>());
    let (sizes, dtype) = ((own.count, 8), DataType::U32);
    // SAFETY: all buffers are as long as said, and outlive the calls.
    unsafe {
        if grouped {
            let mut group = Group::new();
            group.all_to_all_v(on, (input, outputs[0]), (8, 8), counts, dtype, None).unwrap();
            group.all_gather_v(on, (input, outputs[1]), sizes, &lengths, dtype, None).unwrap();
            group.all_gather_v(on, (from, outputs[2]), sizes, &lengths, dtype, None).unwrap();
            group.end().unwrap();
        } else {
            on.all_to_all_v((input, outputs[0]), (8, 8), counts, dtype, None).unwrap();
            on.all_gather_v((input, outputs[1]), sizes, &lengths, dtype, None).unwrap();
            on.all_gather_v((from, outputs[2]), sizes, &lengths, dtype, None).unwrap();
        }
    }
    [all, gathered, placed]
}

#[test]
fn code_serves_blocks_of_lengths_of_their_own_on_one_node_and_over_several() {
    for (hosts, grouped) in
        [(["a", "a"], false), (["a", "b"], false), (["a", "a"], true), (["a", "b"], true)]
    {
        let run = |registry: &Registry| {
            on_ranks(hosts, registry, |rank, on| of_blocks(rank, on, grouped))
        };
        let registry = Registry::new();
        let expected = run(&registry);
        assert_eq!(expected[1][0], [0, 100, 101, 102, 0, 0, 1, 0], "of the test itself");
        let codes = [Collective::AllToAllV, Collective::AllGatherV].map(|collective| {
            let name = format!("moving {collective}");
            let code = Arc::new(Moving { collective, calls: AtomicU32::new(0) });
            registry.register_code(&name, 1, Arc::clone(&code) as _, Terms::default()).unwrap();
            code
        });
        assert_eq!(run(&registry), expected, "{hosts:?}, grouped {grouped}");
        let calls = codes.map(|code| code.calls.load(Ordering::Relaxed));
        assert_eq!(calls, [2, 4], "{hosts:?}, grouped {grouped}");
    }
}

#[test]
fn a_selector_may_choose_transfers_over_nodes() {
    for chosen in ["moving", "transfers"] {
        let registry = Registry::new();
        let code = Arc::new(Moving { collective: Collective::AllToAllV, calls: AtomicU32::new(0) });
        registry.register_code("moving", 1, Arc::clone(&code) as _, Terms::default()).unwrap();
        registry.set_selector(move |offer| {
            assert_eq!(offer.question.collective, &Collective::AllToAllV);
            let names: Vec<_> = offer.fitting.iter().map(|one| one.name()).collect();
            assert_eq!(names, ["moving", "transfers"]);
            Some(chosen.to_owned())
        });
        let found = on_ranks(["a", "b"], &registry, |rank, on| {
            let (input, mut output) = ([rank; 4], [9u32; 4]);
            let blocks = [Extent::new(0, 1), Extent::new(2, 1)];
            let counts = Counts { send: &blocks, receive: &blocks };
            let buffers = (input.as_ptr().cast(), output.as_mut_ptr().cast());
            // SAFETY: both are as long as said, and outlive the call.
            unsafe { on.all_to_all_v(buffers, (4, 4), counts, DataType::U32, None) }.unwrap();
            output
        });
        assert_eq!(found, [[0, 9, 1, 9]; 2]);
        let calls = if chosen == "moving" { 2 } else { 0 };
        assert_eq!(code.calls.load(Ordering::Relaxed), calls);
    }
}

thread_local! {
    /// What the selector of this rank's thread answers.
    static CHOSEN: Cell<&'static str> = const { Cell::new("") };
}

/// Each rank sends one element to every rank, by what it chooses; in a group or not, on a stream or not.
fn by(chosen: &'static str, on: &Collectives, (grouped, streamed): (bool, bool)) -> Result {
    CHOSEN.set(chosen);
    let world = on.communicator().world();
    let (input, mut output) = (vec![7u32; world as usize], vec![0u32; world as usize]);
    let blocks: Vec<_> = (0..world.into()).map(|at| Extent::new(at, 1)).collect();
    let counts = Counts { send: &blocks, receive: &blocks };
    let buffers = (input.as_ptr().cast(), output.as_mut_ptr().cast());
    let (sizes, dtype) = ((world.into(), world.into()), DataType::U32);
    let stream = on.communicator().device().stream().unwrap();
    let stream = streamed.then_some(&stream);
    // SAFETY: both are as long as said, and outlive the call, which is waited for.
    let made = unsafe {
        if grouped {
            let mut group = Group::new();
            group.all_to_all_v(on, buffers, sizes, counts, dtype, stream)?;
            group.end()
        } else {
            on.all_to_all_v(buffers, sizes, counts, dtype, stream)
        }
    };
    let waited = stream.map_or(Ok(()), |stream| on.executor().synchronize(stream));
    made.and(waited)?;
    assert_eq!(output, input);
    Ok(())
}

#[test]
fn ranks_of_which_some_choose_code_and_some_transfers_are_told_so_over_nodes() {
    let ways = [(false, false), (true, false), (false, true), (true, true)];
    for (way, coder) in ways.into_iter().flat_map(|way| [(way, 0), (way, 2)]) {
        let registry = Registry::new();
        let code = Moving { collective: Collective::AllToAllV, calls: AtomicU32::new(0) };
        registry.register_code("moving", 4, Arc::new(code), Terms::default()).unwrap();
        registry.set_selector(|_| Some(CHOSEN.get().to_owned()));
        let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
        let options = options.with_registry(registry);
        let ends = Communicator::in_process_on(&["a", "a", "b"], &options).unwrap();
        let ends: Vec<_> = ends.iter().map(|end| Collectives::new(end).unwrap()).collect();
        let errors = on_threads(&ends, |on| {
            by("transfers", on, way).unwrap();
            by("moving", on, way).unwrap();
            by("transfers", on, way).unwrap();
            // Else one that is behind may hear of the difference before.
            on.communicator().barrier().unwrap();
            let rank = on.communicator().rank();
            by(if rank == coder { "moving" } else { "transfers" }, on, way).unwrap_err()
        });
        let told = format!("by transfers, rank {coder} by code `moving` 4");
        for (rank, error) in (0..).zip(errors) {
            let text = error.to_string();
            let context = format!("{way:?}, rank {rank} of coder {coder}: {text}");
            assert!(text.contains("call 4 of those over nodes"), "{context}");
            assert!(text.contains(&told) && error.breaks_communicator(), "{context}");
            let own = matches!(error.cause(), ExecutorError::Diverged { .. });
            assert!(own || matches!(error.cause(), ExecutorError::Aborted { .. }), "{context}");
            assert!(!own || rank != coder, "{context}");
        }
    }
}

#[test]
fn blocks_outside_their_buffer_are_refused_before_code_has_them() {
    for hosts in [["a", "a"], ["a", "b"]] {
        let registry = Registry::new();
        let code = Moving { collective: Collective::AllGatherV, calls: AtomicU32::new(0) };
        registry.register_code("moving", 1, Arc::new(code), Terms::default()).unwrap();
        for registry in [&registry, &Registry::new()] {
            on_ranks(hosts, registry, |rank, on| {
                let mut output = [0u32; 4];
                // In place, and longer than what is there.
                let own = output.as_mut_ptr().wrapping_add(3);
                let mut receive = [Extent::default(); 2];
                receive[rank as usize] = Extent::new(3, 3);
                let buffers = (own.cast_const().cast(), output.as_mut_ptr().cast());
                // SAFETY: nothing is touched, since the call is refused.
                let refused =
                    unsafe { on.all_gather_v(buffers, (3, 4), &receive, DataType::U32, None) };
                let text = refused.unwrap_err().to_string();
                assert!(text.contains("3 elements from 3, and the buffer has 4"), "{text}");
            });
        }
    }
}
