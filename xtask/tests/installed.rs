//! What `cargo xtask install` puts somewhere is found by pkg-config and CMake, where it is the version that is asked for, and
//! the programs so built, with the shared library and with the static one, reduce over several processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use xtask::{install, repo};

/// Set where the tools must be there.
const NEEDS: &str = "ANTIPHON_NEEDS_C_TOOLS";

/// Not on the path of users who are not root.
const LDCONFIG: &str = "/sbin/ldconfig";

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

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
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
        let text = said(&output.stdout);
        assert!(output.status.success(), "rank {rank}: {text}");
        assert!(text.contains(&format!("rank {rank} of 2: every element is 3")), "{text}");
    }
}

/// The example, with the shared library and with the static one.
fn by_pkg_config(folder: &Path, library: &Path) {
    for statically in [false, true] {
        let mut ask = Command::new("pkg-config");
        ask.args(["--cflags", "--libs", "antiphon"]);
        ask.env("PKG_CONFIG_PATH", library.join("pkgconfig"));
        if statically {
            ask.arg("--static");
        }
        let flags = String::from_utf8(run(&mut ask).stdout).expect("flags");
        let flags = match statically {
            // Of the two that -lantiphon means the linker takes the shared one.
            true => flags.replace("-lantiphon", "-l:libantiphon.a"),
            false => flags,
        };
        let program = folder.join("all_reduce");
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"]).arg(&program);
        gcc.arg(repo::root().join("examples/c/all_reduce.c")).args(flags.split_whitespace());
        run(&mut gcc);
        as_two_ranks(&program, library);
    }
}

/// The libraries where a system with several architectures has them.
fn elsewhere(folder: &Path) {
    let (prefix, libdir) = (folder.join("second"), PathBuf::from("lib/x86_64-linux-gnu"));
    let library = prefix.join(&libdir);
    let options = install::Options { prefix: prefix.clone(), libdir, debug: false };
    install::run(&options).expect("installed");
    if is_there("pkg-config") && is_there("gcc") {
        by_pkg_config(folder, &library);
    }
    if is_there("cmake") && is_there("g++") {
        let build = folder.join("elsewhere");
        let mut configure = configure(&repo::root().join("examples/c"), &build, &prefix);
        // Systems without such folders do not look there.
        let config = library.join("cmake/antiphon");
        run(configure.arg(format!("-Dantiphon_DIR={}", config.display())));
        client(&build, true);
    }
}

/// The example of a program for NCCL, built and run as its page says: with the library where programs find NCCL, and before it.
fn in_the_place_of_nccl(folder: &Path, library: &Path) {
    let (program, own) = (folder.join("program"), library.join("nccl"));
    let mut gcc = Command::new("gcc");
    gcc.arg(repo::root().join("examples/nccl/all_reduce.c")).arg("-o").arg(&program);
    run(gcc.arg("-L").arg(&own).arg("-lnccl"));
    let preloaded = own.join("libantiphon_nccl.so");
    for (name, value) in [("LD_LIBRARY_PATH", own), ("LD_PRELOAD", preloaded)] {
        let mut command = Command::new(&program);
        // It finds libantiphon.so by itself.
        command.env_remove("ANTIPHON_LIB_PATH").env_remove("LD_LIBRARY_PATH");
        command.env("ANTIPHON_DEVICE", "host").env(name, &value);
        let text = said(&run(&mut command).stdout);
        for rank in 0..2 {
            assert!(text.contains(&format!("rank {rank} of 2: every element is 3")), "{text}");
        }
    }
}

/// A system that looks for libraries in the folder does not take this one for NCCL.
fn ldconfig_sees_no_nccl(library: &Path) {
    run(Command::new(LDCONFIG).arg("-n").arg(library));
    let entries = fs::read_dir(library).expect("the folder").flatten();
    let names: Vec<_> = entries.map(|entry| said(entry.file_name().as_encoded_bytes())).collect();
    assert!(names.iter().any(|name| name.starts_with("libantiphon.so.")), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("libnccl")), "{names:?}");
}

/// The command lines of the README's ways in before Python's, but for the first, which installs, typed as they stand there.
fn as_the_readme_says(folder: &Path, installed: &Path) {
    let readme = fs::read_to_string(repo::root().join("README.md")).expect("the README");
    let (_, ways) = readme.split_once("\n## Ways in\n").expect("its ways in");
    let (ways, _) = ways.split_once("\nFrom **Python**").expect("what follows them");
    let mut lines = ways.lines().filter_map(|line| line.strip_prefix("$ "));
    assert_eq!(lines.next(), Some("cargo xtask install --prefix $HOME/antiphon"));
    let script = lines.collect::<Vec<_>>().join("\n");

    let home = folder.join("home");
    fs::create_dir_all(&home).expect("a folder");
    for (name, place) in [("antiphon", installed), ("examples", &repo::root().join("examples"))] {
        std::os::unix::fs::symlink(place, home.join(name)).expect("a link");
    }
    let mut shell = Command::new("bash");
    shell.args(["-ec", &script]).env("HOME", &home).env_remove("ANTIPHON_LIB_PATH");
    let text = said(&run(shell.current_dir(&home)).stdout);
    // From C and as NCCL two ranks each, and three from C++.
    for (expected, times) in [
        ("rank 0 of 2: every element is 3", 2),
        ("rank 1 of 2: every element is 3", 2),
        ("rank 2 of 3: every element is 6", 1),
    ] {
        assert_eq!(text.matches(expected).count(), times, "{expected}: {text}");
    }
}

