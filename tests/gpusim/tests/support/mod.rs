//! Calls the simulated driver through its C interface, as a process with a real driver would.
#![allow(dead_code)]

use libloading::Library;
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::path::PathBuf;
use std::sync::Once;

/// The file that stands for libcuda and libnvrtc.
pub fn path() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let folder = test.parent().expect("a file lies in a folder");
    let name = "libantiphon_gpusim.so";
    [folder.join(name), folder.with_file_name(name)]
        .into_iter()
        .find(|p| p.exists())
        .expect("cargo built the library")
}

/// The loaded library.
pub struct Driver(Library);

/// Calls a function and panics unless it succeeds.
macro_rules! ok {
    ($driver:expr, $name:ident($($kind:ty),* $(,)?), $($argument:expr),* $(,)?) => {{
        let code = call!($driver, $name($($kind),*), $($argument),*);
        assert_eq!(code, 0, "{} answers {code}", stringify!($name));
    }};
}

/// Calls a function; gives its status.
macro_rules! call {
    ($driver:expr, $name:ident($($kind:ty),* $(,)?), $($argument:expr),* $(,)?) => {{
        // SAFETY: the types are those of the C interface, and pointers live for the call.
        unsafe { $driver.get::<unsafe extern "C" fn($($kind),*) -> i32>(stringify!($name))($($argument),*) }
    }};
}

impl Driver {
    /// Loads the library and makes a context of device 0 current.
    pub fn start() -> Self {
        Self::named(path())
    }

    /// As [`Driver::start`], from a file that the loader looks for.
    pub fn named(file: impl AsRef<OsStr>) -> Self {
        static CACHE: Once = Once::new();
        // SAFETY: every test of the process comes through here before it loads the library or reads a variable.
        CACHE.call_once(|| unsafe {
            std::env::set_var("ANTIPHON_GPUSIM_CACHE", env!("CARGO_TARGET_TMPDIR"))
        });
        // SAFETY: the library has no constructors.
        let driver = Self(unsafe { Library::new(file.as_ref()) }.expect("the library loads"));
        ok!(driver, cuInit(u32), 0);
        driver.enter(0);
        driver
    }

    /// # Safety
    ///
    /// `T` must be the type of the function.
    pub unsafe fn get<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the caller vouches for the type.
        *unsafe { self.0.get::<T>(name.as_bytes()) }.expect("the driver has the function")
    }

    /// Makes a device's primary context current in the calling thread.
    pub fn enter(&self, device: i32) {
        let mut context = 0_u64;
        ok!(self, cuDevicePrimaryCtxRetain(*mut u64, i32), &mut context, device);
        ok!(self, cuCtxSetCurrent(u64), context);
    }

    pub fn allocate(&self, bytes: usize) -> u64 {
        let mut address = 0;
        ok!(self, cuMemAlloc_v2(*mut u64, usize), &mut address, bytes);
        address
    }

    pub fn write<T: Copy>(&self, to: u64, values: &[T]) {
        ok!(self, cuMemcpyHtoD_v2(u64, *const T, usize), to, values.as_ptr(), size_of_val(values));
    }

    pub fn read<T: Copy + Default>(&self, from: u64, count: usize) -> Vec<T> {
        let mut values = vec![T::default(); count];
        ok!(
            self,
            cuMemcpyDtoH_v2(*mut T, u64, usize),
            values.as_mut_ptr(),
            from,
            count * size_of::<T>()
        );
        values
    }

    /// A stream that does not wait for the legacy one.
    pub fn stream(&self) -> u64 {
        let mut stream = 0;
        ok!(self, cuStreamCreate(*mut u64, u32), &mut stream, 1);
        stream
    }

    pub fn finish(&self, stream: u64) {
        ok!(self, cuStreamSynchronize(u64), stream);
    }

    /// Compiles source; gives the machine code, or the log.
    pub fn compile(&self, source: &str) -> Result<Vec<u8>, String> {
        self.compile_for(source, c"sm_90")
    }

    /// The same for an architecture.
    pub fn compile_for(&self, source: &str, architecture: &CStr) -> Result<Vec<u8>, String> {
        let mut program = 0_u64;
        let source = CString::new(source).expect("source has no zeros");
        let none = std::ptr::null::<*const c_char>();
        ok!(
            self,
            nvrtcCreateProgram(
                *mut u64,
                *const c_char,
                *const c_char,
                i32,
                *const *const c_char,
                *const *const c_char,
            ),
            &mut program,
            source.as_ptr(),
            c"test.cu".as_ptr(),
            0,
            none,
            none
        );
        let architecture = [c"--gpu-architecture=".to_bytes(), architecture.to_bytes()].concat();
        let architecture = CString::new(architecture).expect("a name has no zeros");
        let options = [architecture.as_ptr()];
        let code = call!(
            self,
            nvrtcCompileProgram(u64, i32, *const *const c_char),
            program,
            1,
            options.as_ptr()
        );
        let mut bytes = 0;
        if code != 0 {
            ok!(self, nvrtcGetProgramLogSize(u64, *mut usize), program, &mut bytes);
            let mut log = vec![0_u8; bytes];
            ok!(self, nvrtcGetProgramLog(u64, *mut u8), program, log.as_mut_ptr());
            return Err(String::from_utf8_lossy(&log).into_owned());
        }
        ok!(self, nvrtcGetCUBINSize(u64, *mut usize), program, &mut bytes);
        let mut image = vec![0_u8; bytes];
        ok!(self, nvrtcGetCUBIN(u64, *mut u8), program, image.as_mut_ptr());
        ok!(self, nvrtcDestroyProgram(*mut u64), &mut program);
        Ok(image)
    }

    pub fn module(&self, source: &str) -> u64 {
        self.module_for(source, c"sm_90")
    }

    /// The same, compiled for an architecture.
    pub fn module_for(&self, source: &str, architecture: &CStr) -> u64 {
        let image = self.compile_for(source, architecture).expect("the source compiles");
        let mut module = 0;
        ok!(
            self,
            cuModuleLoadDataEx(*mut u64, *const u8, u32, *mut u32, *mut *mut c_void),
            &mut module,
            image.as_ptr(),
            0,
            std::ptr::null_mut(),
            std::ptr::null_mut()
        );
        module
    }

    pub fn function(&self, module: u64, name: &str) -> u64 {
        let mut function = 0;
        let name = CString::new(name).expect("a name has no zeros");
        ok!(
            self,
            cuModuleGetFunction(*mut u64, u64, *const c_char),
            &mut function,
            module,
            name.as_ptr()
        );
        function
    }

    /// Launches; gives the status.
    pub fn launch(
        &self,
        function: u64,
        blocks: u32,
        threads: u32,
        stream: u64,
        arguments: &[u64],
    ) -> i32 {
        let mut places: Vec<*const u64> =
            arguments.iter().map(|argument| argument as *const u64).collect();
        call!(
            self,
            cuLaunchKernel(
                u64,
                u32,
                u32,
                u32,
                u32,
                u32,
                u32,
                u32,
                u64,
                *mut *const u64,
                *const c_void,
            ),
            function,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            0,
            stream,
            places.as_mut_ptr(),
            std::ptr::null()
        )
    }
}
