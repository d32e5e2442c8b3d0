//! Cases on memory of GPUs, which wires may take by its dma-buf. The memory here is made up: a file stands for the buffer, and
//! nothing is mapped at the memory's address, so that whoever goes there instead ends.

use super::support::{pattern, words};
use super::{Ends, Region, Subject};
use antiphon_hal::{Backend, DmaBuf, HalError, Memory, MemoryHandle};
use antiphon_port::{Unit, WireError, Write};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where in the buffer the memory begins.
const OFFSET: u64 = 4096;

/// Made-up memory of a GPU.
#[derive(Debug)]
pub struct OnGpu {
    id: u64,
    bytes: u64,
    buffer: File,
}

impl OnGpu {
    /// Memory of zeros.
    pub fn new(bytes: u64) -> Self {
        // No host memory has such numbers in these tests.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 48);
        let buffer = memfd_create("antiphon-test-gpu", MemfdFlags::CLOEXEC).expect("a file");
        let (id, buffer) = (NEXT.fetch_add(1, Ordering::Relaxed), File::from(buffer));
        buffer.set_len(OFFSET + bytes).expect("a file of that length");
        OnGpu { id, bytes, buffer }
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.buffer.write_all_at(bytes, OFFSET + at).expect("bytes in the file");
    }

    fn get(&self, at: u64, bytes: u64) -> Vec<u8> {
        let mut read = vec![0; bytes as usize];
        self.buffer.read_exact_at(&mut read, OFFSET + at).expect("bytes in the file");
        read
    }
}

// SAFETY: nobody may use the address.
unsafe impl Memory for OnGpu {
    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn address(&self) -> *mut u8 {
        std::ptr::without_provenance_mut(8)
    }

    fn len(&self) -> u64 {
        self.bytes
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn export(&self) -> Result<MemoryHandle, HalError> {
        Err(HalError::Unsupported { op: "export made-up memory", backend: self.backend() })
    }

    fn export_dma_buf(&self, offset: u64, _: u64) -> Result<DmaBuf, HalError> {
        let what = || "copy a descriptor".to_owned();
        let buffer = self.buffer.try_clone();
        let buffer = buffer.map_err(|source| HalError::System { what: what(), source })?;
        Ok(DmaBuf::new(buffer.into(), OFFSET + offset))
    }
}

/// Memory of a GPU, registered with the end of `rank`, or why the wire does not take it.
fn region(ends: &Ends, rank: u32, bytes: u64) -> Result<(Arc<OnGpu>, Region), String> {
    let gpu = Arc::new(OnGpu::new(bytes));
    let wire = &ends.wires[rank as usize];
    if ends.table.is_some() || !wire.takes_gpu_memory() {
        return Err("the wire takes no memory of GPUs".to_owned());
    }
    let memory = Arc::clone(&gpu) as Arc<dyn Memory>;
    // Such a buffer may be none for the wire's card.
    let registration = wire.register(&memory).map_err(|error| error.to_string())?;
    assert_eq!((registration.region, registration.bytes), (memory.id(), memory.len()));
    Ok((gpu, Region { memory, registration }))
}

/// Bytes go from and to memory of GPUs and of the host alike, before the signal that follows them, and within bounds.
pub fn memory_of_gpus_goes_by_its_buffer(subject: &Subject) {
    const ROOM: u64 = 3 << 16;
    let ends = subject.ends(2);
    let own = region(&ends, 0, ROOM).and_then(|own| Ok((own, region(&ends, 1, ROOM)?)));
    let ((source, from), (target, to)) = match own {
        Ok(both) => both,
        Err(why) => return subject.skip(&why),
    };
    let pair = ends.pair();
    let (host, there, counter) = (ends.region(0, ROOM), ends.region(1, ROOM), ends.region(1, 64));
    for region in [&to, &there, &counter] {
        region.tell(&pair.a);
    }
    let arrived = &words(&counter.memory, 1)[0];
    let bytes_of = |memory: &Region, at: u64, bytes: u64| -> Vec<u8> {
        (at..at + bytes).map(|at| super::support::byte(&memory.memory, at)).collect()
    };
    for (round, (bytes, from_gpu, to_gpu)) in [
        (1, true, true),
        (70_001, true, true),
        (40_000, false, true),
        (513, true, false),
        (8, true, true),
    ]
    .into_iter()
    .enumerate()
    {
        let (round, at, place) = (round as u64 + 1, 8 * round as u64, 24 * (round as u64 + 1));
        let sent: Vec<u8> = (0..bytes).map(|at| pattern(at, round)).collect();
        let source_memory = if from_gpu {
            source.put(at, &sent);
            &from.memory
        } else {
            super::support::fill(&host.memory, at, bytes, 0);
            &host.memory
        };
        let sent = if from_gpu { sent } else { bytes_of(&host, at, bytes) };
        let region = if to_gpu { &to } else { &there };
        let read = |at, bytes| match to_gpu {
            true => target.get(at, bytes),
            false => bytes_of(&there, at, bytes),
        };
        let beside = [read(place - 1, 1), read(place + bytes, 1)];
        let unit = if bytes == 8 { Unit::Packets } else { Unit::Bytes };
        let (number, from) = (region.number(), at);
        pair.write(&Write { source: source_memory, from, region: number, to: place, bytes, unit });
        pair.signal(counter.number(), 0, round);
        pair.until("a signal", || arrived.load(Ordering::Acquire) == round);
        assert!(read(place, bytes) == sent, "round {round}: {bytes} bytes");
        assert_eq!([read(place - 1, 1), read(place + bytes, 1)], beside, "beside round {round}");
    }
    let whole = Write {
        source: &from.memory,
        from: 0,
        region: to.number(),
        to: 0,
        bytes: ROOM,
        unit: Unit::Bytes,
    };
    for beyond in [Write { from: 8, ..whole }, Write { to: 8, ..whole }] {
        let refused = pair.a.write(&beyond);
        assert!(matches!(refused, Err(WireError::Invalid { .. })), "{refused:?}");
    }
    pair.flush();
    drop((from, to, pair));
    // Other threads may let go a little later.
    super::support::until(&[], ends.patience, "memory to be given back", || {
        Arc::strong_count(&source) == 1 && Arc::strong_count(&target) == 1
    });
}
