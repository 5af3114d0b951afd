//! The crate as a contender of `benches/bench.py`: the same cases as the C floor, through the safe interface.

use cuirass::graph::{CaptureMode, Graph, GraphBuilder, GraphCompleteOptions};
use cuirass::memory::DeviceMemoryResource;
use cuirass::{
    Argument, Buffer, CodeKind, Device, Event, EventOptions, Kernel, LaunchConfig, ObjectCode, Result, Stream,
    StreamOptions, launch,
};
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Barrier, Mutex, OnceLock, PoisonError};
use std::time::Instant;

struct Bench {
    device: Device,
    stream: Stream,
    event: Event,
    pool: DeviceMemoryResource,
    kernels: [Kernel; 3],
    buffer: Buffer,
    small: [Buffer; 2],
    /// Memory that stays allocated between two cases.
    live: Mutex<Vec<Buffer>>,
}

static BENCH: OnceLock<Bench> = OnceLock::new();

fn set_up(path: &str) -> Result<Bench> {
    let device = Device::new(0)?;
    device.set_current()?;
    let code = ObjectCode::new(CodeKind::Cubin, std::fs::read(path).unwrap_or_default());
    let stream = device.create_stream(&StreamOptions::default())?;
    let event = device.create_event(&EventOptions::default())?;
    let pool = device.memory_resource()?;
    let kernels = [code.kernel("k0")?, code.kernel("k2")?, code.kernel("k16")?];
    let buffer = pool.allocate(1 << 20, &stream)?;
    let small = [pool.allocate(256, &stream)?, pool.allocate(256, &stream)?];
    // SAFETY: [bench] the kernel takes nothing and does nothing.
    unsafe { launch(&stream, &LaunchConfig::linear(1, 32), &kernels[0], &[])? };
    stream.record(&event)?;
    stream.synchronize()?;
    Ok(Bench { device, stream, event, pool, kernels, buffer, small, live: Mutex::default() })
}

/// Sets everything up: 0, or a status.
///
/// # Safety
/// `path` is a text that ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn native_init(path: *const c_char) -> c_int {
    // SAFETY: [bench] the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy();
    match set_up(&path) {
        Ok(bench) => -c_int::from(BENCH.set(bench).is_err()),
        Err(error) => {
            eprintln!("{error}");
            error.code().map_or(-1, |code| code as c_int)
        }
    }
}

/// Nanoseconds a call over `n` calls; -1 for a case that there is not, less where it failed.
///
/// # Safety
/// `name` is a text that ends in NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn native_run(name: *const c_char, n: c_int) -> f64 {
    // SAFETY: [bench] the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let Some(bench) = BENCH.get() else { return -2.0 };
    match bench.run(&name, n) {
        Some(Ok(nanoseconds)) => nanoseconds,
        Some(Err(error)) => {
            eprintln!("{name}: {error}");
            -1000.0 - error.code().map_or(1.0, f64::from)
        }
        None => -1.0,
    }
}

/// Keeps the compiler from leaving a result out.
fn black_box_unit<T>(value: T) {
    std::hint::black_box(value);
}

fn timed(n: c_int, mut once: impl FnMut() -> Result<()>) -> Option<Result<f64>> {
    let start = Instant::now();
    for _ in 0..n {
        if let Err(error) = once() {
            return Some(Err(error));
        }
    }
    Some(Ok(start.elapsed().as_nanos() as f64 / f64::from(n)))
}

/// Captures ten launches, on a stream of their own as the C floor does.
fn bench_launches<'a>(
    config: &'a LaunchConfig,
    kernel: &'a Kernel,
    buffer: &'a Buffer,
) -> impl FnOnce() -> Result<GraphBuilder> + 'a {
    move || {
        let builder = Device::new(0)?.create_graph_builder()?;
        builder.begin_building(CaptureMode::Relaxed)?;
        for _ in 0..10 {
            // SAFETY: [bench] the kernel touches nothing for these arguments.
            unsafe { launch(builder.stream(), config, kernel, &[buffer.into(), (&5_i32).into()])? };
        }
        builder.end_building()?;
        Ok(builder)
    }
}

/// Makes what was captured executable; the builder is closed.
fn capture(building: impl FnOnce() -> Result<GraphBuilder>) -> Result<Graph> {
    let builder = building()?;
    let graph = builder.complete(&GraphCompleteOptions::default())?;
    builder.close()?;
    Ok(graph)
}

