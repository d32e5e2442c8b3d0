//! What devices know of peers' memory: regions and arenas, in words that the host writes as peers tell it.
//!
//! Regions have the numbers that their ranks give them (see `slots`), by which kernels find them in a table. Kernels
//! that meet a region before its mapping has come wait for its entry.

use super::words::Words;
use antiphon_codegen::abi::{CHUNKS, DeviceStruct, FIRST_CHUNK, RegionEntry, chunk_of};
use antiphon_hal::{Device, HalError, Memory};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// The regions and arenas of all ranks, as this rank maps them.
#[derive(Debug)]
pub struct Tables {
    device: Arc<dyn Device>,
    world: u32,
    /// For each rank, [`CHUNKS`] addresses of chunks of entries.
    directory: Words,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By rank and chunk.
    chunks: HashMap<(u32, u32), Words>,
    /// By rank and slot: the region, and what keeps it mapped.
    regions: HashMap<(u32, u32), (u64, Arc<dyn Memory>)>,
    /// By rank and slot: the newest region that is gone.
    gone: HashMap<(u32, u32), u64>,
    /// By rank: slots that it has used, which it takes one after the other.
    used: HashMap<u32, u32>,
    /// By context and rank.
    arenas: HashMap<(u64, u32), Arena>,
    /// By rank, how many arenas it has told of.
    told: HashMap<u32, u32>,
    /// Where contexts want to know of arenas.
    listeners: HashMap<u64, Listener>,
    /// Mappings that peers have retired, while kernels may still use them.
    retired: Vec<Arc<dyn Memory>>,
}

impl State {
    /// Notes that a region is gone; a later one may have its slot by now.
    fn miss(&mut self, place: (u32, u32), region: u64) {
        let newest = self.gone.entry(place).or_default();
        *newest = region.max(*newest);
    }

    /// Notes that the region that is mapped in a slot is gone; returns what keeps it mapped.
    fn lose(&mut self, place: (u32, u32)) -> Option<Arc<dyn Memory>> {
        let (region, memory) = self.regions.remove(&place)?;
        self.miss(place, region);
        Some(memory)
    }
}

/// The most contexts that a rank of another node may tell of before this rank makes them: it makes them in the order of its
/// calls, and waits for nobody.
const MOST_AHEAD: usize = 4096;

/// A peer's arena of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arena {
    /// Where it is, in the address space that `far` tells.
    pub address: u64,
    /// How long it is.
    pub bytes: u64,
    /// The address is the peer's own: nothing here is mapped there, and no kernel here may store to it.
    pub far: bool,
}

/// What a context needs of a peer's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// Bytes that it has at least: kernels write there unchecked.
    pub bytes: u64,
    /// The peer is on another node.
    pub far: bool,
}

/// A context that wants to know of arenas.
#[derive(Debug)]
struct Listener {
    words: Weak<Words>,
    /// Where the first rank's word is.
    at: u64,
    /// By rank.
    needed: Vec<Needed>,
}

impl Listener {
    /// Tells kernels of an arena, if it is long enough.
    fn hear(&self, peer: u32, Arena { address, bytes, far }: Arena) -> Result<(), String> {
        let Some(needed) = self.needed.get(peer as usize) else {
            return Err("an arena of a rank that there is not".to_owned());
        };
        if bytes < needed.bytes {
            let least = needed.bytes;
            return Err(format!("an arena of {bytes} bytes, where {least} are needed"));
        }
        if far != needed.far {
            let [saw, allowed] =
                [far, needed.far].map(|far| if far { "address" } else { "region" });
            return Err(format!("an arena by its {saw}, where its {allowed} is allowed"));
        }
        if let Some(words) = self.words.upgrade()
            && let Some(word) = words.word(self.at + u64::from(peer) * 8)
        {
            word.store(address, Ordering::Release);
        }
        Ok(())
    }
}

/// Entries of a chunk.
const fn chunk_len(chunk: u32) -> u64 {
    (FIRST_CHUNK as u64) << chunk
}

impl Tables {
    /// Tables of nothing, for `world` ranks.
    pub fn new(device: &Arc<dyn Device>, world: u32) -> Result<Self, HalError> {
        let directory = Words::new(&**device, u64::from(world) * u64::from(CHUNKS) * 8)?;
        let tables =
            Tables { device: Arc::clone(device), world, directory, state: Mutex::default() };
        // Made now rather than beside kernels that run.
        for rank in 0..world {
            drop(tables.with_chunk(rank, 0)?);
        }
        Ok(tables)
    }

