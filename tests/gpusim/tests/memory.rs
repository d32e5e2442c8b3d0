//! Memory of the simulated driver: virtual memory, descriptors, multicast, and IPC between processes.

#[macro_use]
mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use support::Driver;

const PAGE: usize = 2 << 20;

/// `CUmemAllocationProp` for memory of a device that can be exported as a descriptor.
fn prop(device: u32) -> [u32; 8] {
    [1, 1, 1, device, 0, 0, 0, 0]
}

fn create(driver: &Driver, device: u32) -> u64 {
    let mut handle = 0;
    ok!(
        driver,
        cuMemCreate(*mut u64, usize, *const u32, u64),
        &mut handle,
        PAGE,
        prop(device).as_ptr(),
        0
    );
    handle
}

fn map(driver: &Driver, address: u64, handle: u64) {
    ok!(driver, cuMemMap(u64, usize, usize, u64, u64), address, PAGE, 0, handle, 0);
    assert_eq!(set_access(driver, address, 0, 3), 0);
}

fn reserve(driver: &Driver, bytes: usize) -> u64 {
    let mut address = 0;
    ok!(
        driver,
        cuMemAddressReserve(*mut u64, usize, usize, u64, u64),
        &mut address,
        bytes,
        0,
        0,
        0
    );
    address
}

#[test]
fn a_descriptor_maps_the_same_memory_again() {
    let driver = Driver::start();
    let handle = create(&driver, 1);
    let base = reserve(&driver, 2 * PAGE);
    map(&driver, base, handle);
    let mut descriptor = -1_i32;
    ok!(
        driver,
        cuMemExportToShareableHandle(*mut i32, u64, u32, u64),
        &mut descriptor,
        handle,
        1,
        0
    );
    let mut imported = 0_u64;
    ok!(
        driver,
        cuMemImportFromShareableHandle(*mut u64, usize, u32),
        &mut imported,
        descriptor as usize,
        1
    );
    map(&driver, base + PAGE as u64, imported);
    driver.write(base + 64, &[7_u32]);
    assert_eq!(driver.read::<u32>(base + PAGE as u64 + 64, 1), [7]);
    let (mut start, mut bytes) = (0_u64, 0_usize);
    ok!(
        driver,
        cuMemGetAddressRange_v2(*mut u64, *mut usize, u64),
        &mut start,
        &mut bytes,
        base + PAGE as u64 + 5
    );
    assert_eq!((start, bytes), (base + PAGE as u64, PAGE));
    let mut device = -1_i32;
    ok!(driver, cuPointerGetAttribute(*mut i32, u32, u64), &mut device, 9, base + PAGE as u64);
    assert_eq!(device, 1, "an import knows whose memory it is");
    assert_eq!(
        call!(driver, cuMemAddressFree(u64, usize), base, 2 * PAGE),
        1,
        "mapped addresses are not freed"
    );
    ok!(driver, cuMemUnmap(u64, usize), base, 2 * PAGE);
    ok!(driver, cuMemAddressFree(u64, usize), base, 2 * PAGE);
    for handle in [handle, imported] {
        ok!(driver, cuMemRelease(u64), handle);
    }
}

fn set_access(driver: &Driver, address: u64, device: u32, flags: u32) -> i32 {
    let access = [1, device, flags];
    call!(driver, cuMemSetAccess(u64, usize, *const u32, usize), address, PAGE, access.as_ptr(), 1)
}

#[test]
fn a_device_touches_virtual_memory_only_once_it_was_given_access() {
    let driver = Driver::start();
    let base = reserve(&driver, PAGE);
    let handle = create(&driver, 1);
    ok!(driver, cuMemMap(u64, usize, usize, u64, u64), base, PAGE, 0, handle, 0);
    let pinned = {
        let mut address = 0_u64;
        ok!(driver, cuMemHostAlloc(*mut u64, usize, u32), &mut address, 4096, 0);
        address
    };
    // What each device gets for reading, writing, filling, waiting for a word and setting it.
    let tries = |device: i32| {
        driver.enter(device);
        let stream = driver.stream();
        let answers = [
            call!(driver, cuMemcpyDtoHAsync_v2(u64, u64, usize, u64), pinned, base + 8, 8, stream),
            call!(driver, cuStreamWaitValue32_v2(u64, u64, u32, u32), stream, base, 0, 0),
            call!(driver, cuMemcpyHtoDAsync_v2(u64, u64, usize, u64), base + 8, pinned, 8, stream),
            call!(driver, cuMemsetD8Async(u64, u8, usize, u64), base + 8, 1, 8, stream),
            call!(driver, cuStreamWriteValue32_v2(u64, u64, u32, u32), stream, base, 0, 0),
        ];
        driver.finish(stream);
        let (mut flags, attribute) = (9_u32, 16);
        ok!(driver, cuPointerGetAttribute(*mut u32, u32, u64), &mut flags, attribute, base);
        (answers, flags)
    };
    let (nothing, reads, all) = (([1; 5], 0), ([0, 0, 1, 1, 1], 1), ([0; 5], 3));
    assert_eq!((tries(0), tries(1)), (nothing, nothing), "mapped is not allowed");
    assert_eq!(set_access(&driver, base, 1, 3), 0);
    assert_eq!((tries(0), tries(1)), (nothing, all));
    assert_eq!(set_access(&driver, base, 0, 1), 0);
    assert_eq!((tries(0), tries(1)), (reads, all), "one device's rights are not another's");
    assert_eq!(set_access(&driver, base, 1, 0), 0);
    assert_eq!((tries(0), tries(1)), (reads, nothing), "rights are taken back");
    ok!(driver, cuMemUnmap(u64, usize), base, PAGE);
    ok!(driver, cuMemMap(u64, usize, usize, u64, u64), base, PAGE, 0, handle, 0);
    assert_eq!((tries(0), tries(1)), (nothing, nothing), "rights are a mapping's");
}

