//! Switch channels: a store that reaches every member of a group, a load that reduces over every member.
//!
//! On devices without multicast (the host; cards before NVLink SHARP; a single card) the same semantics come from
//! unicast loads and stores to every member, in group order, so that every member computes the same bits. A member's
//! buffer is reached by whatever memory transport reaches the member.

use antiphon_transport::{ChannelKind, Peer, Reach, Transport};
use std::sync::Arc;

/// Switch channels in software, over a memory transport.
#[derive(Debug)]
pub struct SoftwareGroups {
    members: Arc<dyn Transport>,
}

impl SoftwareGroups {
    /// Groups whose members are reached by `members`, a transport of kind [`ChannelKind::Memory`].
    pub fn new(members: Arc<dyn Transport>) -> Self {
        SoftwareGroups { members }
    }
}

impl Transport for SoftwareGroups {
    fn name(&self) -> &'static str {
        "software-switch"
    }

    fn kind(&self) -> ChannelKind {
        ChannelKind::Switch
    }

    fn reach(&self, peer: &Peer) -> Reach {
        match self.members.reach(peer) {
            // Every member is a store of its own: dearer than a multicast would be.
            Reach::At { cost } => Reach::At { cost: cost.saturating_mul(8) },
            no => no,
        }
    }
}
