//! Devices.

use crate::objects::{device, event, operation, stream};
use cuirass::testing::{Fault, Manner};
use cuirass::{Device, DeviceAttribute, EventOptions, StreamOptions};
use cuirass_testkit::judge::Finding;
use cuirass_testkit::operation::{Allowed, Caller, Operation};
use cuirass_testkit::sweep::{DRIVER_STATUSES, Violation};

const RETAINS: &str = "the process retains it once and keeps it for the operations to come";
const ALL: [Caller; 3] = [Caller::Nothing, Caller::Other, Caller::Primary];

pub fn operations() -> Vec<Operation> {
    let unretained = || device().release_primary_context();
    vec![
        operation!("Device::new", || Ok(()), |()| Device::new(0)).makes_no_call(),
        operation!("Device::all", || Ok(()), |()| Device::all()).makes_no_call(),
        operation!("Device::as_raw", || Ok(()), |()| Ok(device().as_raw())).makes_no_call(),
        operation!("Device::ordinal", || Ok(()), |()| Ok(device().ordinal())).makes_no_call(),
        operation!("Device::has_primary_context", || Ok(()), |()| Ok(device().has_primary_context())).makes_no_call(),
        operation!("Device::current", || Ok(()), |()| Device::current()).called_with(&ALL),
        operation!("Device::context", || Ok(()), |()| device().context()).makes_no_call(),
        operation!("Device::context", unretained, |()| device().context()).case("the first"),
        operation!("Device::release_primary_context", || Ok(()), |()| device().release_primary_context()),
        operation!("Device::release_primary_context", || Ok((stream()?, event()?)), |_| {
            device().release_primary_context()
        })
        .case("with objects that keep it")
        .makes_no_call(),
        operation!("Device::set_current", || Ok(()), |()| device().set_current())
            .called_with(&ALL)
            .allow(Allowed::SetsCurrent, "that is what it does"),
        operation!("Device::set_current", unretained, |()| device().set_current())
            .case("the first")
            .allow(Allowed::SetsCurrent, "that is what it does")
            .allow(Allowed::Stays(&["primary_context"]), RETAINS),
        operation!("Device::name", || Ok(()), |()| device().name()),
        operation!("Device::uuid", || Ok(()), |()| device().uuid()),
        operation!("Device::pci_bus_id", || Ok(()), |()| device().pci_bus_id()),
        operation!("Device::total_memory", || Ok(()), |()| device().total_memory()),
        operation!("Device::attribute", || Ok(()), |()| {
            device().attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)
        }),
        operation!("Device::compute_capability", || Ok(()), |()| device().compute_capability()),
        operation!("Device::create_stream", || Ok(()), |()| device().create_stream(&StreamOptions::default()))
            .called_with(&ALL),
        operation!("Device::create_stream", unretained, |()| device().create_stream(&StreamOptions::default()))
            .case("the first use of the context")
            .allow(Allowed::Stays(&["primary_context"]), RETAINS),
        operation!("Device::create_event", || Ok(()), |()| device().create_event(&EventOptions::default()))
            .called_with(&ALL),
        operation!("Device::memory_resource", || Ok(()), |()| device().memory_resource()).makes_no_call(),
        operation!("Device::memory_resource", unretained, |()| device().memory_resource())
            .case("the first")
            .allow(Allowed::Stays(&["primary_context"]), RETAINS),
        operation!("Device::synchronize", || Ok(()), |()| device().synchronize()).called_with(&ALL),
    ]
}

/// The very first use of the driver in a process: each call of it fails first with every status; a failed attempt
/// leaves nothing behind, and the next one fails, or works, on its own.
pub fn first_use() -> Vec<Violation> {
    cuirass_testkit::choose();
    let mut violations = Vec::new();
    for (at, call) in ["cuInit", "cuDeviceGetCount", "cuDeviceGet"].into_iter().enumerate() {
        for status in DRIVER_STATUSES {
            for manner in [Manner::Refused, Manner::Done] {
                let run = format!("Device::new; the first of the process; {call} returns {status}, {manner:?}");
                let expected = format!("status {status} of {call} raised, once");
                let mut wrong = |seen: String| {
                    let finding = Finding { check: 1, expected: expected.clone(), seen };
                    violations.push(Violation {
                        operation: "Device::new".to_owned(),
                        run: run.clone(),
                        order: (1, at),
                        finding,
                    });
                };
                let fault = match Fault::in_call(call).status(status).manner(manner).inject() {
                    Ok(fault) => fault,
                    Err(error) => return vec_of(&mut violations, error.to_string()),
                };
                match Device::new(0) {
                    Ok(_) => wrong("success".to_owned()),
                    Err(error) if (error.call(), error.code()) == (call, Some(status)) => {}
                    Err(error) => wrong(format!("raised {error}")),
                }
                if fault.count() != 1 {
                    wrong(format!("{} calls", fault.count()));
                }
            }
        }
    }
    violations
}

fn vec_of(violations: &mut Vec<Violation>, seen: String) -> Vec<Violation> {
    let finding = Finding { check: 1, expected: "a fault can be injected".to_owned(), seen };
    let (operation, run) = ("Device::new".to_owned(), "the first of the process".to_owned());
    violations.push(Violation { operation, run, order: (0, 0), finding });
    std::mem::take(violations)
}
