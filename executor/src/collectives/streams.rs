//! Streams of a group: those of one device come together before the group and behind it, so that it is as if every call were on
//! each of them.

use super::argument;
use super::group::Gathered;
use crate::error::ExecutorError;
use antiphon_hal::{Backend, Device, Event, Stream};
use std::sync::Arc;

/// The streams that a group has on one device, which are several, and an event for each.
pub(super) struct Streams(Vec<(Arc<dyn Stream>, Arc<dyn Event>)>);

/// A device, and streams on it, each once.
struct OnDevice<'a> {
    device: &'a dyn Device,
    streams: Vec<&'a Arc<dyn Stream>>,
}

impl OnDevice<'_> {
    fn place(&self) -> (Backend, u32) {
        (self.device.backend(), self.device.index())
    }
}

impl Streams {
    /// Those of each device on which calls have several.
    ///
    /// # Errors
    /// Some streams of a device are recorded into a graph, and some are not.
    pub fn of(calls: &[Gathered]) -> Result<Vec<Self>, ExecutorError> {
        let mut devices: Vec<OnDevice<'_>> = Vec::new();
        for Gathered { on, stream, .. } in calls {
            let (device, Some(stream)) = (on.communicator().device(), stream) else { continue };
            let place = (device.backend(), device.index());
            let known = devices.iter_mut().find(|known| known.place() == place);
            match known {
                None => devices.push(OnDevice { device: &**device, streams: vec![stream] }),
                Some(known) if known.streams.iter().all(|one| one.id() != stream.id()) => {
                    known.streams.push(stream);
                }
                Some(_) => {}
            }
        }
        devices.retain(|one| one.streams.len() > 1);
        devices.iter().map(Streams::on).collect()
    }

    fn on(one: &OnDevice<'_>) -> Result<Self, ExecutorError> {
        let OnDevice { device, streams } = one;
        let mut recorded = 0;
        let mut all = Vec::with_capacity(streams.len());
        for &stream in streams {
            recorded += usize::from(stream.is_capturing()?);
            all.push((Arc::clone(stream), device.event()?));
        }
        if recorded != 0 && recorded != all.len() {
            let saw = format!("{recorded} of {} streams recorded into a graph", all.len());
            let allowed = "all streams of a device or none; let the others wait for an event of one that is recorded first";
            return Err(argument("launch a group", saw, allowed));
        }
        Ok(Streams(all))
    }

    /// Lets each wait for what is in all of them.
    pub fn meet(&self) -> Result<(), ExecutorError> {
        let Some(((first, behind), others)) = self.0.split_first() else { return Ok(()) };
        for (stream, event) in others {
            stream.record(&**event)?;
            first.wait(&**event)?;
        }
        first.record(&**behind)?;
        others.iter().try_for_each(|(stream, _)| Ok(stream.wait(&**behind)?))
    }
}
