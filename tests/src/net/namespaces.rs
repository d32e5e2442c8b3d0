//! Network namespaces with names, and who takes them away: `ip`, the devices' counters, and a guard.
//!
//! The guard is a process that holds the other end of a pipe, and takes everything away as soon as the maker has gone,
//! however it went: what still runs in the namespaces, the namespaces with their devices, and a folder.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

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
[ -z "$folder" ] || rm -rf "$folder"
"#;

/// Some namespaces. Dropping them takes them away, with all that runs in them.
#[derive(Debug)]
pub struct Namespaces {
    guard: Child,
    names: Vec<String>,
}

/// What a device has moved, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// To its host.
    pub received: u64,
    /// From its host.
    pub sent: u64,
}

impl Namespaces {
    /// Makes namespaces of these names; `folder` goes with them.
    ///
    /// # Errors
    /// Why this machine cannot.
    pub fn make(names: Vec<String>, folder: Option<&Path>) -> Result<Namespaces, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("cannot make network namespaces: needs root".to_owned());
        }
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "guard"]).arg(folder.unwrap_or(Path::new(""))).args(&names);
        // A group of its own: what interrupts this process must not interrupt the guard.
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let guard = guard.spawn();
        let guard = guard.map_err(|e| format!("cannot make network namespaces: sh: {e}"))?;
        // From here on, dropping it takes away whatever was made.
        let namespaces = Namespaces { guard, names };
        for name in &namespaces.names {
            ip(&["netns", "add", name])?;
        }
        Ok(namespaces)
    }

    /// Their names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The processes that run in them.
    pub fn processes(&self) -> Vec<i32> {
        let pids = |name: &String| {
            let text = ip(&["netns", "pids", name]).unwrap_or_default();
            text.lines().filter_map(|line| line.trim().parse().ok()).collect::<Vec<i32>>()
        };
        self.names.iter().flat_map(pids).collect()
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // It ends by itself once its input has.
        let _ = self.guard.wait();
    }
}

/// Runs `ip`; what it prints.
///
/// # Errors
/// What it says where it fails.
pub fn ip(arguments: &[&str]) -> Result<String, String> {
    const CANNOT: &str = "cannot work with network namespaces";
    let output =
        Command::new("ip").args(arguments).output().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("{CANNOT}: saw no `ip`; install iproute2"),
            _ => format!("{CANNOT}: ip: {error}"),
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{CANNOT}: `ip {}` said {}", arguments.join(" "), said.trim()))
}

/// What a device has moved, from the kernel's table of them (`/proc/net/dev`).
pub fn traffic(table: &str, device: &str) -> Option<Traffic> {
    let line = table.lines().find_map(|line| {
        line.trim_start().strip_prefix(device).and_then(|rest| rest.strip_prefix(':'))
    });
    let numbers: Vec<u64> = line?.split_whitespace().map_while(|word| word.parse().ok()).collect();
    Some(Traffic { received: *numbers.first()?, sent: *numbers.get(8)? })
}
