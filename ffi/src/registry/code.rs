//! Algorithms that are functions of C.

use super::selector::{Context, antiphon_destroy_function};
use super::terms::{antiphon_terms, terms_of};
use crate::entry::{Structure, entry, structure, text};
use crate::handle::{issue, take};
use crate::plan::antiphon_executor;
use crate::result::{Failure, antiphon_result, overheard};
use crate::stream::{Stream, antiphon_stream};
use ::antiphon_executor::hal::Backend;
use ::antiphon_executor::plan::model::Collective;
use ::antiphon_executor::{Code, CodeCall, Counts, Executor, ExecutorError, Extent, Registry};
use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::ptr;
use std::sync::Arc;

/// One call that a program's own code serves, on one rank. The code may use it until it returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct antiphon_code_call {
    /// sizeof(antiphon_code_call), as the library was compiled.
    pub struct_size: u64,
    /// Loads and runs plans on the call's communicator. The code may keep plans that it loads with this executor, but not the
    /// executor.
    pub executor: *const antiphon_executor,
    /// The stream that the call is on; if null, the call must be complete when the code returns. Plans that are run on it come
    /// in order; code that does anything else with the buffers must synchronise it first. On devices there always is a stream;
    /// it cannot be synchronised while it is recorded into a graph.
    pub stream: *const antiphon_stream,
    /// The send buffer; not null.
    pub send_buffer: *const c_void,
    /// Bytes of the send buffer; in a scatter, 0 except at the root.
    pub send_bytes: u64,
    /// The receive buffer; not null.
    pub receive_buffer: *mut c_void,
    /// Bytes of the receive buffer; in a reduce or gather, 0 except at the root.
    pub receive_bytes: u64,
    /// The element type, an antiphon_dtype.
    pub dtype: i32,
    /// The reduction, an antiphon_op; ANTIPHON_OP_OF_PLAN if nothing is reduced.
    pub op: i32,
    /// 1 if input and output are the same memory on this rank, by the collective's convention, else 0; always 0 for collectives
    /// with a root. Ranks may differ in it, so a choice that all ranks must make alike, such as that of a plan, must not use
    /// it.
    pub in_place: i32,
    /// The root, for collectives that have one.
    pub root: u32,
    /// This rank.
    pub rank: u32,
    /// Number of ranks.
    pub world: u32,
    /// The same stream as the device's driver knows it (a cudaStream_t, CUstream or hipStream_t; null is its default stream); null
    /// on the host.
    pub native_stream: *mut c_void,
    /// The number of the rank's device; -1 on the host. On the threads of groups it is the current device; on a thread that
    /// makes a single call, the current device is whatever the caller left current.
    pub device: i32,
    /// 1 if the stream is being recorded into a graph, so that all that is put into it becomes part of the graph; else 0.
    pub recorded: i32,
    /// In an alltoallv, for each rank, how many elements of the send buffer go to it; null for other collectives. (In an
    /// allgatherv, all of the send buffer goes to every rank.)
    pub send_counts: *const u64,
    /// For each rank, the element of the send buffer at which those begin; null where `send_counts` is.
    pub send_offsets: *const u64,
    /// In an alltoallv and an allgatherv, for each rank, how many elements come from it; null for other collectives. Nobody has
    /// checked that sender and receiver agree.
    pub receive_counts: *const u64,
    /// For each rank, the element of the receive buffer at which those begin; null where `receive_counts` is.
    pub receive_offsets: *const u64,
}

/// Makes a call, and returns an antiphon_result. A function that fails first sets the reason by antiphon_set_last_error. It may
/// be called on several threads at the same time, for several ranks. It must return, and let no exception out (see
/// antiphon::guarded in antiphon.hpp).
pub type antiphon_run_function =
    Option<unsafe extern "C" fn(context: *mut c_void, call: *const antiphon_code_call) -> i32>;

/// An algorithm that is code of the program. Begin with ANTIPHON_CODE_INIT; later versions of the library add fields at the
/// end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct antiphon_code {
    /// sizeof(antiphon_code), as the program was compiled.
    pub struct_size: u64,
    /// Its name.
    pub name: *const c_char,
    /// Its version, which ranks compare. Raise it whenever the code would no longer work together with its earlier version.
    pub version: u64,
    /// The collective that it computes: "allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce",
    /// "gather", "scatter", "alltoallv" or "allgatherv".
    pub collective: *const c_char,
    /// Makes a call; must be there.
    pub run: antiphon_run_function,
    /// The context that the functions are called with.
    pub context: *mut c_void,
    /// Called once with the context, when the code is unregistered and no call runs it any more: before unregistering
    /// returns, or on the thread of the last such call. Null if there is nothing to do. It is not called if registering fails.
    pub destroy: antiphon_destroy_function,
    /// 1 if it also serves ranks on devices, whose buffers are then on the device; 0 if it serves only ranks on hosts.
    pub serves_devices: i32,
    /// 0.
    pub reserved: i32,
}

const NOTHING: antiphon_code = antiphon_code {
    struct_size: size_of::<antiphon_code>() as u64,
    name: ptr::null(),
    version: 0,
    collective: ptr::null(),
    run: None,
    context: ptr::null_mut(),
    destroy: None,
    serves_devices: 0,
    reserved: 0,
};

impl Structure for antiphon_code {
    const NAME: &'static str = "code";
    const INIT: &'static str = "ANTIPHON_CODE_INIT";
    const FIRST: u64 =
        offset_of!(antiphon_code, destroy) as u64 + size_of::<antiphon_destroy_function>() as u64;
}

/// The blocks of a call, as C has them: counts and offsets.
#[derive(Default)]
struct Blocks {
    send: [Vec<u64>; 2],
    receive: [Vec<u64>; 2],
}

