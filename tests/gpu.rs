//! The `antiphon` command on a GPU: on the simulated driver, which is none.

use antiphon_tests::harness::text;
use antiphon_tests::name_of;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The command, where the simulated driver works.
fn antiphon(test: &str, arguments: &str) -> Option<Output> {
    antiphon_with(test, arguments, &[])
}

/// The command with these variables.
fn antiphon_with(test: &str, arguments: &str, variables: &[(&str, &Path)]) -> Option<Output> {
    let environment = antiphon_tests::simulated::environment(test, env!("CARGO_TARGET_TMPDIR"))?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon"));
    Some(
        command
            .args(arguments.split_whitespace())
            .envs(environment)
            .envs(variables.iter().copied())
            .output()
            .unwrap(),
    )
}

#[test]
fn plans_run_on_a_device_by_processes_and_threads() {
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/plans/allreduce_zero_copy_4.json");
    for mode in ["--processes", "--threads"] {
        let options = "-b 1K -e 4K -f 4 --iters 2 --warmup 1 --block-threads 32 --device cuda";
        let arguments = format!("run {plan} {mode} {options}");
        let test = name_of(plans_run_on_a_device_by_processes_and_threads);
        let Some(output) = antiphon(test, &arguments) else { return };
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{mode}: {said}\n{printed}");
        assert!(printed.contains("on cuda"), "{printed}");
        let rows: Vec<&str> = printed.lines().filter(|line| line.contains(" f32 ")).collect();
        assert_eq!(rows.len(), 2, "{printed}");
    }
}

#[test]
fn built_in_algorithms_and_runtime_sizes_run_on_a_device() {
    for collective in ["allreduce", "alltoallv"] {
        let options = "--ranks 2 --size 2K --threads --iters 1 --warmup 0 --block-threads 32";
        let arguments = format!("bench {collective} {options} --device cuda:0");
        let test = name_of(built_in_algorithms_and_runtime_sizes_run_on_a_device);
        let Some(output) = antiphon(test, &arguments) else { return };
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{collective}: {said}\n{printed}");
    }
}

#[test]
fn ranks_on_devices_may_be_spread_over_nodes() {
    for mode in ["--processes", "--threads"] {
        let options = "--ranks 4 --nodes 2 --size 2K --iters 2 --warmup 1 --block-threads 32";
        let arguments = format!("bench allreduce {options} {mode} --device cuda");
        let Some(output) = antiphon(name_of(ranks_on_devices_may_be_spread_over_nodes), &arguments)
        else {
            return;
        };
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{mode}: {said}\n{printed}");
        assert!(printed.contains("hierarchical"), "{mode}: {printed}");
    }
}

#[test]
fn info_lists_devices_and_a_wrong_one_is_refused() {
    let test = name_of(info_lists_devices_and_a_wrong_one_is_refused);
    let Some(output) = antiphon(test, "info") else { return };
    let printed = text(&output.stdout);
    assert!(printed.contains("  cuda: 0: "), "{printed}");
    let arguments = "bench allreduce --ranks 2 --size 1K --threads --device cuda:99";
    let Some(output) = antiphon(test, arguments) else { return };
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("99"), "{said}");
}

/// By the simulated compiler, and then without it.
#[test]
fn plans_run_by_kernels_that_were_compiled_ahead() {
    let test = name_of(plans_run_by_kernels_that_were_compiled_ahead);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels-ahead");
    let _ = fs::remove_dir_all(&folder);
    let (code, cache) = (folder.join("code"), folder.join("cache"));
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/plans/allreduce_zero_copy_4.json");
    let arguments = format!("plan kernels {plan} -a sm_90 -o {}", code.display());
    let Some(output) = antiphon(test, &arguments) else { return };
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    // One for all ranks, one for all of them together, and two that are no plan's.
    assert!(output.status.success() && printed.starts_with("sm_90: 4 kernels"), "{said}{printed}");
    let run = format!(
        "run {plan} --threads --device cuda --kernels generated --size 1K --iters 1 --warmup 0 --block-threads 32"
    );
    let none = [("ANTIPHON_NVRTC_LIB", Path::new("/nowhere")), ("ANTIPHON_CACHE_DIR", &*cache)];
    let ahead = [none[0], none[1], ("ANTIPHON_CODE_DIR", &*code)];
    let output = antiphon_with(test, &run, &ahead).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Nothing else is compiled: not for another type, and not without the folder.
    for (run, variables) in [(format!("{run} --dtype f16"), &ahead[..]), (run, &none)] {
        let output = antiphon_with(test, &run, variables).unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("/nowhere"), "{said}");
    }
    fs::remove_dir_all(&folder).unwrap();
}
