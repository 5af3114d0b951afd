//! Programs, kernels and launches, on whichever driver the tests run. NVRTC is real in both cases.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuirass::testing::{Fault, Recording};
use cuirass::{
    Argument, CodeKind, Context, Device, ErrorKind, Kernel, KernelAttribute, LaunchConfig, ObjectCode, Program,
    ProgramOptions, Stream, StreamOptions, launch, status,
};
use cuirass_testkit as testkit;

const SOURCE: &str = r#"
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void nothing() {}
extern "C" __global__ void bytes(unsigned char* to, char a, short b, long long c, double d, bool e) {
    to[0] = a; *(short*)(to + 2) = b; *(long long*)(to + 8) = c; *(double*)(to + 16) = d; to[24] = e;
}
extern "C" __global__ void dynamic(int* to) {
    extern __shared__ int shared[];
    shared[threadIdx.x] = threadIdx.x;
    __syncthreads();
    to[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}
template <typename T> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by; }
__device__ int counter = 41;
extern "C" __global__ void count() { counter += 1; }
"#;

fn device() -> Device {
    Device::new(0).unwrap()
}

fn stream() -> Stream {
    device().create_stream(&StreamOptions::default()).unwrap()
}

fn code() -> ObjectCode {
    let options = ProgramOptions {
        name_expressions: vec!["scale<float>".into(), "scale<double>".into()],
        ..ProgramOptions::for_device(device()).unwrap()
    };
    Program::new(SOURCE, &options).unwrap().compile_to_cubin().unwrap()
}

fn kernel(name: &str) -> Kernel {
    code().kernel(name).unwrap()
}

#[test]
fn a_program_is_compiled_launched_and_checked() {
    let _alone = testkit::alone();
    let stream = stream();
    let pool = device().memory_resource().unwrap();
    let n = 100_000_i32;
    let x: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
    let y: Vec<f32> = (0..n).map(|i| 1.0 - i as f32).collect();
    let (gx, gy) = (pool.allocate(400_000, &stream).unwrap(), pool.allocate(400_000, &stream).unwrap());
    gx.copy_from_slice(&x, &stream).unwrap();
    gy.copy_from_slice(&y, &stream).unwrap();
    let config = LaunchConfig::linear(100_000_u32.div_ceil(256), 256);
    let arguments: [Argument; 4] = [(&3.0_f32).into(), (&gx).into(), (&gy).into(), (&n).into()];
    // SAFETY: [test] the arguments are the kernel's, the buffers have `n` floats.
    unsafe { launch(&stream, &config, &kernel("saxpy"), &arguments).unwrap() };
    let mut result = vec![0.0_f32; x.len()];
    gy.copy_to_slice(&mut result, &stream).unwrap();
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 3.0_f32.mul_add(*x, *y)).collect();
    assert_eq!(result, expected);
}

#[test]
fn scalars_reach_the_kernel_bit_for_bit() {
    let _alone = testkit::alone();
    let stream = stream();
    let buffer = device().memory_resource().unwrap().allocate(32, &stream).unwrap();
    buffer.fill(0, &stream).unwrap();
    let (a, b, c, d, e) = (-5_i8, -300_i16, 0x0123_4567_89ab_cdef_i64, -0.1_f64, true);
    let arguments = [(&buffer).into(), (&a).into(), (&b).into(), (&c).into(), (&d).into(), (&e).into()];
    // SAFETY: [test] the kernel writes 25 of 32 bytes.
    unsafe { launch(&stream, &LaunchConfig::linear(1, 1), &kernel("bytes"), &arguments).unwrap() };
    let mut bytes = [0_u8; 32];
    buffer.copy_to_slice(&mut bytes, &stream).unwrap();
    assert_eq!(bytes[0], 0xfb);
    assert_eq!(bytes[2..4], b.to_le_bytes());
    assert_eq!(bytes[8..16], c.to_le_bytes());
    assert_eq!(bytes[16..24], d.to_le_bytes());
    assert_eq!(bytes[24], 1);
}

