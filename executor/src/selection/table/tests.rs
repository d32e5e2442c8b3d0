//! Tables: what is near a call, what is read back, and what is refused.

use super::*;
use proptest::prelude::*;

fn machine() -> Machine {
    Machine { cpu: "an abacus".into(), cores: 4 }
}

fn setting(kind: Kind, in_place: bool) -> Setting {
    Setting { collective: Collective::AllReduce, ranks: 4, nodes: 2, kind, in_place }
}

fn times(list: &[(&str, u64)]) -> Times {
    Times::new(list.iter().map(|(name, time)| ((*name).to_owned(), *time)))
}

#[test]
fn between_two_sizes_times_lie_on_a_straight_line_and_beside_one_they_are_its() {
    let mut table = Table::new(machine());
    let own = setting(Kind::Processes, false);
    // "flat" is the faster one from 192 bytes on, and "late" has no time at 16.
    table.record(&own, 16, times(&[("flat", 200), ("steep", 24)]));
    table.record(&own, 256, times(&[("flat", 200), ("steep", 264), ("late", 1)]));
    table.record(&own, 65536, times(&[("flat", 300)]));
    type Case = (u64, Option<(u64, u64)>, &'static [(&'static str, u64)]);
    let cases: [Case; 12] = [
        (0, None, &[]),
        (3, None, &[]),
        (4, Some((16, 16)), &[("steep", 24), ("flat", 200)]),
        (16, Some((16, 16)), &[("steep", 24), ("flat", 200)]),
        // 256 is too far.
        (17, Some((16, 16)), &[("steep", 24), ("flat", 200)]),
        (64, Some((16, 256)), &[("late", 1), ("steep", 72), ("flat", 200)]),
        // 16 is too far.
        (65, Some((256, 256)), &[("late", 1), ("flat", 200), ("steep", 264)]),
        (256, Some((256, 256)), &[("late", 1), ("flat", 200), ("steep", 264)]),
        (1024, Some((256, 256)), &[("late", 1), ("flat", 200), ("steep", 264)]),
        (1025, None, &[]),
        (262_144, Some((65536, 65536)), &[("flat", 300)]),
        (u64::MAX, None, &[]),
    ];
    for (bytes, sizes, expected) in cases {
        let near = table.near(&own, bytes, &[]);
        assert_eq!(near.as_ref().map(|near| near.bytes), sizes, "{bytes}");
        let saw = near.map_or_else(|| times(&[]), |near| near.times.into_owned());
        assert_eq!(saw, times(expected), "{bytes}");
    }
    let mut extremes = Table::new(machine());
    for bytes in [0, u64::MAX] {
        extremes.record(&own, bytes, times(&[("a", u64::MAX)]));
    }
    let near = |bytes| extremes.near(&own, bytes, &[]).map(|near| near.bytes.0);
    assert_eq!([near(0), near(1), near(u64::MAX)], [Some(0), None, Some(u64::MAX)]);
}

#[test]
fn what_was_measured_otherwise_stands_in() {
    use Kind::{Processes, Threads};
    let all = [(Processes, false), (Threads, false), (Processes, true), (Threads, true)];
    let asked = setting(Processes, false);
    for first in 0..all.len() {
        let mut table = Table::new(machine());
        for &(kind, in_place) in &all[first..] {
            table.record(&setting(kind, in_place), 8, times(&[("a", 1)]));
        }
        let near = table.near(&asked, 8, &[]).unwrap();
        assert_eq!((near.setting.kind, near.setting.in_place), all[first]);
    }
    let mut table = Table::new(machine());
    table.record(&asked, 8, times(&[("a", 1)]));
    // One that was measured at other sizes alone says nothing.
    table.record(&setting(Threads, false), 4096, times(&[("a", 1)]));
    let near = table.near(&setting(Threads, false), 8, &[]).unwrap();
    assert_eq!((near.setting.kind, near.bytes), (Processes, (8, 8)));
    for other in [
        Setting { ranks: 8, ..asked.clone() },
        Setting { nodes: 1, ..asked.clone() },
        Setting { collective: Collective::AllGather, ..asked.clone() },
    ] {
        assert_eq!(table.near(&other, 8, &[]), None, "{other:?}");
    }
    // In place, other algorithms serve an alltoall.
    let all_to_all =
        |in_place| Setting { collective: Collective::AllToAll, ..setting(Processes, in_place) };
    table.record(&all_to_all(false), 8, times(&[("a", 1)]));
    let found = [false, true].map(|place| table.near(&all_to_all(place), 8, &[]).is_some());
    assert_eq!(found, [true, false]);
}

