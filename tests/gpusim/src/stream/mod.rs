//! Streams: queues, each worked off by a thread of its own, one item after the other.

pub mod calls;
pub mod capture;

use crate::abi::Answer;
use crate::context::{self, Context};
use crate::status::Status;
use crate::table::{Table, fresh, lock};
use capture::{Capture, Slot};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError, Weak};
use std::thread::{self, ThreadId};

/// Something to do in a stream's order; done again with every launch of a graph that holds it.
pub type Work = Arc<dyn Fn() -> Answer + Send + Sync>;

/// A stream.
pub struct Stream {
    pub handle: u64,
    pub context: Arc<Context>,
    pub flags: u32,
    legacy: bool,
    queue: Mutex<Queue>,
    changed: Condvar,
    slot: Mutex<Option<Slot>>,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    submitted: u64,
    completed: u64,
    threaded: bool,
    closing: bool,
}

/// Work, and how far other streams must have come before it.
struct Item {
    after: Vec<(Arc<Stream>, u64)>,
    work: Work,
}

const NON_BLOCKING: u32 = 1;
/// Items that a stream holds: who adds another waits, as drivers make their callers wait.
const LENGTH: usize = 1024;

static STREAMS: Table<Stream> = Table::new();
static ALL: Mutex<Vec<Weak<Stream>>> = Mutex::new(Vec::new());

/// The stream of a handle; 0 and 1 are the current context's legacy stream, and 2 is the calling thread's own there.
pub fn find(handle: u64) -> Result<Arc<Stream>, Status> {
    match handle {
        0..=1 => Ok(context::current()?.legacy()),
        2 => Ok(of_this_thread(&context::current()?)),
        _ => STREAMS.get(handle),
    }
}

/// A thread's own stream in a context. It goes with the thread, once its work is done.
struct Own(Arc<Stream>);

impl Drop for Own {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn of_this_thread(context: &Arc<Context>) -> Arc<Stream> {
    thread_local!(static OWN: RefCell<Vec<Own>> = const { RefCell::new(Vec::new()) });
    OWN.with_borrow_mut(|all| {
        let known = all.iter().find(|own| Arc::ptr_eq(&own.0.context, context));
        if let Some(Own(stream)) = known {
            return Arc::clone(stream);
        }
        let stream = Stream::open(context, 0);
        all.push(Own(Arc::clone(&stream)));
        stream
    })
}

/// Waits for all work of a device, as the driver does before memory goes.
pub fn finish_device(device: usize) {
    let mut all = lock(&ALL);
    all.retain(|stream| stream.strong_count() > 0);
    let streams: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
    drop(all);
    for stream in streams.iter().filter(|stream| stream.context.device == device) {
        stream.wait(stream.submitted());
    }
}

/// Calls that wait for all work of a device now, as a real driver may let them.
static WAITING: AtomicU64 = AtomicU64::new(0);

/// How many calls of this process wait for all work of a device now, for tests.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_gpusim_waiting() -> u64 {
    WAITING.load(Ordering::Relaxed)
}

