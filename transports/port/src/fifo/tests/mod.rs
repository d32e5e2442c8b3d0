//! The FIFO against a queue, under many threads, and drained onto links that refuse, delay and break.

mod scripted;

use super::{
    Closed, DATA, Drain, End, FLUSH, PACKETS, Producer, Request, SIGNAL, VALUE, bytes, consumer,
    fifo,
};
use crate::WireError;
use crate::proxy::Attended;
use crate::wire::Link;
use antiphon_hal::{Backend, Memory};
use proptest::prelude::*;
use scripted::{Op, Random, Scripted};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

fn numbered(number: u64) -> Request {
    Request {
        kinds: number,
        channel: number << 40,
        source: !number,
        from: number | 1 << 63,
        region: number + 3,
        to: number << 33,
        bytes: number * 5,
    }
}

proptest! {
    #[test]
    fn it_is_a_bounded_queue(steps in proptest::collection::vec(0u8..3, 1..200), size in 1u64..9) {
        let (producer, mut consumer) = fifo(size);
        let capacity = consumer.capacity();
        prop_assert!(capacity >= size && capacity.is_power_of_two());
        let (mut model, mut pushed, mut taken, mut released) = (VecDeque::new(), 0, 0, 0);
        for step in steps {
            match step {
                0 if pushed - released < capacity => {
                    prop_assert_eq!(producer.push(&numbered(pushed)), Ok(pushed));
                    model.push_back((pushed, numbered(pushed)));
                    pushed += 1;
                }
                1 => {
                    let expected = model.pop_front();
                    taken += u64::from(expected.is_some());
                    prop_assert_eq!(consumer.take(), expected);
                }
                2 => {
                    released = taken;
                    // What was not taken is not released, whatever is asked.
                    consumer.release(released + 100);
                    prop_assert!(released == 0 || producer.posted(released - 1));
                    prop_assert!(!producer.posted(released));
                }
                _ => {}
            }
        }
    }
}

#[test]
fn many_producers_lose_nothing_when_it_is_full() {
    const EACH: u64 = 5000;
    let (producer, mut consumer) = fifo(8);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let producer = producer.clone();
            scope.spawn(move || {
                for number in 0..EACH {
                    producer.push(&numbered(thread << 20 | number)).unwrap();
                }
            });
        }
        let mut next = [0; 4];
        for expected in 0..4 * EACH {
            let (ticket, request) = loop {
                match consumer.take() {
                    Some(taken) => break taken,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(ticket, expected);
            assert_eq!(request, numbered(request.kinds), "a mixed request");
            let (thread, number) = (request.kinds >> 20, request.kinds & 0xf_ffff);
            assert_eq!(number, std::mem::replace(&mut next[thread as usize], number + 1));
            consumer.release(ticket + 1);
        }
        assert_eq!((next, consumer.take()), ([EACH; 4], None));
    });
}

#[test]
fn producers_that_wait_are_told_when_nobody_consumes() {
    let (producer, consumer) = fifo(2);
    let filled = [0, 1].map(|number| producer.push(&numbered(number)));
    let waiting = thread::spawn({
        let producer = producer.clone();
        move || producer.push(&numbered(2))
    });
    drop(consumer);
    assert_eq!((filled, waiting.join().unwrap()), ([Ok(0), Ok(1)], Err(Closed)));
    assert!(producer.closed());
}

#[test]
fn a_closed_fifo_takes_nothing_though_it_has_room() {
    let (producer, mut consumer) = fifo(4);
    assert_eq!(producer.push(&numbered(0)), Ok(0));
    assert_eq!(consumer.take(), Some((0, numbered(0))));
    consumer.release(1);
    drop(consumer);
    assert_eq!([1, 2].map(|number| producer.push(&numbered(number))), [Err(Closed); 2]);
    assert!(producer.posted(0) && !producer.posted(1));
}

