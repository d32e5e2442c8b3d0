//! Tables that are no good, and wires that go through the interface and back.

use super::export::{Exported, table};
use super::{abi, adopt};
use crate::local::{LocalWire, MappedRegions};
use crate::wire::{Opening, Registration, Settings, Unit, Wire, WireDriver, Write};
use crate::{Posted, WireError};
use antiphon_hal::{Backend, DmaBuf, HalError, Memory, MemoryHandle};
use antiphon_transport::{Peer, Reach};
use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// All registered memory of the test, as if a peer had mapped it.
#[derive(Debug, Default)]
struct Regions(Mutex<HashMap<u64, Arc<dyn Memory>>>);

impl MappedRegions for Regions {
    fn region(&self, _: u32, region: u64) -> Option<Arc<dyn Memory>> {
        if region == 666 {
            panic!("the test said so");
        }
        self.0.lock().unwrap().get(&region).cloned()
    }
}

static REGIONS: LazyLock<Arc<Regions>> = LazyLock::new(Arc::default);

#[derive(Debug)]
struct LocalDriver;

impl WireDriver for LocalDriver {
    fn name(&self) -> &str {
        "local"
    }

    fn open(&self, settings: &Settings) -> Result<Arc<dyn Wire>, WireError> {
        if settings.interface.as_deref() == Some("panic") {
            panic!("the test said so");
        }
        if let Some(device) = settings.device {
            let (wire, reason) = ("local".to_owned(), format!("asked for {device}"));
            return Err(WireError::Unavailable { wire, reason, cure: "ask for none".to_owned() });
        }
        Ok(Arc::new(LocalWire::new(Arc::clone(&REGIONS) as Arc<dyn MappedRegions>)))
    }
}

struct Good;

impl Exported for Good {
    const NAME: &'static CStr = c"exported";

    fn driver() -> Result<Arc<dyn WireDriver>, WireError> {
        Ok(Arc::new(LocalDriver))
    }
}

/// Keeps a value for ever, where whoever looks for leaks finds it.
fn keep<T: Send + Sync>(value: T) -> &'static T {
    static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let kept: &'static T = Box::leak(Box::new(value));
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(ptr::from_ref(kept).addr());
    kept
}

fn adopted(table: abi::Plugin) -> Result<Arc<dyn WireDriver>, WireError> {
    // SAFETY: a table of this program's, which is never freed.
    unsafe { adopt(keep(table), "test") }
}

#[test]
fn bad_tables_are_unavailable_and_say_why() {
    let good = table::<Good>();
    let cases = [
        ("magic", abi::Plugin { magic: 7, ..good }, "begins with 0x0000000000000007"),
        ("version", abi::Plugin { abi: 2, ..good }, "interface version 2, this is 1"),
        ("size", abi::Plugin { struct_bytes: 64, ..good }, "has 64 bytes of"),
        ("no name", abi::Plugin { name: ptr::null(), ..good }, "calls its wire \"\""),
        ("name", abi::Plugin { name: c"Two words".as_ptr(), ..good }, "\"Two words\""),
    ];
    for (what, table, reason) in cases {
        let error = adopted(table).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("antiphon_wire.h"), "{what}: {error}");
    }
    // SAFETY: null is allowed.
    let error = unsafe { adopt(ptr::null(), "test") }.unwrap_err().to_string();
    assert!(error.contains("gives no table"), "{error}");
    adopted(good).unwrap();
    // A later version 1 may have a longer table.
    adopted(abi::Plugin { struct_bytes: good.struct_bytes + 64, ..good }).unwrap();
}

#[test]
fn the_device_goes_through_and_settings_of_the_first_revision_have_none() {
    let driver = adopted(table::<Good>()).unwrap();
    let device = "0000:3b:00.0".parse().ok();
    let error = driver.open(&Settings::new(0, [0; 32]).with_device(device)).unwrap_err();
    assert!(error.to_string().contains("asked for 0000:3b:00.0"), "{error}");
    // A program that was built before: what stands behind its settings is not its device.
    let mut settings = abi::Settings::from(&Settings::new(0, [0; 32]));
    let first = std::mem::offset_of!(abi::Settings, device);
    settings.device = ptr::without_provenance(8);
    let functions = table::<Good>().functions;
    let mut error = abi::Error::new();
    let mut open = |bytes: usize| {
        settings.struct_bytes = bytes as u32;
        let mut wire = ptr::null_mut();
        // SAFETY: settings as long as they say, and room for a pointer and an error; an end is closed once.
        unsafe {
            let status = (functions.wire_open)(&raw const settings, &raw mut wire, &raw mut error);
            if status == abi::OK {
                (functions.wire_close)(wire);
            }
            status
        }
    };
    // Half a pointer is none.
    assert_eq!([open(first), open(first + 4)], [abi::OK; 2]);
    assert_eq!(open(first - 1), abi::INVALID);
}

