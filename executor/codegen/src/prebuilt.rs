//! The interpreting kernel, compiled beforehand: for machines without a run-time compiler.
//!
//! `cargo xtask gpu-prebuilt` compiles it, and packs what comes out: one archive for each architecture, with an image for each
//! data type. Each image has the digest of the text that it was made of, so that none is used with another library.

use crate::target::Target;
use antiphon_plan::DataType;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write;
use std::io::Cursor;
use std::sync::{Mutex, PoisonError};

/// An architecture, or a virtual one for which drivers compile, and its archive.
type Packed = (&'static str, &'static [u8]);

/// The architectures of a vendor in the order in which they are tried, with their archives. The drivers refuse what is not for
/// their device.
fn archives(target: Target) -> &'static [Packed] {
    match target {
        Target::Cuda => &[
            ("compute_90", include_bytes!("../prebuilt/compute_90.xz")),
            ("compute_80", include_bytes!("../prebuilt/compute_80.xz")),
        ],
        Target::Hip => &[("gfx90a", include_bytes!("../prebuilt/gfx90a.xz"))],
    }
}

/// The architectures that there are archives for.
pub fn architectures(target: Target) -> impl Iterator<Item = &'static str> {
    archives(target).iter().map(|(name, _)| *name)
}

/// What was made of `text`, in the order in which it is to be tried, each with its architecture. Nothing, if that is another
/// text than those that were compiled.
pub fn images(
    target: Target,
    dtype: DataType,
    text: &str,
) -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let digest = digest(text);
    archives(target).iter().filter_map(move |&(name, packed)| {
        let whole = unpacked(name, packed)?;
        let entry = Entries::new(whole).find(|entry| entry.dtype == dtype.name())?;
        (entry.digest == digest).then(|| (name, entry.image.to_vec()))
    })
}

/// The digest of a text, as archives have it, or of code: 64 characters.
pub fn digest(of: impl AsRef<[u8]>) -> String {
    Sha256::digest(of).iter().fold(String::new(), |mut digest, byte| {
        let _ = write!(digest, "{byte:02x}");
        digest
    })
}

/// An archive before it is compressed: for each image a line with data type, digest and length, then the image.
pub fn archive(images: &[(DataType, String, Vec<u8>)]) -> Vec<u8> {
    let mut whole = Vec::new();
    for (dtype, digest, image) in images {
        whole.extend(format!("{} {digest} {}\n", dtype.name(), image.len()).bytes());
        whole.extend(image);
    }
    whole
}

/// An archive, uncompressed. Kept, for images of one are asked for again; `None` of what is no archive.
fn unpacked(name: &'static str, packed: &'static [u8]) -> Option<&'static [u8]> {
    static KEPT: Mutex<Option<HashMap<&'static str, &'static [u8]>>> = Mutex::new(None);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept.get_or_insert_default();
    if let Some(whole) = kept.get(name) {
        return Some(whole);
    }
    let mut whole = Vec::new();
    lzma_rs::xz_decompress(&mut Cursor::new(packed), &mut whole).ok()?;
    // There are as many as architectures.
    let whole: &'static [u8] = Box::leak(whole.into_boxed_slice());
    kept.insert(name, whole);
    Some(whole)
}

/// One image of an archive.
struct Entry<'a> {
    dtype: &'a str,
    digest: &'a str,
    image: &'a [u8],
}

/// The images of an archive, up to where it is none.
struct Entries<'a>(&'a [u8]);

impl<'a> Entries<'a> {
    fn new(whole: &'a [u8]) -> Self {
        Entries(whole)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let end = self.0.iter().position(|&byte| byte == b'\n')?;
        let (line, rest) = (self.0.get(..end)?, self.0.get(end + 1..)?);
        let mut words = std::str::from_utf8(line).ok()?.split(' ');
        let (dtype, digest) = (words.next()?, words.next()?);
        let length = words.next()?.parse().ok()?;
        let (image, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Entry { dtype, digest, image })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpret;

    #[test]
    fn what_was_compiled_is_the_text_of_today() {
        for target in [Target::Cuda, Target::Hip] {
            for dtype in DataType::ALL {
                let text = interpret::text(target, dtype);
                let found: Vec<_> = images(target, dtype, &text).map(|(name, _)| name).collect();
                let all: Vec<_> = architectures(target).collect();
                assert_eq!(
                    found, all,
                    "{dtype}: the device library has changed since; run `cargo xtask gpu-prebuilt`"
                );
                assert_eq!(images(target, dtype, &(text + " ")).count(), 0);
            }
        }
    }

    #[test]
    fn images_are_of_the_form_that_drivers_take() {
        let text = interpret::text(Target::Cuda, DataType::F16);
        for (name, image) in images(Target::Cuda, DataType::F16, &text) {
            let image = String::from_utf8(image).unwrap();
            assert!(image.contains(&format!(".target sm_{}", &name[8..])), "{name}");
            for entry in ["antiphon", "antiphon_together", "antiphon_divide", "antiphon_scale"] {
                assert!(image.contains(&format!(".entry {entry}(")), "{name}: {entry}");
            }
        }
        let text = interpret::text(Target::Hip, DataType::F16);
        for (name, image) in images(Target::Hip, DataType::F16, &text) {
            let has = |text: &str| image.windows(text.len()).any(|part| part == text.as_bytes());
            assert!(image.starts_with(b"\x7fELF") || has("__CLANG_OFFLOAD_BUNDLE__"), "{name}");
            assert!(has(name) && has("antiphon_together"));
            assert!(has("antiphon_divide") && has("antiphon_scale"));
        }
    }

    #[test]
    fn an_archive_that_is_cut_short_ends_where_it_does() {
        let image = |dtype: DataType, length| (dtype, digest("text"), vec![b'\n'; length]);
        let whole = archive(&[image(DataType::F32, 3), image(DataType::U8, 5)]);
        let lengths =
            |whole: &[u8]| Entries::new(whole).map(|entry| entry.image.len()).collect::<Vec<_>>();
        assert_eq!(lengths(&whole), [3, 5]);
        for end in 0..whole.len() {
            assert!(lengths(&whole[..end]).len() < 2);
        }
    }
}
