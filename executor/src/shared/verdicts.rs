//! Verdicts on plans in a control page, so that of the processes that load a plan one verifies it.
//!
//! Whoever finds a plan in no slot claims one and verifies; whoever finds it claimed waits for the verdict. Slots are
//! never given back: when all are taken, processes verify for themselves. A slot's verdict does not change.

use crate::verification::{Judgement, Key, Scope, TEXT};
use std::sync::atomic::{AtomicU64, Ordering};

/// Plans whose verdicts are shared.
const SLOTS: usize = 32;

/// Not yet: the slot is free, or was taken a moment ago.
const NONE: u64 = 0;
/// Somebody verifies the plan.
const CLAIMED: u64 = 1;
/// Whoever did has given up.
const ABANDONED: u64 = 2;
const PROVEN: u64 = 3;
const REFUTED: u64 = 4;
const NOT_PROVEN: u64 = 5;
/// Above these bits of the state of a verdict is its scope.
const STATE_BITS: u32 = 8;

/// The verdicts on the plans of a communicator; all zero at first. Every process that maps it may write.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct VerdictTable {
    slots: [Slot; SLOTS],
}

/// The verdict on one plan.
///
/// `content` is set once, by whoever takes the slot. The other half of the key is valid to whoever has read a `state`
/// other than `NONE` with acquire, the text to whoever has read a verdict there.
#[repr(C)]
#[derive(Debug)]
struct Slot {
    content: AtomicU64,
    shape: AtomicU64,
    state: AtomicU64,
    length: AtomicU64,
    text: [AtomicU64; TEXT / 8],
}

/// What a look at the table finds.
#[derive(Debug)]
pub enum Look<'a> {
    /// Nobody had verified the plan: the caller does.
    Claimed(Claim<'a>),
    /// Somebody else verifies it.
    Pending,
    /// The verdict.
    Known(Judgement),
    /// The table cannot help: it is full, or its text is broken.
    Alone,
}

/// The duty to verify a plan. Dropped without a verdict, it passes to the next who looks.
#[derive(Debug)]
pub struct Claim<'a> {
    slot: &'a Slot,
}

impl VerdictTable {
    /// The verdict on a plan, or a claim to it. Waits for nothing.
    pub fn look(&self, key: Key) -> Look<'_> {
        // Zero means a free slot.
        let content = key.content.max(1);
        let first = (content % SLOTS as u64) as usize;
        let (before, after) = self.slots.split_at(first);
        for slot in after.iter().chain(before) {
            let found =
                slot.content.compare_exchange(0, content, Ordering::Relaxed, Ordering::Relaxed);
            match found {
                Ok(_) => {
                    slot.shape.store(key.shape, Ordering::Relaxed);
                    slot.state.store(CLAIMED, Ordering::Release);
                    return Look::Claimed(Claim { slot });
                }
                Err(found) if found != content => continue,
                Err(_) => {}
            }
            let state = slot.state.load(Ordering::Acquire);
            if state == NONE {
                return Look::Pending;
            }
            if slot.shape.load(Ordering::Relaxed) == key.shape {
                return slot.look(state);
            }
        }
        Look::Alone
    }
}

impl Slot {
    fn look(&self, state: u64) -> Look<'_> {
        let scope = Scope::from_bits(state >> STATE_BITS);
        match state & ((1 << STATE_BITS) - 1) {
            CLAIMED => Look::Pending,
            ABANDONED => {
                let taken = self.state.compare_exchange(
                    ABANDONED,
                    CLAIMED,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if taken.is_ok() { Look::Claimed(Claim { slot: self }) } else { Look::Pending }
            }
            PROVEN => Look::Known(Judgement::Proven(scope)),
            REFUTED => {
                self.text().map_or(Look::Alone, |text| Look::Known(Judgement::Refuted(text.into())))
            }
            NOT_PROVEN => self
                .text()
                .map_or(Look::Alone, |text| Look::Known(Judgement::NotProven(text.into(), scope))),
            _ => Look::Alone,
        }
    }

    fn text(&self) -> Option<String> {
        let words = self.text.iter().map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        let mut bytes: Vec<u8> = words.flatten().collect();
        let length = usize::try_from(self.length.load(Ordering::Relaxed)).ok()?;
        if length > bytes.len() {
            return None;
        }
        bytes.truncate(length);
        String::from_utf8(bytes).ok()
    }
}

