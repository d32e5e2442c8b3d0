//! What a rank receives by one transfer and passes on by others: these begin once it is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// What has become of data that is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is still to come.
    ToCome,
    /// It is there.
    There,
    /// It does not come: what would have received it failed, or was never begun.
    Lost,
}

const TO_COME: u8 = 0;
const THERE: u8 = 1;
const LOST: u8 = 2;

/// Held by the transfer that receives. Dropped before it said so, the data is lost.
#[derive(Debug, Default)]
pub(super) struct Arrives(Arc<AtomicU8>);

/// Held by a transfer that passes on what another receives.
#[derive(Clone, Debug)]
pub(super) struct Awaited(Arc<AtomicU8>);

impl Arrives {
    /// For those who pass it on.
    pub fn awaited(&self) -> Awaited {
        Awaited(Arc::clone(&self.0))
    }

    /// Says that the data is there, or that it will not be: what is said first counts.
    pub fn tell(&self, there: bool) {
        let said = if there { THERE } else { LOST };
        // The data was written before.
        let _ = self.0.compare_exchange(TO_COME, said, Ordering::Release, Ordering::Relaxed);
    }
}

impl Drop for Arrives {
    fn drop(&mut self) {
        self.tell(false);
    }
}

impl Awaited {
    /// What has become of it.
    pub fn look(&self) -> Arrival {
        match self.0.load(Ordering::Acquire) {
            TO_COME => Arrival::ToCome,
            THERE => Arrival::There,
            _ => Arrival::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_first_counts_and_silence_is_a_loss() {
        let said: [(&[bool], Arrival); 4] = [
            (&[], Arrival::Lost),
            (&[true], Arrival::There),
            (&[false, true], Arrival::Lost),
            (&[true, false], Arrival::There),
        ];
        for (said, expected) in said {
            let arrives = Arrives::default();
            let awaited = arrives.awaited();
            assert_eq!(awaited.look(), Arrival::ToCome);
            said.iter().for_each(|&there| arrives.tell(there));
            drop(arrives);
            assert_eq!(awaited.look(), expected, "{said:?}");
        }
    }
}
