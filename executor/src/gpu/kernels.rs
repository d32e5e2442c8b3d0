//! Kernels of plans, compiled once for each device of the process.
//!
//! Loading code while kernels of the same device wait for each other could stop them all. So the first rank on a device
//! that needs a kernel of a plan loads those of all ranks of the process on that device.

use super::underway::Underway;
use super::{PAUSE, free};
use crate::ahead;
use crate::communicator::{KernelForm, Shared};
use crate::error::ExecutorError;
use crate::plan_cache::LoadedPlan;
use crate::sync::lock;
use antiphon_codegen::interpret::{self, interpreted};
use antiphon_codegen::{
    ENTRY, Generated, Target, Unsupported, Variant, divide, generate, prebuilt, scale,
};
use antiphon_hal::{Backend, Device, HalError, Kernel, KernelCode, KernelSource};
use antiphon_plan::program::Layout;
use antiphon_types::{DataType, ReduceOp};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

/// What was loaded: the device, the kernel's name, and the text.
type Key = (Backend, u32, &'static str, String);

/// A kernel, if somebody uses it. Locked while it is compiled and loaded: a thread that wants it waits rather than doing it again.
type Place = Arc<Mutex<Option<Weak<dyn Kernel>>>>;

/// Where a kernel is. A thread does not wait for another kernel that is being loaded: a driver may let that wait for kernels
/// which wait for this thread's launch.
fn place(key: Key) -> Place {
    static LOADED: OnceLock<Mutex<HashMap<Key, Place>>> = OnceLock::new();
    let mut loaded = lock(LOADED.get_or_init(Mutex::default));
    loaded.retain(|_, place| {
        let is_used = |known: &Weak<dyn Kernel>| known.strong_count() > 0;
        Arc::strong_count(place) > 1 || lock(place).as_ref().is_some_and(is_used)
    });
    Arc::clone(loaded.entry(key).or_default())
}

/// The family of compilers of a device's backend; `None` where nothing is generated for it.
pub fn target(backend: Backend) -> Option<Target> {
    match backend {
        Backend::Cuda => Some(Target::Cuda),
        Backend::Rocm => Some(Target::Hip),
        Backend::Host => None,
    }
}

/// A text, and the type of the interpreting kernel that it is, if it is one.
struct Text<'a> {
    text: &'a str,
    interpreter: Option<(Target, DataType)>,
}

/// Where kernels are loaded, and which rank waits until that holds up nobody.
#[derive(Clone, Copy)]
pub struct Loader<'a> {
    /// The device.
    pub device: &'a dyn Device,
    /// The rank.
    pub shared: &'a Shared,
    /// Nothing is loaded if loading would have to wait.
    pub hurries: bool,
}

/// A kernel; none if a loader that [hurries](Loader::hurries) would have had to wait for it.
pub type Loaded = Option<Arc<dyn Kernel>>;

/// How long to wait for launches that are under way, before code is loaded all the same, if there is no time limit or a longer one.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

impl Loader<'_> {
    /// Loads code while no launch of the process is under way on the device. CUDA's driver lets a thread that loads code wait for all
    /// kernels of the device, and any other call meanwhile wait for that thread: a kernel that waits for another rank's launch would
    /// keep that launch from being made. Launches that begin meanwhile wait for the loading, which takes milliseconds.
    ///
    /// Launches on other devices are not waited for, though a driver may let loading wait for kernels of devices that reach this
    /// one's memory: a rank that has launched on its own device waits for this one's launch, and so for this code.
    fn load(&self, entry: &str, code: &[u8]) -> Result<Loaded, HalError> {
        let underway = Underway::here();
        let began = Instant::now();
        let limit = self.shared.options.timeout.map_or(LONGEST_WAIT, |most| most.min(LONGEST_WAIT));
        let quiet = || underway.alone(Some(self.device));
        let mut alone = quiet();
        if alone.is_none() && self.hurries {
            return Ok(None);
        }
        if alone.is_none() {
            log::debug!("code is loaded once no launch is under way on the device");
        }
        while alone.is_none() && !self.shared.failed() && began.elapsed() < limit {
            std::thread::sleep(PAUSE);
            alone = quiet();
        }
        let source = KernelSource { entry, code: KernelCode::Binary(code), options: &[] };
        self.device.load(source).map(Some)
    }
}

impl Text<'_> {
    /// Loads a kernel of the text: one that was compiled beforehand, if the driver takes it, else one that is compiled now.
    fn load(&self, loader: Loader<'_>, entry: &str) -> Result<Loaded, HalError> {
        let mut refused = None;
        for (architecture, image) in self.images() {
            match loader.load(entry, &image) {
                Ok(loaded) => return Ok(loaded),
                Err(error) => {
                    log::debug!("the kernel compiled for {architecture}: {error}");
                    refused = Some(error);
                }
            }
        }
        let compiled =
            loader.device.compile(self.text, &[]).map_err(|error| match (&error, refused) {
                // Why the driver refused code says more than that there is no compiler.
                (HalError::Unavailable { .. }, Some(refused)) => refused,
                _ => error,
            });
        loader.load(entry, &compiled?)
    }

    /// Images of it that were compiled beforehand, each with its architecture. This library has some of the interpreting kernel.
    fn images(&self) -> impl Iterator<Item = (String, Vec<u8>)> {
        let own = self.interpreter.map(|(target, dtype)| {
            let images = prebuilt::images(target, dtype, self.text);
            images.map(|(architecture, image)| (architecture.to_owned(), image))
        });
        own.into_iter().flatten().chain(ahead::images(self.text))
    }
}

