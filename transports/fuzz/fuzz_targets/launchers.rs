//! What launchers say, and leave in the environment.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    antiphon_bootstrap::fuzzing::launchers(bytes);
});
