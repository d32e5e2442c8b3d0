//! What a run asks of its ranks, and what they answer: plain data, one JSON line each between processes.

use super::counts::Blocks;
use super::ranks::KernelForm;
use super::shape::{Placement, Shape};
use super::tune::rounds::Rounds;
use super::{CliError, plans};
use antiphon::executor::hal::DeviceName;
use antiphon::plan::model::Plan;
use antiphon::{DataType, ReduceOp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Everything a rank needs to know except which rank it is.
#[derive(Clone, Debug)]
pub struct Job {
    /// The numbers and names.
    pub settings: Settings,
    /// The plans, valid ones, that the items refer to.
    pub plans: Vec<Plan>,
}

/// The part of a job that is not a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Number of ranks.
    pub world: u32,
    /// Number of nodes that this machine stands for.
    pub nodes: u32,
    /// What to measure, in order.
    pub items: Vec<Item>,
    /// Type of the elements.
    #[serde(with = "by_name")]
    pub dtype: DataType,
    /// The reduction to use instead of the plan's.
    #[serde(with = "by_optional_name")]
    pub op: Option<ReduceOp>,
    /// The reduction that takes place, where there is exactly one.
    #[serde(with = "by_optional_name")]
    pub reduces: Option<ReduceOp>,
    /// Whether a rank's input and output share one buffer.
    pub in_place: bool,
    /// Timed iterations per item.
    pub iters: u32,
    /// Untimed ones before them.
    pub warmup: u32,
    /// Whether results are compared.
    pub check: bool,
    /// Items of one call take turns, so often; else each is measured by itself, as the iterations say.
    #[serde(default)]
    pub rounds: Option<Rounds>,
    /// Longest wait for a peer; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Whether plans are verified before they run.
    pub verify: bool,
    /// Where the ranks' buffers are.
    #[serde(with = "by_name")]
    pub device: DeviceName,
    /// Threads of each thread block there.
    pub block_threads: Option<u32>,
    /// What plans become there.
    #[serde(with = "by_name")]
    pub kernels: KernelForm,
    /// The wire that port channels must use.
    pub wire: Option<String>,
    /// Seed of the inputs.
    pub seed: u64,
    /// How the lengths of runtime blocks were chosen, in words.
    pub counts: Option<String>,
}

impl Settings {
    /// The name of the node that a rank is on, where this machine stands for several.
    pub fn host(&self, rank: u32) -> Option<String> {
        let ranks = self.world / self.nodes.max(1);
        (self.nodes > 1).then(|| format!("node {}", rank / ranks.max(1)))
    }
}

/// One size to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Position in the job's plans.
    pub plan: usize,
    /// The buffers; where ranks differ, the largest.
    pub shape: Shape,
    /// The blocks of a plan with runtime sizes.
    #[serde(default)]
    pub blocks: Option<Blocks>,
    /// Which of the calls of a tuning it measures; the items of one are consecutive.
    #[serde(default)]
    pub cell: usize,
}

impl Item {
    /// One rank's buffers, of elements of `element` bytes.
    pub fn shape_of(&self, rank: u32, element: u64) -> Shape {
        self.blocks.as_ref().map_or(self.shape, |blocks| blocks.shape(rank, element))
    }

    /// Where the buffers of a rank lie when the call is in place; none where no rule says.
    pub fn in_place(&self, plan: &Plan, rank: u32, element: u64) -> Option<Placement> {
        match &self.blocks {
            Some(blocks) => blocks.in_place(plan, rank, element),
            None => self.shape.in_place(&plan.collective, rank),
        }
    }
}

