//! Loaded code: libraries, kernels, functions and their attributes.

use crate::Result;
use crate::driver::{Told, owned_text};
use crate::status::driver_call;
use cuirass_sys::cuda::{CUdevice, CUdeviceptr, CUfunction, CUfunction_attribute, CUkernel, CUlibrary, CUmodule};
use std::ffi::{CStr, c_int};

/// `cuLibraryLoadData`, without options.
///
/// # Safety
/// `image` is a cubin or fatbin of the length that its own header says, or PTX that ends in NUL.
pub unsafe fn library_load_data(image: &[u8]) -> Result<CUlibrary> {
    let mut library = std::ptr::null_mut();
    let none = std::ptr::null_mut();
    driver_call!(
        entry!(cuLibraryLoadData),
        (&raw mut library, image.as_ptr().cast(), none, none.cast(), 0, none.cast(), none.cast(), 0),
        "{} bytes",
        image.len()
    )?;
    Ok(library)
}

/// `cuLibraryUnload`
pub fn library_unload(library: CUlibrary) -> Result<()> {
    driver_call!(entry!(cuLibraryUnload), (library), "{library:p}")
}

/// `cuLibraryGetKernel`
pub fn library_get_kernel(library: CUlibrary, name: &CStr) -> Result<CUkernel> {
    let mut kernel = std::ptr::null_mut();
    driver_call!(
        entry!(cuLibraryGetKernel),
        (&raw mut kernel, library, name.as_ptr()),
        "library {library:p}, {:?}",
        Told(name)
    )?;
    Ok(kernel)
}

/// `cuLibraryGetKernelCount`
pub fn library_get_kernel_count(library: CUlibrary) -> Result<u32> {
    let mut count = 0;
    driver_call!(entry!(cuLibraryGetKernelCount), (&raw mut count, library), "library {library:p}")?;
    Ok(count)
}

/// `cuLibraryEnumerateKernels`: the first `count` kernels.
pub fn library_enumerate_kernels(library: CUlibrary, count: u32) -> Result<Vec<CUkernel>> {
    let mut kernels = vec![std::ptr::null_mut(); count as usize];
    driver_call!(entry!(cuLibraryEnumerateKernels), (kernels.as_mut_ptr(), count, library), "library {library:p}")?;
    Ok(kernels)
}

/// `cuLibraryGetModule`: the library's module in the current context.
pub fn library_get_module(library: CUlibrary) -> Result<CUmodule> {
    let mut module = std::ptr::null_mut();
    driver_call!(entry!(cuLibraryGetModule), (&raw mut module, library), "library {library:p}")?;
    Ok(module)
}

/// `cuLibraryGetGlobal`: a global variable in the current context: its address and its size in bytes.
pub fn library_get_global(library: CUlibrary, name: &CStr) -> Result<(CUdeviceptr, usize)> {
    let (mut address, mut bytes) = (0, 0);
    driver_call!(
        entry!(cuLibraryGetGlobal),
        (&raw mut address, &raw mut bytes, library, name.as_ptr()),
        "library {library:p}, {:?}",
        Told(name)
    )?;
    Ok((address, bytes))
}

/// `cuKernelGetFunction`: the kernel's function in the current context.
pub fn kernel_get_function(kernel: CUkernel) -> Result<CUfunction> {
    let mut function = std::ptr::null_mut();
    driver_call!(entry!(cuKernelGetFunction), (&raw mut function, kernel), "kernel {kernel:p}")?;
    Ok(function)
}

/// `cuKernelGetAttribute`
pub fn kernel_get_attribute(kernel: CUkernel, attribute: CUfunction_attribute, device: CUdevice) -> Result<i32> {
    let mut value: c_int = 0;
    driver_call!(
        entry!(cuKernelGetAttribute),
        (&raw mut value, attribute, kernel, device),
        "kernel {kernel:p}, attribute {}, device {device}",
        attribute.0
    )?;
    Ok(value)
}

/// `cuKernelSetAttribute`
pub fn kernel_set_attribute(
    kernel: CUkernel,
    attribute: CUfunction_attribute,
    value: i32,
    device: CUdevice,
) -> Result<()> {
    driver_call!(
        entry!(cuKernelSetAttribute),
        (attribute, value, kernel, device),
        "kernel {kernel:p}, attribute {}, value {value}, device {device}",
        attribute.0
    )
}

/// `cuKernelGetName` (CUDA 12.3): the name in the code, mangled if it was.
pub fn kernel_get_name(kernel: CUkernel) -> Result<String> {
    let mut text = std::ptr::null();
    driver_call!(entry!(cuKernelGetName), (&raw mut text, kernel), "kernel {kernel:p}")?;
    Ok(owned_text(text).unwrap_or_default())
}

/// `cuFuncGetName` (CUDA 12.3): the same for a function.
pub fn func_get_name(function: CUfunction) -> Result<String> {
    let mut text = std::ptr::null();
    driver_call!(entry!(cuFuncGetName), (&raw mut text, function), "function {function:p}")?;
    Ok(owned_text(text).unwrap_or_default())
}

/// `cuKernelGetLibrary` (CUDA 12.5)
pub fn kernel_get_library(kernel: CUkernel) -> Result<CUlibrary> {
    let mut library = std::ptr::null_mut();
    driver_call!(entry!(cuKernelGetLibrary), (&raw mut library, kernel), "kernel {kernel:p}")?;
    Ok(library)
}

/// `cuKernelGetParamInfo` (CUDA 12.4): a parameter's offset and size in bytes; `None` past the last.
pub fn kernel_get_param_info(kernel: CUkernel, index: usize) -> Result<Option<(usize, usize)>> {
    let (mut offset, mut bytes) = (0, 0);
    let exists = driver_call!(
        entry!(cuKernelGetParamInfo),
        (kernel, index, &raw mut offset, &raw mut bytes),
        answers INVALID_VALUE,
        "kernel {kernel:p}, parameter {index}"
    )?;
    Ok(exists.then_some((offset, bytes)))
}

/// `cuFuncGetAttribute`
pub fn func_get_attribute(function: CUfunction, attribute: CUfunction_attribute) -> Result<i32> {
    let mut value: c_int = 0;
    driver_call!(
        entry!(cuFuncGetAttribute),
        (&raw mut value, attribute, function),
        "function {function:p}, attribute {}",
        attribute.0
    )?;
    Ok(value)
}

/// `cuFuncSetAttribute`
pub fn func_set_attribute(function: CUfunction, attribute: CUfunction_attribute, value: i32) -> Result<()> {
    driver_call!(
        entry!(cuFuncSetAttribute),
        (function, attribute, value),
        "function {function:p}, attribute {}, value {value}",
        attribute.0
    )
}
