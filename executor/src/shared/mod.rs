//! Structures in memory that several processes map: a rank's page (with the verdicts on its node's plans) and its launch
//! contexts' arenas.
//!
//! Everything in them is an atomic, so a shared reference is sound whoever else writes. Layouts are `repr(C)`,
//! carry a magic and a version, and are checked when a peer's page is first seen: both sides may come from
//! different builds.

pub mod arena;
pub mod control;
pub mod verdicts;

use control::ControlPage;
use std::sync::atomic::AtomicU64;
use verdicts::VerdictTable;

/// Version of every layout in this module, and of what ranks tell each other first; a change to any of them is a new
/// version.
pub const LAYOUT_VERSION: u64 = 12;

/// An atomic alone on its cache line, so that writers of neighbours do not disturb its reader.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Line(pub AtomicU64);

/// What a rank shows to the other ranks of its node.
#[repr(C)]
#[derive(Debug)]
pub struct RankPage {
    /// The launches, and how far the rank has come.
    pub control: ControlPage,
    /// Verdicts on plans. Used of one rank of a node, and written by all of them.
    pub verdicts: VerdictTable,
}

impl RankPage {
    /// Bytes of a page.
    pub const BYTES: usize = size_of::<RankPage>();
}
