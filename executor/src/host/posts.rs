//! Port channels: transfers and signals that the engine hands to a wire.

use super::{Blocked, Run, Stop, Unready, Window};
use crate::host::moves::Clip;
use antiphon_plan::program::{Area, Instruction};
use std::sync::atomic::Ordering;

/// How many instructions further a flush is looked for.
const AHEAD: usize = 16;

/// Bytes of one rank's buffer or scratch, as a transfer names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The owner.
    pub rank: u32,
    /// Which of its areas.
    pub area: Area,
    /// Byte offset in it: of packets, the image's own bytes.
    pub offset: u64,
}

/// Carries out what blocks of one rank ask of port channels. Nothing waits.
pub trait Posting {
    /// Has `bytes` bytes of this rank written to a peer, as packets or not. `false` if the link's queue is full.
    fn write(&mut self, from: Spot, to: Spot, bytes: u64) -> Result<bool, Unready>;

    /// Has the counter of channel `paired` of a peer set to `value`, after all that was written before. `false` if the
    /// link's queue is full.
    fn signal(&mut self, peer: u32, paired: u32, value: u64) -> Result<bool, Unready>;

    /// The number of things posted to a peer so far.
    fn posted(&mut self, peer: u32) -> Result<u64, Unready>;

    /// Whether as many have landed.
    fn landed(&mut self, peer: u32, posted: u64) -> Result<bool, Unready>;
}

impl Run<'_, '_, '_, '_> {
    /// Whoever steps a block of another rank cannot reach that rank's links.
    fn posting(&mut self) -> Result<&mut (dyn Posting + '_), Stop> {
        match &mut self.posting {
            Some(posting) => Ok(&mut **posting),
            None => Err(Blocked::Elsewhere.into()),
        }
    }

