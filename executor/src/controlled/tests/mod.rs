//! Plans that are right pass every schedule; plans from which one thing was taken away do not.

mod algorithms;
mod faults;
mod holds;
mod real;

use super::*;
use antiphon_plan::model::Plan;
use antiphon_plan::program::CallSizes;

/// Calls of a plan whose chunks are `chunk` bytes long.
fn case(plan: &Plan, chunk: u64, launches: u32) -> Case {
    let most = |count: fn(&antiphon_plan::model::Gpu) -> u64| {
        plan.gpus.iter().map(count).max().unwrap_or(0)
    };
    let (input, output) = (most(|gpu| gpu.input_chunks), most(|gpu| gpu.output_chunks));
    // In place a plan may leave one of the counts to the other.
    let (input, output) = match (input, output) {
        // Scratch has a chunk size even where nothing else does.
        (0, 0) => (1, 1),
        (0, output) => (output, output),
        (input, 0) => (input, input),
        both => both,
    };
    let sizes =
        CallSizes { input: input * chunk, output: output * chunk, element: 4, strict: false };
    Case { sizes, in_place: plan.in_place, launches }
}

/// The first of `count` schedules from seed 1 that shows a fault of a plan.
fn fault(plan: &Plan, chunk: u64, launches: u32, count: u32) -> Option<Schedule> {
    let layout = Layout::new(plan).unwrap();
    let mut machine = Machine::new(&layout, case(plan, chunk, launches), LANES).unwrap();
    search(&mut machine, count, 1)
}

#[test]
fn impossible_calls_and_moments_are_errors_or_nothing() {
    use antiphon_plan::algorithms::{Algorithm, Shape};
    use antiphon_plan::program::Instruction;
    use antiphon_plan::schedule::{Hold, Moment};
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(2)).unwrap();
    let layout = Layout::new(&plan).unwrap();
    for (bytes, launches) in [(u64::MAX - 3, 1), (1 << 40, 1), (64, u32::MAX), (6, 1)] {
        let sizes = CallSizes { input: bytes, output: bytes, element: 4, strict: false };
        let case = Case { sizes, in_place: false, launches };
        assert!(Machine::new(&layout, case, LANES).is_err(), "{bytes} bytes, {launches} launches");
    }
    let far = |rank, block, at| {
        Actor::Threads(Moment { rank, block, launch: 9, at, iteration: u64::MAX })
    };
    let moves = layout.ranks[0].instructions.iter();
    let data = moves.into_iter().position(|i| matches!(i, Instruction::Move { .. })).unwrap();
    let actors = [far(9, 0, 0), far(0, 9, 0), far(0, 0, u32::MAX), far(0, 0, data as u32)];
    let holds = actors.map(|held| Hold { held, until: Actor::User { rank: 9, launch: 0 } });
    let schedule = Schedule::Held(holds.to_vec());
    let played = play(&layout, case(&plan, 64, 2), &schedule, &actors).unwrap();
    assert!(played.blocked.is_empty() && played.seen.iter().all(|seen| seen.read.is_empty()));
}

/// Rank 0 unpacks once more what it has unpacked, while it sums that: late stores of the same bytes are no fault.
#[test]
fn sums_read_what_was_there_before_their_own_block_met() {
    use antiphon_plan::builder::ProgramBuilder;
    use antiphon_plan::model::Collective;
    let p = ProgramBuilder::new("again", Collective::AllReduce, 2);
    let p = p.chunk_counts(1, 1).fuse(false).auto_sync(false).double_scratch(true);
    let inboxes = [0, 1].map(|rank| (p.scratch(rank, 1), p.scratch(rank, 1)));
    for me in 0..2 {
        let (tb, (packets, bytes)) = (p.block(me), &inboxes[me]);
        tb.put_packets(p.input(me).all(), inboxes[1 - me].0.all());
        tb.unpack_packets(packets.all(), bytes.all());
        tb.nop();
        tb.unpack_packets(packets.all(), bytes.all());
        tb.reduce(&[p.input(me).all(), bytes.all()], p.output(me).all());
    }
    let plan = p.build().unwrap();
    assert_eq!(fault(&plan, 192, 2, 1000), None);
}
