//! How a communicator behaves.

use super::name::{self, Whose};
use crate::error::ExecutorError;
use crate::registry::{Installed, Registry};
use crate::selection::Tuning;
use crate::sync::lock;
use antiphon_bootstrap::launcher::{self, Environment, LauncherError};
use antiphon_hal::Device;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a plan becomes on a GPU. The results are the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KernelForm {
    /// [`Generated`](Self::Generated) where there is a run-time compiler and a rank's program has at most 800 steps, those of
    /// loops counted once; else [`Interpreted`](Self::Interpreted).
    #[default]
    Auto,
    /// A kernel of the plan's own, compiled when the plan is first called with a type.
    Generated,
    /// A table for the interpreting kernel, of which there is one for each type. It comes compiled.
    Interpreted,
}

impl KernelForm {
    /// All of them.
    pub const ALL: [KernelForm; 3] =
        [KernelForm::Auto, KernelForm::Generated, KernelForm::Interpreted];

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            KernelForm::Auto => "auto",
            KernelForm::Generated => "generated",
            KernelForm::Interpreted => "interpreted",
        }
    }
}

impl fmt::Display for KernelForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KernelForm {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        KernelForm::ALL.into_iter().find(|form| form.name() == name).ok_or_else(|| {
            let names = KernelForm::ALL.map(KernelForm::name).join(", ");
            format!("cannot use kernels of the form `{name}`: allowed {names}")
        })
    }
}

/// How long a launch may make no progress, where nobody says it.
const MINUTE: Duration = Duration::from_secs(60);

/// The variables of the environment that say what no option names.
const CALL_TIMEOUT: &str = "ANTIPHON_CALL_TIMEOUT";
const WIRE: &str = "ANTIPHON_WIRE";
const KERNELS: &str = "ANTIPHON_KERNELS";

/// How a communicator behaves.
///
/// What nobody names is as by default, or as the environment says: a communicator cannot be made with options that a variable
/// garbles ([`check`](Self::check)), unless a `with_…` method names that option.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How long a launch may make no progress before it fails; `None` waits for ever (for debuggers). A minute, unless
    /// `ANTIPHON_CALL_TIMEOUT` in the environment says another time, or `off`.
    pub timeout: Option<Duration>,
    /// Whether peers may reach plain memory through the kernel where that is permitted. Off, plain memory is always
    /// staged.
    pub process_access: bool,
    /// Whether executors verify the plans they load: refuted ones are refused, and of others
    /// [`LoadedPlan::verdict`](crate::LoadedPlan::verdict) says what is known. Off, a plan that hangs or corrupts is
    /// found out when it does.
    pub verification: bool,
    /// What the communicator is called in its errors and in the lines of the log about it: 1 to 128 bytes of text without control
    /// characters. It is for people, on this rank: ranks may differ, and only some may have one.
    pub name: Option<String>,
    /// The wire that port channels use, e.g. `tcp`; `None` takes the cheapest that both ends have. `ANTIPHON_WIRE` in the
    /// environment sets it. All ranks must say the same.
    pub wire: Option<String>,
    /// The network interface that wires use, by its name, an address of it, or an address prefix (`10.1.0.0/16`, `10.1.`); and
    /// the ranks' meeting, unless the place names one (`eth0:10.0.0.1:4000`). With `None` the wires take the meeting's, which a place
    /// or the environment may name ([`Communicator::from_place`](crate::Communicator::from_place),
    /// [`from_environment`](crate::Communicator::from_environment)); else the TCP wire takes the address by which the ranks met.
    pub interface: Option<String>,
    /// The device of the ranks' buffers; `None` is the host. All ranks must pass devices of one backend.
    pub device: Option<Arc<dyn Device>>,
    /// Threads of each thread block on a GPU, 1 to 512; `None` takes what the plan says.
    pub block_threads: Option<u32>,
    /// What plans become on a GPU. `ANTIPHON_KERNELS` in the environment sets it. Ranks may differ.
    pub kernels: KernelForm,
    /// Whether switch channels go through multicast groups where the members' devices have them. Sums then round as the
    /// switch does, from the launch on in which a rank's group is ready. Off, each member is reached by itself, always.
    pub multicast: bool,
    /// Whether peers in other processes map memory of `cudaMalloc`, by the driver's legacy IPC handles. That may wait for the
    /// kernels of a device, and a launch that waits for it would hang: each buffer's first launch must have the device to
    /// itself on all ranks. Off, such buffers are staged. `ANTIPHON_LEGACY_IPC=1` in the environment sets it.
    pub legacy_ipc: bool,
    /// Whether calls by name keep one order of sums, whatever a message's size and an element's place in it, so that a tensor
    /// has the same bits however it is put into buckets. `ANTIPHON_REPRODUCIBLE=1` in the environment sets it. All ranks must
    /// say the same.
    pub reproducible: bool,
    /// What serves calls by name beside the built-in algorithms. All ranks must find the same there.
    pub registry: Registry,
    /// The times that calls by name are served by, if all ranks have them: the process's own unless given.
    pub tuning: Option<Tuning>,
    /// The installed plans that calls by name may be served by, if all ranks have the same: the process's own unless given.
    pub installed: Option<Installed>,
    /// Tags that registered plans, installed ones, and registered code, must have to serve this communicator. `ANTIPHON_TAGS` in
    /// the environment sets them, with commas between them. All ranks must say the same.
    pub tags: Vec<String>,
    /// Whether launches on GPUs follow each other whatever streams they are on, as NCCL's calls do. Each begins after the one
    /// before it; all ranks make them in one order, but each rank chooses its own streams. Launches recorded into graphs follow
    /// each other in their recording. Off, streams are numbered, and all ranks must use them alike. All ranks must say the same.
    pub one_lane: bool,
    /// What the log calls a pair.
    pair: Option<Whose>,
    /// What is wrong with variables whose options nobody has named.
    garbled: BTreeMap<&'static str, LauncherError>,
}

