//! A formed link to one peer, driven by the control thread.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::control::{Control, Source, on_control_thread};
use crate::error::Result;
use crate::frame::{Frame, Inbound, Kind};
use crate::mesh::{Carrier, Mesh};
use crate::pipe::Pipe;
use crate::socket::{Outbound, Received, receive};
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
    /// The control thread waits for room in the socket.
    waiting: bool,
    /// Nothing more will leave. The reading side finds out why, for it may still hold a goodbye.
    broken: Option<Errno>,
}

/// Whether a write failed because the other end is gone.
fn closed(errno: Errno) -> bool {
    errno == Errno::PIPE || errno == Errno::CONNRESET
}

/// The link to one peer.
pub(crate) struct Link {
    socket: OwnedFd,
    peer: u32,
    mesh: Weak<Mesh>,
    control: Arc<Control>,
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
        Ok(Arc::new(Link {
            socket,
            peer,
            mesh: mesh.clone(),
            control: Control::get()?,
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
        match sending.out.flush(&self.socket) {
            Ok(done) if done != sending.waiting => {}
            Ok(done) => {
                sending.waiting = !done;
                if let Some(&token) = self.token.get() {
                    self.control.writable(self.socket.as_fd(), token, !done);
                }
            }
            Err(errno) => {
                sending.out.clear();
                sending.broken = Some(errno);
                sending.waiting = false;
                // A closed connection wakes the reading side by itself; after any other error this does.
                if !closed(errno) {
                    let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
                }
                if let Some(&token) = self.token.get() {
                    self.control.writable(self.socket.as_fd(), token, false);
                }
            }
        }
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
                let broken = lock(&self.sending).broken;
                match broken.filter(|&errno| !closed(errno)) {
                    // Whichever side of the connection hears of it first.
                    Some(errno) if silent(errno) => (SILENT.to_owned(), false),
                    Some(errno) => (format!("writing to its connection failed ({errno})"), true),
                    None => (CLOSED.to_owned(), false),
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
        loop {
            {
                let mut sending = lock(&self.sending);
                let done = sending.out.flush(&self.socket);
                if !matches!(done, Ok(false)) {
                    return;
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let left = Timespec::try_from(left).ok();
            let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], left.as_ref());
        }
    }
}

impl Source for Link {
    fn ready(&self) {
        // Its descriptor stays ready: were it left in, the control thread would come here again and again.
        let Some(mesh) = self.mesh.upgrade() else { return self.end() };
        {
            let mut sending = lock(&self.sending);
            if sending.waiting {
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
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::absent::Gone;
    use crate::error::BootstrapError;
    use crate::group::Member;
    use crate::{Bootstrap, Handler, Lost, PeerInfo};

    /// Rank 0 of a world of 2, and the bare socket of its peer.
    fn half_a_mesh() -> (Arc<dyn Bootstrap>, UnixStream) {
        let (end, mut peers) = part_of_a_mesh(0, 2);
        (end, peers.remove(0))
    }

    /// A rank of a world, and the bare sockets of its peers.
    fn part_of_a_mesh(rank: u32, world: u32) -> (Arc<dyn Bootstrap>, Vec<UnixStream>) {
        let peer = PeerInfo { pid: 4711, same_process: false, node: 0, address: None };
        let (mut links, mut peers) = (Vec::new(), Vec::new());
        let all = vec![peer; world as usize];
        let mesh = Mesh::new(rank, all, Duration::from_secs(20), [0; 32], |mesh| {
            for peer in 0..world {
                let (ours, theirs) = UnixStream::pair().unwrap();
                ours.set_nonblocking(true).unwrap();
                let link = Link::new(Pipe::known(ours.into(), 0), peer, mesh)?;
                links.push(Some(link).filter(|_| peer != rank));
                peers.extend(Some(theirs).filter(|_| peer != rank));
            }
            Ok(Box::new(Links { links: links.clone() }))
        });
        let mesh = mesh.unwrap();
        links.iter().flatten().for_each(|link| link.start(None).unwrap());
        (Member::whole(mesh), peers)
    }

    fn frame(patches: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = Frame::plain(Kind::Message, Vec::new()).header().to_vec();
        for (at, patch) in patches {
            bytes[*at..at + patch.len()].copy_from_slice(patch);
        }
        bytes
    }

    #[test]
    fn a_peer_that_sends_garbage_is_lost_with_the_reason() {
        let half = frame(&[(16, &[9])]);
        for (bytes, reason) in [
            (b"GET / HTTP/1.1\r\n".to_vec(), "do not begin a frame"),
            (frame(&[(8, &[99])]), "protocol version 99"),
            (frame(&[(10, &[99])]), "unknown kind 99"),
            (frame(&[(10, &[24])]), "a Go frame after the job had formed"),
            (frame(&[(16, &[255; 4])]), "a frame of 4294967295 bytes"),
            (frame(&[(20, &[3])]), "promises 3 descriptors, of which 0 arrived"),
            (half, "closed without a goodbye"),
            // As that of a process that ended, and of one that took this rank for lost.
            (Vec::new(), "closed without a goodbye (the process died, or gave this rank up)"),
        ] {
            let (end, mut peer) = half_a_mesh();
            peer.write_all(&bytes).unwrap();
            if reason.starts_with("closed") {
                drop(peer);
            }
            let error = end.barrier().unwrap_err();
            assert!(matches!(error, BootstrapError::PeerLost { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("rank 1 (pid 4711)") && text.contains(reason), "{text}");
            assert!(end.check().is_err());
        }
    }

    #[test]
    fn a_link_whose_mesh_is_gone_is_let_go_of() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let link = Link::new(Pipe::known(ours.into(), 0), 1, &Weak::new()).unwrap();
        link.start(None).unwrap();
        drop(link);
        theirs.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        theirs.write_all(b"?").unwrap();
        match theirs.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("its socket stays: {other:?}"),
        }
    }

    #[test]
    fn a_goodbye_counts_though_the_socket_breaks_under_our_own_writes() {
        let (end, mut peer) = half_a_mesh();
        let bye = Frame::plain(Kind::Bye, Vec::new()).header();
        peer.write_all(&bye).unwrap();
        // Unread input makes the kernel reset the connection instead of closing it.
        let _ = end.exchange_begin(b"unread").map(drop);
        drop(peer);
        let error = end.barrier().unwrap_err();
        assert!(matches!(error, BootstrapError::PeerLeft { .. }), "{error}");
    }

    #[test]
    fn who_died_is_named_though_the_gatherer_left_for_it() {
        let bye = Frame::plain(Kind::Bye, Vec::new()).header();
        for first in [true, false] {
            let (end, mut peers) = part_of_a_mesh(1, 3);
            let (dead, mut gatherer) = (peers.pop().unwrap(), peers.pop().unwrap());
            let heard = |wanted: &dyn Fn() -> bool| {
                let began = Instant::now();
                while !wanted() {
                    assert!(began.elapsed() < Duration::from_secs(20), "nothing is heard");
                    std::thread::yield_now();
                }
            };
            let mut dead = Some(dead);
            if first {
                drop(dead.take());
                heard(&|| end.check().is_err());
            }
            gatherer.write_all(&bye).unwrap();
            heard(&|| end.has_left(0).unwrap());
            // Otherwise its end shows only once the call has seen that the gatherer is gone.
            let mut call = end.barrier_begin().unwrap();
            if let Some(dead) = dead {
                assert_eq!(call.poll(), Ok(None));
                drop(dead);
                // Else the time in which that may show could pass before it does.
                heard(&|| end.check().is_err());
            }
            let error = call.wait().unwrap_err();
            let BootstrapError::PeerLost { peer, .. } = &error else { panic!("{error}") };
            assert_eq!(peer.rank, 2);
        }
        // Where nobody died, the gatherer is to blame.
        let (end, mut peers) = part_of_a_mesh(1, 3);
        peers[0].write_all(&bye).unwrap();
        let error = end.barrier().unwrap_err();
        let BootstrapError::PeerLeft { peer, .. } = &error else { panic!("{error}") };
        assert_eq!(peer.rank, 0);
    }

    /// Rank 2 was lost, or 3, and the rank before it has left for that; the rank in question gathers, or asks who does.
    #[test]
    fn of_those_that_are_missed_the_lost_one_is_named() {
        let bye = Frame::plain(Kind::Bye, Vec::new()).header();
        for (rank, [left, lost]) in [(0, [1, 2]), (1, [2, 3])] {
            let (end, mut peers) = part_of_a_mesh(rank, lost + 1);
            // There is none of the rank itself.
            peers.pop();
            peers[left as usize - 1].write_all(&bye).unwrap();
            let began = Instant::now();
            while !(end.check().is_err() && end.has_left(left).unwrap()) {
                assert!(began.elapsed() < Duration::from_secs(20), "nothing is heard");
                std::thread::yield_now();
            }
            let mut call = end.barrier_begin().unwrap();
            if rank == 1 {
                assert_eq!(call.poll(), Ok(None));
                let present: Vec<u8> = [0u32, 1].into_iter().flat_map(u32::to_le_bytes).collect();
                let answer = Frame::plain(Kind::Answer, present.clone());
                peers[0].write_all(&[&answer.header()[..], &present].concat()).unwrap();
            }
            let error = call.wait().unwrap_err();
            let BootstrapError::PeerLost { peer, .. } = &error else { panic!("{error}") };
            assert_eq!(peer.rank, lost);
        }
    }

    /// Notes when it is told that a peer is lost.
    struct Noting(u64, Arc<Mutex<Vec<u64>>>);

    impl Handler for Noting {
        fn message(&self, _: u32, _: u32, _: &[u8], _: Vec<OwnedFd>) {}

        fn peer_lost(&self, _: u32, _: &Lost) {
            lock(&self.1).push(self.0);
        }

        fn aborted(&self, _: u32, _: &str) {}
    }

    #[test]
    fn of_the_groups_that_a_lost_rank_is_of_the_first_hears_first() {
        let (end, peer) = half_a_mesh();
        let told = Arc::new(Mutex::new(Vec::new()));
        let groups: Vec<_> = (0..16).map(|id| end.group(id, &[0, 1]).unwrap()).collect();
        for (number, group) in (0..).zip(&groups) {
            group.subscribe(1, Arc::new(Noting(number, told.clone()))).unwrap();
        }
        drop(peer);
        let began = Instant::now();
        while lock(&told).len() < groups.len() {
            assert!(began.elapsed() < Duration::from_secs(20), "nothing is heard");
            std::thread::yield_now();
        }
        assert!(lock(&told).is_sorted(), "{told:?}");
    }

    /// Notes whether the mesh knew of a loss already when the carrier was told.
    struct Telling(Weak<Mesh>, Arc<Mutex<Vec<bool>>>);

    impl Carrier for Telling {
        fn send(&self, _: u32, _: Frame) {}
        fn close(&self, _: &[Frame]) {}

        fn saw_go(&self, peer: u32, _: &Gone) {
            let mesh = self.0.upgrade().unwrap();
            let knew = lock(&mesh.state).absent.gone.contains_key(&peer);
            lock(&self.1).push(knew);
        }
    }

    #[test]
    fn others_are_told_of_a_death_before_a_caller_of_this_rank_may_leave_for_it() {
        let peer = PeerInfo { pid: 4711, same_process: false, node: 0, address: None };
        let knew = Arc::new(Mutex::new(Vec::new()));
        let mesh = Mesh::new(0, vec![peer; 2], Duration::from_secs(20), [0; 32], |mesh| {
            Ok(Box::new(Telling(mesh.clone(), knew.clone())))
        });
        let mesh = mesh.unwrap();
        mesh.lose(1, "it fell".to_owned(), false);
        assert_eq!(*lock(&knew), [false]);
        assert!(Member::whole(mesh).check().is_err());
    }
}
