//! Cases on streams, tasks and events.

use super::Subject;
use super::support::{Access, Failure, Gated, Log, task};
use crate::harness::Random;
use crate::until;
use antiphon_hal::{Effort, Event, HalError, Memory, Stream, Submitted, Task, TaskState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// A new stream of a device that runs tasks; nothing (and a line) for one that does not.
fn stream_of(subject: &Subject) -> Option<Arc<dyn Stream>> {
    subject
        .has(subject.device.caps().tasks, "tasks in streams")
        .then(|| subject.device.stream().unwrap())
}

fn submit(stream: &Arc<dyn Stream>, gated: &Arc<Gated>) -> Submitted {
    stream.submit(&task(gated), Effort::Try).unwrap()
}

/// The number of the task whose failure `result` reports.
fn failed(result: Result<impl std::fmt::Debug, HalError>) -> u64 {
    match result {
        Err(HalError::Task(error)) => error.downcast_ref::<Failure>().unwrap().0,
        other => panic!("not the failure of a task: {other:?}"),
    }
}

/// A stream that is empty finishes a task within the call, with one poll.
pub fn a_task_that_can_finish_does_so_inline(subject: &Subject) {
    let Some(stream) = stream_of(subject) else { return };
    assert_eq!(stream.backend(), subject.device.backend());
    let log = Arc::new(Log::default());
    for effort in [Effort::Try, Effort::Brief, Effort::Wait] {
        let open = Gated::open(1, &log);
        assert_eq!(stream.submit(&task(&open), effort).unwrap(), Submitted::Complete);
        assert_eq!(open.polls.load(Ordering::Relaxed), 1);
        assert_eq!(Arc::strong_count(&open), 1, "the stream kept the task");
    }
    assert!(stream.query().unwrap());
    stream.synchronize().unwrap();
    assert_ne!(stream.id(), subject.device.stream().unwrap().id());
}

/// Tasks finish in the order they came, though their gates open in the opposite one.
pub fn tasks_run_in_order(subject: &Subject) {
    let Some(stream) = stream_of(subject) else { return };
    let log = Arc::new(Log::default());
    let tasks: Vec<_> = (0..50).map(|number| Gated::shut(number, &log)).collect();
    for gated in &tasks {
        assert_eq!(submit(&stream, gated), Submitted::Queued);
    }
    assert!(!stream.query().unwrap());
    thread::scope(|scope| {
        scope.spawn(|| tasks.iter().rev().for_each(|gated| gated.pass()));
        stream.synchronize().unwrap();
    });
    assert_eq!(log.entries(), (0..50).collect::<Vec<_>>());
    assert!(stream.query().unwrap());
    let late = Gated::open(50, &log);
    assert_eq!(submit(&stream, &late), Submitted::Complete);
}

/// What is submitted while a task has its first poll comes behind it, also when that poll does not finish it.
pub fn a_task_keeps_its_place_while_it_is_first_polled(subject: &Subject) {
    /// In its first poll, submits a task that could finish at once; then does as its gate does.
    struct Overtaken {
        stream: Arc<dyn Stream>,
        gate: Arc<Gated>,
        next: Arc<Gated>,
    }
    impl Task for Overtaken {
        fn poll(&self, effort: Effort) -> TaskState {
            if self.gate.polls.load(Ordering::Relaxed) == 0 {
                assert_eq!(submit(&self.stream, &self.next), Submitted::Queued);
            }
            self.gate.poll(effort)
        }
    }
    let Some(stream) = stream_of(subject) else { return };
    let log = Arc::new(Log::default());
    for open in [true, false] {
        let (gate, next) = (Gated::shut(1, &log), Gated::open(2, &log));
        if open {
            gate.pass();
        }
        let overtaken = Arc::new(Overtaken {
            stream: Arc::clone(&stream),
            gate: Arc::clone(&gate),
            next: Arc::clone(&next),
        });
        let submitted = stream.submit(&task(&overtaken), Effort::Try).unwrap();
        assert_eq!(submitted, if open { Submitted::Complete } else { Submitted::Queued });
        gate.pass();
        until("the task behind, without a caller", || next.is_done());
        stream.synchronize().unwrap();
    }
    assert_eq!(log.entries(), [1, 2, 1, 2]);
}

/// Queued tasks finish although nobody calls the stream, soon after work and after a long idle time alike.
pub fn progress_needs_no_caller(subject: &Subject) {
    let Some(stream) = stream_of(subject) else { return };
    let log = Arc::new(Log::default());
    for round in 0..20 {
        let (first, second) = (Gated::shut(2 * round, &log), Gated::open(2 * round + 1, &log));
        assert_eq!(submit(&stream, &first), Submitted::Queued);
        assert_eq!(submit(&stream, &second), Submitted::Queued);
        let polls = first.polls.load(Ordering::Relaxed);
        until("another poll by the device", || first.polls.load(Ordering::Relaxed) > polls);
        assert!(!second.is_done());
        first.pass();
        until("the second task", || second.is_done());
        until("an idle stream", || stream.query().unwrap());
        if round % 5 == 4 {
            // Not to wait for anything: to let the device fall asleep, so that the next round has to wake it.
            thread::sleep(std::time::Duration::from_millis(30));
        }
    }
    assert_eq!(log.entries(), (0..40).collect::<Vec<_>>());
}

/// Threads that submit to and synchronize the same stream never run one task twice or two at once.
pub fn many_callers_may_drive_one_stream(subject: &Subject) {
    /// Counts; pending at its first poll, so that some go through the queue and some do not.
    struct Count {
        inside: Arc<AtomicU64>,
        total: Arc<AtomicU64>,
        pending: AtomicU64,
    }
    impl Task for Count {
        fn poll(&self, _effort: Effort) -> TaskState {
            assert_eq!(self.inside.fetch_add(1, Ordering::AcqRel), 0, "two tasks at once");
            let left = self.pending.load(Ordering::Relaxed);
            if left == 0 {
                self.total.fetch_add(1, Ordering::Relaxed);
            } else {
                self.pending.store(left - 1, Ordering::Relaxed);
            }
            self.inside.fetch_sub(1, Ordering::AcqRel);
            if left == 0 { TaskState::Done(Ok(())) } else { TaskState::Pending }
        }
    }
    let Some(stream) = stream_of(subject) else { return };
    let (inside, total) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    thread::scope(|scope| {
        for seed in 1..=4 {
            let (stream, inside, total) = (&stream, &inside, &total);
            scope.spawn(move || {
                let mut random = Random::new(seed, 0);
                for _ in 0..2000 {
                    let pending = AtomicU64::new(random.below(3));
                    let (inside, total) = (Arc::clone(inside), Arc::clone(total));
                    let count: Arc<dyn Task> = Arc::new(Count { inside, total, pending });
                    let _ = stream.submit(&count, Effort::Brief).unwrap();
                    if random.below(4) == 0 {
                        stream.synchronize().unwrap();
                    }
                }
            });
        }
    });
    stream.synchronize().unwrap();
    assert_eq!(total.load(Ordering::Relaxed), 8000);
}

/// An inline failure is the answer to the submission; of later ones the first is reported, by one call.
pub fn errors_are_reported_once(subject: &Subject) {
    let Some(stream) = stream_of(subject) else { return };
    let log = Arc::new(Log::default());
    let inline = Gated::failing(1, &log, true);
    assert_eq!(failed(stream.submit(&task(&inline), Effort::Try)), 1);
    stream.synchronize().unwrap();

    let shut = Gated::failing(2, &log, false);
    assert_eq!(submit(&stream, &shut), Submitted::Queued);
    assert_eq!(submit(&stream, &Gated::failing(3, &log, true)), Submitted::Queued);
    let last = Gated::open(4, &log);
    assert_eq!(submit(&stream, &last), Submitted::Queued);
    shut.pass();
    assert_eq!(failed(stream.synchronize()), 2);
    assert!(last.is_done(), "later tasks run all the same");
    stream.synchronize().unwrap();
}

/// A task that panics fails, inline and queued; the stream and the device go on.
pub fn a_panic_is_the_failure_of_its_task(subject: &Subject) {
    struct Panics;
    impl Task for Panics {
        fn poll(&self, _effort: Effort) -> TaskState {
            panic!("told to, by the test")
        }
    }
    let Some(stream) = stream_of(subject) else { return };
    let panics: Arc<dyn Task> = Arc::new(Panics);
    let text = stream.submit(&panics, Effort::Try).unwrap_err().to_string();
    assert!(text.contains("panicked: told to, by the test"), "{text}");

    let log = Arc::new(Log::default());
    let shut = Gated::shut(1, &log);
    assert_eq!(submit(&stream, &shut), Submitted::Queued);
    assert_eq!(stream.submit(&panics, Effort::Try).unwrap(), Submitted::Queued);
    let last = Gated::open(2, &log);
    assert_eq!(submit(&stream, &last), Submitted::Queued);
    shut.pass();
    until("the task after the panic, without a caller", || last.is_done());
    let text = stream.synchronize().unwrap_err().to_string();
    assert!(text.contains("panicked"), "{text}");
}

/// Work behind a wait starts when the event is reached, and not before.
pub fn events_order_streams(subject: &Subject) {
    let Some(first) = stream_of(subject) else { return };
    let second = subject.device.stream().unwrap();
    let event = subject.device.event().unwrap();
    assert_eq!(event.backend(), subject.device.backend());
    assert!(event.query().unwrap(), "an event that was never recorded is complete");
    event.synchronize().unwrap();

    let log = Arc::new(Log::default());
    second.wait(&*event).unwrap();
    assert_eq!(submit(&second, &Gated::open(0, &log)), Submitted::Complete);

    first.record(&*event).unwrap();
    assert!(event.query().unwrap(), "recorded on an idle stream");

    let before = Gated::shut(1, &log);
    assert_eq!(submit(&first, &before), Submitted::Queued);
    first.record(&*event).unwrap();
    let behind = Gated::shut(3, &log);
    assert_eq!(submit(&first, &behind), Submitted::Queued);
    second.wait(&*event).unwrap();
    let after = Gated::open(2, &log);
    assert_eq!(submit(&second, &after), Submitted::Queued);
    assert!(!event.query().unwrap() && !after.is_done());
    before.pass();
    second.synchronize().unwrap();
    assert!(event.query().unwrap() && after.is_done() && !behind.is_done());
    behind.pass();
    first.synchronize().unwrap();
    assert_eq!(log.entries(), [0, 1, 2, 3]);
}

/// A record replaces the one before, for those who come later; who waits for the earlier is not held up.
pub fn an_event_stands_for_its_latest_record(subject: &Subject) {
    let Some(first) = stream_of(subject) else { return };
    let (second, waiter) = (subject.device.stream().unwrap(), subject.device.stream().unwrap());
    let event = subject.device.event().unwrap();
    let log = Arc::new(Log::default());
    let (early, late) = (Gated::shut(1, &log), Gated::shut(3, &log));
    assert_eq!(submit(&first, &early), Submitted::Queued);
    first.record(&*event).unwrap();
    waiter.wait(&*event).unwrap();
    let waited = Gated::open(2, &log);
    assert_eq!(submit(&waiter, &waited), Submitted::Queued);

    assert_eq!(submit(&second, &late), Submitted::Queued);
    second.record(&*event).unwrap();
    early.pass();
    waiter.synchronize().unwrap();
    assert!(waited.is_done() && !event.query().unwrap());
    thread::scope(|scope| {
        scope.spawn(|| late.pass());
        event.synchronize().unwrap();
    });
    assert!(event.query().unwrap() && late.is_done());
    assert_eq!(log.entries(), [1, 2, 3]);
}

/// Who waits for a record waits for that one, though a later one, on a stream that is idle, is reached long before.
pub fn a_later_record_releases_nobody(subject: &Subject) {
    let Some(busy) = stream_of(subject) else { return };
    let (idle, waiter) = (subject.device.stream().unwrap(), subject.device.stream().unwrap());
    let event = subject.device.event().unwrap();
    let log = Arc::new(Log::default());
    let before = Gated::shut(1, &log);
    assert_eq!(submit(&busy, &before), Submitted::Queued);
    busy.record(&*event).unwrap();
    waiter.wait(&*event).unwrap();
    let behind = Gated::open(2, &log);
    assert_eq!(submit(&waiter, &behind), Submitted::Queued);
    idle.record(&*event).unwrap();
    assert!(event.query().unwrap(), "recorded on an idle stream");
    // Whoever looks at the one stream so often has looked at the other.
    let polls = before.polls.load(Ordering::Relaxed) + 20;
    until("polls by the device", || before.polls.load(Ordering::Relaxed) >= polls);
    assert!(!behind.is_done(), "released by a later record");
    before.pass();
    waiter.synchronize().unwrap();
    busy.synchronize().unwrap();
    assert_eq!(log.entries(), [1, 2]);
}

/// A caller gets back what it asked for, although others keep the stream busy.
pub fn synchronize_does_not_wait_for_later_work(subject: &Subject) {
    /// Once driven by the synchronizing call (nobody else polls with that effort), adds a task that stays pending
    /// until that call is over.
    struct Extend {
        stream: Arc<dyn Stream>,
        next: Arc<Gated>,
    }
    impl Task for Extend {
        fn poll(&self, effort: Effort) -> TaskState {
            if effort != Effort::Wait {
                return TaskState::Pending;
            }
            let queued = self.stream.submit(&task(&self.next), Effort::Try);
            assert!(matches!(queued, Ok(Submitted::Queued)));
            TaskState::Done(Ok(()))
        }
    }
    let Some(stream) = stream_of(subject) else { return };
    let next = Gated::shut(1, &Arc::default());
    let extend = Arc::new(Extend { stream: Arc::clone(&stream), next: Arc::clone(&next) });
    assert_eq!(stream.submit(&task(&extend), Effort::Try).unwrap(), Submitted::Queued);
    stream.synchronize().unwrap();
    assert!(!stream.query().unwrap() && !next.is_done());
    next.pass();
    stream.synchronize().unwrap();
    assert!(next.is_done());
}

/// The handle of a stream may go while its work goes on.
pub fn a_dropped_stream_goes_on(subject: &Subject) {
    let Some(stream) = stream_of(subject) else { return };
    let log = Arc::new(Log::default());
    let (first, second) = (Gated::shut(1, &log), Gated::open(2, &log));
    assert_eq!(submit(&stream, &first), Submitted::Queued);
    assert_eq!(submit(&stream, &second), Submitted::Queued);
    drop(stream);
    first.pass();
    until("the tasks of the dropped stream", || second.is_done());
    until("the tasks to be dropped", || {
        Arc::strong_count(&first) == 1 && Arc::strong_count(&second) == 1
    });
}

/// A copy moves what is there when its turn comes.
pub fn copies_keep_their_place(subject: &Subject) {
    let Some(stream) = stream_of(subject) else { return };
    let bytes = (1 << 20) + 24;
    let source = subject.device.allocate(bytes).unwrap();
    let destination = subject.device.allocate(bytes).unwrap();
    let count = bytes as usize / 8;
    let copy = || {
        // SAFETY: both ranges are mapped and distinct, and are looked at only when the stream is done.
        unsafe { stream.copy(destination.address(), source.address(), bytes) }.unwrap()
    };
    let access = Access::new(&subject.device);
    let pattern = |value: u64| (value..value + count as u64).collect::<Vec<_>>();
    let fill = |value: u64| access.write(&source, &pattern(value));
    let holds = |value: u64| access.read(&destination, count) == pattern(value);
    fill(1000);
    assert_eq!(copy(), Submitted::Complete);
    assert!(holds(1000));

    let shut = Gated::shut(1, &Arc::default());
    assert_eq!(submit(&stream, &shut), Submitted::Queued);
    fill(5000);
    assert_eq!(copy(), Submitted::Queued);
    assert!(holds(1000));
    shut.pass();
    stream.synchronize().unwrap();
    assert!(holds(5000));
}

/// Copies of one stream happen one after the other, however long they are and whatever other streams do.
pub fn copies_follow_each_other(subject: &Subject) {
    let device = &subject.device;
    let (access, mut random) = (Access::new(device), Random::new(0x5eed, 0));
    const WORDS: usize = 1 << 16;
    let buffers: Vec<_> = (0..4).map(|_| device.allocate(WORDS as u64 * 8).unwrap()).collect();
    let mut expected: Vec<Vec<u64>> =
        (0..4u64).map(|k| (0..WORDS as u64).map(|at| at << 8 | k).collect()).collect();
    for (buffer, values) in buffers.iter().zip(&expected) {
        access.write(buffer, values);
    }
    let stream = device.stream().unwrap();
    for _ in 0..200 {
        let (from, step) = (random.below(4) as usize, 1 + random.below(3) as usize);
        let to = (from + step) % 4;
        let count = 1 + random.below(WORDS as u64) as usize;
        let at = |start: usize, memory: &Arc<dyn Memory>| memory.address().wrapping_add(8 * start);
        let room = (WORDS - count + 1) as u64;
        let (source, target) = (random.below(room) as usize, random.below(room) as usize);
        // SAFETY: both ranges lie in different memory, which lives until the stream is done.
        let _ = unsafe {
            stream.copy(at(target, &buffers[to]), at(source, &buffers[from]), count as u64 * 8)
        }
        .unwrap();
        let moved = expected[from][source..source + count].to_vec();
        expected[to][target..target + count].copy_from_slice(&moved);
    }
    stream.synchronize().unwrap();
    assert!(stream.query().unwrap());
    for (number, (buffer, values)) in buffers.iter().zip(&expected).enumerate() {
        assert!(access.read(buffer, WORDS) == *values, "buffer {number}");
    }
}

/// A copy behind a wait sees what the other stream did before its record, though the event is recorded again meanwhile.
pub fn events_order_copies(subject: &Subject) {
    let device = &subject.device;
    let access = Access::new(device);
    const WORDS: usize = 1 << 18;
    let [source, middle, end] = [(); 3].map(|()| device.allocate(WORDS as u64 * 8).unwrap());
    let [first, second, idle] = [(); 3].map(|()| device.stream().unwrap());
    let [forth, back] = [(); 2].map(|()| device.event().unwrap());
    assert!(
        forth.query().unwrap() && back.query().unwrap(),
        "an event that was never recorded is complete"
    );
    let bytes = WORDS as u64 * 8;
    for round in 1..=20 {
        access.write(&source, &vec![round; WORDS]);
        // SAFETY: the memories are distinct and live until both streams are done; the events keep the two copies, and
        // those of two rounds, apart.
        unsafe {
            first.wait(&*back).unwrap();
            let _ = first.copy(middle.address(), source.address(), bytes).unwrap();
            first.record(&*forth).unwrap();
            second.wait(&*forth).unwrap();
            // Reached soon; the wait is for the record that it saw.
            idle.record(&*forth).unwrap();
            let _ = second.copy(end.address(), middle.address(), bytes).unwrap();
            second.record(&*back).unwrap();
        }
        back.synchronize().unwrap();
        forth.synchronize().unwrap();
        assert!(forth.query().unwrap() && back.query().unwrap());
        assert!(access.read(&end, WORDS) == vec![round; WORDS], "round {round}");
    }
}

/// The number by which each thread calls its own default stream is another stream on each.
pub fn a_threads_own_default_stream_is_no_other_threads(subject: &Subject) {
    let device = &subject.device;
    let made = device.stream().unwrap();
    if !subject.has(made.native().is_some(), "streams of applications") {
        return;
    }
    // SAFETY: drivers of GPUs have such a stream for every thread, which lives as long.
    let adopt = || unsafe { device.adopt_stream(std::ptr::without_provenance_mut(2)) }.unwrap();
    let own = adopt();
    let event = device.event().unwrap();
    own.record(&*event).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let theirs = adopt();
            assert_ne!(theirs.id(), own.id());
            theirs.wait(&*event).unwrap();
            theirs.synchronize().unwrap();
            let query = own.query().map(drop);
            for refused in [query, own.record(&*event), own.wait(&*event), own.synchronize()] {
                let error = refused.unwrap_err();
                assert!(matches!(error, HalError::Invalid { .. }), "{error}");
                assert!(error.to_string().contains("of another thread"), "{error}");
            }
        });
    });
    assert_eq!(adopt().id(), own.id());
    own.synchronize().unwrap();
    assert!(own.query().unwrap());
}

