//! Every row of the table, every reason to stay two, every difference from the format's own rules.

mod meaning;
mod program;

use super::super::text::{parse, print};
use super::*;

/// Steps, what they become, and what the report says: one test each.
macro_rules! golden {
    ($($name:ident: $before:literal => $after:literal $(, $refused:literal)*;)*) => {
        $(#[test]
        fn $name() {
            check($before, $after, &[$($refused),*]);
        })*
    };
}

#[track_caller]
fn check(before: &str, after: &str, refused: &[&str]) {
    let mut report = Report::default();
    let mut steps = fuse(parse(before), &mut report);
    fuse_switches(&mut steps, &|_, _| true, &mut report);
    assert_eq!(print(&steps), after);
    let seen: Vec<String> = report
        .refusals
        .iter()
        .map(|((first, second, why), count)| format!("{first} {second} {why:?} {count}"))
        .collect();
    assert_eq!(seen, refused);
    // Fused steps are a fixed point, as what remains was refused or cannot be one.
    assert_eq!(print(&fuse(steps, &mut Report::default())), after);
}

// Meetings.
golden! {
    nop_and_nop: "nop | nop | nop" => "nop";
    nop_and_barrier: "nop | barrier @0,2" => "barrier @0,2";
    barrier_and_nop: "barrier @0,2 | nop | nop" => "barrier @0,2";
    barriers_both_stay: "barrier @0,2 | barrier @1,3" => "barrier @0,2 | barrier @1,3";
    nop_and_pipeline_that_begins_with_a_nop:
        "nop | pipeline 64 2 { nop ; copy i0 -> o0 }" => "pipeline 64 2 { nop ; copy i0 -> o0 }";
    nop_and_pipeline_that_begins_with_a_barrier:
        "nop | pipeline 64 2 { barrier @0,2 ; copy i0 -> o0 }"
        => "pipeline 64 2 { barrier @0,2 ; copy i0 -> o0 }";
    nop_and_pipeline_that_begins_with_a_meeting:
        "nop | pipeline 64 2 { wait mem @0 both ; copy i0 -> o0 }"
        => "pipeline 64 2 { wait mem @0 both ; copy i0 -> o0 }";
    nop_and_pipeline_that_begins_with_none:
        "nop | pipeline 64 2 { wait mem @0 after ; copy i0 -> o0 }"
        => "nop | pipeline 64 2 { wait mem @0 after ; copy i0 -> o0 }";
    pipeline_that_ends_with_a_meeting_and_nop:
        "pipeline 64 2 { copy i0 -> o0 ; signal mem @0 both } | nop"
        => "pipeline 64 2 { copy i0 -> o0 ; signal mem @0 both }";
    pipeline_that_ends_with_none_and_nop:
        "pipeline 64 2 { nop ; copy i0 -> o0 } | nop" => "pipeline 64 2 { nop ; copy i0 -> o0 } | nop";
    a_pipeline_over_no_chunks_meets_nowhere:
        "wait mem @0 both | pipeline 64 0 { nop } | signal mem @0 both | pipeline 64 0 { nop } | nop"
        => "wait mem @0 both | pipeline 64 0 { nop } | signal mem @0 both | pipeline 64 0 { nop } | nop";
    an_empty_pipeline_meets_nowhere:
        "nop | pipeline 64 2 {  } | nop" => "nop | pipeline 64 2 {  } | nop";
    nop_before_each_synchronising_operation:
        "nop | signal mem @0 both | copy i0 -> o0 | nop | wait mem @0 before | copy i0 -> o0 | nop | flush port @0 both"
        => "nop | signal mem @0 after | copy i0 -> o0 | nop | wait mem @0 | copy i0 -> o0 | nop | flush port @0 after";
    nop_before_semaphores_and_relaxed_ones:
        "nop | sem_acquire @0 both | copy i0 -> o0 | nop | sem_release @0 both | copy i0 -> o0 | nop | rlxsignal mem @0 both | copy i0 -> o0 | nop | rlxwait mem @0 both"
        => "nop | sem_acquire @0 after | copy i0 -> o0 | nop | sem_release @0 after | copy i0 -> o0 | nop | rlxsignal mem @0 after | copy i0 -> o0 | nop | rlxwait mem @0 after";
    barrier_before_a_synchronising_operation:
        "barrier @0,2 | signal mem @0 both" => "barrier @0,2 | signal mem @0 after";
    pipeline_that_ends_with_a_meeting_before_a_synchronising_operation:
        "pipeline 64 2 { wait mem @0 both } | signal mem @1 both"
        => "pipeline 64 2 { wait mem @0 both } | signal mem @1 after";
    pipeline_that_ends_with_none_before_a_synchronising_operation:
        "pipeline 64 2 { wait mem @0 before } | signal mem @1 both"
        => "pipeline 64 2 { wait mem @0 before } | signal mem @1 both";
    synchronising_operations_meet_once_between_them:
        "wait mem @0 both | signal mem @1 both | wait mem @1 after | signal mem @0 after"
        => "wait mem @0 before | signal mem @1 both | wait mem @1 after | signal mem @0 after";
    synchronising_operation_before_nop: "wait mem @0 both | nop" => "wait mem @0 before | nop";
    synchronising_operation_before_barrier:
        "sem_release @0 both | barrier @0,2" => "sem_release @0 before | barrier @0,2";
    synchronising_operation_before_a_pipeline_that_begins_with_a_meeting:
        "wait mem @0 both | pipeline 64 2 { signal mem @0 before }"
        => "wait mem @0 before | pipeline 64 2 { signal mem @0 before }";
    synchronising_operation_before_a_pipeline_that_begins_with_none:
        "wait mem @0 both | pipeline 64 2 { copy i0 -> o0 ; nop }"
        => "wait mem @0 both | pipeline 64 2 { copy i0 -> o0 ; nop }";
    data_operations_keep_meetings_apart:
        "wait mem @0 both | copy i0 -> o0 | signal mem @0 both"
        => "wait mem @0 both | copy i0 -> o0 | signal mem @0 both";
}

