//! What blocks meet at inside pipelines: signals, semaphores, barriers and port channels must meet alike in every iteration.

use super::pipelines::Search;
use crate::program::Instruction;
use std::collections::BTreeMap;

/// A thing that blocks meet at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    /// The inbound counter of a rank's channel.
    Counter(usize, u32),
    Semaphore(usize, u32),
    Barrier(usize, u32),
    /// The proxy of a rank's port channel.
    Proxy(usize, u32),
}

/// What a block does with an object: so often in this stretch of its code.
#[derive(Clone, Copy, Debug)]
struct Use {
    rank: usize,
    block: usize,
    gives: bool,
    /// The pipeline (position in `Needed::loops`), or outside of pipelines.
    pipeline: Option<usize>,
    count: u64,
    /// The first instruction that does.
    at: u32,
}

impl Search<'_> {
    /// Looks at everything that some pipeline uses.
    pub(super) fn meetings(&mut self) {
        for (object, uses) in self.uses() {
            self.object(object, &uses);
        }
    }

    /// What blocks do with the objects that some pipeline uses, in program order of each block.
    fn uses(&self) -> BTreeMap<Object, Vec<Use>> {
        let mut uses: BTreeMap<Object, Vec<Use>> = BTreeMap::new();
        let mut next = 0;
        for (rank, layout) in self.layout.ranks.iter().enumerate() {
            for (block, code) in layout.blocks.iter().enumerate() {
                let mut pipeline = None;
                for at in code.code.range() {
                    let mut note = |object, gives| {
                        let list = uses.entry(object).or_default();
                        let new = Use { rank, block, gives, pipeline, count: 1, at: at as u32 };
                        let same = |known: &&mut Use| {
                            (known.rank, known.block, known.gives) == (rank, block, gives)
                        };
                        match list.iter_mut().rev().find(same) {
                            Some(known) if known.pipeline == pipeline => known.count += 1,
                            _ => list.push(new),
                        }
                    };
                    match layout.instructions[at] {
                        Instruction::LoopBegin { .. } => {
                            pipeline = Some(next);
                            next += 1;
                        }
                        Instruction::LoopEnd { .. } => pipeline = None,
                        Instruction::Signal { channel, .. } => {
                            let end = layout.channels[channel as usize];
                            if let Some(paired) = end.paired {
                                note(Object::Counter(end.peer as usize, paired), true);
                            }
                            if end.port {
                                note(Object::Proxy(rank, channel), true);
                            }
                        }
                        Instruction::Wait { channel, .. } => {
                            note(Object::Counter(rank, channel), false)
                        }
                        Instruction::Acquire { semaphore } => {
                            note(Object::Semaphore(rank, semaphore), false);
                        }
                        Instruction::Release { semaphore } => {
                            note(Object::Semaphore(rank, semaphore), true);
                        }
                        Instruction::Barrier { barrier, .. } => {
                            note(Object::Barrier(rank, barrier), true)
                        }
                        Instruction::Post { channel, .. } | Instruction::Flush { channel } => {
                            note(Object::Proxy(rank, channel), true);
                        }
                        Instruction::Move { .. }
                        | Instruction::MoveBlock { .. }
                        | Instruction::BlockSync => {}
                    }
                }
            }
        }
        uses.retain(|_, uses| uses.iter().any(|used| used.pipeline.is_some()));
        uses
    }

    /// Checks one object: who meets whom there must be the same in every iteration.
    fn object(&mut self, object: Object, uses: &[Use]) {
        let mut blocks: BTreeMap<(bool, usize, usize), Vec<Use>> = BTreeMap::new();
        for &used in uses {
            blocks.entry((used.gives, used.rank, used.block)).or_default().push(used);
        }
        let sides: Vec<&Vec<Use>> = blocks.values().collect();
        let of = |gives: bool| sides.iter().copied().filter(move |side| side[0].gives == gives);
        let inside = *uses.iter().find(|used| used.pipeline.is_some()).unwrap_or(&uses[0]);
        let (initial, name) = match object {
            Object::Proxy(..) => {
                if sides.len() > 1 {
                    self.doubt(
                        inside.rank,
                        inside.at,
                        "several blocks post to its channel in pipelines",
                    );
                }
                return;
            }
            Object::Barrier(..) => {
                for side in &sides[1..] {
                    self.pair(0, sides[0], side, true);
                }
                return;
            }
            Object::Semaphore(rank, id) => {
                (self.layout.ranks[rank].semaphores[id as usize], ["releases", "acquires"])
            }
            Object::Counter(..) => (0, ["signals", "waits"]),
        };
        let (givers, takers): (Vec<_>, Vec<_>) = (of(true).collect(), of(false).collect());
        for (side, name) in [(&givers, name[0]), (&takers, name[1])] {
            if side.len() > 1 {
                let found = side.len();
                let problem =
                    format!("{found} blocks share its {name}, and some of them are in pipelines");
                self.doubt(inside.rank, inside.at, problem);
                return;
            }
        }
        match (&givers[..], &takers[..]) {
            ([gives], [takes]) => self.pair(initial, gives, takes, false),
            // Nobody ever signals: the first wait shows it. Nobody ever waits: that orders nothing.
            (_, []) => {}
            (_, [takes]) if initial != 0 => {
                self.doubt(
                    takes[0].rank,
                    takes[0].at,
                    "nobody releases the semaphore, which starts above or below 0",
                );
            }
            _ => {}
        }
    }

    /// Checks one block's gives against another's takes, or (`meets`) the arrivals of two blocks at a barrier.
    fn pair(&mut self, initial: i64, gives: &[Use], takes: &[Use], meets: bool) {
        let inside = |uses: &[Use]| uses.iter().find(|used| used.pipeline.is_some()).copied();
        let Some(first) = inside(takes).or(inside(gives)) else { return };
        if initial < 0 {
            self.doubt(first.rank, first.at, "its semaphore starts below 0");
            return;
        }
        let mut lead = i128::from(initial);
        let (mut gives, mut takes) = (gives.iter().peekable(), takes.iter().peekable());
        loop {
            while let Some(used) = gives.next_if(|used| used.pipeline.is_none()) {
                lead += i128::from(used.count);
            }
            while let Some(used) = takes.next_if(|used| used.pipeline.is_none()) {
                lead -= i128::from(used.count);
            }
            let (give, take) = match (gives.next(), takes.next()) {
                (None, None) => return,
                (Some(give), Some(take)) => (*give, *take),
                (give, take) => {
                    if let Some(alone) = give.or(take) {
                        self.doubt(
                            alone.rank,
                            alone.at,
                            "it is in a pipeline, and what it meets is not",
                        );
                    }
                    return;
                }
            };
            let [giver, taker] = [give, take].map(|used| used.pipeline.unwrap_or(0));
            let [one, other] = [giver, taker].map(|index| self.loops[index]);
            if (one.unit, one.chunks) != (other.unit, other.chunks) {
                let problem = format!(
                    "its pipeline has {} chunks in windows of {} bytes, and what it meets at rank {} tb {} is in one of {} in {}",
                    other.chunks, other.unit, one.rank, one.block, one.chunks, one.unit
                );
                self.doubt(take.rank, take.at, problem);
                return;
            }
            if give.count != take.count {
                let problem = format!(
                    "{} an iteration meet {} of rank {} tb {}",
                    take.count, give.count, one.rank, one.block
                );
                self.doubt(take.rank, take.at, problem);
                return;
            }
            if lead < 0 || (meets && lead != 0) {
                let problem = format!(
                    "when the pipelines begin, it is {} ahead of what it meets at rank {} tb {}",
                    lead.unsigned_abs(),
                    one.rank,
                    one.block
                );
                self.doubt(take.rank, take.at, problem);
                return;
            }
            let distance = lead.unsigned_abs().div_ceil(u128::from(give.count));
            let distance = u64::try_from(distance).unwrap_or(u64::MAX);
            let known = &mut self.loops[taker].distance;
            *known = distance.max(*known);
            self.join(giver, taker);
        }
    }
}
