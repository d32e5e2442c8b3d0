//! User objects: data of the application that graphs keep, and a function that is called when nothing does any more.

use crate::abi::Out;
use crate::status::Status;
use crate::table::{fresh, lock};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex};

type Function = unsafe extern "C" fn(*mut c_void);

/// The application's data, given back when dropped.
pub struct Kept {
    data: usize,
    destroy: Function,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: the application gave the function for this data, to be called once.
        unsafe { (self.destroy)(self.data as *mut c_void) };
    }
}

/// What the application itself holds: how often, and the object.
struct Held(u32, Arc<Kept>);

static HELD: LazyLock<Mutex<HashMap<u64, Held>>> = LazyLock::new(Mutex::default);

/// Hands `count` of the application's counts on an object back, and the object, to be dropped with no lock held.
fn give_back(object: u64, count: u32) -> Result<Arc<Kept>, Status> {
    let mut all = lock(&HELD);
    let held = all.get_mut(&object).ok_or(Status::INVALID_VALUE)?;
    held.0 = held.0.checked_sub(count).filter(|_| count > 0).ok_or(Status::INVALID_VALUE)?;
    let kept = held.1.clone();
    if held.0 == 0 {
        all.remove(&object);
    }
    Ok(kept)
}

/// An object for a graph; its count is taken from the application's where it is moved.
pub fn retained(object: u64, count: u32, moved: bool) -> Result<Arc<Kept>, Status> {
    if moved {
        return give_back(object, count);
    }
    lock(&HELD).get(&object).map(|held| held.1.clone()).ok_or(Status::INVALID_VALUE)
}

driver_calls! {
    fn cuUserObjectCreate(
        out: Out<u64>,
        data: *mut c_void,
        destroy: Option<Function>,
        count: u32,
        flags: u32,
    ) {
        // The one flag says that nobody waits for the function.
        let (Some(destroy), 1.., 1) = (destroy, count, flags) else {
            return Err(Status::INVALID_VALUE);
        };
        let object = fresh();
        let kept = Arc::new(Kept { data: data as usize, destroy });
        lock(&HELD).insert(object, Held(count, kept));
        out.set(object)
    }

    fn cuUserObjectRelease(object: u64, count: u32) {
        give_back(object, count).map(drop)
    }
}
