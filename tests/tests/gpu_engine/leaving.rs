//! Registered code that fails with something of its own in the stream.

use crate::coded::{Rank, over};
use crate::devices::devices;
use crate::{on_devices, on_simulator};
use antiphon::DataType;
use antiphon::executor::hal::{Memory, Stream};
use antiphon::executor::{Code, CodeCall, ExecutorError, Registry, Terms};
use antiphon::plan::model::Collective;
use antiphon_tests::name_of;
use std::sync::{Arc, Mutex};

/// A copy that takes a while.
struct Left {
    stream: Arc<dyn Stream>,
    _memory: [Arc<dyn Memory>; 2],
}

/// Puts such a copy into the stream, and fails.
#[derive(Default)]
struct Leaving(Mutex<Option<Left>>);

impl Code for Leaving {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn serves_devices(&self) -> bool {
        true
    }

    unsafe fn run(&self, call: &CodeCall<'_>) -> Result<(), ExecutorError> {
        let stream = call.stream.expect("there is one on devices");
        let memory = [0; 2].map(|_| call.executor.communicator().allocate(256 << 20).unwrap());
        let [from, to] = &memory;
        // SAFETY: both are as long, and live until the stream is idle.
        let _ = unsafe { stream.copy(to.address(), from.address().cast_const(), from.len())? };
        *self.0.lock().unwrap() = Some(Left { stream: Arc::clone(stream), _memory: memory });
        let (what, saw, allowed) = ("go on", "enough".to_owned(), "less");
        Err(ExecutorError::Argument { what, saw, allowed })
    }
}

#[test]
fn what_code_put_into_the_stream_before_it_failed_is_over_when_the_call_fails() {
    let test = name_of(what_code_put_into_the_stream_before_it_failed_is_over_when_the_call_fails);
    if on_simulator(test).is_none() {
        return;
    }
    let (registry, code) = (Registry::new(), Arc::new(Leaving::default()));
    registry.register_code("leaving", 1, Arc::clone(&code) as _, Terms::default()).unwrap();
    on_devices(&devices(1, 1), &over(&registry), |communicator| {
        let rank = Rank::new(&communicator, communicator.stream().unwrap());
        let error = rank.call(&rank.request(0, DataType::U32), false).unwrap_err();
        assert!(matches!(error, ExecutorError::Code { .. }), "{error}");
        let left = code.0.lock().unwrap().take().expect("the code has run");
        assert!(left.stream.query().unwrap(), "the copy goes on");
    });
}
