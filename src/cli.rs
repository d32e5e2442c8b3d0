//! The command line: its options, and which module carries a command out.

mod children;
mod collect;
mod counts;
mod error;
mod explain;
mod files;
mod info;
mod install;
mod job;
mod kernels;
mod launch;
mod launched;
mod machine;
mod measure;
mod pictures;
mod plan_files;
mod plans;
mod probe;
mod programs;
mod progress;
mod ranks;
mod reference;
mod report;
mod run;
mod shape;
mod show;
mod signals;
mod simulate;
mod size;
mod table;
mod topologies;
mod tune;
mod verify;
mod verify_json;

use antiphon::executor::Communicator;
use antiphon::executor::hal::DeviceName;
use antiphon::plan::algorithms::devices::DeviceClass;
use antiphon::{DataType, ReduceOp};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ranks::{KernelForm, Options};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

pub use error::CliError;

/// Programmable collective communication: runs execution plans on CPUs and GPUs.
#[derive(Debug, Parser)]
#[command(name = "antiphon", version, about, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a plan over its ranks, check the results and measure the time
    Run(RunArgs),
    /// Measure a built-in algorithm, chosen by size; no plan file needed
    Bench(BenchArgs),
    /// Say what would serve a call on this machine, and why
    Explain(ExplainArgs),
    /// Measure the candidates for each call on this machine, and write the table that the choice among them reads
    Tune(TuneArgs),
    /// Write the default plans into the cache folder, or have plans serve the calls of every process on this machine
    Install(InstallArgs),
    /// Look at plan files
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Print what this machine offers: devices, transports, CPU features
    Info {
        /// Measure how fast this machine runs plans, and write it down for `plan simulate --topology host`
        #[arg(long)]
        measure: bool,
        /// Where to write it [default: host-topology.json in the cache folder]; `-` prints it
        #[arg(short, long, requires = "measure")]
        output: Option<PathBuf>,
    },
    /// One rank of a run; started by the run itself
    #[command(hide = true)]
    Rank,
    /// Tries to read the memory of the process that started it; started by `info`
    #[command(hide = true)]
    Probe {
        /// The process to read from.
        pid: i32,
        /// Where the eight bytes are.
        address: usize,
        /// What they are.
        token: u64,
    },
}

#[derive(Debug, Args)]
struct RunArgs {
    /// The plan file (JSON, current or legacy format), or a program (.py); `-` reads standard input
    plan: PathBuf,
    /// Number of ranks; must be what the plan has [default: from the plan]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    #[command(flatten)]
    measure: MeasureArgs,
}

/// The most ranks that this machine is asked to bring up: as many as one process may have.
const MOST_RANKS: i64 = Communicator::MOST_IN_PROCESS as i64;

#[derive(Debug, Args)]
struct BenchArgs {
    /// The collective
    collective: BuiltIn,
    /// Number of ranks [default: 4, or those that a launcher started]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=MOST_RANKS))]
    ranks: Option<u32>,
    #[command(flatten)]
    measure: MeasureArgs,
}

/// The collectives that have built-in algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
enum BuiltIn {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    AllToAllV,
    AllGatherV,
    Broadcast,
    Reduce,
    Gather,
    Scatter,
    SendRecv,
}

