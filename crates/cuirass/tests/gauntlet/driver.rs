//! The choice of the driver, and fault injection itself.

use crate::objects::operation;
use cuirass::driver::{self, Driver};
use cuirass::testing::{self, Fault, Manner, OrderCheck, Recording};
use cuirass_testkit::operation::Operation;

pub fn operations() -> Vec<Operation> {
    let mut operations = vec![
        operation!("driver::device_count", || Ok(()), |()| driver::device_count()),
        operation!("driver::version", || Ok(()), |()| driver::version()).makes_no_call(),
        operation!("driver::loaded", || Ok(()), |()| Ok(driver::loaded())).makes_no_call(),
        operation!("driver::loaded_compiler", || Ok(()), |()| Ok(driver::loaded_compiler())).makes_no_call(),
        operation!("driver::simulator_symbol", || Ok(()), |()| Ok(
            driver::simulator_symbol("cuirass_sim_census").is_some()
        ))
        .makes_no_call(),
        operation!("drain", || Ok(()), |()| Ok(cuirass::drain())).makes_no_call(),
        operation!("pending_releases", || Ok(()), |()| Ok(cuirass::pending_releases())).makes_no_call(),
        operation!("testing::waiting_releases", || Ok(()), |()| Ok(testing::waiting_releases())).makes_no_call(),
        operation!("testing::forget_imported_pool", || Ok(()), |()| {
            testing::forget_imported_pool(0);
            Ok(())
        })
        .makes_no_call(),
        operation!("report_left_at_exit", || Ok(()), |()| {
            cuirass::report_left_at_exit();
            Ok(())
        })
        .makes_no_call(),
        operation!("driver::status_name", || Ok(()), |()| Ok(driver::status_name(2))).makes_no_call(),
        operation!("driver::compiler_status_name", || Ok(()), |()| Ok(driver::compiler_status_name(6))).makes_no_call(),
        operation!("driver::is_forked", || Ok(()), |()| Ok(driver::is_forked())).makes_no_call(),
        operation!("driver::choose", || Ok(()), |()| {
            let simulated = driver::loaded().is_some_and(|loaded| loaded.is_simulator);
            driver::choose(if simulated { Driver::Simulator } else { Driver::Gpu })
        })
        .makes_no_call(),
        operation!("driver::set_compiler_path", || Ok(()), |()| {
            if let Some(path) = std::env::var_os("CUIRASS_NVRTC") {
                driver::set_compiler_path(path.into());
            }
            Ok(())
        })
        .makes_no_call(),
    ];
    operations.extend(injection());
    operations
}

fn injection() -> Vec<Operation> {
    vec![
        operation!("Fault::in_call", || Ok(()), |()| Ok(Fault::in_call("cuInit"))).makes_no_call(),
        operation!("Fault::in_any_call", || Ok(()), |()| Ok(Fault::in_any_call())).makes_no_call(),
        operation!("Fault::nth", || Ok(()), |()| Ok(Fault::in_call("cuInit").nth(2))).makes_no_call(),
        operation!("Fault::times", || Ok(()), |()| Ok(Fault::in_call("cuInit").times(2))).makes_no_call(),
        operation!("Fault::status", || Ok(()), |()| Ok(Fault::in_call("cuInit").status(2))).makes_no_call(),
        operation!("Fault::manner", || Ok(()), |()| Ok(Fault::in_call("cuInit").manner(Manner::Done))).makes_no_call(),
        operation!("Fault::on_thread", || Ok(()), |()| Ok(Fault::in_call("cuInit").on_thread(1))).makes_no_call(),
        operation!("Fault::on_this_thread", || Ok(()), |()| Ok(Fault::in_call("cuInit").on_this_thread()))
            .makes_no_call(),
        operation!("Fault::inject", || Ok(()), |()| Fault::in_call("cuInit").inject()).makes_no_call(),
        operation!("Injected::count", || Fault::in_call("cuInit").inject().map(crate::objects::Plain), |fault| {
            Ok(fault.0.count())
        })
        .makes_no_call(),
        operation!("Injected::first_call", || Fault::in_call("cuInit").inject().map(crate::objects::Plain), |fault| {
            Ok(fault.0.first_call())
        })
        .makes_no_call(),
        operation!("Injected::seen", || Fault::in_call("cuInit").inject().map(crate::objects::Plain), |fault| {
            Ok(fault.0.seen())
        })
        .makes_no_call(),
        operation!("Recording::start", || Ok(()), |()| Ok(Recording::start())).makes_no_call(),
        operation!("Recording::take", || Ok(()), |()| Ok(Recording::start().take())).makes_no_call(),
        // A real driver has no checker: it is refused then.
        operation!("OrderCheck::start", || Ok(()), |()| Ok(OrderCheck::start().is_ok())).makes_no_call(),
        operation!("OrderCheck::findings", || Ok(()), |()| Ok(OrderCheck::start()
            .map(|check| check.findings())
            .is_ok()))
        .makes_no_call(),
        operation!("OrderCheck::end", || Ok(()), |()| Ok(OrderCheck::start().and_then(OrderCheck::end).is_ok()))
            .makes_no_call(),
        operation!("testing::known_calls", || Ok(()), |()| Ok(testing::known_calls().count())).makes_no_call(),
    ]
}
