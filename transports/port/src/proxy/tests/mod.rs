//! What the proxy does for links, on links that do as told; and the races of drivers against what arrives.

mod fake;

use super::Attended;
use crate::local::{LocalWire, MappedRegions};
use crate::tcp::TcpDriver;
use crate::wire::{Link, Settings, Wire, WireDriver};
use crate::{Posted, WireError};
use antiphon_hal::{Backend, Memory, driver};
use fake::{Bell, Fake, until};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

fn attend(fake: &Arc<Fake>) -> Arc<Attended> {
    Attended::new(Arc::clone(fake) as Arc<dyn Link>, |error| panic!("{error}")).unwrap()
}

/// Kinds of descriptors, each with a link of its kind.
fn kinds() -> [(&'static str, Arc<Fake>); 2] {
    [("event", Fake::new(Bell::event())), ("pipe", Fake::new(Bell::pipe()))]
}

#[test]
fn what_arrives_is_served_without_a_driver() {
    for (kind, fake) in kinds() {
        let attended = attend(&fake);
        for _ in 0..1000 {
            fake.arrive();
        }
        until(kind, || fake.idle());
        // And once all is quiet.
        fake.arrive();
        until(kind, || fake.idle());
        drop(attended);
    }
}

#[test]
fn what_moves_is_counted_whichever_thread_moves_it() {
    for (kind, fake) in kinds() {
        let attended = attend(&fake);
        let before = attended.moves();
        fake.arrive();
        until(kind, || attended.moves() > before);
        let driving = attended.drive();
        let before = attended.moves();
        while !driving.progress().unwrap() {
            fake.arrive();
        }
        assert!(attended.moves() > before, "{kind}");
    }
}

#[test]
fn the_proxy_keeps_away_from_a_driven_link_and_takes_over_afterwards() {
    for (kind, fake) in kinds() {
        let attended = attend(&fake);
        until("the first visit", || fake.armings.load(SeqCst) > 0);
        let other = Fake::new(Bell::event());
        let other_attended = attend(&other);
        let driving = attended.drive();
        let inner = attended.drive();
        // A turn that began before the guard may still end.
        other.arrive();
        until(kind, || other.idle());
        let before = fake.proxied.load(SeqCst);
        for _ in 0..20 {
            fake.arrive();
            other.arrive();
            until(kind, || other.idle());
        }
        drop(inner);
        other.arrive();
        until(kind, || other.idle());
        assert_eq!(fake.proxied.load(SeqCst), before, "{kind}: the proxy made progress");
        assert!(!fake.idle(), "{kind}");
        drop(driving);
        until(kind, || fake.idle());
        drop(other_attended);
    }
}

/// Threads that drive, stop driving, post and make something arrive at random; in the end nothing is left.
#[test]
fn nothing_is_left_unattended_whoever_drives() {
    for seed in 0..60u64 {
        for (kind, fake) in kinds() {
            let attended = attend(&fake);
            thread::scope(|scope| {
                let (fake, attended) = (&fake, &attended);
                scope.spawn(move || {
                    for number in 0..50 {
                        fake.arrive();
                        pause(seed, number);
                    }
                });
                for driver in 1..3 {
                    scope.spawn(move || {
                        for number in 0..50 {
                            let seed = seed ^ (driver << 32);
                            let random = mixed(seed, number);
                            let driving = attended.drive();
                            if random & 1 != 0 {
                                assert_eq!(fake.signal(0, 0, 0), Ok(Posted::Queued));
                            }
                            for _ in 0..random >> 1 & 3 {
                                driving.progress().unwrap();
                            }
                            drop(driving);
                            pause(seed, number);
                        }
                    });
                }
            });
            until(&format!("{kind}, seed {seed}"), || fake.idle());
        }
    }
}

fn mixed(seed: u64, number: u64) -> u64 {
    let mixed = (seed << 20 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 31).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40
}

fn pause(seed: u64, number: u64) {
    match mixed(!seed, number) % 4 {
        0 => thread::yield_now(),
        1 => (0..mixed(seed, !number) % 2000).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}

#[test]
fn a_link_without_descriptor_is_served_when_asked_until_all_has_landed() {
    let fake = Fake::new(Bell::None);
    fake.sends.store(0, SeqCst);
    let attended = attend(&fake);
    for _ in 0..5 {
        assert_eq!(fake.signal(0, 0, 0), Ok(Posted::Queued));
    }
    attended.soon();
    let before = fake.proxied.load(SeqCst);
    until("some fruitless visits", || fake.proxied.load(SeqCst) > before + 3);
    fake.sends.store(1, SeqCst);
    until("all landed", || fake.idle());
    // A driver that leaves something behind need not ask.
    let driving = attended.drive();
    assert_eq!(fake.signal(0, 0, 0), Ok(Posted::Queued));
    drop(driving);
    until("what the driver left landed", || fake.idle());
}

#[test]
fn what_is_posted_without_driving_is_sent_when_asked() {
    for (kind, fake) in kinds() {
        let attended = attend(&fake);
        for _ in 0..2000 {
            assert_eq!(fake.signal(0, 0, 0), Ok(Posted::Queued));
            attended.soon();
        }
        until(kind, || fake.idle());
    }
}

#[test]
fn what_found_the_link_full_is_posted_once_there_is_room_by_the_proxy() {
    for (kind, fake) in kinds() {
        let due = Arc::new(AtomicBool::new(false));
        let attended = {
            let due = Arc::clone(&due);
            let post = move |link: &dyn Link| {
                let post = due.load(SeqCst) && link.signal(0, 0, 0) == Ok(Posted::Queued);
                due.fetch_and(!post, SeqCst);
                post
            };
            let link = Arc::clone(&fake) as Arc<dyn Link>;
            Attended::posting(link, |error| panic!("{error}"), post).unwrap()
        };
        for _ in 0..100 {
            fake.sends.store(0, SeqCst);
            fake.room.store(1, SeqCst);
            while fake.signal(0, 0, 0) == Ok(Posted::Queued) {}
            due.store(true, SeqCst);
            attended.soon();
            fake.sends.store(1, SeqCst);
            fake.ring();
            until(kind, || !due.load(SeqCst) && fake.idle());
        }
    }
}

#[test]
fn a_loss_is_told_once_by_whoever_finds_it() {
    for by_driver in [false, true] {
        let (fake, healthy) = (Fake::new(Bell::event()), Fake::new(Bell::pipe()));
        let told = Arc::new(Mutex::new(Vec::new()));
        let attended = {
            let told = Arc::clone(&told);
            let link = Arc::clone(&fake) as Arc<dyn Link>;
            Attended::new(link, move |error| told.lock().unwrap().push(error.clone())).unwrap()
        };
        let others = attend(&healthy);
        until("the first visit", || fake.armings.load(SeqCst) > 0);
        let driving = by_driver.then(|| attended.drive());
        fake.fails.store(true, SeqCst);
        if let Some(driving) = &driving {
            for _ in 0..3 {
                driving.progress().unwrap_err();
            }
        } else {
            fake.arrive();
        }
        until("the loss was told", || !told.lock().unwrap().is_empty());
        drop(driving);
        for _ in 0..100 {
            fake.arrive();
            healthy.arrive();
            until("others go on", || healthy.idle());
        }
        let told = told.lock().unwrap();
        assert!(matches!(&told[..], [WireError::Lost { peer: 1, .. }]), "{by_driver}: {told:?}");
        drop(others);
    }
}

#[test]
fn a_wire_that_panics_loses_its_link_alone() {
    let (fake, healthy) = (Fake::new(Bell::pipe()), Fake::new(Bell::event()));
    let told = Arc::new(Mutex::new(None));
    let attended = {
        let told = Arc::clone(&told);
        let told = move |error: &WireError| *told.lock().unwrap() = Some(error.to_string());
        Attended::new(Arc::clone(&fake) as Arc<dyn Link>, told).unwrap()
    };
    let others = attend(&healthy);
    fake.panics.store(true, SeqCst);
    fake.arrive();
    until("the loss was told", || told.lock().unwrap().is_some());
    assert!(told.lock().unwrap().as_ref().unwrap().contains("panicked"));
    healthy.arrive();
    until("others go on", || healthy.idle());
    drop((attended, others));
}

/// The last reference goes while things arrive, on the proxy's thread or another; the link goes with it.
#[test]
fn care_ends_with_the_last_reference_wherever_it_goes() {
    for round in 0..200u64 {
        let bell = if round % 2 == 0 { Bell::event() } else { Bell::pipe() };
        let fake = Fake::new(bell);
        let held: Arc<Mutex<Option<Arc<Attended>>>> = Arc::default();
        let attended = {
            let held = Arc::clone(&held);
            let link = Arc::clone(&fake) as Arc<dyn Link>;
            Attended::new(link, move |_| drop(held.lock().unwrap().take())).unwrap()
        };
        *held.lock().unwrap() = Some(attended);
        fake.arrive();
        if round % 3 == 0 {
            fake.fails.store(true, SeqCst);
            fake.arrive();
            until("the proxy let go", || held.lock().unwrap().is_none());
        } else {
            pause(round, 7);
            drop(held.lock().unwrap().take());
        }
        until("the link is gone", || Arc::strong_count(&fake) == 1);
        fake.arrive();
    }
}

#[test]
fn a_busy_link_starves_no_other() {
    let busy = Fake::new(Bell::pipe());
    let _busy = attend(&busy);
    busy.busy.store(true, SeqCst);
    busy.arrive();
    until("it is busy", || busy.proxied.load(SeqCst) > 100);
    for (kind, fake) in kinds() {
        let attended = attend(&fake);
        for _ in 0..50 {
            fake.arrive();
            until(kind, || fake.idle());
        }
        drop(attended);
    }
}

#[test]
fn links_may_share_a_descriptor_and_a_noisy_one_does_not_keep_the_thread_busy() {
    const VISITS: u64 = 50;
    let Bell::Noisy(descriptor) = Bell::noisy() else { unreachable!("it is") };
    let links = [(); 2].map(|()| Fake::new(Bell::Noisy(Arc::clone(&descriptor))));
    let begin = Instant::now();
    let attended = links.each_ref().map(attend);
    for link in &links {
        // A burst of wake-ups for nothing, then visits only.
        let burst = u64::from(super::thread::FRUITLESS) + 1;
        until("it is visited", || link.armings.load(SeqCst) > burst + 2 * VISITS);
        link.arrive();
        until("it is served", || link.idle());
    }
    assert!(begin.elapsed() > Duration::from_millis(VISITS), "{:?}", begin.elapsed());
    drop(attended);
}

#[derive(Debug)]
struct NoRegions(AtomicU64);

impl MappedRegions for NoRegions {
    fn region(&self, _: u32, _: u64) -> Option<Arc<dyn Memory>> {
        self.0.fetch_add(1, SeqCst);
        None
    }
}

#[test]
fn a_local_link_needs_no_visits() {
    let wire = LocalWire::new(Arc::new(NoRegions(AtomicU64::new(0))));
    let link = wire.open(1).unwrap().connect(&[]).unwrap();
    let attended = Attended::new(link, |error| panic!("{error}")).unwrap();
    until("the first visit", || !attended.visit.load(SeqCst));
    // The turn that it is may go on still, until another link has one.
    let next = Fake::new(Bell::event());
    let _next = attend(&next);
    until("the next link's visit", || next.armings.load(SeqCst) > 0);
    for _ in 0..100 {
        let driving = attended.drive();
        driving.progress().unwrap();
        drop(driving);
        assert!(!attended.visit.load(SeqCst), "a visit was asked for");
    }
    attended.soon();
    until("the visit", || !attended.visit.load(SeqCst));
}

/// The proxy sleeps until a message arrives: it need not come by for one.
#[test]
fn what_arrives_over_tcp_wakes_the_proxy() {
    let wire = |rank| {
        let settings = Settings::new(rank, [7; 32]).with_interface(Some("127.0.0.1".to_owned()));
        TcpDriver::default().open(&settings).unwrap()
    };
    let (zero, one) = (wire(0), wire(1));
    let memory = driver(Backend::Host).unwrap().open(0).unwrap().allocate(64).unwrap();
    let registration = one.register(&memory).unwrap();
    // SAFETY: an aligned word inside the memory, which only the link writes.
    let counter = unsafe { &*memory.address().cast::<AtomicU64>() };
    let (from_zero, from_one) = (zero.open(1).unwrap(), one.open(0).unwrap());
    let (at_zero, at_one) = (from_zero.address(), from_one.address());
    let attended = |link| Attended::new(link, |error| panic!("{error}")).unwrap();
    let zero = attended(from_zero.connect(&at_one).unwrap());
    let one = attended(from_one.connect(&at_zero).unwrap());
    zero.link().accept(registration.region, registration.bytes, &registration.blob).unwrap();
    let driving = zero.drive();
    for value in 1..=100 {
        assert_eq!(zero.link().signal(registration.region, 0, value), Ok(Posted::Queued));
        until("the signal", || {
            driving.progress().unwrap();
            counter.load(SeqCst) == value
        });
        match value {
            // From the connecting.
            1 => until("the last visit", || !one.visit.load(SeqCst)),
            _ => assert!(!one.visit.load(SeqCst), "a visit was asked for"),
        }
    }
}
