//! Port channels: requests to a CPU proxy that carries them over a wire.
//!
//! Not there yet: the transport is registered so that whoever needs a port channel is told so, with the reason.

use antiphon_hal::Memory;
use antiphon_transport::{
    ChannelKind, Handle, Offer, Peer, Reach, RemoteBuffer, Transport, TransportError,
};
use std::sync::Arc;

/// The port transport of a build without wires.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWires;

const NAME: &str = "port";

fn unsupported<T>(operation: &'static str) -> Result<T, TransportError> {
    Err(TransportError::Unsupported { operation, transport: NAME })
}

impl Transport for NoWires {
    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> ChannelKind {
        ChannelKind::Port
    }

    fn reach(&self, _: &Peer) -> Reach {
        let why = "port channels are not available in this version; use memory channels between ranks of one node";
        Reach::No { why: why.to_owned() }
    }

    fn register(&self, _: &Arc<dyn Memory>) -> Result<Offer, TransportError> {
        unsupported("register memory")
    }

    fn accept(&self, _: u32, _: Offer) -> Result<(), TransportError> {
        unsupported("accept memory")
    }

    fn retire(&self, _: u32, _: u64) {}

    fn open(&self, _: &Peer, _: &RemoteBuffer) -> Result<Option<Handle>, TransportError> {
        unsupported("open a buffer")
    }
}
