//! How C calls come in: pointers that may be null, and answers as numbers.
//!
//! The one rule about an application's pointers is the driver API's own: each is null, or good for what the call
//! says it is used for. It is relied on here and nowhere else.

use crate::status::Status;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// What a call comes to.
pub type Answer = Result<(), Status>;

/// Where a call writes a result.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// A place of this library's own, which outlives the call that it is for.
    pub fn to(place: &mut T) -> Self {
        Self(place)
    }

    /// The place at an address that the application gave as a number.
    pub fn at(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address))
    }

    /// No place.
    pub const fn none() -> Self {
        Self(std::ptr::null_mut())
    }

    /// Writes a result that the call cannot do without.
    pub fn set(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so the application made it good for a write; see the rule at the top of the file.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes a result that the application may not want.
    pub fn offer(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: as in `set`.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// What is there now, for calls that exchange.
    pub fn get(self) -> Result<T, Status>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }

    /// The same place, for a result of another type.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// The `k`th place of a list.
    pub fn offset(self, k: usize) -> Self {
        Self(self.0.wrapping_add(k))
    }

    /// The address, for results of a size that the call gives.
    pub fn address(self) -> *mut T {
        self.0
    }
}

/// Where a call reads an argument.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// The argument.
    pub fn get(self) -> Result<T, Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so the application made it good for a read; see the rule at the top of the file.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// `count` arguments that follow each other.
    pub fn list(self, count: usize) -> Result<Vec<T>, Status> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: as in `get`, for `count` values.
        Ok((0..count).map(|k| unsafe { self.0.add(k).read_unaligned() }).collect())
    }

    /// The `k`th of a list.
    pub fn offset(self, k: usize) -> Self {
        Self(self.0.wrapping_add(k))
    }

    /// An argument of this library's own, which outlives the call that it is for.
    pub fn at(value: &T) -> Self {
        Self(value)
    }

    /// No argument.
    pub const fn none() -> Self {
        Self(std::ptr::null())
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl In<std::ffi::c_char> {
    /// A text of this library, for the application.
    pub fn of(text: &'static std::ffi::CStr) -> Self {
        Self(text.as_ptr())
    }

    /// The text that starts here and ends with a zero.
    pub fn text(self) -> Result<String, Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so the application's text ends with a zero.
        let text = unsafe { std::ffi::CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// Runs the body of a driver call, and turns what it comes to into the number that C sees.
pub fn answer(name: &str, body: impl FnOnce() -> Answer) -> i32 {
    let status = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::SUCCESS,
        Ok(Err(status)) => status,
        // The panic's own message is on stderr already; C must not see it unwind.
        Err(_) => Status::UNKNOWN,
    };
    let loud = if status == Status::SUCCESS { 2 } else { 1 };
    if trace() >= loud && status != Status::NOT_READY {
        eprintln!("antiphon-gpusim: {name}: {}", status.name());
    }
    status.0
}

fn trace() -> u32 {
    static LEVEL: OnceLock<u32> = OnceLock::new();
    let read = || std::env::var("ANTIPHON_GPUSIM_TRACE").ok()?.parse().ok();
    *LEVEL.get_or_init(|| read().unwrap_or(0))
}

/// Defines functions of the driver API, exported under their C names. Before `cuInit` each answers so. While another thread loads
/// code, which holds the context, they wait.
macro_rules! driver_calls {
    ($($calls:tt)*) => {
        define_calls! { $crate::stream::pass(); $($calls)* }
    };
}

/// Defines functions that name their device themselves, or look at what is the thread's own, and so wait for nobody who holds a
/// context.
macro_rules! calls_without_context {
    ($($calls:tt)*) => {
        define_calls! { (); $($calls)* }
    };
}

/// The same for those that map memory, which a driver may have want a context all the same.
macro_rules! mapping_calls {
    ($($calls:tt)*) => {
        define_calls! { $crate::context::wanted()?; $($calls)* }
    };
}

/// Defines functions of the driver API, with what each does first.
macro_rules! define_calls {
    ($first:expr; $($(#[$meta:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$meta])*
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            #[allow(clippy::too_many_arguments)]
            pub extern "C" fn $name($($argument: $kind),*) -> i32 {
                $crate::abi::answer(stringify!($name), move || {
                    let () = $first;
                    $crate::device::initialised()?;
                    $body
                })
            }
        )*
    };
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemLocation {
    pub kind: u32,
    pub id: i32,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemAllocationProp {
    pub kind: u32,
    pub handle_types: u32,
    pub location: MemLocation,
    pub windows: usize,
    pub compression: u8,
    pub rdma_capable: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemAccessDesc {
    pub location: MemLocation,
    pub flags: u32,
}

/// `CUmulticastObjectProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MulticastObjectProp {
    pub devices: u32,
    pub size: usize,
    pub handle_types: u64,
    pub flags: u64,
}

/// The handle type for POSIX file descriptors.
pub const HANDLE_TYPE_POSIX_FD: u32 = 1;
