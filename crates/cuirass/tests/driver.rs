//! What the simulated driver says of itself; another one says nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::driver::simulator::{self, Text};
use cuirass::{Device, StreamOptions};
use cuirass_testkit as testkit;

const TEXTS: [Text; 4] = [Text::Census, Text::Objects, Text::State, Text::Calls];

#[test]
fn what_the_simulated_driver_says_of_itself() {
    let _alone = testkit::alone();
    if !testkit::is_simulator() {
        assert!(TEXTS.iter().all(|which| simulator::text(*which).is_none()));
        assert_eq!(
            (simulator::reports_mark(), simulator::pending(), simulator::calls_made("cuInit")),
            (None, None, None)
        );
        assert_eq!(
            (simulator::check_order(true), simulator::set_seed(Some(1)), simulator::set_seed(None)),
            (None, None, None)
        );
        return;
    }
    let stream = Device::new(0).unwrap().create_stream(&StreamOptions::default()).unwrap();
    let [census, objects, state, calls] = TEXTS.map(|which| simulator::text(which).unwrap());
    assert!(census.starts_with('{') && census.contains("\"stream\":"), "{census}");
    let object = format!("\"handle\":{},", stream.as_raw().addr());
    assert!(objects.lines().any(|line| line.contains("\"stream\"") && line.contains(&object)), "{objects}");
    assert!(state.starts_with('{') && state.contains("\"devices\":"), "{state}");
    assert!(calls.contains("\"cuStreamCreateWithPriority\":"), "{calls}");
    assert!(simulator::calls_made("cuStreamCreateWithPriority").unwrap().unwrap() > 0);
    for none in ["cuAbsent", "cu\0Init", ""] {
        assert_eq!(simulator::calls_made(none), Some(None));
    }
    stream.synchronize().unwrap();
    assert_eq!(simulator::pending(), Some(0));
    let mark = simulator::reports_mark().unwrap();
    assert_eq!(simulator::reports_since(mark).unwrap(), "");
    for seed in [Some(7), None, Some(u64::MAX), None] {
        assert_eq!(simulator::set_seed(seed), Some(0));
        stream.synchronize().unwrap();
    }
    assert_eq!((simulator::check_order(true), simulator::check_order(false)), (Some(0), Some(0)));
}
