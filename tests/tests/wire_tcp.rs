//! The conformance suite of wires, on TCP over both families of addresses, with many connections to a link and with one.

use antiphon_port::tcp::Options;
use antiphon_port::{TcpDriver, WireDriver};
use antiphon_tests::wire::Ends;
use antiphon_tests::wire_suite;
use std::time::Duration;

fn open(connections: u16, address: &str, ranks: u32) -> Ends {
    let mut options = Options::default();
    options.connections = connections;
    // A busy machine may take its time.
    options.patience = Duration::from_secs(12);
    let driver: &dyn WireDriver = &TcpDriver::new(options);
    Ends::open(driver, Some(address), ranks).unwrap()
}

fn open_v4(ranks: u32) -> Ends {
    open(4, "127.0.0.1", ranks)
}

fn open_v6(ranks: u32) -> Ends {
    open(4, "::1", ranks)
}

fn open_single(ranks: u32) -> Ends {
    open(1, "127.0.0.1", ranks)
}

wire_suite! {
    tcp => (crate::open_v4),
    tcp_v6 => (crate::open_v6),
    tcp_single => (crate::open_single),
}
