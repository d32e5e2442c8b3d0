//! Images of the vendors' own compilers, which no host can run: what is known of whose source runs in their place.
//!
//! A test may leave images in a folder (`ANTIPHON_GPUSIM_IMAGES`), each as `NAME.image` with the source it was made of as
//! `NAME.source`. A module that is loaded from such bytes is compiled of the source, by the C++ compiler. Nothing of the
//! image but its equality counts, so this says that the right image comes to the driver, and nothing of what is in it.

use crate::abi::In;
use crate::compiler::build::build;
use crate::hip::compiler::DEFINITIONS;
use crate::status::Status;
use std::fs;
use std::path::Path;

/// Names the folder.
const FOLDER: &str = "ANTIPHON_GPUSIM_IMAGES";

/// Code of the source that `image` was made of; nothing if it is not known.
pub fn code(image: In<u8>) -> Result<Option<Vec<u8>>, Status> {
    let Some(folder) = std::env::var_os(FOLDER) else { return Ok(None) };
    let Some(source) = source(Path::new(&folder), image)? else { return Ok(None) };
    // CUDA's are text, which begins with a comment or a word with a dot; HIP's are machine code, or a bundle of such.
    let text = [b'.', b'/'].contains(&image.get()?);
    let options: &[&str] = if text { &["--gpu-architecture=sm_90"] } else { DEFINITIONS };
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    let built = build("image", &source, &[], &options);
    built.map(Some).map_err(|_| Status::INVALID_IMAGE)
}

/// The source of an image that is in the folder.
fn source(folder: &Path, image: In<u8>) -> Result<Option<String>, Status> {
    let entries = fs::read_dir(folder).map_err(|_| Status::OPERATING_SYSTEM)?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "image") {
            continue;
        }
        let known = fs::read(&path).map_err(|_| Status::OPERATING_SYSTEM)?;
        if equal(&known, image)? {
            let source = fs::read_to_string(path.with_extension("source"));
            return source.map(Some).map_err(|_| Status::OPERATING_SYSTEM);
        }
    }
    Ok(None)
}

/// Whether an image begins with bytes that are a whole one. It is read up to the first byte that differs: it may be shorter.
fn equal(known: &[u8], image: In<u8>) -> Result<bool, Status> {
    for (at, byte) in known.iter().enumerate() {
        if image.offset(at).get()? != *byte {
            return Ok(false);
        }
    }
    Ok(!known.is_empty())
}
