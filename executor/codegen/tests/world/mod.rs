//! All ranks of a plan on the simulated driver: what an engine does for kernels, in its shortest form.
#![allow(dead_code)]

pub mod group;

use crate::support::Driver;
use antiphon_codegen::abi::{
    Address, ContextWords, DeviceStruct, FOREIGN, Inbox, LINE, Launch, Progress, Resolved,
    ScratchPlaces,
};
use antiphon_codegen::{ENTRY, Generated, Tables, Unsupported, Variant, generate};
use antiphon_plan::program::{CallSizes, Layout};
use std::collections::HashMap;
use std::ffi::c_void;

/// Threads of each block.
pub const THREADS: u32 = 64;

/// Makes the kernel of a rank: generated, or interpreting.
pub type Make = fn(&Layout, u32, Variant) -> Result<Generated, Unsupported>;

/// The ranks of a plan, all on device 0.
pub struct World<'a> {
    driver: &'a Driver,
    /// What each rank launches.
    pub ranks: Vec<Rank>,
    /// Ends launches when it is not 0.
    pub stop: u64,
}

/// A rank.
pub struct Rank {
    function: u64,
    stream: u64,
    blocks: u32,
    /// What is launched.
    pub launch: Launch,
}

impl<'a> World<'a> {
    /// The ranks of a plan as generated kernels, with scratch for `sizes`.
    pub fn new(driver: &'a Driver, layout: &Layout, variant: Variant, sizes: CallSizes) -> Self {
        Self::with(generate, driver, layout, variant, sizes)
    }

    /// The same, with the kernels of `make`.
    pub fn with(
        make: Make,
        driver: &'a Driver,
        layout: &Layout,
        variant: Variant,
        sizes: CallSizes,
    ) -> Self {
        let world = layout.ranks.len() as u32;
        let all: Vec<Generated> =
            (0..world).map(|rank| make(layout, rank, variant).expect("a rank")).collect();
        let most = layout.ranks.iter().map(|rank| rank.channels.len()).max().unwrap_or(0) as u64;
        let counters = (u64::from(world) * Inbox::BYTES as u64).next_multiple_of(LINE);
        let shapes: Vec<(ScratchPlaces, u64)> = (0..world)
            .map(|rank| {
                let half = layout.scratch_bytes(rank, sizes).expect("sizes").next_multiple_of(LINE);
                let raw = counters + most * LINE;
                let packets = raw + 2 * half;
                let places = ScratchPlaces { raw, raw_half: half, packets, packets_half: 2 * half };
                (places, packets + 4 * half)
            })
            .collect();
        let arenas: Vec<u64> = shapes.iter().map(|(_, bytes)| zeroed(driver, *bytes)).collect();
        let places: Vec<ScratchPlaces> = shapes.iter().map(|(places, _)| *places).collect();
        let (arena_table, scratch) = (upload(driver, &arenas), upload(driver, &places));
        let regions = zeroed(driver, 24 * 8 * u64::from(world));
        let stop = zeroed(driver, 8);
        let mut modules = HashMap::new();
        let mut ranks = Vec::new();
        for (rank, generated) in (0..world).zip(&all) {
            let module = *modules
                .entry(generated.text.clone())
                .or_insert_with(|| driver.module(&generated.text));
            let function = driver.function(module, ENTRY);
            let own = &layout.ranks[rank as usize];
            let readers: Vec<u32> = (0..world)
                .filter(|&other| other != rank)
                .filter(|&other| all[other as usize].blocks.peers.words.contains(&(rank * 2 + 1)))
                .collect();
            let others: Vec<u32> = (0..world).filter(|&other| other != rank).collect();
            let entries = generated.blocks.entries();
            let blocks = entries.len() as u32;
            let semaphores: Vec<i64> = own.semaphores.clone();
            let context = ContextWords { count: 1, ..ContextWords::default() };
            let launch = Launch {
                blocks: upload(driver, &entries),
                operands: upload(driver, &generated.blocks.operands.words),
                peers: upload(driver, &generated.blocks.peers.words),
                context: upload(driver, &[context]),
                expected: address(zeroed(driver, 8 * own.channels.len() as u64)),
                semaphores: upload(driver, &semaphores),
                barriers: address(zeroed(driver, 8 * own.barriers.len() as u64)),
                resolved: address(zeroed(
                    driver,
                    u64::from(blocks * world) * 2 * Resolved::BYTES as u64,
                )),
                arena: address(arenas[rank as usize]),
                arenas: arena_table,
                mapped_arenas: arena_table,
                scratch,
                regions: address(regions),
                readers: upload(driver, &readers),
                behind: upload(driver, &others),
                progress: address(zeroed(driver, u64::from(blocks) * Progress::BYTES as u64)),
                marks: address(zeroed(driver, 32)),
                stop: address(stop),
                input_region: FOREIGN,
                output_region: FOREIGN,
                fingerprint: layout.fingerprint,
                shape: 1,
                counters,
                block_count: blocks,
                rank,
                world,
                reader_count: readers.len() as u32,
                behind_count: others.len() as u32,
                ..Launch::default()
            };
            ranks.push(Rank { function, stream: driver.stream(), blocks, launch });
        }
        let mut this = World { driver, ranks, stop };
        this.resize(layout, sizes);
        this
    }

