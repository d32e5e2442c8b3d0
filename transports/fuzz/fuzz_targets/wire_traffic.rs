//! What a peer says on the stripes of a link of the TCP wire.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    antiphon_port::fuzzing::wire_traffic(bytes);
});
