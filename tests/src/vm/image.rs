//! What a virtual machine boots: its files, and what it does.

use super::archive::Archive;
use super::elf::libraries;
use super::modules::Modules;
use super::{Host, Missing};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A command that runs in the guest.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it is, in a word or two without quotes.
    pub name: String,
    /// What the shell there runs.
    pub command: String,
    /// The exit status that is expected.
    pub expected: i32,
    /// After so long it is killed.
    pub within: Duration,
    /// What it must write, each somewhere.
    pub words: Vec<String>,
}

impl Run {
    /// A command that should succeed within two minutes.
    pub fn new(name: &str, command: &str) -> Self {
        Run {
            name: name.to_owned(),
            command: command.to_owned(),
            expected: 0,
            within: Duration::from_secs(120),
            words: Vec::new(),
        }
    }

    /// This, with another exit status.
    #[must_use]
    pub fn expecting(self, expected: i32) -> Self {
        Run { expected, ..self }
    }

    /// This, which must write these words as well.
    #[must_use]
    pub fn saying<'a>(mut self, words: impl IntoIterator<Item = &'a str>) -> Self {
        self.words.extend(words.into_iter().map(str::to_owned));
        self
    }

    /// This, with another time limit.
    #[must_use]
    pub fn within(self, within: Duration) -> Self {
        Run { within, ..self }
    }
}

/// Files and commands.
#[derive(Debug)]
pub struct Image {
    archive: Archive,
    modules: Vec<String>,
    present: BTreeSet<PathBuf>,
}

/// What the guest inserts. The sums of packets are software's business here.
const MODULES: [&str; 5] = ["crc32_generic", "veth", "rdma_rxe", "ib_uverbs", "rdma_ucm"];

/// Lines of the console that begin with this are for the host.
pub(super) const MARK: &str = "antiphon-vm:";

impl Image {
    /// The files of a guest with RDMA devices and a shell.
    ///
    /// # Errors
    /// If something is missing on the host.
    pub fn new(host: &Host) -> Result<Self, Missing> {
        let present = BTreeSet::new();
        let mut image = Image { archive: Archive::default(), modules: Vec::new(), present };
        for folder in ["/proc", "/sys", "/dev", "/tmp", "/modules"] {
            image.folders(Path::new(folder));
        }
        image.archive.device("/dev/console", 5, 1);
        image.program(&host.busybox, "/bin/busybox")?;
        for applet in ["sh", "mount", "insmod", "timeout", "poweroff", "sleep", "cat", "mkdir"] {
            image.archive.link(&format!("/bin/{applet}"), "busybox");
        }
        image.program(&host.ip, "/bin/ip")?;
        image.program(&host.rdma, "/bin/rdma")?;
        let [provider, name] = &host.provider;
        image.program(provider, provider)?;
        image.copy(name, name, false)?;
        for module in Modules::new(&host.modules).ordered(&MODULES)? {
            let file = format!("/modules/{}.ko", module.name);
            image.archive.file(&file, false, &module.contents);
            image.modules.push(module.name);
        }
        Ok(image)
    }

    /// A program or a library, under a path of the guest, with the libraries it needs.
    ///
    /// # Errors
    /// If it or a library is not there.
    pub fn program(&mut self, file: &Path, at: impl AsRef<Path>) -> Result<(), Missing> {
        self.copy(file, at.as_ref(), true)?;
        libraries(file)?.iter().try_for_each(|library| self.copy(library, library, true))
    }

    /// A file, under a path of the guest.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn copy(&mut self, from: &Path, to: &Path, program: bool) -> Result<(), Missing> {
        if !self.present.insert(to.to_owned()) {
            return Ok(());
        }
        let shown = from.display().to_string();
        let contents = fs::read(from).map_err(|e| Missing::new(&shown, &e.to_string(), "it"))?;
        self.put(to, program, &contents);
        Ok(())
    }

    /// A file with these contents, unless there is one already.
    pub fn file(&mut self, to: &Path, contents: &[u8]) {
        if self.present.insert(to.to_owned()) {
            self.put(to, false, contents);
        }
    }

    fn put(&mut self, to: &Path, program: bool, contents: &[u8]) {
        if let Some(parent) = to.parent() {
            self.folders(parent);
        }
        self.archive.file(&to.to_string_lossy(), program, contents);
    }

    fn folders(&mut self, folder: &Path) {
        let above: Vec<_> = folder.ancestors().filter(|folder| folder.parent().is_some()).collect();
        for folder in above.into_iter().rev() {
            if self.present.insert(folder.to_owned()) {
                self.archive.folder(&folder.to_string_lossy());
            }
        }
    }

    /// The archive that the kernel unpacks, and whose script it runs.
    pub(super) fn finish(mut self, runs: &[Run]) -> Vec<u8> {
        let script = self.script(runs);
        self.archive.file("/init", true, script.as_bytes());
        self.archive.finish()
    }

    fn script(&self, runs: &[Run]) -> String {
        let mut script = String::from(
            "#!/bin/sh\nexport PATH=/bin HOME=/tmp\n\
             mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
             mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm\n",
        );
        // By their paths: the shell would take its own `ip`, which knows less.
        for module in &self.modules {
            let _ = writeln!(script, "insmod /modules/{module}.ko");
        }
        let _ = write!(
            script,
            "/bin/ip link set lo up\n/bin/ip link add ve0 type veth peer name ve1\n\
             for end in 0 1; do\n  /bin/ip address add 10.11.12.1$end/24 dev ve$end\n  /bin/ip link set ve$end up\n\
             \x20 rdma link add rxe$end type rxe netdev ve$end\ndone\n\
             # Addresses of IPv6 are tentative for a while.\n\
             for i in 0 1 2 3 4 5 6 7 8 9; do\n  /bin/ip -6 address show tentative | cat > /tmp/tentative\n\
             \x20 [ -s /tmp/tentative ] || break\n  sleep 0.5\ndone\n\
             ulimit -l unlimited\nrdma link\necho {MARK} up\n"
        );
        for (index, run) in runs.iter().enumerate() {
            let file = format!("/tmp/run{index}");
            let _ = write!(
                script,
                "cat > {file} <<'END-OF-RUN'\n{}\nEND-OF-RUN\necho {MARK} run {index}\n\
                 timeout -s KILL {} sh {file} 2>&1\necho {MARK} status {index} $?\n",
                run.command,
                run.within.as_secs().max(1)
            );
        }
        let _ = writeln!(script, "echo {MARK} down\npoweroff -f");
        script
    }
}
