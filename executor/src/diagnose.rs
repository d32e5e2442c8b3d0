//! Who waits for whom, in words: for the errors of launches that cannot finish.
//!
//! Cursors lie in memory that all ranks of a node map, so whoever reports can say where each of them stands. Of ranks of other
//! nodes it is known which launches they have entered, as far as a plan connects them, and completed.

use crate::context::ContextState;
use crate::error::{ExecutorError, SAME_CALLS, Wait, Waits, standstill};
use crate::host::Blocked;
use crate::launch::Launch;
use crate::shared::arena::Arena;
use crate::shared::control::{CallType, LaunchRecord, RING};
use crate::uses::Uses;
use antiphon_plan::program::{Area, Instruction, RankLayout, RuntimeBlock};
use antiphon_types::{DataType, ReduceOp};
use std::sync::atomic::Ordering;

/// A call in words.
pub fn call(record: &LaunchRecord) -> String {
    named(&record.plan_name(), record.bytes, record.call_type)
}

/// A peer's call in words, which are others than those of this rank's call, from which it differs.
pub fn other_call(own: &str, theirs: &LaunchRecord) -> String {
    let theirs = call(theirs);
    if theirs != own {
        return theirs;
    }
    format!(
        "{theirs} with another root, on another stream or without one, in place or not, or by another plan of the name"
    )
}

/// The same of a call whose whole name is known.
pub fn named(name: &str, (input, output): (u64, u64), call_type: CallType) -> String {
    let dtype = DataType::ALL.get(usize::from(call_type.dtype)).map_or("?", |dtype| dtype.name());
    let op = match call_type.op {
        0 => String::new(),
        code => ReduceOp::ALL
            .get(usize::from(code) - 1)
            .map_or_else(|| " ?".to_owned(), |op| format!(" {op}")),
    };
    format!("plan `{name}` ({input} bytes in, {output} bytes out, {dtype}{op})")
}

/// The waits of the launch's own rank.
pub fn own_waits(launch: &Launch<'_>, state: &ContextState) -> Waits {
    let mut waits = Vec::new();
    of_rank(launch, state, launch.shared.rank, &mut waits);
    Waits(waits)
}

/// What is said of a launch that has made no progress for long, and is waited for all the same.
pub fn goes_on(stalled: &ExecutorError) -> String {
    let said = match stalled {
        ExecutorError::Stalled { rank, seq, call, limit, waits } => {
            format!("{}; {SAME_CALLS}", standstill((rank, seq), call, limit, waits))
        }
        other => other.to_string(),
    };
    format!("{said}; it goes on waiting")
}

/// The waits of all ranks, this one first; ranks that have not entered the launch are said to be absent. `blocked` is what
/// the launch itself waits for.
pub fn all_waits(launch: &Launch<'_>, state: &ContextState, blocked: Blocked) -> Waits {
    let shared = launch.shared;
    let mut waits = own_waits(launch, state).0;
    let linked = &launch.context.plan.uses(shared.rank).port_peers;
    for &peer in linked.iter().filter(|&&peer| matches!(shared.ports.link(peer), Ok(None))) {
        waits.push(of_launch(launch, format!("(the link to rank {peer} does not stand yet)")));
    }
    waits.extend(around(launch, blocked).map(|what| of_launch(launch, what)));
    // Ranks of other nodes show their launches to those that the plan connects with them only.
    let shows = |peer: u32| {
        let near = shared.peers[peer as usize].same_node;
        near || (linked.contains(&peer) && shared.sees(peer))
    };
    for peer in (0..shared.world).filter(|&peer| peer != shared.rank && shows(peer)) {
        if shared.control(peer).entered(launch.order.seq) {
            of_rank(launch, state, peer, &mut waits);
        } else {
            let completed = shared.control(peer).completed.0.load(Ordering::Relaxed);
            if completed < launch.order.seq {
                waits.push(Wait {
                    rank: peer,
                    block: 0,
                    op: "no op".to_owned(),
                    what: format!(
                        "(it has not entered launch {}; its last complete launch is {completed})",
                        launch.order.seq
                    ),
                });
            }
        }
    }
    Waits(waits)
}

/// A wait of the reporting rank's that is none of its blocks'.
fn of_launch(launch: &Launch<'_>, what: String) -> Wait {
    Wait { rank: launch.shared.rank, block: 0, op: "no op".to_owned(), what }
}

/// What a launch waits for before its blocks, or after them.
fn around(launch: &Launch<'_>, blocked: Blocked) -> Option<String> {
    let (shared, seq) = (launch.shared, launch.order.seq);
    match blocked {
        Blocked::Turn => {
            Some("(an earlier launch of the plan on its stream is not over)".to_owned())
        }
        Blocked::Held => Some("(another rank is at a block of this rank's last launch)".to_owned()),
        Blocked::Behind(peer) => {
            let completed = shared.control(peer).completed.0.load(Ordering::Relaxed);
            Some(format!(
                "(rank {peer} must come further before this launch may begin; its last complete launch is {completed})"
            ))
        }
        Blocked::Descriptor(peer) => Some(format!(
            "(rank {peer} has not yet been sent the descriptor of launch {})",
            seq.saturating_sub(RING)
        )),
        Blocked::Untold(peer) => {
            Some(format!("(the link to rank {peer} has no room for the launch's descriptor)"))
        }
        Blocked::Writer(peer) => {
            Some(format!("(rank {peer} may still use the buffers, and is not through)"))
        }
        Blocked::Unread(peer) => {
            Some(format!("(what it sends to rank {peer} is still being read)"))
        }
        Blocked::GivenUp(peer) => Some(format!(
            "(rank {peer} has given this launch up, and has not said why: see its error)"
        )),
        // Of these the blocks that wait are told.
        _ => None,
    }
}

