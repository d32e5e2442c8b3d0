//! Programs in C and C++ against the library: by gcc and g++, shared and static, and each of these plain and watched. One
//! program starts processes, which are watched as well, and some are started as several ranks. Watched ones take a minute,
//! and run where `ANTIPHON_NEEDS_C_TOOLS` is set.
//!
//! They are watched by valgrind, or built with the sanitizers of addresses and of undefined behaviour: both of them for each
//! language and for each kind of library, but for the two together one of the two ([`Build::watcher`]), as each takes longer
//! than all that is plain.
//!
//! What of that there is not:
//!
//! - A program with the sanitizers under valgrind: each has a memory of its own, which the other does not understand.
//! - The program that starts processes by gcc: it is C++.
//! - Leaks of these processes, by the sanitizer: it looks for them where `exit` runs, and what was forked ends by `_exit`.
//!   Valgrind looks for them there, too.
//! - The library built with the sanitizers, which takes a nightly toolchain: `cargo xtask ci` tests the crates so. What the
//!   programs pass and what the library allocates is watched here all the same.
//! - Programs without any shared library (`-static`): the library looks for drivers of GPUs when it runs, for which the C
//!   library wants its loader.

mod watched;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use watched::{LEAKS, NEEDS, SANITIZERS, WATCH};

/// What a program that links the static library links beside it.
const NATIVE: [&str; 7] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];

const STRICT: [&str; 6] = ["-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"];

const SIGKILL: i32 = 9;

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
    succeeded(command, &output)
}

/// What a command printed that must have succeeded.
fn succeeded(command: &Command, output: &Output) -> String {
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

/// A program.
struct Program {
    /// Where it is, below the repository.
    source: &'static str,
    arguments: Vec<PathBuf>,
    /// The ranks that it is started as, each a process that finds its rank in the environment; none where it is started once.
    ranks: Option<u32>,
    /// The rank that kills itself.
    killed: Option<u32>,
    /// What it prints where all is well.
    says: &'static [&'static str],
}

impl Program {
    fn new(source: &'static str, says: &'static [&'static str]) -> Self {
        Program { source, arguments: Vec::new(), ranks: None, killed: None, says }
    }

    fn with(mut self, argument: impl Into<PathBuf>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    fn on_ranks(mut self, ranks: u32) -> Self {
        self.ranks = Some(ranks);
        self
    }

    fn losing(mut self, rank: u32) -> Self {
        self.killed = Some(rank);
        self
    }

    /// Runs the program by a command, which is made for each process, without its arguments.
    fn passes(&self, command: impl Fn() -> Command) {
        let with_arguments = || {
            let mut command = command();
            command.args(&self.arguments);
            command
        };
        let out = match self.ranks {
            None => run(&mut with_arguments()),
            Some(ranks) => run_ranks(ranks, self.killed, with_arguments),
        };
        let missing: Vec<_> = self.says.iter().filter(|said| !out.contains(**said)).collect();
        assert!(missing.is_empty(), "{:?} did not say {missing:?}: {out}", with_arguments());
    }

    /// Runs the program watched; it was built `plain`, as `built`.
    fn passes_watched(&self, plain: Build, built: &Path) {
        match plain.watcher() {
            Watcher::Valgrind => self.passes(|| {
                let mut command = without_driver("valgrind");
                command.args(WATCH).arg(built);
                command
            }),
            Watcher::Sanitizers => {
                let built = Build { sanitized: true, ..plain }.build(self.source);
                let symbols = run(Command::new("nm").arg(&built));
                assert!(symbols.contains("__asan_init"), "{} is not sanitized", built.display());
                self.passes(|| {
                    let mut command = without_driver(&built);
                    command.env(LEAKS.0, LEAKS.1);
                    command
                });
            }
        }
    }
}

/// Runs a command as so many ranks that meet, which must all succeed but for one that kills itself; what they printed.
fn run_ranks(ranks: u32, killed: Option<u32>, command: impl Fn() -> Command) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_nanos();
    // Nobody else's, since no other process of this machine has this number now.
    let place = format!("antiphon-{:032x}", now << 32 | u128::from(std::process::id()));
    let start = |rank: u32| {
        let mut command = command();
        command.env("ANTIPHON_RANK", rank.to_string()).env("ANTIPHON_WORLD", ranks.to_string());
        command.env("ANTIPHON_COMM_ID", &place).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        (command, child)
    };
    let started: Vec<_> = (0..ranks).map(start).collect();
    // All of them are waited for before any is judged, so that none is left.
    let ended = started.into_iter().map(|(command, child)| (command, child.wait_with_output()));
    let ended: Vec<_> = ended.collect();
    let printed = (0..).zip(&ended).map(|(rank, (command, output))| {
        let output = output.as_ref().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        if killed == Some(rank) {
            assert_eq!(output.status.signal(), Some(SIGKILL), "{command:?}: {}", output.status);
            return String::new();
        }
        succeeded(command, output)
    });
    printed.collect()
}

/// The programs in a language.
fn programs(language: Language) -> Vec<Program> {
    let plan = package().join("../examples/plans/allreduce_zero_copy_4.json");
    let mut programs = vec![
        Program::new("tests/c/collectives.c", &["collectives: ok"]).with(plan),
        Program::new("tests/c/groups.c", &["groups: ok"]),
        Program::new("tests/c/logged.c", &["logged: ok"]),
        Program::new("tests/c/misuse.c", &["misuse: ok"]),
        Program::new("tests/c/named.c", &["named: ok"]),
        Program::new("tests/c/registry.c", &["registry: ok"]),
        Program::new("tests/c/recovery.c", &["recovery: ok, 0 of 2", "recovery: ok, 1 of 2"])
            .on_ranks(3)
            .losing(2),
    ];
    let says = &["rank 0 of 2: every element is 3", "rank 1 of 2: every element is 3"];
    match language {
        Language::C => {
            programs.push(Program::new("examples/c/all_reduce.c", says).on_ranks(2));
            programs.push(Program::new("examples/c/overlap.c", says).on_ranks(2));
        }
        Language::Cxx => {
            programs.push(Program::new("examples/c/client.cpp", says).with("2"));
            programs.push(Program::new("tests/c/exceptions.cpp", &["exceptions: ok"]));
        }
    }
    programs
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    C,
    Cxx,
}

impl Language {
    fn compiler(self) -> &'static str {
        match self {
            Language::C => "gcc",
            Language::Cxx => "g++",
        }
    }

