//! What a step leaves for other threads and processes, and what it finds of them.

use super::table::{Place, Resolve};
use super::*;
use crate::shared::arena::ArenaShape;
use antiphon_plan::builder::ProgramBuilder;
use antiphon_plan::model::Collective;
use antiphon_plan::program::CallSizes;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::process::{Command, Stdio};

/// Knows of no buffers, and that all ranks have come.
pub(super) struct Nowhere;

impl Resolve for Nowhere {
    fn resolve(&mut self, rank: u32) -> Result<[Place; 2], Unready> {
        Err(Unready::Blocked(Blocked::Entry(rank)))
    }

    fn agree(&mut self, _: u32) -> Result<(), Unready> {
        Ok(())
    }

    fn has_given_up(&self, _: u32) -> bool {
        false
    }
}

/// Two ranks in their first launch, with 64 bytes of input and as many of output.
struct Ranks {
    layout: Layout,
    programs: Vec<Program>,
    arenas: Vec<Option<Arena>>,
    /// What the arenas are in.
    _memory: Vec<Vec<[u128; 8]>>,
}

impl Ranks {
    fn new(program: ProgramBuilder) -> Ranks {
        let layout = Layout::new(&program.build().unwrap()).unwrap();
        let sizes = CallSizes { input: 64, output: 64, element: 4, strict: false };
        let programs = (0..2).map(|rank| layout.program(rank, sizes).unwrap()).collect();
        let shapes = layout.ranks.iter().map(|own| ArenaShape::new(own, 0, false, false).unwrap());
        let shapes: Vec<ArenaShape> = shapes.collect();
        let lines = shapes.iter().map(|shape| shape.bytes as usize / 128 + 2);
        let mut memory: Vec<_> = lines.map(|lines| vec![[0u128; 8]; lines]).collect();
        let arenas =
            memory.iter_mut().zip(shapes).zip(&layout.ranks).map(|((lines, shape), own)| {
                let start = lines.as_mut_ptr().cast::<u8>();
                let start = start.wrapping_add(start.align_offset(128));
                // SAFETY: zeroed, aligned, longer than the shape, and kept beside the arena.
                Some(unsafe { Arena::initialise(start, shape, own) })
            });
        let arenas = arenas.collect();
        Ranks { layout, programs, arenas, _memory: memory }
    }

    /// Steps a block of a rank, with every rank's buffers at these places.
    ///
    /// # Safety
    /// Nobody else steps it meanwhile, and its moves stay inside what is there.
    unsafe fn step(&self, rank: u32, block: u32, mut places: [[Place; 2]; 2]) -> Step {
        let stage = Stage {
            rank,
            layout: &self.layout,
            program: &self.programs[rank as usize],
            arenas: &self.arenas,
            flag: 1 << 8,
            dtype: DataType::F32,
            reduce: None,
            patience: 0,
        };
        let (mut resolve, mut pad) = (Nowhere, Pad::default());
        let mut table = Table::new(&mut places, &mut resolve);
        // SAFETY: as this function's.
        unsafe { step(&stage, block, &mut table, &mut pad, None) }
    }
}

const UNKNOWN: [[Place; 2]; 2] = [[Place::Unknown; 2]; 2];

/// Bytes that are no atomics, as buffers are not.
struct Plain(UnsafeCell<u64>);

// SAFETY: whoever reads it has waited for the signal of who wrote it.
unsafe impl Sync for Plain {}

/// Miri finds the race where it does not; see the step of CI that runs it.
#[test]
fn what_was_written_before_a_signal_is_there_behind_its_wait() {
    // A lone signaller stores the count, and one of several adds to it.
    for signallers in 1..3 {
        let program = ProgramBuilder::new("signal", Collective::SendRecv, 2);
        let link = [program.channel(0, 1)];
        let waiter = program.block(0);
        for _ in 0..signallers {
            program.block(1).signal(&link);
            waiter.wait(&link);
        }
        let ranks = Ranks::new(program);
        let single = ranks.layout.ranks[1].channels.iter().any(|end| end.single_signaller);
        assert_eq!(single, signallers == 1);
        let plain = Plain(UnsafeCell::new(0));
        let (ranks, plain) = (&ranks, &plain);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // SAFETY: the other thread reads it when it has waited for the signal that comes next.
                unsafe { *plain.0.get() = 7 };
                for block in 0..signallers {
                    // SAFETY: only this thread steps rank 1, whose blocks move nothing.
                    assert_eq!(unsafe { ranks.step(1, block, UNKNOWN) }, Step::Done);
                }
            });
            // SAFETY: only this thread steps rank 0, whose block moves nothing.
            while unsafe { ranks.step(0, 0, UNKNOWN) } != Step::Done {
                std::thread::yield_now();
            }
            // SAFETY: it was written before the signals that this thread has waited for.
            assert_eq!(unsafe { *plain.0.get() }, 7);
        });
    }
}

/// What becomes of the launch is said by whoever finds out of what the process died.
#[test]
#[cfg_attr(miri, ignore = "starts a process, and reaches into it")]
fn a_process_that_has_died_is_no_fault_of_the_move_that_reaches_into_it() {
    let program = ProgramBuilder::new("get", Collective::SendRecv, 2);
    program.block(0).get(program.input(1).all(), program.output(0).all());
    let ranks = Ranks::new(program);
    let mut child =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id().cast_signed();
    let mut output = [0u64; 8];
    let here = Place::Here(output.as_mut_ptr().cast());
    let there = Place::Process { pid, address: 8 };
    // SAFETY: nobody else steps the block; the output is as long as the launch says, and the kernel refuses what is not there.
    let step = || unsafe { ranks.step(0, 0, [[Place::Unknown, here], [there; 2]]) };
    let fault = Fault::Reach { peer: 1, what: "read", errno: libc::EFAULT };
    assert_eq!(step(), Step::Failed(fault), "of one that lives");
    drop(child.stdin.take());
    // Not reaped: its number is nobody else's yet.
    let mut died = MaybeUninit::uninit();
    let flags = libc::WEXITED | libc::WNOWAIT;
    // SAFETY: `died` has room for what the kernel says.
    let waited = unsafe { libc::waitid(libc::P_PID, child.id(), died.as_mut_ptr(), flags) };
    assert_eq!(waited, 0);
    assert_eq!(step(), Step::Blocked(Blocked::Mapping(1)));
    child.wait().unwrap();
}
