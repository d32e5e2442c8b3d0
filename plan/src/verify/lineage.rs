//! What seeing a packet tells, whoever wrote it and whatever it was made from.
//!
//! Several steps may write a packet in a launch, if they all write the same. A reader has then seen one of the writes,
//! and since nobody knows which, it knows only what holds for each of them: the writer has begun the launch and has
//! read what it made the packet from and, if those were packets, all that seeing them tells is true. Some of this is
//! circular, where a packet is handed on to where it came from. In a circle, everything counts as known that nothing
//! speaks against: the packet of the circle that is there first did not come around it, and each later one tells what
//! those before it told.
//!
//! Which packets a launch writes, and from what, is the same in every run. So one run is written down
//! ([`Lineage::record`]), and the runs after it ask.

use super::clock::Epoch;
use super::shadow::RAW;
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// How much memory and time a lineage may take. Beyond, nothing is known.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Writes of packets, and cells that they were made from, that are written down.
    most: usize,
    /// How much may be looked at to answer.
    looks: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { most: 1 << 22, looks: 1 << 28 }
    }
}

/// The writes of a packet in a launch.
#[derive(Clone, Copy, Debug)]
struct Packet {
    cell: u32,
    launch: u32,
    first: u32,
    last: u32,
    looped: bool,
}

/// One write of a packet.
#[derive(Clone, Copy, Debug)]
struct Write {
    step: Epoch,
    /// The range in `sources` that holds the cells it was made from.
    sources: (u32, u32),
    /// The next write of the same packet, plus 1.
    next: u32,
}

/// A write of a packet, to whoever asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written<'a> {
    pub cell: u32,
    pub step: Epoch,
    /// What it was made from; cells that are no packets are marked with [`RAW`].
    pub made_from: &'a [u32],
}

/// What is known: the ranks that have begun the launch, each with 0, and the proxies, numbered after the ranks, each
/// with how far it has come.
type News = Rc<[(u32, u32)]>;

/// All writes of packets of a run.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    /// In the order in which they were first written.
    packets: Vec<Packet>,
    writes: Vec<Write>,
    sources: Vec<u32>,
    /// Positions in `packets` by cell and launch.
    places: HashMap<(u32, u32), u32>,
    /// By packet, what seeing it tells: positions in `news`.
    tells: Vec<u32>,
    news: Vec<News>,
    /// Some packet that several write is written in a pipeline.
    pub looped: bool,
    full: bool,
    looks: Cell<u64>,
    limits: Limits,
}

impl Lineage {
    /// Notes that a step wrote a packet; whether in a pipeline.
    pub fn record(&mut self, cell: u32, launch: u32, step: Epoch, made_from: &[u32], looped: bool) {
        self.full |= self.writes.len() + self.sources.len() + made_from.len() >= self.limits.most;
        if self.full {
            return;
        }
        let start = self.sources.len() as u32;
        self.sources.extend_from_slice(made_from);
        let at = self.writes.len() as u32;
        self.writes.push(Write { step, sources: (start, self.sources.len() as u32), next: 0 });
        let new = self.packets.len() as u32;
        let place = *self.places.entry((cell, launch)).or_insert(new);
        if place == new {
            self.packets.push(Packet { cell, launch, first: at, last: at, looped });
            return;
        }
        let packet = &mut self.packets[place as usize];
        self.writes[packet.last as usize].next = at + 1;
        packet.last = at;
        packet.looped |= looped;
        // With longer pipelines, another step may be the first to write it.
        self.looped |= packet.looped && !made_from.contains(&cell);
    }

