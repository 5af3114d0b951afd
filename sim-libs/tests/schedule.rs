//! Order, time, threads, forks, versions: what no recorded scene shows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Driver, NULL, alone};
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

static ORDER: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static GATE: AtomicBool = AtomicBool::new(false);
static DONE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn note(data: *mut c_void) {
    ORDER.lock().unwrap().push(data as usize);
}

extern "C" fn hold(_data: *mut c_void) {
    while !GATE.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

extern "C" fn count(_data: *mut c_void) {
    DONE.fetch_add(1, Ordering::SeqCst);
}

fn host(d: &Driver, stream: usize, function: extern "C" fn(*mut c_void), data: usize) {
    d.ok("cuLaunchHostFunc", (stream, function as *const () as usize, data));
}

fn order() -> Vec<usize> {
    std::mem::take(&mut *ORDER.lock().unwrap())
}

#[test]
fn a_stream_is_in_order() {
    alone("a_stream_is_in_order", "", || {
        let (d, _) = Driver::ready();
        let stream = d.stream(1);
        (0..1000).for_each(|at| host(&d, stream, note, at));
        d.ok("cuStreamSynchronize", (stream,));
        assert_eq!(order(), (0..1000).collect::<Vec<_>>());
    });
}

#[test]
fn events_order_streams() {
    alone("events_order_streams", "", || {
        let (d, _) = Driver::ready();
        let (a, b, event) = (d.stream(1), d.stream(1), d.event(2));
        for round in 0..200 {
            host(&d, a, note, 2 * round);
            d.ok("cuEventRecord", (event, a));
            d.ok("cuStreamWaitEvent", (b, event, 0u32));
            host(&d, b, note, 2 * round + 1);
            d.ok("cuEventRecord", (event, b));
            d.ok("cuStreamWaitEvent", (a, event, 0u32));
        }
        d.ok("cuCtxSynchronize", ());
        assert_eq!(order(), (0..400).collect::<Vec<_>>());
    });
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    alone("the_legacy_stream_waits_for_blocking_streams_and_they_for_it", "", || {
        let (d, _) = Driver::ready();
        let (blocking, free) = (d.stream(0), d.stream(1));
        host(&d, blocking, hold, 0);
        host(&d, blocking, note, 1);
        host(&d, 0, note, 2);
        host(&d, blocking, note, 3);
        host(&d, 2, note, 4);
        d.ok("cuEventRecord", (d.event(0), free));
        d.ok("cuStreamSynchronize", (free,));
        assert_eq!(d.call("cuStreamQuery", (1usize,)), "NOT_READY");
        assert_eq!(d.call("cuStreamQuery", (2usize,)), "NOT_READY");
        GATE.store(true, Ordering::Release);
        d.ok("cuStreamSynchronize", (0usize,));
        d.ok("cuCtxSynchronize", ());
        let order = order();
        assert_eq!(order[..2], [1, 2]);
        assert!(order[2..] == [3, 4] || order[2..] == [4, 3], "{order:?}");
    });
}

#[test]
fn a_destroyed_stream_still_does_its_work() {
    alone("a_destroyed_stream_still_does_its_work", "", || {
        let (d, _) = Driver::ready();
        let (stream, event) = (d.stream(1), d.event(0));
        host(&d, stream, hold, 0);
        host(&d, stream, note, 1);
        d.ok("cuEventRecord", (event, stream));
        d.ok("cuStreamDestroy_v2", (stream,));
        assert_eq!(d.call("cuStreamQuery", (stream,)), "INVALID_HANDLE");
        assert_eq!(d.call("cuEventQuery", (event,)), "NOT_READY");
        GATE.store(true, Ordering::Release);
        d.ok("cuEventSynchronize", (event,));
        assert_eq!(order(), [1]);
        let reports = d.reports();
        assert!(reports.contains("cuStreamQuery") && reports.contains("cuStreamDestroy_v2"), "{reports}");
    });
}

#[test]
fn destroying_a_context_waits_for_it() {
    alone("destroying_a_context_waits_for_it", "", || {
        let (d, _) = Driver::ready();
        let context = d.get("cuCtxCreate_v2", |out| (out, 0u32, 0i32));
        let stream = d.stream(1);
        (0..100).for_each(|at| host(&d, stream, note, at));
        d.ok("cuCtxDestroy_v2", (context,));
        assert_eq!(order().len(), 100);
        assert_eq!(d.call("cuStreamSynchronize", (stream,)), "CONTEXT_IS_DESTROYED");
    });
}

fn drawn(d: &Driver) -> Vec<usize> {
    let streams: Vec<usize> = (0..4).map(|_| d.stream(1)).collect();
    for round in 0..5 {
        for (at, stream) in streams.iter().enumerate() {
            host(d, *stream, note, 10 * at + round);
        }
    }
    d.ok("cuCtxSynchronize", ());
    order()
}

#[test]
fn a_seed_fixes_the_schedule() {
    alone("a_seed_fixes_the_schedule", "seed=7", || {
        let (d, _) = Driver::ready();
        let set = |seed: u64| assert_eq!(d.code("cuirass_sim_set_seed", (seed,)), 0);
        set(7);
        let first = drawn(&d);
        set(7);
        assert_eq!(drawn(&d), first);
        let others: Vec<_> = (1..6)
            .map(|seed| {
                set(seed);
                drawn(&d)
            })
            .collect();
        assert!(others.iter().any(|other| *other != first), "other seeds, other schedules");
        // Nothing advances unless somebody asks.
        set(3);
        let stream = d.stream(1);
        (0..3).for_each(|at| host(&d, stream, note, at));
        std::thread::sleep(Duration::from_millis(5));
        let mut asked = 0;
        while d.call("cuStreamQuery", (stream,)) == "NOT_READY" {
            asked += 1;
            assert!(asked < 1000);
        }
        assert_eq!(order(), [0, 1, 2]);
    });
}

#[test]
fn a_program_that_only_watches_does_not_hang_under_a_seed() {
    alone("a_program_that_only_watches_does_not_hang_under_a_seed", "seed=1", || {
        let (d, _) = Driver::ready();
        host(&d, d.stream(1), count, 0);
        let start = Instant::now();
        while DONE.load(Ordering::SeqCst) == 0 {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn host_functions_may_not_call_the_driver() {
    static ANSWER: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn call(_data: *mut c_void) {
        let d = Driver::load();
        let mut got = 0usize;
        ANSWER.store(d.code("cuStreamCreate", (&raw mut got, 0u32)) as usize, Ordering::SeqCst);
    }
    alone("host_functions_may_not_call_the_driver", "", || {
        let (d, _) = Driver::ready();
        let stream = d.stream(1);
        host(&d, stream, call, 0);
        d.ok("cuStreamSynchronize", (stream,));
        assert_eq!(d.status(ANSWER.load(Ordering::SeqCst) as u32), "NOT_PERMITTED");
    });
}

#[test]
fn a_threads_default_stream_ends_with_it() {
    alone("a_threads_default_stream_ends_with_it", "", || {
        let (d, context) = Driver::ready();
        let threads = || d.state()["contexts"][0]["threads"].as_u64().unwrap();
        for round in 1..=20 {
            GATE.store(false, Ordering::Release);
            let work = move || {
                let d = Driver::load();
                d.ok("cuCtxSetCurrent", (context,));
                host(&d, 2, hold, 0);
                host(&d, 2, count, 0);
            };
            std::thread::spawn(work).join().unwrap();
            // A thread that is joined has run its destructors.
            assert_eq!((threads(), DONE.load(Ordering::SeqCst)), (0, round - 1));
            // What it had pending is done all the same, and waited for.
            GATE.store(true, Ordering::Release);
            d.ok("cuCtxSynchronize", ());
            assert_eq!(DONE.load(Ordering::SeqCst), round);
        }
        host(&d, 2, count, 0);
        d.ok("cuStreamSynchronize", (2usize,));
        assert_eq!(threads(), 1);
    });
}

#[test]
fn many_threads_at_once() {
    alone("many_threads_at_once", "", || {
        let (_, context) = Driver::ready();
        let threads: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn(move || {
                    let d = Driver::load();
                    d.ok("cuCtxSetCurrent", (context,));
                    for _ in 0..100 {
                        let (stream, event) = (d.stream(0), d.event(0));
                        host(&d, stream, count, 0);
                        d.ok("cuEventRecord", (event, stream));
                        host(&d, 2, count, 0);
                        d.ok("cuEventSynchronize", (event,));
                        d.ok("cuEventDestroy_v2", (event,));
                        d.ok("cuStreamDestroy_v2", (stream,));
                    }
                    d.ok("cuStreamSynchronize", (2usize,));
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(DONE.load(Ordering::SeqCst), 1600);
        let census = Driver::load().census();
        assert_eq!((census["stream"].as_u64(), census["event"].as_u64()), (Some(0), Some(0)));
    });
}

#[test]
fn a_forked_child_is_told() {
    alone("a_forked_child_is_told", "", || {
        let (d, _) = Driver::ready();
        let stream = d.stream(1);
        let mut version = 0i32;
        // SAFETY: [test] the child only calls the driver and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = [
                d.code("cuInit", (0u32,)),
                d.code("cuStreamSynchronize", (stream,)),
                d.code("cuCtxSynchronize", ()),
                d.code("cuStreamDestroy_v2", (stream,)),
            ];
            let version = d.code("cuDriverGetVersion", (&raw mut version,));
            // SAFETY: [test] leaves at once.
            unsafe { libc::_exit(i32::from(refused != [3; 4] || version != 0)) };
        }
        let mut status = 0;
        // SAFETY: [test] waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        d.ok("cuStreamSynchronize", (stream,));
    });
}

#[test]
fn nothing_works_before_initialisation() {
    alone("nothing_works_before_initialisation", "", || {
        let d = Driver::load();
        let mut got = 0usize;
        assert_eq!(d.call("cuDeviceGet", (&raw mut got, 0i32)), "NOT_INITIALIZED");
        assert_eq!(d.call("cuCtxGetCurrent", (&raw mut got,)), "NOT_INITIALIZED");
        assert_eq!(d.call("cuInit", (1u32,)), "INVALID_VALUE");
        d.ok("cuDriverGetVersion", (&raw mut got,));
    });
}

fn query(d: &Driver, name: &std::ffi::CStr, version: i32) -> (usize, u32) {
    let (mut address, mut result) = (0usize, 9u32);
    d.ok("cuGetProcAddress_v2", (name.as_ptr(), &raw mut address, version, 0u64, &raw mut result));
    (address, result)
}

#[test]
fn an_older_driver_lacks_newer_calls() {
    alone("an_older_driver_lacks_newer_calls", "driver=12.0", || {
        let d = Driver::load();
        let mut version = 0i32;
        d.ok("cuDriverGetVersion", (&raw mut version,));
        assert_eq!(version, 12000);
        d.ok("cuInit", (0u32,));
        assert_eq!(query(&d, c"cuGraphConditionalHandleCreate", 13000), (0, 1));
        assert_eq!(query(&d, c"cuNoSuchCall", 13000), (0, 1));
        assert_eq!(query(&d, c"cuLibraryLoadData", 11000), (0, 2));
        // The version that the driver has, not the newer one.
        assert_eq!(query(&d, c"cuEventElapsedTime", 13000).0, d.address("cuEventElapsedTime") as usize);
        assert_eq!(query(&d, c"cuStreamGetCaptureInfo", 13000).0, d.address("cuStreamGetCaptureInfo_v2") as usize);
        let mut ms = 0f32;
        assert_eq!(d.call("cuEventElapsedTime_v2", (&raw mut ms, NULL, NULL)), "NOT_SUPPORTED");
        assert!(d.reports().contains("12.0"), "{}", d.reports());
    });
}

#[test]
fn every_address_that_is_asked_for_is_the_exported_one() {
    alone("every_address_that_is_asked_for_is_the_exported_one", "", || {
        let d = Driver::load();
        for (name, version, export) in [
            (c"cuStreamDestroy", 13000, "cuStreamDestroy_v2"),
            (c"cuStreamDestroy", 3000, "cuStreamDestroy"),
            (c"cuEventElapsedTime", 13000, "cuEventElapsedTime_v2"),
            (c"cuMemAlloc", 13000, "cuMemAlloc_v2"),
            (c"cuInit", 13000, "cuInit"),
            (c"cuGetProcAddress", 12000, "cuGetProcAddress_v2"),
            (c"cuGetProcAddress", 11030, "cuGetProcAddress"),
        ] {
            assert_eq!(query(&d, name, version), (d.address(export) as usize, 0), "{name:?}");
        }
        let mut address = 0usize;
        assert_eq!(
            d.call("cuGetProcAddress", (c"cuNoSuchCall".as_ptr(), &raw mut address, 13000i32, 0u64)),
            "NOT_FOUND"
        );
        let mut table = 1usize;
        assert_ne!(d.call("cuGetExportTable", (&raw mut table, [0u8; 16].as_ptr())), "SUCCESS");
    });
}

#[test]
fn a_wrong_configuration_is_an_error() {
    alone("a_wrong_configuration_is_an_error", "color=red", || {
        let d = Driver::load();
        assert_eq!(d.call("cuInit", (0u32,)), "INVALID_VALUE");
        let reports = d.reports();
        assert!(reports.contains("color=red") && reports.contains("\"kind\":\"config\""), "{reports}");
    });
}

#[test]
fn several_devices() {
    alone("several_devices", "devices=3,arch=80,memory=2GiB", || {
        let (d, _) = Driver::ready();
        let mut number = 0i32;
        d.ok("cuDeviceGetCount", (&raw mut number,));
        assert_eq!(number, 3);
        d.ok("cuDeviceGetAttribute", (&raw mut number, 75u32, 2i32));
        assert_eq!(number, 8);
        assert_eq!(d.get("cuDeviceTotalMem_v2", |out| (out, 1i32)), 2 << 30);
        let uuid = |device: i32| {
            let mut uuid = [0u8; 16];
            d.ok("cuDeviceGetUuid_v2", (uuid.as_mut_ptr(), device));
            uuid
        };
        assert!(uuid(0) != uuid(1) && uuid(1) != uuid(2));
        let mut bus = [0u8; 32];
        d.ok("cuDeviceGetPCIBusId", (bus.as_mut_ptr(), 32i32, 2i32));
        d.ok("cuDeviceGetByPCIBusId", (&raw mut number, bus.as_ptr()));
        assert_eq!(number, 2);
    });
}

#[test]
fn what_is_not_simulated_says_so() {
    alone("what_is_not_simulated_says_so", "", || {
        let (d, _) = Driver::ready();
        let mut got = 0usize;
        assert_eq!(d.call("cuTexRefCreate", (&raw mut got,)), "NOT_SUPPORTED");
        assert!(d.reports().contains("cuTexRefCreate"), "{}", d.reports());
    });
}

#[test]
fn a_reset_ends_everything() {
    alone("a_reset_ends_everything", "", || {
        let (d, _) = Driver::ready();
        d.get("cuCtxCreate_v2", |out| (out, 0u32, 0i32));
        let stream = d.stream(1);
        d.event(0);
        d.get("cuGraphCreate", |out| (out, 0u32));
        d.ok("cuStreamBeginCapture_v2", (stream, 0u32));
        assert_eq!(d.code("cuirass_sim_reset", ()), 0);
        let census = d.census();
        assert!(census.as_object().unwrap().values().all(|count| *count == 0), "{census}");
        let mut current = 1usize;
        d.ok("cuCtxGetCurrent", (&raw mut current,));
        assert_eq!(current, 0);
        let again = d.get("cuDevicePrimaryCtxRetain", |out| (out, 0i32));
        d.ok("cuCtxSetCurrent", (again,));
        d.stream(0);
    });
}

#[test]
fn streams_that_wait_for_the_host_do_not_hold_up_others() {
    alone("streams_that_wait_for_the_host_do_not_hold_up_others", "", || {
        // One stream's host function holds the callback thread; events and their order go on elsewhere.
        let (d, _) = Driver::ready();
        let held: Vec<usize> = (0..12).map(|_| d.stream(1)).collect();
        held.iter().for_each(|stream| host(&d, *stream, hold, 0));
        let (free, event) = (d.stream(1), d.event(0));
        d.ok("cuEventRecord", (event, free));
        d.ok("cuStreamSynchronize", (free,));
        d.ok("cuEventQuery", (event,));
        held.iter().for_each(|stream| assert_eq!(d.call("cuStreamQuery", (*stream,)), "NOT_READY"));
        GATE.store(true, Ordering::Release);
        d.ok("cuCtxSynchronize", ());
    });
}

#[test]
fn a_user_object_lives_as_long_as_the_graph_that_uses_it() {
    alone("a_user_object_lives_as_long_as_the_graph_that_uses_it", "", || {
        let (d, _) = Driver::ready();
        let (stream, mut object) = (d.stream(1), 0usize);
        d.ok("cuUserObjectCreate", (&raw mut object, 7usize, note as *const () as usize, 1u32, 1u32));
        let graph = d.get("cuGraphCreate", |out| (out, 0u32));
        d.ok("cuGraphRetainUserObject", (graph, object, 1u32, 1u32));
        let (mut node, params) = (0usize, [hold as *const () as usize, 0]);
        d.ok("cuGraphAddHostNode", (&raw mut node, graph, NULL, 0usize, params.as_ptr()));
        let exec = d.get("cuGraphInstantiateWithFlags", |out| (out, graph, 0u64));
        d.ok("cuGraphLaunch", (exec, stream));
        d.ok("cuGraphDestroy", (graph,));
        d.ok("cuGraphExecDestroy", (exec,));
        std::thread::sleep(Duration::from_millis(10));
        assert!(order().is_empty());
        GATE.store(true, Ordering::Release);
        let start = Instant::now();
        while d.census()["user_object"] != 0 {
            assert!(start.elapsed() < Duration::from_secs(10));
        }
        d.ok("cuLaunchHostFunc", (stream, count as *const () as usize, NULL));
        d.ok("cuStreamSynchronize", (stream,));
        assert_eq!(order(), [7]);
    });
}

#[test]
fn a_seed_draws_the_order_of_a_graphs_branches() {
    alone("a_seed_draws_the_order_of_a_graphs_branches", "seed=1", || {
        let (d, _) = Driver::ready();
        let graph = d.get("cuGraphCreate", |out| (out, 0u32));
        let node = |data: usize, after: &[usize]| {
            let (mut node, params) = (0usize, [note as *const () as usize, data]);
            d.ok("cuGraphAddHostNode", (&raw mut node, graph, after.as_ptr(), after.len(), params.as_ptr()));
            node
        };
        let first = node(0, &[]);
        let branches: Vec<usize> = (1..6).map(|at| node(at, &[first])).collect();
        node(6, &branches);
        let exec = d.get("cuGraphInstantiateWithFlags", |out| (out, graph, 0u64));
        let stream = d.stream(1);
        let run = |seed: u64| {
            assert_eq!(d.code("cuirass_sim_set_seed", (seed,)), 0);
            d.ok("cuGraphLaunch", (exec, stream));
            d.ok("cuStreamSynchronize", (stream,));
            let order = order();
            assert_eq!((order.len(), order[0], order[6]), (7, 0, 6), "{order:?}");
            order
        };
        assert_eq!(run(3), run(3));
        let orders: std::collections::HashSet<Vec<usize>> = (0..20).map(run).collect();
        assert!(orders.len() > 5, "{orders:?}");
    });
}

const SPIN: &str = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry spin() { LOOP: bra LOOP; }\n\0";

fn spin(d: &Driver) -> usize {
    let module = d.get("cuModuleLoadData", |out| (out, SPIN.as_ptr()));
    let function = d.get("cuModuleGetFunction", |out| (out, module, c"spin".as_ptr()));
    let stream = d.stream(1);
    let one = 1u32;
    d.ok("cuLaunchKernel", (function, one, one, one, one, one, one, 0u32, stream, NULL, NULL));
    stream
}

#[test]
fn the_process_ends_while_work_is_pending() {
    alone("the_process_ends_while_work_is_pending", "", || {
        let (d, _) = Driver::ready();
        host(&d, d.stream(1), hold, 0);
        let stream = spin(&d);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(d.call("cuStreamQuery", (stream,)), "NOT_READY");
    });
}

#[test]
fn many_kernels_that_do_not_end_leave_room_for_others() {
    alone("many_kernels_that_do_not_end_leave_room_for_others", "", || {
        let (d, _) = Driver::ready();
        (0..6).for_each(|_| {
            spin(&d);
        });
        let (stream, memory) = (d.stream(1), d.memory(1 << 20));
        d.ok("cuMemsetD8Async", (memory, 1u8, 1usize << 20, stream));
        d.ok("cuStreamSynchronize", (stream,));
    });
}

#[test]
fn fuel_ends_a_kernel_that_does_not_end() {
    alone("fuel_ends_a_kernel_that_does_not_end", "fuel=100000", || {
        let (d, _) = Driver::ready();
        let stream = spin(&d);
        assert_eq!(d.call("cuStreamSynchronize", (stream,)), "LAUNCH_TIMEOUT");
        assert!(d.reports().contains("\"kind\":\"fault\""), "{}", d.reports());
    });
}

fn load(d: &Driver, version: &str) -> String {
    let text = SPIN.replace("8.0", version);
    let mut module = 0usize;
    d.call("cuModuleLoadData", (&raw mut module, text.as_ptr()))
}

#[test]
fn a_driver_takes_ptx_up_to_its_own_version() {
    alone("a_driver_takes_ptx_up_to_its_own_version", "driver=12.0", || {
        let (d, _) = Driver::ready();
        assert_eq!(load(&d, "8.0"), "SUCCESS");
        assert_eq!(load(&d, "8.1"), "UNSUPPORTED_PTX_VERSION");
        assert_eq!(load(&d, "9.0"), "UNSUPPORTED_PTX_VERSION");
    });
}

#[test]
fn ptx_of_any_version_can_be_asked_for() {
    alone("ptx_of_any_version_can_be_asked_for", "driver=12.0,ptx=any", || {
        let (d, _) = Driver::ready();
        assert_eq!(load(&d, "9.0"), "SUCCESS");
    });
}

#[test]
fn the_extra_functions_are_the_listed_ones() {
    let d = Driver::load();
    let list = include_str!("../../families/sim.toml");
    let listed: Vec<&str> = list.lines().filter_map(|line| line.split_once(" = ").map(|(name, _)| name)).collect();
    let listed: Vec<&str> = listed.into_iter().filter(|name| name.starts_with("cuirass_sim_")).collect();
    listed.iter().for_each(|name| assert!(!d.address(name).is_null()));
    let source = include_str!("../src/sim.rs");
    let made: Vec<&str> = source.split("extern \"C\" fn ").skip(1).filter_map(|rest| rest.split('(').next()).collect();
    assert_eq!(listed.len(), made.len());
    made.iter().for_each(|name| assert!(listed.contains(name), "{name} is not listed"));
    let documented = include_str!("../src/lib.rs");
    made.iter().for_each(|name| assert!(documented.contains(&format!("{name}(")), "{name} is not documented"));
}
