//! Requests, checked: which plan serves one, and over which bytes.

use super::coded::Coded;
use super::served::{Found, Served};
use super::{
    Collectives, NOWHERE, Request, What, argument, check_address, code_unsupported, length,
};
use crate::error::ExecutorError;
use crate::executor::{Asked, Buffers, Call, there};
use crate::plan_cache::LoadedPlan;
use crate::selection::Wish;
use crate::selection::question::reduces;
use antiphon_plan::counts::{Counts, Extent};
use antiphon_plan::model::Collective;
use antiphon_types::{DataType, ReduceOp};
use std::sync::Arc;

/// A call, ready to be made.
#[derive(Debug)]
pub(super) enum Ready {
    Launch(Prepared),
    Code(Coded),
}

impl Ready {
    /// The call as a launch, for `who` has no place for code.
    pub(super) fn launch(self, who: &str) -> Result<Prepared, ExecutorError> {
        match self {
            Ready::Launch(prepared) => Ok(prepared),
            Ready::Code(Coded { code, .. }) => {
                let saw = format!("registered code `{}`, which would serve {who}", code.name());
                let allowed = "plans and built-in algorithms there; narrow the code's terms";
                Err(argument("make a call", saw, allowed))
            }
        }
    }
}

/// A launch, and all that it borrows.
#[derive(Debug)]
pub(super) struct Prepared {
    plan: Arc<LoadedPlan>,
    /// The question by which the plan is found again.
    pub asked: Option<Asked>,
    dtype: DataType,
    op: Option<ReduceOp>,
    input: (*const u8, u64),
    output: (*mut u8, u64),
    /// Runtime blocks: those sent, and those received.
    blocks: Option<[Vec<Extent>; 2]>,
}

impl Prepared {
    /// A launch over runtime blocks, which it does not have yet; buffers and bytes were checked.
    pub(super) fn of_blocks(
        plan: Arc<LoadedPlan>,
        (input, output): (*const u8, *mut u8),
        bytes: (u64, u64),
        dtype: DataType,
    ) -> Self {
        let (input, output) = (present((input, bytes.0)), present_mut((output, bytes.1)));
        Prepared { plan, asked: None, dtype, op: None, input, output, blocks: None }
    }

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

/// A request for blocks that are as long on all ranks, checked: what is to be served, and with which buffers.
pub(super) struct Checked {
    collective: &'static Collective,
    in_place: bool,
    root: u32,
    /// The send buffer stands in for the receive buffer, in which the rank has no part.
    stands_in: bool,
    dtype: DataType,
    op: Option<ReduceOp>,
    input: (*const u8, u64),
    output: (*mut u8, u64),
    premultiplied: bool,
}

impl Checked {
    #[inline]
    fn wish(&self) -> Wish<'static> {
        let &Checked { collective, in_place, root, .. } = self;
        Wish { collective, bytes: self.input.1.max(self.output.1), in_place, root }
    }

    /// Its buffers. If the rank has no part in one of them, the other takes its place if it is as long, otherwise none does: the
    /// rank's plan does not touch it.
    #[inline]
    fn buffers(&self) -> Buffers {
        let &Checked { dtype, op, .. } = self;
        let (input, output) = (present(self.input), present_mut(self.output));
        Buffers { input, output, dtype, op }
    }

    /// The addresses of its buffers; 0 for one that the rank has no part in.
    fn addresses(&self, rank: u32) -> [usize; 2] {
        use Collective::{Broadcast, Gather, Reduce, Scatter};
        let off_root = self.collective.has_root() && rank != self.root;
        let sends = !(off_root && matches!(self.collective, Broadcast | Scatter));
        let receives = !(off_root && matches!(self.collective, Reduce | Gather));
        let there = |has: bool, address: usize| if has { address } else { 0 };
        [there(sends, self.input.0.addr()), there(receives, self.output.0.addr())]
    }
}

