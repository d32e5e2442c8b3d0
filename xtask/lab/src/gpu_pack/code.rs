//! The code of the packed plans' kernels, for machines without a run-time compiler.

use crate::gpu_compile::compilers::{NEWEST, OLDEST, Package, nvrtc};
use crate::{Result, repo};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The architectures, and who compiles for them: the oldest compiler where it knows them, since older drivers take its code.
const ARCHITECTURES: [(Package, &[&str]); 2] =
    [(OLDEST, &["sm_80", "sm_90"]), (NEWEST, &["sm_100"])];

/// Has the packed command compile the kernels of plans ahead, for the element type that it takes unasked, into a folder.
pub fn pack(antiphon: &Path, plans: &[PathBuf], folder: &Path) -> Result<()> {
    for (compiler, architectures) in ARCHITECTURES {
        let mut command = Command::new(antiphon);
        command.args(["plan", "kernels"]).args(plans).arg("--output").arg(folder);
        for architecture in architectures {
            command.args(["--architecture", architecture]);
        }
        command.env("ANTIPHON_NVRTC_LIB", nvrtc(compiler)?);
        repo::stream("compile the kernels of what is packed", &mut command)?;
    }
    Ok(())
}
