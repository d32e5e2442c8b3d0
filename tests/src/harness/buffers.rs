//! The buffers of one call, in memory of either kind and at any element.

use super::random::Random;
use antiphon::executor::hal::Memory;
use antiphon::executor::{Communicator, ExecutorError};
use std::sync::Arc;

/// Where memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Memory of Antiphon, which peers map.
    Own,
    /// A `Vec`.
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
        let (holder, base) = match source {
            Source::Own => {
                let memory = communicator.allocate(room)?;
                let base = memory.address();
                (Holder::Own(memory), base)
            }
            Source::Plain => {
                let mut memory = vec![0u8; room as usize];
                let base = memory.as_mut_ptr();
                (Holder::Plain(memory), base)
            }
        };
        let skip = base.align_offset(align as usize) + offset as usize;
        let address = base.wrapping_add(skip);
        Ok(Area { _holder: holder, address, bytes: bytes as usize })
    }

    /// The first byte.
    pub fn address(&self) -> *mut u8 {
        self.address
    }

    /// The bytes, while no launch touches them.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation has room for these bytes behind `address` and lives as long as `self`; callers read
        // when their launches are complete.
        unsafe { std::slice::from_raw_parts(self.address, self.bytes) }
    }

    /// The bytes, to write, while no launch touches them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.bytes) }
    }
}
