//! Who is measured over two hosts: Open MPI as the distribution has it, and Antiphon's ranks as a launcher starts them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::executor::{Entry, HOST_ENTRIES};
use super::super::job;
use super::super::peers::{self, Group};
use super::network::{HOSTS, Network, SUBNET};
use crate::{Error, Result, repo};

/// A subject.
#[derive(Clone, Copy, Debug)]
pub enum Subject {
    /// Open MPI: over TCP between hosts, over shared memory on each.
    OpenMpi {
        /// Whether a rank that waits gives its core away.
        yields: bool,
    },
    /// A set-up of Antiphon.
    Antiphon(&'static Entry),
}

/// A subject that is built.
#[derive(Clone, Debug)]
pub struct Ready {
    /// What it is.
    pub subject: Subject,
    /// Its name and version for the report.
    pub title: String,
    program: PathBuf,
}

/// All subjects in the order of the tables.
pub fn all() -> Vec<Subject> {
    let peers = [true, false].map(|yields| Subject::OpenMpi { yields });
    peers.into_iter().chain(HOST_ENTRIES.iter().map(Subject::Antiphon)).collect()
}

impl Subject {
    /// The name in tables and on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::OpenMpi { yields: true } => "openmpi",
            Self::OpenMpi { yields: false } => "openmpi-spin",
            Self::Antiphon(entry) => entry.name,
        }
    }

    /// Whether ratios compare with it.
    pub fn is_peer(&self) -> bool {
        matches!(self, Self::OpenMpi { .. })
    }

    /// Installs what is missing, if `install` allows, and builds.
    pub fn prepare(self, install: bool) -> Result<Ready> {
        match self {
            Self::OpenMpi { yields } => {
                let (program, version) = open_mpi(install)?;
                let waits = if yields { "a waiting rank yields its core" } else { "as it comes" };
                Ok(Ready { subject: self, title: format!("{version}, {waits}"), program })
            }
            Self::Antiphon(entry) => {
                let mut command = repo::cargo();
                command.args(["build", "--release", "--package", "antiphon-lab"]);
                repo::capture("build the ranks of Antiphon", &mut command)?;
                let program = repo::target_dir().join("release/antiphon-lab");
                let plain = entry.name.ends_with("plain");
                let memory = if plain { "plain memory" } else { "its own memory" };
                let title = format!("{}, {memory}", peers::antiphon_title());
                Ok(Ready { subject: self, title, program })
            }
        }
    }
}

/// The distribution's Open MPI: the harness built with it, and what it calls itself.
fn open_mpi(install: bool) -> Result<(PathBuf, String)> {
    let what = "build the harness of Open MPI";
    let have = || Command::new("mpicc.openmpi").arg("--showme:version").output().is_ok();
    let header = Path::new("/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h");
    if install && !(have() && (header.exists() || !Path::new("/usr/bin/apt-get").exists())) {
        repo::capture(what, Command::new("apt-get").args(["update", "-qq"]))?;
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive").args(["install", "-y", "-qq"]);
        apt.args(["--no-install-recommends", "openmpi-bin", "libopenmpi-dev"]);
        repo::capture(what, &mut apt)?;
    }
    let build = peers::build_dir();
    std::fs::create_dir_all(&build).map_err(Error::io(what))?;
    let program = build.join("hosts-openmpi");
    let source = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("bench").join(name);
    let mut command = Command::new("mpicc.openmpi");
    command.args(["-std=gnu11", "-O3", "-Wall"]).args(job::definitions());
    command.args([source("mpi.c"), source("harness.c")]);
    repo::capture(what, command.arg("-o").arg(&program))?;
    let mut version = Command::new("mpirun.openmpi");
    let said = repo::capture("ask Open MPI's version", version.arg("--version"))?;
    let number = said.lines().next().and_then(|line| line.split(' ').next_back());
    Ok((program, format!("Open MPI {}", number.unwrap_or("of unknown version"))))
}

impl Ready {
    /// The commands that start a group over both hosts, half of the ranks on each; `port` is one nobody used before.
    pub fn commands(
        &self,
        network: &Network,
        group: &Group<'_>,
        port: u16,
    ) -> Result<Vec<Command>> {
        match self.subject {
            Subject::OpenMpi { yields } => Ok(vec![self.mpirun(network, group, yields)]),
            Subject::Antiphon(entry) => {
                let secret = secret()?;
                let start = |rank: usize| {
                    let host = rank * HOSTS.len() / group.ranks;
                    let mut command = network.command(host, &self.program);
                    command.env("TMPDIR", group.rendezvous).env("ANTIPHON_HOSTID", HOSTS[host]);
                    command.env("ANTIPHON_RANK", rank.to_string());
                    command.env("ANTIPHON_WORLD", group.ranks.to_string());
                    command.env("ANTIPHON_COMM_ID", format!("{}:{port}", network.address(0)));
                    command.env("ANTIPHON_SECRET", &secret);
                    command.args(["bench-rank", "--subject", entry.name, "--rendezvous"]);
                    command.arg(group.rendezvous).args(["--ranks", &group.ranks.to_string()]);
                    command.args(["--participant", &rank.to_string()]);
                    command.args(peers::arguments(group));
                    command
                };
                Ok((0..group.ranks).map(start).collect())
            }
        }
    }

    fn mpirun(&self, network: &Network, group: &Group<'_>, yields: bool) -> Command {
        let mut command = network.command(0, Path::new("mpirun.openmpi"));
        command.env("TMPDIR", group.rendezvous);
        let each = group.ranks / HOSTS.len();
        let hosts = HOSTS.map(|host| format!("{host}:{each}")).join(",");
        // The launcher binds nothing: the harness pins its ranks, the same way for all.
        command.args(["--allow-run-as-root", "--bind-to", "none", "--host", &hosts]);
        let agent = network.agent().display().to_string();
        let settings = [
            ("plm", "rsh"),
            ("plm_rsh_agent", &agent),
            ("pml", "ob1"),
            ("btl", "self,vader,tcp"),
            ("btl_tcp_if_include", SUBNET),
            ("oob_tcp_if_include", SUBNET),
            ("mpi_yield_when_idle", if yields { "1" } else { "0" }),
        ];
        for (name, value) in settings {
            command.args(["--mca", name, value]);
        }
        command.arg(&self.program).args(peers::arguments(group));
        command
    }
}

/// A secret of this group alone, as 64 hexadecimal digits.
fn secret() -> Result<String> {
    let mut bytes = [0; 32];
    let source = "/dev/urandom";
    File::open(source)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(Error::io(format!("read {source}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