// What synchronises with others.
golden! {
    signals: "signal mem @2 before | signal mem @0 after | signal mem @1" => "signal mem @0,1,2 both";
    relaxed_signals: "rlxsignal mem @0 | rlxsignal mem @1 both" => "rlxsignal mem @0,1 both";
    waits: "wait mem @1 after | wait mem @0 after" => "wait mem @0,1 after";
    relaxed_waits: "rlxwait port @0 | rlxwait port @1" => "rlxwait port @0,1";
    signals_of_other_relaxedness:
        "signal mem @0 | rlxsignal mem @1 | signal mem @2"
        => "signal mem @0 | rlxsignal mem @1 | signal mem @2";
    signals_over_other_channel_types:
        "signal mem @0 | signal port @1" => "signal mem @0 | signal port @1", "signal signal ChannelType 1";
    signals_over_the_same_channel:
        "signal mem @0 | signal mem @1 | signal mem @0 both"
        => "signal mem @0,1 | signal mem @0 both", "signal signal SameChannel 1";
    waits_for_the_same_channel_meet_once_between_them:
        "wait mem @0 both | wait mem @0 both"
        => "wait mem @0 before | wait mem @0 both", "wait wait SameChannel 1";
    flushes: "flush port @1 after | flush port @0 before | flush port @1" => "flush port @0,1 both";
    flushes_of_other_channel_types:
        "flush port @0 | flush mem @1" => "flush port @0 | flush mem @1", "flush flush ChannelType 1";
    acquires: "sem_acquire @1 before | sem_acquire @0 after | sem_acquire @1" => "sem_acquire @1,0,1 both";
    releases: "sem_release @1 | sem_release @0" => "sem_release @1,0";
}

