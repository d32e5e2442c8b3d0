//! The environments that launchers leave, as recorded from them, and what happens to those that are damaged.

use super::*;

const TORCHRUN: &str = include_str!("recorded/torchrun-2.15.env");
const OPEN_MPI: &str = include_str!("recorded/open-mpi-4.1.env");
const MPICH: &str = include_str!("recorded/mpich-4.0.env");
const SLURM_ONE: &str = include_str!("recorded/slurm-22.05-one-node.env");
const SLURM_TWO: &str = include_str!("recorded/slurm-22.05-two-nodes.env");
const SLURM_PMI: &str = include_str!("recorded/slurm-22.05-pmi2.env");
const SLURM_BATCH: &str = include_str!("recorded/slurm-22.05-batch-script.env");
const BY_HAND: &str = "ANTIPHON_RANK=1\nANTIPHON_WORLD=2\nANTIPHON_COMM_ID=10.0.0.1:4000\n";
const SECRET: &str = "ANTIPHON_SECRET=0123456789abcdef0123456789abcdef";

/// A recorded environment, with lines replaced or added; a name without `=` takes its line away.
fn environment(recorded: &str, changes: &[&str]) -> Environment {
    let pairs = recorded.lines().filter_map(|line| line.split_once('='));
    let mut variables: std::collections::BTreeMap<_, _> = pairs.collect();
    for change in changes {
        match change.split_once('=') {
            Some((name, value)) => variables.insert(name, value),
            None => variables.remove(change),
        };
    }
    variables.into_iter().collect()
}

fn described(found: &Found) -> String {
    let number = |number: Option<u32>| number.map_or("?".to_owned(), |number| number.to_string());
    let Found { launcher, rank, world, local_rank, local_world, rendezvous, interface, .. } = found;
    let listening = if found.listen_everywhere { ", listening everywhere" } else { "" };
    let (local_rank, local_world) = (number(*local_rank), number(*local_world));
    let kind = match rendezvous {
        Meeting::Unix { .. } => "unix".to_owned(),
        Meeting::Alone => "alone".to_owned(),
        Meeting::Tcp { place, secret } => {
            let secret = match secret {
                SecretSource::Place => "of the place",
                SecretSource::Text(_) => "text",
                SecretSource::File(_) => "file",
                SecretSource::Waived => "waived",
            };
            let interface =
                interface.as_deref().map_or(String::new(), |name| format!(" by {name}{listening}"));
            format!("tcp {place}{interface}, secret {secret}")
        }
        Meeting::Pmi { descriptor, one_host } => {
            format!("pmi {descriptor}, {}", if *one_host { "one host" } else { "hosts" })
        }
        Meeting::Store { host, port, .. } => format!("store {host} {port}"),
    };
    format!("{launcher}: {rank}/{world} local {local_rank}/{local_world}: {kind}")
}

