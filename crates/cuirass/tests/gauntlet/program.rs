//! Programs, compiled by NVRTC.

use crate::objects::{Plain, SOURCE, device, operation, taken};
use cuirass::{CodeKind, Program, ProgramOptions, Result, compiler_version};
use cuirass_testkit::operation::{Caller, Operation};

/// NVRTC knows no contexts: one kind of caller is enough.
const ONE: [Caller; 1] = [Caller::Nothing];

/// With a name expression, so that every call of NVRTC's is made.
fn options() -> Result<ProgramOptions> {
    Ok(ProgramOptions { name_expressions: vec!["scale<float>".to_owned()], ..ProgramOptions::for_device(device())? })
}

fn program() -> Result<Program> {
    let source = "template <typename T> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by; }";
    Program::new(source, &options()?)
}

pub fn operations() -> Vec<Operation> {
    let plain = || program().map(Plain);
    vec![
        operation!("ProgramOptions::for_device", || Ok(()), |()| ProgramOptions::for_device(device())),
        operation!("Program::new", || options().map(Plain), |options| {
            let one = ProgramOptions { name_expressions: Vec::new(), ..options.0.clone() };
            Program::new(SOURCE, &one)
        })
        .called_with(&ONE),
        operation!("Program::new", || options().map(Plain), |options| Program::new(SOURCE, &options.0))
            .case("with a name expression")
            .called_with(&ONE),
        operation!("Program::as_raw", plain, |program| Ok(program.0.as_raw())).makes_no_call(),
        operation!("Program::compile_to_ptx", program, |program| program.compile_to_ptx()).called_with(&ONE),
        operation!("Program::compile_to_cubin", program, |program| program.compile_to_cubin()).called_with(&ONE),
        operation!("Program::compile", program, |program| program.compile(CodeKind::LtoIr))
            .case("to LTO-IR")
            .called_with(&ONE),
        operation!("Program::close", || program().map(|program| Plain(Some(program))), |program| {
            taken(&mut program.0).close()
        })
        .called_with(&ONE),
        operation!("Program (dropped)", || program().map(|program| Plain(Some(program))), |program| {
            drop(taken(&mut program.0));
            Ok(())
        })
        .called_with(&ONE)
        .reports(),
        operation!("compiler_version", || Ok(()), |()| compiler_version()).called_with(&ONE),
    ]
}
