//! How transfers over nodes end that cannot go on: by a death or an abort that their own two ranks have no part in.

use crate::support::children;
use crate::support::threads::on_threads;
use antiphon_executor::{
    Collectives, Communicator, Counts, DataType, ExecutorError, Extent, Options,
};
use std::ffi::OsStr;
use std::time::Duration;

/// Two nodes of two ranks.
const HOSTS: [&str; 4] = ["a", "a", "b", "b"];
const WORLD: usize = HOSTS.len();
const COUNT: usize = 50_000;

/// A call in which everyone sends the same to all: an allgatherv, whose blocks are passed on, or an alltoallv.
fn call(on: &Collectives, gathers: bool) -> Result<(), ExecutorError> {
    let own = vec![on.communicator().rank(); COUNT];
    let mut all = vec![u32::MAX; WORLD * COUNT];
    let receive = Extent::packed(&[COUNT as u64; WORLD]);
    let send = [Extent::new(0, COUNT as u64); WORLD];
    let buffers = (own.as_ptr().cast(), all.as_mut_ptr().cast());
    let sizes = (COUNT as u64, (WORLD * COUNT) as u64);
    let counts = Counts { send: &send, receive: &receive };
    // SAFETY: the vectors are as long as said, and live past the call.
    unsafe {
        match gathers {
            true => on.all_gather_v(buffers, sizes, &receive, DataType::U32, None)?,
            false => on.all_to_all_v(buffers, sizes, counts, DataType::U32, None)?,
        }
    }
    assert!((0..WORLD).all(|rank| all[rank * COUNT..][..COUNT].iter().all(|&x| x == rank as u32)));
    Ok(())
}

/// Returns when all ranks have made the call before, also if one of them is gone by then.
fn all_are_through(communicator: &Communicator) {
    let _ = communicator.barrier();
}

#[test]
fn a_death_is_told_as_such_to_who_was_to_get_what_the_dead_had() {
    let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
    if let Some(rendezvous) = children::here(WORLD as u32) {
        for gathers in [false, true] {
            let rendezvous = antiphon_executor::Rendezvous::new(
                format!("{}-{gathers}", rendezvous.address),
                rendezvous.rank,
                rendezvous.world,
            );
            let communicator = Communicator::connect(&rendezvous, &options).unwrap();
            let on = Collectives::new(&communicator).unwrap();
            call(&on, gathers).unwrap();
            all_are_through(&communicator);
            if gathers && rendezvous.rank == 2 {
                std::process::abort();
            }
            if gathers {
                let error = call(&on, gathers).unwrap_err();
                let lost = matches!(error.cause(), ExecutorError::PeerLost { peer: 2, .. });
                assert!(lost, "rank {}: {error}", rendezvous.rank);
                return;
            }
        }
        unreachable!("rank 2 is dead");
    }
    let hosts = HOSTS.map(|host| [("ANTIPHON_HOSTID", OsStr::new(host))]);
    let test = a_death_is_told_as_such_to_who_was_to_get_what_the_dead_had;
    let ends = children::run(test, WORLD as u32, |rank| &hosts[rank as usize]);
    let well: Vec<bool> = ends.iter().map(|end| end.success()).collect();
    assert_eq!(well, [true, true, false, true], "{ends:?}");
}

#[test]
fn an_abort_ends_the_transfers_of_all_ranks_and_is_told_as_such() {
    for gathers in [false, true] {
        let options = Options::default().with_timeout(Some(Duration::from_secs(60)));
        let ranks = Communicator::in_process_on(&HOSTS, &options).unwrap();
        on_threads(&ranks, |communicator| {
            let on = Collectives::new(communicator).unwrap();
            call(&on, gathers).unwrap();
            all_are_through(communicator);
            let called = match communicator.rank() {
                0 => {
                    communicator.abort("two is late");
                    Err(communicator.failure().unwrap())
                }
                // Does not call.
                2 => Ok(()),
                _ => call(&on, gathers),
            };
            let error = match called {
                Ok(()) => return assert_eq!(communicator.rank(), 2),
                Err(error) => error,
            };
            let text = error.to_string();
            let aborted = matches!(error.cause(), ExecutorError::Aborted { by: 0, .. });
            assert!(
                aborted && text.contains("two is late"),
                "rank {}: {text}",
                communicator.rank()
            );
        });
    }
}