fn of_rank(launch: &Launch<'_>, state: &ContextState, rank: u32, waits: &mut Vec<Wait>) {
    let layout = launch.context.plan.layout();
    let Some(arena) = &state.arenas[rank as usize] else { return };
    let own = &layout.ranks[rank as usize];
    for (block, code) in (0..).zip(&own.blocks) {
        let cursor = arena.cursor(block);
        let at = code.code.start + cursor.pc.load(Ordering::Relaxed);
        if cursor.done.load(Ordering::Relaxed) != 0 || at >= code.code.end {
            continue;
        }
        let origin = own.origins[at as usize];
        let inner = origin.inner.map_or_else(String::new, |inner| format!(", inner op {inner}"));
        let what = describe(launch, rank, own, arena, &own.instructions[at as usize]);
        waits.push(Wait {
            rank,
            block,
            op: format!("op {}{inner} ({})", origin.op, origin.kind),
            what,
        });
    }
}

fn describe(
    launch: &Launch<'_>,
    rank: u32,
    own: &RankLayout,
    arena: &Arena,
    instruction: &Instruction,
) -> String {
    let uses = launch.context.plan.uses(rank);
    match *instruction {
        Instruction::Wait { channel, .. } => {
            let seen = arena.inbound(channel).load(Ordering::Relaxed);
            let expected = arena.channel(channel).expected.load(Ordering::Relaxed);
            format!("{} ({seen} of {expected} came)", wanted(own, uses, instruction))
        }
        Instruction::Signal { channel, .. } => {
            let peer = own.channels[channel as usize].peer;
            let (kind, id) = own.channel_id(channel);
            format!("on {kind} channel {id} for {}", entry(launch, peer))
        }
        Instruction::Post { channel, .. } => {
            let peer = own.channels[channel as usize].peer;
            let (kind, id) = own.channel_id(channel);
            format!("on {kind} channel {id} for {}", entry(launch, peer))
        }
        Instruction::Flush { channel } => landing(own, channel),
        Instruction::Acquire { semaphore } => {
            let value = arena.semaphore(semaphore).load(Ordering::Relaxed);
            format!("{} (value {value})", wanted(own, uses, instruction))
        }
        Instruction::Barrier { barrier, blocks } => {
            let arrived = arena.barrier(barrier).load(Ordering::Relaxed) % u64::from(blocks);
            format!("{} ({arrived} arrived)", wanted(own, uses, instruction))
        }
        Instruction::Move { sources, destinations, .. } => {
            let sides = sources.range().chain(destinations.range());
            let absent = sides.map(|side| own.accesses[side].rank).find(|&peer| {
                peer != rank && !launch.shared.control(peer).entered(launch.order.seq)
            });
            let packets =
                own.accesses[sources.range()].iter().any(|access| access.area == Area::Packets);
            match absent {
                Some(peer) => format!("for rank {peer} to enter the launch"),
                None if packets => wanted(own, uses, instruction),
                None => "for peers' memory to be mapped".to_owned(),
            }
        }
        Instruction::MoveBlock { index } => {
            let moved = own.block_moves[index as usize];
            let sides = [moved.source.rank, moved.destination.rank];
            let absent = sides.into_iter().find(|&peer| {
                peer != rank && !launch.shared.control(peer).entered(launch.order.seq)
            });
            match absent {
                Some(peer) => format!("for rank {peer} to enter the launch"),
                None => "for peers' memory to be mapped".to_owned(),
            }
        }
        _ => "(running)".to_owned(),
    }
}

/// A runtime block, as callers know it.
pub fn runtime_block(block: RuntimeBlock) -> String {
    format!("{} block {}", if block.output { "receive" } else { "send" }, block.index)
}

/// What an instruction waits for that peers or other blocks give, whatever the engine.
pub fn wanted(own: &RankLayout, uses: &Uses, instruction: &Instruction) -> String {
    match *instruction {
        Instruction::Wait { channel, .. } => {
            let peer = own.channels[channel as usize].peer;
            let (kind, id) = own.channel_id(channel);
            format!("on {kind} channel {id} for a signal from rank {peer}")
        }
        Instruction::Flush { channel } => landing(own, channel),
        Instruction::Post { channel, .. } | Instruction::Signal { channel, .. } => {
            let peer = own.channels[channel as usize].peer;
            let (kind, id) = own.channel_id(channel);
            format!("on {kind} channel {id} for room for requests to rank {peer}")
        }
        Instruction::Acquire { semaphore } => format!("for semaphore {semaphore} of its own rank"),
        Instruction::Barrier { barrier, blocks } => {
            format!("for {blocks} blocks of its own rank at barrier {barrier}")
        }
        Instruction::Move { .. } => {
            let names: Vec<String> = uses.packet_writers.iter().map(u32::to_string).collect();
            match names.len() {
                0 => "for packets that no rank writes".to_owned(),
                1 => format!("for packets from rank {}", names[0]),
                _ => format!("for packets from ranks {}", names.join(", ")),
            }
        }
        _ => "(running)".to_owned(),
    }
}

/// What was posted to a channel is waited for.
pub fn landing(own: &RankLayout, channel: u32) -> String {
    let peer = own.channels[channel as usize].peer;
    let (kind, id) = own.channel_id(channel);
    format!("on {kind} channel {id} for its transfers to reach rank {peer}")
}

/// What a transfer to a peer may wait for.
fn entry(launch: &Launch<'_>, peer: u32) -> String {
    if launch.shared.control(peer).entered(launch.order.seq) {
        format!("room in the link to rank {peer}, or its memory to be known there")
    } else {
        format!("rank {peer} to enter the launch")
    }
}

#[cfg(test)]
mod tests;
