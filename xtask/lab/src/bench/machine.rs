//! The machine that numbers were measured on, in the words of the report.

use std::fs;
use std::num::NonZero;
use std::thread;

/// How many cores this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// One line each: processor, caches' size, memory, kernel, huge pages, load.
pub fn describe() -> Vec<String> {
    let cpu = read("/proc/cpuinfo");
    let model = field(&cpu, "model name").or_else(|| field(&cpu, "CPU part")).unwrap_or("unknown");
    let flags = field(&cpu, "flags").unwrap_or_default();
    let widest = ["avx512f", "avx2"].into_iter().find(|f| flags.split(' ').any(|g| g == *f));
    let cache = field(&cpu, "cache size").unwrap_or("unknown");
    let memory = read("/proc/meminfo");
    let kib: u64 = field(&memory, "MemTotal")
        .and_then(|m| m.split(' ').next())
        .and_then(|m| m.parse().ok())
        .unwrap_or(0);
    vec![
        format!("processor: {model}, {} usable cores, {}", cores(), widest.unwrap_or("no AVX2")),
        format!("cache (as /proc/cpuinfo has it): {cache}; memory: {} GiB", kib >> 20),
        format!("kernel: {}", version(&read("/proc/sys/kernel/osrelease"))),
        format!("huge pages: {}", read("/sys/kernel/mm/transparent_hugepage/enabled").trim()),
        format!("load average at the start: {}", read("/proc/loadavg").trim()),
    ]
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first `name : value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let of = |line: &'a str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    };
    text.lines().find_map(of)
}

/// A kernel's version, without what its builder calls the build.
fn version(release: &str) -> &str {
    release.trim().split('-').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t\t: 2\nmodel name\t: Some CPU\ncpu MHz\t: 1\n";
        assert_eq!(field(text, "model name"), Some("Some CPU"));
        assert_eq!(field(text, "flags"), None);
    }

    #[test]
    fn versions_name_no_build() {
        let cases = [("6.1.0-18-amd64\n", "6.1.0"), ("6.18.44\n", "6.18.44"), ("", "")];
        for (release, expected) in cases {
            assert_eq!(version(release), expected);
        }
    }
}
