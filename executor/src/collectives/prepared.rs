//! Requests, checked: which plan serves one, and over which bytes.

use super::coded::Coded;
use super::served::Served;
use super::{Collectives, NOWHERE, Request, What, argument, check_address, code_unsupported};
use crate::error::ExecutorError;
use crate::executor::Call;
use crate::plan_cache::LoadedPlan;
use crate::registry::CodeCall;
use crate::selection::Wish;
use crate::selection::question::reduces;
use antiphon_plan::counts::{Counts, Extent};
use antiphon_plan::model::Collective;
use antiphon_types::{DataType, ReduceOp};
use std::sync::Arc;

/// A call, ready to be made.
#[derive(Debug)]
pub(super) enum Ready<'a> {
    Launch(Prepared),
    Code(Coded<'a>),
}

impl Ready<'_> {
    /// The call as a launch, for `who` has no place for code.
    pub(super) fn launch(self, who: &str) -> Result<Prepared, ExecutorError> {
        match self {
            Ready::Launch(prepared) => Ok(prepared),
            Ready::Code(Coded { code, .. }) => {
                let saw = format!("registered code `{}`, which would serve {who}", code.name());
                let allowed = "plans and built-in algorithms there; narrow the code's terms, or make the call by itself";
                Err(argument("make a call", saw, allowed))
            }
        }
    }
}

/// A launch, and all that it borrows.
#[derive(Debug)]
pub(super) struct Prepared {
    plan: Arc<LoadedPlan>,
    dtype: DataType,
    op: Option<ReduceOp>,
    input: (*const u8, u64),
    output: (*mut u8, u64),
    /// Runtime blocks: those sent, and those received.
    blocks: Option<[Vec<Extent>; 2]>,
}

impl Prepared {
    /// The call.
    pub(super) fn call(&self) -> Call<'_> {
        let mut call = Call::new(&self.plan, self.dtype, self.input, self.output);
        call.op = self.op;
        call.counts = self.blocks.as_ref().map(|[send, receive]| Counts { send, receive });
        call
    }

    /// The call with runtime blocks of its own.
    pub(super) fn with_blocks(self, send: Vec<Extent>, receive: Vec<Extent>) -> Self {
        Prepared { blocks: Some([send, receive]), ..self }
    }
}

/// A call with blocks of lengths of their own, as one rank makes it.
#[derive(Debug)]
pub(super) struct Blocks {
    pub buffers: (*const u8, *mut u8),
    /// Elements of both.
    pub sizes: (u64, u64),
    /// By rank, what goes there.
    pub send: Vec<Extent>,
    /// By rank, what comes from there.
    pub receive: Vec<Extent>,
}

/// The bytes of buffers of so many elements, if they are where they must be.
pub(super) fn check_sizes(
    (input, output): (*const u8, *mut u8),
    sizes: (u64, u64),
    dtype: DataType,
) -> Result<(u64, u64), ExecutorError> {
    let (input_bytes, output_bytes) = (length(sizes.0, dtype)?, length(sizes.1, dtype)?);
    check_address(input, input_bytes, "a send buffer")?;
    check_address(output, output_bytes, "a receive buffer")?;
    Ok((input_bytes, output_bytes))
}

/// The bytes of so many elements.
#[inline]
fn length(elements: u64, dtype: DataType) -> Result<u64, ExecutorError> {
    let bytes = elements.checked_mul(dtype.size() as u64);
    let bytes = bytes.filter(|&bytes| bytes <= isize::MAX as u64);
    bytes.ok_or_else(|| {
        argument("make a call", format!("{elements} elements"), "what fits the address space")
    })
}