/// A project that asks for versions one after the other, says which of them it was given, and builds a program with the
/// static library of the one that it must have.
const PROJECT: &str = r#"cmake_minimum_required(VERSION 3.16)
project(asks CXX)

foreach(wanted IN LISTS WANTED)
  separate_arguments(words UNIX_COMMAND "${wanted}")
  find_package(antiphon ${words} QUIET CONFIG)
  if(antiphon_FOUND)
    message(STATUS "wanted ${wanted}: got ${antiphon_VERSION}")
  else()
    message(STATUS "wanted ${wanted}: none")
  endif()
endforeach()

find_package(antiphon ${NEEDED} REQUIRED CONFIG)

add_executable(client "${CLIENT}")
target_compile_features(client PRIVATE cxx_std_17)
target_link_libraries(client PRIVATE antiphon::static)
"#;

/// CMake, asked to prepare a project over what is installed.
fn configure(source: &Path, build: &Path, installed: &Path) -> Command {
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(source).arg("-B").arg(build);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", installed.display()));
    configure.arg("-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror");
    configure
}

/// Builds the client, runs it with three ranks, and looks whether it takes the shared library.
fn client(build: &Path, shared: bool) {
    run(Command::new("cmake").arg("--build").arg(build));
    let client = build.join("client");
    let text = said(&run(Command::new(&client).arg("3")).stdout);
    for rank in 0..3 {
        assert!(text.contains(&format!("rank {rank} of 3: every element is 6")), "{text}");
    }
    let needed = said(&run(Command::new("readelf").arg("-d").arg(&client)).stdout);
    assert_eq!(needed.contains("[libantiphon.so."), shared, "{needed}");
}

/// The example, as its project has it, and then what else a project may ask of the package.
fn by_cmake(folder: &Path, installed: &Path) {
    let examples = repo::root().join("examples/c");
    let build = folder.join("shared");
    run(&mut configure(&examples, &build, installed));
    client(&build, true);

    let project = folder.join("asks");
    fs::create_dir_all(&project).expect("a folder");
    fs::write(project.join("CMakeLists.txt"), PROJECT).expect("a project");
    let version = env!("CARGO_PKG_VERSION");
    let numbers: Vec<u32> = version.split('.').map(|part| part.parse().expect("one")).collect();
    let [major, minor, patch] = numbers[..] else { panic!("version {version}") };
    assert_eq!(major, 0, "say here and in docs/c.md what serves whom from version 1 on");
    let series = format!("0.{minor}");
    let right = [series.clone(), version.to_owned(), format!("{version} EXACT")];
    let mut wrong = vec![
        format!("{series}.{}", patch + 1),
        format!("0.{}", minor + 1),
        "1.0".to_owned(),
        "99".to_owned(),
    ];
    wrong.extend((minor > 0).then(|| format!("0.{}", minor - 1)));
    let asks = |needed: &str| {
        let mut command = configure(&project, &folder.join("static"), installed);
        command.arg(format!("-DCLIENT={}", examples.join("client.cpp").display()));
        command.arg(format!("-DWANTED={};{}", right.join(";"), wrong.join(";")));
        command.arg(format!("-DNEEDED={needed}"));
        command
    };
    let refused = asks("99").output().expect("cmake");
    let why = said(&refused.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!refused.status.success() && why.contains("requested version \"99\""), "{why}");
    assert!(why.contains(&format!("version: {version}")), "{why}");

    let text = said(&run(&mut asks(&series)).stdout);
    let answers: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("-- wanted ")).collect();
    let got = right.iter().map(|wanted| format!("{wanted}: got {version}"));
    let none = wrong.iter().map(|wanted| format!("{wanted}: none"));
    assert_eq!(answers, got.chain(none).collect::<Vec<_>>(), "{text}");
    client(&folder.join("static"), false);
}

#[test]
fn an_installed_library_is_found_and_used() {
    if std::env::var_os(NEEDS).is_none() {
        println!("SKIP: it builds the library once more, for release; set {NEEDS}=1");
        return;
    }
    let folder = Folder::new();
    let prefix = folder.0.join("first");
    let libdir = PathBuf::from("lib");
    install::run(&install::Options { prefix: prefix.clone(), libdir, debug: false })
        .expect("installed");
    // Nothing names where it was installed to.
    let moved = folder.0.join("moved");
    fs::rename(&prefix, &moved).expect("moved");
    let library = moved.join("lib");

    for licence in repo::LICENCES {
        let text = fs::read(moved.join("share/licenses/antiphon").join(licence));
        assert_eq!(text.ok(), fs::read(repo::root().join(licence)).ok(), "{licence}");
    }
    let info = run(Command::new(moved.join("bin/antiphon")).arg("--version"));
    assert!(said(&info.stdout).contains(env!("CARGO_PKG_VERSION")));

    if is_there("pkg-config") && is_there("gcc") {
        by_pkg_config(&folder.0, &library);
    }

    if is_there(LDCONFIG) {
        ldconfig_sees_no_nccl(&library);
    }
    if is_there("gcc") {
        in_the_place_of_nccl(&folder.0, &library);
    }

    if is_there("cmake") && is_there("g++") {
        by_cmake(&folder.0, &moved);
        if is_there("pkg-config") && is_there("gcc") {
            as_the_readme_says(&folder.0, &moved);
        }
    }
    elsewhere(&folder.0);
}
