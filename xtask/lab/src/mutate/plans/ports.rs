//! Transfers by a proxy: every way of sending, signalling and waiting until the source may change again.

use super::Base;
use antiphon::plan::builder::BuildError;
use antiphon::plan::dsl::{Channel, Chunk, Misuse, On, Program, Settings, Transfer};
use antiphon::plan::model::{Buffer, ChannelType, Collective, OpKind, Plan};
use antiphon::plan::passes::DataSync;

/// How a chunk is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Put; then, after all chunks, a signal and a flush.
    Put,
    /// Put with a signal; then, after all chunks, a flush.
    PutWithSignal,
    /// Put with a signal and a flush.
    PutWithSignalAndFlush,
    /// Through one slot of scratch that the next chunk needs again.
    Slot,
    /// As packets.
    Packets,
}

pub(super) fn plans() -> Result<Vec<Base>, BuildError> {
    let mut plans = Vec::new();
    let ways = [Way::Put, Way::PutWithSignal, Way::PutWithSignalAndFlush, Way::Slot, Way::Packets];
    for way in ways {
        for (ranks, chunks) in [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2)] {
            let name = format!("port {way:?} of {ranks}, {chunks} chunks");
            if let Some(plan) = gather(way, ranks, chunks) {
                plans.push(Base { name, plan });
            }
        }
    }
    Ok(plans)
}

/// An allgather over ports; `None` if the program is refused, which a test rules out.
fn gather(way: Way, ranks: u64, chunks: u64) -> Option<Plan> {
    program(way, ranks, chunks).ok()
}

fn program(way: Way, ranks: u64, chunks: u64) -> Result<Plan, Misuse> {
    let settings = Settings::new("ports", Collective::AllGather, ranks);
    let settings = Settings { double_scratch: way == Way::Packets, ..settings };
    let mut p = Program::new(settings.chunks(chunks, ranks * chunks))?;
    let mut ends = Vec::new();
    let mut stages = Vec::new();
    for me in 0..ranks as i64 {
        let peers = (0..ranks as i64).filter(|&peer| peer != me);
        let mut of = Vec::new();
        for peer in peers {
            let channel = |p: &mut Program, kind| p.channel(kind, peer, me);
            of.push((channel(&mut p, ChannelType::Port)?, channel(&mut p, ChannelType::Memory)?));
        }
        ends.push(of);
        let slots = match way {
            Way::Slot => 1,
            // Own packets to send, then the peers' packets.
            Way::Packets => (ranks + 1) * chunks,
            _ => 0,
        };
        stages.push(p.scratch(me, slots)?);
    }
    for (me, of) in (0..ranks).zip(&ends) {
        rank(&mut p, way, me, chunks, of, &stages)?;
    }
    Ok(p.finish()?.plan)
}

fn rank(
    p: &mut Program,
    way: Way,
    me: u64,
    chunks: u64,
    ends: &[(Channel, Channel)],
    stages: &[Chunk],
) -> Result<(), Misuse> {
    let (on, meet, rank) = (On::block(0), DataSync::BOTH, me as i64);
    let part = |rank: u64, chunk: u64| rank * chunks + chunk..rank * chunks + chunk + 1;
    let input = |p: &Program, chunk| p.chunk(me, Buffer::Input, chunk..chunk + 1);
    let slot = |of: &Chunk, at: u64| Chunk { index: of.index + at, size: 1, ..*of };
    // Packets wait for each other; outputs of peers that have not begun yet may not be written.
    let packets = way == Way::Packets;
    if !packets {
        for &(_, end) in ends {
            p.signal(end, on, meet, true)?;
        }
        for &(_, end) in ends {
            p.wait(end, on, meet, true)?;
        }
    }
    for chunk in 0..chunks {
        let (from, own) = (input(p, chunk)?, p.chunk(me, Buffer::Output, part(me, chunk))?);
        p.copy(OpKind::Copy, rank, own, from, on)?;
        let from = match way {
            Way::Slot => slot(&stages[me as usize], 0),
            Way::Packets => slot(&stages[me as usize], chunk),
            _ => from,
        };
        match way {
            Way::Slot => p.copy(OpKind::Copy, rank, from, input(p, chunk)?, on)?,
            Way::Packets => p.copy(OpKind::CopyPackets, rank, from, input(p, chunk)?, on)?,
            _ => {}
        }
        for &(port, _) in ends {
            let peer = port.destination;
            let (what, to) = match way {
                Way::Packets => {
                    let to = slot(&stages[peer as usize], (me + 1) * chunks + chunk);
                    (Transfer::PutPackets, to)
                }
                Way::PutWithSignal => {
                    (Transfer::PutWithSignal, p.chunk(peer, Buffer::Output, part(me, chunk))?)
                }
                Way::PutWithSignalAndFlush => (
                    Transfer::PutWithSignalAndFlush,
                    p.chunk(peer, Buffer::Output, part(me, chunk))?,
                ),
                Way::Put | Way::Slot => {
                    (Transfer::Put, p.chunk(peer, Buffer::Output, part(me, chunk))?)
                }
            };
            p.transfer(what, port, to, from, on)?;
        }
        if way == Way::Slot {
            for &(port, _) in ends {
                p.flush(port, on, meet)?;
            }
        }
    }
    let signals = match way {
        Way::Put | Way::Slot => 1,
        Way::PutWithSignal | Way::PutWithSignalAndFlush => chunks,
        Way::Packets => 0,
    };
    for &(port, _) in ends {
        if matches!(way, Way::Put | Way::Slot) {
            p.signal(port, on, meet, false)?;
        }
        if matches!(way, Way::Put | Way::PutWithSignal) {
            p.flush(port, on, meet)?;
        }
    }
    for &(port, _) in ends {
        for _ in 0..signals {
            p.wait(port, on, meet, false)?;
        }
        if packets {
            for chunk in 0..chunks {
                let peer = port.destination;
                let from = slot(&stages[me as usize], (peer + 1) * chunks + chunk);
                let to = p.chunk(me, Buffer::Output, part(peer, chunk))?;
                p.copy(OpKind::UnpackPackets, rank, to, from, on)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_makes_a_plan() {
        for way in
            [Way::Put, Way::PutWithSignal, Way::PutWithSignalAndFlush, Way::Slot, Way::Packets]
        {
            program(way, 3, 2).unwrap_or_else(|refused| panic!("{way:?}: {refused}"));
        }
    }
}
