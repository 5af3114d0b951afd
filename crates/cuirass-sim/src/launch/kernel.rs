//! Launching kernels.

use super::KernelTask;
use super::occupancy::{self, Device};
use crate::c::{In, launch_cluster, launch_event, launch_number, pack};
use crate::engine;
use crate::handle::Handle;
use crate::module::Found;
use crate::report;
use crate::state::{self, Guard, State};
use crate::status::{
    Answer, COOPERATIVE_LAUNCH_TOO_LARGE, INVALID_HANDLE, INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES, NOT_SUPPORTED,
};
use crate::stream::At;
use crate::thread;
use cuirass_sys::cuda::{
    CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT, CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT, CU_LAUNCH_PARAM_END_AS_INT,
    CUDA_KERNEL_NODE_PARAMS, CUfunction, CUlaunchAttributeID, CUlaunchConfig, CUstream,
};
use smallvec::SmallVec;
use std::ffi::{c_uint, c_void};
use std::sync::Arc;

/// Everything that a launch asks for but its parameters.
#[derive(Clone, Copy)]
struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    cooperative: bool,
}

impl State {
    /// Checks a launch and makes work of it.
    fn launch(
        &mut self,
        context: Handle,
        function: Handle,
        shape: Shape,
        params: In<*mut c_void>,
        extra: In<*mut c_void>,
    ) -> Answer<KernelTask> {
        if function.is_null() {
            return Err(INVALID_HANDLE);
        }
        let found = self.callable(function, context)?;
        if found.context != context {
            report::bug(format!("{}: the function is of another context than the stream", thread::place()));
            return Err(INVALID_HANDLE);
        }
        let ordinal = self.context(context)?.device;
        let device = Device::of(self.devices.get(ordinal).ok_or(INVALID_VALUE)?);
        check(&found, &shape, &device)?;
        if let Some(what) = found.callable.kernel.unsupported() {
            let name = found.callable.kernel.name();
            report::unsupported(format!("{}: kernel {name} needs {what}, which is not simulated", thread::place()));
            return Err(NOT_SUPPORTED);
        }
        let params = parameters(&found, params, extra)?;
        Ok(KernelTask {
            callable: found.callable,
            function,
            grid: shape.grid,
            block: shape.block,
            shared: shape.shared,
            params,
            cooperative: shape.cooperative,
            fuel: self.config.fuel,
            multiprocessors: device.multiprocessors,
        })
    }

    /// The work of a graph's kernel node.
    ///
    /// # Errors
    /// As `cuLaunchKernel`.
    pub fn kernel_task(&mut self, context: Handle, node: &CUDA_KERNEL_NODE_PARAMS) -> Answer<KernelTask> {
        let function = if node.func.is_null() { Handle::of(node.kern) } else { Handle::of(node.func) };
        let shape = Shape {
            grid: [node.gridDimX, node.gridDimY, node.gridDimZ],
            block: [node.blockDimX, node.blockDimY, node.blockDimZ],
            shared: node.sharedMemBytes,
            cooperative: false,
        };
        self.launch(context, function, shape, In::from(node.kernelParams), In::from(node.extra))
    }
}

/// How many there are in three dimensions: a shape that is to be refused may have more than any number can tell.
pub(super) fn count(size: [u32; 3]) -> u64 {
    size.into_iter().map(u64::from).fold(1, u64::saturating_mul)
}

