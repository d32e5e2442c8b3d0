//! Where a wire listens: an address of this machine that its peers reach.

use antiphon_transport::interface::{Interface, find, list};
use std::net::IpAddr;

/// The address that is meant, in this order: `wanted`, which names an interface, an address or a prefix; `met`, by which the
/// ranks met, where it is this machine's own; whatever suits, which is the `likely` one.
pub(super) fn choose(
    wanted: Option<&str>,
    met: Option<IpAddr>,
    all: &[Interface],
    likely: impl FnOnce() -> std::io::Result<IpAddr>,
) -> Result<IpAddr, String> {
    let Some(wanted) = wanted else {
        let own = met.filter(|met| all.iter().any(|known| known.address == *met));
        return match own {
            Some(met) => Ok(met),
            None => likely().map_err(|error| format!("the interfaces cannot be listed: {error}")),
        };
    };
    if let Some(address) = find(all, wanted) {
        return Ok(address);
    }
    let bare = wanted.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => {
            Err(format!("{address} is no address that peers reach"))
        }
        Ok(IpAddr::V6(address)) if address.is_unicast_link_local() => {
            Err(format!("{address} means nothing on another machine"))
        }
        // Not every address of a machine is listed: all of 127.0.0.0/8 is its own. Listening tells.
        Ok(address) => Ok(address),
        Err(_) => Err(format!(
            "no interface that is up has the name, address or prefix {wanted}; there are {}",
            list(all)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Vec<Interface> {
        [
            ("lo", "127.0.0.1"),
            ("lo", "::1"),
            ("docker0", "172.17.0.1"),
            ("eth0", "2001:db8::2"),
            ("eth1", "10.0.0.2"),
        ]
        .map(|(name, address)| Interface {
            name: name.to_owned(),
            address: address.parse().unwrap(),
        })
        .to_vec()
    }

    fn chosen(wanted: Option<&str>, met: Option<&str>) -> Result<IpAddr, String> {
        let met = met.map(|met| met.parse().unwrap());
        choose(wanted, met, &machine(), || Ok("172.17.0.1".parse().unwrap()))
    }

    #[test]
    fn names_addresses_prefixes_and_the_meeting_choose_an_address() {
        for (wanted, met, expected) in [
            (None, None, "172.17.0.1"),
            (None, Some("10.0.0.2"), "10.0.0.2"),
            (None, Some("127.0.0.1"), "127.0.0.1"),
            // What others reach it by need not be an address that it has.
            (None, Some("203.0.113.9"), "172.17.0.1"),
            (Some("eth0"), Some("10.0.0.2"), "2001:db8::2"),
            (Some("eth1"), None, "10.0.0.2"),
            (Some("10.0.0.0/8"), None, "10.0.0.2"),
            (Some("10."), None, "10.0.0.2"),
            (Some("lo"), None, "127.0.0.1"),
            (Some("::1"), None, "::1"),
            (Some("[::1]"), None, "::1"),
            (Some("127.0.0.9"), None, "127.0.0.9"),
        ] {
            let address = chosen(wanted, met).unwrap();
            assert_eq!(address, expected.parse::<IpAddr>().unwrap(), "{wanted:?} {met:?}");
        }
    }

    #[test]
    fn what_is_no_address_for_peers_is_refused() {
        for (wanted, text) in [
            ("eth9", "eth9; there are lo (127.0.0.1), lo (::1), docker0 (172.17.0.1)"),
            ("10.9.0.0/16", "prefix 10.9.0.0/16; there are"),
            ("::", ":: is no address"),
            ("fe80::1", "fe80::1 means nothing"),
        ] {
            let error = chosen(Some(wanted), Some("10.0.0.2")).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }
}
