//! Lowering: from a checked plan to a [`Layout`](crate::program::Layout), and from a layout and the sizes of a
//! call to a [`Program`](crate::program::Program).

/// What the second step needs to know of the plan's chunk references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Geometry {}
