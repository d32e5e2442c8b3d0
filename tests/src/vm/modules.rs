//! Kernel modules, with those that they need, in the order in which they are inserted.

use super::Missing;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The modules of an unpacked kernel.
#[derive(Debug)]
pub struct Modules {
    files: HashMap<String, PathBuf>,
}

/// A module to insert.
#[derive(Debug)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// What is inserted.
    pub contents: Vec<u8>,
}

impl Modules {
    /// The modules below a folder.
    pub fn new(folder: &Path) -> Self {
        let mut files = HashMap::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            for path in entries.map(|entry| entry.path()) {
                // Not through links: some lead out of the folder.
                if path.is_dir() && !path.is_symlink() {
                    folders.push(path);
                } else if let Some(name) = module_name(&path) {
                    files.insert(name, path);
                }
            }
        }
        Modules { files }
    }

    /// Modules and what they need, which comes first. Those that are no files are taken to be part of the kernel.
    ///
    /// # Errors
    /// If a file cannot be read, or one of `names` is no file.
    pub fn ordered(&self, names: &[&str]) -> Result<Vec<Module>, Missing> {
        let mut ordered = Vec::new();
        for name in names {
            if !self.files.contains_key(*name) {
                return Err(Missing::new(
                    name,
                    "the kernel has no such module",
                    "linux-image-amd64",
                ));
            }
            self.add(name, &mut ordered)?;
        }
        Ok(ordered)
    }

    fn add(&self, name: &str, ordered: &mut Vec<Module>) -> Result<(), Missing> {
        let name = name.replace('-', "_");
        let Some(file) = self.files.get(&name) else { return Ok(()) };
        if ordered.iter().any(|module| module.name == name) {
            return Ok(());
        }
        let contents = unpacked(file)?;
        for needed in needs(&contents) {
            self.add(&needed, ordered)?;
        }
        ordered.push(Module { name, contents });
        Ok(())
    }
}

/// `ib_core` of `ib_core.ko` and `ib-core.ko.xz`.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (name, rest) = name.split_once(".ko")?;
    ["", ".xz", ".zst", ".gz"].contains(&rest).then(|| name.replace('-', "_"))
}

fn unpacked(file: &Path) -> Result<Vec<u8>, Missing> {
    let tool = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => {
            let shown = file.display().to_string();
            return fs::read(file).map_err(|e| Missing::new(&shown, &e.to_string(), "rights"));
        }
    };
    let output = Command::new(tool).arg("-dc").arg(file).output();
    let output = output.map_err(|e| Missing::new(tool, &e.to_string(), tool))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let reason = format!("{tool} ended with {}: {}", output.status, said.trim());
        return Err(Missing::new(
            &file.display().to_string(),
            &reason,
            "the kernel's package again",
        ));
    }
    Ok(output.stdout)
}

/// The modules that a module names in its description.
fn needs(contents: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = contents.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let list = &contents[at + KEY.len()..];
    let end = list.iter().position(|byte| *byte == 0).unwrap_or(0);
    let list = String::from_utf8_lossy(&list[..end]);
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_is_cut_short_is_missing() {
        if Command::new("gzip").arg("--version").output().is_err() {
            return println!("SKIP: there is no gzip");
        }
        let folder = crate::Folder::new(std::env::temp_dir(), "antiphon-modules").unwrap();
        let file = folder.join("cut.ko");
        fs::write(&file, [7; 1000]).unwrap();
        assert!(Command::new("gzip").arg("-k").arg(&file).status().unwrap().success());
        let packed = folder.join("cut.ko.gz");
        assert_eq!(unpacked(&packed).unwrap(), [7; 1000]);
        let bytes = fs::read(&packed).unwrap();
        fs::write(&packed, &bytes[..bytes.len() - 4]).unwrap();
        let missing = unpacked(&packed).unwrap_err().to_string();
        assert!(missing.contains("cut.ko.gz") && missing.contains("gzip ended with"), "{missing}");
    }

    #[test]
    fn what_a_module_needs_is_read_from_it() {
        let text = b"license=GPL\0depends=ib_core,udp_tunnel\0name=rdma_rxe\0";
        assert_eq!(needs(text), ["ib_core", "udp_tunnel"]);
        assert_eq!(needs(b"x\0depends=\0"), [""; 0]);
        assert_eq!(needs(b"no module"), [""; 0]);
        assert_eq!(module_name(Path::new("a/ip6-udp.ko.xz")).as_deref(), Some("ip6_udp"));
        assert_eq!(module_name(Path::new("a/x.ko.txt")), None);
    }
}
