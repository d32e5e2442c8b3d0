//! TCP sockets as this transport uses them: never blocking, kept alive, gone with their process.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use antiphon_transport::outage::retry_each_second;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::error::BootstrapError;

/// Connections that the kernel keeps for a listener that is busy.
const BACKLOG: i32 = 4096;

fn socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

/// A listener at an address (port 0: any free one), and where it listens.
pub(super) fn listen(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), BootstrapError> {
    let open = || -> Result<_, Errno> {
        let socket = socket(address)?;
        // A job that ended a moment ago must not hold up the next one at its port.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        let at = local(&socket)?;
        Ok((socket, at))
    };
    open().map_err(|errno| BootstrapError::Network {
        doing: "listen at",
        address: address.to_string(),
        errno,
    })
}

/// Begins a connection. It stands when the socket becomes writable and [`outcome`] says so.
pub(super) fn call(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = socket(address)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// How a connection that was begun ended.
pub(super) fn outcome(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::socket_error(socket)?
}

/// This end's address.
pub(super) fn local(socket: &OwnedFd) -> Result<SocketAddr, Errno> {
    SocketAddr::try_from(rustix::net::getsockname(socket)?)
}

/// The other end's address.
pub(super) fn remote(socket: &OwnedFd) -> Result<SocketAddr, Errno> {
    let address = rustix::net::getpeername(socket)?.ok_or(Errno::NOTCONN)?;
    SocketAddr::try_from(address)
}

/// Makes a connection that carries frames: no waiting for fuller packets, and an error after `silence` without a sign of
/// life from the other host.
pub(super) fn keep_alive(socket: &OwnedFd, silence: Duration) -> Result<(), Errno> {
    const PROBES: u32 = 3;
    // What the kernel takes at the most.
    const INTERVAL: u64 = 32767;
    const SILENCE: Duration = Duration::from_millis(i32::MAX as u64);
    let silence = silence.clamp(Duration::from_secs(1), SILENCE);
    let interval = (silence.as_secs() / u64::from(PROBES + 1)).clamp(1, INTERVAL);
    let interval = Duration::from_secs(interval);
    retry_each_second(socket);
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, interval)?;
    sockopt::set_tcp_keepintvl(socket, interval)?;
    sockopt::set_tcp_keepcnt(socket, PROBES)?;
    sockopt::set_tcp_user_timeout(socket, silence.as_millis() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_transport::outage::longest_pause;

    #[test]
    fn a_silence_may_be_of_any_length() {
        let any = socket(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        for silence in [Duration::ZERO, Duration::from_secs(1 << 20), Duration::MAX] {
            keep_alive(&any, silence).unwrap_or_else(|errno| panic!("{silence:?}: {errno}"));
        }
        // What is lost is sent again often enough to come through before the silence is over.
        assert!(longest_pause(&any).is_none_or(|pause| pause == 1000));
    }
}
