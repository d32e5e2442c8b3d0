//! Errors of a communicator that is part of another one's calls, in the numbers by which the caller knows the ranks.

use super::{Doing, ExecutorError, Wait, Waits};
use antiphon_bootstrap::{BootstrapError, PeerName};
use antiphon_port::WireError;
use antiphon_transport::TransportError;
use std::sync::Arc;

impl ExecutorError {
    /// The error with rank r of its communicator called `names[r]`. Other ranks keep their numbers, and so do those that a
    /// reason names which somebody gave in words.
    pub(crate) fn renumbered(self, names: &[u32]) -> Self {
        use {ExecutorError as E, WireError as W};
        let name = |rank: u32| names.get(rank as usize).copied().unwrap_or(rank);
        let doing = |doing: Doing| doing.renumbered(names);
        match self {
            E::Unequal {
                seq,
                plan,
                sender,
                sent,
                source_block,
                receiver,
                expected,
                destination,
            } => {
                let (sender, receiver) = (name(sender), name(receiver));
                E::Unequal {
                    seq,
                    plan,
                    sender,
                    sent,
                    source_block,
                    receiver,
                    expected,
                    destination,
                }
            }
            E::Stalled { rank, seq, call, limit, waits } => {
                E::Stalled { rank: name(rank), seq, call, limit, waits: waits.renumbered(names) }
            }
            E::Freed { rank, seq, plan, peer } => {
                E::Freed { rank: name(rank), seq, plan, peer: name(peer) }
            }
            E::Mismatch { rank, seq, own, peer, theirs } => {
                E::Mismatch { rank: name(rank), seq, own, peer: name(peer), theirs }
            }
            E::Diverged { series, rank, number, peer, code } => {
                E::Diverged { series, rank: name(rank), number, peer: name(peer), code }
            }
            E::PeerLost { peer, pid, reason, doing: then } => {
                E::PeerLost { peer: name(peer), pid, reason, doing: doing(then) }
            }
            E::Link { peer, reason, doing: then } => {
                E::Link { peer: name(peer), reason, doing: doing(then) }
            }
            E::Aborted { by, reason, doing: then } => {
                E::Aborted { by: name(by), reason, doing: doing(then) }
            }
            E::Reach { rank, seq, plan, peer, what, errno } => {
                E::Reach { rank: name(rank), seq, plan, peer: name(peer), what, errno }
            }
            E::Layout { what, peer, found } => E::Layout { what, peer: name(peer), found },
            E::Build { rank, own, peer, theirs } => {
                E::Build { rank: name(rank), own, peer: name(peer), theirs }
            }
            E::Wire { source: W::Lost { wire, peer, reason } } => {
                E::Wire { source: W::Lost { wire, peer: name(peer), reason } }
            }
            E::Named { whose, source } => {
                E::Named { whose, source: Arc::new(Arc::unwrap_or_clone(source).renumbered(names)) }
            }
            E::Transport(error) => E::Transport(of_transport(error, name)),
            E::Bootstrap(error) => E::Bootstrap(of_bootstrap(error, name)),
            E::OfWhole { source } => match Arc::unwrap_or_clone(source) {
                E::PeerLost { peer, pid, reason, doing: then } => {
                    E::PeerLost { peer, pid, reason, doing: doing(then) }
                }
                other => other,
            },
            other => other,
        }
    }
}

/// Of one that others hold as well, a copy.
fn of_transport(error: Arc<TransportError>, name: impl Fn(u32) -> u32) -> Arc<TransportError> {
    use TransportError as T;
    match *error {
        T::Unreachable { kind, peer, ref reasons } => {
            T::Unreachable { kind, peer: name(peer), reasons: reasons.clone() }.into()
        }
        T::Outside { peer, region, offset, bytes, length } => {
            T::Outside { peer: name(peer), region, offset, bytes, length }.into()
        }
        _ => error,
    }
}

fn of_bootstrap(error: BootstrapError, name: impl Fn(u32) -> u32) -> BootstrapError {
    use BootstrapError as B;
    let named = |peer: PeerName| PeerName { rank: name(peer.rank), ..peer };
    match error {
        B::PeerLost { doing, peer, reason } => B::PeerLost { doing, peer: named(peer), reason },
        B::PeerLeft { doing, peer } => B::PeerLeft { doing, peer: named(peer) },
        B::Aborted { doing, by, reason } => B::Aborted { doing, by: named(by), reason },
        B::Timeout { doing, limit, missing } => {
            B::Timeout { doing, limit, missing: missing.into_iter().map(named).collect() }
        }
        B::Mismatch { doing, peer, theirs, sequence } => {
            B::Mismatch { doing, peer: named(peer), theirs, sequence }
        }
        other => other,
    }
}

