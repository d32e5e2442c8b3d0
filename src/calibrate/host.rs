//! This machine as a topology.

use super::{CalibrateError, probes, time};
use crate::executor::hal;
use crate::plan::model::Plan;
use crate::plan::program::CallSizes;
use crate::plan::simulate::{BlockSpeed, Device, Inside, Overheads, Shape, Topology};
use std::time::Instant;

/// Ranks that a plan for the host may have: as many as anyone starts on one machine.
const RANKS: u32 = 4096;
/// How often something is repeated to see what one of it costs.
const MANY: usize = 64;
/// Bytes of a chunk that takes no time to move.
const SMALL: u64 = 16;
/// Bytes of a chunk that fits the caches of a core.
const LARGE: u64 = 64 << 10;
/// Bytes of a chunk that fits no cache.
const HUGE: u64 = 48 << 20;
/// Seconds that a probe has.
const PROBE: f64 = 0.1;
/// Launches that a probe does at least.
const FEW: usize = 40;
/// Nothing is free: what a difference of two noisy times is taken for if it is not positive, in microseconds.
const LEAST_US: f64 = 0.001;

/// Measures this machine, for some seconds, and makes a topology of one node of it.
///
/// Anything else that runs meanwhile makes it look slower.
///
/// # Errors
/// A plan cannot be run here.
pub fn host() -> Result<Topology, CalibrateError> {
    let cores = hal::host::usable_cores().max(1);
    let data_op = slope(&probes::copies(1, 1, false)?, &probes::copies(1, MANY, false)?, MANY - 1)?;
    let source = slope(&probes::reduce(2)?, &probes::reduce(2 + MANY)?, MANY)?;
    let reference = source.clamp(LEAST_US, data_op / 3.0);
    let data = least(data_op - 2.0 * reference);
    let copied = grown(|bytes| Ok((probes::copies(1, 1, false)?, [bytes, bytes])))?;
    let combined = grown(|bytes| Ok((probes::reduce(9)?, [9 * bytes, bytes])))?;
    let combine = (combined - copied) / 8.0;
    let moved = grown(|bytes| Ok((probes::packets(1)?, [bytes, bytes])))?;
    // Written and read: each time one raw side, half a copy, and one side of packets.
    let payload = ((moved - copied) / 2.0).max(copied / 2.0);
    let packet_op = slope(&probes::packets(1)?, &probes::packets(MANY)?, 2 * (MANY - 1))?;
    let packet = least(packet_op - 2.0 * reference - SMALL as f64 * (payload + copied / 2.0));
    let synced = slope(&probes::copies(1, 1, true)?, &probes::copies(1, MANY, true)?, MANY - 1)?;
    let sync = least(synced - data_op);
    let semaphore =
        least(slope(&probes::semaphores(1)?, &probes::semaphores(MANY)?, 2 * (MANY - 1))?);
    let turned = slope(&probes::turns(1)?, &probes::turns(MANY)?, 2 * (MANY - 1))?;
    let turn = least(turned - 2.0 * semaphore);
    let met = slope(&probes::barriers(1, true)?, &probes::barriers(MANY, true)?, 2 * (MANY - 1))?;
    let barrier = least(met - data_op - turn / 2.0);
    let signalled = slope(&probes::signals(1)?, &probes::signals(MANY)?, MANY - 1)?;
    let signal = least(signalled / 2.0);
    let hop =
        slope(&probes::ping_pong(1, false)?, &probes::ping_pong(MANY, false)?, 2 * (MANY - 1))?;
    let released =
        slope(&probes::ping_pong(1, true)?, &probes::ping_pong(MANY, true)?, 2 * (MANY - 1))?;
    let launch = least(small(&probes::copies(1, 1, false)?)? - data_op);
    let crowd = 4 * cores;
    // Everyone must have come in before the last is let go; then each in turn does little.
    let passed = small(&probes::chain(crowd as usize)?)? / f64::from(crowd);
    let switch = least((passed - 2.0 * signal - turn) * f64::from(cores) - launch);
    let fetched = grown(|bytes| Ok((probes::remote()?, [bytes, bytes])))?;
    // A copy from another core takes what any copy takes, and what the way between caches takes.
    let remote = (fetched - copied).max(fetched / 2.0);
    let memory = {
        let sizes = sizes(HUGE, HUGE);
        let seconds = time(&probes::copies(cores as usize, 1, false)?, sizes, 8)?.twentieth();
        2.0 * HUGE as f64 * f64::from(cores) / seconds
    };
    Ok(Topology {
        name: "host".to_owned(),
        source: "measured by `antiphon info --measure`".to_owned(),
        nodes: 1,
        ranks_per_node: RANKS,
        device: Device {
            name: std::env::consts::ARCH.to_owned(),
            memory_gbs: rounded(memory / 1e9),
            shared_memory: true,
            cache_mb: cache_mb(),
            cores: Some(cores),
            block: BlockSpeed {
                copy_gbs: rate(copied),
                combine_gbs: rate(combine),
                packet_gbs: rate(payload),
            },
            overhead_us: Overheads {
                launch: rounded(launch),
                data: rounded(data),
                packet: rounded(packet),
                reference: rounded(reference),
                signal: rounded(signal),
                release: rounded(least(released - hop)),
                wait: rounded(signal),
                sync: rounded(sync),
                barrier: rounded(barrier),
                semaphore: rounded(semaphore),
                // Transfers over ports cannot be run here to be measured: they are memory copies by another thread.
                post: rounded(semaphore),
                flush: rounded(semaphore),
                proxy: rounded(data),
                turn: rounded(turn),
                switch: rounded(switch),
            },
        },
        inside: Inside {
            shape: Shape::Switch,
            gbs: rate(remote),
            latency_us: rounded(least(hop - 2.0 * signal - turn)),
            multicast: false,
            coherent: true,
        },
        between: None,
    })
}

