//! Every rule by its program, and random programs judged chunk by chunk.

mod judged;

use super::insert;
use crate::model::Collective;
use crate::passes::notation::{before_and_after, steps, surroundings, text};
use crate::passes::{Step, Surroundings};

fn minimal(program: &str) -> String {
    let around = surroundings(&Collective::Test, false);
    before_and_after(program, |steps| insert(steps, &around))
}

/// Number of meetings that are inserted.
fn added(program: &str, around: &Surroundings<'_>) -> usize {
    let steps = steps(program);
    let before: usize = steps.iter().map(Step::meetings).sum();
    insert(steps, around).iter().map(Step::meetings).sum::<usize>() - before
}

#[test]
fn before_what_lets_others_go_on() {
    insta::assert_snapshot!(minimal(
        "signal both
         put @0.0 <- i0
         signal both
         sem_release both
         put @0.0 <- i1
         rlxsignal none
         rlxsignal before
         upkt o3 <- s0
         flush/port before
         flush/port before
         sem_release before",
    ));
}

#[test]
fn after_a_wait_when_something_relies_on_it() {
    insta::assert_snapshot!(minimal(
        "wait both
         wait both
         sem_acquire both
         put @0.0 <- i0
         put @0.1 <- i1
         wait after
         signal none
         wait none
         put @0.1 <- i1
         flush/port after
         copy o0 <- i0
         wait both",
    ));
}

#[test]
fn a_meeting_before_a_wait_may_as_well_be_after_it() {
    insta::assert_snapshot!(minimal(
        "copy s0 <- i0
         wait before
         put @0.0 <- i1
         wait before
         wait before
         sem_release none",
    ));
}

#[test]
fn a_meeting_after_a_signal_parts_the_data() {
    insta::assert_snapshot!(minimal(
        "copy s0 <- i0
         signal after
         signal after
         put @0.0 <- i1
         signal both
         put @0.0 <- i2",
    ));
}

#[test]
fn between_data_that_depends() {
    insta::assert_snapshot!(minimal(
        "copy o0 <- i0
         copy o1 <- i0
         put @0.0 <- o1
         put @0.1 <- o1
         copy o1+2 <- i5+2
         re i0 <- i0, o2
         get i0+3 <- @0.0+3
         copy s2 <- i3
         rre i3 <- i3, @0.1
         res i2, @0.1 <- i2, i4
         rres i4, @0.1 <- i4, @0.4
         put @0.0 <- i4",
    ));
}

#[test]
fn packets_carry_their_own_flags() {
    insta::assert_snapshot!(minimal(
        "ppkt @0.0 <- i0
         cpkt s1 <- i0
         rppkt @0.1 <- s1
         upkt o0 <- s1
         copy s1 <- i1
         recpkt i1, s3 <- i1, s1
         upkt o1 <- s3
         repkt i2 <- o1, s3
         ppkt @0.0 <- i2
         gstorepkt %2.3 <- s1
         upkt o3 <- s3",
    ));
}

/// A port sends what is there when the request is made, so all packets must be.
#[test]
fn packets_that_a_port_sends_must_be_complete() {
    insta::assert_snapshot!(minimal(
        "cpkt s0 <- i0
         ppkt/port @0.0 <- s1
         ppkt/port @0.0 <- s0
         recspkt i1, s4, @0.0 <- i1, s1
         ppkt/port @0.1 <- s4
         cpkt s5 <- i2
         rppkt/port @0.1 <- s5",
    ));
}

#[test]
fn switch_operands_are_own_memory_too() {
    insta::assert_snapshot!(minimal(
        "copy o0 <- i0
         gstore %1.3 <- o0
         put @0.0 <- o3
         glres %0.0+2 <- %0.0+2
         copy s0 <- i1
         glre s1 <- %2.0
         gstore %0.5 <- i6",
    ));
}

#[test]
fn in_place_input_and_output_are_one_memory() {
    let program = "copy o3 <- s0\nput @0.0 <- i1";
    let cases = [
        (Collective::AllReduce, false),
        (Collective::AllGather, true), // input chunk 1 of rank 1 is output chunk 3
        (Collective::ReduceScatter, false),
    ];
    for (collective, depends) in &cases {
        assert_eq!(added(program, &surroundings(collective, true)), usize::from(*depends));
        assert_eq!(added(program, &surroundings(collective, false)), 0);
    }
    let same = "copy o1 <- s0\nput @0.0 <- i1";
    assert_eq!(added(same, &surroundings(&Collective::AllReduce, true)), 1);
    assert_eq!(added(same, &surroundings(&Collective::AllGather, true)), 0);
    let block = "copy o1 <- s0\nput @0.0 <- i3";
    assert_eq!(added(block, &surroundings(&Collective::ReduceScatter, true)), 1);
}

#[test]
fn dependencies_are_the_authors_business_without_auto_sync() {
    let around = Surroundings { auto_sync: false, ..surroundings(&Collective::Test, false) };
    assert_eq!(added("copy o0 <- i0\nput @0.0 <- o0", &around), 0);
    assert_eq!(added("copy o0 <- i0\nsignal both\nwait both\nput @0.0 <- o0", &around), 2);
}

