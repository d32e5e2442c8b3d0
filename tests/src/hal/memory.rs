//! Cases on memory, handles, and the table of what is mapped.

use super::Subject;
use super::support::Access;
use antiphon_hal::{Backend, HalError, KernelCode, KernelSource, Memory, MemoryHandle, driver};
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

const PAGE: u64 = 4096;

/// Memory is zero when it comes, starts at a page, and can be written to its end.
pub fn allocations_are_zeroed_and_aligned(subject: &Subject) {
    let page = subject.device.caps().page_bytes;
    assert!(page.is_power_of_two() && page >= 64);
    let access = Access::new(&subject.device);
    for bytes in [1, 8, 64, page - 1, page, page + 1, (2 << 20) + 8, 65 << 20] {
        for _ in 0..2 {
            let memory = subject.device.allocate(bytes).unwrap();
            assert_eq!(memory.len(), bytes);
            assert_eq!(memory.backend(), subject.device.backend());
            assert_eq!(memory.address().addr() as u64 % page, 0);
            let count = bytes as usize / 8;
            let zeros = access.read(&memory, count).iter().all(|&word| word == 0);
            let tail = (count as u64 * 8..bytes).all(|at| access.byte(&memory, at) == 0);
            assert!(zeros && tail, "{bytes} bytes are not all zero");
            access.write(&memory, &vec![0xa5a5_a5a5_a5a5_a5a5; count]);
            if count > 0 {
                assert_eq!(access.load(&memory, count - 1), 0xa5a5_a5a5_a5a5_a5a5);
            }
        }
    }
}

/// Nothing, more than there is, and more than can be addressed are errors, not crashes later.
pub fn empty_and_absurd_allocations_are_refused(subject: &Subject) {
    let device = &subject.device;
    assert!(matches!(device.allocate(0), Err(HalError::Invalid { .. })));
    let too_many = device.caps().memory_bytes + 1;
    for bytes in [too_many, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
        match device.allocate(bytes) {
            Err(error @ HalError::OutOfMemory { .. }) => {
                assert!(error.to_string().contains(&bytes.to_string()), "{error}");
            }
            other => panic!("{bytes} bytes: {other:?}"),
        }
    }
}

/// Whether importing the handle in the process that made it maps nothing: ranks of a process that use a GPU must not write by one
/// address what they read by another, no driver opens its classic IPC handles there, and a host has one mapping of a file.
fn is_there_already(handle: &MemoryHandle) -> bool {
    matches!(
        handle,
        MemoryHandle::Ipc { .. }
            | MemoryHandle::SharedMemory { home: Some(_), .. }
            | MemoryHandle::Device { home: Some(_), .. }
    )
}

/// What is written through one mapping is read through the other, also when the first is gone.
pub fn memory_is_shared_between_mappings(subject: &Subject) {
    let device = &subject.device;
    if !subject.has(device.caps().peer_mapping, "peer mapping") {
        return;
    }
    let first = device.allocate(3 * PAGE).unwrap();
    let handle = first.export().unwrap();
    let second = device.import(&handle).unwrap();
    assert_ne!(first.id(), second.id());
    assert_eq!(first.address() == second.address(), is_there_already(&handle));
    assert_eq!(second.len(), first.len());
    let (last, access) = (3 * PAGE as usize / 8 - 1, Access::new(device));
    access.store(&first, last, 41);
    assert_eq!(access.load(&second, last), 41);
    access.store(&second, last, 42);
    assert_eq!(access.load(&first, last), 42);
    let owner = Arc::downgrade(&first);
    drop(first);
    // Who allocated it hears that its own are done with it, whoever else has it.
    assert_eq!(owner.strong_count(), 0);
    let third = device.import(&second.export().unwrap()).unwrap();
    drop(second);
    assert_eq!(access.load(&third, last), 42);
}

