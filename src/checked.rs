//! Calls with the buffers that they borrow: checked here, made at once by a communicator's methods or together by a group.

use crate::{Buffer, BufferMut, Element, Op, Result};
use antiphon_executor::hal::{Backend, Device};
use antiphon_executor::{
    Collectives, Communicator, Counts, DataType, ExecutorError, Extent, Group, Request, What,
};
use std::marker::PhantomData;

/// A call of a rank that was checked: its buffers are on the rank's device, and as long as the call needs. While it lives it
/// borrows them, and exclusively those that are written.
pub(crate) struct Checked<'b> {
    call: Call,
    buffers: PhantomData<&'b mut [u8]>,
}

enum Call {
    Even(Request),
    AllToAllV {
        at: (*const u8, *mut u8),
        sizes: (u64, u64),
        send: Vec<Extent>,
        receive: Vec<Extent>,
        dtype: DataType,
    },
    AllGatherV {
        at: (*const u8, *mut u8),
        sizes: (u64, u64),
        receive: Vec<Extent>,
        dtype: DataType,
    },
    Send {
        at: *const u8,
        count: u64,
        dtype: DataType,
        peer: u32,
    },
    Receive {
        at: *mut u8,
        count: u64,
        dtype: DataType,
        peer: u32,
    },
}

impl<'b> Checked<'b> {
    /// Makes the call, which is complete on return.
    pub fn make(self, on: &Collectives) -> Result<()> {
        // SAFETY: the buffers are as long as the calls say, and borrowed until this returns, exclusively where they are
        // written; without a stream the calls are complete then.
        unsafe {
            match self.call {
                Call::Even(request) => on.call(&request, None),
                Call::AllToAllV { at, sizes, send, receive, dtype } => {
                    let counts = Counts { send: &send, receive: &receive };
                    on.all_to_all_v(at, sizes, counts, dtype, None)
                }
                Call::AllGatherV { at, sizes, receive, dtype } => {
                    on.all_gather_v(at, sizes, &receive, dtype, None)
                }
                Call::Send { at, count, dtype, peer } => on.send(at, count, dtype, peer, None),
                Call::Receive { at, count, dtype, peer } => {
                    on.receive(at, count, dtype, peer, None)
                }
            }
        }
    }

    /// Puts the call into a group.
    ///
    /// # Safety
    /// Whoever ends the group does so while `'b` lasts.
    pub unsafe fn put_into(self, group: &mut Group, on: &Collectives) -> Result<()> {
        // SAFETY: the buffers are as long as the calls say, and borrowed until the group has ended (this function's
        // contract), exclusively where they are written; without a stream the calls are complete then.
        unsafe {
            match self.call {
                Call::Even(request) => group.call(on, &request, None),
                Call::AllToAllV { at, sizes, send, receive, dtype } => {
                    let counts = Counts { send: &send, receive: &receive };
                    group.all_to_all_v(on, at, sizes, counts, dtype, None)
                }
                Call::AllGatherV { at, sizes, receive, dtype } => {
                    group.all_gather_v(on, at, sizes, &receive, dtype, None)
                }
                Call::Send { at, count, dtype, peer } => {
                    group.send(on, at, count, dtype, peer, None)
                }
                Call::Receive { at, count, dtype, peer } => {
                    group.receive(on, at, count, dtype, peer, None)
                }
            }
        }
    }

    pub fn all_reduce<B>(on: &Communicator, buffer: &'b mut B, op: Op) -> Result<Self>
    where
        B: BufferMut + ?Sized,
    {
        let (at, count) = target(on, buffer)?;
        Ok(Checked::even::<B>(What::AllReduce, (at, at), count, op))
    }

    pub fn all_reduce_into<I, O>(
        on: &Communicator,
        input: &'b I,
        output: &'b mut O,
        op: Op,
    ) -> Result<Self>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        let ((from, count), (to, room)) = (source(on, input)?, target(on, output)?);
        equal("reduce into a buffer", room, count)?;
        Ok(Checked::even::<O>(What::AllReduce, (from, to), count, op))
    }

