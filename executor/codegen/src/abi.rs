//! What host and device pass to each other: one definition in Rust, from which the device's is written.
//!
//! All structs have C's layout and hold nothing but 4 and 8 byte integers at their natural places, so that every
//! compiler lays them out alike; the generated text asserts their sizes.

mod waits;

use std::fmt::Write;
use std::mem::{offset_of, size_of};
pub use waits::Where;

/// A type that both sides spell.
pub trait InC {
    /// Its name on the device; of an array, its elements'.
    const C: &'static str;
    /// Elements, of an array.
    const LENGTH: Option<usize> = None;
}

impl InC for u32 {
    const C: &'static str = "u32";
}

impl InC for u64 {
    const C: &'static str = "u64";
}

/// An address in the device's address space; what is there, the field's documentation says.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Address(pub u64);

impl InC for Address {
    const C: &'static str = "u64";
}

impl<T: InC, const LENGTH: usize> InC for [T; LENGTH] {
    const C: &'static str = T::C;
    const LENGTH: Option<usize> = Some(LENGTH);
}

/// A field of a device struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its type on the device; of an array, its elements'.
    pub c: &'static str,
    /// Elements, of an array.
    pub length: Option<usize>,
    /// Its bytes.
    pub bytes: usize,
    /// Bytes from the struct's start.
    pub offset: usize,
}

/// A struct that both sides know.
pub trait DeviceStruct {
    /// Its name.
    const NAME: &'static str;
    /// Its fields, in order.
    const FIELDS: &'static [Field];
    /// Its bytes.
    const BYTES: usize;
}

/// Defines a struct in Rust, and what its definition on the device is made from.
macro_rules! device_struct {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$about])* pub $field: $type,)* }

        impl DeviceStruct for $name {
            const NAME: &'static str = stringify!($name);
            const FIELDS: &'static [Field] = &[$(Field {
                name: stringify!($field),
                c: <$type as InC>::C,
                length: <$type as InC>::LENGTH,
                bytes: size_of::<$type>(),
                offset: offset_of!($name, $field),
            },)*];
            const BYTES: usize = size_of::<$name>();
        }

        impl InC for $name {
            const C: &'static str = stringify!($name);
        }
    };
}

device_struct! {
    /// A contiguous piece of a move: [`antiphon_plan::program::Segment`], for the device.
    Piece {
        /// Bytes in raw areas.
        len: u64,
        /// Bytes of payload in packet areas.
        padded: u64,
        /// Where it starts in the block's share of the move, in padded bytes.
        position: u64,
        /// Its first offset in [`Launch::offsets`]: one for each source, then one for each destination.
        offsets: u64,
    }
}

device_struct! {
    /// A range of pieces of a move.
    Pieces {
        /// The first.
        start: u32,
        /// One past the last.
        end: u32,
    }
}

device_struct! {
    /// One block of a rank.
    BlockEntry {
        /// Which of the kernel's programs it runs; for the interpreting kernel, where among [`Launch::operands`] its
        /// [`Step`]s begin. All ones for none.
        program: u32,
        /// Its first word in [`Launch::operands`].
        operands: u32,
        /// How many words it has.
        operand_count: u32,
        /// Its first peer in [`Launch::peers`].
        peers: u32,
        /// How many peers it has.
        peer_count: u32,
    }
}

device_struct! {
    /// What a block reads of the tables. Between its own moves may be other blocks', as far as lowering mixes them; so with pieces
    /// and offsets.
    BlockRange {
        /// Its first in [`Launch::moves`].
        first_move: u32,
        /// How many there are up to its last.
        move_count: u32,
        /// The first of its moves' in [`Launch::pieces`].
        first_piece: u32,
        /// How many there are.
        piece_count: u32,
        /// The first offset of their sides in [`Launch::offsets`].
        first_offset: u32,
        /// How many there are.
        offset_count: u32,
    }
}

