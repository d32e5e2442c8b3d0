//! The committed header is the one that the sources make.

use std::path::Path;

/// Set to write the header instead of comparing it.
const WRITE: &str = "ANTIPHON_WRITE_HEADER";

#[test]
fn the_header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings = cbindgen::Builder::new().with_crate(root).with_config(config).generate();
    let mut made = Vec::new();
    bindings.expect("the sources are readable").write(&mut made);
    // What Rust calls safety is what C calls a contract.
    let made =
        String::from_utf8(made).expect("UTF-8").replace("# Safety", "The caller sees to it:");
    let path = root.join("include/antiphon.h");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &made).expect("the header is writable");
        return;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = committed.lines().zip(made.lines()).position(|(old, new)| old != new);
    assert!(
        committed == made,
        "ffi/include/antiphon.h is not that of the sources (from line {}): make it by {WRITE}=1 cargo test -p antiphon-ffi \
         --test header, and see CHANGELOG.md and ffi/abi for what else a change of the interface takes",
        differs.map_or(1, |line| line + 1)
    );
}