    /// Finds out what seeing each packet tells. `of` gives the rank of a step and, if a proxy made it, the proxy's
    /// number, counted after all ranks. `None` if there is too much to look at.
    pub fn finish(mut self, of: impl Fn(Epoch) -> (u32, Option<u32>)) -> Option<Self> {
        if self.full {
            return None;
        }
        let mut sets = Sets::default();
        let mut tells: Vec<Option<u32>> = vec![None; self.packets.len()];
        let mut looks = 0u64;
        let limits = self.limits;
        let mut changed = true;
        // From "everything" downwards, until nothing speaks against what is left.
        while std::mem::take(&mut changed) {
            for (at, packet) in self.packets.iter().enumerate() {
                let mut all: Option<u32> = None;
                for write in self.writes_of(packet) {
                    let (rank, proxy) = of(write.step);
                    let proxy = proxy.map(|proxy| (proxy, write.step.count));
                    let own = [(rank, 0)].into_iter().chain(proxy);
                    let mut one = Some(sets.number(own.collect()));
                    for source in self.packets_of(write.made_from, packet.launch) {
                        if looks > limits.looks || sets.len > limits.most {
                            return None;
                        }
                        looks += 1;
                        one = one.zip(tells[source as usize]).map(|(a, b)| sets.both(a, b));
                    }
                    looks += 1;
                    all = match (all, one) {
                        (Some(a), Some(b)) => Some(sets.common(a, b)),
                        (known, None) | (None, known) => known,
                    };
                }
                changed |= all != tells[at];
                tells[at] = all;
            }
            if looks > limits.looks || sets.len > limits.most {
                return None;
            }
        }
        let nothing = sets.number(News::default());
        self.tells = tells.into_iter().map(|known| known.unwrap_or(nothing)).collect();
        self.news = sets.all;
        Some(self)
    }

    /// Whether it has been asked so much that it no longer answers.
    pub fn is_exhausted(&self) -> bool {
        self.looks.get() > self.limits.looks
    }

    /// What whoever sees a packet of a launch knows, and a number for it.
    pub fn tells(&self, cell: u32, launch: u32) -> Option<(u32, &[(u32, u32)])> {
        let &place = self.places.get(&(cell, launch))?;
        let number = self.tells[place as usize];
        Some((number, &self.news[number as usize]))
    }

    /// Whether these packets of a launch can only be there after a `wanted` write: whoever wrote them, one of them is
    /// made from it, at some remove. Cells that are no packets tell nothing.
    pub fn implies(
        &self,
        cells: &[u32],
        launch: u32,
        wanted: impl Fn(Written<'_>) -> bool,
    ) -> bool {
        let mut open: Vec<u32> = self.packets_of(cells, launch).collect();
        let asked = open.clone();
        // By packet, the sources of each of its writes that is not wanted.
        let mut found: HashMap<u32, Vec<Vec<u32>>> = HashMap::new();
        let mut order = Vec::new();
        while let Some(place) = open.pop() {
            if found.contains_key(&place) {
                continue;
            }
            let packet = &self.packets[place as usize];
            let mut others = Vec::new();
            for write in self.writes_of(packet) {
                self.looks.set(self.looks.get() + 1 + write.made_from.len() as u64);
                if !wanted(write) {
                    let sources: Vec<u32> =
                        self.packets_of(write.made_from, packet.launch).collect();
                    open.extend_from_slice(&sources);
                    others.push(sources);
                }
            }
            if self.is_exhausted() {
                return false;
            }
            found.insert(place, others);
            order.push(place);
        }
        // Removes, until nothing changes, every packet with an unwanted write that has no source left. What stays
        // implies a wanted write.
        loop {
            let before = found.len();
            for place in order.iter().rev() {
                let stays = |others: &Vec<Vec<u32>>| {
                    others.iter().all(|sources| sources.iter().any(|at| found.contains_key(at)))
                };
                if found.get(place).is_some_and(|others| !stays(others)) {
                    found.remove(place);
                }
            }
            self.looks.set(self.looks.get() + order.len() as u64);
            if found.len() == before {
                return asked.iter().any(|place| found.contains_key(place));
            }
        }
    }

    fn writes_of(&self, packet: &Packet) -> impl Iterator<Item = Written<'_>> {
        let cell = packet.cell;
        let first = Some(packet.first);
        let next = |&at: &u32| self.writes[at as usize].next.checked_sub(1);
        std::iter::successors(first, next).map(move |at| {
            let Write { step, sources: (start, end), .. } = self.writes[at as usize];
            Written { cell, step, made_from: &self.sources[start as usize..end as usize] }
        })
    }

