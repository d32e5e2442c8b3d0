//! From a program of this stage to one of the current stage, and to a plan.

use super::channels::Channels;
use super::chunk::{Buffer, Ref};
use super::instances::Instances;
use super::operation::{Operation, What};
use super::{Misuse, Program, ports};
use crate::dsl::{self, Chunk, Compiled, MembersChecked, On, Switch};
use crate::model::{self, Protocol};
use crate::passes::DataSync;
use crate::passes::replication::Policy;
use antiphon_types::ReduceOp;
use std::collections::HashMap;

impl Program {
    /// Translates the program and runs the passes. The program itself stays as it is.
    ///
    /// # Errors
    /// [`Misuse::Unpaired`], and whatever the current stage refuses.
    pub fn finish(&self) -> Result<Compiled, Misuse> {
        Ok(self.translate()?.finish()?)
    }

    /// The program in the current stage's terms, with its instances.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn translate(&self) -> Result<dsl::Program, Misuse> {
        let operations = self.operations.clone();
        let operations = if self.settings.fuse { ports::fuse(operations) } else { operations };
        let channels = Channels::new(&operations);
        channels.balanced(&operations)?;
        let mut translation = Translation::new(self, &operations, &channels)?;
        for operation in &operations {
            translation.operation(operation)?;
        }
        Ok(translation.target)
    }
}

struct Translation<'a> {
    channels: &'a Channels,
    /// The current stage's channels, by number, instance and side.
    over: Vec<[dsl::Channel; 2]>,
    instances: Instances<'a>,
    count: u64,
    switches: HashMap<(model::Buffer, Vec<u64>), Switch>,
    target: dsl::Program,
}

impl<'a> Translation<'a> {
    fn new(
        program: &'a Program,
        operations: &[Operation],
        channels: &'a Channels,
    ) -> Result<Self, Misuse> {
        let settings = &program.settings;
        let collective = &settings.collective;
        let count = settings.instances as u64;
        let chunks = (collective.input_chunks() * count, collective.stated_output_chunks() * count);
        let mut target = dsl::Program::new(dsl::Settings {
            chunks: vec![chunks],
            in_place: collective.in_place,
            policy: Policy::default(),
            protocol: settings.protocol,
            fuse: settings.fuse,
            mode: settings.mode,
            threads_per_block: settings.threads_per_block,
            double_scratch: settings.double_scratch || settings.protocol == Protocol::LL,
            sizes: settings.sizes.clone(),
            ..dsl::Settings::new(&settings.name, collective.model(), settings.ranks)
        })?;
        let lengths = program.slots.iter().map(|slots| slots.scratch_chunks());
        let longest = lengths.clone().max().unwrap_or_default();
        for (rank, length) in (0..).zip(lengths) {
            // Packets go to the place that they have on the sending rank.
            let length = if settings.protocol == Protocol::LL { longest } else { length };
            target.scratch(rank, length * count)?;
        }
        let mut over = Vec::with_capacity(channels.list.len() * count as usize);
        for channel in &channels.list {
            let [low, high] = channel.ranks.map(|rank| rank as i64);
            for _ in 0..count {
                // Side by side, so that they are paired with each other.
                over.push([
                    target.channel(channel.kind, high, low)?,
                    target.channel(channel.kind, low, high)?,
                ]);
            }
        }
        let (slots, replication) = (&program.slots, settings.replication);
        let instances = Instances::new(collective, slots, replication, count, operations);
        Ok(Translation { channels, over, instances, count, switches: HashMap::new(), target })
    }

    fn operation(&mut self, operation: &Operation) -> Result<(), Misuse> {
        self.target.at(operation.line.clone());
        let pieces = self.instances.pieces(operation);
        for instance in 0..self.count {
            for &piece in &pieces {
                self.piece(operation, instance, piece)?;
            }
        }
        Ok(())
    }

