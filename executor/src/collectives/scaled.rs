//! Premultiplied sums: every rank's input times its factor, summed.

use super::prepared::Prepared;
use super::{
    Collectives, NOWHERE, Request, What, argument, check_address, code_unsupported, length,
};
use crate::error::ExecutorError;
use crate::executor::Call;
use crate::gpu::Products;
use crate::launch::QueuedLaunch;
use antiphon_hal::{Effort, Stream, Task, TaskState, kernels};
use antiphon_types::{DataType, ReduceOp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a rank's input is multiplied by before a sum.
#[derive(Clone, Copy, Debug)]
pub enum Factor {
    /// An element of the call's type, in the first bytes.
    Value([u8; 8]),
    /// Where an element of the call's type lies when the call runs, with its alignment; valid until the call is complete. For
    /// ranks on devices it is memory that the device reads, when the call's stream comes to it: each replay of a graph reads it
    /// anew.
    At(*const u8),
}

/// The multiplication that goes before a sum.
#[derive(Debug)]
pub(super) struct Scaling {
    factor: Factor,
    dtype: DataType,
    source: *const u8,
    target: *mut u8,
    bytes: usize,
    /// Holds the products where the receive buffer has no room for them, on the host.
    _room: Vec<u64>,
}

impl Scaling {
    /// Multiplies on the host.
    ///
    /// # Safety
    /// The buffers of the request are as its maker promised.
    unsafe fn run(&self) {
        let size = self.dtype.size();
        let mut factor = [0; 8];
        match self.factor {
            Factor::Value(value) => factor = value,
            // SAFETY: whoever made the request vouches for an element there.
            Factor::At(at) => unsafe { kernels::copy(factor.as_mut_ptr(), at, size) },
        }
        // SAFETY: the source is the call's send buffer, the target its receive buffer or `_room`, as long.
        unsafe { kernels::scale(self.dtype, self.target, self.source, self.bytes, factor) }
    }

    /// Puts the multiplication into a device's stream, before the launch of `call`, which adds up the products. If it fails, so
    /// does the communicator, since peers wait for that launch.
    ///
    /// # Safety
    /// As [`run`](Self::run), until the stream has come past.
    pub(super) unsafe fn enqueue(
        &self,
        on: &Collectives,
        call: &Call<'_>,
        stream: &Arc<dyn Stream>,
    ) -> Result<(), ExecutorError> {
        let shared = &on.communicator().shared;
        let Some(gpu) = &shared.gpu else {
            return Err(code_unsupported(on, "a multiplication in a stream"));
        };
        // What is refused is refused before anything is written.
        shared.takes(&**stream)?;
        on.executor().checked(call)?;
        let (factor_at, factor) = match self.factor {
            Factor::Value(value) => (std::ptr::null(), value),
            Factor::At(at) => (at, [0; 8]),
        };
        let &Scaling { source, target, bytes, dtype, .. } = self;
        let products = Products { source, target, bytes, dtype, factor_at, factor };
        // SAFETY: the source is the call's send buffer, the target its receive buffer or the engine's room, as long, and the
        // factor's place is valid until the call is complete.
        let queued = unsafe { gpu.multiply(shared, call, &products, &**stream) };
        queued.inspect_err(|error| shared.fail(error.clone()))
    }
}

/// A premultiplied sum that a stream or a group drives.
pub(super) struct ScaledLaunch {
    scaling: Scaling,
    scaled: AtomicBool,
    launch: QueuedLaunch,
}

// SAFETY: the buffers, and the factor's place, belong to the call until it is complete (the contract of
// `Collectives::call`), whichever thread steps it, and one at a time does.
unsafe impl Send for ScaledLaunch {}
// SAFETY: as above.
unsafe impl Sync for ScaledLaunch {}

impl Task for ScaledLaunch {
    fn poll(&self, effort: Effort) -> TaskState {
        if !self.scaled.swap(true, Ordering::AcqRel) {
            // SAFETY: the buffers are the call's until it is complete.
            unsafe { self.scaling.run() };
        }
        self.launch.poll(effort)
    }
}

impl Collectives {
    /// # Safety
    /// As [`call`](Self::call).
    pub(super) unsafe fn call_scaled(
        &self,
        request: &Request,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        let (scaling, call) = self.prepare_scaled(request, stream)?;
        // SAFETY: as this function's.
        unsafe { self.run_scaled(scaling, &call, stream) }
    }

    /// Makes a premultiplied sum that was checked.
    ///
    /// # Safety
    /// As [`call`](Self::call).
    pub(super) unsafe fn run_scaled(
        &self,
        scaling: Scaling,
        call: &Prepared,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(), ExecutorError> {
        if self.on_device() {
            let queue = stream.map_or_else(|| self.own_stream(), |own| Ok(Arc::clone(own)))?;
            // SAFETY: as this function's.
            unsafe { scaling.enqueue(self, &call.call(), &queue)? };
            // SAFETY: as this function's; the engine keeps the products.
            return unsafe { self.launch(&call.call(), stream) };
        }
        match stream {
            Some(stream) => {
                self.communicator().shared.takes(&**stream)?;
                let launch = self.scaled_launch(scaling, call, Some(stream.id()))?;
                self.executor().submit(&launch, stream)
            }
            None => {
                // SAFETY: as this function's.
                unsafe { scaling.run() };
                // SAFETY: as this function's; `scaling` holds the products meanwhile.
                unsafe { self.launch(&call.call(), None) }
            }
        }
    }

    /// A premultiplied sum on the host, for somebody who drives it.
    pub(super) fn scaled_launch(
        &self,
        scaling: Scaling,
        call: &Prepared,
        stream: Option<u64>,
    ) -> Result<Arc<dyn Task>, ExecutorError> {
        let launch = self.executor().queued(&call.call(), stream)?;
        Ok(Arc::new(ScaledLaunch { scaling, scaled: AtomicBool::new(false), launch }))
    }

    /// Checks a request that has a factor: the multiplication, and the sum of its products.
    pub(super) fn prepare_scaled(
        &self,
        request: &Request,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(Scaling, Prepared), ExecutorError> {
        let Request { what, input, output, count, dtype, op, factor } = *request;
        let Some(factor) = factor else {
            return Err(argument("premultiply", "no factor", "a request with a factor"));
        };
        if op != ReduceOp::Sum {
            return Err(argument("premultiply", format!("the reduction {}", op.name()), "sums"));
        }
        // With the caller's own buffers: what is prepared below has the products in the place of the input.
        self.checked(request)?;
        let world = self.communicator().world();
        let elements = match what {
            What::AllReduce | What::Reduce { .. } => count,
            What::ReduceScatter => count.saturating_mul(world.into()),
            _ => return Err(argument("premultiply", "a call that does not sum", "sums")),
        };
        let bytes = length(elements, dtype)?;
        check_address(input, bytes, "a send buffer")?;
        if let Factor::At(at) = factor
            && (at.is_null() || !at.addr().is_multiple_of(dtype.size()))
        {
            return Err(argument("read a factor", format!("address {at:p}"), "that of an element"));
        }
        // Into the receive buffer, and in place from there on, where it has the room.
        let (target, room) = if what == What::AllReduce {
            check_address(output, bytes, "a receive buffer")?;
            (output, Vec::new())
        } else {
            self.room(bytes, stream)?
        };
        let request = Request { input: target.cast_const(), ..*request };
        let call = self.prepare(&request)?.launch("a premultiplied sum")?;
        if let Some(gpu) = &self.communicator().shared.gpu {
            // Before anything of the call is in a stream.
            gpu.prepare_scale(&self.communicator().shared, dtype)?;
        }
        let bytes = bytes as usize;
        Ok((Scaling { factor, dtype, source: input, target, bytes, _room: room }, call))
    }

    /// Memory for products of a call on a stream, and what keeps it if nobody else does.
    fn room(
        &self,
        bytes: u64,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<(*mut u8, Vec<u64>), ExecutorError> {
        let mut room: Vec<u64> = Vec::new();
        if bytes == 0 {
            return Ok((NOWHERE, room));
        }
        if let Some(gpu) = &self.communicator().shared.gpu {
            let stream = stream.map_or_else(|| self.own_stream(), |own| Ok(Arc::clone(own)))?;
            let shared = &self.communicator().shared;
            shared.takes(&*stream)?;
            let lane = shared.lane(stream.id(), stream.is_capturing()?);
            return Ok((gpu.room_for_products(shared.rank, lane, bytes)?, room));
        }
        room.try_reserve_exact(bytes.div_ceil(8) as usize).map_err(|_| {
            argument("keep products", format!("{bytes} bytes"), "what there is memory for")
        })?;
        Ok((room.as_mut_ptr().cast(), room))
    }
}
