//! What can be noted of a plan before any launch is walked.

use super::super::report::{About, Note};
use crate::lower::{Site, site_of};
use crate::program::{Area, Instruction, Layout, RankLayout};

/// The first of some operations, and how many more there are.
fn first_of(mut sites: impl Iterator<Item = Site>) -> Option<(Site, String)> {
    let first = sites.next()?;
    let more = match sites.count() {
        0 => String::new(),
        count => format!(" (and {count} more)"),
    };
    Some((first, more))
}

/// That lowering had to order relaxed operations.
pub(super) fn strengthened(layout: &Layout) -> Option<Note> {
    let all = (0u32..)
        .zip(&layout.ranks)
        .flat_map(|(rank, own)| own.strengthened.iter().map(move |&at| site_of(own, rank, at)));
    let (first, more) = first_of(all)?;
    let text =
        format!("{first} is relaxed, but data relies on it: it runs as if it were not{more}");
    Some(Note { about: About::Order, text })
}

/// That a plan with buffers apart writes what its callers send.
pub(super) fn overwritten(layout: &Layout) -> Option<Note> {
    let writes = |own: &RankLayout, instruction: &Instruction| {
        let written = match *instruction {
            Instruction::Move { destinations, .. } => destinations.range(),
            Instruction::Post { destination, .. } => destination as usize..destination as usize + 1,
            _ => 0..0,
        };
        own.accesses[written].iter().any(|side| side.area == Area::Input)
    };
    let all = (0u32..).zip(&layout.ranks).flat_map(|(rank, own)| {
        let at = (0u32..).zip(&own.instructions).filter(|(_, one)| writes(own, one));
        at.map(move |(at, _)| site_of(own, rank, at))
    });
    let (first, more) = first_of(all).filter(|_| !layout.in_place)?;
    let text = format!("{first} writes an input{more}: callers have to fill it before each launch");
    Some(Note { about: About::Reuse, text })
}
