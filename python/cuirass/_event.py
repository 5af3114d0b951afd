"""Events, by the name that programs import their parts by."""

from ._cuirass import Event, IPCEventDescriptor
from ._options import EventOptions

__all__ = ["Event", "EventOptions", "IPCEventDescriptor"]
