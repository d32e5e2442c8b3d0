//! Meetings where the author asked for them: a `nop` before and after every synchronising operation, as its
//! [`DataSync`](super::DataSync) says.
//!
//! Part of [`Mode::Compatible`](super::Mode::Compatible): nothing is left out, even if two meetings follow each other.

use super::Step;

/// Inserts the meetings, those of pipelines' bodies too.
pub fn insert(steps: Vec<Step>) -> Vec<Step> {
    let mut out = Vec::with_capacity(steps.len());
    for mut step in steps {
        step.body = insert(std::mem::take(&mut step.body));
        let sync = step.sync;
        if step.carries_data_sync() && sync.before() {
            out.push(Step::nop());
        }
        let after = step.carries_data_sync() && sync.after();
        out.push(step);
        if after {
            out.push(Step::nop());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::insert;
    use crate::passes::notation::before_and_after;

    #[test]
    fn every_request_is_met_by_itself() {
        insta::assert_snapshot!(before_and_after(
            "signal both
             wait both
             rlxsignal none
             rlxwait after
             flush before
             sem_release before
             copy o0 <- i0
             nop
             sem_acquire after
             pipeline {
               signal both
               wait none
             }
             wait after",
            insert,
        ));
    }
}
