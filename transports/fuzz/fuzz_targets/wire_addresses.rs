//! Addresses of openings and of regions, as peers tell them: of the TCP wire, and of the RDMA wire.
#![no_main]

use antiphon_wire_rdma::address::{decode_link, decode_region, encode_link, encode_region};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    antiphon_port::fuzzing::wire_address(bytes);
    if let Ok(lanes) = decode_link(bytes) {
        assert_eq!(decode_link(&encode_link(&lanes)), Ok(lanes));
    }
    for length in [1, 1 << 20, u64::MAX] {
        if let Ok(region) = decode_region(bytes, length) {
            assert_eq!(encode_region(&region), bytes);
        }
    }
});
