//! Cases on kernels: from source to results. The source is what all vendors' compilers understand, and the simulated one,
//! which declares shared memory by a name of its own.

use super::Subject;
use super::support::Access;
use antiphon_hal::{HalError, Kernel, KernelCode, KernelSource, LaunchShape, Memory, Stream};
use std::ffi::c_void;
use std::sync::Arc;

/// The source of all kernels of the suite.
pub const SOURCE: &str = r#"
#ifdef ANTIPHON_GPUSIM
#define MEET_PAUSE __nanosleep(20);
#else
#define MEET_PAUSE
#define ANTIPHON_SHARED_ARRAY(type, name, count) __shared__ type name[count]
#endif
extern "C" __global__ void add(const unsigned long long *from, unsigned long long *to, unsigned long long count) {
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long at = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += step)
        to[at] += from[at];
}
extern "C" __global__ void turn(unsigned long long *data) {
    ANTIPHON_SHARED_ARRAY(unsigned long long, kept, 64);
    unsigned long long *block = data + (unsigned long long)blockIdx.x * 64;
    kept[threadIdx.x] = block[threadIdx.x];
    __syncthreads();
    block[threadIdx.x] = kept[63 - threadIdx.x];
}
extern "C" __global__ void meet(unsigned long long *arrived, unsigned long long blocks) {
    if (threadIdx.x != 0) return;
    unsigned long long full = (atomicAdd(arrived, 1ull) / blocks + 1) * blocks;
    while (atomicAdd(arrived, 0ull) < full) { MEET_PAUSE }
}
"#;
const SHAPE: LaunchShape = LaunchShape { blocks: 4, threads: 64, shared_bytes: 0 };

/// The kernel `entry`; nothing (and a line) for a device that has none.
fn kernel(subject: &Subject, entry: &str) -> Option<Arc<dyn Kernel>> {
    let device = &subject.device;
    let source = KernelSource { entry, code: KernelCode::Source(SOURCE), options: &[] };
    subject.has(device.caps().kernels, "kernels").then(|| device.load(source).unwrap())
}

/// The same, compiled first and loaded then.
fn compiled_kernel(subject: &Subject, entry: &str) -> Option<Arc<dyn Kernel>> {
    let device = &subject.device;
    subject.has(device.caps().kernels, "kernels").then(|| {
        let code = device.compile(SOURCE, &[]).unwrap();
        let code = KernelCode::Binary(&code);
        device.load(KernelSource { entry, code, options: &[] }).unwrap()
    })
}

fn pointer<T>(value: &T) -> *const c_void {
    (&raw const *value).cast()
}

/// Adds the first `count` words of `from` to those of `to`.
fn add(
    kernel: &dyn Kernel,
    stream: &dyn Stream,
    to: &Arc<dyn Memory>,
    from: &Arc<dyn Memory>,
    count: u64,
) {
    let (from, to) = (from.address(), to.address());
    let arguments = [pointer(&from), pointer(&to), pointer(&count)];
    // SAFETY: two addresses and a count, as the kernel says; callers keep the memory, which is that long, until the
    // stream is done.
    unsafe { kernel.launch(stream, SHAPE, &arguments) }.unwrap();
}

/// Every element is reached, once, by one launch and by a cooperative one, of a kernel that was loaded from its source and of one
/// that was compiled before; arguments are copied.
pub fn a_kernel_does_what_its_source_says(subject: &Subject) {
    let Some(add_kernel) = kernel(subject, "add") else { return };
    let Some(turn) = compiled_kernel(subject, "turn") else { return };
    let device = &subject.device;
    assert_eq!(add_kernel.backend(), device.backend());
    let (access, stream) = (Access::new(device), device.stream().unwrap());
    let count = 1003;
    let [from, to] = [(); 2].map(|()| device.allocate(count * 8).unwrap());
    access.write(&from, &(0..count).collect::<Vec<_>>());
    access.write(&to, &(0..count).map(|at| at << 32).collect::<Vec<_>>());
    add(&*add_kernel, &*stream, &to, &from, count - 1);
    {
        let data = to.address();
        let arguments = [pointer(&data)];
        let cooperative = device.caps().cooperative;
        // SAFETY: an address, as the kernel says, of four blocks of 64 words; the memory lives until the stream is done.
        let launched = unsafe { turn.launch_cooperative(&*stream, SHAPE, &arguments) };
        match launched {
            Err(HalError::Unsupported { .. }) if !cooperative => {
                // SAFETY: as above.
                unsafe { turn.launch(&*stream, SHAPE, &arguments) }.unwrap();
            }
            launched => launched.unwrap(),
        }
    }
    stream.synchronize().unwrap();
    let sum = |at: u64| if at + 1 < count { at << 32 | at } else { at << 32 };
    let turned = |at: u64| if at < 256 { sum(at / 64 * 64 + 63 - at % 64) } else { sum(at) };
    let expected: Vec<_> = (0..count).map(turned).collect();
    assert_eq!(access.read(&to, count as usize), expected);
}

