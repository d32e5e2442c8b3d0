//! Memory of a communicator's device, with copies to and from it, that may be let go of at any time.

use crate::communicator::Communicator;
use crate::error::ExecutorError;
use crate::gpu::{self, Upload};
use antiphon_hal::{Device, Memory};
use std::fmt;
use std::sync::Arc;

/// Memory of a communicator's device.
///
/// Peers map it: launches use it without a copy. It belongs to no communicator, and may outlive the one that it came from.
///
/// When it is dropped, it is freed at once if no kernel of a launch of this process is under way on a GPU, and otherwise as soon
/// as that is so. Dropping does not wait, since such a kernel may wait for the caller's next call. If its address was passed to
/// a call on a stream, it must be kept until the stream has come past that call. What peers have mapped stays until they let go.
pub struct Allocation {
    /// Taken by `drop` alone.
    memory: Option<Arc<dyn Memory>>,
    device: Arc<dyn Device>,
    /// For devices whose memory the host does not reach.
    copies: Option<Arc<Upload>>,
}

/// Lets go of memory that no call uses any more, as dropping an [`Allocation`] does: the caller waits for no kernel.
pub fn release(memory: Arc<dyn Memory>) {
    gpu::free(memory);
}

impl Communicator {
    /// `bytes` of zeroed memory of the communicator's device, with copies to and from it.
    ///
    /// # Errors
    /// What the device reports; zero bytes are refused.
    pub fn allocation(&self, bytes: u64) -> Result<Allocation, ExecutorError> {
        let copies = self.shared.gpu.as_ref().map(|gpu| gpu.copies()).transpose()?;
        let memory = Some(self.allocate(bytes)?);
        Ok(Allocation { memory, device: Arc::clone(self.device()), copies })
    }
}

impl Allocation {
    /// The device whose memory it is.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Its address; on a GPU one that only kernels and copies may use.
    pub fn address(&self) -> *mut u8 {
        self.memory().address()
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.memory().len()
    }

    /// Copies `bytes` to its beginning. Complete on return; it does not wait for kernels that run.
    ///
    /// # Errors
    /// `Argument` for more bytes than it has; what the device reports.
    ///
    /// # Safety
    /// Nobody else reads or writes these bytes meanwhile: no call that uses them is under way on any rank.
    pub unsafe fn upload(&mut self, bytes: &[u8]) -> Result<(), ExecutorError> {
        self.holds("copy to memory of a device", bytes.len())?;
        match &self.copies {
            Some(copies) => copies.copy(&**self.memory(), bytes)?,
            // SAFETY: the memory is the host's, mapped and as long; nobody else touches it, as the caller promises.
            None => unsafe {
                self.address().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            },
        }
        Ok(())
    }

    /// Fills `bytes` from its beginning. Otherwise as [`upload`](Self::upload).
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    ///
    /// # Safety
    /// Nobody writes these bytes meanwhile.
    pub unsafe fn download(&self, bytes: &mut [u8]) -> Result<(), ExecutorError> {
        self.holds("copy from memory of a device", bytes.len())?;
        let from = self.address().cast_const();
        match &self.copies {
            // SAFETY: the memory is mapped, as long, and lives for the call; nobody writes it, as the caller promises.
            Some(copies) => unsafe { copies.read_into(from, bytes)? },
            // SAFETY: as above; it is the host's.
            None => unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(from, bytes.len()) },
        }
        Ok(())
    }

    fn memory(&self) -> &Arc<dyn Memory> {
        self.memory.as_ref().expect("memory is taken by `drop` alone")
    }

    fn holds(&self, what: &'static str, bytes: usize) -> Result<(), ExecutorError> {
        if bytes as u64 <= self.bytes() {
            return Ok(());
        }
        let saw = format!("{bytes} bytes for an allocation of {}", self.bytes());
        Err(ExecutorError::Argument { what, saw, allowed: "at most the bytes it has" })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        gpu::free((self.memory.take(), self.copies.take()));
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocation").field("memory", self.memory()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Communicator, ExecutorError, Options};

    #[test]
    fn what_goes_in_comes_out_and_too_much_is_refused() {
        let rank = Communicator::in_process(1, &Options::default()).unwrap().remove(0);
        let mut memory = rank.allocation(6).unwrap();
        assert!(rank.allocation(0).is_err());
        drop(rank);
        let mut found = [9; 6];
        // SAFETY: nobody else knows of the memory; so for all of these.
        unsafe { memory.download(&mut found) }.unwrap();
        assert_eq!((found, memory.bytes()), ([0; 6], 6), "it begins as zeros");
        // SAFETY: as above.
        unsafe { memory.upload(&[1, 2, 3]) }.unwrap();
        // SAFETY: as above.
        unsafe { memory.download(&mut found[..4]) }.unwrap();
        assert_eq!(found, [1, 2, 3, 0, 0, 0]);
        // SAFETY: as above.
        let results = unsafe { [memory.upload(&[0; 7]), memory.download(&mut [0; 7])] };
        for result in results {
            let error = result.unwrap_err();
            assert!(matches!(error, ExecutorError::Argument { .. }), "{error}");
            assert!(error.to_string().contains("7 bytes for an allocation of 6"), "{error}");
        }
    }
}
