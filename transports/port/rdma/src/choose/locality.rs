//! Which devices are near: those of the memory nodes whose cores this process may use.

use std::fs;
use std::path::Path;

/// The choices that are near, or all where none is. What has no known place is near.
pub fn nearest<T>(choices: Vec<T>, nodes: &[u32], node: impl Fn(&T) -> Option<u32>) -> Vec<T> {
    let near = |choice: &T| node(choice).is_none_or(|node| nodes.contains(&node));
    if choices.iter().any(near) {
        return choices.into_iter().filter(near).collect();
    }
    choices
}

/// The memory nodes below `root` (`/sys/devices/system/node`) that have a core for which `allowed` holds.
pub fn nodes(root: &Path, allowed: impl Fn(usize) -> bool) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let mut nodes: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_prefix("node")?.parse().ok()?;
            let list = fs::read_to_string(entry.path().join("cpulist")).ok()?;
            cores(&list).any(&allowed).then_some(number)
        })
        .collect();
    nodes.sort_unstable();
    nodes
}

/// The cores of a list such as `0-3,8`; parts that make no sense are skipped.
fn cores(list: &str) -> impl Iterator<Item = usize> {
    list.trim().split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            (Ok(first), Ok(last)) => first..last.saturating_add(1),
            _ => 0..0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        for (list, expected) in [
            ("0-3,8\n", &[0, 1, 2, 3, 8][..]),
            ("5", &[5]),
            ("", &[]),
            ("x,1-,2", &[2]),
            ("3-1", &[]),
        ] {
            assert_eq!(cores(list).collect::<Vec<_>>(), expected, "{list:?}");
        }
    }

    #[test]
    fn what_has_no_place_is_near_and_all_are_taken_where_none_is() {
        let choices = vec![("a", Some(0)), ("b", None), ("c", Some(1))];
        let names = |nodes: &[u32]| -> Vec<&str> {
            nearest(choices.clone(), nodes, |c| c.1).iter().map(|c| c.0).collect()
        };
        assert_eq!(names(&[0]), ["a", "b"]);
        assert_eq!(names(&[5]), ["b"]);
        assert_eq!(nearest(vec![("a", Some(0))], &[5], |c| c.1).len(), 1);
    }
}
