//! What every cell of memory has been through: its value, who wrote it, and who has read it since.
//!
//! A touch conflicts with an earlier one that it is not ordered after, unless both are reads. Writing the value that is
//! there already changes nothing that a reader could see, so such a write conflicts with no reader of that value; but
//! it does with whoever touched the cell before that value was there, and a later write of another value has to come
//! after it too. The same holds for packets of one launch, of which readers take whichever comes first.

use super::clock::{Clock, Epoch};
use super::lineage::{Lineage, Written};
use super::space::Reach;
use super::values::ValueId;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Who touches, and what is known to have happened before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Toucher<'a> {
    /// The touch itself.
    pub step: Epoch,
    /// What happened before it, but for its own actor's work.
    pub clock: &'a Clock,
    /// Its own actor's work that is done: up to this step.
    pub met: u32,
    /// What happened before its launch could begin on the owner of the memory.
    pub entry: Option<&'a Clock>,
    /// The cells that a write was made from; those that are no packets are marked with [`RAW`].
    pub made_from: &'a [u32],
    /// The last chunks of blocks that the touch takes; for a write, the last ones that its value came through.
    pub through: Reach,
}

impl Toucher<'_> {
    /// Whether an earlier step is over when this one is made, whatever the schedule. Threads share a step, so that it
    /// does not conflict with itself.
    #[inline]
    fn follows(&self, earlier: Epoch) -> bool {
        if earlier.actor == self.step.actor {
            return earlier.count <= self.met || earlier.count == self.step.count;
        }
        self.clock.covers(earlier) || self.entry.is_some_and(|entry| entry.covers(earlier))
    }
}

/// Marks, among the cells that something was made from, one that is no packet. All cell numbers are smaller than this.
pub(super) const RAW: u32 = 1 << 31;

/// A step that touched a cell, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepTouch {
    pub step: Epoch,
    pub wrote: bool,
}

impl StepTouch {
    pub const fn read(step: Epoch) -> Self {
        StepTouch { step, wrote: false }
    }

    pub const fn write(step: Epoch) -> Self {
        StepTouch { step, wrote: true }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    value: ValueId,
    /// The first to write the value.
    writer: Epoch,
    /// The last to read it; others are in `more`.
    reader: Epoch,
    /// The launch that wrote it, for packets.
    launch: u32,
    /// Position in `more`, plus 1.
    more: u32,
    /// The last chunks of blocks that the value came through, over all its writers: at sizes at which such a chunk is not full,
    /// some bytes of the value may not have come.
    through: Reach,
    /// The last to read and the first to write the value before; others are in `more`.
    before: [Epoch; 2],
}

/// What does not fit into a cell.
#[derive(Clone, Debug, Default)]
struct More {
    writers: Vec<Epoch>,
    readers: Vec<Epoch>,
    /// Whoever else touched the cell while it held the value before.
    before: Vec<StepTouch>,
}

/// All cells. Functions that touch one give the earlier touch that this one conflicts with.
#[derive(Debug)]
pub(super) struct Shadow<'a> {
    cells: Vec<Cell>,
    more: Vec<More>,
    /// By cell, for packets: the range in `sources` that holds the cells it was made from. Unused where there is a lineage.
    made_from: Vec<(u32, u32)>,
    sources: Vec<u32>,
    /// Who writes each packet, and from what, where that is known.
    lineage: Option<&'a Lineage>,
    /// Some packet had several writers, any of which may be the first to come: only a lineage can tell what then follows.
    pub shared: bool,
    /// Packets that were replaced in their own launch by one with an old flag, and that launch.
    replaced: HashMap<u32, u32>,
    /// By kind of block, pairs of chunks: the first relies on what came through the second, which is a later one.
    detours: [BTreeSet<[u32; 2]>; 2],
    /// Likewise, where one move takes both: sizes at which they are not equally long are refused.
    refused: [BTreeSet<[u32; 2]>; 2],
}

impl<'a> Shadow<'a> {
    /// `cells` cells, each with its own value from before the first launch; `packets` says whether some of them are packets.
    pub fn new(cells: u32, packets: bool, lineage: Option<&'a Lineage>) -> Self {
        let cell = |value| Cell { value, ..Cell::default() };
        let noted = packets && lineage.is_none();
        let made_from = vec![(0, 0); if noted { cells as usize } else { 0 }];
        let cells = (0..cells).map(cell).collect();
        let (more, sources, replaced) = (Vec::new(), Vec::new(), HashMap::new());
        let (shared, detours, refused) = (false, Default::default(), Default::default());
        Shadow { cells, more, made_from, sources, lineage, shared, replaced, detours, refused }
    }

