//! `libantiphon.so`: where it is, and the functions of it that this library calls.

use crate::failure::{Failure, Result};
use crate::types::UniqueId;
use std::ffi::{CStr, CString, OsString, c_char, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;

/// Says where it is, unless the process has one already.
const PATH_VARIABLE: &str = "ANTIPHON_LIB_PATH";
/// The name by which it is linked; its number is the major one of the interface.
const SONAME: &str = "libantiphon.so.1";
/// The interface that is needed: the major number, and the minor one at least.
const NEEDED: (u32, u32) = (1, 16);

/// How a communicator behaves, as `antiphon.h` has it.
#[repr(C)]
pub struct Config {
    pub struct_size: u64,
    pub timeout_ms: i64,
    pub verification: i32,
    pub process_access: i32,
    pub wire: *const c_char,
    pub network_interface: *const c_char,
    pub reproducible: i32,
    pub reserved: i32,
    pub device: *const c_char,
    pub block_threads: u64,
    pub tags: *const *const c_char,
    pub tag_count: u64,
    pub kernels: *const c_char,
    pub multicast: i32,
    pub legacy_ipc: i32,
    pub name: *const c_char,
}

/// A communicator, and other handles, of `antiphon.h`.
pub type Handle = *mut c_void;

macro_rules! functions {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions.
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Library {
            /// # Safety
            /// The library is the one that `antiphon.h` describes.
            unsafe fn of(library: *mut c_void) -> std::result::Result<Self, String> {
                Ok(Library {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the name ends with a zero.
                        let at = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                        if at.is_null() {
                            return Err(format!("it has no {}", stringify!($name)));
                        }
                        // SAFETY: the header declares it so.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) -> $result,
                            >(at)
                        }
                    },)*
                })
            }

            /// Names, and numbers of arguments.
            #[cfg(test)]
            const NAMES: &[(&str, usize)] =
                &[$((stringify!($name), {
                    const ARGUMENTS: &[&str] = &[$(stringify!($argument)),*];
                    ARGUMENTS.len()
                })),*];
        }
    };
}

functions! {
    antiphon_abi_version() -> u32;
    antiphon_last_error() -> *const c_char;
    antiphon_backend_is_built(*const c_char, *mut i32) -> i32;
    antiphon_device_current(*const c_char, *mut u32) -> i32;
    antiphon_unique_id_create(*mut UniqueId) -> i32;
    antiphon_unique_id_retire(*const UniqueId) -> i32;
    antiphon_communicator_create(*const UniqueId, u32, u32, *const Config, *mut Handle) -> i32;
    antiphon_communicator_create_at(*const c_char, u32, u32, *const Config, *mut Handle) -> i32;
    antiphon_communicator_create_in_process(u32, *const Config, *mut Handle) -> i32;
    antiphon_communicator_split_as(Handle, i32, u32, *const c_char, *mut Handle) -> i32;
    antiphon_communicator_subset_as(Handle, *const u32, u32, *const c_char, *mut Handle) -> i32;
    antiphon_communicator_rank(Handle, *mut u32) -> i32;
    antiphon_communicator_world(Handle, *mut u32) -> i32;
    antiphon_communicator_exchange(Handle, *const c_void, u64, *mut c_void) -> i32;
    antiphon_communicator_make_current(Handle) -> i32;
    antiphon_communicator_abort(Handle, *const c_char) -> i32;
    antiphon_communicator_async_error(Handle, *mut i32) -> i32;
    antiphon_communicator_query(Handle, *mut i32) -> i32;
    antiphon_communicator_register(Handle, *const c_void, u64, *mut i32) -> i32;
    antiphon_communicator_destroy(Handle) -> i32;
    antiphon_memory_allocate_on(*const c_char, u64, *mut Handle) -> i32;
    antiphon_memory_address(Handle, *mut *mut c_void) -> i32;
    antiphon_memory_free(Handle) -> i32;
    antiphon_stream_adopt(Handle, *mut c_void, *mut Handle) -> i32;
    antiphon_stream_destroy(Handle) -> i32;
    antiphon_op_create_scaled_sum(Handle, *const c_void, i32, i32, *mut i32) -> i32;
    antiphon_op_destroy(Handle, i32) -> i32;
    antiphon_group_begin() -> i32;
    antiphon_group_end() -> i32;
    antiphon_group_cancel() -> i32;
    antiphon_all_reduce(Handle, *const c_void, *mut c_void, u64, i32, i32, Handle) -> i32;
    antiphon_all_gather(Handle, *const c_void, *mut c_void, u64, i32, Handle) -> i32;
    antiphon_reduce_scatter(Handle, *const c_void, *mut c_void, u64, i32, i32, Handle) -> i32;
    antiphon_all_to_all(Handle, *const c_void, *mut c_void, u64, i32, Handle) -> i32;
    antiphon_all_to_all_v(Handle, *const c_void, *const u64, *const u64, *mut c_void, *const u64, *const u64, i32, Handle) -> i32;
    antiphon_broadcast(Handle, *const c_void, *mut c_void, u64, i32, u32, Handle) -> i32;
    antiphon_reduce(Handle, *const c_void, *mut c_void, u64, i32, i32, u32, Handle) -> i32;
    antiphon_gather(Handle, *const c_void, *mut c_void, u64, i32, u32, Handle) -> i32;
    antiphon_scatter(Handle, *const c_void, *mut c_void, u64, i32, u32, Handle) -> i32;
    antiphon_send(Handle, *const c_void, u64, i32, u32, Handle) -> i32;
    antiphon_receive(Handle, *mut c_void, u64, i32, u32, Handle) -> i32;
}