impl Blocks {
    fn of(counts: Option<Counts<'_>>, collective: &Collective) -> Self {
        let Some(Counts { send, receive }) = counts else { return Blocks::default() };
        let listed = |extents: &[Extent]| {
            [|one: &Extent| one.count, |one: &Extent| one.offset]
                .map(|number: fn(&Extent) -> u64| extents.iter().map(number).collect())
        };
        let all = *collective == Collective::AllToAllV;
        Blocks {
            send: if all { listed(send) } else { Default::default() },
            receive: listed(receive),
        }
    }
}

/// The address of the first number; null if there are none.
fn start(numbers: &[u64]) -> *const u64 {
    if numbers.is_empty() { ptr::null() } else { numbers.as_ptr() }
}

/// A function of C in the form of code that the registry takes.
struct Foreign {
    collective: Collective,
    devices: bool,
    run: unsafe extern "C" fn(*mut c_void, *const antiphon_code_call) -> i32,
    context: Context,
}

impl Code for Foreign {
    fn collective(&self) -> Collective {
        self.collective.clone()
    }

    fn serves_devices(&self) -> bool {
        self.devices
    }

    unsafe fn run(&self, call: &CodeCall<'_>) -> Result<(), ExecutorError> {
        let communicator = call.executor.communicator();
        let device = communicator.device();
        // A stream of the host is never recorded.
        let recorded = call.stream.map_or(Ok(false), |stream| stream.is_capturing())?;
        let executor = issue(call.executor.clone());
        let stream = call.stream.map_or(ptr::null_mut(), |queue| {
            issue(Stream { queue: Arc::clone(queue), executor: call.executor.clone() })
        });
        let blocks = Blocks::of(call.counts, &self.collective);
        let given = antiphon_code_call {
            struct_size: size_of::<antiphon_code_call>() as u64,
            executor,
            stream,
            send_buffer: call.input.cast(),
            send_bytes: call.input_bytes,
            receive_buffer: call.output.cast(),
            receive_bytes: call.output_bytes,
            dtype: call.dtype as i32,
            op: call.op.map_or(-1, |op| op as i32),
            in_place: call.in_place.into(),
            root: call.root,
            rank: communicator.rank(),
            world: communicator.world(),
            native_stream: call.stream.and_then(|stream| stream.native()).unwrap_or_default(),
            device: if device.backend() == Backend::Host { -1 } else { device.index() as i32 },
            recorded: recorded.into(),
            send_counts: start(&blocks.send[0]),
            send_offsets: start(&blocks.send[1]),
            receive_counts: start(&blocks.receive[0]),
            receive_offsets: start(&blocks.receive[1]),
        };
        // SAFETY: whoever registered the function vouches for it, and for its context.
        let (result, why) = overheard(|| unsafe { (self.run)(self.context.at, &raw const given) });
        // SAFETY: both were issued above, and nobody else has them.
        let _ = unsafe { take::<Executor>(executor) };
        if !stream.is_null() {
            // SAFETY: as above.
            let _ = unsafe { take::<Stream>(stream) };
        }
        if result == antiphon_result::Success as i32 {
            return Ok(());
        }
        let why = why.unwrap_or_else(|| "it set no antiphon_last_error".into());
        let saw = format!("result {result}: {why}");
        Err(ExecutorError::Argument { what: "run code", saw, allowed: "ANTIPHON_RESULT_SUCCESS" })
    }
}

/// Registers code with this process: from the next call on it serves the calls by name that it fits, on every communicator,
/// after registered plans and before installed ones and the built-in algorithms. It serves ranks on the host, and with
/// `serves_devices` also those on devices; without it, calls on devices go to the next candidate. In a group it runs when the
/// group ends, in the order of the calls, on a thread that each communicator with such calls then gets.
///
/// All ranks of a call meet, and compare name and version, before it runs. A result that is not 0 aborts the communicator.
/// Register on all ranks, in the same order, between calls. `terms` may be null. Any thread may call it at any time.
///
/// # Safety
/// `code` is null or as long as it says, its texts end with a zero, and its functions may be called with the context from any
/// thread until it is destroyed; `terms` is null or as long as it says, and what it points to is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_registry_register_code(
    code: *const antiphon_code,
    terms: *const antiphon_terms,
) -> antiphon_result {
    entry(|| {
        // SAFETY: as this function's.
        let said = unsafe { structure(code, NOTHING)? };
        // SAFETY: as this function's.
        let name = unsafe { text(said.name, "code.name")? };
        // SAFETY: as this function's.
        let collective = unsafe { text(said.collective, "code.collective")? };
        let run = said.run.ok_or_else(|| {
            Failure::argument("cannot register code: saw no `code.run`, allowed a function")
        })?;
        // SAFETY: as this function's.
        let terms = unsafe { terms_of(terms)? };
        let devices = match said.serves_devices {
            0 => false,
            1 => true,
            saw => {
                return Err(Failure::argument(format!(
                    "cannot register code: saw {saw} for `code.serves_devices`, allowed 0 and 1"
                )));
            }
        };
        if said.reserved != 0 {
            let text = format!(
                "cannot register code: saw {} for `code.reserved`, allowed 0",
                said.reserved
            );
            return Err(Failure::argument(text));
        }
        let context = Context::new(said.context);
        let collective = Collective::from_name(collective);
        let code = Arc::new(Foreign { collective, devices, run, context });
        let registered = Arc::clone(&code) as Arc<dyn Code>;
        Registry::process().register_code(name, said.version, registered, terms)?;
        code.context.own(said.destroy);
        Ok(())
    })
}
