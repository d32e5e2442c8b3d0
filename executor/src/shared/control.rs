//! The control page of a rank: its launch descriptors and how far it has come.
//!
//! One writer (the owning rank), many readers (its peers). A launch's descriptor stays readable to the ranks that the owner
//! sees, those of its node and those it has links with, until they have completed that launch: before writing launch `n` the
//! owner waits until they, and it, completed `n - RING`, and until no link has still to read that one's descriptor.
//!
//! Ranks of other nodes read a mirror of the page, in memory of their own, which the owner keeps up over a wire. There a
//! descriptor's fields arrive piece by piece, while its number is still that of the launch before in the slot: a checksum
//! tells records from such mixtures.

use super::{LAYOUT_VERSION, Line};
use antiphon_types::{DataType, ReduceOp};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Number of launches whose descriptors are kept.
pub const RING: u64 = 64;
/// First word of a control page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"antiphCP");
/// Region number that means "a plain address of the owner's process" in a descriptor.
pub const FOREIGN: u64 = u64::MAX;

/// The owner has left in good order.
pub const LEFT: u64 = 1;
/// The owner has left a communicator that was broken, or whose ranks had lost one; or a pair of one whose ranks had.
pub const BROKEN: u64 = 2;

/// A rank's control page.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ControlPage {
    magic: AtomicU64,
    version: AtomicU64,
    /// The rank that owns the page.
    pub rank: AtomicU64,
    /// The owner's process.
    pub pid: AtomicU64,
    /// All launches up to this number are complete on the owner.
    pub completed: Line,
    /// Barriers that the owner has entered.
    pub arrived: Line,
    /// Not zero once the owner has stopped touching peers' memory for good.
    pub quiet: Line,
    /// [`LEFT`] once the owner has left in good order: whatever it did for its launches is there. [`BROKEN`] if the communicator was
    /// broken then, or a rank lost, which the others hear of as it did, or by it.
    pub left: Line,
    /// Changes while what the owner is to pass on comes to it, or its proxy moves what kernels asked for: progress for who waits for
    /// that.
    pub passing: Line,
    /// Changes while some launch of the owner moves: progress for who waits until the owner has completed it. In mirrors once a second
    /// at most, and not for what links alone move.
    pub moved: Line,
    /// In mirrors alone: by the slots of the descriptors, the last launch whose blocks are all done on the owner. All that they
    /// posted to the mirror's rank has landed.
    through: [AtomicU64; RING as usize],
    descriptors: [Descriptor; RING as usize],
}

/// What a rank says about one launch.
///
/// `seq` is written last; the other fields are valid to whoever has read the expected `seq` with acquire, if they are what
/// `checksum` says.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Descriptor {
    seq: AtomicU64,
    chain: AtomicU64,
    fingerprint: AtomicU64,
    arena: AtomicU64,
    input: [AtomicU64; 2],
    output: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
    call_type: AtomicU64,
    name: [AtomicU64; 4],
    checksum: AtomicU64,
}

/// Where a rank's memory is, as its peers know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionAt {
    /// The region; [`FOREIGN`] for plain memory of the owner's process.
    pub region: u64,
    /// Bytes from the region's start; of plain memory, its address there.
    pub offset: u64,
}

/// The plain value of a [`Descriptor`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchRecord {
    /// Launch number on the communicator, from 1.
    pub seq: u64,
    /// Hash of all launches up to and including this one.
    pub chain: u64,
    /// Hash of this launch: plan, sizes, data type, operator.
    pub fingerprint: u64,
    /// Region of the launch context's arena. This field and the next two hold a [`DeviceTurn`] in records of calls on devices,
    /// whose memory is told of otherwise.
    pub arena: u64,
    /// Where the input is.
    pub input: RegionAt,
    /// Where the output is.
    pub output: RegionAt,
    /// Input and output bytes.
    pub bytes: (u64, u64),
    /// Data type and reduction.
    pub call_type: CallType,
    /// The plan's name, cut to 32 bytes, for messages.
    pub name: [u8; 32],
}

/// The place of a call on devices among those on its stream and among the communicator's collectives by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTurn {
    /// The number of the stream.
    pub stream: u64,
    /// Its number among the calls on the stream that are not recorded into a graph.
    pub turn: u64,
    /// Graphs may launch others between these, which nobody counts.
    pub graphs: bool,
    /// Its number among the communicator's collectives by name, from 1; `None` if it is not by name.
    pub named: Option<u64>,
}

