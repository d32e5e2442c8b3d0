//! Installed plans for C, which serve the calls of every process on this machine; and the default plans.

use super::terms::{antiphon_terms, terms_of};
use crate::entry::{entry, list, text};
use crate::logging;
use crate::plan::parse;
use crate::result::{Failure, antiphon_result};
use ::antiphon_executor::registry::InstallError;
use ::antiphon_executor::selection::Spread;
use ::antiphon_executor::{Installed, hal};
use std::ffi::{c_char, c_void};
use std::path::PathBuf;

impl From<InstallError> for Failure {
    fn from(error: InstallError) -> Self {
        let text = error.to_string();
        match error {
            InstallError::Terms(error) => error.into(),
            InstallError::Refuted { .. } => Failure::new(antiphon_result::PlanRefuted, text),
            _ => Failure::new(antiphon_result::File, text),
        }
    }
}

/// A folder of the cache, if there is one.
fn found(folder: Option<PathBuf>) -> Result<PathBuf, Failure> {
    logging::start();
    folder.ok_or_else(|| {
        Failure::new(
            antiphon_result::File,
            "cannot find the folder of installed plans: saw none of ANTIPHON_INSTALLED, ANTIPHON_CACHE_DIR, MSCCLPP_CACHE_DIR, and \
             absolute paths in XDG_CACHE_HOME or HOME; set one",
        )
    })
}

/// Installs a plan, from the bytes of a JSON file, on this machine: in every process that makes its first communicator from now
/// on, it serves the calls by name that it fits, if all ranks have the same plans installed. It replaces an installed plan of
/// the same name. The plan is verified first, which may take a while; a refuted plan is not installed. `terms` may be null.
///
/// Any thread may call it at any time.
///
/// # Safety
/// `bytes` is null or has `size` bytes; `terms` is null or as long as it says, and what it points to is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_install_bytes(
    bytes: *const c_void,
    size: u64,
    terms: *const antiphon_terms,
) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        let plan = parse(unsafe { list(bytes.cast::<u8>(), size, "bytes")? }, "memory")?;
        // SAFETY: as this function's.
        let terms = unsafe { terms_of(terms)? };
        Installed::install(&found(Installed::folder())?, plan, terms)?;
        Ok(())
    })
}

/// Removes an installed plan, by its name. Processes that have already read it go on using it.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The name, if there is one, ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_uninstall(name: *const c_char) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        let name = unsafe { text(name, "name")? };
        if Installed::remove(&found(Installed::folder())?, name)? {
            return Ok(());
        }
        Err(Failure::argument(format!(
            "cannot uninstall `{name}`: saw a name of which no plan is installed, allowed those of `antiphon install --list`"
        )))
    })
}

/// Writes the default plans for `ranks` ranks on `nodes` nodes into the folder `default` of the cache folder: a file for every
/// built-in algorithm of the host, replacing files that are there. They serve no call by themselves. With 0 for `ranks` there
/// are as many as this process may use cores, but at least 2; more than 1024 are refused.
///
/// Any thread may call it at any time.
#[unsafe(no_mangle)]
pub extern "C" fn antiphon_install_defaults(ranks: u32, nodes: u32) -> antiphon_result {
    entry(|| {
        let folder = found(hal::cache_folder())?.join("default");
        if nodes == 0 {
            let saw = "cannot write default plans: saw 0 nodes, allowed 1 or more";
            return Err(Failure::argument(saw));
        }
        let ranks = if ranks == 0 { hal::host::usable_cores().max(2) } else { ranks };
        Installed::install_defaults(&folder, Spread::here(ranks, nodes))?;
        Ok(())
    })
}
