//! Network namespaces as hosts: each has an Ethernet device, an address of its own and no way to others but a bridge.
//!
//! What runs in one shares no abstract Unix socket, no loopback and no port with the others, so that only what crosses
//! the bridge can have got from one host to another, and the devices' counters say how much did. Each host has its own
//! `ANTIPHON_HOSTID`. Needs root and `ip` (iproute2); [`Network::build`] says so where either is missing. A test is skipped there, or
//! fails, if `ANTIPHON_NEEDS_NAMESPACES` is set.
//!
//! When a network is dropped, or the process that made it is killed, what still runs in it is ended, and its namespaces go,
//! devices included.

mod namespaces;
mod process;
mod strangers;
mod tap;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub use namespaces::{Namespaces, Traffic, ip, traffic};
pub use process::{Finished, Process};
pub use strangers::{listening_ports, pester};
pub use tap::{Beginning, Tap, replay};

/// Names of all namespaces made here begin with this, the process id of their maker and a number.
const PREFIX: &str = "antiphon-net-";

/// Says why `what` is skipped where there are no namespaces; fails where there have to be.
pub fn skip(what: &str, reason: &str) {
    let needed = std::env::var_os("ANTIPHON_NEEDS_NAMESPACES").is_some();
    assert!(!needed, "{what}: ANTIPHON_NEEDS_NAMESPACES is set, but {reason}");
    println!("SKIP {what}: {reason}");
}

/// Some hosts and the bridge between them.
#[derive(Debug)]
pub struct Network {
    /// The one that holds the bridge, and then the hosts.
    namespaces: Namespaces,
}

impl Network {
    /// Joins `hosts` hosts (at most 200) by a bridge.
    ///
    /// # Errors
    /// Why this machine cannot: the reason with which a test [skips](skip).
    pub fn build(hosts: usize) -> Result<Network, String> {
        static BUILT: AtomicU32 = AtomicU32::new(0);
        let number = BUILT.fetch_add(1, Ordering::Relaxed);
        let name = |what: &str| format!("{PREFIX}{}-{number}-{what}", std::process::id());
        let names = (0..hosts).map(|host| name(&host.to_string()));
        let names = std::iter::once(name("switch")).chain(names).collect();
        let network = Network { namespaces: Namespaces::make(names, None)? };
        let switch = network.switch();
        ip(&["-n", switch, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", switch, "link", "set", "bridge", "up"])?;
        for (number, host) in network.hosts().iter().enumerate() {
            let port = format!("port{number}");
            ip(&["-n", host, "link", "set", "lo", "up"])?;
            ip(&[
                "link", "add", "eth0", "netns", host, "type", "veth", "peer", "name", &port,
                "netns", switch,
            ])?;
            ip(&["-n", switch, "link", "set", &port, "master", "bridge", "up"])?;
            ip(&["-n", host, "link", "set", "eth0", "up"])?;
            let v4 = format!("{}/24", network.address(number));
            ip(&["-n", host, "addr", "add", &v4, "dev", "eth0"])?;
            let v6 = format!("fd77::{:x}/64", number + 1);
            // Without the search for duplicates, during which an address cannot be used.
            ip(&["-n", host, "addr", "add", &v6, "dev", "eth0", "nodad"])?;
        }
        Ok(network)
    }

    /// The namespace that holds the bridge.
    fn switch(&self) -> &str {
        &self.namespaces.names()[0]
    }

    /// The hosts' namespaces.
    fn hosts(&self) -> &[String] {
        &self.namespaces.names()[1..]
    }

    /// A host's IPv4 address; it is `fd77::` and its number plus one as well.
    pub fn address(&self, host: usize) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 77, 0, host as u8 + 1))
    }

    /// A command that will run on a host.
    pub fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        // `ip` becomes the program: the child's process id is the program's.
        command.args(["netns", "exec", &self.hosts()[host], program]);
        command.env("ANTIPHON_HOSTID", format!("host {host}")).stdin(Stdio::null());
        command
    }

    /// Does something on a host, on a thread of its own; sockets opened there belong to the host for ever.
    ///
    /// # Panics
    /// If the namespace cannot be entered, or `what` panics.
    pub fn on<T: Send>(&self, host: usize, what: impl FnOnce() -> T + Send) -> T {
        let place = PathBuf::from("/run/netns").join(&self.hosts()[host]);
        std::thread::scope(|scope| {
            let body = || {
                let namespace = std::fs::File::open(&place).expect("the namespace");
                use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
                use std::os::fd::AsFd;
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), kind).expect("to enter it");
                what()
            };
            scope.spawn(body).join().expect("the thread")
        })
    }

    /// What a host's device has moved since the network was built.
    ///
    /// # Panics
    /// If the kernel does not say.
    pub fn traffic(&self, host: usize) -> Traffic {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev");
        let text = self.on(host, read).expect("the devices");
        traffic(&text, "eth0").expect("the device")
    }

    /// Cuts a host off, as a pulled cable does: nobody gets a word of goodbye.
    ///
    /// # Panics
    /// If `ip` fails.
    pub fn cut(&self, host: usize) {
        let port = format!("port{host}");
        ip(&["-n", self.switch(), "link", "set", &port, "down"]).expect("to cut the link");
    }

    /// The processes that run on the hosts.
    pub fn processes(&self) -> Vec<i32> {
        self.namespaces.processes()
    }
}

#[cfg(test)]
mod tests;
