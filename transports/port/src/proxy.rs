//! The proxy: one thread of the process that makes progress on links while nobody else does.
//!
//! A link under its care is an [`Attended`]. Whoever waits for a link anyway makes progress itself and says so by a
//! [`Driving`] guard; the proxy then keeps away, so that no wake-up of another thread lies on the way of a message. When
//! the last guard is gone, the proxy takes over again. Its thread, `antiphon-proxy`, starts with the first link, serves
//! all links of the process in turn, and sleeps while none has anything to do. A process that forked gets a thread of its own
//! with its first link; links that it inherited are its parent's, and nobody attends to them here.
//!
//! # Who listens
//! The proxy *listens* to a link while the link is armed and its descriptor is in the proxy's epoll set. One word per
//! link holds the number of drivers and a bit that says that the proxy does not listen. Only the proxy's thread sets and
//! clears the bit, and takes descriptors in and out:
//! - woken for a link that is driven, it sets the bit and takes the descriptor out;
//! - the last driver to leave finds the bit, or knows that what it did may have spent the link's arming (it posted, or
//!   progress moved something), and asks for a visit ([`Attended::soon`]);
//! - on a visit that finds no driver the proxy clears the bit, makes progress until there is nothing to do, arms, and
//!   takes the descriptor in.
//!
//! Visits are collected and made once a millisecond, so that a thread which drives a link for every one of many short
//! operations pays for none but the first: that one writes to an eventfd, the others find the visit asked for. A link
//! that is driven over and over meanwhile is left alone a little longer, up to 8 ms: its thread comes again by itself, and
//! every wake-up of the proxy takes time from it.
//! `tests/protocols/src/port.rs` has the model.

mod thread;

#[cfg(test)]
mod tests;

use crate::WireError;
use crate::wire::Link;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use thread::{Place, Proxy};

/// The bit of [`Attended::state`] that says that the proxy does not listen; the others count drivers.
const DEAF: u32 = 1 << 31;

/// How often the proxy looks at one link before others have their turn.
const TURN: usize = 16;

/// A link that the process's proxy thread makes progress on while no thread drives it.
///
/// Dropping it ends the care; the proxy may be in the middle of a call into the link then, and lets go of it right after.
pub struct Attended {
    link: Arc<dyn Link>,
    lost: Box<dyn Fn(&WireError) + Send + Sync>,
    /// Posts what is still to be posted; whether there was anything.
    post: Box<Post>,
    proxy: &'static Proxy,
    place: Place,
    /// Drivers, and [`DEAF`].
    state: AtomicU32,
    /// Progress moved something since the proxy armed the link.
    moved: AtomicBool,
    /// How often progress moved something.
    moves: AtomicU64,
    /// [`Link::posted`] when the proxy armed the link.
    posted: AtomicU64,
    /// A visit of the proxy's is asked for.
    visit: AtomicBool,
    /// How often drivers left since the visit was asked for, or the proxy last looked.
    drives: AtomicU32,
    /// Progress failed, and `lost` was told.
    failed: AtomicBool,
}

/// Posts something to a link; whether it did.
type Post = dyn Fn(&dyn Link) -> bool + Send + Sync;

/// What the proxy does with a link next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Wakes up when its descriptor says so.
    Listen,
    /// Nothing, until the last driver asks for a visit.
    Leave,
    /// Another turn, as soon as others had theirs.
    Turn,
    /// Another visit, a millisecond from now.
    Visit,
    /// Nothing, ever: the link is lost.
    Forget,
}

impl Attended {
    /// Puts a link under the proxy's care. `lost` is called once, on whatever thread finds out, when progress fails; it
    /// must not wait for the proxy.
    ///
    /// # Errors
    /// [`WireError::System`] if the proxy's thread cannot be started. That the descriptor cannot be listened to is told to
    /// `lost`.
    pub fn new(
        link: Arc<dyn Link>,
        lost: impl Fn(&WireError) + Send + Sync + 'static,
    ) -> Result<Arc<Attended>, WireError> {
        Attended::posting(link, lost, |_| false)
    }

