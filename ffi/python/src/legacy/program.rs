//! The program, and which one is the current one.

use super::argument::Name;
use super::chunk::Ref;
use super::raise;
use crate::convert::Whole;
use crate::current::{Finish, compile_note, made, mode};
use crate::lines::Lines;
use crate::output::{Indent, text};
use antiphon_plan::dsl::Compiled;
use antiphon_plan::legacy::{Buffer, Collective, Kind, Misuse, Program, Replication, Settings};
use antiphon_plan::model::Protocol;
use pyo3::exceptions::{PyAssertionError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A program of this stage, shared by everything that records into it.
pub struct Oldest {
    program: Mutex<Program>,
    lines: Mutex<Lines>,
    /// The names of the scratch buffers, by number.
    scratch: Mutex<Vec<String>>,
}

static CURRENT: Mutex<Option<Arc<Oldest>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left behind is still a program: each call changes it after its checks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Oldest {
    /// The program, for reading.
    pub fn lock(&self) -> MutexGuard<'_, Program> {
        lock(&self.program)
    }

    /// The scratch buffer with this name.
    pub fn scratch(&self, name: &str) -> Buffer {
        let buffer = self.lock().scratch(name);
        let mut names = lock(&self.scratch);
        if let Buffer::Scratch(id) = buffer
            && id as usize == names.len()
        {
            names.push(name.to_owned());
        }
        buffer
    }

    /// The name of a scratch buffer.
    pub fn scratch_name(&self, id: u32) -> String {
        lock(&self.scratch).get(id as usize).cloned().unwrap_or_default()
    }

    /// Makes a call of the program, which must be the current one.
    ///
    /// # Errors
    /// `RuntimeError` if it is not; else those of the call.
    pub fn record<R>(
        self: &Arc<Self>,
        py: Python<'_>,
        call: impl FnOnce(&mut Program) -> Result<R, Misuse>,
    ) -> PyResult<R> {
        if !lock(&CURRENT).as_ref().is_some_and(|current| Arc::ptr_eq(current, self)) {
            return Err(PyRuntimeError::new_err(
                "cannot record the call: its chunks belong to another program than the current one; name them by \
                 chunk() inside the `with` of the program that uses them",
            ));
        }
        // Taken out, because no lock may be held while Python runs.
        let mut lines = std::mem::take(&mut *lock(&self.lines));
        let line = lines.caller(py);
        *lock(&self.lines) = lines;
        let program = &mut *self.lock();
        program.at(line?);
        call(program).map_err(raise)
    }
}

impl Finish for Oldest {
    fn finish(&self, py: Python<'_>) -> PyResult<Compiled> {
        py.detach(|| self.lock().finish()).map_err(raise)
    }
}

/// What MSCCLPPProgram is made of: the program, recorded and checked.
#[pyclass(module = "antiphon.language.legacy", frozen)]
pub struct ChunkProgram {
    shared: Arc<Oldest>,
}

/// The current program of the oldest stage.
///
/// Raises RuntimeError outside of every such program.
#[pyfunction]
pub fn current_chunk_program() -> PyResult<ChunkProgram> {
    let current = lock(&CURRENT);
    let shared = current.as_ref().map(Arc::clone);
    shared.map(|shared| ChunkProgram { shared }).ok_or_else(|| {
        PyRuntimeError::new_err(
            "No Program in context: chunk(), rank(), Json() and Check() belong inside the `with` of an MSCCLPPProgram",
        )
    })
}