#[test]
fn a_multicast_address_has_its_members() {
    let driver = Driver::start();
    let prop = [2_u64, PAGE as u64, 1, 0];
    let mut group = 0_u64;
    ok!(driver, cuMulticastCreate(*mut u64, *const u64), &mut group, prop.as_ptr());
    let members = [create(&driver, 0), create(&driver, 1)];
    let bind = |member| {
        call!(
            driver,
            cuMulticastBindMem(u64, usize, u64, usize, usize, u64),
            group,
            0,
            member,
            0,
            PAGE,
            0
        )
    };
    // Binding waits until all devices are there.
    std::thread::scope(|scope| {
        let bound = scope.spawn(|| bind(members[0]));
        for device in [0, 1] {
            ok!(driver, cuMulticastAddDevice(u64, i32), group, device);
        }
        assert_eq!(bound.join().expect("binding ends"), 0);
    });
    assert_eq!(call!(driver, cuMulticastAddDevice(u64, i32), group, 2), 1, "the group is full");
    assert_eq!(bind(members[1]), 0);
    let base = reserve(&driver, 3 * PAGE);
    map(&driver, base, group);
    for (k, member) in members.into_iter().enumerate() {
        map(&driver, base + ((k + 1) * PAGE) as u64, member);
    }
    let mut found = [0_u64; 4];
    // SAFETY: the type of the exported helper.
    let helper: unsafe extern "C" fn(u64, *mut u64, usize) -> usize =
        unsafe { driver.get("antiphon_gpusim_members") };
    // SAFETY: room for four.
    let count = unsafe { helper(base + 128, found.as_mut_ptr(), 4) };
    assert_eq!(count, 2);
    for (k, member) in found[..2].iter().enumerate() {
        // SAFETY: a member's memory, mapped here by the driver.
        unsafe { (*member as *mut u32).write(40 + k as u32) };
        assert_eq!(driver.read::<u32>(base + ((k + 1) * PAGE) as u64 + 128, 1), [40 + k as u32]);
    }
}

/// What the other process of the next test does: opens the handle it is given, and adds one to what is there.
#[test]
#[ignore = "the other half of a_handle_opens_in_another_process"]
fn other_process() {
    let Ok(text) = std::env::var("ANTIPHON_GPUSIM_TEST_HANDLE") else { return };
    let bytes: Vec<u8> =
        (0..64).filter_map(|k| u8::from_str_radix(text.get(2 * k..2 * k + 2)?, 16).ok()).collect();
    let handle: [u8; 64] = bytes.try_into().expect("64 bytes");
    let driver = Driver::start();
    let open = || {
        let mut address = 0_u64;
        ok!(driver, cuIpcOpenMemHandle_v2(*mut u64, Handle, u32), &mut address, Handle(handle), 1);
        address
    };
    let address = open();
    assert_eq!(open(), address, "opened twice is the same memory");
    let seen = driver.read::<u32>(address, 1)[0];
    driver.write(address, &[seen + 1]);
    for _ in 0..2 {
        ok!(driver, cuIpcCloseMemHandle(u64), address);
    }
    assert_eq!(call!(driver, cuIpcCloseMemHandle(u64), address), 1);
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Handle([u8; 64]);

#[test]
fn a_handle_opens_in_another_process() {
    let driver = Driver::start();
    let address = driver.allocate(4096);
    driver.write(address, &[41_u32]);
    let mut handle = Handle([0; 64]);
    ok!(driver, cuIpcGetMemHandle(*mut Handle, u64), &mut handle, address);
    let mut here = 0_u64;
    assert_eq!(
        call!(driver, cuIpcOpenMemHandle_v2(*mut u64, Handle, u32), &mut here, handle, 1),
        201
    );
    let text: String = handle.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut other = Command::new(std::env::current_exe().expect("a test knows its own file"))
        .args(["--exact", "other_process", "--ignored", "--nocapture"])
        .env("ANTIPHON_GPUSIM_TEST_HANDLE", text)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the other process starts");
    let lines: Vec<String> =
        BufReader::new(other.stdout.take().expect("piped")).lines().map_while(Result::ok).collect();
    assert!(other.wait().expect("the other process ends").success(), "{}", lines.join("\n"));
    assert!(lines.iter().any(|line| line.contains("1 passed")), "{}", lines.join("\n"));
    assert_eq!(driver.read::<u32>(address, 1), [42]);
    ok!(driver, cuMemFree_v2(u64), address);
}
