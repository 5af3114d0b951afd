//! Events shared between processes.

use crate::context::{Context, scope};
use crate::deferred;
use crate::device::Device;
use crate::event::{Event, EventOptions};
use crate::memory::ipc::descriptor::IpcEventDescriptor;
use crate::{Outcome, Result};
use cuirass_call::event as event_call;
use cuirass_call::memory::ipc as call;
use cuirass_fault::{Failure, Misuse};

impl Event {
    /// `cuIpcGetEventHandle`: what another process opens this event by. Of an event that was opened, what it was opened
    /// by.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) for an event that is not interprocess; what the driver answers.
    pub fn ipc_descriptor(&self) -> Result<IpcEventDescriptor> {
        if let Some(descriptor) = self.opened_by() {
            return Ok(descriptor.clone());
        }
        if !self.options().interprocess {
            let text = "this event is not IPC-enabled: it is for this process alone";
            return Err(Failure::misuse(Misuse::State, text).raise());
        }
        let device = self.device().uuid()?;
        let handle = scope::read(self.context().raw(), || call::get_event_handle(self.as_raw()))?;
        Ok(IpcEventDescriptor::of(handle, self.options().blocking_sync, device))
    }

    /// `cuIpcOpenEventHandle`: another process's event, in the current context where that is of the event's device, else
    /// in the device's primary context. It is recorded, waited for and asked like any event, and takes no time.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) if this process does not see the event's device; what the driver
    /// answers: it refuses an event of this process's own.
    pub fn from_ipc_descriptor(descriptor: &IpcEventDescriptor) -> Result<Event> {
        deferred::before_creating()?;
        let context = context_of(descriptor)?;
        let open = || call::open_event_handle(&descriptor.handle());
        let raw = scope::create(context.raw(), open, event_call::destroy).map_err(|f| descriptor.note_on(f))?;
        let options = EventOptions { timing: false, blocking_sync: descriptor.blocking_sync(), interprocess: true };
        Ok(Event::opened(raw, context, options, descriptor.clone()))
    }
}

fn context_of(descriptor: &IpcEventDescriptor) -> Outcome<Context> {
    let Some(wanted) = descriptor.device() else { return Context::current_or_primary() };
    if let Some(current) = Context::current_inner()?
        && current.device().uuid().map_err(Failure::from)? == wanted
    {
        return Ok(current);
    }
    for device in Device::all().map_err(Failure::from)? {
        if device.uuid().map_err(Failure::from)? == wanted {
            return device.primary();
        }
    }
    let wanted = super::Shown(wanted);
    Err(Failure::misuse(Misuse::Value, format!("the event is on device {wanted}, which this process does not see")))
}
