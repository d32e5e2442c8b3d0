//! Reads any bytes as a plan, checks it, and reads back what is written of a sound one.
#![no_main]

use antiphon_plan::{Style, check, pairing, read, write};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(found) = read(bytes) else { return };
    let _ = pairing(&found.plan);
    if let Err(faults) = check(&found.plan) {
        let _ = faults.to_string();
        return;
    }
    let mut written = Vec::new();
    write(&found.plan, Style::Compact, &mut written).expect("memory takes all that is written");
    let again = read(&written).expect("what was read can be written and read");
    assert_eq!(again.plan, found.plan);
});
