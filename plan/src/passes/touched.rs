//! Which chunks of a rank's memory a block's threads have touched since they last met.

use super::Surroundings;
use crate::model::{Buffer, ChannelType, ChunkRef, Collective, GroupSlice, Op, OpKind, RefBase};
use std::collections::BTreeMap;
use std::ops::Range;

/// Memory in which two operands can meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Memory {
    /// The input, and in place the output too.
    Input,
    /// The output of a plan that is not in place.
    Output,
    /// Scratch as raw memory.
    Scratch,
    /// Scratch as packets. Their readers wait for each packet by itself; only a port sends them as they are.
    Packets,
}

/// A data operation's use of its own rank's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Which memory.
    pub memory: Memory,
    /// Chunks, in coordinates in which equal numbers are equal memory.
    pub range: Range<u64>,
    /// Whether it is written.
    pub write: bool,
    /// The window that an iteration of a pipeline moves along these chunks; none for the whole of them.
    pub window: Option<Window>,
}

/// What two operands need to have in common for iterations of a pipeline to be apart in them: an iteration touches its
/// own window of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    range: Range<u64>,
    group: Option<GroupSlice>,
}

/// Adds what `op` does to memory of its own rank to `accesses`. `windowed` says whether it is done in windows.
pub fn accesses(op: &Op, around: &Surroundings<'_>, windowed: bool, accesses: &mut Vec<Access>) {
    use OpKind::*;
    let (src, dst) = (&op.src[..], &op.dst[..]);
    let first = |list: &[ChunkRef]| list.len().min(1);
    // Raw operands that are read and written, and packets that are written.
    let (reads, writes, packets) = match op.kind {
        Put
        | PutBlocks
        | PutWithSignal
        | PutWithSignalAndFlush
        | Get
        | GetBlocks
        | Copy
        | CopyBlocks
        | Reduce
        | ReduceSend
        | ReadReduce
        | ReadReduceSend
        | GroupLoadReduce
        | GroupLoadReduceStore
        | GroupStore => (src, dst, &dst[..0]),
        PutPackets | CopyPackets => (src, &dst[..0], dst),
        UnpackPackets => (&src[..0], dst, &dst[..0]),
        ReadPutPackets | GroupStorePackets => (&src[..0], &dst[..0], dst),
        ReducePackets | ReduceSendPackets | ReduceCopyPackets | ReduceCopySendPackets => {
            (&src[..first(src)], &dst[..first(dst)], &dst[first(dst)..])
        }
        Nop | Barrier | Signal | RelaxedSignal | Wait | RelaxedWait | Flush | SemaphoreAcquire
        | SemaphoreRelease | Pipeline => return,
    };
    // Operations on packets do the whole of their chunks in every iteration.
    let windowed = windowed && !op.kind.moves_packets();
    let mut add = |chunk: &ChunkRef, as_packets: bool, write: bool| {
        let buffer = match chunk.base {
            RefBase::Local(buffer) => buffer,
            RefBase::Remote(_) => return,
            RefBase::Switch(local) => match around.switches.get(local as usize) {
                Some(&buffer) => buffer,
                None => return,
            },
        };
        let (memory, range) = match as_packets {
            true => (Memory::Packets, chunk.index..chunk.index.saturating_add(chunk.size)),
            false => home(around, buffer, chunk),
        };
        if range.is_empty() {
            return;
        }
        let window = windowed.then(|| Window { range: range.clone(), group: op.group });
        accesses.push(Access { memory, range, write, window });
    };
    reads.iter().for_each(|chunk| add(chunk, false, false));
    writes.iter().for_each(|chunk| add(chunk, false, true));
    packets.iter().for_each(|chunk| add(chunk, true, true));
    if op.kind == PutPackets && op.channel_type == ChannelType::Port {
        let scratch = |chunk: &&ChunkRef| chunk.base == RefBase::Local(Buffer::Scratch);
        src.iter().filter(scratch).for_each(|chunk| add(chunk, true, false));
    }
}

/// Where chunks of a buffer lie. In place the smaller buffer of a gathering or scattering collective is the rank's block of
/// the larger one; elsewhere input and output are the same.
pub fn home(around: &Surroundings<'_>, buffer: Buffer, chunk: &ChunkRef) -> (Memory, Range<u64>) {
    let (memory, shift) = match (buffer, around.in_place, around.collective) {
        (Buffer::Scratch, ..) => (Memory::Scratch, 0),
        (Buffer::Input, true, Collective::AllGather | Collective::Gather) => {
            (Memory::Input, around.input_chunks)
        }
        (Buffer::Output, true, Collective::ReduceScatter | Collective::Scatter) => {
            (Memory::Input, around.output_chunks)
        }
        (Buffer::Output, false, _) => (Memory::Output, 0),
        (Buffer::Input, ..) | (Buffer::Output, true, _) => (Memory::Input, 0),
    };
    let start = chunk.index.saturating_add(around.rank.saturating_mul(shift));
    (memory, start..start.saturating_add(chunk.size))
}

/// Runs of chunks and how they were touched; runs do not overlap.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    runs: [BTreeMap<u64, Run>; 4],
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    end: u64,
    read: By,
    written: By,
}

