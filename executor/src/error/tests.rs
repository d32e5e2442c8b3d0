//! What errors say: who reports, what was called, and what to do.

use super::*;
use crate::diagnose;
use crate::shared::control::CallType;
use antiphon_types::{DataType, ReduceOp};

fn says(error: &ExecutorError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

#[test]
fn a_stalled_launch_is_told_with_its_call_and_how_to_wait_longer() {
    let call_type = CallType::new(DataType::F16, Some(ReduceOp::Max));
    let error = ExecutorError::Stalled {
        rank: 1,
        seq: 3,
        call: diagnose::named("ring", (64, 32), call_type),
        limit: Duration::from_secs(60),
        waits: Waits::default(),
    };
    let call = "launch 3 of plan `ring` (64 bytes in, 32 bytes out, f16 max) on rank 1";
    let longer = ["--timeout", "with_timeout", "timeout_ms", "timeout=", "new communicator"];
    says(&error, &[call, "the same calls"]);
    says(&error, &longer);
    // Nothing has ended there, whatever the limit.
    let warning = diagnose::goes_on(&error);
    assert!(warning.contains(call) && warning.contains("the same calls"), "{warning}");
    assert!(longer.iter().all(|part| !warning.contains(part)), "{warning}");
}

#[test]
fn memory_out_of_reach_is_told_with_the_systems_words_and_what_helps() {
    let reach = |errno| ExecutorError::Reach {
        rank: 1,
        seq: 3,
        plan: "ring".to_owned(),
        peer: 0,
        what: "read",
        errno,
    };
    let place = "cannot read memory of rank 0 in launch 3 of plan `ring` on rank 1: ";
    says(&reach(libc::EFAULT), &[place, "Bad address", "for their whole length"]);
    for (errno, words) in [(libc::EPERM, "not permitted"), (libc::ESRCH, "No such process")] {
        says(&reach(errno), &[place, words, "with_process_access(false)"]);
    }
}

#[test]
fn the_end_of_a_communicator_is_told_with_the_rank_that_reports_and_what_to_do() {
    let doing = Doing::default;
    let reason = || "it broke".to_owned();
    let errors = [
        ExecutorError::PeerLost { peer: 1, pid: 7, reason: reason(), doing: doing() },
        ExecutorError::Link { peer: 1, reason: reason(), doing: doing() },
        ExecutorError::Aborted { by: 1, reason: reason(), doing: doing() },
    ];
    for error in errors {
        let error = error.on_rank(4);
        says(&error, &["rank 1", "it broke; no launch was running on rank 4; make a ", "`subset`"]);
        // Whoever has said it is right.
        says(&error.clone().on_rank(5), &["on rank 4;"]);
        let launch = Some((0, "ring".to_owned()));
        let error = error.while_doing(Doing { launch, ..Doing::nothing_on(2) });
        says(&error, &["in a launch of a graph of plan `ring` on rank 2: no block waits; make a "]);
        // Its words may be the reason of an abort.
        let reason = error.to_string();
        let text = ExecutorError::Aborted { by: 2, reason, doing: doing() }.to_string();
        assert_eq!(text.matches("`subset`").count(), 1, "{text}");
    }
}

/// There it has another number.
#[test]
fn in_a_pair_a_rank_of_the_whole_is_not_the_one_that_reports() {
    let lost = ExecutorError::PeerLost {
        peer: 9,
        pid: 7,
        reason: "it broke".to_owned(),
        doing: Doing::nothing_on(1),
    };
    let in_pair = lost.of_whole().on_rank(0);
    says(&in_pair.renumbered(&[30, 51]), &["rank 9 (pid 7)", "no launch was running on rank 30;"]);
}
