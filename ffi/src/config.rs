//! How a communicator behaves, as C says it.

use crate::device::Devices;
use crate::entry::{Structure, structure, text, texts};
use crate::logging;
use crate::result::Failure;
use crate::types::switch;
use antiphon_executor::launcher::Environment;
use antiphon_executor::{ExecutorError, Options};
use std::ffi::c_char;
use std::mem::offset_of;
use std::ptr;
use std::time::Duration;

/// How a communicator behaves. Begin with ANTIPHON_CONFIG_INIT, which sets the size and leaves all else at its default; later
/// versions of the library add fields at the end, and accept the shorter structures of programs that were compiled before.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct antiphon_config {
    /// sizeof(antiphon_config), as the program was compiled.
    pub struct_size: u64,
    /// How long a call may make no progress before it fails, in milliseconds; negative for ever. 0 takes what the environment
    /// variable ANTIPHON_CALL_TIMEOUT says, or else a minute.
    pub timeout_ms: i64,
    /// Whether plans are verified when they are loaded: an antiphon_switch, on by default.
    pub verification: i32,
    /// Whether peers may access ordinary memory of this process through the kernel, if the system permits it: an
    /// antiphon_switch, on by default.
    pub process_access: i32,
    /// The wire of port channels, e.g. "tcp". Null takes what the environment variable ANTIPHON_WIRE says, or else the cheapest.
    /// All ranks must give the same.
    pub wire: *const c_char,
    /// The network interface of wires and of the rendezvous, given by its name, one of its addresses, or an address prefix.
    /// Null takes the one that ANTIPHON_INTERFACE names, or else MSCCLPP_SOCKET_IFNAME, or else NCCL_SOCKET_IFNAME in NCCL's
    /// grammar; if none is set, the one by which the ranks meet. A place that names an interface uses that one for the
    /// rendezvous.
    pub network_interface: *const c_char,
    /// Whether sums of floating-point numbers keep one order, so that a tensor has the same bits however it is put into
    /// buckets: an antiphon_switch; off by default, unless ANTIPHON_REPRODUCIBLE is 1. All ranks must give the same.
    pub reproducible: i32,
    /// 0.
    pub reserved: i32,
    /// The device of the rank's buffers: "host", "cuda:1", "rocm:0"; a name without a number is the device that the
    /// application has made current on the calling thread, else that of this rank's number on its host (antiphon_local_rank),
    /// counted from 0 again where there are fewer devices. Null takes what the environment variable ANTIPHON_DEVICE says, or else the host.
    /// antiphon_communicator_create_in_process also takes one device for each rank, separated by commas; with a single name
    /// without a number, its ranks take turns on all devices of that kind.
    pub device: *const c_char,
    /// Threads of each thread block on a GPU, 1 to 512; 0 for as many as the plan says.
    pub block_threads: u64,
    /// Tags, all of which a registered or installed plan, or registered code, must have to serve this communicator's calls.
    /// Null takes what the environment variable ANTIPHON_TAGS lists, or else none. All ranks must give the same.
    pub tags: *const *const c_char,
    /// How many tags there are. With 0 and a `tags` that is not null, no tags are asked for, whatever the environment says.
    pub tag_count: u64,
    /// What plans become on a GPU: "generated" (kernels of their own), "interpreted", or "auto", the first where there is a
    /// run-time compiler. Null takes what the environment variable ANTIPHON_KERNELS says, or else "auto". Ranks may differ.
    pub kernels: *const c_char,
    /// Whether switch channels go through multicast groups where the members' devices have them, whose sums round as the
    /// switch does: an antiphon_switch, on by default.
    pub multicast: i32,
    /// Whether other processes map memory of cudaMalloc rather than have it copied: an antiphon_switch; off by default, unless
    /// ANTIPHON_LEGACY_IPC is 1. Then each buffer's first call must have the device to itself on all ranks.
    pub legacy_ipc: i32,
    /// What the communicator is called in its errors and in the lines of the log about it: 1 to 128 bytes of UTF-8 without control
    /// characters. Null for no name. It is for people, on this rank: ranks may differ.
    pub name: *const c_char,
}

/// The value that only `libantiphon_nccl.so` puts into `reserved`: it asks that launches follow each other whatever their
/// streams ([`Options::one_lane`]). `ffi/nccl` has the same number.
const NCCL: i32 = 0x4e43_434c;

