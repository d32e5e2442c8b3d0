//! `antiphon` started by launchers: real `mpirun`s and a real torchrun where they are installed, and the environments that
//! torchrun, `srun` and a person leave.
//!
//! `ANTIPHON_NEEDS_TORCHRUN` makes a missing torchrun a failure; another than that of the path is `ANTIPHON_TORCHRUN`.
//! `ANTIPHON_NEEDS_MPI` makes a missing MPICH one, which may be `ANTIPHON_TEST_MPICH` in the place of `mpirun.mpich`.

use antiphon_tests::Folder;
use antiphon_tests::net::{Finished, Network, Process, skip};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A job of some ranks on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const PROGRAM: &str = env!("CARGO_BIN_EXE_antiphon");
const SECRET: (&str, &str) = ("ANTIPHON_SECRET", "a secret of the tests of launchers");

/// Starts this program with arguments, without whatever launcher runs the tests.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let of_a_launcher = ["ANTIPHON_", "OMPI_", "PMI", "SLURM_", "MPI_", "TORCH", "MSCCLPP_"];
        if of_a_launcher.iter().any(|prefix| name.starts_with(prefix)) || name == "RANK" {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

fn folder(name: &str) -> Folder {
    Folder::new(env!("CARGO_TARGET_TMPDIR"), name).unwrap()
}

/// Starts one rank for each environment, and waits for all.
fn run(environments: &[Vec<(&str, String)>], arguments: &[&str]) -> Vec<Finished> {
    let start = |environment: &Vec<(&str, String)>| {
        let variables = environment.iter().map(|(name, value)| (*name, value.as_str()));
        Process::start(command(PROGRAM).args(arguments).envs(variables))
    };
    let ranks: Vec<Process> = environments.iter().map(start).collect();
    ranks.into_iter().map(|rank| rank.finish(LIMIT)).collect()
}

/// Every rank ends well, and rank 0 alone prints the table, which says who started the ranks.
fn check(ranks: &[Finished], launcher: &str, nodes: &str) {
    for (rank, finished) in ranks.iter().enumerate() {
        assert!(finished.succeeded(), "{launcher}, rank {rank}: {finished:?}");
        assert_eq!(finished.printed.is_empty(), rank != 0, "{launcher}, rank {rank}: {finished:?}");
    }
    let printed = &ranks[0].printed;
    let heading = format!("{} ranks started by {launcher} on {nodes}", ranks.len());
    assert!(printed.contains(&heading), "{heading:?} in {printed}");
    assert!(printed.contains("# wrong elements: 0 OK"), "{printed}");
}

/// A port that nobody listens at, with a free one after it: both below those that the kernel gives to connections, and no other test
/// of this process gets them.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(37);
    let next = || first.wrapping_add(NEXT.fetch_add(1, Ordering::SeqCst));
    let mut ports = std::iter::repeat_with(|| 20_000 + (next() % 6_000) as u16 * 2).take(6_000);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    ports.find(|&port| is_free(port) && is_free(port + 1)).unwrap()
}

const BENCH: [&str; 6] = ["bench", "allreduce", "--size", "4K", "--iters", "3"];

#[test]
fn each_mpirun_starts_ranks_that_find_each_other() {
    let open_mpi = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"];
    let mpich = std::env::var("ANTIPHON_TEST_MPICH").unwrap_or_else(|_| "mpirun.mpich".to_owned());
    let cases: [(&str, &[&str], &str); 2] =
        [("mpirun.openmpi", &open_mpi, "Open MPI"), (&mpich, &[], "PMI")];
    for (program, options, launcher) in cases {
        if Command::new(program).arg("--version").output().is_err() {
            let needed = launcher == "PMI" && std::env::var_os("ANTIPHON_NEEDS_MPI").is_some();
            assert!(!needed, "there is no {program}, and ANTIPHON_NEEDS_MPI is set");
            println!("SKIP {launcher}: there is no {program}; install openmpi-bin and mpich");
            continue;
        }
        for ranks in ["2", "4"] {
            let mut mpirun = command(program);
            mpirun.args(options).args(["-np", ranks, PROGRAM]).args(BENCH);
            let finished = Process::start(&mut mpirun).finish(LIMIT);
            assert!(finished.succeeded(), "{program}: {finished:?}");
            let heading = format!("{ranks} ranks started by {launcher} on 1 node");
            assert!(finished.printed.contains(&heading), "{program}: {finished:?}");
            assert_eq!(finished.printed.matches("wrong elements: 0 OK").count(), 1, "{finished:?}");
        }
        // A rank that fails takes the job with it, and the cause is said.
        let mut mpirun = command(program);
        mpirun.args(options).args(["-np", "2", PROGRAM, "run", "/no such plan.json"]);
        let finished = Process::start(&mut mpirun).finish(LIMIT);
        let failed = finished.status.is_some_and(|status| !status.success());
        assert!(failed && finished.said.contains("/no such plan.json"), "{program}: {finished:?}");
    }
}

