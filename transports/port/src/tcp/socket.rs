//! Sockets, epoll, timers: the system calls of this wire, and nothing of its protocol.

use super::protocol::Part;
use antiphon_transport::outage::retry_each_second;
use rustix::event::{EventfdFlags, epoll};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, acceptfrom_with, bind, connect, getsockname, listen,
    socket_with, sockopt,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The longest pause between two probes of a connection that the kernel takes.
const MOST_SECONDS: u64 = 32767;
/// The longest silence that it takes.
const MOST_MILLISECONDS: u32 = i32::MAX.cast_unsigned();
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

pub(super) fn stream(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    socket_with(family, SocketType::STREAM, FLAGS, None)
}

/// A listener at `address`, whose port the system chooses where it is 0, and where it really listens.
pub(super) fn listen_at(address: &SocketAddr) -> Result<(OwnedFd, SocketAddr), Errno> {
    let socket = stream(address)?;
    bind(&socket, address)?;
    listen(&socket, 1024)?;
    let real = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, real))
}

/// The next connection that waits at a listener.
pub(super) fn accept(listener: &OwnedFd) -> Result<(OwnedFd, SocketAddr), Errno> {
    let (socket, from) = rustix::io::retry_on_intr(|| acceptfrom_with(listener, FLAGS))?;
    let from = from.ok_or(Errno::CONNABORTED)?;
    Ok((socket, SocketAddr::try_from(from)?))
}

/// Begins a connection to `to`; from the address `from`, where one is given.
pub(super) fn dial(to: &SocketAddr, from: Option<SocketAddr>) -> Result<OwnedFd, Errno> {
    let socket = stream(to)?;
    if let Some(from) = from {
        bind(&socket, &from)?;
    }
    match connect(&socket, to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// Makes a connection quick, and quick to notice that its other end is gone: after `silence` without an answer.
pub(super) fn tune(socket: &OwnedFd, silence: Duration) -> Result<(), Errno> {
    let milliseconds = silence.as_millis().min(MOST_MILLISECONDS.into()) as u32;
    retry_each_second(socket);
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_tcp_user_timeout(socket, milliseconds)?;
    // Probes find out while nothing is sent.
    sockopt::set_socket_keepalive(socket, true)?;
    let third = Duration::from_secs((silence.as_secs() / 3).clamp(1, MOST_SECONDS));
    sockopt::set_tcp_keepidle(socket, third)?;
    sockopt::set_tcp_keepintvl(socket, third)?;
    sockopt::set_tcp_keepcnt(socket, 3)
}

fn answer(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Whether an operation would have to wait, or was interrupted.
pub(super) fn would_wait(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Reads what is there into `parts`.
///
/// # Safety
/// The parts are mapped and writable, and no reference to any of their bytes is in use.
pub(super) unsafe fn receive(socket: &OwnedFd, parts: [Part; 2]) -> io::Result<usize> {
    let [first, second] = parts;
    let raw = socket.as_raw_fd();
    if second.bytes == 0 {
        let start = first.start.cast();
        // SAFETY: the caller's promise.
        return answer(unsafe { libc::recv(raw, start, first.bytes, libc::MSG_DONTWAIT) });
    }
    let vectors = parts.map(vector);
    // SAFETY: the caller's promise; the socket does not block.
    answer(unsafe { libc::readv(raw, vectors.as_ptr(), 2) })
}

fn vector(part: Part) -> libc::iovec {
    libc::iovec { iov_base: part.start.cast(), iov_len: part.bytes }
}

/// The most parts that one call of [`send`] takes.
pub(super) const MOST_PARTS: usize = 32;

/// Sends what there is room for of `parts`, at most [`MOST_PARTS`].
///
/// # Safety
/// The parts are mapped and readable.
pub(super) unsafe fn send(socket: &OwnedFd, parts: &[Part]) -> io::Result<usize> {
    let raw = socket.as_raw_fd();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    if let [part] = parts {
        // SAFETY: the caller's promise.
        return answer(unsafe { libc::send(raw, part.start.cast(), part.bytes, flags) });
    }
    let mut vectors = [vector(Part::NONE); MOST_PARTS];
    for (vector, part) in vectors.iter_mut().zip(parts) {
        *vector = self::vector(*part);
    }
    // SAFETY: a message header of zeros is one without anything in it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = parts.len().min(MOST_PARTS) as _;
    // SAFETY: `message` points to live vectors, and these, by the caller's promise, to readable memory.
    answer(unsafe { libc::sendmsg(raw, &raw const message, flags) })
}

/// Sends bytes of this process's own.
pub(super) fn send_bytes(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    let part = Part { start: bytes.as_ptr().cast_mut(), bytes: bytes.len() };
    // SAFETY: a borrowed slice; it is only read.
    unsafe { send(socket, &[part]) }
}

/// Reads into bytes of this process's own.
pub(super) fn receive_bytes(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<usize> {
    let part = Part { start: bytes.as_mut_ptr(), bytes: bytes.len() };
    // SAFETY: a slice that is borrowed exclusively.
    unsafe { receive(socket, [part, Part::NONE]) }
}

/// A new epoll descriptor.
pub(super) fn poller() -> Result<OwnedFd, Errno> {
    epoll::create(epoll::CreateFlags::CLOEXEC)
}

/// Sets which events of a descriptor make an epoll descriptor readable. Nobody asks that which of its descriptors it was.
pub(super) fn watch(
    poller: &OwnedFd,
    what: impl AsFd,
    before: epoll::EventFlags,
    now: epoll::EventFlags,
) -> Result<(), Errno> {
    let data = epoll::EventData::new_u64(0);
    match (before.is_empty(), now.is_empty()) {
        _ if before == now => Ok(()),
        (true, _) => epoll::add(poller, what, data, now),
        (_, true) => epoll::delete(poller, what),
        _ => epoll::modify(poller, what, data, now),
    }
}

/// A descriptor that [`raise`] makes readable.
pub(super) fn bell() -> Result<OwnedFd, Errno> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Makes a bell readable.
pub(super) fn raise(bell: &OwnedFd) {
    // It can only be full, which is readable as well.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Makes a bell unreadable.
pub(super) fn lower(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

/// A descriptor that becomes readable after `delay`, for good.
pub(super) fn timer(delay: Duration) -> io::Result<OwnedFd> {
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    // SAFETY: it takes no pointer.
    let raw = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and nobody else has it.
    let timer = unsafe { OwnedFd::from_raw_fd(raw) };
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let value = libc::timespec {
        tv_sec: delay.as_secs() as _,
        tv_nsec: (delay.subsec_nanos().max(1)) as _,
    };
    let setting = libc::itimerspec { it_interval: zero, it_value: value };
    // SAFETY: `setting` is live; what was set before is not asked for.
    if unsafe { libc::timerfd_settime(raw, 0, &raw const setting, std::ptr::null_mut()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(timer)
}

/// Random bytes.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let rest = &mut bytes[filled..];
        // SAFETY: `rest` is live, exclusively borrowed, and as long as is said.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match answer(got) {
            Ok(got) => filled += got,
            Err(error) if would_wait(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_transport::outage::longest_pause;

    #[test]
    fn what_is_lost_is_sent_again_before_the_silence_is_over() {
        let (listener, _) = listen_at(&SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        tune(&listener, Duration::from_secs(10)).unwrap();
        assert!(longest_pause(&listener).is_none_or(|pause| pause == 1000));
    }
}