#[test]
fn wrong_arguments_are_refused_before_the_launch() {
    let _alone = testkit::alone();
    if testkit::driver_version() < 12040 {
        let (stream, kernel) = (stream(), kernel("saxpy"));
        let error = kernel.parameters().unwrap_err();
        assert_eq!((error.kind(), error.call()), (ErrorKind::Unsupported, "cuKernelGetParamInfo"));
        assert!(error.to_string().contains("needs a driver of CUDA 12.4, this one is of CUDA 12."), "{error}");
        // Nothing is known to hold the arguments against.
        assert_eq!((kernel.parameters_on(&stream).unwrap(), kernel.known_parameters()), (None, None));
        return;
    }
    let stream = stream();
    let kernel = kernel("saxpy");
    let buffer = device().memory_resource().unwrap().allocate(64, &stream).unwrap();
    let sizes: Vec<_> = kernel.parameters().unwrap().iter().map(|p| (p.offset, p.size)).collect();
    assert_eq!(sizes, [(0, 4), (8, 8), (16, 8), (24, 4)]);
    let recording = Recording::start();
    let few: [Argument; 3] = [(&1.0_f32).into(), (&buffer).into(), (&buffer).into()];
    let wide: [Argument; 4] = [(&1.0_f64).into(), (&buffer).into(), (&buffer).into(), (&1_i32).into()];
    for (arguments, text) in [
        (&few[..], "kernel saxpy takes 4 arguments, 3 were given"),
        (&wide[..], "kernel saxpy: parameter 0 has 4 bytes, the argument has 8"),
    ] {
        // SAFETY: [test] refused before the launch.
        let error = unsafe { launch(&stream, &LaunchConfig::linear(1, 1), &kernel, arguments) }.unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Value, text));
    }
    assert!(recording.take().is_empty());
}

#[test]
fn a_launch_that_the_driver_refuses_says_why() {
    let _alone = testkit::alone();
    let stream = stream();
    let kernel = kernel("nothing");
    for (config, why) in [
        (LaunchConfig::linear(0, 1), "at least one block"),
        (LaunchConfig::linear(1, 0), "at least one thread"),
        (LaunchConfig::linear(1, 2048), "at most 1024 threads, this one would have 2048"),
        (LaunchConfig::new([1; 3], [u32::MAX; 3]), "at most 1024 threads"),
        (LaunchConfig::new([1; 3], [1, 1, 65]), "at most 64 threads in z, this one would have 65"),
        (LaunchConfig::new([1, 65536, 1], [1; 3]), "at most 65535 blocks in y and in z, this one would have 65536"),
        (LaunchConfig::new([1, 1, 70000], [1; 3]), "this one would have 70000"),
        (LaunchConfig::linear(1, 1).with_shared_bytes(65536), "max_dynamic_shared_size_bytes = 65536"),
    ] {
        // SAFETY: [test] the kernel takes nothing and does nothing.
        let error = unsafe { launch(&stream, &config, &kernel, &[]) }.unwrap_err();
        assert_eq!((error.code(), error.call()), (Some(status::CUDA_ERROR_INVALID_VALUE), "cuLaunchKernelEx"));
        assert!(error.to_string().contains("block"), "{error}");
        assert!(error.notes().iter().any(|note| note.contains(why)), "{config:?}: {:?}", error.notes());
    }
    let fault = Fault::in_call("cuLaunchKernelEx").status(status::CUDA_ERROR_INVALID_VALUE).inject().unwrap();
    // SAFETY: [test] as above.
    let error = unsafe { launch(&stream, &LaunchConfig::linear(1, 1), &kernel, &[]) }.unwrap_err();
    assert!(error.notes().is_empty() && fault.count() == 1, "the shape is not what is wrong: {:?}", error.notes());
    // SAFETY: [test] as above.
    unsafe { launch(&stream, &LaunchConfig::linear(3, 64), &kernel, &[]).unwrap() };
    stream.synchronize().unwrap();
}

