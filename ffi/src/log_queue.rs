//! Lines of the log that wait for a thread of the program to take them.

use crate::entry::{Out, entry, write_text};
use crate::handle::{borrow, issue, object, take};
use crate::logging::{self, Taker};
use crate::result::{Failure, antiphon_result};
use std::collections::VecDeque;
use std::ffi::c_char;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Lines of the log that wait to be taken: for programs in languages whose functions cannot be called on any thread at any time, as
/// antiphon_set_logger has it.
pub struct antiphon_log_queue {
    _private: [u8; 0],
}

object!(Arc<Lines>, antiphon_log_queue, b"antiLogQ", "a queue of the log");

/// The lines.
pub struct Lines {
    most: u64,
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    lines: VecDeque<(i32, String)>,
    /// So many lines were dropped behind those that wait.
    dropped: u64,
    /// No line comes any more.
    ended: bool,
}

impl Lines {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, level: i32, text: String) {
        let mut state = self.state();
        if (state.lines.len() as u64) < self.most {
            state.tell_dropped();
            state.lines.push_back((level, text));
            self.came.notify_all();
        } else {
            state.dropped += 1;
        }
    }

    /// The state once there is something to take, or nothing comes any more.
    fn waited(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        loop {
            if state.lines.is_empty() {
                state.tell_dropped();
            }
            if !state.lines.is_empty() || state.ended {
                return state;
            }
            state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    /// Puts a line in the place of those that were dropped, if some were.
    fn tell_dropped(&mut self) {
        match std::mem::take(&mut self.dropped) {
            0 => {}
            dropped => {
                let text = format!(
                    "{dropped} lines of the log are missing here: they came faster than they were taken"
                );
                self.lines.push_back((logging::WARN, text));
            }
        }
    }
}

/// What puts lines into a queue, which ends with it.
pub(crate) struct Feed(Arc<Lines>);

impl Feed {
    pub fn put(&self, level: i32, text: String) {
        self.0.put(level, text);
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.state().ended = true;
        self.0.came.notify_all();
    }
}

/// Makes a queue and has it take the lines of this process's log, in place of what took them before, as antiphon_set_logger does with
/// a function. Up to `most` lines wait, 1 or more; when there are as many, further ones are dropped, and a line beside those that
/// wait says how many. What takes its place ends the queue: antiphon_set_logger, with null too, or another queue.
///
/// Any thread may call it at any time. It fails as antiphon_set_logger does.
///
/// # Safety
/// `out_queue` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_log_queue_create(
    most: u64,
    out_queue: *mut *mut antiphon_log_queue,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_queue, "out_queue")?;
        if most == 0 {
            return Err(Failure::argument("cannot keep 0 lines of the log: allowed 1 or more"));
        }
        let (state, came) = (Mutex::default(), Condvar::new());
        let lines = Arc::new(Lines { most, state, came });
        logging::set(Some(Taker::Queue(Feed(Arc::clone(&lines)))))?;
        // SAFETY: as this function's.
        unsafe { out.set(issue(lines)) };
        Ok(())
    })
}

/// Takes the next line of a queue: writes its level (an antiphon_log_level), its text and a zero, and the number of these bytes. Waits
/// until there is one. Once the queue has ended and all lines are taken, the level is 0 and the text empty. With a null buffer and a
/// capacity of 0 it waits as well, and writes level and number, and the line stays. If the buffer is too small, it fails with
/// ANTIPHON_RESULT_BUFFER_TOO_SMALL, and the line stays.
///
/// Any thread may call it at any time, but not in a process that was forked since the queue was made.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; the buffer is null or has `capacity`
/// bytes, the others are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_log_queue_take(
    queue: *const antiphon_log_queue,
    buffer: *mut c_char,
    capacity: u64,
    out_level: *mut i32,
    out_bytes: *mut u64,
) -> antiphon_result {
    entry(|| {
        let level_out = Out::new(out_level, "out_level")?;
        let bytes_out = Out::new(out_bytes, "out_bytes")?;
        // SAFETY: as this function's.
        let lines = unsafe { borrow::<Arc<Lines>>(queue)? };
        let mut state = lines.waited();
        let empty = (0, String::new());
        let (level, text) = state.lines.front().unwrap_or(&empty);
        // SAFETY: as this function's.
        unsafe {
            write_text(text, "a line of the log", buffer, capacity, bytes_out)?;
            level_out.set(*level);
        }
        if !buffer.is_null() {
            state.lines.pop_front();
        }
        Ok(())
    })
}

/// Destroys a queue. If it takes the log's lines, these go to standard error from now on. Lines that nobody took are gone.
///
/// Any thread may call it, once, while no other call on the queue is under way.
///
/// # Safety
/// The handle is null, or one that this library returned and that is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_log_queue_destroy(
    queue: *mut antiphon_log_queue,
) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        let lines = unsafe { take::<Arc<Lines>>(queue)? };
        logging::unset_if(
            |taker| matches!(taker, Taker::Queue(Feed(own)) if Arc::ptr_eq(own, &lines)),
        );
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_come_too_fast_are_counted_where_they_are_missing() {
        let lines = Arc::new(Lines { most: 2, state: Mutex::default(), came: Condvar::new() });
        let feed = Feed(Arc::clone(&lines));
        let next = || lines.waited().lines.pop_front();
        let line = |text: &str| Some((logging::WARN, text.to_owned()));
        let missing = |many: u32| {
            line(&format!(
                "{many} lines of the log are missing here: they came faster than they were taken"
            ))
        };
        for text in ["a", "b", "c", "d"] {
            feed.put(logging::WARN, text.to_owned());
        }
        assert_eq!(next(), line("a"));
        feed.put(logging::WARN, "e".to_owned());
        feed.put(logging::WARN, "f".to_owned());
        drop(feed);
        for expected in [line("b"), missing(2), line("e"), missing(1), None] {
            assert_eq!(next(), expected);
        }
    }
}
