//! Where devices are on the machine's buses.

use std::fmt;
use std::str::FromStr;

/// The place of a device on the PCI buses of its machine: equal in all processes, whatever numbers they count devices by.
/// Parts of one GPU that it was divided into (MIG) have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    /// The domain.
    pub domain: u32,
    /// The bus.
    pub bus: u8,
    /// The device, below 32.
    pub device: u8,
    /// The function, below 8.
    pub function: u8,
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot read a PCI address: saw `{0}`, allowed domain:bus:device.function as in 0000:3b:00.0"
)]
pub struct NoPciAddress(String);

impl FromStr for PciAddress {
    type Err = NoPciAddress;

    /// Reads what drivers and the kernel write: hexadecimal, in capitals or not, with a domain of 4 digits or more.
    fn from_str(text: &str) -> Result<Self, NoPciAddress> {
        let read = || {
            let (domain, rest) = text.split_once(':')?;
            let (bus, rest) = rest.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            let number = |digits: &str, most: u32| {
                let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                let value = u32::from_str_radix(digits, 16).ok().filter(|_| plain)?;
                (value <= most).then_some(value)
            };
            Some(PciAddress {
                domain: number(domain, u32::MAX)?,
                bus: number(bus, 0xFF)? as u8,
                device: number(device, 0x1F)? as u8,
                function: number(function, 7)? as u8,
            })
        };
        read().ok_or_else(|| NoPciAddress(text.to_owned()))
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl PciAddress {
    /// The address as one number.
    pub const fn to_bits(self) -> u64 {
        (self.domain as u64) << 16
            | (self.bus as u64) << 8
            | (self.device as u64) << 3
            | self.function as u64
    }

    /// The address of such a number; `None` if it is none's.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits >> 48 != 0 {
            return None;
        }
        Some(PciAddress {
            domain: (bits >> 16) as u32,
            bus: (bits >> 8) as u8,
            device: (bits >> 3) as u8 & 0x1F,
            function: bits as u8 & 7,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_drivers_and_kernels_write_them() {
        for (text, canonical) in [
            ("0000:3b:00.0", "0000:3b:00.0"),
            ("0000:3B:1F.7", "0000:3b:1f.7"),
            ("00000000:C1:00.0", "0000:c1:00.0"),
            ("10001:01:00.0", "10001:01:00.0"),
        ] {
            let address: PciAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), canonical);
            assert_eq!(PciAddress::from_bits(address.to_bits()), Some(address));
        }
        for text in ["", "3b:00.0", "0000:3b:20.0", "0000:3b:00.8", "0000:100:00.0", "0000:+b:00.0"]
        {
            let error = text.parse::<PciAddress>().unwrap_err();
            assert!(error.to_string().contains("0000:3b:00.0"), "{text}: {error}");
        }
        assert_eq!(PciAddress::from_bits(u64::MAX), None);
    }
}
