//! What the host has wired: asked once, when the device is opened.

use crate::caps::Caps;
use crate::host::{cores, process};
use std::fs;
use std::path::Path;

/// The host's caps. `sealed` tells whether its memory is made of sealed files.
pub(super) fn probe(sealed: bool) -> Caps {
    Caps {
        peer_mapping: true,
        sealed_handles: sealed,
        host_access: true,
        tasks: true,
        kernels: false,
        cooperative: false,
        multicast: false,
        dma_buf: false,
        ordered_network_writes: false,
        pci: None,
        uuid: None,
        peers: Vec::new(),
        process_access: process::is_permitted(),
        memory_bytes: memory_bytes(),
        page_bytes: rustix::param::page_size() as u64,
        cores: cores::usable_cores(),
    }
}

/// Bytes of memory that this process may use: the machine's, or what the container leaves of it.
pub(super) fn memory_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    let machine = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit.max(1)));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limits_of(&groups)
        .filter_map(|file| fs::read_to_string(Path::new("/sys/fs/cgroup").join(file)).ok())
        .filter_map(|text| text.trim().parse().ok())
        .fold(machine, u64::min)
}

/// The files (below the mount point) that may limit the memory of the groups listed in `/proc/self/cgroup`: those
/// of each group and its ancestors, as any of them may be the tightest, and inside a container the listed path
/// may be one of the outside, where only the root exists.
fn limits_of(groups: &str) -> impl Iterator<Item = String> + '_ {
    groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next().unwrap_or_default();
        let path = fields.next().unwrap_or_default();
        let place = match controllers {
            _ if !path.starts_with('/') => None,
            "" => Some(("", "memory.max")),
            list if list.split(',').any(|name| name == "memory") => {
                Some(("memory/", "memory.limit_in_bytes"))
            }
            _ => None,
        };
        place.into_iter().flat_map(move |(mount, file)| {
            Path::new(path)
                .ancestors()
                .filter_map(Path::to_str)
                .map(|group| group.trim_start_matches('/'))
                .filter(|group| !group.split('/').any(|part| part == ".."))
                .map(move |group| match group {
                    "" => format!("{mount}{file}"),
                    group => format!("{mount}{group}/{file}"),
                })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_and_all_its_ancestors_may_limit() {
        for (groups, expected) in [
            ("0::/a/b\n", vec!["a/b/memory.max", "a/memory.max", "memory.max"]),
            ("0::/\n", vec!["memory.max"]),
            ("0::/../x\n", vec!["memory.max"]),
            ("5:cpu,cpuacct:/a\n", vec![]),
            (
                "9:memory:/job\n1:name=systemd:/job\n",
                vec!["memory/job/memory.limit_in_bytes", "memory/memory.limit_in_bytes"],
            ),
            ("", vec![]),
            ("nonsense\n::\n", vec![]),
        ] {
            let found: Vec<_> = limits_of(groups).collect();
            assert_eq!(found, expected, "{groups:?}");
        }
    }

    #[test]
    fn memory_is_counted() {
        assert!(memory_bytes() >= 1 << 20);
    }
}
