//! The registry: which transports there are, and which one serves a channel.

use crate::{ChannelKind, Peer, Reach, Transport, TransportError};
use std::sync::Arc;

/// The transports of a process, in order of registration.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    transports: Vec<Arc<dyn Transport>>,
}

impl Registry {
    /// Adds a transport.
    pub fn register(&mut self, transport: Arc<dyn Transport>) {
        self.transports.push(transport);
    }

    /// All transports.
    pub fn transports(&self) -> &[Arc<dyn Transport>] {
        &self.transports
    }

    /// The cheapest transport of a kind that reaches a peer; of equal ones, the first registered.
    ///
    /// # Errors
    /// [`TransportError::Unreachable`] with what each transport of the kind says.
    pub fn pick(
        &self,
        kind: ChannelKind,
        peer: &Peer,
    ) -> Result<&Arc<dyn Transport>, TransportError> {
        let mut best: Option<(u32, &Arc<dyn Transport>)> = None;
        let mut reasons = Vec::new();
        for transport in self.transports.iter().filter(|transport| transport.kind() == kind) {
            match transport.reach(peer) {
                Reach::At { cost } if best.is_none_or(|(least, _)| cost < least) => {
                    best = Some((cost, transport));
                }
                Reach::At { .. } => {}
                Reach::No { why } => reasons.push(format!("{}: {why}", transport.name())),
            }
        }
        if let Some((_, transport)) = best {
            return Ok(transport);
        }
        if reasons.is_empty() {
            reasons.push(format!("no transport offers {kind} channels"));
        }
        Err(TransportError::Unreachable { kind, peer: peer.rank, reasons })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fake(&'static str, ChannelKind, Result<u32, &'static str>);

    impl Transport for Fake {
        fn name(&self) -> &'static str {
            self.0
        }
        fn kind(&self) -> ChannelKind {
            self.1
        }
        fn reach(&self, _: &Peer) -> Reach {
            match self.2 {
                Ok(cost) => Reach::At { cost },
                Err(why) => Reach::No { why: why.to_owned() },
            }
        }
    }

    const PEER: Peer =
        Peer { rank: 3, pid: 9, same_process: false, same_node: true, process_access: false };

    fn registry(fakes: Vec<Fake>) -> Registry {
        let mut registry = Registry::default();
        fakes.into_iter().for_each(|fake| registry.register(Arc::new(fake)));
        registry
    }

    #[test]
    fn the_cheapest_transport_of_the_kind_is_picked_and_the_first_of_equals() {
        let registry = registry(vec![
            Fake("far", ChannelKind::Memory, Ok(9)),
            Fake("near", ChannelKind::Memory, Ok(2)),
            Fake("also-near", ChannelKind::Memory, Ok(2)),
            Fake("other-kind", ChannelKind::Port, Ok(1)),
        ]);
        assert_eq!(registry.pick(ChannelKind::Memory, &PEER).unwrap().name(), "near");
    }

    #[test]
    fn an_unreachable_peer_comes_with_every_transports_reason() {
        let registry = registry(vec![
            Fake("wire", ChannelKind::Port, Err("no cable")),
            Fake("radio", ChannelKind::Port, Err("no air")),
        ]);
        let text = registry.pick(ChannelKind::Port, &PEER).unwrap_err().to_string();
        assert_eq!(text, "cannot open a port channel to rank 3: wire: no cable; radio: no air");
        let text = registry.pick(ChannelKind::Switch, &PEER).unwrap_err().to_string();
        assert!(text.contains("no transport offers switch channels"), "{text}");
    }
}