#[test]
fn a_null_function_is_found_wherever_it_is() {
    let good = table::<Good>();
    for at in 0..abi::FUNCTIONS {
        let mut words = [0usize; size_of::<abi::Plugin>() / size_of::<usize>()];
        let room = words.as_mut_ptr().cast::<abi::Plugin>();
        // SAFETY: room of the same size and alignment.
        unsafe { room.write(good) };
        let first = std::mem::offset_of!(abi::Plugin, functions) / size_of::<usize>();
        words[first + at] = 0;
        let table = keep(words).as_ptr().cast();
        // SAFETY: a table of this program's, which is never freed.
        let error = unsafe { adopt(table, "test") }.unwrap_err().to_string();
        assert!(error.contains(&format!("function {at} of")), "{error}");
    }
}

macro_rules! failing {
    ($($name:ident: $error:expr;)*) => {
        $(
            struct $name;

            impl Exported for $name {
                const NAME: &'static CStr = c"failing";

                fn driver() -> Result<Arc<dyn WireDriver>, WireError> {
                    $error
                }
            }
        )*
    };
}

failing! {
    NoDevice: Err(WireError::Unavailable {
        wire: "failing".to_owned(),
        reason: "there is no device".to_owned(),
        cure: "buy one".to_owned(),
    });
    Refused: Err(WireError::System {
        operation: "open the device",
        wire: "failing".to_owned(),
        reason: "permission denied".to_owned(),
    });
    Long: Err(WireError::Unavailable {
        wire: "failing".to_owned(),
        reason: "ä".repeat(abi::TEXT_BYTES),
        cure: String::new(),
    });
    Panics: panic!("the test said so");
}

