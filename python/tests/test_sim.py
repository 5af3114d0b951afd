import pytest

import cuirass
from cuirass import sim

from .conftest import child, is_sim, needs_sim

pytestmark = needs_sim


def test_it_is_active(device):
    assert sim.is_active()
    sim.use()
    sim.use(sim.library())


def test_census_and_objects(device, census):
    before = sim.census()["stream"]
    stream = device.create_stream()
    assert sim.census()["stream"] == before + 1
    assert any(thing["kind"] == "stream" and thing["handle"] == int(stream.handle) for thing in sim.objects())
    stream.close()


def test_calls_state_and_pending(device, stream):
    before = sim.calls().get("cuStreamSynchronize", 0)
    stream.sync()
    assert sim.calls()["cuStreamSynchronize"] == before + 1
    assert sim.state()["devices"][0]["ordinal"] == 0
    assert sim.pending() == 0


def test_reports_name_a_bug(device):
    driver = pytest.importorskip("cuda.bindings.driver")
    mark = sim.reports_mark()
    status, stream = driver.cuStreamCreate(1)
    assert status == 0
    driver.cuStreamDestroy(stream)
    assert driver.cuStreamSynchronize(stream)[0] != 0
    reports = sim.reports(mark)
    assert [report["kind"] for report in reports] == ["bug"]
    assert "cuStreamDestroy" in reports[0]["text"]


def test_a_seed_before_anything_else():
    result = child("import cuirass; cuirass.sim.seed(7); cuirass.sim.seed(None); print(cuirass.sim.calls()['cuInit'])")
    assert result.stdout == "1\n", result.stderr


def test_a_seed(device, stream):
    sim.seed(7)
    try:
        stream.record().sync()
    finally:
        sim.seed(None)


def test_use_after_a_driver_is_loaded_and_before():
    result = child(
        """
import cuirass
print(cuirass.sim.is_active())
cuirass.sim.use()
print(cuirass.Device(0).device_id, cuirass.sim.is_active())
""",
        env={"CUIRASS_DRIVER": ""},
    )
    assert result.stdout == "False\n0 True\n", result.stderr


def test_without_the_simulator_its_functions_say_so():
    result = child(
        """
import cuirass
try:
    cuirass.sim.census()
except (RuntimeError, cuirass.CUDAError) as error:
    print("sim.use()" in str(error))
""",
        env={"CUIRASS_DRIVER": "gpu"},
    )
    assert result.stdout == "True\n", result.stderr


def test_an_unknown_text():
    with pytest.raises(RuntimeError):
        cuirass._cuirass._sim_text("absent")
    with pytest.raises(RuntimeError):
        cuirass._cuirass._sim_number("absent")
    with pytest.raises(ValueError, match="since must be from 0 to 18446744073709551615, it is -1"):
        sim.reports(-1)
    assert sim.reports(2**64 - 1) == []
    assert cuirass._cuirass._sim_calls_made("cuAbsent") is None
    assert is_sim()


@pytest.mark.parametrize("call", ["to", "from"])
@pytest.mark.parametrize("address", [0x1000, 0x7FFF_FFFF_F000, (1 << 63) + 16])
def test_a_host_address_that_is_none_is_an_answer(call, address):
    """A real driver refuses it, or crashes."""
    driver = pytest.importorskip("cuda.bindings.driver")
    device = cuirass.Device(0)
    device.set_current()
    stream = device.create_stream()
    buffer = device.allocate(1 << 20, stream=stream)
    stream.sync()
    mark = sim.reports_mark()
    if call == "to":
        (status,) = driver.cuMemcpyHtoD(buffer.handle, address, 1 << 20)
    else:
        (status,) = driver.cuMemcpyDtoH(address, buffer.handle, 1 << 20)
    assert status == driver.CUresult.CUDA_ERROR_INVALID_VALUE
    (report,) = sim.reports(mark)
    assert f"{address:#x}: {1 << 20} bytes there are no memory of this process" in report["text"]
    buffer.fill(0, stream=stream)
    stream.sync()
