//! Which libraries programs need.

use super::Missing;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All libraries that the loader would open for a program or library, itself included if it is named.
///
/// # Errors
/// If a library is not to be found.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>, Missing> {
    let output = Command::new("ldd").arg(program).output();
    let output = output.map_err(|e| Missing::new("ldd", &e.to_string(), "libc-bin"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    listed(&text)
        .map_err(|line| Missing::new(&program.display().to_string(), &line, "its libraries"))
}

/// The paths in the output of `ldd`; the line of one that was not found.
fn listed(text: &str) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for line in text.lines() {
        if line.contains("not found") {
            return Err(line.trim().to_owned());
        }
        let path = line.split_whitespace().find(|word| word.starts_with('/'));
        paths.extend(path.map(PathBuf::from));
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_loader_are_read() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let paths = listed(text).expect("all there");
        assert_eq!(paths.len(), 2, "{paths:?}");
        assert_eq!(listed("\tstatically linked\n"), Ok(vec![]));
        assert!(listed("\tlibx.so => not found\n").expect_err("missing").contains("libx.so"));
    }
}
