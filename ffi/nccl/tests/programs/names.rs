//! Both names of each function: a program that calls all of them, on the host and where a library that is named makes all calls.

use crate::tools::table::rows;
use crate::tools::{build, header, link, on_host, run};
use std::path::Path;

#[test]
fn a_function_is_the_same_by_both_of_its_names() {
    let Some(header) = header() else { return };
    let folder = &Path::new(env!("CARGO_TARGET_TMPDIR")).join("names");
    std::fs::create_dir_all(folder).expect("a folder");
    let own = link(folder, &["libnccl.so.2"], "libantiphon_nccl.so");
    let all: Vec<String> = rows().into_iter().map(|row| row.symbol).collect();
    let line = |name: &String| match &**name {
        "ncclResetDebugInitInternal" => format!("ONCE({name}, ncclResetDebugInit)\n"),
        name => format!("BOTH({name})\n"),
    };
    let text: String = all.iter().map(line).collect();
    std::fs::write(folder.join("names.inc"), text).expect("a file");
    let (program, mirror) = (folder.join("program"), folder.join("libmirror.so"));
    run(build(&header, "names.cpp", &program).arg("-I").arg(folder).arg(&own));
    let options = ["-shared", "-fPIC", "-I"];
    run(build(&header, "mirror.cpp", &mirror).args(options).arg(folder));
    let said = format!("names: {} ok", all.len());
    let mut here = on_host(&program);
    let out = run(here.env("LD_LIBRARY_PATH", folder));
    assert!(out.contains(&said), "{out}");
    let mut there = on_host(&program);
    there.env("LD_LIBRARY_PATH", folder).env("ANTIPHON_DEVICE", "none");
    let out = run(there.env("ANTIPHON_NCCL_LIB_PATH", &mirror));
    assert!(out.contains(&said), "{out}");
}
