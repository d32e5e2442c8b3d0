//! `cargo xtask gpu-pack`: one folder that checks and measures Antiphon on a machine with a GPU, and needs nothing there but
//! the driver.
//!
//! It holds the command with the CUDA backend, and on request ROCm's, which carries the interpreting kernel compiled; tests of
//! the device layer and of the engine; clients in C and C++ with their libraries; the benchmark (`gpu_bench`); plans, and their
//! kernels compiled ahead for NVIDIA's GPUs; plans of others, where they are; on request the Python package; and `run.sh`, which unpacks the programs, runs all of it and keeps what was said. Both
//! vendors' libraries are loaded at run time, so one folder serves both.

mod clients;
mod code;

use crate::{Error, Result, repo};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// What is packed.
#[derive(clap::Args)]
pub struct Options {
    /// The folder, which is made anew [default: gpu-pack in the target folder]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Take programs that were built before from this folder of build products, e.g. target/debug, and build nothing
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// With the ROCm backend, too; takes ROCm or Debian's libamdhip64-dev to build, and nothing of it to run
    #[arg(long)]
    rocm: bool,
    /// Without the kernels of the plans compiled ahead, which takes NVRTC (it is installed from its Python package) and some minutes
    #[arg(long)]
    without_code: bool,
    /// Without clients of NCCL's interface, which takes NVIDIA's nccl.h; ANTIPHON_NCCL_INCLUDE names its folder
    #[arg(long)]
    without_nccl: bool,
    /// With the Python package as a wheel, and programs for PyTorch and CuPy, which are run where those are; takes pip, which
    /// fetches what the package is built with
    #[arg(long)]
    python: bool,
    /// The most MiB of the folder; programs that were not built for release are larger
    #[arg(long, value_name = "MIB", default_value_t = 40)]
    most: u64,
}

/// The programs that are packed.
const PROGRAMS: [&str; 2] = ["antiphon", "gpu-bench"];
/// The tests that are packed.
const TESTS: [&str; 2] = ["hal_cuda", "gpu_engine"];
/// That of the ROCm backend.
const ROCM_TEST: &str = "hal_rocm";
/// The vendors' libraries, which no program may need to start.
const VENDORS: [&str; 4] = ["libcuda.so", "libnvrtc.so", "libamdhip64.so", "libhiprtc.so"];
/// The newest C library that programs may need: Ubuntu 22.04's.
const GLIBC: (u32, u32) = (2, 35);

/// Packs.
///
/// # Errors
/// Programs that do not build, files that cannot be copied, a folder that becomes too large, or programs that need a newer C
/// library than allowed.
pub fn run(options: &Options) -> Result<()> {
    let out = options.out.clone().unwrap_or_else(|| repo::target_dir().join("gpu-pack"));
    let built = match &options.from {
        Some(folder) => folder.clone(),
        None => build(options.rocm)?,
    };
    emptied(&out)?;
    let plans = out.join("plans");
    fs::create_dir_all(&plans).map_err(Error::io(format!("make {}", plans.display())))?;
    let unpacked = emptied(&repo::target_dir().join("gpu-pack-programs"))?;
    let mut programs: Vec<_> =
        PROGRAMS.iter().map(|name| (built.join(name), unpacked.join(name))).collect();
    for test in tests(options.rocm) {
        programs.push((newest(&built.join("deps"), test)?, unpacked.join(test)));
    }
    for (from, to) in &programs {
        stripped(from, to)?;
        startable(to, &[])?;
    }
    for (from, to) in clients::build(&built, &unpacked, !options.without_nccl)? {
        stripped(&from, &to)?;
        startable(&to, &[clients::DRIVER])?;
    }
    let mut packed = Vec::new();
    for plan in repo::files(&repo::root().join("examples/plans"))? {
        let to = plans.join(&plan);
        copy(&repo::root().join("examples/plans").join(&plan), &to)?;
        packed.push(to);
    }
    shared(&out.join("shared"))?;
    if options.python {
        python(&out.join("python"))?;
    }
    if !options.without_code {
        code::pack(&unpacked.join("antiphon"), &packed, &out.join("code"))?;
    }
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(out.join("programs.tar.gz")).arg("-C").arg(&unpacked).arg(".");
    repo::capture("pack the programs", &mut tar)?;
    copy(&repo::root().join("xtask/lab/src/gpu_pack/run.sh"), &out.join("run.sh"))?;
    let bytes = size(&out)?;
    let most = options.most.saturating_mul(1 << 20);
    if bytes > most {
        return Err(Error::message(format!(
            "cannot pack {}: saw {bytes} bytes, allowed {most}; build for release, install strip, pack --without-code, or allow more by --most",
            out.display()
        )));
    }
    println!("{}: {:.1} MiB; ./run.sh there", out.display(), bytes as f64 / f64::from(1 << 20));
    Ok(())
}

/// Builds the Python package as a wheel, beside the programs that use it on a card.
fn python(to: &Path) -> Result<()> {
    let mut wheel = Command::new("python3");
    wheel.args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]).arg(to);
    wheel.arg(repo::root().join("ffi/python"));
    repo::stream("build the Python package", &mut wheel)?;
    for program in ["torch_card.py", "cupy_card.py"] {
        let from = repo::root().join("ffi/python/tests/programs").join(program);
        copy(&from, &to.join(program))?;
    }
    Ok(())
}

