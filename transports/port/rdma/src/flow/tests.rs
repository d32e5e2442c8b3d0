//! Random posts against a network that carries out and completes requests in random order.

use super::*;
use proptest::prelude::*;
use std::rc::Rc;

#[derive(Clone, Debug)]
enum Step {
    /// Parts on these lanes.
    Write(Vec<usize>),
    Signal,
    /// A lane's queue takes so many.
    Ring(usize, usize),
    /// A request on its way on a lane lands; which one, where lanes do not keep order.
    Land(usize, usize),
    /// A lane tells of the landed requests at its head.
    Complete(usize),
    Want,
}

fn step() -> impl Strategy<Value = Step> {
    let lane = 0..MAX_LANES;
    prop_oneof![
        3 => prop::collection::vec(lane.clone(), 0..4).prop_map(Step::Write),
        2 => Just(Step::Signal),
        4 => (lane.clone(), 1..20_usize).prop_map(|(lane, most)| Step::Ring(lane, most)),
        8 => (lane.clone(), 0..8_usize).prop_map(|(lane, which)| Step::Land(lane, which)),
        4 => lane.prop_map(Step::Complete),
        1 => Just(Step::Want),
    ]
}

/// A queue's requests that are not known to be done, and whether they landed.
type Flight = VecDeque<(Request, bool)>;

struct World {
    flow: Flow<Rc<()>>,
    flights: Vec<Flight>,
    /// Parts of every post that have not landed; positions count from 0.
    missing: Vec<u32>,
    signals: Vec<u64>,
    landed_signals: u64,
    keep: Rc<()>,
    ordered: bool,
}

/// A request carries its post's position in `from` or `value`.
fn position(action: &Action) -> Option<u64> {
    match action {
        Action::Write { from, .. } => Some(*from),
        Action::Signal { value, .. } => Some(*value),
        Action::Nudge => None,
    }
}

impl World {
    fn new(lanes: usize, depth: u32, order: Order) -> Self {
        World {
            flow: Flow::new(lanes, lanes - 1, depth, order),
            flights: vec![Flight::new(); lanes],
            missing: Vec::new(),
            signals: Vec::new(),
            landed_signals: 0,
            keep: Rc::new(()),
            ordered: order == Order::Network,
        }
    }

    fn apply(&mut self, step: &Step) {
        let lanes = self.flights.len();
        match step {
            Step::Write(parts) if !self.flow.full() => {
                let from = self.flow.posted();
                let write = Action::Write {
                    from,
                    near: true,
                    local_key: 0,
                    bytes: 8,
                    to: 0,
                    remote_key: 0,
                };
                self.missing.push(parts.len() as u32);
                let parts = parts.iter().map(|lane| (lane % lanes, write));
                self.flow.write(parts, Rc::clone(&self.keep));
            }
            Step::Signal if !self.flow.full() => {
                let value = self.flow.posted();
                self.missing.push(1);
                self.signals.push(value);
                self.flow.signal(Action::Signal { value, to: 0, remote_key: 0 });
            }
            Step::Ring(lane, most) => {
                let mut batch = Vec::new();
                self.flow.take(lane % lanes, *most, &mut batch);
                self.flights[lane % lanes].extend(batch.into_iter().map(|r| (r, false)));
            }
            Step::Land(lane, which) => self.land(lane % lanes, *which),
            Step::Complete(lane) => self.complete(lane % lanes),
            Step::Want => self.flow.want(),
            Step::Write(_) | Step::Signal => {}
        }
        self.check();
    }

