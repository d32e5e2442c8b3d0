//! What the methods take: elements on the host, or on a device.

use crate::{DeviceBuffer, Element};

/// Elements that a collective reads: slices, arrays, vectors and boxes of the host, and a [`DeviceBuffer`] on any device.
///
/// What dereferences to a slice is passed as one: `&guard[..]`. Sealed.
pub trait Buffer: place::Place {
    /// What it holds.
    type Element: Element;
}

/// Elements that a collective also writes. Sealed, as [`Buffer`] is.
pub trait BufferMut: Buffer + place::PlaceMut {}

/// Where the elements of a buffer are.
pub(crate) mod place {
    use antiphon_executor::hal::Device;

    /// # Safety
    /// While the value is borrowed, `start` is the address of `count` elements (`Buffer::Element`) on `device`, and nobody
    /// writes them.
    pub unsafe trait Place {
        /// The device whose memory it is, `None` for memory of the host that is no device's.
        fn device(&self) -> Option<&dyn Device> {
            None
        }

        /// How many elements it has.
        fn count(&self) -> usize;

        /// Where they are.
        fn start(&self) -> *const u8;
    }

    /// # Safety
    /// While the value is borrowed exclusively, `start_mut` is the address of `count` elements on `device`, which nobody else
    /// reads or writes.
    pub unsafe trait PlaceMut: Place {
        /// Where the elements are.
        fn start_mut(&mut self) -> *mut u8;
    }
}

macro_rules! slices {
    ($({$($parameters:tt)*} $slice:ty;)*) => {$(
        impl<$($parameters)*> Buffer for $slice {
            type Element = T;
        }

        impl<$($parameters)*> BufferMut for $slice {}

        // SAFETY: the slice's own address and length; it is borrowed, shared.
        unsafe impl<$($parameters)*> place::Place for $slice {
            fn count(&self) -> usize {
                self[..].len()
            }

            fn start(&self) -> *const u8 {
                self[..].as_ptr().cast()
            }
        }

        // SAFETY: as above; it is borrowed exclusively.
        unsafe impl<$($parameters)*> place::PlaceMut for $slice {
            fn start_mut(&mut self) -> *mut u8 {
                self[..].as_mut_ptr().cast()
            }
        }
    )*};
}

slices! {
    {T: Element} [T];
    {T: Element} Vec<T>;
    {T: Element} Box<[T]>;
    {T: Element, const N: usize} [T; N];
}

impl<T: Element> Buffer for DeviceBuffer<T> {
    type Element = T;
}

impl<T: Element> BufferMut for DeviceBuffer<T> {}

/// References to a buffer: `&values` of what is a reference already.
macro_rules! references {
    ($($reference:ty),*) => {$(
        impl<B: Buffer + ?Sized> Buffer for $reference {
            type Element = B::Element;
        }

        // SAFETY: as of the buffer, which is borrowed as long.
        unsafe impl<B: Buffer + ?Sized> place::Place for $reference {
            fn device(&self) -> Option<&dyn antiphon_executor::hal::Device> {
                (**self).device()
            }

            fn count(&self) -> usize {
                (**self).count()
            }

            fn start(&self) -> *const u8 {
                (**self).start()
            }
        }
    )*};
}

references!(&B, &mut B);

impl<B: BufferMut + ?Sized> BufferMut for &mut B {}

// SAFETY: as of the buffer, which is borrowed exclusively as long.
unsafe impl<B: BufferMut + ?Sized> place::PlaceMut for &mut B {
    fn start_mut(&mut self) -> *mut u8 {
        (**self).start_mut()
    }
}
