//! What the two halves of a link tell each other, and what a registration tells peers. Integers are little-endian.

use crate::flow::MAX_LANES;
use std::net::Ipv6Addr;

/// `ARD`, then the version of the layout.
const LINK_MAGIC: [u8; 4] = *b"ARD\x01";
const LANE_BYTES: usize = 36;
/// `ARR`, then the version of the layout.
const REGION_MAGIC: [u8; 4] = *b"ARR\x01";
/// Numbers of queue pairs and packets have so many bits.
const MOST: u32 = (1 << 24) - 1;

/// One lane of a half: a queue pair to send by, one to receive by, and where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneAddress {
    /// The position of the port among those that the rank uses.
    pub nic: u8,
    /// It runs over Ethernet.
    pub ethernet: bool,
    /// The largest packet that the port takes, as the power of two that makes its bytes, less 7 (1: 256, 5: 4096).
    pub mtu: u8,
    /// The local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The queue pair that sends.
    pub sends: u32,
    /// The queue pair that receives.
    pub receives: u32,
    /// The number of its first packet.
    pub first_packet: u32,
    /// The address; unspecified where there is none.
    pub gid: Ipv6Addr,
}

/// Writes an address.
pub fn encode_link(lanes: &[LaneAddress]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(5 + lanes.len() * LANE_BYTES);
    bytes.extend_from_slice(&LINK_MAGIC);
    bytes.push(lanes.len() as u8);
    for lane in lanes {
        bytes.extend_from_slice(&[lane.nic, u8::from(lane.ethernet), lane.mtu, 0]);
        bytes.extend_from_slice(&lane.lid.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        for number in [lane.sends, lane.receives, lane.first_packet] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&lane.gid.octets());
    }
    bytes
}

/// Reads an address.
///
/// # Errors
/// What was seen and what is allowed.
pub fn decode_link(bytes: &[u8]) -> Result<Vec<LaneAddress>, (String, String)> {
    let count = counted(bytes, LINK_MAGIC, LANE_BYTES, "the address of an RDMA link")?;
    let lanes: Vec<_> = bytes[5..].chunks_exact(LANE_BYTES).map(lane).collect();
    for lane in &lanes {
        let numbers = [lane.sends, lane.receives, lane.first_packet];
        let sound = (1..=5).contains(&lane.mtu)
            && numbers.iter().all(|number| *number <= MOST)
            && usize::from(lane.nic) < MAX_LANES
            && (lane.ethernet || lane.lid != 0 || !lane.gid.is_unspecified())
            && !(lane.ethernet && lane.gid.is_unspecified());
        if !sound {
            return Err((format!("{lane:?}"), "a lane with an address and 24-bit numbers".into()));
        }
    }
    debug_assert_eq!(lanes.len(), count);
    Ok(lanes)
}

fn lane(bytes: &[u8]) -> LaneAddress {
    let number =
        |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes of a lane"));
    let gid: [u8; 16] = bytes[20..36].try_into().expect("the last bytes of a lane");
    LaneAddress {
        nic: bytes[0],
        ethernet: bytes[1] != 0,
        mtu: bytes[2],
        lid: u16::from_le_bytes([bytes[4], bytes[5]]),
        sends: number(8),
        receives: number(12),
        first_packet: number(16),
        gid: Ipv6Addr::from(gid),
    }
}

/// What a peer needs to write into a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionAddress {
    /// Its first byte, as its owner's cards know it.
    pub start: u64,
    /// The key of each of its owner's ports.
    pub keys: Vec<u32>,
}

/// Writes what a peer needs.
pub fn encode_region(region: &RegionAddress) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(13 + region.keys.len() * 4);
    bytes.extend_from_slice(&REGION_MAGIC);
    bytes.push(region.keys.len() as u8);
    for key in &region.keys {
        bytes.extend_from_slice(&key.to_le_bytes());
    }
    bytes.extend_from_slice(&region.start.to_le_bytes());
    bytes
}

