//! The HIP half: the calls of the HIP run-time library and of hipRTC that Antiphon uses, over the simulated devices.
//!
//! HIP's calls are CUDA's with a current device in the place of a context, so each makes the device's primary context
//! current and calls its counterpart; the statuses have the same numbers. Where releases of HIP differ, the one that
//! `ANTIPHON_GPUSIM_HIP` names is simulated.

macro_rules! hip_calls {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            #[allow(clippy::too_many_arguments)]
            pub extern "C" fn $name($($argument: $kind),*) -> i32 {
                $crate::hip::call(stringify!($name), move || $body)
            }
        )*
    };
}

pub mod compiler;
mod device;
mod kernel;
mod memory;
mod network;
mod physical;
mod status;
mod stream;

use crate::abi::{Answer, Out, answer};
use crate::context::{cuCtxPopCurrent_v2, cuCtxPushCurrent_v2, cuDevicePrimaryCtxRetain};
use crate::device::{count, cuInit};
use crate::status::Status;
use crate::table::lock;
use std::cell::Cell;
use std::sync::{Mutex, OnceLock};

/// The number of a release, as HIP answers it.
const fn release(major: u32, minor: u32) -> u32 {
    major * 10_000_000 + minor * 100_000
}

/// The release that is simulated.
fn version() -> u32 {
    static VERSION: OnceLock<u32> = OnceLock::new();
    let read = || {
        let text = std::env::var("ANTIPHON_GPUSIM_HIP").ok()?;
        let (major, minor) = text.split_once('.')?;
        Some(release(major.parse().ok()?, minor.parse().ok()?))
    };
    *VERSION.get_or_init(|| read().unwrap_or(release(7, 2)))
}

thread_local! {
    /// The current device.
    static DEVICE: Cell<i32> = const { Cell::new(0) };
    /// The last error.
    static LAST: Cell<i32> = const { Cell::new(0) };
}

/// What a CUDA call of this crate comes to.
fn cu(code: i32) -> Answer {
    if code == 0 { Ok(()) } else { Err(Status(code)) }
}

/// The primary context of a device, which HIP keeps for good.
fn primary(device: usize) -> Result<u64, Status> {
    static PRIMARY: Mutex<[u64; 8]> = Mutex::new([0; 8]);
    let mut all = lock(&PRIMARY);
    if all[device] == 0 {
        cu(cuInit(0))?;
        cu(cuDevicePrimaryCtxRetain(Out::to(&mut all[device]), device as i32))?;
    }
    Ok(all[device])
}

/// The current device of the thread.
fn current() -> usize {
    usize::try_from(DEVICE.get()).unwrap_or(0).min(count() - 1)
}

/// Runs the body of a call with the current device's context, and remembers how it failed.
fn call(name: &str, body: impl FnOnce() -> Answer) -> i32 {
    let code = answer(name, || {
        cu(cuCtxPushCurrent_v2(primary(current())?))?;
        let outcome = body();
        cu(cuCtxPopCurrent_v2(Out::none()))?;
        outcome
    });
    if code != 0 && code != Status::NOT_READY.0 {
        LAST.set(code);
    }
    code
}