// Copies.
golden! {
    gets: "get mem @0 r0.0 -> i0 | get mem @1 r1.0 -> i1" => "get mem @0,1 r0.0 r1.0 -> i0 i1";
    puts_over_memory: "put mem i0 -> r0.0 | put mem o1 -> r0.1 | put mem i0 -> r1.0"
        => "put mem i0 o1 i0 -> r0.0 r0.1 r1.0";
    puts_over_ports: "put port @0 i0 -> r0.0 | put port @1 i0 -> r1.0" => "put port @0,1 i0 i0 -> r0.0 r1.0";
    packets: "ppkt mem i0 -> r0.0 | ppkt mem i1 -> r0.1" => "ppkt mem i0 i1 -> r0.0 r0.1";
    puts_with_signals: "pws port @0 i0 -> r0.0 | pws port @0 i1 -> r0.1" => "pws port @0,0 i0 i1 -> r0.0 r0.1";
    puts_with_signals_and_flushes:
        "pwsf port @0 i0 -> r0.0 | pwsf port @1 i1 -> r1.1" => "pwsf port @0,1 i0 i1 -> r0.0 r1.1";
    forwarded_packets: "rppkt mem s0 -> r0.0 | rppkt mem s0 -> r1.0" => "rppkt mem s0 -> r0.0 r1.0";
    forwarded_packets_over_ports:
        "rppkt port @0 s0 -> r0.0 | rppkt port @1 s0 -> r1.0" => "rppkt port @0,1 s0 -> r0.0 r1.0";
    the_same_copy_twice: "put mem i0 -> r0.0 | put mem i0 -> r0.0" => "put mem i0 i0 -> r0.0 r0.0";
    slices_of_one_group: "put mem #1/2 i0 -> r0.0 | put mem #1/2 i1 -> r0.1" => "put mem #1/2 i0 i1 -> r0.0 r0.1";
    puts_over_other_channel_types:
        "put mem i0 -> r0.0 | put port @0 i1 -> r0.1" => "put mem i0 -> r0.0 | put port @0 i1 -> r0.1",
        "put put ChannelType 1";
    puts_of_other_sizes:
        "put mem i0 -> r0.0 | put mem i1+2 -> r0.1+2" => "put mem i0 -> r0.0 | put mem i1+2 -> r0.1+2",
        "put put Size 1";
    puts_of_other_slices:
        "put mem #0/2 i0 -> r0.0 | put mem #1/2 i1 -> r0.1 | put mem i2 -> r0.2"
        => "put mem #0/2 i0 -> r0.0 | put mem #1/2 i1 -> r0.1 | put mem i2 -> r0.2",
        "put put Slice 2";
    forwards_of_other_packets:
        "rppkt mem s0 -> r0.0 | rppkt mem s1 -> r1.0" => "rppkt mem s0 -> r0.0 | rppkt mem s1 -> r1.0",
        "rppkt rppkt Source 1";
    forwards_of_lists: // A list's second half would have no destinations.
        "rppkt mem s0 s1 -> r0.0 r0.1 | rppkt mem s0 s1 -> r1.0 r1.1"
        => "rppkt mem s0 s1 -> r0.0 r0.1 | rppkt mem s0 s1 -> r1.0 r1.1", "rppkt rppkt Source 1";
    forwards_over_other_channel_types:
        "rppkt mem s0 -> r0.0 | rppkt port @0 s0 -> r1.0" => "rppkt mem s0 -> r0.0 | rppkt port @0 s0 -> r1.0",
        "rppkt rppkt ChannelType 1";
    forwards_of_other_slices:
        "rppkt mem #0/2 s0 -> r0.0 | rppkt mem s0 -> r1.0" => "rppkt mem #0/2 s0 -> r0.0 | rppkt mem s0 -> r1.0",
        "rppkt rppkt Slice 1";
    local_copies_stay: "copy i0 -> o0 | copy i1 -> o1" => "copy i0 -> o0 | copy i1 -> o1";
    kinds_that_do_not_mix: "put mem i0 -> r0.0 | ppkt mem i0 -> r0.0" => "put mem i0 -> r0.0 | ppkt mem i0 -> r0.0";
}

