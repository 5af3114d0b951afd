//! Functions: kernels of a module.

use super::load::name_pointer;
use super::{attributes, kernel};
use crate::c::Out;
use crate::handle::Handle;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_HANDLE, INVALID_VALUE};
use cuirass_sys::cuda::{
    CUfunc_cache, CUfunction, CUfunction_attribute, CUfunctionLoadingState, CUmodule, CUsharedconfig,
};
use std::ffi::{c_char, c_int};

/// The function that a handle names; a library kernel's handle is taken as its function in the current context.
fn function(state: &mut State, raw: CUfunction) -> Answer<Handle> {
    let handle = Handle::of(raw);
    if state.modules.functions.peek(handle).is_some() {
        return Ok(handle);
    }
    let here = state.here()?;
    state.function_in(handle, here)
}

pub fn cuFuncGetAttribute(value: Out<c_int>, attribute: CUfunction_attribute, raw: CUfunction) -> Answer {
    value.check()?;
    let mut state = state::lock()?;
    let handle = function(&mut state, raw)?;
    let found = state.callable(handle, Handle::NULL)?;
    let known = state.modules.functions.get(handle, INVALID_HANDLE)?;
    let code = &state.modules.modules.get(known.module, INVALID_HANDLE)?.code;
    let (constants, ptx) = (code.constant_bytes, code.module.target_arch());
    let device = state.context(found.context)?.device;
    let device = state.devices.get(device).ok_or(INVALID_VALUE)?;
    value.write(attributes::get(attribute, &found.callable.kernel, &found.settings, constants, ptx, device)?)
}

pub fn cuFuncSetAttribute(raw: CUfunction, attribute: CUfunction_attribute, value: c_int) -> Answer {
    let mut state = state::lock()?;
    let handle = function(&mut state, raw)?;
    let known = state.modules.functions.get(handle, INVALID_HANDLE)?;
    let (module, index, callable) = (known.module, known.index, known.callable.clone());
    let module = state.modules.modules.get(module, INVALID_HANDLE)?;
    let (context, library) = (module.context, module.library);
    state.not_lost(context)?;
    let ordinal = state.context(context)?.device;
    if let Some(library) = library {
        return kernel::set(&mut state, library, index, ordinal, attribute, value);
    }
    let State { modules, devices, .. } = &mut *state;
    let device = devices.get(ordinal).ok_or(INVALID_VALUE)?;
    modules.functions.get_mut(handle, INVALID_HANDLE)?.settings.set(attribute, value, &callable.kernel, device)
}

pub fn cuFuncGetName(name: Out<*const c_char>, raw: CUfunction) -> Answer {
    name.check()?;
    let mut state = state::lock()?;
    let handle = function(&mut state, raw)?;
    name.write(name_pointer(&state.modules.functions.get(handle, INVALID_HANDLE)?.name))
}

pub fn cuFuncGetModule(module: Out<CUmodule>, raw: CUfunction) -> Answer {
    module.check()?;
    let mut state = state::lock()?;
    let handle = function(&mut state, raw)?;
    module.write(state.modules.functions.get(handle, INVALID_HANDLE)?.module.raw())
}

pub fn cuFuncGetParamInfo(raw: CUfunction, index: usize, offset: Out<usize>, size: Out<usize>) -> Answer {
    offset.check()?;
    let mut state = state::lock()?;
    let handle = function(&mut state, raw)?;
    let known = state.modules.functions.get(handle, INVALID_HANDLE)?;
    kernel::param_info(&known.callable.kernel, index, &offset, &size)
}

pub fn cuFuncGetParamCount(raw: CUfunction, count: Out<usize>) -> Answer {
    let mut state = state::lock()?;
    let handle = function(&mut state, raw)?;
    count.write(state.modules.functions.get(handle, INVALID_HANDLE)?.callable.kernel.params().len())
}

pub fn cuFuncIsLoaded(loading: Out<CUfunctionLoadingState>, raw: CUfunction) -> Answer {
    loading.check()?;
    function(&mut *state::lock()?, raw)?;
    loading.write(CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED)
}

pub fn cuFuncLoad(raw: CUfunction) -> Answer {
    function(&mut *state::lock()?, raw).map(drop)
}

pub fn cuFuncSetCacheConfig(raw: CUfunction, config: CUfunc_cache) -> Answer {
    function(&mut *state::lock()?, raw)?;
    if config.0 > CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0 { Err(INVALID_VALUE) } else { Ok(()) }
}

pub fn cuFuncSetSharedMemConfig(raw: CUfunction, config: CUsharedconfig) -> Answer {
    function(&mut *state::lock()?, raw)?;
    if config.0 > CUsharedconfig::CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE.0 { Err(INVALID_VALUE) } else { Ok(()) }
}