impl Collectives {
    /// Checks a request, but for its factor, and chooses what serves it.
    pub(super) fn prepare(&self, request: &Request) -> Result<Ready<'_>, ExecutorError> {
        let Request { what, input, output, count, dtype, op, factor } = *request;
        let (rank, world) = (self.communicator().rank(), self.communicator().world());
        let whole_count = count.saturating_mul(world.into());
        let whole = length(whole_count, dtype)?;
        let block = length(count, dtype)?;
        let own_block = u64::from(rank) * block;
        let (collective, input_bytes, output_bytes, root) = match what {
            What::AllReduce => (Collective::AllReduce, block, block, 0),
            What::AllGather => (Collective::AllGather, block, whole, 0),
            What::ReduceScatter => (Collective::ReduceScatter, whole, block, 0),
            What::AllToAll => (Collective::AllToAll, whole, whole, 0),
            What::Broadcast { root } => (Collective::Broadcast, block, block, root),
            What::Reduce { root } => (Collective::Reduce, block, block, root),
            What::Gather { root } => {
                let blocks = self.gather_blocks(request, root)?;
                return self.prepare_blocks(blocks, dtype).map(Ready::Launch);
            }
            What::Scatter { root } => {
                let blocks = self.scatter_blocks(request, root)?;
                return self.prepare_blocks(blocks, dtype).map(Ready::Launch);
            }
        };
        self.check_root(root)?;
        let at_root = rank == root;
        // Plans do not touch what a rank has no part in, so that any buffer of the right length will do.
        let (input, output) = match what {
            What::Broadcast { .. } if !at_root => (output.cast_const(), output),
            What::Reduce { .. } if !at_root => (input, input.cast_mut()),
            _ => (input, output),
        };
        check_address(input, input_bytes, "a send buffer")?;
        check_address(output, output_bytes, "a receive buffer")?;
        let offset = |base: *const u8| base.wrapping_add(own_block as usize);
        let in_place = block > 0
            && match what {
                What::AllReduce | What::AllToAll => input == output.cast_const(),
                What::AllGather => input == offset(output.cast_const()),
                What::ReduceScatter => output.cast_const() == offset(input),
                // Nobody chooses by it: these plans are right either way.
                _ => false,
            };
        let bytes = input_bytes.max(output_bytes);
        let op = reduces(&collective).then_some(op);
        let wish = Wish { collective: &collective, bytes, in_place, root };
        let addresses = [input.addr(), output.addr()];
        let served = self.serve(wish, (dtype, op, factor.is_some()), addresses)?;
        // A rank without a part in one of the buffers has the other one stand in for it, which is as long, and which its
        // plan does not touch by that name.
        let (input, output) = (present(input, input_bytes), present_mut(output, output_bytes));
        match served {
            Served::Plan(plan) => {
                Ok(Ready::Launch(Prepared { plan, dtype, op, input, output, blocks: None }))
            }
            Served::Code(code) => {
                if self.on_device() {
                    return Err(code_unsupported(self, "a call that registered code serves"));
                }
                // What stands in is the caller's to read, not to write.
                let stands_in = matches!(what, What::Reduce { .. }) && !at_root;
                let (output, output_bytes) =
                    if stands_in { (NOWHERE, 0) } else { (output.0, output_bytes) };
                let call = CodeCall {
                    executor: self.executor(),
                    in_place,
                    input: input.0,
                    output,
                    input_bytes,
                    output_bytes,
                    dtype,
                    op,
                    root,
                    stream: None,
                };
                Ok(Ready::Code(Coded { code, call }))
            }
        }
    }

    /// Checks the buffers of a call with runtime blocks, which it does not have yet; `sizes` are their elements.
    pub(super) fn prepare_v(
        &self,
        (input, output): (*const u8, *mut u8),
        sizes: (u64, u64),
        dtype: DataType,
    ) -> Result<Prepared, ExecutorError> {
        let (input_bytes, output_bytes) = check_sizes((input, output), sizes, dtype)?;
        let wish = Wish { collective: &Collective::AllToAllV, bytes: 0, in_place: false, root: 0 };
        let addresses = [input.addr(), output.addr()];
        let Served::Plan(plan) = self.serve(wish, (dtype, None, false), addresses)? else {
            return Err(code_unsupported(self, "code for blocks of different sizes"));
        };
        let (input, output) = (present(input, input_bytes), present_mut(output, output_bytes));
        Ok(Prepared { plan, dtype, op: None, input, output, blocks: None })
    }

    /// A transfer from a rank of a pair whose ranks are on two nodes: runtime blocks are for those that map each other's
    /// memory, but both know the length.
    pub(super) fn prepare_from(
        &self,
        root: u32,
        at: *mut u8,
        count: u64,
        dtype: DataType,
    ) -> Result<Prepared, ExecutorError> {
        let bytes = length(count, dtype)?;
        // In place, so that the sender's buffer is only read.
        let wish = Wish { collective: &Collective::Broadcast, bytes, in_place: true, root };
        let Served::Plan(plan) = self.serve(wish, (dtype, None, false), [at.addr(); 2])? else {
            return Err(code_unsupported(self, "a transfer by registered code"));
        };
        let (input, output) = (present(at, bytes), present_mut(at, bytes));
        Ok(Prepared { plan, dtype, op: None, input, output, blocks: None })
    }

    fn prepare_blocks(&self, blocks: Blocks, dtype: DataType) -> Result<Prepared, ExecutorError> {
        let Blocks { buffers, sizes, send, receive } = blocks;
        Ok(self.prepare_v(buffers, sizes, dtype)?.with_blocks(send, receive))
    }

    /// What a rank sends and receives in a gather.
    pub(super) fn gather_blocks(
        &self,
        request: &Request,
        root: u32,
    ) -> Result<Blocks, ExecutorError> {
        let Request { input, output, count, dtype, .. } = *request;
        self.check_root(root)?;
        length(count.saturating_mul(self.communicator().world().into()), dtype)?;
        let (rank, world) = (self.communicator().rank(), self.communicator().world());
        let mut send = vec![Extent::default(); world as usize];
        let mut receive = send.clone();
        send[root as usize].count = count;
        let at_root = rank == root;
        if at_root {
            receive = Extent::packed(&vec![count; world as usize]);
            let own = output.wrapping_add(rank as usize * count as usize * dtype.size());
            if count > 0 && input == own.cast_const() {
                (send[rank as usize], receive[rank as usize]) = Default::default();
            }
        }
        let kept = at_root && send[rank as usize].count == 0;
        let input = if kept { (NOWHERE.cast_const(), 0) } else { (input, count) };
        let output = if at_root { (output, count * u64::from(world)) } else { (NOWHERE, 0) };
        let (buffers, sizes) = ((input.0, output.0), (input.1, output.1));
        Ok(Blocks { buffers, sizes, send, receive })
    }

    /// What a rank sends and receives in a scatter.
    pub(super) fn scatter_blocks(
        &self,
        request: &Request,
        root: u32,
    ) -> Result<Blocks, ExecutorError> {
        let Request { input, output, count, dtype, .. } = *request;
        self.check_root(root)?;
        length(count.saturating_mul(self.communicator().world().into()), dtype)?;
        let (rank, world) = (self.communicator().rank(), self.communicator().world());
        let mut send = vec![Extent::default(); world as usize];
        let mut receive = send.clone();
        receive[root as usize].count = count;
        let at_root = rank == root;
        if at_root {
            send = Extent::packed(&vec![count; world as usize]);
            let own = input.wrapping_add(rank as usize * count as usize * dtype.size());
            if count > 0 && output.cast_const() == own {
                (send[rank as usize], receive[rank as usize]) = Default::default();
            }
        }
        let kept = at_root && receive[rank as usize].count == 0;
        let output = if kept { (NOWHERE, 0) } else { (output, count) };
        let input =
            if at_root { (input, count * u64::from(world)) } else { (NOWHERE.cast_const(), 0) };
        let (buffers, sizes) = ((input.0, output.0), (input.1, output.1));
        Ok(Blocks { buffers, sizes, send, receive })
    }
}

/// A send buffer, or what stands for one of no length.
fn present(at: *const u8, bytes: u64) -> (*const u8, u64) {
    if bytes == 0 { (NOWHERE.cast_const(), 0) } else { (at, bytes) }
}

/// A receive buffer, or what stands for one of no length.
fn present_mut(at: *mut u8, bytes: u64) -> (*mut u8, u64) {
    if bytes == 0 { (NOWHERE, 0) } else { (at, bytes) }
}
