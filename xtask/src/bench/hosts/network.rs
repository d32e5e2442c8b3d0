//! Two network namespaces as two hosts, joined by a pair of virtual Ethernet devices.
//!
//! A child process holds the other end of a pipe and takes everything away as soon as this process has gone, however it
//! went: what still runs in the namespaces, the namespaces with their devices, and the folder of the run.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Error, Result, repo};

/// The hosts' names, which are also what they call themselves.
pub const HOSTS: [&str; 2] = ["hosta", "hostb"];

/// The network that both addresses are in, as Open MPI takes it.
pub const SUBNET: &str = "10.79.0.0/24";

/// The device of each host that leads to the other.
pub const DEVICE: &str = "veth0";

/// Waits for the end of its input, and then takes away a folder and namespaces.
const GUARD: &str = r#"
read -r _
folder=$1; shift
for signal in TERM KILL; do
    for name in "$@"; do
        for pid in $(ip netns pids "$name" 2>/dev/null); do kill -$signal "$pid" 2>/dev/null; done
    done
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        left=
        for name in "$@"; do left=$left$(ip netns pids "$name" 2>/dev/null); done
        [ -z "$left" ] && break
        sleep 0.1
    done
done
for name in "$@"; do ip netns del "$name" 2>/dev/null; done
rm -rf "$folder"
"#;

/// Two hosts.
pub struct Network {
    guard: Child,
    folder: PathBuf,
    names: [String; 2],
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
        if !rustix::process::geteuid().is_root() {
            return Err(Error::message("cannot make network namespaces: needs root"));
        }
        let process = std::process::id();
        let names = HOSTS.map(|host| format!("antiphon-bench-{process}-{host}"));
        let folder = std::env::temp_dir().join(format!("antiphon-bench-hosts-{process}"));
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "guard"]).arg(&folder).args(&names);
        // A group of its own: what interrupts this process must not interrupt the guard.
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let guard = guard.spawn().map_err(Error::io("start sh"))?;
        // From here on, dropping it takes away whatever was made.
        let network = Self { guard, folder, names, cores: share(&cores()?) };
        network.furnish()?;
        Ok(network)
    }

    fn furnish(&self) -> Result<()> {
        let [a, b] = &self.names;
        ip(&["netns", "add", a])?;
        ip(&["netns", "add", b])?;
        ip(&[
            "link", "add", DEVICE, "netns", a, "type", "veth", "peer", "name", DEVICE, "netns", b,
        ])?;
        for (host, name) in self.names.iter().enumerate() {
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
        command.args(["netns", "exec", &self.names[host]]);
        command.args(["taskset", "-c", &self.cores[host], "unshare", "--uts", "sh", "-c"]);
        command.args([r#"hostname "$0"; exec "$@""#, HOSTS[host]]).arg(program);
        command
    }

    /// A program that takes a host's name and a shell's command line, and runs that there, as a remote shell does.
    pub fn agent(&self) -> PathBuf {
        self.folder.join("agent")
    }

    fn agent_script(&self) -> String {
        let ([a, b], [cores_a, cores_b]) = (&self.names, &self.cores);
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
        let read = |name: &String| {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name, "cat", "/proc/net/dev"]);
            let text = repo::capture("read a host's counters", &mut command)?;
            parse(&text).ok_or_else(|| {
                Error::message(format!("cannot read a host's counters: saw\n{text}"))
            })
        };
        Ok([read(&self.names[0])?, read(&self.names[1])?])
    }

    /// The largest packet the device between the hosts takes, in bytes.
    pub fn mtu(&self) -> Result<String> {
        let mut command = Command::new("ip");
        command.args(["-n", &self.names[0], "-o", "link", "show", DEVICE]);
        let text = repo::capture("ask the device", &mut command)?;
        let words: Vec<&str> = text.split_whitespace().collect();
        let at = words.iter().position(|&word| word == "mtu");
        Ok(at.and_then(|at| words.get(at + 1)).unwrap_or(&"unknown").to_string())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // It ends by itself once its input has.
        let _ = self.guard.wait();
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

/// What has been sent over the device and over the loopback, from the kernel's table.
fn parse(text: &str) -> Option<Traffic> {
    let sent = |device: &str| {
        let line = text.lines().find_map(|line| {
            line.trim_start().strip_prefix(device).and_then(|rest| rest.strip_prefix(':'))
        });
        line?.split_whitespace().nth(8)?.parse().ok()
    };
    Some(Traffic { across: sent(DEVICE)?, within: sent("lo")? })
}

fn ip(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("ip");
    match command.args(arguments).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Error::message("cannot make network namespaces: saw no `ip`; install iproute2"))
        }
        Err(error) => Err(Error::io("make network namespaces")(error)),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(Error::message(format!(
            "cannot make network namespaces: `{}` said {}",
            repo::line(&command),
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_the_kernels_table() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n\
                    veth0: 99 1 0 0 0 0 0 0 1234 1 0 0 0 0 0 0\n";
        assert_eq!(parse(text), Some(Traffic { across: 1234, within: 8 }));
        assert_eq!(parse("lo: 1 2"), None);
    }

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
        let (folder, names) = (network.folder.clone(), network.names.clone());
        let mut name = network.command(1, Path::new("hostname"));
        assert_eq!(repo::capture("ask its name", &mut name).expect("a name").trim(), HOSTS[1]);
        let before = network.traffic().expect("counters");
        let mut send = network.command(0, Path::new("bash"));
        let to = format!("printf %1000s > /dev/udp/{}/9", network.address(1));
        repo::capture("send", send.args(["-c", &to])).expect("a datagram");
        let after = network.traffic().expect("counters");
        assert!(after[0].across >= before[0].across + 1000, "{before:?} {after:?}");
        assert_eq!(after[0].within, before[0].within);
        drop(network);
        assert!(!folder.exists());
        for name in names {
            assert!(!Path::new("/run/netns").join(&name).exists(), "{name}");
        }
    }
}
