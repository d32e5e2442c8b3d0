//! Memory nodes and their cores.

use super::place::text;
use std::fs;
use std::path::Path;

/// More cores than any machine has: lists that say more are no lists.
const MOST_CORES: usize = 1 << 16;

/// A part of the machine's memory, with the cores that are next to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNode {
    /// Its number.
    pub number: u32,
    /// The cores, by number; none for a node of memory alone.
    pub cores: Vec<usize>,
}

/// The nodes of the tree below `root`; none where it does not say.
pub(super) fn read(root: &Path) -> Vec<MemoryNode> {
    let Ok(entries) = fs::read_dir(root.join("devices/system/node")) else { return Vec::new() };
    let node = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let number = name.strip_prefix("node")?.parse().ok()?;
        let cores = text(&entry.path().join("cpulist")).map_or_else(Vec::new, |list| cores(&list));
        Some(MemoryNode { number, cores })
    };
    let mut nodes: Vec<_> = entries.flatten().filter_map(node).collect();
    nodes.sort_unstable_by_key(|node| node.number);
    nodes
}

/// The node that everything is on, where there are not several with cores.
pub(super) fn only(nodes: &[MemoryNode]) -> Option<u32> {
    let mut with_cores = nodes.iter().filter(|node| !node.cores.is_empty());
    let first = with_cores.next()?;
    with_cores.next().is_none().then_some(first.number)
}

/// The cores of a list such as `0-3,8`; parts that make no sense are skipped.
pub(super) fn cores(list: &str) -> Vec<usize> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            (Ok(first), Ok(last)) if last < MOST_CORES => first..last + 1,
            _ => 0..0,
        }
    };
    list.trim().split(',').flat_map(part).collect()
}
