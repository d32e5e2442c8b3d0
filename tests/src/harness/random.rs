//! Random choices that can be repeated.

/// The generator SplitMix64: small, and any seed is a good one.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// The seed of this run: the environment variable `ANTIPHON_TEST_SEED`, or a fixed one.
///
/// # Panics
/// If the variable is no number.
pub fn seed() -> u64 {
    match std::env::var("ANTIPHON_TEST_SEED") {
        Ok(text) => text.parse().expect("ANTIPHON_TEST_SEED must be a decimal number"),
        Err(_) => 20_260,
    }
}

impl Random {
    /// The generator of this run for one purpose; other purposes get unrelated numbers.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Random(seed ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        random.bits();
        random
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// One of several values, of which there is at least one.
    pub fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}