#[pymethods]
impl ChunkProgram {
    #[new]
    #[pyo3(signature = (
        name, collective, num_ranks, chunk_factor, inplace, *, program_ranks, root=0, ranks_per_node=None, instances=1,
        protocol="Simple", instr_fusion=true, replication_policy="duplicated", num_threads_per_block=Whole(1024),
        use_double_scratch_buffer=false, min_message_size=Whole(0), max_message_size=Whole(u64::MAX), links=None, compatible=false
    ))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)]
    fn new(
        name: &str,
        collective: &str,
        num_ranks: u64,
        chunk_factor: u64,
        inplace: bool,
        program_ranks: u64,
        root: u64,
        ranks_per_node: Option<u64>,
        instances: i64,
        protocol: &str,
        instr_fusion: bool,
        replication_policy: &str,
        num_threads_per_block: Whole<u64>,
        use_double_scratch_buffer: bool,
        min_message_size: Whole<u64>,
        max_message_size: Whole<u64>,
        links: Option<Vec<(u64, u64)>>,
        compatible: bool,
    ) -> PyResult<Self> {
        let kind = match collective {
            "allreduce" => Kind::AllReduce,
            "allgather" => Kind::AllGather,
            "reducescatter" => Kind::ReduceScatter,
            "alltoall" => Kind::AllToAll,
            "sendrecv" => Kind::SendRecv,
            "broadcast" => Kind::Broadcast { root },
            other => {
                return Err(PyValueError::new_err(format!(
                    "cannot make an MSCCLPPProgram of collective `{other}`: allowed allreduce, allgather, reducescatter, \
                     alltoall, sendrecv, broadcast; write others as a CollectiveProgram"
                )));
            }
        };
        let protocol = match protocol {
            "Simple" => Protocol::Simple,
            "LL" => Protocol::LL,
            other => {
                return Err(PyAssertionError::new_err(format!(
                    "Given protocol: {other}. Must be either Simple, LL"
                )));
            }
        };
        let replication = match replication_policy {
            "duplicated" => Replication::Duplicated,
            "interleaved" => Replication::Interleaved,
            "packed" => Replication::Packed,
            other => {
                return Err(PyValueError::new_err(format!(
                    "cannot replicate an MSCCLPPProgram by ReplicationPolicy.{other}: allowed duplicated, interleaved, \
                     packed; only a CollectiveProgram has others"
                )));
            }
        };
        let collective = Collective {
            ranks_per_node,
            ..Collective::new(kind, num_ranks, chunk_factor, inplace)
        };
        let program = Program::new(Settings {
            ranks: program_ranks,
            instances,
            protocol,
            fuse: instr_fusion,
            replication,
            threads_per_block: num_threads_per_block.0,
            double_scratch: use_double_scratch_buffer,
            sizes: min_message_size.0..=max_message_size.0,
            links: links.map(|links| links.into_iter().collect()),
            mode: mode(compatible),
            ..Settings::new(name, collective)
        });
        let program = Mutex::new(program.map_err(raise)?);
        let shared = Oldest { program, lines: Mutex::default(), scratch: Mutex::default() };
        let shared = Arc::new(shared);
        made(&shared);
        Ok(ChunkProgram { shared })
    }

    /// Makes it the current program. Raises RuntimeError inside of another one.
    fn enter(&self) -> PyResult<()> {
        let mut current = lock(&CURRENT);
        if current.is_some() {
            return Err(PyRuntimeError::new_err("There is already a MSCCLPP Program in context"));
        }
        *current = Some(Arc::clone(&self.shared));
        Ok(())
    }

    /// Makes no program the current one.
    #[pyo3(signature = (*_exception))]
    fn leave(&self, _exception: &Bound<'_, PyTuple>) {
        let before = lock(&CURRENT).take();
        drop(before);
    }

    /// A reference to chunks of a rank's buffer; None if the first one holds nothing yet.
    fn chunk(
        &self,
        py: Python<'_>,
        rank: i64,
        buffer: Name,
        index: i64,
        size: u64,
    ) -> PyResult<Option<Ref>> {
        let buffer = buffer.of(&self.shared);
        let found = self.shared.record(py, |program| program.chunk(rank, buffer, index, size))?;
        Ok(found.map(|chunk| Ref { program: Arc::clone(&self.shared), chunk }))
    }

    /// Makes blocks of a rank meet.
    fn barrier(&self, py: Python<'_>, rank: i64, tb_list: Vec<i64>) -> PyResult<()> {
        self.shared.record(py, |program| program.barrier(rank, &tb_list))
    }

    /// What is wrong with what the program computes, a line each; nothing if it is right.
    fn check(&self, py: Python<'_>) -> Vec<String> {
        let found = py.detach(|| self.shared.lock().check());
        found.iter().map(ToString::to_string).collect()
    }

    /// The plan as text of JSON: what `json.dumps` makes of it with this `indent` and these options.
    #[pyo3(signature = (indent=Indent::Two, **json_kwargs))]
    fn to_json<'py>(
        &self,
        py: Python<'py>,
        indent: Indent,
        json_kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyString>> {
        text(py, &*self.shared, &indent, json_kwargs)
    }

    /// What `Json()` prints: the plan or, where the command `compile` writes it, a line that says so.
    fn shown<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        match compile_note() {
            Some(note) => Ok(PyString::new(py, &note)),
            None => text(py, &*self.shared, &Indent::Two, None),
        }
    }
}
