//! A CUDA driver that does nothing: every call succeeds at once. What a program spends over it is what it spends
//! itself, counted in instructions, which noise cannot move.
//!
//! `cuGetProcAddress_v2` answers with one function that returns success for every call but those whose results a
//! caller goes on to use; these write a constant.
//!
//! With `NULL_DRIVER_THRASH=CODE,DATA` in the environment (both in KiB) the calls that put work on a stream run through
//! that much code and data first, as the real driver does: then the caller's own code and data are as cold as they are
//! over that one (`thrash.rs`).

mod exports;
mod thrash;

use std::ffi::{CStr, c_char, c_int, c_void};

type Address = *mut c_void;

extern "C" fn nothing() -> u32 {
    0
}

macro_rules! writes {
    ($($name:ident(first: $kind:ty = $value:expr);)*) => {$(
        unsafe extern "C" fn $name(first: *mut $kind) -> u32 {
            // SAFETY: [c-caller] the first parameter of these calls is where the result goes.
            unsafe { first.write($value) };
            0
        }
    )*};
}

writes! {
    one_device(first: c_int = 1);
    device_zero(first: c_int = 0);
    handle(first: usize = 0x1000);
    address(first: u64 = 0x7000_0000);
    mode(first: c_int = 0);
}

unsafe extern "C" fn capability(value: *mut c_int, attribute: c_int, _device: c_int) -> u32 {
    let answer = match attribute {
        75 => 9,
        _ => 0,
    };
    // SAFETY: [c-caller] where the result goes.
    unsafe { value.write(answer) };
    0
}

/// A kernel by its name: `k0`, `k16`, and for every other name `k2`.
unsafe extern "C" fn kernel(kernel: *mut usize, _library: usize, name: *const c_char) -> u32 {
    // SAFETY: [c-caller] a name that ends in NUL.
    let handle = match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"k0" => K0,
        b"k16" => K16,
        _ => 0x1000,
    };
    // SAFETY: [c-caller] where the result goes.
    unsafe { kernel.write(handle) };
    0
}

const K0: usize = 0x1010;
const K16: usize = 0x1020;

/// The parameters of the benchmark's kernels: none, a pointer and an `int`, or eight pointers, four `int`s, two
/// `float`s and two `double`s.
unsafe extern "C" fn param_info(kernel: usize, index: usize, offset: *mut usize, size: *mut usize) -> u32 {
    let (at, bytes) = match (kernel, index) {
        (K0, _) => return 1,
        (K16, 0..8) => (8 * index, 8),
        (K16, 8..14) => (64 + 4 * (index - 8), 4),
        (K16, 14..16) => (88 + 8 * (index - 14), 8),
        (0x1000, 0) => (0, 8),
        (0x1000, 1) => (8, 4),
        _ => return 1,
    };
    // SAFETY: [c-caller] where the results go.
    unsafe {
        offset.write(at);
        size.write(bytes);
    }
    0
}

/// An active capture, always the same one.
unsafe extern "C" fn capture_info(_stream: usize, status: *mut c_int, id: *mut u64) -> u32 {
    // SAFETY: [c-caller] where the results go.
    unsafe {
        status.write(1);
        id.write(1);
    }
    0
}

unsafe extern "C" fn captured(_stream: usize, graph: *mut usize) -> u32 {
    // SAFETY: [c-caller] where the result goes.
    unsafe { graph.write(0x2000) };
    0
}

unsafe extern "C" fn pool_attribute(_pool: usize, _attribute: c_int, value: *mut u64) -> u32 {
    // SAFETY: [c-caller] where the result goes.
    unsafe { value.write(u64::MAX) };
    0
}

/// # Safety
/// As `cuda.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> u32 {
    // SAFETY: [c-caller] where the result goes.
    unsafe { version.write(13000) };
    0
}

/// # Safety
/// As `cuda.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_code: u32, text: *mut *const c_char) -> u32 {
    // SAFETY: [c-caller] where the result goes.
    unsafe { text.write(c"no error".as_ptr()) };
    0
}

/// # Safety
/// As `cuda.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    found: *mut Address,
    _version: c_int,
    _flags: u64,
    _query: *mut c_int,
) -> u32 {
    // SAFETY: [c-caller] a name that ends in NUL.
    let symbol = unsafe { CStr::from_ptr(symbol) };
    let name = symbol.to_bytes();
    let function: Address = match name {
        _ if thrash::lines().is_some() && exports::of(name).is_some() => exports::of(name).unwrap_or_default(),
        b"cuDeviceGetCount" => one_device as *mut c_void,
        b"cuDeviceGet" | b"cuCtxGetDevice" => device_zero as *mut c_void,
        b"cuDeviceGetAttribute" => capability as *mut c_void,
        b"cuDevicePrimaryCtxRetain"
        | b"cuCtxGetCurrent"
        | b"cuStreamCreateWithPriority"
        | b"cuEventCreate"
        | b"cuDeviceGetDefaultMemPool"
        | b"cuLibraryLoadData"
        | b"cuGraphInstantiate" => handle as *mut c_void,
        b"cuStreamGetCaptureInfo" => capture_info as *mut c_void,
        b"cuStreamEndCapture" => captured as *mut c_void,
        b"cuMemAllocFromPoolAsync" => address as *mut c_void,
        b"cuThreadExchangeStreamCaptureMode" => mode as *mut c_void,
        b"cuLibraryGetKernel" => kernel as *mut c_void,
        b"cuKernelGetParamInfo" => param_info as *mut c_void,
        b"cuMemPoolGetAttribute" => pool_attribute as *mut c_void,
        _ => nothing as *mut c_void,
    };
    // SAFETY: [c-caller] where the result goes.
    unsafe { found.write(function) };
    0
}
