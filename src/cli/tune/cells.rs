//! What a tuning measures: cells, each a call of one size, with an item of the job for each candidate.

use crate::cli::CliError;
use crate::cli::counts::{Blocks, Rule};
use crate::cli::job::Item;
use crate::cli::shape::Shape;
use antiphon::DataType;
use antiphon::executor::RegisteredPlan;
use antiphon::executor::selection::table::{Setting, Times};
use antiphon::executor::selection::{Devices, Question, Spread};
use antiphon::plan::model::{Collective, Plan};
use std::ops::Range;
use std::sync::Arc;

/// What may serve a call.
pub struct Candidate {
    /// What the table calls it.
    pub name: String,
    /// Its plan.
    pub plan: Plan,
    /// What is installed or given; none for a built-in algorithm.
    pub registered: Option<Arc<RegisteredPlan>>,
}

impl Candidate {
    /// Whether it serves a call of so many bytes.
    ///
    /// # Errors
    /// Why not.
    fn serves(&self, setting: &Setting, bytes: u64, dtype: DataType) -> Result<(), String> {
        let Some(registered) = &self.registered else {
            let Plan { min_message_size, max_message_size, .. } = self.plan;
            let within = (min_message_size..=max_message_size).contains(&bytes);
            return if within { Ok(()) } else { Err("is for other sizes".to_owned()) };
        };
        let Setting { collective, ranks, nodes, in_place, .. } = setting;
        let spread =
            Spread { ranks: *ranks, nodes: *nodes, crowded: false, devices: Devices::Host };
        let bytes = match self.plan.collective == *collective {
            true => Shape::new(&self.plan, bytes, dtype.size() as u64).message(),
            false => bytes,
        };
        let question = Question::new(collective, spread, bytes, dtype);
        let fits = registered.fits(&Question { in_place: *in_place, ..question });
        fits.map_err(|misfit| misfit.to_string())
    }
}

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
    candidates: Vec<Candidate>,
    /// By candidate, why it is in no cell; empty where it is in one.
    idle: Vec<Option<String>>,
}

/// The block lengths with which a plan of runtime sizes serves such calls. For a gather or scatter, the blocks between rank
/// 0, the root, and the others are filled, and also, unless in place, the one that rank 0 keeps.
fn rule(setting: &Setting, bytes: u64, element: u64) -> Rule {
    let Setting { ref collective, ranks, in_place, .. } = *setting;
    let moves: fn(u32, u32) -> bool = match collective {
        Collective::Gather => |_, to| to == 0,
        Collective::Scatter => |from, _| from == 0,
        _ => return Rule::Even,
    };
    let count = if bytes == 0 { 0 } else { (bytes / element / u64::from(ranks)).max(1) };
    let block = |from: u32, to: u32| {
        let kept = in_place && from == to;
        if moves(from, to) && !kept { count } else { 0 }
    };
    Rule::Given((0..ranks).map(|from| (0..ranks).map(|to| block(from, to)).collect()).collect())
}

impl Cells {
    /// Takes candidates; their positions.
    pub fn add_plans(&mut self, candidates: Vec<Candidate>) -> Range<usize> {
        let first = self.candidates.len();
        self.idle.resize(first + candidates.len(), Some("is for other calls".to_owned()));
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
        dtype: DataType,
    ) -> Result<(), CliError> {
        let element = dtype.size() as u64;
        let mut serving = Vec::new();
        for plan in plans {
            match (self.candidates[plan].serves(setting, bytes, dtype), &mut self.idle[plan]) {
                (Ok(()), idle) => {
                    serving.push(plan);
                    *idle = None;
                }
                (Err(why), Some(idle)) => *idle = why,
                (Err(_), None) => {}
            }
        }
        let is_known = |plan: &usize| {
            known.is_some_and(|times| times.of(&self.candidates[*plan].name).is_some())
        };
        if serving.iter().all(is_known) {
            self.skipped += 1;
            return Ok(());
        }
        for &plan in &serving {
            let written = &self.candidates[plan].plan;
            let cell = self.cells.len();
            let item = if written.runtime_sizes {
                let blocks = Blocks::new(written, &rule(setting, bytes, element), bytes, element)?;
                Item { plan, shape: blocks.widest(element), blocks: Some(blocks), cell }
            } else {
                Item { plan, shape: Shape::new(written, bytes, element), blocks: None, cell }
            };
            self.items.push(item);
        }
        let (setting, candidates) = (setting.clone(), serving.len());
        self.cells.push(Cell { setting, bytes, candidates });
        Ok(())
    }

    /// How many cells there are.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there is nothing to measure.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The cell of an item.
    pub fn of(&self, item: usize) -> &Cell {
        &self.cells[self.items[item].cell]
    }

    /// The candidate that an item measures.
    pub fn name(&self, item: usize) -> &str {
        &self.candidates[self.items[item].plan].name
    }

    /// What people call what the table calls so.
    pub fn shown<'a>(&'a self, name: &'a str) -> &'a str {
        let candidate = self.candidates.iter().find(|candidate| candidate.name == name);
        let registered = candidate.and_then(|candidate| candidate.registered.as_ref());
        registered.map_or(name, |registered| registered.name())
    }

    /// The plans of the candidates, which the items refer to.
    pub fn plans(&self) -> Vec<Plan> {
        self.candidates.iter().map(|candidate| candidate.plan.clone()).collect()
    }

    /// What was installed or given and serves none of the calls, with the reason.
    pub fn idle(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.candidates.iter().zip(&self.idle);
        let given = all.filter(|(candidate, _)| candidate.registered.is_some());
        given.filter_map(|(candidate, why)| Some((self.shown(&candidate.name), why.as_deref()?)))
    }
}
