//! The folder of what is kept from run to run: compiled kernels, plans, what was measured of this machine. One rule for all.

use std::ffi::OsString;
use std::path::PathBuf;

/// Antiphon's cache folder, as the environment says: `$ANTIPHON_CACHE_DIR`, else `$MSCCLPP_CACHE_DIR/antiphon`, else
/// `$XDG_CACHE_HOME/antiphon`, else `~/.cache/antiphon`. It need not exist. None where not even `HOME` is set.
pub fn cache_folder() -> Option<PathBuf> {
    folder(|name| std::env::var_os(name))
}

/// The same; `variable` reads the environment.
fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // By the rule of the XDG folders, relative ones do not count.
    let standard = |name: &str| set(name).filter(|path| path.is_absolute());
    set("ANTIPHON_CACHE_DIR")
        .or_else(|| set("MSCCLPP_CACHE_DIR").map(|folder| folder.join("antiphon")))
        .or_else(|| standard("XDG_CACHE_HOME").map(|folder| folder.join("antiphon")))
        .or_else(|| standard("HOME").map(|folder| folder.join(".cache").join("antiphon")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_says() {
        let names = ["ANTIPHON_CACHE_DIR", "MSCCLPP_CACHE_DIR", "XDG_CACHE_HOME", "HOME"];
        for (values, expected) in [
            (["/a", "/m", "/x", "/h"], Some("/a")),
            (["", "/m", "/x", "/h"], Some("/m/antiphon")),
            (["", "", "/x", "/h"], Some("/x/antiphon")),
            (["", "", "x", "/h"], Some("/h/.cache/antiphon")),
            (["here", "", "", ""], Some("here")),
            (["", "", "", "h"], None),
            ([""; 4], None),
        ] {
            let found = folder(|name| {
                let position = names.iter().position(|known| *known == name)?;
                Some(values[position].into())
            });
            assert_eq!(found, expected.map(PathBuf::from), "{values:?}");
        }
    }
}
