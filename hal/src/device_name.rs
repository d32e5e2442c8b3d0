//! Names of devices, as people and configurations write them.

use crate::driver::Backend;
use std::fmt;
use std::str::FromStr;

/// A device by name: `host`, `cuda`, `cuda:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceName {
    /// Whose it is.
    pub backend: Backend,
    /// Its number; `None` leaves the choice to whoever reads the name.
    pub index: Option<u32>,
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, Some(index)),
            None => (text, None),
        };
        let wrong = || {
            let names: Vec<&str> = Backend::ALL.iter().map(|backend| backend.name()).collect();
            format!(
                "saw `{text}`, allowed {}, and a device's number behind a colon, as in cuda:0",
                names.join(", ")
            )
        };
        let backend = Backend::ALL.into_iter().find(|backend| backend.name() == name);
        let backend = backend.ok_or_else(wrong)?;
        let index = index.map(|index| index.parse().map_err(|_| wrong())).transpose()?;
        Ok(DeviceName { backend, index })
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.backend.name())?;
        self.index.map_or(Ok(()), |index| write!(f, ":{index}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names() {
        for (text, backend, index) in [
            ("host", Backend::Host, None),
            ("cuda", Backend::Cuda, None),
            ("cuda:0", Backend::Cuda, Some(0)),
            ("rocm:12", Backend::Rocm, Some(12)),
        ] {
            let name: DeviceName = text.parse().unwrap();
            assert_eq!(name, DeviceName { backend, index });
            assert_eq!(name.to_string(), text);
        }
        for text in ["", "cuda:", "cuda:x", "gpu", "cuda:-1", "cuda:0:1"] {
            let error = text.parse::<DeviceName>().unwrap_err();
            assert!(error.contains("cuda:0"), "{text}: {error}");
        }
    }
}