/// The kernel of a text for plans of this form, compiled and loaded unless it is there.
pub fn load(
    loader: Loader<'_>,
    of: (Variant, KernelForm),
    entry: &'static str,
    text: &str,
) -> Result<Arc<dyn Kernel>, HalError> {
    let patient = Loader { hurries: false, ..loader };
    let Some(kernel) = try_load(patient, of, entry, text)? else {
        unreachable!("who does not hurry waits")
    };
    Ok(kernel)
}

/// The same; `None` where it is not there, and the loader hurries and would have had to wait.
pub fn try_load(
    loader: Loader<'_>,
    (variant, form): (Variant, KernelForm),
    entry: &'static str,
    text: &str,
) -> Result<Loaded, HalError> {
    let device = loader.device;
    let place = place((device.backend(), device.index(), entry, text.to_owned()));
    let mut known = lock(&place);
    if let Some(kernel) = known.as_ref().and_then(Weak::upgrade) {
        return Ok(Some(kernel));
    }
    let interpreter = (form == KernelForm::Interpreted).then_some((variant.target, variant.dtype));
    let loaded = Text { text, interpreter }.load(loader, entry)?;
    if let Some(kernel) = &loaded {
        *known = Some(Arc::downgrade(kernel));
    }
    Ok(loaded)
}

/// Whether an error says that there is no compiler for the device, or that the driver takes none of its code.
pub fn is_useless(error: &HalError) -> bool {
    matches!(error, HalError::Unavailable { .. } | HalError::ForeignCode { .. })
}

/// Makes the kernel of a rank of a plan.
type Make = fn(&Layout, u32, Variant) -> Result<Generated, Unsupported>;
/// Those of several.
type Made = Result<Vec<Generated>, Unsupported>;

/// The most steps of a text that is compiled where nobody says which form kernels have. Compilers take seconds over more.
pub const LONGEST: usize = 800;

/// The kernel that divides a rank's sums, where the call is an average.
pub fn divide_kernel(
    loader: Loader<'_>,
    (variant, form): (Variant, KernelForm),
) -> Result<Option<Arc<dyn Kernel>>, HalError> {
    if variant.op != Some(ReduceOp::Avg) {
        return Ok(None);
    }
    let text = if form == KernelForm::Interpreted { interpret::text } else { divide::text };
    let text = text(variant.target, variant.dtype);
    load(loader, (variant, form), divide::ENTRY, &text).map(Some)
}

/// The kernel before a premultiplied sum: by itself, or as part of the interpreting kernel's image where nothing is compiled.
pub fn scale_kernel(
    loader: Loader<'_>,
    target: Target,
    dtype: DataType,
) -> Result<Arc<dyn Kernel>, HalError> {
    let variant = Variant { target, dtype, op: None };
    let load = |form, text: &str| load(loader, (variant, form), scale::ENTRY, text);
    load(KernelForm::Generated, &scale::text(target, dtype)).or_else(|missing| {
        if !is_useless(&missing) {
            return Err(missing);
        }
        // The first error says more than that the other way does not work either.
        load(KernelForm::Interpreted, &interpret::text(target, dtype)).map_err(|_| missing)
    })
}

/// Whether one of the texts has more steps than are compiled unasked.
fn is_long(made: &[Generated]) -> bool {
    made.iter().any(|made| made.steps > LONGEST)
}

/// Whether one of these ranks has a program that is not compiled unasked.
pub fn are_long(plan: &LoadedPlan, ranks: &[u32], variant: Variant) -> Result<bool, Unsupported> {
    let made = ranks.iter().map(|&rank| generate(plan.layout(), rank, variant));
    Ok(is_long(&made.collect::<Made>()?))
}

