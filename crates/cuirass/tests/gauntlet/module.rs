//! Loaded code and kernels.

use crate::objects::{Plain, code, device, kernel, loaded_code, operation, ptx, stream, taken};
use cuirass::{CodeKind, Kernel, KernelAttribute, ObjectCode, Result};
use cuirass_testkit::operation::{Allowed, Caller, Operation};
use std::collections::HashMap;

const ALL: [Caller; 3] = [Caller::Nothing, Caller::Other, Caller::Primary];
const LOADED: &str = "code that has been loaded stays so, and is unloaded with its last share";
const PARAMETERS: &str = "INVALID_VALUE is how the driver says that there are no more; how many there are is kept";
const THREADS: KernelAttribute = KernelAttribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
const SHARED: KernelAttribute = KernelAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;

/// A kernel that cuirass has borrowed, and its owner.
fn borrowed() -> Result<(Kernel, Kernel)> {
    let owner = kernel()?;
    // SAFETY: [test] the owner is kept.
    Ok((unsafe { Kernel::borrow_raw(owner.as_raw()) }, owner))
}

/// Drivers before CUDA 12.4 are not asked: they tell no parameters.
fn parameters_on() -> Operation {
    let operation = operation!("Kernel::parameters_on", || Ok((kernel()?, stream()?)), |(kernel, stream)| {
        kernel.parameters_on(stream).map(|parameters| parameters.map(<[_]>::len))
    });
    if cuirass_testkit::driver_version() < 12040 {
        return operation.makes_no_call();
    }
    operation.called_with(&ALL).allow(Allowed::KeepsAnswers, PARAMETERS)
}

pub fn operations() -> Vec<Operation> {
    let mut operations = vec![
        operation!("ObjectCode::as_raw", code, |code| code.as_raw()).called_with(&ALL),
        operation!("ObjectCode::kernel", loaded_code, |code| code.kernel("add")).called_with(&ALL),
        operation!("ObjectCode::kernel", code, |code| code.kernel("add"))
            .case("the first")
            .allow(Allowed::Stays(&["library"]), LOADED),
        operation!("ObjectCode::global", loaded_code, |code| code.global("counter", device())).called_with(&ALL),
        operation!("ObjectCode::global", code, |code| code.global("counter", device()))
            .case("the first")
            .allow(Allowed::Stays(&["library"]), LOADED),
        operation!("ObjectCode::close", || loaded_code().map(Some), |code| taken(code).close()),
        operation!("ObjectCode::close", loaded_code, |code| code.clone().close()).case("a share").makes_no_call(),
        operation!("ObjectCode (dropped)", || loaded_code().map(Some), |code| {
            drop(taken(code));
            Ok(())
        })
        .reports(),
        operation!("Kernel (dropped)", || kernel().map(Some), |kernel| {
            drop(taken(kernel));
            Ok(())
        })
        .case("the last of its code")
        .reports(),
        operation!("Kernel::borrow_raw", kernel, |kernel| {
            // SAFETY: [test] the owner is kept.
            Ok(unsafe { Kernel::borrow_raw(kernel.as_raw()) })
        })
        .makes_no_call(),
        operation!("Kernel::name", kernel, |kernel| kernel.name()).makes_no_call(),
        operation!("Kernel::name", borrowed, |(kernel, _)| kernel.name()).case("borrowed").needs(12030),
        operation!("Kernel::parameters", kernel, |kernel| kernel.parameters().map(<[_]>::len))
            .needs(12040)
            .called_with(&ALL)
            .allow(Allowed::KeepsAnswers, PARAMETERS),
        parameters_on(),
        operation!("ObjectCode::module_raw", loaded_code, |code| code.module_raw())
            .called_with(&[Caller::Other, Caller::Primary]),
        operation!("Kernel::attribute", kernel, |kernel| kernel.attribute(THREADS, device())).called_with(&ALL),
        operation!("Kernel::set_attribute", kernel, |kernel| kernel.set_attribute(SHARED, 1024, device()))
            .called_with(&ALL)
            .submits(),
        operation!("Kernel::max_active_blocks", kernel, |kernel| kernel.max_active_blocks(32, 0, device())),
        operation!("Kernel::max_potential_block_size", kernel, |kernel| {
            kernel.max_potential_block_size(0, 0, device())
        }),
        operation!("Kernel::available_dynamic_shared_bytes", kernel, |kernel| {
            kernel.available_dynamic_shared_bytes(1, 32, device())
        }),
    ];
    operations.extend(without_calls());
    operations
}

fn without_calls() -> Vec<Operation> {
    let some = || code().map(Plain);
    vec![
        operation!("CodeKind::name", || Ok(()), |()| Ok(CodeKind::Ptx.name())).makes_no_call(),
        operation!("ObjectCode::new", || Ok(()), |()| Ok(ObjectCode::new(CodeKind::Ptx, ptx()?))).makes_no_call(),
        operation!("ObjectCode::with_symbols", || Ok(()), |()| {
            Ok(ObjectCode::with_symbols(CodeKind::Ptx, ptx()?, "name", HashMap::new()))
        })
        .makes_no_call(),
        operation!("ObjectCode::kind", some, |code| Ok(code.0.kind())).makes_no_call(),
        operation!("ObjectCode::name", some, |code| Ok(code.0.name().len())).makes_no_call(),
        operation!("ObjectCode::bytes", some, |code| Ok(code.0.bytes().len())).makes_no_call(),
        operation!("ObjectCode::companion_ptx", some, |code| Ok(code.0.companion_ptx().is_some())).makes_no_call(),
        operation!("ObjectCode::symbols", some, |code| Ok(code.0.symbols().len())).makes_no_call(),
        operation!("ObjectCode::with_companion_ptx", some, |code| Ok(code.0.clone().with_companion_ptx(None)))
            .makes_no_call(),
        operation!("Kernel::known_parameters", kernel, |kernel| Ok(kernel.known_parameters().map(<[_]>::len)))
            .makes_no_call(),
        operation!("Kernel::as_raw", kernel, |kernel| Ok(kernel.as_raw())).makes_no_call(),
        operation!("Kernel::library_raw", kernel, |kernel| Ok(kernel.library_raw())).makes_no_call(),
    ]
}
