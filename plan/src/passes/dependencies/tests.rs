//! What is inserted, what is overlooked, and the same from chunks painted one by one.

use super::insert;
use crate::passes::notation::{before_and_after, steps, text};

#[test]
fn every_kind_of_dependency_is_met_before_the_later_operation() {
    insta::assert_snapshot!(before_and_after(
        "copy o0 <- i0
         copy s0 <- o0
         copy o0 <- i1
         copy o0 <- i2
         put @0.0 <- o0
         put @0.1 <- o0
         get o0 <- @0.0
         nop
         put @0.0 <- o0
         barrier
         re o0+2 <- o0+2, s0+2
         rre o1 <- i0, @0.0
         res i5, @0.5 <- i5, i6
         rres i6, @0.5 <- i6, @0.6
         put @0.5 <- i6
         signal none
         wait none
         copy s7 <- i6",
        insert,
    ));
}

#[test]
fn runs_are_split_where_later_uses_overlap() {
    insta::assert_snapshot!(before_and_after(
        "put @0.0 <- i0+8
         put @0.0 <- i2+2
         copy s0+8 <- o0+8
         copy o7 <- s9
         copy o0 <- s8
         re i0 <- i0, i9",
        insert,
    ));
}

#[test]
fn packets_are_tracked_as_the_format_tracks_them() {
    insta::assert_snapshot!(before_and_after(
        "cpkt s0 <- i0
         upkt o0 <- s0
         rppkt @0.0 <- s0
         ppkt @0.0 <- o0
         copy i1 <- o1
         repkt o2 <- i1, s1
         copy s1 <- i2
         recpkt i3, s4 <- i3, s3
         copy s4 <- i4
         respkt i5, @0.0 <- i5, s4",
        insert,
    ));
}

#[test]
fn a_pipeline_counts_as_one_operation_outside_and_begins_anew_inside() {
    insta::assert_snapshot!(before_and_after(
        "copy s0 <- i0
         pipeline {
           put @0.0 <- s0
           copy s0 <- i1
           put @0.1 <- s0
         }
         copy s1 <- s0",
        insert,
    ));
}

#[test]
fn overlooked_operations_of_switches() {
    let program = "copy o0 <- i0\ngstore %1.1 <- o0\nglres %1.0 <- %1.0\nglre o0 <- %1.1\n";
    assert_eq!(text(&insert(steps(program))), program);
}

#[test]
fn overlooked_raw_source_of_packet_reductions() {
    let program = "copy i0 <- o0\nrepkt i1 <- i0, s0\n";
    assert_eq!(text(&insert(steps(program))), program);
}

#[test]
fn overlooked_writes_to_what_the_operation_itself_reads() {
    let program = "put @0.0 <- i0\nre i0 <- i0, s0\n";
    assert_eq!(text(&insert(steps(program))), program);
}

#[test]
fn overlooked_memory_in_place() {
    let program = "copy i0 <- s0\nput @0.0 <- o0\n";
    assert_eq!(text(&insert(steps(program))), program);
}

#[test]
fn overlooked_iterations() {
    let program = "pipeline {\n  put @0.0 <- s0+2\n  copy s2 <- i0\n  put @0.1 <- s0\n}\n";
    assert_eq!(text(&insert(steps(program))), program);
    let program = "pipeline {\n  put @0.0 <- s0+2\n  nop\n  copy s1 <- i0\n}\n";
    assert_eq!(text(&insert(steps(program))), program);
}

#[test]
fn overlooked_operands_before_the_one_that_needs_a_meeting() {
    // The copy to o1 overwrites what the second operation read, and nothing keeps them apart.
    let program = "copy o0 <- i0\nput @0.0, @0.1 <- o1, o0\ncopy o1 <- i1\n";
    let expected = "copy o0 <- i0\nnop\nput @0.0, @0.1 <- o1, o0\ncopy o1 <- i1\n";
    assert_eq!(text(&insert(steps(program))), expected);
}

mod painted {
    use super::insert;
    use crate::model::{OpKind, RefBase};
    use crate::passes::Step;
    use crate::passes::notation::steps;
    use proptest::prelude::*;

    /// The same rule with one cell a chunk: the step that used it last, and whether it wrote.
    fn reference(steps: &[Step]) -> Vec<bool> {
        let mut cells = [[None::<(usize, bool)>; 16]; 3];
        let mut meetings = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            let mut met = false;
            if step.kind() == OpKind::Nop {
                cells = Default::default();
            }
            let sides = [(&step.op.src, false), (&step.op.dst, true)];
            let uses = sides.iter().flat_map(|(side, write)| side.iter().map(|c| (c, *write)));
            for (chunk, write) in uses {
                let RefBase::Local(buffer) = chunk.base else { continue };
                let run = chunk.index as usize..(chunk.index + chunk.size) as usize;
                let clash = cells[buffer as usize][run.clone()]
                    .iter()
                    .flatten()
                    .any(|&(other, wrote)| other != number && (write || wrote));
                if clash {
                    met = true;
                    cells = Default::default();
                }
                cells[buffer as usize][run].fill(Some((number, write)));
            }
            meetings.push(met);
        }
        meetings
    }

    fn line() -> impl Strategy<Value = String> {
        let chunk = || {
            (prop::sample::select(vec!["i", "o", "s"]), 0..8_u64, 1..6_u64)
                .prop_map(|(buffer, index, size)| format!("{buffer}{index}+{size}"))
        };
        prop_oneof![
            4 => (chunk(), chunk()).prop_map(|(to, from)| format!("copy {to} <- {from}")),
            4 => (chunk(), chunk()).prop_map(|(a, b)| format!("put @0.0, @0.1 <- {a}, {b}")),
            2 => (chunk(), chunk()).prop_map(|(a, b)| format!("get {a}, {b} <- @0.0, @0.1")),
            4 => (chunk(), chunk(), chunk()).prop_map(|(a, b, c)| format!("re {a} <- {b}, {c}")),
            1 => Just("nop".to_owned()),
        ]
    }

    proptest! {
        #[test]
        fn as_chunk_by_chunk(lines in prop::collection::vec(line(), 0..24)) {
            let program = steps(&lines.join("\n"));
            let meetings = reference(&program);
            let mut expected = Vec::new();
            for (step, met) in program.iter().zip(meetings) {
                expected.extend(met.then(Step::nop));
                expected.push(step.clone());
            }
            prop_assert_eq!(insert(program), expected);
        }
    }
}
