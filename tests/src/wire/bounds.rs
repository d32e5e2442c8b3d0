//! Cases on posts that make no sense, and on regions that are gone.

use super::Subject;
use super::support::{fill, plain, words};
use antiphon_port::{Unit, WireError, Write};
use std::sync::atomic::Ordering;

/// Posts outside their memories, at odd places or to unknown regions are refused, with a text; the link goes on.
pub fn what_makes_no_sense_is_refused(subject: &Subject) {
    let ends = subject.ends(2);
    let pair = ends.pair();
    let (source, target) = (ends.region(0, 4096), ends.region(1, 8192));
    target.tell(&pair.a);
    let region = target.number();
    let whole = plain(&source.memory, region, 0, 4096);
    let packets = Write { unit: Unit::Packets, bytes: 64, ..whole };
    let writes = [
        ("past the source's end", Write { from: 1, ..whole }),
        ("more than the source", Write { bytes: 4097, ..whole }),
        ("a source offset that wraps", Write { from: u64::MAX - 7, bytes: 16, ..whole }),
        ("past the region's end", Write { to: 4097, ..whole }),
        ("far past the region's end", Write { to: 1 << 62, ..whole }),
        ("an offset that wraps", Write { to: u64::MAX - 7, bytes: 16, ..whole }),
        ("a length that wraps", Write { bytes: u64::MAX, ..whole }),
        ("an unknown region", Write { region: u64::MAX - 3, ..whole }),
        ("packets from an odd place", Write { from: 4, ..packets }),
        ("packets to an odd place", Write { to: 12, ..packets }),
        ("packets of odd length", Write { bytes: 60, ..packets }),
    ];
    let refused = |what: &str, answer: Result<antiphon_port::Posted, WireError>| match answer {
        Err(error @ WireError::Invalid { .. }) => {
            let text = error.to_string();
            assert!(text.contains("saw") && text.contains(ends.wires[0].name()), "{what}: {text}");
        }
        other => panic!("{what}: {other:?}"),
    };
    for (what, write) in &writes {
        refused(what, pair.a.write(write));
    }
    for (what, region, to) in [
        ("a signal past the end", region, 8192),
        ("a signal over the end", region, 8188),
        ("a signal at an odd place", region, 4),
        ("a signal whose offset wraps", region, u64::MAX - 7),
        ("a signal to an unknown region", u64::MAX - 3, 0),
    ] {
        refused(what, pair.a.signal(region, to, 1));
    }
    assert_eq!(pair.a.posted(), 0, "what is refused does not count");
    fill(&source.memory, 0, 4096, 3);
    pair.write(&Write { to: 4096, ..whole });
    pair.flush();
    assert!(words(&target.memory, 512).iter().all(|word| word.load(Ordering::Relaxed) == 0));
}

/// After a region was retired posts to it are refused; others go on, also to the same memory registered again.
pub fn retired_regions_are_forgotten(subject: &Subject) {
    let ends = subject.ends(2);
    let pair = ends.pair();
    let source = ends.region(0, 64);
    let (old, kept) = (ends.region(1, 4096), ends.region(1, 4096));
    old.tell(&pair.a);
    kept.tell(&pair.a);
    pair.signal(old.number(), 0, 1);
    pair.flush();
    pair.a.retire(old.number());
    // Twice is as good as once.
    pair.a.retire(old.number());
    ends.withdraw(1, &old);
    let memory = old.memory.clone();
    let number = old.number();
    drop(old);
    let write = plain(&source.memory, number, 0, 8);
    assert!(matches!(pair.a.write(&write), Err(WireError::Invalid { .. })));
    assert!(matches!(pair.a.signal(number, 0, 2), Err(WireError::Invalid { .. })));
    pair.signal(kept.number(), 0, 3);
    pair.flush();
    let again = ends.register(1, memory);
    again.tell(&pair.a);
    pair.signal(again.number(), 8, 4);
    pair.flush();
    let values = [0, 1].map(|at| words(&again.memory, 2)[at].load(Ordering::Acquire));
    assert_eq!(values, [1, 4]);
    assert_eq!(words(&kept.memory, 1)[0].load(Ordering::Acquire), 3);
}
