//! The errors of wires.

/// What to do about a link that is lost.
const LOST: &str = "see what became of that rank and of the network between; go on without it in a group of the others, or start the job \
     again";

/// What can go wrong on a wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The wire cannot be used on this machine; a normal answer.
    #[error("wire {wire} is unavailable: {reason}; {cure}")]
    Unavailable {
        /// The wire.
        wire: String,
        /// Why.
        reason: String,
        /// What would help.
        cure: String,
    },
    /// The wire does not do this.
    #[error(
        "cannot {operation} over wire {wire}: it offers nothing of the sort; choose another wire \
         (--wire, ANTIPHON_WIRE)"
    )]
    Unsupported {
        /// The operation.
        operation: &'static str,
        /// The wire.
        wire: String,
    },
    /// What was asked of the wire makes no sense.
    #[error(
        "cannot {operation} over wire {wire}: saw {saw}, allowed {allowed}; correct the call, the setting or the \
         peer that gave it"
    )]
    Invalid {
        /// The operation.
        operation: &'static str,
        /// The wire.
        wire: String,
        /// What was given.
        saw: String,
        /// What would be accepted.
        allowed: String,
    },
    /// The link to a peer is broken for good.
    #[error("lost the {wire} link to rank {peer}: {reason}; {LOST}")]
    Lost {
        /// The wire.
        wire: String,
        /// The rank at the other end.
        peer: u32,
        /// What happened.
        reason: String,
    },
    /// The system refused an operation.
    #[error(
        "cannot {operation} over wire {wire}: {reason}; mend what the system names, or choose another wire (--wire, \
         ANTIPHON_WIRE)"
    )]
    System {
        /// The operation.
        operation: &'static str,
        /// The wire.
        wire: String,
        /// What the system says.
        reason: String,
    },
}

impl WireError {
    /// What happened, without the rank at the other end, for callers that name that rank by a number of their own.
    pub fn reason(&self) -> String {
        match self {
            WireError::Lost { wire, reason, .. } => {
                format!("lost the {wire} link: {reason}; {LOST}")
            }
            other => other.to_string(),
        }
    }

    /// The wire's name.
    pub fn wire(&self) -> &str {
        match self {
            WireError::Unavailable { wire, .. }
            | WireError::Unsupported { wire, .. }
            | WireError::Invalid { wire, .. }
            | WireError::Lost { wire, .. }
            | WireError::System { wire, .. } => wire,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_leaves_the_ranks_number_to_who_gives_it() {
        let (wire, reason) = ("tcp".to_owned(), "it closed".to_owned());
        let lost = WireError::Lost { wire, peer: 3, reason };
        assert!(lost.to_string().starts_with("lost the tcp link to rank 3: it closed; see what"));
        assert!(lost.reason().starts_with("lost the tcp link: it closed; see what"));
        let other = WireError::Unsupported { operation: "add", wire: "tcp".to_owned() };
        assert_eq!(other.reason(), other.to_string());
    }
}
