//! The plans that tests run: those of another implementation, where they are there, and the project's examples.

use antiphon::plan::model::{ChannelTable, ChannelType, Collective, Gpu, OpKind, Plan};
use antiphon::plan::program::{Instruction, Layout};
use antiphon::plan::{self, algorithms};
use std::path::PathBuf;

/// What is known of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It computes its collective, or runs to its end.
    Ok,
    /// It waits for ever.
    Deadlock,
    /// It computes something else.
    Wrong,
    /// No verdict: judged by running it.
    Unknown,
}

/// A plan and what is known of it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its file's name.
    pub name: String,
    /// The plan.
    pub plan: Plan,
    /// What is known of it.
    pub verdict: Verdict,
    /// Whether a rank may rewrite its buffers as soon as its own launch is complete: the built-in plans promise it.
    pub settled: bool,
}

/// A plan's file.
///
/// # Panics
/// If it has no such form.
pub fn json(plan: &Plan) -> Vec<u8> {
    let mut bytes = Vec::new();
    plan::write(plan, plan::Style::Pretty, &mut bytes).expect("memory takes everything");
    bytes
}

/// A plan that waits for ever: an allreduce of two ranks, one of which signals nothing.
///
/// # Panics
/// If the algorithm is no longer one for two ranks.
pub fn deadlocking() -> Plan {
    let whole = algorithms::Algorithm::AllReduceZeroCopy.plan(algorithms::Shape::new(2));
    let mut plan = whole.expect("an algorithm for any ranks");
    for block in &mut plan.gpus[1].threadblocks {
        block.ops.retain(|op| !matches!(op.kind, OpKind::Signal | OpKind::RelaxedSignal));
    }
    plan
}

/// The bytes of a call's buffers, alike on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Bytes of the send buffer.
    pub input: u64,
    /// Bytes of the receive buffer.
    pub output: u64,
}

/// Names the folder of the other implementation's plans, on machines that have nothing of this repository but its tests.
const FOLDER: &str = "ANTIPHON_TEST_PLANS";

/// The folder of the other implementation's plans, if it is there.
pub fn foreign_folder() -> Option<PathBuf> {
    let beside = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/plans").into();
    let folder: PathBuf = std::env::var_os(FOLDER).map_or_else(beside, PathBuf::from);
    folder.join("README.md").is_file().then_some(folder)
}

/// Every plan there is: the examples always, the other implementation's where they are.
///
/// # Panics
/// If a plan cannot be read or the table of verdicts does not list what is there.
pub fn entries() -> Vec<Entry> {
    let examples = algorithms::examples().expect("the examples can be built");
    let mut entries: Vec<Entry> = examples
        .into_iter()
        .map(|(name, plan)| Entry {
            name: name.to_owned(),
            plan,
            verdict: Verdict::Ok,
            settled: true,
        })
        .collect();
    let Some(folder) = foreign_folder() else {
        println!("SKIP the plans of another implementation: there is no ../shared/plans");
        return entries;
    };
    let table = std::fs::read_to_string(folder.join("README.md")).expect("the table of verdicts");
    let before = entries.len();
    for line in table.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, collective, ranks, verdict, ..] = cells[..] else { continue };
        if !name.ends_with(".json") {
            continue;
        }
        let verdict = match verdict {
            "ok" => Verdict::Ok,
            "deadlock" => Verdict::Deadlock,
            "wrong" => Verdict::Wrong,
            "unsupported" => Verdict::Unknown,
            other => panic!("{name}: unknown verdict `{other}`"),
        };
        let bytes = std::fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let plan = plan::read(&bytes).unwrap_or_else(|e| panic!("{name}: {e}")).plan;
        assert_eq!(plan.collective.to_string(), collective, "{name}");
        assert_eq!(plan.gpus.len().to_string(), ranks, "{name}");
        entries.push(Entry { name: name.to_owned(), plan, verdict, settled: false });
    }
    let files = std::fs::read_dir(&folder).expect("the folder of plans");
    let files = files.filter_map(Result::ok).map(|file| file.path());
    let files = files.filter(|file| file.extension().is_some_and(|ext| ext == "json")).count();
    assert_eq!(entries.len() - before, files, "the table lists every plan of {}", folder.display());
    entries
}