// Reductions.
golden! {
    reductions: "re sum i0 s0 -> i0 | re sum i0 s1 s2 -> i0" => "re sum i0 s0 s1 s2 -> i0";
    a_reduction_that_names_no_operator_sums: "re i0 s0 -> i0 | re sum i0 s1 -> i0" => "re i0 s0 s1 -> i0";
    packet_reductions: "repkt i0 s0 -> i0 | repkt i0 s1 -> i0" => "repkt i0 s0 s1 -> i0";
    remote_reductions:
        "rre mem min i0 r0.0 -> i0 | rre mem min i0 r1.0 -> i0" => "rre mem min i0 r0.0 r1.0 -> i0";
    reductions_with_other_operators:
        "re sum i0 s0 -> i0 | re max i0 s1 -> i0" => "re sum i0 s0 -> i0 | re max i0 s1 -> i0", "re re Operator 1";
    reductions_over_other_channel_types:
        "re mem i0 s0 -> i0 | re i0 s1 -> i0" => "re mem i0 s0 -> i0 | re i0 s1 -> i0", "re re ChannelType 1";
    reductions_of_other_slices:
        "re #0/2 i0 s0 -> i0 | re #1/2 i0 s1 -> i0" => "re #0/2 i0 s0 -> i0 | re #1/2 i0 s1 -> i0", "re re Slice 1";
    reductions_of_other_sources:
        "re i0 s0 -> i0 | re i1 s1 -> i0" => "re i0 s0 -> i0 | re i1 s1 -> i0", "re re Source 1";
    reductions_to_other_destinations:
        "re i0 s0 -> i0 | re i0 s1 -> o0" => "re i0 s0 -> i0 | re i0 s1 -> o0", "re re Destination 1";
    reduction_and_put: "re i0 s0 -> o0 | put mem o0 -> r0.0" => "res mem i0 s0 -> o0 r0.0";
    reduction_sent_and_put: "re i0 s0 -> o0 | put mem o0 -> r0.0 | put mem o0 -> r1.3" => "res mem i0 s0 -> o0 r0.0 r1.3";
    reduction_and_list_of_puts: "re i0 s0 -> o0 | put mem o0 o0 -> r0.0 r1.0" => "res mem i0 s0 -> o0 r0.0 r1.0";
    reduction_and_list_of_other_puts:
        "re i0 s0 -> o0 | put mem o0 o1 -> r0.0 r1.0" => "re i0 s0 -> o0 | put mem o0 o1 -> r0.0 r1.0", "re put OtherChunk 1";
    remote_reduction_and_put:
        "rre mem i0 r0.0 -> o0 | put mem o0 -> r0.1 | put mem o0 -> r1.1" => "rres mem i0 r0.0 -> o0 r0.1 r1.1";
    remote_reduction_and_put_back: // Each element is read before it is written.
        "rre mem i0 r0.0 r1.0 -> i0 | put mem i0 -> r0.0 | put mem i0 -> r1.0" => "rres mem i0 r0.0 r1.0 -> i0 r0.0 r1.0";
    reductions_and_puts: "re i0 s0 -> i0 | re i0 s1 -> i0 | put mem i0 -> r0.0" => "res mem i0 s0 s1 -> i0 r0.0";
    reduction_and_put_of_another_chunk:
        "re i0 s0 -> o0 | put mem i0 -> r0.0" => "re i0 s0 -> o0 | put mem i0 -> r0.0", "re put OtherChunk 1";
    reduction_sent_and_put_of_another_chunk:
        "re i0 s0 -> o0 | put mem o0 -> r0.0 | put mem i0 -> r0.1 | put mem o0 -> r1.0"
        => "res mem i0 s0 -> o0 r0.0 | put mem i0 o0 -> r0.1 r1.0", "res put OtherChunk 1";
    reduction_and_put_over_a_port:
        "re i0 s0 -> o0 | put port @0 o0 -> r0.0" => "re i0 s0 -> o0 | put port @0 o0 -> r0.0", "re put ChannelType 1";
    reduction_and_put_of_another_slice:
        "re i0 s0 -> o0 | put mem #0/2 o0 -> r0.0" => "re i0 s0 -> o0 | put mem #0/2 o0 -> r0.0", "re put Slice 1";
    packet_reduction_and_packets: "repkt i0 s0 -> i0 | ppkt mem i0 -> r0.0 | ppkt mem i0 -> r1.0" => "respkt mem i0 s0 -> i0 r0.0 r1.0";
    packet_reduction_and_packets_over_a_port:
        "repkt i0 s0 -> i0 | ppkt port @0 i0 -> r0.0" => "repkt i0 s0 -> i0 | ppkt port @0 i0 -> r0.0", "repkt ppkt ChannelType 1";
    packet_reduction_and_copied_packets: "repkt i0 s0 -> i0 | cpkt i0 -> s4" => "recpkt i0 s0 -> i0 s4";
    packet_reduction_and_other_copied_packets:
        "repkt i0 s0 -> i0 | cpkt i1 -> s4" => "repkt i0 s0 -> i0 | cpkt i1 -> s4", "repkt cpkt OtherChunk 1";
    packet_reduction_and_copied_packets_of_another_slice:
        "repkt #0/2 i0 s0 -> i0 | cpkt #1/2 i0 -> s4" => "repkt #0/2 i0 s0 -> i0 | cpkt #1/2 i0 -> s4", "repkt cpkt Slice 1";
    copied_reduction_and_packets:
        "repkt i0 s0 -> i0 | cpkt i0 -> s4 | ppkt mem i0 -> r0.0 | ppkt mem i0 -> r1.0" => "recspkt mem i0 s0 -> i0 s4 r0.0 r1.0";
    copied_reduction_and_forwarded_packets:
        "repkt i0 s0 -> i0 | cpkt i0 -> s4 | rppkt mem s4 -> r0.0 | rppkt mem s4 -> r1.0 | ppkt mem i0 -> r2.0"
        => "recspkt mem i0 s0 -> i0 s4 r0.0 r1.0 r2.0";
    copied_reduction_and_other_forwarded_packets:
        "recpkt i0 s0 -> i0 s4 | rppkt mem s0 -> r0.0" => "recpkt i0 s0 -> i0 s4 | rppkt mem s0 -> r0.0", "recpkt rppkt OtherChunk 1";
    copied_reduction_and_forwarded_packets_over_a_port:
        "recpkt i0 s0 -> i0 s4 | rppkt port @0 s4 -> r0.0" => "recpkt i0 s0 -> i0 s4 | rppkt port @0 s4 -> r0.0", "recpkt rppkt ChannelType 1";
    sent_reduction_and_copied_packets_stay:
        "respkt mem i0 s0 -> i0 r0.0 | cpkt i0 -> s4" => "respkt mem i0 s0 -> i0 r0.0 | cpkt i0 -> s4";
    two_shot:
        "ppkt mem i1 -> r0.0 | ppkt mem i2 -> r1.0 | repkt i0 s0 -> i0 | repkt i0 s1 -> i0 | ppkt mem i0 -> r0.1 | ppkt mem i0 -> r1.1 | upkt s3 -> i1 | upkt s4 -> i2"
        => "ppkt mem i1 i2 -> r0.0 r1.0 | respkt mem i0 s0 s1 -> i0 r0.1 r1.1 | upkt s3 -> i1 | upkt s4 -> i2";
}

