//! What the machine that runs the tests has for a virtual machine.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Something that a virtual machine needs is not there.
#[derive(Clone, Debug)]
pub struct Missing {
    what: String,
    why: String,
    package: String,
}

impl Missing {
    /// What is missing, why that is known, and what brings it.
    pub fn new(what: &str, why: &str, package: &str) -> Self {
        Missing { what: what.to_owned(), why: why.to_owned(), package: package.to_owned() }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is missing ({}); install {}", self.what, self.why, self.package)
    }
}

/// Where things are.
#[derive(Debug)]
pub struct Host {
    /// The emulator.
    pub qemu: PathBuf,
    /// The kernel.
    pub kernel: PathBuf,
    /// Its modules.
    pub modules: PathBuf,
    /// A shell and tools in one file that needs no libraries.
    pub busybox: PathBuf,
    /// What makes interfaces.
    pub ip: PathBuf,
    /// What makes RDMA devices.
    pub rdma: PathBuf,
    /// What knows the devices for libibverbs, and the file that names it.
    pub provider: [PathBuf; 2],
}

impl Host {
    /// Finds everything.
    ///
    /// # Errors
    /// The first thing that is missing.
    pub fn find() -> Result<Self, Missing> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Missing::new("an x86-64 machine", env::consts::ARCH, "nothing"));
        }
        let (kernel, modules) = kernel()?;
        Ok(Host {
            qemu: program("qemu-system-x86_64", "qemu-system-x86")?,
            kernel,
            modules,
            busybox: program("busybox", "busybox-static")?,
            ip: program("ip", "iproute2")?,
            rdma: program("rdma", "iproute2")?,
            provider: [provider()?, there("/etc/libibverbs.d/rxe.driver", "ibverbs-providers")?],
        })
    }
}

fn there(path: &str, package: &str) -> Result<PathBuf, Missing> {
    let found = Path::new(path);
    if found.is_file() {
        return Ok(found.to_owned());
    }
    Err(Missing::new(path, "there is no such file", package))
}

/// The provider of whichever release of libibverbs there is: its file has the release's number.
fn provider() -> Result<PathBuf, Missing> {
    const FOLDER: &str = "/usr/lib/x86_64-linux-gnu/libibverbs";
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let is_provider = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("librxe-"))
    };
    entries.map(|entry| entry.path()).find(is_provider).ok_or_else(|| {
        Missing::new(&format!("{FOLDER}/librxe-*"), "there is no such file", "ibverbs-providers")
    })
}

fn program(name: &str, package: &str) -> Result<PathBuf, Missing> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = env::split_paths(&path).chain(system);
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()));
    found.ok_or_else(|| Missing::new(name, "no such program on the PATH", package))
}

/// A kernel with its modules: where the environment says, or the newest that is installed.
fn kernel() -> Result<(PathBuf, PathBuf), Missing> {
    let root = env::var_os("ANTIPHON_VM_KERNEL").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let boot = root.join("boot");
    let entries = fs::read_dir(&boot).into_iter().flatten().flatten();
    let mut found: Vec<(PathBuf, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix("vmlinuz-")?;
            let modules = ["lib/modules", "usr/lib/modules"].map(|m| root.join(m).join(version));
            let modules = modules.into_iter().find(|folder| folder.join("kernel").is_dir())?;
            Some((entry.path(), modules))
        })
        .collect();
    found.sort();
    found.pop().ok_or_else(|| {
        let why = format!("{} has none with its modules", boot.display());
        Missing::new("a Linux kernel", &why, "linux-image-amd64, or set ANTIPHON_VM_KERNEL")
    })
}
