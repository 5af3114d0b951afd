//! Code and launches of the simulated driver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use common::{Driver, NULL, alone};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PTX: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 args);
.visible .global .align 4 .u32 counter = 41;
.visible .const .align 4 .u32 table[2] = {3, 4};
.visible .global .align 8 .u64 there = counter;
.global .align 1 .b8 text[7] = {104, 105, 32, 37, 117, 10, 0};
.visible .entry add(.param .u32 value, .param .u64 to)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u32 %r1, [value];
    ld.param.u64 %rd1, [to];
    ld.global.u32 %r2, [%rd1];
    add.u32 %r3, %r2, %r1;
    st.global.u32 [%rd1], %r3;
    ret;
}
.visible .entry past(.param .u64 to)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [to];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    ret;
}
.visible .entry says(.param .u32 value)
{
    .local .align 8 .b8 depot[8];
    .reg .b32 %r<3>;
    .reg .b64 %rd<5>;
    mov.u64 %rd1, depot;
    cvta.local.u64 %rd2, %rd1;
    ld.param.u32 %r1, [value];
    st.local.u32 [%rd1], %r1;
    mov.u64 %rd3, text;
    cvta.global.u64 %rd4, %rd3;
    {
    .param .b64 param0;
    st.param.b64 [param0], %rd4;
    .param .b64 param1;
    st.param.b64 [param1], %rd2;
    .param .b32 retval0;
    call.uni (retval0), vprintf, (param0, param1);
    ld.param.b32 %r2, [retval0];
    }
    ret;
}
.visible .entry strange(.param .u64 to)
{
    .reg .b32 %r<9>;
    mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, {%r1,%r2}, {%r3,%r4}, {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8};
    ret;
}
";

struct Code {
    module: usize,
}

fn load(d: &Driver) -> Code {
    Code { module: d.get("cuModuleLoadData", |out| (out, PTX.as_ptr())) }
}

impl Code {
    fn function(&self, d: &Driver, name: &CStr) -> usize {
        d.get("cuModuleGetFunction", |out| (out, self.module, name.as_ptr()))
    }
}

fn launch(d: &Driver, function: usize, threads: u32, stream: usize, params: &[*const c_void]) -> String {
    let one = 1_u32;
    d.call("cuLaunchKernel", (function, one, one, one, threads, one, one, 0_u32, stream, params.as_ptr(), NULL))
}

fn word(d: &Driver, at: usize) -> u32 {
    let mut value = 0_u32;
    d.ok("cuMemcpyDtoH_v2", (&raw mut value, at, 4_usize));
    value
}

#[test]
fn variables_have_their_first_values() {
    alone("variables_have_their_first_values", "", || {
        let (d, _) = Driver::ready();
        let code = load(&d);
        let (mut counter, mut size) = (0_usize, 0_usize);
        d.ok("cuModuleGetGlobal_v2", (&raw mut counter, &raw mut size, code.module, c"counter".as_ptr()));
        assert_eq!((size, word(&d, counter)), (4, 41));
        let mut table = 0_usize;
        d.ok("cuModuleGetGlobal_v2", (&raw mut table, &raw mut size, code.module, c"table".as_ptr()));
        assert_eq!((size, word(&d, table), word(&d, table + 4)), (8, 3, 4));
        let there = d.get("cuModuleGetGlobal_v2", |out| (out, NULL, code.module, c"there".as_ptr()));
        assert_eq!(u64::from(word(&d, there)) | u64::from(word(&d, there + 4)) << 32, counter as u64);
        // A kernel changes it; a second module of the same text has its own.
        let (value, function) = (1_u32, code.function(&d, c"add"));
        assert_eq!(launch(&d, function, 1, NULL, &[(&raw const value).cast(), (&raw const counter).cast()]), "SUCCESS");
        assert_eq!(word(&d, counter), 42);
        let second = load(&d);
        let other = d.get("cuModuleGetGlobal_v2", |out| (out, NULL, second.module, c"counter".as_ptr()));
        assert_eq!((other == counter, word(&d, other)), (false, 41));
        d.ok("cuModuleUnload", (code.module,));
        assert_eq!(launch(&d, function, 1, NULL, &[]), "INVALID_HANDLE");
        assert!(d.reports().contains("cuModuleUnload"), "{}", d.reports());
    });
}

#[test]
fn parameters_are_taken_at_the_call() {
    alone("parameters_are_taken_at_the_call", "", || {
        let (d, _) = Driver::ready();
        let function = load(&d).function(&d, c"add");
        let p = d.memory(4);
        d.ok("cuMemsetD32_v2", (p, 0_u32, 1_usize));
        let mut value = 5_u32;
        assert_eq!(launch(&d, function, 1, NULL, &[(&raw const value).cast(), (&raw const p).cast()]), "SUCCESS");
        value = 1000;
        // The same in one buffer.
        let mut block = [0_u8; 16];
        block[0] = 7;
        block[8..].copy_from_slice(&p.to_le_bytes());
        let size = 16_usize;
        let extra = [1_usize, block.as_ptr() as usize, 2, &raw const size as usize, 0];
        let one = 1_u32;
        let call = |params: usize, extra: usize| {
            d.call("cuLaunchKernel", (function, one, one, one, one, one, one, 0_u32, NULL, params, extra))
        };
        assert_eq!(call(NULL, extra.as_ptr() as usize), "SUCCESS");
        assert_eq!(word(&d, p), 12);
        let both = [&raw const value as usize, &raw const p as usize];
        assert_eq!(call(both.as_ptr() as usize, extra.as_ptr() as usize), "INVALID_VALUE");
        assert_eq!(call(NULL, NULL), "INVALID_VALUE");
    });
}

