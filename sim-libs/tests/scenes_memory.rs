//! The recorded scenes about memory, pools, launches and faults, replayed on the simulated driver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Driver, NULL, Scene, alone};

const PTX: &str = "\
.version 8.0
.target sm_80
.address_size 64
.visible .entry empty() { ret; }
.visible .entry bounded() .maxntid 64, 1, 1 { ret; }
.visible .entry illegal()
{
    .reg .b32 %r1;
    .reg .b64 %rd1;
    mov.u64 %rd1, 16;
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry trapping() { trap; }
.visible .entry misaligned(.param .u64 to)
{
    .reg .b32 %r1;
    .reg .b64 %rd1;
    ld.param.u64 %rd1, [to];
    add.u64 %rd1, %rd1, 1;
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
\0";

const HUGE: usize = 1 << 50;

#[test]
fn memory() {
    alone("memory", "", || {
        let (d, _) = Driver::ready();
        let mut s = Scene::new("memory");
        let (stream, mut got) = (d.stream(1), 0usize);
        let out = &raw mut got;
        let free = |pointer: usize| d.call("cuMemFree_v2", (pointer,));
        let free_async = |pointer: usize| d.call("cuMemFreeAsync", (pointer, stream));
        let free_host = |pointer: usize| d.call("cuMemFreeHost", (pointer,));
        s.step("alloc 0", d.call("cuMemAlloc_v2", (out, 0usize)));
        s.step("alloc huge", d.call("cuMemAlloc_v2", (out, HUGE)));
        s.step("free null", free(0));
        s.step("free bogus", free(0xdead_0000));
        let p = d.memory(4096);
        s.step("free interior", free(p + 256));
        s.step("free", free(p));
        s.step("double free", free(p));
        s.step("memset freed", d.call("cuMemsetD8_v2", (p, 0u8, 64usize)));
        s.step("alloc async 0", d.call("cuMemAllocAsync", (out, 0usize, stream)));
        s.step("alloc async huge", d.call("cuMemAllocAsync", (out, HUGE, stream)));
        let q = d.get("cuMemAllocAsync", |out| (out, 4096usize, stream));
        s.step("ptr attr ctx", d.call("cuPointerGetAttribute", (out, 1u32, q)));
        s.step("ptr attr mempool", d.call("cuPointerGetAttribute", (out, 17u32, q)));
        s.step("free async", free_async(q));
        s.step("free async twice", free_async(q));
        s.step("free async null", free_async(0));
        s.step("sync", d.call("cuStreamSynchronize", (stream,)));
        let h = d.get("cuMemAllocHost_v2", |out| (out, 4096usize));
        s.step("free host", free_host(h));
        s.step("free host twice", free_host(h));
        s.step("free host bogus", free_host(0xdead_0000));
        s.step("alloc host 0", d.call("cuMemAllocHost_v2", (out, 0usize)));
        s.step("managed 0", d.call("cuMemAllocManaged", (out, 0usize, 1u32)));
        s.step("ptr attr bogus", d.call("cuPointerGetAttribute", (out, 1u32, 0xdead_0000usize)));
        let p = d.memory(4096);
        s.step("memcpy dtod bogus", d.call("cuMemcpyDtoD_v2", (p, 0xdead_0000usize, 64usize)));
        s.step("memcpy 0 bytes bogus", d.call("cuMemcpyDtoD_v2", (p, 0xdead_0000usize, 0usize)));
        s.step("memset async 0 bytes", d.call("cuMemsetD8Async", (p, 0u8, 0usize, stream)));
        s.step("memset oob", d.call("cuMemsetD8_v2", (p, 0u8, 1usize << 30)));
        s.step("ctx sync", d.call("cuCtxSynchronize", ()));
        s.end();
        free(p);
        for kind in ["memory", "pooled_memory"] {
            assert_eq!(d.census()[kind], 0, "{kind}: {}", d.census());
        }
        assert!(d.reports().contains("\"kind\":\"bug\""), "a double free is a bug of the program");
    });
}

#[test]
fn pools() {
    alone("pools", "memory=4GiB", || {
        let (d, _) = Driver::ready();
        let mut s = Scene::new("pools");
        let stream = d.stream(1);
        let default = d.get("cuDeviceGetDefaultMemPool", |out| (out, 0i32));
        let attribute = |pool: usize, attribute: u32| {
            let mut value = 0u64;
            let status = d.call("cuMemPoolGetAttribute", (pool, attribute, &raw mut value));
            // The reuse policies are ints.
            (status, if attribute <= 3 { value & 0xffff_ffff } else { value })
        };
        for (name, number) in [
            ("REUSE_FOLLOW_EVENT_DEPENDENCIES", 1),
            ("REUSE_ALLOW_OPPORTUNISTIC", 2),
            ("REUSE_ALLOW_INTERNAL_DEPENDENCIES", 3),
            ("RELEASE_THRESHOLD", 4),
            ("RESERVED_MEM_CURRENT", 5),
            ("RESERVED_MEM_HIGH", 6),
            ("USED_MEM_CURRENT", 7),
            ("USED_MEM_HIGH", 8),
        ] {
            let (status, value) = attribute(default, number);
            s.value(&format!("default {name}"), status, value);
        }
        let props = |most: u64, handles: u32| {
            let mut props = [0u8; 88];
            props[0] = 1;
            props[4] = handles as u8;
            props[8] = 1;
            props[24..32].copy_from_slice(&most.to_le_bytes());
            props
        };
        let (mut pool, mut p, mut got) = (0usize, 0usize, 0usize);
        s.step("create max 2MiB", d.call("cuMemPoolCreate", (&raw mut pool, props(2 << 20, 0).as_ptr())));
        let alloc = |out: *mut usize, bytes: usize| d.call("cuMemAllocFromPoolAsync", (out, bytes, pool, stream));
        s.step("alloc 1MiB", alloc(&raw mut p, 1 << 20));
        s.step("alloc 64MiB over max", alloc(&raw mut got, 64 << 20));
        for (name, number) in [("RESERVED_MEM_CURRENT", 5), ("USED_MEM_CURRENT", 7), ("USED_MEM_HIGH", 8)] {
            let (status, value) = attribute(pool, number);
            s.value(&format!("after alloc {name}"), status, value);
        }
        let set = |attribute: u32, value: u64| d.call("cuMemPoolSetAttribute", (pool, attribute, &raw const value));
        s.step("set RO attr USED_MEM_CURRENT", set(7, 0));
        s.step("reset USED_MEM_HIGH", set(8, 0));
        s.step("USED_MEM_HIGH to 5", set(8, 5));
        s.step("destroy with outstanding", d.call("cuMemPoolDestroy", (pool,)));
        s.step("free async after destroy", d.call("cuMemFreeAsync", (p, stream)));
        s.step("sync", d.call("cuStreamSynchronize", (stream,)));
        s.step("destroy default pool", d.call("cuMemPoolDestroy", (default,)));
        let plain = props(0, 0);
        let plain = d.get("cuMemPoolCreate", |out| (out, plain.as_ptr()));
        let (mut file, mut data, mut shared) = (0u64, [0u64; 8], 0usize);
        let export =
            |pool: usize, to: &mut u64| d.call("cuMemPoolExportToShareableHandle", (to as *mut u64, pool, 1u32, 0u64));
        s.step("export non-ipc", export(plain, &mut file));
        s.step("create ipc pool", d.call("cuMemPoolCreate", (&raw mut shared, props(0, 1).as_ptr())));
        let status = export(shared, &mut file);
        s.value("export fd", status, "<class 'int'>");
        let p = d.get("cuMemAllocFromPoolAsync", |out| (out, 4096usize, shared, stream));
        s.step("export ptr", d.call("cuMemPoolExportPointer", (data.as_mut_ptr(), p)));
        let (mut imported, mut alias) = (0usize, 0usize);
        let import = (&raw mut imported, file as usize, 1u32, 0u64);
        s.step("import pool same process", d.call("cuMemPoolImportFromShareableHandle", import));
        s.step("import ptr same process", d.call("cuMemPoolImportPointer", (&raw mut alias, imported, data.as_ptr())));
        let from_imported = (&raw mut got, 64usize, imported, stream);
        s.step("alloc from imported", d.call("cuMemAllocFromPoolAsync", from_imported));
        // Both addresses are of the same bytes.
        d.ok("cuMemsetD8Async", (p, 3u8, 4096usize, stream));
        d.ok("cuStreamSynchronize", (stream,));
        let mut back = [0u8; 4];
        d.ok("cuMemcpyDtoH_v2", (back.as_mut_ptr(), alias, 4usize));
        assert_eq!(back, [3; 4]);
        d.ok("cuMemFreeAsync", (alias, stream));
        d.ok("cuMemFreeAsync", (p, stream));
        // The driver would lose the imported pool without this wait.
        d.ok("cuStreamSynchronize", (stream,));
        d.ok("cuMemPoolDestroy", (imported,));
        d.ok("cuMemPoolDestroy", (shared,));
        d.ok("cuMemPoolDestroy", (plain,));
        s.step("create max huge", d.call("cuMemPoolCreate", (&raw mut got, props(1 << 50, 0).as_ptr())));
        s.end();
        assert_eq!((&d.census()["pool"], &d.census()["pooled_memory"]), (&0.into(), &0.into()));
    });
}

#[test]
fn launches() {
    alone("launches", "", || {
        let (d, _) = Driver::ready();
        let mut s = Scene::new("launches");
        let (mut module, mut function, mut got) = (0usize, 0usize, 0usize);
        let out = &raw mut got;
        s.step("load", d.call("cuModuleLoadData", (&raw mut module, PTX.as_ptr())));
        s.step("get", d.call("cuModuleGetFunction", (&raw mut function, module, c"empty".as_ptr())));
        s.step("get missing", d.call("cuModuleGetFunction", (out, module, c"absent".as_ptr())));
        s.step("get global missing", d.call("cuModuleGetGlobal_v2", (out, NULL, module, c"absent".as_ptr())));
        let bounded = d.get("cuModuleGetFunction", |out| (out, module, c"bounded".as_ptr()));
        let launch = |function: usize, grid: [u32; 3], block: [u32; 3], shared: u32| {
            let [gx, gy, gz] = grid;
            let [bx, by, bz] = block;
            d.call("cuLaunchKernel", (function, gx, gy, gz, bx, by, bz, shared, NULL, NULL, NULL))
        };
        s.step("grid 0", launch(function, [0, 1, 1], [1, 1, 1], 0));
        s.step("block 0", launch(function, [1, 1, 1], [0, 1, 1], 0));
        s.step("block 2048", launch(function, [1, 1, 1], [2048, 1, 1], 0));
        s.step("block z 65", launch(function, [1, 1, 1], [1, 1, 65], 0));
        s.step("grid y 65536", launch(function, [1, 65536, 1], [1, 1, 1], 0));
        s.step("shmem 64K no opt-in", launch(function, [1, 1, 1], [1, 1, 1], 64 << 10));
        s.step("launch bounds exceeded", launch(bounded, [1, 1, 1], [128, 1, 1], 0));
        s.step("null fn", launch(0, [1, 1, 1], [1, 1, 1], 0));
        s.step("ok", launch(function, [1, 1, 1], [1, 1, 1], 0));
        s.step("sync", d.call("cuCtxSynchronize", ()));
        let load = |image: *const u8| {
            let mut got = 0usize;
            d.call("cuModuleLoadData", (&raw mut got, image))
        };
        s.step("load garbage", load([0xabu8, 0xcd, 0xef, 0x12, 0].as_ptr()));
        s.step(
            "load bad ptx",
            load(c".version 8.0\n.target sm_80\n.address_size 64\nthis is not ptx\n".as_ptr().cast()),
        );
        s.step("load newer ptx", load(c".version 99.0\n.target sm_80\n.address_size 64\n".as_ptr().cast()));
        s.step("load sm_75 cubin", load(cubin(75).as_ptr()));
        s.step("unload", d.call("cuModuleUnload", (module,)));
        s.step("unload twice", d.call("cuModuleUnload", (module,)));
        s.end();
    });
}

/// The header of a cubin, and nothing in it.
fn cubin(arch: u8) -> [u8; 128] {
    let mut elf = [0u8; 128];
    elf[..9].copy_from_slice(b"\x7fELF\x02\x01\x01\x33\x07");
    elf[16] = 2;
    elf[18] = 190;
    elf[20] = 1;
    elf[48] = arch;
    elf[50] = arch;
    elf[52] = 64;
    elf
}

/// What every call answers after a kernel's fault.
fn sticky(scene: &'static str, kernel: &'static std::ffi::CStr) {
    let (d, prim) = Driver::ready();
    let mut s = Scene::new(scene);
    let (stream, event, other_event) = (d.stream(1), d.event(0), d.event(0));
    d.ok("cuEventRecord", (event, stream));
    let memory = d.memory(4096);
    let pooled = d.get("cuMemAllocAsync", |out| (out, 4096usize, stream));
    let module = d.get("cuModuleLoadData", |out| (out, PTX.as_ptr()));
    let function = d.get("cuModuleGetFunction", |out| (out, module, kernel.as_ptr()));
    let graph = d.get("cuGraphCreate", |out| (out, 0u32));
    d.get("cuGraphAddEmptyNode", |out| (out, graph, NULL, 0usize));
    let exec = d.get("cuGraphInstantiateWithFlags", |out| (out, graph, 0u64));
    let mut got = 0usize;
    let out = &raw mut got;
    let argument = memory;
    let arguments = [&raw const argument];
    let one = 1u32;
    s.step(
        "launch",
        d.call("cuLaunchKernel", (function, one, one, one, one, one, one, 0u32, stream, arguments.as_ptr(), NULL)),
    );
    s.step("stream sync", d.call("cuStreamSynchronize", (stream,)));
    s.step("stream sync again", d.call("cuStreamSynchronize", (stream,)));
    s.step("stream query", d.call("cuStreamQuery", (stream,)));
    s.step("event create", d.call("cuEventCreate", (out, 0u32)));
    s.step("event record", d.call("cuEventRecord", (event, stream)));
    s.step("event query", d.call("cuEventQuery", (event,)));
    s.step("event destroy", d.call("cuEventDestroy_v2", (other_event,)));
    s.step("mem alloc", d.call("cuMemAlloc_v2", (out, 64usize)));
    s.step("mem free", d.call("cuMemFree_v2", (memory,)));
    s.step("free async", d.call("cuMemFreeAsync", (pooled, stream)));
    s.step("graph create", d.call("cuGraphCreate", (out, 0u32)));
    s.step("graph launch", d.call("cuGraphLaunch", (exec, stream)));
    s.step("graph exec destroy", d.call("cuGraphExecDestroy", (exec,)));
    s.step("graph destroy", d.call("cuGraphDestroy", (graph,)));
    s.step("module unload", d.call("cuModuleUnload", (module,)));
    s.step("ctx get", d.call("cuCtxGetCurrent", (out,)));
    s.step("ctx set none", d.call("cuCtxSetCurrent", (NULL,)));
    s.step("ctx set back", d.call("cuCtxSetCurrent", (prim,)));
    s.step("ctx sync", d.call("cuCtxSynchronize", ()));
    let mut number = 0i32;
    s.step("device attr", d.call("cuDeviceGetAttribute", (&raw mut number, 1u32, 0i32)));
    let mut total = 0usize;
    s.step("mem info", d.call("cuMemGetInfo_v2", (out, &raw mut total)));
    s.step("stream create", d.call("cuStreamCreate", (out, 1u32)));
    s.step("stream destroy", d.call("cuStreamDestroy_v2", (stream,)));
    s.step("primary release", d.call("cuDevicePrimaryCtxRelease_v2", (0i32,)));
    s.step("primary reset", d.call("cuDevicePrimaryCtxReset_v2", (0i32,)));
    s.step("alloc after reset", d.call("cuMemAlloc_v2", (out, 64usize)));
    s.end();
    assert!(d.reports().contains("\"kind\":\"fault\""), "{}", d.reports());
    // A new primary context is a healthy one.
    let again = d.get("cuDevicePrimaryCtxRetain", |out| (out, 0i32));
    d.ok("cuCtxSetCurrent", (again,));
    d.ok("cuCtxSynchronize", ());
}

#[test]
fn sticky_illegal() {
    alone("sticky_illegal", "", || sticky("sticky_illegal", c"illegal"));
}

#[test]
fn sticky_trap() {
    alone("sticky_trap", "", || sticky("sticky_trap", c"trapping"));
}

#[test]
fn sticky_misaligned() {
    alone("sticky_misaligned", "", || sticky("sticky_misaligned", c"misaligned"));
}
