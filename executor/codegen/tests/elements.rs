//! Moves of one rank on the simulated driver, a test fixture: every data type and operator, any number of sides, packets and
//! raw bytes, misaligned and odd, bit for bit what the host's kernels compute.

#[macro_use]
#[path = "../../../tests/gpusim/tests/support/mod.rs"]
mod support;
mod world;

// Cargo builds the driver's library for it.
use antiphon_gpusim as _;

use antiphon_codegen::interpret::interpreted;
use antiphon_codegen::{Target, Variant, divide, generate, scale};
use antiphon_hal::kernels;
use antiphon_plan::builder::ProgramBuilder;
use antiphon_plan::model::{Collective, Op, Plan};
use antiphon_plan::program::{Area, CallSizes, Instruction, Layout, Program};
use antiphon_plan::{DataType, ReduceOp};
use std::ffi::c_void;
use support::Driver;
use world::{Make, World};

/// Chunks of the input.
const INPUTS: usize = 10;

const OPS: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max];

/// Reductions of 1 to 10 sources by each operator, raw and through packets, each to a chunk of its own.
fn plan() -> Plan {
    let p = ProgramBuilder::new("elements", Collective::Test, 1)
        .chunk_counts(INPUTS, 4 * INPUTS + 8)
        .fuse(false);
    let (block, input, output) = (p.block(0), p.input(0), p.output(0));
    let scratch = p.scratch(0, INPUTS);
    for k in 0..4 {
        block.copy_packets(input.chunk(k), scratch.chunk(k));
    }
    let raw: Vec<_> = (0..INPUTS).map(|k| input.chunk(k)).collect();
    let packets: Vec<_> = (0..4).map(|k| scratch.chunk(k)).collect();
    let mut next = 0;
    let mut chunk = || {
        next += 1;
        output.chunk(next - 1)
    };
    for _ in OPS {
        for reads in 1..=INPUTS {
            if reads == 1 {
                block.copy(raw[0], chunk());
            } else {
                block.reduce(&raw[..reads], chunk());
            }
        }
    }
    for _ in OPS {
        block.reduce_packets(raw[9], &packets[..1], chunk());
        block.reduce_packets(raw[9], &packets[..4], chunk());
    }
    let mut plan = p.build().expect("a plan");
    // The operators, in turn.
    let mut at = 0;
    let per_op = |at: usize| {
        if at < 4 * (INPUTS - 1) { at / (INPUTS - 1) } else { (at - 4 * (INPUTS - 1)) / 2 }
    };
    for op in plan.gpus[0].threadblocks[0].ops.iter_mut().filter(|op: &&mut Op| op.src.len() > 1) {
        op.reduce_op = Some(OPS[per_op(at)]);
        at += 1;
    }
    assert_eq!(at, 4 * (INPUTS - 1) + 8);
    plan
}

/// The same by the host's kernels; payload stands for packets.
fn by_host(layout: &Layout, program: &Program, dtype: DataType, input: &[u8], output: &mut [u8]) {
    let own = &layout.ranks[0];
    let mut packets = vec![0_u8; program.scratch_bytes as usize];
    for instruction in &own.instructions {
        let Instruction::Move { sources, destinations, reduce, index, .. } = *instruction else {
            continue;
        };
        for segment in &program.segments[program.moves[index as usize].range()] {
            let mut offsets = program.offsets[segment.offsets as usize..].iter();
            let mut place = |at: usize| -> *mut u8 {
                let offset = *offsets.next().expect("one for each side") as usize;
                match own.accesses[at].area {
                    Area::Input => input.as_ptr().cast_mut().wrapping_add(offset),
                    Area::Output => output.as_mut_ptr().wrapping_add(offset),
                    _ => packets.as_mut_ptr().wrapping_add(offset),
                }
            };
            let from: Vec<*const u8> = sources.range().map(|at| place(at).cast_const()).collect();
            let to: Vec<*mut u8> = destinations.range().map(&mut place).collect();
            // SAFETY: lowering keeps all inside of the buffers, of which sources and destinations differ.
            unsafe { kernels::reduce(dtype, reduce, &to, &from, segment.len as usize) };
        }
    }
}

