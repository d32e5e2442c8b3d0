//! The functions of NCCL's header, and two of RCCL's, each by both of its names.

use crate::failure::{self, Result, run, text};
use crate::team::{self, NOBODY, Team};
use crate::types::{
    CollConfig, Comm, Config, EncryptionConfig, ForKernels, Multimem, Param, SimInfo, Stream,
    UniqueId, VERSION, WaitSignal, Window,
};
use crate::way::Entry;
use crate::{
    collectives, communicator, dividing, ending, finalize, forward, group, id, memory, refused,
    scaled,
};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io::Write;
use std::ptr::null;

/// Why communicators do not grow.
const GROW: &str =
    "communicators here do not grow; make a new one of all ranks by ncclCommInitRank";
/// Why nobody reaches into a window.
const ONE_SIDED: &str =
    "nothing here writes to a peer that makes no call; use ncclSend and ncclRecv in a group";

/// Why nothing is prepared for kernels.
const KERNELS: &str =
    "nothing here serves kernels of NCCL's device interface; call its collectives from the host";

/// Refuses what is for kernels.
fn for_kernels<T>(what: &str) -> Result<T> {
    Err(refused::because(what, KERNELS))
}

/// Runs the body of a function. A function on a communicator also says how the real library makes a call that nothing here
/// serves: `over` if a group may put the call off, `now` if not, because it points to more than buffers; `by` names the call's
/// reduction, if it has one.
macro_rules! served {
    ($entry:ident, $body:ident, $arguments:tt) => {
        $body()
    };
    ($entry:ident, $body:ident, $arguments:tt [over $comm:ident]) => {
        served!(@ $entry, $body, $arguments, $comm, true)
    };
    ($entry:ident, $body:ident, $arguments:tt [now $comm:ident]) => {
        served!(@ $entry, $body, $arguments, $comm, false)
    };
    ($entry:ident, $body:ident, $arguments:tt [over $comm:ident by $op:ident]) => {
        served!(@ $entry, $body, $arguments, $comm, true, $op)
    };
    ($entry:ident, $body:ident, $arguments:tt [now $comm:ident by $op:ident]) => {
        served!(@ $entry, $body, $arguments, $comm, false, $op)
    };
    (@ $entry:ident, $body:ident, ($($argument:ident: $type:ty),*), $comm:ident, $lasting:literal $(, $op:ident)?) => {{
        // Before the body: the program may destroy it when the call has returned.
        let sum = None$(.or_else(|| {
            // SAFETY: as the function of this name in NCCL's header.
            unsafe { scaled::sum($comm, $op) }
        }))?;
        let call = move |at: usize, $comm: Comm, made: Option<c_int>| {
            // SAFETY: the real library declares it so.
            let function = unsafe {
                std::mem::transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> c_int>(
                    std::ptr::with_exposed_provenance(at),
                )
            };
            let _ = made;
            $(let $op = made.unwrap_or($op);)?
            // SAFETY: as the function of this name in NCCL's header.
            unsafe { function($($argument),*) }
        };
        // SAFETY: as the function of this name in NCCL's header.
        unsafe { forward::or(&$entry, $comm, $lasting, sum, $body, call) }
    }};
}

/// Declares functions that return a result: each goes to the real library where that serves the program, and else runs its
/// body.
macro_rules! exports {
    ($($name:ident $profiled:ident($($argument:ident: $type:ty),*) $([$($over:tt)*])? = $body:expr;)*) => {
        /// The bodies, which both names of a function call directly: a library that takes the place of one name sees no
        /// calls of the other.
        mod bodies {
            use super::*;

            $(#[allow(clippy::too_many_arguments)]
            pub(super) unsafe fn $name($($argument: $type),*) -> c_int {
                static ENTRY: Entry = Entry::new(stringify!($name));
                match ENTRY.real() {
                    Ok(None) => run(ENTRY.name, || {
                        $(let _ = $argument;)*
                        // SAFETY: as the function of this name in NCCL's header.
                        #[allow(unused_unsafe)]
                        let body = || unsafe { $body };
                        served!(ENTRY, body, ($($argument: $type),*) $([$($over)*])?)
                    }),
                    Ok(Some(at)) => {
                        // SAFETY: the real library declares it so.
                        let function = unsafe {
                            std::mem::transmute::<
                                *const c_void,
                                unsafe extern "C" fn($($type),*) -> c_int,
                            >(std::ptr::with_exposed_provenance(*at))
                        };
                        // SAFETY: as the function of this name in NCCL's header.
                        failure::theirs(unsafe { function($($argument),*) })
                    }
                    Err(refusal) => failure::failed(ENTRY.name, refusal),
                }
            })*
        }

        $(
            /// As in NCCL's header.
            ///
            /// # Safety
            /// As there.
            #[allow(clippy::too_many_arguments)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: as this function's.
                unsafe { bodies::$name($($argument),*) }
            }

            /// As in NCCL's header.
            ///
            /// # Safety
            /// As there.
            #[allow(clippy::too_many_arguments)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $profiled($($argument: $type),*) -> c_int {
                // SAFETY: as this function's.
                unsafe { bodies::$name($($argument),*) }
            }
        )*
    };
}

