//! The application's side: memory, streams and graphs made by the driver's own calls, as PyTorch makes them.

use crate::simulated::Simulated;
use libloading::Library;
use std::ffi::c_void;

/// Bytes of a piece of physical memory: the driver's unit.
pub const CHUNK: usize = 2 << 20;

/// The driver, as an application calls it.
pub struct Application(Library);

#[repr(C)]
struct Location {
    kind: u32,
    id: i32,
}

/// `CUmemAllocationProp`.
#[repr(C)]
struct Properties {
    kind: u32,
    handle_types: u32,
    location: Location,
    rest: [u64; 2],
}

/// `CUmemAccessDesc`.
#[repr(C)]
struct Access {
    location: Location,
    flags: u32,
}

/// Calls a function of the driver and panics unless it succeeds.
macro_rules! ok {
    ($application:expr, $name:ident($($kind:ty),* $(,)?), $($argument:expr),* $(,)?) => {{
        // SAFETY: the types are those of the driver's interface, and pointers live for the call.
        let code = unsafe { $application.get::<unsafe extern "C" fn($($kind),*) -> i32>(stringify!($name))($($argument),*) };
        assert_eq!(code, 0, "{} answers {code}", stringify!($name));
    }};
}

impl Application {
    /// In a process with the simulated driver. The primary context of device 0 is made current, as the run-time library
    /// does.
    pub fn new(simulated: &Simulated) -> Self {
        // SAFETY: the library has no constructors, and is the one that the device layer loads.
        let library = unsafe { Library::new(&simulated.driver) }.expect("the driver loads");
        let application = Application(library);
        ok!(application, cuInit(u32), 0);
        application.enter(0);
        application
    }

    /// Whether the driver exports `name`.
    pub fn has(&self, name: &str) -> bool {
        // SAFETY: nothing is called.
        unsafe { self.0.get::<*const c_void>(name.as_bytes()) }.is_ok()
    }

