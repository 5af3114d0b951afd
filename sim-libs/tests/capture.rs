//! Capture: every recorded row, and the scenes about capture.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Driver, NULL, Scene, alone, facts};
use serde_json::{Value, json};

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;
const PTX: &str = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n\0";

/// What a row's call works on; everything was made before the capture began.
#[derive(Clone, Copy)]
struct Fixture {
    context: usize,
    capturing: usize,
    other: usize,
    blocking: usize,
    event: usize,
    event2: usize,
    memory: usize,
    doomed: usize,
    pooled: usize,
    pinned: usize,
    pool: usize,
    pool2: usize,
    default_pool: usize,
    module: usize,
    library: usize,
    kernel: usize,
    function: usize,
    graph: usize,
    empty: usize,
    exec: usize,
    range: usize,
    range2: usize,
    physical: usize,
    physical2: usize,
}

const PAGE: usize = 2 << 20;

/// `CUmemAllocationProp` of pinned memory on device 0.
fn physical() -> [u32; 8] {
    [1, 0, 1, 0, 0, 0, 0, 0]
}

/// `CUmemPoolProps` of pinned memory on device 0.
fn pool_props() -> [u8; 88] {
    let mut props = [0u8; 88];
    props[0] = 1;
    props[8] = 1;
    props
}

impl Fixture {
    fn new(d: &Driver, context: usize) -> Self {
        let (capturing, other, blocking) = (d.stream(1), d.stream(1), d.stream(0));
        let (event, event2) = (d.event(0), d.event(0));
        d.ok("cuEventRecord", (event, other));
        d.ok("cuEventRecord", (event2, other));
        let (props, prop) = (pool_props(), physical());
        let module = d.get("cuModuleLoadData", |out| (out, PTX.as_ptr()));
        let library = d.get("cuLibraryLoadData", |out| (out, PTX.as_ptr(), NULL, NULL, 0u32, NULL, NULL, 0u32));
        let graph = d.get("cuGraphCreate", |out| (out, 0u32));
        d.get("cuGraphAddEmptyNode", |out| (out, graph, NULL, 0usize));
        let fixture = Self {
            context,
            capturing,
            other,
            blocking,
            event,
            event2,
            memory: d.memory(4096),
            doomed: d.memory(4096),
            pooled: d.get("cuMemAllocAsync", |out| (out, 4096usize, other)),
            pinned: d.get("cuMemAllocHost_v2", |out| (out, 4096usize)),
            pool: d.get("cuMemPoolCreate", |out| (out, props.as_ptr())),
            pool2: d.get("cuMemPoolCreate", |out| (out, props.as_ptr())),
            default_pool: d.get("cuDeviceGetDefaultMemPool", |out| (out, 0i32)),
            module,
            library,
            kernel: d.get("cuLibraryGetKernel", |out| (out, library, c"k".as_ptr())),
            function: d.get("cuModuleGetFunction", |out| (out, module, c"k".as_ptr())),
            graph,
            empty: d.get("cuGraphCreate", |out| (out, 0u32)),
            exec: d.get("cuGraphInstantiateWithFlags", |out| (out, graph, 0u64)),
            range: d.get("cuMemAddressReserve", |out| (out, PAGE, 0usize, 0usize, 0u64)),
            range2: d.get("cuMemAddressReserve", |out| (out, PAGE, 0usize, 0usize, 0u64)),
            physical: d.get("cuMemCreate", |out| (out, PAGE, prop.as_ptr(), 0u64)),
            physical2: d.get("cuMemCreate", |out| (out, PAGE, prop.as_ptr(), 0u64)),
        };
        d.ok("cuStreamSynchronize", (other,));
        fixture
    }

