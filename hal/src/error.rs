//! What can go wrong below the layer's traits, grouped by what the caller can do about it.

use crate::driver::Backend;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Why a [`crate::Task`] failed. Shared, because a stream and the task's owner may both report it.
pub type TaskError = Arc<dyn std::error::Error + Send + Sync>;

/// An error of a device, its memory or its streams.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HalError {
    /// The backend has no such operation. Permanent; [`crate::Caps`] says so beforehand.
    #[error(
        "cannot {op}: the {backend} backend lacks the operation; look at the device's caps first"
    )]
    Unsupported {
        /// The operation, as a verb phrase: `load a kernel`.
        op: &'static str,
        /// The backend that was asked.
        backend: Backend,
    },
    /// Something outside the program is missing: a driver, a device, a permission. A normal answer.
    #[error("cannot use {what}: {why}; {cure}")]
    Unavailable {
        /// What was asked for.
        what: String,
        /// Why it is not there.
        why: String,
        /// What the user can do.
        cure: String,
    },
    /// The device (or the limits set for this process) cannot hold another allocation of that size.
    #[error("cannot allocate {bytes} bytes on {device}: {why}; free memory or ask for less")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
        /// Name of the device.
        device: String,
        /// The limit that was met.
        why: String,
    },
    /// The operating system refused.
    #[error("cannot {what}: {source}")]
    System {
        /// What was being done, as a verb phrase; with the cure where there is one.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// An argument, a peer's handle among them, that cannot be acted on.
    #[error("cannot {what}: saw {saw}, allowed {allowed}; {cure}")]
    Invalid {
        /// What was being done, as a verb phrase.
        what: &'static str,
        /// The value found.
        saw: String,
        /// The values allowed.
        allowed: String,
        /// What to do instead.
        cure: &'static str,
    },
    /// The device's memory is of a kind that no peer can map, or not this peer. Permanent for that memory: a caller
    /// that wants its bytes elsewhere copies them through memory that the device allocated.
    #[error("cannot share memory: {why}; {cure}")]
    NotShareable {
        /// What it is that cannot be mapped, and by whom.
        why: String,
        /// What to do instead.
        cure: &'static str,
    },
    /// The application has freed the memory since its handle was made. Nothing is wrong where nobody uses it any more.
    #[error(
        "cannot map memory that the application has freed; keep a buffer until the collectives that use it are done"
    )]
    Gone,
    /// A vendor's driver or compiler refused, or reports that earlier work failed.
    #[error("cannot {what}: {name} ({backend} error {code}): {text}")]
    Vendor {
        /// What was being done, as a verb phrase.
        what: String,
        /// The backend whose driver it is.
        backend: Backend,
        /// The vendor's number.
        code: i64,
        /// The vendor's name for it.
        name: String,
        /// The vendor's explanation; a compiler's log.
        text: String,
    },
    /// The driver takes no such machine code: it is for other devices, or of a compiler that is newer than the driver.
    #[error(
        "cannot load a kernel's module: {name} ({backend} error {code}): {text}; update the driver, or set \
         ANTIPHON_KERNELS=interpreted"
    )]
    ForeignCode {
        /// The backend whose driver it is.
        backend: Backend,
        /// The vendor's number.
        code: i64,
        /// The vendor's name for it.
        name: String,
        /// The vendor's explanation.
        text: String,
    },
    /// A task of a stream failed.
    #[error("a task of the stream failed: {0}")]
    Task(#[source] TaskError),
}

impl HalError {
    /// A refusal by the operating system while doing `what`.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        HalError::System { what: what.into(), source: source.into() }
    }

    /// The system gives no thread, whose `work` the text names: "that watches launches".
    pub fn no_thread(work: &str, source: io::Error) -> Self {
        let what = format!("start a thread {work}; raise the limit on threads (`ulimit -u`)");
        HalError::System { what, source }
    }
}

/// A task that panicked instead of returning.
#[derive(Debug)]
pub(crate) struct TaskPanicked {
    message: String,
}

impl TaskPanicked {
    /// Takes the text out of what `catch_unwind` returned.
    pub(crate) fn new(payload: &(dyn std::any::Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        TaskPanicked { message: text.unwrap_or("no message").to_owned() }
    }
}

impl fmt::Display for TaskPanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the task panicked: {}", self.message)
    }
}

impl std::error::Error for TaskPanicked {}
