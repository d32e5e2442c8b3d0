//! Which packets of a rank's scratch have arrived in the launch, from whom, and who waits for others.

use std::collections::BTreeMap;

/// The packet scratch of one rank. Ranges are in bytes of payload.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrived {
    /// By start: the end, and the span that wrote it. Ranges neither overlap nor are merged.
    ranges: BTreeMap<u64, (u64, u32)>,
    /// By the first byte that is missing: the blocks that wait for it.
    waiters: BTreeMap<u64, Vec<u32>>,
}

impl Arrived {
    /// Fails with the first byte of `start..end` that has not arrived; if all have, gives the latest of the spans that
    /// wrote them.
    pub(super) fn missing(&self, start: u64, end: u64) -> Result<Option<u32>, u64> {
        let mut at = start;
        let mut writer = None;
        let first = self.ranges.range(..=start).next_back().map_or(start, |(&begin, _)| begin);
        for (&begin, &(until, span)) in self.ranges.range(first..) {
            if until <= at {
                continue;
            }
            if begin > at || at >= end {
                break;
            }
            at = until;
            writer = writer.max(Some(span));
        }
        if at < end { Err(at) } else { Ok(writer) }
    }

    /// Lets a block wait for a byte.
    pub(super) fn wait(&mut self, byte: u64, block: u32) {
        self.waiters.entry(byte).or_default().push(block);
    }

    /// Bytes arrive. Adds the blocks that waited for one of them to `woken`.
    pub(super) fn arrive(&mut self, start: u64, end: u64, span: u32, woken: &mut Vec<u32>) {
        if start >= end {
            return;
        }
        // A plan that writes a packet twice in a launch is wrong, but has a time; what was there first stays.
        let mut at = start;
        while let Err(missing) = self.missing(at, end) {
            let next =
                self.ranges.range(missing..).next().map_or(end, |(&begin, _)| begin.min(end));
            self.ranges.insert(missing, (next, span));
            at = next;
        }
        while let Some((&byte, _)) = self.waiters.range(start..end).next() {
            woken.extend(self.waiters.remove(&byte).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_there_when_all_its_bytes_are() {
        let (mut arrived, mut woken) = (Arrived::default(), Vec::new());
        assert_eq!(arrived.missing(0, 8), Err(0));
        assert_eq!(arrived.missing(8, 8), Ok(None));
        arrived.wait(0, 5);
        arrived.arrive(4, 8, 1, &mut woken);
        assert!(woken.is_empty());
        assert_eq!(arrived.missing(4, 8), Ok(Some(1)));
        assert_eq!(arrived.missing(5, 12), Err(8));
        arrived.arrive(0, 20, 2, &mut woken);
        assert_eq!(woken, [5]);
        assert_eq!(arrived.missing(0, 4), Ok(Some(2)));
        assert_eq!(arrived.missing(5, 7), Ok(Some(1)));
        assert_eq!(arrived.missing(0, 20), Ok(Some(2)));
        assert_eq!(arrived.missing(0, 21), Err(20));
    }
}
