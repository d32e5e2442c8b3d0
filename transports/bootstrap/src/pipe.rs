//! A connection while the job forms: frames without blocking, on the joining thread.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::error::{BootstrapError, PeerName};
use crate::frame::{Frame, FrameError, Inbound, Kind, VERSION};
use crate::meeting::FORMING;
use crate::socket::{Outbound, Received, credentials, receive};

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

/// One connection.
pub(crate) struct Pipe {
    pub socket: OwnedFd,
    /// The process at the other end; 0 where it is not visible.
    pub pid: u32,
    pub out: Outbound,
    pub inbound: Inbound,
}

impl Pipe {
    /// Takes a Unix connection in, unless another user is at its other end.
    pub fn new(socket: OwnedFd) -> Option<Pipe> {
        let other = credentials(socket.as_fd()).ok()?;
        let same_user = other.uid == rustix::process::geteuid().as_raw();
        let (out, inbound) = (Outbound::default(), Inbound::default());
        same_user.then_some(Pipe { socket, pid: other.pid, out, inbound })
    }

    /// A connection whose other end is known by other means.
    pub fn known(socket: OwnedFd, pid: u32) -> Pipe {
        let (out, inbound) = (Outbound::default(), Inbound::default());
        Pipe { socket, pid, out, inbound }
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
        if self.out.flush(&self.socket).is_err() {
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

    /// What to wait for.
    pub fn interest(&self) -> PollFd<'_> {
        let mut flags = PollFlags::IN;
        if !self.out.is_empty() {
            flags |= PollFlags::OUT;
        }
        PollFd::new(&self.socket, flags)
    }
}
