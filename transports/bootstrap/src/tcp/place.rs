//! Where a job's ranks meet.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use super::interface;
use super::secret::Secret;
use super::{keeper, stand};
use crate::error::{BootstrapError, Result};
use crate::key::spread;
use crate::sync::hex;

/// Where a job's ranks meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Rank 0 listens at this host (an IP address or a name) and port; all ranks know both.
    Address {
        /// An IP address or a host name.
        host: String,
        /// The port, not 0.
        port: u16,
    },
    /// A file that all ranks can reach: rank 0 writes its address there, and takes the file away once the job has formed.
    File(PathBuf),
    /// An id that a process made for the job: that of rank 0, or another one.
    Id(UniqueId),
}

impl Place {
    /// Reads `host:port`, `[v6 address]:port`, either with `interface:` before it, `file:path`, or the text of a
    /// [`UniqueId`]. Returns the interface apart.
    ///
    /// # Errors
    /// `BadPlace` with what is wrong.
    pub fn parse(text: &str) -> Result<(Place, Option<String>)> {
        let bad = |problem: &str| BootstrapError::BadPlace {
            text: if text.contains(PREFIX) { SHOWN.to_owned() } else { text.to_owned() },
            problem: format!(
                "{problem}; write host:port, [v6 address]:port or interface:host:port"
            ),
        };
        if let Some(path) = text.strip_prefix("file:") {
            return match path {
                "" => Err(bad("it names no file")),
                path => Ok((Place::File(path.into()), None)),
            };
        }
        if text.trim_start().starts_with(PREFIX) {
            return Ok((Place::Id(text.parse()?), None));
        }
        let (front, port) = text.rsplit_once(':').ok_or_else(|| bad("it has no port"))?;
        let port: u16 = port.parse().map_err(|_| bad("its port is not a number up to 65535"))?;
        if port == 0 {
            return Err(bad("port 0 is none that all ranks could know"));
        }
        let (interface, host) = match front.strip_suffix(']') {
            Some(front) => {
                let (before, host) = front.split_once('[').ok_or_else(|| bad("']' without '['"))?;
                let interface = match before.strip_suffix(':') {
                    Some(interface) => Some(interface),
                    None if before.is_empty() => None,
                    None => return Err(bad("there is no ':' before '['")),
                };
                // A link's address may have the name of an interface behind it.
                let bare = host.split_once('%').map_or(host, |(bare, _)| bare);
                match bare.parse() {
                    Ok(IpAddr::V6(ip)) if ip.is_unicast_link_local() => {
                        return Err(bad("a link-local address means nothing on another host"));
                    }
                    Ok(IpAddr::V6(_)) if bare == host => {}
                    _ => return Err(bad("between the brackets is no IPv6 address")),
                }
                (interface, host)
            }
            None => match front.split_once(':') {
                Some((_, host)) if host.contains(':') => {
                    return Err(bad("an IPv6 address needs brackets"));
                }
                Some((interface, host)) => (Some(interface), host),
                None => (None, front),
            },
        };
        if host.is_empty() || interface == Some("") {
            return Err(bad("a part of it is empty"));
        }
        let place = Place::Address { host: host.to_owned(), port };
        Ok((place, interface.map(str::to_owned)))
    }
}

impl Place {
    /// Whether it is for ranks of one host: the loopback, by its own name or address.
    pub(super) fn is_loopback(&self) -> bool {
        match self {
            Place::Address { host, .. } => {
                let ip = host.parse().map(|ip: IpAddr| ip.to_canonical().is_loopback());
                ip.unwrap_or(host == "localhost")
            }
            Place::File(_) => false,
            Place::Id(id) => id.address.ip().to_canonical().is_loopback(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Address { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Address { host, port } => write!(f, "{host}:{port}"),
            Place::File(path) => write!(f, "file:{}", path.display()),
            // Not the secret.
            Place::Id(id) => write!(f, "{}", id.address),
        }
    }
}

const PREFIX: &str = "antiphon1:";
/// What errors show of an id: its text is a secret, even a torn one.
const SHOWN: &str = "a unique id";

/// An address where the process that made it answers, and the job's secret: everything that a rank needs to join.
///
/// Printed it is one word, which a launcher can pass on. It *is* the secret: pass it only by ways that others cannot read
/// (not as an argument, which every user of a host sees).
#[derive(Clone, PartialEq, Eq)]
pub struct UniqueId {
    pub(super) address: SocketAddr,
    pub(super) secret: Secret,
}

impl UniqueId {
    /// Makes an id: from now on the address is taken, and the control thread of this process answers there, until rank 0 joins
    /// from this process or the job of a rank 0 elsewhere has formed. This process need be no rank, but must run so long.
    /// `interface` is a name, an address or a prefix; without it, the address of the default route is taken.
    ///
    /// # Errors
    /// `NoInterface`; `Network` or `Os` where the kernel gives no port, no random bits or no thread.
    pub fn create(interface: Option<&str>) -> Result<UniqueId> {
        let ip = match interface {
            Some(interface) => interface::address_of(interface)?,
            None => interface::default_address()?,
        };
        let secret = Secret::random()?;
        let (listener, address) = stand::listen(SocketAddr::new(ip, 0))?;
        keeper::keep(address, listener, secret.derive(b"handshake", &[]))?;
        Ok(UniqueId { address, secret })
    }

    /// Where the process that made it answers.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gives the address back where the job will not be formed after all: connections to it are refused from now on.
    pub fn retire(&self) {
        keeper::retire(self.address);
    }
}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.secret.bits().to_vec();
        bytes.extend(self.address.port().to_be_bytes());
        match self.address.ip() {
            IpAddr::V4(ip) => bytes.extend(ip.octets()),
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
        // A copy that lost a character shall be told from another secret.
        let check = spread(&bytes);
        bytes.extend(&check[..4]);
        write!(f, "{PREFIX}{}", hex(&bytes))
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueId({}, ..)", self.address)
    }
}

impl FromStr for UniqueId {
    type Err = BootstrapError;

