//! Signals and waits, channel by channel: an imbalance would leak into the next launch.
//!
//! The k-th channel of a type from rank a to rank b is paired with the k-th of that type from b to a. What a pipeline's
//! body signals counts once per iteration, and the number of iterations depends on the message: so signals of a body
//! can only be met by waits of bodies with equal windows.

use crate::model::ChannelType;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// Windows of a pipeline: bytes of one, and the chunks they cover together. None outside of pipelines.
pub type Windows = Option<(u64, u64)>;

/// A line of a program's source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// The file.
    pub file: Arc<str>,
    /// Its line, from 1.
    pub line: u32,
}

impl From<&Location<'_>> for SourceLine {
    fn from(location: &Location<'_>) -> Self {
        SourceLine { file: location.file().into(), line: location.line() }
    }
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// One end of a channel: type, rank and the rank's number of it.
pub type End = (ChannelType, u64, u64);

/// The signals and waits of a program so far.
#[derive(Clone, Debug, Default)]
pub struct Pairing {
    ends: HashMap<End, Counts>,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    signals: BTreeMap<Windows, u64>,
    waits: BTreeMap<Windows, u64>,
    last_signal: Option<SourceLine>,
    last_wait: Option<SourceLine>,
}

/// A channel whose signals and waits do not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Type of the channel.
    pub channel_type: ChannelType,
    /// The rank that signals; of a channel without a pair, its own rank, which may wait.
    pub from: u64,
    /// Its number of the channel.
    pub from_channel: u64,
    /// The rank that waits; of a channel without a pair, its peer.
    pub to: u64,
    /// Its number of the paired channel; none if the channel has no pair.
    pub to_channel: Option<u64>,
    /// Windows of the pipeline whose signals and waits do not match.
    pub windows: Windows,
    /// Signals of one launch, or of one iteration.
    pub signals: u64,
    /// Waits of one launch, or of one iteration.
    pub waits: u64,
    /// The last line that signals.
    pub last_signal: Option<SourceLine>,
    /// The last line that waits.
    pub last_wait: Option<SourceLine>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { channel_type, from, from_channel, to, signals, waits, .. } = self;
        write!(
            f,
            "Signal/Wait mismatch on {channel_type} channel {from_channel} of rank {from} to rank {to}"
        )?;
        match self.to_channel {
            Some(channel) => write!(f, ", paired with channel {channel} of rank {to}")?,
            None => write!(f, ", which has no pair on rank {to}")?,
        }
        write!(f, ": saw {signals} signals and {waits} waits")?;
        if let Some((unit, chunks)) = self.windows {
            write!(f, " in pipelines of {chunks} chunks in windows of {unit} bytes")?;
        }
        write!(f, ", allowed as many waits as signals")?;
        if let Some(line) = &self.last_signal {
            write!(f, "; signalled last at {line}")?;
        }
        if let Some(line) = &self.last_wait {
            write!(f, "; waited for last at {line}")?;
        }
        Ok(())
    }
}

/// The peers of every rank's channels of one type, by channel number.
pub type Peers<'a> = (ChannelType, Vec<&'a [u64]>);

impl Pairing {
    /// Counts a signal on a channel of `rank`.
    pub fn signal(&mut self, end: End, windows: Windows, line: Option<&SourceLine>) {
        let counts = self.ends.entry(end).or_default();
        *counts.signals.entry(windows).or_default() += 1;
        if let Some(line) = line {
            counts.last_signal = Some(line.clone());
        }
    }

    /// Counts a wait on a channel of `rank`.
    pub fn wait(&mut self, end: End, windows: Windows, line: Option<&SourceLine>) {
        let counts = self.ends.entry(end).or_default();
        *counts.waits.entry(windows).or_default() += 1;
        if let Some(line) = line {
            counts.last_wait = Some(line.clone());
        }
    }

    /// The same signals and waits with other numbers of channels, which must differ as the old ones do.
    pub fn renumbered(&self, number: impl Fn(End) -> u64) -> Self {
        let ends = self.ends.iter().map(|(&end, counts)| {
            let (kind, rank, _) = end;
            ((kind, rank, number(end)), counts.clone())
        });
        Pairing { ends: ends.collect() }
    }

