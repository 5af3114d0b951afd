//! Green contexts: contexts with a share of a device's multiprocessors.
//!
//! The share is kept and reported; kernels run as fast as ever, which no program can rely on not to be so.

use crate::c::{In, Out, sm_resource};
use crate::handle::Handle;
use crate::report;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, Status};
use crate::stream::{PRIORITIES, StreamKind};
use crate::{context, thread};
use cuirass_sys::cuda::{
    CUcontext, CUdevResource, CUdevResource_st__bindgen_ty_1, CUdevResourceDesc, CUdevResourceType, CUdevSmResource,
    CUdevSmResourceSplitByCount_flags, CUdevice, CUdevice_attribute, CUevent, CUgreenCtx, CUgreenCtxCreate_flags,
    CUstream, CUstream_flags,
};
use std::ffi::{c_int, c_uchar, c_uint, c_ulonglong};

/// A green context.
pub struct GreenContext {
    /// The context that it is.
    pub context: Handle,
    device: usize,
    sms: u32,
    id: u64,
}

/// What a green context can be made of.
pub struct Description {
    device: usize,
    sms: u32,
}

/// What the padding of a resource begins with, before the device's ordinal.
const MARK: [c_uchar; 7] = *b"cuirass";

/// The smallest part and the step of parts, by compute capability.
fn grain(arch: u32, ignore_coscheduling: bool) -> (u32, u32) {
    match arch {
        90.. if ignore_coscheduling => (2, 2),
        90.. => (8, 8),
        80.. => (4, 2),
        _ => (2, 2),
    }
}

fn resource(device: usize, arch: u32, sms: u32) -> CUdevResource {
    let mut padding = [0; 92];
    padding[..MARK.len()].copy_from_slice(&MARK);
    padding[MARK.len()] = device as c_uchar;
    let (least, step) = grain(arch, false);
    let mut parts = CUdevResource_st__bindgen_ty_1 { _oversize: [0; 40] };
    parts.sm = CUdevSmResource {
        smCount: sms,
        minSmPartitionSize: least,
        smCoscheduledAlignment: step,
        flags: 0,
        localityDomainId: 0,
    };
    CUdevResource {
        type_: CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM,
        _internal_padding: padding,
        __bindgen_anon_1: parts,
        nextResource: std::ptr::null_mut(),
    }
}