    /// Gives everything back that is still there.
    fn drop(self, d: &Driver) {
        d.ok("cuCtxSynchronize", ());
        for stream in [self.capturing, self.other, self.blocking] {
            d.call("cuStreamDestroy_v2", (stream,));
        }
        for event in [self.event, self.event2] {
            d.call("cuEventDestroy_v2", (event,));
        }
        for memory in [self.memory, self.doomed, self.pooled] {
            d.call("cuMemFree_v2", (memory,));
        }
        d.call("cuMemFreeHost", (self.pinned,));
        d.call("cuMemPoolDestroy", (self.pool,));
        d.call("cuMemPoolDestroy", (self.pool2,));
        d.call("cuModuleUnload", (self.module,));
        d.call("cuLibraryUnload", (self.library,));
        d.call("cuGraphDestroy", (self.graph,));
        d.call("cuGraphDestroy", (self.empty,));
        d.call("cuGraphExecDestroy", (self.exec,));
        for range in [self.range, self.range2] {
            d.call("cuMemAddressFree", (range, PAGE));
        }
        for physical in [self.physical, self.physical2] {
            d.call("cuMemRelease", (physical,));
        }
    }

    fn launch(&self, d: &Driver, stream: usize) -> String {
        d.call("cuLaunchKernel", (self.function, 1u32, 1u32, 1u32, 1u32, 1u32, 1u32, 0u32, stream, NULL, NULL))
    }

