//! Contexts, and the four outcomes of running in one that is not the caller's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::context::ContextLimit;
use cuirass::testing::{Fault, Recording};
use cuirass::{Context, Device, EventOptions, Stream, StreamOptions};
use cuirass_testkit as testkit;

const INVALID_CONTEXT: u32 = 201;
const UNKNOWN: u32 = 999;
const OUT_OF_MEMORY: u32 = 2;

/// A thread of its own, so that nothing is current at first.
fn fresh_thread(body: impl FnOnce() + Send + 'static) {
    std::thread::spawn(body).join().unwrap();
}

#[test]
fn operations_run_in_the_devices_context_and_put_the_callers_back() {
    let _alone = testkit::alone();
    fresh_thread(|| {
        let device = Device::new(0).unwrap();
        // Nothing current: nothing current afterwards.
        let stream = device.create_stream(&StreamOptions::default()).unwrap();
        assert_eq!(Context::current().unwrap(), None);
        // Another context current: the same afterwards.
        let other = Context::create(device).unwrap();
        assert_eq!(Context::current().unwrap(), None);
        assert_eq!(other.set_current().unwrap(), None);
        let event = device.create_event(&EventOptions::default()).unwrap();
        assert_eq!(Context::current().unwrap().unwrap(), other);
        assert_eq!(event.context(), device.context().unwrap());
        stream.record(&event).unwrap();
        let ours = Stream::create(&other, &StreamOptions::default()).unwrap();
        assert_eq!(ours.context().unwrap(), other);
        // An event of another context cannot be recorded there.
        assert_eq!(ours.record(&event).unwrap_err().code(), Some(400));
        ours.close().unwrap();
        other.close().unwrap();
    });
}

#[test]
fn limits_and_priorities_are_read_in_the_context() {
    let _alone = testkit::alone();
    fresh_thread(|| {
        let context = Device::new(0).unwrap().context().unwrap();
        assert_eq!(context.stream_priority_range().unwrap(), (0, -5));
        assert_eq!(context.limit(ContextLimit::CU_LIMIT_STACK_SIZE).unwrap(), 1024);
        let (free, total) = context.memory_info().unwrap();
        assert!(free > 0 && free <= total);
        assert!(Context::current().unwrap().is_none());
    });
}

/// Entering failed: nothing ran, and the error is that of entering.
#[test]
fn entering_fails() {
    let _alone = testkit::alone();
    fresh_thread(|| {
        let device = Device::new(0).unwrap();
        device.context().unwrap();
        let fault = Fault::in_call("cuCtxSetCurrent").status(INVALID_CONTEXT).on_this_thread().inject().unwrap();
        let recording = Recording::start();
        let error = device.create_event(&EventOptions::default()).unwrap_err();
        drop(fault);
        assert_eq!((error.call(), error.code()), ("cuCtxSetCurrent", Some(INVALID_CONTEXT)));
        assert!(error.notes().is_empty());
        assert!(recording.take().iter().all(|call| call.call != "cuEventCreate"));
        assert!(Context::current().unwrap().is_none());
    });
}

/// The operation worked and restoring failed: what was made is undone, the error is that of restoring, with its note.
#[test]
fn restoring_fails_after_success() {
    let _alone = testkit::alone();
    fresh_thread(|| {
        let device = Device::new(0).unwrap();
        let context = device.context().unwrap();
        let fault = Fault::in_call("cuCtxSetCurrent").nth(2).status(UNKNOWN).on_this_thread().inject().unwrap();
        let recording = Recording::start();
        let error = device.create_event(&EventOptions::default()).unwrap_err();
        drop(fault);
        assert_eq!((error.call(), error.code()), ("cuCtxSetCurrent", Some(UNKNOWN)));
        let [note] = error.notes() else { panic!("one note: {error}") };
        assert!(note.contains("could not be restored") && note.contains("call `Device.set_current()`"), "{note}");
        let calls: Vec<_> = recording.take().iter().map(|call| call.call).collect();
        assert_eq!(calls.last(), Some(&"cuEventDestroy_v2"), "{calls:?}");
        // The target is still current, as the note says.
        assert_eq!(Context::current().unwrap().unwrap(), context);
        // And a later, unrelated operation knows nothing of it.
        device.create_event(&EventOptions::default()).unwrap().close().unwrap();
    });
}

/// The operation failed and restoring worked: the operation's error, alone.
#[test]
fn the_operation_fails() {
    let _alone = testkit::alone();
    fresh_thread(|| {
        let device = Device::new(0).unwrap();
        device.context().unwrap();
        let fault = Fault::in_call("cuEventCreate").status(OUT_OF_MEMORY).on_this_thread().inject().unwrap();
        let error = device.create_event(&EventOptions::default()).unwrap_err();
        drop(fault);
        assert_eq!((error.call(), error.code()), ("cuEventCreate", Some(OUT_OF_MEMORY)));
        assert!(error.notes().is_empty());
        assert!(error.to_string().starts_with("CUDA_ERROR_OUT_OF_MEMORY: out of memory (cuEventCreate, "), "{error}");
        assert!(Context::current().unwrap().is_none());
    });
}

/// Both failed: the operation's error, with the restoration's as its note.
#[test]
fn both_fail() {
    let _alone = testkit::alone();
    fresh_thread(|| {
        let device = Device::new(0).unwrap();
        device.context().unwrap();
        let first = Fault::in_call("cuEventCreate").status(OUT_OF_MEMORY).on_this_thread().inject().unwrap();
        let second = Fault::in_call("cuCtxSetCurrent").nth(2).status(UNKNOWN).on_this_thread().inject().unwrap();
        let error = device.create_event(&EventOptions::default()).unwrap_err();
        drop((first, second));
        assert_eq!((error.call(), error.code()), ("cuEventCreate", Some(OUT_OF_MEMORY)));
        let [note] = error.notes() else { panic!("one note: {error}") };
        assert!(note.contains("could not be restored after this failure"), "{note}");
        assert!(note.contains("CUDA_ERROR_UNKNOWN") && note.contains("cuCtxSetCurrent"), "{note}");
    });
}

/// The undo failed too: a second note.
#[test]
fn the_undo_fails() {
    let _alone = testkit::alone();
    fresh_thread(|| {
        let device = Device::new(0).unwrap();
        device.context().unwrap();
        let first = Fault::in_call("cuCtxSetCurrent").nth(2).status(UNKNOWN).on_this_thread().inject().unwrap();
        let second = Fault::in_call("cuEventDestroy_v2")
            .status(INVALID_CONTEXT)
            .manner(cuirass::testing::Manner::Done)
            .on_this_thread()
            .inject()
            .unwrap();
        let error = device.create_event(&EventOptions::default()).unwrap_err();
        drop((first, second));
        assert_eq!((error.call(), error.code()), ("cuCtxSetCurrent", Some(UNKNOWN)));
        let [restored, undone] = error.notes() else { panic!("two notes: {error}") };
        assert!(restored.contains("could not be restored"), "{restored}");
        assert!(undone.contains("not undone") && undone.contains("CUDA_ERROR_INVALID_CONTEXT"), "{undone}");
    });
}
