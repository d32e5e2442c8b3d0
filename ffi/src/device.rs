//! Devices, as C names them.

use crate::entry::{Out, entry, text};
use crate::result::{Failure, antiphon_result};
use antiphon_executor::hal::{Backend, Device, DeviceName, driver, drivers};
use antiphon_executor::{ExecutorError, dealt_device, local_device, local_rank};
use std::ffi::c_char;
use std::sync::Arc;

/// The variable that says where buffers are if a configuration does not.
const VARIABLE: &str = "ANTIPHON_DEVICE";

/// The devices that a configuration names, or else the environment: one, or one for each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Devices(Vec<DeviceName>);

impl Devices {
    /// The devices that a caller names; if it names none, those of the environment.
    ///
    /// # Errors
    /// For a text that names no devices.
    pub fn read(named: Option<&str>) -> Result<Self, Failure> {
        let variable = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
        match (named, &variable) {
            (Some(text), _) => Devices::parse(text, "config.device"),
            (None, Some(text)) => Devices::parse(text, VARIABLE),
            (None, None) => Devices::parse("host", VARIABLE),
        }
    }

    fn parse(text: &str, from: &str) -> Result<Self, Failure> {
        let names = text.split(',').map(|name| name.trim().parse::<DeviceName>());
        let wrong = |saw| Failure::argument(format!("cannot read {from}: {saw}"));
        let names = names.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        match names.iter().find(|name| name.backend != names[0].backend) {
            None => Ok(Devices(names)),
            Some(other) => {
                let first = names[0];
                Err(wrong(format!("saw {first} and {other}, allowed devices of one kind")))
            }
        }
    }

    /// The device of one rank; `None` for the host. What a name without a number means, [`local_device`] says.
    ///
    /// # Errors
    /// For a device that does not exist, and for a list of several.
    pub fn one(&self) -> Result<Option<Arc<dyn Device>>, Failure> {
        match *self.0 {
            [DeviceName { backend: Backend::Host, index: None | Some(0) }] => Ok(None),
            [name] => Ok(Some(local_device(name)?)),
            _ => {
                let text = format!("cannot use {} devices for one rank: name one", self.0.len());
                Err(Failure::argument(text))
            }
        }
    }

    /// A device for each of `world` ranks of this process; `None` if they are on the host. With a single name without a number,
    /// ranks take turns on all devices of that kind; with a single name that has a number, all share that device.
    ///
    /// # Errors
    /// For a device that does not exist, and for a list of another length.
    pub fn each(&self, world: u32) -> Result<Option<Vec<Arc<dyn Device>>>, Failure> {
        let opened = match *self.0 {
            [DeviceName { backend: Backend::Host, index: None | Some(0) }] => return Ok(None),
            [DeviceName { backend, index: None }] => {
                let dealt = (0..world).map(|rank| dealt_device(backend, rank));
                dealt.collect::<Result<Vec<_>, _>>()?
            }
            [name] => vec![local_device(name)?; world as usize],
            _ if self.0.len() == world as usize => {
                let opened = self.0.iter().map(|name| Devices(vec![*name]).some());
                opened.collect::<Result<Vec<_>, _>>()?
            }
            _ => {
                let count = self.0.len();
                let text = format!(
                    "cannot use {count} devices for {world} ranks: name one, or one for each"
                );
                return Err(Failure::argument(text));
            }
        };
        Ok(Some(opened))
    }

    /// The one device, the host's too.
    fn some(&self) -> Result<Arc<dyn Device>, Failure> {
        let host = DeviceName { backend: Backend::Host, index: Some(0) };
        self.one()?.map_or_else(|| Ok(local_device(host)?), Ok)
    }
}

/// The device that a text names.
///
/// # Errors
/// For a text that names none or several, and for a device that does not exist.
pub(crate) fn named(text: &str) -> Result<Arc<dyn Device>, Failure> {
    Devices::parse(text, "device")?.some()
}

