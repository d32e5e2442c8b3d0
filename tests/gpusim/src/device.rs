//! Devices: how many there are, and what they say of themselves.

use crate::abi::{Answer, Out, answer};
use crate::status::Status;
use std::ffi::c_char;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What `cuDriverGetVersion` answers: CUDA 12.8.
const VERSION: i32 = 12080;
const NAME: &[u8] = b"Antiphon simulated GPU";

/// Bytes of memory that each device claims to have.
pub const TOTAL_BYTES: usize = 16 << 30;
/// Multiprocessors of a device.
pub const MULTIPROCESSORS: u32 = 16;
/// Threads that a multiprocessor holds at the same time.
pub const RESIDENT_THREADS: u32 = 2048;
/// Blocks that a multiprocessor holds at the same time.
pub const RESIDENT_BLOCKS: u32 = 32;
/// Threads that a block may have.
pub const BLOCK_THREADS: u32 = 1024;
/// Bytes of shared memory that a block may have, once it has asked for more than the usual 48 KiB.
pub const SHARED_BYTES: u32 = 227 << 10;
/// Bytes of shared memory of a multiprocessor.
pub const MULTIPROCESSOR_SHARED_BYTES: u32 = 228 << 10;
/// Bytes of shared memory that a block may have without asking.
pub const DEFAULT_SHARED_BYTES: u32 = 48 << 10;
pub const WARP: u32 = 32;

/// Whether each device is broken.
static FAULTS: [AtomicBool; 8] = [const { AtomicBool::new(false) }; 8];

/// What broke a device, which every call on it answers.
pub fn fault(device: usize) -> Option<Status> {
    FAULTS[device].load(Ordering::Acquire).then_some(Status::ILLEGAL_ADDRESS)
}

/// Breaks a device, for tests, as a kernel does that uses an address which is not mapped: its kernels end where they are,
/// and every later call on it answers so.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_gpusim_fault(device: i32) {
    if let Some(fault) = usize::try_from(device).ok().and_then(|device| FAULTS.get(device)) {
        fault.store(true, Ordering::Release);
    }
}

static INITIALISED: AtomicBool = AtomicBool::new(false);

/// Whether `cuInit` has been called.
pub fn initialised() -> Answer {
    if INITIALISED.load(Ordering::Acquire) { Ok(()) } else { Err(Status::NOT_INITIALIZED) }
}

/// Devices there are.
pub fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    let read = || std::env::var("ANTIPHON_GPUSIM_DEVICES").ok()?.parse().ok();
    *COUNT.get_or_init(|| if slice().is_some() { 1 } else { read().unwrap_or(8).clamp(1, 8) })
}

/// Which slice of the first GPU the process sees, if that GPU was divided (MIG): nothing else is a device then.
fn slice() -> Option<u8> {
    static SLICE: OnceLock<Option<u8>> = OnceLock::new();
    *SLICE.get_or_init(|| std::env::var("ANTIPHON_GPUSIM_SLICE").ok()?.parse().ok())
}

/// Whether devices reach each other's memory.
pub fn peers() -> bool {
    static PEERS: OnceLock<bool> = OnceLock::new();
    *PEERS
        .get_or_init(|| std::env::var_os("ANTIPHON_GPUSIM_PEERS").is_none_or(|value| value != "0"))
}

/// Whether atomic operations on another device's memory are single steps for all.
pub fn atomics() -> bool {
    static ATOMICS: OnceLock<bool> = OnceLock::new();
    let name = "ANTIPHON_GPUSIM_ATOMICS";
    *ATOMICS.get_or_init(|| std::env::var_os(name).is_none_or(|value| value != "0"))
}

/// Whether what network cards write to a device's memory comes in order for it.
fn ordered(device: usize) -> bool {
    static UNORDERED: OnceLock<String> = OnceLock::new();
    let read = || std::env::var("ANTIPHON_GPUSIM_UNORDERED").unwrap_or_default();
    !UNORDERED.get_or_init(read).split(',').any(|one| one.parse() == Ok(device))
}

/// The device of an ordinal.
pub fn ordinal(device: i32) -> Result<usize, Status> {
    let known = usize::try_from(device).ok().filter(|device| *device < count());
    known.ok_or(Status::INVALID_DEVICE)
}

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn cuInit(flags: u32) -> i32 {
    answer("cuInit", || {
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        INITIALISED.store(true, Ordering::Release);
        Ok(())
    })
}

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn cuDriverGetVersion(out: Out<i32>) -> i32 {
    answer("cuDriverGetVersion", || out.set(VERSION))
}

