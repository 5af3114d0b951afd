"""The rest: the queue of releases that wait, faults and recordings, what the simulated driver tells."""

import cuirass
from cuirass import sim, testing

from ..registry import pure


def fault():
    return testing.fail("cuStreamQuery")


def entered_fault():
    return fault().__enter__()


def recording():
    return testing.record()


def entered_recording():
    return recording().__enter__()


def entered_order():
    """The checker of the order between streams, at work."""
    return sim.check_order().__enter__() if sim.is_active() else sim.check_order()


def ended_order():
    """The same, when it has been at work."""
    order = entered_order()
    if sim.is_active():
        order.__exit__(None, None, None)
    return order


def simulated(function):
    """What only the simulated driver has."""
    return function if sim.is_active() else lambda *objects: None


cuirass.Device(0)

OPERATIONS = [
    pure("drain", cuirass.drain),
    pure("testing.status", lambda: testing.status("CUDA_ERROR_UNKNOWN")),
    pure("testing.known_calls", testing.known_calls),
    pure("fail()", fault),
    pure("fail.__enter__", lambda fault: fault.__enter__(), fault=fault),
    pure("fail.__exit__", lambda fault: fault.__exit__(None, None, None), fault=entered_fault),
    pure("fail.count", lambda fault: fault.count, fault=fault),
    pure("fail.first_call", lambda fault: fault.first_call, fault=fault),
    pure("_Fault.first_call", lambda fault: fault._fault.first_call(), fault=entered_fault),
    pure("fail.seen", lambda fault: fault.seen, fault=fault),
    pure("record()", recording),
    pure("record.__enter__", lambda recording: recording.__enter__(), recording=recording),
    pure("record.__exit__", lambda recording: recording.__exit__(None, None, None), recording=entered_recording),
    pure("_Fault.counts", lambda fault: fault._fault.counts(), fault=entered_fault),
    pure("_Fault.remove", lambda fault: fault._fault.remove(), fault=entered_fault),
    pure("_Recording.take", lambda recording: recording._recording.take(), recording=entered_recording),
    pure("_Recording.stop", lambda recording: recording._recording.stop(), recording=entered_recording),
    pure("check_order()", sim.check_order),
    pure("check_order.__enter__", simulated(lambda: sim.check_order().__enter__().__exit__(None, None, None))),
    pure("check_order.__exit__", simulated(lambda order: order.__exit__(None, None, None)), order=entered_order),
    pure("check_order.findings", simulated(lambda order: order.findings), order=ended_order),
    pure("sim.library", sim.library),
    pure("sim.is_active", sim.is_active),
    pure("sim.use", simulated(sim.use)),
    pure("sim.seed", simulated(lambda: sim.seed(None))),
    *[
        pure(f"sim.{name}", simulated(getattr(sim, name)))
        for name in ("calls", "census", "objects", "pending", "reports", "reports_mark", "state")
    ],
]