device_struct! {
    /// One step of a block, as the interpreting kernel reads it.
    Step {
        /// Which of the kernel's calls it is, or one of the `STEP_` numbers.
        call: u32,
        /// The words that it takes of the operands.
        words: u32,
        /// The first number that the call is given; of a 64-bit one, the low half. Of a pipeline, its steps.
        one: u32,
        /// The second one, or the high half. Of a pipeline, the words of its steps.
        two: u32,
    }
}

device_struct! {
    /// What one rank says to a peer of one launch, in the peer's arena: where the buffers of the call are.
    Descriptor {
        /// Number of the launch in the context; written last.
        count: u64,
        /// What is called, and with which sizes: equal on all ranks.
        fingerprint: u64,
        /// Region of the input, as [`region_id`] packs it, or [`FOREIGN`].
        input_region: u64,
        /// Bytes from the region's start; of a foreign buffer, its address.
        input_offset: u64,
        /// Region of the output.
        output_region: u64,
        /// Bytes from its start, or its address.
        output_offset: u64,
        /// Nothing.
        unused: [u64; 2],
    }
}

device_struct! {
    /// What a rank's arena holds of one peer, at its start: one for each rank. The peer writes it.
    Inbox {
        /// Descriptors of even and of odd launches.
        descriptors: [Descriptor; 2],
        /// All launches of the context up to here are over on the peer: none of its blocks touches anybody's memory any
        /// more.
        completed: u64,
        /// Nothing, to the end of the line.
        unused: [u64; 7],
    }
}

device_struct! {
    /// What launches of a context leave for the next one, in the rank's own memory.
    ContextWords {
        /// Number of the launch that runs, or comes next: 1 at first. The last block of a launch adds to it.
        count: u64,
        /// [`Launch::shape`] of the last launch; 0 before the first.
        shape: u64,
        /// Blocks of the launch that are over.
        finished: u32,
        /// Not 0 once the context is closed: blocks that begin from then on leave at once. The host writes it.
        closed: u32,
        /// Blocks of all launches that have begun so far. Each adds itself before it reads `closed`, and the host reads this after
        /// it has written that: of each block either the host knows, or the block of the host.
        entered: u64,
        /// What ranks of other nodes are told of even and of odd launches, while it is on its way. But for the counts.
        outgoing: [Descriptor; 2],
    }
}

device_struct! {
    /// Where scratch is in a rank's arena.
    ScratchPlaces {
        /// Bytes from the arena's start to raw scratch of even launches.
        raw: u64,
        /// How far that of odd launches is behind it.
        raw_half: u64,
        /// Bytes to packets of even launches.
        packets: u64,
        /// How far those of odd launches are behind them.
        packets_half: u64,
    }
}

device_struct! {
    /// Where a block found a buffer of a peer, kept from launch to launch.
    Resolved {
        /// The region that `base` belongs to; 0 for none yet.
        region: u64,
        /// Where this rank maps it.
        base: u64,
        /// Where the buffer of this launch is.
        address: u64,
    }
}

device_struct! {
    /// A region of a peer, as the host has mapped it.
    RegionEntry {
        /// The region, as [`region_id`] packs it; written last.
        region: u64,
        /// Where it is mapped.
        base: u64,
    }
}

device_struct! {
    /// Where a block is, for whoever asks why a launch does not end. In memory that the host reads.
    Progress {
        /// The launch's low 32 bits, high; low what the block waits for, as [`Where`] packs it.
        at: u64,
        /// Changes with each wait that is not over at once.
        waits: u64,
    }
}

device_struct! {
    /// How far the launches of a context are. In memory that the host reads.
    Marks {
        /// The launch that was begun last, as the device counts them.
        begun: u64,
        /// The one that ended last.
        ended: u64,
        /// [`Launch::given`] of the last one that ended and was not replayed.
        given_ended: u64,
        /// [`Launch::given`] of the one that was begun last.
        given_begun: u64,
    }
}

