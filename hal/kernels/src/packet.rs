//! Packets: payload and readiness in one unit, so that no signal need follow the data.
//!
//! A packet buffer is a row of 8-byte units, each one `u32` of data and one `u32` of flag, both little endian. LL8 is
//! one unit and LL16 two, so both have the same bytes, and every unit proves its own arrival: a reader that sees the
//! flag it expects has read the data stored with it, in the same 8 bytes.
//!
//! That needs no more than 8-byte units that are never torn. The plain path uses `AtomicU64`. The wider paths rest on
//! what x86-64 CPUs do: a vector access is split, if at all, at cache-line borders, so its 8-aligned 8-byte lanes are
//! each accessed whole. They are written as single instructions in assembly, which the compiler can neither split,
//! repeat nor leave out, as it could a plain access to memory that another process writes.

use std::sync::atomic::{AtomicU64, Ordering};

/// One unit: flag in the upper half, data in the lower.
const fn unit(data: u32, flag: u32) -> u64 {
    (flag as u64) << 32 | data as u64
}

/// How one instruction set moves groups of units; [`Plain`] moves one by one.
///
/// # Safety
/// Implementations report only units whose flag they saw, and touch only the `GROUP` units (payload words) from the
/// pointers on. Callers pass packet pointers that are 8-aligned, and run an implementation on its CPU only.
pub(super) unsafe trait Units {
    /// Units moved at once.
    const GROUP: usize;

    /// A narrower way, for what is left of a buffer.
    type Rest: Units;

    /// The units as they were read.
    type Group: Copy;

    /// Makes `GROUP` units of as many payload words.
    unsafe fn make(src: *const u8, flag: u32) -> Self::Group;
    /// Reads `GROUP` units.
    unsafe fn load(src: *const u8) -> Self::Group;
    /// Writes `GROUP` units.
    unsafe fn store(dst: *mut u8, group: Self::Group);
    /// Whether every unit of the group bears the flag.
    unsafe fn ready(group: Self::Group, flag: u32) -> bool;
    /// Writes the group's payload words.
    unsafe fn payload(dst: *mut u8, group: Self::Group);
}

/// Reads one unit.
#[inline(always)]
unsafe fn load(src: *const u8) -> u64 {
    // SAFETY: the caller passes an 8-aligned unit. All its writers use whole-unit accesses, too.
    u64::from_le(unsafe { (*src.cast::<AtomicU64>()).load(Ordering::Relaxed) })
}

/// Writes one unit.
#[inline(always)]
unsafe fn store(dst: *mut u8, unit: u64) {
    // SAFETY: the caller passes an 8-aligned unit. All its readers use whole-unit accesses, too.
    unsafe { (*dst.cast::<AtomicU64>()).store(unit.to_le(), Ordering::Relaxed) }
}

/// The payload word of up to 4 bytes at `src`, filled up with zeros.
#[inline(always)]
unsafe fn word(src: *const u8, len: usize) -> u32 {
    let mut bytes = [0; 4];
    // SAFETY: the caller passes `len` readable bytes.
    unsafe {
        match len {
            0 => {}
            1..4 => std::ptr::copy_nonoverlapping(src, bytes.as_mut_ptr(), len),
            _ => bytes = src.cast::<[u8; 4]>().read_unaligned(),
        }
    }
    u32::from_le_bytes(bytes)
}

/// See [`super::Kernels::pack_to`].
#[inline(always)]
pub(super) unsafe fn pack<U: Units>(
    dsts: &[*mut u8],
    src: *const u8,
    len: usize,
    padded: usize,
    flag: u32,
) {
    // SAFETY: the caller passes `len` readable bytes and `2 * padded` writable ones at 8-aligned destinations.
    unsafe {
        let mut at = pack_groups::<U>(dsts, src, 0, len, flag);
        at = pack_groups::<U::Rest>(dsts, src, at, len, flag);
        while at < padded {
            let left = len.saturating_sub(at);
            let data = if left == 0 { 0 } else { word(src.add(at), left) };
            for &dst in dsts {
                store(dst.add(2 * at), unit(data, flag));
            }
            at += 4;
        }
    }
}

