//! Seeded choices: the same seed gives the same mutants and schedules, whatever else runs.

/// A small generator of random numbers (splitmix64), enough to shuffle with.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed and the names of what is drawn: different names, different numbers.
    pub fn new(seed: u64, names: &[&str]) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for name in names {
            // The end of a name counts, so that `ab`, `c` is not `a`, `bc`.
            for byte in name.bytes().chain([0xff]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        Random(hash)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Puts `items` in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = (self.draw() % (last as u64 + 1)) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_names_decide_the_order() {
        let order = |seed, names: &[&str]| {
            let mut items: Vec<u32> = (0..20).collect();
            Random::new(seed, names).shuffle(&mut items);
            items
        };
        assert_eq!(order(1, &["a", "b"]), order(1, &["a", "b"]));
        assert_ne!(order(1, &["a", "b"]), order(2, &["a", "b"]));
        assert_ne!(order(1, &["ab", "c"]), order(1, &["a", "bc"]));
        let mut sorted = order(3, &[]);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
}
