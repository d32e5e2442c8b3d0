//! One suite for every kind of mesh: what a `Bootstrap` promises, whatever carries its bytes.

mod support;

use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use antiphon_bootstrap::{Bootstrap, BootstrapError, Message, Operation};
use antiphon_bootstrap::{MAX_DESCRIPTORS, MAX_PAYLOAD};
use support::{Event, PATIENCE, Recorder, each_rank};

type Ranks = Vec<Arc<dyn Bootstrap>>;
/// Makes the ends of a mesh: number of ranks, time limit.
type Factory = fn(u32, Duration) -> Ranks;

fn blob(rank: u32, round: usize) -> Vec<u8> {
    // Empty, short, and longer than any socket's buffer.
    let length = [0, 1, 77, 5000, 300_000][(rank as usize + round) % 5];
    (0..length).map(|at| (at as u32 ^ rank ^ round as u32) as u8).collect()
}

fn expected(world: u32, round: usize) -> Vec<Vec<u8>> {
    (0..world).map(|rank| blob(rank, round)).collect()
}

fn exchanges_blobs_of_any_length(make: Factory) {
    for world in 1..=9 {
        each_rank(make(world, PATIENCE), |rank, end| {
            assert_eq!((end.rank(), end.world()), (rank, world));
            for round in 0..5 {
                assert_eq!(end.exchange(&blob(rank, round)).unwrap(), expected(world, round));
            }
        });
    }
}

fn a_barrier_synchronises(make: Factory) {
    let world = 5;
    let entered = AtomicUsize::new(0);
    each_rank(make(world, PATIENCE), |_, end| {
        for round in 1..=100 {
            entered.fetch_add(1, Ordering::SeqCst);
            end.barrier().unwrap();
            let seen = entered.load(Ordering::SeqCst);
            assert!(seen >= round * world as usize, "round {round}: only {seen} had entered");
            // Nobody enters the next round before all have looked.
            end.barrier().unwrap();
            assert_eq!(seen, round * world as usize);
        }
    });
}

fn one_thread_drives_all_ranks(make: Factory) {
    let world = 6;
    let ends = make(world, PATIENCE);
    for round in 0..20 {
        let mut tickets = Vec::new();
        for (end, rank) in ends.iter().zip(0..) {
            let mut ticket = end.exchange_begin(&blob(rank, round)).unwrap();
            if rank + 1 < world {
                assert_eq!(ticket.poll().unwrap(), None, "the last rank has not begun");
                assert_eq!(ticket.wait_for(Duration::from_millis(1)).unwrap(), None);
            }
            tickets.push(ticket);
        }
        let mut second = tickets.remove(1);
        assert_eq!(second.wait_for(PATIENCE).unwrap(), Some(expected(world, round)));
        for ticket in tickets.drain(1..) {
            assert_eq!(ticket.wait().unwrap(), expected(world, round));
        }
        let mut first = tickets.pop().unwrap();
        let parts = loop {
            if let Some(parts) = first.poll().unwrap() {
                break parts;
            }
            std::thread::yield_now();
        };
        assert_eq!(parts, expected(world, round));
        let barriers: Vec<_> = ends.iter().map(|end| end.barrier_begin().unwrap()).collect();
        barriers.into_iter().for_each(|ticket| assert_eq!(ticket.wait().unwrap().len(), 6));
    }
}

fn groups_go_their_own_ways_from_many_threads(make: Factory) {
    each_rank(make(4, PATIENCE), |rank, end| {
        std::thread::scope(|scope| {
            for id in 0..6u64 {
                scope.spawn(move || {
                    let group = end.group(id, &[3, 1, 0, 2]).unwrap();
                    for round in 0..40 {
                        let parts = group.exchange(&[rank as u8, id as u8, round]).unwrap();
                        let all = [3u8, 1, 0, 2].map(|rank| vec![rank, id as u8, round]);
                        assert_eq!(parts, all);
                    }
                });
            }
        });
    });
}

