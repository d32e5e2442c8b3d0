//! Measures the TCP wire against plain sockets on loopback, in turns in one run, both sides pinned.
//!
//! `cargo run --release -p antiphon-port --example wire_speed [ROUNDS] [CONNECTIONS] [PART]`
//!
//! - *spin*: 8 bytes there and back; plain sockets that are read until something comes, against put + signal with the
//!   waiting thread making progress. At most 1.3 times as long.
//! - *sleep*: the same with blocking sockets, against threads that sleep in `poll` on the link's descriptor. At most
//!   1.3 times as long.
//! - *proxy*: as *sleep*, with another thread per side, on the same core, that posts and is woken when its counter moves.
//!   At most 1.3 times as long.
//! - *stream*: 16 MiB at a time; at least 85 % of the plain socket's bytes per second.

use antiphon_hal::{Backend, Memory, driver};
use antiphon_port::tcp::Options;
use antiphon_port::{Link, Posted, Settings, TcpDriver, Unit, Wire, WireDriver, Write};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::{ErrorKind, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Instant;

const LARGE: u64 = 16 << 20;
/// Round trips of one turn.
const TRIPS: usize = 500;
/// Large writes of one turn.
const PUTS: u64 = 16;

fn pin(side: usize) {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let mut set = CpuSet::new();
    set.set(side % cores);
    // Without it the numbers vary more.
    let _ = sched_setaffinity(None, &set);
}

/// One side of the wire: what it sends from, what arrives, and its counter.
struct Side {
    link: Arc<dyn Link>,
    own: Arc<dyn Memory>,
    counter: Arc<dyn Memory>,
    /// The peer's data and counter.
    there: [u64; 2],
    _keep: [antiphon_port::Registration; 2],
}

impl Side {
    fn counter(&self) -> &AtomicU64 {
        // SAFETY: an aligned word of memory that `self` holds, only used as an atomic.
        unsafe { &*self.counter.address().cast::<AtomicU64>() }
    }

    fn put(&self, bytes: u64, value: u64) {
        let [region, counter] = self.there;
        let unit = Unit::Bytes;
        let write = Write { source: &self.own, from: 0, region, to: 0, bytes, unit };
        self.post(|| self.link.write(&write).expect("a write"));
        self.post(|| self.link.signal(counter, 0, value).expect("a signal"));
    }

    fn post(&self, post: impl Fn() -> Posted) {
        while post() == Posted::Full {
            self.link.progress().expect("progress");
        }
    }

    fn spin(&self, value: u64) {
        while self.counter().load(Ordering::Acquire) < value {
            self.link.progress().expect("progress");
        }
    }

    fn sleep(&self, mut done: impl FnMut() -> bool) {
        let descriptor = self.link.descriptor().expect("a descriptor");
        while !done() {
            if self.link.arm().expect("arm") {
                poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None).expect("poll");
            }
            self.link.progress().expect("progress");
        }
    }
}

fn sides(connections: u16) -> [Side; 2] {
    let device = driver(Backend::Host).expect("host").open(0).expect("a device");
    let mut options = Options::default();
    options.connections = connections;
    let tcp = TcpDriver::new(options);
    let wires: Vec<Arc<dyn Wire>> = (0..2)
        .map(|rank| {
            let settings = Settings::new(rank, [7; 32]);
            tcp.open(&settings.with_interface(Some("127.0.0.1".to_owned()))).expect("an end")
        })
        .collect();
    let openings = [0, 1].map(|rank| wires[rank].open(1 - rank as u32).expect("an opening"));
    let addresses = [0, 1].map(|rank| openings[1 - rank].address());
    let mut addresses = addresses.into_iter();
    let links =
        openings.map(|opening| opening.connect(&addresses.next().expect("two")).expect("a link"));
    let memories = [0, 1].map(|_| [LARGE, 64].map(|bytes| device.allocate(bytes).expect("memory")));
    let registered = [0, 1].map(|rank: usize| {
        [0, 1].map(|at: usize| wires[rank].register(&memories[rank][at]).expect("a region"))
    });
    let there = [1, 0].map(|rank: usize| [0, 1].map(|at: usize| registered[rank][at].region));
    for (rank, link) in links.iter().enumerate() {
        for region in &registered[1 - rank] {
            link.accept(region.region, region.bytes, &region.blob).expect("a region");
        }
    }
    let mut registered = registered.into_iter();
    let mut rank = 0;
    links.map(|link| {
        let at = rank;
        rank += 1;
        let [own, counter] = memories[at].clone();
        // Every page is there before anything is measured.
        // SAFETY: fresh memory that nobody else uses yet.
        unsafe { own.address().write_bytes(1, LARGE as usize) };
        let _keep = registered.next().expect("two");
        Side { link, own, counter, there: there[at], _keep }
    })
}

