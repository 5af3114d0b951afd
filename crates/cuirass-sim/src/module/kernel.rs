//! Kernels of libraries.

use super::attributes::{self, Settings};
use super::load::name_pointer;
use crate::c::Out;
use crate::handle::Handle;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_HANDLE, INVALID_VALUE};
use cuirass_ptx::Kernel;
use cuirass_sys::cuda::{CUdevice, CUfunc_cache, CUfunction, CUfunction_attribute, CUkernel, CUlibrary};
use std::ffi::{c_char, c_int};

pub fn cuKernelGetFunction(function: Out<CUfunction>, kernel: CUkernel) -> Answer {
    function.check()?;
    let mut state = state::lock()?;
    let here = state.here()?;
    let handle = Handle::of(kernel);
    state.modules.kernels.get(handle, INVALID_HANDLE)?;
    function.write(state.function_in(handle, here)?.raw())
}

pub fn cuKernelGetAttribute(
    value: Out<c_int>,
    attribute: CUfunction_attribute,
    kernel: CUkernel,
    dev: CUdevice,
) -> Answer {
    value.check()?;
    let state = state::lock()?;
    let kernel = state.modules.kernels.get(Handle::of(kernel), INVALID_HANDLE)?;
    let library = state.modules.libraries.get(kernel.library, INVALID_HANDLE)?;
    let device = state.device(dev)?;
    let code = library.code()?.kernel(kernel.index)?;
    let settings =
        library.settings.get(&(device.ordinal, kernel.index)).copied().unwrap_or_else(|| Settings::new(code));
    let (constants, ptx) = (library.code()?.constant_bytes, library.code()?.module.target_arch());
    value.write(attributes::get(attribute, code, &settings, constants, ptx, device)?)
}

pub fn cuKernelSetAttribute(attribute: CUfunction_attribute, value: c_int, kernel: CUkernel, dev: CUdevice) -> Answer {
    let mut state = state::lock()?;
    let kernel = state.modules.kernels.get(Handle::of(kernel), INVALID_HANDLE)?;
    let (library, index) = (kernel.library, kernel.index);
    let ordinal = state.device(dev)?.ordinal;
    set(&mut state, library, index, ordinal, attribute, value)
}

/// Sets an attribute of a library's kernel for one device.
pub(super) fn set(
    state: &mut State,
    library: Handle,
    index: usize,
    ordinal: usize,
    attribute: CUfunction_attribute,
    value: i32,
) -> Answer {
    let device = state.devices.get(ordinal).ok_or(INVALID_VALUE)?;
    let library = state.modules.libraries.get_mut(library, INVALID_HANDLE)?;
    let code = library.code()?.clone();
    let kernel = code.kernel(index)?;
    let settings = library.settings.entry((ordinal, index)).or_insert_with(|| Settings::new(kernel));
    settings.set(attribute, value, kernel, device)
}

pub fn cuKernelGetName(name: Out<*const c_char>, kernel: CUkernel) -> Answer {
    name.check()?;
    let state = state::lock()?;
    name.write(name_pointer(&state.modules.kernels.get(Handle::of(kernel), INVALID_HANDLE)?.name))
}

/// Offset and size of a parameter.
pub(super) fn param_info(kernel: &Kernel, index: usize, offset: &Out<usize>, size: &Out<usize>) -> Answer {
    let param = kernel.params().get(index).ok_or(INVALID_VALUE)?;
    offset.write(param.offset as usize)?;
    size.write_if_wanted(param.size as usize);
    Ok(())
}

fn with<T>(state: &State, kernel: CUkernel, look: impl FnOnce(&Kernel) -> Answer<T>) -> Answer<T> {
    let kernel = state.modules.kernels.get(Handle::of(kernel), INVALID_HANDLE)?;
    look(state.modules.libraries.get(kernel.library, INVALID_HANDLE)?.code()?.kernel(kernel.index)?)
}

pub fn cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: Out<usize>, size: Out<usize>) -> Answer {
    offset.check()?;
    let state = state::lock()?;
    state.here()?;
    with(&state, kernel, |kernel| param_info(kernel, index, &offset, &size))
}

pub fn cuKernelGetParamCount(kernel: CUkernel, count: Out<usize>) -> Answer {
    let params = with(&*state::lock()?, kernel, |kernel| Ok(kernel.params().len()))?;
    count.write(params)
}

pub fn cuKernelGetLibrary(library: Out<CUlibrary>, kernel: CUkernel) -> Answer {
    library.check()?;
    let state = state::lock()?;
    library.write(state.modules.kernels.get(Handle::of(kernel), INVALID_HANDLE)?.library.raw())
}

pub fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, dev: CUdevice) -> Answer {
    let state = state::lock()?;
    state.modules.kernels.get(Handle::of(kernel), INVALID_HANDLE)?;
    state.device(dev)?;
    if config.0 > CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0 { Err(INVALID_VALUE) } else { Ok(()) }
}
