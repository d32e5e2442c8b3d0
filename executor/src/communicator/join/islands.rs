//! Ranks of one node whose devices do not reach each other's memory: they count as on different nodes, so that what goes between
//! them goes over a wire, by way of the host's memory.
//!
//! All ranks know which ranks these are once all have told what their devices lack. Then they begin anew, in a group of their
//! bootstrap that says on which nodes they count as; nothing else makes that group.

use super::*;
use crate::ports;
use antiphon_bootstrap::{
    Handler, Lost, Message, Operation, PeerInfo, Result as BootstrapResult, Voice,
};
use antiphon_port::Wire;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Once, OnceLock};

/// The group in which ranks begin anew. Splits are numbered from 0, subsets from half of all numbers, and pairs from the last.
const GROUP: u64 = (1 << 63) - 1;

/// What all ranks have answered, or are to.
pub(super) enum Answers {
    ToCome(Ticket),
    There(Vec<Vec<u8>>),
}

/// A communicator whose ranks know what their devices lack.
pub(in crate::communicator) enum Parted {
    /// What counts as a node stays.
    Whole(Probed),
    /// It begins anew.
    Anew(Greeted),
}

/// A group of ranks, with the nodes that they count as on and the nodes that they are on.
struct Islands {
    ranks: Arc<dyn Bootstrap>,
    nodes: Vec<u32>,
    homes: Vec<u32>,
    /// Passes on an abort of the group in which the ranks began to this group, in which they began anew.
    whole: Arc<OnceLock<Subscription>>,
}

/// Passes on an abort of the group in which ranks began. Losses are heard in every group.
struct Whole(Voice);

impl Handler for Whole {
    fn message(&self, _: u32, _: u32, _: &[u8], _: Vec<OwnedFd>) {
        // Messages come from peers that began in that group, as this rank did; they say all of it again in the new one.
    }

    fn peer_lost(&self, _: u32, _: &Lost) {}

    fn aborted(&self, by: u32, reason: &str) {
        self.0.abort(&format!("aborted by rank {by}: {reason}"));
    }
}

impl Answers {
    /// The answers, by rank.
    pub fn wait(self) -> Result<Vec<Vec<u8>>, ExecutorError> {
        match self {
            Answers::ToCome(ticket) => Ok(ticket.wait()?),
            Answers::There(answers) => Ok(answers),
        }
    }
}

impl Probed {
    /// Waits until all have answered. If devices of a node do not reach each other, all ranks begin anew.
    pub(in crate::communicator) fn part(self) -> Result<Parted, ExecutorError> {
        let Probed { join, greetings, answers } = self;
        let answers = answers.wait()?;
        let missing = missing(&answers, greetings.len())?;
        let apart: BTreeSet<(u32, u32)> = missing
            .iter()
            .filter(|(.., gap)| *gap == Gap::Access)
            .map(|&(one, other, _)| (one.min(other), one.max(other)))
            .collect();
        if apart.is_empty() {
            let answers = Answers::There(answers);
            return Ok(Parted::Whole(Probed { join, greetings, answers }));
        }
        let world = join.bootstrap.world();
        let homes = super::nodes(&*join.bootstrap)?;
        let nodes = islands(&homes, |one, other| apart.contains(&(one.min(other), one.max(other))));
        if let (0, Some(&(one, other))) = (join.bootstrap.rank(), apart.first()) {
            let ranks = [one, other].map(|rank| (rank, &greetings[rank as usize].device));
            warn(&join.whose, &Gap::Access.between(ranks));
        }
        let all: Vec<u32> = (0..world).collect();
        let (began_in, whole) = (Arc::clone(&join.bootstrap), Arc::<OnceLock<_>>::default());
        let ranks = began_in.group(GROUP, &all)?;
        let islands =
            Islands { ranks: Arc::clone(&ranks), nodes, homes, whole: Arc::clone(&whole) };
        let greeted = Join::begin(Arc::new(islands), &join.device, &join.options)?;
        let greeted = greeted.among(join.crowd);
        // Forgets what was heard in that group until now.
        drop(join);
        let ends = Arc::new(Whole(ranks.voice()));
        let _ = whole.set(Subscription::new(&began_in, ends)?);
        Ok(Parted::Anew(greeted))
    }
}

impl Parted {
    /// Goes on as all ranks do: with the answers that there are, or by asking anew.
    pub(in crate::communicator) fn probe(self) -> Result<Probed, ExecutorError> {
        match self {
            Parted::Whole(probed) => Ok(probed),
            Parted::Anew(greeted) => greeted.probe(),
        }
    }
}

/// Has rank 0 warn, once in this process, that ranks of one node count as on different ones, which is slower.
fn warn(whose: &Whose, apart: &str) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        log::warn!(
            "{whose}: {apart}: they count as on different nodes, and what goes between them goes over a wire, by way of the host's memory"
        );
    });
}

