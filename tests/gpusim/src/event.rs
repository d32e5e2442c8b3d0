//! Events: points in streams that can be waited for and timed.

use crate::abi::{Answer, Out};
use crate::context;
use crate::status::Status;
use crate::stream::capture::{self, Point};
use crate::stream::{self, Stream};
use crate::table::{Table, lock};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Instant;

const DISABLE_TIMING: u32 = 2;

/// An event.
struct Event {
    flags: u32,
    /// The context that streams must be of on which it is recorded.
    context: u64,
    last: Mutex<Recorded>,
    /// On which stream that was.
    stream: Mutex<Weak<Stream>>,
}

/// What the last call to record it did.
#[derive(Clone)]
enum Recorded {
    Never,
    Live(Arc<Moment>),
    Captured(Point),
}

/// One recording, which comes once.
#[derive(Default)]
struct Moment {
    come: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Moment {
    fn come(&self) {
        *lock(&self.come) = Some(Instant::now());
        self.changed.notify_all();
    }

    fn at(&self) -> Option<Instant> {
        *lock(&self.come)
    }

    fn wait(&self) {
        let done = self.changed.wait_while(lock(&self.come), |come| come.is_none());
        drop(done.unwrap_or_else(PoisonError::into_inner));
    }
}

static EVENTS: Table<Event> = Table::new();

fn last(event: u64) -> Result<Recorded, Status> {
    Ok(lock(&EVENTS.get(event)?.last).clone())
}

/// Makes a stream wait for what an event was last recorded for.
pub fn wait(stream: &Arc<Stream>, event: u64) -> Answer {
    match last(event)? {
        Recorded::Never => Ok(()),
        Recorded::Captured(point) => capture::join(stream, &point),
        Recorded::Live(moment) => {
            if let Some(capture) = stream.capture() {
                // Captured work cannot depend on work that a replay does not repeat.
                capture.invalidate();
                return Err(Status::STREAM_CAPTURE_ISOLATION);
            }
            stream.submit(Arc::new(move || {
                moment.wait();
                Ok(())
            }))
        }
    }
}

fn record(event: u64, stream: u64) -> Answer {
    let event = EVENTS.get(event)?;
    let stream = stream::find(stream)?;
    if stream.context.home() != event.context {
        return Err(Status::INVALID_HANDLE);
    }
    *lock(&event.stream) = Arc::downgrade(&stream);
    if let Some(point) = capture::point(&stream)? {
        *lock(&event.last) = Recorded::Captured(point);
        return Ok(());
    }
    let moment = Arc::new(Moment::default());
    *lock(&event.last) = Recorded::Live(moment.clone());
    let come = moment.clone();
    let submitted = stream.submit(Arc::new(move || {
        come.come();
        Ok(())
    }));
    submitted.inspect_err(|_| moment.come())
}

/// Refuses, and ends the capture, while the stream on which an event was last recorded is captured, be it that the event came before.
pub fn untouched(event: u64) -> Answer {
    let stream = lock(&EVENTS.get(event)?.stream).upgrade();
    match stream.and_then(|stream| stream.capture()) {
        None => Ok(()),
        Some(capture) => {
            capture.invalidate();
            Err(Status::CAPTURED_EVENT)
        }
    }
}

/// The answer to who asks about an event of a capture, which ends the capture.
fn captured(point: &Point) -> Status {
    point.capture.invalidate();
    Status::CAPTURED_EVENT
}

driver_calls! {
    fn cuEventCreate(out: Out<u64>, flags: u32) {
        let context = context::current()?.home();
        if flags & !7 != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let (last, stream) = (Mutex::new(Recorded::Never), Mutex::default());
        out.set(EVENTS.add(Arc::new(Event { flags, context, last, stream })))
    }

    fn cuEventDestroy_v2(event: u64) {
        EVENTS.take(event).map(drop)
    }

    fn cuEventRecord(event: u64, stream: u64) {
        record(event, stream)
    }

    fn cuEventQuery(event: u64) {
        context::current()?;
        match last(event)? {
            Recorded::Live(moment) if moment.at().is_none() => Err(Status::NOT_READY),
            Recorded::Captured(point) => Err(captured(&point)),
            Recorded::Live(_) | Recorded::Never => Ok(()),
        }
    }

    fn cuEventSynchronize(event: u64) {
        match last(event)? {
            Recorded::Live(moment) => moment.wait(),
            Recorded::Captured(point) => return Err(captured(&point)),
            Recorded::Never => {}
        }
        context::current()?.sound()
    }

    fn cuEventElapsedTime(out: Out<f32>, start: u64, end: u64) {
        elapsed(out, start, end)
    }
}

fn elapsed(out: Out<f32>, start: u64, end: u64) -> Answer {
    for event in [start, end] {
        if EVENTS.get(event)?.flags & DISABLE_TIMING != 0 {
            return Err(Status::INVALID_HANDLE);
        }
    }
    let moment = |event| match last(event)? {
        Recorded::Live(moment) => moment.at().ok_or(Status::NOT_READY),
        _ => Err(Status::INVALID_HANDLE),
    };
    let (start, end) = (moment(start)?, moment(end)?);
    let seconds = match end.checked_duration_since(start) {
        Some(after) => after.as_secs_f32(),
        None => -start.duration_since(end).as_secs_f32(),
    };
    out.set(seconds * 1000.0)
}
