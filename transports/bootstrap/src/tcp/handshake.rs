//! How two ends of a connection prove to each other that they have the job's secret. No I/O here.
//!
//! Four records of equal length: the caller's hello and the listener's challenge bring a nonce each, then the caller
//! proves first, so that a stranger gets nothing to guess on, and the listener after it. A proof is a keyed hash of
//! the direction, the version, the purpose, both ranks and both nonces, so that a recorded handshake, a reflected one or
//! one meant for another rank proves nothing.
//!
//! Record (52 bytes, little-endian): magic 8, version 2, step 1, word 1, caller's rank 4, listener's rank 4, body 32.

use crate::frame::{MAGIC, VERSION};
use crate::key::keyed;

/// Bytes of a record.
pub(super) const RECORD: usize = 52;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Purpose {
    /// To form a job: from a rank to rank 0.
    Join = 1,
    /// To carry frames between two ranks of a formed job.
    Link = 2,
}

/// The listener's last word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Verdict {
    Welcome = 0,
    /// The caller has another secret (or the listener is another rank than the caller wants).
    WrongSecret = 1,
    /// Both call each other at once, and the listener's call is the one that counts.
    Crossed = 2,
    /// The listener does not expect this call.
    Unexpected = 3,
}

/// Why a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The other end does not speak this protocol, or not in this order.
    Stranger,
    Version(u16),
    /// The rank at the other end, by its own word.
    Secret(u32),
    Crossed,
    Unexpected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    version: u16,
    step: u8,
    word: u8,
    caller: u32,
    listener: u32,
    body: [u8; 32],
}

const HELLO: u8 = 1;
const CHALLENGE: u8 = 2;
const PROOF: u8 = 3;
const VERDICT: u8 = 4;

impl Record {
    fn encode(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10] = self.step;
        bytes[11] = self.word;
        bytes[12..16].copy_from_slice(&self.caller.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.listener.to_le_bytes());
        bytes[20..].copy_from_slice(&self.body);
        bytes
    }

    fn decode(bytes: &[u8; RECORD]) -> Record {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Record {
            version: u16::from_le_bytes([bytes[8], bytes[9]]),
            step: bytes[10],
            word: bytes[11],
            caller: word(12),
            listener: word(16),
            body: std::array::from_fn(|byte| bytes[20 + byte]),
        }
    }
}

/// One record on its way in. Whatever comes, it keeps at most [`RECORD`] bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Incoming(Vec<u8>);

impl Incoming {
    /// Bytes that the record still lacks: read no more than these.
    pub fn wants(&self) -> usize {
        RECORD - self.0.len()
    }

    /// Adds at most [`wants`](Self::wants) bytes; the record, once it is whole.
    ///
    /// # Errors
    /// As soon as the first bytes are another protocol's, or another version's.
    fn feed(&mut self, bytes: &[u8]) -> Result<Option<Record>, Failure> {
        self.0.extend_from_slice(&bytes[..bytes.len().min(self.wants())]);
        let seen = self.0.len().min(MAGIC.len());
        if self.0[..seen] != MAGIC[..seen] {
            return Err(Failure::Stranger);
        }
        if let Some(&[low, high]) = self.0.get(8..10) {
            let version = u16::from_le_bytes([low, high]);
            if version != VERSION {
                return Err(Failure::Version(version));
            }
        }
        let Ok(whole) = <&[u8; RECORD]>::try_from(&self.0[..]) else { return Ok(None) };
        let record = Record::decode(whole);
        self.0.clear();
        Ok(Some(record))
    }
}

/// What to do after bytes have come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send these (none: wait for more).
    Send(Option<[u8; RECORD]>),
    /// The other end has proven itself. The caller may go on; the listener says its verdict first.
    Proven { purpose: Purpose, rank: u32 },
    /// Send these, if any, and close.
    Fail(Failure, Option<[u8; RECORD]>),
}

/// What both proofs speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Terms {
    purpose: u8,
    caller: u32,
    listener: u32,
    challenge: [u8; 32],
    hello: [u8; 32],
}

impl Terms {
    fn proof(&self, key: &[u8; 32], direction: &[u8]) -> [u8; 32] {
        let words = [u32::from(VERSION), u32::from(self.purpose), self.caller, self.listener];
        let words: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        keyed(key, &[direction, &words, &self.hello, &self.challenge])
    }
}

/// Compares without telling by its time where the difference is.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let difference = a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(difference) == 0
}

/// The end that opened the connection.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    key: [u8; 32],
    terms: Terms,
    proven: bool,
    incoming: Incoming,
    purpose: Purpose,
}