/// A configuration that asks for nothing.
const NOTHING: antiphon_config = antiphon_config {
    struct_size: size_of::<antiphon_config>() as u64,
    timeout_ms: 0,
    verification: 0,
    process_access: 0,
    wire: ptr::null(),
    network_interface: ptr::null(),
    reproducible: 0,
    reserved: 0,
    device: ptr::null(),
    block_threads: 0,
    tags: ptr::null(),
    tag_count: 0,
    kernels: ptr::null(),
    multicast: 0,
    legacy_ipc: 0,
    name: ptr::null(),
};

/// Size of the structure in the first version; every program gives at least that.
const FIRST: u64 =
    offset_of!(antiphon_config, network_interface) as u64 + size_of::<*const c_char>() as u64;

impl Structure for antiphon_config {
    const NAME: &'static str = "config";
    const INIT: &'static str = "ANTIPHON_CONFIG_INIT";
    const FIRST: u64 = FIRST;
}

/// The options of one rank that a caller asks for, its device included.
///
/// # Errors
/// As [`asked`], and for a device that does not exist.
///
/// # Safety
/// As [`asked`].
pub(crate) unsafe fn options(config: *const antiphon_config) -> Result<Options, Failure> {
    // SAFETY: as this function's.
    let (options, devices) = unsafe { asked(config)? };
    Ok(options.with_device(devices.one()?))
}

/// The options that a caller asks for, and the devices.
///
/// # Errors
/// For a size that no version had, for fields that ask for something and that this version does not know, and for values that
/// are not allowed.
///
/// # Safety
/// The structure, if there is one, is as long as it says, its list of tags is there, and its texts end with a zero.
pub(crate) unsafe fn asked(config: *const antiphon_config) -> Result<(Options, Devices), Failure> {
    logging::start();
    let mut options = Options::default();
    if config.is_null() {
        return Ok((options, Devices::read(None)?));
    }
    // SAFETY: as this function's.
    let config = unsafe { structure(config, NOTHING)? };
    let milliseconds = config.timeout_ms;
    if milliseconds != 0 {
        let limit = u64::try_from(milliseconds).ok().map(Duration::from_millis);
        options = options.with_timeout(limit);
    }
    options.verification = switch(config.verification)?.unwrap_or(options.verification);
    options.process_access = switch(config.process_access)?.unwrap_or(options.process_access);
    let named = |at: *const c_char, name| -> Result<Option<String>, Failure> {
        if at.is_null() {
            return Ok(None);
        }
        // SAFETY: texts end with a zero.
        unsafe { text(at, name) }.map(|text| Some(text.to_owned()))
    };
    options.wire = named(config.wire, "config.wire")?.or(options.wire);
    options.interface = named(config.network_interface, "config.network_interface")?;
    options.reproducible = switch(config.reproducible)?.unwrap_or(options.reproducible);
    options.one_lane = config.reserved == NCCL;
    if ![0, NCCL].contains(&config.reserved) {
        let text = format!("cannot use `config.reserved`: saw {}, allowed 0", config.reserved);
        return Err(Failure::argument(text));
    }
    if config.block_threads != 0 {
        // A number that is too large stays too large.
        options.block_threads = Some(u32::try_from(config.block_threads).unwrap_or(u32::MAX));
    }
    if !config.tags.is_null() || config.tag_count > 0 {
        // SAFETY: as this function's.
        options.tags = unsafe { texts(config.tags, config.tag_count, "config.tags")? };
    }
    if let Some(form) = named(config.kernels, "config.kernels")? {
        options = options.with_kernels(form.parse().map_err(Failure::argument)?);
    }
    options.multicast = switch(config.multicast)?.unwrap_or(options.multicast);
    options.legacy_ipc = switch(config.legacy_ipc)?.unwrap_or(options.legacy_ipc);
    options.name = named(config.name, "config.name")?;
    let device = named(config.device, "config.device")?;
    Ok((options, Devices::read(device.as_deref())?))
}

/// The network interface that the process's environment asks for.
///
/// # Errors
/// For an interface that does not exist.
pub(crate) fn interface_asked() -> Result<Option<String>, Failure> {
    let asked = Environment::of_process().interface();
    asked.map_err(|error| ExecutorError::from(error).into())
}

