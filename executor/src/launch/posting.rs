//! A launch's transfers over port channels: whose regions they lie in, and over which links they go.

use super::*;
use crate::context::{Far, Written};
use crate::host::posts::{Posting, Spot};
use crate::shared::arena::ArenaShape;
use antiphon_hal::Memory;
use antiphon_plan::program::Area;
use antiphon_port::{Attended, Driving, Posted, Unit, WireError, Write};
use std::cell::OnceCell;

/// Posts what blocks of one rank ask of port channels in one launch.
pub(super) struct Poster<'a> {
    pub(super) launch: &'a Launch<'a>,
    pub(super) far: &'a mut [Option<Far>],
    /// The rank's own arena: where in it things are, and its memory.
    pub(super) own: (ArenaShape, Arc<dyn Memory>),
    /// The rank's own input and output.
    pub(super) buffers: [RegionAt; 2],
    /// Something was posted.
    pub(super) spoke: bool,
}

impl Poster<'_> {
    /// Scratch alternates with the context's launches where the plan says so.
    fn parity(&self) -> u64 {
        let double = self.launch.context.plan.layout().double_scratch;
        if double { self.launch.order.count & 1 } else { 0 }
    }

    fn in_arena(&self, shape: &ArenaShape, area: Area, offset: u64) -> u64 {
        let start = match area {
            Area::Packets => shape.packets(self.parity()),
            _ => shape.raw(self.parity()),
        };
        start + offset
    }

    fn link(&self, peer: u32) -> Result<&Arc<Attended>, Unready> {
        let link = self.launch.shared.ports.link(peer).map_err(|error| failed(peer, &error))?;
        link.ok_or(Unready::Blocked(Blocked::Link(peer)))
    }

    /// Where a peer's arena is; known from the first launch of the context that it was seen to enter.
    fn arena(&mut self, peer: u32) -> Result<(u64, ArenaShape), Unready> {
        if let Some(Far { arena, shape, .. }) = &self.far[peer as usize] {
            return Ok((*arena, *shape));
        }
        let record = self.record(peer)?;
        let shape = self.launch.context.shape_of(peer);
        let shape = shape.ok_or(Fault::Outside(peer))?;
        if !self.knows(peer, record.arena) {
            return Err(Blocked::Mapping(peer).into());
        }
        let (arena, buffers, written, unread) = (record.arena, None, Written::default(), 0);
        self.far[peer as usize] = Some(Far { arena, shape, buffers, written, unread });
        Ok((arena, shape))
    }

    /// Whether the link to a peer can write to a region of it.
    fn knows(&self, peer: u32, region: u64) -> bool {
        let shared = self.launch.shared;
        if peer == shared.rank {
            shared.ports.own(region).is_some()
        } else if shared.ports.is_mirrored(peer) {
            shared.ports.knows(peer, region)
        } else {
            shared.regions.memory.region(peer, region).is_some()
        }
    }

    fn record(&self, peer: u32) -> Result<LaunchRecord, Unready> {
        let record = self.launch.entered(peer)?;
        record.ok_or(Unready::Blocked(Blocked::Entry(peer)))
    }

    /// Where a peer's input or output is in this launch.
    fn buffer(&mut self, peer: u32, output: bool) -> Result<RegionAt, Unready> {
        self.arena(peer)?;
        let seq = self.launch.order.seq;
        let known = self.far[peer as usize].as_ref().and_then(|far| far.buffers);
        if let Some((launch, seats)) = known.filter(|(launch, _)| *launch == seq) {
            debug_assert_eq!(launch, seq);
            return Ok(seats[usize::from(output)]);
        }
        let record = self.record(peer)?;
        let sides = [(record.input, record.bytes.0), (record.output, record.bytes.1)];
        let uses = self.launch.context.plan.uses(peer);
        let posted = [uses.input.posted, uses.output.posted];
        for ((RegionAt { region, .. }, bytes), posted) in sides.into_iter().zip(posted) {
            if posted && bytes > 0 && !self.knows(peer, region) {
                return Err(Blocked::Mapping(peer).into());
            }
        }
        if let Some(far) = &mut self.far[peer as usize] {
            far.buffers = Some((seq, [record.input, record.output]));
        }
        Ok([record.input, record.output][usize::from(output)])
    }
}