/// The outermost cache of the first processor, in 10⁶ bytes, as Linux tells; 0 if it does not.
fn cache_mb() -> f64 {
    let folder = std::path::Path::new("/sys/devices/system/cpu/cpu0/cache");
    let size = |entry: std::fs::DirEntry| -> Option<f64> {
        let text = std::fs::read_to_string(entry.path().join("size")).ok()?;
        let kilobytes: f64 = text.trim().strip_suffix('K')?.parse().ok()?;
        Some(kilobytes * 1024.0 / 1e6)
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(size).fold(0.0, f64::max)
}

fn sizes(input: u64, output: u64) -> CallSizes {
    CallSizes { input, output, element: 4, strict: false }
}

/// Seconds of a launch, of as many as go into the time that a probe has: of the fastest where a rank is alone. Where there
/// are several, the fastest would be one in which a single core happened to do everything.
fn best(plan: &Plan, sizes: CallSizes) -> Result<f64, CalibrateError> {
    let began = Instant::now();
    let first = time(plan, sizes, FEW)?;
    let each = began.elapsed().as_secs_f64() / FEW as f64;
    let launches = (PROBE / each).clamp(FEW as f64, 4000.0) as usize;
    let times = time(plan, sizes, launches)?;
    Ok(if plan.gpus.len() == 1 { times.least().min(first.least()) } else { times.twentieth() })
}

/// Microseconds of a launch with chunks that take no time to move.
fn small(plan: &Plan) -> Result<f64, CalibrateError> {
    let chunks = |of: fn(&crate::plan::model::Gpu) -> u64| {
        plan.gpus.iter().map(of).max().unwrap_or(0) * SMALL
    };
    let sizes = sizes(chunks(|gpu| gpu.input_chunks), chunks(|gpu| gpu.output_chunks));
    Ok(best(plan, sizes)? * 1e6)
}

/// Microseconds of one of the `more` things that the second plan has more than the first.
fn slope(first: &Plan, second: &Plan, more: usize) -> Result<f64, CalibrateError> {
    Ok((small(second)? - small(first)?) / more as f64)
}

/// Microseconds a byte: what a plan takes longer with more bytes in a chunk.
fn grown(
    plan: impl Fn(u64) -> Result<(Plan, [u64; 2]), CalibrateError>,
) -> Result<f64, CalibrateError> {
    let seconds = |bytes| -> Result<f64, CalibrateError> {
        let (plan, [input, output]) = plan(bytes)?;
        best(&plan, sizes(input, output))
    };
    Ok((seconds(LARGE)? - seconds(SMALL)?) * 1e6 / (LARGE - SMALL) as f64)
}

fn least(microseconds: f64) -> f64 {
    microseconds.max(LEAST_US)
}

/// GB/s of so many microseconds a byte, at most a terabyte a second.
fn rate(microseconds_a_byte: f64) -> f64 {
    rounded(1e-3 / microseconds_a_byte.max(1e-6))
}

/// Four digits are more than the measurement is worth.
fn rounded(value: f64) -> f64 {
    let text = format!("{value:.3e}");
    text.parse().unwrap_or(value)
}
