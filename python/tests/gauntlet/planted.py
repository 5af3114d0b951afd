"""Operations with mistakes in them, which the gauntlet has to find."""

import os
import sys
import warnings

from . import runner

import cuirass  # isort: skip

KEPT = []


def swallows(stream, device):
    try:
        stream.sync()
    except cuirass.CUDAError:
        return


def raises_something_else(stream, device):
    try:
        stream.sync()
    except cuirass.CUDAError as error:
        raise RuntimeError("it did not work") from error


def warns_beside(stream, device):
    try:
        stream.sync()
    except cuirass.CUDAError:
        warnings.warn("it did not work", cuirass.CUDAWarning, stacklevel=1)
        raise


def keeps_a_reference(stream, device):
    KEPT.append(device)
    stream.sync()


def leaks(stream, device):
    KEPT.append(device.create_event())
    stream.sync()


def changes_the_context(stream, device):
    device.set_current()
    stream.sync()


def ends_the_process(stream, device):
    try:
        stream.sync()
    except cuirass.CUDAError:
        os._exit(3)


def holds_the_interpreter(stream, device):
    stream.sync()
    cuirass._cuirass._gauntlet_waits_held()


def main(mistake, arguments):
    from .objects import device, stream
    from .registry import operation

    planted = operation("planted", globals()[mistake.replace(" ", "_")], stream=stream, device=device)
    if arguments:
        runner.sweep([planted], whole=True, told=True)
        return 0
    return 1 if cuirass._cuirass._gauntlet_run("planted", [("planted", [sys.executable, sys.argv[0], "child"])]) else 0
