//! What ranks do once they have lost some: they find out which, agree on who is left, and go on.

use antiphon::executor::BootstrapError;
use antiphon::{Communicator, ExecutorError, Op};
use antiphon_tests::harness::options;
use antiphon_tests::harness::processes::{Ranks, role};
use antiphon_tests::name_of;
use rustix::process::{Signal, getpid, kill_process};
use std::os::unix::process::ExitStatusExt;

const WORLD: u32 = 5;

/// How which ranks end, and where the ranks are. Of several the second ends when the others are about to go on without the first.
#[test]
fn ranks_go_on_without_those_that_have_ended() {
    let near = [None; WORLD as usize];
    let far = ["one", "one", "two", "two", "two"].map(Some);
    for (job, hosts) in [
        ("kill 0", near),
        ("kill 2", near),
        ("exit 2", near),
        ("kill 1 3", near),
        ("exit 0 4", near),
        ("kill 2 0", far),
        ("exit 1 3", far),
    ] {
        let outputs = Ranks::start_on(name_of(rank_that_goes_on), &hosts, job).wait();
        for (rank, output) in outputs.iter().enumerate() {
            let ends = job.split(' ').any(|victim| victim == rank.to_string());
            let said = String::from_utf8_lossy(&output.stderr);
            let ended = match ends {
                false => output.status.success(),
                true if job.starts_with("kill") => output.status.signal() == Some(9),
                true => output.status.code() == Some(3),
            };
            assert!(ended, "{job}, rank {rank}: {}: {said}", output.status);
        }
    }
}

/// Who waits for a rank that has gone to do without a third one, which is lost, goes along.
#[test]
fn who_waits_for_one_that_goes_on_goes_along() {
    let outputs = Ranks::start_on(name_of(rank_that_waits_for_another), &[None; 3], "kill").wait();
    for (rank, output) in outputs.iter().enumerate() {
        let ended =
            if rank == 2 { output.status.signal() == Some(9) } else { output.status.success() };
        assert!(
            ended,
            "rank {rank}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

fn end(how: &str) -> ! {
    if how == "kill" {
        kill_process(getpid(), Signal::KILL).unwrap();
    }
    // In good order.
    std::process::exit(3)
}

/// With the next function this is what docs/recovery.md shows.
fn is_of_a_loss(error: &ExecutorError) -> bool {
    use ExecutorError as E;
    let has_left = matches!(error.cause(), E::Bootstrap(BootstrapError::PeerLeft { .. }));
    has_left || matches!(error.cause(), E::PeerLost { .. } | E::Link { .. } | E::Aborted { .. })
}

fn without_the_lost(whole: &Communicator) -> Result<Communicator, ExecutorError> {
    whole.abort("a rank is lost");
    loop {
        let lost = whole.lost();
        let left: Vec<u32> = (0..whole.world()).filter(|rank| !lost.contains(rank)).collect();
        match whole.subset(&left) {
            // A rank of the list was lost as well, or others found that it is.
            Err(error) if is_of_a_loss(&error) => {}
            formed => return formed,
        }
    }
}

/// One process of the second test above.
#[test]
fn rank_that_waits_for_another() {
    let Some(role) = role() else { return };
    let whole = Communicator::new(&role.connect(&options()).unwrap()).unwrap();
    let mut sums = vec![1u32; 4];
    whole.all_reduce(&mut sums, Op::Sum).unwrap();
    let error = match whole.rank() {
        0 => loop {
            if let Err(error) = whole.send(&sums, 2) {
                break error;
            }
        },
        1 => whole.receive(&mut sums, 0).unwrap_err(),
        _ => end(role.job.as_str()),
    };
    assert!(is_of_a_loss(&error) && error.to_string().contains("rank 2"), "{error}");
    let rest = without_the_lost(&whole).unwrap();
    sums.fill(1);
    rest.all_reduce(&mut sums, Op::Sum).unwrap();
    assert_eq!(sums, [2; 4]);
    rest.barrier().unwrap();
}

/// One process of the first test above.
#[test]
fn rank_that_goes_on() {
    let Some(role) = role() else { return };
    let (how, victims) = role.job.split_once(' ').unwrap();
    let victims: Vec<u32> = victims.split(' ').map(|rank| rank.parse().unwrap()).collect();
    let whole = Communicator::new(&role.connect(&options()).unwrap()).unwrap();
    assert!(whole.lost().is_empty());
    let mut sums = vec![0u32; 10_000];
    let error = loop {
        sums.fill(1);
        if let Err(error) = whole.all_reduce(&mut sums, Op::Sum) {
            break error;
        }
        assert!(sums.iter().all(|&sum| sum == WORLD));
        if victims[0] == whole.rank() {
            end(how);
        }
    };
    assert!(is_of_a_loss(&error), "{error}");
    match error.cause() {
        ExecutorError::Aborted { by, .. } => assert_eq!(error.peer(), Some(*by)),
        _ => assert!(victims.contains(&error.peer().unwrap()), "{error}"),
    }
    if victims[1..].contains(&whole.rank()) {
        end(how);
    }
    let rest = without_the_lost(&whole).unwrap();
    let mut lost = victims;
    lost.sort_unstable();
    assert_eq!(whole.lost(), lost);
    assert_eq!((rest.world(), rest.lost()), (WORLD - lost.len() as u32, Vec::new()));
    for _ in 0..10 {
        sums.fill(1);
        rest.all_reduce(&mut sums, Op::Sum).unwrap();
        assert!(sums.iter().all(|&sum| sum == rest.world()));
    }
    rest.barrier().unwrap();
}
