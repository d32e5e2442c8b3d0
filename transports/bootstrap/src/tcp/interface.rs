//! Which of this host's addresses a rank shows to the others.

use std::net::IpAddr;

use antiphon_transport::interface::{self, find, interfaces};
use rustix::io::Errno;

use crate::error::{BootstrapError, Result};

fn unlisted(error: std::io::Error) -> BootstrapError {
    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
    BootstrapError::Os { doing: "list the network interfaces", errno }
}

/// The address that an interface name, an address, or an address prefix (`10.1.0.0/16`, `10.1.`) stands for.
///
/// # Errors
/// `NoInterface` with those that there are; `Os` where the kernel does not list them.
pub(super) fn address_of(asked: &str) -> Result<IpAddr> {
    let all = interfaces().map_err(unlisted)?;
    find(&all, asked).ok_or_else(|| {
        let known = interface::list(&all);
        BootstrapError::NoInterface { asked: asked.to_owned(), known }
    })
}

/// An address of this host that others are likely to reach.
///
/// # Errors
/// `Os` where the kernel does not list the interfaces.
pub(super) fn default_address() -> Result<IpAddr> {
    interface::default_address().map_err(unlisted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_interface_lists_those_of_this_host() {
        assert!(address_of("127.0.0.1").unwrap().is_loopback());
        let error = address_of("no-such-interface").unwrap_err().to_string();
        assert!(
            error.contains("\"no-such-interface\"") && error.contains("(127.0.0.1)"),
            "{error}"
        );
        assert!(!default_address().unwrap().is_unspecified());
    }
}
