//! Network namespaces as hosts: each has an Ethernet device, an address of its own and no way to others but a bridge.
//!
//! What runs in one shares no abstract Unix socket, no loopback and no port with the others, so that only what crosses
//! the bridge can have got from one host to another, and the devices' counters say how much did. Each host has its own
//! `ANTIPHON_HOSTID`. Needs root and `ip` (iproute2); [`Network::build`] says so where either is missing.
//!
//! Dropping a network kills what still runs in it and takes its namespaces away, devices included. Namespaces of a test
//! process that was itself killed go when the next network is built.

mod process;
mod strangers;
mod tap;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub use process::{Finished, Process};
pub use strangers::{listening_ports, pester};
pub use tap::{Beginning, Tap, replay};

/// Names of all namespaces made here begin with this, the process id of their maker and a number.
const PREFIX: &str = "antiphon-net-";

/// Some hosts and the bridge between them.
#[derive(Debug)]
pub struct Network {
    /// The namespace that holds the bridge.
    switch: String,
    hosts: Vec<String>,
}

/// What a host's device has moved, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// To the host.
    pub received: u64,
    /// From the host.
    pub sent: u64,
}

impl Network {
    /// Joins `hosts` hosts (at most 200) by a bridge.
    ///
    /// # Errors
    /// Why this machine cannot: for a test to print as the reason for skipping.
    pub fn build(hosts: usize) -> Result<Network, String> {
        static BUILT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root".to_owned());
        }
        remove_orphans();
        let number = BUILT.fetch_add(1, Ordering::Relaxed);
        let name = |what: &str| format!("{PREFIX}{}-{number}-{what}", std::process::id());
        // Complete before the first is made, so that dropping it takes away whatever was made.
        let network = Network {
            switch: name("switch"),
            hosts: (0..hosts).map(|host| name(&host.to_string())).collect(),
        };
        let switch = &network.switch;
        ip(&["netns", "add", switch])?;
        ip(&["-n", switch, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", switch, "link", "set", "bridge", "up"])?;
        for (number, host) in network.hosts.iter().enumerate() {
            let port = format!("port{number}");
            ip(&["netns", "add", host])?;
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

    /// A host's IPv4 address; it is `fd77::` and its number plus one as well.
    pub fn address(&self, host: usize) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 77, 0, host as u8 + 1))
    }

    /// A command that will run on a host.
    pub fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        // `ip` becomes the program: the child's process id is the program's.
        command.args(["netns", "exec", &self.hosts[host], program]);
        command.env("ANTIPHON_HOSTID", format!("host {host}")).stdin(Stdio::null());
        command
    }

    /// Does something on a host, on a thread of its own; sockets opened there belong to the host for ever.
    ///
    /// # Panics
    /// If the namespace cannot be entered, or `what` panics.
    pub fn on<T: Send>(&self, host: usize, what: impl FnOnce() -> T + Send) -> T {
        let place = PathBuf::from("/run/netns").join(&self.hosts[host]);
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
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix("eth0:"));
        let numbers: Vec<u64> = line
            .expect("the device")
            .split_whitespace()
            .map(|number| number.parse().expect("a number"))
            .collect();
        Traffic { received: numbers[0], sent: numbers[8] }
    }

    /// Cuts a host off, as a pulled cable does: nobody gets a word of goodbye.
    ///
    /// # Panics
    /// If `ip` fails.
    pub fn cut(&self, host: usize) {
        let port = format!("port{host}");
        ip(&["-n", &self.switch, "link", "set", &port, "down"]).expect("to cut the link");
    }

    /// The processes that run on the hosts.
    pub fn processes(&self) -> Vec<i32> {
        let pids = |host: &String| {
            let output = Command::new("ip").args(["netns", "pids", host]).output();
            let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            let text = text.unwrap_or_default();
            text.lines().filter_map(|line| line.trim().parse().ok()).collect::<Vec<i32>>()
        };
        self.hosts.iter().flat_map(pids).collect()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for pid in self.processes() {
            // Never this process: `on` joins its threads.
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        for name in self.hosts.iter().chain([&self.switch]) {
            // Some may not have been made yet.
            let _ = ip(&["netns", "del", name]);
        }
    }
}

/// Takes away the namespaces of makers that are dead.
fn remove_orphans() {
    for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let maker = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let dead = |pid: &str| !PathBuf::from("/proc").join(pid).exists();
        if maker.is_some_and(dead) {
            // Another test process may be at it, too.
            let _ = ip(&["netns", "del", &name]);
        }
    }
}

/// Runs `ip`; what it says where it fails.
fn ip(arguments: &[&str]) -> Result<(), String> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "there is no `ip`; install iproute2".to_owned(),
        _ => format!("cannot run ip: {error}"),
    };
    let Output { status, stderr, .. } =
        Command::new("ip").args(arguments).output().map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&stderr);
    Err(format!("`ip {}` failed: {}", arguments.join(" "), said.trim()))
}

#[cfg(test)]
mod tests;
