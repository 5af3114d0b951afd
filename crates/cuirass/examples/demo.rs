//! The main job, in Rust: a CUDA C++ program compiled by NVRTC, run on two streams with pooled memory, its results
//! checked; then what failures look like.
//!
//! `cargo run -p cuirass --example demo [gpu|sim]`. On the simulated device it needs two paths in the environment, which
//! the Makefile sets: `CUIRASS_SIM_LIBRARY` (`cargo build -p cuirass-sim-libs` makes it) and `CUIRASS_NVRTC`.

use cuirass::{
    Argument, Device, EventOptions, Kernel, LaunchConfig, Program, ProgramOptions, Result, Stream, StreamOptions,
    driver, launch,
};
use std::process::{Command, ExitCode};

/// The same kernels as `python -m cuirass demo`.
const KERNELS: &str = include_str!("../../../python/cuirass/demo_kernels.cu");
const N: usize = 1 << 20;
const SIDE: usize = 128;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--fault"] => return fault(),
        [] => run(None),
        ["gpu"] => run(Some(driver::Driver::Gpu)),
        ["sim"] => run(Some(driver::Driver::Simulator)),
        _ => {
            eprintln!("usage: demo [gpu|sim]");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(choice: Option<driver::Driver>) -> Result<bool> {
    match choice {
        Some(choice) => driver::choose(choice)?,
        None if std::env::var_os("CUIRASS_DRIVER").is_none() && driver::version().is_err() => {
            println!("no CUDA driver here: using the simulated device");
            driver::choose(driver::Driver::Simulator)?;
        }
        None => {}
    }
    let device = Device::new(0)?;
    let found = driver::loaded();
    let simulated = found.as_ref().is_some_and(|library| library.is_simulator);
    println!("device 0: {}, {}", device.name()?, if simulated { "simulated" } else { "a GPU" });
    let code = Program::new(KERNELS, &ProgramOptions::for_device(device)?)?.compile_to_cubin()?;
    let (first, second) =
        (device.create_stream(&StreamOptions::default())?, device.create_stream(&StreamOptions::default())?);
    let mut all = true;
    println!("{:<10} {:>8} {:>12}  result", "kernel", "stream", "ms");
    let mut row = |name: &str, stream: &str, milliseconds: f32, right: bool| {
        println!("{name:<10} {stream:>8} {milliseconds:>12.3}  {}", if right { "verified" } else { "WRONG" });
        all &= right;
    };

    let (x, y) = (numbers(N, 7), numbers(N, 13));
    let pool = device.memory_resource()?;
    let (gx, gy) = (pool.allocate(4 * N, &first)?, pool.allocate(4 * N, &first)?);
    gx.copy_from_slice(&x, &first)?;
    gy.copy_from_slice(&y, &first)?;
    let n = i32::try_from(N).unwrap_or(i32::MAX);
    let blocks = u32::try_from(N.div_ceil(256)).unwrap_or(u32::MAX);
    let saxpy: [Argument; 4] = [(&2.5_f32).into(), (&gx).into(), (&gy).into(), (&n).into()];
    let time = timed(&first, &LaunchConfig::linear(blocks, 256), &code.kernel("saxpy")?, &saxpy)?;
    let done = first.record_new(&EventOptions::default())?;
    let mut result = vec![0.0_f32; N];

    // The sum runs on the second stream, behind the saxpy: an event orders them.
    second.wait(&done)?;
    let sum = pool.allocate(8, &second)?;
    sum.fill(0, &second)?;
    let addends: [Argument; 3] = [(&gy).into(), (&sum).into(), (&n).into()];
    let sum_time = timed(&second, &LaunchConfig::linear(blocks, 256), &code.kernel("block_sum")?, &addends)?;
    first.wait_for_stream(&second)?;

    gy.copy_to_slice(&mut result, &first)?;
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x.mul_add(2.5, *y)).collect();
    row("saxpy", "first", time, result == expected);
    let mut total = [0.0_f64];
    sum.copy_to_slice(&mut total, &second)?;
    let exact: f64 = expected.iter().map(|value| f64::from(*value)).sum();
    row("block_sum", "second", sum_time, (total[0] - exact).abs() <= exact.abs() * 1e-9);

    let (a, b) = (numbers(SIDE * SIDE, 5), numbers(SIDE * SIDE, 11));
    let bytes = 4 * SIDE * SIDE;
    let (ga, gb, gc) = (pool.allocate(bytes, &first)?, pool.allocate(bytes, &first)?, pool.allocate(bytes, &first)?);
    ga.copy_from_slice(&a, &first)?;
    gb.copy_from_slice(&b, &first)?;
    let side = i32::try_from(SIDE).unwrap_or(i32::MAX);
    let tiles = u32::try_from(SIDE / 16).unwrap_or(u32::MAX);
    let matmul: [Argument; 4] = [(&ga).into(), (&gb).into(), (&gc).into(), (&side).into()];
    let config = LaunchConfig::new([tiles, tiles, 1], [16, 16, 1]);
    let time = timed(&first, &config, &code.kernel("matmul")?, &matmul)?;
    let mut product = vec![0.0_f32; SIDE * SIDE];
    gc.copy_to_slice(&mut product, &first)?;
    let right = (0..SIDE * SIDE).all(|at| {
        let (row, column) = (at / SIDE, at % SIDE);
        let exact: f64 = (0..SIDE).map(|k| f64::from(a[row * SIDE + k]) * f64::from(b[k * SIDE + column])).sum();
        (f64::from(product[at]) - exact).abs() <= exact.abs().mul_add(1e-4, 1e-4)
    });
    row("matmul", "first", time, right);

    println!("\nwhat failures look like:");
    let refused = pool.allocate(1 << 50, &first);
    all &= shown("an allocation that cannot succeed", refused.err().as_ref());
    // SAFETY: refused before the launch, where the driver can tell the sizes; the kernel does nothing for n = 0.
    let refused = unsafe {
        let arguments: [Argument; 4] = [(&2.5_f64).into(), (&gx).into(), (&gy).into(), (&0_i32).into()];
        launch(&first, &LaunchConfig::linear(1, 1), &code.kernel("saxpy")?, &arguments)
    };
    let refused = match refused {
        // Before CUDA 12.4 a driver does not tell what a kernel takes, and says so when it is asked.
        Ok(()) if driver::version()? < 12040 => {
            first.synchronize()?;
            code.kernel("saxpy")?.parameters().err()
        }
        other => other.err(),
    };
    all &= shown("a launch with a wrong argument", refused.as_ref());
    all &= fault_in_child(simulated);
    println!("\n{}", if all { "all results verified" } else { "SOMETHING IS WRONG" });
    Ok(all)
}

