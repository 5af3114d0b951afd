//! The scenes that were recorded on a real device, replayed on the simulated driver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Driver, NULL, Scene, alone};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static GATE: AtomicBool = AtomicBool::new(false);

/// A host function that holds its stream until the gate is open.
extern "C" fn hold(_data: *mut std::ffi::c_void) {
    while !GATE.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn hold_up(d: &Driver, stream: usize) {
    GATE.store(false, Ordering::Release);
    d.ok("cuLaunchHostFunc", (stream, hold as *const () as usize, NULL));
}

fn release() {
    GATE.store(true, Ordering::Release);
}

#[test]
fn contexts() {
    alone("contexts", "", || {
        let (d, prim) = Driver::ready();
        let mut s = Scene::new("contexts");
        let (s1, e1) = (d.stream(1), d.event(0));
        let mut got = 0usize;
        let status = d.call("cuCtxGetCurrent", (&raw mut got,));
        s.value("get", status, got == prim);
        s.step("pop", d.call("cuCtxPopCurrent_v2", (&raw mut got,)));
        let status = d.call("cuCtxGetCurrent", (&raw mut got,));
        s.value("get none", status, got);
        s.step("pop empty", d.call("cuCtxPopCurrent_v2", (&raw mut got,)));
        s.step("sync no ctx", d.call("cuCtxSynchronize", ()));
        s.step("stream create no ctx", d.call("cuStreamCreate", (&raw mut got, 1u32)));
        s.step("event create no ctx", d.call("cuEventCreate", (&raw mut got, 0u32)));
        s.step("alloc no ctx", d.call("cuMemAlloc_v2", (&raw mut got, 64usize)));
        let mut device = 0i32;
        s.step("getdevice no ctx", d.call("cuCtxGetDevice", (&raw mut device,)));
        s.step("allochost no ctx", d.call("cuMemAllocHost_v2", (&raw mut got, 64usize)));
        s.step("alloc async no ctx (legacy)", d.call("cuMemAllocAsync", (&raw mut got, 64usize, NULL)));
        let mut c2 = 0usize;
        s.step("ctx create", d.call("cuCtxCreate_v2", (&raw mut c2, 0u32, 0i32)));
        let status = d.call("cuCtxGetCurrent", (&raw mut got,));
        s.value("current is c2", status, got == c2);
        let mut s2 = 0usize;
        s.step("stream in c2", d.call("cuStreamCreate", (&raw mut s2, 1u32)));
        s.step("record e1 on s2 (ctx mismatch)", d.call("cuEventRecord", (e1, s2)));
        let e2 = d.event(0);
        let p = d.memory(1024);
        d.ok("cuCtxSetCurrent", (prim,));
        s.step("record e2 on s2 from other ctx", d.call("cuEventRecord", (e2, s2)));
        s.step("wait s1 on e2", d.call("cuStreamWaitEvent", (s1, e2, 0u32)));
        s.step("sync s2 from other ctx", d.call("cuStreamSynchronize", (s2,)));
        s.step("memset s2", d.call("cuMemsetD8Async", (p, 1u8, 1024usize, s2)));
        s.step("destroy c2", d.call("cuCtxDestroy_v2", (c2,)));
        s.step("set current destroyed", d.call("cuCtxSetCurrent", (c2,)));
        let status = d.call("cuCtxGetCurrent", (&raw mut got,));
        s.value("get after", status, if got == c2 { "c2" } else { "another" });
        s.step("stream create in destroyed", d.call("cuStreamCreate", (&raw mut got, 1u32)));
        s.step("sync destroyed", d.call("cuCtxSynchronize", ()));
        s.step("push destroyed", d.call("cuCtxPushCurrent_v2", (c2,)));
        s.end();
        // The real driver crashes from here on (facts/differences.toml).
        for (call, status) in [
            ("stream", d.call("cuStreamCreate", (&raw mut got, 1u32))),
            ("sync", d.call("cuStreamSynchronize", (s2,))),
            ("event", d.call("cuEventQuery", (e2,))),
            ("free", d.call("cuMemFree_v2", (64usize,))),
        ] {
            assert_eq!(status, "CONTEXT_IS_DESTROYED", "{call}");
        }
        let reports = d.reports();
        assert!(reports.contains("cuCtxDestroy_v2"), "a report names the call that ended the context: {reports}");
    });
}

#[test]
fn context_destroyed_current() {
    alone("context_destroyed_current", "", || {
        let (d, prim) = Driver::ready();
        let mut s = Scene::new("context_destroyed_current");
        let c2 = d.get("cuCtxCreate_v2", |out| (out, 0u32, 0i32));
        let mut got = 0usize;
        s.step("destroy current", d.call("cuCtxDestroy_v2", (c2,)));
        let status = d.call("cuCtxGetCurrent", (&raw mut got,));
        s.value("get", status, if got == prim { "prim" } else { "another" });
        s.step("stream create", d.call("cuStreamCreate", (&raw mut got, 1u32)));
        s.end();
    });
}

#[test]
fn context_destroyed_on_other_thread() {
    alone("context_destroyed_on_other_thread", "", || {
        let (d, prim) = Driver::ready();
        let mut s = Scene::new("context_destroyed_on_other_thread");
        let c2 = d.get("cuCtxCreate_v2", |out| (out, 0u32, 0i32));
        let other = std::thread::spawn(move || Driver::load().call("cuCtxDestroy_v2", (c2,)));
        s.step("destroy from other thread", other.join().unwrap());
        let mut got = 0usize;
        let status = d.call("cuCtxGetCurrent", (&raw mut got,));
        s.value("get", status, got == c2);
        s.step("stream create", d.call("cuStreamCreate", (&raw mut got, 1u32)));
        s.step("sync", d.call("cuCtxSynchronize", ()));
        s.step("set primary", d.call("cuCtxSetCurrent", (prim,)));
        s.step("set c2", d.call("cuCtxSetCurrent", (c2,)));
        s.end();
    });
}

#[test]
fn primary_flags() {
    alone("primary_flags", "", || {
        let d = Driver::load();
        d.ok("cuInit", (0u32,));
        let mut s = Scene::new("primary_flags");
        let (mut flags, mut active, mut context, mut got) = (9u32, 9i32, 0usize, 0usize);
        let status = d.call("cuDevicePrimaryCtxGetState", (0i32, &raw mut flags, &raw mut active));
        s.value("state inactive", status, json!([flags, active]));
        s.step("retain", d.call("cuDevicePrimaryCtxRetain", (&raw mut context, 0i32)));
        let status = d.call("cuDevicePrimaryCtxGetState", (0i32, &raw mut flags, &raw mut active));
        s.value("state", status, json!([flags, active]));
        let status = d.call("cuCtxGetCurrent", (&raw mut got,));
        s.value("current after retain", status, got);
        s.step("release", d.call("cuDevicePrimaryCtxRelease_v2", (0i32,)));
        s.step("release again", d.call("cuDevicePrimaryCtxRelease_v2", (0i32,)));
        s.step("set released", d.call("cuCtxSetCurrent", (context,)));
        let status = d.call("cuCtxGetCurrent", (&raw mut got,));
        s.value("get", status, got == context);
        s.step("stream create in released", d.call("cuStreamCreate", (&raw mut got, 1u32)));
        let mut number = 0i32;
        s.step("device get 99", d.call("cuDeviceGet", (&raw mut number, 99i32)));
        s.step("device get -1", d.call("cuDeviceGet", (&raw mut number, -1i32)));
        s.step("attr of device 99", d.call("cuDeviceGetAttribute", (&raw mut number, 1u32, 99i32)));
        s.end();
    });
}

#[test]
fn events() {
    alone("events", "", || {
        let (d, _) = Driver::ready();
        let mut s = Scene::new("events");
        let (stream, a, b, untimed) = (d.stream(1), d.event(0), d.event(0), d.event(2));
        let mut ms = 0f32;
        s.step("elapsed unrecorded", d.call("cuEventElapsedTime", (&raw mut ms, a, b)));
        s.step("query unrecorded", d.call("cuEventQuery", (a,)));
        s.step("sync unrecorded", d.call("cuEventSynchronize", (a,)));
        d.ok("cuEventRecord", (a, stream));
        d.ok("cuEventRecord", (untimed, stream));
        d.ok("cuStreamSynchronize", (stream,));
        s.step("elapsed with untimed", d.call("cuEventElapsedTime", (&raw mut ms, a, untimed)));
        s.step("elapsed one recorded", d.call("cuEventElapsedTime", (&raw mut ms, a, b)));
        let mut handle = [0u8; 64];
        s.step("ipc handle non-ipc event", d.call("cuIpcGetEventHandle", (&raw mut handle, a)));
        let mut got = 0usize;
        s.step("create interprocess timed", d.call("cuEventCreate", (&raw mut got, 4u32)));
        s.step("create interprocess untimed", d.call("cuEventCreate", (&raw mut got, 6u32)));
        s.step("create bad flags", d.call("cuEventCreate", (&raw mut got, 0xff00u32)));
        s.step("stream bad flags", d.call("cuStreamCreate", (&raw mut got, 0xff00u32)));
        s.step("stream prio out of range", d.call("cuStreamCreateWithPriority", (&raw mut got, 1u32, 100i32)));
        let (mut least, mut greatest) = (9i32, 9i32);
        let status = d.call("cuCtxGetStreamPriorityRange", (&raw mut least, &raw mut greatest));
        s.value("prio range", status, json!([least, greatest]));
        hold_up(&d, stream);
        d.ok("cuEventRecord", (b, stream));
        s.step("query pending", d.call("cuEventQuery", (b,)));
        s.step("stream query pending", d.call("cuStreamQuery", (stream,)));
        s.step("elapsed pending", d.call("cuEventElapsedTime", (&raw mut ms, a, b)));
        let later = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            release();
        });
        s.step("sync", d.call("cuEventSynchronize", (b,)));
        later.join().unwrap();
        d.ok("cuEventElapsedTime", (&raw mut ms, a, b));
        assert!((10.0..10_000.0).contains(&ms), "{ms} ms");
        hold_up(&d, stream);
        d.ok("cuEventRecord", (b, stream));
        s.step("destroy pending ok", d.call("cuEventDestroy_v2", (b,)));
        release();
        s.end();
    });
}

