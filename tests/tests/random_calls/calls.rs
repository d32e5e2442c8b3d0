//! One rank's part of a call: what it asks of Antiphon.

use crate::model;
use crate::places::Block;
use crate::program::{Call, What};
use antiphon::executor::hal::Stream;
use antiphon::executor::{self, Counts, ExecutorError, Extent, Factor, Group, Request};
use antiphon::{Communicator, DataType, Element, F8E4m3, F8E5m2};
use std::sync::Arc;

type Result<T> = std::result::Result<T, ExecutorError>;

/// What a rank asks of Antiphon, by address.
pub enum Asked {
    Even(Request),
    AllToAllV {
        at: (*const u8, *mut u8),
        sizes: (u64, u64),
        send: Vec<Extent>,
        receive: Vec<Extent>,
    },
    AllGatherV {
        at: (*const u8, *mut u8),
        sizes: (u64, u64),
        receive: Vec<Extent>,
    },
    Send {
        at: *const u8,
        count: u64,
        peer: u32,
    },
    Receive {
        at: *mut u8,
        count: u64,
        peer: u32,
    },
}

fn extents(blocks: &[Block]) -> Vec<Extent> {
    blocks.iter().map(|block| Extent::new(block.at, block.count)).collect()
}

/// What `rank` asks, with its buffers at these addresses; more than one thing only for transfers.
pub fn asked(call: &Call, world: u32, rank: u32, at: (*const u8, *mut u8)) -> Vec<Asked> {
    let sizes = call.sizes(world, rank).map(Option::unwrap_or_default);
    let sizes = (sizes[0], sizes[1]);
    let (sends, receives) = match call.what.is_uneven() {
        true => (call.sends(world, rank), call.receives(world, rank)),
        false => (Vec::new(), Vec::new()),
    };
    let even = |what| {
        let factor = call.scaled.then(|| Factor::Value(model::factor(call, rank).to_le_bytes()));
        let &Call { count, dtype, op, .. } = call;
        vec![Asked::Even(Request { what, input: at.0, output: at.1, count, dtype, op, factor })]
    };
    match call.what {
        What::AllReduce => even(executor::What::AllReduce),
        What::AllGather => even(executor::What::AllGather),
        What::ReduceScatter => even(executor::What::ReduceScatter),
        What::AllToAll => even(executor::What::AllToAll),
        What::Broadcast(root) => even(executor::What::Broadcast { root }),
        What::Reduce(root) => even(executor::What::Reduce { root }),
        What::Gather(root) => even(executor::What::Gather { root }),
        What::Scatter(root) => even(executor::What::Scatter { root }),
        What::AllToAllV => {
            let (send, receive) = (extents(&sends), extents(&receives));
            vec![Asked::AllToAllV { at, sizes, send, receive }]
        }
        What::AllGatherV => vec![Asked::AllGatherV { at, sizes, receive: extents(&receives) }],
        What::Transfers | What::Transfer { .. } | What::Shift(_) => {
            let size = call.dtype.size();
            let send = |block: Block| Asked::Send {
                at: at.0.wrapping_add(block.at as usize * size),
                count: block.count,
                peer: block.peer,
            };
            let receive = |block: Block| Asked::Receive {
                at: at.1.wrapping_add(block.at as usize * size),
                count: block.count,
                peer: block.peer,
            };
            let sends = sends.into_iter().map(send);
            sends.chain(receives.into_iter().map(receive)).collect()
        }
    }
}

