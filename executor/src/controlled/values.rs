//! What users put into their inputs: numbers that are all different, so that every mix-up shows.

use antiphon_plan::schedule::Case;

/// The inputs of all ranks in all launches, and in one more that is never run.
#[derive(Debug)]
pub(super) struct Inputs {
    bytes: Vec<u8>,
    each: usize,
    ranks: usize,
}

impl Inputs {
    pub fn new(case: &Case, ranks: u32) -> Self {
        let each = case.sizes.input as usize;
        let mut bytes = Vec::with_capacity(each * ranks as usize * (case.launches as usize + 1));
        for launch in 0..=u64::from(case.launches) {
            for rank in 0..u64::from(ranks) {
                let seed = mix((launch + 1) << 32 | (rank + 1));
                let words = (0..each.div_ceil(4) as u64).flat_map(|at| {
                    // Odd, so that no product loses what it was made of.
                    (mix(seed.wrapping_add(at)) as u32 | 1).to_le_bytes()
                });
                bytes.extend(words.take(each));
            }
        }
        Inputs { bytes, each, ranks: ranks as usize }
    }

    /// What the user of `rank` writes before `launch`, from 1.
    pub fn of(&self, rank: usize, launch: u32) -> &[u8] {
        let number = (launch as usize - 1) * self.ranks + rank;
        &self.bytes[number * self.each..(number + 1) * self.each]
    }
}

/// What a user leaves in an output after a launch: other numbers than inputs are made of.
pub(super) fn leave(output: &mut [u8], rank: usize, launch: u32) {
    let seed = mix(!(u64::from(launch) << 32 | rank as u64));
    for (at, word) in (0..).zip(output.chunks_mut(8)) {
        word.copy_from_slice(&mix(seed.wrapping_add(at)).to_le_bytes()[..word.len()]);
    }
}

/// Memory that nobody has written: any bytes, but the same every time.
pub(super) fn fresh(bytes: usize) -> Vec<u8> {
    let words = (0..bytes.div_ceil(8) as u64).flat_map(|at| mix(!at).to_le_bytes());
    words.take(bytes).collect()
}

/// A number that looks random, another for each argument.
pub(super) fn mix(value: u64) -> u64 {
    let mut x = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
