//! Tables of the functions of a driver library, loaded one by one: those that CUDA and HIP have under different names,
//! and the macros for those that only one has.
//!
//! Handles are untyped here, and addresses on a device are numbers, where HIP declares pointers: both are passed alike on
//! the 64-bit platforms that have GPUs.

use crate::gpu::code::Code;
use crate::gpu::search::function;
use libloading::os::unix::Library;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// A device.
pub(crate) type Device = c_int;
/// An address on a device.
pub(crate) type Address = u64;
/// A stream.
pub(crate) type RawStream = *mut c_void;
/// An event.
pub(crate) type RawEvent = *mut c_void;
/// A loaded module.
pub(crate) type RawModule = *mut c_void;
/// A function of a module.
pub(crate) type RawFunction = *mut c_void;
/// Physical memory.
pub(crate) type RawPhysical = u64;

/// A handle by which another process opens memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);

/// Where memory is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location {
    kind: u32,
    device: Device,
}

impl Location {
    /// The memory of `device`.
    pub(crate) fn of(device: Device) -> Self {
        const DEVICE: u32 = 1;
        Location { kind: DEVICE, device }
    }
}

/// What physical memory is wanted. The bindings' enumerations lack values of newer releases.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocationProperties {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: Location,
    windows: *mut c_void,
    compression: u8,
    /// Whether network cards read and write it.
    pub(crate) network: u8,
    usage: u16,
    reserved: [u8; 4],
}

impl AllocationProperties {
    /// Memory of `device`, of the driver's kind `kind`, that can be passed on by `handle_types`.
    pub(crate) fn new(device: Device, kind: u32, handle_types: u32) -> Self {
        AllocationProperties {
            kind,
            handle_types,
            location: Location::of(device),
            windows: std::ptr::null_mut(),
            compression: 0,
            network: 0,
            usage: 0,
            reserved: [0; 4],
        }
    }

    /// The device whose memory it is; `None` for memory of the host.
    pub(crate) fn device(&self) -> Option<Device> {
        let on_device = self.location.kind == Location::of(0).kind;
        on_device.then_some(self.location.device)
    }
}

/// Who may do what with mapped memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessDescription {
    location: Location,
    flags: u32,
}

impl AccessDescription {
    /// That `device` may read and write.
    pub(crate) fn of(device: Device) -> Self {
        const READ_AND_WRITE: u32 = 3;
        AccessDescription { location: Location::of(device), flags: READ_AND_WRITE }
    }
}

