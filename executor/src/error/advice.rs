//! What to do about errors of which several say the same.

/// What to do about a launch that stands still.
pub(crate) const SAME_CALLS: &str =
    "see that every rank makes the same calls, or check the plan for a missing signal";

/// What to do if the time limit was too short for it.
pub(super) const MORE_TIME: &str = "if a rank is only slow, make a new communicator with a longer time limit (ANTIPHON_CALL_TIMEOUT or \
     `--timeout`; in Rust `Options::with_timeout`, in C the configuration's `timeout_ms`, in Python `timeout=`, in NCCL's interface \
     ANTIPHON_TIMEOUT)";

/// What to do without a rank that is lost.
pub(super) const OTHERS: &str = "make a communicator of the other ranks (`subset`), or start again";

/// What to do where all ranks may still be there.
pub(super) const ANEW: &str = "make a new communicator (`subset`), or start again";

/// The same after a reason, which may be another rank's error and say so itself.
pub(super) fn anew(reason: &str) -> String {
    if reason.ends_with(ANEW) || reason.ends_with(OTHERS) {
        return String::new();
    }
    format!("; {ANEW}")
}

/// What to do about memory of another process that the system does not let this one have.
pub(super) fn within_reach(errno: i32) -> &'static str {
    match errno {
        libc::EFAULT => "pass buffers that are mapped for their whole length",
        _ => {
            "have buffers copied instead, without `process_access` (in Rust `Options::with_process_access(false)`, in C the \
             configuration's `process_access`, in Python `process_access=False`)"
        }
    }
}
