//! The program that a seed makes.

use crate::program::{Call, How, Members, Name, Program, SLOTS, Step, WORLD, What};
use crate::served::runs_as_code;
use antiphon::plan::algorithms::Algorithm;
use antiphon::plan::model::Collective;
use antiphon::{DataType, Op};
use antiphon_tests::harness::Random;
use std::collections::BTreeSet;

/// The hosts of ranks, of which a program takes as many as it has: most often one, else several with as many ranks or not.
const PLACES: [&[&str]; 6] = [
    &["a"; 8],
    &["a"; 8],
    &["a"; 8],
    &["a", "a", "b", "b", "c", "c", "d", "d"],
    &["a", "b", "a", "b", "a", "b", "a", "b"],
    &["a", "a", "a", "b", "b", "b", "b", "c"],
];

/// Sizes of blocks: none, a few that nothing divides, vectors, and many.
const COUNTS: [&[u64]; 3] = [
    &[0, 1, 2, 3, 7, 16, 33, 129],
    &[0, 1, 5, 64, 129, 1000, 1024, 4099],
    &[1, 1023, 4096, 20_011, 50_001],
];

/// Elements of a program's largest buffers.
const MOST: u64 = 100_100;

struct Maker<'p> {
    random: Random,
    members: Members<'p>,
    counts: &'static [u64],
    /// Whether plans or code are registered: then either all ranks of a call are in place or none is.
    serves: bool,
    /// Whether sums are made in the order of docs/numerics.md.
    ordered: bool,
    streams: usize,
    one_node: bool,
    next: Name,
    entries: Vec<usize>,
    steps: Vec<Step>,
}

impl Program {
    /// The program of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, 20);
        let world = 1 + random.below(8).min(random.below(8)) as usize;
        let hosts = random.one_of(&PLACES)[..world].to_vec();
        let serves = random.below(3) == 0;
        let counts = COUNTS[[0, 0, 0, 1, 1, 1, 1, 2][random.below(8) as usize]];
        let (members, steps) = (Members::new(&hosts), Vec::new());
        let reproducible = random.below(4) == 0;
        let process_access = random.below(4) > 0;
        let ordered = reproducible || !serves;
        let streams = random.one_of(&[1, 3, 3, 20]);
        let length = 5 + random.below(40);
        let mut maker = Maker {
            random,
            members,
            counts,
            serves,
            ordered,
            streams,
            one_node: hosts.iter().all(|host| *host == hosts[0]),
            next: 1,
            entries: Vec::new(),
            steps,
        };
        for _ in 0..length {
            let step = maker.step();
            maker.members.take(&step);
            let again = maker.repeated(&step);
            maker.steps.push(step);
            maker.steps.extend(again);
        }
        let steps = maker.steps;
        let program = Program {
            seed,
            hosts,
            on_gpu: false,
            reproducible,
            process_access,
            streams,
            room: 0,
            steps,
        };
        Program { room: program.room_needed(), ..program }
    }

    /// The same, as far as ranks on a GPU can make its calls, and as a simulated one is fast enough for.
    pub fn on_gpu(self) -> Self {
        // A first call waits for what runs on the device. So what runs there may not wait for a rank that comes to another call first:
        // all ranks make all calls, and are on one node, where one prepares a call for all.
        let hosts = vec!["a"; self.hosts.len()];
        let mut program = Program { on_gpu: true, hosts, ..self };
        for step in &mut program.steps {
            if let Step::Make { calls, how } = step {
                for (call, _) in &mut *calls {
                    call.on = WORLD;
                    call.typed = false;
                    call.count = call.count.min(1100);
                }
                // Peers gather what a rank gathers.
                if !matches!(how, How::Grouped(0) | How::Driven) {
                    *how = How::Grouped(u32::MAX);
                }
            }
        }
        Program { room: program.room_needed(), ..program }
    }

    /// The bytes of the largest place, and some behind it.
    fn room_needed(&self) -> usize {
        let mut members = Members::new(&self.hosts);
        let mut most = 64;
        for step in &self.steps {
            if let Step::Make { calls, .. } = step {
                for (call, _) in calls {
                    let world = members.of(call.on).map_or(0, |ranks| ranks.world);
                    let places = (0..world).flat_map(|rank| call.places(world, rank));
                    let ends = places.flatten().map(|place| place.at + place.count);
                    let end = ends.max().unwrap_or(0) as usize * call.dtype.size();
                    most = most.max(end);
                }
            }
            members.take(step);
        }
        most + 61
    }
}

