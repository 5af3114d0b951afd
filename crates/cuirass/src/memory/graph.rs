//! Memory that graphs allocate themselves.

use crate::context::Context;
use crate::device::Device;
use crate::graph::recording;
use crate::memory::buffer::{Buffer, MemoryResource};
use crate::stream::{CaptureStatus, Stream};
use crate::{Outcome, Result};
use cuirass_call::memory::pool as call;
use cuirass_call::sys::cuda::CUgraphMem_attribute;
use cuirass_fault::{Failure, Misuse};

/// An attribute of a device's graph memory: the driver's numbers, by the driver's names.
pub type GraphMemoryAttribute = CUgraphMem_attribute;

/// Memory that a graph allocates each time it runs: to be used on a stream that is being captured. Such memory belongs
/// to the graph: dropping its buffer does nothing; closing it on the captured stream makes the graph free it.
#[derive(Clone)]
pub struct GraphMemoryResource(Context);

impl GraphMemoryResource {
    /// The graph memory of a device.
    ///
    /// # Errors
    /// What the driver answers when its primary context is retained.
    pub fn new(device: Device) -> Result<GraphMemoryResource> {
        Ok(GraphMemoryResource(device.context()?))
    }

    fn allocate_inner(&self, bytes: usize, stream: &Stream) -> Outcome<Buffer> {
        match recording::of(stream) {
            Some(recording) if recording.is_body() => {
                return Err(Failure::misuse(
                    Misuse::State,
                    "the body of a conditional node cannot allocate memory: only kernels, copies, fills, child graphs \
                     and conditional nodes",
                ));
            }
            Some(_recording) => {}
            // Somebody else may be capturing.
            None if stream.capture_status().map_err(Failure::from)? != CaptureStatus::None => {}
            None => {
                return Err(Failure::misuse(
                    Misuse::State,
                    "a GraphMemoryResource allocates on a stream that is being captured, and this one is not",
                ));
            }
        }
        let address = call::alloc_async(bytes, stream.raw())?;
        Ok(Buffer::of_graph(address, bytes, self.0.clone(), stream.clone()))
    }

    /// An attribute's value, in bytes.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn attribute(&self, attribute: GraphMemoryAttribute) -> Result<u64> {
        Ok(call::device_get_graph_mem_attribute(self.0.device().raw(), attribute)?)
    }

    /// Sets an attribute: a high-water mark, to 0.
    ///
    /// # Errors
    /// What the driver answers: `CUDA_ERROR_INVALID_VALUE` for an attribute that can only be read.
    pub fn set_attribute(&self, attribute: GraphMemoryAttribute, value: u64) -> Result<()> {
        Ok(call::device_set_graph_mem_attribute(self.0.device().raw(), attribute, value)?)
    }

    /// `cuDeviceGraphMemTrim`: gives memory that no graph uses back to the system.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn trim(&self) -> Result<()> {
        Ok(call::device_graph_mem_trim(self.0.device().raw())?)
    }
}

impl MemoryResource for GraphMemoryResource {
    /// `cuMemAllocAsync`, on a stream that is being captured.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) on another stream, and in the body of a conditional node; what the
    /// driver answers.
    fn allocate(&self, bytes: usize, stream: &Stream) -> Result<Buffer> {
        Ok(self.allocate_inner(bytes, stream)?)
    }

    fn deallocate(&self, address: u64, bytes: usize, stream: &Stream) -> Result<()> {
        Buffer::of_graph(address, bytes, self.0.clone(), stream.clone()).close()
    }

    fn is_device_accessible(&self) -> bool {
        true
    }

    fn is_host_accessible(&self) -> bool {
        false
    }

    fn device(&self) -> Option<Device> {
        Some(self.0.device())
    }
}

impl std::fmt::Debug for GraphMemoryResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GraphMemoryResource(on device {})", self.0.device().ordinal())
    }
}
