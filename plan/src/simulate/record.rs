//! What happened, while it happens; and the timeline that comes of it.

use super::timeline::{Arrow, LinkLoad, OpSpan, Timeline};
use crate::lower::Site;

/// No node, or no span.
const NONE: u32 = u32::MAX;

/// What happened so far.
#[derive(Clone, Debug)]
pub(super) struct Record {
    spans: Vec<OpSpan>,
    /// One execution of one instruction each; an operation may be several.
    nodes: Vec<Node>,
    /// From span to span.
    arrows: Vec<Arrow>,
    /// For each block, its latest node.
    latest: Vec<u32>,
}

/// One execution of one instruction.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// The span it is part of.
    span: u32,
    /// The node that it waited for, or else the one before it in its block.
    before: u32,
}

/// An operation that can go on now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    /// Number of the block among all ranks'.
    pub block: u32,
    /// The operation.
    pub site: Site,
    /// The iteration.
    pub iteration: u64,
    /// When the block came to it.
    pub start: f64,
    /// When it could go on.
    pub ready: f64,
    /// The node that let it go on, if that was another block's.
    pub from: Option<u32>,
    /// The node that it waited for, if it waited.
    pub cause: Option<u32>,
}

impl Record {
    pub(super) fn new(blocks: usize) -> Self {
        Record {
            spans: Vec::new(),
            nodes: Vec::new(),
            arrows: Vec::new(),
            latest: vec![NONE; blocks],
        }
    }

    /// The latest node of a block.
    pub(super) fn latest(&self, block: u32) -> Option<u32> {
        Some(self.latest[block as usize]).filter(|&node| node != NONE)
    }

    /// Begins an operation, or goes on with one that was lowered to several instructions. Returns its node.
    pub(super) fn begin(&mut self, begin: Begin) -> u32 {
        let Begin { block, site, iteration, start, ready, from, cause } = begin;
        let latest = self.latest[block as usize];
        let known = self.nodes.get(latest as usize).map(|node| node.span).filter(|&span| {
            let span = &self.spans[span as usize];
            span.site == site && span.iteration == iteration
        });
        let span = match known {
            Some(span) => {
                let known = &mut self.spans[span as usize];
                known.ready += ready - start;
                known.end = ready;
                span
            }
            None => {
                self.spans.push(OpSpan { site, iteration, start, ready, end: ready, bytes: 0 });
                self.spans.len() as u32 - 1
            }
        };
        let node = self.nodes.len() as u32;
        let before = cause.filter(|_| ready > start).unwrap_or(latest);
        self.nodes.push(Node { span, before });
        self.latest[block as usize] = node;
        if let Some(from) = from.map(|from| self.nodes[from as usize].span)
            && from != span
        {
            let arrow = Arrow { from, to: span };
            if self.arrows.last() != Some(&arrow) {
                self.arrows.push(arrow);
            }
        }
        node
    }

    /// Ends an instruction that stored this many bytes.
    pub(super) fn end(&mut self, node: u32, now: f64, bytes: u64) {
        let span = self.nodes[node as usize].span;
        let span = &mut self.spans[span as usize];
        span.end = now;
        span.bytes += bytes;
    }

    /// The timeline, with spans in order of start.
    pub(super) fn finish(self, links: Vec<LinkLoad>) -> Timeline {
        let Record { spans, nodes, mut arrows, .. } = self;
        let mut order: Vec<u32> = (0..spans.len() as u32).collect();
        let key = |number: &u32| {
            let Site { rank, tb, op, inner, .. } = spans[*number as usize].site;
            (rank, tb, op, inner, *number)
        };
        order.sort_by(|a, b| {
            let starts = spans[*a as usize].start.total_cmp(&spans[*b as usize].start);
            starts.then_with(|| key(a).cmp(&key(b)))
        });
        let mut place = vec![0; spans.len()];
        for (position, &number) in (0..).zip(&order) {
            place[number as usize] = position;
        }
        for arrow in &mut arrows {
            arrow.from = place[arrow.from as usize];
            arrow.to = place[arrow.to as usize];
        }
        arrows.sort_by_key(|arrow| (arrow.from, arrow.to));
        arrows.dedup();
        // The last to end; of those that end together the first in order of start.
        let (mut last, mut end) = (NONE, f64::NEG_INFINITY);
        for &number in &order {
            if spans[number as usize].end > end {
                (last, end) = (number, spans[number as usize].end);
            }
        }
        // Its last instruction ended it; what comes before a node has a smaller number.
        let mut node = nodes.iter().rposition(|node| node.span == last);
        let mut critical = Vec::new();
        let mut seen = vec![false; spans.len()];
        while let Some(Node { span, before }) = node.and_then(|at| nodes.get(at)).copied() {
            if !std::mem::replace(&mut seen[span as usize], true) {
                critical.push(place[span as usize]);
            }
            node = Some(before as usize);
        }
        critical.reverse();
        let spans: Vec<_> = order.iter().map(|&number| spans[number as usize]).collect();
        let end = if spans.is_empty() { 0.0 } else { end };
        Timeline { end, spans, arrows, critical, links }
    }
}