    /// A chunk of a block that relies on bytes which came through a later one, and that one, where calls may have sizes at which the
    /// later one is shorter.
    pub fn detour(&self) -> Option<[u32; 2]> {
        self.detours.iter().zip(&self.refused).find_map(|(detours, refused)| {
            // `full` is the number of full chunks that each block has at some sizes.
            let is_refused =
                |full: u32| refused.iter().any(|&[chunk, later]| chunk < full && full <= later);
            let mut detours = detours.iter().copied();
            detours.find(|&[chunk, later]| (chunk + 1..=later).any(|full| !is_refused(full)))
        })
    }

    /// The last chunks of blocks that what a cell holds came through.
    #[inline]
    pub fn through(&self, cell: u32) -> Reach {
        self.cells[cell as usize].through
    }

    /// Says through which chunks what a cell holds came.
    pub fn set_through(&mut self, cell: u32, chunks: Reach) {
        self.cells[cell as usize].through = chunks;
    }

    /// Notes that something of some chunks of blocks relies on what came through others.
    pub fn rely(&mut self, Reach(chunks): Reach, Reach(through): Reach) {
        for (kind, detours) in self.detours.iter_mut().enumerate() {
            if through[kind] > chunks[kind] {
                detours.insert([chunks[kind], through[kind]]);
            }
        }
    }

    /// One move takes bytes of these chunks of blocks of a kind, of which there may be several.
    pub fn meet(&mut self, kind: usize, first: u32, last: u32) {
        if last > first {
            self.refused[kind].insert([first, last]);
        }
    }

    /// What a cell holds.
    #[inline]
    pub fn value(&self, cell: u32) -> ValueId {
        self.cells[cell as usize].value
    }

    /// The launch that last wrote a packet; 0 for none.
    #[inline]
    pub fn launch(&self, cell: u32) -> u32 {
        self.cells[cell as usize].launch
    }

    /// Who wrote the cell's value first.
    #[inline]
    pub fn writer(&self, cell: u32) -> Epoch {
        self.cells[cell as usize].writer
    }

    /// Puts a value there before anybody touches it.
    pub fn place(&mut self, cell: u32, value: ValueId) {
        self.cells[cell as usize].value = value;
    }

    /// Reads a cell: some write of its value must be over.
    #[inline]
    pub fn read(&mut self, at: u32, toucher: &Toucher<'_>) -> Option<StepTouch> {
        let writer = self.cells[at as usize].writer;
        let mut conflict = None;
        if !writer.is_none() && !toucher.follows(writer) {
            let others = self.extra(at).map_or(&[][..], |more| &more.writers[..]);
            if others.iter().any(|&other| toucher.follows(other)) {
                self.rely(toucher.through, self.through(at));
            } else {
                conflict = Some(StepTouch::write(writer));
            }
        }
        self.note_reader(at, toucher);
        conflict
    }

    /// Reads the bytes of a packet without waiting for its flag. Whoever comes after someone who has seen the packet sees
    /// it too.
    pub fn read_bytes(&mut self, at: u32, toucher: &Toucher<'_>) -> Option<StepTouch> {
        let seen = self.seen(at, toucher);
        self.read(at, toucher).filter(|_| !seen)
    }

    /// Whether some reader of the cell's value is through.
    fn seen(&self, at: u32, toucher: &Toucher<'_>) -> bool {
        let reader = self.cells[at as usize].reader;
        let others = self.extra(at).map_or(&[][..], |more| &more.readers[..]);
        (!reader.is_none() && toucher.follows(reader)) || others.iter().any(|&r| toucher.follows(r))
    }

    fn extra(&self, at: u32) -> Option<&More> {
        self.more.get(self.cells[at as usize].more.checked_sub(1)? as usize)
    }

    /// Reads a packet, which came with its flag: no order is needed.
    #[inline]
    pub fn read_packet(&mut self, at: u32, toucher: &Toucher<'_>) {
        self.note_reader(at, toucher);
    }