#[test]
fn each_launcher_is_recognised() {
    let torch_here = ["LOCAL_WORLD_SIZE=4"];
    let cases: &[(&str, &[&str], &str)] = &[
        (TORCHRUN, &[SECRET], "torchrun: 2/4 local 0/2: tcp node1.example:29501, secret text"),
        (TORCHRUN, &[], "torchrun: 2/4 local 0/2: store node1.example 29500"),
        (TORCHRUN, &["MASTER_ADDR=fd00::1"], "torchrun: 2/4 local 0/2: store fd00::1 29500"),
        (TORCHRUN, &torch_here, "torchrun: 2/4 local 0/4: unix"),
        (
            TORCHRUN,
            &[SECRET, "MASTER_ADDR=fd00::1", "MASTER_PORT=65535", "LOCAL_WORLD_SIZE", "LOCAL_RANK"],
            "torchrun: 2/4 local ?/?: tcp [fd00::1]:65534, secret text",
        ),
        (
            TORCHRUN,
            &["MSCCLPP_MASTER_ADDR=10.1.1.1", "MSCCLPP_MASTER_PORT=777", "ANTIPHON_INSECURE=1"],
            "torchrun: 2/4 local 0/2: tcp 10.1.1.1:777, secret waived",
        ),
        (
            TORCHRUN,
            &["ANTIPHON_INSECURE=1"],
            "torchrun: 2/4 local 0/2: tcp node1.example:29501, secret waived",
        ),
        (
            TORCHRUN,
            &["MSCCLPP_COMM_ID=eth0:10.1.1.1:99", "ANTIPHON_SECRET_FILE=/etc/key"],
            "torchrun: 2/4 local 0/2: tcp 10.1.1.1:99 by eth0, secret file",
        ),
        (
            TORCHRUN,
            &[SECRET, "MSCCLPP_SOCKET_IFNAME=ib0"],
            "torchrun: 2/4 local 0/2: tcp node1.example:29501 by ib0, listening everywhere, secret text",
        ),
        (OPEN_MPI, &[], "Open MPI: 1/2 local 1/2: unix"),
        (OPEN_MPI, &["PMIX_NAMESPACE"], "Open MPI: 1/2 local 1/2: unix"),
        (
            OPEN_MPI,
            &["OMPI_COMM_WORLD_LOCAL_SIZE=1", "ANTIPHON_COMM_ID=file:/shared/meet", SECRET],
            "Open MPI: 1/2 local 1/1: tcp file:/shared/meet, secret text",
        ),
        (
            OPEN_MPI,
            &["OMPI_COMM_WORLD_LOCAL_SIZE=1", "ANTIPHON_COMM_ID=host1:4000", SECRET],
            "Open MPI: 1/2 local 1/1: tcp host1:4000, secret text",
        ),
        // mpirun within a Slurm job.
        (OPEN_MPI, &["SLURM_PROCID=0", "SLURM_STEP_ID=0"], "Open MPI: 1/2 local 1/2: unix"),
        (MPICH, &[], "PMI: 1/2 local 1/2: pmi 8, one host"),
        (MPICH, &["MPI_LOCALNRANKS=1"], "PMI: 1/2 local 1/1: pmi 8, hosts"),
        (SLURM_PMI, &[], "PMI: 2/4 local 0/?: pmi 11, hosts"),
        (SLURM_ONE, &[], "Slurm: 1/2 local 1/2: unix"),
        (SLURM_TWO, &[SECRET], "Slurm: 2/4 local 0/2: tcp node01:25796, secret text"),
        (
            SLURM_TWO,
            &[SECRET, "SLURM_STEP_NODELIST=gpu[07-09,12]", "SLURM_STEP_ID=1"],
            "Slurm: 2/4 local 0/2: tcp gpu07:21237, secret text",
        ),
        (BY_HAND, &[SECRET], "ANTIPHON_RANK: 1/2 local ?/?: tcp 10.0.0.1:4000, secret text"),
        (
            BY_HAND,
            &["ANTIPHON_COMM_ID=antiphon-00112233445566778899aabbccddeeff"],
            "ANTIPHON_RANK: 1/2 local ?/?: unix",
        ),
        (
            BY_HAND,
            &["ANTIPHON_COMM_ID=localhost:4000", "NCCL_SOCKET_IFNAME==lo", SECRET],
            "ANTIPHON_RANK: 1/2 local ?/?: tcp localhost:4000 by lo, listening everywhere, secret text",
        ),
        (
            BY_HAND,
            &["ANTIPHON_COMM_ID=node1:4000", "ANTIPHON_INTERFACE=10.1.", SECRET],
            "ANTIPHON_RANK: 1/2 local ?/?: tcp node1:4000 by 10.1., listening everywhere, secret text",
        ),
        (
            BY_HAND,
            &["ANTIPHON_COMM_ID=ib0:node1:4000", "ANTIPHON_INTERFACE=eth0", SECRET],
            "ANTIPHON_RANK: 1/2 local ?/?: tcp node1:4000 by ib0, secret text",
        ),
        (
            BY_HAND,
            &["ANTIPHON_COMM_ID=lo:localhost:4000", "NCCL_SOCKET_IFNAME==lo", SECRET],
            "ANTIPHON_RANK: 1/2 local ?/?: tcp localhost:4000 by lo, secret text",
        ),
        (
            BY_HAND,
            &[
                "ANTIPHON_COMM_ID=localhost:4000",
                "ANTIPHON_INTERFACE=ib0",
                "NCCL_SOCKET_IFNAME==lo",
                SECRET,
            ],
            "ANTIPHON_RANK: 1/2 local ?/?: tcp localhost:4000 by ib0, listening everywhere, secret text",
        ),
        // On one host nothing hangs on the network that NCCL is to take.
        (
            BY_HAND,
            &[
                "NCCL_SOCKET_IFNAME==no-such-interface",
                "ANTIPHON_COMM_ID=antiphon-00112233445566778899aabbccddeeff",
            ],
            "ANTIPHON_RANK: 1/2 local ?/?: unix",
        ),
        ("ANTIPHON_WORLD=1", &[], "ANTIPHON_RANK: 0/1 local ?/?: alone"),
        (
            "ANTIPHON_WORLD=1",
            &["ANTIPHON_RANK=0", "NCCL_SOCKET_IFNAME==no-such-interface"],
            "ANTIPHON_RANK: 0/1 local ?/?: alone",
        ),
        (
            "ANTIPHON_WORLD=1",
            &["ANTIPHON_COMM_ID=[::1]:5", SECRET],
            "ANTIPHON_RANK: 0/1 local ?/?: tcp [::1]:5, secret text",
        ),
        // By hand wins.
        (TORCHRUN, &["ANTIPHON_WORLD=1"], "ANTIPHON_RANK: 0/1 local ?/?: alone"),
        (
            TORCHRUN,
            &[SECRET, "ANTIPHON_RANK=0", "ANTIPHON_WORLD=3", "ANTIPHON_COMM_ID=[::1]:5"],
            "ANTIPHON_RANK: 0/3 local ?/?: tcp [::1]:5, secret text",
        ),
    ];
    for (recorded, changes, expected) in cases {
        let found = find(&environment(recorded, changes));
        let found = found.unwrap_or_else(|error| panic!("{expected}: {error}"));
        assert_eq!(found.as_ref().map(described).as_deref(), Some(*expected), "{changes:?}");
    }
}

