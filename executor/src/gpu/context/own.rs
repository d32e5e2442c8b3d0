//! What a rank's own memory in a context holds before the first launch.

use crate::communicator::Shared;
use crate::gpu::far;
use crate::gpu::proxy::Queue;
use crate::gpu::shape::{ArenaShape, OwnShape};
use crate::gpu::upload::Image;
use antiphon_codegen::abi::{ContextWords, ScratchPlaces};
use antiphon_hal::Memory;
use antiphon_plan::program::Layout;

/// What the tables in the own memory are made of.
pub struct OwnTables<'a> {
    /// The communicator.
    pub shared: &'a Shared,
    /// The plan's.
    pub layout: &'a Layout,
    /// The shapes of the ranks' arenas, in the order of the ranks.
    pub arenas: &'a [ArenaShape],
    /// This rank's arena.
    pub arena: &'a dyn Memory,
    /// The lists of ranks, one behind the other.
    pub lists: &'a [u32],
    /// Ranks of other nodes that launches have to do with.
    pub partners: &'a [u32],
    /// Where launches put what they ask of port channels.
    pub queue: Option<&'a Queue>,
}

impl OwnTables<'_> {
    /// All bytes of the own memory `own`, which has this shape.
    pub fn bytes(&self, shape: &OwnShape, own: &dyn Memory) -> Vec<u8> {
        let &OwnTables { shared, layout, arenas, arena, lists, partners, queue } = self;
        let rank = shared.rank as usize;
        let mut image = Image::default();
        image.put(shape.context, &[ContextWords { count: 1, ..ContextWords::default() }]);
        image.put(shape.semaphores, &layout.ranks[rank].semaphores);
        let scratch: Vec<ScratchPlaces> = arenas.iter().map(|arena| arena.scratch).collect();
        image.put(shape.scratch, &scratch);
        let base = arena.address().expose_provenance() as u64;
        let places: Vec<u64> = arenas.iter().map(|arena| arena.runtime).collect();
        image.put(shape.runtime[0] + u64::from(shared.rank) * 8, &[base + places[rank]]);
        image.put(shape.runtime[1], &places);
        image.put(shape.lists, lists);
        let channels = layout.ranks[rank].channels.len() as u32;
        image.put(shape.ways, &far::ways(shared, partners, channels));
        if let Some(queue) = queue {
            let base = own.address().expose_provenance() as u64;
            let links = queue.links(&layout.ranks[rank], partners, base + shape.claims);
            image.put(shape.links, &links);
        }
        // All of it: the memory may have held something else.
        image.bytes.resize(shape.bytes as usize, 0);
        image.bytes
    }
}
