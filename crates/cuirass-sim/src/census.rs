//! The census: how many objects of every kind are alive.

use crate::state;
use crate::stream::StreamKind;

/// Every kind with its count, kinds of which none is alive included. Empty before `cuInit`.
pub fn census() -> Vec<(&'static str, u64)> {
    let Ok(state) = state::lock() else { return Vec::new() };
    let retained: u32 = state.devices.iter().map(|device| device.retained).sum();
    let created = state.contexts.iter().filter(|(_, context)| !context.primary).count();
    let streams = state.streams.iter().filter(|(_, stream)| stream.kind == StreamKind::Created).count();
    let graphs = state.graphs.graphs.iter().filter(|(_, graph)| graph.parent.is_none() && !graph.capturing).count();
    let mut rows = vec![
        ("primary_context", u64::from(retained)),
        ("context", created as u64),
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
