//! The texts that are compiled: bodies of operations, then whole plans.

use super::times::random;
use super::{Text, When};
use crate::{Error, Result, repo};
use antiphon_codegen::{
    Target, Variant, divide, generate, generate_together, interpret, scale, written_for,
};
use antiphon_plan::algorithms::{Algorithm, Rooted, Shape, alltoallv, examples};
use antiphon_plan::builder::{BuildError, ProgramBuilder};
use antiphon_plan::model::{Buffer, Collective, Plan};
use antiphon_plan::program::Layout;
use antiphon_plan::{DataType, ReduceOp, read};
use std::fs;
use std::ops::RangeInclusive;

const OPS: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max];

/// All texts for a target.
pub fn all(target: Target, all: bool) -> Result<Vec<Text>> {
    let mut texts = Vec::new();
    let reductions = reductions().map_err(wrong)?;
    for dtype in DataType::ALL {
        for op in OPS {
            let when = match (dtype, op) {
                (DataType::F16 | DataType::F32, ReduceOp::Sum) => When::Always,
                _ => When::Once,
            };
            let variant = Variant { target, dtype, op: Some(op) };
            add(&mut texts, &format!("{dtype} {op:?}"), &reductions, variant, (true, when), 1)?;
        }
        let text =
            [("average", divide::text(target, dtype)), ("factor", scale::text(target, dtype))];
        texts.extend(text.map(|(what, text)| Text {
            name: format!("{dtype} {what}"),
            text,
            bodies: true,
            when: if dtype == DataType::F32 { When::Always } else { When::Once },
        }));
        texts.push(Text {
            name: format!("{dtype} interpreter"),
            text: interpret::text(target, dtype),
            bodies: false,
            when: if dtype == DataType::F16 { When::Always } else { When::All },
        });
    }
    let variant = Variant { target, dtype: DataType::F16, op: None };
    // As many in each as have functions of their own.
    for reads in [2..=5, 6..=7, 8..=9] {
        let name = format!("moves of {} to {} sources", reads.start(), reads.end());
        let plan = wide(reads).map_err(wrong)?;
        add(&mut texts, &name, &plan, variant, (true, When::Always), 1)?;
    }
    let kinds = random(96).map_err(wrong)?;
    add(&mut texts, "moves of many kinds", &kinds, variant, (false, When::Once), 1)?;
    add(&mut texts, "ports", &ports().map_err(wrong)?, variant, (false, When::Always), 1)?;
    let shape = |far: bool| Shape { nodes: if far { 2 } else { 1 }, ..Shape::new(8) };
    let sized = Algorithm::ALL.map(|one| (one.name(), one.plan(shape(one.is_hierarchical()))));
    let rooted = Rooted::ALL.map(|one| (one.name(), one.plan(shape(one.is_hierarchical()))));
    for (name, plan) in sized.into_iter().chain(rooted) {
        let first = name == Algorithm::AllReduceTwoShotPackets.name();
        let when = if first { When::Always } else { When::Once };
        let plan = plan.map_err(wrong)?;
        add(&mut texts, name, &plan, variant, (false, when), if all { 8 } else { 1 })?;
    }
    let plan = Algorithm::AllReduceTwoShotPackets.plan(Shape::new(8)).map_err(wrong)?;
    let lower = |error| Error::message(format!("cannot lower ranks that are one kernel: {error}"));
    let ranks: Vec<u32> = (0..8).collect();
    let together = generate_together(&Layout::new(&plan).map_err(lower)?, &ranks, variant);
    texts.push(Text {
        name: "eight ranks as one kernel".to_owned(),
        text: together.map_err(|error| Error::message(error.to_string()))?.text,
        bodies: false,
        when: When::Always,
    });
    let v = alltoallv::zero_copy(Shape { handshake: Default::default(), ..Shape::new(4) })
        .map_err(wrong)?;
    add(&mut texts, "alltoallv", &v, variant, (false, When::Always), 1)?;
    for (name, plan) in examples().map_err(wrong)? {
        add(&mut texts, name, &plan, variant, (false, When::Once), if all { 8 } else { 1 })?;
    }
    let shared = repo::root().join("../shared/plans");
    if all && !shared.is_dir() {
        println!("SKIP plans of another implementation: they are not here");
    }
    if all && shared.is_dir() {
        let reading = "read ../shared/plans";
        for entry in fs::read_dir(&shared).map_err(Error::io(reading))? {
            let path = entry.map_err(Error::io(reading))?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            // Some are there to be refused.
            let bytes = fs::read(&path).map_err(Error::io(reading))?;
            let Ok(read) = read(&bytes) else { continue };
            let name = path.display().to_string();
            if Layout::new(&read.plan).is_ok() {
                add(&mut texts, &name, &read.plan, variant, (false, When::All), 8)?;
            }
        }
    }
    Ok(texts)
}

