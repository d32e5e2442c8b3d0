//! An opened device, one of its ports, and what it tells unasked.

use super::refused;
use crate::NAME;
use crate::choose::Choice;
use antiphon_port::WireError;
use rdma_sys as sys;
use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError, Weak};

/// A port of a device that this process has open.
#[derive(Debug)]
pub struct Nic {
    pub(super) context: NonNull<sys::ibv_context>,
    pub(super) domain: NonNull<sys::ibv_pd>,
    /// The port, and the address to use.
    pub choice: Choice,
    /// The local identifier; 0 on Ethernet.
    pub lid: u16,
    /// As [`crate::address::LaneAddress::mtu`].
    pub mtu: u8,
    /// The most bytes of a request.
    pub most_bytes: u32,
    /// Who wants to know when a queue pair breaks.
    alarms: Mutex<HashMap<u32, Weak<Alarm>>>,
}

// SAFETY: the library's functions may be called from any thread; the pointers are freed by drop alone.
unsafe impl Send for Nic {}
// SAFETY: as above; what changes here is behind a lock.
unsafe impl Sync for Nic {}

/// Tells a link that it is lost.
#[derive(Debug)]
pub struct Alarm {
    reason: OnceLock<String>,
    bell: OwnedFd,
}

impl Alarm {
    /// A silent one.
    pub fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Alarm { reason: OnceLock::new(), bell })
    }

    /// Rings; the first reason stays.
    pub fn ring(&self, reason: impl FnOnce() -> String) {
        self.reason.get_or_init(reason);
        // It fails only when it has been rung more often than it can count.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Why it rang, if it did.
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Readable once it rang.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Nic {
    /// Opens a port.
    ///
    /// # Errors
    /// [`WireError::Unavailable`] if the device cannot be opened.
    pub fn open(choice: Choice) -> Result<Arc<Self>, WireError> {
        let context = open_device(&choice.port.device)?;
        // SAFETY: the context is open.
        let Some(domain) = NonNull::new(unsafe { sys::ibv_alloc_pd(context.as_ptr()) }) else {
            let why = refused("make a protection domain", &choice.port.device);
            // SAFETY: nothing was made from the context.
            unsafe { sys::ibv_close_device(context.as_ptr()) };
            return Err(why);
        };
        // From here on, drop cleans up.
        let mut nic = Nic {
            context,
            domain,
            choice,
            lid: 0,
            mtu: 0,
            most_bytes: 0,
            alarms: Mutex::new(HashMap::new()),
        };
        rustix::io::ioctl_fionbio(nic.events(), true).map_err(|e| {
            super::refused_by("listen for events", &nic.choice.port.device, &e.into())
        })?;
        let port = nic.port().ok_or_else(|| refused("read the state of port", &nic.name()))?;
        nic.lid = port.lid;
        nic.mtu = u8::try_from(port.active_mtu).unwrap_or(1).clamp(1, 5);
        nic.most_bytes = port.max_msg_sz.clamp(4096, 1 << 30);
        Ok(Arc::new(nic))
    }

    fn port(&self) -> Option<sys::ibv_port_attr> {
        let mut port = MaybeUninit::<sys::ibv_port_attr>::zeroed();
        // SAFETY: the context is open, and the structure is plain numbers that the call fills in.
        unsafe {
            let (context, number) = (self.context.as_ptr(), self.choice.port.number);
            let code = sys::___ibv_query_port(context, number, port.as_mut_ptr());
            (code == 0).then(|| port.assume_init())
        }
    }

    /// What the port is now, if it is not active.
    pub fn inactive(&self) -> Option<String> {
        let state = self.port()?.state;
        if state == sys::ibv_port_state::IBV_PORT_ACTIVE {
            return None;
        }
        // SAFETY: the call returns a constant text for every number.
        let text = unsafe { CStr::from_ptr(sys::ibv_port_state_str(state)) };
        Some(format!("{} is not active ({state}: {})", self.name(), text.to_string_lossy()))
    }

    /// The device and its port, e.g. `mlx5_0:1`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.choice.port.device, self.choice.port.number)
    }

    /// Readable when there is something for [`watch`](Self::watch).
    pub fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open as long as this lives.
        unsafe { BorrowedFd::borrow_raw((*self.context.as_ptr()).async_fd) }
    }

    /// Rings `alarm` when the queue pair of this number breaks.
    pub(super) fn on_break(&self, queue: u32, alarm: &Arc<Alarm>) {
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        alarms.insert(queue, Arc::downgrade(alarm));
    }

    /// Forgets a queue pair.
    pub(super) fn forget(&self, queue: u32) {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner).remove(&queue);
    }

    /// Reads what the device tells, and rings who should know.
    pub fn watch(&self) {
        loop {
            let mut event = MaybeUninit::<sys::ibv_async_event>::zeroed();
            // SAFETY: the context is open; its descriptor does not block.
            if unsafe { sys::ibv_get_async_event(self.context.as_ptr(), event.as_mut_ptr()) } != 0 {
                return;
            }
            // SAFETY: the call filled both fields in. The kind is read as a number, since newer libraries may know more.
            let (queue, kind) = unsafe {
                let event = event.as_ptr();
                let kind = (&raw const (*event).event_type).cast::<u32>().read();
                ((&raw const (*event).element).cast::<*const sys::ibv_qp>().read(), kind)
            };
            let what = match kind {
                1 => Some("the queue pair failed"),
                2 => Some("the peer sent an invalid request"),
                3 => Some("the peer wrote where it may not"),
                0 => Some("a completion queue failed"),
                8 => Some("the device failed"),
                _ => None,
            };
            // SAFETY: events 1 to 3 are about a queue pair, which cannot be destroyed before its event is acknowledged.
            let queue = (1..=3).contains(&kind).then(|| unsafe { (*queue).qp_num });
            if let Some(what) = what {
                self.tell(queue, &format!("{} says: {what}", self.name()));
            }
            // SAFETY: the event came from the library and is acknowledged once.
            unsafe { sys::ibv_ack_async_event(event.as_mut_ptr()) };
        }
    }

    /// Rings for one queue pair, or all.
    fn tell(&self, queue: Option<u32>, reason: &str) {
        let alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        let concerned = alarms.iter().filter(|(number, _)| queue.is_none_or(|q| q == **number));
        concerned.filter_map(|(_, a)| a.upgrade()).for_each(|a| a.ring(|| reason.to_owned()));
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        // SAFETY: whatever was made from these holds a reference to this, so nothing is left of it.
        unsafe {
            sys::ibv_dealloc_pd(self.domain.as_ptr());
            sys::ibv_close_device(self.context.as_ptr());
        }
    }
}

