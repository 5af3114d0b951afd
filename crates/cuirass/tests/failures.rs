//! The three ends of a failure: raised, attached, reported; and what a failed destroy means.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::memory::{DeviceMemoryResource, DeviceMemoryResourceOptions};
use cuirass::testing::{Fault, Manner, Recording};
use cuirass::{Context, Device, ErrorKind, EventOptions, Stream, StreamOptions};
use cuirass_testkit as testkit;

#[test]
fn a_failure_thrown_away_is_reported() {
    let alone = testkit::alone();
    Device::new(0).unwrap();
    let fault = Fault::in_call("cuDriverGetVersion").status(999).on_this_thread().inject().unwrap();
    drop(cuirass_call::driver::driver_get_version());
    drop(fault);
    let reports = alone.reports();
    let [report] = reports.as_slice() else { panic!("one report: {reports:?}") };
    assert!(report.contains("cuDriverGetVersion") && report.contains("discarded"), "{report}");
    assert!(report.contains("CUDA_ERROR_UNKNOWN"), "{report}");
}

#[test]
fn a_failed_destroy_is_reported_once_and_never_repeated() {
    let alone = testkit::alone();
    let device = Device::new(0).unwrap();
    for manner in [Manner::Done, Manner::Refused] {
        let stream = device.create_stream(&StreamOptions::default()).unwrap();
        let handle = stream.as_raw();
        let fault = Fault::in_call("cuStreamDestroy").status(700).manner(manner).on_this_thread().inject().unwrap();
        let recording = Recording::start();
        drop(stream);
        drop(fault);
        let destroys = recording.take().iter().filter(|call| call.call == "cuStreamDestroy_v2").count();
        assert_eq!(destroys, 1);
        let reports = alone.reports();
        let [report] = reports.as_slice() else { panic!("one report: {reports:?}") };
        let expected = format!("cuStreamDestroy_v2({handle:p}) failed while releasing a stream");
        assert!(report.starts_with(&expected), "{report}");
        assert!(report.contains("returned an earlier kernel's fault: CUDA_ERROR_ILLEGAL_ADDRESS"), "{report}");
        if manner == Manner::Refused {
            // It was not destroyed, and so is still there to be put away by the test.
            cuirass_call::stream::destroy(handle).unwrap();
        }
    }
}

#[test]
fn a_failed_close_raises_and_the_handle_is_spent() {
    let _alone = testkit::alone();
    let device = Device::new(0).unwrap();
    let event = device.create_event(&EventOptions::default()).unwrap();
    let recording = Recording::start();
    let fault = Fault::in_call("cuEventDestroy").status(201).manner(Manner::Done).on_this_thread().inject().unwrap();
    let error = event.close().unwrap_err();
    drop(fault);
    assert_eq!((error.call(), error.code(), error.kind()), ("cuEventDestroy_v2", Some(201), ErrorKind::Driver));
    assert_eq!(recording.take().iter().filter(|call| call.call == "cuEventDestroy_v2").count(), 1);
}

#[test]
fn a_share_that_is_not_the_last_gives_up_nothing() {
    let _alone = testkit::alone();
    let device = Device::new(0).unwrap();
    let stream = device.create_stream(&StreamOptions::default()).unwrap();
    let other = stream.clone();
    let recording = Recording::start();
    stream.close().unwrap();
    assert!(recording.take().is_empty());
    assert!(other.is_done().unwrap());
}

#[test]
fn a_driver_that_is_shutting_down_is_no_news_in_a_release() {
    let alone = testkit::alone();
    let device = Device::new(0).unwrap();
    let event = device.create_event(&EventOptions::default()).unwrap();
    let fault = Fault::in_call("cuEventDestroy").status(4).manner(Manner::Done).on_this_thread().inject().unwrap();
    drop(event);
    drop(fault);
    assert_eq!(alone.reports(), Vec::<String>::new());
}

#[test]
fn a_status_without_a_name_is_a_number() {
    let _alone = testkit::alone();
    let device = Device::new(0).unwrap();
    let fault = Fault::in_call("cuDeviceGetName").status(54321).on_this_thread().inject().unwrap();
    let error = device.name().unwrap_err();
    drop(fault);
    assert_eq!(error.code(), Some(54321));
    assert!(error.to_string().starts_with("CUDA_ERROR_54321: "), "{error}");
}

#[test]
fn sticky_statuses_have_their_kind() {
    let _alone = testkit::alone();
    let device = Device::new(0).unwrap();
    for status in cuirass_call::status::STICKY {
        let fault = Fault::in_call("cuDeviceGetName").status(status).on_this_thread().inject().unwrap();
        let error = device.name().unwrap_err();
        drop(fault);
        assert!(error.is_sticky() && error.kind() == ErrorKind::Sticky, "{error}");
    }
}

