//! Operations over port channels: transfers are posted to proxies.

use super::error::LowerError;
use super::layout::{Context, RankLowering, Side, Sides};
use crate::model::{Op, OpKind};
use crate::program::Instruction;

impl RankLowering {
    /// Lowers an operation whose transfers go through port channels, one a pair of references.
    pub(super) fn posts(&mut self, context: &Context<'_>) -> Result<(), LowerError> {
        let Op { kind, src, dst, channel_ids, .. } = context.op;
        let packets = matches!(kind, OpKind::PutPackets | OpKind::ReadPutPackets);
        let one_source = *kind == OpKind::ReadPutPackets && src.len() == 1;
        let paired = one_source || src.len() == dst.len();
        context.arity(
            paired && !dst.is_empty() && channel_ids.len() == dst.len(),
            "as many of one as of the other, and as many channels",
        )?;
        if *kind == OpKind::ReadPutPackets {
            // Every thread waits for its packets; one of them posts, so that all must have met.
            for chunk in src {
                self.movement(context, [Side { chunk, packets }], [])?;
            }
            self.push(context, Instruction::BlockSync);
        }
        let signals = matches!(kind, OpKind::PutWithSignal | OpKind::PutWithSignalAndFlush);
        for (position, (destination, &id)) in dst.iter().zip(channel_ids).enumerate() {
            let channel = context.channel(id)?;
            let source = &src[if one_source { 0 } else { position }];
            let sides = [source, destination].map(|chunk| Side { chunk, packets });
            let Sides { sources, destinations, index, .. } =
                self.sides(context, [sides[0]], [sides[1]])?;
            if sources.len() != 1 || destinations.len() != 1 {
                return Err(context.malformed("saw chunks of a switch channel, allowed a port"));
            }
            let (source, destination) = (sources.start, destinations.start);
            self.push(context, Instruction::Post { channel, source, destination, index });
            if signals {
                self.signal(context, channel, true);
            }
        }
        if *kind == OpKind::PutWithSignalAndFlush {
            for &id in channel_ids {
                let channel = context.channel(id)?;
                self.push(context, Instruction::Flush { channel });
            }
        }
        Ok(())
    }
}