    pub fn all_gather<I, O>(on: &Communicator, input: &'b I, output: &'b mut O) -> Result<Self>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        let ((from, count), (to, room)) = (source(on, input)?, target(on, output)?);
        blocks(on, "gather into a buffer", room, count)?;
        Ok(Checked::even::<O>(What::AllGather, (from, to), count, Op::Sum))
    }

    pub fn all_gather_in_place<B>(on: &Communicator, buffer: &'b mut B) -> Result<Self>
    where
        B: BufferMut + ?Sized,
    {
        let (whole, room) = target(on, buffer)?;
        let (own, count) = own_block::<B>(on, whole, room)?;
        Ok(Checked::even::<B>(What::AllGather, (own, whole), count, Op::Sum))
    }

    pub fn reduce_scatter<I, O>(
        on: &Communicator,
        input: &'b I,
        output: &'b mut O,
        op: Op,
    ) -> Result<Self>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        let ((from, whole), (to, count)) = (source(on, input)?, target(on, output)?);
        blocks(on, "scatter a buffer", whole, count)?;
        Ok(Checked::even::<O>(What::ReduceScatter, (from, to), count, op))
    }

    pub fn reduce_scatter_in_place<B>(on: &Communicator, buffer: &'b mut B, op: Op) -> Result<Self>
    where
        B: BufferMut + ?Sized,
    {
        let (whole, room) = target(on, buffer)?;
        let (own, count) = own_block::<B>(on, whole, room)?;
        Ok(Checked::even::<B>(What::ReduceScatter, (whole, own), count, op))
    }

    pub fn all_to_all<I, O>(on: &Communicator, input: &'b I, output: &'b mut O) -> Result<Self>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        let ((from, whole), (to, room)) = (source(on, input)?, target(on, output)?);
        equal("exchange buffers", room, whole)?;
        let count = block_of(on, whole)?;
        Ok(Checked::even::<O>(What::AllToAll, (from, to), count, Op::Sum))
    }

    pub fn all_to_all_in_place<B>(on: &Communicator, buffer: &'b mut B) -> Result<Self>
    where
        B: BufferMut + ?Sized,
    {
        let (at, whole) = target(on, buffer)?;
        let count = block_of(on, whole)?;
        Ok(Checked::even::<B>(What::AllToAll, (at, at), count, Op::Sum))
    }

    pub fn all_to_all_v<I, O>(
        on: &Communicator,
        (input, send): (&'b I, &[u64]),
        (output, receive): (&'b mut O, &[u64]),
    ) -> Result<Self>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        let ((from, sent), (to, room)) = (source(on, input)?, target(on, output)?);
        Ok(Checked::of(Call::AllToAllV {
            at: (from, to),
            sizes: (sent as u64, room as u64),
            send: Extent::packed(send),
            receive: Extent::packed(receive),
            dtype: O::Element::DATA_TYPE,
        }))
    }

    pub fn all_gather_v<I, O>(
        on: &Communicator,
        input: &'b I,
        (output, receive): (&'b mut O, &[u64]),
    ) -> Result<Self>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        let ((from, sent), (to, room)) = (source(on, input)?, target(on, output)?);
        Ok(Checked::of(Call::AllGatherV {
            at: (from, to),
            sizes: (sent as u64, room as u64),
            receive: Extent::packed(receive),
            dtype: O::Element::DATA_TYPE,
        }))
    }

    pub fn broadcast<B>(on: &Communicator, buffer: &'b mut B, root: u32) -> Result<Self>
    where
        B: BufferMut + ?Sized,
    {
        let (at, count) = target(on, buffer)?;
        Ok(Checked::even::<B>(What::Broadcast { root }, (at, at), count, Op::Sum))
    }

    pub fn reduce<B>(on: &Communicator, buffer: &'b mut B, op: Op, root: u32) -> Result<Self>
    where
        B: BufferMut + ?Sized,
    {
        let (at, count) = target(on, buffer)?;
        Ok(Checked::even::<B>(What::Reduce { root }, (at, at), count, op))
    }

    pub fn gather<I, O>(
        on: &Communicator,
        input: &'b I,
        output: &'b mut O,
        root: u32,
    ) -> Result<Self>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        let ((from, count), (to, room)) = (source(on, input)?, target(on, output)?);
        // The others' outputs have no part in it.
        if on.rank() == root {
            blocks(on, "gather into a buffer", room, count)?;
        }
        Ok(Checked::even::<O>(What::Gather { root }, (from, to), count, Op::Sum))
    }

    pub fn scatter<I, O>(
        on: &Communicator,
        input: &'b I,
        output: &'b mut O,
        root: u32,
    ) -> Result<Self>
    where
        I: Buffer<Element = O::Element> + ?Sized,
        O: BufferMut + ?Sized,
    {
        let ((from, whole), (to, count)) = (source(on, input)?, target(on, output)?);
        // The others' inputs have no part in it.
        if on.rank() == root {
            blocks(on, "scatter a buffer", whole, count)?;
        }
        Ok(Checked::even::<O>(What::Scatter { root }, (from, to), count, Op::Sum))
    }

    pub fn send<B>(on: &Communicator, input: &'b B, peer: u32) -> Result<Self>
    where
        B: Buffer + ?Sized,
    {
        let (at, count) = source(on, input)?;
        let (count, dtype) = (count as u64, B::Element::DATA_TYPE);
        Ok(Checked::of(Call::Send { at, count, dtype, peer }))
    }

    pub fn receive<B>(on: &Communicator, output: &'b mut B, peer: u32) -> Result<Self>
    where
        B: BufferMut + ?Sized,
    {
        let (at, count) = target(on, output)?;
        let (count, dtype) = (count as u64, B::Element::DATA_TYPE);
        Ok(Checked::of(Call::Receive { at, count, dtype, peer }))
    }

    fn even<B>(what: What, at: (*const u8, *mut u8), count: usize, op: Op) -> Self
    where
        B: Buffer + ?Sized,
    {
        let ((input, output), dtype) = (at, B::Element::DATA_TYPE);
        let count = count as u64;
        Checked::of(Call::Even(Request { what, input, output, count, dtype, op, factor: None }))
    }

    fn of(call: Call) -> Self {
        Checked { call, buffers: PhantomData }
    }
}

/// Where a call reads, and how many elements.
fn source<B: Buffer + ?Sized>(on: &Communicator, buffer: &B) -> Result<(*const u8, usize)> {
    reaches(on, buffer.device(), buffer.count())?;
    Ok((buffer.start(), buffer.count()))
}

/// Where a call writes, and how many elements.
fn target<B: BufferMut + ?Sized>(on: &Communicator, buffer: &mut B) -> Result<(*mut u8, usize)> {
    reaches(on, buffer.device(), buffer.count())?;
    Ok((buffer.start_mut(), buffer.count()))
}

/// Whether a rank's calls take buffers of `device`, slices of the host where it is `None`.
fn reaches(on: &Communicator, device: Option<&dyn Device>, count: usize) -> Result<()> {
    let own = &**on.device();
    let name = |device: &dyn Device| format!("{} {}", device.backend(), device.index());
    let saw = match device {
        None if own.backend() == Backend::Host || count == 0 => return Ok(()),
        None => format!("a slice of the host, on a rank of {}", name(own)),
        Some(device) if (device.backend(), device.index()) == (own.backend(), own.index()) => {
            return Ok(());
        }
        Some(device) => format!("a buffer of {}, on a rank of {}", name(device), name(own)),
    };
    let allowed = match own.backend() {
        Backend::Host => "slices, and a `DeviceBuffer` of the host",
        _ => {
            "a `DeviceBuffer` of this rank's device, as `DeviceBuffer::from_slice` makes of a slice"
        }
    };
    Err(argument("make a call", saw, allowed))
}

/// Where the rank's block of a buffer of `room` elements of `B` is, and how many it has.
fn own_block<B>(on: &Communicator, whole: *mut u8, room: usize) -> Result<(*mut u8, usize)>
where
    B: Buffer + ?Sized,
{
    let count = block_of(on, room)?;
    let before = on.rank() as usize * count * size_of::<B::Element>();
    Ok((whole.wrapping_add(before), count))
}

/// The length of one of `world` blocks of a buffer.
fn block_of(on: &Communicator, len: usize) -> Result<usize> {
    let world = on.world() as usize;
    if len.is_multiple_of(world) {
        return Ok(len / world);
    }
    let saw = format!("{len} elements for {world} ranks");
    Err(argument("divide a buffer by ranks", saw, "multiples of the number of ranks"))
}

/// Whether a buffer has `world` blocks of `block` elements.
fn blocks(on: &Communicator, what: &'static str, len: usize, block: usize) -> Result<()> {
    let world = on.world() as usize;
    if block.checked_mul(world) == Some(len) {
        return Ok(());
    }
    let saw = format!("{len} elements for {world} ranks with {block} each");
    Err(argument(what, saw, "the ranks' elements together"))
}

fn equal(what: &'static str, output: usize, input: usize) -> Result<()> {
    if output == input {
        return Ok(());
    }
    let saw = format!("{output} elements for {input}");
    Err(argument(what, saw, "buffers of one length"))
}

fn argument(what: &'static str, saw: String, allowed: &'static str) -> ExecutorError {
    ExecutorError::Argument { what, saw, allowed }
}
