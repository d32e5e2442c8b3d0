//! The network interface that the environment asks for.

use antiphon_transport::interface::{Interface, interfaces, list};
use rustix::io::Errno;

use super::{Environment, Result};
use crate::error::BootstrapError;

/// NCCL's variable, which has a grammar of its own.
const OF_NCCL: &str = "NCCL_SOCKET_IFNAME";

impl Environment {
    /// The network interface asked for, by its name, an address or an address prefix: what `ANTIPHON_INTERFACE` says, else
    /// `MSCCLPP_SOCKET_IFNAME`; else the name of the first that `NCCL_SOCKET_IFNAME` means, which counts as unset where it lists
    /// nothing (`^`).
    ///
    /// # Errors
    /// `Bootstrap` where `NCCL_SOCKET_IFNAME` means none that is up, with those that there are, or where the kernel does not list
    /// them.
    pub fn interface(&self) -> Result<Option<String>> {
        if let Some(named) = self.own_interface() {
            return Ok(Some(named));
        }
        let Some(asked) = self.get(OF_NCCL) else { return Ok(None) };
        if parts(asked).2.is_empty() {
            return Ok(None);
        }
        let all = interfaces().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            BootstrapError::Os { doing: "list the network interfaces", errno }
        })?;
        match meant(asked, &all) {
            Some(name) => Ok(Some(name.to_owned())),
            None => {
                let (asked, known) = (format!("{OF_NCCL}={asked}"), list(&all));
                Err(BootstrapError::NoInterface { asked, known }.into())
            }
        }
    }

    /// What `ANTIPHON_INTERFACE` says, else `MSCCLPP_SOCKET_IFNAME`.
    pub(super) fn own_interface(&self) -> Option<String> {
        let first = self.first(&["ANTIPHON_INTERFACE", "MSCCLPP_SOCKET_IFNAME"]);
        first.map(|(_, value)| value.to_owned())
    }
}

/// The first interface that NCCL's list means: the names that begin with one of its parts, those that are one after `=`, and all
/// others after `^` or `^=`. The loopback is among those others only where there is nothing else.
fn meant<'a>(asked: &str, all: &'a [Interface]) -> Option<&'a str> {
    let (others, whole, parts) = parts(asked);
    let listed = |one: &Interface| {
        let is = |part: &&str| if whole { one.name == **part } else { one.name.starts_with(part) };
        parts.iter().any(is)
    };
    let mut suiting = all.iter().filter(|one| listed(one) != others);
    let first = suiting.clone().find(|one| !(others && one.address.is_loopback()));
    first.or_else(|| suiting.next()).map(|one| one.name.as_str())
}

/// NCCL's list: whether it means all others, whether its parts are whole names, and its parts.
fn parts(asked: &str) -> (bool, bool, Vec<&str>) {
    let (others, asked) = stripped(asked, '^');
    let (whole, asked) = stripped(asked, '=');
    let parts = asked.split(',').map(str::trim).filter(|part| !part.is_empty());
    (others, whole, parts.collect())
}

fn stripped(text: &str, sign: char) -> (bool, &str) {
    text.strip_prefix(sign).map_or((false, text), |rest| (true, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_named_as_nccl_names_them() {
        let all = [
            ("lo", "127.0.0.1"),
            ("docker0", "172.17.0.1"),
            ("eth0", "10.0.0.2"),
            ("eth01", "10.1.0.2"),
            ("ib0", "10.2.0.2"),
        ];
        let all = all.map(|(name, address)| Interface {
            name: name.to_owned(),
            address: address.parse().unwrap(),
        });
        for (asked, expected) in [
            ("eth", Some("eth0")),
            ("=eth01", Some("eth01")),
            ("=eth", None),
            ("ib,eth", Some("eth0")),
            ("=wlan0,ib0", Some("ib0")),
            ("lo", Some("lo")),
            ("^docker", Some("eth0")),
            ("^docker,eth", Some("ib0")),
            ("^=eth0,docker0", Some("eth01")),
            ("^docker,eth,ib", Some("lo")),
            ("^docker,eth,ib,lo", None),
            ("wlan", None),
        ] {
            assert_eq!(meant(asked, &all), expected, "{asked}");
        }
    }

    #[test]
    fn variables_name_an_interface_in_their_order() {
        let asked = |pairs: &[(&str, &str)]| -> Result<Option<String>> {
            pairs.iter().copied().collect::<Environment>().interface()
        };
        let own = ("ANTIPHON_INTERFACE", "10.1.");
        let (mscclpp, nccl) = (("MSCCLPP_SOCKET_IFNAME", "ib0"), (OF_NCCL, "=lo"));
        assert_eq!(asked(&[own, mscclpp, nccl]).unwrap().as_deref(), Some("10.1."));
        assert_eq!(asked(&[mscclpp, nccl]).unwrap().as_deref(), Some("ib0"));
        assert_eq!(asked(&[nccl]).unwrap().as_deref(), Some("lo"));
        assert_eq!(asked(&[]).unwrap(), None);
        for nothing in ["^", "=", "^=", ",", "^ , ,"] {
            assert_eq!(asked(&[(OF_NCCL, nothing)]).unwrap(), None, "{nothing}");
        }
        let refused = asked(&[(OF_NCCL, "=no-such-interface")]).unwrap_err().to_string();
        assert!(
            refused.contains("NCCL_SOCKET_IFNAME==no-such-interface") && refused.contains("lo ("),
            "{refused}"
        );
    }
}