#[test]
fn a_wire_that_does_not_start_is_unavailable() {
    let long = "ä".repeat((abi::TEXT_BYTES - 1) / 2);
    let cases = [
        ("no device", table::<NoDevice>(), "there is no device", "buy one"),
        ("refused", table::<Refused>(), "open the device: permission denied", "documentation"),
        ("long", table::<Long>(), &long, "documentation"),
        ("panics", table::<Panics>(), "panicked: the test said so", "documentation"),
    ];
    for (what, table, reason, cure) in cases {
        match adopted(table) {
            Err(WireError::Unavailable { wire, reason: why, cure: help }) => {
                assert!(why.contains(reason) && help.contains(cure), "{what}: {why}; {help}");
                assert_eq!(wire, "failing");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

/// That a queue is full only posts may say.
#[test]
fn full_is_no_answer_but_to_a_post() {
    unsafe extern "C" fn full(_: *mut abi::Link, _: *mut i32, _: *mut abi::Error) -> i32 {
        abi::FULL
    }
    unsafe extern "C" fn full_count(_: *mut abi::Link, _: *mut u64, _: *mut abi::Error) -> i32 {
        abi::FULL
    }
    unsafe extern "C" fn full_signal(
        _: *mut abi::Link,
        _: u64,
        _: u64,
        _: u64,
        _: *mut abi::Error,
    ) -> i32 {
        abi::FULL
    }
    let good = table::<Good>();
    let functions = abi::Functions {
        link_signal: full_signal,
        link_progress: full,
        link_arm: full,
        link_completed: full_count,
        ..good.functions
    };
    let driver = adopted(abi::Plugin { functions, ..good }).unwrap();
    let wire = driver.open(&Settings::new(0, [7; 32])).unwrap();
    let link = wire.open(1).unwrap().connect(&[]).unwrap();
    assert_eq!(link.signal(1, 0, 1), Ok(Posted::Full));
    let answers = [link.progress().map(drop), link.arm().map(drop), link.completed().map(drop)];
    for answer in answers {
        let error = answer.unwrap_err().to_string();
        assert!(error.contains(&format!("answered {}", abi::FULL)), "{error}");
    }
}

#[test]
fn bytes_signals_errors_and_memory_go_through_the_interface_and_back() {
    let driver = adopted(table::<Good>()).unwrap();
    assert_eq!(driver.name(), "exported");
    let settings = Settings::new(0, [7; 32]);
    for (interface, text) in [("panic", "the test said so"), ("a\0b", "without a zero byte")] {
        let settings = settings.clone().with_interface(Some(interface.to_owned()));
        let error = driver.open(&settings).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    let wire = driver.open(&settings).unwrap();
    assert_eq!((wire.name(), &*wire.describe()), ("exported", "copies between mapped memories"));
    let mut peer =
        Peer { rank: 1, pid: 1, same_process: false, same_node: true, process_access: false };
    assert_eq!(wire.reach(&peer), Reach::At { cost: 1 });
    peer.same_node = false;
    assert!(matches!(wire.reach(&peer), Reach::No { why } if why.contains("another node")));

    let device = antiphon_hal::driver(Backend::Host).unwrap().open(0).unwrap();
    let [source, target] = [(); 2].map(|()| device.allocate(4096).unwrap());
    REGIONS.0.lock().unwrap().insert(target.id(), Arc::clone(&target));
    let registration = wire.register(&source).unwrap();
    assert_eq!((registration.region, registration.bytes), (source.id(), 4096));
    let again = wire.register(&source).unwrap();

    let opening = wire.open(1).unwrap();
    assert_eq!(opening.address(), []);
    drop(wire.open(1).unwrap());
    let link = opening.connect(&[1, 2, 3]).unwrap();
    drop(wire);
    assert_eq!((link.peer(), link.descriptor().is_none()), (1, true));
    assert_eq!((link.progress(), link.arm()), (Ok(false), Ok(true)));
    link.accept(target.id(), 4096, &[1]).unwrap();
    link.retire(5);
    // SAFETY: mapped memory of this test's own.
    unsafe { source.address().add(8).cast::<u64>().write(0x1234) };
    let region = target.id();
    let whole = Write { source: &source, from: 8, region, to: 16, bytes: 8, unit: Unit::Packets };
    assert_eq!(link.write(&whole), Ok(Posted::Queued));
    assert_eq!(link.signal(region, 24, 9), Ok(Posted::Queued));
    assert_eq!((link.posted(), link.completed()), (2, Ok(2)));
    assert_eq!(link.carried(), 1, "up to the last write");
    // SAFETY: as above.
    let words = unsafe { [2, 3].map(|at| target.address().cast::<u64>().add(at).read()) };
    assert_eq!(words, [0x1234, 9]);

    let outside = Write { from: 4096, ..whole };
    match link.write(&outside) {
        Err(WireError::Invalid { operation: "write", wire, saw, .. }) => {
            assert!(wire == "exported" && saw.contains("4096"), "{saw}");
        }
        other => panic!("{other:?}"),
    }
    let unknown = link.write(&Write { source: &target, ..whole }).unwrap_err().to_string();
    assert!(unknown.contains("registered"), "{unknown}");
    let panicked = link.signal(666, 0, 0).unwrap_err().to_string();
    assert!(panicked.contains("panicked: the test said so"), "{panicked}");

    // Two registrations of a memory each keep it.
    let count = Arc::strong_count(&source);
    drop(registration);
    assert_eq!(link.write(&whole), Ok(Posted::Queued));
    drop(again);
    assert!(link.write(&whole).unwrap_err().to_string().contains("registered"));
    assert_eq!((count, Arc::strong_count(&source)), (3, 1));
    REGIONS.0.lock().unwrap().remove(&region);
}

/// Memory of a made-up GPU, whose buffer is a file.
#[derive(Debug)]
struct OnGpu {
    memory: Arc<dyn Memory>,
    buffer: Option<File>,
}

// SAFETY: the memory inside keeps the contract.
unsafe impl Memory for OnGpu {
    fn backend(&self) -> Backend {
        Backend::Cuda
    }

    fn address(&self) -> *mut u8 {
        self.memory.address()
    }

    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn id(&self) -> u64 {
        self.memory.id()
    }

    fn export(&self) -> Result<MemoryHandle, HalError> {
        self.memory.export()
    }

    fn export_dma_buf(&self, offset: u64, _: u64) -> Result<DmaBuf, HalError> {
        match &self.buffer {
            Some(buffer) => Ok(DmaBuf::new(buffer.try_clone().unwrap().into(), 64 + offset)),
            None => Err(HalError::Unsupported { op: "export", backend: Backend::Cuda }),
        }
    }
}

/// A wire that takes memory of GPUs, and says in the blob what it reads from its buffer.
#[derive(Debug)]
struct Reading;

impl Wire for Reading {
    fn name(&self) -> &str {
        "reading"
    }

    fn reach(&self, _: &Peer) -> Reach {
        Reach::At { cost: 10 }
    }

    fn describe(&self) -> String {
        "a test".to_owned()
    }

    fn register(&self, memory: &Arc<dyn Memory>) -> Result<Registration, WireError> {
        let mut blob = vec![0; 4];
        if memory.backend() != Backend::Host {
            assert!(memory.export_dma_buf(4096, 1).is_err(), "outside the memory");
            let DmaBuf { descriptor, offset, .. } = memory.export_dma_buf(8, 4).unwrap();
            File::from(descriptor).read_exact_at(&mut blob, offset).unwrap();
        }
        let keep = Box::new(Arc::clone(memory));
        Ok(Registration { region: memory.id(), bytes: memory.len(), blob, keep })
    }

    fn open(&self, _: u32) -> Result<Box<dyn Opening>, WireError> {
        Err(WireError::Unsupported { operation: "open a link", wire: "reading".to_owned() })
    }
}

impl WireDriver for Reading {
    fn name(&self) -> &str {
        "reading"
    }

    fn open(&self, _: &Settings) -> Result<Arc<dyn Wire>, WireError> {
        Ok(Arc::new(Reading))
    }
}

struct Reads;

impl Exported for Reads {
    const NAME: &'static CStr = c"reading";

    fn driver() -> Result<Arc<dyn WireDriver>, WireError> {
        Ok(Arc::new(Reading))
    }
}

#[test]
fn memory_of_gpus_goes_by_its_buffer_to_plugins_that_take_it_and_to_no_others() {
    let device = antiphon_hal::driver(Backend::Host).unwrap().open(0).unwrap();
    let host = device.allocate(4096).unwrap();
    let path = std::env::temp_dir().join(format!("antiphon-dma-buf-{}", std::process::id()));
    fs::write(&path, [[0; 64].as_slice(), b"........wire"].concat()).unwrap();
    let buffer = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let on_gpu = |buffer: Option<&File>| -> Arc<dyn Memory> {
        let buffer = buffer.map(|buffer| buffer.try_clone().unwrap());
        Arc::new(OnGpu { memory: Arc::clone(&host), buffer })
    };
    let (with, without) = (on_gpu(Some(&buffer)), on_gpu(None));
    let settings = Settings::new(0, [0; 32]);
    let new = table::<Reads>();
    let wire = adopted(new).unwrap().open(&settings).unwrap();
    let registration = wire.register(&with).unwrap();
    assert_eq!((&*registration.blob, registration.bytes), (b"wire".as_slice(), 4096));
    assert_eq!(Arc::strong_count(&with), 2, "lent");
    drop(registration);
    assert_eq!(Arc::strong_count(&with), 1, "given back");
    assert_eq!(wire.register(&host).unwrap().blob, [0; 4]);
    let unsupported = |wire: &Arc<dyn Wire>, memory: &Arc<dyn Memory>| {
        let answer = wire.register(memory).map(|registration| registration.region);
        assert!(matches!(answer, Err(WireError::Unsupported { .. })), "{answer:?}");
    };
    unsupported(&wire, &without);
    // A plugin that was built before: what stands behind its table is not its function.
    let old = abi::Plugin { struct_bytes: abi::FIRST_PLUGIN as u32, ..new };
    let null = abi::Plugin { more: abi::More::default(), ..new };
    for table in [old, null] {
        let wire = adopted(table).unwrap().open(&settings).unwrap();
        unsupported(&wire, &with);
        assert_eq!(wire.register(&host).unwrap().blob, [0; 4]);
    }
    assert_eq!(Arc::strong_count(&with), 1);
    let shorter = abi::Plugin { struct_bytes: abi::FIRST_PLUGIN as u32 - 8, ..new };
    assert!(adopted(shorter).is_err());
}