    /// The directory's address.
    pub fn address(&self) -> u64 {
        self.directory.address()
    }

    /// A peer's region is mapped.
    pub fn map(&self, peer: u32, region: u64, memory: Arc<dyn Memory>) -> Result<(), String> {
        let slot = self.take_slot(peer, region)?;
        let (chunk, at) = chunk_of(slot);
        let base = memory.address().expose_provenance() as u64;
        let mut state = self.with_chunk(peer, chunk).map_err(|error| error.to_string())?;
        let place = u64::from(at) * RegionEntry::BYTES as u64;
        let words = state.chunks.get(&(peer, chunk));
        let word = |at| words.and_then(|words| words.word(at));
        let (Some(number), Some(address)) = (word(place), word(place + 8)) else {
            return Err(format!("slot {slot}, which is outside its chunk"));
        };
        // Who acquires the new address does not find the old number afterwards.
        number.store(0, Ordering::Relaxed);
        address.store(base, Ordering::Release);
        number.store(region, Ordering::Release);
        let before = state.lose((peer, slot));
        state.retired.extend(before);
        state.regions.insert((peer, slot), (region, memory));
        Ok(())
    }

    /// A peer's region was gone before it was mapped.
    pub fn miss(&self, peer: u32, region: u64) -> Result<(), String> {
        self.take_slot(peer, region).map(|slot| self.state().miss((peer, slot), region))
    }

    /// Whether a peer's region was told of and is gone, so that no kernel will find it any more.
    pub fn is_gone(&self, peer: u32, region: u64) -> bool {
        // Of a slot's regions the later one has the greater number.
        self.state().gone.get(&(peer, region as u32)).is_some_and(|&newest| region <= newest)
    }

    /// A peer uses the slot of a region.
    fn take_slot(&self, peer: u32, region: u64) -> Result<u32, String> {
        let slot = region as u32;
        let (chunk, _) = chunk_of(slot);
        if peer >= self.world || chunk >= CHUNKS || region >> 32 == 0 {
            return Err(format!("region {region:#x}, which no device can look up"));
        }
        let mut state = self.state();
        let used = state.used.entry(peer).or_default();
        // So that memory grows with what a peer has sent, and no further.
        if slot > *used {
            return Err(format!("slot {slot}, where {used} are in use"));
        }
        *used = (*used).max(slot + 1);
        Ok(slot)
    }

    /// Bytes of a peer's region, if it is mapped.
    pub fn bytes(&self, peer: u32, region: u64) -> Option<u64> {
        let state = self.state();
        let known = state.regions.get(&(peer, region as u32)).filter(|known| known.0 == region);
        known.map(|(_, memory)| memory.len())
    }

    /// A peer has freed a region: its mapping, of which the caller keeps nothing, goes when nothing runs any more. A kernel that
    /// is told of the region all the same does not find it, and waits until the watch ends it.
    pub fn retire(&self, peer: u32, memory: Arc<dyn Memory>) {
        let mut state = self.state();
        let gone = |(owner, slot): &(u32, u32), region: &(u64, Arc<dyn Memory>)| {
            (*owner == peer && Arc::ptr_eq(&region.1, &memory)).then_some((*owner, *slot))
        };
        let found = state.regions.iter().find_map(|(place, region)| gone(place, region));
        if let Some((_, slot)) = found
            && let (chunk, at) = chunk_of(slot)
            && let Some(words) = state.chunks.get(&(peer, chunk))
            && let Some(number) = words.word(u64::from(at) * RegionEntry::BYTES as u64)
        {
            number.store(0, Ordering::Release);
        }
        let before = found.and_then(|place| state.lose(place));
        if state.listeners.is_empty() {
            // No launch was ever meant to use it, and nothing watches launches.
            drop(state);
            return super::free_later([before, Some(memory)]);
        }
        state.retired.extend(before.into_iter().chain([memory]));
    }

    /// Takes out what peers have retired, to be unmapped. No kernel that may use it runs.
    pub fn take_retired(&self) -> Vec<Arc<dyn Memory>> {
        std::mem::take(&mut self.state().retired)
    }

