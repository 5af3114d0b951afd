//! Streams and events, on whichever driver the tests run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::testing::Recording;
use cuirass::{Device, ErrorKind, Event, EventOptions, Stream, StreamOptions};
use cuirass_testkit as testkit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

fn device() -> Device {
    Device::new(0).unwrap()
}

fn stream() -> Stream {
    device().create_stream(&StreamOptions::default()).unwrap()
}

#[test]
fn a_stream_is_made_as_asked() {
    let _alone = testkit::alone();
    let plain = stream();
    assert!(plain.is_nonblocking().unwrap());
    assert_eq!(plain.priority().unwrap(), 0);
    assert_eq!(plain.device().unwrap(), device());
    assert_eq!(plain.context().unwrap(), device().context().unwrap());
    let urgent = device().create_stream(&StreamOptions { nonblocking: false, priority: Some(-3) }).unwrap();
    assert!(!urgent.is_nonblocking().unwrap());
    assert_eq!(urgent.priority().unwrap(), -3);
    assert_ne!(plain.id().unwrap(), urgent.id().unwrap());
    assert_ne!(plain, urgent);
}

#[test]
fn a_priority_out_of_range_is_refused() {
    let _alone = testkit::alone();
    for priority in [1, -6, i32::MAX, i32::MIN] {
        let error = device().create_stream(&StreamOptions { nonblocking: true, priority: Some(priority) }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value);
        assert!(error.to_string().contains("from -5 to 0"), "{error}");
    }
}

#[test]
fn work_is_pending_until_it_is_done() {
    let _alone = testkit::alone();
    let stream = stream();
    let (release, wait) = mpsc::channel::<()>();
    stream.launch_host_function(move || wait.recv_timeout(Duration::from_secs(20)).unwrap()).unwrap();
    assert!(!stream.is_done().unwrap());
    let event = device().create_event(&EventOptions::default()).unwrap();
    assert!(event.is_done().unwrap(), "an event never recorded is done");
    stream.record(&event).unwrap();
    assert!(!event.is_done().unwrap());
    release.send(()).unwrap();
    event.synchronize().unwrap();
    assert!(event.is_done().unwrap());
    stream.synchronize().unwrap();
    assert!(stream.is_done().unwrap());
}

#[test]
fn events_order_streams() {
    let _alone = testkit::alone();
    let (first, second) = (stream(), stream());
    let value = Arc::new(AtomicU32::new(0));
    let (release, wait) = mpsc::channel::<()>();
    let writer = Arc::clone(&value);
    first
        .launch_host_function(move || {
            wait.recv_timeout(Duration::from_secs(20)).unwrap();
            writer.store(7, Ordering::SeqCst);
        })
        .unwrap();
    let event = device().create_event(&EventOptions::default()).unwrap();
    first.record(&event).unwrap();
    second.wait(&event).unwrap();
    // The event may go while it is waited for.
    event.close().unwrap();
    let seen = Arc::new(AtomicU32::new(0));
    let (reader, value) = (Arc::clone(&seen), Arc::clone(&value));
    second.launch_host_function(move || reader.store(value.load(Ordering::SeqCst), Ordering::SeqCst)).unwrap();
    assert!(!second.is_done().unwrap());
    release.send(()).unwrap();
    second.synchronize().unwrap();
    assert_eq!(seen.load(Ordering::SeqCst), 7);
}

#[test]
fn a_stream_waits_for_another() {
    let _alone = testkit::alone();
    let (first, second) = (stream(), stream());
    let (release, wait) = mpsc::channel::<()>();
    first.launch_host_function(move || wait.recv_timeout(Duration::from_secs(20)).unwrap()).unwrap();
    second.wait_for_stream(&first).unwrap();
    assert!(!second.is_done().unwrap());
    release.send(()).unwrap();
    second.synchronize().unwrap();
    assert!(first.is_done().unwrap());
}

#[test]
fn timed_events_measure_milliseconds() {
    let _alone = testkit::alone();
    let stream = stream();
    let (start, end) = (timed(), timed());
    assert_eq!(start.elapsed_until(&end).unwrap_err().code(), Some(400), "never recorded");
    stream.record(&start).unwrap();
    stream.launch_host_function(|| std::thread::sleep(Duration::from_millis(30))).unwrap();
    stream.record(&end).unwrap();
    end.synchronize().unwrap();
    let milliseconds = start.elapsed_until(&end).unwrap().unwrap();
    assert!((29.0..5000.0).contains(&milliseconds), "{milliseconds}");
    let untimed = device().create_event(&EventOptions::default()).unwrap();
    stream.record(&untimed).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(start.elapsed_until(&untimed).unwrap_err().code(), Some(400));
}