device_struct! {
    /// The parameter of a kernel, by value: everything that one launch of one rank reads. Captured launches keep it. A
    /// kernel of several ranks has one for each, in the order of their blocks.
    Launch {
        /// The rank's [`BlockEntry`]s.
        blocks: Address,
        /// The rank's operands: `u32`s.
        operands: Address,
        /// Peers of all blocks, each the rank times two, plus one where the block touches its input or output: `u32`s.
        peers: Address,
        /// The [`BlockRange`] of each block.
        ranges: Address,
        /// [`Pieces`] of each move.
        moves: Address,
        /// All [`Piece`]s.
        pieces: Address,
        /// Offsets of all pieces' sides: `u64`s.
        offsets: Address,
        /// Iterations of each pipeline: `u64`s.
        loops: Address,
        /// The context's [`ContextWords`].
        context: Address,
        /// Signals waited for so far, for each channel of the rank: `u64`s in its own memory.
        expected: Address,
        /// For each channel of the rank two `u64`s in its own memory: signals that blocks have taken numbers for, and those that
        /// the peer's counter shows. 0 where signals are added to the counter.
        sent: Address,
        /// The rank's semaphores: 64-bit integers in its own memory.
        semaphores: Address,
        /// Arrivals at each of the rank's barriers since the context was made: `u64`s in its own memory.
        barriers: Address,
        /// For each block, for each rank, [`Resolved`] input and output.
        resolved: Address,
        /// This rank's arena: [`Inbox`]es, then counters, then scratch.
        arena: Address,
        /// Where this rank sees each rank's arena, in its own memory, kept by the device: `u64`s, 0 where not yet known.
        arenas: Address,
        /// The same, in memory that the host writes when a peer's arena is mapped.
        mapped_arenas: Address,
        /// [`ScratchPlaces`] of each rank's arena.
        scratch: Address,
        /// For each rank, the chunks of its [`RegionEntry`]s: [`CHUNKS`] `u64` addresses, 0 where there is none yet; in
        /// memory that the host writes.
        regions: Address,
        /// Ranks that touch this rank's input or output, and are told where they are: `u32`s.
        readers: Address,
        /// Ranks that must have completed the launch before last before this one begins: `u32`s.
        behind: Address,
        /// Ranks that may write this rank's buffers when its own blocks are over, and are waited for: `u32`s.
        late: Address,
        /// [`Progress`] of each block.
        progress: Address,
        /// The context's [`Marks`].
        marks: Address,
        /// A word that the host sets when launches shall end: one `u32`, in memory that the device reads.
        stop: Address,
        /// The input of the call.
        input: Address,
        /// The output of the call.
        output: Address,
        /// Region of the input, for peers.
        input_region: u64,
        /// Its place there.
        input_offset: u64,
        /// Region of the output, for peers.
        output_region: u64,
        /// Its place there.
        output_offset: u64,
        /// What is called, and with which sizes.
        fingerprint: u64,
        /// Differs where scratch is cut otherwise; never 0.
        shape: u64,
        /// Bytes from an arena's start to the counters of its rank's channels.
        counters: u64,
        /// The host's count of launches, this one included; 0 of one that graphs replay.
        given: u64,
        /// Blocks of the launch.
        block_count: u32,
        /// The rank.
        rank: u32,
        /// Number of ranks.
        world: u32,
        /// Length of `readers`.
        reader_count: u32,
        /// Length of `behind`.
        behind_count: u32,
        /// Length of `late`.
        late_count: u32,
        /// Length of `own_blocks`.
        own_block_count: u32,
        /// Length of `links`.
        link_count: u32,
        /// For each block, for each of the rank's switch channels, the address of a multicast at which the bound area of
        /// this launch begins (of scratch, that of even launches), 0 where there is none: `u64`s that the block finds by
        /// `groups`, or that the host has put there where `groups` is 0. 0 where no channel has one.
        multicasts: Address,
        /// For each rank, where this rank sees its [`RuntimeBlock`]s of even launches: those of its input, then those of its
        /// output; as many of odd launches follow: `u64`s. 0 where the plan has no runtime sizes.
        runtime: Address,
        /// For each rank, bytes from its arena's start to them, by which entries of `runtime` are found that are still 0:
        /// `u64`s. 0 where there are none to find.
        runtime_places: Address,
        /// The [`RuntimeBlock`]s of this launch, which it puts where peers read them.
        own_blocks: Address,
        /// A [`Link`] for each of the rank's channels, and then for ranks of other nodes; those of memory channels are not
        /// read. 0 where the plan has no port channels.
        links: Address,
        /// For each rank, how launches tell it of themselves: by memory that is mapped ([`NEAR`]), by a link, or all ones
        /// where they have nothing to do with it: `u32`s. 0 where all are near.
        ways: Address,
        /// For each of the rank's switch channels, where its multicasts are listed, as [`GROUPS_HEAD`] says, 0 where there are
        /// none: `u64`s in memory that the host writes. 0 where no channel has any.
        groups: Address,
        /// Length of `groups`.
        switch_count: u32,
        /// The kernel's first block that is the rank's: others are before it where ranks are one kernel.
        first_block: u32,
    }
}

