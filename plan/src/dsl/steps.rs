//! A block's steps while they are recorded: each is fused with the one before it at once, where that is asked for.

use crate::passes::{Report, Step, fusion};

/// How steps that follow each other become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fuse {
    /// They stay as they are.
    Never,
    /// Where the rules allow it.
    Apart,
    /// Where the rules allow it and input and output may be one memory.
    Aliased,
}

impl Fuse {
    /// Appends a step to a list, fused with the last one where the rules allow.
    pub fn append(self, list: &mut Vec<Step>, step: Step, report: &mut Report) {
        match self {
            Fuse::Never => list.push(step),
            Fuse::Apart => fusion::push(list, step, report),
            Fuse::Aliased => fusion::push_aliased(list, step, report),
        }
    }
}

/// The steps of a block, or of an open pipeline's body.
#[derive(Debug, Default)]
pub struct Steps {
    steps: Vec<Step>,
    /// The body of the open pipeline, as far as this block has one.
    body: Option<Vec<Step>>,
}

impl Steps {
    /// Steps that a block begins with.
    pub fn beginning(steps: impl Iterator<Item = Step>) -> Self {
        Steps { steps: steps.collect(), body: None }
    }

    /// Appends a step to the open pipeline's body, or to the block.
    pub fn push(&mut self, step: Step, fuse: Fuse, report: &mut Report) {
        let list = self.body.as_mut().unwrap_or(&mut self.steps);
        fuse.append(list, step, report);
    }

    /// Begins the body of a pipeline.
    pub fn open(&mut self) {
        self.body.get_or_insert_default();
    }

    /// Whether a pipeline's body is open.
    pub fn is_open(&self) -> bool {
        self.body.is_some()
    }

    /// Ends the body of a pipeline and appends the pipeline.
    pub fn close(&mut self, unit: u64, chunks: u64, fuse: Fuse, report: &mut Report) {
        if let Some(body) = self.body.take() {
            let pipeline = Step::pipeline(unit, chunks, body);
            fuse.append(&mut self.steps, pipeline, report);
        }
    }

    /// The finished steps, which are gone from here.
    pub fn take(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    /// The finished steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}
