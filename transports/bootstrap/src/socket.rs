//! Sockets, descriptors and credentials: the system calls of this transport, and nothing of its protocol.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use antiphon_transport::room::{is_full, keeps_out};
use rustix::fs::{self, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Resource, getrlimit};

use crate::frame::{Frame, HEADER, MAX_DESCRIPTORS};

const ANCILLARY: usize = rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS));

fn stream() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// A listener at an abstract name.
pub(crate) fn listen(name: &str) -> Result<OwnedFd, Errno> {
    let socket = stream()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    rustix::net::listen(&socket, 4096)?;
    Ok(socket)
}

/// A connection to an abstract name. `CONNREFUSED`: nobody listens; `AGAIN`: the listener's queue is full.
pub(crate) fn connect(name: &str) -> Result<OwnedFd, Errno> {
    let socket = stream()?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address))?;
    Ok(socket)
}

/// The next connection that waits at a listener, if any.
pub(crate) fn accept(listener: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match rustix::io::retry_on_intr(|| rustix::net::accept_with(listener, flags)) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN | Errno::CONNABORTED) => Ok(None),
        // There is no room, and nobody who takes it.
        Err(errno) if is_full(errno) && !keeps_out(listener, errno) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Who is at the other end, by the kernel's word.
pub(crate) struct Credentials {
    /// 0 where the process is not visible from our pid namespace.
    pub pid: u32,
    pub uid: u32,
}

/// Asks the kernel who is at the other end of a connection.
pub(crate) fn credentials(socket: BorrowedFd<'_>) -> Result<Credentials, Errno> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // Not rustix's call: its pid type has no room for the 0 of a process in another pid namespace.
    // SAFETY: `found` and `length` are live and exclusively borrowed, and `length` is the size of `found`.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    if answer != 0 {
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(code));
    }
    Ok(Credentials { pid: found.pid.cast_unsigned(), uid: found.uid })
}

/// A memory object that holds `token`.
pub(crate) fn token_memory(token: &[u8; 16]) -> Result<OwnedFd, Errno> {
    // Beyond it the kernel ends a process that does not expect the signal.
    if getrlimit(Resource::Fsize).current.is_some_and(|most| most < token.len() as u64) {
        return Err(Errno::FBIG);
    }
    let nameless = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        fs::open("/dev/shm", flags, Mode::RUSR | Mode::WUSR)
    };
    // Where a sandbox forbids the one, ranks share memory by the other, too.
    let memory = fs::memfd_create("antiphon-token", MemfdFlags::CLOEXEC)
        .or_else(|errno| nameless().map_err(|_| errno))?;
    match rustix::io::pwrite(&memory, token, 0)? {
        16 => Ok(memory),
        _ => Err(Errno::IO),
    }
}

/// Reads a token through a descriptor that a peer passed.
pub(crate) fn read_token(memory: &OwnedFd) -> Result<[u8; 16], Errno> {
    let mut token = [0; 16];
    match rustix::io::retry_on_intr(|| rustix::io::pread(memory, &mut token, 0))? {
        16 => Ok(token),
        _ => Err(Errno::IO),
    }
}

/// What one read brought.
pub(crate) enum Received {
    /// So many bytes, 0 never.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The other end is closed; why, if the kernel said.
    Closed,
    /// Descriptors were dropped by the kernel, for want of room in this process's table.
    Truncated,
}

/// Reads once without blocking.
pub(crate) fn receive(
    socket: &OwnedFd,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); ANCILLARY];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)
    });
    let got = match got {
        Ok(got) => got,
        Err(Errno::AGAIN) => return Ok(Received::Nothing),
        Err(Errno::CONNRESET) => return Ok(Received::Closed),
        Err(errno) => return Err(errno),
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Ok(Received::Truncated);
    }
    Ok(if got.bytes == 0 { Received::Closed } else { Received::Bytes(got.bytes) })
}

struct Leaving {
    header: [u8; HEADER],
    frame: Frame,
    sent: usize,
}

/// How far frames have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// All have.
    All,
    /// The socket is full, and says when it is not.
    Full,
    /// Too much is under way in the kernel, of these processes or of others, which passes as its readers read. Nobody says when.
    Refused(Errno),
}

/// Frames that wait for room in a socket.
#[derive(Default)]
pub(crate) struct Outbound {
    queue: VecDeque<Leaving>,
    sent: u64,
}

impl Outbound {
    pub fn push(&mut self, frame: Frame) {
        self.queue.push_back(Leaving { header: frame.header(), frame, sent: 0 });
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many bytes have left.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Writes as far as the kernel takes it.
    pub fn flush(&mut self, socket: &OwnedFd) -> Result<Flushed, Errno> {
        while let Some(first) = self.queue.front_mut() {
            let header = first.header.get(first.sent..).unwrap_or_default();
            let payload = &first.frame.payload[first.sent.saturating_sub(HEADER)..];
            match send(socket, [header, payload], &first.frame.descriptors) {
                Ok(sent) => {
                    first.sent += sent;
                    self.sent += sent as u64;
                    // They left with the first byte; what the peer has now are duplicates.
                    first.frame.descriptors.clear();
                }
                Err(Errno::AGAIN) => return Ok(Flushed::Full),
                Err(errno @ (Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM)) => {
                    return Ok(Flushed::Refused(errno));
                }
                Err(errno) => return Err(errno),
            }
            if first.sent == HEADER + first.frame.payload.len() {
                self.queue.pop_front();
            }
        }
        Ok(Flushed::All)
    }

    /// Forgets what has not left.
    pub fn clear(&mut self) {
        self.queue.clear();
    }
}

fn send(socket: &OwnedFd, parts: [&[u8]; 2], descriptors: &[OwnedFd]) -> Result<usize, Errno> {
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| {
        let mut space = [MaybeUninit::uninit(); ANCILLARY];
        let mut control = SendAncillaryBuffer::new(&mut space);
        // The buffer has room for MAX_DESCRIPTORS, which `Bootstrap::send` enforces.
        if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
            return Err(Errno::INVAL);
        }
        rustix::net::sendmsg(socket, &parts.map(IoSlice::new), &mut control, flags)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusing::refuse;

    #[test]
    fn where_no_file_may_have_bytes_a_token_is_an_error_and_no_signal() {
        // SAFETY: the child of this fork makes system calls alone, and ends without running what others registered.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: `none` is there to be read, and the other call takes no memory.
            unsafe {
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const none);
                libc::_exit(i32::from(token_memory(&[7; 16]).err() != Some(Errno::FBIG)));
            }
        }
        let mut status = 0;
        // SAFETY: `status` is there to be written, and nobody else waits for this child.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0);
    }

    #[test]
    fn a_token_finds_memory_where_memory_files_are_forbidden() {
        let made = std::thread::spawn(|| {
            refuse(libc::SYS_memfd_create, libc::EPERM);
            let forbidden = fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap_err();
            (forbidden, token_memory(&[7; 16]))
        });
        let (forbidden, memory) = made.join().unwrap();
        assert_eq!(forbidden, Errno::PERM);
        assert_eq!(read_token(&memory.unwrap()).unwrap(), [7; 16]);
    }
}
