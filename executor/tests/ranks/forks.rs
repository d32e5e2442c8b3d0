//! A process that has communicators forks, and the child drops its copies of them.

use crate::support::processes::alone;
use crate::support::threads::on_threads;
use antiphon_executor::plan::builder::ProgramBuilder;
use antiphon_executor::plan::model::Collective;
use antiphon_executor::{Call, Communicator, DataType, Executor, Options};
use std::time::Duration;

/// A copy between two ranks of two hosts, so that there are links as well.
fn send(ranks: &[Communicator]) -> [u32; 4] {
    let program = ProgramBuilder::new("send", Collective::SendRecv, 2);
    let port = program.port(0, 1);
    let block = program.block(0);
    block.put_with_signal_and_flush(&port, program.input(0).all(), program.output(1).all());
    program.block(1).wait(&[port]);
    let plan = program.build().unwrap();
    let outputs = on_threads(ranks, |rank| {
        let executor = Executor::new(rank);
        let plan = executor.load(&plan).unwrap();
        let (input, mut output) = ([7u32; 4], [0u32; 4]);
        let (from, to) = ((input.as_ptr().cast(), 16), (output.as_mut_ptr().cast(), 16));
        // SAFETY: both arrays are as long as the call says, and live past it.
        unsafe { executor.run(&Call::new(&plan, DataType::U32, from, to)) }.unwrap();
        output
    });
    outputs[1]
}

#[test]
fn a_child_that_drops_communicators_says_nothing_for_its_parent() {
    let test = a_child_that_drops_communicators_says_nothing_for_its_parent;
    // Nothing that another thread holds is then held in the child for ever.
    alone(test, &[], forks);
}

fn forks() {
    let options = Options::default().with_timeout(Some(Duration::from_secs(20)));
    let ranks = Communicator::in_process_on(&["this", "that"], &options).unwrap();
    assert_eq!(send(&ranks), [7; 4]);
    // SAFETY: no other thread is in a call, and the child ends without running what the parent would run at its end.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        drop(ranks);
        // SAFETY: ends the process, whatever its state.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for the child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(send(&ranks), [7; 4]);
    for rank in &ranks {
        assert!(rank.failure().is_none(), "{:?}", rank.failure());
    }
}
