//! Mutations of how work is shared, windowed and laid out.

use super::super::edit::{Edit, Step, operations};
use antiphon::plan::model::{GroupSlice, Op, Pipeline, Plan};

pub(super) fn change_group(plan: &Plan) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (at, op) in operations(plan) {
        let Some(GroupSlice { tb_id, tbg_size }) = op.group else { continue };
        let others = (0..tbg_size).filter(|&other| other != tb_id).map(|tb_id| (tb_id, tbg_size));
        let sizes = [(tb_id, tbg_size.saturating_sub(1)), (tb_id, tbg_size.saturating_add(1))];
        for (id, size) in others.chain(sizes) {
            let group = Some(GroupSlice { tb_id: id, tbg_size: size });
            let new = Op { group, ..op.clone() };
            let what = format!("slice {id} of {size}, not {tb_id} of {tbg_size}");
            edits.push(Edit::replace(at, op, new, what));
        }
    }
    edits
}

pub(super) fn change_pipeline(plan: &Plan) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (at, op) in operations(plan) {
        let Some(old) = &op.pipeline else { continue };
        let Pipeline { unit_size: unit, num_chunks: chunks, .. } = *old;
        let step = plan.buffer_alignment;
        let units = [unit / 2, unit.saturating_mul(2), unit.saturating_add(step)];
        let units = units.into_iter().chain(unit.checked_sub(step));
        let others = units.map(|unit| (unit, chunks));
        let counts = [chunks.checked_sub(1), chunks.checked_add(1)];
        let counts = counts.into_iter().flatten().map(|chunks| (unit, chunks));
        for (new_unit, new_chunks) in others.chain(counts) {
            if (new_unit, new_chunks) == (unit, chunks) {
                continue;
            }
            let pipeline =
                Pipeline { unit_size: new_unit, num_chunks: new_chunks, ops: old.ops.clone() };
            let new = Op { pipeline: Some(pipeline), ..op.clone() };
            let what = format!(
                "windows of {new_unit} bytes over {new_chunks} chunks, not {unit} over {chunks}"
            );
            edits.push(Edit::replace(at, op, new, what));
        }
    }
    edits
}

pub(super) fn single_scratch(plan: &Plan) -> Vec<Edit> {
    if plan.use_double_scratch_buffer {
        vec![Edit::new(Step::SingleScratch, "one scratch for all launches")]
    } else {
        Vec::new()
    }
}
