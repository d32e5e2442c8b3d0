//! The ways in: each makes the same call, an allreduce of four floats in place, by another interface.

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::Instant;

use antiphon::executor::{Call, DataType, Executor, Rendezvous};
use antiphon::plan::algorithms::{Handshake, Shape, select};
use antiphon::plan::model::Collective;
use antiphon::{Communicator, Op};
use libloading::{Library, Symbol};

use super::BARE;
use crate::bench::antiphon::pin;

const ELEMENTS: usize = 4;
const BYTES: u64 = 16;
/// Calls before those that count.
const WARM: usize = 200;
/// A turn of one way.
const TURN: usize = 500;

/// Makes one call.
type Way = Box<dyn FnMut(*mut f32) -> Result<(), String>>;
/// An id of the C interface, or of NCCL's.
type Id = [u8; 128];
/// Nanoseconds of the calls of each way.
pub type Taken = Vec<(&'static str, Vec<u64>)>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Measures all ways in turns.
pub fn measure(rank: u32, address: &str, calls: usize, libraries: &Path) -> Result<Taken, String> {
    let rendezvous = Rendezvous::new(address.to_owned(), rank, 2);
    let facade = Communicator::connect(&rendezvous).map_err(text)?;
    let mut ways: Vec<(&'static str, Way)> = vec![
        (BARE, bare(&facade)?),
        ("Rust's `Communicator`", {
            let facade = facade.clone();
            Box::new(move |at| {
                // SAFETY: the buffer has as many elements, and is this call's alone.
                let buffer = unsafe { std::slice::from_raw_parts_mut(at, ELEMENTS) };
                facade.all_reduce(buffer, Op::Sum).map_err(text)
            })
        }),
        ("C", c(&facade, &libraries.join("libantiphon_c.so"))?),
        ("NCCL's interface", nccl(&facade, &libraries.join("libantiphon_nccl.so"))?),
    ];
    // Not before the ranks have met: they look at how many cores there are.
    pin(rank as usize).map_err(text)?;
    let mut buffer = [0f32; ELEMENTS];
    let at = buffer.as_mut_ptr();
    let mut taken: Taken = ways.iter().map(|(name, _)| (*name, Vec::new())).collect();
    for (_, way) in &mut ways {
        time(way, at, WARM, &mut Vec::new())?;
    }
    for from in (0..calls).step_by(TURN) {
        for ((_, way), (_, times)) in ways.iter_mut().zip(&mut taken) {
            time(way, at, TURN.min(calls - from), times)?;
        }
    }
    facade.barrier().map_err(text)?;
    Ok(taken)
}

/// Makes calls, and checks what comes of each.
fn time(way: &mut Way, at: *mut f32, calls: usize, times: &mut Vec<u64>) -> Result<(), String> {
    for _ in 0..calls {
        // SAFETY: the buffer has as many elements, and no call runs.
        unsafe { at.cast::<[f32; ELEMENTS]>().write([1.0; ELEMENTS]) };
        let start = Instant::now();
        way(at)?;
        times.push(start.elapsed().as_nanos() as u64);
        // SAFETY: as above.
        let sums = unsafe { at.cast::<[f32; ELEMENTS]>().read() };
        if sums != [2.0; ELEMENTS] {
            return Err(format!("cannot measure wrong sums: saw {sums:?}, allowed 2"));
        }
    }
    Ok(())
}

/// The Executor's own call, of the plan that the others choose.
fn bare(facade: &Communicator) -> Result<Way, String> {
    let executor = Executor::new(facade.as_ref());
    let handshake = match facade.crowded_anywhere() {
        true => Handshake::Hub,
        false => Handshake::Everyone,
    };
    let shape = Shape { handshake, ..Shape::new(2) };
    let choice = select(&Collective::AllReduce, BYTES, shape).ok_or("no algorithm")?;
    let plan = executor.load(&choice.plan().map_err(text)?).map_err(text)?;
    Ok(Box::new(move |at| {
        let (input, output) = ((at.cast_const().cast(), BYTES), (at.cast(), BYTES));
        let call = Call::new(&plan, DataType::F32, input, output);
        // SAFETY: the buffer has as many bytes, and is this call's alone.
        unsafe { executor.run(&call) }.map_err(text)
    }))
}

/// Gives every rank rank 0's id.
fn shared(facade: &Communicator, make: impl FnOnce(*mut Id) -> c_int) -> Result<Id, String> {
    let mut id = [0u8; 128];
    if facade.rank() == 0 {
        accepted("make an id", make(&mut id))?;
    }
    facade.broadcast(&mut id, 0).map_err(text)?;
    Ok(id)
}

fn accepted(what: &str, code: c_int) -> Result<(), String> {
    match code {
        0 => Ok(()),
        code => Err(format!("cannot {what}: result {code}")),
    }
}

/// A function of a library that stays for as long as the process.
fn function<T: Copy>(library: &'static Library, name: &str) -> Result<T, String> {
    // SAFETY: whoever names the type takes it from the library's header.
    let symbol: Symbol<'_, T> = unsafe { library.get(name.as_bytes()) }.map_err(text)?;
    Ok(*symbol)
}

fn load(path: &Path) -> Result<&'static Library, String> {
    // SAFETY: the libraries are this workspace's.
    let library = unsafe { Library::new(path) }.map_err(|why| format!("{path:?}: {why}"))?;
    Ok(Box::leak(Box::new(library)))
}

