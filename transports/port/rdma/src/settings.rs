//! What people may set.

use crate::choose::filter::{Filter, Selector};
use crate::flow::{MAX_LANES, Order};

/// The settings of an end. docs/rdma.md has the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaSettings {
    /// Which ports.
    pub selector: Selector,
    /// The entry of their address tables (`ANTIPHON_GID_INDEX`).
    pub gid_index: Option<u8>,
    /// How many ports a link uses at most (`ANTIPHON_RDMA_LANES`). More than one relies on more than RDMA promises: that one
    /// port's writes are seen before what another port writes after the first's completions.
    pub lanes: usize,
    /// Requests that a queue holds (`ANTIPHON_RDMA_DEPTH`).
    pub depth: u32,
    /// What signals rely on (`ANTIPHON_RDMA_ORDER`).
    pub order: Order,
    /// How signals travel (`ANTIPHON_RDMA_SIGNAL`).
    pub signal: SignalBy,
    /// An unanswered packet is sent again after 4.096 µs times two to this power (`ANTIPHON_RDMA_TIMEOUT`).
    pub timeout: u8,
    /// So many times (`ANTIPHON_RDMA_RETRIES`).
    pub retries: u8,
    /// The traffic class of RoCE packets (`ANTIPHON_RDMA_TRAFFIC_CLASS`).
    pub traffic_class: u8,
    /// The service level (`ANTIPHON_RDMA_SERVICE_LEVEL`).
    pub service_level: u8,
}

/// How a signal travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalBy {
    /// As a write with immediate data: it also wakes who sleeps at the receiver.
    Immediate,
    /// As a plain write, which the receiver must look for. For devices without immediate data.
    Write,
}

impl RdmaSettings {
    /// Settings from the environment, and from what the communicator asks for: an interface, an address, a prefix, or a list
    /// of devices. A list of devices in the environment comes before that.
    ///
    /// # Errors
    /// The setting that makes no sense: operation, what was seen, what is allowed.
    pub fn parse(
        interface: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, (String, String)> {
        let number = |name: &str, default: u32, least: u32, most: u32| {
            let Some(text) = variable(name) else { return Ok(default) };
            let value = text.trim().parse::<u32>().ok();
            value
                .filter(|value| (least..=most).contains(value))
                .ok_or_else(|| (format!("{name}={text}"), format!("{least} to {most}")))
        };
        let list = variable("ANTIPHON_HCA").unwrap_or_default();
        let filter = Filter::parse(&list)
            .map_err(|fault| (format!("ANTIPHON_HCA={list}"), format!("no {fault}")))?;
        let gid_index = match variable("ANTIPHON_GID_INDEX") {
            Some(_) => Some(number("ANTIPHON_GID_INDEX", 0, 0, 255)? as u8),
            None => None,
        };
        let order = match variable("ANTIPHON_RDMA_ORDER").as_deref().map(str::trim) {
            None | Some("network") => Order::Network,
            Some("completions") => Order::Completions,
            Some(other) => {
                let saw = format!("ANTIPHON_RDMA_ORDER={other}");
                return Err((saw, "network or completions".to_owned()));
            }
        };
        let signal = match variable("ANTIPHON_RDMA_SIGNAL").as_deref().map(str::trim) {
            None | Some("immediate") => SignalBy::Immediate,
            Some("write") => SignalBy::Write,
            Some(other) => {
                let saw = format!("ANTIPHON_RDMA_SIGNAL={other}");
                return Err((saw, "immediate or write".to_owned()));
            }
        };
        Ok(RdmaSettings {
            signal,
            selector: selector(interface, filter),
            gid_index,
            lanes: number("ANTIPHON_RDMA_LANES", 1, 1, MAX_LANES as u32)? as usize,
            depth: number("ANTIPHON_RDMA_DEPTH", 256, 8, 8192)?,
            order,
            timeout: number("ANTIPHON_RDMA_TIMEOUT", 16, 1, 31)? as u8,
            // Not 7, which the kernel's software device takes to mean for ever.
            retries: number("ANTIPHON_RDMA_RETRIES", 6, 0, 7)? as u8,
            traffic_class: number("ANTIPHON_RDMA_TRAFFIC_CLASS", 0, 0, 255)? as u8,
            service_level: number("ANTIPHON_RDMA_SERVICE_LEVEL", 0, 0, 15)? as u8,
        })
    }
}

/// A list of devices beats an interface: interfaces are also what other wires choose by.
fn selector(interface: Option<&str>, filter: Filter) -> Selector {
    match (filter, interface) {
        (Filter::Any, Some(text)) => match text.parse() {
            Ok(address) => Selector::Address(address),
            Err(_) => Selector::Interface(text.to_owned()),
        },
        (filter, _) => Selector::Ports(filter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(pairs: &[(&str, &str)]) -> Result<RdmaSettings, (String, String)> {
        RdmaSettings::parse(None, |name| {
            pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn settings_are_read_and_bounded() {
        let settings = parsed(&[
            ("ANTIPHON_GID_INDEX", "3"),
            ("ANTIPHON_RDMA_DEPTH", "64"),
            ("ANTIPHON_RDMA_ORDER", "completions"),
        ])
        .expect("they are sound");
        assert_eq!((settings.gid_index, settings.depth), (Some(3), 64));
        assert_eq!(settings.order, Order::Completions);
        for (name, value) in [
            ("ANTIPHON_GID_INDEX", "-1"),
            ("ANTIPHON_GID_INDEX", "256"),
            ("ANTIPHON_RDMA_DEPTH", "7"),
            ("ANTIPHON_RDMA_ORDER", "luck"),
            ("ANTIPHON_RDMA_SIGNAL", "smoke"),
            ("ANTIPHON_RDMA_RETRIES", "8"),
            ("ANTIPHON_HCA", "mlx5_0:x"),
        ] {
            let (saw, _) = parsed(&[(name, value)]).expect_err(name);
            assert_eq!(saw, format!("{name}={value}"));
        }
    }

    #[test]
    fn a_list_of_devices_beats_an_interface() {
        let with = |interface, list: &'static str| {
            RdmaSettings::parse(Some(interface), |name| {
                (name == "ANTIPHON_HCA").then(|| list.to_owned())
            })
            .expect("sound")
            .selector
            .to_string()
        };
        assert_eq!(with("eth0", ""), "interface eth0");
        assert_eq!(with("fe80::1", ""), "address fe80::1");
        assert_eq!(with("eth0", "mlx5_0"), "mlx5_0");
    }
}