impl Default for Options {
    fn default() -> Self {
        Options::of(&Environment::of_process())
    }
}

/// A variable's value. Where it is garbled that is noted, and there is none.
fn noted<T>(
    garbled: &mut BTreeMap<&'static str, LauncherError>,
    variable: &'static str,
    value: launcher::Result<Option<T>>,
) -> Option<T> {
    value.unwrap_or_else(|error| {
        garbled.insert(variable, error);
        None
    })
}

/// A time limit, or none.
fn limit(text: &str) -> Option<Option<Duration>> {
    if text == "off" { Some(None) } else { launcher::read_time(text).map(Some) }
}

impl Options {
    /// What nobody names, where the environment says this of wires, kernels and the time limit.
    fn of(environment: &Environment) -> Self {
        let mut garbled = BTreeMap::new();
        let times = "a time such as 500ms, 60s, 2m or 60 (seconds), or off for none";
        let timeout = environment.read(CALL_TIMEOUT, times, limit);
        let forms = "auto, generated or interpreted";
        let kernels = environment.read(KERNELS, forms, |name| name.parse().ok());
        Options {
            timeout: noted(&mut garbled, CALL_TIMEOUT, timeout).unwrap_or(Some(MINUTE)),
            process_access: true,
            verification: true,
            name: None,
            wire: environment.get(WIRE).map(str::to_owned),
            interface: None,
            device: None,
            block_threads: None,
            kernels: noted(&mut garbled, KERNELS, kernels).unwrap_or_default(),
            multicast: true,
            legacy_ipc: is_on("ANTIPHON_LEGACY_IPC"),
            reproducible: is_on("ANTIPHON_REPRODUCIBLE"),
            registry: Registry::process(),
            tuning: None,
            installed: None,
            tags: listed(&std::env::var("ANTIPHON_TAGS").unwrap_or_default()),
            one_lane: false,
            pair: None,
            garbled,
        }
    }
}

/// Whether a variable of the environment is 1. What is neither 0 nor 1 is warned of, once in this process, and does nothing.
fn is_on(variable: &'static str) -> bool {
    static WARNED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let value = std::env::var_os(variable).unwrap_or_default();
    let said = switch(&value.to_string_lossy());
    if said.is_none() && lock(&WARNED).insert(variable) {
        log::warn!("{variable} does nothing: saw {value:?}, allowed 0 or 1; correct it");
    }
    said.unwrap_or(false)
}