exports! {
    ncclMemAlloc pncclMemAlloc(ptr: *mut *mut c_void, size: usize) = memory::allocate(ptr, size);
    ncclMemFree pncclMemFree(ptr: *mut c_void) = memory::free(ptr);
    ncclGetVersion pncclGetVersion(version: *mut c_int) = version_of(version);
    ncclGetUniqueId pncclGetUniqueId(uniqueId: *mut UniqueId) = id::create(uniqueId);
    ncclCommInitRankConfig pncclCommInitRankConfig(comm: *mut Comm, nranks: c_int, commId: UniqueId, rank: c_int, config: *mut Config) = group::part(|| communicator::init_rank(comm, nranks, commId, rank, config));
    ncclCommInitRank pncclCommInitRank(comm: *mut Comm, nranks: c_int, commId: UniqueId, rank: c_int) = group::part(|| communicator::init_rank(comm, nranks, commId, rank, null()));
    ncclCommInitAll pncclCommInitAll(comm: *mut Comm, ndev: c_int, devlist: *const c_int) = group::part(|| communicator::init_all(comm, ndev, devlist));
    ncclCommFinalize pncclCommFinalize(comm: Comm) = group::part(|| finalize::finalize(comm));
    ncclCommDestroy pncclCommDestroy(comm: Comm) = ending::destroy(comm);
    ncclCommAbort pncclCommAbort(comm: Comm) = ending::abort(comm);
    ncclCommRevoke pncclCommRevoke(comm: Comm, revokeFlags: c_int) = ending::revoke(comm, revokeFlags);
    ncclCommSplit pncclCommSplit(comm: Comm, color: c_int, key: c_int, newcomm: *mut Comm, config: *mut Config) = group::part(|| dividing::split(comm, color, key, newcomm, config));
    ncclCommShrink pncclCommShrink(comm: Comm, excludeRanksList: *mut c_int, excludeRanksCount: c_int, newcomm: *mut Comm, config: *mut Config, shrinkFlags: c_int) = group::part(|| dividing::shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
    ncclCommGetUniqueId pncclCommGetUniqueId(comm: Comm, uniqueId: *mut UniqueId) = refused::of(comm, "make an id for more ranks", GROW);
    ncclCommGrow pncclCommGrow(comm: Comm, nRanks: c_int, uniqueId: *const UniqueId, rank: c_int, newcomm: *mut Comm, config: *mut Config) = group::part(|| refused::grow(newcomm, GROW));
    ncclCommInitRankScalable pncclCommInitRankScalable(newcomm: *mut Comm, nranks: c_int, myrank: c_int, nId: c_int, commIds: *mut UniqueId, config: *mut Config) = group::part(|| communicator::init_scalable(newcomm, nranks, myrank, nId, commIds, config));
    ncclCommGetAsyncError pncclCommGetAsyncError(comm: Comm, asyncError: *mut c_int) = communicator::async_error(comm, asyncError);
    ncclCommCount pncclCommCount(comm: Comm, count: *mut c_int) = communicator::tell(comm, count, "count", |of| of.world as c_int);
    ncclCommCuDevice pncclCommCuDevice(comm: Comm, device: *mut c_int) = communicator::tell(comm, device, "device", communicator::device);
    ncclCommUserRank pncclCommUserRank(comm: Comm, rank: *mut c_int) = communicator::tell(comm, rank, "rank", |of| of.rank as c_int);
    ncclCommRegister pncclCommRegister(comm: Comm, buff: *mut c_void, size: usize, handle: *mut *mut c_void) = memory::register(comm, buff, size, handle);
    ncclCommDeregister pncclCommDeregister(comm: Comm, handle: *mut c_void) = memory::deregister(comm, handle);
    ncclCommSuspend pncclCommSuspend(comm: Comm, flags: c_int) = refused::suspend(comm);
    ncclCommResume pncclCommResume(comm: Comm) = refused::of(comm, "resume a communicator", "none can be suspended here");
    ncclCommMemStats pncclCommMemStats(comm: Comm, stat: c_int, value: *mut u64) = refused::memory(comm, stat, value);
    ncclCommWindowRegister pncclCommWindowRegister(comm: Comm, buff: *mut c_void, size: usize, win: *mut Window, winFlags: c_int) = memory::register_window(comm, buff, size, win, winFlags);
    ncclCommWindowDeregister pncclCommWindowDeregister(comm: Comm, win: Window) = memory::deregister_window(comm, win);
    ncclWinGetUserPtr pncclWinGetUserPtr(comm: Comm, win: Window, outUserPtr: *mut *mut c_void) = memory::window_address(comm, win, outUserPtr);
    ncclRedOpCreatePreMulSum pncclRedOpCreatePreMulSum(op: *mut c_int, scalar: *mut c_void, datatype: c_int, residence: c_int, comm: Comm) = collectives::premultiplied_sum(op, scalar, datatype, residence, comm);
    ncclRedOpDestroy pncclRedOpDestroy(op: c_int, comm: Comm) = collectives::destroy_op(op, comm);
    ncclReduce pncclReduce(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, op: c_int, root: c_int, comm: Comm, stream: Stream) [over comm by op] = collectives::reduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
    ncclBcast pncclBcast(buff: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: Comm, stream: Stream) [over comm] = collectives::broadcast(buff, buff, count, datatype, root, comm, stream);
    ncclBroadcast pncclBroadcast(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: Comm, stream: Stream) [over comm] = collectives::broadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
    ncclAllReduce pncclAllReduce(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, op: c_int, comm: Comm, stream: Stream) [over comm by op] = collectives::all_reduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
    ncclReduceScatter pncclReduceScatter(sendbuff: *const c_void, recvbuff: *mut c_void, recvcount: usize, datatype: c_int, op: c_int, comm: Comm, stream: Stream) [over comm by op] = collectives::reduce_scatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
    ncclAllGather pncclAllGather(sendbuff: *const c_void, recvbuff: *mut c_void, sendcount: usize, datatype: c_int, comm: Comm, stream: Stream) [over comm] = collectives::all_gather(sendbuff, recvbuff, sendcount, datatype, comm, stream);
    ncclAlltoAll pncclAlltoAll(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, comm: Comm, stream: Stream) [over comm] = collectives::all_to_all(sendbuff, recvbuff, count, datatype, comm, stream);
    ncclGather pncclGather(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: Comm, stream: Stream) [over comm] = collectives::gather(sendbuff, recvbuff, count, datatype, root, comm, stream);
    ncclScatter pncclScatter(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: Comm, stream: Stream) [over comm] = collectives::scatter(sendbuff, recvbuff, count, datatype, root, comm, stream);
    ncclAllReduceConfig pncclAllReduceConfig(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, op: c_int, comm: Comm, stream: Stream, config: *const CollConfig) [now comm by op] = { tuned(config)?; collectives::all_reduce(sendbuff, recvbuff, count, datatype, op, comm, stream) };
    ncclBroadcastConfig pncclBroadcastConfig(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: Comm, stream: Stream, config: *const CollConfig) [now comm] = { tuned(config)?; collectives::broadcast(sendbuff, recvbuff, count, datatype, root, comm, stream) };
    ncclReduceConfig pncclReduceConfig(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, op: c_int, root: c_int, comm: Comm, stream: Stream, config: *const CollConfig) [now comm by op] = { tuned(config)?; collectives::reduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream) };
    ncclAllGatherConfig pncclAllGatherConfig(sendbuff: *const c_void, recvbuff: *mut c_void, sendcount: usize, datatype: c_int, comm: Comm, stream: Stream, config: *const CollConfig) [now comm] = { tuned(config)?; collectives::all_gather(sendbuff, recvbuff, sendcount, datatype, comm, stream) };
    ncclReduceScatterConfig pncclReduceScatterConfig(sendbuff: *const c_void, recvbuff: *mut c_void, recvcount: usize, datatype: c_int, op: c_int, comm: Comm, stream: Stream, config: *const CollConfig) [now comm by op] = { tuned(config)?; collectives::reduce_scatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream) };
    ncclAlltoAllConfig pncclAlltoAllConfig(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, comm: Comm, stream: Stream, config: *const CollConfig) [now comm] = { tuned(config)?; collectives::all_to_all(sendbuff, recvbuff, count, datatype, comm, stream) };
    ncclGatherConfig pncclGatherConfig(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: Comm, stream: Stream, config: *const CollConfig) [now comm] = { tuned(config)?; collectives::gather(sendbuff, recvbuff, count, datatype, root, comm, stream) };
    ncclScatterConfig pncclScatterConfig(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, root: c_int, comm: Comm, stream: Stream, config: *const CollConfig) [now comm] = { tuned(config)?; collectives::scatter(sendbuff, recvbuff, count, datatype, root, comm, stream) };
    ncclSend pncclSend(sendbuff: *const c_void, count: usize, datatype: c_int, peer: c_int, comm: Comm, stream: Stream) [over comm] = collectives::send(sendbuff, count, datatype, peer, comm, stream);
    ncclRecv pncclRecv(recvbuff: *mut c_void, count: usize, datatype: c_int, peer: c_int, comm: Comm, stream: Stream) [over comm] = collectives::receive(recvbuff, count, datatype, peer, comm, stream);
    ncclPutSignal pncclPutSignal(localbuff: *const c_void, count: usize, datatype: c_int, peer: c_int, peerWin: Window, peerWinOffset: usize, sigIdx: c_int, ctx: c_int, flags: c_uint, comm: Comm, stream: Stream) = group::part(|| refused::of(comm, "put into a window", ONE_SIDED));
    ncclSignal pncclSignal(peer: c_int, sigIdx: c_int, ctx: c_int, flags: c_uint, comm: Comm, stream: Stream) = group::part(|| refused::of(comm, "signal a peer", ONE_SIDED));
    ncclWaitSignal pncclWaitSignal(nDesc: c_int, signalDescs: *mut WaitSignal, comm: Comm, stream: Stream) = group::part(|| refused::of(comm, "wait for signals", ONE_SIDED));
    ncclGroupStart pncclGroupStart() = group::start();
    ncclGroupEnd pncclGroupEnd() = group::end();
    ncclGroupSimulateEnd pncclGroupSimulateEnd(simInfo: *mut SimInfo) = group::simulate_end(simInfo);
    ncclSetEncryption pncclSetEncryption(config: *const EncryptionConfig) = Err::<(), _>(refused::because("encrypt connections", "links are authenticated, and not encrypted"));
    ncclParamBind pncclParamBind(out: *mut Param, key: *const c_char) = refused::parameter(key);
    ncclParamGetI8 pncclParamGetI8(h: Param, out: *mut i8) = refused::parameter_handle(h);
    ncclParamGetI16 pncclParamGetI16(h: Param, out: *mut i16) = refused::parameter_handle(h);
    ncclParamGetI32 pncclParamGetI32(h: Param, out: *mut i32) = refused::parameter_handle(h);
    ncclParamGetI64 pncclParamGetI64(h: Param, out: *mut i64) = refused::parameter_handle(h);
    ncclParamGetU8 pncclParamGetU8(h: Param, out: *mut u8) = refused::parameter_handle(h);
    ncclParamGetU16 pncclParamGetU16(h: Param, out: *mut u16) = refused::parameter_handle(h);
    ncclParamGetU32 pncclParamGetU32(h: Param, out: *mut u32) = refused::parameter_handle(h);
    ncclParamGetU64 pncclParamGetU64(h: Param, out: *mut u64) = refused::parameter_handle(h);
    ncclParamGetStr pncclParamGetStr(h: Param, out: *mut *const c_char) = refused::parameter_handle(h);
    ncclParamGet pncclParamGet(h: Param, out: *mut c_void, maxLen: c_int, len: *mut c_int) = refused::parameter_handle(h);
    ncclParamGetParameter pncclParamGetParameter(key: *const c_char, value: *mut *const c_char, valueLen: *mut c_int) = refused::parameter(key);
    ncclParamGetAllParameterKeys pncclParamGetAllParameterKeys(table: *mut *mut *const c_char, tableLen: *mut c_int) = refused::parameters(table, tableLen);
    ncclCommQueryProperties pncclCommQueryProperties(comm: Comm, props: *mut ForKernels) = refused::of(comm, "tell what a communicator has for kernels", KERNELS);
    ncclDevCommCreate pncclDevCommCreate(comm: Comm, reqs: *const ForKernels, outDevComm: *mut ForKernels) = refused::of(comm, "make a communicator for kernels", KERNELS);
    ncclDevCommDestroy pncclDevCommDestroy(comm: Comm, devComm: *const ForKernels) = refused::of(comm, "destroy a communicator for kernels", KERNELS);
    ncclGetLsaDevicePointer pncclGetLsaDevicePointer(window: Window, offset: usize, lsaRank: c_int, outPtr: *mut *mut c_void) = for_kernels::<()>("find a peer's window");
    ncclGetPeerDevicePointer pncclGetPeerDevicePointer(window: Window, offset: usize, peer: c_int, outPtr: *mut *mut c_void) = for_kernels::<()>("find a peer's window");
    ncclGetLsaMultimemDevicePointer pncclGetLsaMultimemDevicePointer(window: Window, offset: usize, outPtr: *mut *mut c_void) = for_kernels::<()>("find all peers' windows");
    ncclGetMultimemDevicePointer pncclGetMultimemDevicePointer(window: Window, offset: usize, multimem: Multimem, outPtr: *mut *mut c_void) = for_kernels::<()>("find all peers' windows");
    ncclGetPeerDeviceLeInfo pncclGetPeerDeviceLeInfo(window: Window, offset: usize, peerWorld: c_int, leId: *mut u32, leOffset: *mut usize) = for_kernels::<()>("find a peer's window");
    ncclGetCftDeviceLeInfo pncclGetCftDeviceLeInfo(window: Window, offset: usize, peerCft: c_int, cftTeam: Team, leId: *mut u32, leOffset: *mut usize) = for_kernels::<()>("find a peer's window");
    ncclGetMultimemDeviceLeInfo pncclGetMultimemDeviceLeInfo(window: Window, offset: usize, leId: *mut u32, leOffset: *mut usize) = for_kernels::<()>("find all peers' windows");
    ncclLsaBarrierCreateRequirement pncclLsaBarrierCreateRequirement(team: Team, nBarriers: c_int, outHandle: *mut ForKernels, outReq: *mut ForKernels) = for_kernels::<()>("ask for barriers");
    ncclGinBarrierCreateRequirement pncclGinBarrierCreateRequirement(comm: Comm, team: Team, nBarriers: c_int, outHandle: *mut ForKernels, outReq: *mut ForKernels) = for_kernels::<()>("ask for barriers");
    ncclLLA2ACreateRequirement pncclLLA2ACreateRequirement(nBlocks: c_int, nSlots: c_int, outHandle: *mut ForKernels, outReq: *mut ForKernels) = for_kernels::<()>("ask for slots");
    ncclGinOutboxCreateRequirement pncclGinOutboxCreateRequirement(nBlocks: c_int, size_log2: c_int, outHandle: *mut ForKernels, outReq: *mut ForKernels) = for_kernels::<()>("ask for an outbox");
    ncclGinInboxA2ACreateRequirement pncclGinInboxA2ACreateRequirement(peers: Team, nBlocks: c_int, size_log2: c_int, outHandle: *mut ForKernels, outReq: *mut ForKernels) = for_kernels::<()>("ask for an inbox");
    ncclAllToAll pncclAllToAll(sendbuff: *const c_void, recvbuff: *mut c_void, count: usize, datatype: c_int, comm: Comm, stream: Stream) [over comm] = collectives::all_to_all(sendbuff, recvbuff, count, datatype, comm, stream);
    ncclAllToAllv pncclAllToAllv(sendbuff: *const c_void, sendcounts: *const usize, sdispls: *const usize, recvbuff: *mut c_void, recvcounts: *const usize, rdispls: *const usize, datatype: c_int, comm: Comm, stream: Stream) [now comm] = collectives::all_to_all_v(sendbuff, sendcounts, sdispls, recvbuff, recvcounts, rdispls, datatype, comm, stream);
}

