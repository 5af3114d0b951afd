import dataclasses
import errno
import io
import os
import pathlib
import pickle
import re
import sys

import pytest

import cuirass
from cuirass import CUDAError, Kernel, NVRTCError, ObjectCode, Program, ProgramOptions

from .conftest import KERNELS, child, needs_no_compiler, refused_before


def texts(**options):
    return [text.decode() for text in ProgramOptions(arch="sm_90", **options).as_bytes("nvrtc")][1:]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, []),
        ({"debug": True, "lineinfo": True, "device_code_optimize": True},
         ["--device-debug", "--generate-line-info", "--dopt=on"]),
        ({"debug": False, "ftz": False, "fma": True}, ["--ftz=false", "--fmad=true"]),
        ({"max_register_count": 32, "std": "c++17"}, ["--maxrregcount=32", "--std=c++17"]),
        ({"ptxas_options": ["-v", "-O3"]}, ["--ptxas-options=-v", "--ptxas-options=-O3"]),
        ({"define_macro": "A"}, ["--define-macro=A"]),
        ({"define_macro": ("A", "1")}, ["--define-macro=A=1"]),
        ({"define_macro": ["A", ("B", "2")]}, ["--define-macro=A", "--define-macro=B=2"]),
        ({"define_macro": ("A", "B", "C")}, [f"--define-macro={name}" for name in "ABC"]),
        ({"undefine_macro": "A", "include_path": ("/a", "/b")},
         ["--undefine-macro=A", "--include-path=/a", "--include-path=/b"]),
        ({"diag_suppress": 177, "diag_error": [1, 2]}, ["--diag-error=1", "--diag-error=2", "--diag-suppress=177"]),
        ({"link_time_optimization": True, "ofast_compile": "mid"}, ["--dlink-time-opt", "--Ofast-compile=mid"]),
    ],
)  # fmt: skip
def test_options_as_nvrtc_takes_them(options, wanted):
    assert texts(**options) == wanted


def test_every_option_is_taken():
    values = {"bool": True, "int": 2, "str": "x"}
    for field in dataclasses.fields(ProgramOptions):
        if field.name in ("name", "arch", "extra_sources", "use_libdevice"):
            continue
        kind = next(kind for kind in ("bool", "str", "int") if kind in str(field.type))
        assert len(texts(**{field.name: values[kind]})) == 1, field.name


def test_wrong_options():
    with pytest.raises(ValueError, match="cannot be given together"):
        ProgramOptions(pch=True, create_pch="x")
    with pytest.raises(ValueError, match="max_register_count"):
        ProgramOptions(max_register_count=0)
    with pytest.raises(ValueError, match="split_compile"):
        ProgramOptions(split_compile=-1)
    with pytest.raises(ValueError, match="NVVM"):
        texts(use_libdevice=True)
    with pytest.raises(ValueError, match="NVVM"):
        texts(extra_sources=[("a", "b")])
    with pytest.raises(TypeError, match="define_macro"):
        texts(define_macro=["A", 1])
    with pytest.raises(ValueError, match="backend"):
        ProgramOptions().as_bytes("gcc")
    with pytest.raises(NotImplementedError):
        ProgramOptions().as_bytes("nvvm")


def test_wrong_programs():
    options = ProgramOptions(arch="sm_90")
    with pytest.raises(RuntimeError, match="code_type"):
        Program("", "fortran", options)
    with pytest.raises(NotImplementedError):
        Program("", "ptx", options)
    with pytest.raises(TypeError, match="code must be"):
        Program(1, "c++", options)
    with pytest.raises(ValueError, match="UTF-8"):
        Program(b"\xff", "c++", options)
    with pytest.raises(ValueError, match="NUL"):
        Program("a\0b", "c++", options)
    with pytest.raises(TypeError, match="ProgramOptions"):
        Program("", "c++", 3)
    with pytest.raises(ValueError, match="no kind of code"):
        Program("", "c++", options).compile("exe")
    with pytest.raises(ValueError, match="NVRTC makes"):
        Program("", "c++", options).compile("fatbin")


@pytest.mark.parametrize("source", [KERNELS, KERNELS.encode(), bytearray(KERNELS.encode())])
def test_compile_to_ptx(source):
    program = Program(source, "C++", ProgramOptions(arch="sm_90", name="mine"))
    code = program.compile("ptx")
    assert code.code_type == "ptx"
    assert code.name == "mine"
    assert b".entry add" in code.code
    assert program.backend == "NVRTC"
    assert program.pch_status is None
    assert int(program.handle) != 0
    program.close()
    program.close()
    assert program.is_closed
    with pytest.raises(RuntimeError, match="closed"):
        program.compile("ptx")


