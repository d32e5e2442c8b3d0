//! What the library reports beside its results: to standard error, or to a function of the program.

use crate::entry::entry;
use crate::log_queue::Feed;
use crate::registry::{Context, antiphon_destroy_function};
use crate::result::{Failure, antiphon_result};
use antiphon_executor::hal::log_line;
use log::{Level, Log, Metadata, Record};
use std::cell::Cell;
use std::ffi::{CString, c_char, c_void};
use std::io::Write;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// The variable that says what to log, e.g. `debug`, or `off`; if it is not set, warnings are logged. The command reads it too.
const LOG: &str = "ANTIPHON_LOG";

/// How much a line of the log matters. A number never changes its meaning.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum antiphon_log_level {
    /// Something went wrong that no result tells.
    Error = 1,
    /// Something is, or may be, not as the program means it: it is slow, or waits for long.
    Warn = 2,
    /// What was chosen, such as the wire to other nodes.
    Info = 3,
    /// What was done, and why nothing else was.
    Debug = 4,
    /// More than that; the library itself logs nothing there.
    Trace = 5,
}

impl antiphon_log_level {
    fn of(level: Level) -> Self {
        match level {
            Level::Error => antiphon_log_level::Error,
            Level::Warn => antiphon_log_level::Warn,
            Level::Info => antiphon_log_level::Info,
            Level::Debug => antiphon_log_level::Debug,
            Level::Trace => antiphon_log_level::Trace,
        }
    }
}

/// Takes a line of the log: its level, an antiphon_log_level, and its text, which is UTF-8, has no control characters (a line's end
/// is `\n`, in two characters) and names neither time nor process. The text lives until the function returns. The function is called
/// on the thread that has something to say, be it the program's or one of the library's, and on several at the same time; often while
/// others wait for that thread. So it must return soon, must not wait for another thread that calls this library, and must not call
/// this library, but for antiphon_set_logger; and it must let no exception out (see antiphon::guarded in antiphon.hpp).
pub type antiphon_log_function =
    Option<unsafe extern "C" fn(context: *mut c_void, level: i32, text: *const c_char)>;

/// The number of a warning's level.
pub(crate) const WARN: i32 = antiphon_log_level::Warn as i32;

/// What takes lines in the place of standard error.
pub(crate) enum Taker {
    Function { take: unsafe extern "C" fn(*mut c_void, i32, *const c_char), context: Arc<Context> },
    Queue(Feed),
}

/// What takes lines, and the process that has it: whatever takes them from there, such as a thread, a forked process does not have.
/// What its parent has stays here before its own, since it must not be destroyed there: the parent's locks may be held for ever.
type Takers = Vec<(Arc<Taker>, u32)>;

static TAKERS: RwLock<Takers> = RwLock::new(Vec::new());

/// What takes this process's lines.
fn own(takers: &Takers) -> Option<&Arc<Taker>> {
    takers.last().filter(|(_, pid)| *pid == std::process::id()).map(|(taker, _)| taker)
}

thread_local! {
    /// Whether this thread is in a function that takes a line.
    static TAKES: Cell<bool> = const { Cell::new(false) };
}

/// Where lines go.
struct Lines(env_logger::Logger);

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.0.matches(record) {
            return;
        }
        let text = on_one_line(&record.args().to_string());
        if !given(record.level(), &text) {
            let metadata = record.metadata().clone();
            self.0.log(&Record::builder().metadata(metadata).args(format_args!("{text}")).build());
        }
    }

    fn flush(&self) {
        self.0.flush();
    }
}

/// A text with escapes in the place of control characters, such as a panic or the reason of an abort may have.
fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            line.extend(letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line
}

/// Gives a line to the program's function, if it has one that can take it now: not where that function is what logs.
fn given(level: Level, text: &str) -> bool {
    // Called without the lock: the function may take long, and be replaced meanwhile.
    let current = own(&TAKERS.read().unwrap_or_else(PoisonError::into_inner)).cloned();
    let Some(taker) = current else { return false };
    let level = antiphon_log_level::of(level) as i32;
    let (take, context) = match &*taker {
        Taker::Queue(feed) => {
            feed.put(level, text.to_owned());
            return true;
        }
        Taker::Function { take, context } => (take, context),
    };
    let Ok(text) = CString::new(text) else { return false };
    if TAKES.replace(true) {
        return false;
    }
    // SAFETY: whoever set the function vouches for it, on any thread (the contract of `antiphon_set_logger`); the text lives.
    unsafe { take(context.at, level, text.as_ptr()) };
    TAKES.set(false);
    true
}

/// Makes warnings visible; it is called before anything can warn. `false` where a Rust program has a logger of its own, which it
/// keeps.
pub(crate) fn start() -> bool {
    static STARTED: OnceLock<bool> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let mut logger = env_logger::Builder::new();
        logger.filter_level(log::LevelFilter::Warn).parse_env(LOG);
        logger.format(|out, record| {
            out.write_all(log_line(record.level(), record.args()).as_bytes())
        });
        let lines = Lines(logger.build());
        let most = lines.0.filter();
        // This fails if there is a logger already.
        let is_first = log::set_boxed_logger(Box::new(lines)).is_ok();
        if is_first {
            log::set_max_level(most);
        }
        is_first
    })
}

/// Has something else take lines, or nothing.
///
/// # Errors
/// If a Rust program has a logger of its own.
pub(crate) fn set(taker: Option<Taker>) -> Result<(), Failure> {
    if !start() {
        return Err(Failure::new(
            antiphon_result::Unsupported,
            "cannot set a logger: the program has one of its own, of the crate `log`; take the lines there",
        ));
    }
    replace(|_| true, taker);
    Ok(())
}

