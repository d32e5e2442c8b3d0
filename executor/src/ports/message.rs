//! What ranks tell each other's control threads about links and the regions behind them.

use crate::tags::{ANSWER, LEAVE, LINK_REGION, LINK_RETIRE, OPEN, REFUSE, WANT};
use antiphon_bootstrap::Message;

/// A message about links, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkMessage {
    Want,
    Open { wire: String, address: Vec<u8> },
    Answer { address: Vec<u8> },
    Refuse { why: String },
    Region { region: u64, bytes: u64, blob: Vec<u8> },
    Retire { region: u64 },
    Leave,
}

impl LinkMessage {
    /// The message, for `channel`.
    pub fn message(self, channel: u64) -> Message {
        let (tag, payload) = match self {
            LinkMessage::Want => (WANT, Vec::new()),
            LinkMessage::Open { wire, address } => {
                let length = (wire.len() as u32).to_le_bytes();
                (OPEN, [&length, wire.as_bytes(), &address].concat())
            }
            LinkMessage::Answer { address } => (ANSWER, address),
            LinkMessage::Refuse { why } => (REFUSE, why.into_bytes()),
            LinkMessage::Region { region, bytes, blob } => {
                (LINK_REGION, [&region.to_le_bytes(), &bytes.to_le_bytes(), &blob[..]].concat())
            }
            LinkMessage::Retire { region } => (LINK_RETIRE, region.to_le_bytes().to_vec()),
            LinkMessage::Leave => (LEAVE, Vec::new()),
        };
        Message { channel, tag, payload, descriptors: Vec::new() }
    }

    /// What a message says.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(tag: u32, payload: &[u8]) -> Result<LinkMessage, String> {
        let said = match tag {
            WANT => Some(LinkMessage::Want),
            OPEN => payload.split_first_chunk::<4>().and_then(|(length, rest)| {
                let (wire, address) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                let wire = String::from_utf8(wire.to_vec()).ok()?;
                Some(LinkMessage::Open { wire, address: address.to_vec() })
            }),
            ANSWER => Some(LinkMessage::Answer { address: payload.to_vec() }),
            REFUSE => {
                Some(LinkMessage::Refuse { why: String::from_utf8_lossy(payload).into_owned() })
            }
            LINK_REGION => payload.split_first_chunk::<8>().and_then(|(region, rest)| {
                let (bytes, blob) = rest.split_first_chunk::<8>()?;
                let (region, bytes) = (u64::from_le_bytes(*region), u64::from_le_bytes(*bytes));
                Some(LinkMessage::Region { region, bytes, blob: blob.to_vec() })
            }),
            LINK_RETIRE => <[u8; 8]>::try_from(payload)
                .ok()
                .map(|region| LinkMessage::Retire { region: u64::from_le_bytes(region) }),
            LEAVE => Some(LinkMessage::Leave),
            other => return Err(format!("a message with tag {other}")),
        };
        said.ok_or_else(|| format!("{} bytes with tag {tag}", payload.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard_and_every_cut_is_an_error_or_another_message() {
        for said in [
            LinkMessage::Want,
            LinkMessage::Open { wire: "tcp".to_owned(), address: vec![1, 2, 3] },
            LinkMessage::Answer { address: vec![9; 40] },
            LinkMessage::Refuse { why: "no cable".to_owned() },
            LinkMessage::Region { region: 7, bytes: 1 << 40, blob: vec![5] },
            LinkMessage::Retire { region: u64::MAX },
            LinkMessage::Leave,
        ] {
            let Message { tag, payload, .. } = said.clone().message(1);
            assert_eq!(LinkMessage::parse(tag, &payload), Ok(said.clone()));
            for cut in 0..payload.len() {
                assert_ne!(
                    LinkMessage::parse(tag, &payload[..cut]),
                    Ok(said.clone()),
                    "cut at {cut}"
                );
            }
        }
        assert!(LinkMessage::parse(99, &[]).is_err());
    }
}