impl Collectives {
    /// Checks a request, but for its factor.
    #[inline]
    pub(super) fn checked(&self, request: &Request) -> Result<Checked, ExecutorError> {
        let Request { what, input, output, count, dtype, op, factor } = *request;
        let (rank, world) = (self.communicator().rank(), self.communicator().world());
        let (whole, block) =
            (length(count.saturating_mul(world.into()), dtype)?, length(count, dtype)?);
        let (collective, input_bytes, output_bytes, root) = match what {
            What::AllReduce => (&Collective::AllReduce, block, block, 0),
            What::AllGather => (&Collective::AllGather, block, whole, 0),
            What::ReduceScatter => (&Collective::ReduceScatter, whole, block, 0),
            What::AllToAll => (&Collective::AllToAll, whole, whole, 0),
            What::Broadcast { root } => (&Collective::Broadcast, block, block, root),
            What::Reduce { root } => (&Collective::Reduce, block, block, root),
            What::Gather { root } => (&Collective::Gather, block, whole, root),
            What::Scatter { root } => (&Collective::Scatter, whole, block, root),
        };
        self.check_root(root)?;
        let at_root = rank == root;
        // Plans do not touch what a rank has no part in, so that any buffer of the right length will do.
        let (input, output, stands_in) = match what {
            What::Broadcast { .. } if !at_root => (output.cast_const(), output, false),
            What::Reduce { .. } if !at_root => (input, input.cast_mut(), true),
            // No other buffer is as long as this one would be.
            What::Gather { .. } if !at_root => (input, NOWHERE, false),
            What::Scatter { .. } if !at_root => (NOWHERE.cast_const(), output, false),
            _ => (input, output, false),
        };
        check_address(input, input_bytes, "a send buffer")?;
        check_address(output, output_bytes, "a receive buffer")?;
        let own = |base: *const u8| base.wrapping_add((u64::from(rank) * block) as usize);
        let (alike, allowed) = match what {
            What::AllReduce | What::AllToAll | What::Broadcast { .. } | What::Reduce { .. } => {
                (input == output.cast_const(), "buffers that share no byte, or one for both")
            }
            What::AllGather | What::Gather { .. } => (
                input == own(output.cast_const()),
                "buffers that share no byte, or as send buffer the rank's own block of the receive buffer",
            ),
            What::ReduceScatter | What::Scatter { .. } => (
                output.cast_const() == own(input),
                "buffers that share no byte, or as receive buffer the rank's own block of the send buffer",
            ),
        };
        let (input, output) = ((input, input_bytes), (output, output_bytes));
        if !alike && (at_root || !has_root(what)) && overlap(input, output) {
            return Err(argument("make a call", overlapping(input, output), allowed));
        }
        // With a root nothing is chosen by it: those plans are right either way.
        let in_place = alike && block > 0 && !has_root(what);
        let op = reduces(collective).then_some(op);
        let premultiplied = factor.is_some();
        Ok(Checked {
            collective,
            in_place,
            root,
            stands_in,
            dtype,
            op,
            input,
            output,
            premultiplied,
        })
    }

    /// Runs a call by what served an earlier one that asked the same; `None`, and nothing was begun, if that is not at hand or
    /// something is wrong with the call.
    ///
    /// # Safety
    /// As [`call`](Self::call), of a call without a stream and without a factor.
    #[inline]
    pub(crate) unsafe fn again(&self, request: &Request) -> Option<Result<(), ExecutorError>> {
        let checked = self.checked(request).ok()?;
        let (dtype, op) = (checked.dtype, checked.op);
        let asked = Asked::of(self.0.service.generation(), checked.wish(), (dtype, op, false))?;
        // SAFETY: as this function's.
        unsafe { self.executor().run_again(asked, &checked.buffers()) }
    }

    /// Checks a request, but for its factor, and chooses what serves it.
    pub(super) fn prepare(&self, request: &Request) -> Result<Ready, ExecutorError> {
        let checked = self.checked(request)?;
        let Checked { in_place, root, stands_in, dtype, op, premultiplied, .. } = checked;
        let addresses = checked.addresses(self.communicator().rank());
        let Found { served, asked } =
            self.serve(checked.wish(), (dtype, op, premultiplied), addresses)?;
        let Buffers { input, output, .. } = checked.buffers();
        match served {
            Served::Plan(plan) if plan.layout().runtime_sizes => {
                self.prepare_rooted(plan, request).map(Ready::Launch)
            }
            Served::Plan(plan) => {
                Ok(Ready::Launch(Prepared { plan, asked, dtype, op, input, output, blocks: None }))
            }
            Served::Code(code) => {
                self.check_alike(&code)?;
                let bytes = (input.1, output.1);
                // What stands in is the caller's to read, not to write.
                let output = if stands_in { NOWHERE } else { output.0 };
                let output = (output, there(output, bytes.1));
                let input = (input.0, there(input.0, bytes.0));
                let blocks = None;
                Ok(Ready::Code(Coded {
                    code,
                    bytes,
                    in_place,
                    input,
                    output,
                    blocks,
                    dtype,
                    op,
                    root,
                }))
            }
            Served::Transfers => {
                unreachable!("blocks of these collectives are as long on all ranks")
            }
        }
    }