    /// A peer's arena of a context is in a region that it has told of.
    pub fn arena(&self, peer: u32, context: u64, region: u64) -> Result<(), String> {
        let mut state = self.state();
        let known = state.regions.get(&(peer, region as u32)).filter(|known| known.0 == region);
        let Some((_, memory)) = known else {
            return Err(format!("an arena in region {region:#x}, which it has not told of"));
        };
        let address = memory.address().expose_provenance() as u64;
        let arena = Arena { address, bytes: memory.len(), far: false };
        if state.arenas.insert((context, peer), arena).is_none() {
            let used = state.used.get(&peer).copied().unwrap_or_default();
            let told = state.told.entry(peer).or_default();
            *told += 1;
            if *told > used {
                return Err(format!("{told} arenas in {used} regions"));
            }
        }
        state.listeners.get(&context).map_or(Ok(()), |listener| listener.hear(peer, arena))
    }

    /// A peer of another node has told where the arena of a context is in its own address space.
    pub fn far_arena(
        &self,
        peer: u32,
        context: u64,
        (address, bytes): (u64, u64),
    ) -> Result<(), String> {
        let mut state = self.state();
        let arena = Arena { address, bytes, far: true };
        let unheard =
            |&(context, of): &(u64, u32)| of == peer && !state.listeners.contains_key(&context);
        let new = !state.arenas.contains_key(&(context, peer)) && unheard(&(context, peer));
        if new && state.arenas.keys().filter(|key| unheard(key)).count() >= MOST_AHEAD {
            return Err(format!(
                "arenas of more than {MOST_AHEAD} contexts that are not known here"
            ));
        }
        state.arenas.insert((context, peer), arena);
        state.listeners.get(&context).map_or(Ok(()), |listener| listener.hear(peer, arena))
    }

    /// The region of a peer in which some bytes lie that are mapped here, and where in it.
    pub fn name(&self, peer: u32, address: u64, bytes: u64) -> Option<(u64, u64)> {
        let state = self.state();
        let theirs = state.regions.iter().filter(|((owner, _), _)| *owner == peer);
        theirs.map(|(_, region)| region).find_map(|(region, memory)| {
            let offset = address.checked_sub(memory.address().expose_provenance() as u64)?;
            let end = offset.checked_add(bytes)?;
            (end <= memory.len()).then_some((*region, offset))
        })
    }

    /// Keeps the words at `at` up to date about the arenas of a context. By rank, `needed` says what an arena must be; an error
    /// names the rank whose arena is not.
    pub fn listen(
        &self,
        context: u64,
        (words, at): (&Arc<Words>, u64),
        needed: Vec<Needed>,
    ) -> Result<(), (u32, String)> {
        let mut state = self.state();
        let listener = Listener { words: Arc::downgrade(words), at, needed };
        let known = state.arenas.iter().filter(|((of, _), _)| *of == context);
        let heard = known
            .map(|(&(_, peer), &arena)| listener.hear(peer, arena).map_err(|found| (peer, found)));
        heard.collect::<Result<(), _>>()?;
        state.listeners.insert(context, listener);
        Ok(())
    }

    /// The state, with a chunk in it.
    fn with_chunk(&self, peer: u32, chunk: u32) -> Result<MutexGuard<'_, State>, HalError> {
        let state = self.state();
        if state.chunks.contains_key(&(peer, chunk)) {
            return Ok(state);
        }
        // Pinning memory may wait for kernels, and launches and the watch look here.
        drop(state);
        let bytes = chunk_len(chunk) * RegionEntry::BYTES as u64;
        let words = Words::new(&*self.device, bytes)?;
        let mut state = self.state();
        // Each rank tells of its regions one after the other: nobody has made it meanwhile.
        let at = (u64::from(peer) * u64::from(CHUNKS) + u64::from(chunk)) * 8;
        if let Some(word) = self.directory.word(at) {
            word.store(words.address(), Ordering::Release);
        }
        state.chunks.insert((peer, chunk), words);
        Ok(state)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        crate::sync::lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::super::slots::Slots;
    use super::*;
    use antiphon_codegen::abi::region_id;
    use antiphon_hal::{Backend, driver};