impl Caller {
    /// Returns the hello to send with it. `nonce`: fresh random bits.
    pub fn new(
        key: [u8; 32],
        purpose: Purpose,
        rank: u32,
        listener: u32,
        nonce: [u8; 32],
    ) -> (Caller, [u8; RECORD]) {
        let (word, caller) = (purpose as u8, rank);
        let hello = Record { version: VERSION, step: HELLO, word, caller, listener, body: nonce };
        let terms = Terms { purpose: word, caller, listener, hello: nonce, challenge: [0; 32] };
        let incoming = Incoming::default();
        (Caller { key, terms, proven: false, incoming, purpose }, hello.encode())
    }

    pub fn wants(&self) -> usize {
        self.incoming.wants()
    }

    pub fn feed(&mut self, bytes: &[u8]) -> Step {
        let record = match self.incoming.feed(bytes) {
            Ok(None) => return Step::Send(None),
            Ok(Some(record)) => record,
            Err(failure) => return Step::Fail(failure, None),
        };
        let terms = &mut self.terms;
        if (record.caller, record.listener) != (terms.caller, terms.listener) {
            return Step::Fail(Failure::Stranger, None);
        }
        match (record.step, self.proven) {
            (CHALLENGE, false) => {
                self.proven = true;
                terms.challenge = record.body;
                let body = terms.proof(&self.key, b"caller");
                Step::Send(Some(Record { step: PROOF, body, word: 0, ..record }.encode()))
            }
            (VERDICT, true) => {
                const CROSSED: u8 = Verdict::Crossed as u8;
                const UNEXPECTED: u8 = Verdict::Unexpected as u8;
                let wrong = Step::Fail(Failure::Secret(terms.listener), None);
                // Only a listener that knows the secret is believed, whatever it says.
                if !same(&record.body, &terms.proof(&self.key, &[record.word])) {
                    return wrong;
                }
                match record.word {
                    0 => Step::Proven { purpose: self.purpose, rank: terms.listener },
                    CROSSED => Step::Fail(Failure::Crossed, None),
                    UNEXPECTED => Step::Fail(Failure::Unexpected, None),
                    _ => wrong,
                }
            }
            _ => Step::Fail(Failure::Stranger, None),
        }
    }
}

/// The end that accepted the connection.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    key: [u8; 32],
    rank: u32,
    nonce: [u8; 32],
    terms: Option<Terms>,
    incoming: Incoming,
}

impl Listener {
    /// `nonce`: fresh random bits.
    pub fn new(key: [u8; 32], rank: u32, nonce: [u8; 32]) -> Listener {
        Listener { key, rank, nonce, terms: None, incoming: Incoming::default() }
    }

    pub fn wants(&self) -> usize {
        self.incoming.wants()
    }

    /// Who calls, by its own word.
    fn claims(&self) -> Option<u32> {
        self.terms.map(|terms| terms.caller)
    }

    fn record(&self, step: u8, word: u8, body: [u8; 32]) -> [u8; RECORD] {
        let caller = self.claims().unwrap_or(u32::MAX);
        Record { version: VERSION, step, word, caller, listener: self.rank, body }.encode()
    }

    pub fn feed(&mut self, bytes: &[u8]) -> Step {
        let record = match self.incoming.feed(bytes) {
            Ok(None) => return Step::Send(None),
            Ok(Some(record)) => record,
            // Our version, for the other end to name.
            Err(failure @ Failure::Version(_)) => {
                return Step::Fail(failure, Some(self.record(CHALLENGE, 0, [0; 32])));
            }
            Err(failure) => return Step::Fail(failure, None),
        };
        let (purpose, caller) = (record.word, record.caller);
        match (record.step, self.terms) {
            (HELLO, None) if matches!(purpose, 1 | 2) && record.listener == self.rank => {
                let (listener, hello, challenge) = (self.rank, record.body, self.nonce);
                self.terms = Some(Terms { purpose, caller, listener, challenge, hello });
                Step::Send(Some(self.record(CHALLENGE, 0, challenge)))
            }
            (PROOF, Some(terms)) if caller == terms.caller => {
                if !same(&record.body, &terms.proof(&self.key, b"caller")) {
                    let verdict = self.record(VERDICT, Verdict::WrongSecret as u8, [0; 32]);
                    return Step::Fail(Failure::Secret(caller), Some(verdict));
                }
                let purpose = if terms.purpose == 1 { Purpose::Join } else { Purpose::Link };
                Step::Proven { purpose, rank: caller }
            }
            _ => Step::Fail(Failure::Stranger, None),
        }
    }

    /// The last record, once the caller has proven itself.
    pub fn verdict(&self, verdict: Verdict) -> [u8; RECORD] {
        let word = verdict as u8;
        let body = self.terms.map_or([0; 32], |terms| terms.proof(&self.key, &[word]));
        self.record(VERDICT, word, body)
    }
}

#[cfg(test)]
mod tests;
