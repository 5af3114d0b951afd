//! The ledger on a driver whose handles are addresses that come round again.

use cuirass_call::table::driver::{DRIVER, at};
use cuirass_call::table::{CallInfo, Table};
use cuirass_testkit::ledger::{Ledger, Life};

/// Makes a call that works, and returns what was wrong with it.
fn call(ledger: &mut Ledger, at: usize, arguments: &[u64]) -> Vec<String> {
    let table: &Table<_> = &DRIVER;
    let info: &CallInfo = &table.info[at];
    assert_eq!(info.parameters.len(), arguments.len(), "{}", info.name);
    let (ending, wrong) = ledger.before(info, arguments);
    ledger.after(info, arguments, &ending, true, 0, 0);
    wrong
}

/// Where a call writes the handle that it makes.
fn place(value: &u64) -> u64 {
    std::ptr::from_ref(value).expose_provenance() as u64
}

const VALUE: u64 = 0x55d0_1234_5000;

fn event_that_ended(ledger: &mut Ledger) {
    assert!(call(ledger, at::cuEventCreate, &[place(&VALUE), 0]).is_empty());
    assert!(call(ledger, at::cuEventDestroy_v2, &[VALUE]).is_empty());
}

#[test]
fn an_argument_is_a_handle_where_its_parameter_says_so() {
    let mut ledger = Ledger::default();
    event_that_ended(&mut ledger);
    // The number of bytes, the host's address and a stream of the same value are none of its business.
    assert!(call(&mut ledger, at::cuMemAlloc_v2, &[place(&0x7f00_0000_0000), VALUE]).is_empty());
    assert!(call(&mut ledger, at::cuStreamQuery, &[VALUE]).is_empty());
    let wrong = call(&mut ledger, at::cuEventQuery, &[VALUE]);
    assert_eq!(wrong, [format!("cuEventQuery uses event {VALUE:#x} after its end")]);
    let wrong = call(&mut ledger, at::cuStreamWaitEvent, &[8, VALUE, 0]);
    assert_eq!(wrong, [format!("cuStreamWaitEvent uses event {VALUE:#x} after its end")]);
}

#[test]
fn a_value_that_comes_round_again_is_another_handle() {
    let mut ledger = Ledger::default();
    event_that_ended(&mut ledger);
    assert!(ledger.is_ended(("event", VALUE)));
    assert!(call(&mut ledger, at::cuStreamCreateWithPriority, &[place(&VALUE), 1, 0]).is_empty());
    assert!(!ledger.is_ended(("event", VALUE)), "the driver has given its value to a stream");
    assert!(call(&mut ledger, at::cuEventQuery, &[VALUE]).is_empty(), "it may be an event made on another thread");
    event_that_ended(&mut ledger);
    assert!(call(&mut ledger, at::cuStreamSynchronize, &[VALUE]).is_empty(), "a stream that is alive is not forgotten");
}

#[test]
fn the_stream_of_a_launch_is_used() {
    let mut ledger = Ledger::default();
    assert!(call(&mut ledger, at::cuStreamCreateWithPriority, &[place(&VALUE), 1, 0]).is_empty());
    assert!(call(&mut ledger, at::cuStreamDestroy_v2, &[VALUE]).is_empty());
    let config = cuirass_call::sys::cuda::CUlaunchConfig {
        hStream: std::ptr::without_provenance_mut(usize::try_from(VALUE).unwrap_or(0)),
        ..Default::default()
    };
    let config = std::ptr::from_ref(&config).expose_provenance() as u64;
    let wrong = call(&mut ledger, at::cuLaunchKernelEx, &[config, 0, 0, 0]);
    assert_eq!(wrong, [format!("cuLaunchKernelEx uses stream {VALUE:#x} after its end")]);
}