/// What a switch says, if it says something.
fn switch(value: &str) -> Option<bool> {
    match value {
        "" | "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// The tags of a text that has commas between them.
fn listed(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|tag| !tag.is_empty()).map(str::to_owned).collect()
}

impl Options {
    /// These options with another time limit.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self.garbled.remove(CALL_TIMEOUT);
        self
    }

    /// These options with or without access through the kernel.
    #[must_use]
    pub fn with_process_access(mut self, allowed: bool) -> Self {
        self.process_access = allowed;
        self
    }

    /// These options with a name for the communicator.
    #[must_use]
    pub fn with_name(mut self, name: Option<String>) -> Self {
        self.name = name;
        self
    }

    /// These options with a wire for port channels; with `None` the cheapest, whatever the environment says.
    #[must_use]
    pub fn with_wire(mut self, wire: Option<String>) -> Self {
        self.wire = wire;
        self
    }

    /// These options with a network interface for wires: a name, an address, or an address prefix.
    #[must_use]
    pub fn with_interface(mut self, interface: Option<String>) -> Self {
        self.interface = interface;
        self
    }

    /// These options with the device of the ranks' buffers.
    #[must_use]
    pub fn with_device(mut self, device: Option<Arc<dyn Device>>) -> Self {
        self.device = device;
        self
    }

    /// These options with a number of threads for each thread block on a GPU.
    #[must_use]
    pub fn with_block_threads(mut self, threads: Option<u32>) -> Self {
        self.block_threads = threads;
        self
    }

    /// These options with a form of kernels.
    #[must_use]
    pub fn with_kernels(mut self, form: KernelForm) -> Self {
        self.kernels = form;
        self.garbled.remove(KERNELS);
        self
    }

    /// These options with or without multicast groups.
    #[must_use]
    pub fn with_multicast(mut self, on: bool) -> Self {
        self.multicast = on;
        self
    }

    /// These options with memory of `cudaMalloc` mapped by other processes, or staged.
    #[must_use]
    pub fn with_legacy_ipc(mut self, on: bool) -> Self {
        self.legacy_ipc = on;
        self
    }

    /// These options with or without one order of sums for calls by name.
    #[must_use]
    pub fn with_reproducible(mut self, on: bool) -> Self {
        self.reproducible = on;
        self
    }

    /// These options with a tuning table, in the place of the process's own. It is used if all ranks have the same.
    #[must_use]
    pub fn with_tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = Some(tuning);
        self
    }

    /// These options with a registry, in the place of the process's own.
    #[must_use]
    pub fn with_registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// These options with installed plans, in the place of the process's own. They serve if all ranks have the same.
    #[must_use]
    pub fn with_installed(mut self, installed: Installed) -> Self {
        self.installed = Some(installed);
        self
    }

    /// These options with tags that what is registered must have.
    #[must_use]
    pub fn with_tags(mut self, tags: Vec<String>) -> Self {
        self.tags = tags;
        self
    }

    /// These options with or without one lane for the launches on all streams.
    #[must_use]
    pub fn with_one_lane(mut self, on: bool) -> Self {
        self.one_lane = on;
        self
    }

    /// Checks that the name is one, and that the environment garbles none of the options that nobody has named.
    ///
    /// # Errors
    /// `Argument` for the name; [`Launcher`](ExecutorError::Launcher), which names the variable.
    pub fn check(&self) -> Result<(), ExecutorError> {
        self.name.as_deref().map_or(Ok(()), name::check)?;
        self.garbled.values().next().map_or(Ok(()), |error| Err(error.clone().into()))
    }

    /// These options for a pair, which the log calls this. Its errors the communicator tells whose transfers go through it.
    pub(super) fn of_pair(self, whose: Whose) -> Self {
        Options { name: None, pair: Some(whose), ..self }
    }

    /// What errors and the log call a communicator with these options.
    pub(super) fn whose(&self, rank: u32, world: u32) -> Whose {
        let own = || Whose::of(self.name.as_deref(), rank, world);
        self.pair.clone().unwrap_or_else(own)
    }

    /// An error of a communicator that is being made with these options.
    pub(super) fn names(&self, error: ExecutorError) -> ExecutorError {
        match &self.name {
            Some(name) => error.named(&name::called(name)),
            None => error,
        }
    }

    /// The device of the ranks' buffers.
    pub(super) fn device(&self) -> Result<Arc<dyn Device>, ExecutorError> {
        self.device.as_ref().map_or_else(super::host, |device| Ok(Arc::clone(device)))
    }

    /// These options with or without the verification of plans.
    #[must_use]
    pub fn with_verification(mut self, on: bool) -> Self {
        self.verification = on;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(variables: &[(&str, &str)]) -> Options {
        Options::of(&variables.iter().copied().collect())
    }

    #[test]
    fn the_environment_says_what_nobody_names() {
        let asked = said(&[(CALL_TIMEOUT, "5m"), (WIRE, "tcp"), (KERNELS, "interpreted")]);
        asked.check().unwrap();
        assert_eq!(asked.timeout, Some(Duration::from_secs(300)));
        assert_eq!(asked.wire.as_deref(), Some("tcp"));
        assert_eq!(asked.kernels, KernelForm::Interpreted);
        assert_eq!(said(&[(CALL_TIMEOUT, "off")]).timeout, None);
        for blank in ["", " "] {
            let asked = said(&[(CALL_TIMEOUT, blank), (WIRE, blank), (KERNELS, blank)]);
            asked.check().unwrap();
            assert_eq!(asked.timeout, Some(MINUTE));
            assert_eq!((asked.wire, asked.kernels), (None, KernelForm::Auto));
        }
    }

    #[test]
    fn what_the_environment_garbles_is_an_error_unless_it_is_named() {
        let named = |options: Options| {
            options.with_timeout(Some(MINUTE)).with_kernels(KernelForm::Generated)
        };
        let cases = [
            (CALL_TIMEOUT, ["0", "soon", "OFF"], "off for none"),
            (KERNELS, ["fast", "Auto", "generated,"], "generated or interpreted"),
        ];
        for (variable, values, allowed) in cases {
            for value in values {
                let garbled = said(&[(variable, value)]);
                let text = garbled.check().unwrap_err().to_string();
                assert!(
                    [variable, value, allowed].iter().all(|part| text.contains(part)),
                    "{text}"
                );
                named(garbled).check().unwrap();
            }
        }
    }

    #[test]
    fn a_switch_is_0_or_1_or_says_nothing() {
        for (value, said) in [("", Some(false)), ("0", Some(false)), ("1", Some(true))] {
            assert_eq!(switch(value), said);
        }
        for value in ["yes", "true", "on", " 1", "2"] {
            assert_eq!(switch(value), None, "{value}");
        }
    }

    #[test]
    fn tags_are_what_is_between_commas() {
        assert_eq!(listed("fast, of mine,,fast "), ["fast", "of mine", "fast"]);
        assert!(listed("").is_empty() && listed(" , ").is_empty());
    }
}
