//! Tests of GPU code where there is no GPU: each runs itself a second time, alone, in a process for which the simulated
//! driver of `tests/gpusim` stands for CUDA's and HIP's. What passes there has not run on a GPU.
//!
//! ```ignore
//! let Some(simulated) = antiphon_tests::simulated::enter("module::name", env!("CARGO_TARGET_TMPDIR"), &[]) else {
//!     return;
//! };
//! ```

use crate::hal::support::{assert_passed, myself};
use libloading::Library;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

/// Set in the second process, to the driver's file.
pub const INSIDE: &str = "ANTIPHON_TEST_SIMULATED";
/// Where it is set, the simulator is not used, and it says why.
const WITHOUT: &str = "ANTIPHON_TEST_WITHOUT_SIMULATOR";
/// Where it is set, a simulator that cannot work is a failure.
const NEEDED: &str = "ANTIPHON_NEEDS_SIMULATOR";
/// A function that no real driver has.
const MARK: &[u8] = b"antiphon_gpusim_fault";
/// How long a test may take. None takes as long on a machine that is merely busy.
const LIMIT: Duration = Duration::from_secs(300);
/// The names under which programs look for the drivers and the run-time compilers, and the variables that name them.
const NAMES: [(&str, &str); 4] = [
    ("ANTIPHON_CUDA_LIB", "libcuda.so.1"),
    ("ANTIPHON_NVRTC_LIB", "libnvrtc.so.12"),
    ("ANTIPHON_HIP_LIB", "libamdhip64.so.7"),
    ("ANTIPHON_HIPRTC_LIB", "libhiprtc.so.7"),
];

/// The process runs on the simulated driver.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// The file that stands for the driver, for tests that call it as an application does.
    pub driver: PathBuf,
}

impl Simulated {
    /// Whether the driver is the simulated one, and no real one that stands for it.
    pub fn is_simulated(&self) -> bool {
        // SAFETY: drivers are made to be loaded, and the tests of the process load this one.
        let library = unsafe { Library::new(&self.driver) };
        // SAFETY: nothing is called.
        let has = |library: Library| unsafe { library.get::<*const ()>(MARK) }.is_ok();
        library.is_ok_and(has)
    }
}

/// In the process that runs on the simulated driver: where that is. Everywhere else: runs the test `test` in such a
/// process, with `environment` set in addition, checks that it passed there, and is `None`. Where the simulator cannot
/// work, a line that starts with `SKIP` says why, or the test fails, if `ANTIPHON_NEEDS_SIMULATOR` is set. `folder` is the
/// caller's `CARGO_TARGET_TMPDIR`.
pub fn enter(test: &str, folder: &str, environment: &[(&str, &str)]) -> Option<Simulated> {
    if let Some(driver) = std::env::var_os(INSIDE) {
        return Some(Simulated { driver: driver.into() });
    }
    if !can(test) {
        return None;
    }
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        say("these tests run on the SIMULATED driver (tests/gpusim), not on a GPU: a pass says nothing of one");
    });
    let folder = prepared(Path::new(folder));
    // One file, whatever its name: an application may call it by any.
    let driver = folder.join(NAMES[0].1);
    let mut command = myself(test, INSIDE, &driver.to_string_lossy());
    command.envs(variables(&folder)).envs(environment.iter().copied());
    let output = within(LIMIT, &mut command, test);
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        if line.starts_with("SKIP") {
            say(line);
        }
    }
    assert_passed(&output);
    None
}

/// The environment in which a program finds the simulated driver in place of the vendors'; `None`, and a line that starts
/// with `SKIP` and says why, or a failed test, as with [`enter`], where it cannot work. `folder` is the caller's
/// `CARGO_TARGET_TMPDIR`.
pub fn environment(test: &str, folder: &str) -> Option<Vec<(&'static str, PathBuf)>> {
    can(test).then(|| variables(&prepared(Path::new(folder))))
}

/// Whether the simulator works here. Says why if not, and fails the test if it must.
fn can(test: &str) -> bool {
    let Err(why) = usable() else { return true };
    assert!(std::env::var_os(NEEDED).is_none(), "{test}: {NEEDED} is set, but {why}");
    say(&format!("SKIP {test}: {why}"));
    false
}

/// What makes programs find the simulated driver in a folder, and keep what kernels become.
fn variables(folder: &Path) -> Vec<(&'static str, PathBuf)> {
    let libraries = NAMES.map(|(variable, name)| (variable, folder.join(name)));
    let kept = [("ANTIPHON_CACHE_DIR", "cache"), ("ANTIPHON_GPUSIM_CACHE", "kernels")];
    let kept = kept.map(|(variable, name)| (variable, folder.join(name)));
    libraries.into_iter().chain(kept).collect()
}

/// Says that a test is not run, for a reason that is no fault.
pub fn pass_over(test: &str, why: &str) {
    say(&format!("SKIP {test}: {why}"));
}

/// Writes a line past the harness's capture, which hides what the print macros print in tests that pass.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// What compiles kernels for the simulated driver.
pub fn compiler() -> OsString {
    std::env::var_os("ANTIPHON_GPUSIM_CXX").unwrap_or_else(|| "g++".into())
}

/// Whether kernels can be compiled, or why not.
fn usable() -> Result<(), String> {
    static USABLE: OnceLock<Result<(), String>> = OnceLock::new();
    let probe = || {
        if let Some(why) = std::env::var_os(WITHOUT) {
            return Err(format!("no simulated driver: {}", why.to_string_lossy()));
        }
        let compiler = compiler();
        let name = compiler.to_string_lossy().into_owned();
        match Command::new(&compiler).arg("--version").output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                Err(format!("the simulated driver compiles kernels by {name}: {}", output.status))
            }
            Err(error) => Err(format!("the simulated driver compiles kernels by {name}: {error}")),
        }
    };
    USABLE.get_or_init(probe).clone()
}

/// The library that cargo built beside this program, as it does for every dependency.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("a test knows its own file");
    let name = "libantiphon_gpusim.so";
    let folders = program.ancestors().skip(1).take(2);
    let mut places = folders.map(|folder| folder.join(name));
    places.find(|place| place.exists()).expect("cargo built the simulated driver")
}

/// A folder below `parent` in which the library has the names that programs look for, and in which what kernels become
/// is kept.
fn prepared(parent: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (folder, library) = (parent.join("simulated-driver"), library());
    fs::create_dir_all(&folder).expect("the folder for tests takes files");
    for (_, name) in NAMES {
        let path = folder.join(name);
        if fs::read_link(&path).is_ok_and(|link| link == library) {
            continue;
        }
        // Renamed into place: other tests look at the same time.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let new = folder.join(format!(".{name}.{}.{number}", std::process::id()));
        symlink(&library, &new).expect("the folder takes links");
        fs::rename(&new, &path).expect("the folder takes links");
    }
    folder
}

/// Runs `command`, and ends it when it takes too long.
fn within(limit: Duration, command: &mut Command, test: &str) -> std::process::Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let process = Pid::from_child(&child);
    let (send, receive) = mpsc::channel();
    let waiter = thread::spawn(move || {
        let output = child.wait_with_output();
        let _ = send.send(());
        output
    });
    let late = receive.recv_timeout(limit).is_err();
    if late {
        // Not collected yet, as the waiter would have said so: the number is still the child's.
        let _ = kill_process(process, Signal::KILL);
    }
    let output = waiter.join().unwrap().unwrap();
    assert!(
        !late,
        "{test}: not done after {limit:?} on the simulated driver\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
