//! Running a grid.
use crate::{DeviceMemory, Fault, FaultKind, Host, Launch, Limits, Stats};
/// Runs a grid to its end, with the everyday limits.
///
/// # Errors
/// The first fault of any block.
pub fn run(launch: &Launch<'_>, memory: &dyn DeviceMemory, host: &dyn Host) -> Result<Stats, Fault> {
    run_with(launch, memory, host, &Limits::default())
}
/// Runs a grid to its end.
///
/// # Errors
/// The first fault of any block.
pub fn run_with(launch: &Launch<'_>, _memory: &dyn DeviceMemory, _host: &dyn Host, _limits: &Limits) -> Result<Stats, Fault> {
    Err(Fault { kind: FaultKind::Unsupported("everything".into()), kernel: launch.kernel.name().into(), block: [0; 3], thread: [0; 3], instruction: String::new(), line: 0, address: None, access_bytes: 0, write: false })
}