#[test]
fn a_fault_says_where_and_why() {
    alone("a_fault_says_where_and_why", "", || {
        let (d, _) = Driver::ready();
        let function = load(&d).function(&d, c"past");
        let p = d.memory(40);
        assert_eq!(launch(&d, function, 11, NULL, &[(&raw const p).cast()]), "SUCCESS");
        assert_eq!(d.call("cuCtxSynchronize", ()), "ILLEGAL_ADDRESS");
        let reports = d.reports();
        for word in [
            "past",
            "thread (10,0,0)",
            "write of 4 bytes",
            "0 bytes past the end",
            "40 bytes",
            "cuMemAlloc_v2",
            "st.global",
        ] {
            assert!(reports.contains(word), "{word}: {reports}");
        }
    });
}

#[test]
fn a_kernel_on_freed_memory_is_told_who_freed_it() {
    alone("a_kernel_on_freed_memory_is_told_who_freed_it", "", || {
        let (d, _) = Driver::ready();
        let function = load(&d).function(&d, c"past");
        let stream = d.stream(1);
        let p = d.get("cuMemAllocAsync", |out| (out, 400_usize, stream));
        d.ok("cuMemFreeAsync", (p, stream));
        assert_eq!(launch(&d, function, 1, stream, &[(&raw const p).cast()]), "SUCCESS");
        assert_eq!(d.call("cuStreamSynchronize", (stream,)), "ILLEGAL_ADDRESS");
        let reports = d.reports();
        assert!(reports.contains("which was freed by cuMemFreeAsync"), "{reports}");
    });
}

#[test]
fn what_a_kernel_prints_comes_out_when_the_program_waits() {
    alone("what_a_kernel_prints_comes_out_when_the_program_waits", "", || {
        let (d, _) = Driver::ready();
        let function = load(&d).function(&d, c"says");
        let mut pipe = [0_i32; 2];
        // SAFETY: [test] stdout is a pipe of this test's for a while.
        let saved = unsafe {
            assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
            let saved = libc::dup(1);
            libc::dup2(pipe[1], 1);
            saved
        };
        for value in [7_u32, 8] {
            assert_eq!(launch(&d, function, 2, NULL, &[(&raw const value).cast()]), "SUCCESS");
        }
        d.ok("cuCtxSynchronize", ());
        let mut text = [0_u8; 64];
        // SAFETY: [test] as above.
        let got = unsafe {
            libc::dup2(saved, 1);
            libc::close(pipe[1]);
            libc::read(pipe[0], text.as_mut_ptr().cast(), 64)
        };
        assert_eq!(std::str::from_utf8(&text[..got as usize]).unwrap(), "hi 7\nhi 7\nhi 8\nhi 8\n");
    });
}

#[test]
fn what_is_not_simulated_is_refused_at_the_launch() {
    alone("what_is_not_simulated_is_refused_at_the_launch", "", || {
        let (d, _) = Driver::ready();
        let function = load(&d).function(&d, c"strange");
        let p = d.memory(4);
        assert_eq!(launch(&d, function, 32, NULL, &[(&raw const p).cast()]), "NOT_SUPPORTED");
        let reports = d.reports();
        assert!(reports.contains("\"kind\":\"unsupported\"") && reports.contains("mma"), "{reports}");
        d.ok("cuCtxSynchronize", ());
    });
}

#[test]
fn a_bad_text_is_explained_in_the_log() {
    alone("a_bad_text_is_explained_in_the_log", "", || {
        let (d, _) = Driver::ready();
        let bad = c".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { add.s32 %r1, %r2; ret; }\n";
        let mut log = [0_u8; 512];
        let options = [5_u32, 6];
        let mut values = [log.as_mut_ptr() as usize, log.len()];
        let mut module = 0_usize;
        let status =
            d.call("cuModuleLoadDataEx", (&raw mut module, bad.as_ptr(), 2_u32, options.as_ptr(), values.as_mut_ptr()));
        assert_eq!(status, "INVALID_PTX");
        let text = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
        assert!(text.contains("line 4"), "{text}");
        assert_eq!(values[1], text.len() + 1);
        let mut values = [log.as_mut_ptr() as usize, log.len()];
        let good = (&raw mut module, PTX.as_ptr(), 2_u32, options.as_ptr(), values.as_mut_ptr());
        d.ok("cuModuleLoadDataEx", good);
        assert_eq!(values[1], 0);
    });
}

