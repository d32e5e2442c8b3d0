//! What broke a communicator, and what ends with it.

use super::Log;
use crate::error::ExecutorError;
use crate::gpu;
use antiphon_bootstrap::Bootstrap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The first thing that broke a communicator.
#[derive(Default)]
pub(super) struct Failure {
    pub(super) failed: AtomicBool,
    /// Peers were told.
    pub(super) told: AtomicBool,
    pub(super) first: Mutex<Option<ExecutorError>>,
    pub(super) log: Mutex<Log>,
    /// What must end with the communicator.
    pub(super) devices: Option<Arc<gpu::Peers>>,
    /// This rank's ends of groups whose ranks have not all come yet.
    forming: Mutex<Vec<Forming>>,
}

struct Forming {
    end: Arc<dyn Bootstrap>,
    /// By whatever breaks the communicator; else by an abort of this rank's alone.
    ends_with_it: bool,
}

impl Failure {
    /// Whose end these devices have to hear of.
    pub(super) fn new(devices: Option<Arc<gpu::Peers>>) -> Self {
        Failure { devices, ..Failure::default() }
    }

    /// Breaks the communicator; says whether nothing had before.
    pub(super) fn set(&self, error: ExecutorError) -> bool {
        let reason = error.to_string();
        {
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            if first.is_some() {
                return false;
            }
            *first = Some(error);
            self.failed.store(true, Ordering::Release);
        }
        if let Some(devices) = &self.devices {
            devices.stop();
        }
        self.end_forming(&reason, |forming| forming.ends_with_it);
        true
    }

    /// Ends the forming of all groups.
    pub(super) fn give_up_forming(&self, reason: &str) {
        self.end_forming(reason, |_| true);
    }

    fn end_forming(&self, reason: &str, ends: impl Fn(&Forming) -> bool) {
        let ended: Vec<Forming> = self.forming().extract_if(.., |forming| ends(forming)).collect();
        ended.iter().for_each(|forming| forming.end.abort(reason));
    }

    /// The failure, if there is one.
    pub(super) fn check(&self) -> Result<(), ExecutorError> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.clone().map_or(Ok(()), Err)
    }

    /// Forms a group from this rank's end of it, which waits for its peers until the communicator is broken.
    ///
    /// # Errors
    /// What broke the communicator, else what the forming reports.
    pub(super) fn unless_broken<T>(
        &self,
        end: &Arc<dyn Bootstrap>,
        form: impl FnOnce() -> Result<T, ExecutorError>,
    ) -> Result<T, ExecutorError> {
        // What broke it before did not see this end.
        let form = || self.check().and_then(|()| form());
        let formed = self.form(end, true, form);
        formed.map_err(|error| self.check().err().unwrap_or(error))
    }

    /// Forms a group from this rank's end of it, which waits for its peers whatever breaks the communicator, but for an abort of
    /// this rank's from now on.
    ///
    /// # Errors
    /// What the forming reports.
    pub(super) fn unless_aborted<T>(
        &self,
        end: &Arc<dyn Bootstrap>,
        form: impl FnOnce() -> Result<T, ExecutorError>,
    ) -> Result<T, ExecutorError> {
        self.form(end, false, form)
    }

    fn form<T>(
        &self,
        end: &Arc<dyn Bootstrap>,
        ends_with_it: bool,
        form: impl FnOnce() -> Result<T, ExecutorError>,
    ) -> Result<T, ExecutorError> {
        self.forming().push(Forming { end: Arc::clone(end), ends_with_it });
        let formed = form();
        self.forming().retain(|known| !Arc::ptr_eq(&known.end, end));
        formed
    }

    fn forming(&self) -> MutexGuard<'_, Vec<Forming>> {
        self.forming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