#[test]
fn graphs() {
    alone("graphs", "", || {
        let (d, _) = Driver::ready();
        let mut s = Scene::new("graphs");
        let graph = || d.get("cuGraphCreate", |out| (out, 0u32));
        let node = |graph: usize, after: &[usize]| {
            let mut node = 0usize;
            let status = d.call("cuGraphAddEmptyNode", (&raw mut node, graph, after.as_ptr(), after.len()));
            (status, node)
        };
        let edge = |graph: usize, from: usize, to: usize| {
            d.call("cuGraphAddDependencies_v2", (graph, &raw const from, &raw const to, NULL, 1usize))
        };
        let (g, other) = (graph(), graph());
        let (a, foreign) = (node(g, &[]).1, node(other, &[]).1);
        let b = node(g, &[a]).1;
        s.step("add dep dup", edge(g, a, b));
        s.step("add cycle", edge(g, b, a));
        let mut exec = 0usize;
        s.step("instantiate cycle", d.call("cuGraphInstantiateWithFlags", (&raw mut exec, g, 0u64)));
        s.step("self edge", edge(g, a, a));
        s.step("cross graph dep", edge(g, a, foreign));
        s.step("add node with foreign dep", node(g, &[foreign]).0);
        d.ok("cuGraphRemoveDependencies_v2", (g, &raw const b, &raw const a, NULL, 1usize));
        s.step(
            "remove absent dep",
            d.call("cuGraphRemoveDependencies_v2", (g, &raw const b, &raw const a, NULL, 1usize)),
        );
        s.step("destroy node", d.call("cuGraphDestroyNode", (b,)));
        s.step("instantiate", d.call("cuGraphInstantiateWithFlags", (&raw mut exec, g, 0u64)));
        let mut got = 0usize;
        s.step("instantiate empty", d.call("cuGraphInstantiateWithFlags", (&raw mut got, graph(), 0u64)));
        let (mut child, mut inner) = (0usize, 0usize);
        s.step("add child", d.call("cuGraphAddChildGraphNode", (&raw mut child, other, NULL, 0usize, g)));
        s.step("child get graph", d.call("cuGraphChildGraphNodeGetGraph", (child, &raw mut inner)));
        assert_ne!(inner, g);
        let mut clone = 0usize;
        s.step("clone", d.call("cuGraphClone", (&raw mut clone, other)));
        let stream = d.stream(1);
        s.step("launch", d.call("cuGraphLaunch", (exec, stream)));
        let mut info = [0usize; 3];
        s.step("exec update mismatch", d.call("cuGraphExecUpdate_v2", (exec, other, info.as_mut_ptr())));
        s.step("exec update same", d.call("cuGraphExecUpdate_v2", (exec, g, info.as_mut_ptr())));
        s.step("destroy graph", d.call("cuGraphDestroy", (g,)));
        s.step("launch after graph destroyed", d.call("cuGraphLaunch", (exec, stream)));
        s.step("sync", d.call("cuStreamSynchronize", (stream,)));
        s.step("exec destroy", d.call("cuGraphExecDestroy", (exec,)));
        s.end();
        assert_eq!(d.call("cuGraphLaunch", (exec, stream)), "INVALID_VALUE");
        assert_eq!(d.call("cuGraphDestroy", (inner,)), "INVALID_VALUE");
    });
}

