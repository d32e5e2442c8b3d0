//! The multiplication before a premultiplied sum: a kernel of its own in the call's stream, so that it may be recorded into a
//! graph, and reads a factor that lies on the device when the stream comes to it.

use super::Gpu;
use super::kernels::{Loader, scale_kernel, target};
use super::submission::{LaunchTarget, blocks_over};
use crate::communicator::{Lane, Shared};
use crate::error::ExecutorError;
use crate::executor::Call;
use crate::sync::lock;
use antiphon_hal::{HalError, Kernel, LaunchShape, Memory, Stream};
use antiphon_types::DataType;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, MutexGuard};

/// What premultiplied sums use, as long as the engine lives.
#[derive(Default)]
pub struct Scales {
    kernels: HashMap<DataType, Arc<dyn Kernel>>,
    /// By stream, whose calls follow each other: for products that have no other place. Those before the last were too small;
    /// launches and graphs may still use them, and all together they are no larger than the last.
    rooms: HashMap<Lane, Vec<Arc<dyn Memory>>>,
    /// Of no stream yet: made by another rank on the device.
    spare: Option<Arc<dyn Memory>>,
}

impl Scales {
    /// Where the last room of a stream is, if it has so many bytes.
    fn room(&self, lane: Lane, bytes: u64) -> Option<*mut u8> {
        let last = self.rooms.get(&lane)?.last()?;
        (last.len() >= bytes).then(|| last.address())
    }

    /// How many lanes have such a room, or could.
    fn count(&self, bytes: u64) -> usize {
        let all = self.rooms.values().filter_map(|rooms| rooms.last()).chain(&self.spare);
        all.filter(|room| room.len() >= bytes).count()
    }
}

/// A multiplication.
pub struct Products {
    /// Where the elements are.
    pub source: *const u8,
    /// Where the products go: there, or apart.
    pub target: *mut u8,
    /// Bytes of both.
    pub bytes: usize,
    /// The type of the elements.
    pub dtype: DataType,
    /// Where the factor is when the stream comes to it; null if it is given.
    pub factor_at: *const u8,
    /// The factor, in the first bytes.
    pub factor: [u8; 8],
}

impl Gpu {
    /// Loads the kernel for elements of a type, unless it is there, for `rank` and the others on the device, whose
    /// calls follow behind this one's kernel.
    ///
    /// # Errors
    /// That there is neither a run-time compiler nor an image that the driver takes.
    pub fn prepare_scale(&self, shared: &Shared, dtype: DataType) -> Result<(), ExecutorError> {
        if self.scales().kernels.contains_key(&dtype) {
            return Ok(());
        }
        let _making = self.family.making();
        self.scale_kernel(shared, dtype)?;
        self.family.for_others(shared.rank, |other| {
            let made = other.gpu.as_ref().map(|gpu| gpu.scale_kernel(other, dtype));
            if let Some(Err(error)) = made {
                log::debug!("{} loads what multiplies itself: {error}", other.whose);
            }
        });
        Ok(())
    }

    fn scale_kernel(
        &self,
        shared: &Shared,
        dtype: DataType,
    ) -> Result<Arc<dyn Kernel>, ExecutorError> {
        if let Some(known) = self.scales().kernels.get(&dtype) {
            return Ok(Arc::clone(known));
        }
        let backend = self.device.backend();
        let target = target(backend)
            .ok_or(HalError::Unsupported { op: "multiply elements by kernels", backend })?;
        let loader = Loader { device: &*self.device, shared, hurries: false };
        let kernel = scale_kernel(loader, target, dtype)?;
        Ok(Arc::clone(self.scales().kernels.entry(dtype).or_insert(kernel)))
    }

    /// Memory for so many bytes of products of one call of `rank` in a lane, which the next call there may have as well; as
    /// long as the engine. The other ranks on the device get as many, since their calls follow behind this one's kernel.
    pub fn room_for_products(
        &self,
        rank: u32,
        lane: Lane,
        bytes: u64,
    ) -> Result<*mut u8, ExecutorError> {
        if let Some(address) = self.scales().room(lane, bytes) {
            return Ok(address);
        }
        let _making = self.family.making();
        if let Some(address) = self.scales().room(lane, bytes) {
            return Ok(address);
        }
        let spare = self.scales().spare.take_if(|spare| spare.len() >= bytes);
        // No lock is held that launches take: a driver may let it wait for kernels.
        let allocate = || self.device.allocate(bytes.next_power_of_two());
        let made = spare.map_or_else(allocate, Ok)?;
        let address = made.address();
        self.scales().rooms.entry(lane).or_default().push(made);
        let own = self.scales().count(bytes);
        self.family.for_others(rank, |other| {
            let Some(gpu) = other.gpu.as_ref().filter(|gpu| gpu.scales().count(bytes) < own) else {
                return;
            };
            match allocate() {
                Ok(made) => {
                    // Not here: it may wait for kernels, under locks.
                    let small = gpu.scales().spare.replace(made);
                    small.into_iter().for_each(super::free);
                }
                Err(error) => log::debug!("{} makes room itself: {error}", other.whose),
            }
        });
        Ok(address)
    }

    /// Puts a multiplication into a stream, whose products the launch of `call` that follows there adds up.
    ///
    /// # Safety
    /// The elements, and a factor that is not given, are readable by the device until the stream has come past, and the target
    /// is writable, which nobody else touches meanwhile.
    pub unsafe fn multiply(
        &self,
        shared: &Shared,
        call: &Call<'_>,
        products: &Products,
        stream: &dyn Stream,
    ) -> Result<(), ExecutorError> {
        let kernel = self.scale_kernel(shared, products.dtype)?;
        let elements = (products.bytes / products.dtype.size()) as u64;
        if elements == 0 {
            return Ok(());
        }
        // It reads and writes what the lane's last call may use.
        if let Some(mut lane) = self.lane_turn() {
            lane.enter(LaunchTarget::of(stream)?)?;
        }
        let words = [
            products.target.expose_provenance() as u64,
            products.source.expose_provenance() as u64,
            elements,
            products.factor_at.expose_provenance() as u64,
            u64::from_le_bytes(products.factor),
        ];
        let arguments = words.each_ref().map(|word| std::ptr::from_ref(word).cast::<c_void>());
        let shape: LaunchShape = self.shape(call.plan, blocks_over(elements));
        // SAFETY: the kernel has these five parameters; what they point to is valid by this function's contract, and the engine
        // keeps the kernel.
        unsafe { kernel.launch(stream, shape, &arguments)? };
        Ok(())
    }

    fn scales(&self) -> MutexGuard<'_, Scales> {
        lock(&self.scales)
    }
}