/// As antiphon.h has it.
fn c(facade: &Communicator, path: &Path) -> Result<Way, String> {
    type Create =
        unsafe extern "C" fn(*const Id, u32, u32, *const c_void, *mut *mut c_void) -> c_int;
    type AllReduce = unsafe extern "C" fn(
        *mut c_void,
        *const c_void,
        *mut c_void,
        u64,
        i32,
        i32,
        *mut c_void,
    ) -> c_int;
    const F32: i32 = 2;
    let library = load(path)?;
    let make: unsafe extern "C" fn(*mut Id) -> c_int =
        function(library, "antiphon_unique_id_create")?;
    // SAFETY: the place is writable.
    let id = shared(facade, |id| unsafe { make(id) })?;
    let create: Create = function(library, "antiphon_communicator_create")?;
    let mut comm = null_mut();
    // SAFETY: the id is one, and the place is writable.
    let code = unsafe { create(&id, facade.rank(), facade.world(), null(), &mut comm) };
    accepted("join by C", code)?;
    let call: AllReduce = function(library, "antiphon_all_reduce")?;
    Ok(Box::new(move |at| {
        let (send, receive) = (at.cast_const().cast(), at.cast());
        // SAFETY: the handle lives, and the buffer is as long as said.
        let code = unsafe { call(comm, send, receive, ELEMENTS as u64, F32, 0, null_mut()) };
        accepted("call C", code)
    }))
}

/// As nccl.h has it.
fn nccl(facade: &Communicator, path: &Path) -> Result<Way, String> {
    /// By value, as a structure.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct UniqueId(Id);
    type Init = unsafe extern "C" fn(*mut *mut c_void, c_int, UniqueId, c_int) -> c_int;
    type AllReduce = unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        c_int,
        c_int,
        *mut c_void,
        *mut c_void,
    ) -> c_int;
    const FLOAT: c_int = 7;
    let library = load(path)?;
    let make: unsafe extern "C" fn(*mut Id) -> c_int = function(library, "ncclGetUniqueId")?;
    // SAFETY: the place is writable.
    let id = shared(facade, |id| unsafe { make(id) })?;
    let init: Init = function(library, "ncclCommInitRank")?;
    let mut comm = null_mut();
    let (world, rank) = (facade.world().cast_signed(), facade.rank().cast_signed());
    // SAFETY: the id is one, and the place is writable.
    accepted("join by NCCL's interface", unsafe { init(&mut comm, world, UniqueId(id), rank) })?;
    let call: AllReduce = function(library, "ncclAllReduce")?;
    Ok(Box::new(move |at| {
        let (send, receive) = (at.cast_const().cast(), at.cast());
        // SAFETY: the handle lives, and the buffer is as long as said.
        let code = unsafe { call(send, receive, ELEMENTS, FLOAT, 0, comm, null_mut()) };
        accepted("call NCCL's interface", code)
    }))
}
