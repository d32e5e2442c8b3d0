//! Whether ranks of one machine may read each other's memory (`process_vm_readv`), found out by doing it.
//!
//! A child reads from its parent. That is what the Yama security module refuses between unrelated processes by
//! default, so it stands for one rank reading from another; reading a child would always be allowed.

use rustix::process::{PTracer, getpid, set_ptracer};
use std::process::{Command, ExitCode, Stdio};

/// The finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessAccess {
    /// It works.
    Permitted,
    /// It does not, for this reason.
    Refused(String),
}

/// Lets a child try to read eight bytes of this process.
pub fn process_access() -> ProcessAccess {
    let token = Box::new(0x616e_7469_7068_6f6e_u64 ^ u64::from(std::process::id()));
    // Fails where there is no Yama, which then refuses nothing either.
    let _ = set_ptracer(PTracer::Any);
    let answer = Command::new("/proc/self/exe")
        .arg("probe")
        .arg(getpid().as_raw_nonzero().to_string())
        .arg((&raw const *token).expose_provenance().to_string())
        .arg(token.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .output();
    let _ = set_ptracer(PTracer::None);
    match answer {
        Ok(answer) if answer.status.success() => ProcessAccess::Permitted,
        Ok(answer) => {
            ProcessAccess::Refused(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
        }
        Err(error) => ProcessAccess::Refused(format!("the probe did not start: {error}")),
    }
}

/// The child's side: reads the token and compares.
pub fn answer(pid: i32, address: usize, token: u64) -> ExitCode {
    let mut found = 0u64;
    let size = size_of::<u64>();
    let here = libc::iovec { iov_base: (&raw mut found).cast(), iov_len: size };
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: size };
    // SAFETY: the local vector describes `found`, which nobody else uses; the remote one is only read, and the
    // kernel checks it.
    let read = unsafe { libc::process_vm_readv(pid, &here, 1, &there, 1, 0) };
    if read < 0 {
        println!("{}", std::io::Error::last_os_error());
        return ExitCode::FAILURE;
    }
    if read as usize != size || found != token {
        println!("read {read} bytes with the wrong content");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_nowhere_is_refused() {
        let answer = answer(std::process::id() as i32, 8, 1);
        assert_eq!(format!("{answer:?}"), format!("{:?}", ExitCode::FAILURE));
    }

    #[test]
    fn reading_the_wrong_bytes_is_refused_and_the_right_ones_are_not() {
        let token = Box::new(77u64);
        let address = (&raw const *token).expose_provenance();
        let pid = std::process::id() as i32;
        let text = |code: ExitCode| format!("{code:?}");
        assert_eq!(text(answer(pid, address, 77)), text(ExitCode::SUCCESS));
        assert_eq!(text(answer(pid, address, 78)), text(ExitCode::FAILURE));
    }
}
