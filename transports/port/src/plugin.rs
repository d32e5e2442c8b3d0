//! Wires as plugins: shared libraries behind the C interface of `include/antiphon_wire.h`.
//!
//! [`search`] finds the plugins of this machine, [`load`] makes a [`WireDriver`] of one. A plugin that cannot be used
//! is [`WireError::Unavailable`] with the reason and the cure, never a process that does not start. The other way round
//! [`export_wire!`](crate::export_wire) gives any `WireDriver` of a `cdylib` that interface.
//!
//! A plugin stays loaded until the process ends: it may have threads.

pub mod abi;
pub mod export;
mod find;
mod link;
mod wire;

#[cfg(test)]
mod tests;

use crate::WireError;
use crate::wire::{Posted, WireDriver};
use abi::{Entry, FIRST_PLUGIN, FUNCTIONS, Functions, More, Plugin};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::mem;
use std::path::Path;
use std::sync::Arc;

pub use find::{PATHS, is_named, search};

/// A plugin that was found good.
#[derive(Debug)]
struct Loaded {
    name: String,
    functions: Functions,
    more: More,
}

/// Loads the plugin in the file `path`.
///
/// # Errors
/// [`WireError::Unavailable`] if there is no such file, it is no plugin of this version, a library of its own is missing,
/// or it says that the wire cannot be used here.
pub fn load(path: &Path) -> Result<Arc<dyn WireDriver>, WireError> {
    let unavailable = |reason: String, cure: &str| WireError::Unavailable {
        wire: find::wire_of(path),
        reason,
        cure: cure.to_owned(),
    };
    let shown = path.display();
    if !path.is_file() {
        let cure = "build or install the plugin, or correct the path";
        return Err(unavailable(format!("there is no plugin file {shown}"), cure));
    }
    // A name without a slash would be looked up elsewhere.
    let absolute = std::path::absolute(path)
        .map_err(|error| unavailable(format!("{shown}: {error}"), "give an absolute path"))?;
    // SAFETY: this runs the plugin's initialisers, which whoever names it as a plugin allows.
    let library = unsafe { Library::open(Some(&absolute), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| {
        let cure = "install the libraries it needs, or build it for this machine";
        unavailable(format!("cannot load {shown}: {}", texts(&error)), cure)
    })?;
    // SAFETY: by the contract of its name the symbol is such a function.
    let entry = unsafe { library.get::<Entry>(abi::SYMBOL.as_bytes()) };
    let entry = *entry.map_err(|_| {
        let cure = "build the plugin against this version's antiphon_wire.h";
        unavailable(format!("{shown} does not export {}", abi::SYMBOL), cure)
    })?;
    // Never unloaded.
    mem::forget(library);
    // SAFETY: the plugin's one function, which by its contract gives a table that is valid for ever.
    unsafe { adopt(entry(), &find::wire_of(path)) }
}

/// All texts of a chain of errors.
fn texts(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

/// Takes a plugin that is part of the program, or was loaded otherwise; `called` names it while its name is not known.
///
/// # Errors
/// As [`load`].
///
/// # Safety
/// `table` is null or points to what a plugin's function may give: a table that is valid for ever, as long as its
/// `struct_bytes` says, of functions that keep the contract of `antiphon_wire.h`.
pub unsafe fn adopt(table: *const Plugin, called: &str) -> Result<Arc<dyn WireDriver>, WireError> {
    let unavailable = |reason: String| WireError::Unavailable {
        wire: called.to_owned(),
        reason,
        cure: "build the plugin against this version's antiphon_wire.h".to_owned(),
    };
    if table.is_null() || !table.is_aligned() {
        return Err(unavailable("the plugin gives no table".to_owned()));
    }
    // SAFETY: the caller's promise; magic, version and size are there in every version.
    let (magic, version, bytes) =
        unsafe { ((*table).magic, (*table).abi, (*table).struct_bytes as usize) };
    if magic != abi::MAGIC {
        return Err(unavailable(format!(
            "the plugin's table begins with {magic:#018x}, not with {:#018x}",
            abi::MAGIC
        )));
    }
    if version != abi::ABI {
        let reason = format!("the plugin has interface version {version}, this is {}", abi::ABI);
        return Err(unavailable(reason));
    }
    if bytes < FIRST_PLUGIN {
        let least = FIRST_PLUGIN;
        return Err(unavailable(format!("the plugin's table has {bytes} bytes of {least}")));
    }
    // SAFETY: inside the table, by its size; any bits are such words.
    let words =
        unsafe { (&raw const (*table).functions).cast::<[*const c_void; FUNCTIONS]>().read() };
    if let Some(at) = words.iter().position(|function| function.is_null()) {
        return Err(unavailable(format!("function {at} of the plugin's table is null")));
    }
    // SAFETY: as above, and no function is null.
    let (name, functions) = unsafe { ((*table).name, (*table).functions) };
    let mut more = More::default();
    // SAFETY: as much of it as the table says that it has, and no more than there is room; what is absent stays null, and so
    // may be what is there.
    unsafe {
        let (from, room) = ((&raw const (*table).more).cast::<u8>(), (&raw mut more).cast::<u8>());
        // Half a function is none.
        let whole = (bytes - FIRST_PLUGIN) / size_of::<usize>() * size_of::<usize>();
        from.copy_to_nonoverlapping(room, whole.min(size_of::<More>()));
    }
    // SAFETY: null, or a text that ends, by the caller's promise.
    let name = unsafe { text_of(name) }.unwrap_or_default();
    let allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    if name.is_empty() || name.len() > 32 || !name.bytes().all(allowed) {
        return Err(unavailable(format!("the plugin calls its wire {name:?}")));
    }
    let loaded = Arc::new(Loaded { name, functions, more });
    loaded.init()?;
    Ok(Arc::new(wire::Driver::new(loaded)))
}

/// A text of the plugin's; `None` for null.
///
/// # Safety
/// `text` is null, or points to a text that ends with a zero byte.
unsafe fn text_of(text: *const c_char) -> Option<String> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

thread_local! {
    /// Room for an error, so that a call need not clear a kilobyte.
    static ERROR: Cell<Option<Box<abi::Error>>> = const { Cell::new(None) };
}

impl Loaded {
    fn init(&self) -> Result<(), WireError> {
        let host = abi::Host {
            struct_bytes: size_of::<abi::Host>() as u32,
            abi: abi::ABI,
            name: concat!("antiphon ", env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast(),
        };
        // SAFETY: both point to what the header says, for the call.
        let status =
            self.call("start", None, |e| unsafe { (self.functions.init)(&raw const host, e) });
        let cure = || "see the plugin's documentation".to_owned();
        match status {
            Ok(()) => Ok(()),
            Err(error @ WireError::Unavailable { .. }) => Err(error),
            // Whatever it says, a wire that does not start is one that is not there.
            Err(error) => Err(WireError::Unavailable {
                wire: self.name.clone(),
                reason: error.to_string(),
                cure: cure(),
            }),
        }
    }

    /// Calls a function of the plugin's, whose only good status is [`abi::OK`].
    fn call(
        &self,
        operation: &'static str,
        peer: Option<u32>,
        function: impl FnOnce(*mut abi::Error) -> i32,
    ) -> Result<(), WireError> {
        self.status(operation, peer, &[abi::OK], function).map(drop)
    }

    /// Calls a function of the plugin's that posts, which may also say [`abi::FULL`].
    fn post(
        &self,
        operation: &'static str,
        peer: u32,
        function: impl FnOnce(*mut abi::Error) -> i32,
    ) -> Result<Posted, WireError> {
        let status = self.status(operation, Some(peer), &[abi::OK, abi::FULL], function)?;
        Ok(if status == abi::FULL { Posted::Full } else { Posted::Queued })
    }

    /// Calls a function of the plugin's; its status, if that is among the good ones.
    fn status(
        &self,
        operation: &'static str,
        peer: Option<u32>,
        good: &[i32],
        function: impl FnOnce(*mut abi::Error) -> i32,
    ) -> Result<i32, WireError> {
        let mut error = ERROR.take().unwrap_or_default();
        let status = function(&raw mut *error);
        let result = match status {
            status if good.contains(&status) => Ok(status),
            _ => Err(self.error(operation, peer, status, &error)),
        };
        if result.is_err() {
            *error = abi::Error::new();
        }
        ERROR.set(Some(error));
        result
    }

    fn error(
        &self,
        operation: &'static str,
        peer: Option<u32>,
        status: i32,
        error: &abi::Error,
    ) -> WireError {
        let wire = self.name.clone();
        let [reason, cure] = [&error.reason, &error.cure].map(|text| {
            let bytes = text.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0);
            String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
        });
        let or = |text: String, otherwise: &str| {
            if text.is_empty() { otherwise.to_owned() } else { text }
        };
        let reason = or(reason, "the plugin gives no reason");
        match (status, peer) {
            (abi::UNAVAILABLE, _) => {
                let cure = or(cure, "see the plugin's documentation");
                WireError::Unavailable { wire, reason, cure }
            }
            (abi::UNSUPPORTED, _) => WireError::Unsupported { operation, wire },
            (abi::INVALID, _) => {
                let allowed = or(cure, "what the wire's contract says");
                WireError::Invalid { operation, wire, saw: reason, allowed }
            }
            (abi::LOST, Some(peer)) => WireError::Lost { wire, peer, reason },
            (abi::LOST | abi::SYSTEM, _) => WireError::System { operation, wire, reason },
            _ => {
                let reason =
                    format!("the plugin answered {status}, which means nothing here: {reason}");
                WireError::System { operation, wire, reason }
            }
        }
    }
}

impl From<&crate::Settings> for abi::Settings {
    fn from(settings: &crate::Settings) -> Self {
        abi::Settings {
            struct_bytes: size_of::<Self>() as u32,
            rank: settings.rank,
            key: settings.key,
            interface_name: std::ptr::null(),
            device: std::ptr::null(),
        }
    }
}
