//! A stream of frames between ranks, cut anywhere.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    antiphon_bootstrap::fuzzing::frames(bytes);
});