#[test]
fn slices_of_a_group_count_as_the_whole() {
    let around = surroundings(&Collective::Test, false);
    assert_eq!(added("copy o0 <- i0 [0/2]\nput @0.0 <- o0 [1/2]", &around), 1);
}

#[test]
fn the_authors_meetings_count_and_stay_once() {
    insta::assert_snapshot!(minimal(
        "nop
         copy o0 <- i0
         nop
         nop
         put @0.0 <- o0
         barrier
         nop
         signal both
         nop
         wait both
         nop
         nop
         copy o0 <- i0",
    ));
}

#[test]
fn an_iteration_meets_what_the_last_one_left() {
    insta::assert_snapshot!(minimal(
        "pipeline {
           put @0.0 <- s0+2
           wait both
         }
         pipeline {
           put @0.0 <- s0+2
           signal both
           copy s1 <- i0
         }",
    ));
}

#[test]
fn windows_of_one_operation_are_apart() {
    let around = surroundings(&Collective::Test, false);
    assert_eq!(added("pipeline {\n copy o0+2 <- i0+2\n}", &around), 0);
    assert_eq!(added("pipeline {\n put @0.0 <- s0\n copy o0 <- i0\n}", &around), 0);
    assert_eq!(added("pipeline {\n copy o0 <- i0\n nop\n put @0.0 <- o0\n}", &around), 0);
    // Other chunks, other slices and whole packets are not.
    assert_eq!(added("pipeline {\n copy o0+2 <- i0+2\n nop\n put @0.0 <- o1\n}", &around), 1);
    assert_eq!(
        added("pipeline {\n copy o0 <- i0 [0/2]\n nop\n put @0.0 <- o0 [1/2]\n}", &around),
        1
    );
    assert_eq!(added("pipeline {\n upkt o0 <- s0\n}", &around), 1);
}

#[test]
fn a_meeting_for_the_first_iteration_is_held_before_the_pipeline() {
    insta::assert_snapshot!(minimal(
        "copy s0 <- i0
         pipeline {
           put @0.0 <- s0
           copy o1 <- i1
         }
         put @0.0 <- o1
         wait both
         pipeline {
           copy s3 <- i2
         }
         copy o5 <- s3",
    ));
}

#[test]
fn a_meeting_that_iterations_need_serves_the_first_too() {
    insta::assert_snapshot!(minimal(
        "copy s0 <- i0
         pipeline {
           put @0.0 <- s0
           signal both
           wait both
         }",
    ));
}

/// Over no bytes a pipeline has no iteration, and so no meeting.
#[test]
fn what_is_open_before_a_pipeline_stays_open() {
    insta::assert_snapshot!(minimal(
        "copy s0 <- i0
         pipeline {
           nop
           copy o0 <- i1
         }
         put @0.0 <- s0",
    ));
}

/// Where the rules of the format's own DSL give fewer meetings, they give too few.
mod more_than_the_rules_of_the_format {
    use super::*;
    use crate::passes::{data_sync, dependencies};

    fn overlooked(program: &str, in_place: bool) {
        let around = surroundings(&Collective::AllReduce, in_place);
        let count = |steps: &[Step]| steps.iter().map(Step::meetings).sum::<usize>();
        let program = steps(program);
        let own = count(&program);
        let compatible = dependencies::insert(data_sync::insert(program.clone()));
        assert_eq!(count(&compatible), own, "{}", text(&compatible));
        let minimal = insert(program, &around);
        assert_eq!(count(&minimal), own + 1, "{}", text(&minimal));
    }

    #[test]
    fn switch_operands() {
        overlooked("copy o0 <- i0\ngstore %2.0 <- o0", false);
        overlooked("glres %0.0 <- %0.0\nput @0.0 <- i0", false);
    }

    /// The reduction's own read hides the earlier one from its write.
    #[test]
    fn writes_to_what_the_operation_itself_reads() {
        overlooked("put @0.0 <- i0\nre i0 <- i0, s0", false);
    }

    #[test]
    fn raw_source_of_packet_reductions() {
        overlooked("copy i0 <- o0\nrepkt i1 <- i0, s0", false);
    }

    #[test]
    fn memory_in_place() {
        overlooked("copy i0 <- s0\nput @0.0 <- o0", true);
    }

    #[test]
    fn iterations_that_depend() {
        overlooked("pipeline {\n put @0.0 <- s0+2\n nop\n copy s1 <- i0\n}", false);
        overlooked("pipeline {\n upkt o0 <- s0\n}", false);
    }

    #[test]
    fn packets_that_a_port_sends() {
        overlooked("cpkt s0 <- i0\nppkt/port @0.0 <- s0", false);
    }

    /// The second operation's first source is forgotten when its second one needs a meeting.
    #[test]
    fn operands_before_the_one_that_needs_a_meeting() {
        let program = "copy o0 <- i0\nput @0.0, @0.1 <- o1, o0\ncopy o1 <- i1";
        let count = |steps: &[Step]| steps.iter().map(Step::meetings).sum::<usize>();
        assert_eq!(count(&dependencies::insert(steps(program))), 1);
        assert_eq!(added(program, &surroundings(&Collective::Test, false)), 2);
    }
}