fn groups_nest_and_overlap(make: Factory) {
    each_rank(make(6, PATIENCE), |rank, end| {
        let members: &[u32] = if rank % 2 == 0 { &[4, 2, 0] } else { &[1, 3, 5] };
        let half = end.group(7, members).unwrap();
        assert_eq!(members[half.rank() as usize], rank);
        let parts = half.exchange(&[rank as u8]).unwrap();
        assert_eq!(parts.concat(), members.iter().map(|&r| r as u8).collect::<Vec<_>>());
        if half.rank() != 1 {
            let pair = half.group(7, &[2, 0]).unwrap();
            let parts = pair.exchange(&[rank as u8]).unwrap();
            assert_eq!(parts.concat(), [members[2] as u8, members[0] as u8]);
        }
        // A ring of overlapping pairs, all open at once.
        let next = (rank + 1) % 6;
        let before = (rank + 5) % 6;
        let right = end.group(8, &[rank, next]).unwrap();
        let left = end.group(8, &[before, rank]).unwrap();
        let right = right.exchange_begin(&[rank as u8]).unwrap();
        let left = left.exchange_begin(&[rank as u8]).unwrap();
        assert_eq!(left.wait().unwrap().concat(), [before as u8, rank as u8]);
        assert_eq!(right.wait().unwrap().concat(), [rank as u8, next as u8]);
        // Made again, a group goes on where it was.
        drop(half);
        let half = end.group(7, members).unwrap();
        assert_eq!(half.exchange(b"x").unwrap().len(), 3);
    });
}

fn bad_groups_are_refused(make: Factory) {
    let ends = make(3, PATIENCE);
    for (members, problem) in [
        (&[0u32, 1, 0][..], "twice"),
        (&[1, 2], "calling rank is not listed"),
        (&[0, 3], "out of range"),
        (&[], "not listed"),
    ] {
        let error = ends[0].group(1, members).map(drop).unwrap_err();
        assert!(matches!(error, BootstrapError::BadGroup { .. }));
        assert!(error.to_string().contains(problem), "{error}");
    }
}

fn messages_arrive_in_order_also_before_subscription(make: Factory) {
    let world = 3;
    let count = 200u32;
    let ends = make(world, PATIENCE);
    let send = |range: std::ops::Range<u32>| {
        for tag in range {
            for (from, end) in (0u8..).zip(&ends) {
                for to in 0..world {
                    let payload = vec![from; tag as usize % 50];
                    end.send(to, Message { channel: 9, tag, payload, descriptors: vec![] })
                        .unwrap();
                }
            }
        }
    };
    // Half of them with no one to listen, half while the handlers arrive.
    send(0..count / 2);
    let recorders: Vec<_> = ends.iter().map(|_| Recorder::new()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| send(count / 2..count));
        for (end, recorder) in ends.iter().zip(&recorders) {
            end.subscribe(9, recorder.clone()).unwrap();
        }
    });
    for recorder in &recorders {
        let events = recorder.wait_for((world * count) as usize);
        for from in 0..world {
            let tags: Vec<u32> = events
                .iter()
                .filter_map(|event| match event {
                    Event::Message { from: who, tag, payload } if *who == from => {
                        assert_eq!(*payload, vec![from as u8; *tag as usize % 50]);
                        Some(*tag)
                    }
                    Event::Message { .. } => None,
                    other => panic!("unexpected {other:?}"),
                })
                .collect();
            assert_eq!(tags, (0..count).collect::<Vec<_>>());
        }
    }
    let again = ends[0].subscribe(9, Recorder::new());
    assert_eq!(again, Err(BootstrapError::Subscribed { channel: 9 }));
    ends[0].unsubscribe(9);
    ends[0].subscribe(9, Recorder::new()).unwrap();
}

