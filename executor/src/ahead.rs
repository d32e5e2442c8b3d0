//! Kernels compiled ahead of the calls that need them: for machines without a run-time compiler, and for first calls that should
//! not wait for one.
//!
//! `ANTIPHON_CODE_DIR` names a folder with one folder for each architecture (`sm_90`, `gfx90a`), which has one file for each
//! text. The file's name is the text's digest, so code is never used for a text other than the one it was made of. A file holds
//! the digest of the code, then the code; a file that was cut short or changed is passed over. A driver refuses code for another
//! architecture. If no code is left, the run-time compiler compiles the text.

use antiphon_codegen::{
    TOGETHER, Target, Unsupported, Variant, divide, generate, generate_together, prebuilt, scale,
    written_for,
};
use antiphon_hal::{Backend, replace_file};
use antiphon_plan::program::Layout;
use antiphon_types::{DataType, ReduceOp};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The variable of the environment that names the folder.
pub const VARIABLE: &str = "ANTIPHON_CODE_DIR";

/// The texts of all kernels that the ranks of a plan need on devices of a backend, each text once: every rank's own kernel, the
/// one kernel for all ranks on one device (if they are not too many for it), and the kernels that scale before a premultiplied
/// sum and divide after an average. Empty for [`Backend::Host`].
///
/// # Errors
/// None for a layout of a plan that was checked.
pub fn texts(
    layout: &Layout,
    backend: Backend,
    dtype: DataType,
    op: Option<ReduceOp>,
) -> Result<Vec<String>, Unsupported> {
    let target = match backend {
        Backend::Cuda => Target::Cuda,
        Backend::Rocm => Target::Hip,
        Backend::Host => return Ok(Vec::new()),
    };
    let ranks: Vec<u32> = (0..layout.ranks.len() as u32).collect();
    let mut texts = BTreeSet::from([divide::text(target, dtype), scale::text(target, dtype)]);
    let (dtype, op) = written_for(layout.combines(), dtype, op);
    let variant = Variant { target, dtype, op };
    for &rank in &ranks {
        texts.insert(generate(layout, rank, variant)?.text);
    }
    if (2..=TOGETHER).contains(&ranks.len()) {
        texts.insert(generate_together(layout, &ranks, variant)?.text);
    }
    Ok(texts.into_iter().collect())
}

/// Writes the code of a text, as [`Driver::compile`](antiphon_hal::Driver::compile) makes it, into a folder; returns its file.
///
/// # Errors
/// What the system says.
pub fn write(folder: &Path, architecture: &str, text: &str, code: &[u8]) -> io::Result<PathBuf> {
    let path = folder.join(architecture).join(prebuilt::digest(text));
    let whole = [prebuilt::digest(code).as_bytes(), code].concat();
    replace_file(&path, &whole).map(|()| path)
}

/// What the folder that [`VARIABLE`] names has for a text, each with its architecture, in the order of the architectures' names.
pub(crate) fn images(text: &str) -> Vec<(String, Vec<u8>)> {
    let folder = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
    folder.map_or_else(Vec::new, |folder| images_in(Path::new(&folder), text))
}

fn images_in(folder: &Path, text: &str) -> Vec<(String, Vec<u8>)> {
    let digest = prebuilt::digest(text);
    let architectures = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut images: Vec<_> = architectures
        .filter_map(|entry| {
            let whole = fs::read(entry.path().join(&digest)).ok()?;
            let (promised, code) = whole.split_at_checked(digest.len())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            (promised == prebuilt::digest(code).as_bytes()).then(|| (name, code.to_vec()))
        })
        .collect();
    images.sort();
    images
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_plan::algorithms::{Algorithm, Shape};

    fn layout(algorithm: Algorithm, ranks: usize) -> Layout {
        Layout::new(&algorithm.plan(Shape::new(ranks)).unwrap()).unwrap()
    }

    #[test]
    fn ranks_that_look_alike_are_one_text() {
        let count = |algorithm, ranks, backend| {
            texts(&layout(algorithm, ranks), backend, DataType::F16, None).unwrap().len()
        };
        // One for all ranks, one for all of them together, and two that are no plan's.
        assert_eq!(count(Algorithm::AllReduceTwoShotPackets, 8, Backend::Cuda), 4);
        assert_eq!(count(Algorithm::AllReduceTwoShotPackets, 8, Backend::Rocm), 4);
        // The root does something else.
        assert_eq!(count(Algorithm::ReduceZeroCopy, 4, Backend::Cuda), 5);
        // Too many for one kernel.
        assert_eq!(count(Algorithm::AllReduceRing, TOGETHER + 1, Backend::Cuda), 3);
        assert_eq!(count(Algorithm::AllReduceRing, 4, Backend::Host), 0);
    }

    #[test]
    fn code_is_found_by_its_text_alone() {
        let folder = std::env::temp_dir().join(format!("antiphon-ahead-{}", std::process::id()));
        let folder = folder.as_path();
        assert_eq!(images_in(&folder.join("none"), "a"), []);
        write(folder, "sm_90", "a", b"ninety").unwrap();
        write(folder, "sm_80", "a", b"eighty").unwrap();
        write(folder, "sm_80", "b", b"another").unwrap();
        fs::write(folder.join("README"), "no architecture").unwrap();
        let found = images_in(folder, "a");
        let named = |name: &str, code: &[u8]| (name.to_owned(), code.to_vec());
        assert_eq!(found, [named("sm_80", b"eighty"), named("sm_90", b"ninety")]);
        assert_eq!(images_in(folder, "c"), []);
        // Cut short, and changed.
        let changes: [fn(&mut Vec<u8>); 3] =
            [|code| code.truncate(70), |code| code.truncate(10), |code| code[70] ^= 1];
        for change in changes {
            let path = write(folder, "sm_80", "b", b"another").unwrap();
            let mut whole = fs::read(&path).unwrap();
            change(&mut whole);
            fs::write(&path, whole).unwrap();
            assert_eq!(images_in(folder, "b"), []);
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