/// Options shared by `run` and `bench`.
#[derive(Debug, Args)]
struct MeasureArgs {
    #[command(flatten)]
    sweep: size::Sweep,
    /// Element type: f16, bf16, f32, f64, i8, u8, i32, u32, i64, u64, f8e4m3 or f8e5m2
    #[arg(long, default_value = "f32")]
    dtype: DataType,
    /// Reduction: sum, prod, min, max or avg [default: what the plan says, else sum]
    #[arg(long)]
    op: Option<ReduceOp>,
    /// Elements of each block, in alltoallv, allgatherv and other plans with runtime sizes: even, uneven, random,
    /// random:SEED, numbers such as 4,0:1,7 (what rank 0 sends to each, then rank 1), or a file of them [default: uneven]
    #[arg(long, value_parser = counts::parse)]
    counts: Option<counts::Pattern>,
    /// Use one buffer for input and output [default: what the plan says]
    #[arg(long)]
    in_place: bool,
    /// Timed iterations per size
    #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    iters: u32,
    /// Untimed iterations before them
    #[arg(short = 'w', long, default_value_t = 5)]
    warmup: u32,
    /// Whether to compare the results of every rank with the reference: 0 or 1
    #[arg(short = 'c', long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    check: u8,
    /// Run plans without verifying them first: refuted ones, too
    #[arg(long)]
    no_verify: bool,
    /// Ranks as threads of this process
    #[arg(long, conflicts_with = "processes")]
    threads: bool,
    /// Ranks as processes (the default)
    #[arg(long)]
    processes: bool,
    /// This process is one rank of a job that torchrun, mpirun, srun or a script with ANTIPHON_RANK started; rank 0
    /// prints [default: if such a launcher started more than one, and none of --ranks, --threads and --processes is given]
    #[arg(long, conflicts_with_all = ["threads", "processes", "ranks"])]
    launched: bool,
    /// Let this machine stand for as many nodes, with the ranks spread over them in order: only port channels cross. In a
    /// launched job, choose built-in algorithms for as many [default: 1; launched, as the ranks lie]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<u32>,
    /// Where the ranks' buffers are: host, cuda or rocm (ranks take turns on the devices there are), or one device, as in
    /// cuda:0
    #[arg(long, value_name = "DEVICE", default_value = "host")]
    device: DeviceName,
    /// Threads of each thread block on a GPU [default: what the plan says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    block_threads: Option<u32>,
    /// What plans become on a GPU: generated (kernels of their own), interpreted, or auto: the first where there is a run-time
    /// compiler [default: ANTIPHON_KERNELS, else auto]
    #[arg(long, value_name = "FORM")]
    kernels: Option<KernelForm>,
    /// The wire of port channels: local, tcp, or a plugin's name [default: ANTIPHON_WIRE, else for each peer the one
    /// of least cost]
    #[arg(long, value_name = "NAME")]
    wire: Option<String>,
    /// How long a launch may make no progress before it fails, e.g. 500ms, 60s or 2m; `off`: for ever [default:
    /// ANTIPHON_CALL_TIMEOUT, else 60s]
    #[arg(long, value_parser = size::parse_timeout)]
    timeout: Option<Timeout>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ExplainArgs {
    /// The collective
    collective: BuiltIn,
    /// Number of ranks
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Nodes that the ranks are spread over; this machine's cores count as theirs together
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Message size in bytes, with K, M or G for powers of 1024
    #[arg(long, default_value = "1M", value_parser = size::parse)]
    size: u64,
    /// Element type
    #[arg(long, default_value = "f32")]
    dtype: DataType,
    /// Reduction, of collectives that reduce: sum, prod, min, max or avg [default: sum]
    #[arg(long)]
    op: Option<ReduceOp>,
    /// Use one buffer for input and output
    #[arg(long)]
    in_place: bool,
    /// The root of a broadcast, reduce, gather or scatter
    #[arg(long, default_value_t = 0)]
    root: u32,
    /// Ranks as threads of one process, not as processes
    #[arg(long)]
    threads: bool,
    /// Ranks on GPUs as those of a topology of the simulator: h100x8, a100x8 or mi300x8; not on this machine's processors
    #[arg(long, value_name = "TOPO", value_parser = explain::class)]
    topology: Option<DeviceClass>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct InstallArgs {
    /// Plan files, or programs (.py), that serve calls by name from now on; without any, the default plans are written
    files: Vec<PathBuf>,
    /// Default plans for so many ranks [default: the number of cores that this process may use, at least 2]
    #[arg(long, conflicts_with = "files", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// Nodes that the ranks are spread over
    #[arg(long, default_value_t = 1, conflicts_with = "files", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// What selectors, tables and messages call the plan [default: its own name]
    #[arg(long, requires = "files")]
    name: Option<String>,
    /// A tag; may be given several times
    #[arg(long = "tag", value_name = "TAG", requires = "files")]
    tags: Vec<String>,
    /// Serve only where so many ranks are on each node
    #[arg(long, requires = "files", value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_node: Option<u32>,
    /// Smallest message, in bytes, with K, M or G for powers of 1024
    #[arg(long, value_parser = size::parse, requires = "files")]
    min: Option<u64>,
    /// Largest message
    #[arg(long, value_parser = size::parse, requires = "files")]
    max: Option<u64>,
    /// An element type; may be given several times [default: all]
    #[arg(long = "dtype", value_name = "T", requires = "files")]
    dtypes: Vec<DataType>,
    /// A reduction, in the place of what the plan says; may be given several times [default: what the plan says, else all]
    #[arg(long = "op", value_name = "R", requires = "files")]
    ops: Vec<ReduceOp>,
    /// The root of a plan of broadcast, reduce, gather or scatter
    #[arg(long, requires = "files")]
    root: Option<u32>,
    /// List what is installed, and what serves nothing
    #[arg(long, conflicts_with_all = ["files", "remove", "ranks", "nodes"])]
    list: bool,
    /// Remove an installed plan, by its name; may be given several times
    #[arg(long, value_name = "NAME", conflicts_with_all = ["files", "ranks", "nodes"])]
    remove: Vec<String>,
}

#[derive(Debug, Args)]
struct TuneArgs {
    /// The collectives [default: all whose calls go by a table: allreduce, allgather, reducescatter, alltoall, broadcast, reduce, gather and scatter]; sendrecv if it is named
    collectives: Vec<BuiltIn>,
    /// Number of ranks
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=MOST_RANKS))]
    ranks: u32,
    /// Let this machine stand for as many nodes, with the ranks spread over them in order
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Ranks as threads of this process
    #[arg(long, conflicts_with = "processes")]
    threads: bool,
    /// Ranks as processes (the default)
    #[arg(long)]
    processes: bool,
    /// Use one buffer for input and output
    #[arg(long)]
    in_place: bool,
    /// One message size in bytes, with K, M or G for powers of 1024
    #[arg(long, value_parser = size::parse, conflicts_with_all = ["begin", "end", "factor"])]
    size: Option<u64>,
    /// First size [default: 16]
    #[arg(short = 'b', long, value_parser = size::parse)]
    begin: Option<u64>,
    /// Last size [default: 64M, or the first if that is given]
    #[arg(short = 'e', long, value_parser = size::parse)]
    end: Option<u64>,
    /// Factor between the sizes [default: 4]
    #[arg(short = 'f', long, value_parser = clap::value_parser!(u64).range(2..))]
    factor: Option<u64>,
    /// Time for each collective and size; few iterations are made in any case
    #[arg(long, default_value = "250ms", value_parser = size::parse_duration)]
    time: Duration,
    /// In how many moments close calls are measured, each time with new ranks, a while after the time before
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    moments: u32,
    /// A plan file, or program, to be measured beside what is built in and installed; may be given several times
    #[arg(long = "plan", value_name = "FILE")]
    plans: Vec<PathBuf>,
    /// Also measure what the table has already
    #[arg(long)]
    again: bool,
    /// The table [default: what ANTIPHON_TUNING names, else tuning.json in the cache folder]
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// How long a launch may make no progress before it fails, e.g. 500ms, 60s or 2m; `off`: for ever [default:
    /// ANTIPHON_CALL_TIMEOUT, else 60s]
    #[arg(long, value_parser = size::parse_timeout)]
    timeout: Option<Timeout>,
}

