//! Numbers for everything that is drawn: lanes, operations, spans.

use super::Picture;
use crate::lower::Site;
use crate::model::{Gpu, Op, OpKind, ThreadBlock};
use crate::simulate::OpSpan;

/// One block of one rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane<'a> {
    pub(super) rank: u32,
    pub(super) tb: u32,
    pub(super) gpu: &'a Gpu,
    pub(super) block: &'a ThreadBlock,
    /// Number of the lane's first operation.
    pub(super) first_op: u32,
    /// Number of operations, those inside pipelines included.
    pub(super) ops: u32,
    /// Position of the lane's first span in [`Scene::spans`], and one past its last.
    pub(super) spans: (u32, u32),
}

/// An operation with the names it goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub(super) op: &'a Op,
    pub(super) at: u32,
    pub(super) inner: Option<u32>,
}

/// A picture with everything in the order in which it is drawn.
pub(super) struct Scene<'a> {
    pub(super) lanes: Vec<Lane<'a>>,
    /// Lane after lane, the operations inside a pipeline after it.
    pub(super) ops: Vec<Named<'a>>,
    /// Lane after lane by time, each with the number of its operation. Spans of whole pipelines are left out: their
    /// bodies are there.
    pub(super) spans: Vec<(u32, &'a OpSpan)>,
    /// Positions in `spans`, earlier one first.
    pub(super) arrows: Vec<(u32, u32)>,
    /// Positions in `spans`, by time.
    pub(super) critical: Vec<u32>,
    /// For each rank, the number of its first lane; one more at the end.
    rank_lanes: Vec<u32>,
    /// For each lane, the numbers of the block's own operations, without those inside pipelines.
    outer: Vec<Vec<u32>>,
}

impl<'a> Scene<'a> {
    pub(super) fn new(picture: &Picture<'a>) -> Self {
        let mut scene = Scene {
            lanes: Vec::new(),
            ops: Vec::new(),
            spans: Vec::new(),
            arrows: Vec::new(),
            critical: Vec::new(),
            rank_lanes: Vec::new(),
            outer: Vec::new(),
        };
        for (rank, gpu) in (0..).zip(&picture.plan.gpus) {
            scene.rank_lanes.push(scene.lanes.len() as u32);
            for (tb, block) in (0..).zip(&gpu.threadblocks) {
                let first_op = scene.ops.len() as u32;
                let mut outer = Vec::with_capacity(block.ops.len());
                for (at, op) in (0..).zip(&block.ops) {
                    outer.push(scene.ops.len() as u32);
                    scene.ops.push(Named { op, at, inner: None });
                    for (inner, op) in (0..).zip(op.pipeline.iter().flat_map(|body| &body.ops)) {
                        scene.ops.push(Named { op, at, inner: Some(inner) });
                    }
                }
                let ops = scene.ops.len() as u32 - first_op;
                scene.lanes.push(Lane { rank, tb, gpu, block, first_op, ops, spans: (0, 0) });
                scene.outer.push(outer);
            }
        }
        scene.rank_lanes.push(scene.lanes.len() as u32);
        scene.place_spans(picture);
        scene
    }

    fn place_spans(&mut self, picture: &Picture<'a>) {
        let timeline = picture.timeline;
        let mut placed: Vec<(u32, u32, u32)> = Vec::with_capacity(timeline.spans.len());
        for (position, span) in (0..).zip(&timeline.spans) {
            let found = self.lane(span.site.rank, span.site.tb).zip(self.op(&span.site));
            if let Some((lane, op)) = found.filter(|_| span.site.kind != OpKind::Pipeline) {
                placed.push((lane, position, op));
            }
        }
        placed.sort_by(|a, b| {
            let start = |at: u32| timeline.spans[at as usize].start;
            a.0.cmp(&b.0).then(start(a.1).total_cmp(&start(b.1))).then(a.1.cmp(&b.1))
        });
        let mut moved = vec![None; timeline.spans.len()];
        for (new, &(lane, old, op)) in (0u32..).zip(&placed) {
            moved[old as usize] = Some(new);
            self.spans.push((op, &timeline.spans[old as usize]));
            let range = &mut self.lanes[lane as usize].spans;
            if range.1 == 0 {
                range.0 = new;
            }
            range.1 = new + 1;
        }
        let to_new = |old: u32| moved.get(old as usize).copied().flatten();
        let arrows = timeline.arrows.iter();
        self.arrows = arrows.filter_map(|a| to_new(a.from).zip(to_new(a.to))).collect();
        self.critical = timeline.critical.iter().filter_map(|&old| to_new(old)).collect();
    }

    /// The number of a block's lane.
    pub(super) fn lane(&self, rank: u32, tb: u32) -> Option<u32> {
        let first = *self.rank_lanes.get(rank as usize)?;
        let end = *self.rank_lanes.get(rank as usize + 1)?;
        first.checked_add(tb).filter(|&lane| lane < end)
    }

    /// The number of an operation.
    pub(super) fn op(&self, site: &Site) -> Option<u32> {
        self.op_at(site.rank, site.tb, site.op, site.inner)
    }

    /// The number of the operation at this place.
    pub(super) fn op_at(&self, rank: u32, tb: u32, at: u32, inner: Option<u32>) -> Option<u32> {
        let lane = self.lane(rank, tb)? as usize;
        let outer = *self.outer[lane].get(at as usize)?;
        let number = match inner {
            None => outer,
            Some(inner) => outer.checked_add(1)?.checked_add(inner)?,
        };
        let named = self.ops.get(number as usize)?;
        (named.at == at && named.inner == inner).then_some(number)
    }
}
