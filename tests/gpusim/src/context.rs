//! Contexts: one primary one a device, and those an application makes; a stack of current ones a thread.

use crate::abi::{Answer, Out};
use crate::device;
use crate::status::Status;
use crate::stream::{self, Stream};
use crate::table::{Table, fresh, lock};
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, Weak};

/// What streams, memory and modules belong to.
pub struct Context {
    pub handle: u64,
    pub device: usize,
    /// Of a green context, its handle as such, and the primary one, with which it shares all but a part of the device.
    pub green: Option<(u64, Arc<Context>)>,
    /// The status of the kernel that broke the context; 0 while none has.
    broken: AtomicI32,
    legacy: OnceLock<Arc<Stream>>,
    /// Streams that the legacy stream waits for, and that wait for it.
    pub blocking: Mutex<Vec<Weak<Stream>>>,
    peers: Mutex<HashSet<usize>>,
}

static CONTEXTS: Table<Context> = Table::new();

/// How often a primary context is retained, and the context.
type Primary = (u32, Option<Arc<Context>>);

/// The primary contexts of all devices.
static PRIMARY: LazyLock<Mutex<Vec<Primary>>> =
    LazyLock::new(|| Mutex::new(vec![(0, None); device::count()]));

/// The limit of a thread's stack, which nothing here needs.
const STACK: u32 = 0;
static STACK_BYTES: AtomicUsize = AtomicUsize::new(1 << 10);

thread_local! {
    static CURRENT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl Context {
    fn open(device: usize) -> Arc<Self> {
        Self::build(device, None)
    }

    /// One that shares what the primary context has.
    pub fn green(primary: &Arc<Self>) -> Arc<Self> {
        Self::build(primary.device, Some((fresh(), primary.clone())))
    }

    fn build(device: usize, green: Option<(u64, Arc<Self>)>) -> Arc<Self> {
        let handle = fresh();
        let context = Arc::new(Self {
            handle,
            device,
            green,
            broken: AtomicI32::new(0),
            legacy: OnceLock::new(),
            blocking: Mutex::default(),
            peers: Mutex::default(),
        });
        CONTEXTS.put(handle, context.clone());
        context
    }

    /// The stream with the handle 0.
    pub fn legacy(self: &Arc<Self>) -> Arc<Stream> {
        self.legacy.get_or_init(|| Stream::legacy(self)).clone()
    }

    /// The error of a kernel that broke the context, which every later call answers.
    pub fn sound(&self) -> Answer {
        match self.broken.load(Ordering::Acquire) {
            0 => device::fault(self.device).map_or(Ok(()), Err),
            code => Err(Status(code)),
        }
    }

    /// The context that has what streams of this one may use: its memory, code and events.
    pub fn home(&self) -> u64 {
        self.green.as_ref().map_or(self.handle, |(_, primary)| primary.handle)
    }

    /// Breaks the context.
    pub fn fail(&self, status: Status) {
        self.broken.store(status.0, Ordering::Release);
        if let Some((_, primary)) = &self.green {
            primary.fail(status);
        }
    }
}

/// The calling thread's current context; refused once a kernel broke it.
pub fn current() -> Result<Arc<Context>, Status> {
    let context = current_handle().and_then(|handle| CONTEXTS.get(handle).ok());
    let context = context.ok_or(Status::INVALID_CONTEXT)?;
    context.sound()?;
    Ok(context)
}

/// Refuses a call that maps memory where no context is current, if `ANTIPHON_GPUSIM_WANTS` says that it wants one.
pub fn wanted() -> Answer {
    static WANTED: LazyLock<bool> = LazyLock::new(|| {
        std::env::var("ANTIPHON_GPUSIM_WANTS").is_ok_and(|text| text == "context")
    });
    if *WANTED { current().map(drop) } else { Ok(()) }
}

fn current_handle() -> Option<u64> {
    CURRENT.with_borrow(|stack| stack.last().copied()).filter(|handle| *handle != 0)
}

/// The context of a handle.
pub fn find(handle: u64) -> Result<Arc<Context>, Status> {
    CONTEXTS.get(handle).map_err(|_| Status::INVALID_CONTEXT)
}

driver_calls! {
    fn cuDevicePrimaryCtxRetain(out: Out<u64>, device: i32) {
        let device = device::ordinal(device)?;
        let mut primary = lock(&PRIMARY);
        let (count, context) = &mut primary[device];
        out.set(context.get_or_insert_with(|| Context::open(device)).handle)?;
        *count += 1;
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) {
        let mut primary = lock(&PRIMARY);
        let (count, context) = &mut primary[device::ordinal(device)?];
        *count = count.checked_sub(1).ok_or(Status::INVALID_CONTEXT)?;
        if *count == 0
            && let Some(context) = context.take()
        {
            CONTEXTS.take(context.handle)?;
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) {
        let active_now = lock(&PRIMARY)[device::ordinal(device)?].1.is_some();
        flags.set(0)?;
        active.set(i32::from(active_now))
    }

    fn cuCtxCreate_v2(out: Out<u64>, _flags: u32, device: i32) {
        let context = Context::open(device::ordinal(device)?);
        CURRENT.with_borrow_mut(|stack| stack.push(context.handle));
        out.set(context.handle)
    }

    fn cuCtxSetCurrent(context: u64) {
        if context != 0 {
            find(context)?;
        }
        CURRENT.with_borrow_mut(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
        Ok(())
    }

    fn cuCtxPushCurrent_v2(context: u64) {
        find(context)?;
        CURRENT.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }

    fn cuCtxPopCurrent_v2(out: Out<u64>) {
        let popped = CURRENT.with_borrow_mut(Vec::pop).ok_or(Status::INVALID_CONTEXT)?;
        out.offer(popped);
        Ok(())
    }

    fn cuCtxGetDevice(out: Out<i32>) {
        let handle = current_handle().ok_or(Status::INVALID_CONTEXT)?;
        out.set(find(handle)?.device as i32)
    }

    fn cuCtxGetLimit(out: Out<usize>, limit: u32) {
        current()?;
        if limit == STACK { out.set(STACK_BYTES.load(Ordering::Relaxed)) } else { Err(Status::INVALID_VALUE) }
    }

    fn cuCtxSetLimit(limit: u32, value: usize) {
        current()?;
        if limit != STACK {
            return Err(Status::INVALID_VALUE);
        }
        STACK_BYTES.store(value, Ordering::Relaxed);
        Ok(())
    }

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        current()?;
        least.offer(0);
        greatest.offer(-5);
        Ok(())
    }

    fn cuCtxEnablePeerAccess(peer: u64, flags: u32) {
        let context = current()?;
        let peer = find(peer)?;
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        if peer.device == context.device {
            return Err(Status::INVALID_DEVICE);
        }
        if !device::peers() {
            return Err(Status::PEER_ACCESS_UNSUPPORTED);
        }
        if lock(&context.peers).insert(peer.device) {
            stream::may_finish_device(context.device, "peer");
            Ok(())
        } else {
            Err(Status::PEER_ACCESS_ALREADY_ENABLED)
        }
    }

    fn cuCtxSynchronize() {
        let context = current()?;
        context.legacy().synchronize()?;
        let blocking: Vec<_> = lock(&context.blocking).iter().filter_map(Weak::upgrade).collect();
        blocking.iter().try_for_each(|stream| stream.synchronize())?;
        context.sound()
    }
}

// A driver has the answer in memory of the thread's own.
calls_without_context! {
    fn cuCtxGetCurrent(out: Out<u64>) {
        out.set(current_handle().unwrap_or(0))
    }
}
