//! Plans where there is no run-time compiler: they are interpreted, by the kernels that came compiled, or run by their own, where
//! those were compiled ahead. The simulated driver takes images for the source that they were made of; what is in them does not run
//! here.

use crate::plans::{ONE, right, run_all};
use crate::together::all_at_once;
use crate::{backend, on_threads, options};
use antiphon::executor::ahead;
use antiphon::executor::hal::Backend;
use antiphon::executor::{Collectives, ExecutorError, Factor, KernelForm, Request, What};
use antiphon::plan::program::Layout;
use antiphon::{DataType, ReduceOp};
use antiphon_codegen::{Target, interpret, prebuilt};
use antiphon_tests::harness::plans::{buffers, sizes};
use antiphon_tests::harness::{Area, Case, Entry, Source, report, run_case, seed};
use antiphon_tests::name_of;
use antiphon_tests::simulated::Simulated;
use std::fs;
use std::path::Path;

/// Where the simulated driver finds images that it is to know.
const IMAGES: &str = "ANTIPHON_GPUSIM_IMAGES";
/// What is run.
const PLANS: [&str; 4] = [
    "allreduce_two_shot_packets_4",
    "allreduce_zero_copy_4",
    "allgather_pipeline_2",
    "alltoall_zero_copy_4",
];
const DTYPE: DataType = DataType::F32;

/// The process with the simulated driver and without a compiler, where the driver knows the images of the architectures that
/// `known` says yes to.
fn without_compiler(test: &str, known: fn(&str) -> bool) -> Option<Simulated> {
    let missing = ["ANTIPHON_NVRTC_LIB", "ANTIPHON_HIPRTC_LIB"].map(|name| (name, "/nowhere"));
    with_images(test, known, &missing)
}

/// The process with the simulated driver and these variables, where the driver knows the images of the architectures that `known`
/// says yes to. Nothing is compiled there already.
fn with_images(
    test: &str,
    known: fn(&str) -> bool,
    environment: &[(&str, &str)],
) -> Option<Simulated> {
    let fill = |folder: &Path| {
        let text = interpret::text(target(), DTYPE);
        let images = prebuilt::images(target(), DTYPE, &text).filter(|(name, _)| known(name));
        for (architecture, image) in images {
            let file = folder.join(architecture);
            fs::write(file.with_extension("image"), image).unwrap();
            fs::write(file.with_extension("source"), &text).unwrap();
        }
    };
    with_more_images(test, fill, environment)
}

fn target() -> Target {
    if backend() == Backend::Rocm { Target::Hip } else { Target::Cuda }
}