fn backend(name: &str) -> Result<Backend, Failure> {
    Backend::ALL.into_iter().find(|backend| backend.name() == name).ok_or_else(|| {
        let names = Backend::ALL.map(Backend::name).join(", ");
        Failure::argument(format!("cannot use backend `{name}`: allowed {names}"))
    })
}

/// Writes 1 if this library was built with a backend ("host", "cuda", "rocm"), else 0. It does not look for a driver, so it
/// does not tell whether this machine has one.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The name is null or ends with a zero; `out_built` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_backend_is_built(
    name: *const c_char,
    out_built: *mut i32,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_built, "out_built")?;
        // SAFETY: as this function's.
        let wanted = backend(unsafe { text(name, "name")? })?;
        let built = drivers().iter().any(|driver| driver.backend() == wanted);
        // SAFETY: as this function's.
        unsafe { out.set(i32::from(built)) };
        Ok(())
    })
}

/// Writes the number of a backend's device that is current on the calling thread (cudaSetDevice, hipSetDevice), 0 where
/// none is.
///
/// Any thread may call it at any time.
///
/// # Safety
/// The name is null or ends with a zero; `out_index` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_device_current(
    name: *const c_char,
    out_index: *mut u32,
) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_index, "out_index")?;
        // SAFETY: as this function's.
        let backend = backend(unsafe { text(name, "name")? })?;
        let current = driver(backend).and_then(|driver| driver.current());
        let index = current.map_err(ExecutorError::from)?.unwrap_or(0);
        // SAFETY: as this function's.
        unsafe { out.set(index) };
        Ok(())
    })
}

/// Writes this process's number among the ranks of its host, as its launcher or ANTIPHON_LOCAL_RANK says it; where only the number among
/// all ranks is known, that one; 0 where nothing started the process as a rank. It is what an application gives to
/// cudaSetDevice or hipSetDevice, modulo the number of devices; a configuration whose device has no number does so by itself.
///
/// Any thread may call it at any time.
///
/// # Safety
/// `out_rank` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn antiphon_local_rank(out_rank: *mut u32) -> antiphon_result {
    entry(|| {
        let out = Out::new(out_rank, "out_rank")?;
        let rank = local_rank()?;
        // SAFETY: as this function's.
        unsafe { out.set(rank) };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_devices_or_are_refused() {
        let parse = |text| Devices::parse(text, "a text");
        let name = |backend, index| DeviceName { backend, index };
        let cuda = |index| name(Backend::Cuda, index);
        assert_eq!(parse("host").unwrap(), Devices(vec![name(Backend::Host, None)]));
        assert_eq!(parse("cuda:1, cuda").unwrap(), Devices(vec![cuda(Some(1)), cuda(None)]));
        for bad in ["", "gpu", "cuda:", "cuda:x", "cuda,,cuda", "host,cuda:0"] {
            let text = parse(bad).unwrap_err().text;
            assert!(text.contains("a text") && text.contains("allowed"), "{bad}: {text}");
        }
    }

    #[test]
    fn lists_are_as_long_as_there_are_ranks() {
        let host = Devices::parse("host", "a text").unwrap();
        assert!(host.one().unwrap().is_none() && host.each(3).unwrap().is_none());
        let two = Devices::parse("host:0,host", "a text").unwrap();
        assert_eq!(two.each(2).unwrap().unwrap().len(), 2);
        for refused in [two.each(3).err(), two.one().err()] {
            assert!(refused.unwrap().text.contains("2 devices"));
        }
    }

    #[test]
    fn backends_have_names_and_the_host_is_built() {
        let mut built = -1;
        // SAFETY: the names end with a zero, and the place is writable.
        let ask = |name: &std::ffi::CStr, out: &mut i32| unsafe {
            antiphon_backend_is_built(name.as_ptr(), out)
        };
        assert_eq!((ask(c"host", &mut built), built), (antiphon_result::Success, 1));
        assert_eq!(ask(c"gpu", &mut built), antiphon_result::InvalidArgument);
        let mut index = 7;
        // SAFETY: as above.
        let outcome = unsafe { antiphon_device_current(c"host".as_ptr(), &mut index) };
        assert_eq!((outcome, index), (antiphon_result::Success, 0));
    }
}
