//! A formed link to one peer, driven by the control thread.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::control::{Control, Dispatch, Source, on_control_thread};
use crate::error::Result;
use crate::frame::{Frame, Inbound, Kind};
use crate::mesh::{Carrier, Mesh};
use crate::pipe::Pipe;
use crate::socket::{Flushed, Outbound, Received, receive};
use crate::sync::lock;

/// How long a closing mesh waits for its last messages to leave.
const LINGER: Duration = Duration::from_secs(2);
/// Why a peer is lost whose sockets outlive it.
pub(crate) const ENDED: &str = "its process ended (a child of it holds its connection open)";
/// Why a peer is lost whose connection ends.
const CLOSED: &str =
    "its connection closed without a goodbye (the process died, or gave this rank up)";
/// Why a peer is given up that sent more than this process has room for.
const TRUNCATED: &str =
    "its descriptors did not fit into this process's table (raise RLIMIT_NOFILE)";
/// How long a link waits before it asks the kernel again that has too much under way, first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// Reads of one link before the control thread looks at the others.
const TURNS: usize = 64;

/// Whether a connection timed out. Some of the kernel's errors say what the last attempt came to.
fn silent(errno: Errno) -> bool {
    matches!(errno, Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH)
}

/// Why a peer is lost whose connection timed out.
const SILENT: &str = "its host is silent: neither data nor keep-alives are acknowledged";

#[derive(Default)]
struct Sending {
    out: Outbound,
    /// The control thread waits for room in the socket, or in the kernel.
    waiting: bool,
    /// The kernel has no room.
    refused: Option<Refused>,
    /// Nothing more will leave. The reading side finds out why, for it may still hold a goodbye.
    broken: Option<Errno>,
}

/// A kernel that has too much under way.
#[derive(Clone, Copy)]
struct Refused {
    since: Instant,
    /// How long to wait before it is asked again.
    pause: Duration,
}

impl Refused {
    /// It is so again.
    fn again(before: Option<Refused>) -> Refused {
        match before {
            None => Refused { since: Instant::now(), pause: PAUSE.0 },
            Some(before) => Refused { pause: (2 * before.pause).min(PAUSE.1), ..before },
        }
    }
}

/// Why a peer is given up to which the kernel lets nothing more go.
fn no_room(errno: Errno, waited: Duration) -> String {
    let cure = match errno {
        Errno::TOOMANYREFS => {
            "more descriptors are on their way between processes than this one may have; raise RLIMIT_NOFILE"
        }
        _ => "it has no memory left for what is on its way",
    };
    let waited = waited.as_secs();
    format!("the kernel took nothing that was to be sent to it for {waited} s: {cure} ({errno})")
}

/// Whether a write failed because the other end is gone.
fn closed(errno: Errno) -> bool {
    errno == Errno::PIPE || errno == Errno::CONNRESET
}

/// The link to one peer.
pub(crate) struct Link {
    socket: OwnedFd,
    peer: u32,
    me: Weak<Link>,
    mesh: Weak<Mesh>,
    control: Arc<Control>,
    /// How long the kernel may have no room: half as long as calls wait, so that these hear of it.
    limit: OnceLock<Duration>,
    sending: Mutex<Sending>,
    receiving: Mutex<Inbound>,
    token: OnceLock<u64>,
    /// Readable when the peer's process has ended, even if a child of it holds its sockets open.
    process: OnceLock<(OwnedFd, u64)>,
    over: AtomicBool,
}

impl Link {
    /// Whether it is no longer watched: its peer has left or is lost.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

impl Link {
    /// Goes on with a connection where the forming of the job has left it.
    pub fn new(pipe: Pipe, peer: u32, mesh: &Weak<Mesh>) -> Result<Arc<Link>> {
        let Pipe { socket, out, inbound, .. } = pipe;
        let control = Control::get()?;
        Ok(Arc::new_cyclic(|me: &Weak<Link>| Link {
            socket,
            peer,
            me: me.clone(),
            mesh: mesh.clone(),
            control,
            limit: OnceLock::new(),
            sending: Mutex::new(Sending { out, ..Sending::default() }),
            receiving: Mutex::new(inbound),
            token: OnceLock::new(),
            process: OnceLock::new(),
            over: AtomicBool::new(false),
        }))
    }