// Switches.
golden! {
    switch_reduction_and_store: "glre switch sum w0.0 -> i0 | gstore switch i0 -> w0.0" => "glres switch sum w0.0 -> w0.0";
    switch_reductions_and_stores:
        "glre switch max w0.0+2 -> s0+2 | gstore switch s0+2 -> w0.0+2 | glre switch max w0.2+2 -> s0+2 | gstore switch s0+2 -> w0.2+2"
        => "glres switch max w0.0+2 -> w0.0+2 | glres switch max w0.2+2 -> w0.2+2";
    switch_operations_in_a_pipeline:
        "pipeline 64 2 { glre switch w0.0 -> i0 ; gstore switch i0 -> w0.0 }" => "pipeline 64 2 { glres switch w0.0 -> w0.0 }";
    switch_operations_over_other_channels:
        "glre switch w0.0 -> i0 | gstore switch i0 -> w1.0" => "glre switch w0.0 -> i0 | gstore switch i0 -> w1.0", "glre gstore OtherChannel 1";
    switch_operations_of_other_channel_types:
        "glre switch w0.0 -> i0 | gstore i0 -> w0.0" => "glre switch w0.0 -> i0 | gstore i0 -> w0.0", "glre gstore ChannelType 1";
    switch_operations_of_other_sizes:
        "glre switch w0.0+2 -> i0+2 | gstore switch i0 -> w0.0" => "glre switch w0.0+2 -> i0+2 | gstore switch i0 -> w0.0", "glre gstore Size 1";
    switch_operations_of_other_chunks:
        "glre switch w0.0 -> i0 | gstore switch i1 -> w0.0" => "glre switch w0.0 -> i0 | gstore switch i1 -> w0.0", "glre gstore OtherChunk 1";
    switch_operations_of_other_slices:
        "glre switch #0/2 w0.0 -> i0 | gstore switch #1/2 i0 -> w0.0" => "glre switch #0/2 w0.0 -> i0 | gstore switch #1/2 i0 -> w0.0", "glre gstore Slice 1";
    switch_operations_apart: "glre switch w0.0 -> i0 | nop | gstore switch i0 -> w0.0" => "glre switch w0.0 -> i0 | nop | gstore switch i0 -> w0.0";
}

