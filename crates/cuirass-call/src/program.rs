//! NVRTC, which compiles CUDA C++.

use crate::Result;
use crate::driver::{Told, owned_text};
use crate::status::compiler_call;
use cuirass_fault::room;
use cuirass_sys::nvrtc::nvrtcProgram;
use std::ffi::{CStr, c_char, c_int};
use std::fmt;

/// Options for a message: not more of them than anybody reads.
struct All<'a>(&'a [&'a CStr]);

impl fmt::Debug for All<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 100;
        let mut list = f.debug_list();
        list.entries(self.0.iter().take(MOST).map(|option| Told(option)));
        if self.0.len() > MOST { list.finish_non_exhaustive() } else { list.finish() }
    }
}

/// `nvrtcVersion`: major and minor.
pub fn version() -> Result<(i32, i32)> {
    let (mut major, mut minor): (c_int, c_int) = (0, 0);
    compiler_call!(entry!(nvrtcVersion), (&raw mut major, &raw mut minor), "")?;
    Ok((major, minor))
}

/// `nvrtcGetSupportedArchs` (after `nvrtcGetNumSupportedArchs`): 75 for `sm_75`.
pub fn get_supported_archs() -> Result<Vec<i32>> {
    let mut count: c_int = 0;
    compiler_call!(entry!(nvrtcGetNumSupportedArchs), (&raw mut count), "")?;
    let mut archs = vec![0; usize::try_from(count).unwrap_or(0)];
    compiler_call!(entry!(nvrtcGetSupportedArchs), (archs.as_mut_ptr()), "")?;
    Ok(archs)
}

/// `nvrtcCreateProgram`, with headers as pairs of name and text.
pub fn create_program(source: &CStr, name: &CStr, headers: &[(&CStr, &CStr)]) -> Result<nvrtcProgram> {
    let names: Vec<*const c_char> = room::list(headers.iter().map(|(name, _)| name.as_ptr()), "for the headers")?;
    let texts: Vec<*const c_char> = room::list(headers.iter().map(|(_, text)| text.as_ptr()), "for the headers")?;
    let count = c_int::try_from(headers.len()).unwrap_or(0);
    let mut program = std::ptr::null_mut();
    compiler_call!(
        entry!(nvrtcCreateProgram),
        (&raw mut program, source.as_ptr(), name.as_ptr(), count, texts.as_ptr(), names.as_ptr()),
        "{:?}",
        Told(name)
    )?;
    Ok(program)
}

/// `nvrtcDestroyProgram`
pub fn destroy_program(program: nvrtcProgram) -> Result<()> {
    // The call clears what it is given, even where it answers with an error.
    let mut given = program;
    compiler_call!(entry!(nvrtcDestroyProgram), (&raw mut given), "{program:p}")
}

/// `nvrtcCompileProgram`
pub fn compile_program(program: nvrtcProgram, options: &[&CStr]) -> Result<()> {
    let pointers: Vec<*const c_char> = room::list(options.iter().map(|option| option.as_ptr()), "for the options")?;
    let count = c_int::try_from(options.len()).unwrap_or(0);
    compiler_call!(
        entry!(nvrtcCompileProgram),
        (program, count, pointers.as_ptr()),
        "program {program:p}, options {:?}",
        All(options)
    )
}

/// `nvrtcAddNameExpression`
pub fn add_name_expression(program: nvrtcProgram, expression: &CStr) -> Result<()> {
    compiler_call!(
        entry!(nvrtcAddNameExpression),
        (program, expression.as_ptr()),
        "program {program:p}, {:?}",
        Told(expression)
    )
}

/// `nvrtcGetLoweredName`
pub fn get_lowered_name(program: nvrtcProgram, expression: &CStr) -> Result<String> {
    let mut text = std::ptr::null();
    compiler_call!(
        entry!(nvrtcGetLoweredName),
        (program, expression.as_ptr(), &raw mut text),
        "program {program:p}, {:?}",
        Told(expression)
    )?;
    Ok(owned_text(text).unwrap_or_default())
}

macro_rules! outputs {
    ($($(#[$doc:meta])* $name:ident(entry!($size:ident), entry!($get:ident));)*) => {$(
        $(#[$doc])*
        pub fn $name(program: nvrtcProgram) -> Result<Vec<u8>> {
            let mut bytes = 0;
            compiler_call!(entry!($size), (program, &raw mut bytes), "program {program:p}")?;
            let mut output: Vec<u8> = Vec::new();
            if output.try_reserve_exact(bytes).is_err() {
                return Err(cuirass_fault::Failure::no_memory(format_args!("for {bytes} bytes of the compiler's output")));
            }
            output.resize(bytes, 0);
            compiler_call!(entry!($get), (program, output.as_mut_ptr().cast()), "program {program:p}")?;
            Ok(output)
        }
    )*};
}

outputs! {
    /// The PTX, ending in NUL.
    get_ptx(entry!(nvrtcGetPTXSize), entry!(nvrtcGetPTX));
    /// The cubin.
    get_cubin(entry!(nvrtcGetCUBINSize), entry!(nvrtcGetCUBIN));
    /// The LTO-IR.
    get_ltoir(entry!(nvrtcGetLTOIRSize), entry!(nvrtcGetLTOIR));
    /// The log of the last compilation, ending in NUL.
    get_program_log(entry!(nvrtcGetProgramLogSize), entry!(nvrtcGetProgramLog));
}