    /// Begins to listen, once the mesh exists. `pid` is that of the peer if it is another, visible process.
    pub fn start(self: &Arc<Link>, pid: Option<u32>) -> Result<()> {
        let token = self.control.add(self.socket.as_fd(), self.clone())?;
        self.token.get_or_init(|| token);
        let pid = pid.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        // Without a descriptor for the process (it is gone already, or the kernel is old) the socket alone must tell.
        if let Some(process) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
            let watch = Arc::new(Watch { link: Arc::downgrade(self) });
            let added = self.control.add(process.as_fd(), watch);
            let token = added.inspect_err(|_| self.end())?;
            self.process.get_or_init(|| (process, token));
        }
        // What came along with the last frame of the forming, or did not fit into the socket then.
        if let Some(mesh) = self.mesh.upgrade() {
            self.limit.get_or_init(|| mesh.limit / 2);
            let mut sending = lock(&self.sending);
            sending.waiting = false;
            self.flush(&mut sending);
            drop(sending);
            self.deliver(&mesh, &mut lock(&self.receiving));
        }
        // The control thread may have ended the link before the tokens were there to end it with.
        if self.over.load(Ordering::SeqCst) {
            self.end();
        }
        Ok(())
    }

    pub fn send(&self, frame: Frame) {
        let mut sending = lock(&self.sending);
        if sending.broken.is_some() {
            return;
        }
        sending.out.push(frame);
        if !sending.waiting {
            self.flush(&mut sending);
        }
    }

    fn flush(&self, sending: &mut Sending) {
        let before = sending.out.sent();
        let flushed = sending.out.flush(&self.socket);
        let refused = matches!(flushed, Ok(Flushed::Refused(_)));
        // If something has left it is refused anew.
        let earlier = sending.refused.filter(|_| sending.out.sent() == before);
        sending.refused = refused.then(|| Refused::again(earlier));
        match (flushed, sending.refused) {
            (Ok(Flushed::Refused(errno)), Some(Refused { since, pause })) => {
                if self.limit.get().is_some_and(|&limit| since.elapsed() >= limit) {
                    return self.give_up(sending, errno);
                }
                // The socket may have room, and would wake the control thread again and again.
                if sending.waiting {
                    self.watch(false);
                }
                sending.waiting = true;
                self.control.post_at(Instant::now() + pause, self.me.clone());
            }
            (Ok(flushed), _) => {
                let full = flushed == Flushed::Full;
                // Also where the kernel had no room, while it was not asked to.
                if full || sending.waiting {
                    self.watch(full);
                }
                sending.waiting = full;
            }
            (Err(errno), _) => self.give_up(sending, errno),
        }
    }

    /// Has the control thread come when there is room in the socket, or not.
    fn watch(&self, room: bool) {
        if let Some(&token) = self.token.get() {
            self.control.writable(self.socket.as_fd(), token, room);
        }
    }

    /// Nothing more leaves.
    fn give_up(&self, sending: &mut Sending, errno: Errno) {
        sending.out.clear();
        sending.broken = Some(errno);
        sending.waiting = false;
        // A closed connection wakes the reading side by itself; after any other error this does.
        if !closed(errno) {
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        }
        self.watch(false);
    }

    /// Reads what is there; false once there is nothing more for now.
    fn read(&self, mesh: &Mesh) -> bool {
        let mut inbound = lock(&self.receiving);
        let mut buffer = [0u8; 16 << 10];
        let mut descriptors = Vec::new();
        let (reason, alone) = match receive(&self.socket, &mut buffer, &mut descriptors) {
            Ok(Received::Bytes(got)) => {
                inbound.feed(&buffer[..got], descriptors);
                return self.deliver(mesh, &mut inbound);
            }
            Ok(Received::Nothing) => return false,
            Ok(Received::Closed) => {
                // Not in what the match looks at, which would keep the lock.
                let (broken, refused) = {
                    let sending = lock(&self.sending);
                    (sending.broken, sending.refused)
                };
                match (broken.filter(|&errno| !closed(errno)), refused) {
                    (Some(errno), Some(refused)) => (no_room(errno, refused.since.elapsed()), true),
                    // Whichever side of the connection hears of it first.
                    (Some(errno), None) if silent(errno) => (SILENT.to_owned(), false),
                    (Some(errno), None) => {
                        (format!("writing to its connection failed ({errno})"), true)
                    }
                    (None, _) => (CLOSED.to_owned(), false),
                }
            }
            Ok(Received::Truncated) => (TRUNCATED.to_owned(), true),
            // A cable that is cut all ranks behind it see, each by itself.
            Err(errno) if silent(errno) => (SILENT.to_owned(), false),
            Err(errno) => (format!("reading its connection failed ({errno})"), true),
        };
        self.lose(mesh, reason, alone);
        false
    }

