//! The operations of a block. In every one, what is read comes before what is written.

use super::block::{Block, Operand, Owner};
use super::handles::{Channel, Chunks, Semaphore, SwitchChannel};
use crate::dsl::Transfer;
use crate::model::OpKind;
use std::panic::Location;

impl Block<'_> {
    /// Copy own chunks to own chunks.
    #[track_caller]
    pub fn copy(&self, from: Chunks, to: Chunks) {
        let (from, to) = ([Operand::raw(from)], [Operand::raw(to)]);
        self.data(Location::caller(), OpKind::Copy, (&from, Owner::Own), (&to, Owner::Own));
    }

    /// Copy own chunks to another rank's.
    #[track_caller]
    pub fn put(&self, from: Chunks, to: Chunks) {
        let (from, to) = ([Operand::raw(from)], [Operand::raw(to)]);
        self.data(Location::caller(), OpKind::Put, (&from, Owner::Own), (&to, Owner::Other));
    }

    /// Copy own chunks to another rank's over a port channel.
    #[track_caller]
    pub fn put_over(&self, port: &Channel, from: Chunks, to: Chunks) {
        self.over(Location::caller(), Transfer::Put, port, (from, to));
    }

    /// Copy own chunks to another rank's over a port channel, and then signal it.
    #[track_caller]
    pub fn put_with_signal(&self, port: &Channel, from: Chunks, to: Chunks) {
        self.over(Location::caller(), Transfer::PutWithSignal, port, (from, to));
    }

    /// As [`put_with_signal`](Self::put_with_signal), and then wait until the source may change.
    #[track_caller]
    pub fn put_with_signal_and_flush(&self, port: &Channel, from: Chunks, to: Chunks) {
        self.over(Location::caller(), Transfer::PutWithSignalAndFlush, port, (from, to));
    }

    /// Copy own packets, as they are, to another rank's scratch over a port channel. They must have been made:
    /// nobody waits for them.
    #[track_caller]
    pub fn put_packets_over(&self, port: &Channel, from: Chunks, to: Chunks) {
        self.over(Location::caller(), Transfer::PutPackets, port, (from, to));
    }

    /// Wait for packets in own scratch and forward them over a port channel.
    #[track_caller]
    pub fn read_put_packets_over(&self, port: &Channel, from: Chunks, to: Chunks) {
        self.over(Location::caller(), Transfer::ReadPutPackets, port, (from, to));
    }

    /// Wait until all that this rank posted on each port channel is done, so that its sources may change.
    #[track_caller]
    pub fn flush(&self, ports: &[Channel]) {
        self.channels(Location::caller(), OpKind::Flush, ports);
    }

    /// Copy another rank's chunks to own ones.
    #[track_caller]
    pub fn get(&self, from: Chunks, to: Chunks) {
        let (from, to) = ([Operand::raw(from)], [Operand::raw(to)]);
        self.data(Location::caller(), OpKind::Get, (&from, Owner::Other), (&to, Owner::Own));
    }

    /// Reduce chunks of any ranks, in the order given, into own chunks (`re`, or `rre` with remote sources).
    #[track_caller]
    pub fn reduce(&self, from: &[Chunks], to: Chunks) {
        let kind = self.reduction(from, OpKind::Reduce, OpKind::ReadReduce);
        let (from, to) = (raw(from), [Operand::raw(to)]);
        self.data(Location::caller(), kind, (&from, Owner::Any), (&to, Owner::Own));
    }

    /// As [`reduce`](Self::reduce), and store the result to other ranks' chunks too (`res` or `rres`).
    #[track_caller]
    pub fn reduce_send(&self, from: &[Chunks], to: Chunks, and_to: &[Chunks]) {
        let at = Location::caller();
        let kind = self.reduction(from, OpKind::ReduceSend, OpKind::ReadReduceSend);
        let (from, mut all) = (raw(from), vec![Operand::raw(to)]);
        if !self.check_owners(at, kind, &all, &raw(and_to)) {
            return;
        }
        all.extend(raw(and_to));
        self.data(at, kind, (&from, Owner::Any), (&all, Owner::Any));
    }

    /// Write own raw chunks as packets into another rank's scratch.
    #[track_caller]
    pub fn put_packets(&self, from: Chunks, to: Chunks) {
        let (from, to) = ([Operand::raw(from)], [Operand::packets(to)]);
        self.data(Location::caller(), OpKind::PutPackets, (&from, Owner::Own), (&to, Owner::Other));
    }

    /// Forward own packets to other ranks' scratch.
    #[track_caller]
    pub fn read_put_packets(&self, from: Chunks, to: &[Chunks]) {
        let (from, to) = ([Operand::packets(from)], packets(to));
        let kind = OpKind::ReadPutPackets;
        self.data(Location::caller(), kind, (&from, Owner::Own), (&to, Owner::Other));
    }

    /// Write own raw chunks as packets into own scratch.
    #[track_caller]
    pub fn copy_packets(&self, from: Chunks, to: Chunks) {
        let (from, to) = ([Operand::raw(from)], [Operand::packets(to)]);
        self.data(Location::caller(), OpKind::CopyPackets, (&from, Owner::Own), (&to, Owner::Own));
    }

    /// Wait for packets in own scratch and write them as raw chunks.
    #[track_caller]
    pub fn unpack_packets(&self, from: Chunks, to: Chunks) {
        let (from, to) = ([Operand::packets(from)], [Operand::raw(to)]);
        let kind = OpKind::UnpackPackets;
        self.data(Location::caller(), kind, (&from, Owner::Own), (&to, Owner::Own));
    }

    /// Reduce own raw chunks and packets of own scratch into own raw chunks.
    #[track_caller]
    pub fn reduce_packets(&self, raw: Chunks, packets: &[Chunks], to: Chunks) {
        self.packet_reduction(Location::caller(), raw, packets, to, None, &[]);
    }

    /// As [`reduce_packets`](Self::reduce_packets), and write the result as packets to other ranks' scratch.
    #[track_caller]
    pub fn reduce_send_packets(
        &self,
        raw: Chunks,
        packets: &[Chunks],
        to: Chunks,
        send: &[Chunks],
    ) {
        self.packet_reduction(Location::caller(), raw, packets, to, None, send);
    }

    /// As [`reduce_packets`](Self::reduce_packets), and write the result as packets to own scratch (`copy`)
    /// and to other ranks' scratch (`send`, which may be empty).
    #[track_caller]
    pub fn reduce_copy_send_packets(
        &self,
        raw: Chunks,
        packets: &[Chunks],
        to: Chunks,
        copy: Chunks,
        send: &[Chunks],
    ) {
        self.packet_reduction(Location::caller(), raw, packets, to, Some(copy), send);
    }

    /// Reduce the chunks at `index` of every member into own chunks.
    #[track_caller]
    pub fn switch_reduce(&self, switch: &SwitchChannel, index: usize, to: Chunks) {
        let at = Location::caller();
        if let Some(target) = self.through(at, switch, index, to.size) {
            let (from, to) = ([Operand { target, packets: false }], [Operand::raw(to)]);
            self.data(at, OpKind::GroupLoadReduce, (&from, Owner::Own), (&to, Owner::Own));
        }
    }

    /// Reduce `size` chunks at `index` of every member of `from`, and store the result to every member of `to`.
    #[track_caller]
    pub fn switch_reduce_store(
        &self,
        from: &SwitchChannel,
        to: &SwitchChannel,
        index: usize,
        size: usize,
    ) {
        let at = Location::caller();
        let target = |switch| self.through(at, switch, index, size as u64);
        if let (Some(from), Some(to)) = (target(from), target(to)) {
            let from = [Operand { target: from, packets: false }];
            let to = [Operand { target: to, packets: false }];
            self.data(at, OpKind::GroupLoadReduceStore, (&from, Owner::Own), (&to, Owner::Own));
        }
    }

    /// Store own chunks at `index` of every member.
    #[track_caller]
    pub fn switch_store(&self, from: Chunks, switch: &SwitchChannel, index: usize) {
        let at = Location::caller();
        if let Some(target) = self.through(at, switch, index, from.size) {
            let (from, to) = ([Operand::raw(from)], [Operand { target, packets: false }]);
            self.data(at, OpKind::GroupStore, (&from, Owner::Own), (&to, Owner::Own));
        }
    }

    /// Wait for packets in own scratch and store them, as packets, at `index` of every member.
    #[track_caller]
    pub fn switch_store_packets(&self, from: Chunks, switch: &SwitchChannel, index: usize) {
        let at = Location::caller();
        if let Some(target) = self.through(at, switch, index, from.size) {
            let (from, to) = ([Operand::packets(from)], [Operand { target, packets: true }]);
            self.data(at, OpKind::GroupStorePackets, (&from, Owner::Own), (&to, Owner::Own));
        }
    }

    /// Signal the other ends, which then may rely on everything this block did before.
    #[track_caller]
    pub fn signal(&self, channels: &[Channel]) {
        self.channels(Location::caller(), OpKind::Signal, channels);
    }

    /// Signal the other ends, ordering nothing.
    #[track_caller]
    pub fn signal_relaxed(&self, channels: &[Channel]) {
        self.channels(Location::caller(), OpKind::RelaxedSignal, channels);
    }

    /// Wait for one more signal of each other end.
    #[track_caller]
    pub fn wait(&self, channels: &[Channel]) {
        self.channels(Location::caller(), OpKind::Wait, channels);
    }

    /// Wait for one more signal of each other end, ordering nothing.
    #[track_caller]
    pub fn wait_relaxed(&self, channels: &[Channel]) {
        self.channels(Location::caller(), OpKind::RelaxedWait, channels);
    }

    /// Take one from each semaphore, waiting until it may.
    #[track_caller]
    pub fn acquire(&self, semaphores: &[Semaphore]) {
        self.semaphores(Location::caller(), OpKind::SemaphoreAcquire, semaphores);
    }

    /// Give one to each semaphore.
    #[track_caller]
    pub fn release(&self, semaphores: &[Semaphore]) {
        self.semaphores(Location::caller(), OpKind::SemaphoreRelease, semaphores);
    }

    /// Make the block's threads meet (needed by hand only without [automatic
    /// synchronisation](super::ProgramBuilder::auto_sync)).
    #[track_caller]
    pub fn nop(&self) {
        if self.rank != super::NOWHERE {
            let (rank, block) = (self.rank as i64, self.id as u64);
            self.program.try_to(Location::caller(), |program| program.barrier(rank, &[block]));
        }
    }

    fn reduction(&self, from: &[Chunks], local: OpKind, remote: OpKind) -> OpKind {
        if from.iter().any(|chunks| chunks.rank != self.rank) { remote } else { local }
    }

    fn packet_reduction(
        &self,
        at: &'static Location<'static>,
        own: Chunks,
        from: &[Chunks],
        to: Chunks,
        copy: Option<Chunks>,
        send: &[Chunks],
    ) {
        let kind = match (copy, send.is_empty()) {
            (None, true) => OpKind::ReducePackets,
            (None, false) => OpKind::ReduceSendPackets,
            (Some(_), true) => OpKind::ReduceCopyPackets,
            (Some(_), false) => OpKind::ReduceCopySendPackets,
        };
        let mut sources = vec![Operand::raw(own)];
        sources.extend(packets(from));
        let mut all = vec![Operand::raw(to)];
        all.extend(copy.map(Operand::packets));
        if self.check_owners(at, kind, &all, &packets(send)) {
            all.extend(packets(send));
            self.data(at, kind, (&sources, Owner::Own), (&all, Owner::Any));
        }
    }
}

fn raw(chunks: &[Chunks]) -> Vec<Operand> {
    chunks.iter().copied().map(Operand::raw).collect()
}

fn packets(chunks: &[Chunks]) -> Vec<Operand> {
    chunks.iter().copied().map(Operand::packets).collect()
}