fn torchrun(rank: u32, world: u32, port: u16) -> Vec<(&'static str, String)> {
    vec![
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", world.to_string()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", port.to_string()),
        ("TORCHELASTIC_RUN_ID", "none".to_owned()),
        ("TORCHELASTIC_USE_AGENT_STORE", "True".to_owned()),
    ]
}

/// Two agents of two ranks each, without a secret in their environment.
fn agents(program: &str, network: Option<&Network>, options: &[&str]) -> Vec<Finished> {
    let master = network.map_or("127.0.0.1".to_owned(), |network| network.address(0).to_string());
    let port = free_port().to_string();
    // The agents' own logs.
    let logs = folder("torchrun");
    let start = |node: usize| {
        let mut agent = command(program);
        if let Some(network) = network {
            let inside = network.command(node, program);
            agent = command(&inside.get_program().to_string_lossy());
            agent.args(inside.get_args());
        }
        agent.args(["--nnodes=2", "--nproc_per_node=2"]).arg(format!("--node_rank={node}"));
        agent.args([format!("--master_addr={master}"), format!("--master_port={port}")]);
        agent.args(options).arg("--no_python").arg(PROGRAM).args(BENCH);
        agent.env("TMPDIR", logs.path()).env("ANTIPHON_HOSTID", format!("host {node}"));
        Process::start(agent.env("ANTIPHON_TIMEOUT", "50s"))
    };
    let agents = [start(0), start(1)];
    agents.into_iter().map(|agent| agent.finish(LIMIT)).collect()
}

#[test]
fn torchrun_starts_ranks_that_find_each_other_by_its_store() {
    let program = std::env::var("ANTIPHON_TORCHRUN").unwrap_or_else(|_| "torchrun".to_owned());
    let help = Command::new(&program).arg("--help").output();
    if !help.as_ref().is_ok_and(|help| help.status.success()) {
        let reason = format!("{program}: {help:?}; install python3-torch, or PyTorch by pip");
        assert!(std::env::var_os("ANTIPHON_NEEDS_TORCHRUN").is_none(), "{reason}");
        println!("SKIP torchrun: {reason}");
        return;
    }
    // Two hosts in name, and where possible two with a network of their own each.
    let network = Network::build(2);
    let network = network.map_err(|reason| skip("torchrun over network namespaces", &reason)).ok();
    let places = std::iter::once(None).chain(network.as_ref().map(Some));
    for place in places {
        // PyTorch 1.13 under Python 3.11 cannot start ranks whose output it does not keep.
        let ended = agents(&program, place, &["--redirects=1", "--tee=1"]);
        for (node, finished) in ended.iter().enumerate() {
            assert!(finished.succeeded(), "node {node}: {finished:?}");
        }
        let printed = &ended[0].printed;
        for part in [
            "4 ranks started by torchrun on 2 nodes",
            "# wire tcp: rank 0 to 2",
            "# wrong elements: 0 OK",
        ] {
            assert!(printed.contains(part), "{part:?} in {:?}", ended[0]);
        }
        assert!(!ended[1].printed.contains("# wrong"), "{:?}", ended[1]);
    }
    if let Some(network) = network {
        assert_eq!(network.processes(), Vec::<i32>::new(), "nothing runs on");
    }
}

#[test]
fn ranks_of_torchrun_find_each_other_beside_its_store() {
    // As the agent's store does for as long as the job runs.
    let (store, port) = loop {
        let port = free_port();
        if let Ok(store) = TcpListener::bind(("127.0.0.1", port)) {
            break (store, port);
        }
    };
    let here = |rank: u32| {
        let mut environment = torchrun(rank, 2, port);
        environment
            .extend([("LOCAL_RANK", rank.to_string()), ("LOCAL_WORLD_SIZE", "2".to_owned())]);
        environment
    };
    check(&run(&[here(0), here(1)], &BENCH), "torchrun", "1 node");
    let apart = |rank: u32| {
        let mut environment = torchrun(rank, 2, port);
        environment.extend([
            ("LOCAL_RANK", "0".to_owned()),
            ("LOCAL_WORLD_SIZE", "1".to_owned()),
            ("ANTIPHON_HOSTID", format!("host {rank}")),
            (SECRET.0, SECRET.1.to_owned()),
        ]);
        environment
    };
    let ranks = run(&[apart(0), apart(1)], &BENCH);
    check(&ranks, "torchrun", "2 nodes");
    assert!(ranks[0].printed.contains("# wire tcp: rank 0 to 1"), "{:?}", ranks[0]);
    drop(store);
}

