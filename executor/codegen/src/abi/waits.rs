//! What a block says that it waits for, in a word that the host reads.

/// What a block waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// An instruction of the block, counted from its start.
    Instruction(u32),
    /// Packets that a move of the rank reads, by the move's number.
    Packets(u32),
    /// A peer's arena, which is not mapped yet.
    Arena(u32),
    /// A peer's descriptor: it has not begun the launch.
    Descriptor(u32),
    /// A region of a peer, which is not mapped yet.
    Region(u32),
    /// A peer that has not completed an earlier launch.
    Completion(u32),
    /// Nothing any more: a peer called something else.
    Mismatch(u32),
    /// Nothing any more: an instruction that was to move a runtime block to one of another length.
    Unequal(u32),
    /// Nothing any more: an instruction whose proxy has ended.
    Closed(u32),
    /// What was handed to a proxy, by the channel: the launch's blocks are over.
    Landing(u32),
}

impl Where {
    /// Names and numbers of the kinds, as device code spells them.
    pub(super) const KINDS: [&'static str; 10] = [
        "AT_INSTRUCTION",
        "AT_PACKETS",
        "AT_ARENA",
        "AT_DESCRIPTOR",
        "AT_REGION",
        "AT_COMPLETION",
        "AT_MISMATCH",
        "AT_UNEQUAL",
        "AT_CLOSED",
        "AT_LANDING",
    ];

    /// Reads the low word of [`Progress::at`](super::Progress::at); `None` if no device writes such a one.
    pub const fn unpack(word: u32) -> Option<Self> {
        let index = word & 0x0FFF_FFFF;
        Some(match word >> 28 {
            0 => Where::Instruction(index),
            1 => Where::Packets(index),
            2 => Where::Arena(index),
            3 => Where::Descriptor(index),
            4 => Where::Region(index),
            5 => Where::Completion(index),
            6 => Where::Mismatch(index),
            7 => Where::Unequal(index),
            8 => Where::Closed(index),
            9 => Where::Landing(index),
            _ => return None,
        })
    }
}
