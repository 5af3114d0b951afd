//! A CUDA driver that does nothing: every call succeeds at once. What a program spends over it is what it spends
//! itself, counted in instructions, which noise cannot move.
//!
//! `cuGetProcAddress_v2` answers with one function that returns success for every call but those whose results a
//! caller goes on to use; these write a constant.

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

/// Two parameters of eight and four bytes, as the benchmark's kernel has.
unsafe extern "C" fn param_info(_kernel: usize, index: usize, offset: *mut usize, size: *mut usize) -> u32 {
    let Some((at, bytes)) = [(0, 8), (8, 4)].get(index).copied() else { return 1 };
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
    let function: Address = match symbol.to_bytes() {
        b"cuDeviceGetCount" => one_device as *mut c_void,
        b"cuDeviceGet" | b"cuCtxGetDevice" => device_zero as *mut c_void,
        b"cuDeviceGetAttribute" => capability as *mut c_void,
        b"cuDevicePrimaryCtxRetain"
        | b"cuCtxGetCurrent"
        | b"cuStreamCreateWithPriority"
        | b"cuEventCreate"
        | b"cuDeviceGetDefaultMemPool"
        | b"cuLibraryLoadData"
        | b"cuLibraryGetKernel"
        | b"cuGraphInstantiate" => handle as *mut c_void,
        b"cuStreamGetCaptureInfo" => capture_info as *mut c_void,
        b"cuStreamEndCapture" => captured as *mut c_void,
        b"cuMemAllocFromPoolAsync" => address as *mut c_void,
        b"cuThreadExchangeStreamCaptureMode" => mode as *mut c_void,
        b"cuKernelGetParamInfo" => param_info as *mut c_void,
        b"cuMemPoolGetAttribute" => pool_attribute as *mut c_void,
        _ => nothing as *mut c_void,
    };
    // SAFETY: [c-caller] where the result goes.
    unsafe { found.write(function) };
    0
}
