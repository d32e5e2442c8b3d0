//! The seam to the executor: which of its set-ups are measured. This is the one file of the benchmark that calls it.
//!
//! A set-up is an [`Entry`] of [`ENTRIES`] and an implementation of [`Subject`] that `open` makes: Antiphon's own
//! memory and plain allocated memory with a process for each rank, and all ranks submitted from one thread where ranks
//! outnumber cores.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use antiphon::executor::launcher::{self, Environment};
use antiphon::executor::{
    Call, Communicator, DataType, Executor, ExecutorError, LoadedPlan, Options, Rendezvous, hal,
};
use antiphon::plan::algorithms::{Handshake, Shape as PlanShape, select};
use antiphon::plan::model;

use super::antiphon::{Prepared, Seat, Subject};
use super::job::{Collective, Job, Place};

/// How the ranks of a set-up are spread over processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A process for each rank.
    Processes,
    /// One process whose one thread submits for all ranks; only measured where ranks outnumber cores.
    OneThread,
}

/// Joins a group.
pub type Open = fn(&Seat) -> Result<Box<dyn Subject>, String>;

/// A set-up of Antiphon that is measured as a subject of its own.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The subject's name in tables and on the command line; begins with `antiphon`.
    pub name: &'static str,
    /// How its ranks run.
    pub shape: Shape,
    /// Joins the group; called once in each process.
    pub open: Open,
}

/// The set-ups, in the order of the tables.
pub const ENTRIES: &[Entry] = &[
    Entry { name: "antiphon", shape: Shape::Processes, open: |seat| open(seat, Source::Own) },
    Entry {
        name: "antiphon-plain",
        shape: Shape::Processes,
        open: |seat| open(seat, Source::Plain),
    },
    Entry {
        name: "antiphon-thread",
        shape: Shape::OneThread,
        open: |seat| open(seat, Source::Own),
    },
];

/// The set-ups whose ranks a launcher starts, on several hosts.
pub const HOST_ENTRIES: &[Entry] = &[
    Entry { name: "antiphon-hosts", shape: Shape::Processes, open: |seat| join(seat, Source::Own) },
    Entry {
        name: "antiphon-hosts-plain",
        shape: Shape::Processes,
        open: |seat| join(seat, Source::Plain),
    },
];

/// The set-up called `name`.
pub fn entry(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().chain(HOST_ENTRIES).find(|e| e.name == name)
}

/// Where buffers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Memory that peers map.
    Own,
    /// The process's allocator.
    Plain,
}

fn open(seat: &Seat, source: Source) -> Result<Box<dyn Subject>, String> {
    let options = Options::default();
    let communicators = if seat.participants == 1 {
        Communicator::in_process(seat.ranks as u32, &options).map_err(text)?
    } else {
        // The folder is fresh, so its name is this group's alone.
        let folder = seat.rendezvous.file_name().unwrap_or_default().to_string_lossy();
        let address = format!("antiphon-bench-{}-{folder}", std::os::unix::process::parent_id());
        let rendezvous = Rendezvous::new(address, seat.participant as u32, seat.ranks as u32);
        vec![Communicator::connect(&rendezvous, &options).map_err(text)?]
    };
    group(communicators, source, 1)
}

/// Joins a job that a launcher's environment describes.
fn join(seat: &Seat, source: Source) -> Result<Box<dyn Subject>, String> {
    let found = launcher::find(&Environment::of_process()).map_err(text)?;
    let found = found.ok_or("cannot join: saw no launcher in the environment")?;
    if found.rank as usize != seat.participant || found.world as usize != seat.ranks {
        return Err(format!(
            "cannot join: the launcher made this rank {} of {}, the harness {} of {}",
            found.rank, found.world, seat.participant, seat.ranks
        ));
    }
    let options = Options::default().with_interface(found.interface.clone());
    let bootstrap = found.connect().map_err(text)?;
    let communicator = Communicator::join(bootstrap, &options).map_err(text)?;
    let nodes = (0..communicator.world()).map(|rank| communicator.node_of(rank));
    let nodes = nodes.collect::<Result<BTreeSet<u32>, _>>().map_err(text)?.len();
    group(vec![communicator], source, nodes)
}

fn group(
    communicators: Vec<Communicator>,
    source: Source,
    nodes: usize,
) -> Result<Box<dyn Subject>, String> {
    let ranks = communicators.into_iter().map(|communicator| {
        let stream = communicator.stream()?;
        let executor = Executor::new(&communicator);
        Ok(Rank { executor, communicator, stream, nodes, row: None })
    });
    let ranks = ranks.collect::<Result<Vec<_>, ExecutorError>>().map_err(text)?;
    Ok(Box::new(Group { source, ranks }))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The ranks of this process.
struct Group {
    source: Source,
    ranks: Vec<Rank>,
}

struct Rank {
    communicator: Communicator,
    executor: Executor,
    stream: Arc<dyn hal::Stream>,
    /// How many nodes the group's ranks are on.
    nodes: usize,
    row: Option<Row>,
}

/// The buffers and the plan of one row.
struct Row {
    plan: Arc<LoadedPlan>,
    input: (*mut f32, usize),
    output: (*mut f32, usize),
    _memory: Memory,
}

/// What keeps a row's buffers; only held.
enum Memory {
    Own { _regions: Vec<Arc<dyn hal::Memory>> },
    Plain { _buffers: Vec<Vec<u64>> },
}

impl Row {
    fn call(&self) -> Call<'_> {
        let bytes = |elements: usize| (elements * size_of::<f32>()) as u64;
        Call {
            plan: &self.plan,
            input: self.input.0.cast_const().cast(),
            output: self.output.0.cast(),
            input_bytes: bytes(self.input.1),
            output_bytes: bytes(self.output.1),
            dtype: DataType::F32,
            op: None,
            counts: None,
        }
    }
}