#[test]
fn requests_of_a_device_are_found_where_the_layout_says() {
    let device = antiphon_hal::driver(Backend::Host).unwrap().open(0).unwrap();
    let memory = device.pinned(bytes(4)).unwrap();
    for capacity in [0, 1, 3, 8, 1 << 63] {
        assert!(consumer(Arc::clone(&memory), capacity).is_err(), "{capacity}");
    }
    let mut taken = consumer(Arc::clone(&memory), 4).unwrap();
    // SAFETY: inside the memory, aligned, and shared with the consumer through atomics alone.
    let word = |line: usize, at: usize| unsafe {
        &*memory.address().add(line * 64 + at * 8).cast::<AtomicU64>()
    };
    for ticket in 0..9u64 {
        assert_eq!(taken.take(), None);
        let request = numbered(ticket);
        let line = 2 + (ticket % 4) as usize;
        let Request { kinds, channel, source, from, region, to, bytes } = request;
        for (at, value) in (1..).zip([kinds, channel, source, from, region, to, bytes]) {
            word(line, at).store(value, Ordering::Relaxed);
        }
        word(line, 0).store(ticket + 1, Ordering::Release);
        assert_eq!(taken.take(), Some((ticket, request)));
        taken.release(ticket + 1);
        assert_eq!(word(1, 0).load(Ordering::Acquire), ticket + 1);
    }
    assert_eq!(word(1, 1).load(Ordering::Acquire), 0);
    drop(taken);
    assert_eq!(word(1, 1).load(Ordering::Acquire), 1);
}

#[test]
fn requests_may_name_the_counter_that_they_raise() {
    let mut bench = Bench::new(16, vec![Scripted::new(1, 1000, None)]);
    let link = Arc::clone(&bench.links[0]) as Arc<dyn Link>;
    let (link, done) = (Attended::new(link, |_| {}).unwrap(), Arc::new(AtomicU64::new(0)));
    bench.drain.open(0, End { link, counter: None, done });
    let named = |region, to| Request { kinds: SIGNAL, channel: 0, region, to, ..numbered(0) };
    for (region, to) in [(7, 8), (7, 16), (7, 8), (9, 8), (7, 8)] {
        bench.producer.push(&named(region, to)).unwrap();
    }
    let value = Request { kinds: SIGNAL | VALUE, bytes: 77, ..named(9, 8) };
    bench.producer.push(&value).unwrap();
    bench.producer.push(&bench.request(DATA | SIGNAL, 0, 5)).unwrap();
    let mut refused = Vec::new();
    for _ in 0..100 {
        refused.extend(bench.drain.turn().err());
    }
    assert_eq!(refused.len(), 1);
    assert!(matches!(*refused[0].reason, WireError::Invalid { .. }), "{}", refused[0]);
    let signal = |region, to, value| Op::Signal { region, to, value };
    let raised = [signal(7, 8, 1), signal(7, 16, 1), signal(7, 8, 2), signal(9, 8, 1)];
    assert_eq!(bench.links[0].log().0[..4], raised);
    assert_eq!(bench.links[0].log().0[4..6], [signal(7, 8, 3), signal(9, 8, 77)]);
}

/// A drain with some channels, each on a link of its own.
struct Bench {
    producer: Producer,
    drain: Drain,
    links: Vec<Arc<Scripted>>,
    done: Vec<Arc<AtomicU64>>,
    source: Arc<dyn Memory>,
}

impl Bench {
    fn new(requests: u64, links: Vec<Arc<Scripted>>) -> Self {
        let (producer, consumer) = fifo(requests);
        let mut drain = Drain::new(consumer);
        let device = antiphon_hal::driver(Backend::Host).unwrap().open(0).unwrap();
        let source = device.allocate(4096).unwrap();
        drain.lend(Arc::clone(&source));
        let mut done = Vec::new();
        for (channel, link) in (0..).zip(&links) {
            let attended = Attended::new(Arc::clone(link) as Arc<dyn Link>, |_| {}).unwrap();
            let word = Arc::new(AtomicU64::new(0));
            done.push(Arc::clone(&word));
            let counter = Some(((900 + channel, 8 * channel), 0));
            drain.open(channel, End { link: attended, counter, done: word });
        }
        Bench { producer, drain, links, done, source }
    }

    fn request(&self, kinds: u64, channel: u64, number: u64) -> Request {
        let source = self.source.id();
        Request { kinds, channel, source, from: 8, region: 1 << 40, to: number << 33, bytes: 16 }
    }

