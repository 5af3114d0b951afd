"""Devices and their properties."""

import cuirass
from cuirass import Device

from ..objects import context, device, own_pool, pool
from ..registry import ALL, getters, operation, pure
from ..world import leaving

PROPERTIES = [name for name in vars(cuirass._cuirass.DeviceProperties) if not name.startswith("_")]
SETS = "that is what it does"


def entered():
    return device().__enter__()


OPERATIONS = [
    pure("Device()", lambda: Device(0), case="by number"),
    operation("Device()", lambda: Device(), case="the current one", callers=ALL),
    pure("Device.get_all_devices", Device.get_all_devices),
    pure("Device.device_id", lambda device: device.device_id, device=device),
    *getters("Device", ["pci_bus_id", "uuid", "name"], device=device),
    *getters("Device", ["compute_capability", "arch"], device=device),
    *getters("Device", ["properties", "context", "memory_resource", "default_stream"], calls=False, device=device),
    pure("Device.can_access_peer", lambda device: device.can_access_peer(0), device=device),
    pure("Device.memory_resource (set)", lambda device, pool: setattr(device, "memory_resource", pool),
         keeps="pool", device=device, pool=own_pool),
    pure("Device.__int__", int, device=device),
    pure("Device.__hash__", hash, device=device),
    pure("Device.__eq__", lambda device: device == Device(0), device=device),
    operation("Device.__repr__", repr, device=device),
    pure("Device.__reduce__", lambda device: device.__reduce__(), device=device),
    operation("Device.set_current", lambda device: device.set_current(), callers=ALL, device=device)
    .allow("sets current", reason=SETS),
    operation("Device.set_current", lambda device, context: device.set_current(context), case="a created one",
              callers=ALL, keeps="context", device=device, context=context)
    .allow("sets current", reason=SETS),
    operation("Device.create_context", lambda device: device.create_context(), callers=ALL, device=device),
    operation("Device.create_stream", lambda device: device.create_stream(), callers=ALL, device=device),
    operation("Device.create_stream", lambda device: device.create_stream(options={"priority": -1}),
              case="with a priority", device=device),
    pure("Device.create_stream", lambda device, pool: device.create_stream(cuirass.LEGACY_DEFAULT_STREAM),
         case="of another object", device=device, pool=pool),
    operation("Device.create_event", lambda device: device.create_event(), callers=ALL, device=device),
    operation("Device.create_graph_builder", lambda device: device.create_graph_builder(), callers=ALL, device=device),
    operation("Device.allocate", lambda device, stream: device.allocate(64, stream=stream), callers=ALL,
              device=device, stream=lambda device: device.create_stream()),
    operation("Device.allocate", lambda device, stream: device.allocate(64, stream=stream),
              case="on the default stream", callers=ALL, device=device, stream=lambda device: device.default_stream),
    operation("Device.sync", lambda device: device.sync(), callers=ALL, device=device),
    operation("Device.__enter__", lambda device: device.__enter__(), callers=ALL, device=device)
    .allow("sets current", reason=SETS),
    operation("Device.__exit__", lambda device: device.__exit__(None, None, None), callers=ALL, device=entered)
    .allow("sets current", reason=SETS),
    operation("Device.__exit__", leaving, case="with an exception passing", callers=ALL, device=entered)
    .allow("sets current", reason=SETS),
    *getters("DeviceProperties", PROPERTIES, properties=lambda: device().properties),
]  # fmt: skip
