//! What the environment says of communicators; each test has processes whose environment it chooses.

use antiphon_executor::{Communicator, ExecutorError, KernelForm, Options, Rendezvous, UniqueId};
use std::process::Command;
use std::time::Duration;

/// Set in the processes that tests start.
const INSIDE: &str = "ANTIPHON_TEST_INSIDE";
/// What would make one a rank of the job that these tests are part of.
const LAUNCHED: [&str; 8] = [
    "ANTIPHON_RANK",
    "ANTIPHON_WORLD",
    "ANTIPHON_COMM_ID",
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMI_PORT",
    "SLURM_PROCID",
];

/// Runs the test whose name is `test` in a process with these variables, where `check` has its turn.
fn with(test: &str, variables: &[(&str, &str)], check: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return check();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    LAUNCHED.iter().for_each(|name| _ = command.env_remove(name));
    let command = command.args(["--exact", test]).env(INSIDE, "1");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// All ways to make a communicator of one rank.
fn made(options: &Options) -> Vec<Result<(), ExecutorError>> {
    let place = Rendezvous::unique().unwrap();
    let id = UniqueId::create(None).unwrap();
    vec![
        Communicator::in_process(1, options).map(drop),
        Communicator::connect(&Rendezvous::new(place.clone(), 0, 1), options).map(drop),
        Communicator::from_place(&place, 0, 1, options).map(drop),
        Communicator::from_id(&id, 0, 1, options).map(drop),
        Communicator::from_environment(options).map(drop),
    ]
}

#[test]
fn a_job_of_one_rank_takes_its_size_alone() {
    with("a_job_of_one_rank_takes_its_size_alone", &[("ANTIPHON_WORLD", "1")], || {
        for _ in 0..2 {
            let alone = Communicator::from_environment(&Options::default()).unwrap();
            assert_eq!((alone.rank(), alone.world()), (0, 1));
            alone.barrier().unwrap();
        }
    });
}

#[test]
fn who_is_no_rank_is_told_the_variables() {
    with("who_is_no_rank_is_told_the_variables", &[], || {
        let error = Communicator::from_environment(&Options::default()).unwrap_err();
        assert!(matches!(error, ExecutorError::Argument { .. }), "{error}");
        let text = error.to_string();
        for name in ["WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "ANTIPHON_WORLD=1"] {
            assert!(text.contains(name), "{text}");
        }
    });
}

#[test]
fn a_garbled_variable_refuses_every_communicator_that_does_not_name_the_option() {
    let variables = [("ANTIPHON_CALL_TIMEOUT", "soon"), ("ANTIPHON_WORLD", "1")];
    let test = "a_garbled_variable_refuses_every_communicator_that_does_not_name_the_option";
    with(test, &variables, || {
        for made in made(&Options::default()) {
            let error = made.unwrap_err();
            assert!(matches!(error, ExecutorError::Launcher(_)), "{error}");
            let text = error.to_string();
            assert!(text.contains("ANTIPHON_CALL_TIMEOUT") && text.contains("soon"), "{text}");
        }
        let limit = Some(Duration::from_secs(60));
        made(&Options::default().with_timeout(limit)).into_iter().for_each(Result::unwrap);
    });
}

#[test]
fn a_wire_that_there_is_not_is_named_with_the_variable() {
    let variables = [
        ("ANTIPHON_WIRE", "pigeon"),
        ("ANTIPHON_KERNELS", "interpreted"),
        ("ANTIPHON_CALL_TIMEOUT", "off"),
        ("ANTIPHON_WORLD", "1"),
    ];
    with("a_wire_that_there_is_not_is_named_with_the_variable", &variables, || {
        let options = Options::default();
        assert_eq!((options.kernels, options.timeout), (KernelForm::Interpreted, None));
        for made in made(&options) {
            let text = made.unwrap_err().to_string();
            assert!(text.contains("pigeon") && text.contains("ANTIPHON_WIRE"), "{text}");
        }
        made(&options.with_wire(None)).into_iter().for_each(Result::unwrap);
    });
}
