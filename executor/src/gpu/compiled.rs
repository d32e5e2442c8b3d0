//! Compiled plans: a rank's part of a kernel, alone or together with other ranks of its process.

use super::kernels::{self, Kernels, LONGEST, Loader, target};
use super::shape::blocks_of;
use super::upload::Image;
use super::{Gpu, free};
use crate::communicator::{KernelForm, Shared};
use crate::error::ExecutorError;
use crate::executor::Call;
use crate::plan_cache::LoadedPlan;
use antiphon_codegen::interpret::interpreted_together;
use antiphon_codegen::{
    Generated, GeneratedTogether, RankBlocks, Variant, generate_together, written_for,
};
use antiphon_hal::{Backend, HalError, Kernel, Memory};
use antiphon_types::{DataType, ReduceOp};
use std::sync::Arc;

/// What kernels of one plan differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelKind {
    /// The element type.
    pub dtype: DataType,
    /// The caller's reduction; none where the plan's own is used.
    pub op: Option<ReduceOp>,
}

impl KernelKind {
    /// That of a call.
    pub fn of(call: &Call<'_>) -> Self {
        KernelKind { dtype: call.dtype, op: call.op }
    }

    /// What kernels of the plan are written for, where a call is of this kind.
    pub fn in_plan(self, plan: &LoadedPlan) -> Self {
        let (dtype, op) = written_for(plan.combines(), self.dtype, self.op);
        KernelKind { dtype, op }
    }
}

/// A plan's kernel of a rank, for one element type and operator.
pub struct Compiled {
    /// The kernel.
    pub kernel: Arc<dyn Kernel>,
    /// Divides the sums of an average.
    pub divide: Option<Arc<dyn Kernel>>,
    /// Blocks of a launch: at least one.
    pub blocks: u32,
    /// [`BlockEntry`]s, operands and peers of the blocks.
    pub memory: Arc<dyn Memory>,
    /// Where operands begin there.
    pub operands: u64,
    /// Where peers begin there.
    pub peers: u64,
    /// Those of the other ranks on the device, kept for them.
    _others: Vec<Arc<dyn Kernel>>,
}

impl Compiled {
    /// The kernel of a rank alone. Those of all ranks of the process on the device are loaded with it.
    pub fn load(
        shared: &Shared,
        gpu: &Gpu,
        plan: &LoadedPlan,
        kind: KernelKind,
    ) -> Result<Self, ExecutorError> {
        let loader = Loader { device: &*gpu.device, shared, hurries: false };
        let ranks = ranks_here(shared);
        let variant = variant(gpu, kind)?;
        let Kernels { own: (generated, kernel), divide, others } =
            Kernels::new(loader, plan, &ranks, (variant, gpu.kernels))?;
        let Generated { blocks, .. } = generated;
        let all = [&kernel].into_iter().chain(&others);
        let made = fits(gpu, plan, all.map(|kernel| &**kernel), &ranks).and_then(|()| {
            let kernels = (Arc::clone(&kernel), divide.clone());
            Compiled::new(gpu, kernels, &blocks, others.clone())
        });
        made.inspect_err(|_| free((kernel, divide, others)))
    }

    /// One kernel of several ranks of this process, the calling one among them; what each has of it, in their order. `None` if they
    /// may be kernels of their own, and this one would have to be loaded beside a launch: which may wait for theirs.
    pub fn load_together(
        shared: &Shared,
        gpu: &Gpu,
        plan: &LoadedPlan,
        kind: KernelKind,
        (ranks, may_split): (&[u32], bool),
    ) -> Result<Option<Vec<Arc<Self>>>, ExecutorError> {
        let loader = Loader { device: &*gpu.device, shared, hurries: may_split };
        let variant = variant(gpu, kind)?;
        let make = |form| match form {
            KernelForm::Interpreted => interpreted_together(plan.layout(), ranks, variant),
            _ => generate_together(plan.layout(), ranks, variant),
        };
        // As each of them would be alone, so that none is compiled for this alone.
        let is_long = |made: &GeneratedTogether| {
            Ok(made.steps > LONGEST && kernels::are_long(plan, &ranks_here(shared), variant)?)
        };
        let load = |form, made: GeneratedTogether| -> Result<_, ExecutorError> {
            let of = (variant, form);
            let Some(kernel) = kernels::try_load(loader, of, made.entry, &made.text)? else {
                return Ok(None);
            };
            let divide = match kernels::divide_kernel(loader, of) {
                Ok(divide) => divide,
                Err(error) => {
                    free(kernel);
                    return Err(error.into());
                }
            };
            let of = |blocks| {
                let kernels = (Arc::clone(&kernel), divide.clone());
                Compiled::new(gpu, kernels, blocks, Vec::new()).map(Arc::new)
            };
            let all = fits(gpu, plan, [&*kernel], &ranks_here(shared))
                .and_then(|()| made.ranks.iter().map(of).collect::<Result<_, _>>());
            all.map(Some).inspect_err(|_| free((kernel, divide)))
        };
        kernels::by_form((plan, gpu.kernels), make, is_long, load)
    }

