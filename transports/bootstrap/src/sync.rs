//! Locks that outlive a panic, and random bits.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;

use crate::error::{BootstrapError, Result};

/// Locks, whether or not a thread panicked with the lock: every critical section of this crate leaves its data whole
/// at each step, and a poisoned lock would turn one rank's panic into everybody's.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 128 bits from the kernel's generator.
pub(crate) fn random() -> Result<[u8; 16]> {
    let mut bytes = [0u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        // SAFETY: `rest` is a live, exclusively borrowed buffer of the length passed; the kernel writes at most that.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => filled += got,
            Err(_) => match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                code => {
                    let errno = Errno::from_raw_os_error(code.unwrap_or(libc::EIO));
                    return Err(BootstrapError::Os { doing: "draw random bits", errno });
                }
            },
        }
    }
    Ok(bytes)
}

/// A number that tells this process from all others, also across pid namespaces and reuse of process ids.
pub(crate) fn process_token() -> Result<[u8; 16]> {
    static TOKEN: OnceLock<(u32, [u8; 16])> = OnceLock::new();
    let fresh = random()?;
    let &(pid, token) = TOKEN.get_or_init(|| (std::process::id(), fresh));
    // A forked child inherits its parent's token; mixing in the own pid sets them apart.
    let mut token = token;
    for (byte, difference) in token.iter_mut().zip((pid ^ std::process::id()).to_le_bytes()) {
        *byte ^= difference;
    }
    Ok(token)
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
