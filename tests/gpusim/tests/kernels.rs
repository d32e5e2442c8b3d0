//! Kernels on the simulated driver: compiled, launched, waiting for each other, replayed.

#[macro_use]
mod support;

use std::ffi::c_void;
use support::Driver;

const SOURCE: &str = r#"
extern "C" __global__ void add(const float *a, const float *b, float *c, unsigned long long count) {
    unsigned long long k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < count) c[k] = a[k] + b[k];
}

// Two blocks hand a number to and fro: each waits for the other's signal, and all its threads for its first one.
extern "C" __global__ void __launch_bounds__(64) handshake(unsigned *flags, unsigned *sums, unsigned long long rounds) {
    ANTIPHON_SHARED(unsigned, seen);
    unsigned me = blockIdx.x, other = 1 - me;
    for (unsigned long long round = 1; round <= rounds; ++round) {
        if (threadIdx.x == 0) {
            antiphon_sim::store_release(&flags[me], unsigned(round));
            while (antiphon_sim::load_acquire(&flags[other]) < round) {}
            seen = unsigned(round);
        }
        __syncthreads();
        atomicAdd(&sums[me], seen);
        __syncthreads();
    }
}

extern "C" __global__ void warps(unsigned *out) {
    unsigned value = threadIdx.x;
    for (int by = 16; by > 0; by /= 2) value += __shfl_xor_sync(0xffffffffu, value, by);
    unsigned odd = __ballot_sync(0xffffffffu, threadIdx.x & 1);
    int many = __syncthreads_count(threadIdx.x < 40);
    out[threadIdx.x] = value + unsigned(many) * 1000u + (odd == 0xaaaaaaaau ? 1000000u : 0u);
}

// A block stores, meets and tells another, which reads before it lets the first one end.
extern "C" __global__ void tell(unsigned *data, unsigned *flags, unsigned *out, unsigned long long released) {
    if (blockIdx.x == 0) {
        antiphon_sim::store_plain(&data[threadIdx.x], threadIdx.x + 1);
        __syncthreads();
        if (threadIdx.x > 0) return;
        if (released) antiphon_sim::release();
        antiphon_sim::store_relaxed(&flags[0], 1u);
        while (antiphon_sim::load_acquire(&flags[1]) == 0) {}
    } else {
        while (antiphon_sim::load_acquire(&flags[0]) == 0) {}
        out[threadIdx.x] = antiphon_sim::load_plain<unsigned>(&data[threadIdx.x]);
        __syncthreads();
        if (threadIdx.x == 0) antiphon_sim::store_relaxed(&flags[1], 1u);
    }
}

extern "C" __global__ void increment(unsigned *value) { *value += 1; }
extern "C" __global__ void refuse(unsigned *value) { if (*value == 0) __trap(); }
"#;

#[test]
fn a_vector_is_added() {
    let driver = Driver::start();
    let module = driver.module(SOURCE);
    let add = driver.function(module, "add");
    let count = 1000;
    let a: Vec<f32> = (0..count).map(|k| k as f32).collect();
    let (x, y, z) =
        (driver.allocate(4 * count), driver.allocate(4 * count), driver.allocate(4 * count));
    driver.write(x, &a);
    driver.write(y, &a);
    let stream = driver.stream();
    assert_eq!(driver.launch(add, 8, 128, stream, &[x, y, z, count as u64]), 0);
    driver.finish(stream);
    let sum: Vec<f32> = a.iter().map(|v| v + v).collect();
    assert_eq!(driver.read::<f32>(z, count), sum);
    ok!(driver, cuModuleUnload(u64), module);
}

#[test]
fn blocks_that_wait_for_each_other_go_on() {
    let driver = Driver::start();
    let handshake = driver.function(driver.module(SOURCE), "handshake");
    let (flags, sums) = (driver.allocate(8), driver.allocate(8));
    driver.write(flags, &[0_u32; 2]);
    driver.write(sums, &[0_u32; 2]);
    let rounds = 100_u64;
    let arguments = [flags, sums, rounds];
    let mut places: Vec<*const u64> =
        arguments.iter().map(|argument| argument as *const u64).collect();
    ok!(
        driver,
        cuLaunchCooperativeKernel(u64, u32, u32, u32, u32, u32, u32, u32, u64, *mut *const u64),
        handshake,
        2,
        1,
        1,
        64,
        1,
        1,
        0,
        0,
        places.as_mut_ptr()
    );
    driver.finish(0);
    let sum = 64 * (rounds * (rounds + 1) / 2) as u32;
    assert_eq!(driver.read::<u32>(sums, 2), [sum, sum]);
}

