//! Modules: loading, unloading, looking things up.

use super::Code;
use super::image::{self, Image, Logs};
use crate::c::{In, Out, Text, Untyped};
use crate::engine;
use crate::handle::Handle;
use crate::report;
use crate::state;
use crate::status::{
    Answer, FILE_NOT_FOUND, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NO_BINARY_FOR_GPU, NOT_FOUND, NOT_PERMITTED,
};
use crate::thread;
use cuirass_ptx::Target;
use cuirass_sys::cuda::{CUdeviceptr, CUfunction, CUjit_option, CUmodule, CUmoduleLoadingMode};
use std::ffi::{c_uint, c_void};
use std::sync::Arc;

/// The context in which a module is loaded, and what code has to be for it.
fn target(context: Handle) -> Answer<Target> {
    let state = state::lock()?;
    let device = state.context(context)?.device;
    let arch = state.devices.get(device).ok_or(INVALID_VALUE)?.arch();
    Ok(Target { max_ptx_version: state.config.newest_ptx(), arch })
}

/// What code has to be for the current context, or for device 0 if there is none.
pub(super) fn library_target() -> Answer<Target> {
    let current = thread::current();
    if let Ok(target) = target(current) {
        return Ok(target);
    }
    let state = state::lock()?;
    let arch = state.devices.first().ok_or(INVALID_CONTEXT)?.arch();
    Ok(Target { max_ptx_version: state.config.newest_ptx(), arch })
}

/// Parses an image and writes the logs.
pub(super) fn code(image: Image, target: &Target, logs: Option<(&Logs, &Out<*mut c_void>)>) -> Answer<Arc<Code>> {
    let parsed = image::parse(image, target);
    if let Some((logs, values)) = logs {
        logs.write(values, parsed.as_ref().err().map_or("", |(_, text)| text))?;
    }
    parsed.map_err(|(status, text)| {
        // (What the device has no code for has been reported already.)
        if logs.is_none() && status != NO_BINARY_FOR_GPU {
            report::make(report::Kind::Bug, format!("{}: {}", thread::place(), text.trim_end()));
        }
        status
    })
}

fn load(out: &Out<CUmodule>, image: Image, logs: Option<(&Logs, &Out<*mut c_void>)>) -> Answer {
    let here = state::lock()?.here()?;
    // Without the lock: reading a large program takes a while.
    let code = code(image, &target(here)?, logs)?;
    let mut state = state::lock()?;
    state.not_lost(here)?;
    state.context(here)?;
    let module = state.instantiate_code(here, &code, None)?;
    out.write(module.raw())
}

pub fn cuModuleLoadData(module: Out<CUmodule>, image: Untyped) -> Answer {
    module.check()?;
    state::lock()?.here()?;
    load(&module, Image::read(image)?, None)
}

pub fn cuModuleLoadDataEx(
    module: Out<CUmodule>,
    image: Untyped,
    count: c_uint,
    options: In<CUjit_option>,
    values: Out<*mut c_void>,
) -> Answer {
    module.check()?;
    state::lock()?.here()?;
    let logs = Logs::new(&options, &values, count as usize)?;
    load(&module, Image::read(image)?, Some((&logs, &values)))
}

pub fn cuModuleLoadFatBinary(module: Out<CUmodule>, image: Untyped) -> Answer {
    module.check()?;
    state::lock()?.here()?;
    load(&module, Image::read(image)?, None)
}

pub(super) fn file(name: Text) -> Answer<Image> {
    let bytes = std::fs::read(name.read()?).or(Err(FILE_NOT_FOUND))?;
    let text = bytes.strip_suffix(b"\0").map(<[u8]>::to_vec);
    Image::of(text.unwrap_or(bytes))
}

pub fn cuModuleLoad(module: Out<CUmodule>, name: Text) -> Answer {
    module.check()?;
    state::lock()?.here()?;
    load(&module, file(name)?, None)
}

pub fn cuModuleUnload(module: CUmodule) -> Answer {
    let mut state = state::lock()?;
    let handle = Handle::of(module);
    let known = state.modules.modules.get(handle, INVALID_HANDLE)?;
    let (context, library) = (known.context, known.library);
    state.potentially_unsafe()?;
    if library.is_some() {
        report::bug(format!("{} was given module {handle}, which belongs to a library", thread::place()));
        return Err(NOT_PERMITTED);
    }
    let tails = state.tails(&[context]);
    engine::wait(&mut state, &tails);
    state.end_module(handle, INVALID_HANDLE);
    state.synchronised();
    state.not_lost(context)
}

pub fn cuModuleGetFunction(function: Out<CUfunction>, module: CUmodule, name: Text) -> Answer {
    function.check()?;
    let name = name.read()?;
    let mut state = state::lock()?;
    let module = Handle::of(module);
    let index = state.modules.modules.get(module, INVALID_HANDLE)?.code.index(&name)?;
    function.write(state.function_of(module, index)?.raw())
}

pub fn cuModuleGetFunctionCount(count: Out<c_uint>, module: CUmodule) -> Answer {
    let state = state::lock()?;
    count.write(state.modules.modules.get(Handle::of(module), INVALID_HANDLE)?.code.len() as c_uint)
}

pub fn cuModuleEnumerateFunctions(functions: Out<CUfunction>, room: c_uint, module: CUmodule) -> Answer {
    functions.check()?;
    let mut state = state::lock()?;
    let module = Handle::of(module);
    let count = state.modules.modules.get(module, INVALID_HANDLE)?.code.len();
    for index in 0..count.min(room as usize) {
        functions.write_at(index, state.function_of(module, index)?.raw())?;
    }
    Ok(())
}

/// Writes a module's variable.
pub(super) fn variable(
    state: &state::State,
    module: Handle,
    name: &str,
    dptr: &Out<CUdeviceptr>,
    bytes: &Out<usize>,
) -> Answer {
    let known = state.modules.modules.get(module, INVALID_HANDLE)?;
    let (_, start, size) = known.variables.iter().find(|(known, ..)| known == name).ok_or(NOT_FOUND)?;
    dptr.write_if_wanted(*start);
    bytes.write_if_wanted(*size as usize);
    Ok(())
}

pub fn cuModuleGetGlobal_v2(dptr: Out<CUdeviceptr>, bytes: Out<usize>, module: CUmodule, name: Text) -> Answer {
    let name = name.read()?;
    variable(&*state::lock()?, Handle::of(module), &name, &dptr, &bytes)
}

pub fn cuModuleGetLoadingMode(mode: Out<CUmoduleLoadingMode>) -> Answer {
    mode.write(CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING)
}

/// A pointer to a name that lives as long as what it names.
pub(super) fn name_pointer(name: &Arc<std::ffi::CStr>) -> *const std::ffi::c_char {
    name.as_ptr()
}
