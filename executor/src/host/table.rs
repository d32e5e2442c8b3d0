//! Where every rank's input and output are, for one launch.

use super::{Stop, Unready};
use antiphon_plan::program::Area;

/// Where a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Not looked up yet.
    Unknown,
    /// Mapped here.
    Here(*mut u8),
    /// At this address of another process.
    Process {
        /// The process.
        pid: i32,
        /// The address there.
        address: u64,
    },
}

impl Place {
    /// The place `offset` bytes on.
    #[inline]
    pub(super) fn after(self, offset: u64) -> Place {
        match self {
            Place::Unknown => Place::Unknown,
            Place::Here(base) => Place::Here(base.wrapping_add(offset as usize)),
            Place::Process { pid, address } => Place::Process { pid, address: address + offset },
        }
    }
}

// SAFETY: a `Place` is an address; whoever uses it answers for the access.
unsafe impl Send for Place {}

/// How a table finds a rank's buffers on first access.
pub trait Resolve {
    /// The input and output of `rank` in the launch, once it has entered it and they are reachable.
    fn resolve(&mut self, rank: u32) -> Result<[Place; 2], Unready>;

    /// Returns once `rank` is known to have entered the launch with the same call.
    fn agree(&mut self, rank: u32) -> Result<(), Unready>;

    /// Whether `rank`, of this node, has given up whatever launches it has not completed: its memory may be something else's by now.
    fn has_given_up(&self, rank: u32) -> bool;
}

/// The buffers of all ranks, filled in as they are first accessed.
pub struct Table<'a> {
    places: &'a mut [[Place; 2]],
    resolve: &'a mut dyn Resolve,
}

impl<'a> Table<'a> {
    /// A table over `places`, one entry per rank.
    pub fn new(places: &'a mut [[Place; 2]], resolve: &'a mut dyn Resolve) -> Self {
        Table { places, resolve }
    }

    /// Where the input or output of `rank` is.
    #[inline]
    pub(super) fn place(&mut self, rank: u32, area: Area) -> Result<Place, Stop> {
        let side = usize::from(area == Area::Output);
        let place = self.places[rank as usize][side];
        if place != Place::Unknown {
            return Ok(place);
        }
        let found = self.resolve.resolve(rank)?;
        self.places[rank as usize] = found;
        Ok(found[side])
    }

    /// Whether a rank of this node has given up whatever launches it has not completed.
    pub(super) fn has_given_up(&self, rank: u32) -> bool {
        self.resolve.has_given_up(rank)
    }

    /// Returns once `rank` is known to have entered the launch with the same call.
    #[inline]
    pub(super) fn agree(&mut self, rank: u32) -> Result<(), Stop> {
        Ok(self.resolve.agree(rank)?)
    }
}
