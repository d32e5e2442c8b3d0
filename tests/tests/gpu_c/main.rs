//! The C interface and NCCL's on devices: programs in C and C++ on the simulated driver, whose calls they make as
//! applications do. What passes here has not run on a GPU.

mod c;
mod nccl;
mod python;
#[path = "../../../ffi/nccl/tests/tools/mod.rs"]
mod tools;
#[path = "../../../ffi/tests/watched/mod.rs"]
mod watched;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a program finds and needs to run on the simulated driver.
struct Machine {
    environment: Vec<(&'static str, PathBuf)>,
    /// A folder of the test's own, in which the libraries have the names by which programs ask for them.
    folder: PathBuf,
}

impl Machine {
    /// `None` where the simulator cannot work; it says so, or fails the test.
    fn of(test: &str) -> Option<Self> {
        let parent = env!("CARGO_TARGET_TMPDIR");
        let environment = antiphon_tests::simulated::environment(test, parent)?;
        let folder = Path::new(parent).join(test);
        fs::create_dir_all(&folder).expect("a folder");
        for (name, target) in [
            ("libnccl.so.2", "libantiphon_nccl.so"),
            ("libantiphon.so.1", "libantiphon_c.so"),
            ("libantiphon.so", "libantiphon_c.so"),
        ] {
            let link = folder.join(name);
            let _ = fs::remove_file(&link);
            symlink(tools::libraries().join(target), link).expect("a link");
        }
        Some(Machine { environment, folder })
    }

    /// The library that stands for CUDA's driver.
    fn driver(&self) -> &Path {
        let named = self.environment.iter().find(|(name, _)| *name == "ANTIPHON_CUDA_LIB");
        &named.expect("the simulated driver is named").1
    }

    /// A compiler, with what every program is built with.
    fn compiler(&self, name: &str, source: &Path, program: &Path) -> Command {
        let mut command = Command::new(name);
        command.args(["-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]);
        command.arg(source).arg("-o").arg(program).arg(self.driver());
        command
    }

    /// A program, in the environment of the simulated driver.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.envs(self.environment.iter().cloned());
        command.env("LD_LIBRARY_PATH", &self.folder).env_remove("ANTIPHON_DEVICE");
        command.env("ANTIPHON_TIMEOUT", "120");
        command
    }
}

/// The folder of the repository.
fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
