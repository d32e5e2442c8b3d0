//! Which wire a pair of ranks takes.

use super::wires::is_news;
use super::{Introduction, Ports};
use antiphon_port::Wire;
use antiphon_transport::{ChannelKind, Peer, Reach, Transport, TransportError};
use log::{debug, info};
use std::sync::Arc;

impl Ports {
    /// The cheapest wire that both ranks have.
    pub(super) fn pick(&self, to: &Introduction) -> Result<usize, TransportError> {
        let mut best: Option<(u32, usize)> = None;
        let mut reasons = Vec::new();
        for (at, wire) in self.wires.iter().enumerate() {
            if !to.wires.iter().any(|name| name == wire.name()) {
                reasons.push(format!("{}: the rank has no such wire", wire.name()));
                continue;
            }
            match wire.reach(&to.peer) {
                Reach::At { cost } if best.is_none_or(|(least, _)| cost < least) => {
                    best = Some((cost, at));
                }
                Reach::At { .. } => {}
                Reach::No { why } => reasons.push(format!("{}: {why}", wire.name())),
            }
        }
        for closed in &self.closed {
            if let Reach::No { why } = closed.reach(&to.peer) {
                reasons.push(format!("{}: {why}", closed.name()));
            }
        }
        if let Some((cost, at)) = best {
            let (name, peer) = (self.wires[at].name(), to.peer.rank);
            let others = reasons.iter().map(|why| format!("; not {why}")).collect::<String>();
            debug!("{}: the wire to rank {peer} is {name}, of cost {cost}{others}", self.whose);
            if !to.peer.same_node && is_news(&format!("to other nodes: {name}")) {
                let over = self.wires[at].describe();
                info!("{}: the wire to other nodes is {name}: {over}{others}", self.whose);
            }
            return Ok(at);
        }
        if reasons.is_empty() {
            reasons.push(format!("the rank's wires are {}", to.wires.join(", ")));
        }
        Err(TransportError::Unreachable { kind: ChannelKind::Port, peer: to.peer.rank, reasons })
    }
}

/// A wire, as the registry of transports sees it.
#[derive(Debug)]
pub(super) struct WireTransport(pub(super) Arc<dyn Wire>);

impl Transport for WireTransport {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn kind(&self) -> ChannelKind {
        ChannelKind::Port
    }

    fn reach(&self, peer: &Peer) -> Reach {
        self.0.reach(peer)
    }
}