/// Has pages that cards use stay this process's when it forks. On kernels before Linux 5.12 a page that the process writes after a fork
/// may otherwise be another than the card's.
fn keep_pages_at_forks() {
    static ASKED: Once = Once::new();
    ASKED.call_once(|| {
        // Where the process has registered memory before by other means it fails, and that is as it was.
        // SAFETY: takes nothing, and may be called at any time.
        let _ = unsafe { sys::ibv_fork_init() };
    });
}

fn open_device(name: &str) -> Result<NonNull<sys::ibv_context>, WireError> {
    let unavailable = |reason: String| {
        WireError::Unavailable {
        wire: NAME.to_owned(),
        reason,
        cure: "check that the driver is loaded (ib_uverbs), that its provider is installed (ibverbs-providers), and that this \
               process may open /dev/infiniband (in a container: `--device /dev/infiniband`)"
            .to_owned(),
    }
    };
    keep_pages_at_forks();
    let mut count = 0;
    // SAFETY: the call allocates a list with a null at its end, or returns null.
    let list = unsafe { sys::ibv_get_device_list(&mut count) };
    if list.is_null() {
        let why = io::Error::last_os_error();
        return Err(unavailable(format!("libibverbs finds no devices: {why}")));
    }
    let mut opened = None;
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` devices, each with a name.
        let device = unsafe { *list.add(index) };
        // SAFETY: as above.
        let found = unsafe { CStr::from_ptr(sys::ibv_get_device_name(device)) };
        if found.to_bytes() == name.as_bytes() {
            // SAFETY: the device is in the list, which is still there.
            let context = NonNull::new(unsafe { sys::ibv_open_device(device) });
            opened = Some(context.ok_or_else(io::Error::last_os_error));
            break;
        }
    }
    // SAFETY: the list came from the library; opened devices outlive it.
    unsafe { sys::ibv_free_device_list(list) };
    match opened {
        Some(Ok(context)) => Ok(context),
        Some(Err(why)) => Err(unavailable(format!("cannot open {name}: {why}"))),
        None => Err(unavailable(format!("libibverbs has no device {name}"))),
    }
}