impl Doing {
    fn renumbered(self, names: &[u32]) -> Self {
        let name = |rank: u32| names.get(rank as usize).copied().unwrap_or(rank);
        Doing { rank: self.rank.map(name), waits: self.waits.renumbered(names), ..self }
    }
}

impl Waits {
    fn renumbered(self, names: &[u32]) -> Self {
        let name = |rank: u32| names.get(rank as usize).copied().unwrap_or(rank);
        let wait = |Wait { rank, block, op, what }| Wait {
            rank: name(rank),
            block,
            op,
            what: in_words(&what, name),
        };
        Waits(self.0.into_iter().map(wait).collect())
    }
}

/// What an engine says of a wait. It names every rank as `rank 3`, and nobody else's words are in it.
fn in_words(what: &str, name: impl Fn(u32) -> u32) -> String {
    const RANK: &str = "rank ";
    let mut parts = what.split(RANK);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(end);
        text.push_str(RANK);
        match number.parse() {
            Ok(rank) => text.push_str(&name(rank).to_string()),
            Err(_) => text.push_str(number),
        }
        text.push_str(rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_transport::ChannelKind;
    use std::time::Duration;

    #[test]
    fn every_rank_of_an_error_gets_the_number_that_its_caller_knows() {
        let waits = |rank| {
            let what = "on port channel 1 for a signal from rank 1 (0 of 1 came), for rank 0 of its own rank";
            Waits(vec![Wait { rank, block: 0, op: "op 1".to_owned(), what: what.to_owned() }])
        };
        let launch = || Some((1, "transfer".to_owned()));
        let doing = || Doing { rank: Some(0), launch: launch(), waits: waits(0) };
        let text = || "so".to_owned();
        let name = |rank| PeerName { rank, pid: 0 };
        let limit = Duration::from_secs(1);
        let errors = [
            ExecutorError::Unequal {
                seq: 1,
                plan: text(),
                sender: 0,
                sent: 2,
                source_block: text(),
                receiver: 1,
                expected: 3,
                destination: text(),
            },
            ExecutorError::Stalled { rank: 0, seq: 1, call: text(), limit, waits: waits(1) },
            ExecutorError::Freed { rank: 0, seq: 1, plan: text(), peer: 1 },
            ExecutorError::Mismatch { rank: 0, seq: 1, own: text(), peer: 1, theirs: text() },
            ExecutorError::Diverged {
                series: crate::CallSeries::Uneven,
                rank: 0,
                number: 3,
                peer: 1,
                code: text(),
            },
            ExecutorError::PeerLost { peer: 1, pid: 9, reason: text(), doing: doing() },
            ExecutorError::Link { peer: 1, reason: text(), doing: doing() },
            ExecutorError::Aborted { by: 1, reason: text(), doing: doing() },
            ExecutorError::Reach { rank: 0, seq: 1, plan: text(), peer: 1, what: "read", errno: 1 },
            ExecutorError::Layout { what: "page", peer: 1, found: text() },
            ExecutorError::Build { rank: 0, own: text(), peer: 1, theirs: text() },
            BootstrapError::Timeout { doing: "exchange", limit, missing: vec![name(0), name(1)] }
                .into(),
            BootstrapError::PeerLeft { doing: "exchange", peer: name(1) }.into(),
            ExecutorError::Wire {
                source: WireError::Lost { wire: text(), peer: 1, reason: text() },
            },
            TransportError::Unreachable { kind: ChannelKind::Port, peer: 1, reasons: vec![text()] }
                .into(),
            TransportError::Outside { peer: 1, region: 2, offset: 3, bytes: 4, length: 5 }.into(),
        ];
        for error in errors {
            let text = error.renumbered(&[30, 51]).to_string();
            assert!(text.contains("rank 51"), "{text}");
            assert!(!text.contains("rank 0") && !text.contains("rank 1"), "{text}");
        }
    }
}
