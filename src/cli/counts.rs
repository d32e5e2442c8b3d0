//! Plans with runtime sizes: how many elements each block of a call has, and where it lies.
//!
//! Nobody but the caller knows these numbers, so the command makes them up: from the message size by a rule, the same
//! numbers in every run, or as it is told. Blocks lie one after the other.

use super::CliError;
use super::shape::{Placement, Shape};
use antiphon::executor::Extent;
use antiphon::plan::model::{Collective, Plan};
use antiphon::plan::program::Layout;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// Most blocks of all ranks together whose lengths are chosen here.
const MOST_BLOCKS: u64 = 1 << 20;

/// The shares that blocks have in turn, uneven: nothing, little and much.
const SHARES: [u64; 4] = [3, 0, 1, 2];

/// What `--counts` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// All blocks alike.
    Even,
    /// Shares of 3, 0, 1 and 2 in turn.
    Uneven,
    /// By chance, from this seed or any.
    Random(Option<u64>),
    /// These numbers.
    List(String),
    /// The numbers in this file.
    File(PathBuf),
}

/// Reads the value of `--counts`.
pub fn parse(text: &str) -> Result<Pattern, String> {
    let seed = |seed: &str| {
        let seed = seed.parse().map_err(|_| {
            format!("cannot read a seed: saw `{seed}`; give a whole number, as in random:7")
        })?;
        Ok(Pattern::Random(Some(seed)))
    };
    match text {
        "even" => Ok(Pattern::Even),
        "uneven" => Ok(Pattern::Uneven),
        "random" => Ok(Pattern::Random(None)),
        "" => {
            Err("cannot read counts: saw nothing; give even, uneven, random, numbers or a file"
                .into())
        }
        _ => match text.strip_prefix("random:") {
            Some(text) => seed(text),
            None if text.starts_with(|c: char| c.is_ascii_digit()) => {
                rows(text).map(|_| Pattern::List(text.to_owned()))
            }
            None => Ok(Pattern::File(text.into())),
        },
    }
}

/// Rows of whole numbers: rows end at colons and line ends, `#` begins a comment.
fn rows(text: &str) -> Result<Vec<Vec<u64>>, String> {
    let number = |text: &str| {
        text.parse().map_err(|_| {
            format!(
                "cannot read counts: saw `{text}`; give whole numbers of elements, as in 4,0:1,7"
            )
        })
    };
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let rows = lines.flat_map(|line| line.split(':')).map(|row| {
        let numbers = row.split(|c: char| c == ',' || c.is_whitespace());
        numbers.filter(|number| !number.is_empty()).map(number).collect::<Result<Vec<u64>, _>>()
    });
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    Ok(rows.into_iter().filter(|row| !row.is_empty()).collect())
}

/// How the lengths of blocks are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// All blocks alike.
    Even,
    /// Shares of 3, 0, 1 and 2 in turn.
    Uneven,
    /// By chance from this seed.
    Random(u64),
    /// In elements: what each rank sends.
    Given(Vec<Vec<u64>>),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Even => f.pad("even"),
            Rule::Uneven => f.pad("uneven"),
            Rule::Random(seed) => write!(f, "random:{seed}"),
            Rule::Given(_) => f.pad("as given"),
        }
    }
}

impl Pattern {
    /// The rule asked for; `seed` is one by chance.
    pub fn rule(&self, seed: u64) -> Result<Rule, CliError> {
        let text = match self {
            Pattern::Even => return Ok(Rule::Even),
            Pattern::Uneven => return Ok(Rule::Uneven),
            Pattern::Random(given) => return Ok(Rule::Random(given.unwrap_or(seed))),
            Pattern::List(text) => text.clone(),
            Pattern::File(path) => std::fs::read_to_string(path)
                .map_err(|source| CliError::ReadCounts { path: path.clone(), source })?,
        };
        rows(&text).map(Rule::Given).map_err(CliError::Usage)
    }
}

/// The runtime blocks of all ranks in one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    /// Elements of each block of each rank's input.
    pub send: Vec<Vec<u64>>,
    /// Elements of each block of each rank's output.
    pub receive: Vec<Vec<u64>>,
}

impl Blocks {
    /// The blocks of a call of a plan with runtime sizes, whose largest buffer has at most `size` bytes of elements of
    /// `element` bytes; but a block has at least one element unless it is to have none.
    pub fn new(plan: &Plan, rule: &Rule, size: u64, element: u64) -> Result<Blocks, CliError> {
        let lengths = Lengths::of(plan)?;
        if let Rule::Given(rows) = rule {
            return lengths.given(plan, rows);
        }
        let mut shares: Vec<u64> = match rule {
            Rule::Uneven => lengths.turns.iter().map(|turn| SHARES[(turn % 4) as usize]).collect(),
            Rule::Random(seed) => {
                (0..lengths.turns.len() as u64).map(|n| chance(*seed, n)).collect()
            }
            Rule::Even | Rule::Given(_) => vec![1; lengths.turns.len()],
        };
        if let Some(first) = shares.first_mut().filter(|_| size > 0) {
            let nothing = *first == 0 && shares[1..].iter().all(|&share| share == 0);
            shares[0] = if nothing { 1 } else { shares[0] };
        }
        let whole = lengths.blocks(&shares).largest().max(1);
        let elements = size / element;
        let scaled = shares.iter().map(|&share| {
            let count = u128::from(elements) * u128::from(share) / u128::from(whole);
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            if share == 0 || size == 0 { 0 } else { count.max(1) }
        });
        Ok(lengths.blocks(&scaled.collect::<Vec<_>>()))
    }

