//! Memory that the application or another device allocated: found, exported and mapped; and what cannot be shared.

use super::application::{Application, CHUNK};
use super::{OLDER, on_simulator, open};
use antiphon_hal::{HalError, Memory, MemoryHandle};
use antiphon_tests::hal::support::{Access, assert_given_to_cards, assert_passed, myself};
use antiphon_tests::name_of;
use std::sync::Arc;

/// The error, which must be that the memory cannot be shared, in words.
fn unshareable(result: Result<impl std::fmt::Debug, HalError>) -> String {
    match result {
        Err(error @ HalError::NotShareable { .. }) => error.to_string(),
        other => panic!("not the error of memory that cannot be shared: {other:?}"),
    }
}

fn found(address: u64, bytes: usize) -> (Arc<dyn Memory>, u64) {
    let address = std::ptr::with_exposed_provenance(address as usize);
    open(0).locate(address, bytes as u64).unwrap()
}

/// Set in the second process, to the blob of a handle.
const PART: &str = "ANTIPHON_TEST_PARTS";

#[test]
fn what_hipmalloc_made_goes_by_a_classic_handle() {
    let test = name_of(what_hipmalloc_made_goes_by_a_classic_handle);
    let Some(simulated) = on_simulator(test, &[]) else { return };
    let (device, access) = (open(0), Access::new(&open(0)));
    if let Ok(part) = std::env::var(PART) {
        let byte = |at: usize| u8::from_str_radix(&part[2 * at..2 * at + 2], 16).unwrap();
        let blob: Vec<u8> = (0..part.len() / 2).map(byte).collect();
        let handle = MemoryHandle::from_blob(&blob, None).unwrap();
        let (memory, again) = (device.import(&handle).unwrap(), device.import(&handle).unwrap());
        assert_eq!(memory.id(), again.id(), "opened once");
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
    assert_eq!(found(base, 1).0.id(), memory.id());
    let handle = memory.export().unwrap();
    assert!(matches!(handle, MemoryHandle::Ipc { .. }));
    let here = device.import(&handle).unwrap();
    assert_eq!(
        here.address(),
        memory.address(),
        "in the process that made it, it is there already"
    );
    let blob: String = handle.to_blob().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_passed(&myself(test, PART, &blob).output().unwrap());
    assert_eq!(application.read(base + 24, 1), [42]);
    application.free(base);
    let error = memory.export().unwrap_err().to_string();
    assert!(error.contains("freed"), "{error}");
    let place = std::ptr::with_exposed_provenance(base as usize);
    assert!(device.find(place, 1).is_none());
}

#[test]
fn mapped_memory_of_the_application_goes_by_a_descriptor() {
    let test = name_of(mapped_memory_of_the_application_goes_by_a_descriptor);
    for environment in [&[][..], &[OLDER][..]] {
        let Some(simulated) = on_simulator(test, environment) else { continue };
        let application = Application::new(&simulated);
        let (device, access) = (open(0), Access::new(&open(0)));
        let base = application.segment(0, 1, true);
        application.write(base + 8, &[5, 6]);
        let (memory, offset) = found(base + 8, 16);
        assert_eq!((offset, memory.len(), memory.is_borrowed()), (8, CHUNK as u64, true));
        let handle = memory.export().unwrap();
        assert!(matches!(handle, MemoryHandle::Device { .. }));
        let second = device.import(&handle).unwrap();
        assert_ne!(second.address(), memory.address());
        assert_eq!(access.load(&second, 2), 6);
        access.store(&second, 1, 7);
        assert_eq!(application.read(base + 8, 1), [7]);
        drop((second, handle, memory));
        assert_eq!(application.read(base + 8, 2), [7, 6], "it is the application's still");

        let (secret, _) = found(application.segment(0, 1, false), CHUNK);
        let text = unshareable(secret.export());
        assert!(text.contains("no process can import") && text.contains("copy"), "{text}");
        let text = unshareable(device.pinned(8).unwrap().export());
        assert!(text.contains("pinned memory of the host"), "{text}");
        return;
    }
}

#[test]
fn a_buffer_over_several_chunks_is_one_memory_for_peers() {
    let test = name_of(a_buffer_over_several_chunks_is_one_memory_for_peers);
    for environment in [&[][..], &[OLDER][..]] {
        let Some(simulated) = on_simulator(test, environment) else { continue };
        let application = Application::new(&simulated);
        let (device, access) = (open(0), Access::new(&open(0)));
        let base = application.segment(0, 4, true);
        let (begin, count) = (CHUNK - 4096, (CHUNK + 8192) / 8);
        let values: Vec<u64> = (0..count as u64).map(|at| at * 3).collect();
        application.write(base + begin as u64, &values);
        let (memory, offset) = found(base + begin as u64, count * 8);
        assert_eq!((memory.address().addr() as u64, offset), (base, begin as u64));
        assert_eq!(
            memory.len(),
            3 * CHUNK as u64,
            "the chunks that the buffer touches, and no other"
        );
        let text = unshareable(memory.export());
        assert!(text.contains("3 pieces") && text.contains("export its parts"), "{text}");
        let parts = memory.export_parts().unwrap();
        assert_eq!(parts.iter().map(MemoryHandle::bytes).collect::<Vec<_>>(), [CHUNK as u64; 3]);
        let mapped = device.import_parts(&parts).unwrap();
        assert_eq!(mapped.len(), memory.len());
        assert_eq!(access.read(&mapped, begin / 8 + count)[begin / 8..], values);
        access.store(&mapped, begin / 8, 77);
        assert_eq!(application.read(base + begin as u64, 1), [77]);
        application.unmap_chunk(base, 1);
        let error = memory.export_parts().unwrap_err().to_string();
        assert!(error.contains("freed"), "{error}");

        let apart = [application.allocate(CHUNK), application.allocate(CHUNK)];
        let place = std::ptr::with_exposed_provenance(apart[0].min(apart[1]) as usize);
        let error = device.locate(place, 2 * CHUNK as u64).unwrap_err().to_string();
        assert!(error.contains("a range within one allocation"), "{error}");
        return;
    }
}

#[test]
fn memory_of_another_device_of_the_process_is_reached() {
    let test = name_of(memory_of_another_device_of_the_process_is_reached);
    for environment in [&[][..], &[OLDER][..]] {
        let Some(simulated) = on_simulator(test, environment) else { continue };
        let application = Application::new(&simulated);
        let (first, second) = (open(0), open(1));
        let access = Access::new(&second);
        let theirs = {
            let base = application.allocate(4096);
            let (memory, _) = found(base, 4096);
            let place = std::ptr::with_exposed_provenance(base as usize);
            assert!(second.find(place, 1).is_none(), "memory of another device");
            memory
        };
        for memory in [first.allocate(4096).unwrap(), theirs] {
            let there = second.import(&memory.export().unwrap()).unwrap();
            access.store(&there, 5, 77);
            assert_eq!(Access::new(&first).load(&memory, 5), 77);
            let again = second.import(&memory.export().unwrap()).unwrap();
            access.store(&again, 5, 78);
            assert_eq!(access.load(&there, 5), 78);
            drop(memory);
            assert_eq!(access.load(&there, 5), 78, "kept while it is used");
        }
        let gone = first.allocate(4096).unwrap();
        let handle = gone.export().unwrap();
        drop(gone);
        if matches!(handle, MemoryHandle::Ipc { .. }) {
            assert!(matches!(second.import(&handle), Err(HalError::Gone)));
        }
        return;
    }
}

#[test]
fn network_cards_get_descriptors() {
    let test = name_of(network_cards_get_descriptors);
    for environment in [&[][..], &[OLDER][..]] {
        let Some(simulated) = on_simulator(test, environment) else { continue };
        let application = Application::new(&simulated);
        let (device, access) = (open(0), Access::new(&open(0)));
        assert!(device.caps().dma_buf);
        let own = device.allocate(CHUNK as u64).unwrap();
        let (theirs, _) = found(application.allocate(CHUNK), CHUNK);
        for memory in [own, theirs] {
            for at in [3, 1027] {
                assert_given_to_cards(&access, &memory, at, CHUNK as u64);
            }
        }
        // Chunks of the application's are in none of the library's tables.
        let (mapped, _) = found(application.segment(0, 1, true), CHUNK);
        let text = unshareable(mapped.export_dma_buf(0, 8));
        assert!(text.contains("0x1003") && text.contains("copy"), "{text}");
        let text = unshareable(device.pinned(4096).unwrap().export_dma_buf(0, 8));
        assert!(text.contains("pinned"), "{text}");
        return;
    }
}

#[test]
fn where_the_kernel_gives_no_buffers_nobody_is_asked_for_one() {
    let test = name_of(where_the_kernel_gives_no_buffers_nobody_is_asked_for_one);
    if on_simulator(test, &[("ANTIPHON_GPUSIM_HIP", "5.7")]).is_none() {
        return;
    }
    let device = open(0);
    assert!(!device.caps().dma_buf);
    let refused = device.allocate(4096).unwrap().export_dma_buf(0, 8);
    assert!(matches!(refused, Err(HalError::Unsupported { .. })), "{refused:?}");
}
