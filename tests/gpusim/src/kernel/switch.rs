//! From one fiber to another: the registers that a call preserves, and the stack.

use std::arch::global_asm;

unsafe extern "C" {
    /// Saves the caller's registers on its stack and that stack's address in `save`, and goes on where `load` was
    /// saved.
    pub fn antiphon_gpusim_switch(save: *mut *mut u8, load: *mut u8);
}

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".text",
    ".hidden antiphon_gpusim_switch",
    ".globl antiphon_gpusim_switch",
    ".type antiphon_gpusim_switch,@function",
    "antiphon_gpusim_switch:",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rdi], rsp",
    "mov rsp, rsi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".size antiphon_gpusim_switch, .-antiphon_gpusim_switch",
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".text",
    ".hidden antiphon_gpusim_switch",
    ".globl antiphon_gpusim_switch",
    ".type antiphon_gpusim_switch,@function",
    "antiphon_gpusim_switch:",
    "sub sp, sp, #160",
    "stp x19, x20, [sp, #0]",
    "stp x21, x22, [sp, #16]",
    "stp x23, x24, [sp, #32]",
    "stp x25, x26, [sp, #48]",
    "stp x27, x28, [sp, #64]",
    "stp x29, x30, [sp, #80]",
    "stp d8, d9, [sp, #96]",
    "stp d10, d11, [sp, #112]",
    "stp d12, d13, [sp, #128]",
    "stp d14, d15, [sp, #144]",
    "mov x9, sp",
    "str x9, [x0]",
    "mov sp, x1",
    "ldp x19, x20, [sp, #0]",
    "ldp x21, x22, [sp, #16]",
    "ldp x23, x24, [sp, #32]",
    "ldp x25, x26, [sp, #48]",
    "ldp x27, x28, [sp, #64]",
    "ldp x29, x30, [sp, #80]",
    "ldp d8, d9, [sp, #96]",
    "ldp d10, d11, [sp, #112]",
    "ldp d12, d13, [sp, #128]",
    "ldp d14, d15, [sp, #144]",
    "add sp, sp, #160",
    "ret",
    ".size antiphon_gpusim_switch, .-antiphon_gpusim_switch",
);

/// Makes a stack look as if `entry` had been about to be returned to; answers what to load.
///
/// # Safety
///
/// `top` must be the end of a writable stack of at least 256 bytes, a multiple of 16.
pub unsafe fn prepare(top: *mut u8, entry: extern "C" fn() -> !) -> *mut u8 {
    // SAFETY: all writes are within the 256 bytes below `top`, which the caller vouches for.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        {
            // Six registers, the address to return to, and a word so that the stack is as after a call.
            let start = top.sub(8 * 8).cast::<usize>();
            start.write_bytes(0, 8);
            start.add(6).write(entry as usize);
            start.cast()
        }
        #[cfg(target_arch = "aarch64")]
        {
            let start = top.sub(160).cast::<usize>();
            start.write_bytes(0, 20);
            start.add(11).write(entry as usize);
            start.cast()
        }
    }
}