    /// Posts a transfer, from where an earlier step left it, in parts as moves are made.
    pub(super) fn post(
        &mut self,
        channel: u32,
        [source, destination]: [u32; 2],
        index: u32,
        window: Window,
    ) -> Result<(), Stop> {
        let program = self.stage.program;
        let sides = [source, destination].map(|side| self.layout.accesses[side as usize]);
        let segments = program.moves[index as usize];
        let first = segments.start + self.cursor.segment.load(Ordering::Relaxed);
        for number in first..segments.end {
            let segment = program.segments[number as usize];
            let Clip { start, len, padded } = Clip::new(&segment, window);
            if padded == 0 {
                continue;
            }
            let packets = sides[0].area == Area::Packets;
            let bytes = if packets { 2 * padded } else { len };
            let spot = |side: usize| {
                let offset = program.offsets[segment.offsets as usize + side] + start;
                let offset = if packets { 2 * offset } else { offset };
                Spot { rank: sides[side].rank, area: sides[side].area, offset }
            };
            if let Err(stop) = self.post_part(channel, [spot(0), spot(1)], bytes) {
                self.cursor.segment.store(number - segments.start, Ordering::Relaxed);
                return Err(stop);
            }
        }
        self.cursor.segment.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Posts `bytes` bytes, or the next part of many: over the local wire the thread that posts copies them.
    fn post_part(&mut self, channel: u32, [from, to]: [Spot; 2], bytes: u64) -> Result<(), Stop> {
        let part = self.next_part(bytes, std::iter::once(to.rank))?;
        let at = |spot: Spot| Spot { offset: spot.offset + part.start, ..spot };
        if !self.posting()?.write(at(from), at(to), part.end - part.start)? {
            return Err(Blocked::Full(channel).into());
        }
        self.end_part(part, bytes)
    }

    /// Posts a signal.
    pub(super) fn post_signal(&mut self, channel: u32) -> Result<(), Stop> {
        let end = self.layout.channels[channel as usize];
        let Some(paired) = end.paired else { return Ok(()) };
        let own = self.own;
        let sent = &own.channel(channel).sent;
        // Whoever may post for the rank holds its context, so nobody else counts meanwhile.
        let value = sent.load(Ordering::Relaxed) + 1;
        if !self.posting()?.signal(end.peer, paired, value)? {
            return Err(Blocked::Full(channel).into());
        }
        sent.store(value, Ordering::Relaxed);
        Ok(())
    }

    /// Has a channel's peer say when what was just posted has landed, if the next that the block does with the channel is to wait for
    /// that. Asked along with the post it costs no crossing of its own, and the peer answers before it is through with the launch:
    /// later nobody is there to do so but its proxy, a millisecond later.
    pub(super) fn ask_before_flush(&mut self, channel: u32, behind: &[Instruction]) {
        let flushes = |instruction: &Instruction| match *instruction {
            Instruction::Flush { channel: own } => (own == channel).then_some(true),
            Instruction::Post { channel: own, .. } | Instruction::Signal { channel: own, .. } => {
                (own == channel).then_some(false)
            }
            _ => None,
        };
        if behind.iter().take(AHEAD).find_map(flushes) != Some(true) {
            return;
        }
        let peer = self.layout.channels[channel as usize].peer;
        // What is wrong with the link shows where it is waited for.
        if let Ok(posting) = self.posting() {
            let _ = posting.posted(peer).and_then(|posted| posting.landed(peer, posted));
        }
    }

    /// Waits until all that was posted to a channel's peer has landed.
    pub(super) fn flush(&mut self, channel: u32) -> Result<(), Stop> {
        let peer = self.layout.channels[channel as usize].peer;
        let posted = self.posting()?.posted(peer)?;
        let target = self.enter(|_| posted as i64);
        let landed = self.posting()?.landed(peer, target as u64)?;
        self.leave(landed, Blocked::Flush(channel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::moves::Pad;
    use crate::host::table::{Place, Table};
    use crate::host::tests::Nowhere;
    use crate::host::{Stage, Step, step};
    use crate::shared::arena::{Arena, ArenaShape};
    use antiphon_plan::builder::{Block, Channel, ProgramBuilder};
    use antiphon_plan::model::Collective;
    use antiphon_plan::program::{CallSizes, Layout};
    use antiphon_types::DataType;

    /// Takes a number of posts, then is full until it is asked again.
    #[derive(Default)]
    struct Fake {
        room: usize,
        writes: Vec<(Spot, Spot, u64)>,
        signals: Vec<(u32, u32, u64)>,
        landed: u64,
        asked: Vec<u64>,
    }

    impl Fake {
        fn takes(&mut self) -> bool {
            let room = self.room > 0;
            self.room = self.room.saturating_sub(1);
            room
        }
    }

    impl Posting for Fake {
        fn write(&mut self, from: Spot, to: Spot, bytes: u64) -> Result<bool, Unready> {
            let takes = self.takes();
            if takes {
                self.writes.push((from, to, bytes));
            }
            Ok(takes)
        }
        fn signal(&mut self, peer: u32, paired: u32, value: u64) -> Result<bool, Unready> {
            let takes = self.takes();
            if takes {
                self.signals.push((peer, paired, value));
            }
            Ok(takes)
        }
        fn posted(&mut self, _: u32) -> Result<u64, Unready> {
            Ok((self.writes.len() + self.signals.len()) as u64)
        }
        fn landed(&mut self, _: u32, posted: u64) -> Result<bool, Unready> {
            self.asked.push(posted);
            Ok(self.landed >= posted)
        }
    }

    /// What rank 0 of two does with its port is written by `say`, and whether the other answers; steps the block, with a fake or without.
    fn with_port(
        bytes: u64,
        answers: bool,
        say: impl Fn(&Block<'_>, &ProgramBuilder, Channel),
        check: impl FnOnce(&mut dyn FnMut(Option<&mut dyn Posting>) -> Step),
    ) {
        let program = ProgramBuilder::new("posts", Collective::SendRecv, 2).chunk_counts(2, 2);
        let port = program.port(0, 1);
        say(&program.block(0), &program, port);
        let other = program.block(1);
        other.wait(&[port]);
        if answers {
            other.signal(&[port]);
        }
        let layout = Layout::new(&program.build().unwrap()).unwrap();
        let sizes = CallSizes { input: bytes, output: bytes, element: 4, strict: false };
        let lowered = layout.program(0, sizes).unwrap();
        let shape = ArenaShape::new(&layout.ranks[0], 0, false, false).unwrap();
        let mut memory = vec![[0u128; 8]; shape.bytes as usize / 128 + 2];
        let start = memory.as_mut_ptr().cast::<u8>();
        let start = start.wrapping_add(start.align_offset(128));
        // SAFETY: zeroed, aligned, longer than the shape, and alive to the end of the test.
        let arena = unsafe { Arena::initialise(start, shape, &layout.ranks[0]) };
        let arenas = [Some(arena), None];
        let stage = Stage {
            rank: 0,
            layout: &layout,
            program: &lowered,
            arenas: &arenas,
            flag: 1 << 8,
            dtype: DataType::F32,
            reduce: None,
            patience: 0,
        };
        let (mut places, mut resolve, mut pad) =
            ([[Place::Unknown; 2]; 2], Nowhere, Pad::default());
        let mut table = Table::new(&mut places, &mut resolve);
        check(&mut |posting| {
            // SAFETY: nobody else steps the block; its accesses all go to the fake.
            unsafe { step(&stage, 0, &mut table, &mut pad, posting) }
        });
    }

    #[test]
    fn posts_go_on_where_a_full_link_stopped_them_and_a_flush_waits_for_what_landed() {
        let say = |block: &Block<'_>, program: &ProgramBuilder, port: Channel| {
            let (from, to) = (program.input(0).all(), program.output(1).all());
            block.put_with_signal_and_flush(&port, from, to);
        };
        with_port(64, false, say, |run| {
            let mut fake = Fake::default();
            assert_eq!(run(None), Step::Blocked(Blocked::Elsewhere));
            assert_eq!(run(Some(&mut fake)), Step::Blocked(Blocked::Full(0)));
            fake.room = 1;
            assert_eq!(run(Some(&mut fake)), Step::Blocked(Blocked::Full(0)));
            fake.room = 1;
            assert_eq!(run(Some(&mut fake)), Step::Blocked(Blocked::Flush(0)));
            let spot = |rank, area| Spot { rank, area, offset: 0 };
            assert_eq!(fake.writes, [(spot(0, Area::Input), spot(1, Area::Output), 64)]);
            assert_eq!(fake.signals, [(1, 0, 1)]);
            fake.landed = 2;
            assert_eq!(run(Some(&mut fake)), Step::Done);
        });
    }

    /// Over the local wire a post is a copy, which is not to go on for seconds once its peer has given up.
    #[test]
    fn a_long_post_is_made_in_parts_and_its_signal_comes_behind_the_last() {
        const PART: u64 = 16 << 20;
        const BYTES: u64 = 40 << 20;
        let say = |block: &Block<'_>, program: &ProgramBuilder, port: Channel| {
            let (from, to) = (program.input(0).all(), program.output(1).all());
            block.put_with_signal_and_flush(&port, from, to);
        };
        with_port(BYTES + 12, false, say, |run| {
            let mut fake = Fake { room: 2, ..Fake::default() };
            assert_eq!(run(Some(&mut fake)), Step::Paused);
            assert_eq!(run(Some(&mut fake)), Step::Paused);
            for _ in 0..2 {
                assert_eq!(run(Some(&mut fake)), Step::Blocked(Blocked::Full(0)));
            }
            assert_eq!(fake.signals, []);
            fake.room = 2;
            assert_eq!(run(Some(&mut fake)), Step::Blocked(Blocked::Flush(0)));
            let parts = [(0, PART), (PART, PART), (2 * PART, BYTES + 12 - 2 * PART)];
            assert_eq!(parts_of(&fake.writes), parts);
            assert_eq!(fake.signals, [(1, 0, 1)]);
        });
    }

    /// Packets among them are written whole.
    #[test]
    fn parts_of_posts_end_where_units_of_packets_do() {
        const PART: u64 = 16 << 20;
        let say = |block: &Block<'_>, program: &ProgramBuilder, port: Channel| {
            for half in 0..2 {
                block.put_over(&port, program.input(0).chunk(half), program.output(1).chunk(half));
            }
            block.signal(&[port]);
        };
        let half = PART + 4;
        with_port(2 * half, false, say, |run| {
            let mut fake = Fake { room: 5, ..Fake::default() };
            assert_eq!(run(Some(&mut fake)), Step::Paused);
            assert_eq!(run(Some(&mut fake)), Step::Paused);
            assert_eq!(run(Some(&mut fake)), Step::Done);
            let second = PART - 8;
            let parts = [(0, PART), (PART, 4), (half, second), (half + second, half - second)];
            assert_eq!(parts_of(&fake.writes), parts);
        });
    }

    /// Where in both buffers what was written lies, and how long it is.
    fn parts_of(writes: &[(Spot, Spot, u64)]) -> Vec<(u64, u64)> {
        let part = |&(from, to, bytes): &(Spot, Spot, u64)| {
            assert_eq!(from.offset, to.offset);
            (from.offset, bytes)
        };
        writes.iter().map(part).collect()
    }

    #[test]
    fn what_a_flush_will_wait_for_is_asked_with_the_last_post_before_it() {
        let said = |flushes: bool| {
            move |block: &Block<'_>, program: &ProgramBuilder, port: Channel| {
                block.put_over(&port, program.input(0).all(), program.output(1).all());
                block.signal(&[port]);
                block.wait(&[port]);
                if flushes {
                    block.flush(&[port]);
                }
            }
        };
        for (flushes, asked) in [(true, vec![2]), (false, vec![])] {
            with_port(64, true, said(flushes), |run| {
                let mut fake = Fake { room: 2, ..Fake::default() };
                assert_eq!(run(Some(&mut fake)), Step::Blocked(Blocked::Signal(0)));
                assert_eq!(fake.asked, asked);
            });
        }
    }
}
