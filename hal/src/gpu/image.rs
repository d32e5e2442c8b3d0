//! Images of device code: whether machine code is whole. Drivers are not told how long an image is, and read as far as
//! the image says.

/// How machine code begins.
pub(crate) const ELF: &[u8] = b"\x7fELF";
/// A section that takes no bytes of the file.
const NO_BITS: u32 = 8;

/// Whether the headers and the sections of a 64-bit image lie within it.
pub(crate) fn check_elf(image: &[u8]) -> Option<()> {
    let length = image.len() as u64;
    let within = |start: u64, bytes: u64| (start.checked_add(bytes)? <= length).then_some(());
    let program = (number(image, 32, 8)?, number(image, 54, 2)?, number(image, 56, 2)?);
    within(program.0, program.1 * program.2)?;
    let (sections, size, count) =
        (number(image, 40, 8)?, number(image, 58, 2)?, number(image, 60, 2)?);
    within(sections, size * count)?;
    for at in 0..count {
        let header = usize::try_from(sections + at * size).ok()?;
        let kind = number(image, header + 4, 4)?;
        if kind != u64::from(NO_BITS) {
            within(number(image, header + 24, 8)?, number(image, header + 32, 8)?)?;
        }
    }
    Some(())
}

/// The `bytes` bytes at `at`, the lowest first.
pub(crate) fn number(image: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let field = image.get(at..at.checked_add(bytes)?)?;
    Some(field.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}
