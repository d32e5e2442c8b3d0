//! Elements in a device's memory.

use crate::buffer::place::{Place, PlaceMut};
use crate::{Communicator, Element, Result};
use antiphon_executor::hal::Device;
use antiphon_executor::{Allocation, ExecutorError};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;

/// Elements in the memory of a communicator's device, for that communicator's collectives.
///
/// ```
/// use antiphon::{Communicator, DeviceBuffer, Op};
///
/// // Ranks of which device is up to the options; these are the host's.
/// let ranks = Communicator::in_process(2)?;
/// std::thread::scope(|scope| {
///     for rank in &ranks {
///         scope.spawn(move || {
///             let mut sums = DeviceBuffer::from_slice(rank, &[1.5f32; 1000])?;
///             rank.all_reduce(&mut sums, Op::Sum)?;
///             assert_eq!(sums.to_vec()?, [3.0; 1000]);
///             Ok::<(), antiphon::ExecutorError>(())
///         });
///     }
/// });
/// # Ok::<(), antiphon::ExecutorError>(())
/// ```
///
/// On a rank of a GPU it is the only kind of buffer that the methods take. On the host it is memory that peers in other
/// processes map, so that calls which read a peer's buffer copy once. Ranks on GPUs are made with [`Options::with_device`], of
/// devices that [`hal::driver`](crate::hal::driver) opens; a build without the backend's feature answers `Unavailable` there.
///
/// It serves every communicator on the same device, and may outlive the one that it was made with. When it is dropped, its
/// memory is freed at once on the host, and on a GPU as soon as no launch of this process is under way; dropping waits for no
/// kernel.
///
/// [`Options::with_device`]: crate::Options::with_device
pub struct DeviceBuffer<T: Element> {
    len: usize,
    /// Of `len` elements; `None` for none.
    memory: Option<Allocation>,
    elements: PhantomData<T>,
}

impl<T: Element> DeviceBuffer<T> {
    /// A buffer of `len` zeros on the communicator's device.
    ///
    /// # Errors
    /// What the device reports, for instance that it has no room.
    pub fn zeroed(on: &Communicator, len: usize) -> Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| ExecutorError::Argument {
            what: "allocate a device buffer",
            saw: format!("{len} elements of {} bytes", size_of::<T>()),
            allowed: "as many as have addresses",
        })?;
        let memory = if bytes == 0 { None } else { Some(on.allocation(bytes as u64)?) };
        Ok(DeviceBuffer { len, memory, elements: PhantomData })
    }

    /// A copy of `values` on the communicator's device.
    ///
    /// # Errors
    /// As [`zeroed`](Self::zeroed) and [`upload`](Self::upload).
    pub fn from_slice(on: &Communicator, values: &[T]) -> Result<Self> {
        let mut buffer = DeviceBuffer::zeroed(on, values.len())?;
        buffer.upload(values)?;
        Ok(buffer)
    }

    /// How many elements it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Replaces its elements by `values`. Complete on return; it waits for no kernel.
    ///
    /// # Errors
    /// `Argument` if there are more or fewer values than the buffer has elements; what the device reports.
    pub fn upload(&mut self, values: &[T]) -> Result<()> {
        self.is_as_long("copy to a device buffer", values.len())?;
        let Some(memory) = &mut self.memory else { return Ok(()) };
        let (start, bytes) = (values.as_ptr().cast(), size_of_val(values));
        // SAFETY: elements have no padding, so that their bytes may be read.
        let bytes = unsafe { std::slice::from_raw_parts(start, bytes) };
        // SAFETY: calls with this buffer borrow it until they are complete, and it is borrowed exclusively here.
        unsafe { memory.upload(bytes) }
    }

    /// Copies its elements to `values`. Complete on return; it waits for no kernel.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub fn download(&self, values: &mut [T]) -> Result<()> {
        self.is_as_long("copy from a device buffer", values.len())?;
        let Some(memory) = &self.memory else { return Ok(()) };
        let (start, bytes) = (values.as_mut_ptr().cast(), size_of_val(values));
        // SAFETY: elements have no padding, and every pattern of their bits is one.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, bytes) };
        // SAFETY: calls that write this buffer borrow it exclusively until they are complete.
        unsafe { memory.download(bytes) }
    }

    /// Its elements, on the host.
    ///
    /// # Errors
    /// `Argument` if the host has no memory for them; what the device reports.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut values = Vec::<T>::new();
        values.try_reserve_exact(self.len).map_err(|_| ExecutorError::Argument {
            what: "copy from a device buffer",
            saw: format!("{} elements of {} bytes", self.len, size_of::<T>()),
            allowed: "what the host has memory for",
        })?;
        // SAFETY: there is room for as many, and zeros are an element of every type.
        unsafe {
            values.as_mut_ptr().write_bytes(0, self.len);
            values.set_len(self.len);
        }
        self.download(&mut values)?;
        Ok(values)
    }

    /// Where its elements are, dangling where there are none: on a GPU an address for kernels and copies alone, e.g. for the
    /// calls on streams of [`Communicator::collectives`].
    pub fn as_ptr(&self) -> *const T {
        self.address()
    }

    /// As [`as_ptr`](Self::as_ptr), to be written.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.address()
    }

    fn is_as_long(&self, what: &'static str, values: usize) -> Result<()> {
        if values == self.len {
            return Ok(());
        }
        let saw = format!("{values} values for {} elements", self.len);
        Err(ExecutorError::Argument { what, saw, allowed: "as many as it has" })
    }

    fn address(&self) -> *mut T {
        let address = self.memory.as_ref().map(|memory| memory.address().cast());
        address.unwrap_or(ptr::dangling_mut())
    }
}

// SAFETY: the memory is of the device's own and has room for the elements. Who else knows its address has promised, where it
// was passed on, to keep to the rules of borrowing.
unsafe impl<T: Element> Place for DeviceBuffer<T> {
    fn device(&self) -> Option<&dyn Device> {
        self.memory.as_ref().map(|memory| &**memory.device())
    }

    fn count(&self) -> usize {
        self.len
    }

    fn start(&self) -> *const u8 {
        self.address().cast_const().cast()
    }
}

// SAFETY: as above.
unsafe impl<T: Element> PlaceMut for DeviceBuffer<T> {
    fn start_mut(&mut self) -> *mut u8 {
        self.address().cast()
    }
}

impl<T: Element> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.device().map(Device::name);
        f.debug_struct("DeviceBuffer").field("len", &self.len).field("device", &device).finish()
    }
}
