//! What the tests of graphs share.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::graph::{CaptureMode, Graph, GraphBuilder, GraphCompleteOptions};
use cuirass::memory::DeviceMemoryResource;
use cuirass::{Buffer, Device, Kernel, Program, ProgramOptions, Stream, StreamOptions};
use cuirass_testkit as testkit;
use std::sync::OnceLock;

pub const MODES: [CaptureMode; 3] = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

pub fn device() -> Device {
    Device::new(0).unwrap()
}

pub fn stream() -> Stream {
    device().create_stream(&StreamOptions::default()).unwrap()
}

pub fn pool() -> DeviceMemoryResource {
    device().memory_resource().unwrap()
}

/// A kernel that adds `by` to each of `n` numbers.
pub fn add() -> &'static Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    KERNEL.get_or_init(fresh_add)
}

/// The same, loaded anew.
pub fn fresh_add() -> Kernel {
    let source = "extern \"C\" __global__ void add(int* x, int by, int n) { \
                  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += by; }";
    let options = ProgramOptions::for_device(device()).unwrap();
    Program::new(source, &options).unwrap().compile_to_cubin().unwrap().kernel("add").unwrap()
}

/// Adds `by` to a buffer of numbers, in the stream's order.
pub fn launch_add(stream: &Stream, kernel: &Kernel, buffer: &Buffer, by: i32) -> cuirass::Result<()> {
    let n = i32::try_from(buffer.len() / 4).unwrap();
    let config = cuirass::LaunchConfig::linear(u32::try_from(n).unwrap().div_ceil(64), 64);
    // SAFETY: [test] the kernel touches the buffer's own numbers.
    unsafe { cuirass::launch(stream, &config, kernel, &[buffer.into(), (&by).into(), (&n).into()]) }
}

pub fn numbers(count: usize, stream: &Stream) -> Buffer {
    let buffer = pool().allocate(count * 4, stream).unwrap();
    buffer.fill(0, stream).unwrap();
    buffer
}

pub fn read(buffer: &Buffer, stream: &Stream) -> Vec<i32> {
    let mut values = vec![0_i32; buffer.len() / 4];
    buffer.copy_to_slice(&mut values, stream).unwrap();
    values
}

pub fn complete(builder: &GraphBuilder) -> Graph {
    builder.complete(&GraphCompleteOptions::default()).unwrap()
}

/// What is alive, for comparing: the simulated driver's census, once everything has settled.
pub fn census() -> Option<String> {
    cuirass::drain();
    testkit::census()
}

/// Runs one of this program's tests in a process of its own, with a word of its own in the environment. True in that
/// process.
pub fn in_fresh_process(test: &str, word: &str) {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored", "--test-threads=1"])
        .env("CUIRASS_TEST_CASE", word)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{test} with {word}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The word that [`in_fresh_process`] gave this process.
pub fn case() -> Option<String> {
    std::env::var("CUIRASS_TEST_CASE").ok()
}