    /// Takes the byte ranges of a call.
    pub fn resize(&mut self, layout: &Layout, sizes: CallSizes) {
        for (rank, own) in (0..).zip(&mut self.ranks) {
            let program = layout.program(rank, sizes).expect("sizes");
            let tables = Tables::of(&program, layout);
            own.launch.ranges = upload(self.driver, &tables.ranges);
            own.launch.moves = upload(self.driver, &tables.moves);
            own.launch.pieces = upload(self.driver, &tables.pieces);
            own.launch.offsets = upload(self.driver, &tables.offsets);
            own.launch.loops = upload(self.driver, &tables.loops);
        }
    }

    /// Where the buffers of a rank's next launches are.
    pub fn place(&mut self, rank: usize, input: u64, output: u64) {
        let launch = &mut self.ranks[rank].launch;
        (launch.input, launch.output) = (address(input), address(output));
        (launch.input_offset, launch.output_offset) = (input, output);
    }

    /// Launches all ranks.
    pub fn start(&self) {
        self.start_only(0..self.ranks.len());
    }

    /// Launches some ranks.
    pub fn start_only(&self, ranks: std::ops::Range<usize>) {
        for rank in &self.ranks[ranks] {
            let mut places = [(&raw const rank.launch).cast::<c_void>()];
            ok!(
                self.driver,
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
                rank.function,
                rank.blocks,
                1,
                1,
                THREADS,
                1,
                1,
                0,
                rank.stream,
                places.as_mut_ptr(),
                std::ptr::null()
            );
        }
    }

    /// Waits for all ranks.
    pub fn finish(&self) {
        self.ranks.iter().for_each(|rank| self.driver.finish(rank.stream));
    }

    /// Where a rank's blocks are: the launch's number, and what it waits for.
    pub fn progress(&self, rank: usize) -> Vec<(u32, u32)> {
        let Rank { launch, blocks, .. } = &self.ranks[rank];
        let all: Vec<u64> = self.driver.read(launch.progress.0, 2 * *blocks as usize);
        all.chunks(2).map(|block| ((block[0] >> 32) as u32, block[0] as u32)).collect()
    }

    /// How many launches of a rank are over.
    pub fn over(&self, rank: usize) -> u64 {
        self.driver.read::<u64>(self.ranks[rank].launch.marks.0, 2)[1]
    }
}

/// An address, typed.
pub fn address(address: u64) -> Address {
    Address(address)
}

/// Memory of zeros.
pub fn zeroed(driver: &Driver, bytes: u64) -> u64 {
    let bytes = bytes.max(8) as usize;
    let at = driver.allocate(bytes);
    driver.write(at, &vec![0_u8; bytes]);
    at
}

/// Memory of values.
pub fn upload<T: Copy>(driver: &Driver, values: &[T]) -> Address {
    let at = zeroed(driver, size_of_val(values) as u64);
    if !values.is_empty() {
        driver.write(at, values);
    }
    Address(at)
}
