//! Where the buffers of a communicator are.

use crate::failure::{Failure, Result};
use crate::library::{Handle, Library, library};
use crate::types::Stream;
use std::ffi::{CString, c_int, c_void};
use std::ptr;

/// Where the program's buffers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the host. Streams are not looked at, and calls are complete on return.
    Host,
    /// On devices of this backend: on this one, or each communicator on the device that is current where it is made.
    Device { backend: String, index: Option<u32> },
}

impl Place {
    /// The devices that a name means, as `ANTIPHON_DEVICE` has it.
    pub fn named(name: &str) -> Option<Place> {
        let (backend, index) = match name.split_once(':') {
            Some((backend, index)) => (backend, Some(index.parse().ok()?)),
            None => (name, None),
        };
        let device = || Place::Device { backend: backend.to_owned(), index };
        Some(if backend == "host" { Place::Host } else { device() })
    }

    /// The device of a communicator that the calling thread makes: its number.
    pub fn current(&self) -> Result<c_int> {
        let Place::Device { backend, index } = self else { return Ok(0) };
        if let Some(index) = index {
            return Ok(index.cast_signed());
        }
        let (library, mut current) = (library()?, 0);
        let backend = text(backend)?;
        // SAFETY: the name ends with a zero, and the place is writable.
        library.outcome(unsafe {
            (library.antiphon_device_current)(backend.as_ptr(), &mut current)
        })?;
        Ok(current.cast_signed())
    }

    /// What `libantiphon.so` calls the devices of communicators: one for each of these numbers.
    pub fn devices(&self, numbers: impl IntoIterator<Item = c_int>) -> Result<CString> {
        let Place::Device { backend, .. } = self else { return text("host") };
        let names = numbers.into_iter().map(|asked| format!("{backend}:{}", self.number(asked)));
        text(&names.collect::<Vec<_>>().join(","))
    }

    /// The number of a communicator's device, where this one was asked for.
    pub fn number(&self, asked: c_int) -> c_int {
        match self {
            Place::Device { index: Some(index), .. } => index.cast_signed(),
            _ => asked,
        }
    }

    /// Whether buffers are on devices.
    pub fn is_device(&self) -> bool {
        matches!(self, Place::Device { .. })
    }
}

fn text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Failure::usage("cannot use a device: its name has a zero in it"))
}

/// The stream of one call, as `libantiphon.so` has it: null for calls on the host.
pub struct CallStream {
    library: &'static Library,
    pub handle: Handle,
}

impl CallStream {
    /// For a call on the host.
    pub fn none(library: &'static Library) -> Self {
        CallStream { library, handle: ptr::null_mut() }
    }

    /// A stream of the program, null for its default stream.
    ///
    /// # Safety
    /// The handle lives, and the stream is one of its device.
    pub unsafe fn adopt(library: &'static Library, end: Handle, stream: Stream) -> Result<Self> {
        let (stream, mut handle): (*mut c_void, _) = (stream, ptr::null_mut());
        // SAFETY: as this function's; the place is writable.
        library.outcome(unsafe { (library.antiphon_stream_adopt)(end, stream, &mut handle) })?;
        Ok(CallStream { library, handle })
    }
}

impl Drop for CallStream {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: it was made here, and the call has what it needs of it.
            unsafe { (self.library.antiphon_stream_destroy)(self.handle) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names() {
        let device = |index| Place::Device { backend: "cuda".to_owned(), index };
        assert_eq!(Place::named("host"), Some(Place::Host));
        assert_eq!(Place::named("cuda"), Some(device(None)));
        assert_eq!(Place::named("cuda:3"), Some(device(Some(3))));
        assert_eq!(Place::named("cuda:x"), None);
        assert_eq!(&*device(None).devices([0, 2]).unwrap(), c"cuda:0,cuda:2");
        assert_eq!(&*device(Some(1)).devices([0, 2]).unwrap(), c"cuda:1,cuda:1");
        assert_eq!(&*Place::Host.devices([0, 2]).unwrap(), c"host");
        assert_eq!(device(Some(3)).current().unwrap(), 3);
        let numbers = [device(Some(3)), device(None), Place::Host].map(|place| place.number(2));
        assert_eq!(numbers, [3, 2, 2]);
    }
}
