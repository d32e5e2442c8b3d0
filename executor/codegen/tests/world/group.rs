//! A multicast over memory of simulated devices.

use crate::support::Driver;

/// Bytes of each member.
pub const PAGE: usize = 2 << 20;

/// A group over as many devices: the address of the multicast, and those of the members.
pub fn group(driver: &Driver, members: usize) -> (u64, Vec<u64>) {
    let prop = [members as u64, PAGE as u64, 1, 0];
    let mut group = 0_u64;
    ok!(driver, cuMulticastCreate(*mut u64, *const u64), &mut group, prop.as_ptr());
    for device in 0..members as i32 {
        ok!(driver, cuMulticastAddDevice(u64, i32), group, device);
    }
    let mut base = 0_u64;
    ok!(
        driver,
        cuMemAddressReserve(*mut u64, usize, usize, u64, u64),
        &mut base,
        (members + 1) * PAGE,
        0,
        0,
        0
    );
    map(driver, base, group);
    let mut all = Vec::new();
    for device in 0..members {
        let prop = [1_u32, 1, 1, device as u32, 0, 0, 0, 0];
        let mut handle = 0_u64;
        ok!(
            driver,
            cuMemCreate(*mut u64, usize, *const u32, u64),
            &mut handle,
            PAGE,
            prop.as_ptr(),
            0
        );
        ok!(
            driver,
            cuMulticastBindMem(u64, usize, u64, usize, usize, u64),
            group,
            0,
            handle,
            0,
            PAGE,
            0
        );
        let address = base + ((device + 1) * PAGE) as u64;
        map(driver, address, handle);
        all.push(address);
    }
    (base, all)
}

fn map(driver: &Driver, address: u64, handle: u64) {
    ok!(driver, cuMemMap(u64, usize, usize, u64, u64), address, PAGE, 0, handle, 0);
    let access = [1_u32, 0, 3];
    ok!(driver, cuMemSetAccess(u64, usize, *const u32, usize), address, PAGE, access.as_ptr(), 1);
}
