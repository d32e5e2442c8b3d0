//! A completion queue, and the descriptor that tells of it.

use super::{Nic, refused, refused_by, refused_with};
use antiphon_port::WireError;
use rdma_sys as sys;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// The number of requests that receive.
pub const RECEIVED: u64 = u64::MAX;

const BATCH: usize = 32;

/// A completion queue.
#[derive(Debug)]
pub struct Completions {
    pub(super) queue: NonNull<sys::ibv_cq>,
    channel: NonNull<sys::ibv_comp_channel>,
    pub(super) nic: Arc<Nic>,
}

// SAFETY: the library's functions may be called from any thread; the pointers are freed by drop alone.
unsafe impl Send for Completions {}
// SAFETY: as above; the library locks the queue.
unsafe impl Sync for Completions {}

/// A request that came to an end.
#[derive(Debug)]
pub struct Done {
    /// The number it was given, or [`RECEIVED`].
    pub number: u64,
    /// What went wrong.
    pub fault: Option<Fault>,
}

/// What went wrong with a request.
#[derive(Debug)]
pub struct Fault {
    /// The peer did not answer.
    pub unanswered: bool,
    /// It was given up because of another's fault.
    pub flushed: bool,
    /// In words.
    pub text: String,
}

impl Completions {
    /// A queue for `entries` completions.
    ///
    /// # Errors
    /// If the device has no room for one.
    pub fn new(nic: &Arc<Nic>, entries: u32) -> Result<Self, WireError> {
        let name = nic.name();
        // SAFETY: the context is open.
        let channel = unsafe { sys::ibv_create_comp_channel(nic.context.as_ptr()) };
        let Some(channel) = NonNull::new(channel) else {
            return Err(refused("make a completion channel", &name));
        };
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        // SAFETY: context and channel are open and of one device.
        let queue = unsafe {
            let context = nic.context.as_ptr();
            sys::ibv_create_cq(context, entries, std::ptr::null_mut(), channel.as_ptr(), 0)
        };
        let Some(queue) = NonNull::new(queue) else {
            let why = refused("make a completion queue", &name);
            // SAFETY: nothing was made from the channel.
            unsafe { sys::ibv_destroy_comp_channel(channel.as_ptr()) };
            return Err(why);
        };
        let completions = Completions { queue, channel, nic: Arc::clone(nic) };
        rustix::io::ioctl_fionbio(completions.descriptor(), true)
            .map_err(|e| refused_by("prepare a completion channel", &name, &e.into()))?;
        Ok(completions)
    }

    /// Readable when a completion came after [`ask`](Self::ask).
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open as long as this lives.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }

    /// Takes completions that are there, some at a time; how many.
    ///
    /// # Errors
    /// If the queue broke.
    pub fn poll(&self, mut each: impl FnMut(Done)) -> Result<usize, WireError> {
        // SAFETY: completions are plain numbers, of which those that are read are filled in by the call.
        let mut entries: [sys::ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is there, and there is room for as many entries.
        let count =
            unsafe { sys::ibv_poll_cq(self.queue.as_ptr(), BATCH as i32, entries.as_mut_ptr()) };
        let Ok(count) = usize::try_from(count) else {
            return Err(refused_with("read completions", &self.nic.name(), libc::EIO));
        };
        entries.iter().take(count).for_each(|entry| each(done(entry)));
        Ok(count)
    }

    /// Lets the descriptor tell of the next completion.
    ///
    /// # Errors
    /// If the device refuses.
    pub fn ask(&self) -> Result<(), WireError> {
        // SAFETY: the queue is there.
        match unsafe { sys::ibv_req_notify_cq(self.queue.as_ptr(), 0) } {
            0 => Ok(()),
            code => Err(refused_with("ask for completions", &self.nic.name(), code)),
        }
    }

    /// Takes what the descriptor told.
    pub fn quiet(&self) {
        let (mut queue, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the channel is open and does not block; each event is acknowledged once.
        unsafe {
            while sys::ibv_get_cq_event(self.channel.as_ptr(), &mut queue, &mut context) == 0 {
                sys::ibv_ack_cq_events(queue, 1);
            }
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold a reference to this, so none is left; all events were acknowledged.
        unsafe {
            sys::ibv_destroy_cq(self.queue.as_ptr());
            sys::ibv_destroy_comp_channel(self.channel.as_ptr());
        }
    }
}

fn done(entry: &sys::ibv_wc) -> Done {
    use sys::ibv_wc_status as status;
    let fault = (entry.status != status::IBV_WC_SUCCESS).then(|| {
        // SAFETY: the call returns a constant text for every number.
        let text = unsafe { CStr::from_ptr(sys::ibv_wc_status_str(entry.status)) };
        let hint = match entry.status {
            status::IBV_WC_RETRY_EXC_ERR => {
                ": the peer's card does not answer; its process ended, the network is cut, or packets are dropped \
                 (RoCE uses UDP port 4791)"
            }
            status::IBV_WC_REM_ACCESS_ERR => ": the peer has no such memory registered (any more)",
            status::IBV_WC_LOC_PROT_ERR => ": the source is not registered (any more)",
            _ => "",
        };
        Fault {
            unanswered: entry.status == status::IBV_WC_RETRY_EXC_ERR,
            flushed: entry.status == status::IBV_WC_WR_FLUSH_ERR,
            text: format!(
                "{} (status {}, vendor's error {:#x}){hint}",
                text.to_string_lossy(),
                entry.status,
                entry.vendor_err
            ),
        }
    });
    Done { number: entry.wr_id, fault }
}
