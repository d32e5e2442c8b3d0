//! Places where a job meets, and unique ids.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    antiphon_bootstrap::fuzzing::places(bytes);
});
