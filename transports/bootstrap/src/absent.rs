//! Which ranks are not there any more.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::error::Lost;

/// How a peer went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Left,
    Lost(Lost),
}

/// Who is not there any more.
#[derive(Default)]
pub(crate) struct Absent {
    /// From all groups, by mesh rank.
    pub gone: BTreeMap<u32, Gone>,
    /// By wire id of a group: mesh ranks that have let go of it.
    departed: HashMap<u64, BTreeSet<u32>>,
}

impl Absent {
    /// How a member went from a group, if it did: nothing more of it comes there.
    pub fn from(&self, group: u64, member: u32) -> Option<&Gone> {
        static LEFT: Gone = Gone::Left;
        let departed = || self.departed.get(&group)?.contains(&member).then_some(&LEFT);
        self.gone.get(&member).or_else(departed)
    }

    /// A member has let go of a group.
    pub fn depart(&mut self, group: u64, member: u32) {
        self.departed.entry(group).or_default().insert(member);
    }

    /// Those that have let go of a group.
    pub fn departed(&self, group: u64) -> impl Iterator<Item = u32> + '_ {
        self.departed.get(&group).into_iter().flatten().copied()
    }

    /// This rank has no part in a group any more.
    pub fn forget(&mut self, group: u64) {
        self.departed.remove(&group);
    }

    /// Whether nobody went from a group.
    pub fn is_nobody(&self, group: u64) -> bool {
        self.gone.is_empty() && !self.departed.contains_key(&group)
    }
}
