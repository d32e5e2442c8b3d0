//! Safe handles on the verbs library's objects. Each keeps alive what it was made from, so that objects die in the order
//! in which the library wants it.

mod completions;
mod dma_buf;
mod nic;
mod queue;
mod region;

pub use completions::{Completions, Fault, RECEIVED};
pub use nic::{Alarm, Nic};
pub use queue::{Path, Queue};
pub use region::Region;

use crate::NAME;
use antiphon_port::WireError;
use std::io;

/// An operation that the system refused, with its last error.
pub(crate) fn refused(operation: &'static str, what: &str) -> WireError {
    refused_by(operation, what, &io::Error::last_os_error())
}

/// As [`refused`], of a function that returns its error.
pub(crate) fn refused_with(operation: &'static str, what: &str, code: i32) -> WireError {
    refused_by(operation, what, &io::Error::from_raw_os_error(code))
}

pub(crate) fn refused_by(operation: &'static str, what: &str, why: &io::Error) -> WireError {
    let cure = match why.raw_os_error() {
        Some(libc::ENOMEM) => {
            "; allow the process to lock more memory (`ulimit -l unlimited`; in a container `--ulimit memlock=-1`)"
        }
        Some(libc::EPERM | libc::EACCES) => {
            "; let the user open /dev/infiniband (in a container `--device /dev/infiniband`)"
        }
        _ => "",
    };
    WireError::System { operation, wire: NAME.to_owned(), reason: format!("{what}: {why}{cure}") }
}
