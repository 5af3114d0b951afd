//! The calls that `floor.c` names. They come by `cuGetProcAddress_v2` too where the driver has a footprint, so that both
//! sides of a comparison meet the same one.

use crate::{Address, address, captured, handle, mode, nothing, thrash};
use std::ffi::{c_char, c_int, c_void};

macro_rules! calls {
    ($($name:ident $percent:literal ($($argument:ident: $kind:ty),*) = $body:expr;)*) => {
        $(
            /// # Safety
            /// As `cuda.h` says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> u32 {
                if $percent > 0 {
                    thrash::touch($percent);
                }
                // SAFETY: [c-caller] the caller's promise.
                #[allow(unused_unsafe)]
                unsafe { $body }
            }
        )*

        /// A call with a footprint, by the name that it is asked for.
        pub fn of(name: &[u8]) -> Option<Address> {
            $(
                if $percent > 0 && name == stringify!($name).trim_end_matches("_v2").trim_end_matches("_v3").as_bytes() {
                    return Some($name as *mut c_void);
                }
            )*
            None
        }
    };
}

// Each with the share of the footprint that it has, in percent: about what it takes beside a launch on an H200.
calls! {
    cuInit 0 (_flags: u32) = nothing();
    cuDeviceGet 0 (device: *mut c_int, _ordinal: c_int) = { device.write(0); 0 };
    cuDevicePrimaryCtxRetain 0 (context: *mut usize, _device: c_int) = handle(context);
    cuCtxSetCurrent 0 (_context: usize) = nothing();
    cuModuleLoad 0 (module: *mut usize, _path: *const c_char) = handle(module);
    cuModuleGetFunction 0 (function: *mut usize, _module: usize, _name: *const c_char) = handle(function);
    cuDeviceGetMemPool 0 (pool: *mut usize, _device: c_int) = handle(pool);
    cuMemPoolSetAttribute 0 (_pool: usize, _attribute: c_int, _value: *mut c_void) = nothing();
    cuStreamCreateWithPriority 100 (stream: *mut usize, _flags: u32, _priority: c_int) = handle(stream);
    cuStreamDestroy_v2 40 (_stream: usize) = nothing();
    cuStreamSynchronize 10 (_stream: usize) = nothing();
    cuEventCreate 3 (event: *mut usize, _flags: u32) = handle(event);
    cuEventDestroy_v2 3 (_event: usize) = nothing();
    cuEventRecord 6 (_event: usize, _stream: usize) = nothing();
    cuEventQuery 5 (_event: usize) = nothing();
    cuMemAllocFromPoolAsync 10 (at: *mut u64, _bytes: usize, _pool: usize, _stream: usize) = address(at);
    cuMemFreeAsync 10 (_address: u64, _stream: usize) = nothing();
    cuLaunchKernelEx 100 (_config: usize, _function: usize, _arguments: usize, _extra: usize) = nothing();
    cuLaunchKernel 100 (_function: usize) = nothing();
    cuLibraryLoadFromFile 0 (library: *mut usize) = handle(library);
    cuLibraryGetKernel 0 (kernel: *mut usize, library: usize, name: *const c_char) = crate::kernel(kernel, library, name);
    cuMemcpyDtoDAsync_v2 100 (_to: u64, _from: u64, _bytes: usize, _stream: usize) = nothing();
    cuMemcpyAsync 100 (_to: u64, _from: u64, _bytes: usize, _stream: usize) = nothing();
    cuMemsetD8Async 25 (_at: u64, _value: u8, _bytes: usize, _stream: usize) = nothing();
    cuStreamBeginCapture_v2 20 (_stream: usize, _mode: c_int) = nothing();
    cuStreamEndCapture 20 (_stream: usize, graph: *mut usize) = captured(_stream, graph);
    cuGraphInstantiateWithFlags 200 (exec: *mut usize, _graph: usize, _flags: u64) = handle(exec);
    cuGraphInstantiate 200 (exec: *mut usize, _graph: usize, _flags: u64) = handle(exec);
    cuGraphInstantiateWithParams 200 (exec: *mut usize, _graph: usize, _params: *mut c_void) = handle(exec);
    cuGraphLaunch 40 (_exec: usize, _stream: usize) = nothing();
    cuGraphDestroy 20 (_graph: usize) = nothing();
    cuGraphExecDestroy 20 (_exec: usize) = nothing();
    cuThreadExchangeStreamCaptureMode 1 (_mode: *mut c_int) = mode(_mode);
    cuStreamGetCaptureInfo_v3 3 (_stream: usize, status: *mut c_int, id: *mut u64) = crate::capture_info(_stream, status, id);
    cuStreamIsCapturing 3 (_stream: usize, status: *mut c_int) = mode(status);
}
