//! A reliable-connected queue pair.

use super::{Alarm, Completions, RECEIVED, refused, refused_with};
use crate::flow::{Action, Request};
use crate::settings::{RdmaSettings, SignalBy};
use antiphon_port::WireError;
use rdma_sys as sys;
use std::net::Ipv6Addr;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// The most requests of one doorbell.
pub const BATCH: usize = 32;

/// Small enough for every device, large enough for packets of small messages.
const INLINE: [u32; 4] = [192, 128, 64, 8];

/// A queue pair.
#[derive(Debug)]
pub struct Queue {
    pair: NonNull<sys::ibv_qp>,
    /// Bytes of the largest write that may be copied into its request.
    inline: u32,
    completions: Arc<Completions>,
}

// SAFETY: the library's functions may be called from any thread; the pointer is freed by drop alone.
unsafe impl Send for Queue {}
// SAFETY: as above; the library locks the queue pair.
unsafe impl Sync for Queue {}

/// Where the peer's queue pair is.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Its number.
    pub queue: u32,
    /// Its address; unspecified for none.
    pub gid: Ipv6Addr,
    /// Its local identifier.
    pub lid: u16,
    /// The largest packet that both take.
    pub mtu: u8,
    /// The first packet's number that it will send; 0 if it sends nothing.
    pub expected: u32,
}

impl Queue {
    /// A queue pair for `sends` requests and `receives` receptions; `alarm` rings when it breaks.
    ///
    /// # Errors
    /// If the device has no room for it, or cannot send values inline.
    pub fn new(
        completions: &Arc<Completions>,
        sends: u32,
        receives: u32,
        alarm: &Arc<Alarm>,
    ) -> Result<Self, WireError> {
        let nic = &completions.nic;
        for inline in INLINE {
            // SAFETY: plain numbers and null pointers.
            let mut wanted: sys::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
            wanted.send_cq = completions.queue.as_ptr();
            wanted.recv_cq = completions.queue.as_ptr();
            wanted.qp_type = sys::ibv_qp_type::IBV_QPT_RC;
            wanted.cap.max_send_wr = sends;
            wanted.cap.max_recv_wr = receives;
            wanted.cap.max_send_sge = 1;
            wanted.cap.max_recv_sge = 1;
            wanted.cap.max_inline_data = inline;
            // SAFETY: domain and completion queue are there and of one device.
            let pair = unsafe { sys::ibv_create_qp(nic.domain.as_ptr(), &mut wanted) };
            if let Some(pair) = NonNull::new(pair) {
                let inline = wanted.cap.max_inline_data.min(INLINE[0]);
                let queue = Queue { pair, inline, completions: Arc::clone(completions) };
                nic.on_break(queue.number(), alarm);
                return Ok(queue);
            }
        }
        Err(refused("make a queue pair that sends 8 bytes inline", &nic.name()))
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        // SAFETY: the queue pair is there.
        unsafe { (*self.pair.as_ptr()).qp_num }
    }

    fn modify(
        &self,
        operation: &'static str,
        attributes: &mut sys::ibv_qp_attr,
        mask: sys::ibv_qp_attr_mask,
    ) -> Result<(), WireError> {
        let mask = (mask | sys::ibv_qp_attr_mask::IBV_QP_STATE).0 as i32;
        // SAFETY: the queue pair is there; the attributes that the mask names are set.
        match unsafe { sys::ibv_modify_qp(self.pair.as_ptr(), attributes, mask) } {
            0 => Ok(()),
            code => Err(refused_with(operation, &self.completions.nic.name(), code)),
        }
    }

    /// Starts it (over).
    ///
    /// # Errors
    /// If the device refuses.
    pub fn start(&self) -> Result<(), WireError> {
        use sys::ibv_qp_attr_mask as mask;
        let mut attributes = attributes(sys::ibv_qp_state::IBV_QPS_RESET);
        self.modify("reset a queue pair", &mut attributes, mask(0))?;
        attributes.qp_state = sys::ibv_qp_state::IBV_QPS_INIT;
        attributes.port_num = self.completions.nic.choice.port.number;
        attributes.qp_access_flags = sys::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        let set = mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        self.modify("start a queue pair", &mut attributes, set)
    }

    /// Lets it receive from the peer's.
    ///
    /// # Errors
    /// If the device refuses, e.g. since there is no way to the peer's address.
    pub fn receive_from(&self, path: &Path, settings: &RdmaSettings) -> Result<(), WireError> {
        use sys::ibv_qp_attr_mask as mask;
        let mut attributes = attributes(sys::ibv_qp_state::IBV_QPS_RTR);
        attributes.path_mtu = path.mtu.into();
        attributes.dest_qp_num = path.queue;
        attributes.rq_psn = path.expected;
        attributes.max_dest_rd_atomic = 1;
        attributes.min_rnr_timer = 12;
        let way = &mut attributes.ah_attr;
        let nic = &self.completions.nic;
        way.port_num = nic.choice.port.number;
        way.sl = settings.service_level;
        way.dlid = path.lid;
        if let Some(own) = &nic.choice.gid {
            way.is_global = 1;
            way.grh.dgid.raw = path.gid.octets();
            way.grh.sgid_index = own.index;
            way.grh.hop_limit = 64;
            way.grh.traffic_class = settings.traffic_class;
        }
        let set = mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        self.modify("connect a queue pair to the peer's address", &mut attributes, set)
    }

