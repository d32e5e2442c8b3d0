//! Slurm's short forms: `node[01-04,7],login` for hosts, `4(x2),1` for tasks of nodes.

use super::explicit::is_host_name;

/// The first host of a list; `None` for what is no list.
pub(super) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list;
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        host.push_str(&rest[..end]);
        rest = &rest[end..];
        let Some(inside) = rest.strip_prefix('[') else { break };
        let (ranges, after) = inside.split_once(']')?;
        host.push_str(first_number(ranges)?);
        rest = after;
    }
    is_host_name(&host).then_some(host)
}

/// The first number of `01-04,7`, with its zeros.
fn first_number(ranges: &str) -> Option<&str> {
    let first = ranges.split(',').next()?;
    let (low, high) = first.split_once('-').unwrap_or((first, first));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(low) && digits(high)).then_some(low)
}

/// How many tasks node number `node` has, by `4(x2),1`.
pub(super) fn tasks_of(text: &str, node: u32) -> Option<u32> {
    let mut passed = 0u64;
    for part in text.split(',') {
        let (tasks, times) = match part.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1u32),
        };
        let tasks: u32 = tasks.parse().ok()?;
        passed += u64::from(times);
        if u64::from(node) < passed {
            return Some(tasks);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_of_every_form() {
        let cases = [
            ("node1", Some("node1")),
            ("node1,node2", Some("node1")),
            ("node[01-04,7]", Some("node01")),
            ("node[7,1-3],login", Some("node7")),
            ("rack[2-3]-node[05-09]", Some("rack2-node05")),
            ("n[1-2].site.example,m3", Some("n1.site.example")),
            ("", None),
            (",node1", None),
            ("node[", None),
            ("node[]", None),
            ("node[a-b]", None),
            ("node[1-]", None),
            ("node 1", None),
            ("node1;reboot", None),
        ];
        for (list, expected) in cases {
            assert_eq!(first_host(list).as_deref(), expected, "{list:?}");
        }
    }

    #[test]
    fn tasks_are_counted_node_by_node() {
        let cases = [
            ("4", 0, Some(4)),
            ("4", 1, None),
            ("4(x2),1", 1, Some(4)),
            ("4(x2),1", 2, Some(1)),
            ("4(x2),1", 3, None),
            ("2(x4294967295),3(x4294967295)", 4294967295, Some(3)),
            ("4(x", 0, None),
            ("x", 0, None),
            ("", 0, None),
        ];
        for (text, node, expected) in cases {
            assert_eq!(tasks_of(text, node), expected, "{text:?} {node}");
        }
    }
}