/// The nodes that ranks are on, if ranks of one node count as on several; otherwise `None`.
pub(super) fn homes(ranks: &dyn Bootstrap) -> Result<Option<Vec<u32>>, ExecutorError> {
    let all = (0..ranks.world()).map(|rank| ranks.home_of(rank));
    let homes = all.collect::<Result<Vec<_>, BootstrapError>>()?;
    let mut nodes = HashMap::new();
    for (rank, home) in (0..).zip(&homes) {
        let node = ranks.node_of(rank)?;
        if *nodes.entry(*home).or_insert(node) != node {
            return Ok(Some(homes));
        }
    }
    Ok(None)
}

/// The wire to ranks of this rank's node that count as on other nodes, if there are any and the device can pin shared memory.
pub(super) fn shared_wire(
    ranks: &Arc<dyn Bootstrap>,
    regions: &Arc<Regions>,
    device: &dyn Device,
    page: &Arc<dyn Memory>,
) -> Option<Arc<dyn Wire>> {
    let own = ranks.rank();
    let place = |rank| Some((ranks.home_of(rank).ok()?, ranks.node_of(rank).ok()?));
    let is_parted = |rank: &u32| {
        let (one, other) = (place(own), place(*rank));
        one.zip(other).is_some_and(|(one, other)| one.0 == other.0 && one.1 != other.1)
    };
    let parted: Vec<u32> = (0..ranks.world()).filter(is_parted).collect();
    if parted.is_empty() {
        return None;
    }
    // Parcels go through memory that must be the device's as well as the host's.
    if let Err(error) = device.pin(page) {
        log::debug!("rank {own}: no memory of the host is shared with ranks {parted:?}: {error}");
        return None;
    }
    Some(ports::shared_wire(regions, ranks, parted))
}

/// The nodes that ranks count as on, given those that they are on (`homes`): each rank joins the first node whose ranks all have
/// the same home and are not `apart` from it. Nodes are numbered in the order of the ranks.
fn islands(homes: &[u32], apart: impl Fn(u32, u32) -> bool) -> Vec<u32> {
    let mut islands: Vec<Vec<u32>> = Vec::new();
    let mut nodes = Vec::with_capacity(homes.len());
    for (rank, home) in (0..).zip(homes) {
        let fits = |one: &u32| homes[*one as usize] == *home && !apart(*one, rank);
        let found = islands.iter().position(|island| island.iter().all(fits));
        let at = found.unwrap_or_else(|| {
            islands.push(Vec::new());
            islands.len() - 1
        });
        islands[at].push(rank);
        nodes.push(at as u32);
    }
    nodes
}

/// What devices lack to reach those of other ranks, from the answers of all.
fn missing(answers: &[Vec<u8>], ranks: usize) -> Result<Vec<(u32, u32, Gap)>, ExecutorError> {
    let mut missing = Vec::new();
    for (one, answer) in (0..).zip(answers) {
        let told = answer.get(1..).filter(|told| told.len() == ranks);
        let told = told.ok_or_else(|| garbled(one, answer.len()))?;
        for (other, &byte) in (0..).zip(told) {
            let gap = Gap::from_byte(byte).ok_or_else(|| garbled(one, answer.len()))?;
            missing.extend(gap.map(|gap| (one, other, gap)));
        }
    }
    Ok(missing)
}

/// The devices of all ranks, from their greetings and what they answered.
pub(super) fn neighbours(
    rank: u32,
    peers: &[Peer],
    greetings: &[Greeting],
    answers: &[Vec<u8>],
) -> Result<Neighbours, ExecutorError> {
    let devices = greetings.iter().zip(peers);
    let devices = devices.map(|(greeting, peer)| (greeting.device, peer.same_process)).collect();
    Ok(Neighbours::new(rank, devices, missing(answers, peers.len())?.into_iter()))
}

impl Bootstrap for Islands {
    fn rank(&self) -> u32 {
        self.ranks.rank()
    }

    fn world(&self) -> u32 {
        self.ranks.world()
    }

    fn begin(&self, operation: Operation, bytes: &[u8]) -> BootstrapResult<Ticket> {
        self.ranks.begin(operation, bytes)
    }

    fn send(&self, peer: u32, message: Message) -> BootstrapResult<()> {
        self.ranks.send(peer, message)
    }

    fn subscribe(&self, channel: u64, handler: Arc<dyn Handler>) -> BootstrapResult<()> {
        self.ranks.subscribe(channel, handler)
    }

    fn unsubscribe(&self, channel: u64) {
        self.ranks.unsubscribe(channel);
    }

    fn let_go(&self) {
        self.ranks.let_go();
    }

    fn farewell(&self) {
        self.ranks.farewell();
    }

