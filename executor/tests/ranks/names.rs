//! Communicators with names: how these are inherited, and what they are in: errors, and the lines of the log.

use crate::support::processes::alone;
use crate::support::requests::sum_in_place;
use crate::support::threads::on_threads;
use antiphon_executor::plan::builder::ProgramBuilder;
use antiphon_executor::plan::model::Collective;
use antiphon_executor::{
    Collectives, Communicator, DataType, Executor, ExecutorError, Group, Options, Request, What,
    say_after,
};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::scope;
use std::time::Duration;

fn options(name: Option<&str>) -> Options {
    let limit = Some(Duration::from_secs(60));
    Options::default().with_timeout(limit).with_name(name.map(str::to_owned))
}

/// Two ranks that are called `dp`.
fn pair() -> Vec<Communicator> {
    Communicator::in_process(2, &options(Some("dp"))).unwrap()
}

/// Sums four numbers.
fn summed(on: &Collectives) -> Result<(), ExecutorError> {
    let mut buffer = [1.0; 4];
    // SAFETY: the buffer is this call's alone, until it is complete on return.
    unsafe { on.call(&sum_in_place(&mut buffer), None) }
}

/// That an error of rank 1 of two names the communicator once, and then says this.
fn is_of_dp(error: &ExecutorError, then: &str) {
    let text = error.to_string();
    let start = format!("communicator `dp` rank 1 of 2: {then}");
    assert!(text.starts_with(&start), "no {start:?} in: {text}");
    assert_eq!(text.matches("`dp`").count(), 1, "{text}");
    assert!(!matches!(error.cause(), ExecutorError::Named { .. }), "{text}");
}

#[test]
fn what_is_refused_is_refused_by_name() {
    let ranks = pair();
    let on = Collectives::new(&ranks[1]).unwrap();
    let mut buffer = [1.0; 4];
    let broadcast = Request { what: What::Broadcast { root: 7 }, ..sum_in_place(&mut buffer) };
    // SAFETY: it is refused.
    is_of_dp(&unsafe { on.call(&broadcast, None) }.unwrap_err(), "cannot use a root: saw rank 7");
    let mut group = Group::new();
    // SAFETY: as above.
    let gathered = unsafe { group.call(&on, &broadcast, None) };
    is_of_dp(&gathered.unwrap_err(), "cannot use a root: saw rank 7");
    // SAFETY: as above.
    let sent = unsafe { on.send(buffer.as_ptr().cast(), 4, DataType::F32, 9, None) };
    is_of_dp(&sent.unwrap_err(), "cannot use a peer: saw rank 9");
    is_of_dp(&ranks[1].subset(&[0, 5]).map(drop).unwrap_err(), "cannot make a communicator");
    let other = ProgramBuilder::new("three", Collective::AllReduce, 3).build().unwrap();
    let loaded = Executor::new(&ranks[1]).load(&other).map(drop);
    is_of_dp(&loaded.unwrap_err(), "cannot run plan `three`");
    let on = Collectives::new(&Communicator::in_process(2, &options(None)).unwrap()[1]).unwrap();
    // SAFETY: as above.
    let text = unsafe { on.call(&broadcast, None) }.unwrap_err().to_string();
    assert!(text.starts_with("cannot use a root"), "{text}");
}

