"""Every call of every operation fails in turn: the error says which one it was, and nothing else is harmed."""

import gc
import threading
import warnings

import pytest

import cuirass
from cuirass import CUDAError, CUDAStickyError, EventOptions, LaunchConfig, testing

from .conftest import KERNELS, is_sim

STATUSES = ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_UNKNOWN")
# What says something rather than fails: an attribute that this driver does not know.
ANSWERS = {("cuDeviceGetAttribute", "CUDA_ERROR_INVALID_VALUE")}
TIMED = EventOptions(timing_enabled=True)
SHARED = cuirass.DeviceMemoryResourceOptions(ipc_enabled=True)


class World:
    """What operations use; made anew for each of them."""

    def __init__(self, code):
        self.device = cuirass.Device(0)
        self.stream = self.device.create_stream()
        self.other = self.device.create_stream()
        self.event = self.device.create_event()
        self.start = self.stream.record(options=TIMED)
        self.end = self.stream.record(options=TIMED)
        self.one = self.device.allocate(256, stream=self.stream)
        self.two = self.device.allocate(256, stream=self.stream)
        self.kernel = code.get_kernel("nothing")
        self.ptx = code
        self.pinned = cuirass.LegacyPinnedMemoryResource()
        self.config = LaunchConfig(grid=1, block=1)
        self.shared = cuirass.DeviceMemoryResource(self.device, SHARED)
        self.exported = self.shared.allocate(256, stream=self.stream)
        self.handle = self.shared.allocation_handle
        self.mapped = cuirass.DeviceMemoryResource.from_allocation_handle(self.device, self.handle)
        self.descriptor = self.exported.ipc_descriptor
        self.shared_event = self.device.create_event({"ipc_enabled": True})
        self.stream.sync()
        cuirass.launch(self.stream, self.config, self.kernel)
        self.stream.sync()


OPERATIONS = {
    "create_stream": lambda w: w.device.create_stream(),
    "create_stream with a priority": lambda w: w.device.create_stream(options={"priority": -1}),
    "create_event": lambda w: w.device.create_event(),
    "create_context": lambda w: w.device.create_context(),
    "allocate": lambda w: w.device.allocate(64, stream=w.stream),
    "allocate on the default stream": lambda w: w.device.allocate(64, stream=w.device.default_stream),
    "allocate pinned": lambda w: w.pinned.allocate(64),
    "a pool": lambda w: cuirass.DeviceMemoryResource(w.device, cuirass.DeviceMemoryResourceOptions()),
    "record": lambda w: w.stream.record(w.event),
    "record a new event": lambda w: w.stream.record(),
    "wait for an event": lambda w: w.stream.wait(w.event),
    "wait for a stream": lambda w: w.stream.wait(w.other),
    "stream.sync": lambda w: w.stream.sync(),
    "event.sync": lambda w: w.event.sync(),
    "event.is_done": lambda w: w.event.is_done,
    "elapsed": lambda w: w.end - w.start,
    "device.sync": lambda w: w.device.sync(),
    "set_current": lambda w: w.device.set_current(),
    "copy_to": lambda w: w.one.copy_to(w.two, stream=w.stream),
    "copy_to a new one": lambda w: w.one.copy_to(stream=w.stream),
    "fill": lambda w: w.one.fill(b"abcd", stream=w.stream),
    "launch": lambda w: cuirass.launch(w.stream, w.config, w.kernel),
    "priority": lambda w: w.stream.priority,
    "is_nonblocking": lambda w: w.stream.is_nonblocking,
    "name": lambda w: w.device.name,
    "uuid": lambda w: w.device.uuid,
    "property": lambda w: w.device.properties.warp_size,
    "kernel attribute": lambda w: w.kernel.attributes[0].num_regs,
    "occupancy": lambda w: w.kernel.occupancy.max_active_blocks_per_multiprocessor(32, 0),
    "pool attribute": lambda w: w.device.memory_resource.attributes.used_mem_current,
    "an allocation handle": lambda w: w.shared.allocation_handle.close() or w.shared.allocation_handle,
    "import a pool": lambda w: cuirass.DeviceMemoryResource.from_allocation_handle(w.device, w.handle),
    "export a buffer": lambda w: w.exported.ipc_descriptor,
    "import a buffer": lambda w: cuirass.Buffer.from_ipc_descriptor(w.mapped, w.descriptor, stream=w.stream),
    "export an event": lambda w: w.shared_event.ipc_descriptor,
    "enter and leave": lambda w: w.device.__enter__().__exit__(None, None, None),
}  # fmt: skip