#[test]
fn dynamic_shared_memory_and_templates() {
    let _alone = testkit::alone();
    let stream = stream();
    let pool = device().memory_resource().unwrap();
    let buffer = pool.allocate(256, &stream).unwrap();
    let config = LaunchConfig::linear(1, 64).with_shared_bytes(256);
    // SAFETY: [test] 64 threads write 64 ints.
    unsafe { launch(&stream, &config, &kernel("dynamic"), &[(&buffer).into()]).unwrap() };
    let mut result = [0_i32; 64];
    buffer.copy_to_slice(&mut result, &stream).unwrap();
    assert!(result.iter().enumerate().all(|(i, value)| *value == 63 - i as i32));
    let doubles = pool.allocate(32, &stream).unwrap();
    doubles.copy_from_slice(&[1.0, 2.0, 3.0, 4.0], &stream).unwrap();
    let arguments = [(&doubles).into(), (&2.5_f64).into()];
    // SAFETY: [test] 4 threads for 4 doubles.
    unsafe { launch(&stream, &LaunchConfig::linear(1, 4), &kernel("scale<double>"), &arguments).unwrap() };
    let mut result = [0.0; 4];
    doubles.copy_to_slice(&mut result, &stream).unwrap();
    assert_eq!(result, [2.5, 5.0, 7.5, 10.0]);
}

#[test]
fn globals_have_addresses() {
    let _alone = testkit::alone();
    let stream = stream();
    let code = code();
    let (address, bytes) = code.global("counter", device()).unwrap();
    assert_eq!(bytes, 4);
    // SAFETY: [test] the kernel takes nothing and adds one.
    unsafe { launch(&stream, &LaunchConfig::linear(1, 1), &code.kernel("count").unwrap(), &[]).unwrap() };
    // SAFETY: [test] the variable lives as long as the code.
    let buffer = unsafe { cuirass::Buffer::borrow_raw(address, bytes, None) };
    let mut value = [0_i32];
    buffer.copy_to_slice(&mut value, &stream).unwrap();
    assert_eq!(value, [42]);
    assert_eq!(code.global("missing", device()).unwrap_err().code(), Some(500));
}