#[test]
fn what_breaks_a_communicator_is_told_by_name_on_every_rank_once() {
    let ranks = pair();
    let on: Vec<_> = ranks.iter().map(|rank| Collectives::new(rank).unwrap()).collect();
    ranks[0].abort("enough");
    let aborted = "the communicator was aborted by rank 0: enough";
    for error in [
        ranks[1].barrier().unwrap_err(),
        ranks[1].exchange(b"x").unwrap_err(),
        ranks[1].split(Some(0), 0).map(drop).unwrap_err(),
        ranks[1].register(std::ptr::null(), 0).unwrap_err(),
        ranks[1].failure().unwrap(),
        on[1].failure().unwrap(),
        summed(&on[1]).unwrap_err(),
    ] {
        is_of_dp(&error, aborted);
        assert!(error.breaks_communicator() && error.peer() == Some(0), "{error}");
    }
    // The other rank hears of a failure in this one's words, which have its own name in front, and no other.
    let ranks = pair();
    let on: Vec<_> = ranks.iter().map(|rank| Collectives::new(rank).unwrap()).collect();
    let ended = on_threads(&on, |on| {
        let mut buffer = [1.0; 4];
        let mut request = sum_in_place(&mut buffer);
        request.count = 1 + u64::from(on.communicator().rank());
        // SAFETY: the buffer is longer, and this call's alone.
        unsafe { on.call(&request, None) }.unwrap_err()
    });
    is_of_dp(&ended[1], "");
    is_of_dp(&ranks[1].failure().unwrap(), "");
}

#[test]
fn what_a_stream_a_group_and_a_transfer_end_with_has_the_name() {
    let ranks = pair();
    let on = Collectives::new(&ranks[1]).unwrap();
    let stream = ranks[1].stream().unwrap();
    let (mut one, mut other) = ([1.0; 4], [1.0; 4]);
    // SAFETY: the buffers are these calls' alone until they are complete, which they are by the end.
    unsafe {
        on.call(&sum_in_place(&mut one), Some(&stream)).unwrap();
        let mut group = Group::new();
        group.call(&on, &sum_in_place(&mut other), None).unwrap();
        scope(|scope| {
            let ended = scope.spawn(|| on.executor().synchronize(&stream).unwrap_err());
            ranks[0].abort("enough");
            is_of_dp(&ended.join().unwrap(), "the communicator was aborted by rank 0: enough");
        });
        is_of_dp(&group.end().unwrap_err(), "the communicator was aborted by rank 0: enough");
    }
    let mut ranks = pair();
    let on = Collectives::new(&ranks[1]).unwrap();
    drop(ranks.remove(0));
    let mut byte = 0u8;
    // SAFETY: as above.
    let error = unsafe { on.receive(&raw mut byte, 1, DataType::U8, 0, None) }.unwrap_err();
    is_of_dp(&error, "receive on rank 1, from rank 0: ");
}

#[test]
fn a_communicator_is_called_as_its_maker_says_or_after_its_parent() {
    let parent = Communicator::in_process(4, &options(Some("mesh"))).unwrap();
    let called = on_threads(&parent, |rank| {
        let color = rank.rank() % 2;
        let inherits = rank.split(Some(color), 0).unwrap().unwrap();
        let named = rank.split_as(Some(0), 0, Some("tp")).unwrap().unwrap();
        let rest = rank.subset(&[0, 1, 2, 3]).unwrap();
        // Ranks need not agree.
        let own = format!("own {}", rank.rank());
        let own = rank.subset_as(&[3, 2, 1, 0], Some(&own)).unwrap();
        [inherits, named, rest, own].map(|made| made.name().map(str::to_owned))
    });
    for (rank, called) in called.iter().enumerate() {
        let (inherited, own) = (format!("mesh/{}", rank % 2), format!("own {rank}"));
        let expected = [Some(&*inherited), Some("tp"), Some("mesh"), Some(&own)];
        assert_eq!(called.each_ref().map(Option::as_deref), expected, "{rank}");
    }
    assert_eq!(parent[0].name(), Some("mesh"));
    let unnamed = Communicator::in_process(2, &options(None)).unwrap();
    let made = on_threads(&unnamed, |rank| rank.split(Some(1), 0).unwrap().unwrap());
    assert!(unnamed[0].name().is_none() && made[0].name().is_none());
}