    /// # Safety
    ///
    /// `T` must be the type of the function.
    unsafe fn get<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the caller vouches for the type.
        *unsafe { self.0.get::<T>(name.as_bytes()) }.expect("the driver has the function")
    }

    /// Whether the driver is the simulated one, which tests may break and count.
    pub fn is_simulated(&self) -> bool {
        self.has("antiphon_gpusim_fault")
    }

    /// How often kernels of this process have used a multicast address.
    pub fn multicasts(&self) -> u64 {
        // SAFETY: the type is that of the fixture's function, which takes nothing.
        unsafe { self.get::<unsafe extern "C" fn() -> u64>("antiphon_gpusim_multicasts")() }
    }

    /// How often this process has mapped memory of others by IPC handles.
    pub fn opened(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.get::<unsafe extern "C" fn() -> u64>("antiphon_gpusim_opened")() }
    }

    /// How many calls of this process wait for all work of a device now.
    pub fn waiting(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.get::<unsafe extern "C" fn() -> u64>("antiphon_gpusim_waiting")() }
    }

    /// Breaks a device, as a kernel does that uses an address which is not mapped.
    pub fn fault(&self, device: i32) {
        // SAFETY: as above, with a number.
        unsafe { self.get::<unsafe extern "C" fn(i32)>("antiphon_gpusim_fault")(device) }
    }

    /// Makes the primary context of a device current.
    pub fn enter(&self, device: i32) {
        let mut context = 0u64;
        ok!(self, cuDevicePrimaryCtxRetain(*mut u64, i32), &mut context, device);
        ok!(self, cuCtxSetCurrent(u64), context);
    }

    /// As `cudaMalloc`, on the current device.
    pub fn allocate(&self, bytes: usize) -> u64 {
        let mut address = 0;
        ok!(self, cuMemAlloc_v2(*mut u64, usize), &mut address, bytes);
        address
    }

    /// Bytes of the current device that are in use.
    pub fn used(&self) -> usize {
        let (mut free, mut total) = (0, 0);
        ok!(self, cuMemGetInfo_v2(*mut usize, *mut usize), &mut free, &mut total);
        total - free
    }

    /// Frees what [`allocate`](Self::allocate) gave.
    pub fn free(&self, address: u64) {
        ok!(self, cuMemFree_v2(u64), address);
    }

    /// As PyTorch's expandable segments: a range of addresses with `chunks` pieces of physical memory of `device`, which
    /// can be exported as file descriptors where `shareable`.
    pub fn segment(&self, device: i32, chunks: usize, shareable: bool) -> u64 {
        let mut base = 0;
        ok!(
            self,
            cuMemAddressReserve(*mut u64, usize, usize, u64, u64),
            &mut base,
            (chunks + 4) * CHUNK,
            0,
            0,
            0
        );
        for chunk in 0..chunks {
            self.map_chunk(base, device, chunk, shareable);
        }
        base
    }

    /// Puts another piece of memory at the place `chunk` of a segment.
    pub fn map_chunk(&self, base: u64, device: i32, chunk: usize, shareable: bool) {
        let place = || Location { kind: 1, id: device };
        let properties = Properties {
            kind: 1,
            handle_types: u32::from(shareable),
            location: place(),
            rest: [0; 2],
        };
        let (mut handle, address) = (0u64, base + (chunk * CHUNK) as u64);
        ok!(
            self,
            cuMemCreate(*mut u64, usize, *const Properties, u64),
            &mut handle,
            CHUNK,
            &properties,
            0
        );
        ok!(self, cuMemMap(u64, usize, usize, u64, u64), address, CHUNK, 0, handle, 0);
        ok!(self, cuMemRelease(u64), handle);
        let access = Access { location: place(), flags: 3 };
        ok!(self, cuMemSetAccess(u64, usize, *const Access, usize), address, CHUNK, &access, 1);
    }

    /// Takes the piece of memory at the place `chunk` of a segment away.
    pub fn unmap_chunk(&self, base: u64, chunk: usize) {
        ok!(self, cuMemUnmap(u64, usize), base + (chunk * CHUNK) as u64, CHUNK);
    }

    /// Copies words to device memory.
    pub fn write(&self, to: u64, values: &[u64]) {
        ok!(
            self,
            cuMemcpyHtoD_v2(u64, *const u64, usize),
            to,
            values.as_ptr(),
            size_of_val(values)
        );
    }

    /// Copies `count` words from device memory.
    pub fn read(&self, from: u64, count: usize) -> Vec<u64> {
        let mut values = vec![0; count];
        ok!(self, cuMemcpyDtoH_v2(*mut u64, u64, usize), values.as_mut_ptr(), from, count * 8);
        values
    }

    /// A stream of the current context that does not wait for the default one.
    pub fn stream(&self) -> u64 {
        let mut stream = 0;
        ok!(self, cuStreamCreate(*mut u64, u32), &mut stream, 1);
        stream
    }

    /// A stream of the current context that waits for the default one, as that does for it.
    pub fn blocking_stream(&self) -> u64 {
        let mut stream = 0;
        ok!(self, cuStreamCreate(*mut u64, u32), &mut stream, 0);
        stream
    }

    /// A green context of a device, which shares the primary one, with all of its multiprocessors.
    pub fn green(&self, device: i32) -> u64 {
        // `CUdevResource`, of less than 512 bytes in all versions.
        let (mut resource, mut described, mut green) = ([0u64; 64], 0, 0);
        let resource = resource.as_mut_ptr();
        ok!(self, cuDeviceGetDevResource(i32, *mut u64, u32), device, resource, 1);
        ok!(self, cuDevResourceGenerateDesc(*mut u64, *mut u64, u32), &mut described, resource, 1);
        ok!(self, cuGreenCtxCreate(*mut u64, u64, i32, u32), &mut green, described, device, 1);
        green
    }

    /// Makes a green context current.
    pub fn enter_green(&self, green: u64) {
        let mut context = 0;
        ok!(self, cuCtxFromGreenCtx(*mut u64, u64), &mut context, green);
        ok!(self, cuCtxSetCurrent(u64), context);
    }

    /// A stream of a green context.
    pub fn green_stream(&self, green: u64) -> u64 {
        let mut stream = 0;
        ok!(self, cuGreenCtxStreamCreate(*mut u64, u64, u32, i32), &mut stream, green, 1, 0);
        stream
    }

    /// Waits for a stream.
    pub fn finish(&self, stream: u64) {
        ok!(self, cuStreamSynchronize(u64), stream);
    }

    /// Begins to record a stream, by the strictest rules.
    pub fn begin(&self, stream: u64) {
        ok!(self, cuStreamBeginCapture_v2(u64, u32), stream, 0);
    }

    /// Ends the recording; the graph.
    pub fn end(&self, stream: u64) -> u64 {
        let mut graph = 0;
        ok!(self, cuStreamEndCapture(u64, *mut u64), stream, &mut graph);
        graph
    }

    /// An executable of a graph.
    pub fn instantiate(&self, graph: u64) -> u64 {
        let mut executable = 0;
        ok!(self, cuGraphInstantiateWithFlags(*mut u64, u64, u64), &mut executable, graph, 0);
        executable
    }

    /// Launches an executable of a graph on a stream.
    pub fn replay(&self, executable: u64, stream: u64) {
        ok!(self, cuGraphLaunch(u64, u64), executable, stream);
    }

    /// Destroys a graph and its executable.
    pub fn destroy(&self, graph: u64, executable: u64) {
        ok!(self, cuGraphDestroy(u64), graph);
        ok!(self, cuGraphExecDestroy(u64), executable);
    }
}
