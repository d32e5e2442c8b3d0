//! Ids by which the ranks of a communicator meet: either `libantiphon.so` made them, or they name a place that all
//! processes know.

use crate::communicator::place;
use crate::failure::{Failure, Result};
use crate::library::{Config, Handle, library};
use crate::types::UniqueId;
use std::ffi::{CString, c_char};
use std::ptr;

/// Says where rank 0 listens, as `host:port`: every process then makes the same id.
const PLACE_VARIABLE: &str = "NCCL_COMM_ID";
/// Ids that name a place begin with this; no id of `libantiphon.so` does.
const OF_PLACE: &str = "NCCL_COMM_ID=";

impl UniqueId {
    /// The id of a place.
    fn of_place(place: &str) -> Result<Self> {
        let (mut id, text) = (UniqueId { internal: [0; 128] }, format!("{OF_PLACE}{place}"));
        if text.len() >= id.internal.len() || text.contains('\0') {
            return Err(Failure::argument(format!(
                "cannot use {PLACE_VARIABLE}: saw {} bytes, allowed host:port in {} without a zero",
                place.len(),
                id.internal.len() - OF_PLACE.len() - 1
            )));
        }
        for (to, from) in id.internal.iter_mut().zip(text.bytes()) {
            *to = from as c_char;
        }
        Ok(id)
    }

    /// The place, if the id names one.
    fn place(&self) -> Option<CString> {
        let bytes = self.internal.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0);
        let text: Vec<u8> = bytes.collect();
        CString::new(text.strip_prefix(OF_PLACE.as_bytes())?).ok()
    }
}

/// Makes an id.
///
/// # Safety
/// As NCCL's.
pub unsafe fn create(out: *mut UniqueId) -> Result<()> {
    let (out, library) = (place(out, "uniqueId")?, library()?);
    match std::env::var_os(PLACE_VARIABLE).filter(|place| !place.is_empty()) {
        Some(place) => {
            let id = UniqueId::of_place(place.to_string_lossy().trim())?;
            // SAFETY: the place is writable.
            unsafe { out.write(id) };
            Ok(())
        }
        // SAFETY: the place is writable.
        None => library.outcome(unsafe { (library.antiphon_unique_id_create)(out) }),
    }
}

/// Ids by which nobody joins. Dropping this gives back those that this process has made.
#[derive(Default)]
pub struct Unused(pub Vec<UniqueId>);

impl Drop for Unused {
    fn drop(&mut self) {
        let Ok(library) = library() else { return };
        for id in self.0.iter().filter(|id| id.place().is_none()) {
            // What is no id belongs to nobody, so a failure is ignored.
            // SAFETY: it is as long as an id is.
            let _ = unsafe { (library.antiphon_unique_id_retire)(id) };
        }
    }
}

/// Joins a group by its id; a handle of `libantiphon.so`.
pub fn join(id: &UniqueId, rank: u32, world: u32, options: &Config) -> Result<Handle> {
    let (library, mut end) = (library()?, ptr::null_mut());
    let Some(place) = id.place() else {
        // SAFETY: all is as the header says.
        let code =
            unsafe { (library.antiphon_communicator_create)(id, rank, world, options, &mut end) };
        return library.outcome(code).map(|()| end);
    };
    let at = place.as_ptr();
    // SAFETY: all is as the header says; the place ends with a zero.
    let code =
        unsafe { (library.antiphon_communicator_create_at)(at, rank, world, options, &mut end) };
    library.outcome(code).map(|()| end).map_err(|failure| {
        let text = format!("cannot meet where {PLACE_VARIABLE} says: {}", failure.text);
        Failure { text, ..failure }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_places_are_told_from_others() {
        let id = UniqueId::of_place("[::1]:4000").unwrap();
        assert_eq!(id.place().as_deref(), Some(c"[::1]:4000"));
        assert_eq!(UniqueId { internal: [0; 128] }.place(), None);
        let longest = "a".repeat(114);
        assert_eq!(UniqueId::of_place(&longest).unwrap().place().unwrap().as_bytes().len(), 114);
        let text = UniqueId::of_place(&format!("{longest}a")).err().unwrap().text;
        assert!(text.contains("saw 115 bytes") && text.contains("in 114"), "{text}");
    }
}
