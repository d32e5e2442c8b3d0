//! The first half of a link: queue pairs on every port, which do not know their peers yet.

use super::{Lane, PATIENCE, PROBE, RECEIVES, RdmaLink, Standing, State};
use crate::address::{LaneAddress, decode_link, encode_link};
use crate::choose::share;
use crate::flow::Flow;
use crate::verbs::{Alarm, Completions, Path, Queue, refused_by};
use crate::wire::{End, invalid};
use antiphon_port::{Link, Opening, WireError};
use rustix::event::epoll;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Instant;

#[derive(Debug)]
pub(crate) struct RdmaOpening {
    peer: u32,
    lanes: Vec<Half>,
    alarm: Arc<Alarm>,
    end: Arc<End>,
}

#[derive(Debug)]
struct Half {
    sends: Queue,
    receives: Queue,
    completions: Arc<Completions>,
    /// Position of the port among the end's.
    nic: usize,
    first: u32,
}

impl RdmaOpening {
    pub(crate) fn new(end: &Arc<End>, peer: u32) -> Result<Self, WireError> {
        let alarm = Alarm::new().map_err(|e| refused_by("open a link", "eventfd", &e))?;
        let alarm = Arc::new(alarm);
        let depth = end.settings.depth;
        let half = |nic: usize| {
            let entries = depth + RECEIVES as u32 + 8;
            let completions = Arc::new(Completions::new(&end.nics[nic], entries)?);
            let sends = Queue::new(&completions, depth, 1, &alarm)?;
            let receives = Queue::new(&completions, 1, RECEIVES as u32, &alarm)?;
            receives.start()?;
            receives.expect(RECEIVES)?;
            // Packets of an earlier queue pair of the same number must not be taken for this one's.
            let first = RandomState::new().hash_one((end.rank, peer)) as u32 & 0xff_ffff;
            Ok(Half { sends, receives, completions, nic, first })
        };
        let ports = share([end.rank, peer], end.nics.len(), end.settings.lanes);
        let lanes = ports.map(half).collect::<Result<_, WireError>>()?;
        Ok(RdmaOpening { peer, lanes, alarm, end: Arc::clone(end) })
    }

    fn own(&self) -> Vec<LaneAddress> {
        let address = |half: &Half| {
            let nic = &self.end.nics[half.nic];
            LaneAddress {
                nic: half.nic as u8,
                ethernet: nic.choice.port.ethernet,
                mtu: nic.mtu,
                lid: nic.lid,
                sends: half.sends.number(),
                receives: half.receives.number(),
                first_packet: half.first,
                gid: nic.choice.gid.as_ref().map_or(Ipv6Addr::UNSPECIFIED, |gid| gid.gid),
            }
        };
        self.lanes.iter().map(address).collect()
    }
}

impl Opening for RdmaOpening {
    fn address(&self) -> Vec<u8> {
        encode_link(&self.own())
    }

    fn connect(self: Box<Self>, address: &[u8]) -> Result<Arc<dyn Link>, WireError> {
        let operation = "connect a link";
        let theirs =
            decode_link(address).map_err(|(saw, allowed)| invalid(operation, saw, allowed))?;
        let own = self.own();
        let RdmaOpening { peer, lanes: halves, alarm, end } = *self;
        let mut lanes = Vec::new();
        for (half, (ours, theirs)) in halves.into_iter().zip(own.iter().zip(&theirs)) {
            lanes.push(connect(&end, half, ours, theirs)?);
        }
        let count = lanes.len();
        let home = end.rank as usize % count;
        let (poll, timer) = descriptors(&lanes, &alarm, &end)
            .map_err(|e| refused_by(operation, "its descriptors", &e))?;
        let settings = &end.settings;
        let state = State {
            flow: Flow::new(count, home, settings.depth, settings.order),
            standing: vec![Standing::Looks(0); count],
            owed: vec![0; count],
            regions: HashMap::new(),
            batch: Vec::new(),
            armed: false,
            probe: Instant::now() + PROBE,
            patience: Instant::now() + PATIENCE,
        };
        let link = RdmaLink { peer, lanes, state: Mutex::new(state), alarm, poll, timer, end };
        {
            let mut state = link.state();
            for lane in 0..count {
                link.look(&mut state, lane, 0)?;
            }
        }
        Ok(Arc::new(link))
    }
}

fn connect(
    end: &End,
    half: Half,
    ours: &LaneAddress,
    theirs: &LaneAddress,
) -> Result<Lane, WireError> {
    let kind = |lane: &LaneAddress| match (lane.ethernet, lane.gid.to_ipv4_mapped()) {
        (false, _) => "an InfiniBand port",
        (true, Some(_)) => "a RoCE port with an IPv4 address",
        (true, None) => "a RoCE port with an IPv6 address",
    };
    if kind(ours) != kind(theirs) {
        let allowed =
            format!("{}, as here; choose with ANTIPHON_HCA and ANTIPHON_GID_INDEX", kind(ours));
        return Err(invalid("connect a link", kind(theirs).to_owned(), allowed));
    }
    let path = Path {
        queue: theirs.receives,
        gid: theirs.gid,
        lid: theirs.lid,
        mtu: ours.mtu.min(theirs.mtu),
        expected: 0,
    };
    let back = Path { queue: theirs.sends, expected: theirs.first_packet, ..path };
    half.receives.receive_from(&back, &end.settings)?;
    let Half { sends, receives, completions, first, .. } = half;
    let (nic, peer_nic) = (usize::from(ours.nic), usize::from(theirs.nic));
    Ok(Lane { sends, receives, completions, nic, peer_nic, path, first })
}

/// One descriptor that tells of everything, and the timer in it.
fn descriptors(lanes: &[Lane], alarm: &Alarm, end: &End) -> io::Result<(OwnedFd, OwnedFd)> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let add = |descriptor: BorrowedFd<'_>| {
        epoll::add(&poll, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
    };
    for lane in lanes {
        add(lane.completions.descriptor())?;
    }
    for nic in &end.nics {
        add(nic.events())?;
    }
    add(alarm.bell())?;
    add(std::os::fd::AsFd::as_fd(&timer))?;
    super::serve::set(&timer)?;
    Ok((poll, timer))
}
