//! One case of the host paths, a number of times, over the driver that does nothing: callgrind counts the
//! instructions (`cargo xtask instructions`).
//!
//! `instructions CASE N`

use cuirass::graph::{CaptureMode, GraphCompleteOptions};
use cuirass::{Argument, CodeKind, Device, EventOptions, LaunchConfig, ObjectCode, Result, StreamOptions, launch};
use std::hint::black_box;
use std::process::ExitCode;

/// The cases, in the order that they are listed in.
const CASES: [&str; 17] = [
    "device_ctor",
    "set_current",
    "stream_create_close",
    "event_create_close",
    "event_record",
    "event_query",
    "stream_sync_idle",
    "stream_wait",
    "alloc_free_256",
    "alloc_free_256_of_100000",
    "alloc_all_free_all_256",
    "launch_2",
    "copy_d2d_256",
    "fill_256",
    "launch_config",
    "graph_launch",
    "capture_10_complete",
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let (case, count) = match words.as_slice() {
        [_, list] if list == "--list" => {
            println!("{}", CASES.join("\n"));
            return ExitCode::SUCCESS;
        }
        [_, case, count] => (case.as_str(), count.parse().unwrap_or(0)),
        _ => return ExitCode::from(2),
    };
    match run(case, count) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Keeps the compiler from leaving a result out.
fn used<T>(value: T) {
    black_box(value);
}

fn repeat(count: u32, mut once: impl FnMut() -> Result<()>) -> Result<bool> {
    for _ in 0..count {
        once()?;
    }
    Ok(true)
}

fn run(case: &str, n: u32) -> Result<bool> {
    let device = Device::new(0)?;
    device.set_current()?;
    let stream = device.create_stream(&StreamOptions::default())?;
    let event = device.create_event(&EventOptions::default())?;
    let pool = device.memory_resource()?;
    let kernel = ObjectCode::new(CodeKind::Ptx, b"// nothing loads this".to_vec()).kernel("k2")?;
    let (a, b) = (pool.allocate(256, &stream)?, pool.allocate(256, &stream)?);
    let config = LaunchConfig::linear(1, 32);
    let int = 5_i32;
    match case {
        "device_ctor" => repeat(n, || Device::new(black_box(0)).map(|device| used(device.ordinal()))),
        "set_current" => repeat(n, || device.set_current()),
        "stream_create_close" => repeat(n, || device.create_stream(&StreamOptions::default())?.close()),
        "event_create_close" => repeat(n, || device.create_event(&EventOptions::default())?.close()),
        "event_record" => repeat(n, || stream.record(&event)),
        "event_query" => repeat(n, || event.is_done().map(used)),
        "stream_sync_idle" => repeat(n, || stream.synchronize()),
        "stream_wait" => repeat(n, || stream.wait(&event)),
        "alloc_free_256" => repeat(n, || pool.allocate(256, &stream)?.close()),
        // Beside 100,000 that are alive: what it costs with two, or the cost grows.
        "alloc_free_256_of_100000" => {
            let mut alive = Vec::with_capacity(100_000);
            repeat(100_000, || pool.allocate(256, &stream).map(|buffer| alive.push(buffer)))?;
            repeat(n, || pool.allocate(256, &stream)?.close())
        }
        // Releasing many is linear, or this grows.
        "alloc_all_free_all_256" => {
            let mut alive = Vec::with_capacity(n as usize);
            repeat(n, || pool.allocate(256, &stream).map(|buffer| alive.push(buffer)))
        }
        "launch_2" => repeat(n, || {
            let arguments: [Argument; 2] = [(&a).into(), (&int).into()];
            // SAFETY: [bench] the driver runs nothing.
            unsafe { launch(&stream, &config, &kernel, &arguments) }
        }),
        "copy_d2d_256" => repeat(n, || a.copy_from(&b, &stream)),
        "fill_256" => repeat(n, || a.fill(0, &stream)),
        "graph_launch" => {
            let builder = stream.create_graph_builder()?;
            builder.begin_building(CaptureMode::Relaxed)?;
            builder.end_building()?;
            let graph = builder.complete(&GraphCompleteOptions::default())?;
            repeat(n, || graph.launch(&stream))
        }
        "capture_10_complete" => repeat(n, || {
            let builder = stream.create_graph_builder()?;
            builder.begin_building(CaptureMode::Relaxed)?;
            for _ in 0..10 {
                let arguments: [Argument; 2] = [(&a).into(), (&int).into()];
                // SAFETY: [bench] the driver runs nothing.
                unsafe { launch(builder.stream(), &config, &kernel, &arguments)? };
            }
            builder.end_building()?;
            let graph = builder.complete(&GraphCompleteOptions::default())?;
            graph.close()?;
            builder.close()
        }),
        "launch_config" => repeat(n, || {
            black_box(LaunchConfig::linear(black_box(1), black_box(32)));
            Ok(())
        }),
        _ => Ok(false),
    }
}