    /// What a request posts, where so many signals went before.
    fn ops(request: &Request, signals: &mut u64) -> Vec<Op> {
        let mut ops = Vec::new();
        if request.kinds & DATA != 0 {
            ops.push(Op::Write { to: request.to, packets: request.kinds & PACKETS != 0 });
        }
        if request.kinds & SIGNAL != 0 {
            *signals += 1;
            let channel = request.channel;
            ops.push(Op::Signal { region: 900 + channel, to: 8 * channel, value: *signals });
        }
        ops
    }
}

const KINDS: [u64; 7] = [
    DATA,
    SIGNAL,
    DATA | SIGNAL,
    DATA | SIGNAL | FLUSH,
    DATA | PACKETS,
    FLUSH,
    DATA | PACKETS | SIGNAL,
];

/// Random requests over links that refuse and delay at random, one of which may break: every channel's posts are those
/// that were asked for, in order and once, and a flush is done only when what it covers has landed.
#[test]
fn requests_are_carried_out_in_order_whatever_links_do() {
    for seed in 1..=300u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let breaks = random.below(2) == 0;
        let links = (0..3).map(|at| {
            let lost_at = (breaks && at == 1).then(|| random.below(30));
            Scripted::new(random.next(), 1 + random.below(6), lost_at)
        });
        let links = links.collect();
        let mut bench = Bench::new(16, links);
        let (mut wanted, mut signals) = (vec![Vec::new(); 3], [0; 3]);
        // Of each flush: channel, number, and how much of the channel's posts it covers.
        let mut flushes = Vec::new();
        let (mut pushed, mut posted, mut idle) = (0u64, 0, 0);
        let mut requests = Vec::new();
        let mut failed = [0; 3];
        while idle < 200 {
            while pushed < 100 && pushed - posted < 16 && random.below(3) != 0 {
                let channel = random.below(3);
                let kinds = KINDS[random.below(KINDS.len() as u64) as usize];
                let request = bench.request(kinds, channel, pushed);
                let at = channel as usize;
                wanted[at].extend(Bench::ops(&request, &mut signals[at]));
                assert_eq!(bench.producer.push(&request), Ok(pushed));
                requests.push(request);
                if kinds & FLUSH != 0 {
                    flushes.push((at, pushed, wanted[at].len() as u64));
                }
                pushed += 1;
            }
            match bench.drain.turn() {
                Ok(true) => idle = 0,
                Ok(false) => idle += 1,
                Err(error) => {
                    let lost = matches!(*error.reason, WireError::Lost { .. });
                    assert!(lost, "seed {seed}: {error}");
                    // As it was asked for, however much of it was done.
                    assert_eq!(error.request, requests[error.ticket as usize], "seed {seed}");
                    failed[error.request.channel as usize] += 1;
                }
            }
            while posted < pushed && bench.producer.posted(posted) {
                posted += 1;
            }
            for &(at, ticket, position) in &flushes {
                let done = bench.done[at].load(Ordering::Acquire) > ticket;
                let landed = bench.links[at].landed();
                assert!(!done || landed >= position, "seed {seed}: flush {ticket} at {landed}");
            }
        }
        assert_eq!((pushed, posted), (100, 100), "seed {seed}: a request is stuck");
        assert!(bench.drain.idle(), "seed {seed}");
        for (at, link) in bench.links.iter().enumerate() {
            let (log, lost) = link.log();
            let broke = breaks && at == 1;
            assert!(lost <= broke && log.len() <= wanted[at].len(), "seed {seed}");
            assert_eq!(log[..], wanted[at][..log.len()], "seed {seed}, channel {at}");
            if !broke {
                assert_eq!((log.len(), failed[at]), (wanted[at].len(), 0), "seed {seed}");
                let last = flushes.iter().rev().find(|flush| flush.0 == at);
                let done = bench.done[at].load(Ordering::Acquire);
                assert!(last.is_none_or(|&(_, ticket, _)| done == ticket + 1), "seed {seed}");
            }
        }
    }
}