    /// Lets it send, from packet `first` on; unanswered packets are sent again `retries` times.
    ///
    /// # Errors
    /// If the device refuses.
    pub fn send_from(&self, first: u32, timeout: u8, retries: u8) -> Result<(), WireError> {
        use sys::ibv_qp_attr_mask as mask;
        let mut attributes = attributes(sys::ibv_qp_state::IBV_QPS_RTS);
        attributes.sq_psn = first;
        attributes.timeout = timeout;
        attributes.retry_cnt = retries;
        // A receiver that is slow to take signals is waited for.
        attributes.rnr_retry = 7;
        attributes.max_rd_atomic = 1;
        let set = mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify("let a queue pair send", &mut attributes, set)
    }

    /// Ends it for good: it neither reads nor writes memory after this, in either direction.
    ///
    /// Requests that were under way are not told any more.
    pub fn stop(&self) {
        // In the error state no packet is taken any more, but one that was may still be copied to its place. A reset returns
        // when nothing is.
        for state in [sys::ibv_qp_state::IBV_QPS_ERR, sys::ibv_qp_state::IBV_QPS_RESET] {
            // A device that refuses even this has lost the queue pair, or itself.
            let mask = sys::ibv_qp_attr_mask(0);
            let _ = self.modify("stop a queue pair", &mut attributes(state), mask);
        }
    }

    /// Makes room for `count` signals.
    ///
    /// # Errors
    /// If the device refuses.
    pub fn expect(&self, count: usize) -> Result<(), WireError> {
        for _ in 0..count {
            let mut bad = null_mut();
            let mut request = sys::ibv_recv_wr {
                wr_id: RECEIVED,
                next: null_mut(),
                sg_list: null_mut(),
                num_sge: 0,
            };
            // SAFETY: the queue pair is there; the request has no memory and is copied by the call.
            let code = unsafe { sys::ibv_post_recv(self.pair.as_ptr(), &mut request, &mut bad) };
            if code != 0 {
                return Err(refused_with("expect signals", &self.completions.nic.name(), code));
            }
        }
        Ok(())
    }

    /// Hands requests to the device, with one doorbell for up to [`BATCH`].
    ///
    /// # Errors
    /// If the device refuses; which of them it took is unknown then.
    ///
    /// # Safety
    /// What the requests read is registered under their keys and stays so until they are done.
    pub unsafe fn post(&self, requests: &[Request], signal: SignalBy) -> Result<(), WireError> {
        requests.chunks(BATCH).try_for_each(|batch| {
            // SAFETY: the caller's promise.
            unsafe { self.post_batch(batch, signal) }
        })
    }

    /// As [`post`](Self::post), of a batch.
    unsafe fn post_batch(&self, batch: &[Request], signal: SignalBy) -> Result<(), WireError> {
        // SAFETY: requests and pieces are plain numbers and null pointers.
        let mut list: [sys::ibv_send_wr; BATCH] = unsafe { std::mem::zeroed() };
        let mut pieces = [sys::ibv_sge { addr: 0, length: 0, lkey: 0 }; BATCH];
        let mut values = [0_u64; BATCH];
        for (index, request) in batch.iter().enumerate() {
            let (entry, piece) = (&mut list[index], &mut pieces[index]);
            let mut flags = sys::ibv_send_flags(0);
            if request.told {
                flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED;
            }
            entry.wr_id = request.sequence;
            entry.opcode = sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE;
            let (to, key) = match request.action {
                Action::Write { from, near, local_key, bytes, to, remote_key } => {
                    *piece = sys::ibv_sge { addr: from, length: bytes, lkey: local_key };
                    // What goes inline is copied by the processor.
                    if near && bytes <= self.inline {
                        flags |= sys::ibv_send_flags::IBV_SEND_INLINE;
                    }
                    (to, remote_key)
                }
                Action::Signal { value, to, remote_key } => {
                    values[index] = value;
                    let addr = (&raw const values[index]).expose_provenance() as u64;
                    *piece = sys::ibv_sge { addr, length: 8, lkey: 0 };
                    flags |= sys::ibv_send_flags::IBV_SEND_INLINE;
                    if signal == SignalBy::Immediate {
                        entry.opcode = sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
                    }
                    (to, remote_key)
                }
                Action::Nudge => (0, 0),
            };
            if piece.length > 0 {
                entry.sg_list = piece;
                entry.num_sge = 1;
            }
            entry.send_flags = flags.0;
            entry.wr.rdma = sys::rdma_t { remote_addr: to, rkey: key };
        }
        let first = list.as_mut_ptr();
        for index in 1..batch.len() {
            // SAFETY: both are inside the list.
            unsafe { (*first.add(index - 1)).next = first.add(index) };
        }
        if batch.is_empty() {
            return Ok(());
        }
        let mut bad = null_mut();
        // SAFETY: the queue pair is there; the list, its pieces and the values live until the call returns, which copies
        // them; memory that requests name is the caller's promise.
        match unsafe { sys::ibv_post_send(self.pair.as_ptr(), first, &mut bad) } {
            0 => Ok(()),
            code => Err(refused_with("post requests", &self.completions.nic.name(), code)),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.completions.nic.forget(self.number());
        // Nothing of it may touch memory any more, before the memory's registration ends. Destroying it would do.
        self.stop();
        // SAFETY: nobody else has the pointer.
        unsafe { sys::ibv_destroy_qp(self.pair.as_ptr()) };
    }
}

fn attributes(state: sys::ibv_qp_state::Type) -> sys::ibv_qp_attr {
    // SAFETY: plain numbers; the union of the address as well.
    let mut attributes: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
    attributes.qp_state = state;
    attributes
}
