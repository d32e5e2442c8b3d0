//! Threads of one purpose that start once there is something for them.

use crate::sync::lock;
use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};

/// A thread that takes what it is handed, in its order, and starts with the first. Once this goes, it ends when it has taken all;
/// nobody waits for that who does not [`finish`](Self::finish) it.
pub struct Worker<T> {
    name: &'static str,
    /// Who does its work where the system gives no thread, for people.
    otherwise: &'static str,
    thread: Mutex<Option<(Sender<T>, JoinHandle<()>)>>,
}

impl<T> fmt::Debug for Worker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T> Worker<T> {
    /// A thread of this name. `otherwise` is logged, with the reason, where the system gives none.
    pub const fn new(name: &'static str, otherwise: &'static str) -> Self {
        Worker { name, otherwise, thread: Mutex::new(None) }
    }

    /// Hands the thread something, and starts it, to do `work`, if it is not there. Waits for nothing that the thread does.
    ///
    /// # Errors
    /// What was to be handed over, if the system gives no thread, or the thread has panicked: the caller does the work itself, or
    /// does without.
    pub fn hand(
        &self,
        something: T,
        work: impl FnOnce(&Receiver<T>) + Send + 'static,
    ) -> Result<(), T>
    where
        T: Send + 'static,
    {
        let mut thread = self.thread();
        if thread.is_none() {
            let (sender, receiver) = channel();
            match Builder::new().name(self.name.to_owned()).spawn(move || work(&receiver)) {
                Ok(started) => *thread = Some((sender, started)),
                Err(error) => log::warn!("{}: {error}", self.otherwise),
            }
        }
        match &*thread {
            Some((sender, _)) => sender.send(something).map_err(|unsent| unsent.0),
            None => Err(something),
        }
    }

    /// Lets the thread go on by itself, to end when it has taken all. What is handed over later starts another one.
    pub fn leave(&self) {
        drop(self.thread().take());
    }

    /// Waits until the thread has taken all, and ended. What is handed over later starts another one.
    pub fn finish(&self) {
        let Some((sender, thread)) = self.thread().take() else { return };
        drop(sender);
        let _ = thread.join();
    }

    fn thread(&self) -> MutexGuard<'_, Option<(Sender<T>, JoinHandle<()>)>> {
        lock(&self.thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_takes_all_in_order_and_another_one_what_comes_once_it_is_finished() {
        let (worker, (say, said)) = (Worker::new("numbers", "nobody takes numbers"), channel());
        for numbers in [[1, 2, 3], [4, 5, 6]] {
            for number in numbers {
                let say = say.clone();
                let take = move |numbers: &Receiver<u32>| {
                    let taken: Vec<u32> = numbers.iter().collect();
                    say.send(taken).unwrap();
                };
                worker.hand(number, take).unwrap();
            }
            worker.finish();
            assert_eq!(said.try_recv().as_deref(), Ok(&numbers[..]));
        }
    }

    #[test]
    fn what_nobody_takes_comes_back() {
        let worker = Worker::new("nobody", "nobody takes numbers");
        while worker.hand(7, |_| ()).is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(worker.hand(7, |_| ()), Err(7));
    }
}
