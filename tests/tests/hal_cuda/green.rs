//! Streams of green contexts, which have a part of a device, and share its primary context's memory and code.

use super::{on_simulator, open};
use antiphon_hal::{Backend, Device, HalError, Stream, driver};
use antiphon_tests::application::Application;
use antiphon_tests::hal::support::Access;
use antiphon_tests::name_of;
use std::sync::Arc;

fn adopt(device: &Arc<dyn Device>, raw: u64) -> Result<Arc<dyn Stream>, HalError> {
    // SAFETY: a number of a default stream, or a stream that the application made and keeps for the rest of the process.
    unsafe { device.adopt_stream(std::ptr::without_provenance_mut(raw as usize)) }
}

/// That memory is copied on a stream, between other streams' work.
fn assert_used(device: &Arc<dyn Device>, stream: &Arc<dyn Stream>) {
    let access = Access::new(device);
    let [from, to] = [(); 2].map(|()| device.allocate(64).unwrap());
    access.write(&from, &[1, 2, 3, 4]);
    let (before, after) = (device.event().unwrap(), device.event().unwrap());
    let own = device.stream().unwrap();
    own.record(&*before).unwrap();
    stream.wait(&*before).unwrap();
    // SAFETY: both are mapped until the stream is done.
    let _ = unsafe { stream.copy(to.address(), from.address(), 32) }.unwrap();
    stream.record(&*after).unwrap();
    own.wait(&*after).unwrap();
    own.synchronize().unwrap();
    assert_eq!(access.read(&to, 4), [1, 2, 3, 4]);
}

#[test]
fn streams_of_green_contexts_are_the_devices() {
    let test = name_of(streams_of_green_contexts_are_the_devices);
    let Some(simulated) = on_simulator(test, &[]) else { return };
    let application = Application::new(&simulated);
    let device = open(0);
    let green = application.green(0);
    let [one, other] = [(); 2].map(|()| adopt(&device, application.green_stream(green)).unwrap());
    assert_ne!(one.id(), other.id());
    assert_used(&device, &one);
    if driver(Backend::Cuda).unwrap().devices().unwrap().len() == 1 {
        return;
    }
    // Of a green context on another device.
    let elsewhere = application.green_stream(application.green(1));
    let error = adopt(&device, elsewhere).unwrap_err();
    assert!(error.to_string().contains("a stream of another context"), "{error}");
}

#[test]
fn a_device_is_not_opened_on_a_green_context() {
    let test = name_of(a_device_is_not_opened_on_a_green_context);
    let Some(simulated) = on_simulator(test, &[]) else { return };
    let application = Application::new(&simulated);
    let plain = application.stream();
    let green = application.green(0);
    application.enter_green(green);
    let device = open(0);
    // The primary one has both.
    for raw in [plain, application.stream(), application.green_stream(green)] {
        assert_used(&device, &adopt(&device, raw).unwrap());
    }
    // By these the application means another stream than the device would use.
    for raw in 0..=2 {
        let error = adopt(&device, raw).unwrap_err();
        assert!(error.to_string().contains("the default stream of a green context"), "{error}");
    }
    application.enter(0);
    for raw in 0..=2 {
        assert_used(&device, &adopt(&device, raw).unwrap());
    }
}
