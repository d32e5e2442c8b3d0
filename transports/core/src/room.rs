//! Whether a process has room for another descriptor: a connection that it lacks one for says nothing of the other end.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Whether an error says that this process, or its host, has no room for another descriptor.
pub fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
}

/// Whether somebody waits at a listener whom an error of accepting keeps out for want of room. The system reports the want
/// before it looks whether anybody is there.
pub fn keeps_out(listener: &OwnedFd, errno: Errno) -> bool {
    let mut waiting = [PollFd::new(listener, PollFlags::IN)];
    is_full(errno) && poll(&mut waiting, Some(&Timespec::default())) == Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn only_who_waits_is_kept_out_and_only_for_want_of_room() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = OwnedFd::from(listener);
        assert!(!keeps_out(&listener, Errno::MFILE), "nobody is there");
        let _guest = TcpStream::connect(address).unwrap();
        assert!(keeps_out(&listener, Errno::MFILE));
        assert!(!keeps_out(&listener, Errno::CONNABORTED));
    }
}
