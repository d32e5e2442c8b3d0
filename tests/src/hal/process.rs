//! Cases that need a process of their own: what another process sees, and what is left when all is dropped.
//!
//! A case runs the test program a second time, with only itself selected and a variable set that tells the second
//! run what it is. A descriptor travels as that process's standard input.

use super::Subject;
use super::support::{Access, Gated, assert_passed, myself, task};
use crate::until;
use antiphon_hal::{Effort, Memory, MemoryHandle};
use std::fs;
use std::os::fd::AsFd;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Set to the blob of a handle (in hexadecimal) where the process is the second one.
const BLOB: &str = "ANTIPHON_TEST_BLOB";
/// Set where the process is to count what it holds.
const ALONE: &str = "ANTIPHON_TEST_ALONE";

/// Bytes of the memory that the two processes share: more than one page, and no whole number of them.
const BYTES: u64 = 3 * 4096 + 8;
const WORDS: usize = BYTES as usize / 8;

/// Starts the second process, with `memory`.
fn second_process(test: &str, memory: &Arc<dyn Memory>) -> Child {
    let handle = memory.export().unwrap();
    let blob: String = handle.to_blob().iter().map(|byte| format!("{byte:02x}")).collect();
    let descriptor = handle.descriptor().map(|descriptor| descriptor.try_clone_to_owned().unwrap());
    myself(test, BLOB, &blob)
        .stdin(descriptor.map_or_else(Stdio::null, Stdio::from))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// In the second process: the memory of the first. In the first: nothing.
fn memory_of_first(subject: &Subject) -> Option<Arc<dyn Memory>> {
    let text = std::env::var(BLOB).ok()?;
    let blob: Vec<u8> = (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    let descriptor = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let handle = MemoryHandle::from_blob(&blob, Some(descriptor)).unwrap();
    Some(subject.device.import(&handle).unwrap())
}

/// Two processes see each other's writes.
pub fn another_process_maps_the_same_bytes(subject: &Subject) {
    if let Some(memory) = memory_of_first(subject) {
        assert_eq!(memory.len(), BYTES);
        let access = Access::new(&subject.device);
        let expected: Vec<_> = (0..WORDS as u64).map(|at| at + 7).collect();
        assert_eq!(access.read(&memory, WORDS), expected);
        access.write(&memory, &(0..WORDS as u64).map(|at| !at).collect::<Vec<_>>());
        return;
    }
    if !subject.has(subject.device.caps().peer_mapping, "peer mapping") {
        return;
    }
    let memory = subject.device.allocate(BYTES).unwrap();
    let access = Access::new(&subject.device);
    access.write(&memory, &(0..WORDS as u64).map(|at| at + 7).collect::<Vec<_>>());
    let output = second_process(subject.test, &memory).wait_with_output().unwrap();
    assert_passed(&output);
    assert_eq!(access.read(&memory, WORDS), (0..WORDS as u64).map(|at| !at).collect::<Vec<_>>());
}

/// A process reads and writes another's private memory, where the system lets it; and an address that is not there
/// is an error.
pub fn another_process_is_reached_by_address(subject: &Subject) {
    const LENGTH: usize = 100_000;
    if let Some(shared) = memory_of_first(subject) {
        let private: Vec<AtomicU64> = (0..LENGTH as u64).map(AtomicU64::new).collect();
        let access = Access::new(&subject.device);
        access.store(&shared, 0, private.as_ptr().expose_provenance() as u64);
        until("the first process", || access.load(&shared, 1) == 1);
        assert!((0..).zip(&private).all(|(at, word)| word.load(Ordering::Relaxed) == at * 3));
        return;
    }
    let device = &subject.device;
    if !subject.has(device.caps().process_access && device.caps().peer_mapping, "process access") {
        return;
    }
    let shared = device.allocate(BYTES).unwrap();
    let child = second_process(subject.test, &shared);
    let access = Access::new(device);
    until("the address", || access.load(&shared, 0) != 0);
    let (theirs, pid) = (access.load(&shared, 0), child.id());
    let mut copy = vec![0u64; LENGTH];
    let bytes = LENGTH as u64 * 8;
    // SAFETY: `copy` is that long and borrowed here alone.
    unsafe { device.read_process(pid, theirs, copy.as_mut_ptr().cast(), bytes) }.unwrap();
    assert!((0..).zip(&copy).all(|(at, &word)| word == at));
    copy.iter_mut().for_each(|word| *word *= 3);
    // SAFETY: the other process gave this range for writing, and waits meanwhile.
    unsafe { device.write_process(pid, theirs, copy.as_ptr().cast(), bytes) }.unwrap();
    // SAFETY: `copy` is that long; the other process has nothing at address 0.
    let nothing = unsafe { device.read_process(pid, 0, copy.as_mut_ptr().cast(), 8) };
    assert!(nothing.is_err());
    access.store(&shared, 1, 1);
    assert_passed(&child.wait_with_output().unwrap());
}

/// When everything is dropped, the process has as many descriptors and mappings as before.
pub fn dropped_objects_leave_nothing_behind(subject: &Subject) {
    if std::env::var_os(ALONE).is_none() {
        // Counted in a process where no other test comes and goes.
        let output = myself(subject.test, ALONE, "1").output().unwrap();
        assert_passed(&output);
        return;
    }
    // One object of each kind first, so that what is made once (threads, tables) is there before counting.
    use_everything(subject, 2);
    let before = holdings();
    // Memory of a GPU comes in large units.
    use_everything(subject, if subject.device.caps().host_access { 200 } else { 50 });
    // The worker may hold what was queued for a moment longer.
    until(&format!("{before:?} again, not {:?}", holdings()), || holdings() == before);
}

/// Makes and drops `rounds` objects of each kind.
fn use_everything(subject: &Subject, rounds: u64) {
    let device = &subject.device;
    let mut kept = Vec::new();
    for round in 0..rounds {
        let memory = device.allocate(4096 * (1 + round % 5)).unwrap();
        if device.caps().peer_mapping {
            kept.push(device.import(&memory.export().unwrap()).unwrap());
        }
        kept.push(memory);
        assert!(device.allocate(u64::MAX).is_err());
        let (stream, event) = (device.stream().unwrap(), device.event().unwrap());
        if device.caps().tasks {
            let shut = Gated::shut(round, &Arc::default());
            let _ = stream.submit(&task(&shut), Effort::Try).unwrap();
            stream.record(&*event).unwrap();
            shut.pass();
        }
        stream.synchronize().unwrap();
    }
}

/// The number of descriptors and of mapped shared-memory files.
fn holdings() -> (usize, usize) {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps
        .lines()
        .filter(|line| line.split_ascii_whitespace().nth(1).is_some_and(|p| p.ends_with('s')))
        .count();
    (descriptors, shared)
}
