//! The language's enums, which are Python's, as the compiler's types and back.

use antiphon_plan::ReduceOp;
use antiphon_plan::model::{Buffer, ChannelType};
use antiphon_plan::passes::DataSync;
use antiphon_plan::passes::replication::Policy;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyFloat;

/// Members of the language's enums, kept so that telling them apart is a comparison of addresses.
struct Members {
    syncs: [(Py<PyAny>, DataSync); 4],
    buffers: [(Py<PyAny>, Buffer); 3],
    reduce_ops: [(Py<PyAny>, ReduceOp); 4],
    policies: [(Py<PyAny>, Policy); 2],
}

static MEMBERS: PyOnceLock<Members> = PyOnceLock::new();

/// Every member with its name; the names are those of the reference, not of the compiler.
const SYNCS: [(&str, DataSync); 4] = [
    ("both", DataSync::BOTH),
    ("before", DataSync::BEFORE),
    ("after", DataSync::AFTER),
    ("none", DataSync::NONE),
];
const BUFFERS: [(&str, Buffer); 3] =
    [("input", Buffer::Input), ("output", Buffer::Output), ("scratch", Buffer::Scratch)];
const REDUCE_OPS: [(&str, ReduceOp); 4] = [
    ("sum", ReduceOp::Sum),
    ("min", ReduceOp::Min),
    ("max", ReduceOp::Max),
    ("prod", ReduceOp::Prod),
];
const POLICIES: [(&str, Policy); 2] =
    [("interleaved", Policy::Interleaved), ("none", Policy::None)];

impl Members {
    fn get(py: Python<'_>) -> PyResult<&'static Self> {
        MEMBERS.get_or_try_init(py, || {
            let types = py.import("antiphon.language.internal.types")?;
            Ok(Members {
                syncs: members(&types.getattr("SyncType")?, SYNCS)?,
                buffers: members(&types.getattr("BufferType")?, BUFFERS)?,
                reduce_ops: members(&types.getattr("ReduceOperationType")?, REDUCE_OPS)?,
                policies: members(&types.getattr("ReplicationPolicy")?, POLICIES)?,
            })
        })
    }
}

fn members<T: Copy, const N: usize>(
    class: &Bound<'_, PyAny>,
    names: [(&str, T); N],
) -> PyResult<[(Py<PyAny>, T); N]> {
    let known = names.iter().map(|&(name, value)| Ok((class.getattr(name)?.unbind(), value)));
    let known = known.collect::<PyResult<Vec<_>>>()?;
    known.try_into().map_err(|_| PyTypeError::new_err("an enum of the language lacks a member"))
}

/// The value of a member of an enum, or of its name.
fn value<T: Copy>(
    known: &[(Py<PyAny>, T)],
    class: &str,
    names: &[(&str, T)],
    given: Borrowed<'_, '_, PyAny>,
) -> PyResult<T> {
    if let Some((_, value)) = known.iter().find(|(member, _)| member.is(given)) {
        return Ok(*value);
    }
    let text = given.extract::<&str>().ok();
    if let Some((_, value)) = names.iter().find(|(name, _)| Some(*name) == text) {
        return Ok(*value);
    }
    let allowed: Vec<String> = names.iter().map(|(name, _)| format!("{class}.{name}")).collect();
    let given = given.repr()?;
    Err(PyTypeError::new_err(format!("cannot use {given}: allowed {}", allowed.join(", "))))
}

fn member<T: Copy + PartialEq>(py: Python<'_>, known: &[(Py<PyAny>, T)], value: T) -> Py<PyAny> {
    let found = known.iter().find(|(_, known)| *known == value);
    found.map_or_else(|| py.None(), |(member, _)| member.clone_ref(py))
}

/// Declares an argument that is a member of one of the enums.
macro_rules! argument {
    ($(#[$meta:meta])* $name:ident($inner:ty), $class:literal, $members:ident, $names:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub $inner);

        impl FromPyObject<'_, '_> for $name {
            type Error = PyErr;

            fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
                let members = Members::get(given.py())?;
                value(&members.$members, $class, &$names, given).map($name)
            }
        }
    };
}

argument! {
    /// A `SyncType`.
    SyncArg(DataSync), "SyncType", syncs, SYNCS
}
argument! {
    /// A `BufferType`.
    BufferArg(Buffer), "BufferType", buffers, BUFFERS
}
argument! {
    /// A `ReduceOperationType`.
    ReduceArg(ReduceOp), "ReduceOperationType", reduce_ops, REDUCE_OPS
}
argument! {
    /// A `ReplicationPolicy`.
    PolicyArg(Policy), "ReplicationPolicy", policies, POLICIES
}

impl BufferArg {
    /// The enum's member.
    pub fn member(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(member(py, &Members::get(py)?.buffers, self.0))
    }
}

impl PolicyArg {
    /// The enum's member.
    pub fn member(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(member(py, &Members::get(py)?.policies, self.0))
    }
}

/// An argument that may be left out, but not be None.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maybe<T>(pub Option<T>);

impl<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>> FromPyObject<'a, 'py> for Maybe<T> {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        given.extract().map(|value| Maybe(Some(value)))
    }
}

/// A whole number: an int, or a float that is one exactly, as programs write sizes (`1e9`, `size / 2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole<T>(pub T);

impl<T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>> FromPyObject<'_, '_> for Whole<T> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        // Above, floats are further apart than whole numbers, so that it may have been another one.
        const EXACT: f64 = 9_007_199_254_740_991.0;
        if let Ok(float) = given.cast::<PyFloat>() {
            let value = float.value();
            if value.fract() != 0.0 || value.abs() > EXACT {
                return Err(PyTypeError::new_err(format!(
                    "cannot use {value:?} as a whole number: allowed integers, and floats without a fraction up to 2**53 - 1"
                )));
            }
            return float.call_method0(intern!(given.py(), "__int__"))?.extract().map(Whole);
        }
        given.extract().map(Whole)
    }
}

impl SyncArg {
    /// What every call means that does not say.
    pub const BOTH: SyncArg = SyncArg(DataSync::BOTH);
}

impl ReduceArg {
    /// What every call means that does not say.
    pub const SUM: ReduceArg = ReduceArg(ReduceOp::Sum);
}

/// A `ChannelType` of channels between two ranks; `Channel.memory` and `Channel.port` are members of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindArg(pub ChannelType);

impl FromPyObject<'_, '_> for KindArg {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        for (name, kind) in [("memory", ChannelType::Memory), ("port", ChannelType::Port)] {
            if channel_type(given.py(), name)?.is(given)
                || given.extract().is_ok_and(|text: &str| text == name)
            {
                return Ok(KindArg(kind));
            }
        }
        let given = given.repr()?;
        Err(PyTypeError::new_err(format!(
            "cannot make a channel of type {given}: allowed ChannelType.memory, ChannelType.port; a SwitchChannel \
             reaches groups of ranks"
        )))
    }
}

/// The member of `ChannelType` with this name.
pub fn channel_type<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let types = py.import(intern!(py, "antiphon.language.internal.types"))?;
    types.getattr(intern!(py, "ChannelType"))?.getattr(name)
}
