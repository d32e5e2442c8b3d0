//! Bytes from the host to device memory, beside kernels that run.

use crate::gpu::pool::Pool;
use crate::sync::lock;
use antiphon_codegen::abi::{
    BlockEntry, BlockRange, ContextWords, Link, Piece, Pieces, ScratchPlaces,
};
use antiphon_hal::{Device, HalError, Memory, Stream};
use std::ptr;
use std::sync::{Arc, Mutex, Weak};

/// Bytes that travel at once.
const PIECE: u64 = 1 << 20;

/// Copies tables to device memory over a stream of its own, which waits for no kernel.
#[derive(Debug)]
pub struct Upload {
    stream: Arc<dyn Stream>,
    /// Pinned: a copy from there needs nothing else of the driver. Held while it is in use.
    piece: Mutex<Arc<dyn Memory>>,
}

/// An upload, and whose it is.
type Known = (Weak<dyn Device>, Weak<Upload>);

impl Upload {
    /// An upload to `device` of the caller's own.
    pub fn new(device: &dyn Device) -> Result<Self, HalError> {
        Ok(Upload { stream: device.urgent_stream()?, piece: Mutex::new(device.pinned(PIECE)?) })
    }

    /// The upload to `device` of all its communicators. Pairs and groups are formed beside kernels, some of which may wait for who forms
    /// them; and a driver may let whoever pins a new slab wait for kernels.
    pub fn of(device: &Arc<dyn Device>) -> Result<Arc<Self>, HalError> {
        static ALL: Mutex<Vec<Known>> = Mutex::new(Vec::new());
        let is_of = |known: &Known| ptr::addr_eq(known.0.as_ptr(), Arc::as_ptr(device));
        let found = lock(&ALL).iter().find(|known| is_of(known)).and_then(|(_, one)| one.upgrade());
        if let Some(upload) = found {
            return Ok(upload);
        }
        // Not with the lock held: others need not wait for what this may wait for.
        let upload = Arc::new(Upload::new(&**device)?);
        let mut all = lock(&ALL);
        all.retain(|(_, upload)| upload.strong_count() > 0);
        all.push((Arc::downgrade(device), Arc::downgrade(&upload)));
        Ok(upload)
    }

    /// Copies `bytes` to the start of `memory`, which is at least as long and nobody else uses now.
    pub fn copy(&self, memory: &dyn Memory, bytes: &[u8]) -> Result<(), HalError> {
        // SAFETY: the memory is at least as long as `bytes`, and nobody else's now.
        unsafe { self.write(memory.address(), bytes) }
    }

    /// Copies `bytes` to an address of the device.
    ///
    /// # Safety
    /// The range is mapped, and lives for the call. Who else touches it meanwhile expects that.
    pub unsafe fn write(&self, to: *mut u8, bytes: &[u8]) -> Result<(), HalError> {
        let piece = lock(&self.piece);
        for (number, part) in bytes.chunks(PIECE as usize).enumerate() {
            let there = to.wrapping_add(number * PIECE as usize);
            // SAFETY: the piece is `PIECE` bytes long, this thread holds its lock, and the copy before this one is over.
            // The range is the caller's.
            unsafe {
                ptr::copy_nonoverlapping(part.as_ptr(), piece.address(), part.len());
                let _ = self.stream.copy(there, piece.address(), part.len() as u64)?;
            }
            self.stream.synchronize()?;
        }
        Ok(())
    }

    /// Copies `bytes` bytes (at most a piece) from an address of the device.
    ///
    /// # Safety
    /// The range is mapped, and lives for the call.
    pub unsafe fn read(&self, address: u64, bytes: usize) -> Result<Vec<u8>, HalError> {
        let mut read = vec![0; bytes.min(PIECE as usize)];
        // SAFETY: as this function's.
        unsafe { self.read_into(ptr::with_exposed_provenance(address as usize), &mut read)? };
        Ok(read)
    }

    /// Fills `bytes` from an address of the device on.
    ///
    /// # Safety
    /// The range is mapped, and lives for the call.
    pub unsafe fn read_into(&self, from: *const u8, bytes: &mut [u8]) -> Result<(), HalError> {
        let piece = lock(&self.piece);
        for (number, part) in bytes.chunks_mut(PIECE as usize).enumerate() {
            let there = from.wrapping_add(number * PIECE as usize);
            // SAFETY: the range is the caller's; the piece is long enough, and this thread holds its lock.
            let _ = unsafe { self.stream.copy(piece.address(), there, part.len() as u64)? };
            self.stream.synchronize()?;
            // SAFETY: the copy is over, nobody else has the piece, and `part` is memory of another kind.
            unsafe { part.as_mut_ptr().copy_from_nonoverlapping(piece.address(), part.len()) };
        }
        Ok(())
    }

    /// Memory of a pool that holds `bytes`.
    pub fn new_memory(&self, pool: &Pool, bytes: &[u8]) -> Result<Arc<dyn Memory>, HalError> {
        let memory = pool.take(bytes.len() as u64)?;
        self.copy(&*memory, bytes)?;
        Ok(memory)
    }
}

/// An image of device memory in the making: values one behind the other, each at a multiple of 16 bytes.
#[derive(Debug, Default)]
pub struct Image {
    /// The bytes so far.
    pub bytes: Vec<u8>,
}

impl Image {
    /// Adds the bytes of some values; where they begin.
    pub fn add<T: Plain>(&mut self, values: &[T]) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        let start = self.bytes.len() as u64;
        self.put(start, values);
        start
    }

    /// Puts the bytes of some values at a place, making room up to there.
    pub fn put<T: Plain>(&mut self, at: u64, values: &[T]) {
        let bytes = std::mem::size_of_val(values);
        let end = at as usize + bytes;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        // SAFETY: `T` is plain, so that its bytes may be read.
        let view = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), bytes) };
        self.bytes[at as usize..end].copy_from_slice(view);
    }
}

/// Types whose bytes are all initialised.
///
/// # Safety
/// No padding, and no pointers.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($integer:ty),*; $($device:ty),*) => {
        $(
            // SAFETY: an integer.
            unsafe impl Plain for $integer {}
        )*
        $(
            // SAFETY: a device struct has no padding (a test of its crate sees to it) and holds integers alone.
            unsafe impl Plain for $device {}
        )*
    };
}

plain!(u32, u64, i64; BlockEntry, BlockRange, ContextWords, Link, Piece, Pieces, ScratchPlaces);

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_hal::host::HostDevice;

    #[test]
    fn a_device_has_one_upload_for_all_its_communicators() {
        let open = || -> Arc<dyn Device> { Arc::new(HostDevice::new(Default::default()).unwrap()) };
        let (one, other) = (open(), open());
        let [first, second, others] = [&one, &one, &other].map(|at| Upload::of(at).unwrap());
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &others));
        drop((first, second));
        assert!(Arc::ptr_eq(&others, &Upload::of(&other).unwrap()));
    }
}
