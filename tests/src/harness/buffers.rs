//! The buffers of one call, in memory of either kind, of the host or of a device, and at any element.

use super::random::Random;
use antiphon::executor::hal::{Memory, Stream};
use antiphon::executor::{Communicator, ExecutorError};
use std::borrow::Cow;
use std::sync::Arc;

/// Where memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Memory of Antiphon, which peers map.
    Own,
    /// A `Vec`; on a device, which has nothing of the sort, memory of Antiphon.
    Plain,
}

/// What keeps an area's memory alive.
#[derive(Debug)]
enum Holder {
    Own(#[allow(dead_code, reason = "held for its memory")] Arc<dyn Memory>),
    Plain(#[allow(dead_code, reason = "held for its memory")] Vec<u8>),
}

/// A run of bytes somewhere in an allocation of its own.
#[derive(Debug)]
pub struct Area {
    _holder: Holder,
    address: *mut u8,
    bytes: usize,
    /// Copies to and from memory that the CPU does not reach.
    stream: Option<Arc<dyn Stream>>,
}

// SAFETY: the area owns its memory, and hands out references by borrowing itself only.
unsafe impl Send for Area {}

/// Elements before and after an area, where it does not start with its allocation.
const MARGIN: u64 = 61;

impl Area {
    /// `bytes` bytes that start with an allocation.
    ///
    /// # Errors
    /// What the device reports.
    pub fn new(
        communicator: &Communicator,
        source: Source,
        bytes: u64,
    ) -> Result<Self, ExecutorError> {
        Self::at(communicator, source, bytes, 16, 0)
    }

    /// `bytes` bytes at a random multiple of `element` bytes into an allocation.
    ///
    /// # Errors
    /// What the device reports.
    pub fn anywhere(
        communicator: &Communicator,
        source: Source,
        bytes: u64,
        element: u64,
        random: &mut Random,
    ) -> Result<Self, ExecutorError> {
        Self::at(communicator, source, bytes, element, random.below(MARGIN) * element)
    }

    fn at(
        communicator: &Communicator,
        source: Source,
        bytes: u64,
        align: u64,
        offset: u64,
    ) -> Result<Self, ExecutorError> {
        let room = offset + bytes + MARGIN * align;
        let near = communicator.device().caps().host_access && communicator.device().caps().tasks;
        let (holder, base) = match source {
            Source::Plain if near => {
                let mut memory = vec![0u8; room as usize];
                let base = memory.as_mut_ptr();
                (Holder::Plain(memory), base)
            }
            _ => {
                let memory = communicator.allocate(room)?;
                let base = memory.address();
                (Holder::Own(memory), base)
            }
        };
        let stream = if near { None } else { Some(communicator.stream()?) };
        let skip = base.align_offset(align as usize) + offset as usize;
        let address = base.wrapping_add(skip);
        Ok(Area { _holder: holder, address, bytes: bytes as usize, stream })
    }

    /// The first byte.
    pub fn address(&self) -> *mut u8 {
        self.address
    }

    /// The bytes, while no launch touches them.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match &self.stream {
            // SAFETY: the allocation has room for these bytes behind `address` and lives as long as `self`; callers read
            // when their launches are complete.
            None => Cow::Borrowed(unsafe { std::slice::from_raw_parts(self.address, self.bytes) }),
            Some(stream) => {
                let mut copy = vec![0; self.bytes];
                self.transfer(&**stream, copy.as_mut_ptr(), self.address);
                Cow::Owned(copy)
            }
        }
    }

    /// Changes the bytes, while no launch touches them.
    pub fn edit(&mut self, change: impl FnOnce(&mut [u8])) {
        match &self.stream {
            // SAFETY: as above.
            None => change(unsafe { std::slice::from_raw_parts_mut(self.address, self.bytes) }),
            Some(stream) => {
                let mut copy = self.bytes().into_owned();
                change(&mut copy);
                self.transfer(&**stream, self.address, copy.as_ptr());
            }
        }
    }

    fn transfer(&self, stream: &dyn Stream, to: *mut u8, from: *const u8) {
        if self.bytes == 0 {
            return;
        }
        // SAFETY: one side is the area, the other a vector as long that outlives the copy, which is waited for.
        let copied = unsafe { stream.copy(to, from, self.bytes as u64) };
        let done = copied.and_then(|_| stream.synchronize());
        done.expect("a copy between the host and a device");
    }
}
