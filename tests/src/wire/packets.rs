//! Cases on packets: their units appear whole.

use super::Subject;
use super::support::{plain, words};
use antiphon_port::{Unit, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// A reader that looks at packets while they are overwritten sees the old or the new value of each unit.
pub fn units_appear_whole(subject: &Subject) {
    const UNITS: usize = 5000;
    let ends = subject.ends(2);
    let pair = ends.pair();
    let (source, target) = (ends.region(0, UNITS as u64 * 8), ends.region(1, UNITS as u64 * 8));
    target.tell(&pair.a);
    let (stop, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    // All eight bytes of a unit are the same.
    let whole = |value: u64| value == (value & 0xff) * 0x0101_0101_0101_0101;
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let units = words(&target.memory, UNITS);
            let mut last = 0;
            while !stop.load(Ordering::Acquire) {
                for unit in units {
                    let value = unit.load(Ordering::Relaxed);
                    assert!(whole(value), "a torn unit: {value:#x}");
                    // Only looks that catch packets on their way prove something.
                    looks.fetch_add(u64::from(value != last), Ordering::Relaxed);
                    last = value;
                }
            }
        });
        let start = Instant::now();
        for round in 1u64.. {
            // Few and many at a time, at different places.
            let first = (round * 37 % 100) as usize;
            let count = if round.is_multiple_of(4) { UNITS - first } else { round as usize % 67 };
            let value = (round % 255 + 1) * 0x0101_0101_0101_0101;
            for unit in &words(&source.memory, UNITS)[first..first + count] {
                unit.store(value, Ordering::Relaxed);
            }
            let (from, bytes) = (first as u64 * 8, count as u64 * 8);
            let plain = plain(&source.memory, target.number(), from, bytes);
            pair.write(&Write { from, unit: Unit::Packets, ..plain });
            // The source stays as it is until then.
            pair.flush();
            let landed = &words(&target.memory, UNITS)[first..first + count];
            let all = landed.iter().all(|unit| unit.load(Ordering::Relaxed) == value);
            assert!(all, "round {round}: {count} units from {first} on");
            let seen = looks.load(Ordering::Relaxed);
            if reader.is_finished() || (round >= 300 && seen > 1000) {
                break;
            }
            assert!(start.elapsed() < ends.patience, "the reader saw {seen} changes");
        }
        stop.store(true, Ordering::Release);
        reader.join().expect("the reader");
    });
}
