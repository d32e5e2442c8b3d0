//! A rank's buffers while its program is written: how long they are and which chunks hold something.

use super::chunk::{Buffer, Ref};
use super::collective::Collective;
use crate::model;

/// What is known of a chunk, in the order of the program's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slot {
    /// Nothing has been written.
    #[default]
    Empty,
    /// Raw data.
    Raw,
    /// Packets.
    Packets,
    /// What a peer sent, in whatever form.
    Arrived,
}

/// One rank's buffers.
#[derive(Clone, Debug)]
pub struct Slots {
    input: Vec<Slot>,
    output: Vec<Slot>,
    /// Scratch buffers in the order in which the rank came to have them.
    scratch: Vec<(u32, Vec<Slot>)>,
}

impl Slots {
    /// The buffers of a rank before the first operation.
    pub fn new(collective: &Collective, rank: u64) -> Self {
        let mut input = vec![Slot::Raw; collective.input_chunks() as usize];
        let mut output = vec![Slot::Empty; collective.output_chunks() as usize];
        for index in 0..collective.input_chunks() {
            if let (model::Buffer::Output, index) =
                collective.alias(rank, model::Buffer::Input, index)
            {
                output[index as usize] = Slot::Raw;
            }
        }
        if !collective.nameable(rank, model::Buffer::Input) {
            input.fill(Slot::Empty);
        }
        Slots { input, output, scratch: Vec::new() }
    }

    /// The chunks of a buffer.
    pub fn buffer(&self, buffer: Buffer) -> &[Slot] {
        match buffer {
            Buffer::Input => &self.input,
            Buffer::Output => &self.output,
            Buffer::Scratch(id) => {
                let found = self.scratch.iter().find(|(known, _)| *known == id);
                found.map_or(&[], |(_, slots)| slots)
            }
        }
    }

    fn buffer_mut(&mut self, buffer: Buffer) -> &mut Vec<Slot> {
        let id = match buffer {
            Buffer::Input => return &mut self.input,
            Buffer::Output => return &mut self.output,
            Buffer::Scratch(id) => id,
        };
        let position = self.scratch.iter().position(|(known, _)| *known == id);
        let position = position.unwrap_or_else(|| {
            self.scratch.push((id, Vec::new()));
            self.scratch.len() - 1
        });
        &mut self.scratch[position].1
    }

    /// Makes a scratch buffer long enough for a run.
    pub fn reach(&mut self, run: &Ref) {
        let slots = self.buffer_mut(run.buffer);
        if slots.len() < run.end() as usize {
            slots.resize(run.end() as usize, Slot::Empty);
        }
    }

    /// Notes what a run holds now.
    pub fn write(&mut self, run: &Ref, holds: Slot) {
        self.reach(run);
        self.buffer_mut(run.buffer)[run.index as usize..run.end() as usize].fill(holds);
    }

    /// What a chunk holds.
    pub fn get(&self, buffer: Buffer, index: u64) -> Slot {
        self.buffer(buffer).get(index as usize).copied().unwrap_or_default()
    }

    /// Where each scratch buffer begins in the rank's scratch, and the end of the last.
    pub fn scratch_offset(&self, buffer: Buffer) -> u64 {
        let before = self.scratch.iter().take_while(|(id, _)| Buffer::Scratch(*id) != buffer);
        before.map(|(_, slots)| slots.len() as u64).sum()
    }

    /// Chunks of all scratch buffers together.
    pub fn scratch_chunks(&self) -> u64 {
        self.scratch.iter().map(|(_, slots)| slots.len() as u64).sum()
    }
}