    /// Elements of the largest buffer of any rank.
    fn largest(&self) -> u64 {
        self.send.iter().chain(&self.receive).map(|counts| sum(counts)).max().unwrap_or(0)
    }

    /// One rank's buffers.
    pub fn shape(&self, rank: u32, element: u64) -> Shape {
        let elements = |side: &[Vec<u64>]| side.get(rank as usize).map_or(0, |counts| sum(counts));
        let (input, output) = (elements(&self.send), elements(&self.receive));
        let bytes = |elements: u64| elements.saturating_mul(element);
        Shape { input: bytes(input), output: bytes(output), count: input.max(output) }
    }

    /// The largest input and the largest output of any rank.
    pub fn widest(&self, element: u64) -> Shape {
        let shapes = (0..self.send.len() as u32).map(|rank| self.shape(rank, element));
        let none = Shape { input: 0, output: 0, count: 0 };
        shapes.fold(none, |most, shape| Shape {
            input: most.input.max(shape.input),
            output: most.output.max(shape.output),
            count: most.count.max(shape.count),
        })
    }

    /// Where the blocks of a rank's input and of its output lie.
    pub fn extents(&self, rank: u32) -> [Vec<Extent>; 2] {
        let packed = |side: &[Vec<u64>]| {
            side.get(rank as usize).map_or(Vec::new(), |counts| Extent::packed(counts))
        };
        [packed(&self.send), packed(&self.receive)]
    }

    /// Where a rank's buffers lie when the call is in place; none where no rule says.
    pub fn in_place(&self, plan: &Plan, rank: u32, element: u64) -> Option<Placement> {
        if plan.collective != Collective::AllGatherV || !plan.in_place {
            return None;
        }
        let own = self.extents(rank)[1].get(rank as usize)?.offset.saturating_mul(element);
        Some(Placement { bytes: self.shape(rank, element).output, input: own, output: 0 })
    }

    /// What busbw is algbw times: the share of the largest buffer that the busiest rank exchanges with others.
    pub fn bus_factor(&self, collective: &Collective) -> f64 {
        let own = |side: &[Vec<u64>], rank: usize| {
            side.get(rank).and_then(|counts| counts.get(rank)).copied().unwrap_or(0)
        };
        let exchanged = |rank: usize| {
            let received = sum(&self.receive[rank]) - own(&self.receive, rank);
            match collective {
                Collective::AllToAllV => {
                    received.max(sum(&self.send[rank]) - own(&self.send, rank))
                }
                _ => received,
            }
        };
        let exchanges = matches!(collective, Collective::AllToAllV | Collective::AllGatherV);
        let largest = self.largest();
        if !exchanges || largest == 0 {
            return 1.0;
        }
        let busiest = (0..self.receive.len()).map(exchanged).max().unwrap_or(0);
        busiest as f64 / largest as f64
    }

    /// The numbers in words, or what they amount to where they are many.
    pub fn describe(&self, collective: &Collective) -> String {
        const SHOWN: usize = 64;
        let list = |counts: &[u64]| {
            let counts: Vec<_> = counts.iter().map(u64::to_string).collect();
            if counts.is_empty() { "nothing".to_owned() } else { counts.join(" ") }
        };
        let all = || self.send.iter().flatten();
        if all().count() > SHOWN {
            let (least, most) = (all().min().unwrap_or(&0), all().max().unwrap_or(&0));
            let ranks = self.send.len();
            return format!(
                "{ranks} ranks send {least} to {most} elements a block; --json lists them"
            );
        }
        if *collective == Collective::AllGatherV {
            return format!("ranks send {}", list(&all().copied().collect::<Vec<_>>()));
        }
        let known = *collective == Collective::AllToAllV;
        let ranks =
            self.send.iter().zip(&self.receive).enumerate().map(|(rank, (send, receive))| {
                let received =
                    if known { String::new() } else { format!(" and receives {}", list(receive)) };
                format!("rank {rank} sends {}{received}", list(send))
            });
        ranks.collect::<Vec<_>>().join(", ")
    }
}

fn sum(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, &count| sum.saturating_add(count))
}

