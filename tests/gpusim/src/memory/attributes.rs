//! What the driver says of an address.

use super::registry::{self, Kind, Range};
use crate::abi::{Answer, HANDLE_TYPE_POSIX_FD, In, Out};
use crate::context;
use crate::status::Status;

const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// Writes one attribute; each has a type of its own.
fn write(out: Out<u8>, attribute: u32, address: u64, range: Option<&Range>) -> Answer {
    let known = range.ok_or(Status::INVALID_VALUE);
    match attribute {
        // Context.
        1 => put(out, known?.context),
        // Memory type.
        2 => put(out, if known?.is_host() { HOST } else { DEVICE }),
        // Address on the device.
        3 => known.and_then(|_| put(out, address)),
        // Address on the host.
        4 => match known?.is_host() {
            true => put(out, address),
            false => Err(Status::INVALID_VALUE),
        },
        // Whether synchronous calls stay so.
        6 => known.and_then(|_| put(out, 0_u32)),
        // Of what is mapped at reserved addresses it goes by the addresses: no driver promises more.
        7 => match known? {
            Range { kind: Kind::Mapped(..), base, .. } => put(out, *base),
            other => put(out, other.buffer),
        },
        // Managed.
        8 => put(out, 0_u32),
        9 => put(out, known?.device as i32),
        // What classic IPC exports.
        10 => put(out, u32::from(matches!(known?.kind, Kind::Device(_)))),
        11 => put(out, known?.base),
        12 => put(out, known?.bytes),
        // Mapped.
        13 => put(out, u32::from(range.is_some())),
        14 => put(out, u64::from(handle_types(&known?.kind))),
        // RDMA.
        15 => put(out, 0_u32),
        // What the current device may do: read, write.
        16 => put(out, u32::from(known?.rights_of(context::current()?.device))),
        // Memory pool.
        17 => put(out, 0_u64),
        // Size and base of the mapping, which virtual memory management has several of in a range.
        18 => put(out, known?.bytes),
        19 => put(out, known?.base),
        20 => put(out, known?.buffer),
        _ => Err(Status::INVALID_VALUE),
    }
}

fn handle_types(kind: &Kind) -> u32 {
    match kind {
        Kind::Mapped(physical, _) => physical.handle_types & HANDLE_TYPE_POSIX_FD,
        _ => 0,
    }
}

fn put<T>(out: Out<u8>, value: T) -> Answer {
    out.cast::<T>().set(value)
}

driver_calls! {
    fn cuPointerGetAttribute(out: Out<u8>, attribute: u32, address: u64) {
        write(out, attribute, address, registry::find(address).as_ref())
    }

    fn cuPointerGetAttributes(count: u32, attributes: In<u32>, places: In<Out<u8>>, address: u64) {
        let count = count as usize;
        let range = registry::find(address);
        for (attribute, out) in attributes.list(count)?.into_iter().zip(places.list(count)?) {
            // As the real call: what an unknown address does not have is left as zero, and the call succeeds.
            match write(out, attribute, address, range.as_ref()) {
                Err(Status::INVALID_VALUE) if !(1..=20).contains(&attribute) => {
                    return Err(Status::INVALID_VALUE);
                }
                Err(_) if attribute == 9 => put(out, -2_i32)?,
                Err(_) if matches!(attribute, 2 | 6 | 10 | 16) => put(out, 0_u32)?,
                Err(_) => put(out, 0_u64)?,
                Ok(()) => {}
            }
        }
        Ok(())
    }
}
