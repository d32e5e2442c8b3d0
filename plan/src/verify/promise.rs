//! What a collective promises about every cell of every output, and whether a run kept it.

use super::report::{About, Note};
use super::space::Reach;
use super::state::Mismatch;
use super::values::{Leaves, Odd, Origin, ValueId, Values};
use super::walk::Walk;
use crate::model::Collective;
use crate::postcondition::{self, PostCondition};
use crate::program::Area;
use antiphon_types::ReduceOp;

/// What an output cell must hold: one input cell, or the reduction of that cell of every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Whatever is there.
    Anything,
    /// Cell of a rank's input.
    One { rank: u32, cell: u32 },
    /// The same cell of every rank's input, reduced.
    All { cell: u32 },
}

/// What a collective promises, at the sizes of a run.
#[derive(Clone, Debug)]
pub(super) struct Promise {
    collective: Collective,
    ranks: u32,
    /// Cells of an input and of an output.
    inputs: u32,
    outputs: u32,
    /// Cells of a runtime block.
    per_block: u32,
    root: u32,
}

impl Promise {
    /// What `collective` promises; `None` for collectives without a promise of their own.
    pub fn new(
        collective: &Collective,
        ranks: u32,
        [inputs, outputs]: [u32; 2],
        per_block: u32,
        root: u32,
    ) -> Option<Self> {
        let none =
            matches!(collective, Collective::SendRecv | Collective::Test | Collective::Other(_));
        let collective = collective.clone();
        (!none).then_some(Promise { collective, ranks, inputs, outputs, per_block, root })
    }

    /// What a cell of a rank's output must hold.
    pub fn wanted(&self, rank: u32, cell: u32) -> Wanted {
        let root = |wanted: Wanted| if rank == self.root { wanted } else { Wanted::Anything };
        let gathered = || {
            let block = self.inputs.max(1);
            Wanted::One { rank: cell / block, cell: cell % block }
        };
        match self.collective {
            Collective::AllReduce => Wanted::All { cell },
            Collective::AllGather => gathered(),
            Collective::AllGatherV => {
                let block = self.per_block.max(1);
                Wanted::One { rank: cell / block, cell: cell % block }
            }
            Collective::ReduceScatter => {
                Wanted::All { cell: rank.saturating_mul(self.outputs).saturating_add(cell) }
            }
            Collective::AllToAll | Collective::AllToAllV => {
                let block = (self.outputs / self.ranks.max(1)).max(1);
                Wanted::One {
                    rank: cell / block,
                    cell: rank.saturating_mul(block).saturating_add(cell % block),
                }
            }
            Collective::Broadcast => Wanted::One { rank: self.root, cell },
            Collective::Reduce => root(Wanted::All { cell }),
            Collective::Gather => root(gathered()),
            Collective::Scatter => Wanted::One {
                rank: self.root,
                cell: rank.saturating_mul(self.outputs).saturating_add(cell),
            },
            Collective::SendRecv | Collective::Test | Collective::Other(_) => Wanted::Anything,
        }
    }

    /// Whether all ranks are promised the same output.
    pub fn same_everywhere(&self) -> bool {
        matches!(
            self.collective,
            Collective::AllReduce
                | Collective::AllGather
                | Collective::AllGatherV
                | Collective::Broadcast
        )
    }

    /// `Some` if a value is what is wanted in a launch: the operation that made it, and whether that took some input twice.
    fn kept(
        &self,
        values: &Values,
        wanted: Wanted,
        launch: u32,
        value: ValueId,
    ) -> Option<(Option<ReduceOp>, bool)> {
        const COPIED: (Option<ReduceOp>, bool) = (None, false);
        match wanted {
            Wanted::Anything => Some(COPIED),
            Wanted::One { rank, cell } => {
                let there = rank < self.ranks && cell < self.inputs;
                (there && value == values.input(rank, launch) + cell).then_some(COPIED)
            }
            Wanted::All { cell } => {
                if cell >= self.inputs {
                    return None;
                }
                let expected = (0..self.ranks).map(|rank| values.input(rank, launch) + cell);
                let Leaves { operation, leaves, repeats } =
                    values.leaves(value, self.ranks as usize).ok()?;
                leaves.into_iter().eq(expected).then_some((operation, repeats))
            }
        }
    }
}

