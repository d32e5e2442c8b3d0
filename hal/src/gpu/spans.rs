//! Ranges of addresses that a backend uses, so that its memory is never taken for the application's.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Ranges of addresses. None overlaps another, but the same one may be entered several times.
#[derive(Debug, Default)]
pub(crate) struct Spans(RwLock<Entries>);

#[derive(Debug, Default)]
struct Entries {
    spans: BTreeMap<u64, Span>,
    /// How often they were changed.
    changes: u64,
}

#[derive(Debug)]
struct Span {
    bytes: u64,
    /// How often it was entered.
    count: u32,
}

impl Spans {
    /// No range.
    pub(crate) const fn new() -> Self {
        Spans(RwLock::new(Entries { spans: BTreeMap::new(), changes: 0 }))
    }

    /// Enters `bytes` bytes at `start`.
    pub(crate) fn enter(&self, start: u64, bytes: u64) {
        self.write().enter(start, bytes);
    }

    /// Removes what was entered at `start`, once.
    pub(crate) fn remove(&self, start: u64) {
        self.write().remove(start);
    }

    /// Whether one holds `address`.
    pub(crate) fn hold(&self, address: u64) -> bool {
        self.read().hold(address)
    }

    /// Calls `ask` until no range came or went meanwhile, and returns what it found then. No lock is held in the call: a driver
    /// may let it wait for kernels, and these may wait for a thread that enters a range.
    pub(crate) fn steadily<T>(&self, mut ask: impl FnMut() -> T) -> T {
        loop {
            let before = self.read().changes;
            let found = ask();
            if self.read().changes == before {
                return found;
            }
        }
    }

    /// Locks them against changes, for a moment.
    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks them for a change.
    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Enters `bytes` bytes at `start`.
    fn enter(&mut self, start: u64, bytes: u64) {
        self.changes += 1;
        let span = self.spans.entry(start).or_insert(Span { bytes, count: 0 });
        span.bytes = span.bytes.max(bytes);
        span.count += 1;
    }

    /// Removes what was entered at `start`, once.
    fn remove(&mut self, start: u64) {
        self.changes += 1;
        if let Some(span) = self.spans.get_mut(&start) {
            span.count -= 1;
            if span.count == 0 {
                self.spans.remove(&start);
            }
        }
    }

    fn hold(&self, address: u64) -> bool {
        let last = self.spans.range(..=address).next_back();
        last.is_some_and(|(&start, span)| address - start < span.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_hold_what_is_within_them() {
        let spans = Spans::new();
        spans.enter(100, 10);
        spans.enter(200, 1);
        for (address, held) in [
            (0, false),
            (99, false),
            (100, true),
            (109, true),
            (110, false),
            (200, true),
            (201, false),
        ] {
            assert_eq!(spans.hold(address), held, "{address}");
        }
    }

    #[test]
    fn a_span_goes_when_it_was_removed_as_often_as_entered() {
        let spans = Spans::new();
        spans.enter(100, 10);
        spans.enter(100, 10);
        spans.remove(100);
        assert!(spans.hold(105));
        spans.remove(100);
        spans.remove(100);
        assert!(!spans.hold(105));
    }

    #[test]
    fn what_is_found_while_spans_change_is_asked_again() {
        let (spans, mut answers) = (Spans::new(), Vec::new());
        let last = spans.steadily(|| {
            match answers.len() {
                // Whoever asks keeps nobody from a change.
                0 => spans.enter(100, 10),
                // A range that came and went may have been what the driver told of.
                1 => {
                    spans.enter(200, 10);
                    spans.remove(200);
                }
                _ => {}
            }
            answers.push(spans.hold(100));
            answers.len()
        });
        assert_eq!((last, answers), (3, vec![true; 3]));
    }
}
