//! Groups over several streams of a device: as if every call were on each of them.

use crate::{backend, device, on_simulator, options};
use antiphon::DataType;
use antiphon::executor::hal::{Backend, Stream, driver};
use antiphon::executor::{Collectives, Communicator, Group};
use antiphon_tests::harness::{Area, Source};
use antiphon_tests::name_of;
use antiphon_tests::recorder::Recorder;
use std::sync::Arc;

const BYTES: usize = 700;
/// Pieces of other work by which a device has come to what waits for nothing.
const LOOKS: usize = 500;

/// One of two ranks, which one thread drives on one device.
struct Rank {
    on: Collectives,
    peer: u32,
    streams: [Arc<dyn Stream>; 2],
    sent: Area,
    received: Area,
    copied: Area,
}

impl Rank {
    fn new(communicator: &Communicator) -> Self {
        let area = |fill: u8| {
            let mut area = Area::new(communicator, Source::Own, BYTES as u64).unwrap();
            area.edit(|all| all.fill(fill + communicator.rank() as u8));
            area
        };
        Rank {
            on: Collectives::new(communicator).unwrap(),
            peer: 1 - communicator.rank(),
            streams: [(); 2].map(|()| communicator.stream().unwrap()),
            sent: area(10),
            received: area(20),
            copied: area(30),
        }
    }

    fn send(&self, group: &mut Group, peer: u32, stream: &Arc<dyn Stream>) {
        let (from, count) = (self.sent.address().cast_const(), BYTES as u64);
        // SAFETY: the area is as long, and nobody drops it before the stream was waited for.
        unsafe { group.send(&self.on, from, count, DataType::U8, peer, Some(stream)) }.unwrap();
    }

    fn receive(&self, group: &mut Group, peer: u32, stream: &Arc<dyn Stream>) {
        let (to, count) = (self.received.address(), BYTES as u64);
        // SAFETY: as above.
        unsafe { group.receive(&self.on, to, count, DataType::U8, peer, Some(stream)) }.unwrap();
    }

    /// A group of one call each, from the peer and to it.
    fn receive_alone(&self, stream: &Arc<dyn Stream>) {
        let mut group = Group::new();
        self.receive(&mut group, self.peer, stream);
        group.end().unwrap();
    }

    fn send_alone(&self, stream: &Arc<dyn Stream>) {
        let mut group = Group::new();
        self.send(&mut group, self.peer, stream);
        group.end().unwrap();
    }

    fn wait(&self) {
        for stream in &self.streams {
            self.on.executor().synchronize(stream).unwrap();
        }
    }
}

fn copy(stream: &Arc<dyn Stream>, to: &Area, from: &Area) {
    // SAFETY: both areas are as long, and nobody drops them before the stream was waited for.
    let copied = unsafe { stream.copy(to.address(), from.address().cast_const(), BYTES as u64) };
    let _ = copied.unwrap();
}

/// Both ranks, once they have made the calls that they will make: first ones load code.
fn ranks() -> [Rank; 2] {
    let ranks = Communicator::in_process_over(&vec![device(); 2], &options()).unwrap();
    let ranks = [&ranks[0], &ranks[1]].map(Rank::new);
    exchange(&ranks);
    ranks.iter().for_each(Rank::wait);
    ranks
}

/// One group, in which each rank sends on its first stream and receives on its second.
fn exchange(ranks: &[Rank; 2]) {
    let mut group = Group::new();
    for rank in ranks {
        rank.send(&mut group, rank.peer, &rank.streams[0]);
        rank.receive(&mut group, rank.peer, &rank.streams[1]);
    }
    group.end().unwrap();
}

/// Has the device do other work, in the course of which it comes to the end of a stream that waits for nothing. Who waits
/// for something is none the worse for it.
fn linger(stream: &Arc<dyn Stream>, on: &Rank) {
    let beside = on.on.communicator().stream().unwrap();
    for _ in 0..LOOKS {
        if stream.query().unwrap() {
            return;
        }
        copy(&beside, &on.copied, &on.sent);
        beside.synchronize().unwrap();
    }
}

#[test]
fn what_follows_on_one_stream_waits_for_what_the_group_has_on_another() {
    let test = name_of(what_follows_on_one_stream_waits_for_what_the_group_has_on_another);
    if on_simulator(test).is_none() {
        return;
    }
    let [one, mut two] = ranks();
    two.sent.edit(|all| all.fill(99));
    let mut group = Group::new();
    one.send(&mut group, 1, &one.streams[0]);
    one.receive(&mut group, 1, &one.streams[1]);
    group.end().unwrap();
    copy(&one.streams[0], &one.copied, &one.received);
    two.receive_alone(&two.streams[0]);
    two.wait();
    // All that it sends has arrived.
    linger(&one.streams[0], &two);
    two.send_alone(&two.streams[0]);
    one.wait();
    two.wait();
    assert_eq!(one.copied.bytes(), vec![99; BYTES]);
}