impl Bench {
    /// So many threads, each launching `n` times on a stream of its own: nanoseconds a launch, of all of them.
    fn threads(&self, count: usize, n: c_int) -> Result<f64> {
        let streams: Vec<Stream> =
            (0..count).map(|_| self.device.create_stream(&StreamOptions::default())).collect::<Result<_>>()?;
        let config = LaunchConfig::linear(1, 32);
        let ready = Barrier::new(count);
        let turn = |stream: &Stream| -> Result<(Instant, Instant)> {
            let current = self.device.set_current();
            ready.wait();
            current?;
            let start = Instant::now();
            for _ in 0..n {
                let arguments: [Argument; 2] = [(&self.buffer).into(), (&5_i32).into()];
                // SAFETY: [bench] the kernel touches nothing for these arguments.
                unsafe { launch(stream, &config, &self.kernels[1], &arguments)? };
            }
            Ok((start, Instant::now()))
        };
        let turns: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
            let all: Vec<_> = streams.iter().map(|stream| scope.spawn(|| turn(stream))).collect();
            all.into_iter().filter_map(|thread| thread.join().ok()).collect::<Result<_>>()
        })?;
        let (first, last) = (turns.iter().map(|turn| turn.0).min(), turns.iter().map(|turn| turn.1).max());
        let took = first.zip(last).map(|(first, last)| last - first).unwrap_or_default();
        let each = took.as_nanos() as f64 / f64::from(n) / count as f64;
        for stream in streams {
            stream.synchronize()?;
            stream.close()?;
        }
        Ok(each)
    }

    /// Memory that stays allocated, and its release: nanoseconds each.
    fn live(&self, case: &str, n: c_int) -> Option<Result<f64>> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.reserve(if case == "live_grow" { n as usize } else { 0 });
        match case {
            "live_grow" => timed(n, || {
                live.push(self.pool.allocate(256, &self.stream)?);
                Ok(())
            }),
            "live_drop" => timed(n, || live.pop().map_or(Ok(()), Buffer::close)),
            _ => None,
        }
    }

    fn run(&self, case: &str, n: c_int) -> Option<Result<f64>> {
        let Bench { device, stream, event, pool, kernels, buffer, small: [a, b], live: _ } = self;
        let config = LaunchConfig::linear(1, 32);
        let (int, float, double) = (5_i32, 1.0_f32, 1.0_f64);
        // SAFETY (of the launches): [bench] the kernels touch nothing for these arguments.
        match case {
            "device_ctor" => {
                timed(n, || Device::new(std::hint::black_box(0)).map(|device| black_box_unit(device.ordinal())))
            }
            "set_current" => timed(n, || device.set_current()),
            "stream_create_close" => timed(n, || device.create_stream(&StreamOptions::default())?.close()),
            "event_create_close" => timed(n, || device.create_event(&EventOptions::default())?.close()),
            "event_record" => timed(n, || stream.record(event)),
            "event_query" => timed(n, || event.is_done().map(|_done| ())),
            "stream_sync_idle" | "stream_sync" => timed(n, || stream.synchronize()),
            "alloc_free_256" => timed(n, || pool.allocate(256, stream)?.close()),
            "launch_config" => timed(n, || {
                std::hint::black_box(LaunchConfig::linear(1, 32));
                Ok(())
            }),
            // SAFETY: [bench] as above.
            "launch_0" => timed(n, || unsafe { launch(stream, &config, &kernels[0], &[]) }),
            "launch_2" => timed(n, || {
                let arguments: [Argument; 2] = [buffer.into(), (&int).into()];
                // SAFETY: [bench] as above.
                unsafe { launch(stream, &config, &kernels[1], &arguments) }
            }),
            "launch_16" => timed(n, || {
                let (p, i, f, d): (Argument, Argument, Argument, Argument) =
                    (buffer.into(), (&int).into(), (&float).into(), (&double).into());
                let arguments = [p, p, p, p, p, p, p, p, i, i, i, i, f, f, d, d];
                // SAFETY: [bench] as above.
                unsafe { launch(stream, &config, &kernels[2], &arguments) }
            }),
            "copy_d2d_256" => timed(n, || b.copy_from(a, stream)),
            "graph_launch_10" => {
                let graph = match capture(bench_launches(&config, &kernels[1], buffer)) {
                    Ok(graph) => graph,
                    Err(error) => return Some(Err(error)),
                };
                // The first launch brings the graph to the device: the floor's has been launched before, and so must this.
                if let Err(error) = graph.launch(stream).and_then(|()| stream.synchronize()) {
                    return Some(Err(error));
                }
                timed(n, || graph.launch(stream))
            }
            "capture_10_complete" => timed(n, || capture(bench_launches(&config, &kernels[1], buffer))?.close()),
            "fill_256" => timed(n, || a.fill(0, stream)),
            "live_grow" | "live_drop" => self.live(case, n),
            case => Some(self.threads(case.strip_prefix("threads_")?.parse().ok()?, n)),
        }
    }
}