device_struct! {
    /// Where a runtime block of a launch is in its owner's buffer.
    RuntimeBlock {
        /// Bytes from the buffer's start, whole elements.
        offset: u64,
        /// Bytes, whole elements.
        len: u64,
    }
}

device_struct! {
    /// The way from a port channel to its proxy. Requests name their channel by the peer, so that those for one peer are
    /// carried out in order; and bytes and counters by their addresses, as [`FOREIGN`] regions.
    Link {
        /// The queue of requests, as `antiphon_port::fifo` lays it out, in memory that the host reads.
        fifo: Address,
        /// The places of the queue claimed so far, and a count of free places that some producer saw: two `u64`s in the
        /// device's memory, which stand for the queue's first line.
        claims: Address,
        /// Requests that it holds, a power of two.
        capacity: u64,
        /// The done word of the requests for the peer, in memory that the host writes.
        done: Address,
        /// One more than the number of the last request for the peer, in the device's memory.
        asked: Address,
        /// The peer.
        peer: u32,
        /// The peer's channel that this one is paired with.
        paired: u32,
        /// 1 for the first port channel to the peer, else 0.
        leads: u32,
        /// Nothing.
        unused: u32,
    }
}

/// The kinds of a request to a proxy, and their bits.
const REQUESTS: [(&str, u64); 5] = [
    ("REQUEST_DATA", 1),
    ("REQUEST_SIGNAL", 2),
    ("REQUEST_FLUSH", 4),
    ("REQUEST_PACKETS", 8),
    ("REQUEST_VALUE", 16),
];

/// In [`Launch::ways`], a rank whose memory is mapped.
pub const NEAR: u32 = u32::MAX - 1;

/// Stands for a region in a [`Descriptor`] whose offset is an address that the peer uses as it is.
pub const FOREIGN: u64 = u64::MAX;

/// Words at the start of a list of multicasts: how many there are, members of each, and the area (0 input, 1 output, 2
/// scratch). The members' ranks follow, then for each multicast its address, and the members' regions that are bound to it.
/// A buffer is reached by one whose regions are those of the launch, where all members have it at the same offset; scratch
/// by the first, whose address is that of the area.
pub const GROUPS_HEAD: u64 = 3;

/// Chunks of a rank's [`RegionEntry`]s. Chunk k holds `FIRST_CHUNK << k` of them, so that tables grow without moving.
pub const CHUNKS: u32 = 24;

/// Entries of the first chunk.
pub const FIRST_CHUNK: u32 = 64;

/// Bytes from one counter of an arena to the next: a line that no other counter is in.
pub const LINE: u64 = 128;

