//! The thread that asks the driver about launches that stand still, and makes groups for multicast beside launches.
//!
//! A driver may let a question wait for another thread that is inside of it, and that thread may wait for the launch in question.
//! Then this thread waits, but the one that watches launches only reads words, and still ends what makes no progress for the time
//! limit.

use super::Gpu;
use super::context::LaunchMarks;
use super::watch::Begun;
use crate::communicator::Shared;
use crate::sync::lock;
use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

/// The thread, once there is something to ask, and what it has seen. The thread ends with the owner of this.
#[derive(Default)]
pub struct Tender {
    bell: Mutex<Option<SyncSender<()>>>,
    tended: Arc<Mutex<Tended>>,
}

impl fmt::Debug for Tender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tender").finish_non_exhaustive()
    }
}

impl Tender {
    /// Has the thread look at a rank's launches, unless it is about to. Where the system gives no thread, this one does.
    pub fn ring(&self, weak: &Weak<Shared>, shared: &Shared, gpu: &Gpu) {
        let mut bell = lock(&self.bell);
        if bell.is_none() {
            let (sender, receiver) = sync_channel(1);
            let (weak, tended) = (Weak::clone(weak), Arc::clone(&self.tended));
            let named = thread::Builder::new().name("antiphon-tends".to_owned());
            match named.spawn(move || answer(&receiver, &weak, &tended)) {
                Ok(_) => *bell = Some(sender),
                Err(error) => {
                    log::debug!("the driver is asked by the thread that watches: {error}")
                }
            }
        }
        let heard = match &*bell {
            Some(bell) => !matches!(bell.try_send(()), Err(TrySendError::Disconnected(()))),
            None => false,
        };
        drop(bell);
        if !heard {
            self.tend(shared, gpu);
        }
    }

    /// Looks at a rank's launches on this thread, which waits where the driver does not answer.
    pub fn tend(&self, shared: &Shared, gpu: &Gpu) {
        lock(&self.tended).tend(shared, gpu);
    }
}

fn answer(rung: &Receiver<()>, shared: &Weak<Shared>, tended: &Mutex<Tended>) {
    while rung.recv().is_ok() {
        let Some(shared) = shared.upgrade() else { return };
        let Some(gpu) = &shared.gpu else { return };
        lock(tended).tend(&shared, gpu);
    }
}

/// What launches did when they were last looked at, by their contexts: their marks and what their blocks had said.
#[derive(Default)]
struct Tended(HashMap<usize, (LaunchMarks, Vec<[u64; 2]>)>);

impl Tended {
    /// Ends launches that cannot go on, as far as only the driver knows, does what is to be done about groups, and lets go of the
    /// application's memory that is gone.
    fn tend(&mut self, shared: &Shared, gpu: &Gpu) {
        for context in gpu.contexts() {
            if shared.failed() {
                return;
            }
            let marks = context.marks();
            let id = Arc::as_ptr(&context).addr();
            if marks.is_quiet() {
                self.0.remove(&id);
                continue;
            }
            let launch = Begun::new(shared, gpu, &context, marks);
            let stands = self
                .0
                .get(&id)
                .is_some_and(|(then, said)| *then == marks && *said == launch.progress);
            let asked = || launch.deserted().or_else(|| launch.freed());
            if let Some(error) = launch.differs().or_else(|| stands.then(asked).flatten()) {
                return shared.end(error);
            }
            self.0.insert(id, (marks, launch.progress));
        }
        let let_go = || if gpu.is_over() { gpu.let_go(shared) } else { Ok(()) };
        if let Err(error) = gpu.attend_groups(shared).and_then(|()| let_go())
            && !shared.failed()
        {
            shared.end(error);
        }
    }
}
