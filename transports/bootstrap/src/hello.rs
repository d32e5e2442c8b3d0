//! What ranks tell each other while the job forms, over Unix sockets and over TCP.

use crate::error::{BootstrapError, Result};
use crate::frame::{Frame, Kind, MAX_PAYLOAD};
use crate::socket::{read_token, token_memory};
use crate::sync::random;

/// How a rank presents itself, by what its kind of job needs to know.
pub(crate) trait Introduction: Clone {
    fn rank(&self) -> u32;

    fn encode(&self) -> Vec<u8>;

    /// Takes one off the front.
    fn read(reader: &mut Reader<'_>) -> Option<Self>;

    /// The one that all of the bytes are.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let card = Self::read(&mut reader)?;
        reader.end(card)
    }
}

/// Everyone's card, from rank 0, and random bits of this job, which links present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table<Card> {
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

    pub fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

impl<Card: Introduction> Table<Card> {
    /// The table with a key of its own, once the cards of all ranks are here.
    ///
    /// # Errors
    /// If the system gives no random bits.
    pub fn of_all(cards: &[Option<Card>]) -> Result<Option<Self>> {
        let cards: Option<Vec<Card>> = cards.iter().cloned().collect();
        cards.map(|cards| Ok(Table { key: random()?, cards })).transpose()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.key.to_vec();
        bytes.extend((self.cards.len() as u32).to_le_bytes());
        self.cards.iter().for_each(|card| bytes.extend(card.encode()));
        debug_assert!(bytes.len() <= MAX_PAYLOAD);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let key = reader.token()?;
        let count = reader.word()?;
        let cards: Option<Vec<Card>> = (0..count).map(|_| Card::read(&mut reader)).collect();
        let cards = cards?;
        let in_order = (0..).zip(&cards).all(|(rank, card): (u32, _)| card.rank() == rank);
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
pub(crate) fn passed_token(frame: &mut Frame) -> std::result::Result<[u8; 16], String> {
    let memory = frame.descriptors.pop().ok_or("no memory with its greeting")?;
    read_token(&memory).map_err(|errno| format!("memory that cannot be read ({errno})"))
}

/// A frame that passes memory with this token.
///
/// # Errors
/// If the memory cannot be made.
pub(crate) fn passing(token: &[u8; 16], kind: Kind, payload: Vec<u8>) -> Result<Frame> {
    let memory = token_memory(token)
        .map_err(BootstrapError::os("make memory to share, by memfd_create or at /dev/shm"))?;
    Ok(Frame { descriptors: vec![memory], ..Frame::plain(kind, payload) })
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
