//! Events.

use crate::objects::{device, event, operation, stream, taken};
use cuirass::{Event, EventOptions};
use cuirass_testkit::operation::{Caller, Operation};
use std::mem::ManuallyDrop;

const ALL: [Caller; 3] = [Caller::Nothing, Caller::Other, Caller::Primary];

pub fn operations() -> Vec<Operation> {
    let primary = || device().context();
    let own = || Ok(Some(event()?));
    let recorded = || {
        let stream = stream()?;
        let events = (device().create_event(&EventOptions::timed())?, device().create_event(&EventOptions::timed())?);
        stream.record(&events.0)?;
        stream.record(&events.1)?;
        stream.synchronize()?;
        Ok((stream, events.0, events.1))
    };
    vec![
        operation!("Event::create", primary, |context| Event::create(context, &EventOptions::default()))
            .called_with(&ALL),
        operation!("Event::close", own, |event| taken(event).close()),
        operation!("Event (dropped)", own, |event| {
            drop(taken(event));
            Ok(())
        })
        .reports(),
        operation!("Event::is_done", recorded, |(_, event, _)| event.is_done()),
        operation!("Event::synchronize", recorded, |(_, event, _)| event.synchronize()),
        operation!("Event::elapsed_until", recorded, |(_, start, end)| start.elapsed_until(end)),
        operation!("Event::as_raw", event, |event| Ok(event.as_raw())).makes_no_call(),
        operation!("Event::options", event, |event| Ok(event.options())).makes_no_call(),
        operation!("Event::context", event, |event| Ok(event.context())).makes_no_call(),
        operation!("Event::device", event, |event| Ok(event.device())).makes_no_call(),
        operation!("EventOptions::timed", || Ok(()), |()| Ok(EventOptions::timed())).makes_no_call(),
        operation!("Event::from_raw", own, |event| {
            // Its owner must not end it too.
            let event = ManuallyDrop::new(taken(event));
            let (raw, context, options) = (event.as_raw(), event.context(), event.options());
            // SAFETY: [test] nobody else has it any more.
            Ok(unsafe { Event::from_raw(raw, &context, &options) })
        })
        .makes_no_call(),
    ]
}