#[test]
fn tasks_of_srun_find_each_other() {
    let task = |rank: u32| {
        vec![
            ("SLURM_PROCID", rank.to_string()),
            ("SLURM_LOCALID", rank.to_string()),
            ("SLURM_NODEID", "0".to_owned()),
            ("SLURM_STEP_ID", "0".to_owned()),
            ("SLURM_JOB_ID", std::process::id().to_string()),
            ("SLURM_STEP_NUM_NODES", "1".to_owned()),
            ("SLURM_STEP_NUM_TASKS", "2".to_owned()),
            ("SLURM_STEP_TASKS_PER_NODE", "2".to_owned()),
            ("SLURM_STEP_NODELIST", "node1".to_owned()),
        ]
    };
    check(&run(&[task(0), task(1)], &BENCH), "Slurm", "1 node");
    // Two nodes, the first of which is this machine.
    let apart = |rank: u32| {
        let mut environment = task(rank);
        let changes = [
            ("SLURM_STEP_ID", "1"),
            ("SLURM_STEP_NUM_NODES", "2"),
            ("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
            ("SLURM_STEP_NODELIST", "localhost,node2"),
            SECRET,
        ];
        environment.extend(changes.map(|(name, value)| (name, value.to_owned())));
        environment.push(("ANTIPHON_HOSTID", format!("host {rank}")));
        environment
    };
    check(&run(&[apart(0), apart(1)], &BENCH), "Slurm", "2 nodes");
}

#[test]
fn by_hand_at_an_address_or_by_a_file() {
    let folder = folder("meeting");
    let file = folder.join("file");
    let places = [format!("127.0.0.1:{}", free_port()), format!("file:{}", file.display())];
    for place in places {
        let rank = |rank: u32| {
            vec![
                ("ANTIPHON_RANK", rank.to_string()),
                ("ANTIPHON_WORLD", "2".to_owned()),
                ("ANTIPHON_COMM_ID", place.clone()),
                ("ANTIPHON_HOSTID", format!("host {rank}")),
                (SECRET.0, SECRET.1.to_owned()),
            ]
        };
        check(&run(&[rank(0), rank(1)], &BENCH), "ANTIPHON_RANK", "2 nodes");
    }
    assert!(!file.exists(), "the file is taken away");
}

#[test]
fn what_is_missing_is_said_before_anybody_waits_for_long() {
    let hosts = [("LOCAL_WORLD_SIZE", "1".to_owned())];
    let no_store = [torchrun(0, 2, free_port()), hosts.to_vec()].concat();
    let elsewhere = [("MSCCLPP_MASTER_PORT", "29600".to_owned())];
    let no_secret = [torchrun(0, 2, 29500), hosts.to_vec(), elsewhere.to_vec()].concat();
    let open_mpi = vec![
        ("OMPI_COMM_WORLD_RANK", "0".to_owned()),
        ("OMPI_COMM_WORLD_SIZE", "2".to_owned()),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "1".to_owned()),
    ];
    let pmi = vec![
        ("PMI_RANK", "0".to_owned()),
        ("PMI_SIZE", "2".to_owned()),
        ("PMI_FD", "999".to_owned()),
    ];
    let launched = [&BENCH[..], &["--launched"]].concat();
    type Variables = Vec<(&'static str, String)>;
    let no_store_parts = ["nobody listens there", "MASTER_PORT", "ANTIPHON_SECRET_FILE"];
    let cases: [(Variables, &[&str], &[&str]); 5] = [
        (no_store, &BENCH, &no_store_parts),
        (no_secret, &BENCH, &["ANTIPHON_SECRET", "ANTIPHON_SECRET_FILE", "--processes"]),
        (open_mpi, &BENCH, &["Open MPI", "ANTIPHON_COMM_ID", "OMPI_COMM_WORLD_RANK=0"]),
        (pmi, &BENCH, &["PMI_FD=999", "ANTIPHON_COMM_ID"]),
        (Vec::new(), &launched, &["torchrun", "OMPI_COMM_WORLD_RANK", "ANTIPHON_COMM_ID"]),
    ];
    for (environment, arguments, parts) in cases {
        let finished = run(&[environment], arguments).pop().unwrap();
        let status = finished.status.and_then(|status| status.code());
        assert!(matches!(status, Some(1 | 2)), "{parts:?}: {finished:?}");
        for part in parts {
            assert!(finished.said.contains(part), "{part}: {finished:?}");
        }
        assert!(finished.took < Duration::from_secs(20), "{finished:?}");
    }
}

#[test]
fn the_plan_must_fit_the_ranks_that_were_started() {
    use antiphon::plan::algorithms::{Algorithm, Shape};
    let plan = Algorithm::AllReduceZeroCopy.plan(Shape::new(3)).unwrap();
    let folder = folder("three");
    let path = folder.join("plan.json");
    std::fs::write(&path, antiphon_tests::harness::plans::json(&plan)).unwrap();
    let rank = |rank: u32| {
        let local = [("LOCAL_RANK", rank.to_string()), ("LOCAL_WORLD_SIZE", "2".to_owned())];
        [torchrun(rank, 2, 29500), local.to_vec()].concat()
    };
    let ranks = run(&[rank(0), rank(1)], &["run", path.to_str().unwrap()]);
    for finished in &ranks {
        assert!(!finished.succeeded(), "{finished:?}");
        assert!(finished.said.contains("over 2 ranks, which torchrun started"), "{finished:?}");
    }
    // Without the launcher the same command starts the plan's own ranks.
    let arguments = ["run", path.to_str().unwrap(), "--processes", "--size", "4K"];
    let alone = run(&[rank(0)], &arguments);
    assert!(alone[0].succeeded() && alone[0].printed.contains("3 ranks as processes"), "{alone:?}");
}
