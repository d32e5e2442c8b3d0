//! What the environment says of communicators; each test has processes whose environment it chooses.

use crate::support::processes::alone;
use antiphon_executor::{Communicator, ExecutorError, KernelForm, Options, Rendezvous, UniqueId};
use std::time::Duration;

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
    alone(a_job_of_one_rank_takes_its_size_alone, &[("ANTIPHON_WORLD", "1")], || {
        for _ in 0..2 {
            let alone = Communicator::from_environment(&Options::default()).unwrap();
            assert_eq!((alone.rank(), alone.world()), (0, 1));
            alone.barrier().unwrap();
        }
    });
}

#[test]
fn who_is_no_rank_is_told_the_variables() {
    alone(who_is_no_rank_is_told_the_variables, &[], || {
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
    let test = a_garbled_variable_refuses_every_communicator_that_does_not_name_the_option;
    alone(test, &variables, || {
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
    alone(a_wire_that_there_is_not_is_named_with_the_variable, &variables, || {
        let options = Options::default();
        assert_eq!((options.kernels, options.timeout), (KernelForm::Interpreted, None));
        for made in made(&options) {
            let text = made.unwrap_err().to_string();
            assert!(text.contains("pigeon") && text.contains("ANTIPHON_WIRE"), "{text}");
        }
        made(&options.with_wire(None)).into_iter().for_each(Result::unwrap);
    });
}
