//! What ranks tell each other while the job forms.

use crate::frame::{Frame, MAX_PAYLOAD};
use crate::socket::read_token;

/// How a rank presents itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub rank: u32,
    pub world: u32,
    /// Tells its process from others.
    pub process: [u8; 16],
    /// The abstract name at which it takes links.
    pub door: String,
    /// Ranks with equal texts are on one node.
    pub host: String,
}

/// Everyone's card, from rank 0, and the key that links of this job present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub key: [u8; 16],
    pub cards: Vec<Card>,
}

pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Takes values off the front; `None` where too few bytes are left or a text is not UTF-8.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(front)
    }

    pub fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.slice(4)?.try_into().ok()?))
    }

    pub fn token(&mut self) -> Option<[u8; 16]> {
        self.slice(16)?.try_into().ok()
    }

    pub fn text(&mut self) -> Option<String> {
        let length = self.word()? as usize;
        String::from_utf8(self.slice(length)?.to_vec()).ok()
    }

    fn card(&mut self) -> Option<Card> {
        Some(Card {
            rank: self.word()?,
            world: self.word()?,
            process: self.token()?,
            door: self.text()?,
            host: self.text()?,
        })
    }

    pub fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

impl Card {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.rank.to_le_bytes());
        bytes.extend(self.world.to_le_bytes());
        bytes.extend(self.process);
        put_text(&mut bytes, &self.door);
        put_text(&mut bytes, &self.host);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Card> {
        let mut reader = Reader(bytes);
        let card = reader.card()?;
        reader.end(card)
    }
}

impl Table {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.key.to_vec();
        bytes.extend((self.cards.len() as u32).to_le_bytes());
        self.cards.iter().for_each(|card| bytes.extend(card.encode()));
        debug_assert!(bytes.len() <= MAX_PAYLOAD);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Table> {
        let mut reader = Reader(bytes);
        let key = reader.token()?;
        let count = reader.word()?;
        let cards: Option<Vec<Card>> = (0..count).map(|_| reader.card()).collect();
        let cards = cards?;
        let in_order = (0..).zip(&cards).all(|(rank, card): (u32, _)| card.rank == rank);
        if !in_order { None } else { reader.end(Table { key, cards }) }
    }
}

/// A list of numbers.
pub(crate) fn encode_words(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

pub(crate) fn decode_words(bytes: &[u8]) -> Vec<u32> {
    let mut reader = Reader(bytes);
    std::iter::from_fn(|| reader.word()).collect()
}

/// The token in the memory that a peer passed with a frame; what is wrong with it.
pub(crate) fn passed_token(frame: &mut Frame) -> Result<[u8; 16], String> {
    let memory = frame.descriptors.pop().ok_or("no memory with its greeting")?;
    read_token(&memory).map_err(|errno| format!("memory that cannot be read ({errno})"))
}

/// The key of the job and the rank that opens a link.
pub(crate) fn encode_link(key: &[u8; 16], rank: u32) -> Vec<u8> {
    [&key[..], &rank.to_le_bytes()].concat()
}

pub(crate) fn decode_link(bytes: &[u8]) -> Option<([u8; 16], u32)> {
    let mut reader = Reader(bytes);
    let link = (reader.token()?, reader.word()?);
    reader.end(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let card = |rank| Card {
            rank,
            world: 3,
            process: [rank as u8; 16],
            door: format!("door {rank}"),
            host: "höst".into(),
        };
        Table { key: [7; 16], cards: (0..3).map(card).collect() }
    }

    #[test]
    fn tables_survive_the_wire_and_every_cut_is_refused() {
        let bytes = table().encode();
        assert_eq!(Table::decode(&bytes), Some(table()));
        for cut in 0..bytes.len() {
            assert_eq!(Table::decode(&bytes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(Table::decode(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn a_table_out_of_order_or_with_an_absurd_count_is_refused() {
        let mut swapped = table();
        swapped.cards.swap(0, 1);
        assert_eq!(Table::decode(&swapped.encode()), None);
        let mut absurd = table().encode();
        absurd[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Table::decode(&absurd), None);
    }
}