#[test]
fn green() {
    alone("green", "", || {
        let (d, prim) = Driver::ready();
        let mut s = Scene::new("green");
        // CUdevResource is 144 bytes; the number of multiprocessors stands behind 96.
        let (mut all, mut part, mut rest) = ([0u32; 36], [0u32; 36], [0u32; 36]);
        let status = d.call("cuDeviceGetDevResource", (0i32, all.as_mut_ptr(), 1u32));
        s.value("sm resource", status, all[24]);
        let mut groups = 1u32;
        let split = (part.as_mut_ptr(), &raw mut groups, all.as_ptr(), rest.as_mut_ptr(), 0u32, 16u32);
        let status = d.call("cuDevSmResourceSplitByCount", split);
        s.value("split 16", status, json!([part[24], groups]));
        assert_eq!(rest[24], 132 - 16);
        let (mut description, mut green, mut context, mut stream, mut got) = (0usize, 0usize, 0usize, 0usize, 0usize);
        s.step("desc", d.call("cuDevResourceGenerateDesc", (&raw mut description, part.as_mut_ptr(), 1u32)));
        s.step("green create", d.call("cuGreenCtxCreate", (&raw mut green, description, 0i32, 1u32)));
        s.step("ctx from green", d.call("cuCtxFromGreenCtx", (&raw mut context, green)));
        s.step("green stream", d.call("cuGreenCtxStreamCreate", (&raw mut stream, green, 1u32, 0i32)));
        s.step("green stream flags 0", d.call("cuGreenCtxStreamCreate", (&raw mut got, green, 0u32, 0i32)));
        s.step("stream green ctx", d.call("cuStreamGetGreenCtx", (stream, &raw mut got)));
        assert_eq!(got, green);
        s.step("destroy", d.call("cuGreenCtxDestroy", (green,)));
        s.end();
        assert_eq!(d.call("cuStreamSynchronize", (stream,)), "CONTEXT_IS_DESTROYED");
        d.ok("cuCtxGetCurrent", (&raw mut got,));
        assert_eq!(got, prim);
    });
}

#[test]
fn every_crash_of_the_real_driver_is_a_listed_difference() {
    let text = std::fs::read_to_string(common::facts().join("scenes.jsonl")).unwrap();
    let scenes = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let crashed: Vec<String> =
        scenes.filter(|scene| scene["rc"] != 0).map(|scene| scene["scene"].to_string()).collect();
    let listed = common::differences().into_iter().filter(|entry| entry.contains("crashed"));
    let listed: Vec<String> =
        listed.map(|entry| entry.lines().find_map(|line| line.strip_prefix("scene = ")).unwrap().to_owned()).collect();
    assert_eq!(crashed, listed);
}