impl Posting for Poster<'_> {
    fn write(&mut self, from: Spot, to: Spot, bytes: u64) -> Result<bool, Unready> {
        let shared = self.launch.shared;
        let (source, from) = match from.area {
            Area::Input | Area::Output => {
                let RegionAt { region, offset } =
                    self.buffers[usize::from(from.area == Area::Output)];
                let unknown = Unready::Failed(Fault::Unannounced(region));
                (shared.ports.own(region).ok_or(unknown)?, offset + from.offset)
            }
            area => (Arc::clone(&self.own.1), self.in_arena(&self.own.0, area, from.offset)),
        };
        let (region, at) = match to.area {
            Area::Input | Area::Output => {
                let RegionAt { region, offset } = self.buffer(to.rank, to.area == Area::Output)?;
                // What a peer says is checked by the link, which knows the region.
                (region, offset.saturating_add(to.offset))
            }
            area => {
                let (region, shape) = self.arena(to.rank)?;
                (region, self.in_arena(&shape, area, to.offset))
            }
        };
        let range = (region, at, at.saturating_add(bytes));
        let seq = self.launch.order.seq;
        let loose = self.launch.context.plan.recut().is_loose();
        let far = self.far[to.rank as usize].as_mut();
        let earlier = far.and_then(|far| far.written.before(seq, loose, range));
        if let Some(posted) = earlier
            && !self.landed(to.rank, posted)?
        {
            return Ok(false);
        }
        let unit = if to.area == Area::Packets { Unit::Packets } else { Unit::Bytes };
        let write = Write { source: &source, from, region, to: at, bytes, unit };
        let link = self.link(to.rank)?.link();
        let done = queued(to.rank, link.write(&write))?;
        // Others may post to the link too: then this waits for more than it must.
        let posted = link.posted();
        if let Some(far) = self.far[to.rank as usize].as_mut().filter(|_| done) {
            far.written.note(range, posted);
            far.unread = posted;
        }
        self.spoke |= done;
        Ok(done)
    }

    fn signal(&mut self, peer: u32, paired: u32, value: u64) -> Result<bool, Unready> {
        let (region, shape) = self.arena(peer)?;
        let at = shape.inbound(paired);
        let done = queued(peer, self.link(peer)?.link().signal(region, at, value))?;
        self.spoke |= done;
        Ok(done)
    }

    fn posted(&mut self, peer: u32) -> Result<u64, Unready> {
        Ok(self.link(peer)?.link().posted())
    }

    fn landed(&mut self, peer: u32, posted: u64) -> Result<bool, Unready> {
        let completed = self.link(peer)?.link().completed();
        let completed = completed.map_err(|error| lost(peer, &error))?;
        if let Some(far) = self.far[peer as usize].as_mut().filter(|far| far.unread <= completed) {
            far.unread = 0;
        }
        Ok(completed >= posted)
    }
}

/// A peer to which something is under way that still reads the buffers of this rank's caller, or scratch, which the next launch may cut
/// otherwise. Plans that flush leave none, and then this asks no link.
pub(super) fn unread(launch: &Launch<'_>, state: &mut ContextState) -> Option<u32> {
    let shared = launch.shared;
    let peers = &launch.context.plan.uses(shared.rank).port_peers;
    peers.iter().copied().find(|&peer| {
        let Some(far) = state.far[peer as usize].as_mut().filter(|far| far.unread > 0) else {
            return false;
        };
        if let Ok(Some(link)) = shared.ports.link(peer) {
            match link.link().released() {
                Ok(released) if released < far.unread => return true,
                Ok(_) => {}
                // What a lost link has not sent it never will; and reads no more, once it is stopped.
                Err(_) => link.link().stop(),
            }
        }
        far.unread = 0;
        false
    })
}

fn queued(peer: u32, posted: Result<Posted, WireError>) -> Result<bool, Unready> {
    posted.map(|posted| posted == Posted::Queued).map_err(|error| lost(peer, &error))
}

/// That a link is lost its driver finds out as well, and the launch fails if it waits for the link.
fn lost(peer: u32, error: &WireError) -> Unready {
    match error {
        WireError::Lost { .. } => Unready::Blocked(Blocked::Link(peer)),
        error => Unready::Failed(Fault::Link(peer, error.reason())),
    }
}

fn failed(peer: u32, error: &ExecutorError) -> Unready {
    let reason = match error {
        ExecutorError::Link { reason, .. } => reason.clone(),
        other => other.to_string(),
    };
    Unready::Failed(Fault::Link(peer, reason))
}

/// The links of a launch, which this thread makes progress on from [`hold`](Links::hold) on; until then the process's proxy does.
pub(super) struct Links<'a> {
    launch: Launch<'a>,
    held: OnceCell<Vec<Taken<'a>>>,
}

/// A link, while this thread makes progress on it.
type Taken<'a> = (&'a Arc<Attended>, Driving<'a>);

impl<'a> Links<'a> {
    pub(super) fn new(launch: &Launch<'a>) -> Self {
        Links { launch: *launch, held: OnceCell::new() }
    }

