//! Memory that the application allocated itself: found, exported and mapped; what cannot be shared; network cards.

use super::{on_simulator, open};
use antiphon_hal::{HalError, Memory, MemoryHandle};
use antiphon_tests::application::{Application, CHUNK};
use antiphon_tests::hal::support::{Access, assert_given_to_cards, assert_passed, myself};
use antiphon_tests::name_of;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The error, which must be that the memory cannot be shared, in words.
fn unshareable(result: Result<impl std::fmt::Debug, HalError>) -> String {
    match result {
        Err(error @ HalError::NotShareable { .. }) => error.to_string(),
        other => panic!("not the error of memory that cannot be shared: {other:?}"),
    }
}

/// Words of a buffer that begins in one chunk and ends in another.
const WORDS: usize = (CHUNK + 8192) / 8;
const BEGIN: usize = CHUNK - 4096;

fn found(address: u64, bytes: usize) -> (Arc<dyn Memory>, u64) {
    let address = std::ptr::with_exposed_provenance(address as usize);
    open(0).locate(address, bytes as u64).unwrap()
}

/// Set in the process that maps the parts, to what it needs for that.
const PARTS: &str = "ANTIPHON_TEST_PARTS";

#[test]
fn a_buffer_over_several_chunks_is_one_memory_for_peers() {
    let test = name_of(a_buffer_over_several_chunks_is_one_memory_for_peers);
    let Some(simulated) = on_simulator(test, &[]) else { return };
    if let Ok(parts) = std::env::var(PARTS) {
        let handles: Vec<_> = parts.split(',').map(handle_of).collect();
        let memory = open(0).import_parts(&handles).unwrap();
        let access = Access::new(&open(0));
        for at in [0, BEGIN / 8, BEGIN / 8 + WORDS - 1] {
            access.store(&memory, at, access.load(&memory, at) + 1);
        }
        return;
    }
    let application = Application::new(&simulated);
    let base = application.segment(0, 4, true);
    let start = base + BEGIN as u64;
    let values: Vec<u64> = (0..WORDS as u64).map(|at| at * 3).collect();
    application.write(start, &values);
    let (memory, offset) = found(start, WORDS * 8);
    assert_eq!((memory.address().addr() as u64, offset), (base, BEGIN as u64));
    assert_eq!(memory.len(), 3 * CHUNK as u64, "the chunks that the buffer touches, and no other");
    assert!(memory.is_borrowed());
    assert_eq!(found(start, WORDS * 8).0.id(), memory.id());
    assert_eq!(found(start, 8).0.len(), CHUNK as u64);

    let text = unshareable(memory.export());
    assert!(text.contains("3 pieces") && text.contains("export its parts"), "{text}");
    let parts = memory.export_parts().unwrap();
    assert_eq!(parts.iter().map(MemoryHandle::bytes).collect::<Vec<_>>(), [CHUNK as u64; 3]);

    let (device, access) = (open(0), Access::new(&open(0)));
    // As they travel: bytes, and descriptors beside them.
    let blob = MemoryHandle::parts_to_blob(&parts);
    let descriptors: Vec<_> =
        parts.iter().map(|part| part.descriptor().unwrap().try_clone_to_owned().unwrap()).collect();
    let arrived = MemoryHandle::parts_from_blob(&blob, descriptors).unwrap();
    let mapped = device.import_parts(&arrived).unwrap();
    assert_eq!(mapped.len(), memory.len());
    assert_eq!(access.read(&mapped, BEGIN / 8 + WORDS)[BEGIN / 8..], values);
    let again = device.import_parts(&mapped.export_parts().unwrap()).unwrap();
    access.store(&again, BEGIN / 8, 77);
    assert_eq!(application.read(start, 1), [77]);

    let texts: Vec<_> = parts.iter().map(text_of).collect();
    let output = myself(test, PARTS, &texts.join(",")).output().unwrap();
    assert_passed(&output);
    assert_eq!(application.read(start, 1), [78]);
    assert_eq!(application.read(start + WORDS as u64 * 8 - 8, 1), [values[WORDS - 1] + 1]);
    assert_eq!(application.read(base, 1), [1]);
}

/// A handle as text, for a process that opens the descriptor through this one.
fn text_of(handle: &MemoryHandle) -> String {
    let blob: String = handle.to_blob().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}:{}:{blob}", std::process::id(), handle.descriptor().unwrap().as_raw_fd())
}

fn handle_of(text: &str) -> MemoryHandle {
    let [process, descriptor, blob] =
        text.split(':').collect::<Vec<_>>().try_into().expect("three fields");
    let path = format!("/proc/{process}/fd/{descriptor}");
    let file = File::options().read(true).write(true).open(path).unwrap();
    let byte = |at: usize| u8::from_str_radix(&blob[2 * at..2 * at + 2], 16).unwrap();
    let blob: Vec<u8> = (0..blob.len() / 2).map(byte).collect();
    MemoryHandle::from_blob(&blob, Some(file.into())).unwrap()
}

