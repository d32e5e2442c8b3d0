//! Programs in C and C++ against the library: shared and static, by gcc and g++, under sanitizers and valgrind.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set where the tools must be there.
const NEEDS: &str = "ANTIPHON_NEEDS_C_TOOLS";

/// What a program that links the static library links beside it.
const NATIVE: [&str; 7] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];

const STRICT: [&str; 6] = ["-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"];

/// The folder of this package.
fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder where cargo puts the libraries for the tests of this package.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.parent().expect("its folder").to_path_buf();
    assert!(
        folder.join("libantiphon_c.so").exists(),
        "no libantiphon_c.so in {}",
        folder.display()
    );
    folder
}

fn is_there(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok_and(|o| o.status.success());
    assert!(found || std::env::var_os(NEEDS).is_none(), "{tool} is not there, and {NEEDS} is set");
    if !found {
        println!("SKIP: {tool} is not there");
    }
    found
}

/// Runs a command that must succeed; what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out
}

/// A command for which this machine has no driver of CUDA's.
fn without_driver(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("ANTIPHON_CUDA_LIB", "/nowhere/libcuda.so.1");
    command
}

/// How a program is built.
struct Build {
    name: &'static str,
    compiler: &'static str,
    language: &'static [&'static str],
    statically: bool,
    more: &'static [&'static str],
}

const C: &[&str] = &["-std=c11"];
const CXX: &[&str] = &["-std=c++17", "-x", "c++"];

impl Build {
    /// Builds a program of tests/c; none without the compiler.
    fn program(&self, source: &str) -> Option<PathBuf> {
        if !is_there(self.compiler) {
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let stem = source.split('.').next().unwrap_or(source);
        let program = folder.join(format!("{stem}-{}", self.name));
        let libraries = libraries();
        let mut command = Command::new(self.compiler);
        command.args(STRICT).args(self.language).args(self.more);
        command.arg("-I").arg(package().join("include")).arg("-o").arg(&program);
        command.arg(package().join("../tests/c").join(source));
        // What follows is no source any more.
        command.args(["-x", "none"]);
        if self.statically {
            command.arg(libraries.join("libantiphon_c.a")).args(NATIVE);
        } else {
            // By its soname, as installed programs find it.
            let own = folder.join(format!("lib-{stem}-{}", self.name));
            fs::create_dir_all(&own).expect("a folder");
            for name in ["libantiphon.so", "libantiphon.so.1"] {
                let link = own.join(name);
                let _ = fs::remove_file(&link);
                std::os::unix::fs::symlink(libraries.join("libantiphon_c.so"), link)
                    .expect("a link");
            }
            command.arg("-L").arg(&own).arg("-lantiphon");
            command.arg(format!("-Wl,-rpath,{}", own.display()));
        }
        run(&mut command);
        Some(program)
    }
}

const PLAIN: [Build; 4] = [
    Build { name: "c-shared", compiler: "gcc", language: C, statically: false, more: &[] },
    Build { name: "c-static", compiler: "gcc", language: C, statically: true, more: &[] },
    Build { name: "c++-shared", compiler: "g++", language: CXX, statically: false, more: &[] },
    Build { name: "c++-static", compiler: "g++", language: CXX, statically: true, more: &[] },
];

const SANITIZED: Build = Build {
    name: "c-sanitized",
    compiler: "gcc",
    language: C,
    statically: false,
    more: &["-fsanitize=address,undefined", "-fno-omit-frame-pointer"],
};

/// By itself, so that no other test writes the file while it runs.
const WATCHED: Build =
    Build { name: "c-watched", compiler: "gcc", language: C, statically: false, more: &[] };

/// The programs, with their arguments.
fn programs() -> [(&'static str, Vec<PathBuf>); 4] {
    let plan = package().join("../examples/plans/allreduce_zero_copy_4.json");
    [
        ("collectives.c", vec![plan]),
        ("groups.c", Vec::new()),
        ("misuse.c", Vec::new()),
        ("registry.c", Vec::new()),
    ]
}

#[test]
fn programs_in_c_and_cpp_do_what_they_should() {
    for build in PLAIN {
        for (source, arguments) in programs() {
            let Some(program) = build.program(source) else { continue };
            let out = run(without_driver(program).args(arguments));
            assert!(out.contains(": ok"), "{out}");
        }
    }
}

#[test]
fn the_address_sanitizer_finds_nothing() {
    for (source, arguments) in programs() {
        let Some(program) = SANITIZED.program(source) else { continue };
        let symbols = run(Command::new("nm").arg(&program));
        assert!(symbols.contains("__asan_init"), "{source} is not sanitized");
        let mut command = without_driver(program);
        let out = run(command.args(arguments).env("ASAN_OPTIONS", "detect_leaks=1"));
        assert!(out.contains(": ok"), "{out}");
    }
}

#[test]
fn valgrind_finds_nothing() {
    if !is_there("valgrind") {
        return;
    }
    for (source, arguments) in programs() {
        let Some(program) = WATCHED.program(source) else { continue };
        let mut command = without_driver("valgrind");
        command.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
        command.args(["--errors-for-leak-kinds=definite", "--fair-sched=yes"]);
        let out = run(command.arg(program).args(arguments));
        assert!(out.contains(": ok"), "{out}");
    }
}

#[test]
fn structures_lie_in_memory_as_they_did() {
    // What it asserts, the compiler checks.
    PLAIN[0].program("layout.c");
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    if !is_there("nm") {
        return;
    }
    let library = libraries().join("libantiphon_c.so");
    let listed =
        run(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(&library));
    let exported: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    let header = fs::read_to_string(package().join("include/antiphon.h")).expect("the header");
    let mut declared: Vec<&str> = header
        .lines()
        .filter(|line| !line.trim_start().starts_with(['*', '/', '#']))
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("antiphon_"))
        .collect();
    declared.sort_unstable();
    let mut exported = exported;
    exported.sort_unstable();
    assert_eq!(exported, declared);
    let names = run(Command::new("readelf").arg("-d").arg(&library));
    assert!(names.contains("soname: [libantiphon.so.1]"), "{names}");
}