/// A handle whose memory is shorter than it says, or could become so, is refused.
pub fn handles_that_could_fault_are_refused(subject: &Subject) {
    let device = &subject.device;
    if !subject.has(device.caps().peer_mapping, "peer mapping") {
        return;
    }
    let memory = device.allocate(PAGE).unwrap();
    let MemoryHandle::SharedMemory { descriptor, .. } = memory.export().unwrap() else {
        return;
    };
    let page = device.caps().page_bytes;
    for bytes in [0, page.max(PAGE) + 1, 1 << 40, i64::MAX as u64, u64::MAX] {
        let handle =
            MemoryHandle::SharedMemory { descriptor: Arc::clone(&descriptor), home: None, bytes };
        let refused = device.import(&handle);
        assert!(matches!(refused, Err(HalError::Invalid { .. })), "{bytes} bytes: {refused:?}");
    }
    let null = OwnedFd::from(File::open("/dev/null").unwrap());
    let handle = MemoryHandle::SharedMemory { descriptor: Arc::new(null), home: None, bytes: 1 };
    assert!(matches!(device.import(&handle), Err(HalError::Invalid { .. })));
    if !subject.has(device.caps().sealed_handles, "sealed handles") {
        return;
    }
    let path = std::env::temp_dir().join(format!("antiphon-unsealed-{}", std::process::id()));
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(2 * PAGE).unwrap();
    let handle =
        MemoryHandle::SharedMemory { descriptor: Arc::new(file.into()), home: None, bytes: PAGE };
    match device.import(&handle) {
        Err(error @ HalError::Invalid { .. }) => {
            assert!(error.to_string().contains("shrink"), "{error}");
        }
        other => panic!("a file that can shrink: {other:?}"),
    }
    // The other side of the same promise: nobody can shorten what was exported.
    let exported = File::from(descriptor.try_clone().unwrap());
    assert!(exported.set_len(0).is_err());
    assert_eq!(Access::new(device).load(&memory, 0), 0);
}

/// Memory of one piece is one part; parts of a peer's are one range, and none are none.
pub fn parts_make_up_the_memory(subject: &Subject) {
    let device = &subject.device;
    if !subject.has(device.caps().peer_mapping, "peer mapping") {
        return;
    }
    let access = Access::new(device);
    let memory = device.allocate(PAGE + 8).unwrap();
    access.store(&memory, 512, 7);
    let parts = memory.export_parts().unwrap();
    assert_eq!(parts.iter().map(MemoryHandle::bytes).sum::<u64>(), memory.len());
    let second = device.import_parts(&parts).unwrap();
    assert_eq!((second.len(), access.load(&second, 512)), (memory.len(), 7));
    assert!(matches!(device.import_parts(&[]), Err(HalError::Invalid { .. })));
}

/// Pinned memory is zero when it comes, and what the CPU writes there is what copies take from it.
pub fn pinned_memory_is_the_cpus_as_well(subject: &Subject) {
    let device = &subject.device;
    let (bytes, count) = (5 * PAGE, 5 * PAGE as usize / 8);
    assert!(matches!(device.pinned(0), Err(HalError::Invalid { .. })));
    let (pinned, back) = (device.pinned(bytes).unwrap(), device.pinned(bytes).unwrap());
    let (memory, stream) = (device.allocate(bytes).unwrap(), device.stream().unwrap());
    for (at, word) in Access::pinned(&pinned, count).iter().enumerate() {
        assert_eq!(word.swap(!(at as u64), Ordering::AcqRel), 0);
    }
    for (to, from) in [(&memory, &pinned), (&back, &memory)] {
        // SAFETY: both are mapped for as many bytes, distinct, and used by nothing else until the stream is done.
        let _ = unsafe { stream.copy(to.address(), from.address(), bytes) }.unwrap();
    }
    stream.synchronize().unwrap();
    for (at, word) in Access::pinned(&back, count).iter().enumerate() {
        assert_eq!(word.load(Ordering::Acquire), !(at as u64));
    }
    let (found, offset) = device.find(pinned.address().wrapping_add(8), bytes - 8).unwrap();
    assert_eq!((found.id(), offset), (pinned.id(), 8));
}

