//! Those who knock at ports that are not theirs.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

/// Longest that a port may take to answer the call.
const LIMIT: Duration = Duration::from_secs(2);

/// The TCP ports that something listens at on the host of this thread: call it by
/// [`Network::on`](super::Network::on).
pub fn listening_ports() -> Vec<u16> {
    const LISTEN: &str = "0A";
    let mut ports = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{table}"));
        for line in text.unwrap_or_default().lines().skip(1) {
            let mut fields = line.split_whitespace().skip(1);
            let (local, state) = (fields.next().unwrap_or_default(), fields.nth(1));
            let port = local.rsplit_once(':').map(|(_, port)| u16::from_str_radix(port, 16));
            if let (Some(LISTEN), Some(Ok(port))) = (state, port) {
                ports.push(port);
            }
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Does to a port what scanners do: a silent connection, and some that send garbage: text of other protocols, zeros, a
/// flood. Returns those connections that could be made; while they are held, the other side has to put up with them.
pub fn pester(host: IpAddr, port: u16) -> Vec<TcpStream> {
    let flood = vec![0xa5; 1 << 20];
    let words: [&[u8]; 5] =
        [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-scan\r\n", &[0; 512], &flood];
    let mut held = Vec::new();
    for word in words {
        let Ok(mut socket) = TcpStream::connect_timeout(&SocketAddr::new(host, port), LIMIT) else {
            continue;
        };
        // The other side may close at any byte.
        let _ = socket.set_write_timeout(Some(LIMIT)).and_then(|()| socket.write_all(word));
        held.push(socket);
    }
    held
}