fn all_may_send_before_any_receives(make: Factory) {
    let ends = make(3, PATIENCE);
    let size = 4 << 20;
    // More than all sockets hold, from one thread.
    for (from, end) in (0..).zip(&ends) {
        for to in (0..3).filter(|&to| to != from) {
            for tag in 0..4 {
                let payload = vec![tag as u8; size];
                end.send(to, Message { channel: 0, tag, payload, descriptors: vec![] }).unwrap();
            }
        }
    }
    for end in &ends {
        let recorder = Recorder::new();
        end.subscribe(0, recorder.clone()).unwrap();
        for event in recorder.wait_for(8) {
            let Event::Message { tag, payload, .. } = event else { panic!("unexpected {event:?}") };
            assert!(payload.len() == size && payload.iter().all(|&byte| byte == tag as u8));
        }
    }
}

fn descriptors_travel(make: Factory) {
    let ends = make(2, PATIENCE);
    let recorder = Recorder::new();
    ends[1].subscribe(1, recorder.clone()).unwrap();
    let file = |text: &str| -> OwnedFd {
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(memory);
        file.write_all(text.as_bytes()).unwrap();
        file.into()
    };
    // Neighbours with none, one and the most, so that a mix-up would show.
    let counts = [1, 0, 3, MAX_DESCRIPTORS, 0, 2];
    for (tag, count) in (0u32..).zip(counts) {
        let descriptors = (0..count).map(|at| file(&format!("{tag}/{at}"))).collect();
        let payload = vec![0; 100_000 * (tag as usize % 2)];
        ends[0].send(1, Message { channel: 1, tag, payload, descriptors }).unwrap();
    }
    recorder.wait_for(counts.len());
    let mut received = recorder.descriptors();
    for (tag, count) in (0u32..).zip(counts) {
        for at in 0..count {
            let mut file = std::fs::File::from(received.remove(0));
            let mut text = String::new();
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, format!("{tag}/{at}"));
        }
    }
    assert!(received.is_empty());
}

fn limits_are_errors(make: Factory) {
    let ends = make(2, PATIENCE);
    let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let descriptors = (0..=MAX_DESCRIPTORS).map(|_| null()).collect();
    let many = ends[0].send(1, Message { descriptors, ..Message::default() }).unwrap_err();
    assert!(matches!(many, BootstrapError::TooLarge { saw: 65, limit: 64, .. }), "{many}");
    let payload = vec![0; MAX_PAYLOAD + 1];
    let long = ends[0].exchange(&payload).unwrap_err();
    assert!(matches!(long, BootstrapError::TooLarge { .. }), "{long}");
    let long = ends[0].send(1, Message { payload, ..Message::default() }).unwrap_err();
    assert!(matches!(long, BootstrapError::TooLarge { .. }), "{long}");
    let nobody = ends[0].send(2, Message::default()).unwrap_err();
    assert_eq!(nobody, BootstrapError::NoSuchRank { rank: 2, world: 2 });
    assert_eq!(ends[0].peer(2), Err(BootstrapError::NoSuchRank { rank: 2, world: 2 }));
}

fn abort_ends_waits_and_is_told(make: Factory) {
    let ends = make(4, PATIENCE);
    let recorders: Vec<_> = ends.iter().map(|_| Recorder::new()).collect();
    for (end, recorder) in ends.iter().zip(&recorders) {
        end.subscribe(0, recorder.clone()).unwrap();
    }
    let group = ends[0].group(1, &[0, 1]).unwrap();
    let other = ends[1].group(1, &[0, 1]).unwrap();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = ends[..3]
            .iter()
            .map(|end| scope.spawn(move || end.exchange(b"x").unwrap_err()))
            .collect();
        ends[3].abort("the model diverged");
        for error in waiting.into_iter().map(|thread| thread.join().unwrap()) {
            let BootstrapError::Aborted { by, reason, .. } = &error else { panic!("{error}") };
            assert_eq!((by.rank, by.pid, &**reason), (3, std::process::id(), "the model diverged"));
        }
    });
    for recorder in &recorders[..3] {
        let told = Event::Aborted { by: 3, reason: "the model diverged".into() };
        assert_eq!(recorder.wait_for(1), [told]);
    }
    // Final, also for those who come later; but only for this group.
    assert!(matches!(ends[3].barrier(), Err(BootstrapError::Aborted { .. })));
    assert!(matches!(ends[0].send(1, Message::default()), Err(BootstrapError::Aborted { .. })));
    assert!(matches!(ends[0].check(), Err(BootstrapError::Aborted { .. })));
    let late = Recorder::new();
    ends[0].subscribe(5, late.clone()).unwrap();
    assert!(matches!(late.wait_for(1)[..], [Event::Aborted { by: 3, .. }]));
    group.check().unwrap();
    let begun = group.exchange_begin(b"a").unwrap();
    assert_eq!(other.exchange(b"b").unwrap().concat(), b"ab");
    assert_eq!(begun.wait().unwrap().concat(), b"ab");
    // An abort within a group speaks in the group's ranks.
    ends[2].group(2, &[2, 1]).unwrap().abort("only we two");
    let error = ends[1].group(2, &[2, 1]).unwrap().barrier().unwrap_err();
    assert!(error.to_string().contains("aborted by rank 0 (pid"), "{error}");
}