    fn packets_of(&self, cells: &[u32], launch: u32) -> impl Iterator<Item = u32> {
        let packets = cells.iter().filter(|&cell| cell & RAW == 0);
        packets.filter_map(move |&cell| self.places.get(&(cell, launch)).copied())
    }
}

/// Sets of news, each with a number.
#[derive(Debug, Default)]
struct Sets {
    all: Vec<News>,
    numbers: HashMap<News, u32>,
    /// By pair of sets, the set that they make together, and the set that they have in common.
    together: HashMap<(u32, u32), u32>,
    shared: HashMap<(u32, u32), u32>,
    /// Entries of all.
    len: usize,
}

impl Sets {
    fn number(&mut self, news: News) -> u32 {
        if let Some(&known) = self.numbers.get(&news) {
            return known;
        }
        let number = self.all.len() as u32;
        self.len += news.len();
        self.all.push(Rc::clone(&news));
        self.numbers.insert(news, number);
        number
    }

    /// The set of all that either of two tells; for a proxy, the larger count.
    fn both(&mut self, a: u32, b: u32) -> u32 {
        let pair = (a.min(b), a.max(b));
        if a == b {
            return a;
        }
        if let Some(&known) = self.together.get(&pair) {
            return known;
        }
        let mut news = [&*self.all[a as usize], &*self.all[b as usize]].concat();
        // Descending, so that the largest count of each key comes first and is kept.
        news.sort_unstable_by(|a, b| b.cmp(a));
        news.dedup_by_key(|entry| entry.0);
        news.reverse();
        let number = self.number(news.into());
        self.together.insert(pair, number);
        number
    }