/// Writes which NCCL this stands for.
unsafe fn version_of(out: *mut c_int) -> Result<()> {
    let out = communicator::place(out, "version")?;
    // SAFETY: as NCCL's.
    unsafe { out.write(VERSION) };
    Ok(())
}

/// Checks the configuration of a call.
unsafe fn tuned(config: *const CollConfig) -> Result<()> {
    // SAFETY: as NCCL's.
    group::part(|| unsafe { collectives::check_config(config) })
}

/// Writes the parameters that there are.
fn dump_parameters() {
    // If the write fails, nobody reads this, and nobody could be told.
    let _ = writeln!(std::io::stdout(), "# Antiphon has no NCCL parameters");
}

/// Declares functions that return something else: each goes to the real library where that serves the program, unless the
/// answer is this library's `first`.
macro_rules! others {
    ($($name:ident $profiled:ident($($argument:ident: $type:ty),*) -> $result:ty = $body:expr, or $otherwise:expr $(, first $first:expr)?;)*) => {
        $(
            /// As in NCCL's header.
            ///
            /// # Safety
            /// As there.
            #[allow(clippy::unused_unit)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                static ENTRY: Entry = Entry::new(stringify!($name));
                $(if let Some(own) = $first {
                    return own;
                })?
                let Ok(Some(at)) = ENTRY.real() else {
                    // SAFETY: as this function's.
                    #[allow(unused_unsafe)]
                    return failure::run_or($otherwise, || unsafe { $body });
                };
                // SAFETY: the real library declares it so, and it is called as this function is.
                unsafe {
                    std::mem::transmute::<
                        *const c_void,
                        unsafe extern "C" fn($($type),*) -> $result,
                    >(std::ptr::with_exposed_provenance(*at))($($argument),*)
                }
            }

            /// As in NCCL's header.
            ///
            /// # Safety
            /// As there.
            #[allow(clippy::unused_unit)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $profiled($($argument: $type),*) -> $result {
                // SAFETY: as this function's.
                unsafe { $name($($argument),*) }
            }
        )*
    };
}

