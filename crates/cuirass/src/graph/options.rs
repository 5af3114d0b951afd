//! What is chosen when a graph is captured, completed or printed.

use crate::stream::Stream;
use cuirass_call::sys::cuda::{CUgraphDebugDot_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};

/// Which calls a capture forbids while it goes on. Those that it forbids invalidate it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CaptureMode {
    /// Potentially unsafe calls (an allocation off the captured stream, waiting for another stream), on every thread.
    Global,
    /// The same, on the capturing thread only.
    ThreadLocal,
    /// None of these.
    #[default]
    Relaxed,
}

impl CaptureMode {
    /// `global`, `thread_local`, `relaxed`.
    pub fn name(self) -> &'static str {
        match self {
            CaptureMode::Global => "global",
            CaptureMode::ThreadLocal => "thread_local",
            CaptureMode::Relaxed => "relaxed",
        }
    }

    /// The mode of a name.
    pub fn of_name(name: &str) -> Option<CaptureMode> {
        [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed]
            .into_iter()
            .find(|mode| mode.name() == name)
    }

    pub(crate) fn raw(self) -> CUstreamCaptureMode {
        match self {
            CaptureMode::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            CaptureMode::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CaptureMode::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        }
    }
}

/// How a graph is made executable.
#[derive(Clone, Debug, Default)]
pub struct GraphCompleteOptions {
    /// Whether a launch first frees what the one before allocated and did not free.
    pub auto_free_on_launch: bool,
    /// A stream on which it is uploaded to the device at once.
    pub upload_stream: Option<Stream>,
    /// Whether kernels may launch it.
    pub device_launch: bool,
    /// Whether its nodes have the priorities that they were captured with, instead of the launch stream's.
    pub use_node_priority: bool,
}

impl GraphCompleteOptions {
    pub(crate) fn flags(&self) -> u64 {
        use CUgraphInstantiate_flags as Flags;
        let chosen = [
            (self.auto_free_on_launch, Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH),
            (self.upload_stream.is_some(), Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD),
            (self.device_launch, Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH),
            (self.use_node_priority, Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY),
        ];
        chosen.iter().filter(|(on, _)| *on).fold(0, |flags, (_, flag)| flags | u64::from(flag.0))
    }
}

macro_rules! print_options {
    ($($(#[$docs:meta])* $name:ident = $flag:ident),* $(,)?) => {
        /// What the driver's picture of a graph shows.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[allow(clippy::struct_excessive_bools)]
        pub struct GraphDebugPrintOptions {
            $($(#[$docs])* pub $name: bool,)*
        }

        impl GraphDebugPrintOptions {
            pub(crate) fn flags(self) -> u32 {
                let chosen = [$((self.$name, CUgraphDebugDot_flags::$flag)),*];
                chosen.iter().filter(|(on, _)| *on).fold(0, |flags, (_, flag)| flags | flag.0)
            }
        }
    };
}

print_options! {
    /// Everything.
    verbose = CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE,
    /// Types of the runtime interface instead of the driver's.
    runtime_types = CU_GRAPH_DEBUG_DOT_FLAGS_RUNTIME_TYPES,
    /// Parameters of kernel nodes.
    kernel_node_params = CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS,
    /// Parameters of copies.
    memcpy_node_params = CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS,
    /// Parameters of fills.
    memset_node_params = CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS,
    /// Parameters of host callbacks.
    host_node_params = CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS,
    /// Parameters of event nodes.
    event_node_params = CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS,
    /// Parameters of nodes that signal an external semaphore.
    ext_semas_signal_node_params = CU_GRAPH_DEBUG_DOT_FLAGS_EXT_SEMAS_SIGNAL_NODE_PARAMS,
    /// Parameters of nodes that wait for an external semaphore.
    ext_semas_wait_node_params = CU_GRAPH_DEBUG_DOT_FLAGS_EXT_SEMAS_WAIT_NODE_PARAMS,
    /// Attributes of kernel nodes.
    kernel_node_attributes = CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_ATTRIBUTES,
    /// Handles.
    handles = CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES,
    /// Parameters of allocations.
    mem_alloc_node_params = CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS,
    /// Parameters of frees.
    mem_free_node_params = CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS,
    /// Parameters of nodes of batched memory operations.
    batch_mem_op_node_params = CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS,
    /// More of the topology.
    extra_topo_info = CU_GRAPH_DEBUG_DOT_FLAGS_EXTRA_TOPO_INFO,
    /// Parameters of conditional nodes.
    conditional_node_params = CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS,
}