    /// The first channel, by type, rank and number, whose signals are not met by waits.
    #[expect(clippy::result_large_err, reason = "made at most once for a program")]
    pub fn check(&self, peers: &[Peers<'_>]) -> Result<(), Mismatch> {
        let none = Counts::default();
        for (channel_type, ranks) in peers {
            let mut numbers: HashMap<(u64, u64), Vec<u64>> = HashMap::new();
            for (rank, peers) in (0..).zip(ranks) {
                for (channel, &peer) in (0..).zip(*peers) {
                    numbers.entry((rank, peer)).or_default().push(channel);
                }
            }
            for (from, peers) in (0..).zip(ranks) {
                let mut seen: HashMap<u64, usize> = HashMap::new();
                for (from_channel, &to) in (0..).zip(*peers) {
                    let ordinal = seen.entry(to).or_default();
                    let back = numbers.get(&(to, from)).and_then(|list| list.get(*ordinal));
                    *ordinal += 1;
                    let to_channel = back.copied();
                    let here = self.ends.get(&(*channel_type, from, from_channel)).unwrap_or(&none);
                    let there = to_channel
                        .and_then(|channel| self.ends.get(&(*channel_type, to, channel)))
                        .unwrap_or(&none);
                    let mismatch = |windows: Windows, waiting: &Counts| {
                        let of =
                            |map: &BTreeMap<Windows, u64>| map.get(&windows).copied().unwrap_or(0);
                        let (signals, waits) = (of(&here.signals), of(&waiting.waits));
                        (signals != waits).then(|| Mismatch {
                            channel_type: *channel_type,
                            from,
                            from_channel,
                            to,
                            to_channel,
                            windows,
                            signals,
                            waits,
                            last_signal: here.last_signal.clone(),
                            last_wait: waiting.last_wait.clone(),
                        })
                    };
                    // Nobody can ever signal a channel that has no pair, so this end must not wait on it.
                    let unpaired = here.waits.keys().filter(|_| to_channel.is_none());
                    let all = here.signals.keys().chain(there.waits.keys());
                    let all = all.map(|&windows| (windows, there));
                    let mut all = all.chain(unpaired.map(|&windows| (windows, here)));
                    if let Some(found) =
                        all.find_map(|(windows, waiting)| mismatch(windows, waiting))
                    {
                        return Err(found);
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ChannelType::Memory;

    /// Channels `0 -> 1` twice and `1 -> 0` as often as `back` says.
    fn outcome(back: usize, count: impl Fn(&mut Pairing)) -> String {
        let mut pairing = Pairing::default();
        count(&mut pairing);
        let back = vec![0; back];
        let peers = [(Memory, vec![&[1, 1][..], &back[..]])];
        pairing.check(&peers).map_or_else(|mismatch| mismatch.to_string(), |()| "ok".to_owned())
    }

    #[test]
    fn every_channel_is_judged_by_itself() {
        let signals = |channel: u64, waits: u64| {
            outcome(2, |pairing| {
                pairing.signal((Memory, 0, channel), None, None);
                pairing.wait((Memory, 1, waits), None, None);
            })
        };
        assert_eq!(signals(0, 0), "ok");
        assert_eq!(signals(1, 1), "ok");
        let text = signals(0, 1);
        assert!(text.starts_with("Signal/Wait mismatch on memory channel 0 of rank 0"), "{text}");
        assert!(text.contains("saw 1 signals and 0 waits"), "{text}");
    }

    #[test]
    fn pipelines_count_by_iteration() {
        let windows = |signal: Windows, wait: Windows| {
            outcome(2, |pairing| {
                pairing.signal((Memory, 0, 0), signal, None);
                pairing.wait((Memory, 1, 0), wait, None);
            })
        };
        assert_eq!(windows(Some((64, 2)), Some((64, 2))), "ok");
        let text = windows(Some((64, 2)), None);
        assert!(text.contains("in pipelines of 2 chunks in windows of 64 bytes"), "{text}");
        assert!(windows(Some((64, 2)), Some((64, 1))).contains("mismatch"));
    }

    #[test]
    fn a_channel_without_a_pair_can_neither_signal_nor_wait() {
        let line = SourceLine { file: "prog.py".into(), line: 7 };
        let text = outcome(1, |pairing| pairing.signal((Memory, 0, 1), None, Some(&line)));
        assert!(text.contains("has no pair on rank 1") && text.ends_with("prog.py:7"), "{text}");
        let text = outcome(1, |pairing| pairing.wait((Memory, 0, 1), None, Some(&line)));
        assert!(
            text.contains("saw 0 signals and 1 waits") && text.ends_with("prog.py:7"),
            "{text}"
        );
        assert!(text.contains("memory channel 1 of rank 0 to rank 1, which has no pair"), "{text}");
        assert_eq!(outcome(1, |_| {}), "ok");
    }

    #[test]
    fn the_same_ordinal_pairs_whatever_the_numbers() {
        let check = |signal: u64, wait: u64| {
            let mut pairing = Pairing::default();
            pairing.signal((Memory, 0, signal), None, None);
            pairing.wait((Memory, 1, wait), None, None);
            // Channels between ranks 0 and 1 are 0 and 2 here, 1 and 2 there.
            pairing.check(&[(Memory, vec![&[1, 2, 1], &[2, 0, 0], &[0, 1]])]).is_ok()
        };
        let ok = [(0, 1), (2, 2)];
        let all = (0..3).flat_map(|signal| (0..3).map(move |wait| (signal, wait)));
        for (signal, wait) in all {
            assert_eq!(check(signal, wait), ok.contains(&(signal, wait)), "{signal} {wait}");
        }
    }

    #[test]
    fn types_are_apart_and_a_rank_may_signal_itself() {
        let check = |waits: ChannelType| {
            let mut pairing = Pairing::default();
            pairing.signal((Memory, 0, 0), None, None);
            pairing.wait((waits, 0, 0), None, None);
            pairing.check(&[(Memory, vec![&[0]]), (ChannelType::Port, vec![&[0]])]).is_ok()
        };
        assert!(check(Memory));
        assert!(!check(ChannelType::Port));
    }

    #[test]
    fn bodies_with_equal_windows_add_up() {
        let windows = Some((64, 2));
        let count = |signals: u64, waits: u64, outside: u64| {
            outcome(2, |pairing| {
                (0..signals).for_each(|_| pairing.signal((Memory, 0, 0), windows, None));
                (0..waits).for_each(|_| pairing.wait((Memory, 1, 0), windows, None));
                (0..outside).for_each(|_| pairing.wait((Memory, 1, 0), None, None));
            })
        };
        assert_eq!(count(2, 2, 0), "ok");
        assert!(count(2, 1, 0).contains("saw 2 signals and 1 waits in pipelines"));
        // As many calls, but not as many waits.
        assert!(count(2, 1, 1).contains("mismatch"));
        assert!(count(1, 1, 1).contains("saw 0 signals and 1 waits, allowed"));
    }
}
