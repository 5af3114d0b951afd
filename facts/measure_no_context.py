"""What the driver answers on a thread without a current context: writes no_context.jsonl's rows to stdout.

Needs cuda-bindings and a driver; the primary context of device 0 is retained, and the objects exist.
"""

import json
import threading

from cuda.bindings import driver as d

PTX = b""".version 8.0
.target sm_52
.address_size 64
.visible .global .align 4 .u32 variable = 7;
.visible .entry k(.param .u64 p, .param .u32 n) { ret; }
\0"""
rows = []


def ok(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else result[1:] or None


def row(name, call):
    result = call()
    status = result[0].name.replace("CUDA_ERROR_", "").replace("CUDA_", "")
    values = [int(v) if isinstance(v, int) else None for v in result[1:]]
    rows.append(
        {"call": name, "status": status}
        | ({"value": values[0]} if values and values[0] is not None and abs(values[0]) < 1 << 20 else {})
    )


ok(d.cuInit(0))
dev = ok(d.cuDeviceGet(0))
ctx = ok(d.cuDevicePrimaryCtxRetain(dev))
ok(d.cuCtxSetCurrent(ctx))
s = ok(d.cuStreamCreate(1))
e = ok(d.cuEventCreate(0))
e2 = ok(d.cuEventCreate(0))
pool = ok(d.cuDeviceGetDefaultMemPool(dev))
plain = [ok(d.cuMemAlloc(256)) for _ in range(4)]
host = [ok(d.cuMemAllocHost(256)) for _ in range(3)]
pooled = [ok(d.cuMemAllocFromPoolAsync(256, pool, s)) for _ in range(4)]
lib = ok(d.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
kernel = ok(d.cuLibraryGetKernel(lib, b"k"))
function = ok(d.cuKernelGetFunction(kernel))
module = ok(d.cuModuleLoadData(PTX))
graph = ok(d.cuGraphCreate(0))
ok(d.cuEventRecord(e, s))
ok(d.cuEventRecord(e2, s))
ok(d.cuStreamSynchronize(s))
execg = ok(d.cuGraphInstantiate(graph, 0))
fresh = ok(d.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
freshk = ok(d.cuLibraryGetKernel(fresh, b"k"))
cfg = d.CUlaunchConfig()
cfg.gridDimX = cfg.gridDimY = cfg.gridDimZ = cfg.blockDimX = cfg.blockDimY = cfg.blockDimZ = 1
cfg.hStream = s
legacy, per_thread = d.CUstream(1), d.CUstream(2)
A = d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS
P = d.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD


def body():
    row("cuCtxGetCurrent", d.cuCtxGetCurrent)
    for name, call in {
        "cuMemAlloc": lambda: d.cuMemAlloc(256),
        "cuMemFree(valid)": lambda: d.cuMemFree(plain[0]),
        "cuMemFree(0)": lambda: d.cuMemFree(0),
        "cuMemFree(bogus)": lambda: d.cuMemFree(0x1234),
        "cuMemFreeHost(valid)": lambda: d.cuMemFreeHost(host[0]),
        "cuMemAllocHost": lambda: d.cuMemAllocHost(256),
        "cuMemGetInfo": d.cuMemGetInfo,
        "cuMemAllocFromPoolAsync(stream)": lambda: d.cuMemAllocFromPoolAsync(256, pool, s),
        "cuMemAllocAsync(stream)": lambda: d.cuMemAllocAsync(256, s),
        "cuMemAllocFromPoolAsync(legacy)": lambda: d.cuMemAllocFromPoolAsync(256, pool, legacy),
        "cuMemFreeAsync(stream)": lambda: d.cuMemFreeAsync(pooled[0], s),
        "cuMemFreeAsync(legacy)": lambda: d.cuMemFreeAsync(pooled[1], legacy),
        "cuMemFreeAsync(per-thread)": lambda: d.cuMemFreeAsync(pooled[2], per_thread),
        "cuMemcpyAsync(stream)": lambda: d.cuMemcpyAsync(plain[1], plain[2], 256, s),
        "cuMemcpyDtoDAsync(stream)": lambda: d.cuMemcpyDtoDAsync(plain[1], plain[2], 256, s),
        "cuMemcpyDtoD": lambda: d.cuMemcpyDtoD(plain[1], plain[2], 256),
        "cuMemcpyHtoD": lambda: d.cuMemcpyHtoD(plain[1], host[1], 256),
        "cuMemcpyHtoDAsync(stream)": lambda: d.cuMemcpyHtoDAsync(plain[1], host[1], 256, s),
        "cuMemsetD8Async(stream)": lambda: d.cuMemsetD8Async(plain[1], 0, 256, s),
        "cuMemsetD8": lambda: d.cuMemsetD8(plain[1], 0, 256),
        "cuMemsetD8Async(legacy)": lambda: d.cuMemsetD8Async(plain[1], 0, 256, legacy),
        "cuMemGetAddressRange": lambda: d.cuMemGetAddressRange(plain[1]),
        "cuPointerGetAttribute(context)": lambda: d.cuPointerGetAttribute(
            d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT, plain[1]
        ),
        "cuPointerGetAttribute(type)": lambda: d.cuPointerGetAttribute(
            d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain[1]
        ),
        "cuMemPoolGetAttribute": lambda: d.cuMemPoolGetAttribute(pool, P),
        "cuMemPoolTrimTo": lambda: d.cuMemPoolTrimTo(pool, 0),
        "cuMemPoolCreate": lambda: d.cuMemPoolCreate(props()),
        "cuLibraryLoadData": lambda: d.cuLibraryLoadData(PTX, [], [], 0, [], [], 0),
        "cuLibraryGetKernel": lambda: d.cuLibraryGetKernel(fresh, b"k"),
        "cuLibraryGetKernelCount": lambda: d.cuLibraryGetKernelCount(fresh),
        "cuLibraryEnumerateKernels": lambda: d.cuLibraryEnumerateKernels(1, fresh),
        "cuLibraryGetModule": lambda: d.cuLibraryGetModule(fresh),
        "cuLibraryGetGlobal": lambda: d.cuLibraryGetGlobal(fresh, b"variable"),
        "cuKernelGetName": lambda: d.cuKernelGetName(freshk),
        "cuKernelGetParamInfo(never loaded)": lambda: d.cuKernelGetParamInfo(freshk, 0),
        "cuKernelGetParamInfo(loaded)": lambda: d.cuKernelGetParamInfo(kernel, 0),
        "cuKernelGetFunction": lambda: d.cuKernelGetFunction(freshk),
        "cuKernelGetAttribute": lambda: d.cuKernelGetAttribute(A, freshk, dev),
        "cuKernelSetAttribute": lambda: d.cuKernelSetAttribute(
            d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, freshk, dev
        ),
        "cuKernelGetLibrary": lambda: d.cuKernelGetLibrary(freshk),
        "cuFuncGetAttribute(function)": lambda: d.cuFuncGetAttribute(A, function),
        "cuFuncGetParamInfo": lambda: d.cuFuncGetParamInfo(function, 0),
        "cuModuleGetFunction": lambda: d.cuModuleGetFunction(module, b"k"),
        "cuModuleLoadData": lambda: d.cuModuleLoadData(PTX),
        "cuModuleUnload": lambda: d.cuModuleUnload(module),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor(function)": lambda: d.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            function, 32, 0
        ),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel)": lambda: d.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            d.CUfunction(int(kernel)), 32, 0
        ),
        "cuOccupancyAvailableDynamicSMemPerBlock(kernel)": lambda: d.cuOccupancyAvailableDynamicSMemPerBlock(
            d.CUfunction(int(kernel)), 1, 32
        ),
        "cuLaunchKernelEx(kernel, stream)": lambda: d.cuLaunchKernelEx(
            cfg, d.CUfunction(int(freshk)), ((0, 0), (__import__("ctypes").c_uint64, __import__("ctypes").c_int)), 0
        ),
        "cuStreamSynchronize": lambda: d.cuStreamSynchronize(s),
        "cuStreamSynchronize(legacy)": lambda: d.cuStreamSynchronize(legacy),
        "cuStreamQuery(per-thread)": lambda: d.cuStreamQuery(per_thread),
        "cuStreamIsCapturing": lambda: d.cuStreamIsCapturing(s),
        "cuStreamIsCapturing(legacy)": lambda: d.cuStreamIsCapturing(legacy),
        "cuStreamGetCtx(legacy)": lambda: d.cuStreamGetCtx(legacy),
        "cuStreamGetPriority": lambda: d.cuStreamGetPriority(s),
        "cuStreamCreate": lambda: d.cuStreamCreate(1),
        "cuEventCreate": lambda: d.cuEventCreate(2),
        "cuEventRecord(legacy)": lambda: d.cuEventRecord(e, legacy),
        "cuEventElapsedTime": lambda: d.cuEventElapsedTime(e, e2),
        "cuStreamWaitEvent(legacy)": lambda: d.cuStreamWaitEvent(legacy, e, 0),
        "cuLaunchHostFunc(legacy)": lambda: d.cuLaunchHostFunc(legacy, 0, 0),
        "cuStreamBeginCapture": lambda: d.cuStreamBeginCapture(s, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED),
        "cuStreamEndCapture": lambda: d.cuStreamEndCapture(s),
        "cuGraphCreate": lambda: d.cuGraphCreate(0),
        "cuGraphInstantiate": lambda: d.cuGraphInstantiate(graph, 0),
        "cuGraphLaunch": lambda: d.cuGraphLaunch(execg, s),
        "cuGraphUpload": lambda: d.cuGraphUpload(execg, s),
        "cuGraphExecDestroy": lambda: d.cuGraphExecDestroy(execg),
        "cuGraphDestroy": lambda: d.cuGraphDestroy(graph),
        "cuThreadExchangeStreamCaptureMode": lambda: d.cuThreadExchangeStreamCaptureMode(
            d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        ),
        "cuCtxGetStreamPriorityRange": d.cuCtxGetStreamPriorityRange,
        "cuCtxGetLimit": lambda: d.cuCtxGetLimit(d.CUlimit.CU_LIMIT_STACK_SIZE),
        "cuCtxGetFlags": d.cuCtxGetFlags,
        "cuCtxGetId(context)": lambda: d.cuCtxGetId(ctx),
        "cuCtxSynchronize": d.cuCtxSynchronize,
        "cuEventDestroy": lambda: d.cuEventDestroy(e),
        "cuLibraryUnload": lambda: d.cuLibraryUnload(lib),
        "cuStreamDestroy": lambda: d.cuStreamDestroy(s),
        "cuLibraryLoadData(garbage)": lambda: d.cuLibraryLoadData(b"no ptx at all\0", [], [], 0, [], [], 0),
        "cuLibraryLoadData(bad ptx)": lambda: d.cuLibraryLoadData(
            b".version 8.0\n.target sm_52\n.address_size 64\nrubbish\0", [], [], 0, [], [], 0
        ),
    }.items():
        try:
            row(name, call)
        except Exception as ex:
            rows.append({"call": name, "error": repr(ex)})


def props():
    p = d.CUmemPoolProps()
    p.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    p.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    p.location.id = 0
    return p


t = threading.Thread(target=body)
t.start()
t.join()
# With a context again: what garbage answers.
for name, image in {
    "garbage": b"no ptx at all\0",
    "bad ptx": b".version 8.0\n.target sm_52\n.address_size 64\nrubbish\0",
}.items():
    result = d.cuLibraryLoadData(image, [], [], 0, [], [], 0)
    rows.append(
        {
            "call": f"in a context: cuLibraryLoadData({name})",
            "status": result[0].name.replace("CUDA_ERROR_", "").replace("CUDA_", ""),
        }
    )
    if int(result[0]) == 0:
        rows.append(
            {
                "call": f"in a context: cuLibraryGetKernel of {name}",
                "status": d.cuLibraryGetKernel(result[1], b"k")[0].name.replace("CUDA_ERROR_", ""),
            }
        )
for r in rows:
    print(json.dumps(r))
