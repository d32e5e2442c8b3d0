//! What a rank pays for each of several peers, on a machine that has no cores for them: two ranks with a core each, which have as
//! many channels, and as many chunks for each other, as each of more ranks would have.

use antiphon::calibrate;
use antiphon::plan::builder::{Block, BuildError, Channel, Chunks, ProgramBuilder};
use antiphon::plan::model::{Collective, Plan};
use antiphon::plan::program::{CallSizes, Layout};
use serde_json::{Value, json};

use super::error;
use super::fit::Call;
use crate::Result;

/// What ranks do with their peers.
const KINDS: [&str; 5] = ["signals", "packets", "gets", "puts", "reduces"];
/// Peers: those of two ranks, of four, eight and sixteen.
const PEERS: [usize; 4] = [1, 3, 7, 15];
/// Bytes for each peer: a cache line, so that what each peer costs is most of what is seen.
const CHUNK: u64 = 64;
/// Launches of each.
const LAUNCHES: usize = 20_000;

/// A time.
struct Timed {
    kind: &'static str,
    peers: usize,
    nanoseconds: u64,
}

/// Measures this machine: a twentieth of the launches were at least as fast.
///
/// # Errors
/// A plan cannot be run here.
pub fn measure() -> Result<String> {
    let mut lines = Vec::new();
    for kind in KINDS {
        for peers in PEERS {
            let plan = plan(kind, peers).map_err(error)?;
            let times = calibrate::time(&plan, sizes(), LAUNCHES);
            let times = times.map_err(error)?;
            let nanoseconds = (times.twentieth() * 1e9).round() as u64;
            lines.push(json!({"kind": kind, "peers": peers, "ns": nanoseconds}).to_string());
        }
    }
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

/// What was measured, as calls, each of which has the launch with one signal beside it.
///
/// # Errors
/// A text that [`measure`] has not written.
pub fn calls(text: &str) -> Result<Vec<Call>> {
    let unread =
        || error("cannot read what peers cost; measure with `cargo xtask defaults --fit FILE`");
    let all = read(text).ok_or_else(unread)?;
    let laid = |one: &Timed| {
        let plan = plan(one.kind, one.peers).map_err(error)?;
        let layout = Layout::new(&plan).map_err(error)?;
        Ok((layout, one.nanoseconds as f64 / 1e9))
    };
    let Some((first, others)) = all.split_first() else { return Ok(Vec::new()) };
    let call = |one: &Timed| Ok(Call::new(sizes(), vec![laid(first)?, laid(one)?]));
    others.iter().map(call).collect()
}

fn read(text: &str) -> Option<Vec<Timed>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let timed = |one: &Value| {
        let kind = KINDS.into_iter().find(|kind| one["kind"] == *kind)?;
        let (peers, nanoseconds) = (one["peers"].as_u64()? as usize, one["ns"].as_u64()?);
        Some(Timed { kind, peers, nanoseconds })
    };
    value.as_array()?.iter().map(timed).collect()
}

fn sizes() -> CallSizes {
    let bytes = PEERS[PEERS.len() - 1] as u64 * CHUNK;
    CallSizes { input: bytes, output: bytes, element: 4, strict: false }
}

/// Two ranks that each do the same with as many peers.
fn plan(kind: &str, peers: usize) -> std::result::Result<Plan, BuildError> {
    let most = PEERS[PEERS.len() - 1];
    let p = ProgramBuilder::new(format!("peers_{kind}"), Collective::Test, 2)
        .chunk_counts(most, most)
        .fuse(false);
    let channels: Vec<Channel> = (0..peers).map(|_| p.channel(0, 1)).collect();
    let blocks = [p.block(0), p.block(1)];
    let scratch = [p.scratch(0, most), p.scratch(1, most)];
    for (me, tb) in blocks.iter().enumerate() {
        let (other, output) = (1 - me, |rank: usize| p.output(rank));
        let met = |transfer: &dyn Fn(&Block<'_>)| {
            tb.signal_relaxed(&channels[..1]);
            tb.wait_relaxed(&channels[..1]);
            transfer(tb);
            tb.signal(&channels[..1]);
            tb.wait(&channels[..1]);
        };
        match kind {
            "signals" => {
                tb.signal_relaxed(&channels);
                tb.wait_relaxed(&channels);
            }
            "packets" => {
                for peer in 0..peers {
                    tb.put_packets(p.input(me).chunk(peer), scratch[other].chunk(peer));
                }
                for peer in 0..peers {
                    tb.unpack_packets(scratch[me].chunk(peer), output(me).chunk(peer));
                }
            }
            "gets" => met(&|tb| {
                for peer in 0..peers {
                    tb.get(p.input(other).chunk(peer), output(me).chunk(peer));
                }
            }),
            "puts" => met(&|tb| {
                for peer in 0..peers {
                    tb.put(p.input(me).chunk(peer), output(other).chunk(peer));
                }
            }),
            _ => met(&|tb| {
                let inputs: Vec<Chunks> =
                    (0..peers).map(|peer| p.input(other).chunk(peer)).collect();
                tb.reduce(&inputs, output(me).chunk(0));
            }),
        }
    }
    p.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::plan::program::Layout;

    #[test]
    fn every_kind_has_plans_that_run_and_a_text_that_is_read() {
        let mut lines = Vec::new();
        for kind in KINDS {
            for peers in PEERS {
                Layout::new(&plan(kind, peers).unwrap()).unwrap();
                lines.push(json!({"kind": kind, "peers": peers, "ns": 10 * peers}).to_string());
            }
        }
        let text = format!("[{}]", lines.join(","));
        assert_eq!(calls(&text).unwrap().len(), KINDS.len() * PEERS.len() - 1);
        assert_eq!(calls("[]").unwrap().len(), 0);
        for wrong in ["", "{}", r#"[{"kind": "thoughts", "peers": 1, "ns": 1}]"#] {
            assert!(calls(wrong).is_err(), "{wrong}");
        }
    }
}