    /// Makes a row's call.
    fn call(&self, d: &Driver, call: &str) -> String {
        let (c, o) = (self.capturing, self.other);
        let mut got = 0usize;
        let out = &raw mut got;
        let mut number = 0i32;
        let int = &raw mut number;
        let mut buffer = [0u8; 4096];
        let host = buffer.as_mut_ptr();
        let (legacy, per_thread) = (1usize, 2usize);
        let mut ms = 0f32;
        match call {
            "cuCtxGetCurrent" => d.call("cuCtxGetCurrent", (out,)),
            "cuCtxSetCurrent" => d.call("cuCtxSetCurrent", (self.context,)),
            "cuCtxGetDevice" => d.call("cuCtxGetDevice", (int,)),
            "cuCtxSynchronize" => d.call("cuCtxSynchronize", ()),
            "cuCtxGetLimit" => d.call("cuCtxGetLimit", (out, 0u32)),
            "cuCtxGetStreamPriorityRange" => d.call("cuCtxGetStreamPriorityRange", (int, NULL)),
            "cuDevicePrimaryCtxRetain" => {
                let status = d.call("cuDevicePrimaryCtxRetain", (out, 0i32));
                d.ok("cuDevicePrimaryCtxRelease_v2", (0i32,));
                status
            }
            "cuDeviceGetAttribute" => d.call("cuDeviceGetAttribute", (int, 1u32, 0i32)),
            "cuDeviceTotalMem" => d.call("cuDeviceTotalMem_v2", (out, 0i32)),
            "cuMemGetInfo" => d.call("cuMemGetInfo_v2", (out, host)),
            "cuDeviceGetMemPool" => d.call("cuDeviceGetMemPool", (out, 0i32)),
            "cuDeviceGetDefaultMemPool" => d.call("cuDeviceGetDefaultMemPool", (out, 0i32)),
            "cuDeviceSetMemPool" => d.call("cuDeviceSetMemPool", (0i32, self.default_pool)),
            "cuMemPoolCreate" => {
                let status = d.call("cuMemPoolCreate", (out, pool_props().as_ptr()));
                if got != 0 {
                    d.call("cuMemPoolDestroy", (got,));
                }
                status
            }
            "cuMemPoolDestroy" => d.call("cuMemPoolDestroy", (self.pool2,)),
            "cuMemPoolGetAttribute" => d.call("cuMemPoolGetAttribute", (self.pool, 4u32, out)),
            "cuMemPoolSetAttribute" => d.call("cuMemPoolSetAttribute", (self.pool, 4u32, out)),
            "cuMemPoolGetAccess" => d.call("cuMemPoolGetAccess", (int, self.pool, [1u32, 0].as_ptr())),
            "cuStreamCreate" => d.call("cuStreamCreate", (out, 1u32)),
            "cuStreamDestroy(other)" => d.call("cuStreamDestroy_v2", (o,)),
            "cuStreamDestroy(capturing)" => d.call("cuStreamDestroy_v2", (c,)),
            "cuStreamSynchronize(capturing)" => d.call("cuStreamSynchronize", (c,)),
            "cuStreamSynchronize(other)" => d.call("cuStreamSynchronize", (o,)),
            "cuStreamSynchronize(legacy)" => d.call("cuStreamSynchronize", (legacy,)),
            "cuStreamSynchronize(blocking other)" => d.call("cuStreamSynchronize", (self.blocking,)),
            "cuStreamQuery(capturing)" => d.call("cuStreamQuery", (c,)),
            "cuStreamGetPriority(capturing)" => d.call("cuStreamGetPriority", (c, int)),
            "cuStreamGetId(capturing)" => d.call("cuStreamGetId", (c, out)),
            "cuStreamGetCtx(capturing)" => d.call("cuStreamGetCtx", (c, out)),
            "cuStreamIsCapturing(capturing)" => d.call("cuStreamIsCapturing", (c, int)),
            "cuStreamIsCapturing(legacy)" => d.call("cuStreamIsCapturing", (legacy, int)),
            "cuStreamBeginCapture(capturing)" => d.call("cuStreamBeginCapture_v2", (c, GLOBAL)),
            "cuStreamBeginCapture(other)" => {
                let status = d.call("cuStreamBeginCapture_v2", (o, RELAXED));
                d.ok("cuStreamEndCapture", (o, out));
                d.ok("cuGraphDestroy", (got,));
                status
            }
            "cuStreamWaitEvent(capturing, outside event)" => d.call("cuStreamWaitEvent", (c, self.event, 0u32)),
            "cuEventCreate" => d.call("cuEventCreate", (out, 0u32)),
            "cuEventDestroy" => d.call("cuEventDestroy_v2", (self.event2,)),
            "cuEventRecord(other)" => d.call("cuEventRecord", (self.event2, o)),
            "cuEventRecord(capturing)" => d.call("cuEventRecord", (self.event2, c)),
            "cuEventRecord(legacy)" => d.call("cuEventRecord", (self.event2, legacy)),
            "cuEventQuery(outside)" => d.call("cuEventQuery", (self.event,)),
            "cuEventElapsedTime(outside)" => d.call("cuEventElapsedTime", (&raw mut ms, self.event, self.event2)),
            "cuMemAlloc" => d.call("cuMemAlloc_v2", (out, 64usize)),
            "cuMemFree" => d.call("cuMemFree_v2", (self.doomed,)),
            "cuMemAllocHost" => d.call("cuMemAllocHost_v2", (out, 64usize)),
            "cuMemFreeHost" => d.call("cuMemFreeHost", (self.pinned,)),
            "cuMemAllocAsync(other)" => d.call("cuMemAllocAsync", (out, 64usize, o)),
            "cuMemAllocAsync(capturing)" => d.call("cuMemAllocAsync", (out, 64usize, c)),
            "cuMemAllocFromPoolAsync(other)" => d.call("cuMemAllocFromPoolAsync", (out, 64usize, self.pool, o)),
            "cuMemAllocFromPoolAsync(capturing)" => d.call("cuMemAllocFromPoolAsync", (out, 64usize, self.pool, c)),
            "cuMemFreeAsync(other)" => d.call("cuMemFreeAsync", (self.pooled, o)),
            "cuMemFreeAsync(capturing, outside alloc)" => d.call("cuMemFreeAsync", (self.pooled, c)),
            "cuMemcpyDtoDAsync(other)" => d.call("cuMemcpyDtoDAsync_v2", (self.memory, self.doomed, 64usize, o)),
            "cuMemcpyDtoDAsync(capturing)" => d.call("cuMemcpyDtoDAsync_v2", (self.memory, self.doomed, 64usize, c)),
            "cuMemcpyDtoDAsync(legacy)" => d.call("cuMemcpyDtoDAsync_v2", (self.memory, self.doomed, 64usize, legacy)),
            "cuMemcpyHtoDAsync(capturing)" => d.call("cuMemcpyHtoDAsync_v2", (self.memory, self.pinned, 64usize, c)),
            "cuMemcpyHtoD" => d.call("cuMemcpyHtoD_v2", (self.memory, host, 64usize)),
            "cuMemsetD8" => d.call("cuMemsetD8_v2", (self.memory, 1u8, 64usize)),
            "cuMemsetD8Async(other)" => d.call("cuMemsetD8Async", (self.memory, 1u8, 64usize, o)),
            "cuMemsetD8Async(capturing)" => d.call("cuMemsetD8Async", (self.memory, 1u8, 64usize, c)),
            "cuLaunchKernel(other)" => self.launch(d, o),
            "cuLaunchKernel(capturing)" => self.launch(d, c),
            "cuLaunchKernel(legacy)" => self.launch(d, legacy),
            "cuLaunchKernel(per-thread)" => self.launch(d, per_thread),
            "cuLaunchKernel(blocking other)" => self.launch(d, self.blocking),
            "cuLaunchHostFunc(other)" => d.call("cuLaunchHostFunc", (o, nothing as *const () as usize, NULL)),
            "cuLaunchHostFunc(capturing)" => d.call("cuLaunchHostFunc", (c, nothing as *const () as usize, NULL)),
            "cuModuleLoadData" => {
                let status = d.call("cuModuleLoadData", (out, PTX.as_ptr()));
                d.modules.borrow_mut().push(got);
                status
            }
            "cuModuleUnload" => d.call("cuModuleUnload", (self.module,)),
            "cuModuleGetFunction" => d.call("cuModuleGetFunction", (out, self.module, c"k".as_ptr())),
            "cuLibraryLoadData" => {
                let status = d.call("cuLibraryLoadData", (out, PTX.as_ptr(), NULL, NULL, 0u32, NULL, NULL, 0u32));
                d.ok("cuLibraryUnload", (got,));
                status
            }
            "cuLibraryGetKernel" => d.call("cuLibraryGetKernel", (out, self.library, c"k".as_ptr())),
            "cuKernelGetFunction(first)" => d.call("cuKernelGetFunction", (out, self.kernel)),
            "cuFuncGetAttribute" => d.call("cuFuncGetAttribute", (int, 0u32, self.function)),
            "cuFuncSetAttribute" => d.call("cuFuncSetAttribute", (self.function, 8u32, 1024i32)),
            "cuKernelGetAttribute" => d.call("cuKernelGetAttribute", (int, 0u32, self.kernel, 0i32)),
            "cuOccupancyMaxActiveBlocksPerMultiprocessor" => {
                d.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", (int, self.function, 128i32, 0usize))
            }
            "cuPointerGetAttribute" => d.call("cuPointerGetAttribute", (out, 1u32, self.memory)),
            "cuMemGetAddressRange" => d.call("cuMemGetAddressRange_v2", (out, NULL, self.memory)),
            "cuGraphCreate" => d.call("cuGraphCreate", (out, 0u32)),
            "cuGraphDestroy" => d.call("cuGraphDestroy", (self.empty,)),
            "cuGraphInstantiate" => d.call("cuGraphInstantiateWithFlags", (out, self.graph, 0u64)),
            "cuGraphLaunch(other)" => d.call("cuGraphLaunch", (self.exec, o)),
            "cuGraphLaunch(capturing)" => d.call("cuGraphLaunch", (self.exec, c)),
            "cuGraphAddEmptyNode(other graph)" => d.call("cuGraphAddEmptyNode", (out, self.empty, NULL, 0usize)),
            "cuUserObjectCreate" => {
                d.call("cuUserObjectCreate", (out, NULL, nothing as *const () as usize, 1u32, 1u32))
            }
            "cuThreadExchangeStreamCaptureMode" => {
                let mut mode = RELAXED;
                let status = d.call("cuThreadExchangeStreamCaptureMode", (&raw mut mode,));
                d.ok("cuThreadExchangeStreamCaptureMode", (&raw mut mode,));
                status
            }
            "cuMemAddressReserve" => d.call("cuMemAddressReserve", (out, PAGE, 0usize, 0usize, 0u64)),
            "cuMemAddressFree" => d.call("cuMemAddressFree", (self.range2, PAGE)),
            "cuMemCreate" => {
                let status = d.call("cuMemCreate", (out, PAGE, physical().as_ptr(), 0u64));
                d.ok("cuMemRelease", (got,));
                status
            }
            "cuMemMap" => {
                let status = d.call("cuMemMap", (self.range, PAGE, 0usize, self.physical, 0u64));
                d.ok("cuMemUnmap", (self.range, PAGE));
                status
            }
            "cuMemRelease" => d.call("cuMemRelease", (self.physical2,)),
            _ => panic!("a row with an unknown call: {call}"),
        }
    }
}

