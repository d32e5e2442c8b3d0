//! Ranges of addresses that a backend uses, so that its memory is never taken for the application's.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Ranges of addresses. None overlaps another, but the same one may be entered several times.
#[derive(Debug, Default)]
pub(crate) struct Spans(RwLock<Entries>);

/// The ranges, locked against changes.
#[derive(Debug, Default)]
pub(crate) struct Entries(BTreeMap<u64, Span>);

#[derive(Debug)]
struct Span {
    bytes: u64,
    /// How often it was entered.
    count: u32,
}

impl Spans {
    /// No range.
    pub(crate) const fn new() -> Self {
        Spans(RwLock::new(Entries(BTreeMap::new())))
    }

    /// Enters `bytes` bytes at `start`.
    pub(crate) fn enter(&self, start: u64, bytes: u64) {
        self.write().enter(start, bytes);
    }

    /// Removes what was entered at `start`, once.
    pub(crate) fn remove(&self, start: u64) {
        self.write().remove(start);
    }

    /// Locks them against changes.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Entries> {
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
        let span = self.0.entry(start).or_insert(Span { bytes, count: 0 });
        span.bytes = span.bytes.max(bytes);
        span.count += 1;
    }

    /// Removes what was entered at `start`, once.
    fn remove(&mut self, start: u64) {
        if let Some(span) = self.0.get_mut(&start) {
            span.count -= 1;
            if span.count == 0 {
                self.0.remove(&start);
            }
        }
    }

    /// Whether one holds `address`.
    pub(crate) fn hold(&self, address: u64) -> bool {
        let last = self.0.range(..=address).next_back();
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
            assert_eq!(spans.read().hold(address), held, "{address}");
        }
    }

    #[test]
    fn a_span_goes_when_it_was_removed_as_often_as_entered() {
        let spans = Spans::new();
        spans.enter(100, 10);
        spans.enter(100, 10);
        spans.remove(100);
        assert!(spans.read().hold(105));
        spans.remove(100);
        spans.remove(100);
        assert!(!spans.read().hold(105));
    }
}