    /// One instance's share of a piece of an operation.
    fn piece(
        &mut self,
        operation: &Operation,
        instance: u64,
        piece: (u64, u64),
    ) -> Result<(), Misuse> {
        let block = |block: u64| block * self.count + instance;
        let on = On::block(block(operation.block));
        let rank = operation.rank as i64;
        let over = self.channels.of(operation).map(|(number, side)| {
            self.over[number * self.count as usize + instance as usize][side]
        });
        let instances = &self.instances;
        let at = |run: &Ref| chunk(instances, run, instance, piece);
        let target = &mut self.target;
        match (&operation.what, over) {
            (What::Transfer { transfer, from, to, .. }, Some(over)) => {
                let (from, to) = (at(from), at(to));
                target.transfer(*transfer, over, to, from, on)?;
            }
            (What::Signal { .. }, Some(over)) => target.signal(over, on, DataSync::BOTH, false)?,
            (What::Flush { .. }, Some(over)) => target.flush(over, on, DataSync::BOTH)?,
            (What::Wait { .. }, Some(over)) => target.wait(over, on, DataSync::BOTH, false)?,
            (What::ReadReduce { to, other }, Some(over)) => {
                let (to, other) = (at(to), at(other));
                target.read_reduce(over, to, to, &[other], ReduceOp::Sum, on)?;
            }
            (What::Copy { op, from, to }, _) => {
                let (from, to) = (at(from), at(to));
                target.copy(*op, rank, to, from, on)?;
            }
            (What::Reduce { to, other, packets }, _) => {
                let (to, other) = (at(to), at(other));
                target.reduce(rank, to, to, &[other], ReduceOp::Sum, *packets, on)?;
            }
            (What::GroupLoadReduce { to: run, ranks }, _)
            | (What::GroupStore { from: run, ranks }, _) => {
                let chunk = at(run);
                let elsewhere = ranks
                    .iter()
                    .copied()
                    .find(|&rank| at(&Ref { rank, ..*run }).index != chunk.index);
                let loads = matches!(operation.what, What::GroupLoadReduce { .. });
                if let Some(other) = elsewhere {
                    let op = if loads { "group_load_reduce" } else { "group_store" };
                    return Err(Misuse::GroupChunk { op, rank: run.rank, other });
                }
                let switch = self.switch(run.buffer, ranks)?;
                let Chunk { index, size, .. } = chunk;
                let checked = MembersChecked::AtEnd;
                if loads {
                    self.target.switch_reduce(
                        &switch,
                        rank,
                        index,
                        size,
                        chunk,
                        ReduceOp::Sum,
                        checked,
                        on,
                    )?;
                } else {
                    self.target
                        .switch_store(&switch, rank, chunk, index, size, false, checked, on)?;
                }
            }
            (What::Barrier { blocks }, _) => {
                let blocks: Vec<u64> = blocks.iter().map(|&tb| block(tb)).collect();
                target.barrier(rank, &blocks)?;
            }
            (_, None) => debug_assert!(false, "every use of a channel has one"),
        }
        Ok(())
    }

    /// The switch channel over a buffer of some ranks, which all blocks share.
    fn switch(&mut self, buffer: Buffer, ranks: &[u64]) -> Result<Switch, Misuse> {
        let key = (buffer.model(), ranks.to_vec());
        if let Some(known) = self.switches.get(&key) {
            return Ok(known.clone());
        }
        let members: Vec<i64> = ranks.iter().map(|&rank| rank as i64).collect();
        let switch = self.target.switch(&members, buffer.model())?;
        self.switches.insert(key, switch.clone());
        Ok(switch)
    }
}

/// An instance's share of a piece of a run.
fn chunk(instances: &Instances<'_>, run: &Ref, instance: u64, (offset, size): (u64, u64)) -> Chunk {
    let piece = Ref { index: run.index + offset, size, ..*run };
    let index = instances.index(&piece, instance);
    Chunk { rank: run.rank, buffer: run.buffer.model(), index, size }
}
