//! `cargo xtask gpu-bench`: what plans cost on a card, beside what the card itself can do. `gpu-pack` packs it as a program of its
//! own.
//!
//! All ranks share one card and are driven by one thread, so one card is enough. Whatever is compared is measured in turn, in
//! one run: copies of the card beside plans that copy, empty kernels beside plans of packets, generated kernels beside the
//! interpreting one, graphs beside plain launches. Each line may have a goal, and says whether it was met; that is no exit
//! status. On the simulated driver everything runs, and its times say nothing.

mod compile;
mod copies;
mod forms;
mod graphs;
mod host;
mod launches;
mod machine;
mod page;
mod times;
mod world;

use crate::{Error, Result};
use machine::Machine;
use page::{Line, Page, Section};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

/// What is measured, and where.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The kind of GPU: cuda or rocm
    #[arg(long, default_value = "cuda")]
    backend: String,
    /// The number of the GPU that all ranks share
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Threads of each block, at most 512
    #[arg(long, default_value_t = 512)]
    block_threads: u32,
    /// The smallest sizes and very few rounds: shows that everything runs
    #[arg(long)]
    quick: bool,
    /// Measure only these parts: copies, launches, forms, host, graphs, compile
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    only: Vec<String>,
    /// Begin no further round of a line after so many seconds [default: 3, or 4 and 60 of what takes long]
    #[arg(long, value_name = "SECONDS")]
    line_seconds: Option<u64>,
    /// Write gpu-bench.md and gpu-bench.json into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Names the folder of compiled kernels, among others.
const CACHE_VARIABLE: &str = "ANTIPHON_CACHE_DIR";

/// Measures one part.
type Measure = fn(&Machine) -> Result<Vec<Line>>;

/// The parts: name, heading, what the numbers are, and who measures them.
const PARTS: [(&str, &str, &str, Measure); 6] = [
    ("copies", "Plans that copy, beside the card's own copies", copies::ABOUT, copies::lines),
    ("launches", "Packets, beside empty kernels", launches::ABOUT, launches::lines),
    ("forms", "Generated kernels, beside the interpreting one", forms::ABOUT, forms::lines),
    ("host", "What a call costs the host", host::ABOUT, host::lines),
    ("graphs", "Launches from graphs, beside plain ones", graphs::ABOUT, graphs::lines),
    ("compile", "Compiling", compile::ABOUT, compile::lines),
];

/// A cache folder of this run, removed with it: what is compiled to measure compiling nobody uses again.
struct Cache(PathBuf);

impl Cache {
    /// Makes one, unless the caller has named a folder.
    fn own() -> Result<Option<Self>> {
        if std::env::var_os(CACHE_VARIABLE).is_some_and(|folder| !folder.is_empty()) {
            return Ok(None);
        }
        let folder =
            std::env::temp_dir().join(format!("antiphon-gpu-bench-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(Error::io(format!("make {}", folder.display())))?;
        // SAFETY: no other thread runs yet: the device is opened after this.
        unsafe { std::env::set_var(CACHE_VARIABLE, &folder) };
        Ok(Some(Cache(folder)))
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Measures, prints and writes.
///
/// # Errors
/// No such GPU, or files that cannot be written. A line of which nothing could be measured; all parts are tried before.
pub fn run(options: &Options) -> Result<()> {
    let names = PARTS.map(|part| part.0);
    if let Some(saw) = options.only.iter().find(|only| !names.contains(&only.as_str())) {
        let names = names.join(", ");
        return Err(Error::message(format!("cannot measure a part: saw `{saw}`, allowed {names}")));
    }
    let is_asked =
        |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let parts = PARTS.iter().filter(|part| is_asked(part.0));
    let _cache = Cache::own()?;
    let machine = Machine::open(options)?;
    let mut page = Page::new(&machine);
    print!("{}", page.head());
    let mut failed = Vec::new();
    for (name, title, about, measure) in parts {
        // On a thread of its own, so that one that panics leaves the others.
        let measured = thread::scope(|scope| {
            let measured = scope.spawn(|| {
                // As an application's thread has it, which uses the vendor's own library.
                machine.device.make_current().map_err(machine::error)?;
                measure(&machine)
            });
            let measured = measured.join();
            measured.unwrap_or_else(|_| Err(Error::message("it panicked, as said above")))
        });
        match measured {
            Ok(lines) => {
                let nothing = lines.iter().filter(|line| !line.has_figures());
                let nothing = nothing.map(|line| format!("cannot measure {name}, {}", line.what));
                failed.extend(nothing);
                let section = Section { name, title, about, lines };
                print!("{}", section.markdown());
                page.sections.push(section);
                // Now, since another part may be cut off.
                options.out.as_deref().map_or(Ok(()), |folder| write(&page, folder))?;
            }
            Err(error) => failed.push(format!("cannot measure {name}: {error}")),
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Error::message(failed.join("\n"))),
    }
}

/// Writes what there is so far.
fn write(page: &Page, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::io(format!("make {}", folder.display())))?;
    for (name, text) in [("gpu-bench.md", page.markdown()), ("gpu-bench.json", page.json())] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(Error::io(format!("write {}", path.display())))?;
    }
    Ok(())
}