impl Rank {
    fn prepare(&mut self, source: Source, job: &Job) -> Result<Prepared, String> {
        self.row = None;
        let collective = match job.collective {
            Collective::Allreduce => model::Collective::AllReduce,
            Collective::Allgather => model::Collective::AllGather,
            Collective::Alltoall => model::Collective::AllToAll,
            Collective::Reducescatter => model::Collective::ReduceScatter,
        };
        let in_place = job.place == Place::In;
        let (inputs, outputs) = (job.in_count(), job.out_count());
        let message = (inputs.max(outputs) * size_of::<f32>()) as u64;
        let crowded = self.communicator.crowded_anywhere();
        let handshake = if crowded { Handshake::Hub } else { Handshake::Everyone };
        let nodes = self.nodes;
        let shape = PlanShape { in_place, handshake, nodes, ..PlanShape::new(job.ranks) };
        let Some(choice) = select(&collective, message, shape) else {
            return Ok(Prepared::Unsupported);
        };
        let plan = self.executor.load(&choice.plan().map_err(text)?).map_err(text)?;
        // In place, the smaller buffer is this rank's block of the larger one.
        let block = self.communicator.rank() as usize * inputs.min(outputs);
        let (input_at, output_at) = match (in_place, inputs.cmp(&outputs)) {
            (false, _) => (0, inputs.next_multiple_of(32)),
            (true, std::cmp::Ordering::Less) => (block, 0),
            (true, std::cmp::Ordering::Equal) => (0, 0),
            (true, std::cmp::Ordering::Greater) => (0, block),
        };
        let elements = (input_at + inputs).max(output_at + outputs);
        let (base, memory) = match source {
            Source::Own => {
                let bytes = (elements * size_of::<f32>()) as u64;
                let region = self.communicator.allocate(bytes).map_err(text)?;
                (region.address().cast::<f32>(), Memory::Own { _regions: vec![region] })
            }
            Source::Plain => {
                let mut buffer = vec![1u64; elements.div_ceil(2)];
                (buffer.as_mut_ptr().cast::<f32>(), Memory::Plain { _buffers: vec![buffer] })
            }
        };
        let input = (base.wrapping_add(input_at), inputs);
        let output = (base.wrapping_add(output_at), outputs);
        self.row = Some(Row { plan, input, output, _memory: memory });
        Ok(Prepared::Ready)
    }

    fn row(&self) -> Result<&Row, String> {
        self.row.as_ref().ok_or_else(|| "no row is prepared".to_owned())
    }
}

impl Subject for Group {
    fn ranks(&self) -> Range<usize> {
        let first = self.ranks.first().map_or(0, |rank| rank.communicator.rank() as usize);
        first..first + self.ranks.len()
    }

    fn prepare(&mut self, job: &Job) -> Result<Prepared, String> {
        let mut prepared = Prepared::Ready;
        for rank in &mut self.ranks {
            if rank.prepare(self.source, job)? == Prepared::Unsupported {
                prepared = Prepared::Unsupported;
            }
        }
        Ok(prepared)
    }

    fn input(&mut self, rank: usize) -> &mut [f32] {
        let first = self.ranks().start;
        match &self.ranks[rank - first].row {
            // SAFETY: the row's memory holds that many elements, and no launch is under way.
            Some(row) => unsafe { std::slice::from_raw_parts_mut(row.input.0, row.input.1) },
            None => &mut [],
        }
    }

    fn output(&self, rank: usize) -> &[f32] {
        let first = self.ranks().start;
        match &self.ranks[rank - first].row {
            // SAFETY: as in `input`.
            Some(row) => unsafe { std::slice::from_raw_parts(row.output.0, row.output.1) },
            None => &[],
        }
    }

    fn collective(&mut self) -> Result<(), String> {
        // SAFETY: the buffers belong to the rows and nobody touches them before the launches are complete.
        unsafe {
            if let [rank] = &self.ranks[..] {
                return rank.executor.run(&rank.row()?.call()).map_err(text);
            }
            for rank in &self.ranks {
                rank.executor.execute(&rank.row()?.call(), &rank.stream).map_err(text)?;
            }
        }
        for rank in &self.ranks {
            rank.executor.synchronize(&rank.stream).map_err(text)?;
        }
        Ok(())
    }
}
