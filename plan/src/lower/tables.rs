//! The plan's tables, resolved: a rank's channels with their pairs, and a block's local lists.

use super::error::LowerError;
use crate::model::{Buffer, ChannelTable, ChannelType, Gpu, Plan, ThreadBlock};
use crate::program::{Area, Channel, Switch};
use std::collections::HashMap;

/// The raw area behind a buffer.
pub(super) fn area_of(buffer: Buffer) -> Area {
    match buffer {
        Buffer::Input => Area::Input,
        Buffer::Output => Area::Output,
        Buffer::Scratch => Area::Scratch,
    }
}

/// Every rank's channels, memory before port. The k-th channel of a type from r to p is paired with the k-th of that type
/// from p to r.
pub(super) fn channels(plan: &Plan) -> Result<Vec<Vec<Channel>>, LowerError> {
    let mut channels = Vec::with_capacity(plan.gpus.len());
    // Per (from, to) and type, the ids of the channels between them, in order.
    let mut between: HashMap<(u32, u32, bool), Vec<u32>> = HashMap::new();
    for (rank, gpu) in (0u32..).zip(&plan.gpus) {
        let mut own = Vec::new();
        for (channel_type, port) in [(ChannelType::Memory, false), (ChannelType::Port, true)] {
            for &peer in peers(gpu, channel_type) {
                let owner = || format!("a {channel_type} channel of rank {rank}");
                let peer = rank_number(plan, peer, owner)?;
                between.entry((rank, peer, port)).or_default().push(own.len() as u32);
                own.push(Channel { peer, paired: None, single_signaller: true, port });
            }
        }
        channels.push(own);
    }
    for (&(rank, peer, port), ids) in &between {
        let Some(back) = between.get(&(peer, rank, port)) else { continue };
        for (&id, &pair) in ids.iter().zip(back) {
            channels[rank as usize][id as usize].paired = Some(pair);
        }
    }
    Ok(channels)
}

fn peers(gpu: &Gpu, wanted: ChannelType) -> impl Iterator<Item = &u64> {
    gpu.channels.iter().flat_map(move |table| match table {
        ChannelTable::Peers { channel_type, connected_to } if *channel_type == wanted => {
            &connected_to[..]
        }
        _ => &[],
    })
}

/// A rank's switch channels.
pub(super) fn switches(plan: &Plan, gpu: &Gpu) -> Result<Vec<Switch>, LowerError> {
    let mut switches = Vec::new();
    for table in &gpu.channels {
        let ChannelTable::Switch { buffer, groups } = table else { continue };
        for group in groups {
            let owner = || format!("a switch channel of rank {}", gpu.id);
            let members = group.ranks.iter().map(|&rank| rank_number(plan, rank, owner));
            switches.push(Switch {
                members: members.collect::<Result<_, _>>()?,
                area: area_of(*buffer),
            });
        }
    }
    Ok(switches)
}

fn rank_number(plan: &Plan, rank: u64, owner: impl Fn() -> String) -> Result<u32, LowerError> {
    let ranks = plan.gpus.len();
    match u32::try_from(rank) {
        Ok(number) if (number as usize) < ranks => Ok(number),
        _ => Err(LowerError::Tables {
            problem: format!("{} names rank {rank}, allowed 0..{ranks}", owner()),
        }),
    }
}

/// The lists that a block's operations index.
pub(super) struct BlockTables {
    /// Positions of the block's memory channels among the rank's channels.
    pub(super) memory: Vec<u32>,
    /// Positions of the block's port channels among the rank's channels.
    pub(super) port: Vec<u32>,
    /// Switch channel ids of the rank.
    pub(super) switch: Vec<u32>,
    /// Owner and buffer of each remote buffer accessed through memory channels.
    pub(super) remote: Vec<(u32, Buffer)>,
    /// Owner and buffer of each remote buffer accessed through port channels.
    pub(super) remote_port: Vec<(u32, Buffer)>,
}

impl BlockTables {
    /// The lists of `block`, whose rank has these channels and this many switch channels.
    pub(super) fn new(
        plan: &Plan,
        gpu: &Gpu,
        block: &ThreadBlock,
        channels: &[Channel],
        switch: usize,
    ) -> Result<Self, LowerError> {
        let memory = channels.iter().take_while(|channel| !channel.port).count();
        let owner = |what| format!("rank {} tb {} {what}", gpu.id, block.id);
        let ids = |kind, allowed| {
            let listed = block.channels.iter().filter(move |(listed, _)| *listed == kind);
            let ids = listed.flat_map(|(_, ids)| ids);
            let ids = ids.map(|&id| within(id, allowed, || owner(kind.name())));
            ids.collect::<Result<Vec<u32>, _>>()
        };
        let (mut remote, mut remote_port) = (Vec::new(), Vec::new());
        for (access, ids) in &block.remote_buffer_refs {
            let list = match access {
                ChannelType::Memory => &mut remote,
                ChannelType::Port => &mut remote_port,
                ChannelType::Switch | ChannelType::None => continue,
            };
            for &id in ids {
                let id = within(id, gpu.remote_buffers.len(), || owner("remote buffer"))?;
                let buffer = &gpu.remote_buffers[id as usize];
                let rank = rank_number(plan, buffer.rank, || owner("remote buffer"))?;
                list.push((rank, buffer.buffer));
            }
        }
        let mut port = ids(ChannelType::Port, channels.len() - memory)?;
        port.iter_mut().for_each(|id| *id += memory as u32);
        Ok(BlockTables {
            memory: ids(ChannelType::Memory, memory)?,
            port,
            switch: ids(ChannelType::Switch, switch)?,
            remote,
            remote_port,
        })
    }
}

fn within(id: u64, allowed: usize, owner: impl Fn() -> String) -> Result<u32, LowerError> {
    match u32::try_from(id) {
        Ok(number) if (number as usize) < allowed => Ok(number),
        _ => Err(LowerError::Tables {
            problem: format!("{} has id {id}, allowed 0..{allowed}", owner()),
        }),
    }
}