/// What a rank reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// It is connected to its peers.
    Ready,
    /// It runs a plan of which the verifier cannot tell whether it is right (reported by rank 0 only).
    NotProven {
        /// The plan's name.
        plan: String,
        /// Why not.
        why: String,
    },
    /// It begins a part of an item (reported by rank 0 only).
    Phase {
        /// Position in the items.
        item: usize,
        /// What the part is.
        phase: String,
    },
    /// It has finished an item.
    Measured {
        /// Position in the items.
        item: usize,
        /// Time of each iteration on this rank, in nanoseconds.
        times: Vec<u64>,
        /// Wrong elements in its output over all checked launches; `None` if nothing was checked.
        wrong: Option<u64>,
        /// The first of them, in words.
        first: Option<String>,
        /// Elements that were not compared, because the plan leaves them to chance.
        chance: u64,
    },
    /// It has finished everything.
    Done,
    /// It has given up.
    Failed {
        /// Why.
        message: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Line {
    settings: Settings,
    plans: Vec<String>,
}

impl Job {
    /// The job as one line of JSON, without the line's end.
    pub fn to_line(&self) -> Result<String, CliError> {
        let plans = self.plans.iter().map(|plan| plans::to_text(plan, false)).collect();
        let line = Line { settings: self.settings.clone(), plans };
        serde_json::to_string(&line)
            .map_err(|error| CliError::Executor(format!("cannot describe the run: {error}")))
    }

    /// Reads a job back.
    pub fn from_line(line: &str) -> Result<Self, CliError> {
        let Line { settings, plans } = serde_json::from_str(line).map_err(|error| {
            CliError::Usage(format!(
                "cannot read the run's description from standard input: {error}; \
                 ranks are started by `antiphon run`"
            ))
        })?;
        let plans = plans
            .iter()
            .map(|text| {
                plans::parse("the run's description", text.as_bytes()).map(|read| read.plan)
            })
            .collect::<Result<Vec<_>, _>>()?;
        if settings.items.iter().any(|item| item.plan >= plans.len()) {
            return Err(CliError::Usage(
                "cannot run: an item names a plan that is not there".into(),
            ));
        }
        Ok(Job { settings, plans })
    }
}

/// Serialises through `Display` and `FromStr`.
mod by_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::fmt::Display;
    use std::str::FromStr;

    pub fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// The same for an optional value.
mod by_optional_name {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use std::fmt::Display;
    use std::str::FromStr;

    pub fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(ToString::to_string).serialize(to)
    }

    pub fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let name = Option::<String>::deserialize(from)?;
        name.map(|name| name.parse().map_err(D::Error::custom)).transpose()
    }
}

#[cfg(test)]
pub mod testing {
    use super::*;

    /// Settings for `world` ranks and these items.
    pub fn settings(world: u32, items: Vec<Item>) -> Settings {
        Settings {
            world,
            nodes: 1,
            items,
            dtype: DataType::Bf16,
            op: None,
            reduces: Some(ReduceOp::Max),
            in_place: false,
            iters: 3,
            warmup: 1,
            check: true,
            rounds: Some(Rounds::within(Duration::from_millis(3))),
            timeout: Some(Duration::from_millis(1500)),
            verify: false,
            device: "cuda:1".parse().unwrap(),
            block_threads: Some(96),
            kernels: KernelForm::Interpreted,
            wire: Some("local".into()),
            seed: u64::MAX,
            counts: Some("even".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::plans::testing::plan;
    use antiphon::plan::model::Collective;

    #[test]
    fn a_job_survives_its_line() {
        let shape = Shape { input: 8, output: 16, count: 4 };
        let blocks = Blocks { send: vec![vec![1], vec![2]], receive: vec![vec![1, 2]; 2] };
        let items = [None, Some(blocks)].map(|blocks| Item { plan: 0, shape, blocks, cell: 3 });
        let settings = testing::settings(2, items.to_vec());
        let job = Job { settings, plans: vec![plan(Collective::AllGather, 2, (1, 2))] };
        let line = job.to_line().unwrap();
        assert!(!line.contains('\n'));
        let back = Job::from_line(&line).unwrap();
        assert_eq!((back.settings, back.plans), (job.settings, job.plans));
    }

    #[test]
    fn ranks_are_spread_over_nodes_in_order() {
        let hosts = |world, nodes| {
            let settings = Settings { nodes, ..testing::settings(world, Vec::new()) };
            (0..world).map(|rank| settings.host(rank)).collect::<Vec<_>>()
        };
        assert_eq!(hosts(2, 1), [None, None]);
        let [a, b] = ["node 0", "node 1"].map(|name| Some(name.to_owned()));
        assert_eq!(hosts(4, 2), [a.clone(), a, b.clone(), b]);
    }

    #[test]
    fn a_broken_line_says_who_starts_ranks() {
        let message = Job::from_line("{}").unwrap_err().to_string();
        assert!(message.contains("`antiphon run`"), "{message}");
    }
}