    /// What makes a source one of the language, whatever its name says.
    fn options(self) -> &'static [&'static str] {
        match self {
            Language::C => &["-std=c11"],
            Language::Cxx => &["-std=c++17", "-x", "c++"],
        }
    }
}

/// How a program is built.
#[derive(Clone, Copy, Debug)]
struct Build {
    language: Language,
    statically: bool,
    sanitized: bool,
}

/// What finds accesses of memory that is not a program's.
#[derive(Clone, Copy, Debug)]
enum Watcher {
    Valgrind,
    Sanitizers,
}

impl Build {
    /// By what a program that is built so is watched.
    fn watcher(self) -> Watcher {
        match (self.language, self.statically) {
            (Language::C, false) | (Language::Cxx, true) => Watcher::Valgrind,
            (Language::C, true) | (Language::Cxx, false) => Watcher::Sanitizers,
        }
    }

    /// Builds a program.
    fn build(self, source: &str) -> PathBuf {
        let Build { language, statically, sanitized } = self;
        let source = package().join("..").join(source);
        let stem = source.file_stem().expect("the name of a source").to_string_lossy();
        let kind = if statically { "static" } else { "shared" };
        let more = if sanitized { "-sanitized" } else { "" };
        let name = format!("{stem}-{language:?}-{kind}{more}");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let program = folder.join(&name);
        let mut command = Command::new(language.compiler());
        command.args(STRICT).args(language.options());
        if sanitized {
            command.args(SANITIZERS);
        }
        command.arg("-I").arg(package().join("include")).arg("-o").arg(&program).arg(source);
        // What follows is no source any more.
        command.args(["-x", "none"]);
        if statically {
            command.arg(libraries().join("libantiphon_c.a")).args(NATIVE);
        } else {
            // By its soname, as installed programs find it.
            let own = folder.join(format!("lib-{name}"));
            fs::create_dir_all(&own).expect("a folder");
            for name in ["libantiphon.so", "libantiphon.so.1"] {
                let link = own.join(name);
                let _ = fs::remove_file(&link);
                std::os::unix::fs::symlink(libraries().join("libantiphon_c.so"), link)
                    .expect("a link");
            }
            command.arg("-L").arg(&own).arg("-lantiphon");
            command.arg(format!("-Wl,-rpath,{}", own.display()));
        }
        run(&mut command);
        program
    }
}

/// Builds every program of a language for a kind of library, and runs it plain and, where that is asked for, watched.
fn passes(language: Language, statically: bool) {
    if !is_there(language.compiler()) {
        return;
    }
    let watched = std::env::var_os(NEEDS).is_some();
    if !watched {
        println!("SKIP: nothing is run under valgrind or with sanitizers; set {NEEDS}=1");
    }
    for program in programs(language) {
        let plain = Build { language, statically, sanitized: false };
        let built = plain.build(program.source);
        program.passes(|| without_driver(&built));
        if watched {
            program.passes_watched(plain, &built);
        }
    }
}

#[test]
fn programs_in_c_are_right_with_the_shared_library() {
    passes(Language::C, false);
}

#[test]
fn programs_in_c_are_right_with_the_static_library() {
    passes(Language::C, true);
}

#[test]
fn programs_in_cpp_are_right_with_the_shared_library() {
    passes(Language::Cxx, false);
}

#[test]
fn programs_in_cpp_are_right_with_the_static_library() {
    passes(Language::Cxx, true);
}

#[test]
fn structures_lie_in_memory_as_they_did() {
    // What it asserts, the compiler checks.
    if is_there("gcc") {
        let build = Build { language: Language::C, statically: false, sanitized: false };
        build.build("tests/c/layout.c");
    }
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
