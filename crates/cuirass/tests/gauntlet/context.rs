//! Contexts.

use crate::objects::{Plain, device, operation, other_context, taken};
use cuirass::Context;
use cuirass::context::ContextLimit;
use cuirass_testkit::operation::{Allowed, Caller, Operation};
use std::mem::ManuallyDrop;

const ALL: [Caller; 3] = [Caller::Nothing, Caller::Other, Caller::Primary];
const STACK: ContextLimit = ContextLimit::CU_LIMIT_STACK_SIZE;

pub fn operations() -> Vec<Operation> {
    let own = || other_context().map(Some);
    let primary = || device().context();
    vec![
        operation!("Context::create", || Ok(()), |()| Context::create(device())).called_with(&ALL),
        operation!("Context::current", || Ok(()), |()| Context::current()).called_with(&ALL),
        operation!("Context::close", own, |context| taken(context).close()),
        operation!("Context::close", || Ok(()), |()| device().context()?.close()).case("a share").makes_no_call(),
        operation!("Context (dropped)", own, |context| {
            drop(taken(context));
            Ok(())
        })
        .reports(),
        operation!("Context::set_current", primary, |context| context.set_current())
            .called_with(&ALL)
            .allow(Allowed::SetsCurrent, "that is what it does"),
        operation!("Context::set_current", other_context, |context| context.set_current())
            .case("a created one")
            .allow(Allowed::SetsCurrent, "that is what it does"),
        operation!(
            "Previous::restore",
            || device().context()?.enter().map(|previous| Plain(Some(previous))),
            |previous| { taken(&mut previous.0).restore() }
        )
        .called_with(&ALL)
        .allow(Allowed::SetsCurrent, "that is what it does"),
        operation!("Context::enter", primary, |context| context.enter())
            .called_with(&ALL)
            .allow(Allowed::SetsCurrent, "that is what it does"),
        operation!("Context::synchronize", primary, |context| context.synchronize()),
        operation!("Context::stream_priority_range", primary, |context| context.stream_priority_range()),
        operation!("Context::limit", primary, |context| context.limit(STACK)),
        operation!("Context::set_limit", primary, |context| context.set_limit(STACK, 1024)).submits(),
        operation!("Context::memory_info", primary, |context| context.memory_info()),
        operation!("Context::id", primary, |context| context.id()),
        operation!("Context::as_raw", primary, |context| Ok(context.as_raw())).makes_no_call(),
        operation!("Context::device", primary, |context| Ok(context.device())).makes_no_call(),
        operation!("Context::is_primary", primary, |context| Ok(context.is_primary())).makes_no_call(),
        operation!("Context::borrow_raw", primary, |context| {
            // SAFETY: [test] the context lives as long as the set-up.
            Ok(unsafe { Context::borrow_raw(context.as_raw(), device()) })
        })
        .makes_no_call(),
        operation!("Context::from_raw", own, |context| {
            // Its owner must not end it too.
            let context = ManuallyDrop::new(taken(context));
            let raw = context.as_raw();
            // SAFETY: [test] nobody else has it any more.
            Ok(unsafe { Context::from_raw(raw, device()) })
        })
        .makes_no_call(),
    ]
}
