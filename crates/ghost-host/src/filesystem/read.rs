//! Reading a device past the kernel's cache, so that a zero is what the disk holds and not what was
//! once read from it, and an unreadable disk is never mistaken for an empty one.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::OFlags;

use crate::device::{self, BlockDevice};
use crate::error::{Error, Result};
use crate::filesystem::places::Place;

/// Direct reads need memory, offsets and lengths in multiples of the disk's sector; no disk has
/// larger ones than this.
pub(crate) const ALIGNMENT: usize = 4096;

/// A device opened for reading past the cache (`O_DIRECT`), and a piece of aligned memory.
///
/// Dropping the cache instead (`POSIX_FADV_DONTNEED`) would be a wish only: pages in use stay.
#[derive(Debug)]
pub(crate) struct DirectReader<'a> {
    device: &'a BlockDevice,
    handle: OwnedFd,
    memory: Vec<u8>,
    aligned_from: usize,
    capacity: usize,
}

impl<'a> DirectReader<'a> {
    /// A reader for pieces of up to `capacity` bytes.
    pub(crate) fn open(device: &'a BlockDevice, capacity: usize) -> Result<Self> {
        let handle = device::reopen(device, OFlags::RDONLY | OFlags::DIRECT)
            .map_err(Error::io("open for reading", &device.path))?;
        let memory = vec![0; capacity + ALIGNMENT];
        let aligned_from = memory.as_ptr().align_offset(ALIGNMENT);
        Ok(Self { device, handle, memory, aligned_from, capacity })
    }

    /// Reads the whole place. Anything less is an error: a device that was cut off gives the end of
    /// file where its bytes used to be.
    pub(crate) fn read(&mut self, place: Place) -> Result<&[u8]> {
        assert!(place.length <= self.capacity, "a place is no larger than the reader's memory");
        let bytes = &mut self.memory[self.aligned_from..][..place.length];
        let mut done = 0;
        while done < bytes.len() {
            let offset = place.offset + done as u64;
            match rustix::io::pread(&self.handle, &mut bytes[done..], offset) {
                Ok(0) => {
                    let source = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(Error::io("read", &self.device.path)(source));
                }
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(source) => return Err(Error::io("read", &self.device.path)(source)),
            }
        }
        Ok(&self.memory[self.aligned_from..][..place.length])
    }

    /// The offset on the device of the first byte in this place that is not zero.
    pub(crate) fn first_data(&mut self, place: Place) -> Result<Option<u64>> {
        let bytes = self.read(place)?;
        Ok(bytes.iter().position(|byte| *byte != 0).map(|index| place.offset + index as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::sync::Arc;

    use super::*;
    use crate::device::{DeviceNumber, Identity};

    /// A file that stands for a device: the reads are the same.
    fn device(file: &tempfile::NamedTempFile, size: u64) -> BlockDevice {
        BlockDevice {
            handle: Arc::new(File::open(file.path()).unwrap().into()),
            path: file.path().to_owned(),
            number: DeviceNumber { major: 0, minor: 0 },
            size,
            identity: Identity::Unreadable,
            partitions: Vec::new(),
            users: Vec::new(),
        }
    }

    #[test]
    fn a_place_is_read_whole_or_not_at_all() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(16 * 4096).unwrap();
        file.as_file().write_all_at(b"x", 9 * 4096 + 7).unwrap();
        file.as_file().sync_all().unwrap();
        let device = device(&file, 16 * 4096);
        let mut reader = DirectReader::open(&device, 8 * 4096).unwrap();
        let mut look = |block: u64, blocks: usize| {
            reader.first_data(Place { offset: block * 4096, length: blocks * 4096 })
        };
        assert_eq!(look(0, 8).unwrap(), None);
        assert_eq!(look(8, 8).unwrap(), Some(9 * 4096 + 7));
        assert_eq!(look(10, 6).unwrap(), None, "nothing is left over from the last look");
        // It would be zeros all through if the missing part were taken for some.
        for (block, blocks) in [(12, 8), (16, 1), (100, 1)] {
            let error = look(block, blocks).unwrap_err();
            assert!(
                matches!(&error, Error::Io { action: "read", source, .. }
                    if source.kind() == io::ErrorKind::UnexpectedEof),
                "{error:?}"
            );
        }
    }
}
