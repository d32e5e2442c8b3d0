//! What a tuning measures: cells, each a call of one size, with an item of the job for each candidate.

use crate::cli::CliError;
use crate::cli::counts::{Blocks, Rule};
use crate::cli::job::Item;
use crate::cli::shape::Shape;
use antiphon::executor::selection::table::{Setting, Times};
use antiphon::plan::model::Plan;
use std::ops::Range;

/// A call of one size.
pub struct Cell {
    /// What kind of call.
    pub setting: Setting,
    /// Bytes of the message.
    pub bytes: u64,
    /// How many candidates are measured for it.
    pub candidates: usize,
}

/// The cells, and the items that measure them: those of a cell are consecutive.
#[derive(Default)]
pub struct Cells {
    /// The items.
    pub items: Vec<Item>,
    /// Cells that need not be measured.
    pub skipped: usize,
    cells: Vec<Cell>,
    /// The cell of each item.
    of: Vec<usize>,
    /// Names and plans of the candidates.
    candidates: Vec<(String, Plan)>,
}

impl Cells {
    /// Takes candidates; their positions.
    pub fn add_plans(&mut self, candidates: Vec<(String, Plan)>) -> Range<usize> {
        let first = self.candidates.len();
        self.candidates.extend(candidates);
        first..self.candidates.len()
    }

    /// Adds a cell with these candidates, unless `known` has times of all of them.
    pub fn add(
        &mut self,
        setting: &Setting,
        bytes: u64,
        plans: Range<usize>,
        known: Option<&Times>,
        element: u64,
    ) -> Result<(), CliError> {
        let serving = plans.filter(|&plan| {
            let Plan { min_message_size, max_message_size, .. } = self.candidates[plan].1;
            (min_message_size..=max_message_size).contains(&bytes)
        });
        let serving: Vec<usize> = serving.collect();
        let is_known =
            |plan: &usize| known.is_some_and(|times| times.of(&self.candidates[*plan].0).is_some());
        if serving.iter().all(is_known) {
            self.skipped += 1;
            return Ok(());
        }
        for &plan in &serving {
            let written = &self.candidates[plan].1;
            let item = if written.runtime_sizes {
                let blocks = Blocks::new(written, &Rule::Even, bytes, element)?;
                Item { plan, shape: blocks.widest(element), blocks: Some(blocks) }
            } else {
                Item { plan, shape: Shape::new(written, bytes, element), blocks: None }
            };
            self.items.push(item);
            self.of.push(self.cells.len());
        }
        let (setting, candidates) = (setting.clone(), serving.len());
        self.cells.push(Cell { setting, bytes, candidates });
        Ok(())
    }

    /// How many there are to measure.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there is nothing to measure.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The cell of an item.
    pub fn of(&self, item: usize) -> &Cell {
        &self.cells[self.of[item]]
    }

    /// The candidate that an item measures.
    pub fn name(&self, item: usize) -> &str {
        &self.candidates[self.items[item].plan].0
    }

    /// The plans of the candidates, which the items refer to.
    pub fn plans(&self) -> Vec<Plan> {
        self.candidates.iter().map(|(_, plan)| plan.clone()).collect()
    }
}
