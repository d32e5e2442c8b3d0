//! Requests to end: Ctrl-C, a closed terminal, `kill`.
//!
//! The signals are blocked everywhere and taken by one thread, so that a run ends on its ordinary way out, which
//! stops and reaps its ranks.

use super::CliError;
use super::collect::Notice;
use std::mem::MaybeUninit;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

const ENDING: [(i32, &str); 3] =
    [(libc::SIGINT, "SIGINT"), (libc::SIGTERM, "SIGTERM"), (libc::SIGHUP, "SIGHUP")];

/// Whoever hears of signals: the run that began last.
static LISTENER: Mutex<Option<Sender<Notice>>> = Mutex::new(None);

/// The set of these signals.
fn set(signals: impl Iterator<Item = i32>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set it is given; `sigaddset` then changes it. The numbers are valid
    // signals, so neither can fail.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        for signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// Blocks the signals for this thread and those it starts, and reports them to `sender` from now on, until the next one is
/// given.
pub fn watch(sender: Sender<Notice>) -> Result<(), CliError> {
    let ending = set(ENDING.iter().map(|&(signal, _)| signal));
    // SAFETY: the set is initialised, and no old mask is asked for.
    let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &ending, std::ptr::null_mut()) };
    if error != 0 {
        let source = std::io::Error::from_raw_os_error(error);
        return Err(CliError::Start { what: "cannot block signals", source });
    }
    let listener = || LISTENER.lock().unwrap_or_else(PoisonError::into_inner);
    if listener().replace(sender).is_some() {
        // One thread takes them all: of several, one whose run is over might.
        return Ok(());
    }
    let body = move || {
        loop {
            let mut signal = 0;
            // SAFETY: both point to initialised values of this frame.
            if unsafe { libc::sigwait(&ending, &mut signal) } != 0 {
                return;
            }
            for (number, name) in ENDING {
                let notice = Notice::Interrupted { name, number: number as u8 };
                let heard = || listener().as_ref().is_some_and(|to| to.send(notice).is_ok());
                if number == signal && !heard() {
                    // The run is over and the process about to end by itself; a second Ctrl-C should not wait.
                    std::process::exit(128 + number);
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(body)
        .map(|_| ())
        .map_err(CliError::no_thread)
}

/// Lets `kill` end this process, a rank, although its parent had blocked the signal. Ctrl-C stays the parent's.
pub fn unblock_termination() {
    let termination = set([libc::SIGTERM].into_iter());
    // SAFETY: the set is initialised, and no old mask is asked for. With valid arguments it cannot fail.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &termination, std::ptr::null_mut()) };
}
