//! Graphs by capture: work that is recorded once on a stream and then launched as a whole.
//!
//! ```no_run
//! use cuirass::graph::{CaptureMode, GraphCompleteOptions};
//! # use cuirass::{Device, StreamOptions};
//! # fn main() -> cuirass::Result<()> {
//! let device = Device::new(0)?;
//! let stream = device.create_stream(&StreamOptions::default())?;
//! let buffer = device.memory_resource()?.allocate(1024, &stream)?;
//!
//! let builder = stream.create_graph_builder()?;
//! builder.begin_building(CaptureMode::Relaxed)?;
//! buffer.fill(7, builder.stream())?;
//! builder.end_building()?;
//! let graph = builder.complete(&GraphCompleteOptions::default())?;
//! builder.close()?;
//! graph.launch(&stream)?;
//! # Ok(())
//! # }
//! ```
//!
//! What captured work refers to (buffers, kernels, events, closures) lives as long as the graph and what was made
//! executable of it, and until the launches of that are done. It is held here, on the host.

pub(crate) mod boundary;
mod builder;
mod callback;
mod capture;
mod condition;
mod definition;
mod exec;
mod fork;
pub(crate) mod known;
mod launched;
mod options;
mod picture;
pub(crate) mod recording;
pub(crate) mod spare;

pub use builder::GraphBuilder;
pub use callback::HostFunction;
pub use condition::GraphCondition;
pub use definition::{GraphDefinition, GraphNode, NodeKind};
pub use exec::Graph;
pub use options::{CaptureMode, GraphCompleteOptions, GraphDebugPrintOptions};
pub use recording::{is_captured, keep, keep_memory, launch_returns_at_once};
