//! Programs run by threads or processes, and made shorter where they fail.

use crate::program::{Program, Step};
use crate::rank::{Process, Rank};
use antiphon::executor::hal::{Backend, driver};
use antiphon::executor::{self, KernelForm, Options};
use antiphon::{Communicator, Registry};
use antiphon_tests::harness::processes::{Ranks, Role};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

/// How long a call may make no progress.
const LIMIT: Duration = Duration::from_secs(60);

fn options(program: &Program, registry: &Registry) -> Options {
    Options::default()
        .with_timeout(Some(LIMIT))
        .with_reproducible(program.reproducible)
        .with_process_access(program.process_access)
        .with_registry(registry.clone())
}

/// Runs a program by a thread for each rank.
///
/// # Errors
/// What each rank that failed found.
pub fn on_threads(program: &Program) -> Result<(), String> {
    let process = Process::default();
    let options = options(program, &process.registry);
    let ends = if program.on_gpu {
        let options = options.with_block_threads(Some(32)).with_kernels(KernelForm::Interpreted);
        let device = driver(Backend::Cuda).and_then(|driver| driver.open(0)).expect("a device");
        let devices = vec![device; program.hosts.len()];
        executor::Communicator::in_process_at(&program.hosts, &devices, &options)
    } else {
        executor::Communicator::in_process_on(&program.hosts, &options)
    };
    let ends = ends.map_err(|error| error.to_string())?;
    let ends: Vec<_> = ends
        .iter()
        .map(Communicator::new)
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let run = |end| {
        let run = AssertUnwindSafe(|| Rank::run(program, end, &process));
        catch_unwind(run).unwrap_or_else(|_| Err("a panic".to_owned()))
    };
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let ranks: Vec<_> = ends.into_iter().map(|end| scope.spawn(|| run(end))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("panics are caught")).collect()
    });
    let failed: Vec<String> = outcomes.into_iter().filter_map(Result::err).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Descriptors and mappings of memory of Antiphon that this process has.
pub fn held() -> [usize; 2] {
    let is_ours = |path: &Path| path.to_string_lossy().contains("memfd:antiphon");
    let files = fs::read_dir("/proc/self/fd").expect("the descriptors of this process").flatten();
    let files = files.filter(|file| fs::read_link(file.path()).is_ok_and(|path| is_ours(&path)));
    let maps = fs::read_to_string("/proc/self/maps").expect("the mappings of this process");
    [files.count(), maps.lines().filter(|line| is_ours(Path::new(line))).count()]
}

/// Starts processes that run the program of a seed, as the test `test` of this binary.
pub fn on_processes(test: &str, seed: u64) {
    let hosts = Program::new(seed).hosts;
    let hosts: Vec<Option<&str>> = hosts.into_iter().map(Some).collect();
    Ranks::start_on(test, &hosts, &seed.to_string()).succeed();
}

/// Runs a program as one process of it.
pub fn as_process(role: &Role) {
    let program = Program::new(role.job.parse().expect("a seed"));
    let process = Process::default();
    let end = role.connect(&options(&program, &process.registry)).unwrap();
    let end = Communicator::new(&end).unwrap();
    Rank::run(&program, end, &process)
        .unwrap_or_else(|error| panic!("seed {}: {error}", program.seed));
}

/// Runs a program; where it fails, the shortest part of it that fails as well, in words.
///
/// # Errors
/// Those words.
pub fn check(program: &Program) -> Result<(), String> {
    let Err(error) = on_threads(program) else { return Ok(()) };
    eprintln!("seed {} fails, and is made shorter: {error}", program.seed);
    let (program, error) = shorten(program.clone(), error);
    let steps: Vec<String> = program.steps.iter().map(|step| format!("  {step:?}")).collect();
    let Program { seed, hosts, reproducible, process_access, .. } = &program;
    Err(format!(
        "seed {seed}, on {hosts:?}, reproducible {reproducible}, access {process_access}:\n{}\n{error}",
        steps.join("\n")
    ))
}

/// Leaves out what need not be there for a program to fail.
fn shorten(mut program: Program, mut error: String) -> (Program, String) {
    // A failure may need luck.
    let fails = |program: &Program| (0..3).find_map(|_| on_threads(program).err());
    let mut at = program.steps.len();
    while at > 0 {
        at -= 1;
        let mut shorter = program.clone();
        shorter.steps.remove(at);
        if let Some(found) = fails(&shorter) {
            (program, error) = (shorter, found);
            continue;
        }
        let Step::Make { calls, .. } = &program.steps[at] else { continue };
        for left_out in (0..calls.len()).rev().filter(|_| calls.len() > 1) {
            let mut shorter = program.clone();
            if let Step::Make { calls, .. } = &mut shorter.steps[at] {
                calls.remove(left_out);
            }
            if let Some(found) = fails(&shorter) {
                (program, error) = (shorter, found);
                break;
            }
        }
    }
    (program, error)
}
