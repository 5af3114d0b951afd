//! What a thread without a current context may do: `facts/no_context.jsonl`, replayed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use common::{Driver, NULL, alone, facts};
use serde_json::Value;

const PTX: &std::ffi::CStr = c"
.version 8.0
.target sm_52
.address_size 64
.visible .global .align 4 .u32 variable = 7;
.visible .entry k(.param .u64 p, .param .u32 n) { ret; }
";
const BAD: &std::ffi::CStr = c".version 8.0\n.target sm_52\n.address_size 64\nrubbish\n";

/// Loads a library; what that answers, and its handle.
fn library(d: &Driver, text: *const i8) -> (String, usize) {
    let mut got = 0usize;
    let status = d.call("cuLibraryLoadData", (&raw mut got, text, NULL, NULL, 0u32, NULL, NULL, 0u32));
    (status, got)
}

#[test]
fn every_row() {
    alone("every_row", "", || {
        let (d, context) = Driver::ready();
        let (stream, e, e2) = (d.stream(1), d.event(0), d.event(0));
        let pool = d.get("cuDeviceGetDefaultMemPool", |out| (out, 0i32));
        let plain: Vec<usize> = (0..4).map(|_| d.memory(256)).collect();
        let host: Vec<usize> = (0..3).map(|_| d.get("cuMemAllocHost_v2", |out| (out, 256usize))).collect();
        let pooled: Vec<usize> =
            (0..4).map(|_| d.get("cuMemAllocFromPoolAsync", |out| (out, 256usize, pool, stream))).collect();
        let (_, lib) = library(&d, PTX.as_ptr());
        let kernel = d.get("cuLibraryGetKernel", |out| (out, lib, c"k".as_ptr()));
        let function = d.get("cuKernelGetFunction", |out| (out, kernel));
        let module = d.get("cuModuleLoadData", |out| (out, PTX.as_ptr()));
        let graph = d.get("cuGraphCreate", |out| (out, 0u32));
        d.ok("cuEventRecord", (e, stream));
        d.ok("cuEventRecord", (e2, stream));
        d.ok("cuStreamSynchronize", (stream,));
        let exec = d.get("cuGraphInstantiateWithFlags", |out| (out, graph, 0u64));
        let (_, fresh) = library(&d, PTX.as_ptr());
        let fresh_kernel = d.get("cuLibraryGetKernel", |out| (out, fresh, c"k".as_ptr()));
        d.ok("cuCtxSetCurrent", (NULL,));
        let (legacy, per_thread) = (1usize, 2usize);
        let (mut got, mut more, mut number, mut ms) = (0usize, 0usize, 0i32, 0f32);
        let (out, more) = (&raw mut got, &raw mut more);
        let params = [&raw const got as usize, &raw const got as usize];
        let props = {
            let mut props = [0u8; 88];
            (props[0], props[8]) = (1, 1);
            props
        };
        #[repr(C)]
        struct Config([u32; 7], usize, usize, u32);
        let config = Config([1, 1, 1, 1, 1, 1, 0], stream, 0, 0);
        let mut wrong = Vec::new();
        let text = std::fs::read_to_string(facts().join("no_context.jsonl")).unwrap();
        for row in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let call = row["call"].as_str().unwrap();
            let status = match call {
                "cuCtxGetCurrent" => d.call("cuCtxGetCurrent", (out,)),
                "cuMemAlloc" => d.call("cuMemAlloc_v2", (out, 256usize)),
                "cuMemFree(valid)" => d.call("cuMemFree_v2", (plain[0],)),
                "cuMemFree(0)" => d.call("cuMemFree_v2", (0usize,)),
                "cuMemFree(bogus)" => d.call("cuMemFree_v2", (0x1234usize,)),
                "cuMemFreeHost(valid)" => d.call("cuMemFreeHost", (host[0],)),
                "cuMemAllocHost" => d.call("cuMemAllocHost_v2", (out, 256usize)),
                "cuMemGetInfo" => d.call("cuMemGetInfo_v2", (out, more)),
                "cuMemAllocFromPoolAsync(stream)" => d.call("cuMemAllocFromPoolAsync", (out, 256usize, pool, stream)),
                "cuMemAllocAsync(stream)" => d.call("cuMemAllocAsync", (out, 256usize, stream)),
                "cuMemAllocFromPoolAsync(legacy)" => d.call("cuMemAllocFromPoolAsync", (out, 256usize, pool, legacy)),
                "cuMemFreeAsync(stream)" => d.call("cuMemFreeAsync", (pooled[0], stream)),
                "cuMemFreeAsync(legacy)" => d.call("cuMemFreeAsync", (pooled[1], legacy)),
                "cuMemFreeAsync(per-thread)" => d.call("cuMemFreeAsync", (pooled[2], per_thread)),
                "cuMemcpyAsync(stream)" => d.call("cuMemcpyAsync", (plain[1], plain[2], 256usize, stream)),
                "cuMemcpyDtoDAsync(stream)" => d.call("cuMemcpyDtoDAsync_v2", (plain[1], plain[2], 256usize, stream)),
                "cuMemcpyDtoD" => d.call("cuMemcpyDtoD_v2", (plain[1], plain[2], 256usize)),
                "cuMemcpyHtoD" => d.call("cuMemcpyHtoD_v2", (plain[1], host[1], 256usize)),
                "cuMemcpyHtoDAsync(stream)" => d.call("cuMemcpyHtoDAsync_v2", (plain[1], host[1], 256usize, stream)),
                "cuMemsetD8Async(stream)" => d.call("cuMemsetD8Async", (plain[1], 0u8, 256usize, stream)),
                "cuMemsetD8" => d.call("cuMemsetD8_v2", (plain[1], 0u8, 256usize)),
                "cuMemsetD8Async(legacy)" => d.call("cuMemsetD8Async", (plain[1], 0u8, 256usize, legacy)),
                "cuMemGetAddressRange" => d.call("cuMemGetAddressRange_v2", (out, more, plain[1])),
                "cuPointerGetAttribute(context)" => d.call("cuPointerGetAttribute", (out, 1u32, plain[1])),
                "cuPointerGetAttribute(type)" => d.call("cuPointerGetAttribute", (&raw mut number, 2u32, plain[1])),
                "cuMemPoolGetAttribute" => d.call("cuMemPoolGetAttribute", (pool, 4u32, out)),
                "cuMemPoolTrimTo" => d.call("cuMemPoolTrimTo", (pool, 0usize)),
                "cuMemPoolCreate" => d.call("cuMemPoolCreate", (out, props.as_ptr())),
                "cuLibraryLoadData" => library(&d, PTX.as_ptr()).0,
                "cuLibraryGetKernel" => d.call("cuLibraryGetKernel", (out, fresh, c"k".as_ptr())),
                "cuLibraryGetKernelCount" => d.call("cuLibraryGetKernelCount", (&raw mut number, fresh)),
                "cuLibraryEnumerateKernels" => d.call("cuLibraryEnumerateKernels", (out, 1u32, fresh)),
                "cuLibraryGetModule" => d.call("cuLibraryGetModule", (out, fresh)),
                "cuLibraryGetGlobal" => d.call("cuLibraryGetGlobal", (out, more, fresh, c"variable".as_ptr())),
                "cuKernelGetName" => d.call("cuKernelGetName", (out, fresh_kernel)),
                "cuKernelGetParamInfo(never loaded)" => {
                    d.call("cuKernelGetParamInfo", (fresh_kernel, 0usize, out, more))
                }
                "cuKernelGetParamInfo(loaded)" => d.call("cuKernelGetParamInfo", (kernel, 0usize, out, more)),
                "cuKernelGetFunction" => d.call("cuKernelGetFunction", (out, fresh_kernel)),
                // The number of registers is ptxas's.
                "cuKernelGetAttribute" => d.call("cuKernelGetAttribute", (&raw mut number, 4u32, fresh_kernel, 0i32)),
                "cuKernelSetAttribute" => d.call("cuKernelSetAttribute", (8u32, 1024i32, fresh_kernel, 0i32)),
                "cuKernelGetLibrary" => d.call("cuKernelGetLibrary", (out, fresh_kernel)),
                "cuFuncGetAttribute(function)" => d.call("cuFuncGetAttribute", (&raw mut number, 4u32, function)),
                "cuFuncGetParamInfo" => d.call("cuFuncGetParamInfo", (function, 0usize, out, more)),
                "cuModuleGetFunction" => d.call("cuModuleGetFunction", (out, module, c"k".as_ptr())),
                "cuModuleLoadData" => d.call("cuModuleLoadData", (out, PTX.as_ptr())),
                "cuModuleUnload" => d.call("cuModuleUnload", (module,)),
                "cuOccupancyMaxActiveBlocksPerMultiprocessor(function)" => {
                    d.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", (&raw mut number, function, 32i32, 0usize))
                }
                "cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel)" => {
                    d.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", (&raw mut number, kernel, 32i32, 0usize))
                }
                "cuOccupancyAvailableDynamicSMemPerBlock(kernel)" => {
                    d.call("cuOccupancyAvailableDynamicSMemPerBlock", (out, kernel, 1i32, 32i32))
                }
                "cuLaunchKernelEx(kernel, stream)" => {
                    d.call("cuLaunchKernelEx", (&raw const config, fresh_kernel, params.as_ptr(), NULL))
                }
                "cuStreamSynchronize" => d.call("cuStreamSynchronize", (stream,)),
                "cuStreamSynchronize(legacy)" => d.call("cuStreamSynchronize", (legacy,)),
                "cuStreamQuery(per-thread)" => d.call("cuStreamQuery", (per_thread,)),
                "cuStreamIsCapturing" => d.call("cuStreamIsCapturing", (stream, &raw mut number)),
                "cuStreamIsCapturing(legacy)" => d.call("cuStreamIsCapturing", (legacy, &raw mut number)),
                "cuStreamGetCtx(legacy)" => d.call("cuStreamGetCtx", (legacy, out)),
                "cuStreamGetPriority" => d.call("cuStreamGetPriority", (stream, &raw mut number)),
                "cuStreamCreate" => d.call("cuStreamCreate", (out, 1u32)),
                "cuEventCreate" => d.call("cuEventCreate", (out, 2u32)),
                "cuEventRecord(legacy)" => d.call("cuEventRecord", (e, legacy)),
                "cuEventElapsedTime" => d.call("cuEventElapsedTime", (&raw mut ms, e, e2)),
                "cuStreamWaitEvent(legacy)" => d.call("cuStreamWaitEvent", (legacy, e, 0u32)),
                // The real call was made without a function.
                "cuLaunchHostFunc(legacy)" => {
                    d.call("cuLaunchHostFunc", (legacy, Driver::load as *const () as usize, NULL))
                }
                "cuStreamBeginCapture" => d.call("cuStreamBeginCapture_v2", (stream, 2u32)),
                "cuStreamEndCapture" => d.call("cuStreamEndCapture", (stream, out)),
                "cuGraphCreate" => d.call("cuGraphCreate", (out, 0u32)),
                "cuGraphInstantiate" => d.call("cuGraphInstantiateWithFlags", (out, graph, 0u64)),
                "cuGraphLaunch" => d.call("cuGraphLaunch", (exec, stream)),
                "cuGraphUpload" => d.call("cuGraphUpload", (exec, stream)),
                "cuGraphExecDestroy" => d.call("cuGraphExecDestroy", (exec,)),
                "cuGraphDestroy" => d.call("cuGraphDestroy", (graph,)),
                "cuThreadExchangeStreamCaptureMode" => {
                    number = 0;
                    d.call("cuThreadExchangeStreamCaptureMode", (&raw mut number,))
                }
                "cuCtxGetStreamPriorityRange" => d.call("cuCtxGetStreamPriorityRange", (&raw mut number, NULL)),
                "cuCtxGetLimit" => d.call("cuCtxGetLimit", (out, 0u32)),
                "cuCtxGetFlags" => d.call("cuCtxGetFlags", (&raw mut number,)),
                "cuCtxGetId(context)" => d.call("cuCtxGetId", (context, out)),
                "cuCtxSynchronize" => d.call("cuCtxSynchronize", ()),
                "cuEventDestroy" => d.call("cuEventDestroy_v2", (e,)),
                "cuLibraryUnload" => d.call("cuLibraryUnload", (lib,)),
                "cuStreamDestroy" => d.call("cuStreamDestroy_v2", (stream,)),
                "cuLibraryLoadData(garbage)" => library(&d, c"no ptx at all".as_ptr()).0,
                "cuLibraryLoadData(bad ptx)" => library(&d, BAD.as_ptr()).0,
                "in a context: cuLibraryLoadData(garbage)" => {
                    d.ok("cuCtxSetCurrent", (context,));
                    library(&d, c"no ptx at all".as_ptr()).0
                }
                "in a context: cuLibraryGetKernel of garbage" => {
                    let (_, lib) = library(&d, c"no ptx at all".as_ptr());
                    d.call("cuLibraryGetKernel", (out, lib, c"k".as_ptr()))
                }
                "in a context: cuLibraryLoadData(bad ptx)" => library(&d, BAD.as_ptr()).0,
                "in a context: cuLibraryGetKernel of bad ptx" => {
                    let (_, lib) = library(&d, BAD.as_ptr());
                    d.call("cuLibraryGetKernel", (out, lib, c"k".as_ptr()))
                }
                other => panic!("{other} is not replayed"),
            };
            if row["status"] != status.as_str() {
                wrong.push(format!("{call}: {status}, the real driver {}", row["status"]));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}
