//! Captures: streams that note what they are given instead of doing it.
//!
//! What all streams of a capture are given goes into one list, in the order of the calls. Every dependence goes
//! forward in it, so doing the list from front to back is one of the orders that the graph allows.

use super::{Stream, Work};
use crate::abi::Answer;
use crate::graph::Content;
use crate::object::Kept;
use crate::status::Status;
use crate::table::{fresh, lock};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, ThreadId};

/// How strict a capture is about other calls.
const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

/// A capture that is going on.
pub struct Capture {
    pub id: u64,
    origin: u64,
    mode: u32,
    thread: ThreadId,
    invalid: AtomicBool,
    work: Mutex<Vec<Work>>,
    /// What the graph is to keep.
    pub kept: Mutex<Vec<Arc<Kept>>>,
    streams: Mutex<Vec<Weak<Stream>>>,
}

/// A stream's part in a capture.
pub struct Slot {
    pub capture: Arc<Capture>,
    /// Items that the stream was given.
    given: usize,
    /// Items that another stream of the capture waits for.
    joined: usize,
}

/// Where in a capture an event was recorded.
#[derive(Clone)]
pub struct Point {
    pub capture: Arc<Capture>,
    stream: Weak<Stream>,
    given: usize,
}

static LIVE: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());

thread_local! {
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// Exchanges how strict the calling thread is.
pub fn exchange_mode(mode: u32) -> Result<u32, Status> {
    if mode > RELAXED { Err(Status::INVALID_VALUE) } else { Ok(MODE.replace(mode)) }
}

/// Refuses a call that a capture going on does not allow, and ends that capture.
pub fn refuse() -> Answer {
    let mode = MODE.get();
    let forbids = |capture: &&Arc<Capture>| match capture.mode {
        GLOBAL => {
            mode == GLOBAL || (mode == THREAD_LOCAL && capture.thread == thread::current().id())
        }
        THREAD_LOCAL => mode != RELAXED && capture.thread == thread::current().id(),
        _ => false,
    };
    match lock(&LIVE).iter().find(forbids) {
        None => Ok(()),
        Some(capture) => {
            capture.invalidate();
            Err(Status::STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}

impl Capture {
    pub fn invalidate(&self) {
        self.invalid.store(true, Ordering::Release);
    }

    /// The status that `cuStreamIsCapturing` answers: active or invalidated.
    pub fn state(&self) -> u32 {
        if self.invalid.load(Ordering::Acquire) { 2 } else { 1 }
    }

    fn valid(&self) -> Answer {
        if self.state() == 1 { Ok(()) } else { Err(Status::STREAM_CAPTURE_INVALIDATED) }
    }
}

impl Slot {
    pub fn add(&mut self, work: Work) -> Answer {
        self.capture.valid()?;
        lock(&self.capture.work).push(work);
        self.given += 1;
        Ok(())
    }
}

/// Begins a capture.
pub fn begin(stream: &Arc<Stream>, mode: u32) -> Answer {
    if mode > RELAXED {
        return Err(Status::INVALID_VALUE);
    }
    if stream.legacy {
        return Err(Status::STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut slot = lock(&stream.slot);
    if slot.is_some() {
        return Err(Status::ILLEGAL_STATE);
    }
    let capture = Arc::new(Capture {
        id: fresh(),
        origin: stream.handle,
        mode,
        thread: thread::current().id(),
        invalid: AtomicBool::new(false),
        work: Mutex::default(),
        kept: Mutex::default(),
        streams: Mutex::new(vec![Arc::downgrade(stream)]),
    });
    lock(&LIVE).push(capture.clone());
    *slot = Some(Slot { capture, given: 0, joined: 0 });
    Ok(())
}

/// The capture that goes on under a graph's handle.
pub fn live(graph: u64) -> Option<Arc<Capture>> {
    lock(&LIVE).iter().find(|live| live.id == graph).cloned()
}

/// Ends a capture, and gives the graph's handle and what was captured.
pub fn end(stream: &Arc<Stream>) -> Result<(u64, Content), Status> {
    let capture = stream.capture().ok_or(Status::ILLEGAL_STATE)?;
    if capture.origin != stream.handle {
        return Err(Status::STREAM_CAPTURE_UNMATCHED);
    }
    lock(&LIVE).retain(|live| live.id != capture.id);
    let mut unjoined = false;
    for other in lock(&capture.streams).drain(..).filter_map(|stream| stream.upgrade()) {
        let slot = lock(&other.slot).take();
        unjoined |=
            other.handle != stream.handle && slot.is_some_and(|slot| slot.given > slot.joined);
    }
    capture.valid()?;
    if unjoined {
        return Err(Status::STREAM_CAPTURE_UNJOINED);
    }
    let work = std::mem::take(&mut *lock(&capture.work));
    let kept = std::mem::take(&mut *lock(&capture.kept));
    Ok((capture.id, Content { work, kept }))
}

/// Notes where in a capture an event is recorded, if the stream is captured.
pub fn point(stream: &Arc<Stream>) -> Result<Option<Point>, Status> {
    let slot = lock(&stream.slot);
    let Some(slot) = slot.as_ref() else {
        return Ok(None);
    };
    slot.capture.valid()?;
    Ok(Some(Point {
        capture: slot.capture.clone(),
        stream: Arc::downgrade(stream),
        given: slot.given,
    }))
}

/// Makes a stream wait for an event of a capture: it becomes part of it.
pub fn join(stream: &Arc<Stream>, point: &Point) -> Answer {
    if stream.legacy {
        return Err(Status::STREAM_CAPTURE_IMPLICIT);
    }
    if !lock(&LIVE).iter().any(|live| live.id == point.capture.id) {
        return Err(Status::CAPTURED_EVENT);
    }
    let mut slot = lock(&stream.slot);
    match slot.as_ref() {
        Some(slot) if slot.capture.id != point.capture.id => {
            return Err(Status::STREAM_CAPTURE_MERGE);
        }
        Some(_) => {}
        None => {
            lock(&point.capture.streams).push(Arc::downgrade(stream));
            *slot = Some(Slot { capture: point.capture.clone(), given: 0, joined: 0 });
        }
    }
    drop(slot);
    if let Some(source) = point.stream.upgrade()
        && let Some(slot) = lock(&source.slot).as_mut()
    {
        slot.joined = slot.joined.max(point.given);
    }
    Ok(())
}
