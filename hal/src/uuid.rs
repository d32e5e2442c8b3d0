//! What devices are told apart by, wherever they are.

use std::fmt;

/// The number that a driver gives a device and no other one, equal in all processes. Parts of one GPU that it was divided
/// into (MIG) have one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceUuid([u8; 16]);

impl DeviceUuid {
    /// The number of these bytes; `None` if all are zero, which names no device.
    pub const fn new(bytes: [u8; 16]) -> Option<Self> {
        match u128::from_le_bytes(bytes) {
            0 => None,
            _ => Some(DeviceUuid(bytes)),
        }
    }

    /// Its bytes, in the driver's order.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for DeviceUuid {
    /// As drivers and their tools write it, without the word before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_drivers_tools_do() {
        let bytes = std::array::from_fn(|at| 0x11 * at as u8);
        let uuid = DeviceUuid::new(bytes).unwrap();
        assert_eq!(uuid.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(uuid.to_bytes(), bytes);
        assert_eq!(DeviceUuid::new([0; 16]), None);
    }
}