    fn land(&mut self, lane: usize, which: usize) {
        let flying: Vec<usize> =
            (0..self.flights[lane].len()).filter(|i| !self.flights[lane][*i].1).collect();
        let which = if self.ordered { 0 } else { which };
        let Some(&index) = flying.get(which.min(flying.len().saturating_sub(1))) else { return };
        let (request, landed) = &mut self.flights[lane][index];
        *landed = true;
        let Some(position) = position(&request.action) else { return };
        if let Action::Signal { value, .. } = request.action {
            let before = &self.missing[..value as usize];
            assert!(before.iter().all(|parts| *parts == 0), "signal {value} overtook: {before:?}");
            assert_eq!(Some(&value), self.signals.get(self.landed_signals as usize));
            self.landed_signals += 1;
        }
        self.missing[position as usize] -= 1;
    }

    fn complete(&mut self, lane: usize) {
        let flight = &mut self.flights[lane];
        let landed = flight.iter().take_while(|(_, landed)| *landed).count();
        let Some(last) = (0..landed).rev().find(|i| flight[*i].0.told) else { return };
        let sequence = flight[last].0.sequence;
        flight.drain(..=last);
        self.flow.settle(lane, sequence);
    }

    fn check(&self) {
        let completed = self.flow.completed() as usize;
        assert!(self.missing[..completed].iter().all(|parts| *parts == 0), "told too early");
        let kept = Rc::strong_count(&self.keep) - 1;
        let writes = (completed..self.missing.len())
            .filter(|position| !self.signals.contains(&(*position as u64)))
            .count();
        assert_eq!(kept, writes, "sources are kept until their writes are done, no longer");
        let written = self.missing.len() - self.signals.len() - writes;
        assert_eq!(self.flow.written(), written as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn signals_never_overtake_and_all_is_told_in_the_end(
        lanes in 1..=MAX_LANES,
        depth in 4..24_u32,
        ordered: bool,
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let order = if ordered { Order::Network } else { Order::Completions };
        let mut world = World::new(lanes, depth, order);
        for step in &steps {
            world.apply(step);
        }
        // The network goes on; somebody asks once in a while.
        for round in 0.. {
            if world.flow.idle() {
                break;
            }
            prop_assert!(round < 10_000, "posts hang: {:?}", world.flow);
            world.apply(&Step::Want);
            for lane in 0..lanes {
                world.apply(&Step::Ring(lane, usize::MAX));
                for _ in 0..depth {
                    world.apply(&Step::Land(lane, round % 3));
                }
                world.apply(&Step::Complete(lane));
            }
        }
        prop_assert_eq!(world.flow.completed(), world.flow.posted());
        prop_assert_eq!(world.landed_signals as usize, world.signals.len());
    }
}

/// Nobody asks, and still a queue empties: otherwise a full one would stay full.
#[test]
fn a_full_queue_has_a_completion_on_its_way() {
    let mut flow = Flow::new(1, 0, 8, Order::Network);
    let write = Action::Write { from: 0, near: true, local_key: 0, bytes: 8, to: 0, remote_key: 0 };
    let mut batch = Vec::new();
    for _ in 0..1000 {
        while !flow.full() {
            flow.write([(0, write)], ());
        }
        batch.clear();
        flow.take(0, usize::MAX, &mut batch);
        let told = batch.iter().filter(|request| request.told).count();
        assert!((1..=4).contains(&told), "{batch:?}");
        let last = batch.iter().rev().find(|request| request.told).expect("one is told");
        flow.settle(0, last.sequence);
    }
}

#[test]
fn asking_twice_asks_once() {
    let mut flow = Flow::new(1, 0, 64, Order::Network);
    let write = Action::Write { from: 0, near: true, local_key: 0, bytes: 8, to: 0, remote_key: 0 };
    flow.write([(0, write)], ());
    let mut batch = Vec::new();
    flow.take(0, 64, &mut batch);
    assert!(!batch[0].told);
    flow.want();
    flow.want();
    batch.clear();
    flow.take(0, 64, &mut batch);
    assert_eq!(batch, [Request { sequence: 2, action: Action::Nudge, told: true }]);
    flow.settle(0, 2);
    assert_eq!(flow.completed(), 1);
    flow.want();
    assert_eq!(flow.pending(0), 0);
}
