//! Devices, on whichever driver the tests run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::{Device, DeviceAttribute, ErrorKind, driver};
use cuirass_testkit as testkit;

#[test]
fn a_device_tells_what_it_is() {
    let _alone = testkit::alone();
    let device = Device::new(0).unwrap();
    assert_eq!(device.ordinal(), 0);
    assert!(device.name().unwrap().starts_with("NVIDIA"));
    assert_ne!(device.uuid().unwrap(), [0; 16]);
    let bus = device.pci_bus_id().unwrap();
    assert_eq!(bus.matches(':').count(), 2, "{bus}");
    let (major, minor) = device.compute_capability().unwrap();
    assert!(major >= 5 && minor >= 0);
    assert_eq!(device.attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE).unwrap(), Some(32));
    assert_eq!(device.attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK).unwrap(), Some(1024));
    assert!(device.total_memory().unwrap() > 1 << 30);
}

#[test]
fn an_attribute_that_the_driver_does_not_know_is_none() {
    let _alone = testkit::alone();
    let device = Device::new(0).unwrap();
    assert_eq!(device.attribute(cuirass::raw::CUdevice_attribute_enum(0x7fff_0000)).unwrap(), None);
}

#[test]
fn an_ordinal_that_does_not_exist_is_refused_by_value() {
    let _alone = testkit::alone();
    for ordinal in [-1, 99, i32::MIN, i32::MAX] {
        let error = Device::new(ordinal).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value, "{error}");
        assert!(error.to_string().contains(&ordinal.to_string()), "{error}");
        let is_simulated = driver::loaded().unwrap().is_simulator;
        assert_eq!(error.notes().iter().any(|note| note.contains("CUIRASS_SIM=devices=2")), is_simulated, "{error}");
    }
    assert_eq!(Device::all().unwrap().len(), usize::try_from(driver::device_count().unwrap()).unwrap());
}

#[test]
fn the_primary_context_is_retained_once_and_released() {
    let _alone = testkit::alone();
    let device = Device::new(0).unwrap();
    let first = device.context().unwrap();
    assert_eq!(first, device.context().unwrap());
    assert!(first.is_primary() && device.has_primary_context());
    drop(first);
    device.release_primary_context().unwrap();
    assert!(!device.has_primary_context());
    // A later use retains it anew.
    device.synchronize().unwrap();
    assert!(device.has_primary_context());
}

#[test]
fn set_current_makes_the_primary_context_current() {
    let _alone = testkit::alone();
    let device = Device::new(0).unwrap();
    std::thread::spawn(move || {
        assert_eq!(Device::current().unwrap(), None);
        device.set_current().unwrap();
        assert_eq!(Device::current().unwrap(), Some(device));
    })
    .join()
    .unwrap();
}
