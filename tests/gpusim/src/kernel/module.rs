//! Modules: shared objects that the simulated compiler made, loaded from memory.

use super::known;
use super::runtime::{RUNTIME, Runtime};
use crate::abi::{In, Out};
use crate::context;
use crate::device::{BLOCK_THREADS, DEFAULT_SHARED_BYTES, SHARED_BYTES};
use crate::status::Status;
use crate::stream::capture;
use crate::table::{Table, lock};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs a kernel with addresses of its arguments.
pub type Entry = unsafe extern "C" fn(*mut *mut c_void);
/// Writes the sizes of a kernel's parameters, if asked to; answers how many there are.
type Describe = unsafe extern "C" fn(*mut u64) -> u32;

/// A loaded shared object.
struct Module {
    library: *mut c_void,
    /// The loader takes objects of one name for the same, and the name is the descriptor's number: it stays taken.
    _file: File,
    functions: Mutex<HashMap<String, u64>>,
}

// SAFETY: a handle of the dynamic loader may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel.
pub struct Function {
    pub entry: Entry,
    /// Bytes of each parameter.
    pub sizes: Vec<usize>,
    /// Bytes of shared memory that a launch may ask for.
    pub dynamic: AtomicU32,
    /// Keeps the code loaded.
    _module: Arc<Module>,
}

static MODULES: Table<Module> = Table::new();
static FUNCTIONS: Table<Function> = Table::new();

/// The kernel of a handle.
pub fn function(handle: u64) -> Result<Arc<Function>, Status> {
    FUNCTIONS.get(handle)
}

impl Module {
    fn load(image: &[u8]) -> Result<Self, Status> {
        // SAFETY: the name is a text that ends with a zero.
        let fd = unsafe { libc::memfd_create(c"antiphon-gpusim-code".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(Status::OPERATING_SYSTEM);
        }
        // SAFETY: the descriptor is fresh and nobody else's.
        let mut file = unsafe { File::from_raw_fd(fd) };
        file.write_all(image).map_err(|_| Status::OUT_OF_MEMORY)?;
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))
            .map_err(|_| Status::UNKNOWN)?;
        // SAFETY: loading runs the constructors of code that the simulated compiler made, which has none of its own.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(Status::SHARED_OBJECT_INIT_FAILED);
        }
        let module = Self { library, _file: file, functions: Mutex::default() };
        let runtime = module.symbol("antiphon_gpusim_runtime").ok_or(Status::INVALID_IMAGE)?;
        // SAFETY: the prelude defines this symbol as a pointer to the table, and nothing of the module runs yet.
        unsafe { runtime.cast::<*const Runtime>().write(&raw const RUNTIME) };
        Ok(module)
    }

    fn symbol(&self, name: &str) -> Option<*mut c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: the library is loaded while `self` lives.
        let address = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: functions hold the module, so none of its code is in use or reachable any more.
        unsafe { libc::dlclose(self.library) };
    }
}

/// Bytes of a shared object, found by its own header, since the driver is not told.
fn image_bytes(image: In<u8>) -> Result<usize, Status> {
    const HEADER: usize = 64;
    let magic = image.list(4)?;
    if magic != b"\x7fELF" {
        return Err(Status::INVALID_IMAGE);
    }
    let header = image.list(HEADER)?;
    let number = |at: usize, bytes: usize| {
        header[at..at + bytes].iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte))
    };
    // The machine of the code: one for CUDA's own is not for here.
    let machine = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    if number(18, 2) != machine {
        return Err(Status::NO_BINARY_FOR_GPU);
    }
    // The table of sections is the last thing in what the linker writes.
    Ok(number(40, 8) + number(58, 2) * number(60, 2))
}

fn load(out: Out<u64>, image: In<u8>) -> Result<(), Status> {
    let context = context::current()?;
    capture::refuse()?;
    crate::stream::may_finish_device(context.device, "load");
    let code = match known::code(image)? {
        Some(code) => code,
        None => image.list(image_bytes(image)?)?,
    };
    out.set(MODULES.add(Arc::new(Module::load(&code)?)))
}

driver_calls! {
    fn cuModuleLoadData(out: Out<u64>, image: In<u8>) {
        load(out, image)
    }


    fn cuModuleLoadDataEx(
        out: Out<u64>,
        image: In<u8>,
        _count: u32,
        _options: In<u32>,
        _values: In<usize>,
    ) {
        load(out, image)
    }

    fn cuModuleUnload(module: u64) {
        let module = MODULES.take(module)?;
        crate::stream::may_finish_device(context::current()?.device, "unload");
        for handle in lock(&module.functions).values() {
            FUNCTIONS.take(*handle)?;
        }
        Ok(())
    }

    fn cuModuleGetFunction(out: Out<u64>, module: u64, name: In<c_char>) {
        let module = MODULES.get(module)?;
        let name = name.text()?;
        if let Some(handle) = lock(&module.functions).get(&name) {
            return out.set(*handle);
        }
        let entry = module.symbol(&format!("antiphon_kernel_{name}")).ok_or(Status::NOT_FOUND)?;
        let describe =
            module.symbol(&format!("antiphon_params_{name}")).ok_or(Status::NOT_FOUND)?;
        // SAFETY: the simulated compiler defines both with these types.
        let (entry, describe) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Entry>(entry),
                std::mem::transmute::<*mut c_void, Describe>(describe),
            )
        };
        // SAFETY: without a place to write to it only counts, and then it writes as many as it counted.
        let sizes = unsafe {
            let mut sizes = vec![0; describe(std::ptr::null_mut()) as usize];
            describe(sizes.as_mut_ptr());
            sizes
        };
        let sizes = sizes.into_iter().map(|bytes| bytes as usize).collect();
        let dynamic = AtomicU32::new(DEFAULT_SHARED_BYTES);
        let handle =
            FUNCTIONS.add(Arc::new(Function { entry, sizes, dynamic, _module: module.clone() }));
        lock(&module.functions).insert(name, handle);
        out.set(handle)
    }

    fn cuFuncGetAttribute(out: Out<i32>, attribute: u32, function: u64) {
        let function = FUNCTIONS.get(function)?;
        match attribute {
            0 => out.set(BLOCK_THREADS as i32),
            // Shared, constant and local memory are not known to a C++ compiler.
            1..=3 => out.set(0),
            4 => out.set(32),
            5 | 6 => out.set(90),
            8 => out.set(function.dynamic.load(Ordering::Relaxed) as i32),
            7 | 9..16 => out.set(0),
            _ => Err(Status::INVALID_VALUE),
        }
    }

    fn cuFuncSetAttribute(function: u64, attribute: u32, value: i32) {
        let function = FUNCTIONS.get(function)?;
        match attribute {
            8 => {
                let bytes = u32::try_from(value).ok().filter(|bytes| *bytes <= SHARED_BYTES);
                function.dynamic.store(bytes.ok_or(Status::INVALID_VALUE)?, Ordering::Relaxed);
                Ok(())
            }
            9..16 => Ok(()),
            _ => Err(Status::INVALID_VALUE),
        }
    }
}
