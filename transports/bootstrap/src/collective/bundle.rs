//! The result of an exchange on its way from the gatherer: stretches of the list of parts, each in one payload.
//!
//! A stretch is the position of its first part, the number of parts, their lengths (32 bits each, little-endian) and
//! their bytes. Long results take several, so that no payload outgrows what a frame carries.

use std::sync::Arc;

/// Bytes after which a stretch ends.
const STRETCH: usize = 4 << 20;

/// Parts as payloads.
pub(super) fn pack(parts: &[Arc<Vec<u8>>]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let mut first = 0;
    while first < parts.len() {
        let mut bytes = parts[first].len();
        let mut end = first + 1;
        while end < parts.len() && bytes + parts[end].len() <= STRETCH && end - first < STRETCH / 4
        {
            bytes += parts[end].len();
            end += 1;
        }
        let stretch = &parts[first..end];
        let mut payload = Vec::with_capacity(8 + 4 * stretch.len() + bytes);
        payload.extend((first as u32).to_le_bytes());
        payload.extend((stretch.len() as u32).to_le_bytes());
        stretch.iter().for_each(|part| payload.extend((part.len() as u32).to_le_bytes()));
        stretch.iter().for_each(|part| payload.extend(&part[..]));
        payloads.push(payload);
        first = end;
    }
    payloads
}

/// Appends a stretch to the parts that are here; `None` if it is not the next one of a list of `all`.
pub(crate) fn unpack(payload: &[u8], all: usize, parts: &mut Vec<Vec<u8>>) -> Option<()> {
    let (first, rest) = payload.split_first_chunk::<4>()?;
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let (first, count) = (u32::from_le_bytes(*first) as usize, u32::from_le_bytes(*count) as usize);
    if first != parts.len() || count > all.checked_sub(first)? {
        return None;
    }
    let (lengths, mut bytes) = rest.split_at_checked(count.checked_mul(4)?)?;
    let mut stretch = Vec::with_capacity(count);
    for length in lengths.chunks_exact(4) {
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        let (part, later) = bytes.split_at_checked(length)?;
        stretch.push(part.to_vec());
        bytes = later;
    }
    bytes.is_empty().then(|| parts.append(&mut stretch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_any_length_survive_and_every_cut_is_refused() {
        for lengths in
            [vec![], vec![0], vec![1, 0, 5], vec![STRETCH, 3, STRETCH - 3, 4, 0], vec![7; 300]]
        {
            let parts: Vec<Arc<Vec<u8>>> = (0u32..)
                .zip(&lengths)
                .map(|(at, &length)| Arc::new(vec![at as u8; length]))
                .collect();
            let mut back = Vec::new();
            for payload in pack(&parts) {
                let before = back.len();
                for cut in (0..payload.len().min(200)).chain([payload.len() - 1]) {
                    assert_eq!(
                        unpack(&payload[..cut], parts.len(), &mut back),
                        None,
                        "cut at {cut}"
                    );
                }
                assert_eq!(unpack(&[&payload[..], &[0]].concat(), parts.len(), &mut back), None);
                assert_eq!(unpack(&payload, before, &mut back), None, "more than all");
                assert_eq!(back.len(), before);
                unpack(&payload, parts.len(), &mut back).unwrap();
                assert_eq!(unpack(&payload, parts.len(), &mut back), None, "the same again");
            }
            assert!(back.iter().eq(parts.iter().map(|part| &**part)));
        }
    }
}
