//! The process's registry for C: plans, code and a selector that serve calls by name.

mod code;
mod install;
mod selector;
mod terms;

use crate::entry::{Out, entry, list, text, write_text};
use crate::handle::borrow;
use crate::plan::{Ready, antiphon_plan, parse};
use crate::result::{Failure, antiphon_result};
use ::antiphon_executor::Registry;
pub(crate) use selector::{Context, antiphon_destroy_function};
use std::ffi::{c_char, c_void};
use terms::{antiphon_terms, terms_of};

/// Registers a loaded plan with this process: from the next call on it serves the calls by name that it fits, on every
/// communicator, in preference to what was registered earlier and to the built-in algorithms. The handle may be destroyed
/// afterwards. Plans of sendrecv are refused: they would not serve any such call.
///
/// Register on all ranks, in the same order, between calls: ranks whose calls are served differently get MISMATCH. If a plan
/// may serve a call, either all ranks must call in place or none (except in collectives with a root); ranks that differ get
/// MISMATCH. `terms` may be null. Any thread may call it at any time.
///
/// # Safety
/// The handle is null, or one that this library returned and that nobody destroys meanwhile; `terms` is null or as long as it
/// says, and what it points to is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_registry_register_plan(
    plan: *const antiphon_plan,
    terms: *const antiphon_terms,
) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        let plan = unsafe { borrow::<Ready>(plan)? }.plan.clone();
        // SAFETY: as this function's.
        Registry::process().register(plan, unsafe { terms_of(terms)? })?;
        Ok(())
    })
}

/// As antiphon_registry_register_plan, from the bytes of a JSON file. This takes no communicator; each communicator verifies
/// the plan when it first serves a call there.
///
/// Any thread may call it at any time.
///
/// # Safety
/// `bytes` is null or has `size` bytes; `terms` is null or as long as it says, and what it points to is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_registry_register_bytes(
    bytes: *const c_void,
    size: u64,
    terms: *const antiphon_terms,
) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        let plan = parse(unsafe { list(bytes.cast::<u8>(), size, "bytes")? }, "memory")?;
        // SAFETY: as this function's.
        Registry::process().register(plan, unsafe { terms_of(terms)? })?;
        Ok(())
    })
}

/// Takes a plan or code out of the registry, by its name. Calls that are under way go on.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The name, if there is one, ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_registry_unregister(name: *const c_char) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        let name = unsafe { text(name, "name")? };
        if Registry::process().unregister(name) {
            return Ok(());
        }
        Err(Failure::argument(format!(
            "cannot unregister `{name}`: saw a name that is not registered, allowed those of antiphon_registry_list"
        )))
    })
}

/// Writes what is registered, as a text that ends with a zero, and to `out_bytes` its size, that zero included. The text has a
/// line for each plan, then a line for each code, both with the most recent last; a line is the kind ("plan" or "code"), the
/// collective and the name, separated by single blanks. Names may have blanks, but no control characters. With a null buffer
/// and a capacity of 0 it writes only how many bytes are needed.
///
/// Any thread may call it at any time.
///
/// # Safety
/// `buffer` is null or has `capacity` bytes; `out_bytes` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_registry_list(
    buffer: *mut c_char,
    capacity: u64,
    out_bytes: *mut u64,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_bytes, "out_bytes")?;
        let registry = Registry::process();
        let plans = registry.plans();
        let plans =
            plans.iter().map(|plan| format!("plan {} {}\n", plan.plan().collective, plan.name()));
        let codes = registry.codes();
        let codes =
            codes.iter().map(|code| format!("code {} {}\n", code.collective(), code.name()));
        let text: String = plans.chain(codes).collect();
        // SAFETY: as this function's.
        unsafe { write_text(&text, "what is registered", buffer, capacity, out) }
    })
}
