//! What one row measures: the collective, its size, and the values that tell a right result from a wrong one.
//!
//! The size of a row is, in bytes of f32: for allreduce the whole buffer, for allgather what one rank contributes, for
//! alltoall the block for one peer, for reducescatter what one rank receives.

use std::fmt;
use std::str::FromStr;

/// The collectives that all subjects know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collective {
    /// Everyone gets the sum of all.
    Allreduce,
    /// Everyone gets what everyone has.
    Allgather,
    /// Block j of rank i goes to block i of rank j.
    Alltoall,
    /// Rank i gets the sum of all blocks i.
    Reducescatter,
}

impl Collective {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 4] =
        [Self::Allreduce, Self::Allgather, Self::Alltoall, Self::Reducescatter];

    /// The name on command lines and in result lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allreduce => "allreduce",
            Self::Allgather => "allgather",
            Self::Alltoall => "alltoall",
            Self::Reducescatter => "reducescatter",
        }
    }
}

/// Whether input and output share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Separate buffers.
    Out,
    /// One buffer.
    In,
}

impl Place {
    /// Both, in the order of the tables.
    pub const ALL: [Self; 2] = [Self::Out, Self::In];

    /// The name on command lines and in result lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
        }
    }
}

/// Sizes above this many bytes are large: fewer iterations of them are made.
const LARGE: usize = 1 << 20;

/// Iterations before those that are measured: of rows up to the large ones, and of those.
const WARMUP: [usize; 2] = [50, 5];

/// Whether a row of so many bytes is large.
pub fn is_large(bytes: usize) -> bool {
    bytes > LARGE
}

/// Iterations before those that are measured, of a row of so many bytes.
pub fn warmup(bytes: usize) -> usize {
    WARMUP[usize::from(is_large(bytes))]
}

/// The same rules for the compiler of `harness.c`.
pub fn definitions() -> [String; 3] {
    let [warmup, of_large] = WARMUP;
    [("LARGE", LARGE), ("WARMUP", warmup), ("WARMUP_LARGE", of_large)]
        .map(|(name, value)| format!("-D{name}={value}u"))
}

fn named<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str, text: &str) -> Result<T, String> {
    let names = || all.iter().map(|&one| name(one)).collect::<Vec<_>>().join(", ");
    let found = all.iter().copied().find(|&one| name(one) == text);
    found.ok_or_else(|| format!("saw `{text}`, allowed {}", names()))
}

impl FromStr for Collective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(&Self::ALL, Self::name, text)
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(&Self::ALL, Self::name, text)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One row for one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// What is run.
    pub collective: Collective,
    /// Over one buffer or two.
    pub place: Place,
    /// The row's size in f32 elements.
    pub count: usize,
    /// How many ranks take part.
    pub ranks: usize,
}

impl Job {
    /// Elements of one rank's input.
    pub fn in_count(&self) -> usize {
        match self.collective {
            Collective::Allreduce | Collective::Allgather => self.count,
            Collective::Alltoall | Collective::Reducescatter => self.count * self.ranks,
        }
    }

    /// Elements of one rank's output.
    pub fn out_count(&self) -> usize {
        match self.collective {
            Collective::Allreduce | Collective::Reducescatter => self.count,
            Collective::Allgather | Collective::Alltoall => self.count * self.ranks,
        }
    }

    /// Bytes of all buffers of all ranks, out of place.
    pub fn total_bytes(&self) -> usize {
        (self.in_count() + self.out_count()) * self.ranks * size_of::<f32>()
    }

    /// Writes the input that `rank` has in `iteration`.
    pub fn fill(&self, input: &mut [f32], rank: usize, iteration: usize) {
        for (block, values) in input.chunks_mut(self.count).enumerate() {
            for (i, to) in values.iter_mut().enumerate() {
                *to = value(i, block, rank, iteration);
            }
        }
    }

    /// Compares a whole output with what it must be; the sums are exact, so there is no tolerance.
    pub fn verify(&self, output: &[f32], rank: usize, iteration: usize) -> Result<(), String> {
        if output.len() != self.out_count() {
            return Err(format!(
                "output of {} elements, expected {}",
                output.len(),
                self.out_count()
            ));
        }
        for (at, &got) in output.iter().enumerate() {
            let want = self.expected(at, rank, iteration);
            if got != want {
                let all = output.len();
                return Err(format!(
                    "{} ({}): element {at} of {all} on rank {rank} is {got}, expected {want} (iteration {iteration})",
                    self.collective, self.place
                ));
            }
        }
        Ok(())
    }

    fn expected(&self, at: usize, rank: usize, iteration: usize) -> f32 {
        let (block, i) = (at / self.count, at % self.count);
        let sum = |block| (0..self.ranks).map(|r| value(i, block, r, iteration)).sum();
        match self.collective {
            Collective::Allgather => value(i, 0, block, iteration),
            Collective::Alltoall => value(i, rank, block, iteration),
            Collective::Allreduce => sum(0),
            Collective::Reducescatter => sum(rank),
        }
    }
}

/// A small integer, so that f32 sums of 16 ranks are exact in any order; tells blocks, ranks and iterations apart.
fn value(i: usize, block: usize, rank: usize, iteration: usize) -> f32 {
    ((i & 511) + 512 * (block + 16 * rank) + (iteration & 15)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for collective in Collective::ALL {
            assert_eq!(collective.name().parse(), Ok(collective));
        }
        assert_eq!(
            "gather".parse::<Collective>(),
            Err("saw `gather`, allowed allreduce, allgather, alltoall, reducescatter".into())
        );
        assert!("inn".parse::<Place>().is_err());
    }

    #[test]
    fn sums_of_sixteen_ranks_are_exact() {
        let largest = value(511, 15, 15, 15);
        assert!(16.0 * largest < (1 << f32::MANTISSA_DIGITS) as f32);
    }

    #[test]
    fn a_stale_or_misplaced_result_is_found() {
        let job = Job { collective: Collective::Alltoall, place: Place::Out, count: 3, ranks: 2 };
        let mut inputs = [vec![0.0; 6], vec![0.0; 6]];
        for (rank, input) in inputs.iter_mut().enumerate() {
            job.fill(input, rank, 5);
        }
        let right: Vec<f32> = [&inputs[0][3..6], &inputs[1][3..6]].concat();
        assert_eq!(job.verify(&right, 1, 5), Ok(()));
        assert!(job.verify(&right, 1, 6).is_err(), "another iteration");
        assert!(job.verify(&inputs[1], 1, 5).is_err(), "blocks not exchanged");
        assert!(job.verify(&right[1..], 1, 5).is_err(), "too short");
    }
}
