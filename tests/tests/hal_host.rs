//! The conformance suite on the host backend, once for each kind of shared memory, and what is promised of the host
//! alone.

use antiphon_hal::host::{HostDevice, Options, SharedMemory};
use antiphon_hal::{Backend, Device, Effort, HalError, Submitted, Task, TaskState, driver};
use antiphon_tests::hal_suite;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

fn open_default() -> Arc<dyn Device> {
    driver(Backend::Host).unwrap().open(0).unwrap()
}

/// The fallback for systems that forbid memory files.
fn open_posix() -> Arc<dyn Device> {
    let options = Options { shared_memory: SharedMemory::Posix };
    Arc::new(HostDevice::new(options).unwrap())
}

hal_suite! {
    host => (crate::open_default),
    host_posix => (crate::open_posix),
}

#[test]
fn opening_twice_gives_one_device_and_only_number_0_is_there() {
    let (first, second) = (open_default(), open_default());
    let memory = first.allocate(64).unwrap();
    let (found, _) = second.find(memory.address(), 64).unwrap();
    assert_eq!(found.id(), memory.id());
    let host = driver(Backend::Host).unwrap();
    let devices = host.devices().unwrap();
    assert_eq!(devices.len(), 1);
    assert_eq!(devices[0].memory_bytes, first.caps().memory_bytes);
    assert!(matches!(host.open(1), Err(HalError::Invalid { .. })));
}

#[test]
fn a_device_of_one_kind_does_not_find_the_memory_of_another() {
    let other = HostDevice::new(Options::default()).unwrap();
    let memory = other.allocate(64).unwrap();
    assert!(open_default().find(memory.address(), 64).is_none());
    assert!(other.find(memory.address(), 64).is_some());
}

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`, which is the same one.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above, for a pointer that `alloc` had from the same allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn what_finishes_inline_allocates_nothing() {
    struct Nothing;
    impl Task for Nothing {
        fn poll(&self, _effort: Effort) -> TaskState {
            TaskState::Done(Ok(()))
        }
    }
    let device = open_default();
    let (stream, event) = (device.stream().unwrap(), device.event().unwrap());
    let memory = device.allocate(4096).unwrap();
    let task: Arc<dyn Task> = Arc::new(Nothing);
    let half = memory.address().wrapping_add(2048);
    let allocations = || ALLOCATIONS.with(Cell::get);
    let before = allocations();
    for _ in 0..100 {
        assert!(device.find(memory.address(), 4096).is_some());
        assert_eq!(stream.submit(&task, Effort::Try).unwrap(), Submitted::Complete);
        // SAFETY: the two halves of the memory are mapped, distinct, and used by nothing else.
        let copied = unsafe { stream.copy(half, memory.address(), 2048) };
        assert_eq!(copied.unwrap(), Submitted::Complete);
        stream.record(&*event).unwrap();
        stream.wait(&*event).unwrap();
        stream.synchronize().unwrap();
        assert!(stream.query().unwrap() && event.query().unwrap());
    }
    assert_eq!(allocations(), before);
    drop(Box::new(0u64));
    assert_eq!(allocations(), before + 1, "the counter counts");
}

/// The kernel sends a signal that ends a process which makes a file longer than it may.
#[test]
fn a_limit_of_files_ends_no_process() {
    const LIMITED: &str = "ANTIPHON_TEST_FILES_ARE_LIMITED";
    if std::env::var_os(LIMITED).is_none() {
        let own = std::env::current_exe().unwrap();
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "ulimit -f 64; exec \"$0\" --exact a_limit_of_files_ends_no_process"]);
        let ended = shell.arg(own).env(LIMITED, "yes").output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && said.contains("1 passed"), "{ended:?}");
        return;
    }
    for device in [open_default(), open_posix()] {
        device.allocate(4096).unwrap();
        let error = device.allocate(1 << 20).unwrap_err();
        assert!(matches!(error, HalError::OutOfMemory { .. }), "{error}");
        assert!(error.to_string().contains("`ulimit -f`"), "{error}");
    }
}