fn timed() -> Event {
    device().create_event(&EventOptions::timed()).unwrap()
}

#[test]
fn elapsed_time_of_a_pending_event_is_none() {
    let _alone = testkit::alone();
    let stream = stream();
    let (start, end) = (timed(), timed());
    stream.record(&start).unwrap();
    let (release, wait) = mpsc::channel::<()>();
    stream.launch_host_function(move || wait.recv_timeout(Duration::from_secs(20)).unwrap()).unwrap();
    stream.record(&end).unwrap();
    assert_eq!(start.elapsed_until(&end).unwrap(), None);
    release.send(()).unwrap();
    stream.synchronize().unwrap();
    assert!(start.elapsed_until(&end).unwrap().is_some());
}

#[test]
fn an_interprocess_event_takes_no_time() {
    let _alone = testkit::alone();
    let both = EventOptions { timing: true, interprocess: true, blocking_sync: false };
    assert_eq!(device().create_event(&both).unwrap_err().code(), Some(1));
    device().create_event(&EventOptions { timing: false, ..both }).unwrap();
}

#[test]
fn the_default_streams_follow_the_current_context() {
    let _alone = testkit::alone();
    std::thread::spawn(|| {
        for default in [Stream::legacy_default(), Stream::per_thread_default()] {
            assert!(default.is_default());
            device().set_current().unwrap();
            default.synchronize().unwrap();
            assert_eq!(default.device().unwrap(), device());
        }
        assert_ne!(Stream::legacy_default(), Stream::per_thread_default());
    })
    .join()
    .unwrap();
}

#[test]
fn a_borrowed_stream_is_not_destroyed_and_keeps_its_owner() {
    let _alone = testkit::alone();
    let owner = Arc::new(stream());
    let raw = owner.as_raw();
    // SAFETY: [test] the owner keeps the stream alive.
    let borrowed = unsafe { Stream::borrow_raw(raw, Some(owner.clone())) };
    assert_eq!(Arc::strong_count(&owner), 2);
    assert_eq!(borrowed.device().unwrap(), device());
    borrowed.synchronize().unwrap();
    let recording = Recording::start();
    borrowed.close().unwrap();
    assert!(recording.take().is_empty());
    assert_eq!(Arc::strong_count(&owner), 1);
    owner.synchronize().unwrap();
}

#[test]
fn a_host_function_that_panics_is_reported() {
    let alone = testkit::alone();
    let stream = stream();
    stream.launch_host_function(|| panic!("no bananas")).unwrap();
    stream.synchronize().unwrap();
    let mut reports = alone.reports();
    // The report is made on the driver's thread, and may come a moment after the stream is done.
    for _ in 0..200 {
        if !reports.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        reports = alone.reports();
    }
    let [report] = reports.as_slice() else { panic!("one report: {reports:?}") };
    assert!(report.contains("no bananas") && report.contains("host function on stream"), "{report}");
}

#[test]
fn a_stream_may_be_closed_with_work_on_it() {
    let _alone = testkit::alone();
    let stream = stream();
    let (done, seen) = mpsc::channel();
    stream
        .launch_host_function(move || {
            std::thread::sleep(Duration::from_millis(20));
            done.send(()).unwrap();
        })
        .unwrap();
    stream.close().unwrap();
    seen.recv_timeout(Duration::from_secs(20)).unwrap();
}

#[test]
fn what_a_host_function_drops_is_released_later() {
    let alone = testkit::alone();
    let (carrier, dropped) = (stream(), stream());
    let raw = dropped.as_raw().addr() as u64;
    let buffer = device().memory_resource().unwrap().allocate(256, &dropped).unwrap();
    let recording = Recording::start();
    carrier
        .launch_host_function(move || {
            drop(buffer);
            dropped.close().unwrap();
        })
        .unwrap();
    // No CUDA call may be made in a host function: the releases wait for a thread that may make them.
    carrier.synchronize().unwrap();
    for _ in 0..200 {
        if cuirass::drain() == 0 && recording.take().iter().any(|call| call.arguments.first() == Some(&raw)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(cuirass::pending_releases(), 0);
    assert_eq!(alone.reports(), Vec::<String>::new());
}