/// Launches between two timed events; the milliseconds between them.
fn timed(stream: &Stream, config: &LaunchConfig, kernel: &Kernel, arguments: &[Argument<'_>]) -> Result<f32> {
    let start = stream.record_new(&EventOptions::timed())?;
    // SAFETY: the callers give each kernel its own arguments, with buffers of the sizes that it works on.
    unsafe { launch(stream, config, kernel, arguments)? };
    let end = stream.record_new(&EventOptions::timed())?;
    end.synchronize()?;
    Ok(start.elapsed_until(&end)?.unwrap_or(0.0))
}

fn numbers(count: usize, step: u32) -> Vec<f32> {
    (0..count as u32).map(|i| (i.wrapping_mul(step) % 1000) as f32 / 1000.0).collect()
}

fn shown(what: &str, error: Option<&cuirass::Error>) -> bool {
    match error {
        Some(error) => println!("- {what}:\n    {}", error.to_string().replace('\n', "\n    ")),
        None => println!("- {what}: NO ERROR"),
    }
    error.is_some()
}

/// A kernel that writes where nothing is, in a process of its own, since such a fault ends a context.
fn fault_in_child(simulated: bool) -> bool {
    let Ok(program) = std::env::current_exe() else { return false };
    let driver = if simulated { "sim" } else { "gpu" };
    match Command::new(program).arg("--fault").env("CUIRASS_DRIVER", driver).output() {
        Ok(output) => {
            println!("- a kernel that faults (in a child process):");
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                println!("    {line}");
            }
            output.status.success()
        }
        Err(error) => {
            println!("- the child process could not be started: {error}");
            false
        }
    }
}

fn fault() -> ExitCode {
    let attempt = || -> Result<()> {
        let device = Device::new(0)?;
        let stream = device.create_stream(&StreamOptions::default())?;
        let code = Program::new(KERNELS, &ProgramOptions::for_device(device)?)?.compile_to_cubin()?;
        let nowhere = 0x10_u64;
        // SAFETY: not kept on purpose: the kernel writes to an address that nobody owns. The device catches it.
        unsafe { launch(&stream, &LaunchConfig::linear(1, 1), &code.kernel("write_nowhere")?, &[(&nowhere).into()])? };
        stream.synchronize()
    };
    match attempt() {
        Err(error) if error.is_sticky() => {
            println!("{error}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("another error than a fault: {error}");
            ExitCode::FAILURE
        }
        Ok(()) => {
            println!("no error");
            ExitCode::FAILURE
        }
    }
}
