//! Plans with runtime sizes: how they are written, read, checked, lowered and interpreted.

use antiphon_plan::algorithms::{Handshake, Shape, allgatherv, allreduce, alltoallv};
use antiphon_plan::builder::ProgramBuilder;
use antiphon_plan::counts::{Counts, CountsError, Extent, Side};
use antiphon_plan::dsl::{On, Program, Settings, Transfer};
use antiphon_plan::interpret::{InterpretError, Interpreter, Memory};
use antiphon_plan::model::*;
use antiphon_plan::passes::DataSync;
use antiphon_plan::program::{CallSizes, Instruction, Layout};
use antiphon_plan::{Dialect, ReduceOp, Style, check, pairing, read, write};
use proptest::prelude::*;

const MEETINGS: [Handshake; 2] = [Handshake::Everyone, Handshake::Hub];

fn exchange(ranks: usize) -> Plan {
    alltoallv::zero_copy(Shape::new(ranks)).unwrap()
}

/// Every built-in plan of this many ranks.
fn built_in(ranks: usize) -> Vec<Plan> {
    let mut plans = Vec::new();
    for blocks in [1, 3] {
        for handshake in MEETINGS {
            plans.push(
                alltoallv::zero_copy(Shape { blocks, handshake, ..Shape::new(ranks) }).unwrap(),
            );
            for in_place in [false, true] {
                plans.push(
                    allgatherv::zero_copy(Shape {
                        in_place,
                        blocks,
                        handshake,
                        ..Shape::new(ranks)
                    })
                    .unwrap(),
                );
            }
        }
    }
    plans
}

