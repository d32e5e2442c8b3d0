//! Host names, looked up beside whoever wants to know: the system's resolver takes as long as it likes, and cannot be told to stop.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Instant;

/// A host's addresses, or why they are not known.
type Found = io::Result<Vec<SocketAddr>>;

/// A name that is being looked up. Its thread ends when the resolver has done, whether or not somebody still wants to know.
pub(crate) struct Lookup(Receiver<Found>);

impl Lookup {
    /// Begins to look up a host. An address is known at once, and needs no thread.
    pub fn begin(host: &str, port: u16) -> Lookup {
        if let Ok(ip) = host.parse::<IpAddr>() {
            let (tell, told) = mpsc::channel();
            let _ = tell.send(Ok(vec![SocketAddr::new(ip, port)]));
            return Lookup(told);
        }
        let host = host.to_owned();
        Lookup::by(move || Ok((&*host, port).to_socket_addrs()?.collect()))
    }

    /// Begins to look something up by a resolver.
    pub fn by(resolve: impl FnOnce() -> Found + Send + 'static) -> Lookup {
        let (tell, told) = mpsc::channel();
        let teller = tell.clone();
        let thread = thread::Builder::new().name("antiphon-lookup".to_owned());
        if let Err(error) = thread.spawn(move || drop(teller.send(resolve()))) {
            let _ = tell.send(Err(error));
        }
        Lookup(told)
    }

    /// What was found, if that is known by then.
    pub fn wait(&self, until: Instant) -> Option<Found> {
        match self.0.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(found) => Some(found),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(Err(io::Error::other("the resolver has ended without an answer")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn addresses_are_known_at_once_and_names_when_the_resolver_has_done() {
        for (host, address) in [("127.0.0.1", "127.0.0.1:7"), ("::1", "[::1]:7")] {
            let found = Lookup::begin(host, 7).wait(Instant::now()).unwrap().unwrap();
            assert_eq!(found, [address.parse().unwrap()]);
        }
        let (answer, answers) = mpsc::channel();
        let slow = Lookup::by(move || answers.recv().map_err(io::Error::other));
        assert!(slow.wait(Instant::now()).is_none());
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        answer.send(vec![address]).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        assert_eq!(slow.wait(until).unwrap().unwrap(), [address]);
        assert!(Lookup::by(|| panic!("no resolver")).wait(until).unwrap().is_err());
    }
}
