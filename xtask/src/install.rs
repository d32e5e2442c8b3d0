//! `cargo xtask install`: the C library, what programs find it by, NCCL's interface over it, the command, and the licences, below a prefix.
//!
//! Nothing that is installed names the prefix, so a tree may be moved.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use clap::Args;
use serde_json::Value;

use crate::{Error, Result, repo};

/// What to install where.
#[derive(Args, Debug)]
pub struct Options {
    /// The folder below which include, lib, bin and share are
    #[arg(long)]
    pub prefix: PathBuf,
    /// The folder of the libraries below that, such as lib64 or lib/x86_64-linux-gnu
    #[arg(long, default_value = "lib", value_parser = below)]
    pub libdir: PathBuf,
    /// Install what was built for debugging
    #[arg(long)]
    pub debug: bool,
}

/// A folder below another one, as it is named on the command line.
fn below(text: &str) -> std::result::Result<PathBuf, &'static str> {
    let path: PathBuf = Path::new(text).components().collect();
    let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    if !inside || text.is_empty() {
        Err("it must name a folder below the prefix")
    } else {
        Ok(path)
    }
}

/// What a program that links the static library links beside it, as `rustc --print native-static-libs` says.
pub const NATIVE: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// The numbers of the binary interface.
///
/// # Errors
/// Where the header does not say them.
pub fn abi() -> Result<(u32, u32)> {
    let path = repo::root().join("ffi/include/antiphon.h");
    let header =
        fs::read_to_string(&path).map_err(Error::io(format!("read {}", path.display())))?;
    let number = |name: &str| {
        let line = header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
        line.and_then(|number| number.trim().parse().ok())
            .ok_or_else(|| Error::message(format!("antiphon.h does not define {name}")))
    };
    Ok((number("ANTIPHON_ABI_MAJOR")?, number("ANTIPHON_ABI_MINOR")?))
}

/// Builds and installs.
///
/// # Errors
/// What cargo or the file system says.
pub fn run(options: &Options) -> Result<()> {
    let mut build = repo::cargo();
    build.args(["build", "-p", "antiphon-ffi", "-p", "antiphon-nccl", "-p", "antiphon"]);
    build.args(["--lib", "--bin", "antiphon", "--message-format=json-render-diagnostics"]);
    if !options.debug {
        build.arg("--release");
    }
    let messages = repo::stdout("build the library", &mut build)?;
    let built = |name: &str| built(&messages, name);
    let (major, minor) = abi()?;
    let (soname, shared) =
        (format!("libantiphon.so.{major}"), format!("libantiphon.so.{major}.{minor}"));
    let Options { prefix, libdir, .. } = options;
    let lib = prefix.join(libdir);
    let package = repo::root().join("ffi/package");

    for header in ["antiphon.h", "antiphon.hpp"] {
        let include = repo::root().join("ffi/include");
        copy(&include.join(header), &prefix.join("include").join(header))?;
    }
    copy(&built("libantiphon_c.so")?, &lib.join(&shared))?;
    link(&shared, &lib.join(&soname))?;
    link(&soname, &lib.join("libantiphon.so"))?;
    copy(&built("libantiphon_c.a")?, &lib.join("libantiphon.a"))?;
    // In a folder of its own: who looks for libraries in lib means NCCL, if it is there. By whatever name it lay there, ldconfig
    // would call it libnccl.so.2.
    copy(&built("libantiphon_nccl.so")?, &lib.join("nccl/libnccl.so.2"))?;
    for name in ["libnccl.so", "libantiphon_nccl.so"] {
        link("libnccl.so.2", &lib.join("nccl").join(name))?;
    }
    copy(&built("antiphon")?, &prefix.join("bin/antiphon"))?;
    for licence in repo::LICENCES {
        let to = prefix.join("share/licenses/antiphon").join(licence);
        copy(&repo::root().join(licence), &to)?;
    }
    let up = vec![".."; libdir.components().count()].join("/");
    let values = [
        ("@LIBDIR@", &*libdir.to_string_lossy()),
        ("@UP@", up.as_str()),
        ("@VERSION@", env!("CARGO_PKG_VERSION")),
        ("@SHARED@", shared.as_str()),
        ("@SONAME@", soname.as_str()),
        ("@NATIVE@", NATIVE),
    ];
    for (template, to) in [
        ("antiphon.pc.in", "pkgconfig/antiphon.pc"),
        ("antiphon-config.cmake.in", "cmake/antiphon/antiphon-config.cmake"),
        ("antiphon-config-version.cmake.in", "cmake/antiphon/antiphon-config-version.cmake"),
    ] {
        let template = package.join(template);
        let text = fs::read_to_string(&template)
            .map_err(Error::io(format!("read {}", template.display())))?;
        let filled = values.iter().fold(text, |text, (name, value)| text.replace(name, value));
        let to = lib.join(to);
        parents(&to)?;
        fs::write(&to, filled).map_err(Error::io(format!("write {}", to.display())))?;
    }
    Ok(())
}

