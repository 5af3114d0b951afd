//! Launches.

use crate::objects::{Plain, buffer, kernel, operation, stream};
use cuirass::{Argument, LaunchConfig, launch};
use cuirass_testkit::operation::{Allowed, Caller, Operation};

const ALL: [Caller; 3] = [Caller::Nothing, Caller::Other, Caller::Primary];

pub fn operations() -> Vec<Operation> {
    let needed = || {
        let stream = stream()?;
        Ok((kernel()?, buffer(&stream)?, stream))
    };
    let config = || Ok(Plain(LaunchConfig::linear(1, 8)));
    vec![
        operation!("launch", needed, |(kernel, buffer, stream)| {
            let arguments = [(&*buffer).into(), (&8_i32).into()];
            // SAFETY: [test] the kernel writes 8 of the buffer's 16 ints.
            unsafe { launch(stream, &LaunchConfig::linear(1, 8), kernel, &arguments) }
        })
        .called_with(&ALL)
        .allow(
            Allowed::KeepsAnswers,
            "INVALID_VALUE is how the driver says that a kernel has no more parameters; how many it has is kept",
        ),
        operation!("LaunchConfig::linear", || Ok(()), |()| Ok(LaunchConfig::linear(1, 8))).makes_no_call(),
        operation!("LaunchConfig::new", || Ok(()), |()| Ok(LaunchConfig::new([1; 3], [8, 1, 1]))).makes_no_call(),
        operation!("LaunchConfig::with_shared_bytes", config, |config| Ok(config.0.with_shared_bytes(64)))
            .makes_no_call(),
        operation!("Argument::bytes", || Ok(()), |()| Ok(Argument::bytes(&[1, 2]).len())).makes_no_call(),
        operation!("Argument::len", || Ok(()), |()| Ok(Argument::bytes(&[1, 2]).len())).makes_no_call(),
        operation!("Argument::is_empty", || Ok(()), |()| Ok(Argument::bytes(&[1, 2]).is_empty())).makes_no_call(),
    ]
}
