//! What collectives with a root share: when there is anything to write, and in which order the root and the others signal,
//! wait and touch memory.

use super::common::*;
use super::meeting::*;
use crate::builder::{Block, BuildError, Channel, Chunks, ProgramBuilder};
use crate::model::Plan;

/// Builds the plan of a program. `write` adds what the ranks do if there are several, one of them the root; a lone rank
/// keeps what it has.
///
/// # Errors
/// On a root that is not a rank, and as [`ProgramBuilder::build`].
#[track_caller]
pub(super) fn rooted(
    p: ProgramBuilder,
    root: usize,
    in_place: bool,
    write: impl FnOnce(&ProgramBuilder),
) -> Result<Plan, BuildError> {
    if root >= p.ranks() {
        // This makes the builder report that there is no such rank.
        p.input(root);
        return p.build();
    }
    among(p, in_place, write)
}

/// A root and the other ranks of its node. Each function writes all that they do.
#[derive(Clone, Copy)]
pub(super) struct Star<'p> {
    p: &'p ProgramBuilder,
    root: usize,
    /// Thread blocks of each rank that share the work; 0 count as 1.
    blocks: usize,
}

/// Which thread blocks have channels to their counterparts.
#[derive(Clone, Copy)]
enum Meets {
    /// The first of each rank: enough to tell launches apart, since a launch is over when all its blocks are.
    First,
    /// Each.
    Each,
}

impl<'p> Star<'p> {
    pub fn new(p: &'p ProgramBuilder, root: usize, blocks: usize) -> Self {
        Star { p, root, blocks }
    }

    /// The root sends `part` of its memory to each other rank, which has it as its output; all as packets. Then the root does
    /// `keep`.
    ///
    /// The root hears from nobody otherwise, so the others tell it that they have begun: that keeps it from being two
    /// launches ahead, where it would overwrite packets that nobody has read. It sends first and listens then.
    pub fn root_sends_packets(self, part: impl Fn(usize) -> Chunks, keep: impl Fn(&Block<'p>)) {
        let Star { p, root, .. } = self;
        let inbox = |rank| p.scratch(rank, usize::from(rank != root));
        let inboxes: Vec<_> = (0..p.ranks()).map(inbox).collect();
        let at_root = |tb: &Block<'p>, others: &[Channel]| {
            p.peers(root).for_each(|peer| tb.put_packets(part(peer), inboxes[peer].all()));
            keep(tb);
            wait(tb, others);
        };
        self.write(Meets::First, at_root, |tb, me, to_root| {
            signal(tb, to_root);
            tb.unpack_packets(inboxes[me].all(), p.output(me).all());
        });
    }

    /// The others send their inputs to the root as packets, each into its slot; there the root collects them.
    ///
    /// The others hear from nobody otherwise, so the root tells them that it has begun: that keeps them from being
    /// two launches ahead, where they would overwrite packets that the root has not read.
    pub fn others_send_packets(self, slot: impl Fn(usize) -> Chunks, collect: impl Fn(&Block<'p>)) {
        let at_root = |tb: &Block<'p>, others: &[Channel]| {
            signal(tb, others);
            collect(tb);
        };
        self.write(Meets::First, at_root, |tb, me, to_root| {
            tb.put_packets(self.p.input(me).all(), slot(me));
            wait(tb, to_root);
        });
    }

    /// Each other rank does `transfer` from or to the root's memory, and the root `keep` in the meantime.
    pub fn others_transfer(self, keep: impl Fn(&Block<'p>), transfer: impl Fn(&Block<'p>, usize)) {
        let at_root = |tb: &Block<'p>, others: &[Channel]| {
            tb.signal_relaxed(others);
            keep(tb);
            tb.wait(others);
        };
        self.write(Meets::Each, at_root, |tb, me, to_root| {
            tb.wait_relaxed(to_root);
            transfer(tb, me);
            tb.signal(to_root);
        });
    }

    /// The root does `transfer` from and to the others' memory.
    pub fn root_transfers(self, transfer: impl Fn(&Block<'p>)) {
        let at_root = |tb: &Block<'p>, others: &[Channel]| {
            tb.wait_relaxed(others);
            transfer(tb);
            tb.signal(others);
        };
        self.write(Meets::Each, at_root, |tb, _, to_root| {
            tb.signal_relaxed(to_root);
            tb.wait(to_root);
        });
    }

    /// Writes what each thread block does: `at_root` gets the root's blocks with their channels to the others, `at_other`
    /// the blocks of each other rank with their channel to the root. Blocks that do not meet get no channels.
    fn write(
        self,
        meets: Meets,
        at_root: impl Fn(&Block<'p>, &[Channel]),
        at_other: impl Fn(&Block<'p>, usize, &[Channel]),
    ) {
        let Star { p, root, blocks } = self;
        for (index, team) in teams(p, blocks).enumerate() {
            let channels = match meets {
                Meets::First if index > 0 => Vec::new(),
                Meets::First | Meets::Each => star(p, root),
            };
            at_root(&team[root], &channels);
            for (at, me) in p.peers(root).enumerate() {
                let to_root = channels.get(at..=at).unwrap_or_default();
                at_other(&team[me], me, to_root);
            }
        }
    }
}