fn text(plan: &Plan, style: Style) -> String {
    let mut out = Vec::new();
    write(plan, style, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn an_alltoallv_reads_like_this() {
    insta::assert_snapshot!(text(&exchange(2), Style::Pretty));
}

#[test]
fn built_in_plans_are_sound_and_read_back() {
    for ranks in [1, 2, 3, 5] {
        for plan in built_in(ranks) {
            check(&plan).unwrap_or_else(|faults| panic!("{}: {faults}", plan.name));
            assert_eq!(pairing(&plan), [], "{}", plan.name);
            for style in [Style::Pretty, Style::Compact] {
                let found = read(text(&plan, style).as_bytes()).unwrap();
                assert_eq!((found.dialect, &found.plan), (Dialect::Current, &plan));
            }
        }
    }
    assert!(alltoallv::zero_copy(Shape::new(0)).is_err());
    assert!(allgatherv::zero_copy(Shape::new(0)).is_err());
    let fixed = text(&allreduce::ring(Shape::new(3)).unwrap(), Style::Compact);
    assert!(!fixed.contains("extensions"), "plans of the original format stay as they were");
}

#[test]
fn readers_that_do_not_know_the_extension_refuse_it() {
    let whole = text(&exchange(2), Style::Compact);
    let extension = r#""extensions":{"runtime_sizes":1},"#;
    assert!(whole.contains(extension), "{whole}");
    // It comes before the ranks, so that who does not know it does not get as far as an operation.
    assert!(whole.find(extension) < whole.find("\"gpus\""));
    // A reader of the original format skips the key. No operation that it knows then touches a block.
    let original = ["copy", "put", "get", "pws", "pwsf", "ppkt", "cpkt", "re", "res", "rre"];
    for name in original {
        assert!(!whole.contains(&format!("\"name\":\"{name}\"")), "{name}");
    }
    let skipped = read(whole.replace(extension, "").as_bytes()).unwrap().plan;
    let faults = check(&skipped).unwrap_err().to_string();
    assert!(faults.contains("saw vput in a plan without runtime sizes"), "{faults}");

    let cases = [
        (
            r#"{"runtime_sizes":2}"#,
            "at extensions.runtime_sizes: saw version 2 of the extension, allowed 1",
        ),
        (r#"{"runtime_sizes":0}"#, "at extensions.runtime_sizes: saw version 0"),
        (
            r#"{"runtime_sizes":"1"}"#,
            "at extensions.runtime_sizes: saw string \"1\", allowed an integer",
        ),
        (r#"{"runtime_sizes":1,"runtime_sizes":1}"#, "saw this key twice"),
        (
            r#"{"warp":1,"runtime_sizes":1}"#,
            "at extensions: saw extension `warp`, allowed `runtime_sizes`",
        ),
        (r#"["runtime_sizes"]"#, "at extensions: saw a list, allowed an object"),
        ("1", "at extensions: saw integer `1`, allowed an object"),
    ];
    for (value, word) in cases {
        let changed = whole.replace(extension, &format!("\"extensions\":{value},"));
        let error = read(changed.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(word), "no `{word}` in: {error}");
    }
    let version = whole.replace(extension, r#""extensions":{"runtime_sizes":2},"#);
    let error = read(version.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("use a newer version"), "{error}");
    let none = whole.replace(extension, r#""extensions":{},"#);
    assert!(!read(none.as_bytes()).unwrap().plan.runtime_sizes);
}

fn op(plan: &mut Plan, kind: OpKind) -> &mut Op {
    let ops = &mut plan.gpus[0].threadblocks[0].ops;
    ops.iter_mut().find(|op| op.kind == kind).expect("the plan has one")
}

#[test]
fn check_finds_what_does_not_go_with_runtime_sizes() {
    use OpKind::{CopyBlocks, PutBlocks};
    type Change = fn(&mut Plan);
    let changes: &[(&str, Change)] = &[
        ("no extension", |p| p.runtime_sizes = false),
        ("a collective of equal blocks", |p| p.collective = Collective::AllToAll),
        ("a least size", |p| p.min_message_size = 1),
        ("a largest size", |p| p.max_message_size = 1 << 20),
        ("scratch", |p| p.gpus[1].scratch_chunks = 2),
        ("too many blocks", |p| p.gpus[1].input_chunks = 1 << 32),
        ("a put of chunks", |p| op(p, PutBlocks).kind = OpKind::Put),
        ("a reduction", |p| op(p, CopyBlocks).kind = OpKind::Reduce),
        ("a pipeline", |p| {
            let body = Op::new(OpKind::Nop);
            let op = op(p, CopyBlocks);
            let pipeline = Pipeline { unit_size: 16, num_chunks: 1, ops: vec![op.clone(), body] };
            *op = Op { pipeline: Some(pipeline), ..Op::new(OpKind::Pipeline) };
        }),
        ("a run of blocks", |p| {
            let op = op(p, PutBlocks);
            (op.src[0].index, op.src[0].size, op.dst[0].size) = (0, 2, 2);
        }),
        ("no block", |p| (op(p, CopyBlocks).src[0].size, op(p, CopyBlocks).dst[0].size) = (0, 0)),
        ("a block that is not there", |p| op(p, PutBlocks).src[0].index = 2),
        ("a peer's block that is not there", |p| op(p, PutBlocks).dst[0].index = 7),
        ("a block of scratch", |p| {
            op(p, CopyBlocks).src[0].base = RefBase::Local(Buffer::Scratch);
        }),
        ("a block of an input written", |p| {
            op(p, CopyBlocks).dst[0].base = RefBase::Local(Buffer::Input);
        }),
        ("a put to oneself", |p| op(p, PutBlocks).dst[0].base = RefBase::Local(Buffer::Output)),
        ("two sources", |p| {
            let again = op(p, PutBlocks).src[0];
            op(p, PutBlocks).src.push(again);
        }),
        ("over a port", |p| op(p, PutBlocks).channel_type = ChannelType::Port),
        ("a slice that is none", |p| {
            op(p, PutBlocks).group = Some(GroupSlice { tb_id: 2, tbg_size: 2 });
        }),
    ];
    let mut all = String::new();
    for (name, change) in changes {
        let mut plan = exchange(2);
        change(&mut plan);
        all += &format!("{name}\n");
        let faults = check(&plan).expect_err(name);
        faults.as_slice().iter().for_each(|fault| all += &format!("  {fault}\n"));
        // What check was not asked about, lowering must survive.
        let _ = Layout::new(&plan).map(|layout| {
            layout.program(0, CallSizes { input: 8, output: 8, element: 4, strict: false })
        });
    }
    insta::assert_snapshot!(all);
}

#[test]
fn lowering_needs_no_sizes() {
    for plan in built_in(3) {
        let layout = Layout::new(&plan).unwrap();
        let program = |rank, input, output, element, strict| {
            layout.program(rank, CallSizes { input, output, element, strict }).unwrap()
        };
        for rank in 0..3 {
            let first = program(rank, 0, 0, 1, false);
            assert_eq!(first, program(rank, 12, 1 << 40, 4, true));
            assert_eq!(first.scratch_bytes, 0);
            let own = &layout.ranks[rank as usize];
            assert_eq!(own.runtime_blocks[1], 3);
            assert_eq!(own.buffer_peers.len(), 2);
            let moves = own.instructions.iter();
            let moves = moves.filter(|i| matches!(i, Instruction::MoveBlock { .. })).count();
            assert_eq!(moves, own.block_moves.len());
        }
    }
    // The property alone makes another plan.
    let mut plan = exchange(2);
    plan.gpus.iter_mut().for_each(|gpu| gpu.threadblocks.clear());
    let with = Layout::new(&plan).unwrap().fingerprint;
    plan.runtime_sizes = false;
    assert_ne!(with, Layout::new(&plan).unwrap().fingerprint);
}

/// A value that says where it is from: launch, sender, receiver, position.
fn value(launch: usize, from: usize, to: usize, at: u64) -> i128 {
    ((launch * 100 + from) * 100 + to) as i128 * 1_000_000_007 + i128::from(at)
}

/// Blocks of these lengths, each after a gap.
fn spread(counts: &[u64], gaps: &[u64]) -> (Vec<Extent>, u64) {
    let mut end = 0;
    let place = |(&count, &gap): (&u64, &u64)| {
        let extent = Extent::new(end + gap, count);
        end += gap + count;
        extent
    };
    let extents = counts.iter().zip(gaps).map(place).collect();
    (extents, end)
}

proptest! {
    #[test]
    fn every_count_arrives(
        ranks in 1usize..5,
        which in 0usize..12,
        launches in prop::collection::vec(
            prop::collection::vec(prop_oneof![Just(0u64), Just(1), 0..60u64], 25), 1..4),
        gaps in prop::collection::vec(0u64..3, 5),
    ) {
        let plans = built_in(ranks);
        let plan = &plans[which % plans.len()];
        let layout = Layout::new(plan).unwrap();
        let mut machine = Interpreter::new(&layout);
        let gather = plan.collective == Collective::AllGatherV;
        for (launch, entries) in launches.iter().enumerate() {
            // In an allgatherv everyone gets the same.
            let key = |from: usize, to: usize| if gather { (from, 0) } else { (from, to) };
            let count = |from, to| { let (from, to) = key(from, to); entries[from * 5 + to] };
            let mut blocks = Vec::new();
            let mut memories = Vec::new();
            for rank in 0..ranks {
                let received: Vec<u64> = (0..ranks).map(|from| count(from, rank)).collect();
                let sent: Vec<u64> =
                    if gather { vec![count(rank, 0)] }
                    else { (0..ranks).map(|to| count(rank, to)).collect() };
                let (receive, outputs) = spread(&received, &gaps);
                let (mut send, mut inputs) = spread(&sent, &gaps);
                if plan.in_place {
                    (send, inputs) = (vec![receive[rank]], outputs);
                }
                let mut input = vec![-1; inputs as usize];
                for (to, extent) in send.iter().enumerate() {
                    for at in 0..extent.count {
                        input[(extent.offset + at) as usize] = value(launch, rank, key(rank, to).1, at);
                    }
                }
                let (inputs, outputs) = (inputs as usize, outputs as usize);
                memories.push(if plan.in_place {
                    Memory::in_place(input, 0..inputs, 0..outputs).unwrap()
                } else {
                    Memory::separate(input, vec![-1; outputs])
                });
                blocks.push((send, receive));
            }
            let counts: Vec<Counts<'_>> =
                blocks.iter().map(|(send, receive)| Counts { send, receive }).collect();
            machine.launch_blocks(&counts, &mut memories).unwrap();
            for (rank, (memory, (_, receive))) in memories.iter().zip(&blocks).enumerate() {
                let mut expected = vec![-1; memory.output().len()];
                for (from, extent) in receive.iter().enumerate() {
                    for at in 0..extent.count {
                        expected[(extent.offset + at) as usize] = value(launch, from, key(from, rank).1, at);
                    }
                }
                prop_assert_eq!(memory.output(), &expected, "{} rank {}", plan.name, rank);
            }
        }
    }
}

#[test]
fn the_interpreter_refuses_what_an_engine_would() {
    let layout = Layout::new(&exchange(2)).unwrap();
    let memories = || vec![Memory::separate(vec![7i128; 4], vec![0; 4]); 2];
    let sizes = CallSizes { input: 16, output: 16, element: 4, strict: false };
    let counts = [Extent::new(0, 1), Extent::new(1, 3)];
    let fewer = [Extent::new(0, 1), Extent::new(1, 2)];
    let right = Counts { send: &counts, receive: &counts };

    let missing = Interpreter::new(&layout).launch(sizes, &mut memories()).unwrap_err();
    assert!(missing.to_string().contains("says no counts"), "{missing}");
    let fixed = Layout::new(&allreduce::ring(Shape::new(2)).unwrap()).unwrap();
    let unexpected =
        Interpreter::new(&fixed).launch_blocks(&[right; 2], &mut memories()).unwrap_err();
    assert!(unexpected.to_string().contains("no runtime sizes"), "{unexpected}");
    let ranks = Interpreter::new(&layout).launch_blocks(&[right], &mut memories()).unwrap_err();
    assert!(ranks.to_string().contains("saw 1 counts"), "{ranks}");

    // Rank 0 sends 3 elements to rank 1, which expects 1 from rank 0.
    let unequal = Interpreter::new(&layout).launch_blocks(&[right; 2], &mut memories());
    let unequal = unequal.unwrap_err();
    assert!(matches!(unequal, InterpretError::Unequal { read: 3, written: 1, .. }), "{unequal}");
    let shown =
        "block 1 of the input of rank 0 has 3 elements and block 0 of the output of rank 1 has 1";
    assert!(unequal.to_string().contains(shown), "{unequal}");

    let wrong = Counts { send: &counts[..1], receive: &fewer };
    let error = Interpreter::new(&layout).launch_blocks(&[right, wrong], &mut memories());
    let source = CountsError::Number { side: Side::Send, saw: 1, allowed: 2 };
    assert_eq!(error, Err(InterpretError::Counts { rank: 1, source }));
}

/// The same exchange of two ranks as the program of both front ends.
#[test]
fn both_front_ends_record_blocks() {
    let p = ProgramBuilder::new("swap", Collective::AllToAllV, 2).runtime_blocks(2, 2);
    let channel = p.channel(0, 1);
    let mut q =
        Program::new(Settings::new("swap", Collective::AllToAllV, 2).runtime_blocks(2, 2)).unwrap();
    let channels =
        [(0, 1), (1, 0)].map(|(me, peer)| q.channel(ChannelType::Memory, peer, me).unwrap());
    for (me, peer) in [(0, 1), (1, 0)] {
        let tb = p.block(me);
        tb.get(p.input(peer).chunk(me), p.output(me).chunk(peer));
        tb.copy(p.input(me).chunks(0..2), p.output(me).chunks(0..2));
        tb.signal(&[channel]);
        tb.wait(&[channel]);

        let at = |rank: usize, buffer, run: std::ops::Range<u64>| {
            q.chunk(rank as u64, buffer, run).unwrap()
        };
        let (mine, theirs) = (me as u64, peer as u64);
        let from = at(peer, Buffer::Input, mine..mine + 1);
        let to = at(me, Buffer::Output, theirs..theirs + 1);
        let (own, all) = (at(me, Buffer::Input, 0..2), at(me, Buffer::Output, 0..2));
        let on = On::block(0);
        q.transfer(Transfer::Get, channels[me], to, from, on).unwrap();
        q.copy(OpKind::Copy, me as i64, all, own, on).unwrap();
        q.signal(channels[me], on, DataSync::NONE, false).unwrap();
        q.wait(channels[me], on, DataSync::NONE, false).unwrap();
    }
    let built = p.build().unwrap();
    let recorded = q.finish().unwrap().plan;
    for plan in [&built, &recorded] {
        check(plan).unwrap();
        assert!(plan.runtime_sizes);
        for gpu in &plan.gpus {
            let ops = gpu.threadblocks[0].ops.iter().filter(|op| op.kind.moves_blocks());
            let ops: Vec<_> = ops.map(|op| (op.kind, op.src.clone(), op.dst.clone())).collect();
            let single = |base, index| ChunkRef { base, index, size: 1 };
            let peer = 1 - gpu.id;
            let (input, output) = (RefBase::Local(Buffer::Input), RefBase::Local(Buffer::Output));
            let get = (vec![single(RefBase::Remote(0), gpu.id)], vec![single(output, peer)]);
            let copy = [input, output].map(|base| vec![single(base, 0), single(base, 1)]);
            let [from, to] = copy;
            let wanted = [(OpKind::GetBlocks, get.0, get.1), (OpKind::CopyBlocks, from, to)];
            assert_eq!(ops, wanted, "{}", plan.name);
        }
    }
}

#[test]
fn the_builder_refuses_what_needs_equal_chunks() {
    type Mistake = (&'static str, fn(&ProgramBuilder));
    let cases: &[Mistake] = &[
        ("use scratch", |p| assert!(p.scratch(0, 1).len() == 1)),
        ("pipeline", |p| p.pipeline(64, 1, || ())),
        ("write to an input", |p| p.block(0).copy(p.output(0).chunk(0), p.input(0).chunk(0))),
        ("reduce", |p| {
            p.block(0).reduce(&[p.input(0).chunk(0), p.input(0).chunk(1)], p.output(0).chunk(0))
        }),
        ("switch_store", |p| {
            let switch = p.switch(&[0, 1], Buffer::Output);
            p.block(0).switch_store(p.input(0).chunk(0), &switch, 0);
        }),
    ];
    for (what, mistake) in cases {
        let p = ProgramBuilder::new("wrong", Collective::AllToAllV, 2).runtime_blocks(2, 2);
        mistake(&p);
        let error = p.build().expect_err(what);
        let needed =
            format!("cannot {what} in a program with runtime sizes: allowed put, get and copy");
        assert!(error.to_string().contains(&needed), "{error}");
        assert_eq!(error.problems.len(), 1, "{error}");
        assert_eq!(error.problems[0].location.file(), file!());
    }
}

#[test]
fn a_program_refuses_what_needs_equal_chunks() {
    let settings = || Settings::new("wrong", Collective::AllToAllV, 2).runtime_blocks(2, 2);
    let mut p = Program::new(settings()).unwrap();
    let memory = p.channel(ChannelType::Memory, 1, 0).unwrap();
    let port = p.channel(ChannelType::Port, 1, 0).unwrap();
    let switch = p.switch(&[0, 1], Buffer::Output).unwrap();
    let chunk = |p: &Program, rank, buffer| p.chunk(rank, buffer, 0..1).unwrap();
    let (input, output) = (chunk(&p, 0, Buffer::Input), chunk(&p, 0, Buffer::Output));
    let (theirs, their_input) = (chunk(&p, 1, Buffer::Output), chunk(&p, 1, Buffer::Input));
    let (on, sum) = (On::block(0), ReduceOp::Sum);
    let now = antiphon_plan::dsl::MembersChecked::Now;
    let errors = [
        ("use scratch", p.scratch(0, 1).map(drop)),
        ("pipeline", p.begin_pipeline(64, 1)),
        ("put_packets", p.transfer(Transfer::PutPackets, memory, theirs, input, on)),
        ("write to an input", p.put(memory, their_input, input, on)),
        ("copy_packets", p.copy(OpKind::CopyPackets, 0, output, input, on)),
        ("reduce", p.reduce(0, output, input, &[input], sum, false, on)),
        ("reduce", p.read_reduce(memory, output, input, &[theirs], sum, on)),
        ("switch_reduce", p.switch_reduce(&switch, 0, 0, 1, output, sum, now, on)),
        ("switch_store", p.switch_store(&switch, 0, input, 0, 1, false, now, on)),
        ("replicate", Program::new(Settings { instances: 2, ..settings() }).map(drop)),
    ];
    for (what, error) in errors {
        let error = error.expect_err(what).to_string();
        let needed = format!("cannot {what} in a program with runtime sizes: allowed ");
        assert!(error.starts_with(&needed), "{error}");
    }
    let error = p.put(port, theirs, input, on).unwrap_err().to_string();
    assert_eq!(error, "cannot put over a port channel: allowed memory channels");
}
