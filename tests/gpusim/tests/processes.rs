//! Kernels of two processes that wait for each other, in processes that find the driver as they would a real one.

#[macro_use]
mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use support::Driver;

/// Each rank's thread 0 sets its flag and waits for the other's; all threads of all blocks wait for it.
const SOURCE: &str = r#"
extern "C" __global__ void meet(unsigned *flags, unsigned long long me, unsigned long long rounds) {
    for (unsigned round = 1; round <= rounds; ++round) {
        if (threadIdx.x == 0) {
            unsigned *mine = flags + 2 * blockIdx.x + me, *other = flags + 2 * blockIdx.x + (1 - me);
            antiphon_sim::store_release(mine, round);
            while (antiphon_sim::load_acquire(other) < round) {}
        }
        __syncthreads();
    }
}
"#;
const BLOCKS: u32 = 4;
const ROUNDS: u64 = 50;

#[repr(C)]
#[derive(Clone, Copy)]
struct Handle([u8; 64]);

/// A folder with the library under the names that programs look for, gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("gpusim-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder for tests takes files");
        for name in ["libcuda.so.1", "libnvrtc.so.12"] {
            symlink(support::path(), path.join(name)).expect("the folder takes links");
        }
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn meet(driver: &Driver, flags: u64, me: u64) {
    let meet = driver.function(driver.module(SOURCE), "meet");
    let stream = driver.stream();
    assert_eq!(driver.launch(meet, BLOCKS, 64, stream, &[flags, me, ROUNDS]), 0);
    driver.finish(stream);
}

#[test]
#[ignore = "the other half of kernels_of_two_processes_meet"]
fn other_process() {
    let Ok(text) = std::env::var("ANTIPHON_GPUSIM_TEST_HANDLE") else { return };
    let digits = |k: usize| u8::from_str_radix(text.get(2 * k..2 * k + 2)?, 16).ok();
    let handle: [u8; 64] =
        std::array::from_fn(|k| digits(k).expect("64 bytes in hexadecimal digits"));
    let driver = Driver::named("libcuda.so.1");
    driver.enter(1);
    let mut flags = 0_u64;
    ok!(driver, cuIpcOpenMemHandle_v2(*mut u64, Handle, u32), &mut flags, Handle(handle), 1);
    meet(&driver, flags, 1);
    ok!(driver, cuIpcCloseMemHandle(u64), flags);
}

#[test]
fn kernels_of_two_processes_meet() {
    let driver = Driver::start();
    let flags = driver.allocate(8 * BLOCKS as usize);
    driver.write(flags, &[0_u32; 2 * BLOCKS as usize]);
    let mut handle = Handle([0; 64]);
    ok!(driver, cuIpcGetMemHandle(*mut Handle, u64), &mut handle, flags);
    let text: String = handle.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = Folder::new();
    let other = Command::new(std::env::current_exe().expect("a test knows its own file"))
        .args(["--exact", "other_process", "--ignored", "--nocapture"])
        .env("ANTIPHON_GPUSIM_TEST_HANDLE", text)
        .env("LD_LIBRARY_PATH", &folder.0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the other process starts");
    meet(&driver, flags, 0);
    let output = other.wait_with_output().expect("the other process ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(
        driver.read::<u32>(flags, 2 * BLOCKS as usize),
        [ROUNDS as u32; 2 * BLOCKS as usize]
    );
}

#[test]
fn ranks_on_threads_of_one_process_meet() {
    let driver = Driver::start();
    let flags = driver.allocate(8 * BLOCKS as usize);
    driver.write(flags, &[0_u32; 2 * BLOCKS as usize]);
    std::thread::scope(|scope| {
        for me in 0..2 {
            let driver = &driver;
            scope.spawn(move || {
                driver.enter(me as i32);
                meet(driver, flags, me);
            });
        }
    });
    assert_eq!(
        driver.read::<u32>(flags, 2 * BLOCKS as usize),
        [ROUNDS as u32; 2 * BLOCKS as usize]
    );
}
