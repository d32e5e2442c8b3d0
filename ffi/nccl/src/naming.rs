//! Names of communicators, as configurations have them.

use crate::types::{Config, Header, NamedConfig};
use std::ffi::{CStr, CString, c_char};
use std::ptr;

/// The most bytes of a name in `libantiphon.so`.
const MOST: usize = 128;

/// What a configuration calls its communicator: nothing where there is none, or where it is of an earlier release.
///
/// # Safety
/// There is none, or it is as long as it says; its name ends with a zero.
pub unsafe fn named(config: *const Config) -> Option<CString> {
    let config = config.cast::<NamedConfig>();
    // SAFETY: as this function's.
    let header = unsafe { config.cast::<Header>().as_ref()? };
    if header.size < size_of::<NamedConfig>() {
        return None;
    }
    // SAFETY: as long as it says.
    let name = unsafe { (*config).name };
    if name.is_null() {
        return None;
    }
    // SAFETY: as this function's.
    usable(unsafe { CStr::from_ptr(name) })
}

/// A name of a program for NCCL, which may give any text, as `libantiphon.so` takes it: cut, with `?` for each character that a
/// name cannot have.
fn usable(name: &CStr) -> Option<CString> {
    let mut text = String::new();
    for letter in name.to_string_lossy().chars() {
        let letter = if letter.is_control() { '?' } else { letter };
        if text.len() + letter.len_utf8() > MOST {
            break;
        }
        text.push(letter);
    }
    CString::new(text).ok().filter(|text| !text.is_empty())
}

/// A name as C takes it, for as long as it lives.
pub fn pointer(name: Option<&CStr>) -> *const c_char {
    name.map_or(ptr::null(), CStr::as_ptr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::MAGIC;

    #[test]
    fn any_text_is_made_a_name_and_none_is_none() {
        let usable = |text| usable(text).map(|name| name.into_string().unwrap());
        assert_eq!(usable(c""), None);
        assert_eq!(usable(c"dp\n\xff").as_deref(), Some("dp?\u{fffd}"));
        let long = CString::new("\u{fc}".repeat(65)).unwrap();
        assert_eq!(usable(&long), Some("\u{fc}".repeat(64)));
    }

    #[test]
    fn a_configuration_of_an_earlier_release_has_no_name() {
        let header = Header { size: size_of::<NamedConfig>(), magic: MAGIC, version: 22800 };
        let (network, name) = (ptr::null(), c"dp".as_ptr());
        let mut config = NamedConfig { header, counts: [1; 4], network, more: [0; 2], name };
        // SAFETY: as long as it says, or there is none.
        let of = |config: *const NamedConfig| unsafe { named(config.cast()) };
        assert_eq!(of(&config).as_deref(), Some(c"dp"));
        config.header.size -= 8;
        assert_eq!(of(&config), None);
        config.header.size += 8;
        config.name = ptr::null();
        assert_eq!((of(&config), of(ptr::null())), (None, None));
    }
}
