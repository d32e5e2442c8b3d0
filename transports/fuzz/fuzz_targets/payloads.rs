//! What ranks tell each other in frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    antiphon_bootstrap::fuzzing::payloads(bytes);
});