impl Claim<'_> {
    /// Tells everybody the verdict.
    pub fn publish(self, judgement: &Judgement) {
        let (state, text, scope) = match judgement {
            Judgement::Proven(scope) => (PROVEN, "", *scope),
            Judgement::Refuted(text) => (REFUTED, &**text, Scope::default()),
            Judgement::NotProven(text, scope) => (NOT_PROVEN, &**text, *scope),
        };
        let state = state | scope.bits() << STATE_BITS;
        let bytes = text.as_bytes();
        debug_assert!(bytes.len() <= TEXT, "judgements cut their texts");
        for (word, piece) in self.slot.text.iter().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..piece.len()].copy_from_slice(piece);
            word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
        }
        self.slot.length.store(bytes.len() as u64, Ordering::Relaxed);
        self.slot.state.store(state, Ordering::Release);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // A published verdict stays. Nobody else leaves `CLAIMED`.
        if self.slot.state.load(Ordering::Relaxed) == CLAIMED {
            self.slot.state.store(ABANDONED, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Box<VerdictTable> {
        // SAFETY: a table is all atomics, for which zero is a value.
        Box::new(unsafe { std::mem::zeroed() })
    }

    fn key(content: u64, shape: u64) -> Key {
        Key { content, shape }
    }

    fn claim(table: &VerdictTable, key: Key) -> Claim<'_> {
        match table.look(key) {
            Look::Claimed(claim) => claim,
            other => panic!("{key:?}: {other:?}"),
        }
    }

    fn known(table: &VerdictTable, key: Key) -> Judgement {
        match table.look(key) {
            Look::Known(judgement) => judgement,
            other => panic!("{key:?}: {other:?}"),
        }
    }

    #[test]
    fn what_one_publishes_all_find() {
        let table = table();
        let scope = Scope { repeats: false, elsewhere: Some(true), root: None };
        let judgements = [
            Judgement::Proven(Scope::default()),
            Judgement::Proven(Scope {
                repeats: true,
                elsewhere: Some(false),
                root: Some(u32::MAX),
            }),
            Judgement::Refuted("no".into()),
            Judgement::NotProven("perhaps: ä".into(), scope),
            Judgement::NotProven("x".repeat(TEXT).into(), Scope::default()),
            Judgement::Refuted("".into()),
        ];
        // Equal contents of another shape are other plans, and the content 0 is one.
        let keys = [
            key(0, 1),
            key(9, 1),
            key(7, 1),
            key(7, 2),
            key(7 + SLOTS as u64, 1),
            key(u64::MAX, 0),
        ];
        for (key, judgement) in keys.into_iter().zip(&judgements) {
            let claim = claim(&table, key);
            assert!(matches!(table.look(key), Look::Pending));
            claim.publish(judgement);
        }
        for (key, judgement) in keys.into_iter().zip(&judgements) {
            assert_eq!(known(&table, key), *judgement);
        }
    }

    #[test]
    fn an_abandoned_claim_passes_to_one_other() {
        let table = table();
        drop(claim(&table, key(1, 1)));
        let second = claim(&table, key(1, 1));
        assert!(matches!(table.look(key(1, 1)), Look::Pending));
        second.publish(&Judgement::Proven(Scope::default()));
        assert_eq!(known(&table, key(1, 1)), Judgement::Proven(Scope::default()));
    }

    #[test]
    fn a_full_table_leaves_everybody_alone_and_keeps_what_it_has() {
        let table = table();
        for content in 1..=SLOTS as u64 {
            claim(&table, key(content, 0)).publish(&Judgement::Proven(Scope::default()));
        }
        assert!(matches!(table.look(key(99, 0)), Look::Alone));
        assert!(matches!(table.look(key(5, 1)), Look::Alone), "another plan of the same hash");
        assert_eq!(known(&table, key(5, 0)), Judgement::Proven(Scope::default()));
    }

    #[test]
    fn of_many_who_look_at_once_one_verifies() {
        let turns = if cfg!(miri) { 3 } else { 300 };
        for turn in 0..turns {
            let table = table();
            let text = format!("verdict {turn}");
            let claims = std::thread::scope(|scope| {
                let look = || {
                    let mut claims = 0;
                    loop {
                        match table.look(key(7, 7)) {
                            Look::Claimed(claim) => {
                                claims += 1;
                                claim.publish(&Judgement::Refuted(text.as_str().into()));
                            }
                            Look::Pending => std::thread::yield_now(),
                            Look::Known(found) => {
                                assert_eq!(found, Judgement::Refuted(text.as_str().into()));
                                return claims;
                            }
                            Look::Alone => panic!("there is room"),
                        }
                    }
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(look)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u32>()
            });
            assert_eq!(claims, 1);
        }
    }
}
