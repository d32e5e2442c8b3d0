//! Images of device code: whether one is whole. The driver is not told how long an image is, and reads as far as the
//! image says.

use crate::gpu::image::{ELF, check_elf, number};

/// A bundle of several images.
const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
/// A compressed bundle.
const COMPRESSED: &[u8] = b"CCOB";
/// More images than any bundle has.
const MANY: u64 = 1 << 16;

/// Whether the driver may read `image`, or what is wrong with it.
pub(super) fn check(image: &[u8]) -> Result<(), String> {
    let (what, whole) = if image.starts_with(ELF) {
        ("machine code", check_elf(image))
    } else if image.starts_with(BUNDLE) {
        ("a bundle", check_bundle(image))
    } else if image.starts_with(COMPRESSED) {
        ("a compressed bundle", check_compressed(image))
    } else {
        return Err(format!("{} bytes that are no image", image.len()));
    };
    whole.ok_or_else(|| format!("{what} cut short, to {} bytes", image.len()))
}

/// Whether the table of a bundle and all of its images lie within it: their number, and for each where it begins, its
/// length, and its name with the name's length before it.
fn check_bundle(image: &[u8]) -> Option<()> {
    let within =
        |start: u64, bytes: u64| (start.checked_add(bytes)? <= image.len() as u64).then_some(());
    let count = number(image, BUNDLE.len(), 8)?;
    if count > MANY {
        return None;
    }
    let mut at = BUNDLE.len() + 8;
    for _ in 0..count {
        within(number(image, at, 8)?, number(image, at + 8, 8)?)?;
        let name = number(image, at + 16, 8)?;
        within(at as u64 + 24, name)?;
        at = at + 24 + usize::try_from(name).ok()?;
    }
    Some(())
}

/// Whether a compressed bundle is as long as it says. The first layout does not say, so that it cannot be told.
fn check_compressed(image: &[u8]) -> Option<()> {
    let length = match number(image, 4, 2)? {
        2 => number(image, 8, 4)?,
        3 => number(image, 8, 8)?,
        _ => return None,
    };
    (length <= image.len() as u64).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A bundle of one image of 16 bytes.
    fn bundle() -> Vec<u8> {
        let mut image = BUNDLE.to_vec();
        image.extend(1u64.to_le_bytes());
        for word in [60u64, 16, 4] {
            image.extend(word.to_le_bytes());
        }
        image.extend(b"host");
        image.extend([7; 16]);
        image
    }

    #[test]
    fn bundles_must_hold_what_they_say() {
        let image = bundle();
        assert_eq!(image.len(), 76);
        check(&image).unwrap();
        for length in 0..image.len() {
            assert!(check(&image[..length]).is_err(), "{length} bytes");
        }
        let mut many = image.clone();
        many[24..32].fill(0xff);
        assert!(check(&many).is_err());
    }

    #[test]
    fn compressed_bundles_must_be_as_long_as_they_say() {
        for (version, width) in [(2u16, 4), (3, 8)] {
            let mut image = COMPRESSED.to_vec();
            image.extend(version.to_le_bytes());
            image.extend(1u16.to_le_bytes());
            image.extend(&40u64.to_le_bytes()[..width]);
            image.resize(40, 9);
            check(&image).unwrap();
            for length in 0..image.len() {
                assert!(check(&image[..length]).is_err(), "{length} bytes");
            }
            image[4] = 1;
            assert!(check(&image).is_err());
        }
    }

    #[test]
    fn text_is_no_image() {
        assert!(check(b".version 8.0").unwrap_err().contains("no image"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut image: Vec<u8>, kind in 0..4usize) {
            let magic: &[u8] = [ELF, BUNDLE, COMPRESSED, &[]][kind];
            image.splice(..0, magic.iter().copied());
            let _ = check(&image);
        }

        #[test]
        fn changed_bundles_never_panic(at in 24..76usize, value: u8) {
            let mut image = bundle();
            image[at] = value;
            let _ = check(&image);
        }
    }
}