/// The library that this process has, or loads now.
pub fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
    match LIBRARY.get_or_init(find) {
        Ok(library) => Ok(library),
        Err(text) => Err(Failure::system(format!("cannot load libantiphon.so: {text}"))),
    }
}

/// Opens a library of this name; `how` goes with `RTLD_NOW | RTLD_LOCAL`.
pub fn open(name: &[u8], how: i32) -> std::result::Result<*mut c_void, String> {
    let name = CString::new(name).map_err(|_| "its name has a zero in it".to_owned())?;
    // SAFETY: the name ends with a zero; what loading runs is what whoever named it trusts.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | how) };
    if !library.is_null() {
        return Ok(library);
    }
    // SAFETY: the last call failed, so there is a text, which stays until the next call.
    let why = unsafe { libc::dlerror() };
    if why.is_null() {
        return Err(format!("{} cannot be opened", name.to_string_lossy()));
    }
    // SAFETY: as above.
    Err(unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned())
}

/// The file that this code is from.
pub fn own_file() -> Option<OsString> {
    let here: fn() -> Option<OsString> = own_file;
    file_of(here as *const c_void)
}

/// The file that the code at an address is from, if it is from one.
pub fn file_of(at: *const c_void) -> Option<OsString> {
    // SAFETY: plain data of addresses.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the answer has room; any address may be asked for.
    let known = unsafe { libc::dladdr(at, &mut found) };
    if known == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's text, which lives as long as the library.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(OsString::from_vec(name.to_bytes().to_vec()))
}

fn find() -> std::result::Result<Library, String> {
    // One that the process has already keeps what was registered there; a process never has two.
    if let Ok(library) = open(SONAME.as_bytes(), libc::RTLD_NOLOAD) {
        return take(library);
    }
    if let Some(path) = std::env::var_os(PATH_VARIABLE).filter(|path| !path.is_empty()) {
        return take(open(path.as_bytes(), 0)?)
            .map_err(|why| format!("{} ({PATH_VARIABLE}): {why}", path.to_string_lossy()));
    }
    // By any of its names it may be a link elsewhere.
    let own = own_file().and_then(|own| std::fs::canonicalize(own).ok());
    // What is installed is in a folder of its own, in that of the library.
    for folder in own.iter().flat_map(|own| own.ancestors().skip(1).take(2)) {
        for name in [SONAME, "libantiphon.so"] {
            let path = folder.join(name);
            if path.exists() {
                return take(open(path.as_os_str().as_bytes(), 0)?);
            }
        }
    }
    let library = open(SONAME.as_bytes(), 0).map_err(|why| {
        format!("{why}; name it by {PATH_VARIABLE}, or put it beside this library")
    })?;
    take(library)
}

fn take(library: *mut c_void) -> std::result::Result<Library, String> {
    // SAFETY: it is named as the one, and its version is checked next.
    let library = unsafe { Library::of(library)? };
    // SAFETY: any thread may call it at any time.
    let version = unsafe { (library.antiphon_abi_version)() };
    let (major, minor) = (version >> 16, version & 0xFFFF);
    if major != NEEDED.0 || minor < NEEDED.1 {
        let (needed, least) = NEEDED;
        return Err(format!(
            "its interface is {major}.{minor}, needed is {needed}.{least} or a later {needed}"
        ));
    }
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_is_what_was_agreed_on() {
        let agreed = include_str!("../../abi/antiphon.txt");
        for &(name, arguments) in Library::NAMES {
            let start = format!("{name}(");
            let line = agreed.lines().find_map(|line| line.split_once(&start));
            let (_, list) = line.unwrap_or_else(|| panic!("no {name} in ffi/abi/antiphon.txt"));
            let list = list.trim_end_matches(')');
            let expected = if list == "void" { 0 } else { list.split(',').count() };
            assert_eq!(arguments, expected, "{name}({list})");
        }
        let expected = [
            "uint64_t struct_size",
            "int64_t timeout_ms",
            "int32_t verification",
            "int32_t process_access",
            "const char *wire",
            "const char *network_interface",
            "int32_t reproducible",
            "int32_t reserved",
            "const char *device",
            "uint64_t block_threads",
            "const char *const *tags",
            "uint64_t tag_count",
            "const char *kernels",
            "int32_t multicast",
            "int32_t legacy_ipc",
            "const char *name",
        ];
        let fields =
            agreed.lines().filter_map(|line| line.strip_prefix("struct antiphon_config: "));
        // What later versions have behind these is not asked for.
        let fields: Vec<_> = fields.take(expected.len()).collect();
        assert_eq!(fields, expected);
        assert!(agreed.contains("ANTIPHON_UNIQUE_ID_BYTES 128"));
    }
}