/// A share by chance; one in eight is none.
fn chance(seed: u64, number: u64) -> u64 {
    let mut random = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    random = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    random = (random ^ (random >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    random ^= random >> 31;
    if random & 7 == 0 { 0 } else { 1 + (random >> 32) % 1000 }
}

/// Which blocks must have equal lengths, because data moves between them.
struct Lengths {
    /// For each block of each rank's input, the number of its length.
    send: Vec<Vec<usize>>,
    /// The same of outputs.
    receive: Vec<Vec<usize>>,
    /// For each length, whose turn it is when shares are handed out.
    turns: Vec<u64>,
}

impl Lengths {
    fn of(plan: &Plan) -> Result<Lengths, CliError> {
        let blocks = plan.gpus.iter().map(|gpu| gpu.input_chunks.saturating_add(gpu.output_chunks));
        let blocks = blocks.fold(0u64, u64::saturating_add);
        let ranks = plan.gpus.len();
        if blocks.max((ranks as u64).saturating_mul(ranks as u64)) > MOST_BLOCKS {
            return Err(CliError::Usage(format!(
                "cannot choose counts for plan `{}`: saw {blocks} blocks, allowed {MOST_BLOCKS}; call it from a program",
                plan.name
            )));
        }
        Ok(match plan.collective {
            Collective::AllToAllV => Lengths {
                send: (0..ranks)
                    .map(|from| (0..ranks).map(|to| from * ranks + to).collect())
                    .collect(),
                receive: (0..ranks)
                    .map(|to| (0..ranks).map(|from| from * ranks + to).collect())
                    .collect(),
                turns: (0..ranks * ranks).map(|n| (n / ranks + 2 * (n % ranks)) as u64).collect(),
            },
            Collective::AllGatherV => Lengths {
                send: (0..ranks).map(|rank| vec![rank]).collect(),
                receive: vec![(0..ranks).collect(); ranks],
                turns: (0..ranks as u64).collect(),
            },
            _ => Lengths::moved(plan)?,
        })
    }

    /// The lengths of a plan that promises nothing: blocks are as long as those that they are moved to and from.
    fn moved(plan: &Plan) -> Result<Lengths, CliError> {
        let layout = Layout::new(plan).map_err(|error| CliError::Executor(error.to_string()))?;
        let mut starts = Vec::new();
        let mut count = 0;
        for rank in &layout.ranks {
            let [input, output] = rank.runtime_blocks.map(|blocks| blocks as usize);
            starts.push([count, count + input]);
            count += input + output;
        }
        let mut first: Vec<usize> = (0..count).collect();
        let find = |first: &[usize], mut block: usize| {
            while first[block] != block {
                block = first[block];
            }
            block
        };
        for each in layout.ranks.iter().flat_map(|rank| &rank.block_moves) {
            let ends = [each.source, each.destination].map(|block| {
                let start = starts[block.rank as usize][usize::from(block.output)];
                find(&first, start + block.index as usize)
            });
            let least = ends[0].min(ends[1]);
            ends.iter().for_each(|&end| first[end] = least);
        }
        let mut numbers = vec![usize::MAX; count];
        let mut turns = Vec::new();
        let mut number = |block: usize| {
            let root = find(&first, block);
            if numbers[root] == usize::MAX {
                numbers[root] = turns.len();
                turns.push(turns.len() as u64);
            }
            numbers[root]
        };
        let (mut send, mut receive) = (Vec::new(), Vec::new());
        for (rank, [input, output]) in layout.ranks.iter().zip(starts) {
            send.push((input..output).map(&mut number).collect());
            let end = output + rank.runtime_blocks[1] as usize;
            receive.push((output..end).map(&mut number).collect());
        }
        Ok(Lengths { send, receive, turns })
    }

    /// The blocks, for these elements of each length.
    fn blocks(&self, counts: &[u64]) -> Blocks {
        let side = |numbers: &[Vec<usize>]| {
            let rank =
                |numbers: &Vec<usize>| numbers.iter().map(|&number| counts[number]).collect();
            numbers.iter().map(rank).collect()
        };
        Blocks { send: side(&self.send), receive: side(&self.receive) }
    }

    /// The blocks, from what the user says that each rank sends.
    fn given(&self, plan: &Plan, rows: &[Vec<u64>]) -> Result<Blocks, CliError> {
        let ranks = plan.gpus.len();
        let refused = |saw: String, allowed: String| {
            Err(CliError::Usage(format!(
                "cannot run plan `{}` with these counts: saw {saw}, allowed {allowed}",
                plan.name
            )))
        };
        let saw = || {
            let rows: Vec<_> = rows.iter().map(|row| row.len().to_string()).collect();
            format!(
                "rows of {} numbers",
                if rows.is_empty() { "no".into() } else { rows.join(", ") }
            )
        };
        match plan.collective {
            Collective::AllToAllV
                if rows.len() != ranks || rows.iter().any(|row| row.len() != ranks) =>
            {
                let allowed = format!(
                    "a row for each of {ranks} ranks, of what it sends to each, as in 4,0:1,7"
                );
                return refused(saw(), allowed);
            }
            Collective::AllGatherV if rows.iter().flatten().count() != ranks => {
                return refused(saw(), format!("one number for each of {ranks} ranks, as in 4,0"));
            }
            Collective::AllToAllV | Collective::AllGatherV => {}
            _ => {
                let saw = format!("a {} plan, whose blocks have no agreed order", plan.collective);
                return refused(saw, "even, uneven and random".into());
            }
        }
        Ok(self.blocks(&rows.iter().flatten().copied().collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests;
