//! Several devices in one process: what they reach of each other, and groups of them.

use super::{on_simulator, open};
use antiphon_hal::{
    Device, HalError, Kernel, KernelCode, KernelSource, LaunchShape, Memory, MemoryHandle, Stream,
};
use antiphon_tests::application::{Application, CHUNK};
use antiphon_tests::hal::support::Access;
use antiphon_tests::name_of;
use std::ffi::c_void;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

const SOURCE: &str = r#"
extern "C" __global__ void add(const unsigned long long *from, unsigned long long *to) {
    unsigned long long at = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    to[at] += from[at];
}
extern "C" __global__ void spread(void *group, unsigned long long value) {
    void *members[8];
    size_t count = antiphon_sim::members(group, members, 8);
    for (size_t k = 0; k < count; ++k) ((unsigned long long *)members[k])[threadIdx.x] = value + count;
}
"#;
const SHAPE: LaunchShape = LaunchShape { blocks: 4, threads: 64, shared_bytes: 0 };
const COUNT: usize = 256;

fn load(device: &Arc<dyn Device>, entry: &str) -> Arc<dyn Kernel> {
    device.load(KernelSource { entry, code: KernelCode::Source(SOURCE), options: &[] }).unwrap()
}

/// Adds the first words of `from` to those of `to` by a kernel of `device`.
fn add(device: &Arc<dyn Device>, stream: &dyn Stream, to: *mut u8, from: *mut u8) {
    let arguments = [(&raw const from).cast::<c_void>(), (&raw const to).cast()];
    // SAFETY: two addresses of memory that is long enough and mapped until the stream is done, as the callers see to.
    unsafe { load(device, "add").launch(stream, SHAPE, &arguments) }.unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn devices_know_their_peers() {
    let environment = [("ANTIPHON_GPUSIM_DEVICES", "3")];
    let Some(_) = on_simulator(name_of(devices_know_their_peers), &environment) else { return };
    let device = open(1);
    let peers = &device.caps().peers;
    assert_eq!(peers.iter().map(|peer| peer.index).collect::<Vec<_>>(), [0, 2]);
    assert!(peers.iter().all(|peer| peer.access && peer.atomics && peer.rank == 0), "{peers:?}");
    let places = peers.iter().map(|peer| peer.pci.map(|place| place.to_string()));
    assert_eq!(places.flatten().collect::<Vec<_>>(), ["0000:10:00.0", "0000:12:00.0"]);
    assert_eq!(device.caps().pci, "0000:11:00.0".parse().ok());
    assert!(device.caps().multicast);
    // All know a device by the same number, and no two by one.
    let known = |from: u32| open(from).caps().peers.clone();
    let uuids = [0, 1, 2].map(|device| open(device).caps().uuid.unwrap());
    assert!(uuids[0] != uuids[1] && uuids[1] != uuids[2] && uuids[0] != uuids[2], "{uuids:?}");
    for peer in [0, 1, 2].into_iter().flat_map(known) {
        assert_eq!(peer.uuid, Some(uuids[peer.index as usize]));
    }
}

#[test]
fn kernels_use_the_memory_of_another_device() {
    let Some(simulated) = on_simulator(name_of(kernels_use_the_memory_of_another_device), &[])
    else {
        return;
    };
    let application = Application::new(&simulated);
    let (zero, one) = (open(0), open(1));
    let (access, stream) = (Access::new(&one), one.stream().unwrap());
    let own = zero.allocate(CHUNK as u64).unwrap();
    let segment = {
        let base = application.segment(0, 2, true);
        zero.locate(std::ptr::with_exposed_provenance(base as usize), 2 * CHUNK as u64).unwrap().0
    };
    let classic = {
        let base = application.allocate(CHUNK);
        zero.locate(std::ptr::with_exposed_provenance(base as usize), CHUNK as u64).unwrap().0
    };
    let target = one.allocate(COUNT as u64 * 8).unwrap();
    let mut expected = vec![0; COUNT];
    for (memory, factor) in [(own, 1), (segment, 10), (classic, 100)] {
        let values: Vec<u64> = (0..COUNT as u64).map(|at| at * factor).collect();
        Access::new(&zero).write(&memory, &values);
        let mapped = one.import_parts(&memory.export_parts().unwrap()).unwrap();
        assert_eq!(mapped.len(), memory.len());
        add(&one, &*stream, target.address(), mapped.address());
        expected.iter_mut().zip(&values).for_each(|(sum, value)| *sum += value);
        // And the other way: this device writes there.
        add(&one, &*stream, mapped.address(), mapped.address());
        assert_eq!(Access::new(&zero).load(&memory, 3), 2 * 3 * factor);
        if !memory.is_borrowed() {
            // Nobody writes by one address what others read by another; and it is not taken for the application's on the
            // other device.
            assert_eq!(mapped.address(), memory.address());
            assert_eq!(zero.find(mapped.address(), 8).unwrap().0.id(), memory.id());
            assert!(one.find(memory.address(), 8).is_none());
        }
    }
    assert_eq!(access.read(&target, COUNT), expected);
}

#[test]
fn memory_for_all_is_reached_from_every_device() {
    let test = name_of(memory_for_all_is_reached_from_every_device);
    let environment = [("ANTIPHON_GPUSIM_DEVICES", "3")];
    let Some(simulated) = on_simulator(test, &environment) else { return };
    let application = Application::new(&simulated);
    let device = open(1);
    let [plain, shared] = [device.allocate(64).unwrap(), device.allocate_for_all(64).unwrap()];
    let [plain, shared] = [&plain, &shared].map(|memory| memory.address().addr() as u64);
    for other in 0..3 {
        // As an application copies, which knows nothing of the memory but its address.
        application.enter(other);
        application.write(shared, &[u64::from(other.unsigned_abs()) + 7]);
        assert_eq!(application.read(shared, 1), [u64::from(other.unsigned_abs()) + 7]);
        let read = std::panic::catch_unwind(AssertUnwindSafe(|| application.read(plain, 1)));
        assert_eq!(read.is_ok(), other == 1, "device {other}");
    }
}

#[test]
fn a_mapping_stays_until_nobody_of_the_process_has_it() {
    let test = name_of(a_mapping_stays_until_nobody_of_the_process_has_it);
    let Some(_) = on_simulator(test, &[]) else { return };
    let (zero, one) = (open(0), open(1));
    let access = Access::new(&zero);
    let first = zero.allocate(CHUNK as u64).unwrap();
    let (address, id) = (first.address(), first.id());
    access.store(&first, 7, 5);
    let handle = first.export().unwrap();
    let shared = [&zero, &one, &zero].map(|device| device.import(&handle).unwrap());
    let owner = Arc::downgrade(&first);
    drop(first);
    // Whoever allocated it hears that its own are done with it, whatever its peers have.
    assert_eq!(owner.strong_count(), 0);
    assert!(zero.find(address, 1).is_none());
    for memory in &shared {
        assert_eq!((memory.address(), memory.len()), (address, CHUNK as u64));
        assert_ne!(memory.id(), id);
    }
    let [last, others @ ..] = shared;
    drop(others);
    assert_eq!(access.load(&last, 7), 5);
    let again = one.import(&last.export().unwrap()).unwrap();
    assert_eq!(again.address(), address);
    drop((last, again));
    // The descriptor keeps the bytes, which are mapped anew.
    let anew = zero.import(&handle).unwrap();
    assert_eq!(access.load(&anew, 7), 5);
    assert_eq!(zero.find(anew.address(), 1).unwrap().0.id(), anew.id());
    let longer = MemoryHandle::from_blob(
        &{
            let mut blob = anew.export().unwrap().to_blob();
            blob[8..16].copy_from_slice(&(1u64 << 40).to_le_bytes());
            blob
        },
        Some(handle.descriptor().unwrap().try_clone_to_owned().unwrap()),
    );
    assert!(matches!(zero.import(&longer.unwrap()), Err(HalError::Invalid { .. })));
}

#[test]
fn devices_out_of_reach_are_named() {
    let environment = [("ANTIPHON_GPUSIM_PEERS", "0")];
    let Some(simulated) = on_simulator(name_of(devices_out_of_reach_are_named), &environment)
    else {
        return;
    };
    let application = Application::new(&simulated);
    let (zero, one) = (open(0), open(1));
    assert!(one.caps().peers.iter().all(|peer| !peer.access && !peer.atomics));
    assert!(!one.caps().multicast);
    let classic = application.allocate(CHUNK);
    let classic = zero.locate(std::ptr::with_exposed_provenance(classic as usize), 8).unwrap().0;
    for memory in [zero.allocate(8).unwrap(), classic] {
        match one.import(&memory.export().unwrap()) {
            Err(error @ HalError::NotShareable { .. }) => {
                let text = error.to_string();
                assert!(text.contains("device 1 (Antiphon simulated GPU)"), "{text}");
                assert!(text.contains("memory of device 0") && text.contains("copy"), "{text}");
            }
            other => panic!("{other:?}"),
        }
        // The device itself maps it a second time, and nothing is left of what failed.
        zero.import(&memory.export().unwrap()).unwrap();
    }
    Access::new(&zero).store(&zero.allocate_for_all(8).unwrap(), 0, 1);
    let error = one.multicast(2, CHUNK as u64).unwrap_err();
    assert!(matches!(error, HalError::Unsupported { .. }), "{error}");
}

#[test]
fn events_order_streams_of_several_devices() {
    let Some(_) = on_simulator(name_of(events_order_streams_of_several_devices), &[]) else {
        return;
    };
    let devices: Vec<_> = (0..4).map(open).collect();
    let streams: Vec<_> = devices.iter().map(|device| device.stream().unwrap()).collect();
    let words = 1 << 16;
    let memories: Vec<_> =
        devices.iter().map(|device| device.allocate(words as u64 * 8).unwrap()).collect();
    // Each device reads the memory of the one before it by a mapping of its own.
    let before = devices[1..].iter().zip(&memories);
    let before: Vec<_> =
        before.map(|(device, memory)| device.import(&memory.export().unwrap()).unwrap()).collect();
    for round in 1..=10u64 {
        Access::new(&devices[0]).write(&memories[0], &vec![round; words]);
        for at in 1..4 {
            let event = devices[at].event().unwrap();
            let next = &streams[at];
            // SAFETY: different memory, which lives until all streams are done; each copy waits for the one before.
            let _ = unsafe {
                next.copy(memories[at].address(), before[at - 1].address(), words as u64 * 8)
            }
            .unwrap();
            next.record(&*event).unwrap();
            streams[(at + 1) % 4].wait(&*event).unwrap();
        }
        streams[0].synchronize().unwrap();
        assert_eq!(Access::new(&devices[3]).read(&memories[3], words), vec![round; words]);
    }
}

#[test]
fn a_group_of_devices_is_written_by_one_address() {
    let Some(_) = on_simulator(name_of(a_group_of_devices_is_written_by_one_address), &[]) else {
        return;
    };
    let devices: Vec<_> = (0..4).map(open).collect();
    let groups: Vec<_> = {
        let first = devices[0].multicast(4, CHUNK as u64).unwrap();
        let handle = first.export().unwrap();
        let others = devices[1..].iter().map(|device| device.import_multicast(&handle).unwrap());
        [first].into_iter().chain(others).collect()
    };
    let memories: Vec<_> =
        devices.iter().map(|device| device.allocate(CHUNK as u64).unwrap()).collect();
    let mapped: Vec<Arc<dyn Memory>> =
        groups.iter().zip(&memories).map(|(group, memory)| group.bind(memory).unwrap()).collect();
    for (at, (device, group)) in devices.iter().zip(&mapped).enumerate() {
        let (stream, address, value) =
            (device.stream().unwrap(), group.address(), 1000 * at as u64);
        let arguments = [(&raw const address).cast::<c_void>(), (&raw const value).cast()];
        // SAFETY: the address of the group and a value; everything lives until the stream is done.
        unsafe { load(device, "spread").launch(&*stream, SHAPE, &arguments) }.unwrap();
        stream.synchronize().unwrap();
        for (device, memory) in devices.iter().zip(&memories) {
            assert_eq!(Access::new(device).load(memory, 63), value + 4);
        }
    }
    let error = groups[0].bind(&memories[1]).unwrap_err().to_string();
    assert!(error.contains("another device"), "{error}");
}