    /// Hands the whole frames to the mesh; false if the link is over.
    fn deliver(&self, mesh: &Mesh, inbound: &mut Inbound) -> bool {
        loop {
            let problem = match inbound.next() {
                Ok(None) => return true,
                Ok(Some(frame)) => {
                    let bye = frame.kind == Kind::Bye;
                    match mesh.receive(self.peer, frame) {
                        Ok(()) if bye => {
                            self.end();
                            return false;
                        }
                        Ok(()) => continue,
                        Err(problem) => problem,
                    }
                }
                Err(error) => error.to_string(),
            };
            self.lose(mesh, format!("it sent {problem}"), true);
            return false;
        }
    }

    /// The peer is lost, or given up by this rank `alone`.
    pub fn lose(&self, mesh: &Mesh, reason: String, alone: bool) {
        mesh.lose(self.peer, reason, alone);
        self.end();
        // A peer that is alive but talks nonsense shall notice.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Stops watching.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(&token) = self.token.get() {
            self.control.remove(self.socket.as_fd(), token);
        }
        if let Some((process, token)) = self.process.get() {
            self.control.remove(process.as_fd(), *token);
        }
    }

    /// Waits for the queue to empty.
    pub fn linger(&self, deadline: Instant) {
        let mut refused = None;
        loop {
            let flushed = lock(&self.sending).out.flush(&self.socket);
            let left = deadline.saturating_duration_since(Instant::now());
            let (for_what, left) = match flushed {
                Ok(Flushed::Full) => (PollFlags::OUT, left),
                Ok(Flushed::Refused(_)) => {
                    let again = Refused::again(refused);
                    refused = Some(again);
                    (PollFlags::empty(), left.min(again.pause))
                }
                Ok(Flushed::All) | Err(_) => return,
            };
            if left.is_zero() {
                return;
            }
            let left = Timespec::try_from(left).ok();
            let _ = poll(&mut [PollFd::new(&self.socket, for_what)], left.as_ref());
        }
    }
}

impl Source for Link {
    fn ready(&self) {
        // Its descriptor stays ready: were it left in, the control thread would come here again and again.
        let Some(mesh) = self.mesh.upgrade() else { return self.end() };
        {
            let mut sending = lock(&self.sending);
            // Where the kernel has no room, it is asked again when the pause is over.
            if sending.waiting && sending.refused.is_none() {
                self.flush(&mut sending);
            }
        }
        for _ in 0..TURNS {
            if self.over.load(Ordering::SeqCst) || !self.read(&mesh) {
                break;
            }
        }
    }
}

/// A pause is over.
impl Dispatch for Link {
    fn dispatch(&self) {
        let mut sending = lock(&self.sending);
        if sending.waiting && sending.refused.is_some() {
            self.flush(&mut sending);
        }
    }
}

/// Watches a peer's process.
struct Watch {
    link: Weak<Link>,
}

impl Source for Watch {
    fn ready(&self) {
        let Some(link) = self.link.upgrade() else { return };
        let Some(mesh) = link.mesh.upgrade() else { return link.end() };
        // What it sent before it ended still counts.
        loop {
            if link.over.load(Ordering::SeqCst) || !link.read(&mesh) {
                break;
            }
        }
        if !link.over.load(Ordering::SeqCst) {
            link.lose(&mesh, ENDED.to_owned(), false);
        }
    }
}

/// All links of one rank.
pub(crate) struct Links {
    /// By mesh rank; none to itself.
    pub links: Vec<Option<Arc<Link>>>,
}

impl Carrier for Links {
    fn send(&self, to: u32, frame: Frame) {
        if let Some(Some(link)) = self.links.get(to as usize) {
            link.send(frame);
        }
    }

    fn close(&self, last: &[Frame]) {
        let alive = || self.links.iter().flatten().filter(|link| !link.over.load(Ordering::SeqCst));
        for link in alive() {
            let due = last.iter().filter(|frame| frame.is_for(link.peer));
            due.for_each(|frame| link.send(frame.share()));
            link.send(Frame::plain(Kind::Bye, Vec::new()));
        }
        let deadline = Instant::now() + LINGER;
        for link in alive() {
            if !on_control_thread() {
                link.linger(deadline);
            }
            link.end();
        }
    }
}

#[cfg(test)]
mod tests;
