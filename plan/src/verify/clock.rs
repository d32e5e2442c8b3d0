//! What happened before what: clocks that count, for every actor, how much of its work is known to be done.

use std::rc::Rc;

/// A position in an actor's work: its `count`-th step. Counts start at 1; 0 is "nothing yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Epoch {
    /// A block, or the proxy of a port channel.
    pub actor: u32,
    /// Which of its steps.
    pub count: u32,
}

impl Epoch {
    /// Whether it stands for no step at all.
    pub fn is_none(self) -> bool {
        self.count == 0
    }
}

/// For every actor, the number of its steps that happened before. Shared until it changes.
#[derive(Clone, Debug)]
pub(super) struct Clock(Rc<Vec<u32>>);

impl Clock {
    /// Knows nothing of any of `actors` actors.
    pub fn new(actors: usize) -> Self {
        Clock(Rc::new(vec![0; actors]))
    }

    /// Whether the step happened before.
    #[inline]
    pub fn covers(&self, step: Epoch) -> bool {
        self.0[step.actor as usize] >= step.count
    }

    /// How much of the actor's work is known.
    pub fn count(&self, actor: u32) -> u32 {
        self.0[actor as usize]
    }

    /// Learns that the step, and with it all the actor did before, happened before.
    pub fn learn(&mut self, step: Epoch) {
        if !self.covers(step) {
            Rc::make_mut(&mut self.0)[step.actor as usize] = step.count;
        }
    }

    /// Learns all that another clock knows.
    pub fn join(&mut self, other: &Clock) {
        if Rc::ptr_eq(&self.0, &other.0) {
            return;
        }
        for (own, &other) in Rc::make_mut(&mut self.0).iter_mut().zip(other.0.iter()) {
            *own = (*own).max(other);
        }
    }
}

/// What an actor hands on: all it may rely on, and its own work up to a step.
#[derive(Clone, Debug)]
pub(super) struct Handed {
    pub clock: Clock,
    pub step: Epoch,
}

impl Handed {
    /// Hands everything on to `clock`.
    pub fn teach(&self, clock: &mut Clock) {
        clock.join(&self.clock);
        clock.learn(self.step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_learn_the_later_of_two_and_share_until_then() {
        let mut first = Clock::new(3);
        let mut second = first.clone();
        first.learn(Epoch { actor: 0, count: 4 });
        second.learn(Epoch { actor: 2, count: 1 });
        assert!(!second.covers(Epoch { actor: 0, count: 1 }));
        let handed = Handed { clock: first.clone(), step: Epoch { actor: 1, count: 7 } };
        handed.teach(&mut second);
        assert_eq!([0, 1, 2].map(|actor| second.count(actor)), [4, 7, 1]);
        assert_eq!([0, 1, 2].map(|actor| first.count(actor)), [4, 0, 0]);
        assert!(second.covers(Epoch { actor: 0, count: 4 }));
        assert!(!second.covers(Epoch { actor: 0, count: 5 }));
    }
}