#[test]
fn what_is_no_launch_is_none() {
    let interactive = ["SLURM_STEP_ID=4294967290"];
    let cases: [(&str, &[&str]); 5] = [
        ("", &[]),
        ("PATH=/bin\nRANK=captain\n", &[]),
        ("MASTER_ADDR=here\nMASTER_PORT=1\n", &[]),
        (SLURM_BATCH, &[]),
        (SLURM_TWO, &interactive),
    ];
    for (recorded, changes) in cases {
        let found = find(&environment(recorded, changes)).unwrap();
        assert_eq!(found, None, "{changes:?}");
    }
}

#[test]
fn what_is_damaged_is_named() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            TORCHRUN,
            &["MSCCLPP_MASTER_PORT=29600"],
            &["node1.example:29600", "ANTIPHON_SECRET_FILE", "ANTIPHON_INSECURE=1"],
        ),
        (TORCHRUN, &["MSCCLPP_MASTER_ADDR=node2"], &["node2:29501", "ANTIPHON_SECRET_FILE"]),
        (TORCHRUN, &["RANK=two"], &["RANK", "\"two\"", "whole number"]),
        (TORCHRUN, &[SECRET, "RANK=4"], &["RANK is 4", "WORLD_SIZE is 4"]),
        (TORCHRUN, &[SECRET, "WORLD_SIZE=0"], &["WORLD_SIZE is 0"]),
        (TORCHRUN, &["RANK=-1"], &["RANK", "\"-1\""]),
        (
            TORCHRUN,
            &["WORLD_SIZE"],
            &["torchrun", "WORLD_SIZE is not set", "RANK, MASTER_ADDR are"],
        ),
        (TORCHRUN, &["MASTER_PORT"], &["MASTER_PORT is not set"]),
        (TORCHRUN, &["MASTER_PORT=http"], &["MASTER_PORT", "\"http\"", "1 to 65535"]),
        (TORCHRUN, &["MASTER_ADDR=a b"], &["MASTER_ADDR", "\"a b\""]),
        (TORCHRUN, &["MSCCLPP_MASTER_PORT=0"], &["MSCCLPP_MASTER_PORT", "\"0\""]),
        (
            TORCHRUN,
            &["ANTIPHON_SECRET=short"],
            &["ANTIPHON_SECRET: it has 5 bytes; write 16 or more"],
        ),
        (TORCHRUN, &["ANTIPHON_INSECURE=yes"], &["ANTIPHON_INSECURE", "0 or 1"]),
        (TORCHRUN, &[SECRET, "ANTIPHON_TIMEOUT=soon"], &["ANTIPHON_TIMEOUT", "60s"]),
        (
            OPEN_MPI,
            &["OMPI_COMM_WORLD_LOCAL_SIZE=1"],
            &["Open MPI", "OMPI_COMM_WORLD_RANK=1", "no address", "ANTIPHON_COMM_ID"],
        ),
        (OPEN_MPI, &["OMPI_COMM_WORLD_SIZE"], &["OMPI_COMM_WORLD_SIZE is not set"]),
        (
            OPEN_MPI,
            &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
            &["PMIX_NAMESPACE is not set", "OMPI_COMM_WORLD_RANK"],
        ),
        (
            OPEN_MPI,
            &["ANTIPHON_COMM_ID=antiphon-0123"],
            &["\"antiphon-0123\"", "32 hexadecimal digits"],
        ),
        (BY_HAND, &[SECRET, "NCCL_SOCKET_IFNAME==no-such-interface"], &["NCCL_SOCKET_IFNAME"]),
        (OPEN_MPI, &["ANTIPHON_COMM_ID=host1"], &["ANTIPHON_COMM_ID", "\"host1\"", "host:port"]),
        (OPEN_MPI, &["ANTIPHON_COMM_ID=file:"], &["ANTIPHON_COMM_ID", "names no file"]),
        (OPEN_MPI, &["ANTIPHON_COMM_ID=file:/shared/meet"], &["/shared/meet", "ANTIPHON_SECRET"]),
        (MPICH, &["PMI_FD"], &["PMI", "PMI_FD is not set", "PMI_RANK, PMI_SIZE are"]),
        (MPICH, &["PMI_FD=six"], &["PMI_FD", "\"six\""]),
        (MPICH, &["PMI_FD=-1"], &["PMI_FD", "\"-1\""]),
        ("PMI_PORT=host1:3\nPMI_ID=0\n", &[], &["PMI_RANK is not set", "PMI_PORT, PMI_ID are"]),
        (SLURM_TWO, &[], &["node01:", "ANTIPHON_SECRET"]),
        (SLURM_TWO, &["SLURM_STEP_NODELIST=node["], &["SLURM_STEP_NODELIST", "node[01-04,7]"]),
        (SLURM_TWO, &["SLURM_STEP_ID=batch"], &["SLURM_STEP_ID", "\"batch\""]),
        (SLURM_TWO, &["SLURM_STEP_TASKS_PER_NODE=2(x"], &["SLURM_STEP_TASKS_PER_NODE"]),
        (SLURM_TWO, &["SLURM_JOB_ID", "SLURM_JOBID"], &["SLURM_JOB_ID is not set"]),
        (BY_HAND, &["ANTIPHON_WORLD"], &["ANTIPHON_WORLD is not set"]),
        (BY_HAND, &["ANTIPHON_RANK"], &["ANTIPHON_RANK is not set", "ANTIPHON_WORLD is"]),
        ("ANTIPHON_WORLD=1", &["ANTIPHON_RANK=1"], &["ANTIPHON_RANK is 1", "ANTIPHON_WORLD is 1"]),
        (BY_HAND, &["ANTIPHON_COMM_ID"], &["ANTIPHON_COMM_ID is not set"]),
        (BY_HAND, &[], &["10.0.0.1:4000", "ANTIPHON_SECRET"]),
    ];
    for (recorded, changes, parts) in cases {
        let error = match find(&environment(recorded, changes)) {
            Err(error) => error.to_string(),
            Ok(found) => panic!("{changes:?}: {found:?}"),
        };
        for part in *parts {
            assert!(error.contains(part), "{changes:?}: no {part:?} in: {error}");
        }
    }
}