/// Copies the plans of others, where they are, with the table of what is known of them.
fn shared(to: &Path) -> Result<()> {
    let Some(folder) = antiphon_tests::harness::plans::foreign_folder() else {
        println!("without plans of others: there is no ../shared/plans");
        return Ok(());
    };
    for name in repo::files(&folder)? {
        let to = to.join(&name);
        let parent = to.parent().unwrap_or(&to);
        fs::create_dir_all(parent).map_err(Error::io(format!("make {}", parent.display())))?;
        copy(&folder.join(&name), &to)?;
    }
    Ok(())
}

/// Makes a folder anew.
fn emptied(folder: &Path) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(Error::io(format!("remove {}", folder.display())))?;
    }
    fs::create_dir_all(folder).map_err(Error::io(format!("make {}", folder.display())))?;
    Ok(folder.to_owned())
}

/// The tests of a folder.
fn tests(rocm: bool) -> impl Iterator<Item = &'static str> {
    TESTS.into_iter().chain(rocm.then_some(ROCM_TEST))
}

/// Builds for release; the folder of build products.
fn build(rocm: bool) -> Result<PathBuf> {
    let features = match rocm {
        false => "antiphon/cuda",
        true => {
            "antiphon/cuda,antiphon/rocm,antiphon-tests/rocm,antiphon-lab/rocm,antiphon-ffi/rocm"
        }
    };
    let mut command = repo::cargo();
    command.args(["build", "--release", "--lib", "--features", features]);
    for package in ["antiphon", "antiphon-tests", "antiphon-lab"].iter().chain(&clients::PACKAGES) {
        command.args(["-p", package]);
    }
    for program in PROGRAMS {
        command.args(["--bin", program]);
    }
    for test in tests(rocm) {
        command.args(["--test", test]);
    }
    repo::stream("build what is packed", &mut command)?;
    Ok(repo::target_dir().join("release"))
}

/// The newest program of a test: others of its name were built with other features, or before.
fn newest(folder: &Path, test: &str) -> Result<PathBuf> {
    let reading = || format!("list {}", folder.display());
    let mut found: Option<(SystemTime, PathBuf)> = None;
    for entry in fs::read_dir(folder).map_err(Error::io(reading()))? {
        let path = entry.map_err(Error::io(reading()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hash = name.strip_prefix(test).and_then(|rest| rest.strip_prefix('-'));
        if !hash.is_some_and(|hash| hash.chars().all(|c| c.is_ascii_hexdigit())) {
            continue;
        }
        let changed = fs::metadata(&path).and_then(|data| data.modified());
        let changed = changed.map_err(Error::io(format!("look at {}", path.display())))?;
        found = found.max(Some((changed, path)));
    }
    found.map(|(_, path)| path).ok_or_else(|| {
        let folder = folder.display();
        Error::message(format!("cannot find the tests {test} in {folder}: build them first"))
    })
}

/// Fails unless a program starts on machines that have the system's libraries, old ones, and these of the vendors.
fn startable(program: &Path, allowed: &[&str]) -> Result<()> {
    let named = program.display();
    let mut needed = vendors(program)?;
    needed.retain(|library| !allowed.contains(&library.as_str()));
    if !needed.is_empty() {
        return Err(Error::message(format!(
            "cannot pack {named}: saw that it does not start without {}, allowed only libraries of the system",
            needed.join(", ")
        )));
    }
    let needed = glibc(program)?;
    if needed > GLIBC {
        let ((major, minor), most) = (needed, GLIBC);
        return Err(Error::message(format!(
            "cannot pack {named}: saw that it needs glibc {major}.{minor}, allowed up to {}.{}; build on Debian 12",
            most.0, most.1
        )));
    }
    Ok(())
}

/// Copies a program without what debuggers need, where the tool for it is there.
fn stripped(from: &Path, to: &Path) -> Result<()> {
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(to).arg(from);
    match strip.output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => copy(from, to),
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let what = format!("copy {} to {}", from.display(), to.display());
    fs::copy(from, to).map(drop).map_err(Error::io(what))
}

/// The vendors' libraries that the loader would look for before a program starts.
fn vendors(program: &Path) -> Result<Vec<String>> {
    let mut loader = Command::new("ldd");
    let listed = repo::capture("list what a program needs", loader.arg(program))?;
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    let needed = names.filter(|name| VENDORS.iter().any(|vendor| name.contains(vendor)));
    Ok(needed.map(str::to_owned).collect())
}

/// The newest version of the C library that a program names.
fn glibc(program: &Path) -> Result<(u32, u32)> {
    let bytes = fs::read(program).map_err(Error::io(format!("read {}", program.display())))?;
    const MARK: &[u8] = b"GLIBC_2.";
    let minor = |rest: &[u8]| {
        let digits: String =
            rest.iter().map(|&b| char::from(b)).take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().unwrap_or(0)
    };
    let marks = bytes.windows(MARK.len()).enumerate().filter(|(_, part)| *part == MARK);
    let most = marks.map(|(at, _)| minor(&bytes[at + MARK.len()..])).max().unwrap_or(0);
    Ok((2, most))
}

/// Bytes of all files of a folder.
fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for path in repo::files(folder)? {
        let path = folder.join(path);
        let data = fs::metadata(&path).map_err(Error::io(format!("look at {}", path.display())))?;
        bytes += data.len();
    }
    Ok(bytes)
}
