//! `CollectiveProgram`.

use crate::collective::{chunks, own_promise};
use crate::convert::{PolicyArg, Whole};
use crate::current::{Finish, Shared, enter, leave, mode};
use crate::errors::raise;
use crate::late::Late;
use crate::output::{Indent, text, write};
use antiphon_plan::Style;
use antiphon_plan::dsl::{Program, Settings};
use antiphon_plan::model::{Collective, Protocol};
use antiphon_plan::passes::replication::Policy;
use antiphon_plan::postcondition::PostCondition;
use pyo3::exceptions::{PyAssertionError, PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use std::path::PathBuf;
use std::sync::Arc;

/// A program for all ranks of a collective. `with` makes it the current one, which ranks, buffers and channels made
/// inside belong to.
///
/// Arguments:
///   name: the plan's name; None for that of the collective.
///   collective: what it computes, and how many chunks the ranks' buffers have.
///   num_ranks: number of ranks.
///   instances: how often every thread block is replicated, each time for its share of the chunks.
///   protocol: "Simple" or "LL"; anything else raises AssertionError.
///   instr_fusion: whether neighbouring operations become one.
///   auto_sync: whether a block's threads meet between data operations that depend on each other.
///   replication_policy: how chunks are shared among instances; `none` only for one instance.
///   reuse_resources: one launch context for all buffer addresses.
///   num_threads_per_block: threads of a block on a GPU.
///   use_double_scratch_buffer: whether successive launches alternate between two halves of scratch.
///   buffer_alignment: unit of chunk arithmetic, in bytes.
///   min_message_size, max_message_size: message sizes that the plan accepts, in bytes.
///   compatible: whether a block's threads meet wherever the format's own DSL makes them, rather than where they must.
///
/// Raises ValueError for no ranks, no instances, and a collective with buffers for fewer ranks. The arguments are attributes, which
/// may be set until the plan is made, but for `collective`, `num_ranks` and `instr_fusion`.
#[pyclass(module = "antiphon.language.program", frozen, subclass)]
pub struct CollectiveProgram(Late<Made>);

struct Made {
    /// What is recorded.
    shared: Arc<Shared>,
    /// What the program was given, for its author to read.
    collective: Py<PyAny>,
}

impl Made {
    fn said<R>(&self, read: impl FnOnce(&Settings) -> R) -> R {
        read(self.shared.lock().settings())
    }

    fn amend(&self, change: impl FnOnce(&mut Settings)) -> PyResult<()> {
        self.shared.lock().amend(change).map_err(raise)
    }
}

#[pymethods]
impl CollectiveProgram {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        CollectiveProgram(Late::empty())
    }

    #[pyo3(signature = (
        name, collective, num_ranks, instances=1, protocol="Simple", instr_fusion=true, auto_sync=true,
        replication_policy=PolicyArg(Policy::Interleaved), reuse_resources=false, num_threads_per_block=Whole(1024),
        use_double_scratch_buffer=false, buffer_alignment=Whole(16), min_message_size=Whole(0),
        max_message_size=Whole(u64::MAX), *,
        compatible=false
    ))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)]
    fn __init__(
        &self,
        name: Option<String>,
        collective: Bound<'_, PyAny>,
        num_ranks: u64,
        instances: i64,
        protocol: &str,
        instr_fusion: bool,
        auto_sync: bool,
        replication_policy: PolicyArg,
        reuse_resources: bool,
        num_threads_per_block: Whole<u64>,
        use_double_scratch_buffer: bool,
        buffer_alignment: Whole<u64>,
        min_message_size: Whole<u64>,
        max_message_size: Whole<u64>,
        compatible: bool,
    ) -> PyResult<()> {
        self.0.make(|| {
            let protocol = protocol_named(protocol)?;
            let py = collective.py();
            let kind: String = collective.getattr(intern!(py, "name"))?.extract()?;
            let rule = match collective.getattr_opt(intern!(py, "_rule"))? {
                Some(rule) => rule.call0()?.extract()?,
                None => kind.clone(),
            };
            let label = (kind != rule).then(|| Collective::from_name(&kind));
            // Who reads a plan asks for a name: launches go by it.
            let name = name.unwrap_or_else(|| kind.clone());
            let settings = Settings {
                chunks: chunks(&collective, &name, num_ranks)?,
                in_place: collective.getattr(intern!(py, "inplace"))?.is_truthy()?,
                instances,
                policy: replication_policy.0,
                protocol,
                fuse: instr_fusion,
                auto_sync,
                mode: mode(compatible),
                reuse_resources,
                threads_per_block: num_threads_per_block.0,
                double_scratch: use_double_scratch_buffer,
                alignment: buffer_alignment.0,
                sizes: min_message_size.0..=max_message_size.0,
                runtime_sizes: collective
                    .getattr_opt(intern!(py, "runtime_sizes"))?
                    .is_some_and(|yes| yes.is_truthy().unwrap_or(false)),
                ..Settings::new(name, Collective::from_name(&rule), num_ranks)
            };
            let program = Program::new(settings).map_err(raise)?;
            Ok(Made { shared: Shared::new(program, label), collective: collective.unbind() })
        })
    }

    /// The program that an AlgoSpec describes.
    #[classmethod]
    fn from_spec<'py>(
        class: &Bound<'py, PyType>,
        spec: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = PyDict::new(class.py());
        for name in [
            "name",
            "collective",
            "instances",
            "protocol",
            "instr_fusion",
            "auto_sync",
            "replication_policy",
            "reuse_resources",
            "num_threads_per_block",
            "use_double_scratch_buffer",
            "buffer_alignment",
            "min_message_size",
            "max_message_size",
        ] {
            arguments.set_item(name, spec.getattr(name)?)?;
        }
        arguments.set_item("num_ranks", spec.getattr("world_size")?)?;
        class.call((), Some(&arguments))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        enter(&slf.get().0.get()?.shared, slf.clone().into_any().unbind());
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        leave();
    }

    /// The plan as text of JSON: what `json.dumps` makes of it with this `indent` and these options.
    ///
    /// The passes work on a copy, so that calling it again gives the same text. Raises RuntimeError for signals without
    /// waits or the reverse, and for whatever else makes no plan.
    #[pyo3(signature = (indent=Indent::Two, **json_kwargs))]
    fn to_json<'py>(
        &self,
        py: Python<'py>,
        indent: Indent,
        json_kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyString>> {
        text(py, &*self.0.get()?.shared, &indent, json_kwargs)
    }

    /// Interprets the plan on symbols, in a few orders of the blocks' turns, and compares every output chunk with what
    /// the collective promises. It finds mistakes of the author; it is no proof.
    ///
    /// Returns whether there was a promise to check: False for `test`, `sendrecv` and collectives of one's own without
    /// `post_condition`. Raises RuntimeError for the first chunk that holds something else, for a deadlock, and as
    /// `to_json` does.
    fn check(&self, py: Python<'_>) -> PyResult<bool> {
        let compiled = self.0.get()?.shared.finish(py)?;
        let made = self.0.get()?;
        let (collective, settings) = (made.collective.bind(py), made.said(Settings::clone));
        let known = match collective.getattr_opt(intern!(py, "chunk_factor"))? {
            Some(factor) => {
                PostCondition::of(&settings.collective, settings.ranks, factor.extract()?)
            }
            None => None,
        };
        let promise = match known {
            Some(promise) => promise,
            None => match own_promise(collective, &settings, &compiled.plan)? {
                Some(promise) => promise,
                None => return Ok(false),
            },
        };
        let kept = py.detach(|| promise.check(&compiled.plan));
        kept.map_err(|violation| PyRuntimeError::new_err(violation.to_string()))?;
        Ok(true)
    }

    /// Streams the plan to the file `path`: indented by two spaces, or with `indent=None` in one line.
    ///
    /// Raises as `to_json` does, and OSError if the file cannot be written.
    #[pyo3(signature = (path, indent=Some(2)))]
    fn write(&self, py: Python<'_>, path: PathBuf, indent: Option<u64>) -> PyResult<()> {
        let style = match indent {
            Some(2) => Style::Pretty,
            None => Style::Compact,
            Some(other) => {
                return Err(PyValueError::new_err(format!(
                    "cannot write a plan with indent={other}: allowed 2 and None; to_json() takes others"
                )));
            }
        };
        write(py, &*self.0.get()?.shared, &path, style).map(drop)
    }

    /// What the passes did: operations and block synchronisations before and after, and what was not fused and why.
    ///
    /// Raises as `to_json` does.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.get()?.shared.finish(py)?.report.to_string())
    }

    /// Checks that every signal has its wait, channel by channel. Raises RuntimeError where one has not.
    fn validate_signal_wait_pairing(&self) -> PyResult<()> {
        self.0.get()?.shared.settle()?;
        self.0.get()?.shared.lock().check_pairing().map_err(raise)
    }

    /// Checks that the program makes a plan, and raises as `to_json` does where it does not. The passes themselves run
    /// whenever the plan is asked for.
    fn post_process_operations(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get()?.shared.finish(py).map(drop)
    }

    /// The plan's name.
    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.0.get()?.said(|settings| settings.name.clone()))
    }

    #[setter]
    fn set_name(&self, name: String) -> PyResult<()> {
        self.0.get()?.amend(|settings| settings.name = name)
    }

    /// What it computes.
    #[getter]
    fn collective(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.0.get()?.collective.clone_ref(py))
    }

    /// Number of ranks.
    #[getter]
    fn num_ranks(&self) -> PyResult<u64> {
        Ok(self.0.get()?.said(|settings| settings.ranks))
    }

    /// How often every thread block is replicated.
    #[getter]
    fn instances(&self) -> PyResult<i64> {
        Ok(self.0.get()?.said(|settings| settings.instances))
    }

    #[setter]
    fn set_instances(&self, instances: i64) -> PyResult<()> {
        self.0.get()?.amend(|settings| settings.instances = instances)
    }

    /// "Simple" or "LL".
    #[getter]
    fn protocol(&self) -> PyResult<&'static str> {
        Ok(self.0.get()?.said(|settings| settings.protocol.name()))
    }

    #[setter]
    fn set_protocol(&self, protocol: &str) -> PyResult<()> {
        let protocol = protocol_named(protocol)?;
        self.0.get()?.amend(|settings| settings.protocol = protocol)
    }

    /// Whether neighbouring operations become one.
    #[getter]
    fn instr_fusion(&self) -> PyResult<bool> {
        Ok(self.0.get()?.said(|settings| settings.fuse))
    }

    /// Whether a block's threads meet between data operations that depend on each other.
    #[getter]
    fn auto_sync(&self) -> PyResult<bool> {
        Ok(self.0.get()?.said(|settings| settings.auto_sync))
    }

    #[setter]
    fn set_auto_sync(&self, auto_sync: bool) -> PyResult<()> {
        self.0.get()?.amend(|settings| settings.auto_sync = auto_sync)
    }

    /// How chunks are shared among instances, a ReplicationPolicy.
    #[getter]
    fn replication_policy(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        PolicyArg(self.0.get()?.said(|settings| settings.policy)).member(py)
    }

    #[setter]
    fn set_replication_policy(&self, policy: PolicyArg) -> PyResult<()> {
        self.0.get()?.amend(|settings| settings.policy = policy.0)
    }

    /// One launch context for all buffer addresses.
    #[getter]
    fn reuse_resources(&self) -> PyResult<bool> {
        Ok(self.0.get()?.said(|settings| settings.reuse_resources))
    }

    #[setter]
    fn set_reuse_resources(&self, reuse_resources: bool) -> PyResult<()> {
        self.0.get()?.amend(|settings| settings.reuse_resources = reuse_resources)
    }

    /// Threads of a block on a GPU.
    #[getter]
    fn num_threads_per_block(&self) -> PyResult<u64> {
        Ok(self.0.get()?.said(|settings| settings.threads_per_block))
    }

    #[setter]
    fn set_num_threads_per_block(&self, num_threads_per_block: Whole<u64>) -> PyResult<()> {
        self.0.get()?.amend(|settings| settings.threads_per_block = num_threads_per_block.0)
    }

    /// Whether successive launches alternate between two halves of scratch.
    #[getter]
    fn use_double_scratch_buffer(&self) -> PyResult<bool> {
        Ok(self.0.get()?.said(|settings| settings.double_scratch))
    }

    #[setter]
    fn set_use_double_scratch_buffer(&self, use_double_scratch_buffer: bool) -> PyResult<()> {
        self.0.get()?.amend(|settings| settings.double_scratch = use_double_scratch_buffer)
    }

    /// Unit of chunk arithmetic, in bytes.
    #[getter]
    fn buffer_alignment(&self) -> PyResult<u64> {
        Ok(self.0.get()?.said(|settings| settings.alignment))
    }

    #[setter]
    fn set_buffer_alignment(&self, buffer_alignment: Whole<u64>) -> PyResult<()> {
        self.0.get()?.amend(|settings| settings.alignment = buffer_alignment.0)
    }

    /// Smallest message that the plan accepts, in bytes.
    #[getter]
    fn min_message_size(&self) -> PyResult<u64> {
        Ok(self.0.get()?.said(|settings| *settings.sizes.start()))
    }

    #[setter]
    fn set_min_message_size(&self, size: Whole<u64>) -> PyResult<()> {
        self.0.get()?.amend(|settings| settings.sizes = size.0..=*settings.sizes.end())
    }

    /// Largest message that the plan accepts, in bytes.
    #[getter]
    fn max_message_size(&self) -> PyResult<u64> {
        Ok(self.0.get()?.said(|settings| *settings.sizes.end()))
    }

    #[setter]
    fn set_max_message_size(&self, size: Whole<u64>) -> PyResult<()> {
        self.0.get()?.amend(|settings| settings.sizes = *settings.sizes.start()..=size.0)
    }

    fn __repr__(&self) -> PyResult<String> {
        let Settings { name, collective, ranks, .. } = self.0.get()?.said(Settings::clone);
        Ok(format!("CollectiveProgram({name:?}, {collective}, num_ranks={ranks})"))
    }
}

fn protocol_named(name: &str) -> PyResult<Protocol> {
    match name {
        "Simple" => Ok(Protocol::Simple),
        "LL" => Ok(Protocol::LL),
        other => Err(PyAssertionError::new_err(format!(
            "Given protocol: {other}. Must be either Simple, LL"
        ))),
    }
}
