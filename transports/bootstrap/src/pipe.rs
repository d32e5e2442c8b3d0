//! A connection while the job forms: frames without blocking, on the joining thread.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::error::{BootstrapError, PeerName};
use crate::frame::{Frame, FrameError, Inbound, Kind, VERSION};
use crate::meeting::FORMING;
use crate::socket::{Flushed, Outbound, Received, credentials, receive};

/// Why a connection yields no more frames.
pub(crate) enum Broken {
    Closed,
    Garbled(FrameError),
    /// A descriptor was lost for want of room in this process's table.
    Truncated,
    Failed(Errno),
}

impl Broken {
    /// The error by which a job does not form, since the connection to `peer` is broken.
    pub fn of(self, peer: PeerName) -> BootstrapError {
        let reason = match self {
            Broken::Garbled(FrameError::Version(saw)) => {
                return BootstrapError::WrongVersion { pid: peer.pid, saw, expected: VERSION };
            }
            Broken::Garbled(error) => {
                return BootstrapError::Protocol { peer, saw: error.to_string() };
            }
            // That is no fault of the peer's.
            Broken::Truncated => {
                let doing = "take the memory that another rank passes";
                return BootstrapError::Os { doing, errno: Errno::MFILE };
            }
            Broken::Closed => "its connection closed while the job formed".to_owned(),
            Broken::Failed(errno) => format!("reading its connection failed ({errno})"),
        };
        BootstrapError::PeerLost { doing: FORMING, peer, reason }
    }
}

/// Whether a process of this user may be of a job of this process. Anybody on the machine may connect to an abstract name.
fn admits(uid: u32) -> bool {
    uid == rustix::process::geteuid().as_raw()
}

/// One connection.
pub(crate) struct Pipe {
    pub socket: OwnedFd,
    /// The process at the other end; 0 where it is not visible.
    pub pid: u32,
    pub out: Outbound,
    pub inbound: Inbound,
    /// The kernel would not take more when it was asked last, and does not say when it will.
    pub refused: bool,
}

impl Pipe {
    /// Takes a Unix connection in, unless another user is at its other end.
    pub fn new(socket: OwnedFd) -> Option<Pipe> {
        let other = credentials(socket.as_fd()).ok()?;
        let (out, inbound) = (Outbound::default(), Inbound::default());
        admits(other.uid).then_some(Pipe { socket, pid: other.pid, out, inbound, refused: false })
    }

    /// A connection whose other end is known by other means.
    pub fn known(socket: OwnedFd, pid: u32) -> Pipe {
        let (out, inbound) = (Outbound::default(), Inbound::default());
        Pipe { socket, pid, out, inbound, refused: false }
    }

    /// Queues a frame and writes what fits. A failure shows when reading.
    pub fn send(&mut self, frame: Frame) {
        self.out.push(frame);
        self.flush();
    }

    pub fn send_bytes(&mut self, kind: Kind, payload: Vec<u8>) {
        self.send(Frame::plain(kind, payload));
    }

    /// Writes what fits.
    pub fn flush(&mut self) {
        let flushed = self.out.flush(&self.socket);
        self.refused = matches!(flushed, Ok(Flushed::Refused(_)));
        if flushed.is_err() {
            self.out.clear();
        }
    }

    /// The next frame, if it is here.
    pub fn next(&mut self) -> Result<Option<Frame>, Broken> {
        loop {
            if let Some(frame) = self.inbound.next().map_err(Broken::Garbled)? {
                return Ok(Some(frame));
            }
            let mut buffer = [0u8; 4 << 10];
            let mut descriptors = Vec::new();
            match receive(&self.socket, &mut buffer, &mut descriptors) {
                Ok(Received::Bytes(got)) => self.inbound.feed(&buffer[..got], descriptors),
                Ok(Received::Nothing) => return Ok(None),
                Ok(Received::Closed) => return Err(Broken::Closed),
                Ok(Received::Truncated) if descriptors.is_empty() => return Err(Broken::Truncated),
                // No frame of the forming passes more than one.
                Ok(Received::Truncated) => return Err(Broken::Failed(Errno::TOOBIG)),
                Err(errno) => return Err(Broken::Failed(errno)),
            }
        }
    }

    /// What to wait for; if it is [refused](Self::refused), try again after a while as well.
    pub fn interest(&self) -> PollFd<'_> {
        let mut flags = PollFlags::IN;
        if !self.out.is_empty() && !self.refused {
            flags |= PollFlags::OUT;
        }
        PollFd::new(&self.socket, flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{accept, connect, listen};
    use crate::sync::{hex, random};

    /// One that nobody is.
    const NOBODY: u32 = 65534;

    #[test]
    fn other_users_are_not_admitted_whoever_this_one_is() {
        let own = rustix::process::geteuid().as_raw();
        assert!(admits(own));
        for other in [own ^ 1, !own, own.wrapping_add(NOBODY)] {
            assert!(!admits(other), "user {other} to user {own}");
        }
    }

    /// Connects to an abstract name as `user`, and leaves.
    fn connect_as(user: u32, name: &str) {
        // SAFETY: the child of this fork makes system calls alone, and ends without running what others registered.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            // SAFETY: neither call takes memory.
            unsafe {
                let became = libc::syscall(libc::SYS_setresuid, user, user, user) == 0;
                libc::_exit(i32::from(!(became && connect(name).is_ok())));
            }
        }
        let mut status = 0;
        // SAFETY: `status` is there to be written, and nobody else waits for this child.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status, 0, "a child that connects as user {user}");
    }

    #[test]
    fn a_connection_of_another_user_is_not_taken_in() {
        let own = rustix::process::geteuid();
        if !own.is_root() {
            eprintln!("skipped: no other user can be played without being root");
            return;
        }
        let name = format!("antiphon-test-{}", hex(&random().unwrap()));
        let listener = listen(&name).unwrap();
        let mut taken = [own.as_raw(), NOBODY].map(|user| {
            connect_as(user, &name);
            Pipe::new(accept(&listener).unwrap().expect("who connected has left since"))
        });
        assert!(taken[0].take().is_some() && taken[1].is_none());
    }
}