/// The process with the simulated driver and these variables, where the driver knows the images that `fill` puts into a folder.
fn with_more_images(
    test: &str,
    fill: impl FnOnce(&Path),
    environment: &[(&str, &str)],
) -> Option<Simulated> {
    let name = format!("images-{:?}-{}", target(), test.replace("::", "-"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if std::env::var_os(IMAGES).is_none() {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        fill(&folder);
    }
    let cache = folder.join("cache");
    let places =
        [(IMAGES, folder.to_str().unwrap()), ("ANTIPHON_CACHE_DIR", cache.to_str().unwrap())];
    let environment = [environment, &places].concat();
    antiphon_tests::simulated::enter(test, env!("CARGO_TARGET_TMPDIR"), &environment)
}

fn entries() -> Vec<Entry> {
    let named = |entry: &Entry| PLANS.iter().any(|name| entry.name.contains(name));
    right(false).filter(named).collect()
}

/// Runs a plan with `op` as all of its ranks, by kernels of this form; what is wrong, or who refuses.
fn run(
    entry: &Entry,
    form: KernelForm,
    op: Option<ReduceOp>,
) -> Vec<Result<String, ExecutorError>> {
    let options = options().with_verification(false).with_kernels(form);
    let run = |rank| {
        let element = DTYPE.size() as u64;
        let (_, elements) = sizes(&entry.plan, element)[2];
        let case = Case::new(&entry.name, &entry.plan, buffers(&entry.plan, elements, element));
        let case = Case { dtype: DTYPE, op, ..case };
        run_case(&rank, &case).map(|outcome| outcome.wrong.into_iter().collect())
    };
    on_threads(entry.ranks(), &options, run)
}

#[test]
fn plans_run_without_a_compiler() {
    let test = name_of(plans_run_without_a_compiler);
    if without_compiler(test, |_| true).is_none() {
        return;
    }
    let entries = entries();
    assert!(entries.len() >= PLANS.len(), "only {} plans were found", entries.len());
    // Nothing here compiles. Who is told first leaves, and others may hear of that before they are told themselves.
    let refused = run(&entries[0], KernelForm::Generated, None).into_iter();
    let errors: Vec<_> = refused.map(|refused| refused.unwrap_err().to_string()).collect();
    assert!(errors.iter().any(|error| error.contains("/nowhere")), "{errors:#?}");
    let mut failures = Vec::new();
    for entry in &entries {
        let options = options().with_verification(false);
        let ranks = on_threads(entry.ranks(), &options, |rank| run_all(&rank, entry, seed(), ONE));
        failures.extend(ranks.into_iter().flatten());
    }
    // The kernel that divides is in the same image.
    let sums = entries.iter().filter(|entry| entry.name.contains("allreduce"));
    for outcome in sums.flat_map(|entry| run(entry, KernelForm::Auto, Some(ReduceOp::Avg))) {
        failures.extend(Some(outcome.unwrap()).filter(|wrong| !wrong.is_empty()));
    }
    report(&failures);
}

/// The kernel before sums of products is in the same image, too.
#[test]
fn sums_are_premultiplied_without_a_compiler() {
    let test = name_of(sums_are_premultiplied_without_a_compiler);
    if without_compiler(test, |_| true).is_none() {
        return;
    }
    on_threads(2, &options(), |communicator| {
        let (rank, on) = (communicator.rank(), Collectives::new(&communicator).unwrap());
        let mut area = Area::new(&communicator, Source::Own, 4 * 1000).unwrap();
        area.edit(|all| all.copy_from_slice(&3.0_f32.to_le_bytes().repeat(1000)));
        let mut factor = [0; 8];
        factor[..4].copy_from_slice(&(rank as f32 + 2.0).to_le_bytes());
        let request = Request {
            what: What::AllReduce,
            input: area.address().cast_const(),
            output: area.address(),
            count: 1000,
            dtype: DTYPE,
            op: ReduceOp::Sum,
            factor: Some(Factor::Value(factor)),
        };
        // SAFETY: the area is as long as said, and lives past the call.
        unsafe { on.call(&request, None) }.unwrap();
        // Two times three, and three times three.
        assert_eq!(area.bytes(), 15.0_f32.to_le_bytes().repeat(1000));
        communicator.barrier().unwrap();
    });
}

/// The kernel that interprets for several ranks is in the same image. They share a stream, on which it is the only one.
#[test]
fn ranks_that_are_launched_together_run_without_a_compiler() {
    let test = name_of(ranks_that_are_launched_together_run_without_a_compiler);
    if without_compiler(test, |_| true).is_none() {
        return;
    }
    let failures: Vec<_> = entries()
        .iter()
        .flat_map(|entry| all_at_once(entry, KernelForm::Auto, true, seed()))
        .collect();
    report(&failures);
}

/// A card that is newer than the compiler, or older than it goes back.
#[test]
fn a_compiler_that_does_not_know_the_device_is_as_none() {
    let test = name_of(a_compiler_that_does_not_know_the_device_is_as_none);
    let unknown = [("ANTIPHON_GPUSIM_UNKNOWN", "sm_90,gfx1100")];
    if with_images(test, |_| true, &unknown).is_none() {
        return;
    }
    let entries = entries();
    for outcome in run(&entries[0], KernelForm::Auto, None) {
        assert_eq!(outcome.unwrap(), "");
    }
    report(&all_at_once(&entries[0], KernelForm::Auto, true, seed()));
    let refused = run(&entries[0], KernelForm::Generated, None).into_iter();
    let errors: Vec<_> = refused.map(|refused| refused.unwrap_err().to_string()).collect();
    // Who is told first leaves, and others may hear of that before they are told themselves.
    assert!(errors.iter().any(|error| error.contains("compiles nothing for")), "{errors:#?}");
}

#[test]
fn an_image_that_the_driver_refuses_is_passed_over() {
    let test = name_of(an_image_that_the_driver_refuses_is_passed_over);
    if backend() != Backend::Cuda {
        return antiphon_tests::simulated::pass_over(test, "there is one image for HIP");
    }
    // As on a card of sm_80: that for sm_90 comes first.
    if without_compiler(test, |architecture| architecture == "compute_80").is_none() {
        return;
    }
    for outcome in run(&entries()[0], KernelForm::Auto, None) {
        assert_eq!(outcome.unwrap(), "");
    }
}

#[test]
fn who_has_neither_compiler_nor_image_is_told_of_both() {
    let test = name_of(who_has_neither_compiler_nor_image_is_told_of_both);
    if without_compiler(test, |_| false).is_none() {
        return;
    }
    let told = |form, words: &str| {
        let refused = run(&entries()[0], form, None).into_iter();
        let errors: Vec<_> = refused.map(|error| error.unwrap_err().to_string()).collect();
        // Who is told first leaves, and others may hear of that before they are told themselves.
        assert!(errors.iter().any(|error| error.contains(words)), "{errors:#?}");
    };
    told(KernelForm::Auto, "/nowhere");
    let refused = match backend() {
        Backend::Cuda => "not machine code of the simulated driver",
        _ => "machine code for another device",
    };
    told(KernelForm::Interpreted, refused);
}

/// What the backend takes for whole code, with a name in it: text, or machine code without sections.
fn image(name: &str) -> Vec<u8> {
    let mut image = match target() {
        Target::Cuda => b"// code of ".to_vec(),
        Target::Hip => [&b"\x7fELF"[..], &[0; 60]].concat(),
    };
    image.extend(name.bytes());
    image
}

/// Kernels of the plan itself, compiled ahead into a folder. The driver takes what is there for the texts that it stands for; for one
/// architecture it has something that the driver refuses, and is to pass over.
#[test]
fn plans_run_by_their_own_kernels_compiled_ahead() {
    let test = name_of(plans_run_by_their_own_kernels_compiled_ahead);
    let code =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("compiled-ahead-{:?}", target()));
    let missing = ["ANTIPHON_NVRTC_LIB", "ANTIPHON_HIPRTC_LIB"].map(|name| (name, "/nowhere"));
    let environment = [missing[0], missing[1], (ahead::VARIABLE, code.to_str().unwrap())];
    let entries = entries();
    let ahead_of = |known: &Path| {
        let _ = fs::remove_dir_all(&code);
        for entry in &entries {
            let layout = Layout::new(&entry.plan).unwrap();
            for text in ahead::texts(&layout, backend(), DTYPE, None).unwrap() {
                let own = image(&prebuilt::digest(&text));
                let file = known.join(prebuilt::digest(&text));
                fs::write(file.with_extension("image"), &own).unwrap();
                fs::write(file.with_extension("source"), &text).unwrap();
                ahead::write(&code, "other", &text, &image("another device")).unwrap();
                ahead::write(&code, "this", &text, &own).unwrap();
            }
        }
    };
    if with_more_images(test, ahead_of, &environment).is_none() {
        return;
    }
    for entry in &entries {
        for outcome in run(entry, KernelForm::Generated, None) {
            assert_eq!(outcome.unwrap(), "");
        }
        report(&all_at_once(entry, KernelForm::Auto, false, seed()));
    }
    // What was not compiled ahead has no kernel of its own.
    let refused = run(&entries[0], KernelForm::Generated, Some(ReduceOp::Max)).into_iter();
    let errors: Vec<_> = refused.map(|refused| refused.unwrap_err().to_string()).collect();
    assert!(errors.iter().any(|error| error.contains("/nowhere")), "{errors:#?}");
}