    /// Takes over those of the plan's links that stand.
    pub(super) fn hold(&self) -> &[Taken<'a>] {
        self.held.get_or_init(|| {
            let shared: &'a Shared = self.launch.shared;
            let peers = &self.launch.context.plan.uses(shared.rank).port_peers;
            let links = peers.iter().filter_map(|&peer| shared.ports.link(peer).ok().flatten());
            links.map(|link| (link, link.drive())).collect()
        })
    }

    /// Sends and receives what can be; whether anything moved. That a link is lost shows where it is needed.
    pub(super) fn progress(&self) -> bool {
        let moved = |(link, _): &Taken<'_>| link.progress().unwrap_or(false);
        self.hold().iter().fold(false, |any, link| moved(link) | any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::{Call, Executor};
    use crate::launch::tests::{on_two_hosts, put_over_a_port};

    /// Wires keep no order among writes.
    #[test]
    fn a_write_to_bytes_that_are_under_way_waits_until_they_have_landed() {
        let plan = put_over_a_port([0, 1]);
        // Of two hosts, so that what is posted is under way for as long as nobody drives the link.
        let ranks = on_two_hosts();
        let (input, mut output) = ([7u32; 16], [0u32; 16]);
        let launches = [0, 1].map(|rank| {
            let executor = Executor::new(&ranks[rank]);
            let plan = executor.load(&plan).unwrap();
            let (from, to) = ((input.as_ptr().cast(), 64), (output.as_mut_ptr().cast(), 64));
            executor.queued(&Call::new(&plan, DataType::U32, from, to), Some(1)).unwrap()
        });
        let [launch, peer] = &launches;
        let own = launch.borrowed();
        let mut state = launch.context.state();
        while own.begin(&mut state).unwrap().is_some() {
            assert!(!peer.advance(Effort::Try).unwrap());
        }
        let links = Links::new(&own);
        let seats = own.seats(&state, 0).unwrap();
        let ContextState { far, .. } = &mut *state;
        let mut poster = Poster { launch: &own, far, own: seats.0, buffers: seats.1, spoke: false };
        let spot = |rank, area, offset| Spot { rank, area, offset };
        let mut write =
            |from, to| poster.write(spot(0, Area::Input, from), spot(1, Area::Output, to), 32);
        while write(0, 0) != Ok(true) {
            assert!(!peer.advance(Effort::Try).unwrap());
            links.progress();
        }
        assert_eq!(write(0, 32), Ok(true), "it touches none of the same bytes");
        for to in [0, 16, 32] {
            assert_eq!(write(16, to), Ok(false), "{to}");
        }
        let link = own.shared.ports.link(1).unwrap().unwrap().link();
        while link.completed().unwrap() < link.posted() {
            peer.advance(Effort::Try).unwrap();
            links.progress();
        }
        assert_eq!(write(16, 16), Ok(true));
    }

    /// Their peers would count them as lost otherwise, after some seconds: of much, a copy in one piece takes longer.
    #[test]
    fn links_are_the_proxys_while_a_large_launch_copies_what_is_staged() {
        let plan = put_over_a_port([0, 1]);
        for bytes in [64, PART] {
            let ranks = on_two_hosts();
            let (input, mut output) = (vec![7u8; bytes as usize], vec![0u8; bytes as usize]);
            let to = output.as_mut_ptr();
            let [sends, receives] = [0, 1].map(|rank| {
                let executor = Executor::new(&ranks[rank]);
                let plan = executor.load(&plan).unwrap();
                let (from, to) = ((input.as_ptr(), bytes), (to, bytes));
                let call = Call::new(&plan, DataType::U8, from, to);
                [(); 2].map(|()| executor.queued(&call, Some(1)).unwrap())
            });
            let behind = sends[1].borrowed();
            let links = Links::new(&behind);
            let mut state = sends[1].context.state();
            let early = behind.work_with(&mut state, Effort::Try, &links);
            assert!(matches!(early, Ok(Polled::Queued)), "it is the first one's turn");
            assert_eq!(links.held.get().is_some(), bytes < PART, "{bytes}");
            drop((links, state));
            let received = receives[0].borrowed();
            loop {
                let links = Links::new(&received);
                let mut state = receives[0].context.state();
                if let Polled::Complete =
                    received.work_with(&mut state, Effort::Try, &links).unwrap()
                {
                    assert!(links.held.get().is_some_and(|held| held.len() == 1));
                    break;
                }
                drop((links, state));
                sends[0].advance(Effort::Try).unwrap();
            }
            // SAFETY: both are as long as this, and no launch is worked on.
            let came = || unsafe { std::slice::from_raw_parts(to, bytes as usize) } == input;
            assert!(!came(), "what is staged is copied at the end, without those links");
            while !receives[0].advance(Effort::Try).unwrap() {}
            assert!(came());
        }
    }
}