fn a_voice_speaks_for_an_end_and_keeps_none(make: Factory) {
    let mut ends = make(3, PATIENCE);
    let recorder = Recorder::new();
    ends[0].subscribe(0, recorder.clone()).unwrap();
    let [one, two] = [1, 2].map(|rank: usize| ends[rank].voice());
    assert!(two.is(&two.clone()) && !two.is(&one));
    two.send(0, Message { payload: b"word".to_vec(), ..Message::default() }).unwrap();
    assert!(matches!(recorder.wait_for(1)[..], [Event::Message { from: 2, .. }]));
    let bad = two.send(3, Message::default());
    assert_eq!(bad, Err(BootstrapError::NoSuchRank { rank: 3, world: 3 }));
    drop(ends.pop());
    let error = ends[0].barrier().unwrap_err();
    assert!(matches!(error, BootstrapError::PeerLeft { .. }), "{error}");
    // Who has said goodbye says nothing behind that.
    two.abort("late");
    assert_eq!(two.send(0, Message::default()), Ok(()));
    let pair: Vec<_> = ends.iter().map(|end| end.group(1, &[0, 1]).unwrap()).collect();
    let begun: Vec<_> = pair.iter().map(|end| end.barrier_begin().unwrap()).collect();
    begun.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
    ends[0].check().unwrap();
    one.abort("enough");
    assert!(matches!(ends[1].check(), Err(BootstrapError::Aborted { .. })));
    let told = Event::Aborted { by: 1, reason: "enough".into() };
    assert_eq!(recorder.wait_for(2)[1], told);
}

fn a_timeout_names_the_missing(make: Factory) {
    let ends = make(4, PATIENCE);
    let early = ends[2].exchange_begin(b"here").unwrap();
    let error = ends[0].within(Duration::from_secs(2), None).exchange(b"x").unwrap_err();
    let BootstrapError::Timeout { missing, .. } = &error else { panic!("{error}") };
    assert_eq!(missing.iter().map(|peer| peer.rank).collect::<Vec<_>>(), [1, 3]);
    assert!(error.to_string().contains(&format!("rank 1 (pid {})", std::process::id())), "{error}");
    // Giving up disturbs nobody: the part was sent.
    let others: Vec<_> = [1, 3].map(|rank| ends[rank].exchange_begin(b"late").unwrap()).into();
    assert_eq!(early.wait().unwrap().concat(), b"xlateherelate");
    others.into_iter().for_each(|ticket| assert_eq!(ticket.wait().unwrap().len(), 4));
    let next: Vec<_> = ends.iter().map(|end| end.barrier_begin().unwrap()).collect();
    next.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
}

