//! A running virtual machine: started, watched over its console, and stopped whatever happens.

use super::image::MARK;
use super::{Host, Image, Run};
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long booting may take, beside the runs.
const BOOT: Duration = Duration::from_secs(180);

/// A virtual machine.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    image: PathBuf,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// What ran.
    pub run: Run,
    /// Its exit status; 137 if it was killed at its time limit, `None` if the machine ended before.
    pub status: Option<i32>,
    /// What it wrote.
    pub output: String,
}

impl Ended {
    fn fault(&self) -> Option<String> {
        let Ended { run: Run { name, command, expected, words, .. }, status, output } = self;
        if *status != Some(*expected) {
            let status = status.map_or("none".to_owned(), |status| status.to_string());
            return Some(format!(
                "{name} ended with status {status}, expected {expected}: {command}\n{output}"
            ));
        }
        let missing = words.iter().find(|word| !output.contains(word.as_str()))?;
        Some(format!("{name} did not write `{missing}`: {command}\n{output}"))
    }
}

/// What a machine did.
#[derive(Clone, Debug)]
pub struct Report {
    /// All runs.
    pub runs: Vec<Ended>,
    /// Everything that it wrote outside of them: booting, and the kernel's last words.
    pub console: String,
    /// Why it had to be stopped, if it had to.
    pub stopped: Option<String>,
}

impl Report {
    /// What did not end as expected, in words; `None` if everything did.
    pub fn fault(&self) -> Option<String> {
        let mut texts: Vec<_> = self.runs.iter().filter_map(Ended::fault).collect();
        texts.extend(self.stopped.clone());
        if texts.is_empty() {
            return None;
        }
        texts.push(format!("the rest of the console:\n{}", self.console));
        Some(texts.join("\n"))
    }
}

impl Machine {
    /// Boots `image`, lets it carry out `runs`, and waits for its end; `each` sees the console's lines as they come.
    ///
    /// # Errors
    /// If the emulator cannot be started.
    pub fn run(
        host: &Host,
        image: Image,
        runs: &[Run],
        mut each: impl FnMut(&str),
    ) -> io::Result<Report> {
        let file = std::env::temp_dir().join(format!("antiphon-vm-{}.cpio", std::process::id()));
        fs::write(&file, image.finish(runs))?;
        // From here on the file goes with the machine; without one, at once.
        let child = command(host, &file).spawn().inspect_err(|_| drop(fs::remove_file(&file)))?;
        let mut machine = Machine { child, image: file };
        let within = BOOT + runs.iter().map(|run| run.within).sum::<Duration>();
        Ok(machine.watch(runs, within, &mut each))
    }

    fn watch(&mut self, runs: &[Run], within: Duration, each: &mut dyn FnMut(&str)) -> Report {
        let deadline = Instant::now() + within;
        let (send, lines) = sync_channel(1024);
        let console = self.child.stdout.take().map(BufReader::new);
        let reader = thread::spawn(move || {
            for line in console.into_iter().flat_map(|console| console.split(b'\n')) {
                let Ok(line) = line else { break };
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if send.send(text).is_err() {
                    break;
                }
            }
        });
        let mut log = Log::new(runs);
        let stopped = loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    each(&line);
                    log.line(&line);
                }
                Err(RecvTimeoutError::Timeout) => {
                    break Some(format!("the machine did not end within {within:?}"));
                }
                Err(RecvTimeoutError::Disconnected) if log.down => break None,
                Err(RecvTimeoutError::Disconnected) => {
                    break Some("the machine ended before its runs did".to_owned());
                }
            }
        };
        self.stop();
        drop(lines);
        // It ends with the console, which the emulator's end closed.
        let _ = reader.join();
        Report { runs: log.runs, console: log.rest, stopped }
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_file(&self.image);
    }
}

fn command(host: &Host, image: &std::path::Path) -> Command {
    let mut command = Command::new(&host.qemu);
    // Emulated, so that it runs everywhere. Without "fast strings" the guest's kernel copies 8 bytes as a unit, as
    // cards do; with them, the emulator copies byte by byte.
    let cpu = "max,-erms,-fsrm";
    command.args(["-accel", "tcg,thread=multi", "-cpu", cpu, "-smp", "2", "-m", "1536"]);
    command.args(["-nodefaults", "-nographic", "-no-reboot", "-serial", "stdio"]);
    command.arg("-kernel").arg(&host.kernel).arg("-initrd").arg(image);
    command.args(["-append", "console=ttyS0 panic=-1 quiet"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

/// What the console said, sorted.
#[derive(Debug)]
struct Log {
    runs: Vec<Ended>,
    running: Option<usize>,
    rest: String,
    down: bool,
}

impl Log {
    fn new(runs: &[Run]) -> Self {
        let ended = |run: &Run| Ended { run: run.clone(), status: None, output: String::new() };
        let runs = runs.iter().map(ended).collect();
        Log { runs, running: None, rest: String::new(), down: false }
    }

    fn line(&mut self, line: &str) {
        // The kernel may have written into the line before it.
        if let Some((before, message)) = line.split_once(MARK) {
            self.text(before);
            self.message(&mut message.split_whitespace());
        } else {
            self.text(line);
        }
    }

    fn text(&mut self, line: &str) {
        let running = self.running.and_then(|index| self.runs.get_mut(index));
        let text = running.map_or(&mut self.rest, |ended| &mut ended.output);
        if !line.is_empty() {
            text.push_str(line);
            text.push('\n');
        }
    }

    fn message<'a>(&mut self, words: &mut impl Iterator<Item = &'a str>) {
        let kind = words.next();
        let mut number = || words.next().and_then(|word| word.parse::<usize>().ok());
        match kind {
            Some("run") => self.running = number(),
            Some("status") => {
                let (index, status) = (number(), number());
                if let Some(ended) = index.and_then(|index| self.runs.get_mut(index)) {
                    ended.status = status.and_then(|status| status.try_into().ok());
                }
                self.running = None;
            }
            Some("down") => self.down = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_is_sorted_into_runs() {
        let mut log = Log::new(&[Run::new("one", "true"), Run::new("two", "false").expecting(1)]);
        for line in [
            "booting",
            "antiphon-vm: up",
            "antiphon-vm: run 0",
            "hello",
            "[    3.1] antiphon-vm: status 0 0",
            "antiphon-vm: run 1",
            "antiphon-vm: status 1 1",
            "antiphon-vm: status 7 1",
            "antiphon-vm: down",
        ] {
            log.line(line);
        }
        let statuses: Vec<_> = log.runs.iter().map(|ended| ended.status).collect();
        assert_eq!(statuses, [Some(0), Some(1)]);
        assert!(log.down && log.runs[0].output.contains("hello"));
        assert_eq!(log.rest, "booting\n");
        let mut report = Report { runs: log.runs, console: log.rest, stopped: None };
        assert_eq!(report.fault(), None);
        report.runs[0].run.words = vec!["hello".to_owned(), "world".to_owned()];
        assert!(report.fault().expect("a fault").contains("one did not write `world`"));
        report.runs[0].run.words.pop();
        report.runs[1].status = Some(0);
        assert!(report.fault().expect("a fault").contains("two ended with status 0, expected 1"));
    }
}
