//! Reports: whoever gets them, nothing that they do is let out, and none is made with a lock held.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass_fault::lock::{Mutex, assert_none_held};
use cuirass_fault::{Failure, Misuse, set_reporter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex as StdMutex};

static ALONE: StdMutex<()> = StdMutex::new(());

fn failure(text: &str) -> Failure {
    Failure::misuse(Misuse::State, text)
}

#[test]
fn a_reporter_that_panics_ends_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seen = Arc::new(StdMutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    drop(set_reporter(Some(Arc::new(move |report| {
        sink.lock().unwrap().push(report.to_string());
        assert!(!report.to_string().contains("first"), "on purpose");
    }))));
    failure("the first").report("testing");
    failure("the second").report("testing");
    drop(set_reporter(None));
    assert_eq!(*seen.lock().unwrap(), ["the first (while testing)", "the second (while testing)"]);
}

#[test]
fn a_reporter_may_report_and_replace_itself() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seen = Arc::new(StdMutex::new(Vec::new()));
    let (outer, inner) = (Arc::clone(&seen), Arc::clone(&seen));
    drop(set_reporter(Some(Arc::new(move |report| {
        outer.lock().unwrap().push(format!("outer {report}"));
        let inner = Arc::clone(&inner);
        let before = set_reporter(Some(Arc::new(move |report| inner.lock().unwrap().push(format!("inner {report}")))));
        assert!(before.is_some());
        failure("from the reporter").report("testing");
    }))));
    failure("from outside").report("testing");
    drop(set_reporter(None));
    assert_eq!(
        *seen.lock().unwrap(),
        ["outer from outside (while testing)", "inner from the reporter (while testing)"]
    );
}

/// Section 7 of the failure policy, in debug builds.
#[test]
#[cfg(debug_assertions)]
fn no_report_is_made_with_a_lock_held() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let lock = Mutex::new(());
    let guard = lock.lock();
    let caught = catch_unwind(AssertUnwindSafe(|| failure("held").report("testing"))).unwrap_err();
    assert!(caught.downcast_ref::<String>().unwrap().contains("a report with a cuirass lock held"));
    drop(guard);
    assert_none_held("this");
    failure("not held").report("testing");
}

#[cfg(feature = "tracing")]
mod with_a_subscriber {
    use super::*;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    struct Collects(Arc<StdMutex<Vec<String>>>);
    struct Text<'a>(&'a mut String);

    impl Visit for Text<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            if field.name() == "message" {
                self.0.push_str(&format!("{value:?}"));
            }
        }
    }

    impl Subscriber for Collects {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "cuirass"
        }
        fn new_span(&self, _span: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _span: &Id, _values: &Record<'_>) {}
        fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut text = String::new();
            event.record(&mut Text(&mut text));
            self.0.lock().unwrap().push(text);
        }
        fn enter(&self, _span: &Id) {}
        fn exit(&self, _span: &Id) {}
    }

    #[test]
    fn reports_go_to_it_where_no_reporter_is_installed() {
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let seen = Arc::new(StdMutex::new(Vec::new()));
        tracing::subscriber::set_global_default(Collects(Arc::clone(&seen))).unwrap();
        failure("traced").report("testing");
        assert_eq!(*seen.lock().unwrap(), ["traced (while testing)"]);
    }
}