/// Declares a table, and the structure of its symbols' names.
macro_rules! table {
    (
        $(#[$about:meta])*
        $table:ident, $names:ident;
        required { $($name:ident ($($argument:ty),* $(,)?);)* }
        optional { $($maybe:ident ($($parameter:ty),* $(,)?);)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> Code,)*
            $(pub(crate) $maybe: Option<unsafe extern "C" fn($($parameter),*) -> Code>,)*
        }

        /// What a vendor calls the functions of the table.
        pub(crate) struct $names {
            $(pub(crate) $name: &'static str,)*
            $(pub(crate) $maybe: &'static str,)*
        }

        impl $names {
            /// Those that are needed, and those that can be done without.
            pub(crate) fn all(&self) -> (Vec<&'static str>, Vec<&'static str>) {
                (vec![$(self.$name),*], vec![$(self.$maybe),*])
            }
        }

        impl $table {
            /// All of them, or the name of the first that is required and missing.
            pub(crate) fn load(library: &Library, names: &$names) -> Result<Self, &'static str> {
                Ok($table {
                    $(
                        // SAFETY: the declaration is that of the vendors' headers, handles and addresses as this
                        // page says; whoever makes the table never closes the library.
                        $name: unsafe { function(library, names.$name) }.ok_or(names.$name)?,
                    )*
                    $(
                        // SAFETY: as above.
                        $maybe: unsafe { function(library, names.$maybe) },
                    )*
                })
            }
        }
    };
}

table! {
    /// What both drivers have.
    Calls, Names;
    required {
        init (c_uint);
        version (*mut c_int);
        device_count (*mut c_int);
        device_name (*mut c_char, c_int, Device);
        device_memory (*mut usize, Device);
        device_attribute (*mut c_int, c_uint, Device);
        host_allocate (*mut *mut c_void, usize, c_uint);
        host_address (*mut Address, *mut c_void, c_uint);
        host_free (*mut c_void);
        pointer_range (*mut Address, *mut usize, Address);
        ipc_export (*mut IpcHandle, Address);
        ipc_open (*mut Address, IpcHandle, c_uint);
        ipc_close (Address);
        stream_create (*mut RawStream, c_uint);
        stream_destroy (RawStream);
        stream_query (RawStream);
        stream_synchronize (RawStream);
        stream_wait (RawStream, RawEvent, c_uint);
        stream_capturing (RawStream, *mut c_uint);
        event_create (*mut RawEvent, c_uint);
        event_destroy (RawEvent);
        event_record (RawEvent, RawStream);
        event_query (RawEvent);
        event_synchronize (RawEvent);
        module_unload (RawModule);
        module_function (*mut RawFunction, RawModule, *const c_char);
        function_attribute (*mut c_int, c_uint, RawFunction);
        function_occupancy (*mut c_int, RawFunction, c_int, usize);
        launch (
            RawFunction,
            c_uint, c_uint, c_uint,
            c_uint, c_uint, c_uint,
            c_uint,
            RawStream,
            *mut *mut c_void,
            *mut *mut c_void,
        );
    }
    optional {
        host_register (*mut c_void, usize, c_uint);
        host_unregister (*mut c_void);
        stream_create_priority (*mut RawStream, c_uint, c_int);
        stream_priorities (*mut c_int, *mut c_int);
        stream_write (RawStream, Address, c_ulonglong, c_uint);
        limit_get (*mut usize, c_uint);
        limit_set (c_uint, usize);
        launch_cooperative (
            RawFunction,
            c_uint, c_uint, c_uint,
            c_uint, c_uint, c_uint,
            c_uint,
            RawStream,
            *mut *mut c_void,
        );
        capture_mode (*mut c_uint);
        capture_info (
            RawStream,
            *mut c_uint,
            *mut c_ulonglong,
            *mut *mut c_void,
            *mut *const c_void,
            *mut usize,
        );
        object_create (
            *mut *mut c_void,
            *mut c_void,
            Option<unsafe extern "C" fn(*mut c_void)>,
            c_uint,
            c_uint,
        );
        object_release (*mut c_void, c_uint);
        object_retain (*mut c_void, *mut c_void, c_uint, c_uint);
        device_place (*mut c_char, c_int, Device);
        peer_possible (*mut c_int, Device, Device);
        peer_attribute (*mut c_int, c_uint, Device, Device);
    }
}

table! {
    /// Virtual memory management: physical memory, and the addresses at which it is mapped.
    Virtual, VirtualNames;
    required {
        granularity (*mut usize, *const AllocationProperties, c_uint);
        create (*mut RawPhysical, usize, *const AllocationProperties, c_ulonglong);
        release (RawPhysical);
        of (*mut RawPhysical, *mut c_void);
        export (*mut c_void, RawPhysical, c_uint, c_ulonglong);
        import (*mut RawPhysical, *mut c_void, c_uint);
        reserve (*mut Address, usize, usize, Address, c_ulonglong);
        free (Address, usize);
        map (Address, usize, usize, RawPhysical, c_ulonglong);
        unmap (Address, usize);
        allow (Address, usize, *const AccessDescription, usize);
    }
    optional {}
}

/// What a function of a vendor's own table returns: the driver's code, but where the table says otherwise.
macro_rules! answer {
    () => {
        $crate::gpu::code::Code
    };
    ($other:ty) => {
        $other
    };
}

/// Declares the table `Symbols` of one vendor: the names of what both drivers have; then, for what only this one has,
/// the field's name, the symbol, the types of its parameters, and what it returns where that is no code.
macro_rules! symbols {
    (
        shared $names:expr;
        mapping $mapping:expr;
        required { $($name:ident = $symbol:literal ($($argument:ty),* $(,)?) $(-> $result:ty)?;)* }
        optional { $($maybe:ident = $wanted:literal ($($parameter:ty),* $(,)?);)* }
    ) => {
        /// The functions of the driver library.
        pub(crate) struct Symbols {
            calls: $crate::gpu::calls::Calls,
            /// Virtual memory management, where the driver has all of it.
            pub(super) mapping: Option<$crate::gpu::calls::Virtual>,
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $crate::gpu::calls::answer!($($result)?),)*
            $(pub(super) $maybe: Option<unsafe extern "C" fn($($parameter),*) -> $crate::gpu::code::Code>,)*
        }

        impl std::ops::Deref for Symbols {
            type Target = $crate::gpu::calls::Calls;

            fn deref(&self) -> &Self::Target {
                &self.calls
            }
        }

        impl Symbols {
            /// All of them, or the name of the first that is required and missing.
            pub(super) fn load(library: &libloading::os::unix::Library) -> Result<Self, &'static str> {
                use $crate::gpu::search::function;
                Ok(Symbols {
                    calls: $crate::gpu::calls::Calls::load(library, &$names)?,
                    mapping: $crate::gpu::calls::Virtual::load(library, &$mapping).ok(),
                    $(
                        // SAFETY: the declaration is that of the driver's header for the same symbol; whoever
                        // makes the table never closes the library.
                        $name: unsafe { function(library, $symbol) }.ok_or($symbol)?,
                    )*
                    $(
                        // SAFETY: as above.
                        $maybe: unsafe { function(library, $wanted) },
                    )*
                })
            }
        }

        /// The symbols of the driver library that this backend loads: those it needs, and those it can do without.
        pub fn symbol_names() -> (Vec<&'static str>, Vec<&'static str>) {
            let (mut required, mut optional) = $names.all();
            required.extend_from_slice(&[$($symbol),*]);
            optional.extend($mapping.all().0);
            optional.extend_from_slice(&[$($wanted),*]);
            (required, optional)
        }
    };
}

pub(crate) use {answer, symbols};