/// Plain sockets, connected to each other.
fn sockets(blocking: bool) -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let a = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (b, _) = listener.accept().expect("a connection");
    for socket in [&a, &b] {
        socket.set_nodelay(true).expect("no delay");
        socket.set_nonblocking(!blocking).expect("a mode");
    }
    [a, b]
}

fn read_exactly(socket: &mut TcpStream, mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match socket.read(bytes) {
            Ok(0) => panic!("the other side closed"),
            Ok(some) => bytes = &mut bytes[some..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Nanoseconds of each round trip; `there` sends and waits on side 0, `back` waits and sends on side 1.
fn trips<S: Send>(sides: &mut [S; 2], play: impl Fn(&mut S, usize, u64) + Sync) -> Vec<u64> {
    let [a, b] = sides;
    let play = &play;
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            (0..TRIPS as u64).for_each(|trip| play(b, 1, trip));
        });
        let here = scope.spawn(move || {
            pin(0);
            let mut times = Vec::with_capacity(TRIPS);
            for trip in 0..TRIPS as u64 {
                let start = Instant::now();
                play(a, 0, trip);
                times.push(start.elapsed().as_nanos() as u64);
            }
            times
        });
        here.join().expect("side 0")
    })
}

fn plain(sockets: &mut [TcpStream; 2]) -> Vec<u64> {
    trips(sockets, |socket, side, trip| {
        let mut bytes = trip.to_le_bytes();
        if side == 0 {
            socket.write_all(&bytes).expect("send");
        }
        read_exactly(socket, &mut bytes);
        if side == 1 {
            socket.write_all(&bytes).expect("send");
        }
    })
}

/// How a side of the wire waits for its counter.
#[derive(Clone, Copy)]
enum Wait {
    Spin,
    Sleep,
    Proxy,
}

fn wire(sides: &mut [Side; 2], base: u64, wait: Wait) -> Vec<u64> {
    let stop = AtomicBool::new(false);
    let waiting: [OnceLock<Thread>; 2] = Default::default();
    let [a, b] = sides;
    thread::scope(|scope| {
        let mut both: [&Side; 2] = [a, b];
        if let Wait::Proxy = wait {
            for (number, side) in both.into_iter().enumerate() {
                let (stop, waiting) = (&stop, &waiting[number]);
                scope.spawn(move || {
                    pin(number);
                    let mut last = base;
                    side.sleep(|| {
                        let now = side.counter().load(Ordering::Acquire);
                        if now > last
                            && let Some(waiting) = waiting.get()
                        {
                            last = now;
                            waiting.unpark();
                            // They share a core, and the other one has something to do.
                            thread::yield_now();
                        }
                        stop.load(Ordering::Acquire)
                    });
                });
            }
        }
        let times = trips(&mut both, |side, number, trip| {
            let value = base + trip + 1;
            let arrived = || side.counter().load(Ordering::Acquire) >= value;
            let answer = || match wait {
                Wait::Spin => side.spin(value),
                Wait::Sleep => side.sleep(arrived),
                Wait::Proxy => {
                    waiting[number].get_or_init(thread::current);
                    while !arrived() {
                        thread::park();
                    }
                }
            };
            let send = || {
                side.put(8, value);
                side.link.progress().expect("progress");
            };
            if number == 0 {
                send();
            }
            answer();
            if number == 1 {
                send();
            }
        });
        stop.store(true, Ordering::Release);
        if let Wait::Proxy = wait {
            // Wakes both, by a signal to what nobody reads.
            for side in both {
                side.post(|| side.link.signal(side.there[1], 8, 1).expect("a signal"));
            }
        }
        times
    })
}

