//! Archives that the kernel takes as its first file system: cpio, of the kind "newc".

/// An archive that grows.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    next: u32,
}

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const DEVICE: u32 = 0o020_600;

impl Archive {
    /// A folder; its parents must be there already.
    pub fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER, (0, 0), &[]);
    }

    /// A file.
    pub fn file(&mut self, path: &str, program: bool, contents: &[u8]) {
        self.entry(path, if program { PROGRAM } else { FILE }, (0, 0), contents);
    }

    /// A symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.entry(path, LINK, (0, 0), target.as_bytes());
    }

    /// A character device.
    pub fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, DEVICE, (major, minor), &[]);
    }

    /// The archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        let name = path.trim_start_matches('/');
        self.next += 1;
        let fields = [
            self.next,
            mode,
            0, // user
            0, // group
            1, // links
            0, // time
            contents.len() as u32,
            0, // device that the file is on
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0, // no checksum
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_padded_and_the_trailer_ends_them() {
        let mut archive = Archive::default();
        archive.folder("/bin");
        archive.file("/bin/x", true, b"hello");
        let bytes = archive.finish();
        assert!(bytes.len().is_multiple_of(4));
        assert_eq!(&bytes[..14], b"07070100000001");
        // A head of 110 bytes and the name "bin" with its zero: 114, padded to 116.
        assert_eq!(&bytes[116..122], b"070701");
        let size = &bytes[116 + 6 + 6 * 8..][..8];
        assert_eq!(size, b"00000005");
        assert!(bytes.windows(10).any(|window| window == b"TRAILER!!!"));
    }
}