    /// The set of what both of two tell; for a proxy, the smaller count.
    fn common(&mut self, a: u32, b: u32) -> u32 {
        let pair = (a.min(b), a.max(b));
        if a == b {
            return a;
        }
        if let Some(&known) = self.shared.get(&pair) {
            return known;
        }
        let other = &self.all[b as usize];
        let in_both = self.all[a as usize].iter().filter_map(|&(key, count)| {
            let at = other.binary_search_by_key(&key, |entry| entry.0).ok()?;
            Some((key, count.min(other[at].1)))
        });
        let news = in_both.collect();
        let number = self.number(news);
        self.shared.insert(pair, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(actor: u32) -> Epoch {
        Epoch { actor, count: 1 }
    }

    /// Packets of launch 1: which cell, whose step, made from what. Actors below 10 are ranks of one block, those above are
    /// proxies of rank 0.
    fn lineage(writes: &[(u32, u32, &[u32])]) -> Lineage {
        limited(writes, Limits::default()).expect("a few packets")
    }

    fn limited(writes: &[(u32, u32, &[u32])], limits: Limits) -> Option<Lineage> {
        let mut lineage = Lineage { limits, ..Lineage::default() };
        for &(cell, actor, made_from) in writes {
            lineage.record(cell, 1, step(actor), made_from, false);
        }
        let of = |step: Epoch| match step.actor {
            proxy @ 10.. => (0, Some(proxy)),
            rank => (rank, None),
        };
        lineage.finish(of)
    }

    fn tells(lineage: &Lineage, cell: u32) -> Vec<u32> {
        let (_, news) = lineage.tells(cell, 1).expect("a packet");
        news.iter().map(|&(key, _)| key).collect()
    }

    #[test]
    fn a_packet_tells_of_all_whose_packets_went_into_it() {
        let of = lineage(&[(7, 0, &[RAW]), (8, 1, &[7, RAW | 1]), (9, 2, &[8, 7]), (6, 12, &[8])]);
        assert_eq!(
            [7, 8, 9, 6].map(|cell| tells(&of, cell)),
            [vec![0], vec![0, 1], vec![0, 1, 2], vec![0, 1, 12]]
        );
        assert!(of.tells(7, 2).is_none() && of.tells(5, 1).is_none());
    }

    #[test]
    fn a_packet_of_several_tells_what_each_of_them_would() {
        let apart = lineage(&[(7, 0, &[RAW]), (7, 1, &[RAW])]);
        assert!(tells(&apart, 7).is_empty());
        let of_one = lineage(&[(6, 0, &[RAW]), (7, 1, &[6]), (7, 2, &[6]), (8, 3, &[7])]);
        assert_eq!(tells(&of_one, 7), [0]);
        assert_eq!(tells(&of_one, 8), [0, 3]);
        let of_proxies = lineage(&[(7, 10, &[RAW]), (7, 11, &[RAW])]);
        assert_eq!(tells(&of_proxies, 7), [0]);
    }

    #[test]
    fn a_packet_that_came_around_a_circle_tells_of_where_it_began() {
        // 7 goes to 8 and back to 7: only rank 0 can have been first.
        let circle = lineage(&[(7, 0, &[RAW]), (8, 1, &[7]), (7, 2, &[8])]);
        assert_eq!(tells(&circle, 7), [0]);
        assert_eq!(tells(&circle, 8), [0, 1]);
        assert!(circle.implies(&[8], 1, |write| write.cell == 7 && write.step == step(0)));
        assert!(!circle.implies(&[8], 1, |write| write.step == step(2)));
        // With a second way in, either can have been.
        let two = lineage(&[(7, 0, &[RAW]), (8, 1, &[7]), (7, 2, &[8]), (8, 3, &[RAW])]);
        assert!(tells(&two, 7).is_empty());
        assert!(!two.implies(&[8], 1, |write| write.step == step(0)));
        assert!(!two.implies(&[7], 1, |write| write.cell == 7 && write.step == step(0)));
        assert!(two.implies(&[7], 1, |write| write.cell == 7));
    }

    #[test]
    fn what_went_into_only_one_of_two_writes_need_not_have_been_read() {
        let read = |raw| move |write: Written<'_>| write.made_from.contains(&(raw | RAW));
        let of =
            lineage(&[(7, 0, &[RAW | 1]), (7, 1, &[RAW | 2]), (8, 2, &[7]), (9, 3, &[RAW | 1])]);
        assert!(!of.implies(&[8], 1, read(1)));
        assert!(of.implies(&[8], 1, |write| read(1)(write) || read(2)(write)));
        assert!(of.implies(&[8, 9], 1, read(1)));
        assert!(!of.implies(&[9], 2, read(1)) && !of.implies(&[RAW | 1], 1, read(1)));
    }

    #[test]
    fn what_takes_too_much_memory_or_time_is_not_known() {
        let writes: [(u32, u32, &[u32]); 3] = [(7, 0, &[RAW]), (8, 1, &[7]), (9, 2, &[8])];
        let known = |most, looks| limited(&writes, Limits { most, looks });
        // Three writes, made from a cell each; what they tell is eight entries.
        assert!(known(8, 100).is_some());
        assert!(known(7, 100).is_none(), "too much to tell");
        assert!(known(8, 2).is_none(), "too long to find out");
        let own = writes.map(|(cell, _, made_from)| (cell, 0, made_from));
        let noted = |most| limited(&own, Limits { most, looks: 100 }).is_some();
        assert!(noted(6) && !noted(4), "too much to write down");

        let first = |write: Written<'_>| write.step == step(0);
        let of = known(8, 20).expect("enough to find out");
        assert!(of.implies(&[9], 1, first) && !of.is_exhausted());
        let asked = (0..20).take_while(|_| of.implies(&[9], 1, first)).count();
        assert!((1..20).contains(&asked), "{asked} answers and no end");
        assert!(of.is_exhausted());
        assert!(!of.implies(&[8], 1, first), "a lineage that is exhausted says nothing more");
    }
}