fn plain_stream(sockets: &mut [TcpStream; 2], from: &[u8], to: &mut [u8]) -> f64 {
    let [a, b] = sockets;
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            (0..PUTS).for_each(|_| b.read_exact(to).expect("bytes"));
            b.write_all(&[1]).expect("send");
        });
        scope.spawn(|| {
            pin(0);
            (0..PUTS).for_each(|_| a.write_all(from).expect("send"));
            a.read_exact(&mut [0]).expect("an answer");
        });
    });
    (PUTS * LARGE) as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn wire_stream(sides: &[Side; 2], base: u64) -> f64 {
    let [a, b] = sides;
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            b.spin(base + PUTS);
            b.put(8, base + PUTS);
            b.link.progress().expect("progress");
        });
        scope.spawn(|| {
            pin(0);
            (1..=PUTS).for_each(|put| a.put(LARGE, base + put));
            a.spin(base + PUTS);
        });
    });
    (PUTS * LARGE) as f64 / start.elapsed().as_secs_f64() / 1e9
}

/// The value below which so many of a thousand lie.
fn quantile(times: &mut [u64], of_thousand: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() - 1) * of_thousand / 1000] as f64 / 1000.0
}

fn report(name: &str, plain: &mut [u64], wire: &mut [u64]) {
    let (p50, w50) = (quantile(plain, 500), quantile(wire, 500));
    let (p99, w99) = (quantile(plain, 990), quantile(wire, 990));
    println!(
        "{name:6}  p50 {p50:7.2} us, wire {w50:7.2} us, ratio {:.2};  p99 {p99:7.2} us, wire {w99:7.2} us, ratio {:.2}",
        w50 / p50,
        w99 / p99
    );
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, otherwise: u64| {
        arguments.get(at).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let rounds = number(0, 40);
    let connections = number(1, u64::from(Options::default().connections)) as u16;
    let part = arguments.get(2).map_or("", String::as_str);
    let mut wired = sides(connections);
    let (mut spinning, mut blocking) = (sockets(false), sockets(true));
    let (from, mut to) = (vec![1u8; LARGE as usize], vec![1u8; LARGE as usize]);
    let mut base = 0;
    for (name, wait) in [("spin", Wait::Spin), ("sleep", Wait::Sleep), ("proxy", Wait::Proxy)] {
        let (mut there, mut here) = (Vec::new(), Vec::new());
        for round in (0..=rounds).filter(|_| name.contains(part)) {
            let (plainly, wired) = match wait {
                Wait::Spin => (plain(&mut spinning), wire(&mut wired, base, wait)),
                _ => (plain(&mut blocking), wire(&mut wired, base, wait)),
            };
            base += TRIPS as u64;
            // The first was to warm up.
            if round > 0 {
                there.extend(plainly);
                here.extend(wired);
            }
        }
        if !here.is_empty() {
            report(name, &mut there, &mut here);
        }
    }
    let mut rates: [Vec<f64>; 2] = Default::default();
    for _ in (0..=rounds).filter(|_| "stream".contains(part)) {
        rates[0].push(plain_stream(&mut blocking, &from, &mut to));
        rates[1].push(wire_stream(&wired, base));
        base += PUTS;
    }
    if !rates[0].is_empty() {
        let [plain, wire] = rates.each_mut().map(|rates| median(rates));
        println!("stream  {plain:.2} GB/s, wire {wire:.2} GB/s, ratio {:.2}", wire / plain);
    }
}