/// Device and multiprocessors of a resource that the driver made.
fn read(resource: &CUdevResource) -> Answer<(usize, u32)> {
    let ours = resource._internal_padding.starts_with(&MARK);
    if !ours || resource.type_ != CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM {
        return Err(Status::CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    Ok((usize::from(resource._internal_padding[MARK.len()]), sm_resource(resource).smCount))
}

fn only_sms(kind: CUdevResourceType) -> Answer {
    match kind {
        CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM => Ok(()),
        CUdevResourceType::CU_DEV_RESOURCE_TYPE_WORKQUEUE
        | CUdevResourceType::CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG => {
            report::unsupported(format!("{}: work queues as resources are not simulated", thread::place()));
            Err(NOT_SUPPORTED)
        }
        _ => Err(Status::CUDA_ERROR_INVALID_RESOURCE_TYPE),
    }
}

fn all_sms(state: &State, device: usize) -> Answer<u32> {
    let count =
        state.device(device as CUdevice)?.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    Ok(count.unsigned_abs())
}

pub fn cuDeviceGetDevResource(device: CUdevice, out: Out<CUdevResource>, kind: CUdevResourceType) -> Answer {
    out.check()?;
    let state = state::lock()?;
    let (ordinal, arch) = (state.device(device)?.ordinal, state.device(device)?.arch());
    only_sms(kind)?;
    out.write(resource(ordinal, arch, all_sms(&state, ordinal)?))
}

pub fn cuCtxGetDevResource(ctx: CUcontext, out: Out<CUdevResource>, kind: CUdevResourceType) -> Answer {
    out.check()?;
    let state = state::lock()?;
    let handle = if ctx.is_null() { state.here()? } else { Handle::of(ctx) };
    let device = state.context(handle)?.device;
    only_sms(kind)?;
    let green = state.green.iter().find(|(_, green)| green.context == handle);
    let sms = match green {
        Some((_, green)) => green.sms,
        None => all_sms(&state, device)?,
    };
    out.write(resource(device, state.device(device as CUdevice)?.arch(), sms))
}

pub fn cuGreenCtxGetDevResource(green: CUgreenCtx, out: Out<CUdevResource>, kind: CUdevResourceType) -> Answer {
    out.check()?;
    let state = state::lock()?;
    let green = state.green.get(Handle::of(green), INVALID_HANDLE)?;
    only_sms(kind)?;
    out.write(resource(green.device, state.device(green.device as CUdevice)?.arch(), green.sms))
}

pub fn cuDevSmResourceSplitByCount(
    result: Out<CUdevResource>,
    groups: Out<c_uint>,
    input: In<CUdevResource>,
    remainder: Out<CUdevResource>,
    flags: c_uint,
    least_count: c_uint,
) -> Answer {
    let ignore = CUdevSmResourceSplitByCount_flags::CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING.0;
    let clusters = CUdevSmResourceSplitByCount_flags::CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE.0;
    groups.check()?;
    if flags & !(ignore | clusters) != 0 {
        return Err(INVALID_VALUE);
    }
    let (device, sms) = read(&input.read()?)?;
    let arch = state::lock()?.device(device as CUdevice)?.arch();
    let (least, step) = grain(arch, flags & ignore != 0);
    let size = least_count.max(least).div_ceil(step) * step;
    let possible = sms / size;
    if result.is_null() {
        return groups.write(possible);
    }
    let made = groups.read()?.min(possible);
    if made == 0 {
        return Err(Status::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    for group in 0..made {
        result.write_at(group as usize, resource(device, arch, size))?;
    }
    remainder.write_if_wanted(resource(device, arch, sms - made * size));
    groups.write(made)
}

pub fn cuDevResourceGenerateDesc(out: Out<CUdevResourceDesc>, resources: In<CUdevResource>, count: c_uint) -> Answer {
    out.check()?;
    let (mut device, mut sms) = (None, 0);
    for resource in resources.read_many(count as usize)? {
        let (ordinal, part) = read(&resource)?;
        if *device.get_or_insert(ordinal) != ordinal {
            return Err(Status::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        sms += part;
    }
    let description = Description { device: device.ok_or(INVALID_VALUE)?, sms };
    out.write(state::lock()?.descriptions.insert(description)?.raw())
}

pub fn cuGreenCtxCreate(out: Out<CUgreenCtx>, description: CUdevResourceDesc, dev: CUdevice, flags: c_uint) -> Answer {
    out.check()?;
    if flags != CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM.0 {
        return Err(INVALID_VALUE);
    }
    let mut state = state::lock()?;
    let wanted = state.descriptions.get(Handle::of(description), INVALID_HANDLE)?;
    let (device, sms) = (wanted.device, wanted.sms);
    if state.device(dev)?.ordinal != device {
        return Err(INVALID_VALUE);
    }
    let context = state.new_context(device, false, 0)?;
    let id = state.new_id();
    let green = state.green.insert(GreenContext { context, device, sms, id })?;
    state.context_mut(context)?.green = Some(green);
    out.write(green.raw())
}

pub fn cuGreenCtxDestroy(green: CUgreenCtx) -> Answer {
    let mut state = state::lock()?;
    let context = state.green.remove(Handle::of(green), INVALID_HANDLE, INVALID_HANDLE)?.context;
    context::end_created(&mut state, context);
    Ok(())
}

pub fn cuCtxFromGreenCtx(context: Out<CUcontext>, green: CUgreenCtx) -> Answer {
    let state = state::lock()?;
    context.write(state.green.get(Handle::of(green), INVALID_HANDLE)?.context.raw())
}

pub fn cuGreenCtxGetId(green: CUgreenCtx, id: Out<c_ulonglong>) -> Answer {
    let state = state::lock()?;
    id.write(state.green.get(Handle::of(green), INVALID_HANDLE)?.id)
}

pub fn cuGreenCtxStreamCreate(out: Out<CUstream>, green: CUgreenCtx, flags: c_uint, priority: c_int) -> Answer {
    out.check()?;
    if flags != CUstream_flags::CU_STREAM_NON_BLOCKING.0 {
        return Err(INVALID_VALUE);
    }
    let mut state = state::lock()?;
    let context = state.green.get(Handle::of(green), INVALID_HANDLE)?.context;
    state.not_lost(context)?;
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    out.write(state.new_stream(context, StreamKind::Created, flags, priority)?.raw())
}

pub fn cuStreamGetGreenCtx(stream: CUstream, out: Out<CUgreenCtx>) -> Answer {
    let mut state = state::lock()?;
    let at = state.stream(stream)?;
    out.write(state.context(at.context)?.green.unwrap_or(Handle::NULL).raw())
}

pub fn cuGreenCtxRecordEvent(green: CUgreenCtx, event: CUevent) -> Answer {
    let context = state::lock()?.green.get(Handle::of(green), INVALID_HANDLE)?.context;
    context::cuCtxRecordEvent(context.raw(), event)
}

pub fn cuGreenCtxWaitEvent(green: CUgreenCtx, event: CUevent) -> Answer {
    let context = state::lock()?.green.get(Handle::of(green), INVALID_HANDLE)?.context;
    context::cuCtxWaitEvent(context.raw(), event)
}