    fn group(&self, id: u64, members: &[u32]) -> BootstrapResult<Arc<dyn Bootstrap>> {
        let ranks = self.ranks.group(id, members)?;
        let [nodes, homes] = [&self.nodes, &self.homes]
            .map(|all| members.iter().map(|&member| all[member as usize]).collect());
        Ok(Arc::new(Islands { ranks, nodes, homes, whole: Arc::default() }))
    }

    fn within(&self, limit: Duration, called: Option<Arc<str>>) -> Arc<dyn Bootstrap> {
        let Islands { ranks, nodes, homes, whole } = self;
        let (nodes, homes) = (nodes.clone(), homes.clone());
        let ranks = ranks.within(limit, called);
        Arc::new(Islands { ranks, nodes, homes, whole: Arc::clone(whole) })
    }

    fn abort(&self, reason: &str) {
        self.ranks.abort(reason);
    }

    fn voice(&self) -> Voice {
        self.ranks.voice()
    }

    fn check(&self) -> BootstrapResult<()> {
        self.ranks.check()
    }

    fn has_left(&self, peer: u32) -> BootstrapResult<bool> {
        self.ranks.has_left(peer)
    }

    fn gone(&self) -> Vec<u32> {
        self.ranks.gone()
    }

    fn key(&self, purpose: &str) -> [u8; 32] {
        self.ranks.key(purpose)
    }

    fn peer(&self, rank: u32) -> BootstrapResult<PeerInfo> {
        let peer = self.ranks.peer(rank)?;
        Ok(PeerInfo { node: self.nodes[rank as usize], ..peer })
    }

    fn home_of(&self, rank: u32) -> BootstrapResult<u32> {
        self.ranks.peer(rank).map(|_| self.homes[rank as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_bootstrap::in_process_with;

    #[test]
    fn ranks_count_with_those_at_home_with_them_whose_devices_they_reach() {
        type Apart = &'static [(u32, u32)];
        let cases: [(&[u32], Apart, &[u32]); 6] = [
            (&[0, 0], &[(0, 1)], &[0, 1]),
            // Ranks 0 and 2 share a device.
            (&[0, 0, 0], &[(0, 1), (1, 2)], &[0, 1, 0]),
            // Two pairs that a bridge joins each.
            (&[0, 0, 0, 0], &[(0, 2), (0, 3), (1, 2), (1, 3)], &[0, 0, 1, 1]),
            // Of another machine nothing is said.
            (&[0, 0, 1, 1], &[(0, 1)], &[0, 1, 2, 2]),
            (&[0, 0, 1, 1], &[(0, 1), (2, 3)], &[0, 1, 2, 3]),
            // One reaches both of two that do not reach each other.
            (&[0, 0, 0], &[(0, 2)], &[0, 0, 1]),
        ];
        for (homes, apart, expected) in cases {
            let nodes =
                islands(homes, |one, other| apart.contains(&(one.min(other), one.max(other))));
            assert_eq!(nodes, expected, "{homes:?} {apart:?}");
        }
    }

    #[test]
    fn a_group_of_islands_has_their_nodes() {
        let mut ends = in_process_with(&["this"; 3], Duration::from_secs(60)).unwrap();
        let (nodes, homes) = (vec![0, 1, 0], vec![0; 3]);
        let islands = Islands { ranks: ends.remove(0), nodes, homes, whole: Arc::default() };
        let nodes = |of: &dyn Bootstrap| {
            (0..of.world()).map(|rank| of.node_of(rank).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(nodes(&islands), [0, 1, 0]);
        let group = islands.group(7, &[1, 0]).unwrap();
        let group = group.within(Duration::from_secs(1), None);
        assert_eq!(nodes(&*group), [1, 0]);
        assert_eq!(super::homes(&*group).unwrap(), Some(vec![0; 2]));
        let alike = islands.group(9, &[0, 2]).unwrap();
        assert_eq!(super::homes(&*alike).unwrap(), None);
        assert_eq!(super::homes(&*ends[0]).unwrap(), None);
        assert!(islands.peer(3).is_err() && islands.group(8, &[0, 3]).is_err());
    }

    #[test]
    fn what_ends_the_group_that_ranks_began_in_ends_the_one_that_they_are_in() {
        let ends = in_process_with(&["this"; 2], Duration::from_secs(60)).unwrap();
        let again: Vec<_> = ends.iter().map(|end| end.group(GROUP, &[0, 1]).unwrap()).collect();
        let whole = Arc::new(Whole(again[1].voice()));
        let heard = Subscription::new(&ends[1], whole).unwrap();
        ends[0].abort("enough");
        for end in &again {
            let error = end.barrier().unwrap_err().to_string();
            assert!(error.contains("aborted by rank 0: enough"), "{error}");
        }
        drop(heard);
    }
}