#[test]
fn a_chunk_that_was_replaced_is_other_memory() {
    let test = name_of(a_chunk_that_was_replaced_is_other_memory);
    let Some(simulated) = on_simulator(test, &[]) else { return };
    let application = Application::new(&simulated);
    let base = application.segment(0, 2, true);
    let (memory, _) = found(base, 2 * CHUNK);
    application.unmap_chunk(base, 1);
    let error = memory.export_parts().unwrap_err().to_string();
    assert!(error.contains("freed"), "{error}");
    let place = std::ptr::with_exposed_provenance(base as usize);
    let error = open(0).locate(place, 2 * CHUNK as u64).unwrap_err().to_string();
    assert!(error.contains(&format!("an allocation of {CHUNK}")), "{error}");
    assert!(open(0).find(place, CHUNK as u64).is_some());
    application.map_chunk(base, 0, 1, true);
    let (new, _) = found(base, 2 * CHUNK);
    assert_ne!(new.id(), memory.id());
    assert_eq!(new.export_parts().unwrap().len(), 2);
    assert!(memory.export_parts().is_err());
}

#[test]
fn parts_that_do_not_fit_together_are_refused() {
    let test = name_of(parts_that_do_not_fit_together_are_refused);
    let Some(_) = on_simulator(test, &[]) else { return };
    let device = open(0);
    let (odd, whole) = (device.allocate(100).unwrap(), device.allocate(CHUNK as u64).unwrap());
    let [odd, whole] = [odd, whole].map(|memory| memory.export().unwrap());
    let both = device.import_parts(&[whole.clone(), odd.clone()]).unwrap();
    assert_eq!(both.len(), CHUNK as u64 + 100);
    let error = device.import_parts(&[odd, whole]).unwrap_err().to_string();
    assert!(error.contains("a part of 100 bytes with others behind it"), "{error}");
}

#[test]
fn what_cudamalloc_made_goes_by_a_classic_handle() {
    let test = name_of(what_cudamalloc_made_goes_by_a_classic_handle);
    let Some(simulated) = on_simulator(test, &[]) else { return };
    let (device, access) = (open(0), Access::new(&open(0)));
    if let Ok(part) = std::env::var(PARTS) {
        let byte = |at: usize| u8::from_str_radix(&part[2 * at..2 * at + 2], 16).unwrap();
        let blob: Vec<u8> = (0..part.len() / 2).map(byte).collect();
        let memory = device.import(&MemoryHandle::from_blob(&blob, None).unwrap()).unwrap();
        access.store(&memory, 3, access.load(&memory, 3) + 1);
        let text = unshareable(memory.export());
        assert!(text.contains("another process allocated it"), "{text}");
        return;
    }
    let application = Application::new(&simulated);
    let base = application.allocate(10_000);
    application.write(base + 24, &[41]);
    let (memory, offset) = found(base + 16, 64);
    assert_eq!((offset, memory.len(), memory.is_borrowed()), (16, 10_000, true));
    let handle = memory.export().unwrap();
    assert!(matches!(handle, MemoryHandle::Ipc { .. }));
    let here = device.import(&handle).unwrap();
    assert_eq!(
        here.address(),
        memory.address(),
        "in the process that made it, it is there already"
    );
    let blob: String = handle.to_blob().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_passed(&myself(test, PARTS, &blob).output().unwrap());
    assert_eq!(application.read(base + 24, 1), [42]);
    application.free(base);
    let error = memory.export().unwrap_err().to_string();
    assert!(error.contains("freed"), "{error}");
    // In the process itself nobody asks the driver, until somebody asks for that.
    assert!(device.import(&handle).unwrap().is_freed());
    drop((memory, here));
    let gone = device.import(&handle);
    assert!(matches!(gone, Err(HalError::Gone)), "who exported it keeps it no more: {gone:?}");
}

#[test]
fn what_no_peer_can_map_says_so() {
    let Some(simulated) = on_simulator(name_of(what_no_peer_can_map_says_so), &[]) else {
        return;
    };
    let application = Application::new(&simulated);
    let base = application.segment(0, 2, false);
    for bytes in [CHUNK, 2 * CHUNK] {
        let text = unshareable(found(base, bytes).0.export_parts());
        assert!(text.contains("no process can import") && text.contains("copy"), "{text}");
    }
    let device = open(0);
    let text = unshareable(device.pinned(8).unwrap().export());
    assert!(text.contains("pinned memory of the host"), "{text}");
    let group = device.multicast(1, CHUNK as u64).unwrap();
    let mapped = group.bind(&device.allocate(CHUNK as u64).unwrap()).unwrap();
    let text = unshareable(mapped.export());
    assert!(text.contains("export the group"), "{text}");
}

#[test]
fn network_cards_get_descriptors() {
    let Some(simulated) = on_simulator(name_of(network_cards_get_descriptors), &[]) else {
        return;
    };
    let application = Application::new(&simulated);
    let (device, access) = (open(0), Access::new(&open(0)));
    assert!(device.caps().dma_buf);
    let own = device.allocate(CHUNK as u64).unwrap();
    let (theirs, _) = found(application.allocate(CHUNK), CHUNK);
    for memory in [own, theirs] {
        assert_given_to_cards(&access, &memory, 3, CHUNK as u64);
        // Beyond what the simulated driver does.
        let text = unshareable(memory.export_dma_buf(8192, 8));
        assert!(text.contains("CUDA_ERROR_NOT_SUPPORTED"), "{text}");
    }
    let text = unshareable(device.pinned(4096).unwrap().export_dma_buf(0, 8));
    assert!(text.contains("pinned"), "{text}");
}
