//! The head of a frame of the TCP wire.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    antiphon_port::fuzzing::wire_frame(bytes);
});
