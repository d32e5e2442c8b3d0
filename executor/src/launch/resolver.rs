//! Where peers' buffers are, by their launch descriptors.

use super::*;

/// Finds peers' buffers by their launch descriptors.
pub(super) struct Resolver<'a> {
    pub(super) launch: &'a Launch<'a>,
    pub(super) held: &'a mut [[Option<Held>; 2]],
    /// By rank, the last launch of which it is known that the rank called the same.
    pub(super) agreed: &'a mut [u64],
}

impl Resolver<'_> {
    /// What a rank says of the launch, once it has entered it.
    fn record(&mut self, rank: u32) -> Result<LaunchRecord, Unready> {
        let record = self.launch.entered(rank)?;
        let record = record.ok_or(Blocked::Entry(rank))?;
        self.agreed[rank as usize] = record.seq;
        Ok(record)
    }
}

impl Resolve for Resolver<'_> {
    fn resolve(&mut self, rank: u32) -> Result<[Place; 2], Unready> {
        let record = self.record(rank)?;
        let shared = self.launch.shared;
        let sides = [(record.input, record.bytes.0), (record.output, record.bytes.1)];
        let peer = &shared.peers[rank as usize];
        let mut places = [Place::Unknown; 2];
        for (side, (RegionAt { region, offset }, bytes)) in sides.into_iter().enumerate() {
            let held = &mut self.held[rank as usize][side];
            places[side] = match held {
                _ if bytes == 0 => Place::Here(std::ptr::dangling_mut()),
                Some((known, memory))
                    if *known == region
                        && offset.checked_add(bytes).is_some_and(|end| end <= memory.len()) =>
                {
                    Place::Here(memory.address().wrapping_add(offset as usize))
                }
                _ => {
                    let buffer = if region == FOREIGN {
                        RemoteBuffer::Plain { address: offset }
                    } else {
                        RemoteBuffer::Region { region, offset, bytes }
                    };
                    let opened = shared.regions.memory.open(peer, &buffer);
                    match opened.map_err(|_| Fault::Outside(rank))? {
                        None => return Err(Blocked::Mapping(rank).into()),
                        Some(Handle::Mapped { address, memory }) => {
                            *held = memory.map(|memory| (region, memory));
                            Place::Here(address)
                        }
                        Some(Handle::Process { pid, address }) => {
                            Place::Process { pid: pid as i32, address }
                        }
                        Some(_) => return Err(Fault::Outside(rank).into()),
                    }
                }
            };
        }
        Ok(places)
    }

    fn agree(&mut self, rank: u32) -> Result<(), Unready> {
        if self.agreed[rank as usize] != self.launch.order.seq {
            self.record(rank)?;
        }
        Ok(())
    }

    fn has_given_up(&self, rank: u32) -> bool {
        self.launch.has_given_up(rank)
    }
}
