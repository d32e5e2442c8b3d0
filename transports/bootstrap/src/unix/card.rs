//! How ranks of one machine present themselves.

use crate::hello::{self, Introduction, Reader, put_text};

/// Everyone's card.
pub(crate) type Table = hello::Table<Card>;

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

impl Introduction for Card {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.rank.to_le_bytes());
        bytes.extend(self.world.to_le_bytes());
        bytes.extend(self.process);
        put_text(&mut bytes, &self.door);
        put_text(&mut bytes, &self.host);
        bytes
    }

    fn read(reader: &mut Reader<'_>) -> Option<Card> {
        Some(Card {
            rank: reader.word()?,
            world: reader.word()?,
            process: reader.token()?,
            door: reader.text()?,
            host: reader.text()?,
        })
    }
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