def test_without_an_architecture_it_is_the_devices(device):
    assert f".target sm_{device.arch}".encode() in Program(KERNELS, "c++").compile("ptx").code


def test_logs(tmp_path):
    log = io.StringIO()
    source = 'extern "C" __global__ void k() { int unused; }'
    Program(source, "c++", ProgramOptions(arch="sm_90", name="mine")).compile("ptx", logs=log)
    assert "never referenced" in log.getvalue()
    with pytest.raises(NVRTCError) as caught:
        Program("#error yes\n", "c++", ProgramOptions(arch="sm_90", name="mine")).compile("ptx")
    assert "mine(1): " in str(caught.value) and "#error directive: yes" in str(caught.value)


def test_ltoir_is_not_loaded():
    code = Program(KERNELS, "c++", ProgramOptions(arch="sm_90")).compile("ltoir")
    assert code.code_type == "ltoir" and len(code.code) > 0
    with pytest.raises(RuntimeError, match="link it first"):
        code.get_kernel("add")


def test_kernels(code, device):
    kernel = code.get_kernel("add")
    assert kernel == code.get_kernel(b"add")
    assert hash(kernel) == hash(code.get_kernel("add"))
    assert kernel != code.get_kernel("nothing")
    with refused_before((12, 4), "cuKernelGetParamInfo"):
        assert kernel.num_arguments == 3
    with refused_before((12, 4), "cuKernelGetParamInfo"):
        assert [tuple(info) for info in kernel.arguments_info] == [(0, 8), (8, 4), (12, 4)]
    with refused_before((12, 4), "cuKernelGetParamInfo"):
        assert kernel.arguments_info[1].size == 4
    with refused_before((12, 4), "cuKernelGetParamInfo"):
        assert code.get_kernel("nothing").arguments_info == []
    assert "add" in repr(kernel)
    twice = code.get_kernel("twice<float>")
    assert code.symbol_mapping["twice<float>"] in repr(twice)
    with pytest.raises(CUDAError) as caught:
        code.get_kernel("absent")
    assert caught.value.status.name == "CUDA_ERROR_NOT_FOUND"
    assert any("name expressions" in note for note in caught.value.__notes__)
    with pytest.raises(TypeError):
        code.get_kernel(1)


def test_a_kernel_keeps_its_code_loaded(device, census):
    kernel = Program(KERNELS, "c++").compile("cubin").get_kernel("add")
    with refused_before((12, 4), "cuKernelGetParamInfo"):
        assert kernel.num_arguments == 3
    assert kernel.attributes.num_regs >= 0
    del kernel


def test_attributes(code, device):
    attributes = code.get_kernel("add").attributes
    names = [name for name in dir(attributes) if not name.startswith("_")]
    assert len(names) == 16
    for view in (attributes, attributes[0], attributes[device]):
        assert view.max_threads_per_block >= 32
        assert view.cache_mode_ca in (True, False)
        for name in names:
            assert isinstance(getattr(view, name), int), name
    with pytest.raises(ValueError):
        attributes[99]


def test_occupancy(code, device):
    occupancy = code.get_kernel("add").occupancy
    blocks = occupancy.max_active_blocks_per_multiprocessor(128, 0)
    assert 1 <= blocks <= 64
    grid, block = occupancy.max_potential_block_size(0, 0)
    assert grid >= 1 and block >= 32
    assert occupancy.max_potential_block_size(0, 0).max_block_size == block
    assert occupancy.max_potential_block_size(0, 64).max_block_size <= 64
    assert occupancy.available_dynamic_shared_memory_per_block(1, 128) > 0
    with pytest.raises(ValueError):
        occupancy.max_active_blocks_per_multiprocessor(128, -1)
    with pytest.raises(TypeError):
        occupancy.max_potential_block_size(lambda size: 0, 0)


def test_kernels_by_handle(code, device):
    kernel = code.get_kernel("add")
    same = Kernel.from_handle(kernel.handle, code)
    assert same == kernel
    with refused_before((12, 4), "cuKernelGetParamInfo"):
        assert same.num_arguments == 3
    assert Kernel.from_handle(int(kernel.handle)) == kernel
    with pytest.raises(ValueError):
        Kernel.from_handle(0)
    with pytest.raises(RuntimeError):
        Kernel()


