//! What `cargo xtask install` puts somewhere is found by pkg-config and CMake, and the programs so built reduce over
//! several processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use xtask::{install, repo};

/// Set where the tools must be there.
const NEEDS: &str = "ANTIPHON_NEEDS_C_TOOLS";

/// A folder that goes with its owner.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("antiphon-installed-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_there(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok_and(|o| o.status.success());
    assert!(found || std::env::var_os(NEEDS).is_none(), "{tool} is not there, and {NEEDS} is set");
    if !found {
        println!("SKIP: {tool} is not there");
    }
    found
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    output
}

/// Runs a program as both ranks of a job.
fn as_two_ranks(program: &Path, library: &Path) {
    let id = format!("antiphon-{:032x}", u128::from(std::process::id()) << 64 | 0xa17);
    let ranks: Vec<_> = (0..2)
        .map(|rank: u32| {
            let mut command = Command::new(program);
            command.env("ANTIPHON_RANK", rank.to_string()).env("ANTIPHON_WORLD", "2");
            command.env("ANTIPHON_COMM_ID", &id).env("LD_LIBRARY_PATH", library);
            command.stdout(std::process::Stdio::piped()).spawn().expect("the program starts")
        })
        .collect();
    for (rank, child) in ranks.into_iter().enumerate() {
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "rank {rank}: {text}");
        assert!(text.contains(&format!("rank {rank} of 2: every element is 3")), "{text}");
    }
}

/// A program that links NCCL, and has the library from a folder beside that of libantiphon.so.
fn in_the_place_of_nccl(folder: &Path, library: &Path) {
    let (source, program) = (folder.join("nccl.c"), folder.join("nccl"));
    let text = "#include <stdio.h>
typedef struct { char internal[128]; } ncclUniqueId;
int ncclGetVersion(int *version);
int ncclGetUniqueId(ncclUniqueId *id);
int main(void) {
    int version = 0;
    ncclUniqueId id;
    if (ncclGetVersion(&version) != 0 || ncclGetUniqueId(&id) != 0) return 1;
    printf(\"version %d\\n\", version);
    return 0;
}
";
    fs::write(&source, text).expect("the program");
    let own = library.join("nccl");
    let mut gcc = Command::new("gcc");
    gcc.arg(&source).arg("-o").arg(&program).arg("-L").arg(&own).arg("-lnccl");
    run(&mut gcc);
    let mut command = Command::new(&program);
    command.env("ANTIPHON_DEVICE", "host").env("LD_LIBRARY_PATH", &own);
    let output = run(&mut command);
    assert!(String::from_utf8_lossy(&output.stdout).contains("version 232"), "{output:?}");
}

#[test]
fn an_installed_library_is_found_and_used() {
    if std::env::var_os(NEEDS).is_none() {
        println!("SKIP: it builds the library once more, for release; set {NEEDS}=1");
        return;
    }
    let folder = Folder::new();
    let prefix = folder.0.join("first");
    install::run(&install::Options { prefix: prefix.clone(), debug: false }).expect("installed");
    // Nothing names where it was installed to.
    let moved = folder.0.join("moved");
    fs::rename(&prefix, &moved).expect("moved");
    let library = moved.join("lib");
    let examples = repo::root().join("examples/c");

    let info = run(Command::new(moved.join("bin/antiphon")).arg("--version"));
    assert!(String::from_utf8_lossy(&info.stdout).contains(env!("CARGO_PKG_VERSION")));

    if is_there("pkg-config") && is_there("gcc") {
        for statically in [false, true] {
            let mut ask = Command::new("pkg-config");
            ask.args(["--cflags", "--libs", "antiphon"])
                .env("PKG_CONFIG_PATH", library.join("pkgconfig"));
            if statically {
                ask.arg("--static");
            }
            let flags = String::from_utf8(run(&mut ask).stdout).expect("flags");
            let flags = match statically {
                // Of the two that -lantiphon means the linker takes the shared one.
                true => flags.replace("-lantiphon", "-l:libantiphon.a"),
                false => flags,
            };
            let program = folder.0.join("all_reduce");
            let mut gcc = Command::new("gcc");
            gcc.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"]).arg(&program);
            gcc.arg(examples.join("all_reduce.c")).args(flags.split_whitespace());
            run(&mut gcc);
            as_two_ranks(&program, &library);
        }
    }

    if is_there("gcc") {
        in_the_place_of_nccl(&folder.0, &library);
    }

    if is_there("cmake") && is_there("g++") {
        let build = folder.0.join("build");
        let mut configure = Command::new("cmake");
        configure.arg("-S").arg(&examples).arg("-B").arg(&build);
        configure.arg(format!("-DCMAKE_PREFIX_PATH={}", moved.display()));
        configure.arg("-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror");
        run(&mut configure);
        run(Command::new("cmake").arg("--build").arg(&build));
        let output = run(Command::new(build.join("client")).arg("3"));
        let text = String::from_utf8_lossy(&output.stdout);
        for rank in 0..3 {
            assert!(text.contains(&format!("rank {rank} of 3: every element is 6")), "{text}");
        }
    }
}
