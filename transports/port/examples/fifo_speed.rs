//! How many requests a second the FIFO moves: `cargo run --release -p antiphon-port --example fifo_speed`.
//!
//! One thread consumes; 1, 2, 4 and 8 produce. The best of five runs of a second each is shown.

use antiphon_port::fifo::{Request, SIGNAL, fifo};
use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const RUNS: usize = 5;
const RUN: Duration = Duration::from_secs(1);

fn rate(producers: u64) -> f64 {
    let (producer, mut consumer) = fifo(4096);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for channel in 0..producers {
            let (producer, stop) = (producer.clone(), &stop);
            scope.spawn(move || {
                let request = Request { kinds: SIGNAL, channel, ..Request::default() };
                while !stop.load(Ordering::Relaxed) && producer.push(&request).is_ok() {}
            });
        }
        let (begin, mut taken, mut sum) = (Instant::now(), 0u64, 0u64);
        let mut fruitless = 0;
        // A look at the clock costs as much as a few requests.
        while taken & 0xfff != 0 || begin.elapsed() < RUN {
            if let Some((ticket, request)) = consumer.take() {
                sum = sum.wrapping_add(request.channel ^ ticket);
                taken += 1;
                fruitless = 0;
                consumer.release(ticket + 1);
            } else {
                fruitless += 1;
                if fruitless < 64 { hint::spin_loop() } else { thread::yield_now() }
            }
        }
        let rate = taken as f64 / begin.elapsed().as_secs_f64();
        hint::black_box(sum);
        stop.store(true, Ordering::Relaxed);
        drop(consumer);
        rate
    })
}

fn main() {
    for producers in [1, 2, 4, 8] {
        let best = (0..RUNS).map(|_| rate(producers)).fold(0.0, f64::max);
        println!("{producers} producers: {:.2} million requests/s", best / 1e6);
    }
}