/// Random tasks, records and waits on many streams from many threads: each stream keeps its order, and each wait
/// sees what it waited for.
pub fn random_work_keeps_every_order(subject: &Subject) {
    /// One step of a stream's counter: needs a few polls, expects the counter where it left it, and expects
    /// another stream's counter to have come as far as the event it waited for.
    struct Move {
        own: Arc<AtomicU64>,
        to: u64,
        other: Option<(Arc<AtomicU64>, u64)>,
        pending: AtomicU64,
    }
    impl Task for Move {
        fn poll(&self, _effort: Effort) -> TaskState {
            let left = self.pending.load(Ordering::Relaxed);
            if left > 0 {
                self.pending.store(left - 1, Ordering::Relaxed);
                return TaskState::Pending;
            }
            // Relaxed throughout: what orders these accesses is the streams' and events' own doing.
            assert_eq!(self.own.load(Ordering::Relaxed) + 1, self.to, "out of order");
            if let Some((other, least)) = &self.other {
                assert!(other.load(Ordering::Relaxed) >= *least, "overtook its event");
            }
            self.own.store(self.to, Ordering::Relaxed);
            TaskState::Done(Ok(()))
        }
    }
    struct Lane {
        stream: Arc<dyn Stream>,
        counter: Arc<AtomicU64>,
        submitted: u64,
        event: Arc<dyn Event>,
        recorded: u64,
    }
    const LANES: u64 = 5;
    if stream_of(subject).is_none() {
        return;
    }
    thread::scope(|scope| {
        for seed in 1..=3u64 {
            let device = &subject.device;
            scope.spawn(move || {
                let mut random = Random::new(seed, 1);
                let mut lanes: Vec<_> = (0..LANES)
                    .map(|_| Lane {
                        stream: device.stream().unwrap(),
                        counter: Arc::default(),
                        submitted: 0,
                        event: device.event().unwrap(),
                        recorded: 0,
                    })
                    .collect();
                for _ in 0..3000 {
                    let at = random.below(LANES) as usize;
                    let other = random.below(LANES) as usize;
                    let mut least = None;
                    match random.below(8) {
                        0 | 1 => {
                            lanes[at].stream.record(&*lanes[at].event).unwrap();
                            lanes[at].recorded = lanes[at].submitted;
                        }
                        2 | 3 => {
                            lanes[at].stream.wait(&*lanes[other].event).unwrap();
                            least =
                                Some((Arc::clone(&lanes[other].counter), lanes[other].recorded));
                        }
                        4 if random.below(20) == 0 => lanes[at].stream.synchronize().unwrap(),
                        5 if random.below(20) == 0 => {
                            lanes[at].event.synchronize().unwrap();
                            let counter = lanes[at].counter.load(Ordering::Relaxed);
                            assert!(counter >= lanes[at].recorded, "the event came too early");
                        }
                        _ => {}
                    }
                    let lane = &mut lanes[at];
                    lane.submitted += 1;
                    let pending = AtomicU64::new(random.below(4).saturating_sub(1));
                    let step: Arc<dyn Task> = Arc::new(Move {
                        own: Arc::clone(&lane.counter),
                        to: lane.submitted,
                        other: least,
                        pending,
                    });
                    let _ = lane.stream.submit(&step, Effort::Try).unwrap();
                }
                for lane in &lanes {
                    lane.stream.synchronize().unwrap();
                    assert_eq!(lane.counter.load(Ordering::Relaxed), lane.submitted);
                }
            });
        }
    });
}