    /// An earlier read of the same actor is forgotten only if it is over: this very step may write the cell next, and
    /// does not conflict with itself.
    #[inline]
    fn note_reader(&mut self, at: u32, toucher: &Toucher<'_>) {
        let step = toucher.step;
        let cell = &mut self.cells[at as usize];
        let known = cell.reader;
        if known.is_none() || (known.actor == step.actor && toucher.follows(known)) {
            cell.reader = step;
            return;
        }
        let other = std::mem::replace(&mut cell.reader, step);
        let readers = &mut self.more(at).readers;
        match readers.iter_mut().find(|reader| reader.actor == other.actor) {
            Some(reader) => *reader = other,
            None => readers.push(other),
        }
    }

    fn more(&mut self, at: u32) -> &mut More {
        let cell = &mut self.cells[at as usize];
        if cell.more == 0 {
            self.more.push(More::default());
            cell.more = self.more.len() as u32;
        }
        &mut self.more[cell.more as usize - 1]
    }

    /// Writes a cell: whoever touched it must be through.
    pub fn write(&mut self, at: u32, value: ValueId, toucher: &Toucher<'_>) -> Option<StepTouch> {
        let cell = self.cells[at as usize];
        if cell.value == value {
            return self.write_again(at, toucher, false);
        }
        let conflict = self.conflict(at, toucher, false);
        self.begin(at, value, toucher, cell.launch);
        conflict
    }

    /// Writes a packet of a launch: nobody may write another in the same launch, and all of earlier launches must be
    /// through.
    pub fn write_packet(
        &mut self,
        at: u32,
        value: ValueId,
        launch: u32,
        toucher: &Toucher<'_>,
    ) -> Option<StepTouch> {
        let cell = self.cells[at as usize];
        self.note_sources(at, launch, toucher);
        if cell.launch != launch {
            // A reader may have taken the one that was replaced, and does not know that this one was to come.
            let second = self.replaced.get(&at) == Some(&launch);
            let second = second.then_some(StepTouch::write(cell.writer));
            let conflict = self.conflict(at, toucher, true).or(second);
            self.begin(at, value, toucher, launch);
            return conflict;
        }
        if cell.value == value {
            let after = self.after_packet(at, toucher);
            return self.write_again(at, toucher, after);
        }
        // Even in order: readers take the first that comes.
        let own = cell.writer == toucher.step;
        self.begin(at, value, toucher, launch);
        (!own).then_some(StepTouch::write(cell.writer))
    }

    /// Writes a packet with the flag of another launch than this one: nobody waits for that flag, and a packet of this launch
    /// that was there is gone.
    pub fn write_stale(
        &mut self,
        at: u32,
        value: ValueId,
        [flag, launch]: [u32; 2],
        toucher: &Toucher<'_>,
    ) -> Option<StepTouch> {
        let cell = self.cells[at as usize];
        if (cell.value, cell.launch) == (value, flag) {
            return self.write_again(at, toucher, false);
        }
        if cell.launch == launch {
            self.replaced.insert(at, launch);
        }
        if self.lineage.is_none() {
            let start = self.sources.len() as u32;
            self.sources.extend_from_slice(toucher.made_from);
            self.made_from[at as usize] = (start, self.sources.len() as u32);
        }
        let conflict = self.conflict(at, toucher, false);
        self.begin(at, value, toucher, flag);
        conflict
    }

    /// Notes what a packet is made from, as far as whoever sees it can rely on it.
    fn note_sources(&mut self, at: u32, launch: u32, toucher: &Toucher<'_>) {
        if self.lineage.is_some() {
            return;
        }
        let cell = self.cells[at as usize];
        let other = cell.launch == launch && cell.writer != toucher.step;
        if other && (toucher.made_from.contains(&at) || toucher.follows(cell.writer)) {
            // It comes after the first.
            return;
        }
        let start = self.sources.len() as u32;
        if other {
            // Nobody knows which of them a reader has seen.
            self.shared = true;
        } else {
            self.sources.extend_from_slice(toucher.made_from);
        }
        self.made_from[at as usize] = (start, self.sources.len() as u32);
    }

    /// Whether another write of the packet is always there before this one: whoever makes this one has seen it, or what
    /// was made from it, or comes after someone who has seen it.
    fn after_packet(&self, at: u32, toucher: &Toucher<'_>) -> bool {
        let launch = self.cells[at as usize].launch;
        let made_from_it = |lineage: &Lineage| {
            lineage.implies(toucher.made_from, launch, |write| write.cell == at)
        };
        toucher.made_from.contains(&at)
            || self.seen(at, toucher)
            || self.lineage.is_some_and(made_from_it)
    }