fn a_group_has_a_limit_of_its_own(make: Factory) {
    let ends = make(3, PATIENCE);
    let limit = Duration::from_millis(150);
    let [early, late] = [0, 2].map(|rank: usize| {
        let members = [0, 2];
        let group = if rank == 0 {
            ends[rank].within(limit, None).group(7, &members)
        } else {
            ends[rank].group(7, &members)
        };
        group.unwrap()
    });
    // What is made of it inherits it.
    for end in [early.clone(), early.group(8, &[0, 1]).unwrap()] {
        let error = end.barrier().unwrap_err();
        let BootstrapError::Timeout { missing, limit: said, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((missing.len(), missing[0].rank, *said), (1, 1, limit), "{error}");
    }
    // They are one group all the same.
    let begun = early.exchange_begin(b"x").unwrap();
    late.barrier_begin().unwrap().wait().unwrap();
    late.exchange_begin(b"y").unwrap().wait().unwrap();
    assert_eq!(begun.wait().unwrap().concat(), b"xy");
}

fn a_limit_may_be_of_any_length(make: Factory) {
    each_rank(make(2, Duration::MAX), |_, end| end.barrier().unwrap());
}

fn different_calls_are_told_apart(make: Factory) {
    use Operation::{Barrier, Call, Exchange, Split};
    for called in [[Exchange, Barrier], [Split, Exchange], [Call, Split]] {
        let ends = make(2, PATIENCE);
        let begun = [0, 1].map(|rank| ends[rank].begin(called[rank], b"x").unwrap());
        for (ticket, rank) in begun.into_iter().zip([1, 0]) {
            let text = ticket.wait().unwrap_err().to_string();
            let called = format!(" called {:?} ", called[rank]).to_lowercase();
            assert!(text.contains(&format!("rank {rank} ")) && text.contains(&called), "{text}");
        }
    }
}

fn leaving_in_order_is_no_loss(make: Factory) {
    let mut ends = make(3, PATIENCE);
    let recorder = Recorder::new();
    ends[0].subscribe(0, recorder.clone()).unwrap();
    let leaver = ends.pop().unwrap();
    let last_words = Message { channel: 0, tag: 1, payload: b"bye".to_vec(), descriptors: vec![] };
    let part = leaver.exchange_begin(b"2").unwrap();
    leaver.send(0, last_words).unwrap();
    drop(part);
    drop(leaver);
    // What it gave before still counts.
    let tickets: Vec<_> = ends.iter().map(|end| end.exchange_begin(b"-").unwrap()).collect();
    tickets.into_iter().for_each(|ticket| assert_eq!(ticket.wait().unwrap().concat(), b"--2"));
    let error = ends[0].barrier().unwrap_err();
    let BootstrapError::PeerLeft { peer, .. } = &error else { panic!("{error}") };
    assert_eq!((peer.rank, peer.pid), (2, std::process::id()));
    assert!(matches!(ends[0].send(2, Message::default()), Err(BootstrapError::PeerLeft { .. })));
    ends[0].check().unwrap();
    assert_eq!([0, 1, 2].map(|rank| ends[0].has_left(rank)), [Ok(false), Ok(false), Ok(true)]);
    assert_eq!(ends[0].has_left(3), Err(BootstrapError::NoSuchRank { rank: 3, world: 3 }));
    // Those who stay are not disturbed, and the handler hears the message and no loss.
    ends[1].send(0, Message { tag: 2, ..Message::default() }).unwrap();
    let heard = |event: &Event| matches!(event, Event::Message { .. });
    assert!(recorder.wait_for(2).iter().all(heard));
}

fn who_lets_go_of_a_group_is_not_waited_for_there(make: Factory) {
    let ends = make(3, PATIENCE);
    // Rank 2 gathers.
    let mut groups: Vec<_> =
        ends.iter().map(|end| end.group(7, &[2, 0, 1]).unwrap()).map(Some).collect();
    let barrier = |ends: &[&Arc<dyn Bootstrap>]| {
        let begun: Vec<_> = ends.iter().map(|end| end.barrier_begin().unwrap()).collect();
        begun.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
    };
    barrier(&groups.iter().flatten().collect::<Vec<_>>());
    // What it gave before still counts.
    drop(groups[1].as_ref().unwrap().exchange_begin(b"1").unwrap());
    let mut last = true;
    for (leaver, place) in [(1, 2), (2, 0)] {
        let group = groups[leaver].take().unwrap();
        group.let_go();
        drop(group);
        if std::mem::take(&mut last) {
            let rest = groups.iter().flatten();
            let begun: Vec<_> = rest.map(|group| group.exchange_begin(b"-").unwrap()).collect();
            begun
                .into_iter()
                .for_each(|ticket| assert_eq!(ticket.wait().unwrap().concat(), b"--1"));
        }
        for group in groups.iter().flatten() {
            let error = group.barrier().unwrap_err();
            assert!(matches!(error, BootstrapError::PeerLeft { .. }), "{error}");
            assert_eq!(group.has_left(place), Ok(true));
        }
    }
    // In others they are there.
    assert!([1, 2].iter().all(|&rank| ends[0].has_left(rank) == Ok(false)));
    barrier(&ends.iter().collect::<Vec<_>>());
}

/// Rank 2 need not have a link to rank 3.
fn all_hear_of_who_lets_go_of_a_group(make: Factory) {
    let ends = make(4, PATIENCE);
    let mut groups: Vec<_> =
        ends[1..].iter().map(|end| end.group(7, &[1, 2, 3]).unwrap()).collect();
    let begin = |groups: &[Arc<dyn Bootstrap>]| -> Vec<_> {
        groups.iter().map(|group| group.barrier_begin().unwrap()).collect()
    };
    begin(&groups).into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
    let leaver = groups.pop().unwrap();
    // Those who wait already, and those who come later.
    let early = begin(&groups);
    leaver.let_go();
    drop(leaver);
    for ticket in early.into_iter().chain(begin(&groups)) {
        let error = ticket.wait().unwrap_err();
        let BootstrapError::PeerLeft { peer, .. } = &error else { panic!("{error}") };
        assert_eq!(peer.rank, 2);
    }
}

fn who_leaves_while_the_first_ranks_do_is_not_lost(make: Factory) {
    for leavers in [&[0, 5][..], &[5, 0], &[0, 1], &[0, 1, 2, 5]] {
        for at_once in [false, true] {
            let ends = make(6, PATIENCE);
            let recorder = Recorder::new();
            for end in &ends {
                end.subscribe(0, recorder.clone()).unwrap();
            }
            let mut ends: Vec<_> = ends.into_iter().map(Some).collect();
            let leaving: Vec<_> = leavers.iter().map(|&rank| ends[rank].take().unwrap()).collect();
            if at_once {
                std::thread::scope(|scope| {
                    leaving.into_iter().for_each(|end| drop(scope.spawn(|| drop(end))));
                });
            } else {
                leaving.into_iter().for_each(drop);
            }
            let stay: Vec<_> = ends.into_iter().flatten().collect();
            let until = Instant::now() + PATIENCE;
            for end in &stay {
                while !leavers.iter().all(|&rank| end.has_left(rank as u32).unwrap()) {
                    end.check().unwrap();
                    assert!(Instant::now() < until, "{leavers:?}: rank {} waits", end.rank());
                    std::thread::yield_now();
                }
            }
            let members: Vec<u32> = stay.iter().map(|end| end.rank()).collect();
            let groups = stay.iter().map(|end| end.group(1, &members).unwrap());
            let begun: Vec<_> = groups.map(|group| group.barrier_begin().unwrap()).collect();
            begun.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
            assert_eq!(recorder.wait_for(0), [], "{leavers:?}");
        }
    }
}

fn handlers_cannot_hang_the_control_thread(make: Factory) {
    let ends = make(2, PATIENCE);
    let recorder = Recorder::new();
    let inner = Arc::downgrade(&ends[1]);
    let blocking = recorder.clone().then(move |_| {
        let Some(end) = inner.upgrade() else { return };
        let error = end.barrier().unwrap_err();
        assert!(matches!(error, BootstrapError::InsideHandler { .. }), "{error}");
        end.send(0, Message { channel: 1, tag: 55, ..Message::default() }).unwrap();
    });
    let back = Recorder::new();
    ends[0].subscribe(1, back.clone()).unwrap();
    ends[1].subscribe(1, blocking).unwrap();
    ends[0].send(1, Message { channel: 1, ..Message::default() }).unwrap();
    assert!(matches!(back.wait_for(1)[..], [Event::Message { from: 1, tag: 55, .. }]));
}

fn a_panicking_handler_aborts_its_group(make: Factory) {
    let ends = make(2, PATIENCE);
    let pair = |rank: usize| ends[rank].group(1, &[0, 1]).unwrap();
    pair(1).subscribe(0, Recorder::new().then(|_| panic!("handler bug"))).unwrap();
    let told = Recorder::new();
    pair(0).subscribe(0, told.clone()).unwrap();
    pair(0).send(1, Message::default()).unwrap();
    let events = told.wait_for(1);
    let [Event::Aborted { by: 1, reason }] = &events[..] else { panic!("{events:?}") };
    assert!(reason.contains("handler bug"), "{reason}");
    let tickets: Vec<_> = ends.iter().map(|end| end.barrier_begin().unwrap()).collect();
    tickets.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
}

fn peers_are_known(make: Factory) {
    let ends = make(3, PATIENCE);
    for end in &ends {
        for rank in 0..3 {
            let peer = end.peer(rank).unwrap();
            assert_eq!((peer.pid, peer.same_process, peer.node), (std::process::id(), true, 0));
            assert_eq!(end.node_of(rank), Ok(0));
        }
    }
}

fn keys_are_shared_by_a_group_alone(make: Factory) {
    let (ends, other) = (make(3, PATIENCE), make(3, PATIENCE));
    let keys: Vec<_> = ends.iter().map(|end| end.key("x")).collect();
    assert!(keys.iter().all(|key| *key == keys[0]));
    let pair = |ends: &Ranks, rank: usize| ends[rank].group(1, &[0, 1]).unwrap().key("x");
    assert_eq!(pair(&ends, 0), pair(&ends, 1));
    let all = [keys[0], ends[0].key("y"), pair(&ends, 0), other[0].key("x"), pair(&other, 1)];
    for (at, key) in all.iter().enumerate() {
        assert!(!all[..at].contains(key), "{at}");
    }
}

macro_rules! suite {
    ([$($everywhere:ident),* $(,)?], [$($on_one_node:ident),* $(,)?]) => {
        suite!(@ in_process: $($everywhere,)* $($on_one_node,)*);
        suite!(@ unix: $($everywhere,)* $($on_one_node,)*);
        suite!(@ tcp_one_node: $($everywhere,)* $($on_one_node,)*);
        suite!(@ tcp_two_nodes: $($everywhere,)*);
        suite!(@ tcp_many_nodes: $($everywhere,)*);
        suite!(@ tcp_six: $($everywhere,)*);
    };
    (@ $factory:ident: $($case:ident,)*) => {
        mod $factory {
            $(#[test] fn $case() { super::$case(super::support::$factory); })*
        }
    };
}

suite!(
    [
        exchanges_blobs_of_any_length,
        a_barrier_synchronises,
        one_thread_drives_all_ranks,
        groups_go_their_own_ways_from_many_threads,
        groups_nest_and_overlap,
        bad_groups_are_refused,
        messages_arrive_in_order_also_before_subscription,
        all_may_send_before_any_receives,
        limits_are_errors,
        abort_ends_waits_and_is_told,
        a_voice_speaks_for_an_end_and_keeps_none,
        a_timeout_names_the_missing,
        a_group_has_a_limit_of_its_own,
        a_limit_may_be_of_any_length,
        different_calls_are_told_apart,
        leaving_in_order_is_no_loss,
        who_lets_go_of_a_group_is_not_waited_for_there,
        all_hear_of_who_lets_go_of_a_group,
        who_leaves_while_the_first_ranks_do_is_not_lost,
        handlers_cannot_hang_the_control_thread,
        a_panicking_handler_aborts_its_group,
        keys_are_shared_by_a_group_alone,
    ],
    [descriptors_travel, peers_are_known]
);
