//! Where peers' buffers are, by their launch descriptors.

use super::*;

/// Finds peers' buffers by their launch descriptors.
pub(super) struct Resolver<'a> {
    pub(super) launch: &'a Launch<'a>,
    pub(super) held: &'a mut [[Option<Held>; 2]],
}

impl Resolve for Resolver<'_> {
    fn resolve(&mut self, rank: u32) -> Result<[Place; 2], Unresolved> {
        let shared = self.launch.shared;
        let Some(record) = shared.control(rank).record(self.launch.order.seq) else {
            return Err(Unresolved::Blocked(Blocked::Entry(rank)));
        };
        if record.fingerprint != self.launch.order.fingerprint {
            return Err(Unresolved::Failed(Fault::Mismatch(rank)));
        }
        let sides = [(record.input, record.bytes.0), (record.output, record.bytes.1)];
        let peer = &shared.peers[rank as usize];
        let mut places = [Place::Unknown; 2];
        for (side, ((region, offset), bytes)) in sides.into_iter().enumerate() {
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
                    match opened.map_err(|_| Unresolved::Failed(Fault::Outside(rank)))? {
                        None => return Err(Unresolved::Blocked(Blocked::Mapping(rank))),
                        Some(Handle::Mapped { address, memory }) => {
                            *held = memory.map(|memory| (region, memory));
                            Place::Here(address)
                        }
                        Some(Handle::Process { pid, address }) => {
                            Place::Process { pid: pid as i32, address }
                        }
                        Some(_) => return Err(Unresolved::Failed(Fault::Outside(rank))),
                    }
                }
            };
        }
        Ok(places)
    }
}
