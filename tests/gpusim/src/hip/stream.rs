//! HIP's streams, events and graphs.

use super::cu;
use crate::abi::Out;
use crate::event::{
    cuEventCreate, cuEventDestroy_v2, cuEventQuery, cuEventRecord, cuEventSynchronize, untouched,
};
use crate::graph::{
    cuGraphDestroy, cuGraphExecDestroy, cuGraphInstantiateWithFlags, cuGraphLaunch,
    cuGraphRetainUserObject,
};
use crate::object::{cuUserObjectCreate, cuUserObjectRelease};
use crate::stream::calls::{
    cuStreamBeginCapture_v2, cuStreamCreate, cuStreamCreateWithPriority, cuStreamDestroy_v2,
    cuStreamEndCapture, cuStreamGetCaptureInfo_v2, cuStreamIsCapturing, cuStreamQuery,
    cuStreamSynchronize, cuStreamWaitEvent, cuStreamWriteValue64_v2,
    cuThreadExchangeStreamCaptureMode,
};
use crate::stream::find;
use std::ffi::c_void;

hip_calls! {
    fn hipStreamCreateWithFlags(out: Out<u64>, flags: u32) {
        cu(cuStreamCreate(out, flags))
    }

    fn hipStreamCreateWithPriority(out: Out<u64>, flags: u32, priority: i32) {
        cu(cuStreamCreateWithPriority(out, flags, priority))
    }

    fn hipStreamWriteValue64(stream: u64, address: u64, value: u64, flags: u32) {
        cu(cuStreamWriteValue64_v2(stream, address, value, flags))
    }

    fn hipStreamDestroy(stream: u64) {
        cu(cuStreamDestroy_v2(stream))
    }

    fn hipStreamQuery(stream: u64) {
        cu(cuStreamQuery(stream))
    }

    fn hipStreamSynchronize(stream: u64) {
        cu(cuStreamSynchronize(stream))
    }

    fn hipStreamWaitEvent(stream: u64, event: u64, flags: u32) {
        cu(cuStreamWaitEvent(stream, event, flags))
    }

    fn hipStreamGetDevice(stream: u64, out: Out<i32>) {
        out.set(find(stream)?.context.device as i32)
    }

    fn hipStreamIsCapturing(stream: u64, out: Out<u32>) {
        cu(cuStreamIsCapturing(stream, out))
    }

    fn hipStreamGetCaptureInfo_v2(
        stream: u64,
        status: Out<u32>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<u64>,
        count: Out<usize>,
    ) {
        cu(cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count))
    }

    fn hipUserObjectCreate(
        out: Out<u64>,
        data: *mut c_void,
        destroy: Option<unsafe extern "C" fn(*mut c_void)>,
        count: u32,
        flags: u32,
    ) {
        cu(cuUserObjectCreate(out, data, destroy, count, flags))
    }

    fn hipUserObjectRelease(object: u64, count: u32) {
        cu(cuUserObjectRelease(object, count))
    }

    fn hipGraphRetainUserObject(graph: u64, object: u64, count: u32, flags: u32) {
        cu(cuGraphRetainUserObject(graph, object, count, flags))
    }

    fn hipStreamBeginCapture(stream: u64, mode: u32) {
        cu(cuStreamBeginCapture_v2(stream, mode))
    }

    fn hipStreamEndCapture(stream: u64, out: Out<u64>) {
        cu(cuStreamEndCapture(stream, out))
    }

    fn hipThreadExchangeStreamCaptureMode(mode: Out<u32>) {
        cu(cuThreadExchangeStreamCaptureMode(mode))
    }

    fn hipEventCreateWithFlags(out: Out<u64>, flags: u32) {
        cu(cuEventCreate(out, flags))
    }

    fn hipEventDestroy(event: u64) {
        cu(cuEventDestroy_v2(event))
    }

    fn hipEventRecord(event: u64, stream: u64) {
        cu(cuEventRecord(event, stream))
    }

    // As the real call, which looks at the stream of the event, whatever the thread's mode.
    fn hipEventQuery(event: u64) {
        untouched(event)?;
        cu(cuEventQuery(event))
    }

    fn hipEventSynchronize(event: u64) {
        untouched(event)?;
        cu(cuEventSynchronize(event))
    }

    fn hipGraphInstantiateWithFlags(out: Out<u64>, graph: u64, flags: u64) {
        cu(cuGraphInstantiateWithFlags(out, graph, flags))
    }

    fn hipGraphLaunch(executable: u64, stream: u64) {
        cu(cuGraphLaunch(executable, stream))
    }

    fn hipGraphDestroy(graph: u64) {
        cu(cuGraphDestroy(graph))
    }

    fn hipGraphExecDestroy(executable: u64) {
        cu(cuGraphExecDestroy(executable))
    }
}
