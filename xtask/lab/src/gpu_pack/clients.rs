//! Programs in C and C++ that call Antiphon on devices as applications do, with the libraries that they are linked with.
//!
//! They are those of the tests on the simulated driver (`tests/c/device.c`, and of NCCL's interface `devices.cpp` and `coded.cpp`
//! in `ffi/nccl/tests`), whose ranks share a device where there is but one.

#[path = "../../../../ffi/nccl/tests/tools/header.rs"]
mod header;

use super::copy;
use crate::{Error, Result, repo};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The driver's library, which programs need to start.
pub const DRIVER: &str = "libcuda.so.1";
/// The libraries, as they are built and as programs look for them.
const LIBRARIES: [(&str, &str); 2] =
    [("libantiphon_c.so", "libantiphon.so.1"), ("libantiphon_nccl.so", "libnccl.so.2")];
/// The packages that they are of.
pub const PACKAGES: [&str; 2] = ["antiphon-ffi", "antiphon-nccl"];

/// Builds them; each file, and where it goes in `out`. Those of NCCL's interface take NVIDIA's header.
pub fn build(built: &Path, out: &Path, with_nccl: bool) -> Result<Vec<(PathBuf, PathBuf)>> {
    let (lib, clients) = (out.join("lib"), out.join("clients"));
    let folder = repo::target_dir().join("gpu-clients");
    for folder in [&folder, &lib, &clients] {
        fs::create_dir_all(folder).map_err(Error::io(format!("make {}", folder.display())))?;
    }
    let mut made = Vec::new();
    for (library, name) in LIBRARIES {
        let here = folder.join(name);
        copy(&built.join("deps").join(library), &here)?;
        made.push((here, lib.join(name)));
    }
    let driver = driver(&folder)?;
    let root = repo::root();
    let client = |compiler: &str, source: &str| {
        let source = root.join(source);
        let name = source.file_stem().unwrap_or_default().to_owned();
        let program = folder.join(&name);
        let mut command = Command::new(compiler);
        command.args(["-O1", "-pthread", "-Wl,-rpath,$ORIGIN/../lib"]).arg(&source);
        command.arg("-o").arg(&program).arg(&driver).arg("-Wl,--as-needed");
        command.args(LIBRARIES.map(|(_, name)| folder.join(name)));
        command.arg("-I").arg(root.join("ffi/include")).arg("-I").arg(root.join("tests/c"));
        (command, (program, clients.join(name)))
    };
    let (mut command, device) = client("gcc", "tests/c/device.c");
    repo::capture("build a client in C", command.arg("-std=gnu11"))?;
    made.push(device);
    if !with_nccl {
        return Ok(made);
    }
    let header = header::find().ok_or_else(|| {
        let named = header::HEADER;
        Error::message(format!(
            "cannot pack clients of NCCL's interface: there is no nccl.h; name its folder by {named}, or pack --without-nccl"
        ))
    })?;
    for source in ["ffi/nccl/tests/devices.cpp", "ffi/nccl/tests/coded.cpp"] {
        let (mut command, client) = client("g++", source);
        command.args(["-std=c++17", "-isystem"]);
        command.arg(&header).arg("-isystem").arg(root.join("ffi/nccl/tests/cuda"));
        repo::capture("build a client of NCCL's interface", &mut command)?;
        made.push(client);
    }
    Ok(made)
}

/// A library that stands for the driver's while programs are linked, by the functions that these call: no machine that packs needs
/// a driver.
fn driver(folder: &Path) -> Result<PathBuf> {
    let header = repo::root().join("tests/c/driver.h");
    let text =
        fs::read_to_string(&header).map_err(Error::io(format!("read {}", header.display())))?;
    let declared = text.lines().filter_map(|line| line.strip_prefix("int ")?.split_once('('));
    let functions: String =
        declared.map(|(name, _)| format!("int {name}(void) {{ return 1; }}\n")).collect();
    let (source, library) = (folder.join("driver.c"), folder.join(DRIVER));
    fs::write(&source, functions).map_err(Error::io(format!("write {}", source.display())))?;
    let mut command = Command::new("gcc");
    command.args(["-shared", "-fPIC"]).arg(format!("-Wl,-soname,{DRIVER}")).arg(&source);
    repo::capture("build what stands for the driver", command.arg("-o").arg(&library))?;
    Ok(library)
}
