"""Programs."""

from cuirass import Program, ProgramOptions

from ..objects import SOURCE, device
from ..registry import ALL, dropped, getters, operation, pure

OPTIONS = ProgramOptions(arch="sm_90")


def program():
    return Program(SOURCE, "c++", OPTIONS)


def from_ptx():
    return Program(".version 7.0\n.target sm_75\n.address_size 64\n", "ptx")


OPERATIONS = [
    operation("Program()", program),
    operation("Program()", lambda device: Program(SOURCE, "c++"), case="for the current device", callers=ALL,
              device=device),
    operation("Program.compile", lambda program: program.compile("ptx"), program=program),
    operation("Program.compile", lambda program: program.compile("cubin", name_expressions=("add",)),
              case="with a name", program=lambda: Program("__global__ void add(int* x) { *x = 1; }", "c++", OPTIONS)),
    operation("Program.close", lambda program: program.close(), program=program),
    dropped("Program", program=program),
    *getters("Program", ["is_closed", "pch_status", "backend", "handle"], calls=False, program=program),
    pure("Program.__repr__", repr, program=program),
]  # fmt: skip