#[test]
fn a_library_is_a_module_of_each_context() {
    alone("a_library_is_a_module_of_each_context", "", || {
        let (d, first) = Driver::ready();
        let library = d.get("cuLibraryLoadData", |out| (out, PTX.as_ptr(), NULL, NULL, 0_u32, NULL, NULL, 0_u32));
        let kernel = d.get("cuLibraryGetKernel", |out| (out, library, c"add".as_ptr()));
        let global = || d.get("cuLibraryGetGlobal", |out| (out, NULL, library, c"counter".as_ptr()));
        let here = global();
        let value = 9_u32;
        // A kernel is taken where a function is.
        assert_eq!(launch(&d, kernel, 1, NULL, &[(&raw const value).cast(), (&raw const here).cast()]), "SUCCESS");
        assert_eq!(word(&d, here), 50);
        let function = d.get("cuKernelGetFunction", |out| (out, kernel));
        assert_eq!(d.get("cuFuncGetModule", |out| (out, function)), d.get("cuLibraryGetModule", |out| (out, library)));
        let second = d.get("cuCtxCreate_v2", |out| (out, 0_u32, 0_i32));
        let there = global();
        assert_ne!(here, there);
        assert_eq!(word(&d, there), 41);
        assert_ne!(d.get("cuKernelGetFunction", |out| (out, kernel)), function);
        assert_eq!(
            launch(&d, function, 1, NULL, &[(&raw const value).cast(), (&raw const here).cast()]),
            "INVALID_HANDLE"
        );
        d.ok("cuCtxDestroy_v2", (second,));
        d.ok("cuCtxSetCurrent", (first,));
        assert_eq!(word(&d, here), 50);
        // What is opted into for a kernel holds for its function.
        let (mut before, mut after) = (0_i32, 0_i32);
        d.ok("cuFuncGetAttribute", (&raw mut before, 8_u32, function));
        d.ok("cuKernelSetAttribute", (8_u32, 100_000_i32, kernel, 0_i32));
        d.ok("cuFuncGetAttribute", (&raw mut after, 8_u32, function));
        assert_eq!((before, after), (48 << 10, 100_000));
        assert_eq!(d.call("cuKernelSetAttribute", (8_u32, 232_449_i32, kernel, 0_i32)), "INVALID_VALUE");
        let mut name = 0_usize;
        d.ok("cuKernelGetName", (&raw mut name, kernel));
        // SAFETY: [test] the driver's text, closed by a zero.
        assert_eq!(unsafe { CStr::from_ptr(name as *const _) }, c"add");
        d.ok("cuLibraryUnload", (library,));
        assert_eq!(d.call("cuLibraryUnload", (library,)), "INVALID_HANDLE");
        assert_eq!(d.census()["library"], 0);
    });
}

static GATE: AtomicBool = AtomicBool::new(false);
static LAUNCHED: AtomicUsize = AtomicUsize::new(0);
static CREATED: AtomicBool = AtomicBool::new(false);

extern "C" fn hold(_data: *mut c_void) {
    while !GATE.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// As measured on hardware: a launch waits for room in its stream, and some calls of other threads for that launch.
#[test]
fn a_launch_waits_for_room_in_its_stream() {
    alone("a_launch_waits_for_room_in_its_stream", "", || {
        let (d, context) = Driver::ready();
        let function = load(&d).function(&d, c"add");
        let (memory, stream, other, event) = (d.memory(4), d.stream(1), d.stream(1), d.event(0));
        d.ok("cuMemsetD32_v2", (memory, 0_u32, 1_usize));
        d.ok("cuLaunchHostFunc", (stream, hold as *const () as usize, NULL));
        let add = move |d: &Driver, stream: usize| {
            let value = 1_u32;
            assert_eq!(
                launch(d, function, 1, stream, &[(&raw const value).cast(), (&raw const memory).cast()]),
                "SUCCESS"
            );
        };
        let filling = std::thread::spawn(move || {
            let d = Driver::load();
            d.ok("cuCtxSetCurrent", (context,));
            for _ in 0..1500 {
                add(&d, stream);
                LAUNCHED.fetch_add(1, Ordering::SeqCst);
            }
        });
        let start = Instant::now();
        while LAUNCHED.load(Ordering::SeqCst) < 1000 && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(200));
        let launched = LAUNCHED.load(Ordering::SeqCst);
        assert!((1000..1100).contains(&launched), "{launched} launches returned");
        let creating = std::thread::spawn(move || {
            let d = Driver::load();
            d.ok("cuCtxSetCurrent", (context,));
            d.event(0);
            CREATED.store(true, Ordering::SeqCst);
        });
        // These return at once.
        add(&d, other);
        d.ok("cuEventRecord", (event, other));
        d.ok("cuEventSynchronize", (event,));
        d.ok("cuStreamQuery", (other,));
        d.ok("cuCtxSetCurrent", (context,));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!CREATED.load(Ordering::SeqCst), "the creation of an event waits");
        assert_eq!(LAUNCHED.load(Ordering::SeqCst), launched);
        GATE.store(true, Ordering::Release);
        filling.join().unwrap();
        creating.join().unwrap();
        d.ok("cuStreamSynchronize", (stream,));
        assert_eq!(word(&d, memory), 1501);
    });
}