/// By whom a run was touched.
#[derive(Clone, Debug, PartialEq, Eq)]
enum By {
    Nobody,
    /// By operations that have this window there.
    Window(Window),
    /// As a whole, or by operations with different windows: nobody is apart from all of them.
    Anyone,
}

impl By {
    fn and(&self, other: &By) -> By {
        match (self, other) {
            (By::Nobody, by) | (by, By::Nobody) => by.clone(),
            (mine, other) if mine == other => mine.clone(),
            _ => By::Anyone,
        }
    }
}

impl Run {
    /// The run with what touched it and `other`.
    fn and(&self, other: &Run) -> Run {
        let (read, written) = (self.read.and(&other.read), self.written.and(&other.written));
        Run { end: self.end, read, written }
    }

    /// Whether the run says at least what `other` says.
    fn says(&self, other: &Run) -> bool {
        self.and(other) == *self
    }

    /// Whoever must be done with the run before `access` may begin.
    fn in_the_way_of(&self, access: &Access) -> [&By; 2] {
        match (access.memory, access.write) {
            (Memory::Packets, true) => [&By::Nobody; 2],
            (_, true) => [&self.read, &self.written],
            (_, false) => [&By::Nobody, &self.written],
        }
    }
}

impl Touched {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.runs.iter_mut().for_each(BTreeMap::clear);
    }

    /// Whether nothing was touched.
    pub fn is_empty(&self) -> bool {
        self.runs.iter().all(BTreeMap::is_empty)
    }

    /// Whether `access` must not begin before what was touched is done.
    pub fn conflicts(&self, access: &Access) -> bool {
        self.any_in_the_way(access, |by| *by != By::Nobody)
    }

    /// The same where all of this was touched in other iterations of the pipeline.
    pub fn conflicts_across_iterations(&self, access: &Access) -> bool {
        self.any_in_the_way(access, |by| match by {
            By::Nobody => false,
            By::Window(window) => access.window.as_ref() != Some(window),
            By::Anyone => true,
        })
    }

    fn any_in_the_way(&self, access: &Access, conflicts: impl Fn(&By) -> bool) -> bool {
        let mut runs = overlapping(&self.runs[access.memory as usize], &access.range);
        runs.any(|(_, run)| run.in_the_way_of(access).into_iter().any(&conflicts))
    }

    /// Enters an access.
    pub fn touch(&mut self, access: &Access) {
        let by = access.window.clone().map_or(By::Anyone, By::Window);
        let (read, written) = if access.write { (By::Nobody, by) } else { (by, By::Nobody) };
        let run = Run { end: access.range.end, read, written };
        self.enter(access.memory as usize, access.range.start, &run);
    }

    /// Enters everything that was touched elsewhere.
    pub fn join(&mut self, other: &Touched) {
        for (memory, runs) in other.runs.iter().enumerate() {
            runs.iter().for_each(|(&start, run)| self.enter(memory, start, run));
        }
    }

    /// Whether everything that was touched elsewhere was touched here in the same way.
    pub fn covers(&self, other: &Touched) -> bool {
        self.runs.iter().zip(&other.runs).all(|(mine, theirs)| {
            theirs.iter().all(|(&start, run)| {
                let mut covered = start;
                for (begin, own) in overlapping(mine, &(start..run.end)) {
                    if begin > covered || !own.says(run) {
                        return false;
                    }
                    covered = own.end;
                }
                covered >= run.end
            })
        })
    }

    fn enter(&mut self, memory: usize, start: u64, run: &Run) {
        let runs = &mut self.runs[memory];
        let range = start..run.end;
        let parts: Vec<(u64, Run)> =
            overlapping(runs, &range).map(|(begin, part)| (begin, part.clone())).collect();
        let mut open = start;
        for (begin, part) in &parts {
            if open < *begin {
                put(runs, open, Run { end: *begin, ..run.clone() });
            }
            open = part.end.min(range.end);
            if *begin >= start && part.end <= range.end && part.says(run) {
                continue;
            }
            runs.remove(begin);
            if *begin < start {
                put(runs, *begin, Run { end: start, ..part.clone() });
            }
            put(runs, (*begin).max(start), Run { end: open, ..part.and(run) });
            if part.end > range.end {
                put(runs, range.end, part.clone());
            }
        }
        if open < range.end {
            put(runs, open, run.clone());
        }
    }
}

/// Adds a run, to the one that ends where it starts if they say the same.
fn put(runs: &mut BTreeMap<u64, Run>, start: u64, run: Run) {
    let before = runs.range_mut(..start).next_back();
    match before {
        Some((_, before))
            if before.end == start && (Run { end: run.end, ..before.clone() }) == run =>
        {
            before.end = run.end;
        }
        _ => drop(runs.insert(start, run)),
    }
}

fn overlapping<'a>(
    runs: &'a BTreeMap<u64, Run>,
    range: &Range<u64>,
) -> impl Iterator<Item = (u64, &'a Run)> + use<'a> {
    let begins = runs.range(..=range.start).next_back();
    let first = begins.filter(|(_, run)| run.end > range.start).map_or(range.start, |(&at, _)| at);
    let last = range.end;
    runs.range(first..last.max(first)).map(|(&begin, run)| (begin, run))
}
