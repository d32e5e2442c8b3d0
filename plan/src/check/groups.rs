//! Rules for switch groups: their members are ranks, and all members list them in the same order.

use super::report::Report;
use super::tables::{Tables, chunks, nth};
use crate::place::Place;
use std::collections::HashMap;

/// A switch channel: its rank and its number there.
type Id = (usize, usize);

/// Checks all groups and finds how many chunks each group's buffers have in common.
pub(super) fn check(tables: &mut Tables<'_>, report: &mut Report) {
    let known = members(tables, report);
    // The groups that a rank shares with another, in its own order, by the pair.
    let mut shared: HashMap<(u64, u64), Vec<(Id, usize)>> = HashMap::new();
    for (&id, members) in known.iter().flat_map(|group| group.ids.iter().map(move |id| (id, group)))
    {
        for &other in members.ranks.iter().filter(|&&other| other != id.0 as u64) {
            shared.entry((id.0 as u64, other)).or_default().push((id, members.number));
        }
    }
    shared.values_mut().for_each(|groups| groups.sort_unstable());
    for (&id, group) in known.iter().flat_map(|group| group.ids.iter().map(move |id| (id, group))) {
        let rank = id.0 as u64;
        let switch = &tables.ranks[id.0].switches[id.1];
        let mut least = Some(tables.ranks[id.0].chunks(switch.buffer));
        for &other in group.ranks.iter().filter(|&&other| other != rank) {
            let mine = &shared[&(rank, other)];
            let ordinal = mine.partition_point(|(known, _)| *known < id);
            let theirs = shared.get(&(other, rank)).and_then(|groups| groups.get(ordinal));
            match theirs {
                Some(&((peer, number), set)) if set == group.number => {
                    let peer = &tables.ranks[peer];
                    let count = chunks(peer.gpu, peer.switches[number].buffer);
                    least = least.map(|least| least.min(count));
                }
                _ => {
                    least = None;
                    let listed = theirs.map_or("does not list", |_| "lists with other ranks");
                    report.fault(
                        || place(tables, id),
                        format_args!(
                            "group {ordinal} of those with rank {other}, which rank {other} {listed}"
                        ),
                        "groups that all members list, in the same order",
                    );
                }
            }
        }
        tables.ranks[id.0].switches[id.1].chunks = least;
    }
}

/// A set of ranks that one or more switch channels join.
struct Group {
    number: usize,
    /// Ascending.
    ranks: Vec<u64>,
    ids: Vec<Id>,
}

/// Checks each group by itself; gives those that are sound.
fn members(tables: &Tables<'_>, report: &mut Report) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut numbers: HashMap<Vec<u64>, usize> = HashMap::new();
    for (rank, of_rank) in tables.ranks.iter().enumerate() {
        for (number, switch) in of_rank.switches.iter().enumerate() {
            let id = (rank, number);
            let mut sound = true;
            for (position, &member) in switch.group.ranks.iter().enumerate() {
                if nth(&tables.ranks, member).is_none() {
                    sound = false;
                    let place = || place(tables, id).at("ranks", position);
                    let count = tables.ranks.len();
                    report.fault(place, member, format_args!("a rank below {count}"));
                }
            }
            let mut ranks = switch.group.ranks.clone();
            ranks.sort_unstable();
            ranks.dedup();
            let place = || place(tables, id).key("ranks");
            if ranks.len() < switch.group.ranks.len() {
                sound = false;
                report.fault(place, "a rank twice", "each rank once");
            }
            if ranks.binary_search(&(rank as u64)).is_err() {
                sound = false;
                report.fault(
                    place,
                    format_args!("no rank {rank}"),
                    "a group with the rank that lists it",
                );
            }
            if sound {
                let next = groups.len();
                let at = *numbers.entry(ranks).or_insert_with_key(|ranks| {
                    groups.push(Group { number: next, ranks: ranks.clone(), ids: Vec::new() });
                    next
                });
                groups[at].ids.push(id);
            }
        }
    }
    groups
}

/// The place of a switch channel.
fn place(tables: &Tables<'_>, (rank, number): Id) -> Place {
    let (entry, position) = tables.ranks[rank].switches[number].origin;
    Place::top().at("gpus", rank).at("channels", entry).at("rank_groups", position)
}