/// Launches and copies of one stream happen in the order of the calls.
pub fn launches_keep_their_place(subject: &Subject) {
    let Some(kernel) = kernel(subject, "add") else { return };
    let device = &subject.device;
    let (access, stream) = (Access::new(device), device.stream().unwrap());
    let count = 4096;
    let [a, b] = [(); 2].map(|()| device.allocate(count * 8).unwrap());
    access.write(&a, &vec![1; count as usize]);
    let mut expected = [1u64, 0];
    for round in 0..24 {
        if round % 3 == 2 {
            // SAFETY: the memories are distinct, as long as this, and live until the stream is done.
            let _ = unsafe { stream.copy(a.address(), b.address(), count * 8) }.unwrap();
            expected[0] = expected[1];
        } else {
            add(&*kernel, &*stream, &b, &a, count);
            expected[1] += expected[0];
        }
    }
    stream.synchronize().unwrap();
    for (memory, value) in [(a, expected[0]), (b, expected[1])] {
        assert_eq!(access.read(&memory, count as usize), vec![value; count as usize]);
    }
}

/// Attributes and the number of blocks that run at once make sense.
pub fn what_is_known_of_a_kernel_is_plausible(subject: &Subject) {
    let Some(kernel) = kernel(subject, "turn") else { return };
    let attributes = kernel.attributes().unwrap();
    assert!(attributes.threads >= 64, "{attributes:?}");
    let cores = u64::from(subject.device.caps().cores);
    let blocks = kernel.resident_blocks(SHAPE).unwrap();
    assert!(blocks >= cores && blocks.is_multiple_of(cores), "{blocks} blocks, {cores} cores");
    let many = LaunchShape { threads: attributes.threads, ..SHAPE };
    assert!(kernel.resident_blocks(many).unwrap() <= blocks);
}

/// More blocks than run at once are no cooperative launch, and a block is no larger than the device allows.
pub fn launches_that_cannot_be_are_refused(subject: &Subject) {
    let Some(kernel) = kernel(subject, "turn") else { return };
    let device = &subject.device;
    let stream = device.stream().unwrap();
    let data = device.allocate(64 * 8).unwrap().address();
    let blocks = u32::try_from(kernel.resident_blocks(SHAPE).unwrap()).unwrap() + 1;
    let crowd = LaunchShape { blocks, ..SHAPE };
    if subject.has(device.caps().cooperative, "cooperative launches") {
        // SAFETY: the launch is refused, so that nothing follows the address.
        let refused = unsafe { kernel.launch_cooperative(&*stream, crowd, &[pointer(&data)]) };
        let error = refused.unwrap_err();
        assert!(matches!(error, HalError::Invalid { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("{blocks} thread blocks of 64 threads")), "{text}");
        assert!(text.contains(&format!("allowed {}", blocks - 1)), "{text}");
    }
    let wide = LaunchShape { threads: 1 << 20, ..SHAPE };
    // SAFETY: as above.
    assert!(unsafe { kernel.launch(&*stream, wide, &[pointer(&data)]) }.is_err());
    stream.synchronize().unwrap();
}

/// All blocks of a cooperative launch run at the same time, though other streams keep the device busy: each waits for all.
pub fn blocks_of_a_cooperative_launch_meet(subject: &Subject) {
    if !subject.has(subject.device.caps().cooperative, "cooperative launches") {
        return;
    }
    let (Some(meet), Some(add_kernel)) = (kernel(subject, "meet"), kernel(subject, "add")) else {
        return;
    };
    let device = &subject.device;
    let access = Access::new(device);
    let room = u32::try_from(meet.resident_blocks(SHAPE).unwrap()).unwrap();
    let full = LaunchShape { blocks: room.min(64), ..SHAPE };
    let streams = [(); 2].map(|()| device.stream().unwrap());
    let counters = [(); 2].map(|()| device.allocate(8).unwrap());
    let busy = device.stream().unwrap();
    let [from, to] = [(); 2].map(|()| device.allocate(4096 * 8).unwrap());
    for memory in counters.iter().chain([&from, &to]) {
        access.write(memory, &vec![0; (memory.len() / 8) as usize]);
    }
    for _ in 0..3 {
        add(&*add_kernel, &*busy, &to, &from, 4096);
        for (stream, counter) in streams.iter().zip(&counters) {
            let (counter, blocks) = (counter.address(), u64::from(full.blocks));
            let arguments = [pointer(&counter), pointer(&blocks)];
            // SAFETY: an address of a word and a count, as the kernel says; the memory lives until the stream is done.
            unsafe { meet.launch_cooperative(&**stream, full, &arguments) }.unwrap();
        }
    }
    for stream in streams.iter().chain([&busy]) {
        stream.synchronize().unwrap();
    }
    for counter in &counters {
        assert_eq!(access.read(counter, 1), [3 * u64::from(full.blocks)]);
    }
}

/// What does not compile is an error that holds the compiler's own words; a function that is not there, one that names
/// it.
pub fn a_source_with_a_fault_is_an_error_with_the_log(subject: &Subject) {
    let device = &subject.device;
    if !subject.has(device.caps().kernels, "kernels") {
        return;
    }
    let load = |entry, text| {
        device.load(KernelSource { entry, code: KernelCode::Source(text), options: &[] })
    };
    let error = load("f", "extern \"C\" __global__ void f() { not_declared = 1; }").unwrap_err();
    assert!(matches!(error, HalError::Vendor { .. }), "{error}");
    assert!(error.to_string().contains("not_declared"), "{error}");
    let error = device.compile("extern \"C\" __global__ void f() { not_declared = 1; }", &[]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("not_declared"), "{error}");
    let error = load("missing", SOURCE).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    let nothing = KernelSource { entry: "f", code: KernelCode::Binary(&[]), options: &[] };
    assert!(matches!(device.load(nothing), Err(HalError::Invalid { .. })));
}
