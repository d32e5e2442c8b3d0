//! The channels of the older format, renumbered.
//!
//! A channel there was a position in the list of its (source buffer, destination buffer, type). Here its number
//! counts all channels of its type, and a block lists the channels it uses per type.

use super::wire;
use crate::json::ReadError;
use crate::model::{Buffer, ChannelTable, ChannelType};
use crate::place::Place;

/// What a channel of the older format belonged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) src: Buffer,
    pub(super) dst: Buffer,
    pub(super) channel_type: ChannelType,
}

/// A channel under its new number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel {
    /// Position in the rank's list of the type, or in the block's, depending on whose list this is part of.
    pub(super) id: u64,
    /// The rank at the other end; none for a switch channel.
    pub(super) peer: Option<u64>,
}

/// The channels of a rank or of a block, by what they belonged to.
#[derive(Default)]
pub(super) struct Channels(Vec<(Key, Vec<Channel>)>);

impl Channels {
    fn list(&mut self, key: Key) -> &mut Vec<Channel> {
        // There are at most 36 different keys.
        let position = self.0.iter().position(|(other, _)| *other == key).unwrap_or_else(|| {
            self.0.push((key, Vec::new()));
            self.0.len() - 1
        });
        &mut self.0[position].1
    }

    /// The channels of `key`, by their old numbers.
    pub(super) fn get(&self, key: Key) -> &[Channel] {
        self.0.iter().find(|(other, _)| *other == key).map_or(&[], |(_, list)| list)
    }

    /// The channel `old` of `key`, if there is one.
    pub(super) fn find(&self, key: Key, old: u64) -> Option<Channel> {
        self.get(key).get(usize::try_from(old).ok()?).copied()
    }
}

/// Numbers the channels of a rank and gives its channel tables: one per type, one per switch group.
pub(super) fn of_rank(
    tables: Vec<wire::Table>,
    rank: &Place,
) -> Result<(Channels, Vec<ChannelTable>), ReadError> {
    let mut channels = Channels::default();
    let (mut memory, mut port, mut switches) = (Vec::new(), Vec::new(), Vec::new());
    for (position, table) in tables.into_iter().enumerate() {
        let missing = |key: &str| {
            let place = rank.clone().at("channels", position);
            ReadError::converting(place, format!("missing key `{key}`"))
        };
        let channel_type = table.kind.channel_type;
        let peers = match channel_type {
            ChannelType::None => continue,
            ChannelType::Memory => &mut memory,
            ChannelType::Port => &mut port,
            ChannelType::Switch => {
                let buffer = table.buffer.ok_or_else(|| missing("buff"))?;
                let list = channels.list(Key { src: buffer, dst: buffer, channel_type });
                for group in table.rank_groups.ok_or_else(|| missing("rankGroups"))? {
                    list.push(Channel { id: switches.len() as u64, peer: None });
                    switches.push(ChannelTable::Switch { buffer, groups: vec![group] });
                }
                continue;
            }
        };
        let key = Key {
            src: table.src.ok_or_else(|| missing("srcbuff"))?,
            dst: table.dst.ok_or_else(|| missing("dstbuff"))?,
            channel_type,
        };
        for peer in table.connected_to.ok_or_else(|| missing("connectedTo"))? {
            channels.list(key).push(Channel { id: peers.len() as u64, peer: Some(peer) });
            peers.push(peer);
        }
    }
    let lists = [(ChannelType::Memory, memory), (ChannelType::Port, port)];
    let tables = lists
        .into_iter()
        .filter(|(_, peers)| !peers.is_empty())
        .map(|(channel_type, connected_to)| ChannelTable::Peers { channel_type, connected_to });
    Ok((channels, tables.chain(switches).collect()))
}

/// A block's channels per type, by the rank's numbers.
pub(super) type Lists = Vec<(ChannelType, Vec<u64>)>;

/// Numbers the channels of a block and gives its lists of the rank's channels.
pub(super) fn of_block(
    lists: &[wire::BlockChannels],
    rank: &Channels,
    block: &Place,
) -> Result<(Channels, Lists), ReadError> {
    let mut channels = Channels::default();
    let mut used = [ChannelType::Memory, ChannelType::Port, ChannelType::Switch]
        .map(|channel_type| (channel_type, Vec::new()));
    for (position, list) in lists.iter().enumerate() {
        let channel_type = list.kind.channel_type;
        let Some((_, ids)) = used.iter_mut().find(|(other, _)| *other == channel_type) else {
            continue;
        };
        let key = Key { src: list.src, dst: list.dst, channel_type };
        for (ordinal, &old) in list.ids.iter().enumerate() {
            let channel = rank.find(key, old).ok_or_else(|| {
                let place = block.clone().at("channels", position).at("cids", ordinal);
                let count = rank.get(key).len();
                let problem = format!(
                    "saw channel {old}, allowed below {count}, the rank's channels of this kind"
                );
                ReadError::converting(place, problem)
            })?;
            channels.list(key).push(Channel { id: ids.len() as u64, peer: channel.peer });
            ids.push(channel.id);
        }
    }
    let used = used.into_iter().filter(|(_, ids)| !ids.is_empty()).collect();
    Ok((channels, used))
}
