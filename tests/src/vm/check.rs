//! What a test does with a virtual machine: it skips, with the reason, or all of its runs end as they should.

use super::{Host, Image, Machine, Missing, Run};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Boots what `image` makes and carries out `runs`, whose output goes to this process's. What is missing is printed as the
/// reason why `test` is skipped.
///
/// # Panics
/// If a run does not end as expected; if something is missing although the environment says that nothing may be.
pub fn check(test: &str, image: impl FnOnce(&Host) -> Result<Image, Missing>, runs: &[Run]) {
    let prepared = Host::find().and_then(|host| image(&host).map(|image| (host, image)));
    let (host, image) = match prepared {
        Ok(prepared) => prepared,
        Err(missing) => {
            let needed = std::env::var_os("ANTIPHON_NEEDS_VM").is_some();
            assert!(!needed, "{missing}");
            // Written past the harness's capture, which hides what tests that pass print.
            let _ = writeln!(std::io::stderr(), "SKIP {test}: {missing}");
            return;
        }
    };
    let report = Machine::run(&host, image, runs, |line| println!("{line}"));
    let report = report.expect("the emulator starts");
    if let Some(fault) = report.fault() {
        panic!("{fault}");
    }
}

/// The RDMA wire's plugin: where the environment says, or next to `program`.
///
/// # Errors
/// If there is none, or one without RDMA.
pub fn rdma_plugin(program: &Path) -> Result<PathBuf, Missing> {
    let file = std::env::var_os("ANTIPHON_RDMA_PLUGIN").map(PathBuf::from);
    let file = file.unwrap_or_else(|| program.with_file_name("libantiphon_wire_rdma.so"));
    let how = "it: cargo build -p antiphon-wire-rdma --features rdma, and ANTIPHON_RDMA_PLUGIN says where";
    let contents = std::fs::read(&file)
        .map_err(|e| Missing::new(&file.display().to_string(), &e.to_string(), how))?;
    let with_verbs = contents.windows(10).any(|window| window == b"libibverbs");
    if !with_verbs {
        return Err(Missing::new("the RDMA plugin", "it was built without libibverbs", how));
    }
    Ok(file)
}
