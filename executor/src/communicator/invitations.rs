//! Pairs that a peer begins to form: its message reaches the keeper of this rank's pairs, which forms this rank's end without a
//! call of the application. So the first transfer to a peer waits for no call of that peer.

use super::{CONTROL, Communicator, Direction, Purpose, Way};
use crate::sync::lock;
use crate::tags::PAIR;
use antiphon_bootstrap::Message;
use std::sync::{Arc, Mutex};

/// Forms this rank's ends of pairs, without waiting; `false` if it is gone.
type Keeper = Arc<dyn Fn(Way) -> bool + Send + Sync>;

/// What peers have asked for.
#[derive(Default)]
pub(crate) struct Invitations(Mutex<State>);

#[derive(Default)]
struct State {
    keeper: Option<Keeper>,
    /// What came while nobody kept pairs, each once.
    waiting: Vec<Way>,
}

impl Invitations {
    /// Handles a peer's message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn receive(&self, peer: u32, payload: &[u8]) -> Result<(), String> {
        let (direction, purpose) = match payload {
            // What goes out there comes in here.
            [direction @ 0..=1, purpose @ 0..=1] => (*direction, *purpose),
            other => {
                return Err(format!("the bytes {other:?} about a pair, allowed two of 0 or 1"));
            }
        };
        let direction = if direction == 0 { Direction::In } else { Direction::Out };
        let purpose = if purpose == 0 { Purpose::Calls } else { Purpose::Blocks };
        let way = Way { peer, direction, purpose };
        let mut state = lock(&self.0);
        if !state.waiting.contains(&way) {
            state.waiting.push(way);
        }
        let keeper = state.keeper.clone();
        drop(state);
        self.hand_over(keeper);
        Ok(())
    }

    /// Has `keeper` form the pairs that peers ask for from now on, and those that they asked for before. It replaces an earlier
    /// keeper.
    pub fn accept_by(&self, keeper: impl Fn(Way) -> bool + Send + Sync + 'static) {
        let keeper: Keeper = Arc::new(keeper);
        lock(&self.0).keeper = Some(Arc::clone(&keeper));
        self.hand_over(Some(keeper));
    }

    /// Hands what waits to the keeper, which is called without the lock.
    fn hand_over(&self, keeper: Option<Keeper>) {
        let Some(keeper) = keeper else { return };
        loop {
            let next = lock(&self.0).waiting.pop();
            let Some(way) = next else { return };
            if !keeper(way) {
                let mut state = lock(&self.0);
                state.waiting.push(way);
                return;
            }
        }
    }
}

impl Communicator {
    /// What peers ask for.
    pub(crate) fn invitations(&self) -> &Invitations {
        &self.shared.invitations
    }

    /// Asks a peer to form its end of a pair. One that cannot be told is lost or has left, which shows where it is waited for.
    pub(crate) fn invite(&self, Way { peer, direction, purpose }: Way) {
        let payload =
            vec![u8::from(direction == Direction::In), u8::from(purpose == Purpose::Blocks)];
        let message = Message { channel: CONTROL, tag: PAIR, payload, descriptors: Vec::new() };
        if let Err(error) = self.shared.bootstrap.send(peer, message) {
            log::debug!("rank {peer} is not told of a pair: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_came_before_its_keeper_is_handed_over_once() {
        let invitations = Invitations::default();
        for payload in [&[0, 1][..], &[0, 1], &[1, 0]] {
            invitations.receive(7, payload).unwrap();
        }
        for wrong in [&[2, 0][..], &[0, 2], &[0], &[]] {
            assert!(invitations.receive(7, wrong).is_err(), "{wrong:?}");
        }
        invitations.accept_by(|_| false);
        let (tell, told) = channel();
        invitations.accept_by(move |way| tell.send(way).is_ok());
        let mut found: Vec<Way> = told.try_iter().collect();
        found.sort_unstable();
        let way = |direction, purpose| Way { peer: 7, direction, purpose };
        let expected = [way(Direction::Out, Purpose::Calls), way(Direction::In, Purpose::Blocks)];
        assert_eq!(found, expected);
        invitations.receive(7, &[0, 0]).unwrap();
        assert_eq!(told.try_recv(), Ok(way(Direction::In, Purpose::Calls)));
    }
}
