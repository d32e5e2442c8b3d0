//! What ranks tell each other about multicast groups, as bytes.

/// Names a group: the member that made it, and its number there.
pub type Id = (u32, u64);

/// What a group is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The context, by its number.
    pub context: u64,
    /// The first switch channel of the lowest member that has these members and this area.
    pub channel: u32,
}

/// A step that the members of a group take together, when the one that made it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take part in it.
    Join,
    /// Bind memory.
    Bind,
    /// Let launches use it.
    Use,
    /// Let no more launches use it, and say when none does.
    Stop,
    /// Unbind, and forget it.
    Drop,
}

impl Step {
    const ALL: [Step; 5] = [Step::Join, Step::Bind, Step::Use, Step::Stop, Step::Drop];
}

/// A message about groups. Handles travel behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupMessage {
    /// To the lowest member: from launch `launch` on, the sender's bound area is in `region`.
    Region {
        /// What for.
        key: Key,
        /// The launch, as the context counts those that were given to it.
        launch: u64,
        /// The region, as devices number them.
        region: u64,
    },
    /// From the lowest member: the group is made; the others join.
    Made {
        /// Its number.
        number: u64,
        /// What for.
        key: Key,
        /// The members' regions, in their order.
        regions: Vec<u64>,
    },
    /// From the lowest member: what comes next.
    Next {
        /// The group's number.
        number: u64,
        /// The step.
        step: Step,
    },
    /// To the lowest member: the step is done, or cannot be.
    Done {
        /// The group's number.
        number: u64,
        /// The step.
        step: Step,
        /// Whether it worked.
        well: bool,
    },
    /// To the lowest member: the sender's memory was freed.
    Freed {
        /// The group's number.
        number: u64,
    },
}

impl GroupMessage {
    /// The message as bytes; what travels behind it is added by the sender.
    pub fn encode(&self) -> Vec<u8> {
        let mut words = Vec::new();
        match self {
            GroupMessage::Region { key, launch, region } => {
                words.extend([0, key.context, key.channel.into(), *launch, *region]);
            }
            GroupMessage::Made { number, key, regions } => {
                let count = regions.len() as u64;
                words.extend([1, *number, key.context, key.channel.into(), count]);
                words.extend(regions);
            }
            GroupMessage::Next { number, step } => words.extend([2, *number, *step as u64]),
            GroupMessage::Done { number, step, well } => {
                words.extend([3, *number, *step as u64, u64::from(*well)]);
            }
            GroupMessage::Freed { number } => words.extend([4, *number]),
        }
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// The message at the start of some bytes, and what is behind it; `None` if there is none.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut rest = bytes;
        let mut word = || {
            let (word, behind) = rest.split_first_chunk::<8>()?;
            rest = behind;
            Some(u64::from_le_bytes(*word))
        };
        let channel = |word: u64| u32::try_from(word).ok();
        let step = |word: u64| Step::ALL.get(usize::try_from(word).ok()?).copied();
        let message = match word()? {
            0 => {
                let key = Key { context: word()?, channel: channel(word()?)? };
                GroupMessage::Region { key, launch: word()?, region: word()? }
            }
            1 => {
                let number = word()?;
                let key = Key { context: word()?, channel: channel(word()?)? };
                let count = word()?;
                let regions = (0..count).map(|_| word()).collect::<Option<_>>()?;
                GroupMessage::Made { number, key, regions }
            }
            2 => GroupMessage::Next { number: word()?, step: step(word()?)? },
            3 => GroupMessage::Done { number: word()?, step: step(word()?)?, well: word()? != 0 },
            4 => GroupMessage::Freed { number: word()? },
            _ => return None,
        };
        Some((message, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written_and_nothing_else_is() {
        let key = Key { context: 7, channel: 2 };
        for message in [
            GroupMessage::Region { key, launch: 3, region: 1 << 32 },
            GroupMessage::Made { number: 5, key, regions: vec![1, 2, 3] },
            GroupMessage::Next { number: 5, step: Step::Drop },
            GroupMessage::Done { number: 5, step: Step::Bind, well: true },
            GroupMessage::Freed { number: 9 },
        ] {
            let bytes = message.encode();
            let followed: Vec<u8> = bytes.iter().copied().chain(*b"handle").collect();
            assert_eq!(GroupMessage::decode(&followed), Some((message, &b"handle"[..])));
            for length in 0..bytes.len() {
                assert_eq!(GroupMessage::decode(&bytes[..length]), None);
            }
        }
        let word = |word: u64| word.to_le_bytes();
        assert_eq!(GroupMessage::decode(&word(5)), None);
        assert_eq!(GroupMessage::decode(&[word(2), word(0), word(5)].concat()), None);
        // As many regions as it says are never taken on trust.
        let many = [word(1), word(0), word(0), word(0), word(u64::MAX)].concat();
        assert_eq!(GroupMessage::decode(&many), None);
    }
}
