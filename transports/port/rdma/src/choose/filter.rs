//! Lists of devices and ports as people write them: `mlx5_0:1,mlx5_1`, or `^mlx5_2` for all but that.

use std::fmt;
use std::net::IpAddr;

/// What decides which ports are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Names of devices.
    Ports(Filter),
    /// The network interface whose addresses the port carries, by name or address prefix.
    Interface(String),
    /// An address that the port carries.
    Address(IpAddr),
}

/// A list of devices and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Any.
    Any,
    /// These.
    Only(Vec<Name>),
    /// All but these.
    Except(Vec<Name>),
}

/// A device, with or without one of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    device: String,
    port: Option<u8>,
}

impl Filter {
    /// Reads a list.
    ///
    /// # Errors
    /// The item that makes no sense, and what would.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Filter::Any);
        }
        let (except, list) = match text.strip_prefix('^') {
            Some(list) => (true, list),
            None => (false, text),
        };
        let names = list.split(',').map(Name::parse).collect::<Result<Vec<_>, _>>()?;
        Ok(if except { Filter::Except(names) } else { Filter::Only(names) })
    }

    /// Whether a port may be used.
    pub fn admits(&self, device: &str, port: u8) -> bool {
        let listed = |names: &[Name]| {
            names.iter().any(|n| n.device == device && n.port.is_none_or(|p| p == port))
        };
        match self {
            Filter::Any => true,
            Filter::Only(names) => listed(names),
            Filter::Except(names) => !listed(names),
        }
    }
}

impl Name {
    fn parse(text: &str) -> Result<Self, String> {
        let fault = || {
            format!(
                "`{text}`, allowed device or device:port, e.g. mlx5_0 or mlx5_0:1, ports 1 to 255"
            )
        };
        let (device, port) = match text.trim().split_once(':') {
            Some((device, port)) => (device, Some(port)),
            None => (text.trim(), None),
        };
        let sound = device.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
        if device.is_empty() || !sound {
            return Err(fault());
        }
        let port = port.map(|port| port.parse::<u8>().ok().filter(|port| *port > 0));
        match port {
            Some(None) => Err(fault()),
            Some(Some(port)) => Ok(Name { device: device.to_owned(), port: Some(port) }),
            None => Ok(Name { device: device.to_owned(), port: None }),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.device),
            None => f.write_str(&self.device),
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, names) = match self {
            Filter::Any => return f.write_str("any port"),
            Filter::Only(names) => ("", names),
            Filter::Except(names) => ("^", names),
        };
        let names: Vec<_> = names.iter().map(Name::to_string).collect();
        write!(f, "{prefix}{}", names.join(","))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Ports(filter) => filter.fmt(f),
            Selector::Interface(name) => write!(f, "interface {name}"),
            Selector::Address(address) => write!(f, "address {address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_admit_what_they_name() {
        for (list, device, port, admitted) in [
            ("", "mlx5_0", 1, true),
            (" ", "mlx5_0", 2, true),
            ("mlx5_0", "mlx5_0", 2, true),
            ("mlx5_0:1", "mlx5_0", 2, false),
            ("mlx5_0:1,mlx5_1", "mlx5_1", 2, true),
            ("mlx5_0:1, mlx5_1", "mlx5_1", 1, true),
            // A name is a whole name.
            ("mlx5_1", "mlx5_10", 1, false),
            ("^mlx5_1", "mlx5_10", 1, true),
            ("^mlx5_1,mlx5_2:2", "mlx5_2", 1, true),
            ("^mlx5_1,mlx5_2:2", "mlx5_2", 2, false),
            ("^mlx5_1,mlx5_2:2", "mlx5_1", 1, false),
        ] {
            let filter = Filter::parse(list).expect(list);
            assert_eq!(filter.admits(device, port), admitted, "{list}: {device}:{port}");
            let again = Filter::parse(&filter.to_string().replace("any port", "")).expect(list);
            assert_eq!(again, filter);
        }
    }

    #[test]
    fn lists_that_make_no_sense_are_refused_with_the_item() {
        for list in [",", "mlx5_0,", "mlx5_0:0", "mlx5_0:256", "mlx5_0:x", ":1", "^", "a b", "a/b"]
        {
            let fault = Filter::parse(list).expect_err(list);
            assert!(fault.contains("allowed device or device:port"), "{list}: {fault}");
        }
    }
}