#[test]
fn a_setting_that_has_all_that_is_wanted_goes_first() {
    let mut table = Table::new(machine());
    table.record(&setting(Kind::Threads, false), 8, times(&[("a", 1)]));
    table.record(&setting(Kind::Threads, true), 8, times(&[("a", 2), ("mine", 1)]));
    for (wanted, in_place) in
        [(&[][..], false), (&["a"], false), (&["mine"], true), (&["mine", "other"], false)]
    {
        let near = table.near(&setting(Kind::Threads, false), 8, wanted).unwrap();
        assert_eq!(near.setting.in_place, in_place, "{wanted:?}");
    }
}

#[test]
fn the_fastest_that_is_allowed_is_the_best() {
    let times = times(&[("slow", 9), ("b", 5), ("a", 5), ("fast", 1)]);
    assert_eq!(times.best(|_| true), Some("fast"));
    assert_eq!(times.best(|name| name != "fast"), Some("a"));
    assert_eq!(times.best(|_| false), None);
    assert_eq!((times.of("slow"), times.of("unknown")), (Some(9), None));
}

#[test]
fn a_fingerprint_tells_tables_apart_whatever_their_history() {
    let own = setting(Kind::Processes, false);
    let other = setting(Kind::Threads, true);
    let (mut one, mut two) = (Table::new(machine()), Table::new(machine()));
    one.record(&own, 8, times(&[("a", 1)]));
    one.record(&other, 8, times(&[("a", 1)]));
    two.record(&other, 8, times(&[("a", 7)]));
    two.record(&own, 8, times(&[("a", 1)]));
    assert_ne!(one.fingerprint(), two.fingerprint());
    two.record(&other, 8, times(&[("a", 1)]));
    assert_eq!(one, two);
    assert_eq!(one.fingerprint(), two.fingerprint());
    let elsewhere = Table::new(Machine { cores: 5, ..machine() });
    assert_ne!(elsewhere.fingerprint(), Table::new(machine()).fingerprint());
}

#[test]
fn moments_count_alike_however_slow_the_machine_was_in_them() {
    // A moment in which all is fast, and `a` more so; two in which `b` is the faster by less.
    let [one, two, three] = [[100, 120], [300, 290], [305, 300]]
        .map(|[a, b]| Times::new([("a".to_owned(), a), ("b".to_owned(), b)]));
    let all = one.and(&two).and(&three);
    assert_eq!((all.moments(), all.best(|_| true)), (3, Some("a")));
    // The cube roots of the products.
    assert_eq!([all.of("a"), all.of("b")], [Some(209), Some(219)]);
    assert_eq!(one.and(&two.and(&three)).of("a"), Some(209));
    // Who is new has its own time, and who is no more has none.
    let changed = one.and(&times(&[("b", 480), ("c", 0)]));
    assert_eq!(changed, Times { moments: 2, ..times(&[("b", 240), ("c", 0)]) });
    assert_eq!(times(&[("a", 0)]).and(&times(&[("a", 0)])).of("a"), Some(1));
}

#[test]
fn a_table_says_how_often_a_size_was_measured() {
    let mut table = Table::parse(GOOD).unwrap();
    let at = setting(Kind::Threads, true);
    let once = table.at(&at, 8).unwrap().clone();
    assert_eq!(once.moments(), 1);
    table.record(&at, 8, once.and(&once));
    let again = Table::parse(&table.to_text()).unwrap();
    assert_eq!(again, table);
    assert_eq!(again.at(&at, 8).unwrap().moments(), 2);
}

const GOOD: &str = r#"{"antiphon_tuning": 1, "cpu": "an abacus", "cores": 4, "settings": [
    {"collective": "allreduce", "ranks": 4, "nodes": 2, "kind": "threads", "in_place": true,
     "sizes": [{"bytes": 8, "times_ns": {"a": 5, "b": 4}}]}]}"#;

#[test]
fn a_file_is_read() {
    let table = Table::parse(GOOD).unwrap();
    assert_eq!(table.machine().to_string(), "an abacus with 4 usable cores");
    let near = table.near(&setting(Kind::Threads, true), 9, &[]).unwrap();
    assert_eq!((near.bytes, near.times.best(|_| true)), ((8, 8), Some("b")));
}

#[test]
fn times_are_of_the_library_that_measured_them() {
    let own = Table::new(machine());
    assert_eq!((own.stale(), own.emptied()), (None, own.clone()));
    let saying = format!("\"library\": \"{LIBRARY}\"");
    assert!(own.to_text().contains(&saying), "{}", own.to_text());
    let other = own.to_text().replace(&saying, "\"library\": \"0.0.1\"");
    for (text, of) in [(other.as_str(), "version 0.0.1"), (GOOD, "an early version")] {
        let table = Table::parse(text).unwrap();
        let said = format!("its times are of {of} of Antiphon, and this is {LIBRARY}");
        assert_eq!(table.stale(), Some(said));
        // It stays what it is.
        assert_eq!(Table::parse(&table.to_text()), Ok(table.clone()));
        assert_eq!(table.emptied().stale(), table.stale());
        assert_ne!(table.emptied().fingerprint(), own.fingerprint());
    }
}

