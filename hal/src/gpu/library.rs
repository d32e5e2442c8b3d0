//! The driver library of a vendor: loaded, initialised, and its errors in words.

use crate::error::HalError;
use crate::gpu::code::Code;
use crate::gpu::search::{Found, Search};
use crate::gpu::vendor::Vendor;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

/// What is said to people of a vendor's driver.
#[derive(Debug)]
pub(crate) struct Words {
    /// What it is.
    pub(crate) driver: &'static str,
    /// What helps where there is none.
    pub(crate) missing: &'static str,
    /// What helps where it is too old.
    pub(crate) newer: &'static str,
    /// What helps where a device is not shown.
    pub(crate) hidden: &'static str,
    /// The variables that say which devices a process sees.
    pub(crate) visible: &'static str,
    /// What the application allocates memory by.
    pub(crate) allocator: &'static str,
}

/// The driver library, loaded and initialised.
pub(crate) struct Api<V: Vendor> {
    symbols: V::Symbols,
    /// Its version, as the vendor counts.
    pub(crate) version: u32,
    /// The name by which it was loaded.
    pub(crate) name: String,
}

impl<V: Vendor> Deref for Api<V> {
    type Target = V::Symbols;

    fn deref(&self) -> &V::Symbols {
        &self.symbols
    }
}

impl<V: Vendor> fmt::Debug for Api<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("version", &self.version)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl<V: Vendor> Api<V> {
    /// Ok for [`Code::SUCCESS`], otherwise the error in the driver's words. `what` is a verb phrase.
    pub(crate) fn check(&self, what: &str, code: Code) -> Result<(), HalError> {
        if code == Code::SUCCESS { Ok(()) } else { Err(self.error(what, code)) }
    }

    /// A driver's error in its own words.
    #[cold]
    pub(crate) fn error(&self, what: &str, code: Code) -> HalError {
        let (name, text) = describe::<V>(&self.symbols, code);
        let code = i64::from(code.0);
        HalError::Vendor { what: what.to_owned(), backend: V::BACKEND, code, name, text }
    }

    /// Why a driver did not load a module, with what its loader wrote.
    #[cold]
    pub(crate) fn not_loaded(&self, code: Code, log: &str) -> HalError {
        match self.error("load a kernel's module", code) {
            HalError::Vendor { what, backend, code: number, name, mut text } => {
                if !log.is_empty() {
                    text = format!("{text}: {log}");
                }
                if Code::FOREIGN.contains(&code) {
                    HalError::ForeignCode { backend, code: number, name, text }
                } else {
                    HalError::Vendor { what, backend, code: number, name, text }
                }
            }
            other => other,
        }
    }

    /// Loads the library that `search` finds, and initialises it.
    pub(crate) fn load(search: &Search) -> Result<Self, HalError> {
        let unavailable = |why: String, cure: &str| HalError::Unavailable {
            what: V::WORDS.driver.to_owned(),
            why,
            cure: cure.to_owned(),
        };
        let Found { library, name } =
            search.open().map_err(|why| unavailable(why, V::WORDS.missing))?;
        // Never closed, also where it turns out to be of no use: the driver keeps threads and exit handlers.
        let library = ManuallyDrop::new(library);
        let symbols = V::symbols(&library)
            .map_err(|symbol| unavailable(format!("{name} has no {symbol}"), V::WORDS.newer))?;
        let mut number = 0;
        // SAFETY: initialising takes no pointers and may be repeated, by this library and by the application.
        let answer = unsafe { (symbols.init)(0) }
            .ok()
            // SAFETY: `number` is a valid place for the answer.
            .and_then(|()| unsafe { (symbols.device_count)(&raw mut number) }.ok());
        if let Err(code) = answer {
            let (error, text) = describe::<V>(&symbols, code);
            let why = format!("{name} answers {error} ({}): {text}", code.0);
            return Err(unavailable(why, V::cure_of_initialisation(code)));
        }
        // SAFETY: as above.
        let code = unsafe { (symbols.version)(&raw mut number) };
        let version = if code == Code::SUCCESS { u32::try_from(number).unwrap_or(0) } else { 0 };
        Ok(Api { symbols, version, name })
    }
}

/// The name and the text of `code`, from the driver.
fn describe<V: Vendor>(symbols: &V::Symbols, code: Code) -> (String, String) {
    let (name, text) = V::describe(symbols, code);
    (
        name.unwrap_or_else(|| "an unknown error".to_owned()),
        text.unwrap_or_else(|| "the driver has no text for it".to_owned()),
    )
}

/// A driver's text.
///
/// # Safety
///
/// `text` must be null or a string that ends with a zero byte.
pub(crate) unsafe fn text_at(text: *const c_char) -> Option<String> {
    // SAFETY: the caller vouches for the string.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
    text.map(|text| text.to_string_lossy().into_owned())
}

/// The text up to the first zero byte.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes)
        .map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::path::PathBuf;

    /// What every vendor's library must answer: `variable` names another one, `first` is a required function.
    pub(crate) fn check<V: Vendor>(variable: &str, first: &str, symbols: (Vec<&str>, Vec<&str>)) {
        let named = |path: &str| Search { named: Some(path.into()), names: &[], folders: vec![] };
        let folders = vec![PathBuf::from("/nowhere/lib64")];
        let nowhere = Search { named: None, names: &["lib-of-nobody.so.1"], folders };
        for (search, place) in [(nowhere, "/nowhere/lib64"), (named("/none.so"), "/none.so")] {
            match Api::<V>::load(&search) {
                Err(error @ HalError::Unavailable { .. }) => {
                    let text = error.to_string();
                    assert!(text.contains(place) && text.contains(variable), "{text}");
                }
                other => panic!("{other:?}"),
            }
        }
        let text = Api::<V>::load(&named("libc.so.6")).unwrap_err().to_string();
        assert!(text.contains(&format!("libc.so.6 has no {first}")), "{text}");
        let (mut all, optional) = symbols;
        all.extend(optional);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "a symbol is listed twice");
    }
}
