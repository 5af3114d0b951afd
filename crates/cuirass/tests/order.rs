//! The simulated driver's checker of the order between streams, as a program in Rust uses it. What it finds is tested in
//! `sim-libs/tests/order.rs` and `python/tests/test_order.py`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::memory::Buffer;
use cuirass::testing::{OrderCheck, OrderFinding};
use cuirass::{Device, ErrorKind, EventOptions, Stream, StreamOptions};
use cuirass_testkit as testkit;

struct Scene {
    one: Stream,
    other: Stream,
    buffer: Buffer,
}

impl Scene {
    fn new() -> Scene {
        let device = Device::new(0).unwrap();
        let [one, other] = [(); 2].map(|()| device.create_stream(&StreamOptions::default()).unwrap());
        let buffer = device.memory_resource().unwrap().allocate(256, &one).unwrap();
        one.synchronize().unwrap();
        Scene { one, other, buffer }
    }

    /// Two fills, in order or not.
    fn fill(&self, ordered: bool) {
        self.buffer.fill(1, &self.one).unwrap();
        if ordered {
            self.other.wait(&self.one.record_new(&EventOptions::default()).unwrap()).unwrap();
        }
        // SAFETY: [test] the memory stays until both are done.
        unsafe { self.buffer.fill_unordered(&[2], &self.other).unwrap() };
    }

    fn settle(&self) {
        self.one.synchronize().unwrap();
        self.other.synchronize().unwrap();
    }
}

fn rules(found: &[OrderFinding]) -> Vec<&str> {
    found.iter().map(|found| found.rule.as_str()).collect()
}

#[test]
fn what_nothing_puts_in_order_is_found() {
    let alone = testkit::alone();
    if !testkit::is_simulator() {
        let error = OrderCheck::start().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::State, "{error}");
        return;
    }
    let scene = Scene::new();
    for ordered in [true, false] {
        let check = OrderCheck::start().unwrap();
        scene.fill(ordered);
        scene.settle();
        let found = check.findings();
        assert_eq!(rules(&found), if ordered { vec![] } else { vec!["race"] }, "{found:?}");
        if let Some(found) = found.first() {
            assert_eq!(found.call, "cuMemsetD8Async");
            assert!(found.text.matches("cuMemsetD8Async").count() > 1, "it names both: {found:?}");
        }
        assert_eq!(check.end().unwrap(), found);
    }
    assert_eq!(alone.reports(), Vec::<String>::new());
}

/// Checks overlap, and end by themselves; outside them nothing is found.
#[test]
fn a_check_ends_where_it_is_dropped() {
    let alone = testkit::alone();
    if !testkit::is_simulator() {
        return;
    }
    let scene = Scene::new();
    let first = OrderCheck::start().unwrap();
    scene.fill(false);
    scene.settle();
    let second = OrderCheck::start().unwrap();
    assert_eq!((first.findings().len(), second.findings().len()), (1, 0));
    drop(first);
    // A pair of calls on a piece of memory is told once; this is another.
    let scene = Scene::new();
    scene.fill(false);
    // The end waits for the work.
    assert_eq!(rules(&second.end().unwrap()), ["race"]);
    scene.settle();
    scene.fill(false);
    scene.settle();
    assert_eq!(OrderCheck::start().unwrap().end().unwrap(), []);
    assert_eq!(alone.reports(), Vec::<String>::new());
}