/// Packs whole groups of payload between `at` and `len`; returns where it stopped.
#[inline(always)]
unsafe fn pack_groups<U: Units>(
    dsts: &[*mut u8],
    src: *const u8,
    mut at: usize,
    len: usize,
    flag: u32,
) -> usize {
    while len - at >= 4 * U::GROUP {
        // SAFETY: the group lies within the buffers of `pack`.
        unsafe {
            let group = U::make(src.add(at), flag);
            for &dst in dsts {
                U::store(dst.add(2 * at), group);
            }
        }
        at += 4 * U::GROUP;
    }
    at
}

/// See [`super::Kernels::unpack`].
#[inline(always)]
pub(super) unsafe fn unpack<U: Units>(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    padded: usize,
    flag: u32,
) -> usize {
    // SAFETY: the caller passes `len` writable bytes and `2 * padded` readable ones at an 8-aligned source.
    unsafe {
        let mut at = unpack_groups::<U>(dst, src, 0, len, flag);
        at = unpack_groups::<U::Rest>(dst, src, at, len, flag);
        while at < padded {
            let unit = load(src.add(2 * at));
            if (unit >> 32) as u32 != flag {
                break;
            }
            let data = (unit as u32).to_le_bytes();
            match len.saturating_sub(at) {
                0 => {}
                left @ 1..4 => std::ptr::copy_nonoverlapping(data.as_ptr(), dst.add(at), left),
                _ => dst.add(at).cast::<[u8; 4]>().write_unaligned(data),
            }
            at += 4;
        }
        at
    }
}

/// Unpacks whole groups between `at` and `len` up to one that is not ready; returns where it stopped.
#[inline(always)]
unsafe fn unpack_groups<U: Units>(
    dst: *mut u8,
    src: *const u8,
    mut at: usize,
    len: usize,
    flag: u32,
) -> usize {
    while len - at >= 4 * U::GROUP {
        // SAFETY: the group lies within the buffers of `unpack`.
        unsafe {
            let group = U::load(src.add(2 * at));
            if !U::ready(group, flag) {
                break;
            }
            U::payload(dst.add(at), group);
        }
        at += 4 * U::GROUP;
    }
    at
}

/// See [`super::Kernels::forward`].
#[inline(always)]
pub(super) unsafe fn forward<U: Units>(
    dsts: &[*mut u8],
    src: *const u8,
    padded: usize,
    flag: u32,
) -> usize {
    // SAFETY: the caller passes `2 * padded` readable and writable bytes at 8-aligned pointers.
    unsafe {
        let at = forward_groups::<U>(dsts, src, 0, padded, flag);
        let at = forward_groups::<U::Rest>(dsts, src, at, padded, flag);
        forward_groups::<Plain>(dsts, src, at, padded, flag)
    }
}

/// Forwards whole groups between `at` and `padded` up to one that is not ready; returns where it stopped.
#[inline(always)]
unsafe fn forward_groups<U: Units>(
    dsts: &[*mut u8],
    src: *const u8,
    mut at: usize,
    padded: usize,
    flag: u32,
) -> usize {
    while padded - at >= 4 * U::GROUP {
        // SAFETY: the group lies within the buffers of `forward`.
        unsafe {
            let group = U::load(src.add(2 * at));
            if !U::ready(group, flag) {
                break;
            }
            for &dst in dsts {
                U::store(dst.add(2 * at), group);
            }
        }
        at += 4 * U::GROUP;
    }
    at
}

/// One unit at a time, with atomics: right on every CPU.
pub(super) struct Plain;

// SAFETY: a unit is reported only after its flag was compared.
unsafe impl Units for Plain {
    const GROUP: usize = 1;
    type Rest = Plain;
    type Group = u64;

    #[inline(always)]
    unsafe fn make(src: *const u8, flag: u32) -> u64 {
        // SAFETY: passed on to the caller.
        unit(unsafe { word(src, 4) }, flag)
    }
    #[inline(always)]
    unsafe fn load(src: *const u8) -> u64 {
        // SAFETY: passed on to the caller.
        unsafe { load(src) }
    }
    #[inline(always)]
    unsafe fn store(dst: *mut u8, group: u64) {
        // SAFETY: passed on to the caller.
        unsafe { store(dst, group) }
    }
    #[inline(always)]
    unsafe fn ready(group: u64, flag: u32) -> bool {
        (group >> 32) as u32 == flag
    }
    #[inline(always)]
    unsafe fn payload(dst: *mut u8, group: u64) {
        // SAFETY: passed on to the caller.
        unsafe { dst.cast::<[u8; 4]>().write_unaligned((group as u32).to_le_bytes()) }
    }
}
