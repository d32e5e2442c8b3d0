//! The end of a rank's launches: those of a communicator that goes, or that is broken.

use super::{Gpu, PAUSE, QUIET_LIMIT, watch};
use crate::communicator::Shared;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// While there are graphs, how long the end of a communicator waits for replays that have not begun, of which nobody tells.
const BETWEEN: Duration = Duration::from_millis(200);
/// Between two questions at the driver while a communicator ends.
const ASKED: Duration = Duration::from_millis(5);

impl Gpu {
    /// Waits for everything that was launched, while peers are still heard: it uses memory that goes next. What makes no
    /// progress for the time limit is ended, and the peers are told.
    pub fn finish(&self, shared: &Shared) {
        let mut looks = watch::Looks::default();
        let (mut failed, mut asked) = (None, Instant::now());
        let mut seen = (self.replays(), Instant::now());
        loop {
            let replays = self.replays();
            if replays != seen.0 {
                seen = (replays, Instant::now());
            }
            let replayed = Arc::strong_count(&self.graphs) > 1 && seen.1.elapsed() < BETWEEN;
            if self.is_over() && !replayed {
                break;
            }
            let sees = looks.tick(shared, self);
            if (sees.stands || self.has_groups()) && asked.elapsed() >= ASKED {
                self.beside(shared, &mut looks, || self.tender.tend(shared, self));
                asked = Instant::now();
            }
            if shared.failed() {
                self.close();
                if failed.get_or_insert_with(Instant::now).elapsed() >= QUIET_LIMIT {
                    break;
                }
            }
            std::thread::sleep(PAUSE);
        }
        self.linger(shared);
        let (waits, limit) = (Instant::now(), shared.options.timeout);
        let left = || self.contexts().iter().all(|context| context.is_left(self));
        while !shared.failed() && self.has_groups() && !self.beside(shared, &mut looks, left) {
            looks.tick(shared, self);
            self.beside(shared, &mut looks, || self.tender.tend(shared, self));
            if limit.is_some_and(|limit| waits.elapsed() >= limit) {
                self.abandon_groups();
                break;
            }
            std::thread::sleep(PAUSE);
        }
        if let (Some(_), Err(error)) = (failed, shared.check()) {
            log::warn!("{}: launches that nobody waited for have ended: {error}", shared.whose);
        }
    }

    /// Asks the driver on a thread of its own, while this one ends what makes no progress: the driver may let the question wait
    /// for that.
    fn beside<T: Send>(
        &self,
        shared: &Shared,
        looks: &mut watch::Looks,
        ask: impl Fn() -> T + Sync,
    ) -> T {
        std::thread::scope(|scope| {
            let named = std::thread::Builder::new().name("antiphon-ends".to_owned());
            let Ok(asked) = named.spawn_scoped(scope, &ask) else { return ask() };
            while !asked.is_finished() {
                looks.tick(shared, self);
                std::thread::sleep(PAUSE);
            }
            asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// After a stop: has launches that begin from now on leave at once, which is so a moment later.
    fn close(&self) {
        self.closer.close(&self.contexts(), &self.upload, &self.peers);
    }

    /// After a stop: whether a launch of this rank may still use buffers.
    fn runs(&self) -> bool {
        self.close();
        self.contexts().iter().any(|context| context.runs())
    }

    /// After a stop: waits until no launch runs, and nothing is copied for one any more; whether that is so. Each ends by itself within
    /// moments, unless the device is lost.
    pub fn quiet(&self) -> bool {
        let began = Instant::now();
        while self.runs() && began.elapsed() < QUIET_LIMIT {
            // On a device that has failed no launch ends.
            self.contexts().iter().for_each(|context| context.ask(&self.asker));
            std::thread::sleep(PAUSE);
        }
        if let Some(proxy) = self.proxy.get() {
            proxy.stop();
        }
        !self.runs()
    }

    /// The same without waiting.
    pub fn is_quiet(&self) -> bool {
        !self.runs() && self.quiet()
    }
}