/// Has nothing take lines, if this does.
pub(crate) fn unset_if(is_it: impl FnOnce(&Taker) -> bool) {
    replace(is_it, None);
}

fn replace(is_it: impl FnOnce(&Taker) -> bool, taker: Option<Taker>) {
    let before = {
        let mut takers = TAKERS.write().unwrap_or_else(PoisonError::into_inner);
        let has_own = match own(&takers) {
            Some(taker) if !is_it(taker) => return,
            taker => taker.is_some(),
        };
        let before = if has_own { takers.pop() } else { None };
        takers.extend(taker.map(|taker| (Arc::new(taker), std::process::id())));
        before
    };
    // Without the lock, since what is destroyed may log.
    drop(before);
}

/// Sets the function that takes the lines of this process's log, in place of the previous one; null has them written to standard
/// error again, where they go from the start. Which lines there are the environment variable ANTIPHON_LOG says, also then.
///
/// A line that another thread has begun to say may still go to the previous function. `destroy` is called with the context, once,
/// when the function is replaced and takes no line any more: before this function returns, or on the thread of the last such line.
/// If `take` is null, `destroy` is called at once; it is not called if this function fails. It fails with
/// ANTIPHON_RESULT_UNSUPPORTED in a program in Rust that has a logger of its own.
///
/// In a process that is forked later, lines go to standard error until it sets a logger itself; the context stays the parent's, and
/// `destroy` is not called for it there. When the process ends, the context is not destroyed, and threads of the library may log while
/// static objects are destroyed: set null first if the function uses any.
///
/// Any thread may call it at any time, and the function itself may, too.
///
/// # Safety
/// The functions have these types, may be called with the context from any thread until it is destroyed, and return.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_set_logger(
    take: antiphon_log_function,
    context: *mut c_void,
    destroy: antiphon_destroy_function,
) -> antiphon_result {
    entry(|| {
        let context = Arc::new(Context::new(context));
        set(take.map(|take| Taker::Function { take, context: Arc::clone(&context) }))?;
        // Only now it is the library's: it is destroyed with the last of those who hold it.
        context.own(destroy);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::ptr;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
    use std::time::Duration;

    /// Held by each test: a process has one log.
    static ALONE: Mutex<()> = Mutex::new(());

    type Line = (i32, String);

    /// A function that tells its lines, and whether it was destroyed.
    fn told() -> (*mut c_void, Receiver<Line>) {
        let (tell, told) = channel::<Line>();
        (Box::into_raw(Box::new(tell)).cast(), told)
    }

    unsafe extern "C" fn tell(context: *mut c_void, level: i32, text: *const c_char) {
        // SAFETY: the context is that of `told`, and the text lives.
        let (tell, text) = unsafe { (&*context.cast::<Sender<Line>>(), CStr::from_ptr(text)) };
        tell.send((level, text.to_str().unwrap().to_owned())).unwrap();
    }

    unsafe extern "C" fn destroy(context: *mut c_void) {
        // SAFETY: the context is that of `told`, and this is called once.
        drop(unsafe { Box::from_raw(context.cast::<Sender<Line>>()) });
    }

    fn set(take: antiphon_log_function, context: *mut c_void) {
        // SAFETY: the functions are for the contexts of `told`.
        let set =
            unsafe { antiphon_set_logger(take, context, (!context.is_null()).then_some(destroy)) };
        assert_eq!(set, antiphon_result::Success);
    }

    /// All that was told, once the context is destroyed.
    fn all(told: &Receiver<Line>) -> Vec<Line> {
        let next = || told.recv_timeout(Duration::from_secs(60));
        let mut lines = Vec::new();
        loop {
            match next() {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return lines,
                Err(RecvTimeoutError::Timeout) => panic!("the context is not destroyed"),
            }
        }
    }

    #[test]
    fn lines_go_to_whoever_takes_them_until_they_are_replaced() {
        let _alone = ALONE.lock();
        let (first, lines) = told();
        set(Some(tell), first);
        log::warn!("one\0 and\n \u{1b}two \u{fc}");
        std::thread::spawn(|| log::error!("of another thread")).join().unwrap();
        log::debug!("which nobody asked for");
        let (second, others) = told();
        set(Some(tell), second);
        log::warn!("to the second");
        // The first is destroyed, so that nobody can tell it any more.
        assert_eq!(
            all(&lines),
            [
                (2, "one\\u{0} and\\n \\u{1b}two \u{fc}".to_owned()),
                (1, "of another thread".to_owned())
            ]
        );
        set(None, ptr::null_mut());
        log::warn!("to standard error");
        assert_eq!(all(&others), [(2, "to the second".to_owned())]);
        // A context without a function is destroyed at once.
        let (third, none) = told();
        set(None, third);
        assert_eq!(all(&none), []);
    }

    /// Logs itself, and replaces itself.
    unsafe extern "C" fn logs(context: *mut c_void, level: i32, text: *const c_char) {
        log::warn!("from inside, to standard error");
        // SAFETY: as `tell`.
        unsafe { tell(context, level, text) };
        set(None, ptr::null_mut());
    }

    #[test]
    fn who_takes_a_line_may_log_and_set_another_one() {
        let _alone = ALONE.lock();
        let (context, lines) = told();
        set(Some(logs), context);
        log::warn!("once");
        log::warn!("to standard error");
        // It was in use when it was replaced, and is destroyed now.
        assert_eq!(all(&lines), [(2, "once".to_owned())]);
    }

    #[test]
    fn levels_have_the_numbers_of_the_header() {
        let numbers = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace]
            .map(|level| antiphon_log_level::of(level) as i32);
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
    }
}
