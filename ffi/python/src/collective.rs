//! What collectives say: how many chunks the ranks' buffers have, and what they then hold.

use crate::convert::BufferArg;
use antiphon_plan::dsl::Settings;
use antiphon_plan::model::{Buffer, Plan};
use antiphon_plan::postcondition::{PostCondition, Wanted};
use pyo3::exceptions::{PyKeyError, PyNotImplementedError, PyOverflowError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;

/// Chunks of every rank's input and output, as the collective's `init_buffers()` has them.
pub fn chunks(
    collective: &Bound<'_, PyAny>,
    program: &str,
    num_ranks: u64,
) -> PyResult<Vec<(u64, u64)>> {
    let py = collective.py();
    let buffers = collective.call_method0(intern!(py, "init_buffers"))?;
    let input = BufferArg(Buffer::Input).member(py)?;
    let output = BufferArg(Buffer::Output).member(py)?;
    let size = |buffers: &Bound<'_, PyAny>, kind: &Py<PyAny>| match buffers.get_item(kind) {
        Ok(buffer) => buffer.getattr(intern!(py, "size"))?.extract(),
        // Without the buffer, the plan puts no constraint on it.
        Err(error) if error.is_instance_of::<PyKeyError>(py) => Ok(0),
        Err(error) => Err(error),
    };
    let mut chunks = Vec::new();
    for buffers in buffers.try_iter()? {
        let buffers = buffers?;
        chunks.push((size(&buffers, &input)?, size(&buffers, &output)?));
    }
    if (chunks.len() as u64) < num_ranks {
        let found = chunks.len();
        return Err(PyValueError::new_err(format!(
            "cannot make program `{program}`: its collective has buffers of {found} ranks, allowed {num_ranks} or \
             more; give num_ranks to both"
        )));
    }
    Ok(chunks)
}

/// Chunks of every rank's input and output in a collective over `num_ranks` ranks with chunk factor `chunk_factor`:
/// what goes to or comes from every rank has the factor's chunks for each of them.
///
/// Raises ValueError for a collective that has no such rule.
#[pyfunction]
pub fn collective_chunks(name: &str, num_ranks: u64, chunk_factor: u64) -> PyResult<(u64, u64)> {
    let own = chunk_factor;
    let all = num_ranks.checked_mul(chunk_factor).ok_or_else(|| {
        PyOverflowError::new_err("cannot count chunks: num_ranks times chunk_factor is too large")
    })?;
    match name {
        "allreduce" | "alltoall" | "alltoallv" => Ok((all, all)),
        "allgather" | "allgatherv" | "gather" => Ok((own, all)),
        "reducescatter" | "scatter" => Ok((all, own)),
        "broadcast" | "reduce" | "sendrecv" => Ok((own, own)),
        other => Err(PyValueError::new_err(format!(
            "cannot count the chunks of collective `{other}`: it has no rule; give its buffers in init_buffers()"
        ))),
    }
}

/// What a collective of the author's own promises, by its `post_condition`; none if it has none.
pub fn own_promise(
    collective: &Bound<'_, PyAny>,
    settings: &Settings,
    plan: &Plan,
) -> PyResult<Option<PostCondition>> {
    let py = collective.py();
    let Some(rule) = collective.getattr_opt(intern!(py, "post_condition"))? else {
        return Ok(None);
    };
    let chunks = plan.gpus.iter().map(|gpu| gpu.output_chunks).max().unwrap_or(0);
    // The author counts chunks as they are before instances divide them.
    let chunks = chunks / settings.instances.max(1) as u64;
    let mut wanted = Vec::new();
    for rank in 0..plan.gpus.len() as u64 {
        for chunk in 0..chunks {
            match rule.call1((rank, chunk)) {
                Ok(origins) => wanted.push(match origins.extract::<Option<Vec<(u64, u64)>>>()? {
                    Some(origins) => Wanted::Chunks(origins),
                    None => Wanted::Anything,
                }),
                Err(error) if error.is_instance_of::<PyNotImplementedError>(py) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
    let of = |rank: u64, chunk: u64| wanted[(rank * chunks + chunk) as usize].clone();
    Ok(Some(PostCondition::custom(plan.gpus.len() as u64, chunks, of)))
}
