//! Plans as kernels, on the simulated driver, unless the `run.sh` of `cargo xtask gpu-pack` names a card's: right results, replays,
//! several streams, and ends that say why. What passes here without that has not run on a GPU.

mod buffers;
mod caller;
mod coded;
mod copies;
mod counted;
mod defaults;
mod devices;
mod direct;
mod ends;
mod faults;
mod first;
mod graphs;
mod grouped;
mod groups;
mod handed;
mod heard;
mod held;
mod hosts;
mod islands;
mod lane;
mod leaving;
mod methods;
mod plans;
mod ports;
mod prebuilt;
mod reproducible;
mod rooted;
mod runtime_sizes;
mod scaled;
mod streams;
mod together;
mod transfers;
mod waiting;

use antiphon::executor::hal::{Backend, Device, driver};
use antiphon::executor::{Communicator, Options};
use antiphon_tests::application::Application;
use antiphon_tests::simulated::{Simulated, pass_over};
use std::sync::Arc;
use std::time::Duration;

/// The process with the simulated driver, if this is it; else the test has been run there.
fn on_simulator(test: &str) -> Option<Simulated> {
    antiphon_tests::simulated::enter(test, env!("CARGO_TARGET_TMPDIR"), &[])
}

/// As [`on_simulator`], for a test of so many devices: the simulator has them, a machine whose driver stands for it may not.
fn on_simulator_of(test: &str, devices: usize) -> Option<Simulated> {
    on_simulator(test).filter(|_| there_are(test, devices))
}

/// Whether there are so many devices. Says so where there are not.
fn there_are(test: &str, devices: usize) -> bool {
    let there = driver(backend()).unwrap().devices().unwrap().len();
    if there < devices {
        let seen = if there == 1 { "there is 1".to_owned() } else { format!("there are {there}") };
        pass_over(test, &format!("it needs {devices} devices, and {seen}"));
    }
    there >= devices
}

/// As [`on_simulator`], with variables of the simulator.
fn on_simulator_with(test: &str, environment: &[(&str, &str)]) -> Option<Simulated> {
    antiphon_tests::simulated::enter(test, env!("CARGO_TARGET_TMPDIR"), environment)
}

/// As [`on_simulator_with`], for a test that real drivers must not run.
fn on_simulator_alone(test: &str, environment: &[(&str, &str)]) -> Option<Simulated> {
    let simulated = on_simulator_with(test, environment)?;
    let is_set = |(name, value): &(&str, &str)| std::env::var(name).is_ok_and(|set| set == *value);
    if simulated.is_simulated() && environment.iter().all(is_set) {
        return Some(simulated);
    }
    pass_over(test, "it is for the simulated driver, in a process of its own");
    None
}

/// Names another backend than CUDA's, for builds that have it: `rocm`.
const BACKEND: &str = "ANTIPHON_TEST_BACKEND";

/// Whose device is used.
fn backend() -> Backend {
    match std::env::var(BACKEND) {
        Err(_) => Backend::Cuda,
        Ok(name) => Backend::ALL.into_iter().find(|one| one.name() == name).expect("a backend"),
    }
}

/// As [`on_simulator`], for tests in which the application makes CUDA's calls; `None` where another backend is tested.
fn cuda_only(test: &str) -> Option<Simulated> {
    cuda_only_with(test, &[])
}

/// As [`cuda_only`], with variables of the simulator.
fn cuda_only_with(test: &str, environment: &[(&str, &str)]) -> Option<Simulated> {
    if !is_cuda(test) {
        return None;
    }
    antiphon_tests::simulated::enter(test, env!("CARGO_TARGET_TMPDIR"), environment)
}

/// Whether CUDA's backend is tested. Says so where not, since the test's application makes CUDA's calls.
fn is_cuda(test: &str) -> bool {
    let is = backend() == Backend::Cuda;
    if !is {
        pass_over(test, "the application's calls in it are CUDA's");
    }
    is
}

/// The application of a test that real drivers must not run.
fn simulated_alone(test: &str, simulated: &Simulated) -> Option<Application> {
    let application = Application::new(simulated);
    if application.is_simulated() {
        return Some(application);
    }
    pass_over(test, "it is for the simulated driver");
    None
}

/// The device that all ranks share.
fn device() -> Arc<dyn Device> {
    driver(backend()).unwrap().open(0).unwrap()
}

/// Options whose limit is far above what any right launch takes. Small blocks: each of their threads is simulated.
fn options() -> Options {
    Options::default().with_timeout(Some(Duration::from_secs(60))).with_block_threads(Some(32))
}

/// How long launches may wait in tests whose launches never end: so long that each has said where it is by then, on a busy
/// machine too.
const LIMIT: Duration = Duration::from_secs(5);

/// Longer than kernels take that a simulated driver compiles first, on a busy machine, and than any limit of launches here.
const COMPILING: Duration = Duration::from_secs(180);

/// Longer than anything takes that waits for none of the limits of these tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `work` as each of `world` ranks on one device, each on a thread of its own; the results in rank order.
fn on_threads<T: Send>(
    world: u32,
    options: &Options,
    work: impl Fn(Communicator) -> T + Sync,
) -> Vec<T> {
    on_devices(&vec![device(); world as usize], options, work)
}

/// As [`on_threads`], by ranks with these devices.
fn on_devices<T: Send>(
    devices: &[Arc<dyn Device>],
    options: &Options,
    work: impl Fn(Communicator) -> T + Sync,
) -> Vec<T> {
    on_ranks(Communicator::in_process_over(devices, options).unwrap(), work)
}

/// As [`on_threads`], by these ranks.
fn on_ranks<T: Send>(ranks: Vec<Communicator>, work: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || work(rank))).collect();
        ranks
            .into_iter()
            .map(|rank| rank.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