/// Copies reach memory of the host's device that was pinned, whoever maps it sees what they wrote, and it can be pinned anew.
pub fn memory_of_the_host_that_is_pinned_is_passed_on_as_the_hosts(subject: &Subject) {
    let (device, bytes) = (&subject.device, 3 * PAGE);
    let host = match device.backend() {
        Backend::Host => Arc::clone(device),
        _ => driver(Backend::Host).unwrap().open(0).unwrap(),
    };
    let own = host.allocate(bytes).unwrap();
    for round in 1..=2u64 {
        let pinned = device.pin(&own).unwrap();
        assert_eq!((pinned.address(), pinned.len()), (own.address(), bytes));
        let other = host.import_parts(&pinned.export_parts().unwrap()).unwrap();
        let (memory, stream) = (device.allocate(bytes).unwrap(), device.stream().unwrap());
        let count = bytes as usize / 8;
        for (at, word) in Access::pinned(&pinned, count).iter().enumerate() {
            word.store(at as u64 * round, Ordering::Release);
        }
        // SAFETY: both are mapped for as many bytes, distinct, and used by nothing else until the stream is done.
        let _ = unsafe { stream.copy(memory.address(), pinned.address(), bytes) }.unwrap();
        stream.synchronize().unwrap();
        Access::pinned(&pinned, count).iter().for_each(|word| word.store(0, Ordering::Release));
        // SAFETY: as above.
        let _ = unsafe { stream.copy(pinned.address(), memory.address(), bytes) }.unwrap();
        stream.synchronize().unwrap();
        for (at, word) in Access::pinned(&other, count).iter().enumerate() {
            assert_eq!(word.load(Ordering::Acquire), at as u64 * round);
        }
        let (found, offset) = device.find(pinned.address().wrapping_add(8), bytes - 8).unwrap();
        assert_eq!((found.len(), offset), (bytes, 8));
    }
    if device.backend() != Backend::Host {
        let refused = device.pin(&device.allocate(bytes).unwrap());
        assert!(matches!(refused, Err(HalError::Invalid { .. })));
    }
}

/// Every range within live memory is found with its offset, and no other.
pub fn find_tells_the_memory_and_the_offset(subject: &Subject) {
    let device = &subject.device;
    let memory = device.allocate(PAGE + 8).unwrap();
    let at = |offset: u64| memory.address().wrapping_add(offset as usize).cast_const();
    for (offset, bytes) in [(0, 1), (0, PAGE + 8), (1, PAGE + 7), (PAGE + 7, 1), (PAGE + 8, 0)] {
        let (found, place) =
            device.find(at(offset), bytes).unwrap_or_else(|| panic!("{offset} + {bytes}"));
        assert_eq!((found.id(), place), (memory.id(), offset));
    }
    for (offset, bytes) in [(0, PAGE + 9), (1, PAGE + 8), (PAGE + 8, 1), (8, u64::MAX)] {
        assert!(device.find(at(offset), bytes).is_none(), "{offset} + {bytes}");
    }
    let before = memory.address().wrapping_sub(1).cast_const();
    assert!(device.find(before, 2).is_none_or(|(found, _)| found.id() != memory.id()));
    assert!(device.find(std::ptr::null(), 0).is_none());
    let local = 0u64;
    assert!(device.find((&raw const local).cast(), 8).is_none());
    if device.caps().peer_mapping {
        let handle = memory.export().unwrap();
        let second = device.import(&handle).unwrap();
        let (found, place) = device.find(second.address().wrapping_add(5), 1).unwrap();
        let entered = if is_there_already(&handle) { &memory } else { &second };
        assert_eq!((found.id(), place), (entered.id(), 5));
    }
    let id = memory.id();
    let address = memory.address();
    drop(memory);
    assert!(device.find(address, 1).is_none_or(|(found, _)| found.id() != id));
}

