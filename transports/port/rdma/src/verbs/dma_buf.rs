//! Memory of GPUs, which cards reach by dma-bufs.
//!
//! The function that registers one came to libibverbs with its version 34. It is looked up when it is first needed, so that
//! the plugin loads with older ones.

use super::{Nic, refused_by};
use crate::NAME;
use antiphon_hal::{DmaBuf, HalError, Memory};
use antiphon_port::WireError;
use rdma_sys as sys;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// `ibv_reg_dmabuf_mr`: domain, offset in the buffer, bytes, the address that requests name the first one by, the buffer,
/// rights.
type Register =
    unsafe extern "C" fn(*mut sys::ibv_pd, u64, usize, u64, c_int, c_int) -> *mut sys::ibv_mr;

fn unsupported(operation: &'static str) -> WireError {
    WireError::Unsupported { operation, wire: NAME.to_owned() }
}

/// The whole of a memory as a buffer.
///
/// # Errors
/// [`WireError::Unsupported`] where its device has no such; what else the device reports.
pub fn export(memory: &Arc<dyn Memory>) -> Result<DmaBuf, WireError> {
    memory.export_dma_buf(0, memory.len()).map_err(|error| match error {
        HalError::Unsupported { .. } => unsupported("register memory of a GPU without dma-bufs"),
        other => WireError::System {
            operation: "export memory of a GPU",
            wire: NAME.to_owned(),
            reason: other.to_string(),
        },
    })
}

/// Registers `bytes` bytes of a buffer with a card; requests name the first one by `start`.
///
/// # Errors
/// [`WireError::Unsupported`] where library, driver or card do not know how; else that the card refuses.
pub fn register(
    nic: &Nic,
    buffer: &DmaBuf,
    (start, bytes): (u64, usize),
    rights: c_int,
) -> Result<NonNull<sys::ibv_mr>, WireError> {
    let Some(register) = function() else {
        return Err(unsupported("register memory of a GPU with a libibverbs older than 34"));
    };
    let (domain, descriptor) = (nic.domain.as_ptr(), buffer.descriptor.as_raw_fd());
    // SAFETY: the domain is there as long as the card; the buffer is checked by the kernel, and outlives the registration,
    // which is dropped before it.
    let made = unsafe { register(domain, buffer.offset, bytes, start, descriptor, rights) };
    NonNull::new(made).ok_or_else(|| {
        let why = io::Error::last_os_error();
        match why.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT | libc::ENOTTY) => {
                unsupported("register memory of a GPU with this card")
            }
            _ => {
                let what = format!("{bytes} bytes of a GPU with {}", nic.name());
                refused_by("register memory", &what, &why)
            }
        }
    })
}

/// The library's function, if it has it.
fn function() -> Option<Register> {
    static FUNCTION: OnceLock<Option<Register>> = OnceLock::new();
    *FUNCTION.get_or_init(|| {
        // The one that this plugin is linked with: what a plugin needs is not found among the program's own symbols.
        // SAFETY: the names are texts that end; nothing is loaded that is not there.
        let found: *mut c_void = unsafe {
            let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD;
            let library = libc::dlopen(c"libibverbs.so.1".as_ptr(), flags);
            if library.is_null() {
                return None;
            }
            libc::dlsym(library, c"ibv_reg_dmabuf_mr".as_ptr())
        };
        // SAFETY: null, which is no function, or the function of that name, whose type is part of the library's interface.
        unsafe { std::mem::transmute::<*mut c_void, Option<Register>>(found) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_hal::{Backend, driver};
    use std::ffi::{CStr, OsStr};
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    #[test]
    fn memory_of_the_host_has_no_buffer() {
        let memory = driver(Backend::Host).unwrap().open(0).unwrap().allocate(4096).unwrap();
        assert!(matches!(export(&memory), Err(WireError::Unsupported { .. })));
    }

    /// The file of the library that a function is of.
    fn library(function: *const c_void) -> PathBuf {
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: there is room for the answer; any address may be asked about.
        let known = unsafe { libc::dladdr(function, found.as_mut_ptr()) };
        assert_ne!(known, 0, "{function:?} is of no library");
        // SAFETY: it was found, so the name is a text that ends, and stays while the library is loaded, which is to the end.
        let name = unsafe { CStr::from_ptr(found.assume_init().dli_fname) };
        PathBuf::from(OsStr::from_bytes(name.to_bytes()))
    }

    #[test]
    fn the_function_is_that_of_the_linked_library_where_it_has_one() {
        // Which is there in every version.
        let linked = library(sys::ibv_open_device as *const c_void);
        let symbols = std::fs::read(&linked).unwrap();
        let name = b"\0ibv_reg_dmabuf_mr\0";
        let exported = symbols.windows(name.len()).any(|bytes| bytes == name);
        let found = function().map(|function| library(function as *const c_void));
        assert_eq!(found, exported.then(|| linked.clone()), "{}", linked.display());
    }
}