#[test]
fn garbage_of_any_length_is_an_error_and_long_values_are_not_repeated() {
    let long = "x".repeat(100_000);
    let names = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "ANTIPHON_RANK"];
    for (recorded, name) in [TORCHRUN, OPEN_MPI, MPICH, SLURM_TWO, BY_HAND].iter().zip(names) {
        for value in [long.as_str(), "\u{0}", "1e3", "0x1", "4294967296", "१", "1 2"] {
            let change = format!("{name}={value}");
            let error = find(&environment(recorded, &[&change])).unwrap_err().to_string();
            assert!(error.contains(name) && error.len() < 400, "{name}: {error}");
        }
    }
}

#[test]
fn a_damaged_unique_id_is_an_error_that_does_not_tell_the_secret() {
    let digits = "ab".repeat(42);
    for text in [format!("antiphon1:{digits}"), format!("ntiphon1:{digits}"), digits.clone()] {
        let change = format!("ANTIPHON_COMM_ID={text}");
        let error = find(&environment(BY_HAND, &[&change])).unwrap_err().to_string();
        assert!(error.contains("ANTIPHON_COMM_ID") && !error.contains(&digits[..20]), "{error}");
    }
}

#[test]
fn equal_jobs_meet_and_others_do_not() {
    let address = |recorded: &str, changes: &[&str]| match find(&environment(recorded, changes))
        .unwrap()
        .unwrap()
        .rendezvous
    {
        Meeting::Unix { address } => address,
        Meeting::Store { job, .. } => job,
        other => panic!("{other:?}"),
    };
    let torch = "LOCAL_WORLD_SIZE=4";
    let addresses = [
        address(OPEN_MPI, &[]),
        address(OPEN_MPI, &["PMIX_NAMESPACE=2"]),
        address(OPEN_MPI, &["OMPI_MCA_orte_precondition_transports=0"]),
        address(TORCHRUN, &[torch]),
        address(TORCHRUN, &[torch, "MASTER_PORT=29600"]),
        address(TORCHRUN, &[torch, "TORCHELASTIC_RESTART_COUNT=1"]),
        address(SLURM_ONE, &[]),
        address(SLURM_ONE, &["SLURM_STEP_ID=7"]),
        address(TORCHRUN, &[]),
        address(TORCHRUN, &["TORCHELASTIC_RUN_ID=next"]),
        address(TORCHRUN, &["WORLD_SIZE=6"]),
    ];
    for (at, first) in addresses.iter().enumerate() {
        assert!(!addresses[..at].contains(first), "{at}: {first}");
    }
    assert_eq!(address(OPEN_MPI, &["OMPI_COMM_WORLD_RANK=0"]), addresses[0]);
    assert_eq!(address(TORCHRUN, &[torch, "RANK=0", "GROUP_RANK=0"]), addresses[3]);
    // Agents of one job may have restarted their ranks unequally often.
    let other = ["RANK=0", "GROUP_RANK=0", "LOCAL_WORLD_SIZE=1", "TORCHELASTIC_RESTART_COUNT=1"];
    assert_eq!(address(TORCHRUN, &other), addresses[8]);
}