impl MeasureArgs {
    /// How ranks behave. What these arguments do not name is as for every communicator.
    fn options(&self) -> Result<Options, CliError> {
        let mut options = within(self.timeout)
            .with_verification(!self.no_verify)
            .with_block_threads(self.block_threads);
        if let Some(form) = self.kernels {
            options = options.with_kernels(form);
        }
        if let Some(wire) = &self.wire {
            options = options.with_wire(Some(wire.clone()));
        }
        checked(options)
    }
}

impl TuneArgs {
    /// The longest wait.
    fn timeout(&self) -> Result<Option<Duration>, CliError> {
        Ok(checked(within(self.timeout))?.timeout)
    }
}

/// How ranks behave that wait so long, or as long as every communicator's.
fn within(timeout: Option<Timeout>) -> Options {
    let options = Options::default();
    match timeout {
        Some(Timeout(limit)) => options.with_timeout(limit),
        None => options,
    }
}

/// These options, if the environment garbles none that nobody named.
fn checked(options: Options) -> Result<Options, CliError> {
    options.check().map_err(|error| CliError::Usage(error.to_string()))?;
    Ok(options)
}

/// The longest wait; `None` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timeout(Option<Duration>);

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// List every fault of a plan, one a line, or print OK
    Check {
        /// The plan file; `-` reads standard input
        file: PathBuf,
    },
    /// Prove plans correct, or show how they go wrong
    ///
    /// Exits with 0 if they are proven, 1 if one is refuted, 2 if one is neither, 3 if one cannot be verified at all.
    Verify {
        /// The plan files or programs; `-` reads standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print one JSON object instead of text
        #[arg(long)]
        json: bool,
        /// Also say what plans without a promise of their own compute
        #[arg(long)]
        results: bool,
    },
    /// Summarise a plan: ranks, blocks, channels, operations
    Show {
        /// The plan file; `-` reads standard input
        file: PathBuf,
        /// List the operations of this rank
        #[arg(long, conflicts_with_all = ["html", "svg"])]
        rank: Option<u32>,
        #[command(flatten)]
        picture: PictureArgs,
    },
    /// Write a plan in the current format
    Convert {
        /// The plan file, in any format that is read; `-` reads standard input
        file: PathBuf,
        /// Where to write [default: standard output]
        #[arg(short, long)]
        output: Option<PathBuf>,
        /// Indent, one field a line
        #[arg(long)]
        pretty: bool,
    },
    /// Compile the kernels of plans for GPUs ahead, which takes no GPU; ANTIPHON_CODE_DIR names the folder where they run
    Kernels(KernelArgs),
    /// Predict the time of plans from a cost model, and compare them
    Simulate(SimulateArgs),
}