def test_code_from_a_file(tmp_path, device):
    path = tmp_path / "code.ptx"
    path.write_bytes(Program(KERNELS, "c++").compile("ptx").code)
    for given in (str(path), path):
        code = ObjectCode.from_ptx(given, name="mine", symbol_mapping={"plus": "add"})
        assert code.code == str(path)
        assert code.get_kernel("plus") == code.get_kernel("add")
    absent = ObjectCode.from_ptx(tmp_path / "absent")
    for use in (lambda: absent.get_kernel("add"), absent.get_module, lambda: absent.handle):
        with pytest.raises(FileNotFoundError) as caught:
            use()
        # As Python itself says it.
        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(tmp_path / "absent"))
        assert str(caught.value) == f"[Errno {errno.ENOENT}] {os.strerror(errno.ENOENT)}: {str(tmp_path / 'absent')!r}"
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        ObjectCode.from_ptx(tmp_path).get_kernel("add")
    with pytest.raises(TypeError):
        ObjectCode.from_ptx(3)


@pytest.mark.parametrize("kind", ["ptx", "cubin", "ltoir", "fatbin", "object", "library"])
def test_pickle_of_every_kind_needs_no_driver(kind, tmp_path):
    made = getattr(ObjectCode, f"from_{kind}")(b"some code", name="mine", symbol_mapping={"a": "b"})
    result = child(
        """
import pickle, sys
code = pickle.loads(bytes.fromhex(sys.argv[1]))
print(code.code, code.code_type, code.name, code.symbol_mapping)
""",
        pickle.dumps(made).hex(),
        env={"CUIRASS_DRIVER": "gpu"},
    )
    assert result.stdout == f"b'some code' {kind} mine {{'a': 'b'}}\n", result.stderr
    path = pickle.loads(pickle.dumps(getattr(ObjectCode, f"from_{kind}")(pathlib.Path("/nowhere"))))
    assert path.code == "/nowhere"


def test_a_pickled_cubin_still_runs(code, device):
    again = pickle.loads(pickle.dumps(code))
    assert again.code == code.code
    kernel = again.get_kernel("twice<int>")
    with refused_before((12, 4), "cuKernelGetParamInfo"):
        assert kernel.num_arguments == 1
    assert again != code and again == again and hash(again) == hash(again)


def test_code_that_is_none(device):
    with pytest.raises(CUDAError):
        ObjectCode.from_ptx(b"this is no ptx").get_kernel("add")
    with pytest.raises((CUDAError, ValueError)):
        ObjectCode.from_cubin(b"\x7fELF").get_kernel("add")


@needs_no_compiler
@pytest.mark.skipif("linux" not in sys.platform, reason="asks /proc")
def test_without_a_compiler(tmp_path):
    result = child(
        """
import cuirass
for _ in range(2):
    try:
        cuirass.Program("", "c++", cuirass.ProgramOptions(arch="sm_90"))
    except cuirass.NVRTCError as error:
        print(error)
""",
        env={"CUIRASS_NVRTC": os.fspath(tmp_path / "libnvrtc.so"), "LD_LIBRARY_PATH": ""},
    )
    lines = result.stdout.splitlines()
    assert len(lines) == 2 and lines[0] == lines[1], result.stderr
    assert "pip install nvidia-cuda-nvrtc" in lines[0]


def test_a_compiler_that_was_named_and_is_not_there_is_not_replaced():
    result = child(
        """
import cuirass
try:
    cuirass.Program("", "c++", cuirass.ProgramOptions(arch="sm_90"))
except cuirass.NVRTCError as error:
    print(error)
""",
        env={"CUIRASS_NVRTC": "/etc/passwd"},
    )
    text = "CUIRASS_NVRTC names what cannot be loaded (/etc/passwd: invalid ELF header)"
    assert result.stdout.count("/etc/passwd") == 1 and text in result.stdout, result


def test_not_constructed():
    with pytest.raises(RuntimeError, match=r"Program\.compile"):
        ObjectCode()
    assert cuirass.Program.__module__ == "cuirass"


def test_a_library_that_is_no_compiler():
    told = cuirass._cuirass.__file__
    result = child(
        """
import cuirass
try:
    cuirass.Program("", "c++", cuirass.ProgramOptions(arch="sm_90"))
except cuirass.NVRTCError as error:
    print(error)
""",
        env={"CUIRASS_NVRTC": told},
    )
    assert f"{told}, which CUIRASS_NVRTC names, is no NVRTC: it has no nvrtcVersion" in result.stdout, result.stderr