    fn device() -> Arc<dyn Device> {
        driver(Backend::Host).unwrap().open(0).unwrap()
    }

    /// What a kernel finds for a region.
    fn lookup(tables: &Tables, peer: u32, region: u64) -> Option<u64> {
        let (chunk, at) = chunk_of(region as u32);
        let directory = tables.directory.word((u64::from(peer * CHUNKS + chunk)) * 8)?;
        let state = tables.state();
        let words = state.chunks.get(&(peer, chunk))?;
        assert_eq!(directory.load(Ordering::Relaxed), words.address());
        let place = u64::from(at) * RegionEntry::BYTES as u64;
        let found = words.word(place)?.load(Ordering::Relaxed) == region;
        found.then(|| words.word(place + 8).unwrap().load(Ordering::Relaxed))
    }

    #[test]
    fn a_slot_that_is_used_again_is_another_region() {
        let device = device();
        let tables = Tables::new(&device, 2).unwrap();
        let mut slots = Slots::default();
        let first = device.allocate(64).unwrap();
        let (one, new) = slots.number(&first);
        assert!(new);
        assert_eq!(slots.number(&first), (one, false));
        tables.map(1, one, Arc::clone(&first)).unwrap();
        assert_eq!(lookup(&tables, 1, one), Some(first.address() as u64));
        assert_eq!(lookup(&tables, 0, one), None);
        let early = device.allocate(64).unwrap();
        tables.map(0, one, Arc::clone(&early)).unwrap();
        tables.retire(0, Arc::clone(&early));
        // Nobody has launched anything.
        while Arc::strong_count(&early) > 1 {
            std::thread::yield_now();
        }
        let words = Arc::new(Words::new(&*device, 64).unwrap());
        tables.listen(1, (&words, 0), Vec::new()).unwrap();
        let kept = Arc::downgrade(&first);
        tables.retire(1, first);
        assert_eq!(lookup(&tables, 1, one), None, "retired");
        let retired = tables.take_retired();
        assert!(kept.strong_count() > 0, "who hears that it is gone may not be who unmaps it");
        drop(retired);
        assert_eq!(kept.strong_count(), 0);
        let second = device.allocate(64).unwrap();
        let (two, _) = slots.number(&second);
        assert_eq!(one as u32, two as u32, "the slot is free");
        assert!(tables.is_gone(1, one) && !tables.is_gone(1, two), "the second is on its way");
        tables.map(1, two, Arc::clone(&second)).unwrap();
        assert_eq!(lookup(&tables, 1, one), None);
        assert_eq!(lookup(&tables, 1, two), Some(second.address() as u64));
        assert!(slots.memory(one).is_none());
        assert_eq!(slots.memory(two).map(|memory| memory.id()), Some(second.id()));
        // The third was gone before it was mapped.
        let [three, four] = [2, 3].map(|generation| region_id(two as u32, generation));
        tables.miss(1, three).unwrap();
        tables.map(1, four, Arc::clone(&second)).unwrap();
        assert_eq!([two, three, four].map(|one| tables.is_gone(1, one)), [true, true, false]);
    }

    #[test]
    fn bytes_of_a_mapped_region_have_a_name() {
        let device = device();
        let tables = Tables::new(&device, 2).unwrap();
        let memory = device.allocate(64).unwrap();
        let start = memory.address() as u64;
        tables.map(1, region_id(0, 0), Arc::clone(&memory)).unwrap();
        assert_eq!(tables.name(1, start + 8, 56), Some((region_id(0, 0), 8)));
        assert_eq!(tables.name(1, start + 8, 57), None);
        assert_eq!(tables.name(0, start + 8, 8), None);
        tables.retire(1, memory);
        assert_eq!(tables.name(1, start, 8), None);
    }

    #[test]
    fn tables_grow_and_refuse_what_no_device_can_look_up() {
        let device = device();
        let tables = Tables::new(&device, 1).unwrap();
        let memory = device.allocate(64).unwrap();
        for slot in 0..=3 * FIRST_CHUNK {
            let region = region_id(slot, 3);
            tables.map(0, region, Arc::clone(&memory)).unwrap();
            assert_eq!(lookup(&tables, 0, region), Some(memory.address() as u64));
        }
        for (peer, region) in [
            (1, region_id(0, 0)),
            (0, 5),
            (0, region_id(u32::MAX, 0)),
            (0, region_id(3 * FIRST_CHUNK + 2, 0)),
        ] {
            assert!(tables.map(peer, region, Arc::clone(&memory)).is_err(), "{region:#x}");
        }
    }

