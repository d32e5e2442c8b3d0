//! An eavesdropper on a host's cable, and what it can do with what it heard.

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The first bytes of a connection that are kept: more than any handshake has.
const KEPT: usize = 256;
/// How long a listener may take to answer what was replayed to it.
const ANSWER: Duration = Duration::from_secs(2);

/// How a connection began, on the caller's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// Whom it called.
    pub to: SocketAddr,
    /// What it said first.
    pub said: Vec<u8>,
}

/// A copy of whatever passes a host's devices.
#[derive(Debug)]
pub struct Tap(OwnedFd);

impl Tap {
    /// Listens on the host of this thread: to be called by [`Network::on`](super::Network::on).
    ///
    /// # Errors
    /// Why the system does not allow it.
    pub fn open() -> rustix::io::Result<Tap> {
        let kind = (AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::CLOEXEC);
        let socket = socket_with(kind.0, kind.1, kind.2, Some(eth::ALL))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(20)))?;
        Ok(Tap(socket))
    }

    /// How the connections over IPv4 began that were made until `done`.
    pub fn beginnings(&self, done: impl Fn() -> bool) -> Vec<Beginning> {
        let mut calls: HashMap<[SocketAddr; 2], Call> = HashMap::new();
        let mut packet = [0; 256 + KEPT];
        while !done() {
            let Ok((bytes, _)) = recv(&self.0, &mut packet, RecvFlags::empty()) else { continue };
            let Some(segment) = Segment::read(&packet[..bytes]) else { continue };
            if segment.opens {
                let call = Call { first: segment.sequence.wrapping_add(1), said: Vec::new() };
                calls.insert(segment.ends, call);
            } else if let Some(call) = calls.get_mut(&segment.ends) {
                let at = segment.sequence.wrapping_sub(call.first) as usize;
                // What comes twice, or out of turn, is not needed.
                if at == call.said.len() && at < KEPT {
                    call.said.extend(segment.bytes);
                    call.said.truncate(KEPT);
                }
            }
        }
        let said = calls.into_iter().filter(|(_, call)| !call.said.is_empty());
        said.map(|([_, to], Call { said, .. })| Beginning { to, said }).collect()
    }
}

/// A caller's side of a connection.
struct Call {
    /// The sequence number of its first byte.
    first: u32,
    said: Vec<u8>,
}

/// What matters of a TCP segment over IPv4.
struct Segment<'a> {
    ends: [SocketAddr; 2],
    sequence: u32,
    /// It is a caller's first.
    opens: bool,
    bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    fn read(packet: &'a [u8]) -> Option<Self> {
        const TCP: u8 = 6;
        let head = packet.first()? & 0x0f;
        if packet[0] >> 4 != 4 || *packet.get(9)? != TCP {
            return None;
        }
        let address = |at: usize| {
            let bytes = packet.get(at..at + 4)?.first_chunk::<4>()?;
            Some(IpAddr::V4(Ipv4Addr::from(*bytes)))
        };
        let (from, to) = (address(12)?, address(16)?);
        let total = u16::from_be_bytes(*packet.get(2..4)?.first_chunk()?) as usize;
        let whole = if total == 0 { packet.len() } else { total.min(packet.len()) };
        let segment = packet.get(usize::from(head) * 4..whole)?;
        let port = |at: usize| {
            let bytes = segment.get(at..at + 2)?.first_chunk::<2>()?;
            Some(u16::from_be_bytes(*bytes))
        };
        let ends = [SocketAddr::new(from, port(0)?), SocketAddr::new(to, port(2)?)];
        let sequence = u32::from_be_bytes(*segment.get(4..8)?.first_chunk()?);
        let (offset, flags) = (*segment.get(12)? >> 4, *segment.get(13)?);
        // SYN without ACK.
        let opens = flags & 0x12 == 0x02;
        let bytes = segment.get(usize::from(offset) * 4..)?;
        Some(Segment { ends, sequence, opens, bytes })
    }
}

/// Says to a port what somebody else said there or elsewhere: all that it answers before it closes the connection, or in two
/// seconds. `None` if it cannot be reached.
pub fn replay(said: &[u8], to: SocketAddr) -> Option<Vec<u8>> {
    let mut socket = TcpStream::connect_timeout(&to, ANSWER).ok()?;
    socket.set_read_timeout(Some(ANSWER)).ok()?;
    // The other side may close at any byte.
    let _ = socket.write_all(said);
    let mut answer = Vec::new();
    let mut some = [0; 1024];
    loop {
        match socket.read(&mut some) {
            Ok(0) => return Some(answer),
            Ok(bytes) => answer.extend(&some[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // It was reset, or nothing more comes.
            Err(_) => return Some(answer),
        }
    }
}