others! {
    ncclGetErrorString pncclGetErrorString(result: c_int) -> *const c_char = text(result).as_ptr(), or c"".as_ptr();
    ncclGetLastError pncclGetLastError(comm: Comm) -> *const c_char = { let _ = comm; c"".as_ptr() }, or c"".as_ptr(), first failure::last();
    ncclResetDebugInit pncclResetDebugInit() -> () = {}, or ();
    ncclParamDumpAll pncclParamDumpAll() -> () = dump_parameters(), or ();
    ncclTeamWorld pncclTeamWorld(comm: Comm) -> Team = failure::or_say("ncclTeamWorld", NOBODY, team::world(comm)), or NOBODY;
    ncclTeamRail pncclTeamRail(comm: Comm) -> Team = failure::or_say("ncclTeamRail", NOBODY, team::world(comm)), or NOBODY;
    ncclTeamLsa pncclTeamLsa(comm: Comm) -> Team = failure::or_say("ncclTeamLsa", NOBODY, team::reached(comm)), or NOBODY;
    ncclTeamCft pncclTeamCft(comm: Comm, mode: c_int) -> Team = { let _ = mode; failure::or_say("ncclTeamCft", NOBODY, team::reached(comm)) }, or NOBODY;
    ncclTeamCftMultimem pncclTeamCftMultimem(comm: Comm) -> Team = failure::or_say("ncclTeamCftMultimem", NOBODY, team::reached(comm)), or NOBODY;
    ncclTeamRankToWorld pncclTeamRankToWorld(comm: Comm, team: Team, rank: c_int) -> c_int = failure::or_say("ncclTeamRankToWorld", -1, team::to_world(comm, team, rank)), or -1;
    ncclTeamRankToLsa pncclTeamRankToLsa(comm: Comm, team: Team, rank: c_int) -> c_int = failure::or_say("ncclTeamRankToLsa", -1, team::to_reached(comm, team, rank)), or -1;
    ncclLLA2ACalcSlots pncclLLA2ACalcSlots(maxElts: c_int, maxEltSize: c_int) -> c_int = { let _ = (maxElts, maxEltSize); failure::or_say("ncclLLA2ACalcSlots", 0, for_kernels("count slots")) }, or 0;
}

/// What some versions of NCCL's header have `ncclResetDebugInit` be.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclResetDebugInitInternal() {
    // SAFETY: as this function's.
    unsafe { ncclResetDebugInit() }
}