/// Bytes that look random, with a generator of its own.
fn random(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// What a NaN's bits are is the processor's own in the wide types.
fn same(dtype: DataType, a: &[u8], b: &[u8]) -> bool {
    let size = dtype.size();
    a.chunks(size).zip(b.chunks(size)).all(|(a, b)| {
        let nan = |x: &[u8]| match dtype {
            DataType::F32 => f32::from_le_bytes(x.try_into().expect("4 bytes")).is_nan(),
            DataType::F64 => f64::from_le_bytes(x.try_into().expect("8 bytes")).is_nan(),
            _ => false,
        };
        a == b || nan(a) && nan(b)
    })
}

fn elements(dtype: DataType, make: Make) {
    let driver = Driver::start();
    let layout = Layout::new(&plan()).unwrap();
    let variant = Variant { target: Target::Cuda, dtype, op: None };
    let size = dtype.size();
    let per_chunk = [5, 83, 1, 40];
    let sizes = |elements: usize| CallSizes {
        input: (INPUTS * elements * size) as u64,
        output: ((4 * INPUTS + 8) * elements * size) as u64,
        element: size as u64,
        strict: false,
    };
    let mut world = World::with(make, &driver, &layout, variant, sizes(83));
    let room = sizes(90);
    let [from, to] = [room.input, room.output].map(|bytes| world::zeroed(&driver, bytes));
    for (seed, elements) in (1..).zip(per_chunk) {
        // Shifted by an element, alike and not alike.
        for (shift_in, shift_out) in [(0, 0), (1, 1), (0, 1)] {
            let sizes = sizes(elements);
            let mut input = random(seed, sizes.input as usize);
            if dtype.is_float() && size > 1 {
                // Numbers whose sums say something, and now and then any bits at all.
                for (k, value) in input.chunks_mut(size).enumerate().filter(|(k, _)| k % 5 != 0) {
                    value[size - 1] = if k % 2 == 0 { 0x3f } else { 0xbf };
                }
            }
            let before = random(!seed, sizes.output as usize);
            world.resize(&layout, sizes);
            let (at_in, at_out) = (from + (shift_in * size) as u64, to + (shift_out * size) as u64);
            driver.write(at_in, &input);
            driver.write(at_out, &before);
            world.place(0, at_in, at_out);
            world.start();
            world.finish();
            let found: Vec<u8> = driver.read(at_out, before.len());
            let mut expected = before;
            let program = layout.program(0, sizes).unwrap();
            by_host(&layout, &program, dtype, &input, &mut expected);
            let each = elements * size;
            for (chunk, (found, expected)) in
                found.chunks(each).zip(expected.chunks(each)).enumerate()
            {
                assert!(
                    same(dtype, found, expected),
                    "{dtype}: chunk {chunk} of {elements} elements, seed {seed}, shifts {shift_in} and {shift_out}: \
                     {found:x?} and not {expected:x?}"
                );
            }
        }
    }
    averages(&driver, dtype);
    products(&driver, dtype);
}

/// The last step of an average.
fn averages(driver: &Driver, dtype: DataType) {
    let module = driver.module(&divide::text(Target::Cuda, dtype));
    let function = driver.function(module, divide::ENTRY);
    let count = 1001_u64;
    for ranks in [3_u32, 8] {
        let mut values = random(7, count as usize * dtype.size());
        let output = world::upload(driver, &values).0;
        let mut places: [*const c_void; 3] =
            [(&raw const output).cast(), (&raw const count).cast(), (&raw const ranks).cast()];
        ok!(
            driver,
            cuLaunchKernel(
                u64,
                u32,
                u32,
                u32,
                u32,
                u32,
                u32,
                u32,
                u64,
                *mut *const c_void,
                *const c_void,
            ),
            function,
            2,
            1,
            1,
            64,
            1,
            1,
            0,
            0,
            places.as_mut_ptr(),
            std::ptr::null()
        );
        driver.finish(0);
        // SAFETY: the values are the vector's own.
        unsafe { kernels::divide(dtype, values.as_mut_ptr(), values.len(), ranks) };
        let found: Vec<u8> = driver.read(output, values.len());
        let wrong = found.chunks(dtype.size()).zip(values.chunks(dtype.size()));
        let wrong = wrong.enumerate().find(|(_, (a, b))| !same(dtype, a, b));
        assert_eq!(wrong, None, "{dtype} by {ranks}");
    }
}

/// The first step of a premultiplied sum: by a factor that is given, or read, into another place and the same.
fn products(driver: &Driver, dtype: DataType) {
    let module = driver.module(&scale::text(Target::Cuda, dtype));
    let function = driver.function(module, scale::ENTRY);
    let count = 1001;
    let values = random(11, count * dtype.size());
    let input = world::upload(driver, &values).0;
    let output = world::zeroed(driver, values.len() as u64);
    for (seed, (to, read)) in (12..).zip([(output, true), (output, false), (input, false)]) {
        let mut factor = [0xEE; 8];
        factor[..dtype.size()].copy_from_slice(&random(seed, dtype.size()));
        let bits = u64::from_le_bytes(factor);
        // Where it is read, what is given is another.
        let (at, given) = if read { (world::upload(driver, &factor).0, !bits) } else { (0, bits) };
        assert_eq!(driver.launch(function, 2, 64, 0, &[to, input, count as u64, at, given]), 0);
        driver.finish(0);
        let mut expected = vec![0; values.len()];
        let (from, bytes) = (values.as_ptr(), values.len());
        // SAFETY: both are vectors of so many bytes.
        unsafe { kernels::scale(dtype, expected.as_mut_ptr(), from, bytes, factor) };
        let found: Vec<u8> = driver.read(to, values.len());
        let wrong = found.chunks(dtype.size()).zip(expected.chunks(dtype.size()));
        let wrong = wrong.enumerate().find(|(_, (a, b))| !same(dtype, a, b));
        assert_eq!(wrong, None, "{dtype} by {factor:x?}, read {read}");
    }
}

macro_rules! elements {
    ($($name:ident: $dtype:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                elements(DataType::$dtype, generate);
            }
        )*
    };
}

elements! {
    f16: F16, bf16: Bf16, f32: F32, f64: F64, i8: I8, u8: U8, i32: I32, u32: U32, i64: I64, u64: U64, f8e4m3: F8E4m3,
    f8e5m2: F8E5m2,
}

/// The same functions are called for all types: one of each width of a side's elements and of what they are combined in.
#[test]
fn of_the_interpreting_kernel() {
    for dtype in [DataType::F32, DataType::F8E4m3] {
        elements(dtype, interpreted);
    }
}
