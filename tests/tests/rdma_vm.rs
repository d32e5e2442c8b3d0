//! RDMA for real: the wire's plugin between RDMA devices of a virtual machine.
//!
//! Skipped, with the reason, where the emulator, a kernel or the plugin is missing. `cargo xtask ci` installs and builds
//! what is needed, and then nothing may be missing (`ANTIPHON_NEEDS_VM`).

use antiphon_tests::vm::{Host, Image, Missing, Run, check, rdma_plugin};
use std::path::Path;
use std::time::Duration;

const PLUGIN: &str = "/lib/antiphon/libantiphon_wire_rdma.so";

/// What runs in the guest, whose programs [`image`] gives it. Whole jobs there are `rdma_collectives`, of the command's tests.
fn runs() -> Vec<Run> {
    let suite = |name: &str, settings: &str, options: &str| {
        let command = format!(
            "{settings} wire-conformance {PLUGIN} --largest 8388608 --patience 60 {options}"
        );
        Run::new(name, &command).within(Duration::from_secs(300))
    };
    let mut runs = vec![suite("one device", "ANTIPHON_HCA=rxe0", "")];
    for (name, settings, cases) in [
        // Two devices share every link; their completions come in any order.
        (
            "two devices",
            "ANTIPHON_RDMA_LANES=2",
            &["signals", "many_threads", "completed_posts"][..],
        ),
        ("a device for each link", "", &["all_ranks", "one_pair"]),
        ("completions instead of order", "ANTIPHON_RDMA_ORDER=completions", &["signals"]),
        ("plain writes as signals", "ANTIPHON_RDMA_SIGNAL=write ANTIPHON_HCA=rxe0", &["signals"]),
        ("a short queue", "ANTIPHON_RDMA_DEPTH=8", &["full_queue"]),
        ("link-local addresses", "ANTIPHON_GID_INDEX=0 ANTIPHON_HCA=rxe1", &["signals_land"]),
    ] {
        runs.extend(cases.iter().map(|case| suite(&format!("{name}, {case}"), settings, case)));
    }
    let fails = |settings: &str| {
        Run::new(settings, &format!("{settings} wire-conformance {PLUGIN}")).expecting(2)
    };
    runs.extend(["ANTIPHON_HCA=mlx5_0", "ANTIPHON_GID_INDEX=99"].map(fails));
    runs
}

#[test]
fn the_wire_conforms_between_devices_of_a_virtual_machine() {
    check("rdma_vm", image, &runs());
}

fn image(host: &Host) -> Result<Image, Missing> {
    let program = Path::new(env!("CARGO_BIN_EXE_wire-conformance"));
    let mut image = Image::new(host)?;
    image.program(program, "/bin/wire-conformance")?;
    image.program(&rdma_plugin(program)?, PLUGIN)?;
    Ok(image)
}