extern "C" fn nothing(_data: *mut std::ffi::c_void) {}

fn in_mode<T>(d: &Driver, relaxed: bool, body: impl FnOnce() -> T) -> T {
    let mut mode = RELAXED;
    if relaxed {
        d.ok("cuThreadExchangeStreamCaptureMode", (&raw mut mode,));
    }
    let result = body();
    if relaxed {
        d.ok("cuThreadExchangeStreamCaptureMode", (&raw mut mode,));
    }
    result
}

/// Replays a row; answers what was different.
fn replay(d: &Driver, context: usize, row: &Value, relaxed: bool) -> Option<String> {
    let f = Fixture::new(d, context);
    let mode = ["global", "thread_local", "relaxed"].iter().position(|mode| row["mode"] == *mode).unwrap() as u32;
    let call = row["call"].as_str().unwrap().to_owned();
    d.ok("cuStreamBeginCapture_v2", (f.capturing, mode));
    d.ok("cuMemsetD8Async", (f.memory, 0u8, 64usize, f.capturing));
    let status = if row["thread"] == "same" {
        in_mode(d, relaxed, || f.call(d, &call))
    } else {
        let call = call.clone();
        let other = std::thread::spawn(move || {
            let d = Driver::load();
            d.ok("cuCtxSetCurrent", (context,));
            in_mode(&d, relaxed, || f.call(&d, &call))
        });
        other.join().unwrap()
    };
    let mut got = json!({"call": row["call"], "mode": row["mode"], "thread": row["thread"]});
    got["status"] = status.into();
    if call != "cuStreamDestroy(capturing)" {
        got["capture_after"] = d.capturing(f.capturing).1;
        let mut graph = 0usize;
        got["end"] = d.call("cuStreamEndCapture", (f.capturing, &raw mut graph)).into();
        got["graph"] = (graph != 0).into();
        if graph != 0 {
            let mut nodes = 0usize;
            d.ok("cuGraphGetNodes", (graph, NULL, &raw mut nodes));
            got["nodes"] = nodes.into();
            d.ok("cuGraphDestroy", (graph,));
        }
    }
    got["sync_after"] = d.call("cuCtxSynchronize", ()).into();
    f.drop(d);
    if got == *row { None } else { Some(format!("{got}\n  real: {row}")) }
}

