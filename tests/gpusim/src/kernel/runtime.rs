//! What compiled kernels call: a table of functions that loading a module hands it.

use super::block::{self, Thread};
use crate::abi::Out;
use crate::memory::{Rights, allowed, antiphon_gpusim_members};
use std::ffi::{CStr, c_char, c_void};

/// The table; the prelude of the simulated compiler declares the same.
#[repr(C)]
pub struct Runtime {
    version: u32,
    thread: extern "C" fn() -> *const Thread,
    give_way: extern "C" fn(),
    meet: extern "C" fn(u32, u32, u32) -> u32,
    meet_warp: extern "C" fn(u32),
    slots: extern "C" fn() -> *mut [u64; 2],
    shared: extern "C" fn(*const c_void, usize) -> *mut c_void,
    trap: extern "C" fn(*const c_char),
    members: extern "C" fn(u64, Out<u64>, usize) -> usize,
    load: extern "C" fn(*const u8, *mut u8, usize),
    store: extern "C" fn(*mut u8, *const u8, usize),
    release: extern "C" fn(),
    add: extern "C" fn(*mut u64, u64),
}

pub static RUNTIME: Runtime = Runtime {
    version: 3,
    thread,
    give_way,
    meet,
    meet_warp,
    slots,
    shared,
    trap,
    members,
    load,
    store,
    release,
    add,
};

extern "C" fn thread() -> *const Thread {
    block::thread()
}

extern "C" fn give_way() {
    block::give_way();
}

extern "C" fn meet(barrier: u32, wanted: u32, predicate: u32) -> u32 {
    block::meet(barrier, wanted, predicate != 0)
}

extern "C" fn meet_warp(mask: u32) {
    block::meet_warp(mask);
}

extern "C" fn slots() -> *mut [u64; 2] {
    block::slots()
}

extern "C" fn shared(tag: *const c_void, bytes: usize) -> *mut c_void {
    block::shared(tag, bytes)
}

extern "C" fn members(address: u64, out: Out<u64>, room: usize) -> usize {
    if allowed(block::device(), address, 1, Rights::READ | Rights::WRITE).is_err() {
        block::trap();
    }
    antiphon_gpusim_members(address, out, room)
}

extern "C" fn load(from: *const u8, to: *mut u8, bytes: usize) {
    block::load(from, to, bytes);
}

extern "C" fn store(to: *mut u8, from: *const u8, bytes: usize) {
    block::store(to, from, bytes);
}

extern "C" fn release() {
    block::release();
}

extern "C" fn add(to: *mut u64, value: u64) {
    block::add(to, value);
}

extern "C" fn trap(reason: *const c_char) {
    if !reason.is_null() {
        // SAFETY: the prelude passes literals.
        let reason = unsafe { CStr::from_ptr(reason) };
        eprintln!("antiphon-gpusim: a kernel trapped: {}", reason.to_string_lossy());
    }
    block::trap();
}