// Corrections: what the format's rules make one, or meet elsewhere, and must not.
golden! {
    a_reduction_elsewhere_overwrites:
        "re i0 s0 -> o0 | re i0 s1 -> o0" => "re i0 s0 -> o0 | re i0 s1 -> o0", "re re Overwrites 1";
    a_remote_reduction_elsewhere_overwrites:
        "rre mem i0 r0.0 -> o0 | rre mem i0 r1.0 -> o0" => "rre mem i0 r0.0 -> o0 | rre mem i0 r1.0 -> o0", "rre rre Overwrites 1";
    a_packet_reduction_elsewhere_overwrites:
        "repkt i0 s0 -> o0 | repkt i0 s1 -> o0" => "repkt i0 s0 -> o0 | repkt i0 s1 -> o0", "repkt repkt Overwrites 1";
    a_reduction_that_reads_the_sum_twice:
        "re i0 s0 -> i0 | re i0 i0 -> i0" => "re i0 s0 -> i0 | re i0 i0 -> i0", "re re Hazard 1";
    a_reduction_that_reads_a_part_of_the_sum:
        "re i0+2 s0+2 -> i0+2 | re i0+2 i1+2 -> i0+2" => "re i0+2 s0+2 -> i0+2 | re i0+2 i1+2 -> i0+2", "re re Hazard 1";
    packets_and_raw_chunks_of_one_index_are_apart: "repkt s0 s1 -> s0 | repkt s0 s0 -> s0" => "repkt s0 s1 s0 -> s0";
    puts_to_overlapping_chunks:
        "put mem i0+2 -> r0.0+2 | put mem i2+2 -> r0.2+2 | put mem i4+2 -> r0.1+2"
        => "put mem i0+2 i2+2 -> r0.0+2 r0.2+2 | put mem i4+2 -> r0.1+2", "put put Hazard 1";
    puts_of_other_chunks_to_the_same: "put mem i0 -> r0.0 | put mem i1 -> r0.0" => "put mem i0 -> r0.0 | put mem i1 -> r0.0", "put put Hazard 1";
    packets_of_other_chunks_to_the_same: "ppkt mem i0 -> r0.0 | ppkt mem i1 -> r0.0" => "ppkt mem i0 -> r0.0 | ppkt mem i1 -> r0.0", "ppkt ppkt Hazard 1";
    gets_to_overlapping_chunks:
        "get mem @0 r0.0 -> i0 | get mem @0 r0.1 -> i0" => "get mem @0 r0.0 -> i0 | get mem @0 r0.1 -> i0", "get get Hazard 1";
    a_put_to_oneself_that_the_next_passes_on: "put mem i0 -> o0 | put mem o0 -> r0.0" => "put mem i0 -> o0 | put mem o0 -> r0.0", "put put Hazard 1";
    a_put_to_oneself_over_what_was_put_before: "put mem i0 -> r0.0 | put mem i1 -> i0" => "put mem i0 -> r0.0 | put mem i1 -> i0", "put put Hazard 1";
    packets_to_oneself_leave_raw_chunks_alone: "ppkt mem s0 -> s1 | ppkt mem s1 -> r0.0" => "ppkt mem s0 s1 -> s1 r0.0";
    packets_to_oneself_over_a_port: "ppkt port @0 s0 -> s1 | ppkt port @1 s1 -> r0.0" => "ppkt port @0 s0 -> s1 | ppkt port @1 s1 -> r0.0", "ppkt ppkt Hazard 1";
    forwards_to_overlapping_chunks:
        "rppkt mem s0+2 -> r0.0+2 | rppkt mem s0+2 -> r0.1+2" => "rppkt mem s0+2 -> r0.0+2 | rppkt mem s0+2 -> r0.1+2", "rppkt rppkt Hazard 1";
    forwards_twice_to_the_same: "rppkt mem s0 -> r0.0 | rppkt mem s0 -> r0.0" => "rppkt mem s0 -> r0.0 r0.0";
    a_result_put_over_a_source_shifted:
        "rre mem i0+2 r0.0+2 -> o0+2 | put mem o0+2 -> r0.1+2" => "rre mem i0+2 r0.0+2 -> o0+2 | put mem o0+2 -> r0.1+2", "rre put Hazard 1";
    a_result_put_over_a_destination_shifted:
        "re i0+2 s0+2 -> o0+2 | put mem o0+2 -> r0.0+2 | put mem o0+2 -> r0.1+2"
        => "res mem i0+2 s0+2 -> o0+2 r0.0+2 | put mem o0+2 -> r0.1+2", "res put Hazard 1";
    a_result_packed_over_packets_shifted:
        "repkt i0+2 s0+2 -> i0+2 | cpkt i0+2 -> s1+2" => "repkt i0+2 s0+2 -> i0+2 | cpkt i0+2 -> s1+2", "repkt cpkt Hazard 1";
    a_result_packed_over_its_packets: "repkt i0+2 s0+2 -> i0+2 | cpkt i0+2 -> s0+2" => "recpkt i0+2 s0+2 -> i0+2 s0+2";
    copied_reduction_and_packets_of_another_slice:
        "recpkt #0/2 i0 s0 -> i0 s4 | ppkt mem #1/2 i0 -> r0.0 | recpkt #0/2 i0 s0 -> i0 s4 | rppkt mem s4 -> r0.0"
        => "recpkt #0/2 i0 s0 -> i0 s4 | ppkt mem #1/2 i0 -> r0.0 | recpkt #0/2 i0 s0 -> i0 s4 | rppkt mem s4 -> r0.0",
        "recpkt ppkt Slice 1", "recpkt rppkt Slice 1";
    a_switch_store_elsewhere_stays_there: "glre switch sum w0.0+2 -> s0+2 | gstore switch s0+2 -> w0.2+2" => "glres switch sum w0.0+2 -> w0.2+2";
    a_switch_store_over_a_source_shifted:
        "glre switch w0.0+2 -> s0+2 | gstore switch s0+2 -> w0.1+2" => "glre switch w0.0+2 -> s0+2 | gstore switch s0+2 -> w0.1+2", "glre gstore Hazard 1";
    a_pipeline_after_a_nop_is_fused_inside:
        "nop | pipeline 64 2 { nop ; nop ; put mem i0 -> r0.0 ; put mem i1 -> r0.1 }" => "pipeline 64 2 { nop ; put mem i0 i1 -> r0.0 r0.1 }";
    a_pipeline_after_a_barrier_is_fused_inside:
        "barrier @0,2 | pipeline 64 2 { signal mem @0 ; signal mem @1 }" => "barrier @0,2 | pipeline 64 2 { signal mem @0,1 }";
    a_trailing_nop_of_a_pipeline_meets_after_it:
        "pipeline 64 2 { put mem i0 -> r0.0 ; nop } | nop | signal mem @0 both"
        => "pipeline 64 2 { put mem i0 -> r0.0 ; nop } | signal mem @0 after";
    a_trailing_nop_of_a_pipeline_does_not_meet_before_it:
        "nop | pipeline 64 2 { put mem i0 -> r0.0 ; nop }" => "nop | pipeline 64 2 { put mem i0 -> r0.0 ; nop }";
    a_trailing_barrier_of_a_pipeline_meets_after_it:
        "wait mem @0 after | pipeline 64 2 { put mem i0 -> r0.0 ; barrier @0,2 } | nop"
        => "wait mem @0 after | pipeline 64 2 { put mem i0 -> r0.0 ; barrier @0,2 }";
}

