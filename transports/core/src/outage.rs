//! Outages of a network that are shorter than the silence after which a peer is lost.

use std::os::fd::{AsRawFd, OwnedFd};

/// The longest pause between two attempts to get a segment across, in milliseconds; the kernel takes no shorter one.
const PAUSE: libc::c_int = 1000;
/// `TCP_RTO_MAX_MS` of Linux 6.15.
const RTO_MAX: libc::c_int = 44;

/// Has the kernel repeat every second, on a TCP connection, what is not acknowledged. By itself, the kernel doubles the pause
/// each time: after its try at 6 s without a network, the next one is at 12 s, and a connection with a `TCP_USER_TIMEOUT` of 10 s
/// is given up before that, though the network may have been back since 7 s.
///
/// Kernels before 6.15 cannot do this: there a connection survives only outages that are shorter by that much.
pub fn retry_each_second(socket: &OwnedFd) {
    let pause = PAUSE;
    let bytes = size_of_val(&pause) as libc::socklen_t;
    // SAFETY: the value is live, and as long as is said.
    let _ = unsafe {
        let value = (&raw const pause).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, RTO_MAX, value, bytes)
    };
}

/// The longest pause between two attempts on a connection, in milliseconds, where the kernel knows of that.
pub fn longest_pause(socket: &OwnedFd) -> Option<u32> {
    let mut value: libc::c_int = 0;
    let mut bytes = size_of_val(&value) as libc::socklen_t;
    // SAFETY: both are live, and the value as long as is said.
    let answer = unsafe {
        let (value, bytes) = ((&raw mut value).cast(), &raw mut bytes);
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, RTO_MAX, value, bytes)
    };
    u32::try_from(value).ok().filter(|_| answer == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn attempts_follow_each_other_within_a_second_where_the_kernel_can() {
        let socket = OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let before = longest_pause(&socket);
        retry_each_second(&socket);
        // By itself it is two minutes.
        assert_eq!(longest_pause(&socket), before.map(|_| 1000));
        // What is no TCP socket has none, and is left alone.
        let other = OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        retry_each_second(&other);
        assert_eq!(longest_pause(&other), None);
    }
}