fn wrong(error: BuildError) -> Error {
    Error::message(format!("cannot write a plan: {error}"))
}

/// The texts of a plan's first ranks.
fn add(
    texts: &mut Vec<Text>,
    name: &str,
    plan: &Plan,
    variant: Variant,
    (bodies, when): (bool, When),
    ranks: u32,
) -> Result<()> {
    let lower = |error| Error::message(format!("cannot lower {name}: {error}"));
    let layout = Layout::new(plan).map_err(lower)?;
    // What runs.
    let (dtype, op) = written_for(layout.combines(), variant.dtype, variant.op);
    let variant = Variant { dtype, op, ..variant };
    for rank in 0..ranks.min(layout.ranks.len() as u32) {
        let generate = generate(&layout, rank, variant);
        let text = generate.map_err(|error| Error::message(error.to_string()))?.text;
        texts.push(Text { name: format!("{name}, rank {rank}"), text, bodies, when });
    }
    Ok(())
}

/// Everything that combines, each in a block of its own.
fn reductions() -> std::result::Result<Plan, BuildError> {
    let p = ProgramBuilder::new("reductions", Collective::Test, 2).chunk_counts(8, 8).fuse(false);
    let (input, output) = (p.input(0), p.output(0));
    let (scratch, far) = (p.scratch(0, 8), p.scratch(1, 8));
    let switch = p.switch(&[0, 1], Buffer::Input);
    let _ = p.channel(0, 1);
    p.block(0).copy(input.chunk(0), output.chunk(0));
    p.block(0).reduce(&[input.chunk(0), input.chunk(1)], output.chunk(1));
    let block = p.block(0);
    block.copy_packets(input.chunk(2), scratch.chunk(0));
    block.reduce_packets(input.chunk(2), &[scratch.chunk(0)], output.chunk(2));
    block.unpack_packets(scratch.chunk(0), output.chunk(3));
    p.block(0).reduce_send_packets(
        input.chunk(3),
        &[scratch.chunk(1), scratch.chunk(2), scratch.chunk(3)],
        output.chunk(4),
        &[far.chunk(1), far.chunk(2), far.chunk(3)],
    );
    p.block(0).switch_reduce_store(&switch, &switch, 4, 1);
    p.build()
}

/// A move of each number of sources. Up to 8 there is code for that number, beyond one for any.
fn wide(reads: RangeInclusive<usize>) -> std::result::Result<Plan, BuildError> {
    let p = ProgramBuilder::new("wide", Collective::Test, 1).chunk_counts(20, 20).fuse(false);
    let (input, output) = (p.input(0), p.output(0));
    for reads in reads {
        let from: Vec<_> = (0..reads).map(|at| input.chunk(at)).collect();
        p.block(0).reduce(&from, output.chunk(reads));
    }
    p.build()
}

/// Port channels, semaphores, a barrier and a pipeline.
fn ports() -> std::result::Result<Plan, BuildError> {
    let p = ProgramBuilder::new("ports", Collective::Test, 2).chunk_counts(1, 1);
    let port = p.port(0, 1);
    let semaphore = p.semaphore(0, 0);
    let (one, two) = (p.block(0), p.block(0));
    p.pipeline(4096, 1, || {
        one.copy(p.input(0).all(), p.scratch(0, 1).all());
        one.release(&[semaphore]);
    });
    p.barrier(&[one, two]);
    two.acquire(&[semaphore]);
    two.put_with_signal_and_flush(&port, p.input(0).all(), p.output(1).all());
    p.block(1).wait(&[port]);
    p.build()
}