#[test]
fn a_switch_result_that_is_used_elsewhere_is_written() {
    let before = "glre switch w0.0 -> s0 | gstore switch s0 -> w0.0";
    let mut report = Report::default();
    let mut steps = fuse(parse(before), &mut report);
    fuse_switches(&mut steps, &|_, _| false, &mut report);
    assert_eq!(print(&steps), before);
    let pair = (OpKind::GroupLoadReduce, OpKind::GroupStore, Refusal::Kept);
    assert_eq!(report.refusals.into_iter().collect::<Vec<_>>(), [(pair, 1)]);
}

#[test]
fn every_reason_says_something_else() {
    use Refusal::*;
    let reasons = [
        ChannelType,
        SameChannel,
        Size,
        Slice,
        Source,
        Destination,
        Operator,
        OtherChunk,
        Overwrites,
        Hazard,
        OtherChannel,
        Kept,
    ];
    let texts: std::collections::BTreeSet<String> =
        reasons.iter().map(Refusal::to_string).collect();
    assert_eq!(texts.len(), reasons.len());
}

/// Pairs to few buffers: what joins is what would if each pair were compared with each.
#[test]
fn long_lists_join_what_short_ones_do() {
    let mut state = 1u64;
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut longest = 0;
    for kind in ["put mem", "ppkt mem", "ppkt port", "pws port"] {
        for round in 0..40 {
            let mut list = Vec::new();
            let mut apart: Vec<Step> = Vec::new();
            for _ in 0..300 {
                // Mostly to peers; now and then to oneself.
                let to = match random(if round % 2 == 0 { 400 } else { 40 }) {
                    0 => format!("s{}", random(3000)),
                    _ => format!("r{}.{}", [0, 1, 5000][random(3) as usize], random(3000)),
                };
                let step = parse(&format!("{kind} s{} -> {to}", random(3000)));
                let next = step.into_iter().next().expect("a step");
                match apart.last_mut() {
                    Some(last) if !hazards::pairs(&last.op, &next.op) => {
                        last.op.src.extend(next.op.src.clone());
                        last.op.dst.extend(next.op.dst.clone());
                    }
                    _ => apart.push(next.clone()),
                }
                push(&mut list, next, &mut Report::default());
            }
            assert_eq!(print(&list), print(&apart));
            longest = list.iter().map(|step| step.op.dst.len()).chain([longest]).max().unwrap_or(0);
        }
    }
    assert!(longest > 100, "{longest} pairs at most");
}