#[test]
fn a_fault_in_a_call_that_nobody_makes_is_refused() {
    let _alone = testkit::alone();
    for (wrong, near) in [
        ("cuStreamDistroy", "cuStreamDestroy_v2"),
        ("cumemallocfrompool", "cuMemAllocFromPoolAsync"),
        // A mistake, and no ending.
        ("cuMemAlocFromPool", "cuMemAllocFromPoolAsync"),
        ("cuStreamDestoy", "cuStreamDestroy_v2"),
        ("nvrtcComplieProgam", "nvrtcCompileProgram"),
        ("cudaMalloc", "cuMemAlloc_v2"),
        ("nvrtcCompile", "nvrtcCompileProgram"),
    ] {
        let error = Fault::in_call(wrong).inject().err().unwrap();
        let told = error.to_string();
        assert!(error.kind() == ErrorKind::Value && told.contains("the nearest: ") && told.contains(near), "{told}");
    }
    let error = Fault::in_call("nothing like it").inject().err().unwrap();
    assert_eq!(error.to_string(), "cuirass makes no call nothing like it");
    assert_eq!(Fault::in_call("cuInit").status(0).inject().err().map(|error| error.kind()), Some(ErrorKind::Value));
}

#[test]
fn what_an_old_driver_lacks_is_refused_by_name() {
    let _alone = testkit::alone();
    let error = match cuirass_call::module::kernel_get_param_info(std::ptr::null_mut(), 0) {
        Ok(parameter) => return assert_eq!(parameter, None),
        Err(failure) => failure.raise(),
    };
    if testkit::driver_version() >= 12040 {
        return assert_eq!(error.kind(), ErrorKind::Driver);
    }
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let found = testkit::driver_version() % 1000 / 10;
    let text = format!("cuKernelGetParamInfo needs a driver of CUDA 12.4, this one is of CUDA 12.{found}");
    assert!(error.to_string().contains(&text), "{error}");
}

#[test]
fn what_was_leaked_keeps_what_it_needs() {
    let alone = testkit::alone();
    let device = Device::new(0).unwrap();
    let context = Context::create(device).unwrap();
    let handle = context.as_raw();
    let stream = Stream::create(&context, &StreamOptions::default()).unwrap();
    drop(context);
    let (raw, recording) = (stream.as_raw(), Recording::start());
    // Whether it is being captured is not known: ending its context would end the capture too.
    let fault = Fault::in_call("cuStreamIsCapturing").status(2).on_this_thread().inject().unwrap();
    let error = stream.close().unwrap_err();
    drop(fault);
    let expected = format!("stream {raw:p} was not released, and is leaked with what it needs");
    assert!(error.facts().leaked && error.notes().contains(&expected), "{error}");
    assert!(recording.take().is_empty(), "the one call was refused: the context is kept");
    assert!(alone.reports().is_empty(), "it was raised");

    // The same for memory whose release was not tried: its pool, its stream and their context stay.
    // SAFETY: [test] it was leaked above, and is this test's now.
    let context = unsafe { Context::from_raw(handle, device) };
    // SAFETY: [test] so was this.
    let stream = unsafe { Stream::from_raw(raw, &context) };
    let pool = DeviceMemoryResource::create(device, &DeviceMemoryResourceOptions::default()).unwrap();
    let (pool_raw, buffer) = (pool.as_raw(), pool.allocate(64, &stream).unwrap());
    drop((context, stream, pool));
    let (address, recording) = (buffer.as_raw(), Recording::start());
    let fault = Fault::in_call("cuThreadExchangeStreamCaptureMode").status(2).on_this_thread().inject().unwrap();
    drop(buffer);
    drop(fault);
    let reports = alone.reports();
    let [report] = reports.as_slice() else { panic!("one report: {reports:?}") };
    let expected = format!(
        "memory {address:#x} (stream {raw:p}, pool {pool_raw:p}) was not released, and is leaked with what it needs"
    );
    assert!(report.contains(&expected), "{report}");
    assert!(recording.take().is_empty(), "pool, stream and context are kept");
    // SAFETY: [test] they were leaked above, and are this test's now.
    let context = unsafe { Context::from_raw(handle, device) };
    // SAFETY: [test] so was this.
    let stream = unsafe { Stream::from_raw(raw, &context) };
    cuirass_call::memory::pool::free_async(address, stream.as_raw()).unwrap();
    stream.synchronize().unwrap();
    cuirass_call::memory::pool::destroy(pool_raw).unwrap();
    stream.close().unwrap();
    context.close().unwrap();
}
