//! The handshake of the TCP wire, disturbed.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    antiphon_port::fuzzing::wire_handshake(bytes);
});