/// Pictures, and the launch that they show.
#[derive(Debug, Args)]
struct PictureArgs {
    /// Draw a page for a browser, with what the verifier finds, into this file
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
    /// Draw a figure into this file
    #[arg(long, value_name = "OUT")]
    svg: Option<PathBuf>,
    /// What the times are predicted for, as for `plan simulate` [default: as many nodes of h100x8 as it takes]
    #[arg(short, long)]
    topology: Option<String>,
    /// Message size in bytes, with K, M or G for powers of 1024 [default: 1M, or what the plan allows]
    #[arg(long, value_parser = size::parse)]
    size: Option<u64>,
}

#[derive(Debug, Args)]
struct KernelArgs {
    /// The plan files, or programs (.py); `-` reads standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// What to compile for, as the vendors' compilers call it, e.g. sm_90 or gfx90a; may be given several times
    #[arg(short, long = "architecture", required = true, value_name = "NAME")]
    architectures: Vec<String>,
    /// An element type; may be given several times
    #[arg(long = "dtype", value_name = "T", default_value = "f32")]
    dtypes: Vec<DataType>,
    /// A reduction, in the place of what the plan says; may be given several times [default: what the plan says]
    #[arg(long = "op", value_name = "R")]
    ops: Vec<ReduceOp>,
    /// The folder
    #[arg(short, long)]
    output: PathBuf,
}