/// Reads what a peer said of a region of `length` bytes.
///
/// # Errors
/// What was seen and what is allowed.
pub fn decode_region(bytes: &[u8], length: u64) -> Result<RegionAddress, (String, String)> {
    let what = "the keys of an RDMA region";
    let (head, start) =
        bytes.split_last_chunk::<8>().ok_or_else(|| unsound(bytes, what, "13 bytes or more"))?;
    counted(head, REGION_MAGIC, 4, what)?;
    let keys = head[5..].chunks_exact(4).map(|k| u32::from_le_bytes([k[0], k[1], k[2], k[3]]));
    let region = RegionAddress { start: u64::from_le_bytes(*start), keys: keys.collect() };
    if region.start.checked_add(length).is_none() {
        let saw = format!("{length} bytes from address {:#x} on", region.start);
        return Err((saw, "a region inside 64-bit addresses".to_owned()));
    }
    Ok(region)
}

fn unsound(bytes: &[u8], what: &str, allowed: &str) -> (String, String) {
    let head: Vec<_> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let saw = format!("{} bytes that begin with {}", bytes.len(), head.join(" "));
    (saw, format!("{what}: {allowed}"))
}

/// Checks the head and the length of a list of items of `size` bytes: how many there are.
fn counted(
    bytes: &[u8],
    magic: [u8; 4],
    size: usize,
    what: &str,
) -> Result<usize, (String, String)> {
    let Some((head, items)) = bytes.split_first_chunk::<5>() else {
        return Err(unsound(bytes, what, "5 bytes or more"));
    };
    if head[..3] != magic[..3] {
        return Err(unsound(bytes, what, "its magic number"));
    }
    if head[3] != magic[3] {
        let saw = format!("layout version {} of {what}", head[3]);
        return Err((saw, format!("version {}; run one release on all ranks", magic[3])));
    }
    let count = usize::from(head[4]);
    if count == 0 || count > MAX_LANES || items.len() != count * size {
        return Err(unsound(bytes, what, &format!("1 to {MAX_LANES} items of {size} bytes")));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address() -> Vec<LaneAddress> {
        vec![LaneAddress {
            nic: 1,
            ethernet: true,
            mtu: 3,
            lid: 0,
            sends: 17,
            receives: 18,
            first_packet: MOST,
            gid: "::ffff:10.0.0.1".parse().expect("an address"),
        }]
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(decode_link(&encode_link(&address())), Ok(address()));
        let region = RegionAddress { start: 0x7f00_0000_0000, keys: vec![1, u32::MAX] };
        assert_eq!(decode_region(&encode_region(&region), 4096), Ok(region));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let link = encode_link(&address());
        for (at, value, part) in [
            (0, b'X', "magic"),
            (3, 2, "layout version 2"),
            (4, 0, "items"),
            (4, 2, "items"),
            (4, 255, "items"),
            (5, 4, "24-bit"),
            (7, 0, "24-bit"),
            (7, 6, "24-bit"),
            (16, 1, "24-bit"),
        ] {
            let mut bytes = link.clone();
            bytes[at] = value;
            let (saw, allowed) = decode_link(&bytes).expect_err(part);
            assert!(format!("{saw} {allowed}").contains(part), "{saw}; {allowed}");
        }
        let mut nowhere = address();
        nowhere[0].gid = Ipv6Addr::UNSPECIFIED;
        assert!(decode_link(&encode_link(&nowhere)).is_err());
        let far = RegionAddress { start: u64::MAX - 8, keys: vec![1] };
        assert!(decode_region(&encode_region(&far), 9).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), magic in 0..3) {
            let mut bytes = bytes;
            let head = [&[][..], &LINK_MAGIC[..], &REGION_MAGIC[..]][magic as usize];
            let n = head.len().min(bytes.len());
            bytes[..n].copy_from_slice(&head[..n]);
            let _ = decode_link(&bytes);
            let _ = decode_region(&bytes, 4096);
        }
    }
}
