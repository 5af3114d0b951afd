//! The census: how many objects of every kind are alive.

use crate::order;
use crate::state;
use crate::stream::StreamKind;

/// Every kind with its count, kinds of which none is alive included. Empty before `cuInit`.
pub fn census() -> Vec<(&'static str, u64)> {
    let Ok(state) = state::lock() else { return Vec::new() };
    let retained: u32 = state.devices.iter().map(|device| device.retained).sum();
    let created = state.contexts.iter().filter(|(_, context)| !context.primary && context.green.is_none()).count();
    let streams = state.streams.iter().filter(|(_, stream)| stream.kind == StreamKind::Created).count();
    let graphs = state.graphs.graphs.iter().filter(|(_, graph)| graph.parent.is_none() && !graph.capturing).count();
    let mut rows = vec![
        ("primary_context", u64::from(retained)),
        ("context", created as u64),
        ("green_context", state.green.len() as u64),
        ("stream", streams as u64),
        ("event", state.events.len() as u64),
        ("graph", graphs as u64),
        ("graph_exec", state.graphs.execs.len() as u64),
        ("capture", state.graphs.captures.len() as u64),
        ("user_object", state.graphs.user_objects.len() as u64),
    ];
    rows.extend(state.memory.census());
    rows.extend(state.modules.census());
    rows
}

/// How many ops are pending in all streams.
pub fn pending() -> u64 {
    state::lock().map_or(0, |state| state.engine.pending())
}

/// The census as a JSON object.
pub fn json() -> String {
    let rows: Vec<String> = census().into_iter().map(|(kind, count)| format!("\"{kind}\":{count}")).collect();
    format!("{{{}}}", rows.join(","))
}

/// Everything that the program made and has not ended, one JSON object a line.
pub fn objects() -> String {
    let Ok(state) = state::lock() else { return String::new() };
    let mut lines = String::new();
    let mut line = |kind: &str, handle: crate::handle::Handle, context: crate::handle::Handle| {
        lines.push_str(&format!("{{\"kind\":\"{kind}\",\"handle\":{},\"context\":{}}}\n", handle.0, context.0));
    };
    let none = crate::handle::Handle::NULL;
    state
        .contexts
        .iter()
        .filter(|(_, context)| !context.primary && context.green.is_none())
        .for_each(|(handle, _)| line("context", handle, none));
    state.green.iter().for_each(|(handle, green)| line("green_context", handle, green.context));
    let streams = state.streams.iter().filter(|(_, stream)| stream.kind == StreamKind::Created);
    streams.for_each(|(handle, stream)| line("stream", handle, stream.context));
    state.events.iter().for_each(|(handle, event)| line("event", handle, event.context));
    let graphs = state.graphs.graphs.iter().filter(|(_, graph)| graph.parent.is_none() && !graph.capturing);
    graphs.for_each(|(handle, _)| line("graph", handle, none));
    state.graphs.execs.iter().for_each(|(handle, _)| line("graph_exec", handle, none));
    state.graphs.captures.iter().for_each(|(handle, capture)| line("capture", handle, capture.context));
    state.graphs.user_objects.iter().for_each(|(handle, _)| line("user_object", handle, none));
    state.memory.objects(&mut line);
    state.modules.objects(&mut line);
    lines
}

/// Configuration, devices and contexts, as a JSON object.
pub fn state() -> String {
    let Ok(state) = state::lock() else { return "{}".to_owned() };
    let devices: Vec<String> = state
        .devices
        .iter()
        .map(|device| {
            format!(
                "{{\"ordinal\":{},\"arch\":{},\"memory\":{},\"primary_retained\":{}}}",
                device.ordinal,
                device.arch(),
                device.memory,
                device.retained
            )
        })
        .collect();
    let contexts: Vec<String> = state
        .contexts
        .iter()
        .map(|(handle, context)| {
            format!(
                "{{\"handle\":{},\"device\":{},\"primary\":{},\"alive\":{},\"lost\":{},\"threads\":{}}}",
                handle.0,
                context.device,
                context.primary,
                context.ended.is_none(),
                context.lost.map_or(0, |status| status.0),
                // That have a default stream of their own in it.
                context.per_thread.len()
            )
        })
        .collect();
    let config = &state.config;
    let seed = config.seed.map_or("null".to_owned(), |seed| seed.to_string());
    format!(
        "{{\"driver\":{},\"seed\":{seed},\"order\":{},\"devices\":[{}],\"contexts\":[{}]}}",
        config.driver,
        order::records(),
        devices.join(","),
        contexts.join(",")
    )
}