impl Walk<'_> {
    /// What the plan's collective promises.
    pub(super) fn promise(&self) -> Option<Promise> {
        let layout = self.setting.layout;
        let cells = [self.space.input(0).len() as u32, self.space.output(0).len() as u32];
        Promise::new(
            &layout.collective,
            layout.ranks.len() as u32,
            cells,
            self.space.per_chunk(),
            self.setting.root,
        )
    }

    /// The launch for which users wrote the inputs that a launch finds: the first, where they do not act in between.
    fn given(&self, launch: u32) -> u32 {
        if self.setting.user_acts { launch } else { 1 }
    }

    /// Compares what the user of a rank has read after a launch with what the plan is to compute.
    pub(super) fn judge(&mut self, rank: u32, launch: u32) {
        if let Some(promise) = self.setting.promise {
            for (cell, &value) in (0u32..).zip(&self.outputs[rank as usize]) {
                let latest = self.latest(promise, (rank, cell));
                if let Some((&through, latest)) = self.through.get(cell as usize).zip(latest) {
                    self.shadow.rely(latest, through);
                }
                match self.keeps(promise, (rank, cell), self.given(launch), value) {
                    Some(repeats) => self.repeats |= repeats,
                    None => {
                        self.mismatches.push(Mismatch { rank, launch, cell, value });
                        return;
                    }
                }
            }
            return;
        }
        let Some(promise) = self.promise().filter(|_| self.mismatches.is_empty()) else { return };
        // Neighbouring ranks and cells mostly hold one value, which is looked into once.
        let output = &self.outputs[rank as usize];
        for (cell, &value) in (0..).zip(output) {
            let wanted = promise.wanted(rank, cell);
            if let (&Some(&through), Wanted::One { cell: of, .. } | Wanted::All { cell: of }) =
                (&self.through.get(cell as usize), wanted)
            {
                // The promise only binds at sizes that have both this chunk of the output and that chunk of the input.
                let both = [(Area::Output, cell), (Area::Input, of)];
                let [own, of] = both.map(|(area, at)| Reach::of(self.space.chunk(rank, area, at)));
                self.shadow.rely(own.max(of), through);
            }
            let known =
                wanted != Wanted::Anything && self.kept.get(&value) == Some(&(wanted, launch));
            if known {
                continue;
            }
            let kept = promise.kept(&self.values, wanted, launch, value);
            // All outputs are reduced alike.
            let alike =
                kept.filter(|&(op, _)| op.is_none() || *self.operation.get_or_insert(op) == op);
            let Some((_, repeats)) = alike else {
                self.mismatches.push(Mismatch { rank, launch, cell, value });
                return;
            };
            self.repeats |= repeats;
            if matches!(wanted, Wanted::All { .. }) {
                self.kept.insert(value, (wanted, launch));
            }
        }
    }

    /// The last chunks of an output cell and of the inputs that it is promised; `None` if it is promised nothing.
    fn latest(&self, promise: &PostCondition, (rank, cell): (u32, u32)) -> Option<Reach> {
        let per_chunk = self.space.per_chunk().max(1);
        let own = Reach::of(self.space.chunk(rank, Area::Output, cell));
        let chunks = match promise.wanted(rank as usize, (cell / per_chunk) as usize) {
            postcondition::Wanted::Anything => return None,
            postcondition::Wanted::Chunks(chunks) => chunks,
        };
        let of = |&(origin, chunk): &(_, _)| {
            let (origin, chunk) = (u32::try_from(origin).ok()?, u32::try_from(chunk).ok()?);
            let known = (origin as usize) < self.ranks.len();
            let at = chunk.saturating_mul(per_chunk);
            known.then(|| Reach::of(self.space.chunk(origin, Area::Input, at)))
        };
        Some(chunks.iter().filter_map(of).fold(own, Reach::max))
    }

    /// Whether a cell of a rank's output holds what a promise of the caller's says; if so, whether it took something twice.
    fn keeps(
        &self,
        promise: &PostCondition,
        (rank, cell): (u32, u32),
        launch: u32,
        value: ValueId,
    ) -> Option<bool> {
        let per_chunk = self.space.per_chunk().max(1);
        let (chunk, piece) = (cell / per_chunk, cell % per_chunk);
        let chunks = match promise.wanted(rank as usize, chunk as usize) {
            postcondition::Wanted::Anything => return Some(false),
            postcondition::Wanted::Chunks(chunks) => chunks,
        };
        let mut expected = Vec::with_capacity(chunks.len());
        for &(origin, chunk) in chunks {
            let input = u32::try_from(origin).ok().filter(|&r| (r as usize) < self.ranks.len());
            let at = u32::try_from(chunk).ok().and_then(|chunk| chunk.checked_mul(per_chunk));
            let (origin, at) = input.zip(at)?;
            let inputs = self.space.input(origin).len() as u32;
            let at = at.checked_add(piece).filter(|&at| at < inputs)?;
            expected.push(self.values.input(origin, launch) + at);
        }
        expected.sort_unstable();
        let found = self.values.leaves(value, expected.len()).ok()?;
        (found.leaves == expected).then_some(found.repeats)
    }

    /// Whether every rank holds the same bits where all are promised the same; `None` where they are not. After a run.
    pub(super) fn same_bits(&self) -> Option<bool> {
        self.promise().filter(Promise::same_everywhere)?;
        let first = self.outputs.first()?;
        Some(self.outputs.iter().all(|output| output == first))
    }

    /// What a cell of an output should hold, in words.
    pub(super) fn expected(&self, mismatch: &Mismatch) -> String {
        let Some(promise) = self.promise() else {
            return "what the promise says".to_owned();
        };
        match promise.wanted(mismatch.rank, mismatch.cell) {
            Wanted::Anything => "anything".to_owned(),
            Wanted::One { rank, cell } => self.input_text(rank, cell),
            Wanted::All { cell } => {
                let bytes = self.space.bytes(cell..cell + 1);
                format!("the reduction of bytes {}..{} of all inputs", bytes.start, bytes.end)
            }
        }
    }

    /// What every output holds after the last launch of a run, in words: a note for each cell.
    pub(super) fn results(&self) -> Vec<Note> {
        const TOLD: usize = 4096;
        let launch = self.given(self.setting.case.launches);
        let mut notes = Vec::new();
        for (rank, output) in self.outputs.iter().enumerate() {
            for (cell, &value) in (0..).zip(output) {
                if notes.len() == TOLD {
                    let text = "the rest is left out".to_owned();
                    notes.push(Note { about: About::Result, text });
                    return notes;
                }
                let bytes = self.space.bytes(cell..cell + 1);
                let value = self.value_text(value, launch);
                let text =
                    format!("rank {rank} output bytes {}..{} = {value}", bytes.start, bytes.end);
                notes.push(Note { about: About::Result, text });
            }
        }
        notes
    }

    fn input_text(&self, rank: u32, cell: u32) -> String {
        let bytes = self.space.bytes(cell..cell + 1);
        format!("bytes {}..{} of the input of rank {rank}", bytes.start, bytes.end)
    }

    /// A value in words, for a user who reads it after a launch.
    pub(super) fn value_text(&self, value: ValueId, launch: u32) -> String {
        const SHOWN: usize = 12;
        let leaf = |value| match self.values.origin(value) {
            Origin::Input { rank, cell, launch: of } if of == launch => self.input_text(rank, cell),
            Origin::Input { rank, cell, launch: of } => {
                format!("{} in launch {of}", self.input_text(rank, cell))
            }
            Origin::Before(_) => "what was there before".to_owned(),
            Origin::Combined(..) => "a reduction".to_owned(),
        };
        match self.values.leaves(value, 1 << 16) {
            Err(Odd::Mixed) => "a mixture of several reductions".to_owned(),
            Err(Odd::Many) => "a reduction of very many values".to_owned(),
            Ok(Leaves { operation: None, leaves, .. }) => {
                leaves.first().map_or(String::new(), |&v| leaf(v))
            }
            Ok(Leaves { operation: Some(op), leaves, .. }) => {
                let name = match op {
                    ReduceOp::Sum | ReduceOp::Avg => "the sum",
                    ReduceOp::Prod => "the product",
                    ReduceOp::Min => "the minimum",
                    ReduceOp::Max => "the maximum",
                };
                let mut shown: Vec<String> = leaves.iter().take(SHOWN).map(|&v| leaf(v)).collect();
                if leaves.len() > SHOWN {
                    shown.push(format!("{} more", leaves.len() - SHOWN));
                }
                format!("{name} of {}", shown.join(", "))
            }
        }
    }
}