#[test]
fn a_group_begins_behind_what_is_in_all_its_streams() {
    let test = name_of(a_group_begins_behind_what_is_in_all_its_streams);
    if on_simulator(test).is_none() {
        return;
    }
    let [mut one, two] = ranks();
    one.copied.edit(|all| all.fill(99));
    // What is sent on one stream is written on the other, behind a transfer that waits for its peer.
    one.receive_alone(&one.streams[1]);
    copy(&one.streams[1], &one.sent, &one.copied);
    let mut group = Group::new();
    one.send(&mut group, 1, &one.streams[0]);
    one.receive(&mut group, 1, &one.streams[1]);
    group.end().unwrap();
    two.receive_alone(&two.streams[0]);
    linger(&two.streams[0], &two);
    two.send_alone(&two.streams[1]);
    two.send_alone(&two.streams[1]);
    one.wait();
    two.wait();
    assert_eq!(two.received.bytes(), vec![99; BYTES]);
}

#[test]
fn streams_of_a_recording_come_together_too() {
    let test = name_of(streams_of_a_recording_come_together_too);
    let Some(simulated) = on_simulator(test) else { return };
    let application = Recorder::new(&simulated, backend());
    let mut both = ranks();
    let (raw, stream) = application.adopt(&device());
    both[0].streams[0] = stream;
    exchange(&both);
    both.iter().for_each(Rank::wait);
    let others = [&both[0].streams[1], &both[1].streams[0], &both[1].streams[1]];
    // One that is recorded, and others that are not, are refused.
    let event = device().event().unwrap();
    let recorded = application.record(raw, || {
        let origin = &both[0].streams[0];
        let mut group = Group::new();
        both[0].send(&mut group, 1, origin);
        both[0].receive(&mut group, 1, others[0]);
        let error = group.end().unwrap_err().to_string();
        assert!(error.contains("1 of 2 streams recorded into a graph"), "{error}");
        origin.record(&*event).unwrap();
        others.iter().for_each(|stream| stream.wait(&*event).unwrap());
        exchange(&both);
        copy(origin, &both[0].copied, &both[0].received);
    });
    both[1].sent.edit(|all| all.fill(99));
    application.replay(recorded, raw);
    application.finish(raw);
    assert_eq!(both[0].copied.bytes(), vec![99; BYTES]);
    application.destroy(recorded);
}

#[test]
fn a_rank_sends_to_itself_from_one_stream_to_another() {
    if on_simulator(name_of(a_rank_sends_to_itself_from_one_stream_to_another)).is_none() {
        return;
    }
    let [mut one, two] = ranks();
    one.copied.edit(|all| all.fill(99));
    // Written on the stream that sends, behind a transfer that waits for its peer.
    one.receive_alone(&one.streams[0]);
    copy(&one.streams[0], &one.sent, &one.copied);
    let mut group = Group::new();
    one.send(&mut group, 0, &one.streams[0]);
    one.receive(&mut group, 0, &one.streams[1]);
    group.end().unwrap();
    linger(&one.streams[1], &two);
    two.send_alone(&two.streams[0]);
    one.wait();
    two.wait();
    assert_eq!(one.received.bytes(), vec![99; BYTES]);
}

#[test]
fn a_rank_sends_to_itself_with_a_stream_on_both_sides_or_on_none() {
    let test = name_of(a_rank_sends_to_itself_with_a_stream_on_both_sides_or_on_none);
    if on_simulator(test).is_none() {
        return;
    }
    let [one, _] = ranks();
    let mut group = Group::new();
    one.send(&mut group, 0, &one.streams[0]);
    let (to, count) = (one.received.address(), BYTES as u64);
    // SAFETY: the area is as long, and lives until the group has ended.
    unsafe { group.receive(&one.on, to, count, DataType::U8, 0, None) }.unwrap();
    let error = group.end().unwrap_err().to_string();
    assert!(error.contains("one of them without a stream"), "{error}");
}

#[test]
fn a_stream_of_another_device_is_refused_when_its_call_is_gathered() {
    let test = name_of(a_stream_of_another_device_is_refused_when_its_call_is_gathered);
    if on_simulator(test).is_none() {
        return;
    }
    let [one, _] = ranks();
    let host = driver(Backend::Host).unwrap().open(0).unwrap().stream().unwrap();
    let (from, count) = (one.sent.address().cast_const(), BYTES as u64);
    let mut group = Group::new();
    // SAFETY: as in `Rank::send`.
    let sent = unsafe { group.send(&one.on, from, count, DataType::U8, 0, Some(&host)) };
    let error = sent.unwrap_err().to_string();
    assert!(error.contains("a stream of host:0 on a rank of"), "{error}");
    assert!(group.is_empty());
}
