//! One thing that transfers share: a link, a memory, a network card.
//!
//! All transfers under way get equal parts of the bandwidth. What each has got since the beginning of time is the same
//! number for all, the *level*; a transfer that begins at some level is done when the level has risen by its bytes. So a
//! beginning or an end costs the logarithm of the transfers under way, however many those are.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Something with a bandwidth, and who uses it now.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    /// Bytes a second.
    bandwidth: f64,
    /// Bytes that each transfer has got since the beginning.
    level: f64,
    /// When the level was computed.
    at: f64,
    jobs: BinaryHeap<Job>,
    /// When the next look is due; infinite if none is.
    pub(super) due: f64,
    /// Bytes carried or begun.
    pub(super) bytes: u64,
    /// Seconds with a transfer under way.
    pub(super) busy: f64,
}

/// One transfer: done at this level.
#[derive(Clone, Copy, Debug)]
struct Job {
    until: f64,
    flow: u32,
}

impl Shared {
    pub(super) fn new(bandwidth: f64) -> Self {
        Shared {
            bandwidth,
            level: 0.0,
            at: 0.0,
            jobs: BinaryHeap::new(),
            due: f64::INFINITY,
            bytes: 0,
            busy: 0.0,
        }
    }

    /// Bytes a second.
    pub(super) fn bandwidth(&self) -> f64 {
        self.bandwidth
    }

    fn advance(&mut self, now: f64) {
        if !self.jobs.is_empty() {
            self.level += (now - self.at) * self.bandwidth / self.jobs.len() as f64;
            self.busy += now - self.at;
        }
        self.at = now;
    }

    /// Begins a transfer of at least one byte.
    pub(super) fn begin(&mut self, now: f64, flow: u32, bytes: u64) {
        self.advance(now);
        if self.jobs.is_empty() {
            // Levels stay small, so that short transfers late in a long run are not lost in rounding.
            self.level = 0.0;
        }
        self.bytes += bytes;
        self.jobs.push(Job { until: self.level + bytes as f64, flow });
    }

    /// Takes out the transfers that are done now.
    pub(super) fn finish(&mut self, now: f64, done: &mut Vec<u32>) {
        self.advance(now);
        while let Some(first) = self.jobs.peek() {
            // What is left takes less time than virtual time can tell apart from none.
            let left = (first.until - self.level) * self.jobs.len() as f64 / self.bandwidth;
            if now + left > now {
                break;
            }
            done.push(first.flow);
            self.jobs.pop();
        }
    }

    /// When the next transfer is done, if none begins before.
    pub(super) fn next(&self) -> Option<f64> {
        let first = self.jobs.peek()?;
        let left = (first.until - self.level) * self.jobs.len() as f64 / self.bandwidth;
        Some(self.at + left.max(0.0))
    }
}

impl Ord for Job {
    /// The first to be done is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.until.total_cmp(&self.until).then(other.flow.cmp(&self.flow))
    }
}

impl PartialOrd for Job {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Job {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs transfers (begin, bytes) over 10 bytes a second, and says when each is done.
    fn ends(transfers: &[(f64, u64)]) -> Vec<f64> {
        let mut link = Shared::new(10.0);
        let mut ends = vec![0.0; transfers.len()];
        let mut begun = 0;
        loop {
            let start = transfers.get(begun).map(|transfer| transfer.0);
            let next = link.next();
            match (start, next) {
                (Some(start), next) if next.is_none_or(|next| start < next) => {
                    link.begin(start, begun as u32, transfers[begun].1);
                    begun += 1;
                }
                (_, Some(next)) => {
                    let mut done = Vec::new();
                    link.finish(next, &mut done);
                    done.iter().for_each(|&flow| ends[flow as usize] = next);
                }
                _ => return ends,
            }
        }
    }

    #[test]
    fn transfers_share_evenly() {
        assert_eq!(ends(&[(0.0, 100)]), [10.0]);
        assert_eq!(ends(&[(0.0, 100), (0.0, 100)]), [20.0, 20.0]);
        assert_eq!(ends(&[(0.0, 100), (0.0, 300)]), [20.0, 40.0]);
        // Alone for 5 s, then half each until the first is done, then alone again.
        assert_eq!(ends(&[(0.0, 100), (5.0, 100)]), [15.0, 20.0]);
        assert_eq!(ends(&[(0.0, 10), (7.0, 10)]), [1.0, 8.0]);
    }
}