#[test]
fn kernels_have_attributes() {
    let _alone = testkit::alone();
    let kernel = kernel("saxpy");
    let attribute = |attribute| kernel.attribute(attribute, device()).unwrap();
    assert_eq!(attribute(KernelAttribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
    assert_eq!(attribute(KernelAttribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 0);
    assert!(attribute(KernelAttribute::CU_FUNC_ATTRIBUTE_NUM_REGS) > 0);
    kernel.set_attribute(KernelAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100_000, device()).unwrap();
    assert_eq!(attribute(KernelAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 100_000);
    assert_eq!(kernel.max_active_blocks(256, 0, device()).unwrap(), 8);
    let (grid, block) = kernel.max_potential_block_size(0, 0, device()).unwrap();
    assert!(grid >= 132 && block == 1024, "{grid} {block}");
}

#[test]
fn a_kernel_keeps_its_code_loaded() {
    let _alone = testkit::alone();
    let stream = stream();
    let code = code();
    let kernel = code.kernel("nothing").unwrap();
    let recording = Recording::start();
    code.close().unwrap();
    assert!(recording.take().is_empty());
    // SAFETY: [test] the kernel takes nothing and does nothing.
    unsafe { launch(&stream, &LaunchConfig::linear(1, 1), &kernel, &[]).unwrap() };
    stream.synchronize().unwrap();
    drop(kernel);
    assert!(recording.take().iter().any(|call| call.call == "cuLibraryUnload" && call.status == 0));
}

/// The functions that launches were made by, and how often one was asked for.
fn functions(recording: &Recording) -> (Vec<u64>, usize) {
    let calls = recording.take();
    let launches = calls.iter().filter(|call| call.call == "cuLaunchKernelEx").map(|call| call.arguments[1]);
    let asked = calls.iter().filter(|call| call.call == "cuKernelGetFunction").count();
    (launches.collect(), asked)
}

fn launch_count(stream: &Stream, kernel: &Kernel) {
    // SAFETY: [test] the kernel takes nothing and counts in a variable of its own.
    unsafe { launch(stream, &LaunchConfig::linear(1, 1), kernel, &[]).unwrap() };
}

#[test]
fn a_kernel_is_looked_up_once_in_each_context() {
    let _alone = testkit::alone();
    let kernel = kernel("count");
    let handle = kernel.as_raw().addr() as u64;
    let (one, other) = (stream(), stream());
    let recording = Recording::start();
    [&one, &other, &one].iter().for_each(|stream| launch_count(stream, &kernel));
    let (first, asked) = functions(&recording);
    assert_eq!((asked, first.len()), (1, 3));
    assert!(first.iter().all(|function| *function == first[0] && *function != handle), "{first:x?}, {handle:x}");
    // A default stream follows whatever context is current.
    device().set_current().unwrap();
    launch_count(&Stream::legacy_default(), &kernel);
    assert_eq!(functions(&recording), (vec![handle], 0));
    one.synchronize().unwrap();
    other.synchronize().unwrap();
    Stream::legacy_default().synchronize().unwrap();
    // A context that comes after one that has ended, maybe at the same address, is another one; and from some on
    // there is no room.
    let mut asked = 0;
    for round in 0..10 {
        let context = Context::create(device()).unwrap();
        let stream = Stream::create(&context, &StreamOptions::default()).unwrap();
        launch_count(&stream, &kernel);
        launch_count(&stream, &kernel);
        stream.synchronize().unwrap();
        let (made_by, now) = functions(&recording);
        assert!(made_by[0] == made_by[1] && (made_by[0] == handle) == (now == 0), "{round}: {made_by:x?}, {now}");
        asked += now;
        stream.close().unwrap();
        context.close().unwrap();
    }
    assert_eq!(asked, 7);
    // The first one is known still.
    launch_count(&other, &kernel);
    assert_eq!(functions(&recording), (vec![first[0]], 0));
    other.synchronize().unwrap();
}

#[test]
fn threads_that_launch_a_kernel_first_at_once_agree() {
    let _alone = testkit::alone();
    let kernel = kernel("nothing");
    let streams: Vec<Stream> = (0..4).map(|_| stream()).collect();
    let recording = Recording::start();
    std::thread::scope(|scope| {
        for stream in &streams {
            scope.spawn(|| (0..50).for_each(|_| launch_count(stream, &kernel)));
        }
    });
    let (made_by, asked) = functions(&recording);
    assert!((1..=4).contains(&asked) && made_by.len() == 200, "{asked}, {}", made_by.len());
    assert!(made_by.iter().all(|function| *function == made_by[0]));
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
}

#[test]
fn shared_memory_that_was_allowed_after_the_first_launch() {
    let _alone = testkit::alone();
    let stream = stream();
    let buffer = device().memory_resource().unwrap().allocate(256, &stream).unwrap();
    let kernel = kernel("dynamic");
    let run = |bytes| {
        let config = LaunchConfig::linear(1, 64).with_shared_bytes(bytes);
        // SAFETY: [test] 64 threads write 64 ints.
        unsafe { launch(&stream, &config, &kernel, &[(&buffer).into()]) }
    };
    run(256).unwrap();
    assert!(run(100_000).is_err());
    kernel.set_attribute(KernelAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100_000, device()).unwrap();
    run(100_000).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_missing_kernel_is_not_found() {
    let _alone = testkit::alone();
    let error = code().kernel("absent").unwrap_err();
    assert_eq!((error.code(), error.call()), (Some(500), "cuLibraryGetKernel"));
    assert!(error.to_string().contains("absent"), "{error}");
    assert_eq!(code().kernel("a\0b").unwrap_err().kind(), ErrorKind::Value);
}

#[test]
fn compile_errors_carry_the_whole_log() {
    let _alone = testkit::alone();
    let program = Program::new("__global__ void k() { int x = undefined_name; }", &ProgramOptions::default()).unwrap();
    let error = program.compile_to_ptx().unwrap_err();
    assert_eq!((error.kind(), error.call()), (ErrorKind::Compiler, "nvrtcCompileProgram"));
    assert!(error.log().unwrap().contains("undefined_name"), "{error}");
    assert!(error.to_string().contains("undefined_name"), "{error}");
    program.close().unwrap();
    let unknown = ProgramOptions { options: vec!["--no-such-option".into()], ..ProgramOptions::default() };
    let error = Program::new("", &unknown).unwrap().compile_to_ptx().unwrap_err();
    assert_eq!(error.code(), Some(5), "{error}");
}

#[test]
fn a_header_that_is_not_found_is_told_where_headers_are() {
    let _alone = testkit::alone();
    let source = "#include <not_there.h>\n";
    let error = Program::new(source, &ProgramOptions::default()).unwrap().compile_to_ptx().unwrap_err();
    let [note] = error.notes() else { panic!("one note: {:?}", error.notes()) };
    assert!(note.contains("include_path in Python") && note.contains("-I"), "{note}");
}

#[test]
fn warnings_are_in_the_log_of_a_success() {
    let _alone = testkit::alone();
    let source = "extern \"C\" __global__ void k() { int unused; }";
    let compiled = Program::new(source, &ProgramOptions::default()).unwrap().compile(CodeKind::Ptx).unwrap();
    assert!(compiled.log.contains("unused"), "{}", compiled.log);
    assert_eq!(compiled.code.kind(), CodeKind::Ptx);
    assert!(compiled.code.bytes().starts_with(b"//"));
}

#[test]
fn a_source_with_headers_compiles() {
    let _alone = testkit::alone();
    let options = ProgramOptions {
        headers: vec![("answer.h".into(), "#define ANSWER 42".into())],
        ..ProgramOptions::for_device(device()).unwrap()
    };
    let source = "#include \"answer.h\"\nextern \"C\" __global__ void k(int* to) { *to = ANSWER; }";
    let kernel = Program::new(source, &options).unwrap().compile_to_cubin().unwrap().kernel("k").unwrap();
    let stream = stream();
    let buffer = device().memory_resource().unwrap().allocate(4, &stream).unwrap();
    // SAFETY: [test] one thread writes one int.
    unsafe { launch(&stream, &LaunchConfig::linear(1, 1), &kernel, &[(&buffer).into()]).unwrap() };
    let mut value = [0_i32];
    buffer.copy_to_slice(&mut value, &stream).unwrap();
    assert_eq!(value, [42]);
}

#[test]
fn what_cannot_be_loaded_is_refused() {
    let _alone = testkit::alone();
    assert_eq!(ObjectCode::new(CodeKind::LtoIr, b"x".to_vec()).kernel("k").unwrap_err().kind(), ErrorKind::State);
    // A driver may load what it is given when it is first used.
    let error = ObjectCode::new(CodeKind::Ptx, b"no ptx".to_vec()).kernel("k").unwrap_err();
    assert!(["cuLibraryLoadData", "cuLibraryGetKernel"].contains(&error.call()), "{error}");
    println!("what is no PTX: {error}");
    assert_eq!(ObjectCode::new(CodeKind::Cubin, b"\x7fELF".to_vec()).kernel("k").unwrap_err().kind(), ErrorKind::Value);
    assert_eq!(Program::new("a\0b", &ProgramOptions::default()).err().map(|e| e.kind()), Some(ErrorKind::Value));
}
