//! The lists by which kernels find multicasts, and when nobody reads an old one any more.

use super::Part;
use super::message::Key;
use crate::error::ExecutorError;
use crate::gpu::Gpu;
use crate::gpu::context::Context;
use antiphon_hal::Memory;
use antiphon_plan::program::Area;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The lists of a rank's switch channels, in the device's memory.
#[derive(Debug, Default)]
pub struct Lists {
    current: HashMap<Key, Arc<dyn Memory>>,
    /// What launches that have begun may still read.
    old: Vec<(Over, Arc<dyn Memory>)>,
}

/// Tells when all launches of a context that may have read something are over, once launches that begin do not.
#[derive(Debug)]
pub struct Over {
    context: Weak<Context>,
    since: Instant,
    /// The last launch that may have read it.
    last: Option<u64>,
}

/// How long a launch that reads a list may take until its number is there: each block reads it for itself, and the first
/// one stores the number.
const BEGINS: Duration = Duration::from_millis(20);

impl Over {
    /// For launches of `context` that have begun.
    pub fn new(context: &Arc<Context>) -> Self {
        Over { context: Arc::downgrade(context), since: Instant::now(), last: None }
    }

    /// Whether they are over.
    pub fn look(&mut self) -> bool {
        let Some(context) = self.context.upgrade() else { return true };
        if self.since.elapsed() < BEGINS {
            return false;
        }
        let marks = context.marks();
        marks.ended >= *self.last.get_or_insert(marks.begun)
    }
}

impl Lists {
    /// Shows kernels the multicasts of a part: the address of each, and the regions that are bound to it.
    pub fn publish(
        &mut self,
        gpu: &Gpu,
        context: &Arc<Context>,
        part: &Part,
        groups: &[(u64, &[u64])],
    ) -> Result<(), ExecutorError> {
        let list = if groups.is_empty() {
            None
        } else {
            let bytes: Vec<u8> =
                words(part, groups).into_iter().flat_map(u64::to_le_bytes).collect();
            let made = gpu.upload.new_memory(&gpu.pool, &bytes);
            made.inspect_err(|error| {
                log::info!("switch channels go to each member by itself: {error}");
            })
            .ok()
        };
        let address = list.as_ref().map_or(0, |list| list.address().expose_provenance() as u64);
        for &channel in &part.channels {
            context.show_groups(channel, address);
        }
        let before = match list {
            Some(list) => self.current.insert(part.key, list),
            None => self.current.remove(&part.key),
        };
        self.old.extend(before.map(|before| (Over::new(context), before)));
        Ok(())
    }

    /// Takes out what nobody reads any more.
    pub fn unread(&mut self) -> Vec<Arc<dyn Memory>> {
        self.old.extract_if(.., |(over, _)| over.look()).map(|(_, memory)| memory).collect()
    }
}

/// A list as kernels read it (`antiphon_codegen::abi::GROUPS_HEAD`).
fn words(part: &Part, groups: &[(u64, &[u64])]) -> Vec<u64> {
    let area = match part.area {
        Area::Input => 0,
        Area::Output => 1,
        _ => 2,
    };
    let mut words = vec![groups.len() as u64, part.members.len() as u64, area];
    words.extend(part.members.iter().copied().map(u64::from));
    for (address, regions) in groups {
        words.push(address + part.start);
        words.extend_from_slice(regions);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_as_kernels_read_it() {
        let part = Part {
            key: Key { context: 1, channel: 0 },
            members: vec![2, 0],
            area: Area::Output,
            channels: vec![0],
            start: 0,
            told: std::sync::Mutex::default(),
        };
        let words = words(&part, &[(0x1000, &[7, 8]), (0x2000, &[9, 8])]);
        assert_eq!(words[..3], [2, 2, 1]);
        let head = antiphon_codegen::abi::GROUPS_HEAD as usize;
        assert_eq!(words[head..], [2, 0, 0x1000, 7, 8, 0x2000, 9, 8]);
        let scratch = Part { area: Area::Scratch, start: 64, ..part };
        assert_eq!(super::words(&scratch, &[(0x1000, &[7, 8])])[head + 2], 0x1040);
    }
}
