//! What a device and its memory share, and what every device is asked when it is opened.

use crate::caps::Caps;
use crate::error::HalError;
use crate::gpu::calls::{AllocationProperties, Device, Virtual};
use crate::gpu::code::{self, GRANULARITY};
use crate::gpu::foreign::Known;
use crate::gpu::library::{Api, text_of};
use crate::gpu::memory::GpuMemory;
use crate::gpu::pinned::Slabs;
use crate::gpu::stream::GpuStream;
use crate::gpu::vendor::{Context, Vendor};
use crate::ranges::Ranges;
use std::collections::{HashMap, HashSet};
use std::ffi::c_uint;
use std::sync::{Arc, Mutex, Weak};

/// What is asked of a device when it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Traits {
    /// The capabilities that callers see.
    pub(crate) caps: Caps,
    /// The architecture, as the compiler names it.
    pub(crate) architecture: String,
    /// The driver's calls that map physical memory at addresses, where it has them.
    pub(crate) mapping: Option<Virtual>,
    /// Whether kernels reach pinned memory of the host.
    pub(crate) pinned: bool,
    /// Bytes of shared memory that a block has without asking.
    pub(crate) shared_bytes: u32,
}

/// The memory of a handle, if it is open. Locked by a thread that opens the handle, which may wait for kernels; threads that want
/// another handle do not wait for it.
pub(crate) type Opened<V> = Mutex<Weak<GpuMemory<V>>>;

/// What a device and its memory share.
#[derive(Debug)]
pub(crate) struct Core<V: Vendor> {
    pub(crate) name: String,
    pub(crate) traits: V::Traits,
    /// What was allocated and imported, by address.
    pub(crate) ranges: Ranges<GpuMemory<V>>,
    /// Memory of the application that was asked for, by the driver's numbers of its allocations, which are never used
    /// again.
    pub(crate) foreign: Mutex<Known<V>>,
    /// Memory opened by IPC handles: opening one twice gives the same address.
    pub(crate) opened: Mutex<HashMap<[u8; 64], Arc<Opened<V>>>>,
    /// Devices whose memory kernels of this one were let use, as the driver knows them.
    pub(crate) enabled: Mutex<HashSet<usize>>,
    /// Held by who gives kernels' threads more memory of their own.
    pub(crate) stacks: Mutex<()>,
    /// Pinned memory that pieces are cut out of.
    pub(crate) slabs: Slabs<V>,
    /// Where memory is cleared. Before the context, which it needs.
    pub(crate) upkeep: GpuStream<V>,
    pub(crate) context: Arc<V::Context>,
}

impl<V: Vendor> Core<V> {
    /// Asks the device of `context`.
    pub(crate) fn open(context: V::Context) -> Result<Self, HalError> {
        let context = Arc::new(context);
        let entered = context.enter()?;
        let (traits, name) = (V::probe(&context)?, name(context.api(), context.device())?);
        drop(entered);
        Ok(Core {
            name,
            traits,
            ranges: Ranges::default(),
            foreign: Mutex::default(),
            opened: Mutex::default(),
            enabled: Mutex::default(),
            stacks: Mutex::default(),
            slabs: Slabs::default(),
            upkeep: GpuStream::urgent(&context)?,
            context,
        })
    }

    /// The driver's calls that map physical memory.
    pub(crate) fn mapping(&self) -> Result<Virtual, HalError> {
        self.traits.mapping.ok_or_else(|| HalError::Unavailable {
            what: format!("mapped memory of {}", self.name),
            why: "its driver has no virtual memory management, or an older kind".to_owned(),
            cure: "use the same release of the driver on every rank, and a GPU that no hypervisor shares in a mode \
                   without it"
                .to_owned(),
        })
    }
}

/// A device's name, for people.
pub(crate) fn name<V: Vendor>(api: &Api<V>, device: Device) -> Result<String, HalError> {
    let mut name = [0; 256];
    // SAFETY: the driver writes at most the length that it is given, with the zero byte at the end.
    let code = unsafe { (api.device_name)(name.as_mut_ptr(), 256, device) };
    api.check("ask for a device's name", code)?;
    Ok(text_of(&name.map(|byte| byte as u8)))
}

/// Bytes of memory on a device.
pub(crate) fn memory_bytes<V: Vendor>(api: &Api<V>, device: Device) -> Result<u64, HalError> {
    let mut bytes = 0;
    // SAFETY: `bytes` is a valid place for the answer.
    let code = unsafe { (api.device_memory)(&raw mut bytes, device) };
    api.check("ask for a device's memory", code)?;
    Ok(bytes as u64)
}

/// An attribute of a device that counts something.
pub(crate) fn attribute<V: Vendor>(
    api: &Api<V>,
    device: Device,
    attribute: c_uint,
) -> Result<u32, HalError> {
    let mut value = 0;
    // SAFETY: `value` is a valid place for the answer.
    let code = unsafe { (api.device_attribute)(&raw mut value, attribute, device) };
    api.check("ask for an attribute of a device", code)?;
    Ok(code::count(value))
}

/// The unit in which such physical memory comes, in bytes; a power of two.
pub(crate) fn granularity<V: Vendor>(
    api: &Api<V>,
    calls: Virtual,
    properties: &AllocationProperties,
) -> Result<u64, HalError> {
    let mut bytes = 0;
    // SAFETY: both pointers are valid for the call.
    let code = unsafe { (calls.granularity)(&raw mut bytes, properties, GRANULARITY) };
    api.check("ask for the granularity of memory", code)?;
    if !bytes.is_power_of_two() {
        return Err(HalError::Unavailable {
            what: format!("the {} device", V::BACKEND),
            why: format!("its driver gives memory in units of {bytes} bytes, no power of two"),
            cure: "report this, with the driver's version".to_owned(),
        });
    }
    Ok(bytes as u64)
}