#[test]
fn bad_files_are_refused_with_what_is_wrong() {
    let with = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        GOOD.replacen(from, to, 1)
    };
    let twice = r#"{"bytes": 8, "times_ns": {"a": 1}}, {"bytes": 8,"#;
    for (text, word) in [
        (String::new(), "EOF"),
        ("[]".into(), "cannot read a tuning table"),
        ("{}".into(), "antiphon_tuning"),
        (with("\"bytes\": 8", "\"bytes\": 8, \"moments\": 0"), "moments of 0, allowed 1 or more"),
        (GOOD[..GOOD.len() - 1].into(), "EOF"),
        (with("\"antiphon_tuning\": 1", "\"antiphon_tuning\": 2"), "version 2, allowed 1"),
        (with("\"ranks\": 4", "\"ranks\": 0"), "ranks of 0"),
        (with("\"ranks\": 4", "\"ranks\": 4294967296"), "4294967296"),
        (with("\"ranks\": 4", "\"ranks\": -4"), "-4"),
        (with("\"nodes\": 2", "\"nodes\": 3"), "nodes of 3"),
        (with("\"nodes\": 2", "\"nodes\": 0"), "nodes of 0"),
        (with("threads", "fibres"), "kind of `fibres`, allowed threads and processes"),
        (with("\"bytes\": 8", "\"bytes\": 1e400"), "number"),
        (with("\"bytes\": 8", "\"bytes\": 18446744073709551616"), "1.8446744073709552e+19"),
        (with("{\"bytes\": 8,", twice), "bytes of 8, allowed each size once"),
        (with("\"a\": 5, \"b\": 4", ""), "times_ns of nothing"),
        (with("\"a\": 5", "\"a\": 0.5"), "0.5"),
        (with("\"in_place\"", "\"inplace\""), "inplace"),
        ("[".repeat(100_000), "cannot read a tuning table"),
    ] {
        let error = Table::parse(&text).expect_err(&text).to_string();
        let start: String = text.chars().take(200).collect();
        assert!(error.contains(word), "{start}: {error}");
    }
}

prop_compose! {
    fn some_table()(
        cores: u32,
        entries in prop::collection::vec(
            (0..3_usize, 1..9_u32, any::<bool>(), any::<bool>(),
             prop::collection::vec((any::<u64>(), prop::collection::vec(("[a-c\"\\\\é]{0,3}", any::<u64>()), 1..4)), 1..4)),
            0..5,
        ),
    ) -> Table {
        let names = ["allreduce", "sendrecv", "a custom one"];
        let mut table = Table::new(Machine { cpu: "x".into(), cores });
        for (name, ranks, threads, in_place, sizes) in entries {
            let kind = if threads { Kind::Threads } else { Kind::Processes };
            let collective = Collective::from_name(names[name]);
            let setting = Setting { collective, ranks, nodes: 1, kind, in_place };
            for (bytes, times) in sizes {
                table.record(&setting, bytes, Times::new(times));
            }
        }
        table
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(table in some_table()) {
        let text = table.to_text();
        prop_assert_eq!(Table::parse(&text), Ok(table.clone()));
        prop_assert!(table.fingerprint() != 0);
    }

    #[test]
    fn damaged_files_are_tables_or_errors(table in some_table(), at: prop::sample::Index, byte: u8) {
        let mut bytes = table.to_text().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Ok(read) = Table::parse(&text) {
            prop_assert_eq!(Table::parse(&read.to_text()), Ok(read));
        }
        if let Some(half) = text.get(..at) {
            prop_assert!(Table::parse(half).is_err());
        }
    }

    #[test]
    fn no_measured_size_is_nearer_than_those_on_both_sides(sizes in prop::collection::btree_set(1u64..1 << 12, 1..6), bytes in 1u64..1 << 14) {
        let mut table = Table::new(machine());
        let own = setting(Kind::Threads, false);
        for &size in &sizes {
            table.record(&own, size, times(&[("a", 1)]));
        }
        let far = |size: u64| ((size as f64).ln() - (bytes as f64).ln()).abs();
        let least = sizes.iter().map(|&size| far(size)).fold(f64::MAX, f64::min);
        match table.near(&own, bytes, &[]).map(|near| near.bytes) {
            Some((found, same)) if found == same => {
                prop_assert!(far(found) <= least + 1e-9, "{found} of {sizes:?} for {bytes}");
            }
            Some((low, high)) => {
                prop_assert!(low < bytes && bytes < high, "{low} and {high} for {bytes}");
                prop_assert_eq!(sizes.range(low..=high).count(), 2);
            }
            None => prop_assert!(least > 4f64.ln() - 1e-9, "none of {sizes:?} for {bytes}"),
        }
    }
}