impl Maker<'_> {
    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn mask(&mut self) -> u32 {
        self.random.bits() as u32
    }

    fn communicator(&mut self) -> (Name, usize) {
        let names: Vec<Name> = self.members.names().collect();
        let name = names[self.below(names.len())];
        (name, self.members.of(name).map_or(0, |ranks| ranks.world as usize))
    }

    fn step(&mut self) -> Step {
        match self.below(40) {
            39 => Step::Dawdle { ranks: self.mask() },
            0 => Step::Renew { slot: self.below(SLOTS), ranks: self.mask() },
            1..=3 => Step::Synchronize { stream: self.below(self.streams) },
            4 => Step::Query { stream: self.below(self.streams), ranks: self.mask() },
            5 => match self.one_in(2) {
                true => Step::Barrier { on: self.communicator().0 },
                false => Step::Exchange { on: self.communicator().0 },
            },
            6 | 7 => self.split(),
            8 => self.subset(),
            9 => match self.communicator().0 {
                WORLD => Step::Barrier { on: WORLD },
                of => Step::Leave { of },
            },
            10..=13 if self.serves => self.entry(),
            14..=19 => self.group(),
            _ => {
                let slots = (self.below(SLOTS / 2), SLOTS / 2 + self.below(SLOTS / 2));
                let stream = self.stream();
                let call = self.call(slots, stream);
                Step::Make { calls: vec![(call, stream)], how: self.alone() }
            }
        }
    }

    fn stream(&mut self) -> Option<usize> {
        if self.one_in(2) { None } else { Some(self.below(self.streams)) }
    }

    /// How a single call is made: most often by itself.
    fn alone(&mut self) -> How {
        match self.below(8) {
            0 if !self.serves => How::Grouped(self.mask()),
            1 => How::Grouped(u32::MAX),
            2 => How::Driven,
            _ => How::Grouped(0),
        }
    }

    /// Up to three calls with slots of their own.
    fn group(&mut self) -> Step {
        let mut pairs: Vec<(usize, usize)> =
            (0..SLOTS / 2).map(|pair| (2 * pair, 2 * pair + 1)).collect();
        let calls = (0..1 + self.below(3)).map(|_| {
            let at = self.below(pairs.len());
            let slots = pairs.swap_remove(at);
            let stream = self.stream();
            (self.call(slots, stream), stream)
        });
        let calls: Vec<_> = calls.collect();
        // Of one communicator, and of one stream, calls have an order.
        let names: BTreeSet<Name> = calls.iter().map(|(call, _)| call.on).collect();
        let streams = calls.iter().filter_map(|(_, stream)| *stream);
        let apart = names.len() == calls.len()
            && streams.clone().collect::<BTreeSet<_>>().len() == streams.count();
        let how = match self.below(5) {
            0 if !self.serves => How::Grouped(self.mask()),
            1 | 2 if apart => How::Beside,
            3 => How::Driven,
            _ => How::Grouped(u32::MAX),
        };
        Step::Make { calls, how }
    }

    fn call(&mut self, slots: (usize, usize), stream: Option<usize>) -> Call {
        let (on, world) = self.communicator();
        let root = self.below(world) as u32;
        let what = match self.below(18) {
            0..=2 => What::AllReduce,
            3 => What::AllGather,
            4 => What::ReduceScatter,
            5 => What::AllToAll,
            6 => What::Broadcast(root),
            7 => What::Reduce(root),
            8 => What::Gather(root),
            9 => What::Scatter(root),
            10 | 11 => What::AllToAllV,
            12 => What::AllGatherV,
            13 | 14 => What::Transfers,
            15 if world > 1 => What::Transfer {
                from: root,
                to: (root + 1 + self.below(world - 1) as u32) % world as u32,
            },
            16 => What::Shift(root),
            _ => What::AllReduce,
        };
        let op = self.random.one_of(&Op::ALL);
        let scaled = what.reduces() && op == Op::Sum && self.one_in(3);
        let can_be = !matches!(
            what,
            What::AllToAllV | What::Transfers | What::Transfer { .. } | What::Shift(_)
        );
        let all_alike = what == What::AllToAll || self.serves && what.root().is_none();
        let in_place = match self.below(3) {
            0 if can_be => u32::MAX,
            1 if can_be && !all_alike => self.mask(),
            _ => 0,
        };
        let count = self.random.one_of(self.counts).min(MOST / world as u64);
        Call {
            on,
            what,
            dtype: self.random.one_of(&DataType::ALL),
            op,
            scaled,
            count,
            in_place,
            slots,
            ordered: self.ordered && what.reduces() && self.one_in(2),
            typed: stream.is_none() && self.one_in(2),
            seed: self.random.bits(),
            values: self.random.bits(),
        }
    }

    /// Sometimes the same calls many times, with other values: more than may be under way at once.
    fn repeated(&mut self, step: &Step) -> Vec<Step> {
        let Step::Make { calls, how } = step else { return Vec::new() };
        if !self.one_in(20) || calls.iter().any(|(call, _)| call.count > 1100) {
            return Vec::new();
        }
        let times = self.random.one_of(if self.one_node { &[3, 10, 80] } else { &[3, 10] });
        let mut again = || {
            let with_values = |(call, stream): &(Call, Option<usize>)| {
                (Call { values: self.random.bits(), ..call.clone() }, *stream)
            };
            Step::Make { calls: calls.iter().map(with_values).collect(), how: *how }
        };
        (0..times).map(|_| again()).collect()
    }

    fn new_name(&mut self) -> Name {
        self.next += 1;
        self.next - 1
    }

    /// Ranks in random order.
    fn shuffled(&mut self, world: usize) -> Vec<u32> {
        let mut ranks: Vec<u32> = (0..world as u32).collect();
        for at in (1..world).rev() {
            ranks.swap(at, self.below(at + 1));
        }
        ranks
    }

    fn split(&mut self) -> Step {
        let (of, world) = self.communicator();
        let duplicates = self.one_in(3);
        let ranks = if duplicates { (0..world as u32).collect() } else { self.shuffled(world) };
        let colors = if duplicates { 1 } else { 1 + self.below(3) };
        let mut groups: Vec<(Name, Vec<u32>)> =
            (0..colors).map(|_| (self.new_name(), Vec::new())).collect();
        for rank in ranks {
            let group = self.below(colors);
            if duplicates || !self.one_in(6) {
                groups[group].1.push(rank);
            }
        }
        groups.retain(|(_, ranks)| !ranks.is_empty());
        Step::Split { of, groups }
    }

    fn subset(&mut self) -> Step {
        let (of, world) = self.communicator();
        let mut ranks = self.shuffled(world);
        ranks.truncate(1 + self.below(world));
        Step::Subset { of, name: self.new_name(), ranks }
    }

    fn entry(&mut self) -> Step {
        match self.below(6) {
            0 if !self.entries.is_empty() => {
                let at = self.below(self.entries.len());
                Step::Unregister { entry: self.entries.swap_remove(at) }
            }
            1 => Step::Select { seed: Some(self.random.bits()) },
            2 => Step::Select { seed: None },
            _ => {
                let ranks = self.communicator().1;
                let all = || {
                    Algorithm::ALL
                        .into_iter()
                        .filter(|one| one.collective() != Collective::SendRecv)
                };
                let algorithm = all().nth(self.below(all().count())).expect("one of them");
                let code = self.one_in(3) && runs_as_code(algorithm);
                // With a root plans must be right both ways, as those are that are made for apart buffers.
                let in_place = self.one_in(2) && !algorithm.collective().has_root();
                let root = self.below(ranks);
                let entry = self.new_name();
                self.entries.push(entry);
                Step::Register { entry, algorithm, ranks, root, in_place, code }
            }
        }
    }
}