/// The options, with the interface that the environment asks for if the program names none. It is for groups that meet by an
/// id: a place or a launcher may name an interface, which goes before the environment.
///
/// # Errors
/// As [`interface_asked`].
pub(crate) fn with_interface(options: Options) -> Result<Options, Failure> {
    let named = options.interface.clone();
    let interface = named.map_or_else(interface_asked, |named| Ok(Some(named)))?;
    Ok(options.with_interface(interface))
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_executor::KernelForm;

    fn config() -> antiphon_config {
        NOTHING
    }

    fn read(config: &antiphon_config) -> Result<Options, Failure> {
        // SAFETY: as long as it says, or refused before it is read.
        unsafe { options(config) }
    }

    #[test]
    fn what_is_not_said_is_as_by_default() {
        let default = format!("{:?}", Options::default());
        assert_eq!(format!("{:?}", read(&config()).unwrap()), default);
        // SAFETY: there is none.
        assert_eq!(format!("{:?}", unsafe { options(ptr::null()) }.unwrap()), default);
    }

    #[test]
    fn what_is_said_counts() {
        let asked = read(&antiphon_config {
            timeout_ms: 1500,
            verification: 2,
            process_access: 2,
            wire: c"tcp".as_ptr(),
            network_interface: c"lo".as_ptr(),
            reproducible: 1,
            device: c"host:0".as_ptr(),
            block_threads: 64,
            tags: [c"fast".as_ptr(), c"mine".as_ptr()].as_ptr(),
            tag_count: 2,
            kernels: c"interpreted".as_ptr(),
            multicast: 2,
            legacy_ipc: 1,
            name: c"tensor parallel".as_ptr(),
            ..config()
        });
        let asked = asked.unwrap();
        assert_eq!(asked.timeout, Some(Duration::from_millis(1500)));
        assert!(!asked.verification && !asked.process_access);
        assert_eq!(asked.wire.as_deref(), Some("tcp"));
        assert_eq!(asked.interface.as_deref(), Some("lo"));
        assert!(asked.reproducible);
        assert!(asked.device.is_none() && asked.block_threads == Some(64));
        assert_eq!(asked.tags, ["fast", "mine"]);
        assert_eq!(asked.kernels, KernelForm::Interpreted);
        assert!(!asked.multicast && asked.legacy_ipc);
        assert_eq!(asked.name.as_deref(), Some("tensor parallel"));
        let patient = antiphon_config { timeout_ms: -1, ..config() };
        assert_eq!(read(&patient).unwrap().timeout, None);
    }

    #[test]
    fn nccl_calls_have_one_lane_and_no_others() {
        for (reserved, one_lane) in [(0, false), (NCCL, true)] {
            assert_eq!(read(&antiphon_config { reserved, ..config() }).unwrap().one_lane, one_lane);
        }
    }

    #[test]
    fn structures_of_other_versions_are_read_or_refused() {
        for struct_size in [0, 8, FIRST - 1, FIRST + 4, 4097, u64::MAX] {
            let text = read(&antiphon_config { struct_size, ..config() }).unwrap_err().text;
            assert!(text.contains("ANTIPHON_CONFIG_INIT"), "{text}");
        }
        #[repr(C)]
        struct Later {
            config: antiphon_config,
            more: [u64; 2],
        }
        let mut later = Later { config: config(), more: [0; 2] };
        later.config.struct_size = size_of::<Later>() as u64;
        // SAFETY: as long as it says.
        unsafe { options((&raw const later).cast()) }.unwrap();
        later.more[1] = 1 << 40;
        // SAFETY: as long as it says.
        let text = unsafe { options((&raw const later).cast()) }.unwrap_err().text;
        assert!(text.contains("a later one"), "{text}");
    }

    #[test]
    fn a_program_of_the_first_version_asks_for_what_it_knows() {
        // What lies behind its structure is not its.
        let first =
            antiphon_config { struct_size: FIRST, timeout_ms: 1500, reproducible: 9, ..config() };
        let asked = read(&first).unwrap();
        assert_eq!(asked.timeout, Some(Duration::from_millis(1500)));
        assert_eq!(asked.reproducible, Options::default().reproducible);
    }

    #[test]
    fn values_that_are_none_are_refused() {
        for bad in [
            antiphon_config { verification: 3, ..config() },
            antiphon_config { process_access: -1, ..config() },
            antiphon_config { wire: c"\xff".as_ptr(), ..config() },
            antiphon_config { reproducible: 3, ..config() },
            antiphon_config { device: c"gpu".as_ptr(), ..config() },
            antiphon_config { device: c"host,host".as_ptr(), ..config() },
            antiphon_config { reserved: 1, ..config() },
            antiphon_config { kernels: c"compiled".as_ptr(), ..config() },
            antiphon_config { multicast: 3, ..config() },
            antiphon_config { legacy_ipc: -1, ..config() },
            antiphon_config { name: c"\xff".as_ptr(), ..config() },
            antiphon_config { tag_count: 1, ..config() },
            antiphon_config { tags: [ptr::null()].as_ptr(), tag_count: 1, ..config() },
        ] {
            assert!(read(&bad).is_err(), "{bad:?}");
        }
    }
}
