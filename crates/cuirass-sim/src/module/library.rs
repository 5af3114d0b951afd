//! Libraries: code that becomes a module of each context in which it is used.

use super::image::{Image, Logs};
use super::load::{code, file, library_target, variable};
use super::{Library, LibraryKernel, c_name};
use crate::c::{In, Out, Text, Untyped};
use crate::engine;
use crate::handle::Handle;
use crate::report;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED};
use crate::thread;
use cuirass_sys::cuda::{CUdeviceptr, CUjit_option, CUkernel, CUlibrary, CUlibraryOption, CUmodule};
use std::collections::HashMap;
use std::ffi::{c_uint, c_void};

fn load(
    out: &Out<CUlibrary>,
    image: Image,
    jit: (In<CUjit_option>, Out<*mut c_void>, c_uint),
    options: (In<CUlibraryOption>, c_uint),
) -> Answer {
    let (jit_options, values, count) = jit;
    let logs = Logs::new(&jit_options, &values, count as usize)?;
    for option in options.0.read_many(options.1 as usize)? {
        // CU_LIBRARY_BINARY_IS_PRESERVED changes nothing, the other wants a table of host functions.
        if option == CUlibraryOption::CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE {
            report::unsupported(format!("{}: tables of host functions are not simulated", thread::place()));
            return Err(NOT_SUPPORTED);
        }
        if option.0 >= CUlibraryOption::CU_LIBRARY_NUM_OPTIONS.0 {
            return Err(INVALID_VALUE);
        }
    }
    let logs = (count > 0).then_some((&logs, &values));
    let code = code(image, &library_target()?, logs);
    let library = Library { code, kernels: HashMap::new(), modules: HashMap::new(), settings: HashMap::new() };
    out.write(state::lock()?.modules.libraries.insert(library)?.raw())
}

#[allow(clippy::too_many_arguments, reason = "cuda.h's signature")]
pub fn cuLibraryLoadData(
    library: Out<CUlibrary>,
    image: Untyped,
    jit_options: In<CUjit_option>,
    jit_values: Out<*mut c_void>,
    jit_count: c_uint,
    options: In<CUlibraryOption>,
    _values: Out<*mut c_void>,
    count: c_uint,
) -> Answer {
    library.check()?;
    load(&library, Image::read(image)?, (jit_options, jit_values, jit_count), (options, count))
}

#[allow(clippy::too_many_arguments, reason = "cuda.h's signature")]
pub fn cuLibraryLoadFromFile(
    library: Out<CUlibrary>,
    name: Text,
    jit_options: In<CUjit_option>,
    jit_values: Out<*mut c_void>,
    jit_count: c_uint,
    options: In<CUlibraryOption>,
    _values: Out<*mut c_void>,
    count: c_uint,
) -> Answer {
    library.check()?;
    load(&library, file(name)?, (jit_options, jit_values, jit_count), (options, count))
}

pub fn cuLibraryUnload(library: CUlibrary) -> Answer {
    let mut state = state::lock()?;
    let handle = Handle::of(library);
    let known = state.modules.libraries.get(handle, INVALID_HANDLE)?;
    let contexts: Vec<Handle> = known.modules.keys().copied().collect();
    if !contexts.is_empty() {
        state.potentially_unsafe()?;
    }
    let tails = state.tails(&contexts);
    engine::wait(&mut state, &tails);
    let library = state.modules.libraries.remove(handle, INVALID_HANDLE, INVALID_HANDLE)?;
    for kernel in library.kernels.into_values() {
        state.modules.kernels.end(kernel, INVALID_HANDLE);
    }
    let mut answer = Ok(());
    for (context, module) in library.modules {
        state.end_module(module, INVALID_HANDLE);
        answer = answer.and(state.not_lost(context));
    }
    state.synchronised();
    answer
}

fn kernel_of(state: &mut State, library: Handle, index: usize) -> Answer<Handle> {
    let known = state.modules.libraries.get(library, INVALID_HANDLE)?;
    if let Some(kernel) = known.kernels.get(&index) {
        return Ok(*kernel);
    }
    let name = c_name(known.code()?.kernel(index)?.name());
    let kernel = state.modules.kernels.insert(LibraryKernel { library, index, name })?;
    state.modules.libraries.get_mut(library, INVALID_HANDLE)?.kernels.insert(index, kernel);
    Ok(kernel)
}

pub fn cuLibraryGetKernel(kernel: Out<CUkernel>, library: CUlibrary, name: Text) -> Answer {
    kernel.check()?;
    let name = name.read()?;
    let mut state = state::lock()?;
    let library = Handle::of(library);
    let index = state.modules.libraries.get(library, INVALID_HANDLE)?.code()?.index(&name)?;
    kernel.write(kernel_of(&mut state, library, index)?.raw())
}

pub fn cuLibraryGetKernelCount(count: Out<c_uint>, library: CUlibrary) -> Answer {
    let state = state::lock()?;
    count.write(state.modules.libraries.get(Handle::of(library), INVALID_HANDLE)?.code()?.len() as c_uint)
}

pub fn cuLibraryEnumerateKernels(kernels: Out<CUkernel>, room: c_uint, library: CUlibrary) -> Answer {
    kernels.check()?;
    let mut state = state::lock()?;
    let library = Handle::of(library);
    let count = state.modules.libraries.get(library, INVALID_HANDLE)?.code()?.len();
    for index in 0..count.min(room as usize) {
        kernels.write_at(index, kernel_of(&mut state, library, index)?.raw())?;
    }
    Ok(())
}

pub fn cuLibraryGetModule(module: Out<CUmodule>, library: CUlibrary) -> Answer {
    module.check()?;
    let mut state = state::lock()?;
    let here = state.here()?;
    module.write(state.module_of(Handle::of(library), here)?.raw())
}

pub fn cuLibraryGetGlobal(dptr: Out<CUdeviceptr>, bytes: Out<usize>, library: CUlibrary, name: Text) -> Answer {
    let name = name.read()?;
    let mut state = state::lock()?;
    let here = state.here()?;
    let module = state.module_of(Handle::of(library), here)?;
    variable(&state, module, &name, &dptr, &bytes)
}

pub fn cuLibraryGetManaged(_dptr: Out<CUdeviceptr>, _bytes: Out<usize>, library: CUlibrary, name: Text) -> Answer {
    name.read()?;
    let state = state::lock()?;
    state.modules.libraries.get(Handle::of(library), INVALID_HANDLE)?;
    // PTX without managed variables is all that is simulated.
    Err(NOT_FOUND)
}
