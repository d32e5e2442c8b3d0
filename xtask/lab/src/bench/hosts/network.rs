//! Two network namespaces as two hosts, joined by a pair of virtual Ethernet devices. They go with this process, however it
//! goes, and so does the folder of the run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use antiphon_tests::net::{Namespaces, ip, traffic};

use crate::{Error, Result, repo};

/// The hosts' names, which are also what they call themselves.
pub const HOSTS: [&str; 2] = ["hosta", "hostb"];

/// The network that both addresses are in, as Open MPI takes it.
pub const SUBNET: &str = "10.79.0.0/24";

/// The device of each host that leads to the other.
pub const DEVICE: &str = "veth0";

/// Two hosts.
pub struct Network {
    namespaces: Namespaces,
    folder: PathBuf,
    /// What each host may use of this machine's cores, as `taskset` takes it.
    cores: [String; 2],
}

/// What a host's devices have sent, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// To the other host.
    pub across: u64,
    /// To itself, over the loopback.
    pub within: u64,
}

impl Network {
    /// Makes the hosts. The error says why this machine cannot.
    pub fn build() -> Result<Self> {
        let process = std::process::id();
        let names = HOSTS.map(|host| format!("antiphon-bench-{process}-{host}"));
        let folder = std::env::temp_dir().join(format!("antiphon-bench-hosts-{process}"));
        let cores = share(&cores()?);
        let namespaces = Namespaces::make(names.into(), Some(&folder)).map_err(Error::message)?;
        // From here on, dropping it takes away whatever was made.
        let network = Self { namespaces, folder, cores };
        network.furnish()?;
        Ok(network)
    }

    /// A host's namespace.
    fn name(&self, host: usize) -> &str {
        &self.namespaces.names()[host]
    }

    fn furnish(&self) -> Result<()> {
        let ip = |arguments: &[&str]| ip(arguments).map(drop).map_err(Error::message);
        let (a, b) = (self.name(0), self.name(1));
        ip(&[
            "link", "add", DEVICE, "netns", a, "type", "veth", "peer", "name", DEVICE, "netns", b,
        ])?;
        for (host, name) in self.namespaces.names().iter().enumerate() {
            let address = format!("{}/24", self.address(host));
            ip(&["-n", name, "addr", "add", &address, "dev", DEVICE])?;
            ip(&["-n", name, "link", "set", DEVICE, "up"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        let what = || Error::io(format!("make {}", self.folder.display()));
        fs::create_dir_all(&self.folder).map_err(what())?;
        let agent = self.agent();
        fs::write(&agent, self.agent_script()).map_err(what())?;
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).map_err(what())?;
        repo::capture(
            "give a host a name",
            self.command(1, Path::new("true")).env_clear().env("PATH", path()),
        )
        .map(drop)
    }

    /// A host's address.
    pub fn address(&self, host: usize) -> String {
        format!("10.79.0.{}", host + 1)
    }

    /// A folder for the run's files, that goes with the network.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A command that will run on a host, which has a host name of its own.
    pub fn command(&self, host: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.name(host)]);
        command.args(["taskset", "-c", &self.cores[host], "unshare", "--uts", "sh", "-c"]);
        command.args([r#"hostname "$0"; exec "$@""#, HOSTS[host]]).arg(program);
        command
    }

    /// A program that takes a host's name and a shell's command line, and runs that there, as a remote shell does.
    pub fn agent(&self) -> PathBuf {
        self.folder.join("agent")
    }

    fn agent_script(&self) -> String {
        let (a, b, [cores_a, cores_b]) = (self.name(0), self.name(1), &self.cores);
        let [first, second] = HOSTS;
        format!(
            "#!/bin/sh\nhost=$1; shift\ncase $host in\n\
             {first}) name={a} cores={cores_a};;\n{second}) name={b} cores={cores_b};;\n\
             *) echo \"no host $host\" >&2; exit 1;;\nesac\n\
             exec ip netns exec \"$name\" taskset -c \"$cores\" unshare --uts sh -c 'hostname \"$0\"; exec sh -c \"$*\"' \"$host\" \"$@\"\n"
        )
    }

    /// The cores that each host has, for people.
    pub fn cores(&self) -> &[String; 2] {
        &self.cores
    }

    /// What each host has sent since it was made.
    pub fn traffic(&self) -> Result<[Traffic; 2]> {
        let read = |host| {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", self.name(host), "cat", "/proc/net/dev"]);
            let text = repo::capture("read a host's counters", &mut command)?;
            let sent = |device| traffic(&text, device).map(|traffic| traffic.sent);
            let both = sent(DEVICE).zip(sent("lo"));
            let (across, within) = both.ok_or_else(|| {
                Error::message(format!("cannot read a host's counters: saw\n{text}"))
            })?;
            Ok(Traffic { across, within })
        };
        Ok([read(0)?, read(1)?])
    }

    /// The largest packet the device between the hosts takes, in bytes.
    pub fn mtu(&self) -> Result<String> {
        let text = ip(&["-n", self.name(0), "-o", "link", "show", DEVICE]);
        let text = text.map_err(Error::message)?;
        let words: Vec<&str> = text.split_whitespace().collect();
        let at = words.iter().position(|&word| word == "mtu");
        Ok(at.and_then(|at| words.get(at + 1)).unwrap_or(&"unknown").to_string())
    }
}

/// The cores that this process may use.
fn cores() -> Result<Vec<usize>> {
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(|error| Error::io("read which cores may be used")(error.into()))?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect())
}

/// Half of the cores for each host; a lone one for both.
fn share(cores: &[usize]) -> [String; 2] {
    let (first, second) = cores.split_at(cores.len().div_ceil(2));
    let second = if second.is_empty() { first } else { second };
    [first, second].map(|cores| cores.iter().map(usize::to_string).collect::<Vec<_>>().join(","))
}

fn path() -> std::ffi::OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn every_host_has_cores_of_its_own_if_there_are_two() {
        for (cores, expected) in [
            (&[0, 1][..], ["0", "1"]),
            (&[2, 3, 5, 7], ["2,3", "5,7"]),
            (&[0, 1, 2], ["0,1", "2"]),
            (&[4], ["4", "4"]),
        ] {
            assert_eq!(share(cores), expected, "{cores:?}");
        }
    }

    #[test]
    fn hosts_send_to_each_other_over_the_device_and_leave_nothing() {
        let network = match Network::build() {
            Ok(network) => network,
            Err(reason) => return println!("SKIP network namespaces: {reason}"),
        };
        let (folder, names) = (network.folder.clone(), network.namespaces.names().to_vec());
        let mut name = network.command(1, Path::new("hostname"));
        assert_eq!(repo::capture("ask its name", &mut name).expect("a name").trim(), HOSTS[1]);
        let before = network.traffic().expect("counters");
        let mut send = network.command(0, Path::new("bash"));
        let to = format!("printf %1000s > /dev/udp/{}/9", network.address(1));
        repo::capture("send", send.args(["-c", &to])).expect("a datagram");
        // It leaves once the other host's hardware address is known.
        let began = Instant::now();
        let after = loop {
            let after = network.traffic().expect("counters");
            let left = after[0].across >= before[0].across + 1000;
            if left || began.elapsed() > Duration::from_secs(10) {
                break after;
            }
        };
        assert!(after[0].across >= before[0].across + 1000, "{before:?} {after:?}");
        assert_eq!(after[0].within, before[0].within);
        drop(network);
        assert!(!folder.exists());
        for name in names {
            assert!(!Path::new("/run/netns").join(&name).exists(), "{name}");
        }
    }
}
