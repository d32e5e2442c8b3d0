//! Tests of reading and writing plan files.

use super::*;
use crate::real_samples::{any_plan, real_plans};
use crate::{check, pairing};
use proptest::prelude::*;
use serde_json::Value;

fn compact(plan: &Plan) -> String {
    let mut out = Vec::new();
    write(plan, Style::Compact, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn pretty(plan: &Plan) -> String {
    let mut out = Vec::new();
    write(plan, Style::Pretty, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Worked example: an all-reduce of two ranks over packets.
const PACKETS: &str = include_str!("samples/packets.json");

#[test]
fn real_plans_are_written_back_as_they_were() {
    for (name, bytes) in real_plans() {
        let Read { plan, dialect } = read(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(dialect, Dialect::Current, "{name}");
        for text in [compact(&plan), pretty(&plan)] {
            let written: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(written, serde_json::from_slice::<Value>(&bytes).unwrap(), "{name}");
        }
        // The values alone do not show the order of keys.
        assert_eq!(compact(&plan).as_bytes(), bytes, "{name}");
    }
}

#[test]
fn optional_keys_have_the_format_s_defaults() {
    let text = r#"{"name":"n","collective":"custom","protocol":"other","inplace":false,"gpus":[
        {"id":0,"input_chunks":1,"output_chunks":1,"scratch_chunks":0,"channels":[],"remote_buffers":[],
         "threadblocks":[{"id":0,"channels":[],"ops":[{"name":"nop","comment":{"a":[1e400,-1]}}]}]}]}"#;
    let plan = read(text.as_bytes()).unwrap().plan;
    assert_eq!(plan.collective, crate::model::Collective::Other("custom".to_owned()));
    assert_eq!(plan.protocol, crate::model::Protocol::Simple);
    assert!(!plan.reuse_resources && !plan.use_double_scratch_buffer);
    assert_eq!((plan.num_threads_per_block, plan.buffer_alignment), (1024, 16));
    assert_eq!((plan.min_message_size, plan.max_message_size), (0, u64::MAX));
    assert_eq!(
        plan.gpus[0].threadblocks[0].ops,
        [crate::model::Op::new(crate::model::OpKind::Nop)]
    );
}

#[test]
fn legacy_examples_become_current_plans() {
    let cases = [
        ("allgather_memory", include_str!("samples/legacy-allgather.json"), Dialect::LegacyMemory),
        ("allreduce_sm", include_str!("samples/legacy-packets.json"), Dialect::LegacySm),
    ];
    for (name, text, dialect) in cases {
        let found = read(text.as_bytes()).unwrap();
        assert_eq!(found.dialect, dialect, "{name}");
        check(&found.plan).unwrap();
        assert_eq!(pairing(&found.plan), []);
        insta::assert_snapshot!(name, pretty(&found.plan));
    }
}

#[test]
fn the_legacy_packet_example_is_the_current_one() {
    // The two DSLs were given the same algorithm; the older one had no need of the `nop`.
    let mut current = read(PACKETS.as_bytes()).unwrap().plan;
    let legacy = read(include_bytes!("samples/legacy-packets.json")).unwrap().plan;
    current.name.clone_from(&legacy.name);
    current.max_message_size = legacy.max_message_size;
    current.num_threads_per_block = legacy.num_threads_per_block;
    for gpu in &mut current.gpus {
        gpu.output_chunks = 0;
        gpu.threadblocks[0].ops.retain(|op| op.kind != crate::model::OpKind::Nop);
    }
    assert_eq!(current, legacy);
}

#[test]
fn every_legacy_operation_is_translated() {
    let read = read(include_bytes!("samples/legacy-operations.json")).unwrap();
    assert_eq!(read.dialect, Dialect::LegacyMemory);
    check(&read.plan).unwrap();
    let ops: Vec<String> = read.plan.gpus[0]
        .threadblocks
        .iter()
        .flat_map(|block| &block.ops)
        .map(|op| {
            let plan = compact(&Plan {
                gpus: vec![crate::model::Gpu {
                    threadblocks: vec![crate::model::ThreadBlock {
                        ops: vec![op.clone()],
                        ..Default::default()
                    }],
                    ..Default::default()
                }],
                ..read.plan.clone()
            });
            let start = plan.find("\"ops\":[").unwrap() + 7;
            let end = plan.find("],\"channels\"").unwrap();
            plan[start..end].to_owned()
        })
        .collect();
    let tables = Plan {
        gpus: vec![crate::model::Gpu {
            threadblocks: read.plan.gpus[0]
                .threadblocks
                .iter()
                .map(|block| crate::model::ThreadBlock { ops: Vec::new(), ..block.clone() })
                .collect(),
            ..read.plan.gpus[0].clone()
        }],
        ..read.plan.clone()
    };
    insta::assert_snapshot!("operations", format!("{}\n\n{}", ops.join("\n"), pretty(&tables)));
}

/// Replaces the only (or first) occurrence of a text in the worked example.
fn edited(from: &str, to: &str) -> String {
    assert!(PACKETS.contains(from), "{from}");
    PACKETS.replacen(from, to, 1)
}

#[test]
fn whole_floats_are_integers() {
    let index = |text: &str| format!(r#"{{"buffer_id": 0, "index": {text}, "size": 1}}"#);
    let whole = read(PACKETS.as_bytes()).unwrap().plan;
    for text in ["1.0", "1e0", "10e-1", "0.01E+2"] {
        let plan = read(edited(&index("1"), &index(text)).as_bytes()).unwrap().plan;
        assert_eq!(compact(&plan), compact(&whole), "{text}");
    }
    let sized = |most: &str| edited("1048576", most);
    let most = |text: &str| read(sized(text).as_bytes()).map(|read| read.plan.max_message_size);
    assert_eq!(most("1000000000.0").unwrap(), 1_000_000_000);
    assert_eq!(most("1125899906842624.0").unwrap(), 1 << 50);
    // Perhaps another number, rounded; and none.
    for text in ["1125899906842625.0", "1e300", "-1.0", "0.5"] {
        assert!(most(text).is_err(), "{text}");
    }
}

#[test]
fn errors_say_where_and_what() {
    let legacy = include_str!("samples/legacy-allgather.json");
    let legacy_edited = |from: &str, to: &str| {
        assert!(legacy.contains(from), "{from}");
        legacy.replacen(from, to, 1)
    };
    let index = r#"{"buffer_id": 0, "index": 1, "size": 1}"#;
    let nested = "[".repeat(10_000) + &"]".repeat(10_000);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("empty", Vec::new()),
        ("a list", b"[]".to_vec()),
        ("cut off", PACKETS.as_bytes()[..700].to_vec()),
        ("cut off in a legacy file", legacy.as_bytes()[..600].to_vec()),
        ("text after the end", format!("{PACKETS} x").into_bytes()),
        ("not UTF-8", edited("ar2", "a\u{1}r2").replace('\u{1}', "").into_bytes()),
        ("missing key", edited(r#""collective": "allreduce", "#, "").into_bytes()),
        ("missing index", edited(index, r#"{"buffer_id": 0, "size": 1}"#).into_bytes()),
        (
            "negative index",
            edited(index, r#"{"buffer_id": 0, "index": -1, "size": 1}"#).into_bytes(),
        ),
        (
            "fractional index",
            edited(index, r#"{"buffer_id": 0, "index": 1.5, "size": 1}"#).into_bytes(),
        ),
        (
            "beyond 64 bits",
            edited(index, r#"{"buffer_id": 0, "index": 18446744073709551616, "size": 1}"#)
                .into_bytes(),
        ),
        (
            "text for a number",
            edited(index, r#"{"buffer_id": 0, "index": "1", "size": 1}"#).into_bytes(),
        ),
        ("null", edited(index, "null").into_bytes()),
        (
            "two buffers",
            edited(index, r#"{"buffer_id": 0, "type": "i", "index": 1, "size": 1}"#).into_bytes(),
        ),
        ("no buffer", edited(index, r#"{"index": 1, "size": 1}"#).into_bytes()),
        ("unknown buffer", edited(index, r#"{"type": "x", "index": 1, "size": 1}"#).into_bytes()),
        (
            "repeated key",
            edited(index, r#"{"buffer_id": 0, "index": 1, "index": 1, "size": 1}"#).into_bytes(),
        ),
        ("repeated unknown key", edited(index, r#"{"x": 0, "buffer_id": 0, "x": 1}"#).into_bytes()),
        ("unknown operation", edited("\"upkt\"", "\"unpack\"").into_bytes()),
        ("unknown channel type", edited("\"memory\"", "\"nvlink\"").into_bytes()),
        ("unknown reduction", edited("\"sum\"", "\"xor\"").into_bytes()),
        ("deep nesting", edited(index, &nested).into_bytes()),
        (
            "half a pipeline",
            edited(r#"{"name": "nop"}"#, r#"{"name": "pipeline", "ops": []}"#).into_bytes(),
        ),
        ("legacy: unknown operation", legacy_edited("\"wait\"", "\"await\"").into_bytes()),
        (
            "legacy: unknown channel",
            legacy_edited(r#"{"id":0,"off":1}"#, r#"{"id":1,"off":1}"#).into_bytes(),
        ),
        ("legacy: unlisted channel", legacy_edited("\"cids\":[0]", "\"cids\":[7]").into_bytes()),
        ("legacy: missing key", legacy_edited(",\"cnt\":1", "").into_bytes()),
    ];
    let messages: Vec<String> = cases
        .into_iter()
        .map(|(name, mut bytes)| {
            if name == "not UTF-8" {
                bytes[200] = 0xff;
            }
            format!("{name}\n  {}\n", read(&bytes).unwrap_err())
        })
        .collect();
    insta::assert_snapshot!("errors", messages.concat());
}

#[test]
fn nesting_ends_in_an_error_not_in_an_overflow() {
    for depth in [20, 100, 10_000] {
        let ops = r#"{"name":"pipeline","iter_context":{"unit_size":1,"num_chunks":1},"ops":["#
            .repeat(depth)
            + &"]}".repeat(depth);
        let text = PACKETS.replacen(r#"{"name": "nop"}"#, &ops, 1);
        match read(text.as_bytes()) {
            Ok(found) => {
                assert_eq!(depth, 20);
                let faults = check(&found.plan).unwrap_err();
                assert!(faults.to_string().contains("a pipeline in a pipeline"), "{faults}");
                assert_eq!(read(compact(&found.plan).as_bytes()), Ok(found));
            }
            Err(error) => assert!(error.to_string().contains("recursion limit"), "{error}"),
        }
    }
    // What is skipped is skipped at any depth.
    let text = PACKETS.replacen(
        "{",
        &format!("{{\"x\":{}1{},", "[".repeat(10_000), "]".repeat(10_000)),
        1,
    );
    assert!(read(text.as_bytes()).is_ok());
}

#[test]
fn glre_must_name_the_buffer_of_its_channel() {
    let text = include_str!("samples/switch-reduce.json");
    let plan = read(text.as_bytes()).unwrap().plan;
    check(&plan).unwrap();
    assert_eq!(plan.gpus[0].threadblocks[0].ops[0].src.len(), 1);
    assert_eq!(
        serde_json::from_str::<Value>(&compact(&plan)).unwrap(),
        serde_json::from_str::<Value>(text).unwrap()
    );
    let wrong = text.replacen(r#""glre", "buffer_type": "i""#, r#""glre", "buffer_type": "o""#, 1);
    let error = read(wrong.as_bytes()).unwrap_err();
    assert_eq!(error.place.to_string(), "gpus[0].threadblocks[0].ops[0].buffer_type");
    assert!(error.problem.contains("saw `o`, allowed `i`"), "{error}");
}

/// A change to a file: bytes replaced, removed, or repeated.
#[derive(Clone, Debug)]
enum Edit {
    Set(usize, u8),
    Cut(usize, usize),
    Repeat(usize, usize),
    Swap(usize, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = || any::<usize>();
    let byte =
        prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\",:0123456789-eE.iosn".to_vec())];
    prop_oneof![
        4 => (at(), byte).prop_map(|(at, byte)| Edit::Set(at, byte)),
        1 => (at(), 1..40_usize).prop_map(|(at, len)| Edit::Cut(at, len)),
        1 => (at(), 1..200_usize).prop_map(|(at, len)| Edit::Repeat(at, len)),
        2 => (at(), at()).prop_map(|(a, b)| Edit::Swap(a, b)),
    ]
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        let range = |at: usize, n: usize| at % len..(at % len + n).min(len);
        match *self {
            Edit::Set(at, byte) => bytes[at % len] = byte,
            Edit::Cut(at, n) => drop(bytes.drain(range(at, n.min(len - 1)))),
            Edit::Repeat(at, n) => {
                let range = range(at, n);
                let copy = bytes[range.clone()].to_vec();
                bytes.splice(range.end..range.end, copy);
            }
            // Digits with digits, so that the file still parses and its numbers change.
            Edit::Swap(a, b) => {
                let digits: Vec<usize> =
                    (0..len).filter(|&at| bytes[at].is_ascii_digit()).collect();
                if !digits.is_empty() {
                    bytes.swap(digits[a % digits.len()], digits[b % digits.len()]);
                }
            }
        }
    }
}

/// Whatever the bytes are, every function ends, and what is read is written back the same.
fn survives(bytes: &[u8]) -> Result<(), TestCaseError> {
    match read(bytes) {
        Ok(found) => {
            let faults = check(&found.plan).map_err(|faults| faults.to_string());
            let warnings = pairing(&found.plan);
            prop_assert!(faults.is_ok() || !faults.unwrap_err().is_empty());
            prop_assert!(warnings.iter().all(|fault| !fault.to_string().is_empty()));
            let again = read(compact(&found.plan).as_bytes());
            prop_assert_eq!(again.map(|again| again.plan), Ok(found.plan));
        }
        Err(error) => prop_assert!(!error.to_string().is_empty()),
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        survives(&bytes)?;
    }

    #[test]
    fn edited_plans_are_survived(
        which in any::<usize>(),
        edits in proptest::collection::vec(edit(), 1..6),
    ) {
        let samples: [&str; 5] = [
            PACKETS,
            include_str!("samples/legacy-allgather.json"),
            include_str!("samples/legacy-packets.json"),
            include_str!("samples/legacy-operations.json"),
            include_str!("samples/switch-reduce.json"),
        ];
        let mut bytes = samples[which % samples.len()].as_bytes().to_vec();
        edits.iter().for_each(|edit| edit.apply(&mut bytes));
        survives(&bytes)?;
    }

    #[test]
    fn written_plans_are_read_back(plan in any_plan()) {
        for text in [compact(&plan), pretty(&plan)] {
            let found = read(text.as_bytes());
            prop_assert_eq!(found, Ok(Read { plan: plan.clone(), dialect: Dialect::Current }));
        }
        prop_assert!(check(&plan).is_err() || plan.gpus.iter().all(|gpu| gpu.id < 3));
        prop_assert!(pairing(&plan).iter().all(|fault| !fault.to_string().is_empty()));
    }
}

#[test]
fn edited_real_plans_are_survived() {
    let plans = real_plans();
    if plans.is_empty() {
        return;
    }
    let edits = (any::<usize>(), proptest::collection::vec(edit(), 1..6));
    proptest!(ProptestConfig::with_cases(300), |((which, edits) in edits)| {
        let mut bytes = plans[which % plans.len()].1.clone();
        edits.iter().for_each(|edit| edit.apply(&mut bytes));
        survives(&bytes)?;
    });
}