    /// Writes the value that is there; `after` says that this is known to come after another write of it.
    fn write_again(&mut self, at: u32, toucher: &Toucher<'_>, after: bool) -> Option<StepTouch> {
        let Cell { writer: first, before: [reader, writer], .. } = self.cells[at as usize];
        let mut conflict = None;
        if !after && !toucher.follows(first) {
            let more = self.extra(at).map_or(&[][..], |more| &more.before[..]);
            let kept = [StepTouch::read(reader), StepTouch::write(writer)];
            let mut before = kept.into_iter().chain(more.iter().copied());
            conflict = before.find(|&StepTouch { step, wrote }| {
                let late = !step.is_none() && !toucher.follows(step);
                late && (wrote || !self.depends(toucher.made_from, step, at))
            });
        }
        if first != toucher.step {
            self.more(at).writers.push(toucher.step);
        }
        // The one relies on the other to have come first.
        let through = self.through(at);
        self.rely(toucher.through, through);
        self.set_through(at, through.max(toucher.through));
        conflict
    }

    /// A touch of the cell's value that is not over when another value is written.
    fn conflict(&self, at: u32, toucher: &Toucher<'_>, packet: bool) -> Option<StepTouch> {
        let writers = self.extra(at).map_or(&[][..], |more| &more.writers[..]);
        let all = std::iter::once(self.cells[at as usize].writer).chain(writers.iter().copied());
        let late = |step: Epoch| !step.is_none() && !toucher.follows(step);
        // Whoever comes after someone who saw the packet comes after the packet.
        let mut found = all.filter(|&step| {
            late(step) && !(packet && self.seen(at, toucher) && self.sure(at, step))
        });
        match found.next() {
            Some(step) => Some(StepTouch::write(step)),
            None => self.late_reader(at, toucher),
        }
    }

    /// Whether a write of the packet that is there was made before anybody could see the packet.
    fn sure(&self, at: u32, step: Epoch) -> bool {
        match self.lineage {
            None => self.extra(at).is_none_or(|more| more.writers.is_empty()),
            Some(lineage) => {
                let this = |write: Written<'_>| write.cell == at && write.step == step;
                lineage.implies(&[at], self.cells[at as usize].launch, this)
            }
        }
    }

    /// A reader of the cell's value that is not through when another value is written.
    fn late_reader(&self, at: u32, toucher: &Toucher<'_>) -> Option<StepTouch> {
        let late = |step: Epoch| {
            !step.is_none() && !toucher.follows(step) && !self.depends(toucher.made_from, step, at)
        };
        let readers = self.extra(at).map_or(&[][..], |more| &more.readers[..]);
        let all = std::iter::once(self.cells[at as usize].reader).chain(readers.iter().copied());
        let mut found = all.filter(|&step| late(step));
        found.next().map(StepTouch::read)
    }

    /// Whether one of the packets among these cells was made, at some remove, from what a step read of a cell. Then the
    /// step has read it: a packet is not there before what it is made from is read.
    fn depends(&self, made_from: &[u32], step: Epoch, read: u32) -> bool {
        let mut open: Vec<u32> = made_from.iter().copied().filter(|cell| cell & RAW == 0).collect();
        let Some(&packet) = open.first() else { return false };
        if let Some(lineage) = self.lineage {
            let launch = self.cells[packet as usize].launch;
            return lineage.implies(made_from, launch, |write| {
                write.step == step && write.made_from.contains(&(read | RAW))
            });
        }
        let mut seen = HashSet::new();
        while let Some(packet) = open.pop() {
            let (start, end) = self.made_from[packet as usize];
            let sources = &self.sources[start as usize..end as usize];
            if self.cells[packet as usize].writer == step && sources.contains(&(read | RAW)) {
                return true;
            }
            if seen.insert(packet) {
                open.extend(sources.iter().copied().filter(|cell| cell & RAW == 0));
            }
        }
        false
    }

    /// A cell has another value from here on.
    fn begin(&mut self, at: u32, value: ValueId, toucher: &Toucher<'_>, launch: u32) {
        let cell = &mut self.cells[at as usize];
        let old = *cell;
        let Toucher { step: writer, through, .. } = *toucher;
        let (reader, before) = (Epoch::default(), [old.reader, old.writer]);
        *cell = Cell { value, writer, reader, launch, more: old.more, through, before };
        if old.more > 0 {
            let More { writers, readers, before } = &mut self.more[old.more as usize - 1];
            before.clear();
            before.extend(readers.drain(..).map(StepTouch::read));
            before.extend(writers.drain(..).map(StepTouch::write));
        }
    }
}
