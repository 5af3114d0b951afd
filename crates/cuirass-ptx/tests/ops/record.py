#!/usr/bin/env python3
"""Runs every case of cases.jsonl on the real GPU and writes expected.jsonl beside it.

    python3 record.py [cases.jsonl [expected.jsonl]]

Needs libcuda.so.1 and the standard library only. A case that the driver refuses is written with
its status and log, and the run goes on; after a fault the context is made anew.
"""
import ctypes
import json
import os
import sys
import time

here = os.path.dirname(os.path.abspath(__file__))
source = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "cases.jsonl")
target = sys.argv[2] if len(sys.argv) > 2 else os.path.join(here, "expected.jsonl")

cuda = ctypes.CDLL("libcuda.so.1")
u64, ptr = ctypes.c_uint64, ctypes.c_void_p


class Refused(Exception):
    def __init__(self, call, status, log=""):
        super().__init__(call, status)
        self.call, self.status, self.log = call, status, log


def do(call, *args):
    status = getattr(cuda, call)(*args)
    if status:
        raise Refused(call, status)


class Device:
    def __init__(self, rows):
        self.rows = rows
        self.context = ptr()
        device = ctypes.c_int()
        do("cuDeviceGet", ctypes.byref(device), 0)
        # The primary context cannot be made anew after a fault, a context of our own can.
        # Version 13 of the API gave cuCtxCreate another argument; this symbol keeps the old one.
        do("cuCtxCreate_v2", ctypes.byref(self.context), 0, device)
        self.buffers = []
        for size in (rows * 32, rows * 16, rows * 16):
            address = u64()
            do("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
            self.buffers.append((address, size))

    def close(self):
        cuda.cuCtxDestroy_v2(self.context)

    def run(self, text, data):
        log = ctypes.create_string_buffer(4096)
        keys = (ctypes.c_int * 2)(5, 6)  # error log buffer and its size
        values = (ptr * 2)(ctypes.cast(log, ptr), ptr(len(log)))
        module = ptr()
        status = cuda.cuModuleLoadDataEx(ctypes.byref(module), text.encode(), 2, keys, values)
        if status:
            raise Refused("cuModuleLoadDataEx", status, log.value.decode(errors="replace"))
        try:
            function = ptr()
            do("cuModuleGetFunction", ctypes.byref(function), module, b"k")
            (pin, _), (pout, size), (ptmp, tmp_size) = self.buffers
            do("cuMemcpyHtoD_v2", pin, data, ctypes.c_size_t(len(data)))
            do("cuMemsetD8_v2", pout, ctypes.c_ubyte(0), ctypes.c_size_t(size))
            do("cuMemsetD8_v2", ptmp, ctypes.c_ubyte(0), ctypes.c_size_t(tmp_size))
            args = (ptr * 3)(*[ctypes.cast(ctypes.pointer(a), ptr) for a in (pin, pout, ptmp)])
            do("cuLaunchKernel", function, 1, 1, 1, self.rows, 1, 1, 0, None, args, None)
            do("cuCtxSynchronize")
            out = ctypes.create_string_buffer(size)
            do("cuMemcpyDtoH_v2", out, pout, ctypes.c_size_t(size))
            return out.raw
        finally:
            cuda.cuModuleUnload(module)


def main():
    begin = time.time()
    do("cuInit", 0)
    with open(source) as lines:
        header = json.loads(next(lines))
        cases = [json.loads(line) for line in lines if line.strip()]
    rows = header["rows"]
    sets = {k: [int(v, 16) for v in text.split()] for k, text in header["sets"].items()}
    device = Device(rows)
    refused = 0
    with open(target, "w") as out:
        for case in cases:
            data = bytearray(rows * 32)
            for slot, name in enumerate(case["in"]):
                for row, value in enumerate(sets[name]):
                    at = row * 32 + slot * 8
                    data[at:at + 8] = value.to_bytes(8, "little")
            text = header["template"].replace("@BODY@", case["body"])
            try:
                raw = device.run(text, bytes(data))
            except Refused as error:
                refused += 1
                out.write(json.dumps({
                    "name": case["name"], "status": error.status,
                    "call": error.call, "log": error.log,
                }) + "\n")
                print(f"{case['name']}: {error.call} gave {error.status} {error.log}", file=sys.stderr)
                if error.call != "cuModuleLoadDataEx":
                    device.close()
                    device = Device(rows)
                continue
            columns = []
            for slot, size in enumerate(case["out"]):
                column = "".join(
                    raw[row * 16 + slot * 8:][:size][::-1].hex() for row in range(rows))
                columns.append(column)
            out.write(json.dumps({"name": case["name"], "status": 0, "out": columns}) + "\n")
    print(f"{len(cases)} cases, {refused} refused, {time.time() - begin:.1f} s")


main()