/// The data type and the reduction of a call, as codes that mean the same on all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallType {
    /// The code of the data type.
    pub dtype: u8,
    /// The code of the operator + 1; 0 for the plan's own.
    pub op: u8,
}

impl CallType {
    /// That of a call; `op` is `None` for the plan's own.
    pub fn new(dtype: DataType, op: Option<ReduceOp>) -> Self {
        CallType { dtype: dtype as u8, op: op.map_or(0, |op| op as u8 + 1) }
    }
}

impl ControlPage {
    /// Bytes of a control page.
    pub const BYTES: usize = size_of::<ControlPage>();

    /// Marks a zeroed page as this rank's.
    pub fn initialise(&self, rank: u32, pid: u32) {
        self.version.store(LAYOUT_VERSION, Ordering::Relaxed);
        self.rank.store(rank.into(), Ordering::Relaxed);
        self.pid.store(pid.into(), Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Whether this is a control page of the layout this build knows; else what was found instead.
    pub fn recognise(&self) -> Result<(), (u64, u64)> {
        let found = (self.magic.load(Ordering::Acquire), self.version.load(Ordering::Relaxed));
        if found == (MAGIC, LAYOUT_VERSION) { Ok(()) } else { Err(found) }
    }

    /// Bytes from the start of a page to its count of completed launches.
    pub const COMPLETED: u64 = offset_of!(ControlPage, completed) as u64;

    /// Bytes from the start of a page to the number that changes while the owner's launches move.
    pub const MOVED: u64 = offset_of!(ControlPage, moved) as u64;

    /// Bytes from the start of a page to the descriptor of a launch, whose first word is the launch's number.
    pub const fn descriptor_at(seq: u64) -> u64 {
        let slot = (seq % RING) as usize * size_of::<Descriptor>();
        (offset_of!(ControlPage, descriptors) + slot) as u64
    }

    /// Bytes from the start of a page to the word that says that the owner's blocks are through with a launch.
    pub const fn through_at(seq: u64) -> u64 {
        let slot = (seq % RING) as usize * size_of::<AtomicU64>();
        (offset_of!(ControlPage, through) + slot) as u64
    }

    /// Whether this mirror says that the owner's blocks are through with a launch.
    pub fn is_through(&self, seq: u64) -> bool {
        self.through[(seq % RING) as usize].load(Ordering::Acquire) >= seq
    }

    /// Bytes of a descriptor.
    pub const DESCRIPTOR: u64 = size_of::<Descriptor>() as u64;

    fn slot(&self, seq: u64) -> &Descriptor {
        &self.descriptors[(seq % RING) as usize]
    }

    /// Publishes a launch. Only the owner calls this, and only when nobody reads the descriptor of `seq - RING` any more.
    pub fn publish(&self, record: &LaunchRecord) {
        let slot = self.slot(record.seq);
        // A reader of the slot's previous record must not take the new fields for it.
        slot.seq.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        let words = record.words();
        for (cell, word) in slot.fields().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
        slot.checksum.store(checksum(record.seq, &words), Ordering::Relaxed);
        slot.seq.store(record.seq, Ordering::Release);
    }

    /// Whether the owner has entered launch `seq`.
    #[inline]
    pub fn entered(&self, seq: u64) -> bool {
        self.slot(seq).seq.load(Ordering::Acquire) == seq
    }

    /// The owner's record of launch `seq`, once it has entered it.
    #[inline]
    pub fn record(&self, seq: u64) -> Option<LaunchRecord> {
        let slot = self.slot(seq);
        // No launch has number 0, which marks slots that nobody has written, or somebody writes.
        if seq == 0 || slot.seq.load(Ordering::Acquire) != seq {
            return None;
        }
        let mut words = [0; FIELDS];
        for (word, cell) in words.iter_mut().zip(slot.fields()) {
            *word = cell.load(Ordering::Relaxed);
        }
        let sum = slot.checksum.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let whole = slot.seq.load(Ordering::Relaxed) == seq && sum == checksum(seq, &words);
        whole.then(|| LaunchRecord::new(seq, &words))
    }

    /// A record among those that are kept.
    pub fn find(&self, wanted: impl Fn(&LaunchRecord) -> bool) -> Option<LaunchRecord> {
        let slots = self.descriptors.iter();
        slots.map(|slot| slot.seq.load(Ordering::Relaxed)).find_map(|seq| {
            let record = self.record(seq)?;
            wanted(&record).then_some(record)
        })
    }

    /// The owner's record of the launch that it entered last, of those that are kept.
    pub fn last(&self) -> Option<LaunchRecord> {
        let launches = self.descriptors.iter().map(|slot| slot.seq.load(Ordering::Relaxed));
        self.record(launches.max()?)
    }
}

/// Words of a record besides its number.
const FIELDS: usize = 14;

impl Descriptor {
    /// The fields, in the order of [`LaunchRecord::words`].
    #[inline]
    fn fields(&self) -> impl Iterator<Item = &AtomicU64> {
        let one = [&self.chain, &self.fingerprint, &self.arena].into_iter();
        let pairs = [&self.input, &self.output, &self.bytes].into_iter().flatten();
        one.chain(pairs).chain([&self.call_type]).chain(&self.name)
    }
}

/// Odd numbers without a pattern, for [`checksum`].
const WEIGHTS: [u64; FIELDS + 1] = {
    let mut weights = [0; FIELDS + 1];
    let (mut state, mut at) = (0u64, 0);
    while at < weights.len() {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        weights[at] = (mixed ^ mixed >> 31) | 1;
        at += 1;
    }
    weights
};

/// A number by which a mixture of two records is told from either.
#[inline]
fn checksum(seq: u64, words: &[u64; FIELDS]) -> u64 {
    // Products that do not wait for each other: launches of microseconds compute this.
    let parts = words.iter().zip(&WEIGHTS[1..]).map(|(word, weight)| word.wrapping_mul(*weight));
    parts.fold(seq.wrapping_mul(WEIGHTS[0]), u64::wrapping_add)
}

impl LaunchRecord {
    #[inline]
    fn words(&self) -> [u64; FIELDS] {
        let LaunchRecord { chain, fingerprint, arena, input, output, bytes, .. } = self;
        let CallType { dtype, op } = self.call_type;
        let call_type = u64::from(dtype) | u64::from(op) << 8;
        let mut words = [0; FIELDS];
        let fixed = [
            *chain,
            *fingerprint,
            *arena,
            input.region,
            input.offset,
            output.region,
            output.offset,
            bytes.0,
            bytes.1,
            call_type,
        ];
        words[..10].copy_from_slice(&fixed);
        for (word, part) in words[10..].iter_mut().zip(self.name.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*part);
        }
        words
    }

    #[inline]
    fn new(seq: u64, words: &[u64; FIELDS]) -> Self {
        let mut name = [0; 32];
        for (part, word) in name.as_chunks_mut::<8>().0.iter_mut().zip(&words[10..]) {
            *part = word.to_le_bytes();
        }
        LaunchRecord {
            seq,
            chain: words[0],
            fingerprint: words[1],
            arena: words[2],
            input: RegionAt { region: words[3], offset: words[4] },
            output: RegionAt { region: words[5], offset: words[6] },
            bytes: (words[7], words[8]),
            call_type: CallType { dtype: words[9] as u8, op: (words[9] >> 8) as u8 },
            name,
        }
    }

    /// The place of a call on devices, from its record.
    pub fn device_turn(&self) -> DeviceTurn {
        let RegionAt { region: turn, offset: graphs } = self.input;
        let named = Some(self.output.region).filter(|&named| named != 0);
        DeviceTurn { stream: self.arena, turn, graphs: graphs != 0, named }
    }

    /// This record as that of a call on devices which has this place.
    pub fn with_device_turn(self, place: DeviceTurn) -> Self {
        let DeviceTurn { stream, turn, graphs, named } = place;
        let input = RegionAt { region: turn, offset: graphs.into() };
        let output = RegionAt { region: named.unwrap_or(0), offset: 0 };
        LaunchRecord { arena: stream, input, output, ..self }
    }

    /// The plan's name as text.
    pub fn plan_name(&self) -> String {
        let end = self.name.iter().position(|&b| b == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..end]).into_owned()
    }