#[test]
fn a_full_link_holds_up_its_own_channel_only() {
    let (full, free) = (Scripted::new(1, 0, None), Scripted::new(2, 1000, None));
    let mut bench = Bench::new(64, vec![full, free]);
    for number in 0..30 {
        let request = bench.request(DATA | SIGNAL | FLUSH, number % 2, number);
        bench.producer.push(&request).unwrap();
    }
    for _ in 0..200 {
        bench.drain.turn().unwrap();
    }
    assert_eq!((bench.links[0].log().0.len(), bench.links[1].log().0.len()), (0, 30));
    assert_eq!([0, 1].map(|at| bench.done[at].load(Ordering::Acquire)), [0, 30]);
    // The places behind the first request that waits stay taken.
    assert!(!bench.producer.posted(0) && !bench.producer.posted(29));
    bench.links[0].widen(1000);
    for _ in 0..200 {
        bench.drain.turn().unwrap();
    }
    assert_eq!(bench.links[0].log().0.len(), 30);
    assert!(bench.producer.posted(29) && bench.drain.idle());
}

#[test]
fn requests_that_make_no_sense_are_told_and_skipped() {
    let mut bench = Bench::new(64, vec![Scripted::new(1, 100, None)]);
    let good = bench.request(DATA | SIGNAL, 0, 1);
    let cases = [
        (Request { channel: 7, ..good }, "no such channel"),
        (Request { channel: 1 << 32, ..good }, "no such channel"),
        (Request { kinds: 0, ..good }, "kinds 0x0"),
        (Request { kinds: 16 | DATA, ..good }, "kinds 0x11"),
        (Request { kinds: 1 << 32 | DATA, ..good }, "kinds 0x100000001"),
        (Request { kinds: SIGNAL | PACKETS, ..good }, "kinds 0xa"),
        (Request { kinds: DATA | SIGNAL | VALUE, ..good }, "kinds 0x13"),
        (Request { kinds: SIGNAL | VALUE, ..good }, "a value for a counter that counts"),
        (Request { source: good.source + 1_000_000, ..good }, "source region"),
    ];
    for (request, _) in &cases {
        bench.producer.push(request).unwrap();
        bench.producer.push(&good).unwrap();
    }
    let (mut errors, mut signals) = (Vec::new(), 0);
    for _ in 0..200 {
        errors.extend(bench.drain.turn().err());
    }
    errors.sort_by_key(|error| error.ticket);
    assert_eq!(errors.len(), cases.len(), "{errors:?}");
    for (at, ((request, text), error)) in cases.iter().zip(&errors).enumerate() {
        assert_eq!((error.ticket, error.request), (at as u64 * 2, *request));
        assert!(error.to_string().contains(text), "{error}");
    }
    let wanted: Vec<_> = cases.iter().flat_map(|_| Bench::ops(&good, &mut signals)).collect();
    assert_eq!(bench.links[0].log().0, wanted);
    assert!(bench.drain.idle() && bench.producer.posted(2 * cases.len() as u64 - 1));
}

/// Whoever goes on asking for what cannot be done waits until the errors are told.
#[test]
fn errors_that_are_not_fetched_hold_producers_up() {
    let mut bench = Bench::new(16, vec![Scripted::new(1, 100, None)]);
    let bad = bench.request(0, 0, 1);
    let (mut pushed, mut posted, mut told) = (0u64, 0u64, 0u64);
    for _ in 0..500 {
        while pushed - posted < 16 {
            assert_eq!(bench.producer.push(&bad), Ok(pushed));
            pushed += 1;
        }
        told += u64::from(bench.drain.turn().is_err());
        while posted < pushed && bench.producer.posted(posted) {
            posted += 1;
        }
        assert!(posted - told <= 16, "{} errors are kept", posted - told);
    }
    assert!(told > 400, "{told} errors were told");
}

#[test]
fn a_channel_that_is_closed_gives_its_requests_up() {
    let mut bench = Bench::new(8, vec![Scripted::new(1, 0, None), Scripted::new(2, 100, None)]);
    for number in 0..4 {
        bench.producer.push(&bench.request(SIGNAL, number % 2, number)).unwrap();
    }
    bench.drain.turn().unwrap();
    assert!(!bench.producer.posted(0));
    bench.drain.close(0);
    bench.drain.withdraw(bench.source.id());
    for _ in 0..10 {
        bench.drain.turn().unwrap();
    }
    assert!(bench.producer.posted(3) && bench.drain.idle());
}