/// What the second block of `tell` sees, launch after launch; what is stored is there at the end in any case.
fn told(driver: &Driver, released: bool) -> Vec<Vec<u32>> {
    let tell = driver.function(driver.module(SOURCE), "tell");
    let (data, flags, out) = (driver.allocate(4 * 64), driver.allocate(8), driver.allocate(4 * 64));
    let launch = |_| {
        driver.write(data, &[0_u32; 64]);
        driver.write(flags, &[0_u32; 2]);
        assert_eq!(driver.launch(tell, 2, 64, 0, &[data, flags, out, released.into()]), 0);
        driver.finish(0);
        assert_eq!(driver.read::<u32>(data, 64), (1..=64).collect::<Vec<u32>>());
        driver.read::<u32>(out, 64)
    };
    (0..24).map(launch).collect()
}

#[test]
fn what_is_not_released_may_be_seen_late() {
    let driver = Driver::start();
    let stored: Vec<u32> = (1..=64).collect();
    let seen = told(&driver, false);
    assert!(seen.contains(&vec![0; 64]) && seen.contains(&stored), "{seen:?}");
    assert_eq!(told(&driver, true), vec![stored; 24]);
}

#[test]
fn lanes_of_a_warp_exchange() {
    let driver = Driver::start();
    let warps = driver.function(driver.module(SOURCE), "warps");
    let out = driver.allocate(4 * 64);
    assert_eq!(driver.launch(warps, 1, 64, 0, &[out]), 0);
    driver.finish(0);
    let wanted: Vec<u32> =
        (0..64).map(|k| if k < 32 { 496 } else { 496 + 1024 } + 40_000 + 1_000_000).collect();
    assert_eq!(driver.read::<u32>(out, 64), wanted);
}

#[test]
fn a_graph_does_again_what_was_captured() {
    let driver = Driver::start();
    let increment = driver.function(driver.module(SOURCE), "increment");
    let value = driver.allocate(4);
    driver.write(value, &[10_u32]);
    let stream = driver.stream();
    ok!(driver, cuStreamBeginCapture_v2(u64, u32), stream, 2);
    assert_eq!(driver.launch(increment, 1, 1, stream, &[value]), 0);
    assert_eq!(driver.launch(increment, 1, 1, stream, &[value]), 0);
    let (mut graph, mut executable) = (0, 0);
    ok!(driver, cuStreamEndCapture(u64, *mut u64), stream, &mut graph);
    assert_eq!(driver.read::<u32>(value, 1), [10], "a capture does nothing yet");
    ok!(driver, cuGraphInstantiateWithFlags(*mut u64, u64, u64), &mut executable, graph, 0);
    ok!(driver, cuGraphDestroy(u64), graph);
    for _ in 0..3 {
        ok!(driver, cuGraphLaunch(u64, u64), executable, stream);
    }
    driver.finish(stream);
    assert_eq!(driver.read::<u32>(value, 1), [16]);
    ok!(driver, cuGraphExecDestroy(u64), executable);
}

#[test]
fn what_does_not_compile_says_why() {
    let driver = Driver::start();
    let log = driver
        .compile("extern \"C\" __global__ void broken() { undeclared = 1; }")
        .expect_err("not C++");
    assert!(log.contains("undeclared") && log.contains("test.cu:1"), "{log}");
}

#[test]
fn a_trap_breaks_the_context() {
    let driver = Driver::start();
    // A context of its own, since a broken one stays so.
    let mut context = 0;
    ok!(driver, cuCtxCreate_v2(*mut u64, u32, i32), &mut context, 0, 1);
    let refuse = driver.function(driver.module(SOURCE), "refuse");
    let value = driver.allocate(4);
    driver.write(value, &[0_u32]);
    assert_eq!(driver.launch(refuse, 1, 32, 0, &[value]), 0);
    assert_eq!(call!(driver, cuCtxSynchronize(),), 719);
    assert_eq!(call!(driver, cuMemAlloc_v2(*mut u64, usize), &mut 0, 4), 719);
}

#[test]
fn shapes_that_no_device_holds_are_refused() {
    let driver = Driver::start();
    let add = driver.function(driver.module(SOURCE), "increment");
    let value = driver.allocate(4);
    assert_eq!(driver.launch(add, 1, 1025, 0, &[value]), 1);
    let mut places = [&value as *const u64];
    let code = call!(
        driver,
        cuLaunchCooperativeKernel(u64, u32, u32, u32, u32, u32, u32, u32, u64, *mut *const u64),
        add,
        33,
        1,
        1,
        1024,
        1,
        1,
        0,
        0,
        places.as_mut_ptr()
    );
    assert_eq!(code, 720);
    let mut function = 0_u64;
    let module = driver.module(SOURCE);
    let code = call!(
        driver,
        cuModuleGetFunction(*mut u64, u64, *const c_void),
        &mut function,
        module,
        c"nobody".as_ptr().cast()
    );
    assert_eq!(code, 500);
}