/// The file of a name among those that cargo says it built, wherever its settings have it build.
fn built(messages: &str, name: &str) -> Result<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let artifacts = messages.filter(|message| message["reason"] == "compiler-artifact");
    let mut files = artifacts.flat_map(|artifact| {
        let files = artifact["filenames"].as_array().cloned().unwrap_or_default();
        files.into_iter().filter_map(|file| file.as_str().map(PathBuf::from))
    });
    files
        .find(|file| file.file_name().is_some_and(|own| own == name))
        .ok_or_else(|| Error::message(format!("cannot install {name}: cargo named no such file")))
}

fn parents(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(Error::io(format!("make {}", folder.display())))
}

/// Puts a file in place as a new one: whoever runs the old one keeps it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    parents(to)?;
    let new = to.with_extension("new");
    fs::copy(from, &new).map_err(Error::io(format!("copy {}", from.display())))?;
    fs::rename(&new, to).map_err(Error::io(format!("write {}", to.display())))
}

fn link(to: &str, at: &Path) -> Result<()> {
    match fs::remove_file(at) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io(format!("remove {}", at.display()))(error));
        }
        _ => {}
    }
    symlink(to, at).map_err(Error::io(format!("link {}", at.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = r#"{"reason":"compiler-artifact","target":{"name":"log"},"filenames":["/t/release/deps/liblog-1.rlib"]}
{"reason":"build-script-executed","out_dir":"/t/antiphon"}
{"reason":"compiler-artifact","target":{"name":"antiphon"},"filenames":["/t/aarch64/release/libantiphon.rlib"],"executable":null}
{"reason":"compiler-artifact","target":{"name":"antiphon_c"},"filenames":["/t/x/libantiphon_c.so","/t/x/libantiphon_c.a"]}
{"reason":"compiler-artifact","target":{"name":"antiphon"},"filenames":["/t/x/antiphon"],"executable":"/t/x/antiphon"}
{"reason":"build-finished","success":true}"#;

    #[test]
    fn libraries_are_below_the_prefix() {
        for (text, path) in [("lib", "lib"), ("lib64/", "lib64"), ("lib//x/./y", "lib/x/y")] {
            assert_eq!(below(text).expect(text), Path::new(path));
        }
        for text in ["", "/usr/lib", "../lib", "lib/../../x"] {
            assert!(below(text).is_err(), "{text}");
        }
    }

    #[test]
    fn files_are_where_cargo_says() {
        for name in ["libantiphon_c.so", "libantiphon_c.a", "antiphon"] {
            assert_eq!(built(MESSAGES, name).expect(name), Path::new("/t/x").join(name));
        }
        let missing = built(MESSAGES, "libantiphon_nccl.so").expect_err("none").to_string();
        assert!(missing.contains("libantiphon_nccl.so: cargo named no such file"), "{missing}");
    }
}