#[derive(Debug, Args)]
struct SimulateArgs {
    /// The plan files; `-` reads standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// What to run on: h100x8, a100x8 or mi300x8, perhaps with -N for N nodes; `host`, this machine as `info --measure`
    /// found it; or a topology file
    #[arg(short, long)]
    topology: String,
    #[command(flatten)]
    sweep: size::Sweep,
    /// Element type: f16, bf16, f32, f64, i8, u8, i32, u32, i64, u64, f8e4m3 or f8e5m2
    #[arg(long, default_value = "f32")]
    dtype: DataType,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

/// Carries out a command.
pub fn execute(cli: Cli) -> Result<ExitCode, CliError> {
    match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Bench(args) => run::bench(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Install(args) => install::install(&args),
        Command::Plan(PlanCommand::Check { file }) => plan_files::check(&file),
        Command::Plan(PlanCommand::Verify { files, json, results }) => {
            verify::verify(&files, json, results)
        }
        Command::Plan(PlanCommand::Show { file, rank, picture }) => {
            plan_files::show(&file, rank, &picture)
        }
        Command::Plan(PlanCommand::Convert { file, output, pretty }) => {
            plan_files::convert(&file, output.as_deref(), pretty)
        }
        Command::Plan(PlanCommand::Kernels(args)) => kernels::compile(&args),
        Command::Plan(PlanCommand::Simulate(args)) => simulate::simulate(&args),
        Command::Info { measure: false, .. } => info::print(),
        Command::Info { measure: true, output } => topologies::measure(output.as_deref()),
        Command::Rank => children::rank_main(),
        Command::Probe { pid, address, token } => Ok(probe::answer(pid, address, token)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_option_tables_are_consistent() {
        Cli::command().debug_assert();
    }

    fn refused(line: &str) -> String {
        Cli::try_parse_from(line.split_whitespace()).expect_err(line).to_string()
    }

    #[test]
    fn mistakes_are_named_with_what_is_allowed() {
        let cases = [
            ("antiphon run p.json --size 1X", "K, M or G"),
            ("antiphon run p.json --size 1M -b 1K", "cannot be used with"),
            ("antiphon run p.json -e 1M", "--begin"),
            ("antiphon run p.json -b 1K -e 1M -f 1", "2.."),
            ("antiphon run p.json --dtype float32", "f32, f64"),
            ("antiphon run p.json --op xor", "sum, prod, min, max, avg"),
            ("antiphon run p.json --check 2", "0..=1"),
            ("antiphon run p.json --iters 0", "1.."),
            ("antiphon run p.json --counts random:x", "random:7"),
            ("antiphon run p.json --threads --processes", "cannot be used with"),
            ("antiphon run p.json --launched --threads", "cannot be used with"),
            ("antiphon bench allreduce --launched --ranks 2", "cannot be used with"),
            ("antiphon run p.json --timeout 60h", "60s"),
            ("antiphon run", "<PLAN>"),
            ("antiphon plan verify", "<FILE>"),
            ("antiphon bench gossip", "allreduce, allgather, reducescatter"),
            ("antiphon bench allreduce --ranks 0", "1.."),
            ("antiphon bench allreduce --ranks 4294967295", "1..=65536"),
            ("antiphon tune --ranks 65537", "1..=65536"),
            ("antiphon tune gossip", "allreduce, allgather, reducescatter"),
            ("antiphon tune --size 1K -b 1K", "cannot be used with"),
            ("antiphon tune --time off", "60 (seconds)\n"),
        ];
        for (line, hint) in cases {
            let message = refused(line);
            assert!(message.contains(hint), "`{line}` says:\n{message}");
        }
    }

    #[test]
    fn the_options_of_nccl_tests_work_by_their_letters() {
        let line = "antiphon run p.json -b 1K -e 64M -f 4 -n 100 -w 10 -c 0 --no-verify --threads";
        let Command::Run(args) = Cli::try_parse_from(line.split_whitespace()).unwrap().command
        else {
            panic!("not a run")
        };
        let m = &args.measure;
        assert_eq!(
            m.sweep.sizes().unwrap(),
            [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
        );
        assert_eq!((m.iters, m.warmup, m.check), (100, 10, 0));
        assert!(m.threads && m.no_verify && !m.processes && !m.json && !m.in_place);
        assert_eq!(m.timeout, None);
    }
}
