//! `include/antiphon_wire.h` in Rust: the same structs, field by field. What they mean the header says.

#![allow(missing_docs)]

use std::ffi::{c_char, c_void};

pub const MAGIC: u64 = u64::from_le_bytes(*b"ANTIWIRE");
pub const ABI: u32 = 1;
/// What has been added to the version, one by one; structs say by their sizes how much of it their makers know.
pub const REVISION: u32 = 3;
pub const KEY_BYTES: usize = 32;
pub const TEXT_BYTES: usize = 512;
/// The function that a plugin exports: an [`Entry`].
pub const SYMBOL: &str = "antiphon_wire_plugin_v1";

pub const OK: i32 = 0;
pub const FULL: i32 = 1;
pub const UNAVAILABLE: i32 = 2;
pub const UNSUPPORTED: i32 = 3;
pub const INVALID: i32 = 4;
pub const LOST: i32 = 5;
pub const SYSTEM: i32 = 6;

pub const BYTES: u32 = 0;
pub const PACKETS: u32 = 1;

pub const HOST: u32 = 0;
pub const CUDA: u32 = 1;
pub const ROCM: u32 = 2;

pub const SAME_PROCESS: u32 = 1;
pub const SAME_NODE: u32 = 2;
pub const PROCESS_ACCESS: u32 = 4;

/// What lies behind the pointers that a plugin gives is its own.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            #[derive(Debug)]
            pub struct $name {
                private: [u8; 0],
            }
        )*
    };
}

opaque! { Wire Registration Opening Link }

#[repr(C)]
#[derive(Debug)]
pub struct Error {
    pub struct_bytes: u32,
    pub reserved: u32,
    pub reason: [c_char; TEXT_BYTES],
    pub cure: [c_char; TEXT_BYTES],
}

#[repr(C)]
#[derive(Debug)]
pub struct Bytes {
    pub struct_bytes: u32,
    pub reserved: u32,
    pub data: *mut u8,
    pub capacity: u64,
    pub length: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct Host {
    pub struct_bytes: u32,
    pub abi: u32,
    pub name: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Settings {
    pub struct_bytes: u32,
    pub rank: u32,
    pub key: [u8; KEY_BYTES],
    pub interface_name: *const c_char,
    /// Since revision 2.
    pub device: *const c_char,
}

#[repr(C)]
#[derive(Debug)]
pub struct Peer {
    pub struct_bytes: u32,
    pub rank: u32,
    pub pid: u32,
    pub flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub struct_bytes: u32,
    pub backend: u32,
    pub number: u64,
    pub address: *mut u8,
    pub bytes: u64,
    pub keep: *mut c_void,
    pub release: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// Since revision 3.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DmaBuf {
    pub struct_bytes: u32,
    pub descriptor: i32,
    pub offset: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub struct_bytes: u32,
    pub unit: u32,
    pub source: u64,
    pub from: u64,
    pub region: u64,
    pub to: u64,
    pub bytes: u64,
}

type Describe<T> = unsafe extern "C" fn(*mut T, *mut c_char, u64) -> u64;

/// The table. Only one whose functions were seen not to be null may be looked at as this.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Plugin {
    pub magic: u64,
    pub abi: u32,
    pub struct_bytes: u32,
    pub name: *const c_char,
    pub functions: Functions,
    pub more: More,
}

// SAFETY: functions, numbers, and a name that is valid for ever and never changes.
unsafe impl Sync for Plugin {}
// SAFETY: as above.
unsafe impl Send for Plugin {}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    pub init: unsafe extern "C" fn(*const Host, *mut Error) -> i32,
    pub wire_open: unsafe extern "C" fn(*const Settings, *mut *mut Wire, *mut Error) -> i32,
    pub wire_close: unsafe extern "C" fn(*mut Wire),
    pub wire_describe: Describe<Wire>,
    pub wire_reach: unsafe extern "C" fn(*mut Wire, *const Peer, *mut u32, *mut Error) -> i32,
    pub memory_register: unsafe extern "C" fn(
        *mut Wire,
        *const Memory,
        *mut Bytes,
        *mut *mut Registration,
        *mut Error,
    ) -> i32,
    pub memory_deregister: unsafe extern "C" fn(*mut Registration),
    pub opening_open: unsafe extern "C" fn(*mut Wire, u32, *mut *mut Opening, *mut Error) -> i32,
    pub opening_address: unsafe extern "C" fn(*mut Opening, *mut Bytes, *mut Error) -> i32,
    pub opening_connect:
        unsafe extern "C" fn(*mut Opening, *const u8, u64, *mut *mut Link, *mut Error) -> i32,
    pub opening_close: unsafe extern "C" fn(*mut Opening),
    pub link_accept: unsafe extern "C" fn(*mut Link, u64, u64, *const u8, u64, *mut Error) -> i32,
    pub link_retire: unsafe extern "C" fn(*mut Link, u64),
    pub link_write: unsafe extern "C" fn(*mut Link, *const Write, *mut Error) -> i32,
    pub link_signal: unsafe extern "C" fn(*mut Link, u64, u64, u64, *mut Error) -> i32,
    pub link_posted: unsafe extern "C" fn(*mut Link) -> u64,
    pub link_completed: unsafe extern "C" fn(*mut Link, *mut u64, *mut Error) -> i32,
    pub link_progress: unsafe extern "C" fn(*mut Link, *mut i32, *mut Error) -> i32,
    pub link_descriptor: unsafe extern "C" fn(*mut Link) -> i32,
    pub link_arm: unsafe extern "C" fn(*mut Link, *mut i32, *mut Error) -> i32,
    pub link_stop: unsafe extern "C" fn(*mut Link),
    pub link_describe: Describe<Link>,
    pub link_close: unsafe extern "C" fn(*mut Link),
}

/// What later revisions have added: absent from the tables of earlier ones, or null.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct More {
    /// Since revision 3.
    pub memory_register_dma_buf: Option<
        unsafe extern "C" fn(
            *mut Wire,
            *const Memory,
            *const DmaBuf,
            *mut Bytes,
            *mut *mut Registration,
            *mut Error,
        ) -> i32,
    >,
}

/// Bytes of a table of the first revision.
pub const FIRST_PLUGIN: usize = std::mem::offset_of!(Plugin, more);

/// How many pointers the functions are.
pub const FUNCTIONS: usize = size_of::<Functions>() / size_of::<*const c_void>();

/// What a plugin exports.
pub type Entry = unsafe extern "C" fn() -> *const Plugin;

impl Error {
    /// Room for an error.
    pub fn new() -> Self {
        let text = [0; TEXT_BYTES];
        Error { struct_bytes: size_of::<Self>() as u32, reserved: 0, reason: text, cure: text }
    }
}

impl Default for Error {
    fn default() -> Self {
        Self::new()
    }
}
