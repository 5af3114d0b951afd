//! Host functions.

use crate::objects::{Plain, operation, stream};
use cuirass_testkit::operation::Operation;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub fn operations() -> Vec<Operation> {
    let counted = || Ok((stream()?, Plain(Arc::new(AtomicU32::new(0)))));
    vec![operation!("Stream::launch_host_function", counted, |(stream, count)| {
        let count = Arc::clone(&count.0);
        stream.launch_host_function(move || {
            // What it holds is touched, so that a closure freed too early is seen.
            count.fetch_add(1, Ordering::SeqCst);
        })
    })]
}
