//! Operations by which blocks and ranks wait for each other.

use super::tables::barrier;
use super::tags::Numbers;
use super::{Channel, Misuse, On, Program, Semaphore};
use crate::model::{ChannelType, Op, OpKind};
use crate::passes::pairing::SourceLine;
use crate::passes::{DataSync, Step};

impl Program {
    /// The line of the program that makes the following calls, for errors that are only found at the end.
    pub fn at(&mut self, line: Option<SourceLine>) {
        self.line = line;
    }

    /// Signals the peer.
    ///
    /// # Errors
    /// A channel of another program, and [`Misuse::NoBlock`].
    pub fn signal(
        &mut self,
        over: Channel,
        on: On<'_>,
        sync: DataSync,
        relaxed: bool,
    ) -> Result<(), Misuse> {
        let kind = if relaxed { OpKind::RelaxedSignal } else { OpKind::Signal };
        self.on_channel(kind, over, on, sync)
    }

    /// Waits for one more signal of the peer.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    pub fn wait(
        &mut self,
        over: Channel,
        on: On<'_>,
        sync: DataSync,
        relaxed: bool,
    ) -> Result<(), Misuse> {
        let kind = if relaxed { OpKind::RelaxedWait } else { OpKind::Wait };
        self.on_channel(kind, over, on, sync)
    }

    /// Waits until earlier transfers over a port channel are complete.
    ///
    /// # Errors
    /// As [`signal`](Self::signal), and [`Misuse::ChannelType`] for memory channels.
    pub fn flush(&mut self, over: Channel, on: On<'_>, sync: DataSync) -> Result<(), Misuse> {
        if over.kind != ChannelType::Port {
            return Err(Misuse::ChannelType { call: "flush", channel: over.kind });
        }
        self.on_channel(OpKind::Flush, over, on, sync)
    }

    /// Takes one from a semaphore, waiting until it may.
    ///
    /// # Errors
    /// A semaphore of another program, and [`Misuse::NoBlock`].
    pub fn acquire(
        &mut self,
        semaphore: Semaphore,
        on: On<'_>,
        sync: DataSync,
    ) -> Result<(), Misuse> {
        self.on_semaphore(OpKind::SemaphoreAcquire, semaphore, on, sync)
    }

    /// Gives one to a semaphore.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn release(
        &mut self,
        semaphore: Semaphore,
        on: On<'_>,
        sync: DataSync,
    ) -> Result<(), Misuse> {
        self.on_semaphore(OpKind::SemaphoreRelease, semaphore, on, sync)
    }

    /// Makes a block's threads meet, or several blocks of a rank.
    ///
    /// # Errors
    /// [`Misuse::EmptyBarrier`], [`Misuse::BarrierTwice`], [`Misuse::Block`], [`Misuse::Rank`].
    pub fn barrier(&mut self, rank: i64, blocks: &[u64]) -> Result<(), Misuse> {
        let rank = self.rank(rank)?;
        if blocks.is_empty() {
            return Err(Misuse::EmptyBarrier);
        }
        if blocks.iter().enumerate().any(|(i, block)| blocks[..i].contains(block)) {
            return Err(Misuse::BarrierTwice { blocks: blocks.to_vec() });
        }
        blocks.iter().try_for_each(|&block| self.known_block(rank, block))?;
        if let [block] = *blocks {
            self.push(rank, block, Step::nop());
            return Ok(());
        }
        let id = self.ranks[rank as usize].barrier(blocks);
        for &block in blocks {
            self.push(rank, block, barrier(id, blocks.len() as u64));
        }
        Ok(())
    }

    /// Makes all blocks of a rank meet that the finished program uses. A block that the program uses only later meets
    /// the others at its beginning.
    ///
    /// # Errors
    /// [`Misuse::Rank`], and [`Misuse::BarrierInPipeline`] inside a pipeline, whose blocks are not known yet.
    pub fn barrier_of_everyone(&mut self, rank: i64) -> Result<(), Misuse> {
        let rank = self.rank(rank)?;
        if self.pipeline.is_some() {
            return Err(Misuse::BarrierInPipeline);
        }
        let tables = &mut self.ranks[rank as usize];
        let id = tables.barrier_of_everyone();
        for block in 0..tables.blocks.len() as u64 {
            self.push(rank, block, barrier(id, 0));
        }
        Ok(())
    }

    /// Checks that every signal so far has its wait, channel by channel.
    ///
    /// # Errors
    /// [`Misuse::Pairing`] for the first channel of which this is not so, and [`Misuse::Tags`].
    pub fn check_pairing(&self) -> Result<(), Misuse> {
        self.check_pairing_of(&self.numbers()?)
    }

    /// The same, with the numbers that channels have in the plan.
    pub(super) fn check_pairing_of(&self, numbers: &Numbers) -> Result<(), Misuse> {
        if !self.settings.paired {
            return Ok(());
        }
        let peers = [
            (ChannelType::Memory, self.ranks.iter().map(|rank| &rank.memory[..]).collect()),
            (ChannelType::Port, self.ranks.iter().map(|rank| &rank.port[..]).collect()),
        ];
        let checked = if numbers.is_empty() {
            self.pairing.check(&peers)
        } else {
            self.pairing.renumbered(|end| numbers.of(end)).check(&peers)
        };
        checked.map_err(|found| Misuse::Pairing(Box::new(found)))
    }

    fn on_channel(
        &mut self,
        kind: OpKind,
        over: Channel,
        on: On<'_>,
        sync: DataSync,
    ) -> Result<(), Misuse> {
        self.owns_channel(over)?;
        let end = (over.kind, over.source, over.id);
        on.each(|block, _| {
            self.known_block(over.source, block)?;
            match kind {
                OpKind::Signal | OpKind::RelaxedSignal => self.count_signal(over),
                OpKind::Wait | OpKind::RelaxedWait => {
                    let windows = self.windows();
                    self.pairing.wait(end, windows, self.line.as_ref());
                }
                _ => {}
            }
            let mut op = Op::new(kind);
            op.channel_type = over.kind;
            op.channel_ids = vec![self.local_channel(over, block)];
            self.push(over.source, block, Step::synchronising(op, sync));
            Ok(())
        })
    }

    fn on_semaphore(
        &mut self,
        kind: OpKind,
        semaphore: Semaphore,
        on: On<'_>,
        sync: DataSync,
    ) -> Result<(), Misuse> {
        let Semaphore { rank, id } = semaphore;
        self.owns_semaphore(semaphore)?;
        on.each(|block, _| {
            self.known_block(rank, block)?;
            let mut op = Op::new(kind);
            op.semaphore_ids = vec![id];
            self.push(rank, block, Step::synchronising(op, sync));
            Ok(())
        })
    }

    /// Counts a signal over a channel.
    pub(super) fn count_signal(&mut self, over: Channel) {
        let windows = self.windows();
        self.pairing.signal((over.kind, over.source, over.id), windows, self.line.as_ref());
    }

    fn windows(&self) -> Option<(u64, u64)> {
        self.pipeline.as_ref().map(|pipeline| (pipeline.unit, pipeline.chunks))
    }

    /// Checks that a semaphore is this program's.
    pub(crate) fn owns_semaphore(&self, semaphore: Semaphore) -> Result<(), Misuse> {
        let Semaphore { rank, id } = semaphore;
        let tables = self.ranks.get(rank as usize);
        if tables.is_some_and(|tables| (id as usize) < tables.semaphores.len()) {
            return Ok(());
        }
        Err(Misuse::NotMine { what: "semaphore", rank, owners: vec![rank] })
    }

    /// Checks that a channel is this program's.
    pub(crate) fn owns_channel(&self, channel: Channel) -> Result<(), Misuse> {
        let peers = self.ranks.get(channel.source as usize).map(|tables| match channel.kind {
            ChannelType::Port => &tables.port,
            _ => &tables.memory,
        });
        let peer = peers.and_then(|peers| peers.get(channel.id as usize));
        if peer == Some(&channel.destination) {
            return Ok(());
        }
        let owners = vec![channel.source];
        Err(Misuse::NotMine { what: "channel", rank: channel.source, owners })
    }
}
