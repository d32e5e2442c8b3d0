//! Which parts of a rank's buffers peers touch, and which it touches itself.
//!
//! Where the two are apart, staging plain memory needs to copy only what peers touch; the rank's own operations go to
//! the caller's buffers directly.

use crate::plan_cache::Sized;
use crate::uses::sides;
use antiphon_plan::program::{Area, Instruction, Layout};

/// A byte range of the input or the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touch {
    /// Of the output; else of the input.
    pub output: bool,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// Everything that a call touches of one rank's buffers, each list sorted and without overlaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touches {
    /// What other ranks and wires read.
    pub remote_reads: Vec<Touch>,
    /// What other ranks and wires write.
    pub remote_writes: Vec<Touch>,
    local_reads: Vec<Touch>,
    local_writes: Vec<Touch>,
}

impl Touches {
    /// What all ranks touch of `rank`'s buffers at these sizes; `None` if the call cannot be lowered for some rank, and
    /// for plans with runtime sizes: what peers touch is theirs to say.
    pub fn new(layout: &Layout, sized: &Sized, rank: u32) -> Option<Self> {
        if layout.runtime_sizes {
            return None;
        }
        let mut touches = Touches::default();
        for (actor, own) in (0..).zip(&layout.ranks) {
            let program = sized.program(layout, actor).ok()?;
            for instruction in &own.instructions {
                let index = match *instruction {
                    Instruction::Move { index, .. } | Instruction::Post { index, .. } => index,
                    _ => continue,
                };
                // A wire works on what the peers see, also for the rank that posts.
                let near = actor == rank && !matches!(instruction, Instruction::Post { .. });
                for segment in &program.segments[program.moves[index as usize].range()] {
                    let (reads, writes) = sides(own, instruction);
                    let reads = reads.map(|access| (access, false));
                    let all = reads.chain(writes.map(|access| (access, true)));
                    for (position, (access, written)) in all.enumerate() {
                        let buffer = matches!(access.area, Area::Input | Area::Output);
                        if access.rank != rank || !buffer || segment.len == 0 {
                            continue;
                        }
                        let start = program.offsets[segment.offsets as usize + position];
                        let output = access.area == Area::Output;
                        let touch = Touch { output, start, end: start + segment.len };
                        let list = match (near, !written) {
                            (true, true) => &mut touches.local_reads,
                            (true, false) => &mut touches.local_writes,
                            (false, true) => &mut touches.remote_reads,
                            (false, false) => &mut touches.remote_writes,
                        };
                        list.push(touch);
                    }
                }
            }
        }
        for list in [
            &mut touches.remote_reads,
            &mut touches.remote_writes,
            &mut touches.local_reads,
            &mut touches.local_writes,
        ] {
            merge(list);
        }
        Some(touches)
    }

    /// Whether every byte of an output of this length is written.
    pub fn write_all(&self, bytes: u64) -> bool {
        let mut written: Vec<Touch> = self.remote_writes.clone();
        written.extend(&self.local_writes);
        written.retain(|touch| touch.output);
        merge(&mut written);
        matches!(written[..], [Touch { start: 0, end, .. }] if end >= bytes)
    }

    /// Whether peers may work on a copy while the rank works on the caller's buffers at these addresses: nobody writes
    /// what the other side touches.
    pub fn separable(&self, input: usize, output: usize) -> bool {
        let apart = |some: &[Touch], others: &[Touch]| {
            let place = |touch: &Touch| {
                let base = if touch.output { output } else { input } as u64;
                (base + touch.start, base + touch.end)
            };
            some.iter().map(place).all(|(start, end)| {
                others.iter().map(place).all(|(from, to)| end <= from || to <= start)
            })
        };
        apart(&self.remote_writes, &self.local_reads)
            && apart(&self.remote_writes, &self.local_writes)
            && apart(&self.remote_reads, &self.local_writes)
    }
}

/// Sorts ranges and joins those that meet.
fn merge(list: &mut Vec<Touch>) {
    list.sort_unstable();
    list.dedup_by(|next, last| {
        let joined = last.output == next.output && next.start <= last.end;
        if joined {
            last.end = last.end.max(next.end);
        }
        joined
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(output: bool, start: u64, end: u64) -> Touch {
        Touch { output, start, end }
    }

    #[test]
    fn ranges_that_meet_are_joined() {
        let mut list =
            vec![touch(false, 8, 12), touch(true, 0, 4), touch(false, 0, 8), touch(false, 2, 3)];
        merge(&mut list);
        assert_eq!(list, [touch(false, 0, 12), touch(true, 0, 4)]);
    }

    #[test]
    fn an_output_is_written_whole_by_all_together() {
        let writes = |remote: (u64, u64), local: (bool, u64, u64)| Touches {
            remote_writes: vec![touch(true, remote.0, remote.1)],
            local_writes: vec![touch(local.0, local.1, local.2)],
            ..Touches::default()
        };
        let cases = [
            (writes((0, 8), (true, 8, 16)), true),
            (writes((4, 16), (true, 0, 4)), true),
            (writes((0, 8), (true, 9, 16)), false),
            (writes((1, 8), (true, 8, 16)), false),
            (writes((0, 8), (false, 8, 16)), false),
            (writes((0, 17), (false, 0, 1)), true),
        ];
        for (touches, whole) in cases {
            assert_eq!(touches.write_all(16), whole, "{touches:?}");
        }
        assert!(!Touches::default().write_all(16));
    }

    #[test]
    fn buffers_that_share_memory_are_separable_where_the_ranges_are_apart() {
        let halves = |own: (u64, u64), theirs: (u64, u64)| Touches {
            remote_reads: vec![touch(false, theirs.0, theirs.1)],
            remote_writes: vec![touch(true, theirs.0, theirs.1)],
            local_reads: vec![touch(false, own.0, own.1)],
            local_writes: vec![touch(true, own.0, own.1)],
        };
        let apart = halves((0, 8), (8, 16));
        let crossed = halves((0, 9), (8, 16));
        let (one, other) = (0x1000, 0x2000);
        assert!(apart.separable(one, one) && apart.separable(one, other));
        assert!(!crossed.separable(one, one) && !crossed.separable(one, other));
        // In place at a distance: the peer writes output bytes that are the rank's input.
        assert!(!apart.separable(one, one - 8));
    }
}