/// Waits for all work of a device, where `ANTIPHON_GPUSIM_WAITS` says that calls of this kind do: a real driver may.
pub fn may_finish_device(device: usize, kind: &str) {
    static WAITS: LazyLock<String> = LazyLock::new(|| {
        std::env::var("ANTIPHON_GPUSIM_WAITS").unwrap_or_else(|_| "pin,open,peer,unload".to_owned())
    });
    if WAITS.split(',').any(|one| one == kind) {
        WAITING.fetch_add(1, Ordering::Relaxed);
        // As seen of CUDA's driver: who loads code keeps everybody else from its context meanwhile.
        let held = (kind == "load").then(Held::new);
        finish_device(device);
        drop(held);
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The thread that keeps all others from the contexts, if one does.
static HOLDER: Mutex<Option<ThreadId>> = Mutex::new(None);
/// It does so no more.
static RELEASED: Condvar = Condvar::new();

/// No other thread's call that makes a context current, or uses the current one, begins while it lives.
struct Held;

impl Held {
    fn new() -> Self {
        let mut holder = lock(&HOLDER);
        while holder.is_some() {
            holder = RELEASED.wait(holder).unwrap_or_else(PoisonError::into_inner);
        }
        *holder = Some(thread::current().id());
        Held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        *lock(&HOLDER) = None;
        RELEASED.notify_all();
    }
}

/// Waits while another thread keeps all others from the contexts.
pub fn pass() {
    let own = thread::current().id();
    let mut holder = lock(&HOLDER);
    while holder.is_some_and(|holder| holder != own) {
        holder = RELEASED.wait(holder).unwrap_or_else(PoisonError::into_inner);
    }
}

impl Stream {
    /// The stream that waits for all blocking ones, and they for it.
    pub fn legacy(context: &Arc<Context>) -> Arc<Self> {
        Self::build(context, 0, true)
    }

    /// One that an application makes.
    pub fn open(context: &Arc<Context>, flags: u32) -> Arc<Self> {
        let stream = Self::build(context, flags, false);
        STREAMS.put(stream.handle, stream.clone());
        if flags & NON_BLOCKING == 0 {
            lock(&context.blocking).push(Arc::downgrade(&stream));
        }
        stream
    }

    fn build(context: &Arc<Context>, flags: u32, legacy: bool) -> Arc<Self> {
        let stream = Arc::new(Self {
            handle: fresh(),
            context: context.clone(),
            flags,
            legacy,
            queue: Mutex::default(),
            changed: Condvar::new(),
            slot: Mutex::new(None),
        });
        lock(&ALL).push(Arc::downgrade(&stream));
        stream
    }

    /// Adds work to the queue, or to the capture that the stream is part of.
    pub fn submit(self: &Arc<Self>, work: Work) -> Answer {
        if let Some(slot) = lock(&self.slot).as_mut() {
            return slot.add(work);
        }
        self.unbarred()?;
        self.context.sound()?;
        let after = self.others();
        let queue = lock(&self.queue);
        let room = self.changed.wait_while(queue, |queue| queue.items.len() >= LENGTH);
        let mut queue = room.unwrap_or_else(PoisonError::into_inner);
        queue.items.push_back(Item { after, work });
        queue.submitted += 1;
        if !queue.threaded {
            queue.threaded = true;
            let stream = self.clone();
            let thread = std::thread::Builder::new().name("gpusim-stream".into());
            thread.spawn(move || stream.work()).map_err(|_| Status::OPERATING_SYSTEM)?;
        }
        self.changed.notify_all();
        Ok(())
    }

    /// What the rules of the legacy stream make new work wait for.
    fn others(&self) -> Vec<(Arc<Stream>, u64)> {
        let others: Vec<_> = if self.legacy {
            let mut blocking = lock(&self.context.blocking);
            blocking.retain(|stream| stream.strong_count() > 0);
            blocking.iter().filter_map(Weak::upgrade).collect()
        } else if self.flags & NON_BLOCKING == 0 {
            vec![self.context.legacy()]
        } else {
            Vec::new()
        };
        let pending = others.into_iter().map(|stream| (stream.submitted(), stream));
        pending
            .filter(|(ticket, stream)| !stream.has_come_to(*ticket))
            .map(|(ticket, stream)| (stream, ticket))
            .collect()
    }

    fn submitted(&self) -> u64 {
        lock(&self.queue).submitted
    }

    fn has_come_to(&self, ticket: u64) -> bool {
        lock(&self.queue).completed >= ticket
    }

    fn wait(&self, ticket: u64) {
        let queue = lock(&self.queue);
        let done = self.changed.wait_while(queue, |queue| queue.completed < ticket);
        drop(done.unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits for what has been submitted so far.
    pub fn synchronize(&self) -> Answer {
        self.untouched()?;
        self.wait(self.submitted());
        self.context.sound()
    }

    /// Whether what has been submitted so far is done.
    pub fn query(&self) -> Answer {
        self.untouched()?;
        if !self.has_come_to(self.submitted()) {
            return Err(Status::NOT_READY);
        }
        self.context.sound()
    }

    /// The capture that keeps the legacy stream from being used: of a stream that it would wait for.
    fn bar(&self) -> Option<Arc<Capture>> {
        if !self.legacy {
            return None;
        }
        let blocking: Vec<_> =
            lock(&self.context.blocking).iter().filter_map(Weak::upgrade).collect();
        blocking.iter().find_map(|stream| stream.capture())
    }

    /// Refuses, and ends the capture, while another stream's capture keeps this one from being used.
    fn unbarred(&self) -> Answer {
        self.bar().map_or(Ok(()), |capture| {
            capture.invalidate();
            Err(Status::STREAM_CAPTURE_IMPLICIT)
        })
    }

    /// The state of the capture that the stream is part of, 0 for none; and the capture.
    pub fn capture_state(&self) -> Result<(u32, Option<Arc<Capture>>), Status> {
        // As documented, the question does not end the capture.
        if self.bar().is_some() {
            return Err(Status::STREAM_CAPTURE_IMPLICIT);
        }
        let capture = self.capture();
        Ok((capture.as_ref().map_or(0, |capture| capture.state()), capture))
    }

    /// Refuses, and ends the capture, while the stream is captured, or cannot be used for a capture.
    fn untouched(&self) -> Answer {
        self.unbarred()?;
        match lock(&self.slot).as_ref() {
            None => Ok(()),
            Some(slot) => {
                slot.capture.invalidate();
                Err(Status::STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// The capture that the stream is part of.
    pub fn capture(&self) -> Option<Arc<Capture>> {
        lock(&self.slot).as_ref().map(|slot| slot.capture.clone())
    }

    fn close(&self) {
        let mut queue = lock(&self.queue);
        queue.closing = true;
        self.changed.notify_all();
    }

    /// The thread of the stream.
    fn work(self: Arc<Self>) {
        loop {
            let queue = lock(&self.queue);
            let waiting =
                self.changed.wait_while(queue, |queue| queue.items.is_empty() && !queue.closing);
            let Some(item) = waiting.unwrap_or_else(PoisonError::into_inner).items.pop_front()
            else {
                return;
            };
            for (stream, ticket) in &item.after {
                stream.wait(*ticket);
            }
            // After a failure nothing of the context runs, and everything still completes.
            if self.context.sound().is_ok()
                && let Err(status) = (item.work)()
            {
                self.context.fail(status);
            }
            drop(item);
            lock(&self.queue).completed += 1;
            self.changed.notify_all();
        }
    }
}