#[test]
fn what_is_no_name_is_refused_before_anybody_waits() {
    let ranks = pair();
    for name in ["", "a\nb", &"n".repeat(129)] {
        let texts = [
            Communicator::in_process(2, &options(Some(name))).map(drop).unwrap_err(),
            ranks[0].split_as(Some(0), 0, Some(name)).map(drop).unwrap_err(),
            ranks[0].subset_as(&[0, 1], Some(name)).map(drop).unwrap_err(),
        ];
        for error in texts {
            let text = error.to_string();
            assert!(text.contains("cannot name a communicator: saw "), "{text}");
            assert!(matches!(error.cause(), ExecutorError::Argument { .. }), "{text}");
        }
    }
    on_threads(&ranks, |rank| rank.barrier().unwrap());
}

#[test]
fn ranks_that_do_not_come_are_told_by_the_name_of_what_they_were_to_make() {
    let options = options(Some("dp")).with_timeout(Some(Duration::from_millis(50)));
    let ends = antiphon_bootstrap::in_process(2).unwrap();
    let error = Communicator::join(ends[0].clone(), &options).map(drop).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("communicator `dp`: ") && text.contains("rank 1 "), "{text}");
}

/// Tells what is logged.
struct Ear(Mutex<Sender<String>>);

impl log::Log for Ear {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        // Nobody listens any more once the test is over.
        let _ = self.0.lock().unwrap().send(record.args().to_string());
    }

    fn flush(&self) {}
}

/// Waits for a line that begins so and has these parts.
fn hear(said: &Receiver<String>, start: &str, parts: &[&str]) {
    let mut others = Vec::new();
    loop {
        let Ok(line) = said.recv_timeout(Duration::from_secs(60)) else {
            panic!("no line {start:?} with {parts:?} in {others:#?}")
        };
        if line.starts_with(start) && parts.iter().all(|part| line.contains(part)) {
            return;
        }
        others.push(line);
    }
}

#[test]
fn lines_of_the_log_about_a_communicator_have_its_name() {
    alone(lines_of_the_log_about_a_communicator_have_its_name, &[], lines_have_the_name);
}

fn lines_have_the_name() {
    let (told, said) = channel();
    log::set_logger(Box::leak(Box::new(Ear(Mutex::new(told))))).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    say_after(Duration::from_millis(1));
    let rank_1 = "communicator `slow` rank 1 of 2";
    for hosts in [["this"; 2], ["this", "that"]] {
        let ranks = Communicator::in_process_on(&hosts, &options(Some("slow"))).unwrap();
        let on: Vec<_> = ranks.iter().map(|rank| Collectives::new(rank).unwrap()).collect();
        let late = |call: &(dyn Fn(usize) + Sync), start: &str, parts: &[&str]| {
            scope(|scope| {
                scope.spawn(|| call(1));
                hear(&said, start, parts);
                call(0);
            });
        };
        let one_node = hosts[0] == hosts[1];
        let barrier = if one_node { rank_1 } else { "communicator `slow`: rank 1" };
        late(&|rank| ranks[rank].barrier().unwrap(), barrier, &[" has waited ", "in the barrier"]);
        let exchange = &|rank: usize| drop(ranks[rank].exchange(b"x").unwrap());
        late(exchange, "communicator `slow`: rank 1 has waited ", &["in the exchange", "rank 0"]);
        let launch = format!("{rank_1}: launch ");
        late(&|rank| summed(&on[rank]).unwrap(), &launch, &["on rank 1 made no progress"]);
        let transfer = |rank: usize| {
            let (mut byte, dtype) = (7u8, DataType::U8);
            // SAFETY: the buffer is the call's alone until it is complete, which it is on return.
            let sent = unsafe {
                match rank {
                    0 => on[0].send(&raw const byte, 1, dtype, 1, None),
                    _ => on[1].receive(&raw mut byte, 1, dtype, 0, None),
                }
            };
            sent.unwrap();
        };
        // The first forms the pair, which may itself be late.
        on_threads(&[0, 1], |&rank| transfer(rank));
        let transfers = format!("{rank_1}, with rank 0: launch ");
        late(&transfer, &transfers, &["made no progress"]);
    }
}