    fn from_str(text: &str) -> Result<UniqueId> {
        let bad = |problem: &str| BootstrapError::BadPlace {
            text: SHOWN.to_owned(),
            problem: format!("{problem}; pass on the whole text that UniqueId::create gave"),
        };
        let digits = text
            .trim()
            .strip_prefix(PREFIX)
            .ok_or_else(|| bad("it does not begin with antiphon1:"))?;
        let digit = |at: usize| char::from(digits.as_bytes()[at]).to_digit(16);
        let byte = |at: usize| Some((digit(at)? << 4 | digit(at + 1)?) as u8);
        let bytes: Option<Vec<u8>> = if digits.len() % 2 == 0 {
            (0..digits.len()).step_by(2).map(byte).collect()
        } else {
            None
        };
        let bytes =
            bytes.ok_or_else(|| bad("it is not hexadecimal, or has an odd number of digits"))?;
        let torn = || bad("it is incomplete or changed");
        let (content, check) = bytes.split_last_chunk::<4>().ok_or_else(torn)?;
        if spread(content)[..4] != check[..] {
            return Err(torn());
        }
        let (bits, rest) = content.split_first_chunk::<32>().ok_or_else(torn)?;
        let (port, ip) = rest.split_first_chunk::<2>().ok_or_else(torn)?;
        let ip: IpAddr = match (<[u8; 4]>::try_from(ip), <[u8; 16]>::try_from(ip)) {
            (Ok(ip), _) => ip.into(),
            (_, Ok(ip)) => ip.into(),
            _ => return Err(torn()),
        };
        let address = SocketAddr::new(ip, u16::from_be_bytes(*port));
        Ok(UniqueId { address, secret: Secret::new(*bits) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let address = |host: &str, port| Place::Address { host: host.to_owned(), port };
        for (text, place, interface) in [
            ("10.0.0.1:29500", address("10.0.0.1", 29500), None),
            ("head-node:1", address("head-node", 1), None),
            ("[fd00::1]:80", address("fd00::1", 80), None),
            ("eth0:10.0.0.1:29500", address("10.0.0.1", 29500), Some("eth0")),
            ("ib0:[fd00::1]:80", address("fd00::1", 80), Some("ib0")),
            ("file:/shared/a:b", Place::File("/shared/a:b".into()), None),
        ] {
            assert_eq!(Place::parse(text).unwrap(), (place.clone(), interface.map(str::to_owned)));
            if interface.is_none() {
                assert_eq!(place.to_string(), text);
            }
        }
        for (text, problem) in [
            ("", "no port"),
            ("host", "no port"),
            ("host:", "not a number"),
            ("host:65536", "not a number"),
            ("host:0", "port 0"),
            (":80", "empty"),
            ("a::80", "empty"),
            (":h:80", "empty"),
            ("fd00::1:80", "brackets"),
            ("[fd00::1:80", "brackets"),
            ("fd00::1]:80", "without '['"),
            ("x[fd00::1]:80", "no ':' before"),
            ("[10.0.0.1]:80", "no IPv6 address"),
            ("[fd00::1%eth0]:80", "no IPv6 address"),
            ("[fe80::1]:80", "nothing on another host"),
            ("eth0:[fe80::1%eth0]:80", "nothing on another host"),
            ("file:", "no file"),
        ] {
            let error = Place::parse(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text:?}: {error}");
        }
    }

    #[test]
    fn ids_survive_their_text_and_every_damage_is_told() {
        for address in ["10.1.2.3:4567", "[fd00::1]:80"] {
            let id =
                UniqueId { address: address.parse().unwrap(), secret: Secret::new([0xab; 32]) };
            let text = id.to_string();
            assert_eq!(text.parse::<UniqueId>().unwrap(), id);
            for text in [&text, &format!(" {text}\n")] {
                assert_eq!(Place::parse(text).unwrap(), (Place::Id(id.clone()), None));
            }
            let elsewhere = Place::parse(&format!("eth0:{text}")).unwrap_err().to_string();
            assert!(!elsewhere.contains("abab"), "{elsewhere}");
            assert!(!format!("{id:?} {}", Place::Id(id.clone())).contains("abab"));
            for cut in 0..text.len() {
                let error = text[..cut].parse::<UniqueId>().unwrap_err().to_string();
                assert!(!error.contains("abab"), "{error}");
            }
            for at in 0..text.len() {
                let mut bad = text.clone().into_bytes();
                bad[at] = if bad[at] == b'0' { b'1' } else { b'0' };
                assert!(String::from_utf8(bad).unwrap().parse::<UniqueId>().is_err());
            }
            assert!(text.replace('a', "é").parse::<UniqueId>().is_err());
        }
    }
}