fn all_rows(file: &str, relaxed: bool) {
    let (d, context) = Driver::ready();
    let text = std::fs::read_to_string(facts().join(file)).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let wrong: Vec<String> = rows.iter().filter_map(|row| replay(&d, context, row, relaxed)).collect();
    assert!(rows.len() > 500);
    assert!(wrong.is_empty(), "{} of {} rows differ:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn every_row() {
    alone("every_row", "memory=1GiB", || all_rows("capture.jsonl", false));
}

#[test]
fn every_row_in_a_relaxed_scope() {
    alone("every_row_in_a_relaxed_scope", "memory=1GiB", || all_rows("capture_relaxed_scope.jsonl", true));
}

fn begin(d: &Driver, stream: usize, mode: u32) -> String {
    d.call("cuStreamBeginCapture_v2", (stream, mode))
}

fn memset(d: &Driver, memory: usize, stream: usize) -> String {
    d.call("cuMemsetD8Async", (memory, 0u8, 64usize, stream))
}

fn end(d: &Driver, stream: usize) -> (String, usize) {
    let mut graph = 7usize;
    (d.call("cuStreamEndCapture", (stream, &raw mut graph)), graph)
}

#[test]
fn invalidated_end() {
    alone("invalidated_end", "", || {
        let (d, _) = Driver::ready();
        let mut s = Scene::new("invalidated_end");
        let (stream, memory) = (d.stream(1), d.memory(64));
        s.step("begin", begin(&d, stream, GLOBAL));
        s.step("ctx sync", d.call("cuCtxSynchronize", ()));
        let (status, value) = d.capturing(stream);
        s.value("is capturing", status, value);
        let (mut state, mut id) = (0u32, 0u64);
        s.step(
            "capture info",
            d.call("cuStreamGetCaptureInfo_v2", (stream, &raw mut state, &raw mut id, NULL, NULL, NULL)),
        );
        s.step("memset on invalidated", memset(&d, memory, stream));
        s.step("query", d.call("cuStreamQuery", (stream,)));
        s.step("end", end(&d, stream).0);
        let (status, value) = d.capturing(stream);
        s.value("is capturing after end", status, value);
        s.step("end again", end(&d, stream).0);
        s.step("sync", d.call("cuStreamSynchronize", (stream,)));
        s.step("destroy stream", d.call("cuStreamDestroy_v2", (stream,)));
        s.end();
    });
}

#[test]
fn destroy_capturing_stream() {
    alone("destroy_capturing_stream", "", || {
        let (d, _) = Driver::ready();
        let mut s = Scene::new("destroy_capturing_stream");
        let stream = d.stream(1);
        begin(&d, stream, GLOBAL);
        s.step("destroy", d.call("cuStreamDestroy_v2", (stream,)));
        let mut got = 0usize;
        s.step("mem alloc after", d.call("cuMemAlloc_v2", (&raw mut got, 64usize)));
        s.step("ctx sync", d.call("cuCtxSynchronize", ()));
        s.end();
        assert_eq!(d.census()["graph"], 0);
    });
}

#[test]
fn wrong_thread() {
    alone("wrong_thread", "", || {
        let (d, context) = Driver::ready();
        let mut s = Scene::new("wrong_thread");
        for (name, mode) in [("GLOBAL", GLOBAL), ("THREAD_LOCAL", THREAD_LOCAL), ("RELAXED", RELAXED)] {
            let stream = d.stream(1);
            begin(&d, stream, mode);
            let other = std::thread::spawn(move || {
                let d = Driver::load();
                d.ok("cuCtxSetCurrent", (context,));
                end(&d, stream).0
            });
            s.step(&format!("{name} end on other thread"), other.join().unwrap());
            let (status, value) = d.capturing(stream);
            s.value(&format!("{name} status"), status, value);
            s.step(&format!("{name} end on own thread"), end(&d, stream).0);
        }
        s.end();
    });
}

#[test]
fn unjoined() {
    alone("unjoined", "", || {
        let (d, _) = Driver::ready();
        let mut s = Scene::new("unjoined");
        let (origin, fork, event, memory) = (d.stream(1), d.stream(1), d.event(2), d.memory(64));
        s.step("begin", begin(&d, origin, GLOBAL));
        s.step("record", d.call("cuEventRecord", (event, origin)));
        s.step("wait", d.call("cuStreamWaitEvent", (fork, event, 0u32)));
        s.step("work", memset(&d, memory, fork));
        let (status, value) = d.capturing(fork);
        s.value("fork status", status, value);
        s.step("end on fork", end(&d, fork).0);
        let (status, value) = d.capturing(origin);
        s.value("origin status", status, value);
        s.step("end origin", end(&d, origin).0);
        let (status, value) = d.capturing(fork);
        s.value("fork status after", status, value);
        let (status, value) = d.capturing(origin);
        s.value("origin status after", status, value);
        s.step("sync fork", d.call("cuStreamSynchronize", (fork,)));
        s.end();
        let mut s = Scene::new("unjoined2");
        begin(&d, origin, GLOBAL);
        d.ok("cuEventRecord", (event, origin));
        d.ok("cuStreamWaitEvent", (fork, event, 0u32));
        memset(&d, memory, fork);
        s.step("end origin unjoined", end(&d, origin).0);
        let (status, value) = d.capturing(fork);
        s.value("fork status", status, value);
        s.step("destroy fork", d.call("cuStreamDestroy_v2", (fork,)));
        let mut got = 0usize;
        s.step("alloc", d.call("cuMemAlloc_v2", (&raw mut got, 64usize)));
        s.end();
    });
}

#[test]
fn captured_event() {
    alone("captured_event", "", || {
        let (d, _) = Driver::ready();
        let mut s = Scene::new("captured_event");
        let (stream, other, event, plain) = (d.stream(1), d.stream(1), d.event(0), d.event(0));
        d.ok("cuEventRecord", (plain, other));
        d.ok("cuStreamSynchronize", (other,));
        begin(&d, stream, RELAXED);
        s.step("record", d.call("cuEventRecord", (event, stream)));
        s.step("query", d.call("cuEventQuery", (event,)));
        let (status, value) = d.capturing(stream);
        s.value("status", status, value);
        s.step("end", end(&d, stream).0);
        s.step("query after", d.call("cuEventQuery", (event,)));
        s.step("wait after end on other", d.call("cuStreamWaitEvent", (other, event, 0u32)));
        s.step("sync after", d.call("cuEventSynchronize", (event,)));
        begin(&d, stream, RELAXED);
        s.step("record", d.call("cuEventRecord", (event, stream)));
        s.step("event sync", d.call("cuEventSynchronize", (event,)));
        let (status, value) = d.capturing(stream);
        s.value("status", status, value);
        s.step("end", end(&d, stream).0);
        let mut ms = 0f32;
        s.step("elapsed", d.call("cuEventElapsedTime", (&raw mut ms, event, plain)));
        s.step("destroy event", d.call("cuEventDestroy_v2", (event,)));
        s.end();
    });
}

#[test]
fn implicit() {
    alone("implicit", "", || {
        let (d, _) = Driver::ready();
        let mut s = Scene::new("implicit");
        let (stream, memory) = (d.stream(0), d.memory(64));
        for (name, mode) in [("GLOBAL", GLOBAL), ("RELAXED", RELAXED)] {
            s.step(&format!("{name} begin blocking"), begin(&d, stream, mode));
            s.step("memset legacy", memset(&d, memory, 1));
            s.step("query legacy", d.call("cuStreamQuery", (1usize,)));
            let (status, value) = d.capturing(stream);
            s.value("status", status, value);
            s.step("legacy is capturing", d.capturing(1).0);
            s.step("end", end(&d, stream).0);
        }
        s.end();
    });
}

fn exchange(d: &Driver, mode: u32) -> (String, &'static str) {
    let mut mode = mode;
    let status = d.call("cuThreadExchangeStreamCaptureMode", (&raw mut mode,));
    let names = ["GLOBAL", "THREAD_LOCAL", "RELAXED"];
    let whole =
        ["CU_STREAM_CAPTURE_MODE_GLOBAL", "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL", "CU_STREAM_CAPTURE_MODE_RELAXED"];
    assert_eq!(names.len(), whole.len());
    (status, whole[mode as usize])
}

#[test]
fn relaxed_exchange() {
    alone("relaxed_exchange", "", || {
        let (d, context) = Driver::ready();
        let mut s = Scene::new("relaxed_exchange");
        let stream = d.stream(1);
        begin(&d, stream, GLOBAL);
        let (mut pool, mut value) = (0usize, 0u64);
        s.step("default pool lookup", d.call("cuDeviceGetDefaultMemPool", (&raw mut pool, 0i32)));
        let (status, before) = exchange(&d, RELAXED);
        s.value("exchange relaxed", status, before);
        s.step("get attr", d.call("cuMemPoolGetAttribute", (pool, 4u32, &raw mut value)));
        s.step("set attr", d.call("cuMemPoolSetAttribute", (pool, 4u32, &raw mut value)));
        let (status, before) = exchange(&d, GLOBAL);
        s.value("exchange back", status, before);
        let (status, capturing) = d.capturing(stream);
        s.value("status", status, capturing);
        s.step("get attr (no scope)", d.call("cuMemPoolGetAttribute", (pool, 4u32, &raw mut value)));
        let (status, capturing) = d.capturing(stream);
        s.value("status", status, capturing);
        s.step("end", end(&d, stream).0);
        begin(&d, stream, GLOBAL);
        let other = std::thread::spawn(move || {
            let d = Driver::load();
            d.ok("cuCtxSetCurrent", (context,));
            let exchanged = exchange(&d, RELAXED);
            let mut value = 0u64;
            (exchanged, d.call("cuMemPoolGetAttribute", (pool, 4u32, &raw mut value)))
        });
        let ((status, before), get) = other.join().unwrap();
        s.value("other thread exchange", status, before);
        s.step("other get attr", get);
        let (status, capturing) = d.capturing(stream);
        s.value("status", status, capturing);
        let (status, graph) = end(&d, stream);
        s.value("end", status, if graph == 0 { "none" } else { "graph" });
        s.end();
    });
}

#[test]
fn legacy_release() {
    alone("legacy_release", "", || {
        let (d, _) = Driver::ready();
        let mut s = Scene::new("legacy_release");
        let stream = d.stream(0);
        let pooled = d.get("cuMemAllocAsync", |out| (out, 64usize, 1usize));
        d.ok("cuCtxSynchronize", ());
        begin(&d, stream, GLOBAL);
        s.step("legacy is capturing", d.capturing(1).0);
        let (status, value) = d.capturing(stream);
        s.value("status after asking", status, value);
        exchange(&d, RELAXED);
        s.step("free async on legacy, relaxed scope", d.call("cuMemFreeAsync", (pooled, 1usize)));
        exchange(&d, GLOBAL);
        let (status, value) = d.capturing(stream);
        s.value("status", status, value);
        s.step("end", end(&d, stream).0);
        s.end();
    });
}

#[test]
fn sync_in_scope() {
    alone("sync_in_scope", "", || {
        let (d, _) = Driver::ready();
        let mut s = Scene::new("sync_in_scope");
        let (stream, other) = (d.stream(1), d.stream(1));
        begin(&d, stream, GLOBAL);
        exchange(&d, RELAXED);
        s.step("stream sync other, relaxed scope", d.call("cuStreamSynchronize", (other,)));
        let (status, value) = d.capturing(stream);
        s.value("status", status, value);
        s.step("ctx sync, relaxed scope", d.call("cuCtxSynchronize", ()));
        let (status, value) = d.capturing(stream);
        s.value("status", status, value);
        exchange(&d, GLOBAL);
        s.step("end", end(&d, stream).0);
        s.end();
    });
}

#[test]
fn capture_alloc_lifetime() {
    alone("capture_alloc_lifetime", "", || {
        let (d, _) = Driver::ready();
        let mut s = Scene::new("capture_alloc_lifetime");
        let (stream, other) = (d.stream(1), d.stream(1));
        begin(&d, stream, RELAXED);
        let mut memory = 0usize;
        s.step("alloc in capture", d.call("cuMemAllocAsync", (&raw mut memory, 1024usize, stream)));
        s.step("free on other stream", d.call("cuMemFreeAsync", (memory, other)));
        let (status, value) = d.capturing(stream);
        s.value("status", status, value);
        let (status, graph) = end(&d, stream);
        s.value("end", status, if graph == 0 { "none" } else { "graph" });
        s.step("free before any launch", d.call("cuMemFreeAsync", (memory, other)));
        let exec = d.get("cuGraphInstantiateWithFlags", |out| (out, graph, 0u64));
        s.step("launch", d.call("cuGraphLaunch", (exec, stream)));
        d.ok("cuStreamSynchronize", (stream,));
        s.step("free after launch", d.call("cuMemFreeAsync", (memory, other)));
        s.step("free twice", d.call("cuMemFreeAsync", (memory, other)));
        s.step("exec destroy", d.call("cuGraphExecDestroy", (exec,)));
        s.step("graph destroy", d.call("cuGraphDestroy", (graph,)));
        s.step("sync", d.call("cuCtxSynchronize", ()));
        s.end();
    });
}
