//! Which regions the members of a group use together, as far as they have told.

use super::message::Key;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Regions of one member that are remembered.
const KEPT: usize = 8;
/// How long members have to tell theirs, once one has told of a new one.
const SETTLE: Duration = Duration::from_millis(10);

/// What members have told the lowest of them.
#[derive(Debug, Default)]
pub struct Tells(HashMap<Key, Told>);

#[derive(Debug, Default)]
struct Told {
    /// By rank: launches, and the region from then on; in order.
    members: HashMap<u32, VecDeque<(u64, u64)>>,
    /// When somebody told something that was not looked at.
    since: Option<Instant>,
}

impl Tells {
    /// A member tells of a region.
    pub fn note(&mut self, key: Key, rank: u32, launch: u64, region: u64) {
        let told = self.0.entry(key).or_default();
        let regions = told.members.entry(rank).or_default();
        regions.push_back((launch, region));
        if regions.len() > KEPT {
            regions.pop_front();
        }
        told.since = Some(Instant::now());
    }

    /// Which regions were used together, in the members' order: a set for each launch from which a member told something
    /// new, if all have told what they used then. Nothing until a moment after the last one told. Sets that were returned before
    /// may come again.
    pub fn settled(&mut self, key: Key, members: &[u32], now: Instant) -> Vec<Vec<u64>> {
        let Some(told) = self.0.get_mut(&key) else { return Vec::new() };
        let due = told.since.is_some_and(|since| now.saturating_duration_since(since) >= SETTLE);
        if !due || members.iter().any(|member| !told.members.contains_key(member)) {
            return Vec::new();
        }
        told.since = None;
        let used = |member: &u32, launch: u64| {
            let regions = told.members[member].iter().rev();
            regions.into_iter().find(|(since, _)| *since <= launch).map(|&(_, region)| region)
        };
        let mut launches: Vec<u64> = members
            .iter()
            .flat_map(|member| told.members[member].iter().map(|&(launch, _)| launch))
            .collect();
        launches.sort_unstable();
        launches.dedup();
        let mut sets = Vec::new();
        for launch in launches {
            let set: Option<Vec<u64>> = members.iter().map(|member| used(member, launch)).collect();
            sets.extend(set.filter(|set| !sets.contains(set)));
        }
        sets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_of_one_launch_belong_together() {
        let key = Key { context: 1, channel: 0 };
        let later = || Instant::now() + 2 * SETTLE;
        let mut tells = Tells::default();
        tells.note(key, 0, 1, 10);
        assert!(tells.settled(key, &[0, 1], later()).is_empty(), "rank 1 has not told");
        tells.note(key, 1, 1, 20);
        assert!(tells.settled(key, &[0, 1], Instant::now()).is_empty(), "more may come");
        assert_eq!(tells.settled(key, &[0, 1], later()), [[10, 20]]);
        assert!(tells.settled(key, &[0, 1], later()).is_empty(), "nothing new");
        // Both change, then one alone.
        tells.note(key, 1, 2, 21);
        tells.note(key, 0, 2, 11);
        tells.note(key, 0, 5, 12);
        let sets = tells.settled(key, &[0, 1], later());
        assert_eq!(sets, [[10, 20], [11, 21], [12, 21]]);
        assert_eq!(tells.settled(key, &[1], later()), [] as [Vec<u64>; 0]);
    }

    #[test]
    fn old_regions_are_forgotten() {
        let key = Key { context: 1, channel: 0 };
        let mut tells = Tells::default();
        for launch in 0..100 {
            tells.note(key, 0, launch, launch);
        }
        let sets = tells.settled(key, &[0], Instant::now() + 2 * SETTLE);
        assert_eq!(sets.len(), KEPT);
        assert_eq!(sets.last().unwrap(), &[99]);
    }
}