    /// A transfer from one rank of a pair to the other, on another node. It has no runtime blocks, which only ranks that map each
    /// other's memory move: both ranks know the length.
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
        let Served::Plan(plan) = self.serve(wish, (dtype, None, false), [at.addr(); 2])?.served
        else {
            return Err(code_unsupported(self, "a transfer by registered code"));
        };
        let (input, output) = (present((at, bytes)), present_mut((at, bytes)));
        Ok(Prepared { plan, asked: None, dtype, op: None, input, output, blocks: None })
    }

    /// A gather or scatter by a plan with runtime sizes: an alltoallv of the blocks between the root and the others.
    fn prepare_rooted(
        &self,
        plan: Arc<LoadedPlan>,
        request: &Request,
    ) -> Result<Prepared, ExecutorError> {
        let Blocks { buffers: (input, output), sizes, send, receive } = match request.what {
            What::Scatter { root } => self.scatter_blocks(request, root)?,
            What::Gather { root } => self.gather_blocks(request, root)?,
            _ => unreachable!("blocks of all other collectives are as long on all ranks"),
        };
        let bytes = check_sizes((input, output), sizes, request.dtype)?;
        let launch = Prepared::of_blocks(plan, (input, output), bytes, request.dtype);
        Ok(launch.with_blocks(send, receive))
    }

    /// What a rank sends and receives in a gather.
    fn gather_blocks(&self, request: &Request, root: u32) -> Result<Blocks, ExecutorError> {
        let Request { input, output, .. } = *request;
        let Rooted { one, all } = self.rooted(request, root, input, output)?;
        let (input, output) = (present((input, one.0)), present_mut((output, all.0)));
        let (buffers, sizes) = ((input.0, output.0), (input.1, output.1));
        Ok(Blocks { buffers, sizes, send: one.1, receive: all.1 })
    }

    /// What a rank sends and receives in a scatter.
    fn scatter_blocks(&self, request: &Request, root: u32) -> Result<Blocks, ExecutorError> {
        let Request { input, output, .. } = *request;
        let Rooted { one, all } = self.rooted(request, root, output, input)?;
        let (input, output) = (present((input, all.0)), present_mut((output, one.0)));
        let (buffers, sizes) = ((input.0, output.0), (input.1, output.1));
        Ok(Blocks { buffers, sizes, send: all.1, receive: one.1 })
    }

    /// The blocks between a root and the others, in either direction: `single` is where each rank has its own block, `whole`
    /// where the root has all of them. A block that is already where it belongs is not moved.
    fn rooted(
        &self,
        &Request { count, dtype, .. }: &Request,
        root: u32,
        single: *const u8,
        whole: *const u8,
    ) -> Result<Rooted, ExecutorError> {
        self.check_root(root)?;
        let (rank, world) = (self.communicator().rank(), self.communicator().world());
        length(count.saturating_mul(world.into()), dtype)?;
        let nothing = vec![Extent::default(); world as usize];
        let mut one = (count, nothing.clone());
        one.1[root as usize].count = count;
        if rank != root {
            return Ok(Rooted { one, all: (0, nothing) });
        }
        let mut all = (count * u64::from(world), Extent::packed(&vec![count; world as usize]));
        if single == whole.wrapping_add(rank as usize * count as usize * dtype.size()) {
            one = (0, nothing);
            all.1[rank as usize] = Extent::default();
        }
        Ok(Rooted { one, all })
    }
}

/// The blocks of a gather or scatter, with the elements of their buffer: the rank's own, and all that are at the root.
struct Rooted {
    one: (u64, Vec<Extent>),
    all: (u64, Vec<Extent>),
}

#[inline]
fn has_root(what: What) -> bool {
    match what {
        What::AllReduce | What::AllGather | What::ReduceScatter | What::AllToAll => false,
        What::Broadcast { .. }
        | What::Reduce { .. }
        | What::Gather { .. }
        | What::Scatter { .. } => true,
    }
}

/// Whether buffers share a byte: what is written of one may be read of the other, before or after.
#[inline]
fn overlap(input: (*const u8, u64), output: (*mut u8, u64)) -> bool {
    let (input, output) = ((input.0.addr(), input.1), (output.0.addr(), output.1));
    let end = |(at, bytes): (usize, u64)| at.saturating_add(bytes as usize);
    let filled = input.1 > 0 && output.1 > 0;
    filled && input.0 < end(output) && output.0 < end(input)
}

/// That buffers share bytes.
#[cold]
fn overlapping(input: (*const u8, u64), output: (*mut u8, u64)) -> String {
    let (from, to) = (input.0.addr(), output.0.addr());
    let way = if to < from { "before" } else { "behind" };
    format!(
        "a send buffer of {} bytes, and a receive buffer of {} that begins {} bytes {way} it and shares some",
        input.1,
        output.1,
        from.abs_diff(to)
    )
}

/// A send buffer, or what stands for one of no length.
#[inline]
pub(super) fn present((at, bytes): (*const u8, u64)) -> (*const u8, u64) {
    if bytes == 0 { (NOWHERE.cast_const(), 0) } else { (at, bytes) }
}

/// A receive buffer, or what stands for one of no length.
#[inline]
pub(super) fn present_mut((at, bytes): (*mut u8, u64)) -> (*mut u8, u64) {
    if bytes == 0 { (NOWHERE, 0) } else { (at, bytes) }
}