/// The epoch changes when memory comes and when it goes, and says so before the address can come again.
pub fn the_epoch_changes_with_the_memory(subject: &Subject) {
    let device = &subject.device;
    let mut seen = vec![device.epoch()];
    let memory = device.allocate(PAGE).unwrap();
    seen.push(device.epoch());
    let handle = device.caps().peer_mapping.then(|| memory.export().unwrap());
    if let Some(handle) = handle.filter(|handle| !is_there_already(handle)) {
        let second = device.import(&handle).unwrap();
        seen.push(device.epoch_cell().load(Ordering::Acquire));
        drop(second);
        seen.push(device.epoch());
    }
    drop(memory);
    seen.push(device.epoch());
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
}

/// Memory that comes after other memory has gone has a number of its own, whatever its address.
pub fn identities_are_never_reused(subject: &Subject) {
    let mut ids = HashSet::new();
    for _ in 0..100 {
        assert!(ids.insert(subject.device.allocate(PAGE).unwrap().id()));
    }
}

/// A thread that finds memory while its owner drops it has it, or does not; what it has stays mapped.
pub fn found_memory_survives_concurrent_drops(subject: &Subject) {
    let device = &subject.device;
    let current: Mutex<Option<Arc<dyn Memory>>> = Mutex::new(None);
    let stop = AtomicBool::new(false);
    // Memory of a GPU takes its time.
    let rounds = if device.caps().host_access { 2000 } else { 300 };
    thread::scope(|scope| {
        scope.spawn(|| {
            let access = Access::new(device);
            for number in 1..=rounds {
                let memory = device.allocate(PAGE).unwrap();
                access.store(&memory, 0, number);
                let previous = current.lock().unwrap().replace(memory);
                drop(previous);
            }
            stop.store(true, Ordering::Release);
        });
        let access = Access::new(device);
        while !stop.load(Ordering::Acquire) {
            let address = current.lock().unwrap().as_ref().map(|memory| memory.address().addr());
            let Some(address) = address else { continue };
            let found_here = device.find(std::ptr::without_provenance(address), 8);
            if let Some((memory, 0)) = found_here {
                let number = access.load(&memory, 0);
                assert!((1..=rounds).contains(&number), "{number}");
            }
        }
    });
    // The last one is still there, so that at least this look-up is not in vain.
    let last = current.into_inner().unwrap().unwrap();
    let (found, _) = device.find(last.address(), 8).expect("the device knows its memory");
    assert_eq!(Access::new(device).load(&found, 0), rounds);
}

/// An operation whose cap is false answers "unsupported", with the backend's name.
pub fn what_is_not_wired_answers_unsupported(subject: &Subject) {
    let (device, caps) = (&subject.device, subject.device.caps());
    let mut buffer = [0u8; 8];
    let source = KernelSource { entry: "f", code: KernelCode::Source(""), options: &[] };
    let address = buffer.as_ptr().addr() as u64;
    let answers = [
        (caps.kernels, device.load(source).err()),
        (caps.kernels, device.compile("", &[]).err()),
        (caps.multicast, device.multicast(2, PAGE).err()),
        (caps.process_access, {
            // SAFETY: the range is a local array, not touched by anything else. Process 0 is none, so that where
            // the operation is wired, it fails, too, though not with this error.
            unsafe { device.read_process(0, address, buffer.as_mut_ptr(), 8) }.err()
        }),
        (caps.process_access, {
            // SAFETY: as above; nothing is written to a process that is not there.
            unsafe { device.write_process(u32::MAX, address, buffer.as_ptr(), 8) }.err()
        }),
    ];
    for (wired, answer) in answers {
        match answer {
            Some(ref error @ HalError::Unsupported { op, backend }) => {
                assert!(!wired, "{op} is advertised");
                assert_eq!(backend, device.backend());
                let text = error.to_string();
                assert!(text.contains(op) && text.contains(backend.name()), "{text}");
            }
            other => assert!(wired, "not wired, but: {other:?}"),
        }
    }
    if !caps.dma_buf {
        let export = device.allocate(PAGE).unwrap().export_dma_buf(0, PAGE);
        assert!(matches!(export, Err(HalError::Unsupported { .. })));
    }
    if !caps.peer_mapping {
        let export = device.allocate(PAGE).unwrap().export();
        assert!(matches!(export, Err(HalError::Unsupported { .. })));
    }
}
