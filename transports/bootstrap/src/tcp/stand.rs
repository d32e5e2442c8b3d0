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
        if address.is_ipv6() && address.ip().is_unspecified() {
            // Of IPv4, too, whatever the host's settings say. Where that cannot be, IPv6 is what there is.
            let _ = sockopt::set_ipv6_v6only(&socket, false);
        }
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
    // The port that it happens to get may be the one at which rank 0 will listen.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// How a connection that was begun ended; `NOTCONN` where it has not.
pub(super) fn outcome(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::socket_error(socket)??;
    if remote(socket)? != local(socket)? {
        return Ok(());
    }
    // Where nobody listens, a connection that got that very port is with itself. It must not hold the port when it is closed.
    sockopt::set_socket_linger(socket, Some(Duration::ZERO))?;
    Err(Errno::CONNREFUSED)
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
    use rustix::event::{PollFd, PollFlags};

    #[test]
    fn a_connection_with_itself_is_none_and_leaves_the_port_free() {
        let caller = socket(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        rustix::net::bind(&caller, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = local(&caller).unwrap();
        let _ = rustix::net::connect(&caller, &address);
        let mut waiting = [PollFd::new(&caller, PollFlags::OUT)];
        assert_eq!(rustix::event::poll(&mut waiting, None), Ok(1));
        assert_eq!(remote(&caller).unwrap(), address);
        assert_eq!(outcome(&caller), Err(Errno::CONNREFUSED));
        drop(caller);
        listen(address).unwrap();
    }

    #[test]
    fn who_listens_everywhere_hears_both_families_whatever_the_host_prefers() {
        let skip = |error: std::io::Error| {
            let needed = std::env::var_os("ANTIPHON_NEEDS_NAMESPACES").is_some();
            assert!(!needed, "no host that keeps families apart: {error}");
            println!("SKIP a host that keeps families apart: {error}");
        };
        let test = move || {
            // SAFETY: a network of this thread's own, where nothing else is.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return skip(std::io::Error::last_os_error());
            }
            if let Err(error) = std::fs::write("/proc/sys/net/ipv6/bindv6only", "1") {
                return skip(error);
            }
            let everywhere = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0));
            assert_eq!(sockopt::ipv6_v6only(socket(everywhere).unwrap()), Ok(true));
            let (listener, _) = listen(everywhere).unwrap();
            assert_eq!(sockopt::ipv6_v6only(listener), Ok(false));
        };
        std::thread::spawn(test).join().unwrap();
    }

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