impl Entry {
    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.plan.gpus.len() as u32
    }

    /// The smallest nodes that the plan can run on: for each rank the lowest of those with which loads and stores connect
    /// it, over any number of others.
    ///
    /// # Panics
    /// If the plan cannot be lowered.
    pub fn nodes(&self) -> Vec<u32> {
        let layout = Layout::new(&self.plan).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let mut nodes: Vec<u32> = (0..self.ranks()).collect();
        let mut join = |a: u32, b: u32| {
            let [a, b] = [a, b].map(|rank| nodes[rank as usize]);
            nodes.iter_mut().filter(|node| **node == a.max(b)).for_each(|node| *node = a.min(b));
        };
        for (rank, own) in (0..).zip(&layout.ranks) {
            let memory = own.channels.iter().filter(|channel| !channel.port);
            memory.for_each(|channel| join(rank, channel.peer));
            own.switches.iter().flat_map(|it| &it.members).for_each(|&peer| join(rank, peer));
            for instruction in &own.instructions {
                if let Instruction::Move { sources, destinations, .. } = *instruction {
                    let sides = sources.range().chain(destinations.range());
                    sides.for_each(|side| join(rank, own.accesses[side].rank));
                }
            }
        }
        nodes
    }

    /// Whether the plan has port channels.
    pub fn uses_ports(&self) -> bool {
        self.plan.gpus.iter().flat_map(|gpu| &gpu.channels).any(|table| {
            matches!(table, ChannelTable::Peers { channel_type: ChannelType::Port, connected_to } if !connected_to.is_empty())
        })
    }
}

/// The chunks of the input and the output: the most that any rank has.
pub fn chunks(plan: &Plan) -> (u64, u64) {
    let most = |count: fn(&Gpu) -> u64| plan.gpus.iter().map(count).max().unwrap_or(0);
    (most(|gpu| gpu.input_chunks), most(|gpu| gpu.output_chunks))
}

/// The buffers of a call of about `elements` elements of `size` bytes. What the number counts is what makes the
/// collective's rule hold for any number: elements of the smaller buffer, or to each rank. Plans without such a rule
/// keep the ratio of their chunk counts.
pub fn buffers(plan: &Plan, elements: u64, size: u64) -> Buffers {
    let (ranks, one) = (plan.gpus.len() as u64, elements * size);
    match plan.collective {
        Collective::AllReduce | Collective::Broadcast | Collective::Reduce => {
            Buffers { input: one, output: one }
        }
        Collective::AllGather | Collective::Gather => Buffers { input: one, output: one * ranks },
        Collective::ReduceScatter | Collective::Scatter => {
            Buffers { input: one * ranks, output: one }
        }
        Collective::AllToAll => Buffers { input: one * ranks, output: one * ranks },
        Collective::AllToAllV
        | Collective::AllGatherV
        | Collective::SendRecv
        | Collective::Test
        | Collective::Other(_) => match chunks(plan) {
            (inputs, outputs) if inputs == outputs => Buffers { input: one, output: one },
            (inputs, outputs) => Buffers { input: inputs * one, output: outputs * one },
        },
    }
}

/// The buffers of a call whose every chunk has `elements` elements of `size` bytes.
pub fn whole_chunks(plan: &Plan, elements: u64, size: u64) -> Buffers {
    let (inputs, outputs) = chunks(plan);
    Buffers { input: inputs * elements * size, output: outputs * elements * size }
}

/// Numbers of elements of `size` bytes for [`buffers`], each with what is special about it, within the plan's range.
pub fn sizes(plan: &Plan, size: u64) -> [(&'static str, u64); 4] {
    let (inputs, outputs) = chunks(plan);
    let chunks = match plan.collective {
        Collective::AllGather => inputs,
        Collective::ReduceScatter => outputs,
        Collective::AllToAll => inputs.div_ceil(plan.gpus.len() as u64),
        _ => inputs.max(outputs),
    };
    let chunks = chunks.max(1);
    let Buffers { input, output } = buffers(plan, 1, size);
    let least = plan.min_message_size.div_ceil(input.max(output).max(1)).max(1);
    [
        (MULTIPLE, chunks * least.next_multiple_of(64)),
        // A prime above every chunk count.
        (INDIVISIBLE, least.max(1511)),
        // 16-byte units of each chunk: one more than a multiple of 8, and a part of one.
        (REMAINDER, chunks * (least.next_multiple_of(8 * 4 * 3) + 4 + 3)),
        (TINY, least),
    ]
}

/// The first of [`sizes`].
pub const MULTIPLE: &str = "multiple of the chunks";
/// The second.
pub const INDIVISIBLE: &str = "divided by no chunk count";
/// The third.
pub const REMAINDER: &str = "remainder in group splits";
/// The fourth.
pub const TINY: &str = "tiny";
