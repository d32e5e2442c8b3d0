//! The handshake of two ranks, disturbed.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    antiphon_bootstrap::fuzzing::handshake(bytes);
});