impl Asked {
    /// # Safety
    /// As [`executor::Collectives::call`].
    pub unsafe fn make(
        &self,
        on: &Communicator,
        dtype: DataType,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<()> {
        let on = on.collectives();
        // SAFETY: this function's.
        unsafe {
            match self {
                Asked::Even(request) => on.call(request, stream),
                Asked::AllToAllV { at, sizes, send, receive } => {
                    on.all_to_all_v(*at, *sizes, Counts { send, receive }, dtype, stream)
                }
                Asked::AllGatherV { at, sizes, receive } => {
                    on.all_gather_v(*at, *sizes, receive, dtype, stream)
                }
                &Asked::Send { at, count, peer } => on.send(at, count, dtype, peer, stream),
                &Asked::Receive { at, count, peer } => on.receive(at, count, dtype, peer, stream),
            }
        }
    }

    /// # Safety
    /// As [`executor::Group::call`].
    pub unsafe fn gather(
        &self,
        group: &mut Group,
        on: &Communicator,
        dtype: DataType,
        stream: Option<&Arc<dyn Stream>>,
    ) -> Result<()> {
        let on = on.collectives();
        // SAFETY: this function's.
        unsafe {
            match self {
                Asked::Even(request) => group.call(on, request, stream),
                Asked::AllToAllV { at, sizes, send, receive } => {
                    group.all_to_all_v(on, *at, *sizes, Counts { send, receive }, dtype, stream)
                }
                Asked::AllGatherV { at, sizes, receive } => {
                    group.all_gather_v(on, *at, *sizes, receive, dtype, stream)
                }
                &Asked::Send { at, count, peer } => group.send(on, at, count, dtype, peer, stream),
                &Asked::Receive { at, count, peer } => {
                    group.receive(on, at, count, dtype, peer, stream)
                }
            }
        }
    }
}

/// Makes a blocking call by the method for slices; `None` if there is none for such a call.
///
/// # Safety
/// As [`executor::Collectives::call`].
pub unsafe fn typed(
    call: &Call,
    on: &Communicator,
    at: (*const u8, *mut u8),
) -> Option<Result<()>> {
    macro_rules! by_type {
        ($($name:ident $element:ty),*) => {
            match call.dtype {
                // SAFETY: this function's.
                $(DataType::$name => unsafe { typed_of::<$element>(call, on, at) },)*
            }
        };
    }
    by_type!(F16 half::f16, Bf16 half::bf16, F32 f32, F64 f64, I8 i8, U8 u8, I32 i32, U32 u32, I64 i64, U64 u64, F8E4m3 F8E4m3, F8E5m2 F8E5m2)
}

/// # Safety
/// As [`typed`].
unsafe fn typed_of<T: Element>(
    call: &Call,
    on: &Communicator,
    at: (*const u8, *mut u8),
) -> Option<Result<()>> {
    let (world, rank) = (on.world(), on.rank());
    let [inputs, outputs] = call.sizes(world, rank).map(|size| size.unwrap_or(0) as usize);
    let in_place = call.is_in_place(rank);
    // SAFETY: the buffers are so long, and the call's alone. Of those in place one slice alone is used.
    let input = unsafe { slice(at.0.cast_mut().cast::<T>(), if in_place { 0 } else { inputs }) };
    // SAFETY: as above.
    let output = unsafe { slice(at.1.cast::<T>(), outputs) };
    let counts = |blocks: Vec<Block>| blocks.iter().map(|block| block.count).collect::<Vec<_>>();
    let op = call.op;
    Some(match call.what {
        _ if call.scaled => return None,
        What::AllReduce if in_place => on.all_reduce(output, op),
        What::AllReduce => on.all_reduce_into(input, output, op),
        What::AllGather if in_place => on.all_gather_in_place(output),
        What::AllGather => on.all_gather(input, output),
        What::ReduceScatter if in_place => {
            // SAFETY: as above.
            let whole = unsafe { slice(at.0.cast_mut().cast::<T>(), inputs) };
            on.reduce_scatter_in_place(whole, op)
        }
        What::ReduceScatter => on.reduce_scatter(input, output, op),
        What::AllToAll if in_place => on.all_to_all_in_place(output),
        What::AllToAll => on.all_to_all(input, output),
        What::Broadcast(root) if in_place || rank != root => on.broadcast(output, root),
        What::Reduce(root) if in_place || rank != root => {
            // SAFETY: as above. Where the rank is not the root, it stays as it is.
            on.reduce(unsafe { slice(at.0.cast_mut().cast::<T>(), inputs) }, op, root)
        }
        What::Gather(root) if !in_place => on.gather(input, output, root),
        What::Scatter(root) if !in_place => on.scatter(input, output, root),
        What::AllToAllV => {
            let (send, receive) =
                (counts(call.sends(world, rank)), counts(call.receives(world, rank)));
            on.all_to_all_v((&*input, &send), (output, &receive))
        }
        What::AllGatherV if !in_place => {
            on.all_gather_v(input, (output, &counts(call.receives(world, rank))))
        }
        What::Transfer { from, to } if from == rank => on.send(input, to),
        What::Transfer { from, to } if to == rank => on.receive(output, from),
        What::Shift(by) => {
            let (to, from) = ((rank + by) % world, (rank + world - by) % world);
            on.send_receive((&*input, to), (output, from))
        }
        _ => return None,
    })
}

/// # Safety
/// There are so many elements, which nobody else uses while the slice lives.
unsafe fn slice<'a, T: Element>(at: *mut T, count: usize) -> &'a mut [T] {
    let at = if count == 0 { std::ptr::NonNull::dangling().as_ptr() } else { at };
    // SAFETY: this function's; of none the address does not matter but for its alignment.
    unsafe { std::slice::from_raw_parts_mut(at, count) }
}
