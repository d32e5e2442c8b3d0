//! The multiplication before a premultiplied sum: a kernel of its own in the call's stream, so that it may be recorded into a
//! graph, and reads a factor that lies on the device when the stream comes to it.

use super::Gpu;
use super::kernels::{load, target};
use super::submission::blocks_over;
use crate::error::ExecutorError;
use crate::executor::Call;
use antiphon_codegen::scale;
use antiphon_hal::{HalError, Kernel, LaunchShape, Memory, Stream};
use antiphon_types::DataType;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, MutexGuard, PoisonError};

/// What premultiplied sums use, as long as the engine lives.
#[derive(Default)]
pub struct Scales {
    kernels: HashMap<DataType, Arc<dyn Kernel>>,
    /// By stream, whose calls follow each other: for products that have no other place. Those before the last were too small;
    /// launches and graphs may still use them, and all together they are no larger than the last.
    rooms: HashMap<u64, Vec<Arc<dyn Memory>>>,
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
    /// The kernel for elements of a type, compiled unless it is there.
    ///
    /// # Errors
    /// That there is no run-time compiler, and what it says.
    pub fn scale_kernel(&self, dtype: DataType) -> Result<Arc<dyn Kernel>, ExecutorError> {
        if let Some(known) = self.scales().kernels.get(&dtype) {
            return Ok(Arc::clone(known));
        }
        let backend = self.device.backend();
        let target = target(backend)
            .ok_or(HalError::Unsupported { op: "multiply elements by kernels", backend })?;
        let kernel = load(&*self.device, scale::ENTRY, &scale::text(target, dtype))?;
        Ok(Arc::clone(self.scales().kernels.entry(dtype).or_insert(kernel)))
    }

    /// Memory for so many bytes of products of one call on a stream, which the next call on it may have as well; as long as the
    /// engine.
    pub fn room_for_products(&self, stream: u64, bytes: u64) -> Result<*mut u8, ExecutorError> {
        let fits = |rooms: &Vec<Arc<dyn Memory>>| {
            rooms.last().filter(|last| last.len() >= bytes).map(|last| last.address())
        };
        let known = self.scales().rooms.get(&stream).and_then(fits);
        if let Some(address) = known {
            return Ok(address);
        }
        // No lock is held: a driver may let it wait for kernels.
        let made = self.device.allocate(bytes.next_power_of_two())?;
        let address = made.address();
        self.scales().rooms.entry(stream).or_default().push(made);
        Ok(address)
    }

    /// Puts a multiplication into a stream, whose products the launch of `call` that follows there adds up.
    ///
    /// # Safety
    /// The elements, and a factor that is not given, are readable by the device until the stream has come past, and the target
    /// is writable, which nobody else touches meanwhile.
    pub unsafe fn multiply(
        &self,
        call: &Call<'_>,
        products: &Products,
        stream: &dyn Stream,
    ) -> Result<(), ExecutorError> {
        self.takes(stream)?;
        let kernel = self.scale_kernel(products.dtype)?;
        let elements = (products.bytes / products.dtype.size()) as u64;
        if elements == 0 {
            return Ok(());
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
        self.scales.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