calls_without_context! {
    fn cuDeviceGetCount(out: Out<i32>) {
        out.set(count() as i32)
    }

    fn cuDeviceGet(out: Out<i32>, device: i32) {
        ordinal(device)?;
        out.set(device)
    }

    fn cuDeviceGetName(out: Out<c_char>, length: i32, device: i32) {
        ordinal(device)?;
        let length = usize::try_from(length).unwrap_or(0);
        if length == 0 || out.address().is_null() {
            return Err(Status::INVALID_VALUE);
        }
        let kept = NAME.len().min(length - 1);
        // SAFETY: the application gives `length` writable bytes, and at most that many are written.
        unsafe {
            std::ptr::copy_nonoverlapping(NAME.as_ptr().cast(), out.address(), kept);
            out.address().add(kept).write(0);
        }
        Ok(())
    }

    fn cuDeviceTotalMem_v2(out: Out<usize>, device: i32) {
        ordinal(device)?;
        out.set(TOTAL_BYTES)
    }

    fn cuDeviceGetUuid_v2(out: Out<[u8; 16]>, device: i32) {
        let mut uuid = uuid(device)?;
        uuid[14] = slice().map_or(0, |slice| slice + 1);
        out.set(uuid)
    }

    fn cuDeviceGetUuid(out: Out<[u8; 16]>, device: i32) {
        out.set(uuid(device)?)
    }

    fn cuDeviceGetPCIBusId(out: Out<c_char>, length: i32, device: i32) {
        let text = format!("0000:{:02X}:00.0\0", 0x10 + ordinal(device)?);
        if usize::try_from(length).unwrap_or(0) < text.len() || out.address().is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the application gives `length` writable bytes, which the text fits into.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out.address(), text.len()) };
        Ok(())
    }

    fn cuDeviceCanAccessPeer(out: Out<i32>, device: i32, peer: i32) {
        out.set(i32::from(ordinal(device)? != ordinal(peer)? && peers()))
    }

    fn cuDeviceGetP2PAttribute(out: Out<i32>, attribute: i32, device: i32, peer: i32) {
        if ordinal(device)? == ordinal(peer)? {
            return Err(Status::INVALID_DEVICE);
        }
        // Performance rank, access, native atomics, array access.
        match attribute {
            1 => out.set(0),
            2 | 4 => out.set(i32::from(peers())),
            3 => out.set(i32::from(peers() && atomics())),
            _ => Err(Status::INVALID_VALUE),
        }
    }

    fn cuDeviceGetAttribute(out: Out<i32>, attribute: i32, device: i32) {
        let device = ordinal(device)?;
        if !(1..200).contains(&attribute) {
            return Err(Status::INVALID_VALUE);
        }
        out.set(value(attribute, device))
    }
}

/// That of a whole GPU.
fn uuid(device: i32) -> Result<[u8; 16], Status> {
    let mut uuid = *b"antiphon-sims\0\0\0";
    uuid[15] = ordinal(device)? as u8;
    Ok(uuid)
}

/// An attribute's value. What is not listed is what the device lacks: 0.
fn value(attribute: i32, device: usize) -> i32 {
    match attribute {
        1..=3 => BLOCK_THREADS as i32,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65535,
        8 => DEFAULT_SHARED_BYTES as i32,
        9 => 64 << 10,
        10 => WARP as i32,
        12 | 82 => 65536,
        13 => 1_000_000,
        14 => 512,
        // Concurrent kernels, mapped host memory, unified addressing, stream priorities.
        19 | 31 | 41 | 78 => 1,
        16 => MULTIPROCESSORS as i32,
        33 => 0x10 + device as i32,
        36 => 1_000_000,
        37 => 512,
        38 => 1 << 20,
        39 => RESIDENT_THREADS as i32,
        40 => 2,
        // Compute capability 9.0: what kernels for it may use is what the simulated compiler offers.
        75 => 9,
        76 => 0,
        81 => MULTIPROCESSOR_SHARED_BYTES as i32,
        // Native atomics of the host, host pointers of registered memory, memory operations of streams.
        86 | 91 | 92 | 93 | 122 => 1,
        // Cooperative launches, flushing, registration, virtual memory management, descriptors.
        95 | 98 | 99 | 102 | 103 => 1,
        97 => SHARED_BYTES as i32,
        106 => RESIDENT_BLOCKS as i32,
        111 => 1 << 10,
        // What network cards write comes in order for the device.
        118 if ordered(device) => 100,
        // Descriptors for network cards.
        124 => 1,
        // Multicast.
        132 => i32::from(peers()),
        _ => 0,
    }
}
