//! Calls whose blocks have lengths of their own, checked: what serves one.

use super::coded::Coded;
use super::prepared::{Blocks, Prepared, check_sizes, present, present_mut};
use super::served::Served;
use super::transfers::Transfer;
use super::{Collectives, code_unsupported};
use crate::communicator::CallSeries;
use crate::error::ExecutorError;
use crate::registry::RegisteredCode;
use crate::selection::Wish;
use antiphon_plan::counts::{Counts, CountsError, Extent};
use antiphon_plan::model::Collective;
use antiphon_types::DataType;
use std::sync::Arc;

/// The collectives whose blocks have lengths of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnevenKind {
    AllToAllV,
    AllGatherV,
}

impl UnevenKind {
    /// What errors call it.
    pub const fn name(self) -> &'static str {
        match self {
            UnevenKind::AllToAllV => "alltoallv",
            UnevenKind::AllGatherV => "allgatherv",
        }
    }

    /// The error for a call with blocks that it cannot have.
    pub fn wrong_blocks(self, source: CountsError) -> ExecutorError {
        ExecutorError::Counts { plan: self.name().to_owned(), source }
    }
}

/// A call that no plan serves, as one rank makes it.
#[derive(Debug)]
pub(super) struct UnevenCall {
    pub kind: UnevenKind,
    pub in_place: bool,
    pub dtype: DataType,
    pub blocks: Blocks,
}

/// What a call comes to.
#[derive(Debug)]
pub(super) enum Uneven {
    /// A launch, to which an alltoallv adds its blocks.
    Launch(Prepared),
    Code(Coded),
    Parts(Vec<Transfer>),
}

/// What makes a call that is no launch of a plan.
#[derive(Clone, Debug)]
pub(super) enum Means {
    Code(Arc<RegisteredCode>),
    Transfers,
}

/// The buffers of a call, and the elements of both.
type SizedBuffers = ((*const u8, *mut u8), (u64, u64));

impl Collectives {
    /// Checks an alltoallv, and chooses what serves it.
    pub(super) fn prepare_all_to_all_v(
        &self,
        (buffers, sizes): SizedBuffers,
        Counts { send, receive }: Counts<'_>,
        dtype: DataType,
    ) -> Result<Uneven, ExecutorError> {
        let (served, bytes) =
            self.serve_blocks(&Collective::AllToAllV, false, (buffers, sizes), dtype)?;
        if let Served::Plan(plan) = served {
            return Ok(Uneven::Launch(Prepared::of_blocks(plan, buffers, bytes, dtype)));
        }
        let blocks = Blocks { buffers, sizes, send: send.to_vec(), receive: receive.to_vec() };
        let kind = UnevenKind::AllToAllV;
        self.without_plan(served, UnevenCall { kind, in_place: false, dtype, blocks })
    }

    /// Checks an allgatherv, and chooses what serves it.
    pub(super) fn prepare_all_gather_v(
        &self,
        (buffers, sizes): SizedBuffers,
        receive: &[Extent],
        dtype: DataType,
    ) -> Result<Uneven, ExecutorError> {
        let in_place = self.own_block(buffers, sizes, receive, dtype)?;
        let (served, bytes) =
            self.serve_blocks(&Collective::AllGatherV, in_place, (buffers, sizes), dtype)?;
        let (send, mut receive) = (vec![Extent::new(0, sizes.0)], receive.to_vec());
        let own = receive.get_mut(self.communicator().rank() as usize);
        if let Some(own) = own.filter(|own| own.count == 0) {
            // Of such a block the offset does not count.
            *own = Extent::default();
        }
        if let Served::Plan(plan) = served {
            self.check_apart(buffers, sizes, &receive, (in_place, dtype))?;
            let launch = Prepared::of_blocks(plan, buffers, bytes, dtype);
            return Ok(Uneven::Launch(launch.with_blocks(send, receive)));
        }
        let blocks = Blocks { buffers, sizes, send, receive };
        let kind = UnevenKind::AllGatherV;
        self.without_plan(served, UnevenCall { kind, in_place, dtype, blocks })
    }

    /// Counts a call that is made now. Over nodes the ranks compare by what: on one node all of them meet in a launch.
    pub(super) fn count(&self, means: &Means) {
        if self.on_one_node() {
            return;
        }
        let shared = &self.communicator().shared;
        match means {
            Means::Transfers => shared.count_otherwise(CallSeries::Uneven),
            Means::Code(code) => {
                shared.count_by_code(CallSeries::Uneven, &code.with_version());
            }
        }
    }

    /// Checks the buffers of a transfer between ranks of one node, for which nothing is registered. It has no blocks yet.
    pub(super) fn prepare_near(
        &self,
        buffers: SizedBuffers,
        dtype: DataType,
    ) -> Result<Prepared, ExecutorError> {
        match self.serve_blocks(&Collective::AllToAllV, false, buffers, dtype)? {
            (Served::Plan(plan), bytes) => Ok(Prepared::of_blocks(plan, buffers.0, bytes, dtype)),
            _ => Err(code_unsupported(self, "a transfer by registered code")),
        }
    }

    /// What serves a call, and the bytes of its buffers.
    fn serve_blocks(
        &self,
        collective: &Collective,
        in_place: bool,
        ((input, output), sizes): SizedBuffers,
        dtype: DataType,
    ) -> Result<(Served, (u64, u64)), ExecutorError> {
        let bytes = check_sizes((input, output), sizes, dtype)?;
        let wish = Wish { collective, bytes: 0, in_place, root: 0 };
        let addresses = [input.addr(), output.addr()];
        Ok((self.serve(wish, (dtype, None, false), addresses)?.served, bytes))
    }

    /// A call that no plan serves.
    fn without_plan(&self, served: Served, call: UnevenCall) -> Result<Uneven, ExecutorError> {
        self.check_blocks(&call)?;
        Ok(match served {
            Served::Plan(_) => unreachable!("it would serve the call"),
            Served::Code(code) => Uneven::Code(self.coded_blocks(code, call)?),
            Served::Transfers => Uneven::Parts(self.parts(&call)),
        })
    }

    /// A call, as its code is given it.
    fn coded_blocks(
        &self,
        code: Arc<RegisteredCode>,
        UnevenCall { in_place, dtype, blocks, .. }: UnevenCall,
    ) -> Result<Coded, ExecutorError> {
        self.check_alike(&code)?;
        let Blocks { buffers: (input, output), sizes, send, receive } = blocks;
        let element = dtype.size() as u64;
        let input = present((input, sizes.0 * element));
        let output = present_mut((output, sizes.1 * element));
        let blocks = Some([send, receive]);
        // Each rank knows the sizes of its own blocks alone.
        let bytes = (0, 0);
        Ok(Coded { code, bytes, in_place, input, output, blocks, dtype, op: None, root: 0 })
    }

    /// Refuses an allgatherv whose input is where another rank's block goes.
    fn check_apart(
        &self,
        (input, output): (*const u8, *mut u8),
        sizes: (u64, u64),
        receive: &[Extent],
        (in_place, dtype): (bool, DataType),
    ) -> Result<(), ExecutorError> {
        let over = |extent: &Extent| {
            let at = output.wrapping_add((extent.offset as usize).wrapping_mul(dtype.size()));
            extent.count > 0 && extent.count == sizes.0 && at.cast_const() == input
        };
        match receive.iter().position(over).filter(|_| !in_place) {
            None => Ok(()),
            Some(receive) => {
                let source = CountsError::Shared { send: 0, receive, in_place };
                Err(UnevenKind::AllGatherV.wrong_blocks(source))
            }
        }
    }
}
