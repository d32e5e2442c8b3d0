//! A process that had links, and a proxy, forks: the child's links are attended to as well.

use antiphon_hal::{Backend, driver};
use antiphon_port::{Attended, Link, Settings, TcpDriver, WireDriver};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Nothing takes that long, also on a busy machine.
const LONG: Duration = Duration::from_secs(20);

fn attend(link: Arc<dyn Link>) -> Arc<Attended> {
    Attended::new(link, |error| eprintln!("{error}")).unwrap()
}

/// Signals from one rank to another, both in this process, and leaves everything but the post to the proxy.
fn links_are_attended_to() -> Result<(), String> {
    let end = |rank| {
        let settings = Settings::new(rank, [7; 32]).with_interface(Some("127.0.0.1".to_owned()));
        TcpDriver::default().open(&settings).unwrap()
    };
    let (zero, one) = (end(0), end(1));
    let (to_one, to_zero) = (zero.open(1).unwrap(), one.open(0).unwrap());
    let (here, there) = (to_one.address(), to_zero.address());
    let to_one = attend(to_one.connect(&there).unwrap());
    let _to_zero = attend(to_zero.connect(&here).unwrap());
    let memory = driver(Backend::Host).unwrap().open(0).unwrap().allocate(64).unwrap();
    let registration = one.register(&memory).unwrap();
    to_one.link().accept(registration.region, registration.bytes, &registration.blob).unwrap();
    let _ = to_one.link().signal(registration.region, 0, 1).unwrap();
    to_one.soon();
    // SAFETY: an aligned word inside the memory, which lives to the end of this function.
    let counter = unsafe { &*memory.address().cast::<AtomicU64>() };
    let start = Instant::now();
    while counter.load(Ordering::Acquire) != 1 {
        if start.elapsed() > LONG {
            return Err("the proxy did not make the signal land".to_owned());
        }
        thread::yield_now();
    }
    Ok(())
}

#[test]
fn a_child_of_a_fork_has_a_proxy_of_its_own() {
    links_are_attended_to().unwrap();
    // SAFETY: the only threads besides are this test's idle runner and the proxy, of which neither holds a lock that the
    // child needs; the child ends without running what the parent would run at its end.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        let worked = std::panic::catch_unwind(links_are_attended_to);
        let status = match worked {
            Ok(Ok(())) => 0,
            Ok(Err(_)) => 3,
            Err(_) => 4,
        };
        // SAFETY: ends the process, whatever its state.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    let start = Instant::now();
    // SAFETY: `status` is writable, and the child is this process's and was not waited for.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > 2 * LONG {
            // SAFETY: the child is not reaped yet, so that the number is its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        thread::sleep(Duration::from_millis(2));
    }
    assert!(libc::WIFEXITED(status), "the child was ended by signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "3: the child's signal did not land; 4: it panicked");
    // The parent's is as it was.
    links_are_attended_to().unwrap();
}
