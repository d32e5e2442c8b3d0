//! What a rank receives by one transfer and passes on by others: these begin once it is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What has become of data that is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is still to come.
    ToCome,
    /// It is there.
    There,
    /// It does not come: what would have received it failed, or was never begun.
    Lost,
    /// It does not come, by what every rank hears of.
    LostToAll,
}

const TO_COME: u8 = 0;
const THERE: u8 = 1;
const LOST: u8 = 2;
const LOST_TO_ALL: u8 = 3;

/// Held by the transfer that receives. Dropped before it said so, the data is lost.
#[derive(Debug, Default)]
pub(super) struct Arrives(Arc<State>);

/// Held by a transfer that passes on what another receives.
#[derive(Clone, Debug)]
pub(super) struct Awaited(Arc<State>);

#[derive(Debug, Default)]
struct State {
    said: AtomicU8,
    /// Changes while the data is coming.
    position: AtomicU64,
}

impl Arrives {
    /// For those who pass it on.
    pub fn awaited(&self) -> Awaited {
        Awaited(Arc::clone(&self.0))
    }

    /// Says what has become of the data: what is said first counts.
    pub fn tell(&self, arrival: Arrival) {
        let said = match arrival {
            Arrival::ToCome => return,
            Arrival::There => THERE,
            Arrival::Lost => LOST,
            Arrival::LostToAll => LOST_TO_ALL,
        };
        // The data was written before.
        let _ = self.0.said.compare_exchange(TO_COME, said, Ordering::Release, Ordering::Relaxed);
    }

    /// Says how far the data has come: a number that changes when it moves.
    pub fn moves(&self, position: u64) {
        self.0.position.store(position, Ordering::Relaxed);
    }
}

impl Drop for Arrives {
    fn drop(&mut self) {
        self.tell(Arrival::Lost);
    }
}

impl Awaited {
    /// What has become of it.
    pub fn look(&self) -> Arrival {
        match self.0.said.load(Ordering::Acquire) {
            TO_COME => Arrival::ToCome,
            THERE => Arrival::There,
            LOST_TO_ALL => Arrival::LostToAll,
            _ => Arrival::Lost,
        }
    }

    /// How far it has come: a number that changes when it moves.
    pub fn position(&self) -> u64 {
        self.0.position.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_first_counts_and_silence_is_a_loss() {
        use Arrival::{Lost, LostToAll, There, ToCome};
        let said: [(&[Arrival], Arrival); 6] = [
            (&[], Lost),
            (&[There], There),
            (&[ToCome, There], There),
            (&[Lost, There], Lost),
            (&[There, Lost], There),
            (&[LostToAll, Lost], LostToAll),
        ];
        for (said, expected) in said {
            let arrives = Arrives::default();
            let awaited = arrives.awaited();
            assert_eq!(awaited.look(), ToCome);
            said.iter().for_each(|&arrival| arrives.tell(arrival));
            drop(arrives);
            assert_eq!(awaited.look(), expected, "{said:?}");
        }
    }
}