#[test]
fn what_was_left_in_a_context_goes_with_it() {
    let mut ledger = Ledger::default();
    let (context, stream, event) = (0x1000, 0x2000, 0x3000);
    assert!(call(&mut ledger, at::cuCtxCreate_v2, &[place(&context), 0, 0]).is_empty());
    assert!(call(&mut ledger, at::cuStreamCreateWithPriority, &[place(&stream), 1, 0]).is_empty());
    assert!(call(&mut ledger, at::cuEventCreate, &[place(&event), 0]).is_empty());
    // Memory of a pool is made on the stream, whatever is current.
    assert!(call(&mut ledger, at::cuCtxSetCurrent, &[0]).is_empty());
    let (memory, pool) = (0x4000, 0x5000);
    assert!(call(&mut ledger, at::cuMemAllocFromPoolAsync, &[place(&memory), 64, pool, stream]).is_empty());
    let made = &ledger.alive()[&("memory", memory)];
    assert_eq!((made.context, made.parents.as_slice()), (context, [("pool", pool), ("stream", stream)].as_slice()));
    assert!(call(&mut ledger, at::cuCtxDestroy_v2, &[context]).is_empty());
    assert_eq!(ledger.alive()[&("stream", stream)].life, Life::Gone);
    let wrong = call(&mut ledger, at::cuStreamDestroy_v2, &[stream]);
    assert_eq!(wrong, [format!("cuStreamDestroy_v2 releases stream {stream:#x} a second time")]);
    let wrong = call(&mut ledger, at::cuEventQuery, &[event]);
    assert_eq!(wrong, [format!("cuEventQuery uses event {event:#x} after its end")]);
}

#[test]
fn what_is_imported_again_ends_once() {
    let mut ledger = Ledger::default();
    let (memory, pool) = (0x4000, 0x5000);
    let import = |ledger: &mut Ledger, what: &u64, answer| {
        let (at, from) = if *what == pool {
            (at::cuMemPoolImportFromShareableHandle, 7)
        } else {
            (at::cuMemPoolImportPointer, pool)
        };
        let (arguments, table): (_, &Table<_>) = ([place(what), from, 0, 0], &DRIVER);
        let info: &CallInfo = &table.info[at];
        let (ending, wrong) = ledger.before(info, &arguments);
        ledger.after(info, &arguments, &ending, true, 0, answer);
        assert!(wrong.is_empty());
    };
    for (kind, what, end, name) in [("memory", &memory, at::cuMemFreeAsync, "cuMemFreeAsync")] {
        // One that the program cannot know of, one that it does, and one more that it does not.
        for (answer, life) in [(999, Life::Orphan), (0, Life::Alive), (999, Life::Alive)] {
            import(&mut ledger, what, answer);
            let alive = ledger.alive()[&(kind, *what)].clone();
            assert_eq!((alive.life, alive.count, alive.strays), (life, 1, 0), "{kind}");
        }
        let arguments = &[*what, 0];
        assert!(call(&mut ledger, end, arguments).is_empty());
        assert!(ledger.is_ended((kind, *what)));
        let wrong = call(&mut ledger, end, arguments);
        assert_eq!(wrong, [format!("{name} releases {kind} {what:#x} a second time")]);
        // It comes round again.
        import(&mut ledger, what, 0);
        assert_eq!(ledger.alive()[&(kind, *what)].life, Life::Alive);
    }
    assert_eq!(ledger.alive()[&("memory", memory)].parents, [("pool", pool)]);
    // A pool ends when it was ended as often as it was imported.
    import(&mut ledger, &pool, 0);
    import(&mut ledger, &pool, 0);
    assert_eq!(ledger.alive()[&("pool", pool)].count, 2);
    assert!(call(&mut ledger, at::cuMemPoolDestroy, &[pool]).is_empty());
    assert!(!ledger.is_ended(("pool", pool)));
    assert!(call(&mut ledger, at::cuMemPoolDestroy, &[pool]).is_empty());
    let wrong = call(&mut ledger, at::cuMemPoolDestroy, &[pool]);
    assert_eq!(wrong, [format!("cuMemPoolDestroy releases pool {pool:#x} a second time")]);
}