RELEASES = {
    "stream": lambda w: w.device.create_stream(),
    "event": lambda w: w.device.create_event(),
    "buffer": lambda w: w.device.allocate(64, stream=w.stream),
    "buffer of the default stream": lambda w: w.device.allocate(64, stream=w.device.default_stream),
    "pinned buffer": lambda w: w.pinned.allocate(64),
    "pool": lambda w: cuirass.DeviceMemoryResource(w.device, cuirass.DeviceMemoryResourceOptions()),
    "mapped pool": lambda w: cuirass.DeviceMemoryResource.from_allocation_handle(w.device, w.handle),
    "imported buffer": lambda w: cuirass.Buffer.from_ipc_descriptor(w.mapped, w.descriptor, stream=w.stream),
    "context": lambda w: w.device.create_context(),
    "program": lambda w: cuirass.Program("", "c++", cuirass.ProgramOptions(arch="sm_90")),
}


def on_a_thread(work):
    """Runs work on a thread of its own, without a current context, and returns what it returned or raises."""
    outcome = []

    def run():
        try:
            outcome.append((work(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


def here(work):
    cuirass.Device(0).set_current()
    return work()


def current():
    driver = pytest.importorskip("cuda.bindings.driver")
    return int(driver.cuCtxGetCurrent()[1])


def counts():
    gc.collect()
    return cuirass.sim.census() if is_sim() else None


def nth_of(calls, index):
    return sum(call.name == calls[index].name for call in calls[: index + 1])


@pytest.mark.parametrize("where", [here, on_a_thread], ids=["with a context", "without a context"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_with_each_call_failing(code, name, where, reports):
    world = World(code)
    operation = OPERATIONS[name]

    def warm():
        operation(world)

    def recorded():
        with testing.record() as recording:
            result = operation(world)
        del result
        return recording.calls

    where(warm)
    calls = where(recorded)
    assert calls or name == "priority"
    for index, call in enumerate(calls):
        for status in STATUSES:
            if (call.name, status) in ANSWERS:
                continue
            check_one(world, operation, where, calls, index, call, status)
    assert reports == []


def check_one(world, operation, where, calls, index, call, status):
    before = counts()

    def failing():
        context = current()
        nth = nth_of(calls, index)
        with testing.fail(call.name, nth=nth, status=status, this_thread=True) as fault:
            try:
                operation(world)
            except CUDAError as error:
                caught = error
            else:
                caught = None
        assert fault.count == 1
        # The call that was blamed is the one that failed. (Undoing is not here: one call fails.)
        assert caught is not None, f"{call.name} failed and nothing was raised"
        assert (caught.call, caught.status.name) == (call.name, status)
        assert str(caught).startswith(status)
        assert isinstance(caught, CUDAStickyError) == (status == "CUDA_ERROR_LAUNCH_FAILED")
        if call.name == "cuEventDestroy_v2":
            assert any("the wait itself was submitted" in note for note in caught.__notes__)
        after = current()
        if after != context:
            assert call.name == "cuCtxSetCurrent"
            assert any("could not be restored" in note for note in caught.__notes__)
        return None

    where(failing)
    if "Destroy" not in call.name:
        assert counts() == before
    # What was there before still works.
    where(lambda: operation(world))
    world.stream.sync()


@pytest.mark.parametrize("where", [here, on_a_thread], ids=["with a context", "without a context"])
@pytest.mark.parametrize("done", [False, True], ids=["refused", "done, then error"])
@pytest.mark.parametrize("name", RELEASES)
def test_a_release_that_fails(code, name, done, where, reports):
    world = World(code)
    make = RELEASES[name]

    def calls_of_a_release():
        thing = make(world)
        with testing.record() as recording:
            thing.close()
        return recording.calls

    where(calls_of_a_release)
    calls = where(calls_of_a_release)
    destroys = [call for call in calls if any(word in call.name.lower() for word in ("destroy", "free"))]
    assert len(destroys) == 1
    destroy = destroys[0].name
    # NVRTC's statuses are not the driver's.
    number, status = (2, "NVRTC_ERROR_PROGRAM_CREATION_FAILURE") if "nvrtc" in destroy else (999, "CUDA_ERROR_UNKNOWN")

    def closed():
        thing = make(world)
        context = current()
        with testing.fail(destroy, status=number, done=done) as fault, pytest.raises(CUDAError) as caught:
            thing.close()
        assert fault.count == 1
        assert caught.value.call == destroy
        assert number == 999 or caught.value.status == number
        assert thing.is_closed
        assert current() == context
        thing.close()

    where(closed)
    assert reports == []

    def collected():
        thing = make(world)
        context = current()
        with testing.fail(destroy, status=number, done=done) as fault:
            del thing
            gc.collect()
        assert fault.count == 1
        assert current() == context

    where(collected)
    assert len(reports) == 1
    assert reports[0].startswith(f"{destroy}(")
    assert "failed while releasing" in reports[0]
    assert status in reports[0] or "nvrtc" in destroy

    def deinitialized():
        thing = make(world)
        with testing.fail(destroy, status="CUDA_ERROR_DEINITIALIZED"):
            del thing
            gc.collect()

    reports.clear()
    if "nvrtc" not in destroy:
        where(deinitialized)
        assert reports == []
    world.stream.sync()


@pytest.mark.parametrize("name", ["create_stream", "create_event", "device.sync"])
def test_a_restoration_that_fails_too(code, name):
    """The operation's error, and the failed restoration as its note; nothing else is disturbed."""
    world = World(code)
    operation = OPERATIONS[name]
    first = {"create_stream": "cuStreamCreateWithPriority", "create_event": "cuEventCreate",
             "device.sync": "cuCtxSynchronize"}[name]  # fmt: skip

    def work():
        # A thread without a context: entering is the first cuCtxSetCurrent, restoring the second.
        with (
            testing.fail(first, status="CUDA_ERROR_OUT_OF_MEMORY"),
            testing.fail("cuCtxSetCurrent", nth=2),
            pytest.raises(CUDAError) as caught,
        ):
            operation(world)
        error = caught.value
        assert (error.call, error.status.name) == (first, "CUDA_ERROR_OUT_OF_MEMORY")
        assert any("could not be restored after this failure" in note and "cuCtxSetCurrent" in note
                   for note in error.__notes__)  # fmt: skip
        assert current() == int(world.device.context.handle)

    on_a_thread(work)


def test_what_was_created_is_undone_when_the_context_cannot_be_restored(code):
    world = World(code)
    before = counts()

    def work():
        with testing.fail("cuCtxSetCurrent", nth=2), pytest.raises(CUDAError) as caught:
            world.device.create_stream()
        assert caught.value.call == "cuCtxSetCurrent"
        assert any("could not be restored" in note for note in caught.value.__notes__)
        assert any("Device.set_current()" in note for note in caught.value.__notes__)

    on_a_thread(work)
    assert counts() == before


def test_leaving_a_device_fails_while_an_exception_passes(device):
    def work():
        with pytest.raises(KeyError) as caught, device:
            fault = testing.fail("cuCtxSetCurrent")
            fault.__enter__()
            raise KeyError("mine")
        fault.__exit__(None, None, None)
        assert any("could not be restored after this failure" in note for note in caught.value.__notes__)
        with testing.fail("cuCtxSetCurrent", nth=2), pytest.raises(CUDAError, match="cuCtxSetCurrent"), device:
            pass

    on_a_thread(work)


def test_set_current_that_fails_changes_nothing(device):
    made = device.create_context()
    device.set_current()
    before = current()
    for arguments in ((), (made,)):
        with testing.fail("cuCtxSetCurrent"), pytest.raises(CUDAError):
            device.set_current(*arguments)
        assert current() == before
        assert device.context != made
    made.close()


def test_a_compiler_call_that_fails():
    options = cuirass.ProgramOptions(arch="sm_90")
    with testing.record() as recording:
        cuirass.Program(KERNELS, "c++", options).compile("cubin", name_expressions=("twice<int>",))
    calls = [call.name for call in recording.calls]
    assert "nvrtcCompileProgram" in calls
    for name in sorted(set(calls)):
        with testing.fail(name, status=5), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                cuirass.Program(KERNELS, "c++", options).compile("cubin", name_expressions=("twice<int>",))
                gc.collect()
                raised = None
            except cuirass.NVRTCError as error:
                raised = error
        # Raised, or reported where a program is released: once, and never both.
        if raised is not None:
            assert (raised.call, int(raised.status)) == (name, 5)
            assert caught == []
        else:
            assert name == "nvrtcDestroyProgram"
            assert len(caught) == 1 and str(caught[0].message).startswith(name)


def test_faults_themselves(device, stream):
    with testing.fail("cuStreamSynchronize", nth=2, times=2) as fault:
        stream.sync()
        for _ in range(2):
            with pytest.raises(CUDAError, match="CUDA_ERROR_UNKNOWN"):
                stream.sync()
        stream.sync()
        assert (fault.count, fault.seen) == (2, 4)
    stream.sync()
    assert (fault.count, fault.seen) == (2, 4)
    with testing.fail("cuStreamSynchronize", times=None, status=2), pytest.raises(CUDAError, match="OUT_OF_MEMORY"):
        stream.sync()
    with testing.fail("cuStreamSynchronize", this_thread=True):
        on_a_thread(stream.sync)
    with pytest.raises(ValueError, match="makes no call"), testing.fail("cuAbsent"):
        pass
    with pytest.raises(ValueError, match="no status"):
        testing.fail("cuStreamSynchronize", status="CUDA_ERROR_ABSENT")
    assert "cuLaunchKernelEx" in testing.known_calls()
    assert testing.status("CUDA_ERROR_OUT_OF_MEMORY") == testing.status(2) == 2
    assert testing.status(2).name == "CUDA_ERROR_OUT_OF_MEMORY"