    /// A kernel, and the one that divides behind it, with the data that make its blocks a rank's.
    pub fn new(
        gpu: &Gpu,
        (kernel, divide): (Arc<dyn Kernel>, Option<Arc<dyn Kernel>>),
        blocks: &RankBlocks,
        others: Vec<Arc<dyn Kernel>>,
    ) -> Result<Self, ExecutorError> {
        let entries = blocks.entries();
        let mut image = Image::default();
        image.add(&entries);
        let operands = image.add(&blocks.operands.words);
        let peers = image.add(&blocks.peers.words);
        let memory = gpu.upload.new_memory(&gpu.pool, &image.bytes)?;
        let blocks = entries.len() as u32;
        Ok(Compiled { kernel, divide, blocks, memory, operands, peers, _others: others })
    }
}

/// Whether all blocks of these ranks, which these are the kernels of, run on the device at the same time: they wait for each other.
fn fits<'a>(
    gpu: &Gpu,
    plan: &LoadedPlan,
    kernels: impl IntoIterator<Item = &'a dyn Kernel>,
    ranks: &[u32],
) -> Result<(), ExecutorError> {
    let shape = gpu.shape(plan, 1);
    let rooms = kernels.into_iter().map(|kernel| kernel.resident_blocks(shape));
    let room = match (least(rooms)?, gpu.device.backend()) {
        // Where short copies, and words that streams write, are kernels of the driver's, a multiprocessor is left to them: blocks
        // wait for both.
        (room, Backend::Rocm) => room - room / u64::from(gpu.device.caps().cores).max(1),
        (room, _) => room,
    };
    let needed: u64 = ranks.iter().map(|&rank| blocks_of(plan.layout(), rank).max(1)).sum();
    if needed <= room {
        return Ok(());
    }
    Err(ExecutorError::Argument {
        what: "launch a plan's kernels",
        saw: format!(
            "{needed} thread blocks of {} threads ({} ranks of this process on one device together), where it runs {room} at once",
            shape.threads,
            ranks.len()
        ),
        allowed: "as many as the device runs at the same time; use a plan with fewer thread blocks, or fewer \
                  ranks on a device",
    })
}

/// The room that there is for every kernel: so that all ranks, whose kernels differ, find the same.
fn least(rooms: impl IntoIterator<Item = Result<u64, HalError>>) -> Result<u64, HalError> {
    rooms.into_iter().try_fold(u64::MAX, |least, room| Ok(least.min(room?)))
}

/// The ranks of this process on this device, the calling one first.
fn ranks_here(shared: &Shared) -> Vec<u32> {
    let here = |&peer: &u32| peer != shared.rank && shared.neighbours.share(peer);
    [shared.rank].into_iter().chain((0..shared.world).filter(here)).collect()
}

/// What kernels of calls of a kind are written for.
fn variant(gpu: &Gpu, kind: KernelKind) -> Result<Variant, HalError> {
    let backend = gpu.device.backend();
    let unsupported = HalError::Unsupported { op: "run plans by kernels", backend };
    let target = target(backend).ok_or(unsupported)?;
    Ok(Variant { target, dtype: kind.dtype, op: kind.op })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_other_kernels_find_the_same_room() {
        for rooms in [[264, 132], [132, 264]] {
            assert_eq!(least(rooms.map(Ok)).unwrap(), 132);
        }
        let lost = || HalError::Invalid {
            what: "ask",
            saw: String::new(),
            allowed: String::new(),
            cure: "",
        };
        assert!(least([Ok(264), Err(lost())]).is_err());
    }
}