/// A region's number for devices: a slot that is used again when its region is gone, and how often it was used.
pub const fn region_id(slot: u32, generation: u32) -> u64 {
    // From 1, so that no region is 0.
    (generation as u64 + 1) << 32 | slot as u64
}

/// The chunk of a slot, and its place there.
pub const fn chunk_of(slot: u32) -> (u32, u32) {
    let chunk = (slot / FIRST_CHUNK + 1).ilog2();
    (chunk, slot - FIRST_CHUNK * ((1 << chunk) - 1))
}

/// A struct's name, its fields, and its bytes.
type Shape = (&'static str, &'static [Field], usize);

const fn shape<T: DeviceStruct>() -> Shape {
    (T::NAME, T::FIELDS, T::BYTES)
}

/// All structs that both sides know; those that others hold come before these.
const ALL: [Shape; 16] = [
    shape::<Piece>(),
    shape::<Pieces>(),
    shape::<BlockEntry>(),
    shape::<BlockRange>(),
    shape::<Step>(),
    shape::<Descriptor>(),
    shape::<Inbox>(),
    shape::<ContextWords>(),
    shape::<ScratchPlaces>(),
    shape::<Resolved>(),
    shape::<RegionEntry>(),
    shape::<Progress>(),
    shape::<Marks>(),
    shape::<RuntimeBlock>(),
    shape::<Link>(),
    shape::<Launch>(),
];

/// Everything that both sides know, as device code reads it.
pub fn declarations() -> String {
    let mut text = format!(
        "#define LINE {LINE}\n#define FOREIGN {FOREIGN:#x}ull\n#define FIRST_CHUNK {FIRST_CHUNK}\n#define CHUNKS {CHUNKS}\n\
         #define NEAR {NEAR:#x}u\n#define GROUPS_HEAD {GROUPS_HEAD}\n"
    );
    for (number, kind) in Where::KINDS.iter().enumerate() {
        let _ = writeln!(text, "#define {kind} {number}u");
    }
    for (name, bit) in REQUESTS {
        let _ = writeln!(text, "#define {name} {bit}ull");
    }
    text.push('\n');
    for (name, fields, bytes) in ALL {
        declare(&mut text, name, fields, bytes);
    }
    text
}

fn declare(text: &mut String, struct_name: &str, fields: &[Field], bytes: usize) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "struct {struct_name} {{");
    for Field { name, c, length, .. } in fields {
        let length = length.map(|length| format!("[{length}]")).unwrap_or_default();
        let _ = writeln!(text, "    {c} {name}{length};");
    }
    let _ = writeln!(text, "}};");
    let _ = writeln!(text, "static_assert(sizeof({struct_name}) == {bytes}, \"{struct_name}\");\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_compiler_lays_the_structs_out_alike() {
        for (struct_name, fields, size) in ALL {
            let mut end = 0;
            for Field { name, offset, bytes, .. } in fields {
                assert_eq!(
                    *offset, end,
                    "{struct_name}.{name}: no compiler may add bytes before it"
                );
                end += bytes;
            }
            assert_eq!(size % 4, 0);
            assert_eq!(end, size, "{struct_name}: no compiler may add bytes behind it");
        }
    }

    #[test]
    fn the_device_reads_the_same_fields() {
        let text = declarations();
        assert!(text.contains("struct Pieces {\n    u32 start;\n    u32 end;\n};\n"), "{text}");
        assert!(text.contains("static_assert(sizeof(Piece) == 32, \"Piece\");"), "{text}");
        assert!(text.contains("    Descriptor descriptors[2];\n"), "{text}");
    }

    #[test]
    fn slots_fill_chunk_after_chunk() {
        let mut next = (0, 0);
        for slot in 0..10_000 {
            assert_eq!(chunk_of(slot), next);
            next.1 += 1;
            if next.1 == FIRST_CHUNK << next.0 {
                next = (next.0 + 1, 0);
            }
        }
        assert!(chunk_of(u32::MAX - FIRST_CHUNK).0 >= CHUNKS, "slots end where chunks do");
    }
}