/// What CUDA refuses of a launch's shape.
fn check(found: &Found, shape: &Shape, device: &Device) -> Answer {
    let kernel = &found.callable.kernel;
    let fits = |size: [u32; 3], most: [u32; 3]| size.iter().zip(most).all(|(size, most)| (1..=most).contains(size));
    let threads = count(shape.block);
    if !fits(shape.grid, device.most_grid)
        || !fits(shape.block, device.most_block)
        || threads > device.most_threads.into()
    {
        return Err(INVALID_VALUE);
    }
    if kernel.max_threads().is_some_and(|most| threads > count(most)) {
        return Err(INVALID_VALUE);
    }
    if kernel.required_threads().is_some_and(|wanted| wanted.map(|size| size.max(1)) != shape.block) {
        return Err(INVALID_VALUE);
    }
    if shape.shared > found.settings.dynamic_shared {
        return Err(INVALID_VALUE);
    }
    let blocks = occupancy::blocks(kernel, device, threads as u32, shape.shared.into());
    if blocks == 0 {
        return Err(LAUNCH_OUT_OF_RESOURCES);
    }
    if shape.cooperative && count(shape.grid) > u64::from(blocks) * u64::from(device.multiprocessors) {
        return Err(COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    Ok(())
}

/// The parameters, laid out as the kernel reads them.
fn parameters(found: &Found, params: In<*mut c_void>, extra: In<*mut c_void>) -> Answer<SmallVec<[u8; 64]>> {
    let kernel = &found.callable.kernel;
    let bytes = kernel.param_bytes() as usize;
    if !params.is_null() && !extra.is_null() {
        return Err(INVALID_VALUE);
    }
    if extra.is_null() {
        if params.is_null() && !kernel.params().is_empty() {
            return Err(INVALID_VALUE);
        }
        let layout = kernel.params().iter().map(|param| (param.offset as usize, param.size as usize));
        return pack(params, layout, bytes);
    }
    let (mut buffer, mut size) = (None, None);
    let mut at = 0;
    loop {
        let key = extra.read_at(at)? as usize;
        if key == CU_LAUNCH_PARAM_END_AS_INT as usize {
            break;
        }
        let value = crate::c::Untyped::from(extra.read_at(at + 1)?);
        match u32::try_from(key) {
            Ok(CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT) => buffer = Some(value),
            Ok(CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT) => size = Some(value.of::<usize>().read()?),
            _ => return Err(INVALID_VALUE),
        }
        at += 2;
    }
    let (Some(buffer), Some(size)) = (buffer, size) else { return Err(INVALID_VALUE) };
    // Padding behind the last parameter may be there or not.
    let last = kernel.params().last().map_or(0, |param| (param.offset + param.size) as usize);
    if size < last {
        return Err(INVALID_VALUE);
    }
    let mut block = SmallVec::from_vec(buffer.bytes(size.min(bytes))?);
    block.resize(bytes, 0);
    Ok(block)
}

/// Where a launch goes, once there is room.
fn place(state: &mut Guard, stream: CUstream) -> Answer<At> {
    let at = state.stream(stream)?;
    // What is captured goes into no queue.
    if !engine::is_full(state, at.queue) || state.streams.get(at.stream, INVALID_HANDLE)?.capture.is_some() {
        return Ok(at);
    }
    engine::make_room(state, at.queue);
    // It may have ended meanwhile.
    state.stream(stream)
}

fn submit(
    state: &mut State,
    at: &At,
    function: CUfunction,
    shape: Shape,
    params: In<*mut c_void>,
    extra: In<*mut c_void>,
) -> Answer {
    state.not_lost(at.context)?;
    let task = state.launch(at.context, Handle::of(function), shape, params, extra)?;
    state.submit(at, Arc::new(task)).map(drop)
}

#[allow(clippy::too_many_arguments, reason = "cuda.h's signature")]
pub fn cuLaunchKernel(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: In<*mut c_void>,
    extra: In<*mut c_void>,
) -> Answer {
    let shape =
        Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared, cooperative: false };
    let mut state = state::lock()?;
    let at = place(&mut state, stream)?;
    submit(&mut state, &at, function, shape, params, extra)
}

#[allow(clippy::too_many_arguments, reason = "cuda.h's signature")]
pub fn cuLaunchCooperativeKernel(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: In<*mut c_void>,
) -> Answer {
    let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared, cooperative: true };
    let mut state = state::lock()?;
    let at = place(&mut state, stream)?;
    submit(&mut state, &at, function, shape, params, In::from(std::ptr::null_mut()))
}

pub fn cuLaunchKernelEx(
    config: In<CUlaunchConfig>,
    function: CUfunction,
    params: In<*mut c_void>,
    extra: In<*mut c_void>,
) -> Answer {
    let config = config.read()?;
    let mut shape = Shape {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared: config.sharedMemBytes,
        cooperative: false,
    };
    let mut events = SmallVec::<[Handle; 2]>::new();
    for attribute in In::from(config.attrs).read_many(config.numAttrs as usize)? {
        match attribute.id {
            CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE => shape.cooperative = launch_number(&attribute) != 0,
            CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => cluster(launch_cluster(&attribute), &shape)?,
            CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
            | CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
                // Here a kernel's blocks are done when it is: the event may happen later than it could.
                events.push(Handle::of(launch_event(&attribute)));
            }
            CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE => {
                report::unsupported(format!("{}: nodes that kernels change are not simulated", thread::place()));
                return Err(NOT_SUPPORTED);
            }
            // They change speed only.
            id if id.0 < CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_MAX.0 => {}
            _ => return Err(INVALID_VALUE),
        }
    }
    let mut state = state::lock()?;
    let at = place(&mut state, config.hStream)?;
    submit(&mut state, &at, function, shape, params, extra)?;
    for event in events {
        state.record(&at, event, &[])?;
    }
    Ok(())
}

/// A cluster of one block is no cluster.
fn cluster(size: [u32; 3], shape: &Shape) -> Answer {
    if size.iter().zip(shape.grid).any(|(size, grid)| *size == 0 || !grid.is_multiple_of(*size)) {
        return Err(INVALID_VALUE);
    }
    if size != [1, 1, 1] {
        report::unsupported(format!("{}: clusters of blocks are not simulated", thread::place()));
        return Err(NOT_SUPPORTED);
    }
    Ok(())
}
