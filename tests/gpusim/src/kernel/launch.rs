//! Launches: their shape and arguments, and the driver's calls for them.

use super::module::{self, Function};
use super::pool;
use crate::abi::{Answer, In, Out};
use crate::context;
use crate::device::{
    BLOCK_THREADS, MULTIPROCESSOR_SHARED_BYTES, MULTIPROCESSORS, RESIDENT_BLOCKS, RESIDENT_THREADS,
    WARP,
};
use crate::status::Status;
use crate::stream;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many there were in this process.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// A kernel with everything a launch of it needs, as often as a graph launches it.
pub struct Launch {
    function: Arc<Function>,
    /// Which of the process's launches it is, graphs' counting once.
    pub number: u64,
    pub device: usize,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub cooperative: bool,
    /// No other launch that is so runs on the device meanwhile, as with HIP's cooperative ones.
    pub alone: bool,
    /// Each parameter, aligned for any type.
    arguments: Vec<Vec<u128>>,
}

impl Launch {
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|side| u64::from(*side)).product()
    }

    /// Blocks that one multiprocessor holds.
    pub fn per_multiprocessor(&self) -> u32 {
        resident(self.threads(), self.shared_bytes)
    }

    /// Runs the kernel as one thread.
    pub fn enter(&self) {
        let address = |argument: &Vec<u128>| argument.as_ptr().cast_mut().cast::<c_void>();
        // On the fiber's own stack, since several threads read it.
        let mut addresses: [*mut c_void; 64] = [std::ptr::null_mut(); 64];
        for (place, argument) in addresses.iter_mut().zip(&self.arguments) {
            *place = address(argument);
        }
        // SAFETY: one address for each parameter, of a copy of its size; the entry only reads them.
        unsafe { (self.function.entry)(addresses.as_mut_ptr()) };
    }
}

fn resident(threads: u32, shared_bytes: u32) -> u32 {
    let by_threads = RESIDENT_THREADS / threads.max(1).next_multiple_of(WARP);
    let by_shared = MULTIPROCESSOR_SHARED_BYTES / (shared_bytes.saturating_add(1 << 10));
    by_threads.min(by_shared).min(RESIDENT_BLOCKS)
}

/// What a call asks to be launched.
pub struct Request {
    pub function: u64,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: u64,
    pub parameters: In<In<u8>>,
    pub cooperative: bool,
    pub alone: bool,
}

/// Puts a launch into a stream.
pub fn submit(request: &Request, extra: In<u8>) -> Answer {
    if !extra.is_null() {
        return Err(Status::NOT_SUPPORTED);
    }
    let function = module::function(request.function)?;
    let stream = stream::find(request.stream)?;
    let threads = request.block.iter().map(|side| u64::from(*side)).product::<u64>();
    let sides = request.grid.iter().chain(&request.block);
    let upper = request.grid[1].max(request.grid[2]) <= 65535 && request.block[2] <= 64;
    if sides.min() == Some(&0)
        || !upper
        || request.grid[0] > i32::MAX as u32
        || function.sizes.len() > 64
    {
        return Err(Status::INVALID_VALUE);
    }
    if threads > u64::from(BLOCK_THREADS) {
        return Err(Status::INVALID_VALUE);
    }
    if request.shared_bytes > function.dynamic.load(Ordering::Relaxed) {
        return Err(Status::INVALID_VALUE);
    }
    let mut arguments = Vec::with_capacity(function.sizes.len());
    for (bytes, place) in function.sizes.iter().zip(request.parameters.list(function.sizes.len())?)
    {
        let mut argument = vec![0_u128; bytes.div_ceil(16)];
        let value = place.list(*bytes)?;
        // SAFETY: the copy has room for `bytes`, and any bytes are an integer.
        unsafe {
            std::ptr::copy_nonoverlapping(value.as_ptr(), argument.as_mut_ptr().cast(), *bytes)
        };
        arguments.push(argument);
    }
    let launch = Arc::new(Launch {
        function,
        number: LAUNCHES.fetch_add(1, Ordering::Relaxed),
        device: stream.context.device,
        grid: request.grid,
        block: request.block,
        shared_bytes: request.shared_bytes,
        cooperative: request.cooperative,
        alone: request.alone,
        arguments,
    });
    let together = u64::from(launch.per_multiprocessor() * MULTIPROCESSORS);
    if together == 0 {
        return Err(Status::LAUNCH_OUT_OF_RESOURCES);
    }
    if launch.cooperative && launch.blocks() > together {
        return Err(Status::COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    stream.submit(Arc::new(move || pool::run(&launch)))
}

driver_calls! {
    fn cuLaunchKernel(
        function: u64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: u64,
        parameters: In<In<u8>>,
        extra: In<u8>,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        submit(
            &Request {
                function,
                grid,
                block,
                shared_bytes,
                stream,
                parameters,
                cooperative: false,
                alone: false,
            },
            extra,
        )
    }

    fn cuLaunchCooperativeKernel(
        function: u64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: u64,
        parameters: In<In<u8>>,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        submit(
            &Request {
                function,
                grid,
                block,
                shared_bytes,
                stream,
                parameters,
                cooperative: true,
                alone: false,
            },
            In::none(),
        )
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        out: Out<i32>,
        function: u64,
        threads: i32,
        shared_bytes: usize,
    ) {
        occupancy(out, function, threads, shared_bytes)
    }
}

fn occupancy(out: Out<i32>, function: u64, threads: i32, shared_bytes: usize) -> Answer {
    context::current()?;
    module::function(function)?;
    let threads = u32::try_from(threads).ok().filter(|threads| *threads > 0);
    let threads = threads.ok_or(Status::INVALID_VALUE)?;
    let shared_bytes = u32::try_from(shared_bytes).map_err(|_| Status::INVALID_VALUE)?;
    let blocks = if threads > BLOCK_THREADS { 0 } else { resident(threads, shared_bytes) };
    out.set(blocks as i32)
}
