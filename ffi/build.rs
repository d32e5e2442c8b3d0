//! Names the shared library by its binary interface, so that programs find one that they can work with.

fn main() {
    println!("cargo::rerun-if-changed=src/version.rs");
    let source = std::fs::read_to_string("src/version.rs").unwrap_or_default();
    let line =
        source.lines().find_map(|line| line.strip_prefix("pub const ANTIPHON_ABI_MAJOR: u32 = "));
    let Some(major) = line.and_then(|line| line.strip_suffix(';')) else {
        println!("cargo::error=cannot find ANTIPHON_ABI_MAJOR in src/version.rs");
        return;
    };
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libantiphon.so.{major}");
}
