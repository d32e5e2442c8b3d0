//! The RDMA wire: bytes moved by InfiniBand and RoCE cards into peers' registered memory.
//!
//! | module | what it knows |
//! |---|---|
//! | [`choose`] | which ports and addresses to use, from the kernel's files |
//! | [`settings`] | what people may set |
//! | [`address`] | what the halves of a link tell each other |
//! | [`flow`] | lanes, moderation, order, completion: without a device |
//!
//! # How it keeps the promises of a wire
//! Every lane of a link has a reliable-connected queue pair that sends, and one that receives. Data are RDMA writes;
//! a signal is an RDMA write of the counter's new value, given inline, after the data on the same queue. A wire's
//! signals *set* counters, so no atomics are needed. An 8-byte counter at a multiple of 8 arrives as a unit. Regions are
//! registered without relaxed ordering, so that the bus keeps the network's order.
//!
//! A signal carries immediate data as well: the receiver's completion queue tells of it, so that a thread that sleeps on
//! the link's descriptor wakes. `ANTIPHON_RDMA_SIGNAL=write` does without.
//!
//! `ANTIPHON_RDMA_ORDER=completions` says that the network does not keep order (as with packet spraying): a signal is then
//! posted when the writes before it have completed. A link has one lane, unless `ANTIPHON_RDMA_LANES` asks for more; then a
//! signal is posted when the writes before it on other lanes have completed. By the specification that is not enough: a
//! completion says that the peer's card has the data, not that its memory shows them, and another card's signal may be
//! seen before. So several lanes are for machines of which one knows more.
//!
//! A queue pair that sends to one that is not there yet gives up after some retries. So the first request is an empty
//! one that is tried again until the peer's half stands; what was posted meanwhile waits here. Two queue pairs instead
//! of one make that safe: starting the sender over does not touch what the peer sends here.
//!
//! Memory of GPUs is registered through a dma-buf where its device exports one and the card takes it, and refused otherwise.
//! That is compiled only: no card has done so yet.

pub mod address;
pub mod choose;
pub mod flow;
pub mod settings;

#[cfg(feature = "rdma")]
mod link;
mod plugin;
#[cfg(feature = "rdma")]
mod verbs;
mod wire;

pub use wire::RdmaDriver;

/// The wire's name.
pub const NAME: &str = "rdma";
