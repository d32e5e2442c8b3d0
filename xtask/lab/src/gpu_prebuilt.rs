//! `cargo xtask gpu-prebuilt`: compiles the interpreting kernel by the vendors' compilers, for machines that have none.
//!
//! The archives go into the repository; a test of `antiphon-codegen` fails when they are not of today's text. PTX comes from an
//! old NVRTC, since drivers refuse text of a compiler that is newer than they are; and since the compiler does not look at
//! assembly in PTX, `cargo xtask gpu-compile` makes machine code of the same texts.

use crate::gpu_compile::compilers::{Code, Compiler};
use crate::{Error, Result, repo};
use antiphon_codegen::{Target, interpret, prebuilt};
use antiphon_plan::DataType;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Where the archives are, below the workspace root.
const FOLDER: &str = "executor/codegen/prebuilt";

/// Compiles and packs everything.
///
/// # Errors
/// A compiler that cannot be had, a text that does not compile, a file that cannot be written.
pub fn run() -> Result<()> {
    let started = Instant::now();
    let mut bytes = 0;
    for (target, code) in [(Target::Cuda, Code::Ptx), (Target::Hip, Code::Machine)] {
        let compiler = Compiler::open(target, code)?;
        println!("{}", compiler.name());
        for architecture in prebuilt::architectures(target) {
            let mut images = Vec::new();
            for dtype in DataType::ALL {
                let text = interpret::text(target, dtype);
                let image = compiler.compile(&text, architecture, false)?.code.map_err(|log| {
                    let what = format!("the interpreter of {dtype} for {architecture}");
                    Error::message(format!("cannot compile {what}:\n{log}"))
                })?;
                // Text ends with a zero byte, which is not part of it.
                let length = image.len() - usize::from(code == Code::Ptx);
                images.push((dtype, prebuilt::digest(&text), image[..length].to_vec()));
            }
            let whole = prebuilt::archive(&images);
            let packed = compressed(&whole)?;
            println!("{architecture}: {} bytes, packed {}", whole.len(), packed.len());
            bytes += packed.len();
            let path = repo::root().join(FOLDER).join(format!("{architecture}.xz"));
            let writing = Error::io(format!("write {}", path.display()));
            fs::write(&path, packed).map_err(writing)?;
        }
    }
    println!("{bytes} bytes in {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Compressed as a whole, so that what the types have in common is there once.
fn compressed(whole: &[u8]) -> Result<Vec<u8>> {
    let script = "import lzma, sys; sys.stdout.buffer.write(lzma.compress(sys.stdin.buffer.read(), \
                  check=lzma.CHECK_CRC32, preset=9 | lzma.PRESET_EXTREME))";
    let mut command = Command::new("python3");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let failed = || Error::io(format!("compress with {}", repo::line(&Command::new("python3"))));
    let mut child = command.spawn().map_err(failed())?;
    if let Some(mut input) = child.stdin.take() {
        // It reads all before it writes.
        input.write_all(whole).map_err(failed())?;
    }
    let output = child.wait_with_output().map_err(failed())?;
    if output.status.success() && !output.stdout.is_empty() {
        return Ok(output.stdout);
    }
    Err(Error::message(format!("cannot compress images: python3 ended with {}", output.status)))
}