/// Makes kernels of the form that is asked for, and loads them. If no form is asked for they are compiled, or, if what was made
/// `is_long` or nothing is compiled for the device, interpreted.
pub fn by_form<M, T>(
    (plan, form): (&LoadedPlan, KernelForm),
    make: impl Fn(KernelForm) -> Result<M, Unsupported>,
    is_long: impl FnOnce(&M) -> Result<bool, Unsupported>,
    load: impl Fn(KernelForm, M) -> Result<T, ExecutorError>,
) -> Result<T, ExecutorError> {
    if form != KernelForm::Auto {
        return load(form, make(form)?);
    }
    let interpreted = || load(KernelForm::Interpreted, make(KernelForm::Interpreted)?);
    let generated = make(KernelForm::Generated)?;
    if is_long(&generated)? {
        log::info!("plan `{}` is interpreted: it would take long to compile", plan.name());
        return interpreted();
    }
    load(KernelForm::Generated, generated).or_else(|error| {
        let ExecutorError::Hal(missing) = &error else { return Err(error) };
        if !is_useless(missing) {
            return Err(error);
        }
        static WARNED: AtomicBool = AtomicBool::new(false);
        let first = !WARNED.swap(true, Ordering::Relaxed);
        let level = if first { log::Level::Warn } else { log::Level::Debug };
        log::log!(level, "plans are interpreted: {missing}");
        // The first error says more than that the other way does not work either.
        interpreted().map_err(|_| error)
    })
}

/// The kernels of a plan for the ranks of this process on one device.
pub struct Kernels {
    /// The rank's own.
    pub own: (Generated, Arc<dyn Kernel>),
    /// Divides a rank's sums, where the call is an average.
    pub divide: Option<Arc<dyn Kernel>>,
    /// Those of the other ranks on the device, kept for them.
    pub others: Vec<Arc<dyn Kernel>>,
}

impl Kernels {
    /// Generates, compiles and loads the kernels of `ranks`, the first of which is this one.
    pub fn new(
        loader: Loader<'_>,
        plan: &LoadedPlan,
        ranks: &[u32],
        (variant, form): (Variant, KernelForm),
    ) -> Result<Self, ExecutorError> {
        let make = |form: KernelForm| {
            let make: Make = if form == KernelForm::Interpreted { interpreted } else { generate };
            ranks.iter().map(|&rank| make(plan.layout(), rank, variant)).collect::<Made>()
        };
        let load = |form, made| Self::load(loader, made, (variant, form));
        by_form((plan, form), make, |made| Ok(is_long(made)), load)
    }

    fn load(
        loader: Loader<'_>,
        made: Vec<Generated>,
        (variant, form): (Variant, KernelForm),
    ) -> Result<Self, ExecutorError> {
        let mut kernels = Vec::new();
        let all = made.into_iter().try_for_each(|generated| {
            let kernel = load(loader, (variant, form), ENTRY, &generated.text)?;
            kernels.push((generated, kernel));
            Ok(())
        });
        let divide = match all.and_then(|()| divide_kernel(loader, (variant, form))) {
            Ok(divide) => divide,
            Err(error) => {
                free(kernels);
                return Err(error.into());
            }
        };
        let mut kernels = kernels.into_iter();
        let Some(own) = kernels.next() else { unreachable!("the rank itself is among `ranks`") };
        Ok(Kernels { own, divide, others: kernels.map(|(_, kernel)| kernel).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_plan::builder::ProgramBuilder;
    use antiphon_plan::model::Collective;

    /// What a rank's block becomes that copies and adds in turn, `once` times from different places of the program, and
    /// then a hundred times from one.
    fn made(once: usize) -> Generated {
        let p = ProgramBuilder::new("steps", Collective::Test, 1).chunk_counts(8, 8).fuse(false);
        let (input, output, block) = (p.input(0), p.output(0), p.block(0));
        for step in 0..once {
            // The bits of growing numbers do not repeat.
            for bit in 0..10 {
                let from: Vec<_> = (0..2 + (step >> bit & 1)).map(|at| input.chunk(at)).collect();
                block.reduce(&from, output.chunk(0));
            }
        }
        (0..100).for_each(|_| block.copy(input.chunk(0), output.chunk(1)));
        let layout = Layout::new(&p.build().unwrap()).unwrap();
        let variant = Variant { target: Target::Cuda, dtype: DataType::F32, op: None };
        generate(&layout, 0, variant).unwrap()
    }

    #[test]
    fn plans_are_interpreted_for_want_of_a_compiler_or_of_code_that_is_taken_alone() {
        let (backend, code, text) = (Backend::Cuda, 2, String::new);
        let vendor = |what: &str| HalError::Vendor {
            what: what.to_owned(),
            backend,
            code,
            name: text(),
            text: text(),
        };
        let missing = HalError::Unavailable { what: text(), why: text(), cure: text() };
        let full = HalError::OutOfMemory { bytes: 1, device: text(), why: text() };
        for (error, useless) in [
            (missing, true),
            (HalError::ForeignCode { backend, code, name: text(), text: text() }, true),
            // A device that is full or dead is no reason to go on with another kernel.
            (vendor("load a kernel's module"), false),
            (full, false),
        ] {
            assert_eq!(is_useless(&error), useless, "{error}");
        }
    }

    #[test]
    fn loops_are_short_and_what_does_not_repeat_is_long() {
        let (short, long) = (made(0), made(1000));
        assert!(short.steps < 10, "{} steps", short.steps);
        assert!(!is_long(std::slice::from_ref(&short)));
        assert!(long.steps > LONGEST, "{} steps", long.steps);
        assert!(is_long(&[short, long]));
    }
}