    #[test]
    fn contexts_hear_of_arenas_that_came_before_and_after() {
        let device = device();
        let tables = Tables::new(&device, 3).unwrap();
        let memory = device.allocate(64).unwrap();
        let words = Arc::new(Words::new(&*device, 64).unwrap());
        let seen = |peer: u64| words.word(8 + peer * 8).unwrap().load(Ordering::Relaxed);
        assert!(tables.arena(1, 9, region_id(0, 0)).is_err(), "not told of");
        tables.map(1, region_id(0, 0), Arc::clone(&memory)).unwrap();
        tables.map(2, region_id(0, 0), Arc::clone(&memory)).unwrap();
        tables.arena(1, 9, region_id(0, 0)).unwrap();
        let needed = |bytes: [u64; 3]| -> Vec<Needed> {
            (0..).zip(bytes).map(|(rank, bytes)| Needed { bytes, far: rank == 0 }).collect()
        };
        tables.listen(9, (&words, 8), needed([0, 64, 64])).unwrap();
        assert_eq!([seen(0), seen(1), seen(2)], [0, memory.address() as u64, 0]);
        tables.arena(2, 9, region_id(0, 0)).unwrap();
        assert_eq!(seen(2), memory.address() as u64);
        assert!(tables.arena(2, 10, region_id(0, 0)).is_err(), "more arenas than regions");
        tables.far_arena(0, 9, (4096, 64)).unwrap();
        assert_eq!(seen(0), 4096);
        let (peer, found) = tables.listen(9, (&words, 8), needed([0, 64, 65])).unwrap_err();
        assert_eq!((peer, found.as_str()), (2, "an arena of 64 bytes, where 65 are needed"));
        tables.listen(11, (&words, 8), needed([0, 65, 64])).unwrap();
        tables.map(1, region_id(1, 0), Arc::clone(&memory)).unwrap();
        let short = tables.arena(1, 11, region_id(1, 0)).unwrap_err();
        assert_eq!(short, "an arena of 64 bytes, where 65 are needed");
    }

    #[test]
    fn an_arena_by_address_is_no_near_ranks_and_few_come_before_their_contexts() {
        let device = device();
        let tables = Tables::new(&device, 2).unwrap();
        let memory = device.allocate(64).unwrap();
        let words = Arc::new(Words::new(&*device, 64).unwrap());
        let seen = || words.word(8 + 8).unwrap().load(Ordering::Relaxed);
        let needed = |far| vec![Needed { bytes: 0, far }, Needed { bytes: 64, far }];
        let refusal = "an arena by its address, where its region is allowed";
        // Told before the context is made, and after.
        tables.far_arena(1, 5, (4096, 64)).unwrap();
        let early = tables.listen(5, (&words, 8), needed(false)).unwrap_err();
        assert_eq!((early.0, early.1.as_str(), seen()), (1, refusal, 0));
        tables.listen(6, (&words, 8), needed(false)).unwrap();
        assert_eq!(tables.far_arena(1, 6, (4096, 64)).unwrap_err(), refusal);
        assert_eq!(seen(), 0, "no kernel is told");
        tables.map(1, region_id(0, 0), memory).unwrap();
        tables.listen(7, (&words, 8), needed(true)).unwrap();
        assert!(tables.arena(1, 7, region_id(0, 0)).is_err());
        tables.far_arena(1, 7, (4096, 64)).unwrap();
        assert_eq!(seen(), 4096);
        // The one of context 5 is among them: nobody listens there.
        for context in 100..100 + MOST_AHEAD as u64 - 1 {
            tables.far_arena(1, context, (4096, 64)).unwrap();
        }
        let many = tables.far_arena(1, 99, (4096, 64)).unwrap_err();
        assert!(many.contains("4096 contexts"), "{many}");
        tables.far_arena(1, 100, (8192, 64)).unwrap();
        tables.far_arena(1, 7, (8192, 64)).unwrap();
        tables.far_arena(0, 99, (4096, 64)).unwrap();
    }
}