    /// The first 32 bytes of a plan's name.
    pub fn cut_name(name: &str) -> [u8; 32] {
        let mut cut = [0; 32];
        let length = name.len().min(32);
        cut[..length].copy_from_slice(&name.as_bytes()[..length]);
        cut
    }
}

#[cfg(test)]
impl ControlPage {
    /// One that nobody has written to.
    pub fn blank() -> Box<ControlPage> {
        // SAFETY: a control page is all atomics, for which zero is a value.
        Box::new(unsafe { std::mem::zeroed() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    fn record(seq: u64) -> LaunchRecord {
        LaunchRecord {
            seq,
            chain: seq + 1,
            fingerprint: seq + 2,
            arena: seq + 3,
            input: RegionAt { region: seq + 4, offset: seq + 5 },
            output: RegionAt { region: FOREIGN, offset: seq + 6 },
            bytes: (seq + 7, u64::MAX),
            call_type: CallType { dtype: 3, op: 255 },
            name: LaunchRecord::cut_name("a name that is longer than thirty-two bytes"),
        }
    }

    #[test]
    fn what_is_published_is_what_is_read() {
        let page = ControlPage::blank();
        for seq in [1, 2, RING, RING + 1, 10 * RING + 1] {
            page.publish(&record(seq));
            assert_eq!(page.record(seq), Some(record(seq)));
            assert!(page.entered(seq) && !page.entered(seq + RING));
            assert_eq!(page.last(), Some(record(seq)));
        }
        assert_eq!(page.record(1), None, "its slot is another launch's");
        assert_eq!(page.record(3), None, "never published");
        assert_eq!(record(1).plan_name(), "a name that is longer than thirt");
    }

    #[test]
    fn a_record_of_a_call_on_devices_has_its_place_there() {
        for (graphs, named) in [(false, None), (false, Some(1)), (true, None), (true, Some(9))] {
            let place = DeviceTurn { stream: 3, turn: 5, graphs, named };
            let record = LaunchRecord::default().with_device_turn(place);
            assert_eq!(record.device_turn(), place);
        }
    }

    #[test]
    fn a_record_of_which_a_part_is_the_next_ones_is_none() {
        for parts in 1u32..1 << (FIELDS + 1) {
            let (page, next) = (ControlPage::blank(), ControlPage::blank());
            page.publish(&record(7));
            next.publish(&record(7 + RING));
            let (slot, from) = (page.slot(7), next.slot(7));
            let cells = slot.fields().chain([&slot.checksum]);
            let mut changed = false;
            for (at, (cell, new)) in cells.zip(from.fields().chain([&from.checksum])).enumerate() {
                if parts >> at & 1 != 0 {
                    let new = new.load(Ordering::Relaxed);
                    changed |= cell.swap(new, Ordering::Relaxed) != new;
                }
            }
            assert_eq!(page.record(7).is_none(), changed, "{parts:b}");
            if cfg!(miri) && parts > 64 {
                break;
            }
        }
    }

    #[test]
    fn there_is_no_launch_0() {
        let page = ControlPage::blank();
        assert_eq!((page.record(0), page.last()), (None, None));
        page.publish(&record(RING));
        assert_eq!(page.record(0), None);
    }

    #[test]
    fn a_page_is_recognised_by_magic_and_version() {
        let page = ControlPage::blank();
        assert_eq!(page.recognise(), Err((0, 0)));
        page.initialise(3, 17);
        assert_eq!(page.recognise(), Ok(()));
        page.version.store(LAYOUT_VERSION + 1, Ordering::Relaxed);
        assert_eq!(page.recognise(), Err((MAGIC, LAYOUT_VERSION + 1)));
    }

    #[test]
    fn a_record_that_is_overwritten_while_it_is_read_is_never_mixed() {
        let page = ControlPage::blank();
        let turns = if cfg!(miri) { 300 } else { 20_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| (0..turns).for_each(|turn| page.publish(&record(1 + turn * RING))));
            for turn in 0..turns {
                let seq = 1 + turn * RING;
                if let Some(found) = page.record(seq) {
                    assert_eq!(found, record(seq));
                }
            }
        });
    }

    struct Plain(UnsafeCell<u64>);

    // SAFETY: whoever reads it has seen the launch before which it was written.
    unsafe impl Sync for Plain {}

    /// Miri finds where it is not: see the step of CI that runs it.
    #[test]
    fn a_launch_that_is_seen_has_its_record_and_what_was_written_before_it() {
        let turns = if cfg!(miri) { 20 } else { 2000 };
        for seq in 1..turns {
            let (page, plain) = (ControlPage::blank(), Plain(UnsafeCell::new(0)));
            let (page, plain) = (&page, &plain);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    // SAFETY: nobody reads it before the launch is there.
                    unsafe { *plain.0.get() = seq };
                    page.publish(&record(seq));
                });
                // That it is there is all that this look says.
                while page.slot(seq).seq.load(Ordering::Relaxed) != seq {
                    std::thread::yield_now();
                }
                assert_eq!(page.record(seq), Some(record(seq)));
                // SAFETY: it was written before the launch that was just read.
                assert_eq!(unsafe { *plain.0.get() }, seq);
            });
        }
    }
}