    /// As [`new`](Self::new), with something that the proxy may have to post: what found the link full once. Whenever the
    /// proxy has made all progress that can be made, it calls `post`, which says whether it posted anything, and must not
    /// wait; after that there is progress to be made again. While others drive the link it does not: what they found full
    /// they try again, or ask for a visit by [`soon`](Self::soon).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn posting(
        link: Arc<dyn Link>,
        lost: impl Fn(&WireError) + Send + Sync + 'static,
        post: impl Fn(&dyn Link) -> bool + Send + Sync + 'static,
    ) -> Result<Arc<Attended>, WireError> {
        let proxy = Proxy::of_this_process()?;
        let attended = Arc::new(Attended {
            link,
            lost: Box::new(lost),
            post: Box::new(post),
            proxy,
            place: Place::new(proxy.token()),
            state: AtomicU32::new(0),
            moved: AtomicBool::new(false),
            moves: AtomicU64::new(0),
            posted: AtomicU64::new(0),
            visit: AtomicBool::new(false),
            drives: AtomicU32::new(0),
            failed: AtomicBool::new(false),
        });
        proxy.admit(&attended);
        // The visit arms it, and takes its descriptor in.
        attended.soon();
        Ok(attended)
    }

    /// The link.
    pub fn link(&self) -> &Arc<dyn Link> {
        &self.link
    }

    /// While the guard lives, the caller makes progress and the proxy keeps away. Costs three atomic operations, unless
    /// the proxy has to be asked for a visit at the end.
    pub fn drive(&self) -> Driving<'_> {
        self.state.fetch_add(1, Ordering::AcqRel);
        Driving { attended: self }
    }

    /// [`Link::progress`], foremost for those who drive: a failure is told to `lost`.
    ///
    /// # Errors
    /// [`WireError::Lost`].
    pub fn progress(&self) -> Result<bool, WireError> {
        let moved = self.advance().inspect_err(|error| self.fail(error))?;
        if moved && !self.moved.load(Ordering::Relaxed) {
            self.moved.store(true, Ordering::Release);
            if self.state.load(Ordering::Acquire) & !DEAF == 0 {
                // There is no driver that will leave, so nobody else would ask for a visit.
                self.soon();
            }
        }
        Ok(moved)
    }

    /// How often progress moved something, on whatever thread: a number that changes while transfers move.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// [`Link::progress`], counted.
    fn advance(&self) -> Result<bool, WireError> {
        let moved = self.link.progress()?;
        if moved {
            self.moves.fetch_add(1, Ordering::Relaxed);
        }
        Ok(moved)
    }

    /// Has the proxy visit the link within about a millisecond (8 where threads drive it over and over), so that what was
    /// posted is sent. Whoever posts without driving calls this afterwards. Writes to an eventfd if the proxy was asleep, and does not otherwise.
    pub fn soon(&self) {
        // Always a read-modify-write: the proxy's, which takes the request back before it looks at the link, then
        // either comes later and sees what was posted before this call, or came earlier and is asked again.
        if !self.visit.swap(true, Ordering::AcqRel) {
            self.drives.store(0, Ordering::Relaxed);
            self.proxy.ask(self.place.token);
        }
    }

    fn leave(&self) {
        self.drives.fetch_add(1, Ordering::Relaxed);
        let before = self.state.fetch_sub(1, Ordering::AcqRel);
        let last = before & !DEAF == 1;
        if last && (before & DEAF != 0 || self.spent()) {
            self.soon();
        }
    }

    /// Whether what drivers did may have spent the link's arming.
    fn spent(&self) -> bool {
        let posted = self.link.posted();
        let unseen = self.posted.load(Ordering::Acquire) != posted;
        if self.link.descriptor().is_some() {
            return unseen || self.moved.load(Ordering::Acquire);
        }
        // Nothing was armed. An error is found, and told, by the visit.
        unseen && !self.link.completed().is_ok_and(|completed| completed == posted)
    }

    fn fail(&self, error: &WireError) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            (self.lost)(error);
        }
    }

    /// Whether threads drive the link; if they do, the last will ask for a visit.
    fn left_to_drivers(&self) -> bool {
        if self.state.load(Ordering::Acquire) & !DEAF == 0 {
            return false;
        }
        if self.state.fetch_or(DEAF, Ordering::AcqRel) & !DEAF != 0 {
            return true;
        }
        self.state.fetch_and(!DEAF, Ordering::AcqRel);
        false
    }

    /// One turn of the proxy's: progress until there is nothing to do, and arming. Also whether anything moved.
    fn turn(&self) -> Result<(Next, bool), WireError> {
        if self.failed.load(Ordering::Acquire) {
            return Ok((Next::Forget, true));
        }
        self.state.fetch_and(!DEAF, Ordering::AcqRel);
        for turn in 0..TURN {
            let moved = turn != 0;
            if self.left_to_drivers() {
                return Ok((Next::Leave, moved));
            }
            // Taken back before the link is looked at: what comes later says so again.
            self.moved.swap(false, Ordering::AcqRel);
            self.posted.store(self.link.posted(), Ordering::Release);
            if self.advance()? || (self.post)(&*self.link) {
                continue;
            }
            if self.link.descriptor().is_none() {
                let pending = self.link.completed()? < self.link.posted();
                return Ok((if pending { Next::Visit } else { Next::Listen }, moved));
            }
            if self.link.arm()? {
                return Ok((Next::Listen, moved));
            }
        }
        Ok((Next::Turn, true))
    }
}

impl fmt::Debug for Attended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attended").field("link", &self.link).finish_non_exhaustive()
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.proxy.dismiss(&self.place, &*self.link);
    }
}

/// A thread's promise to make progress on a link; see [`Attended::drive`].
#[derive(Debug)]
#[must_use]
pub struct Driving<'a> {
    attended: &'a Attended,
}

impl Deref for Driving<'_> {
    type Target = Attended;

    fn deref(&self) -> &Attended {
        self.attended
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.attended.leave();
    }
}
