//! What a pointer is.

use super::super::{Allocation, Origin};
use crate::c::{In, Untyped};
use crate::handle::Handle;
use crate::state::{self, State};
use crate::status::{Answer, INVALID_VALUE};
use cuirass_sys::cuda::{CUcontext, CUdeviceptr, CUmemoryPool, CUmemorytype, CUpointer_attribute};
use std::ffi::{c_int, c_uint, c_void};

/// The value of an attribute, in the type that `cuda.h` gives it.
enum Value {
    Pointer(u64),
    Number(u64),
    Word(u32),
    Ordinal(i32),
}

impl Value {
    fn write(&self, to: Untyped) -> Answer {
        match *self {
            Value::Pointer(value) | Value::Number(value) => to.out::<u64>().write(value),
            Value::Word(value) => to.out::<c_uint>().write(value),
            Value::Ordinal(value) => to.out::<c_int>().write(value),
        }
    }

    /// What an attribute that a pointer does not have looks like when several are asked for.
    fn nothing(attribute: CUpointer_attribute) -> Answer<Self> {
        Ok(match attribute {
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => Value::Pointer(0),
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => Value::Number(0),
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPED
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS
            | CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => Value::Word(0),
            // CU_DEVICE_INVALID
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Ordinal(-2),
            _ => return Err(INVALID_VALUE),
        })
    }
}

/// An attribute of memory that the driver knows.
fn attribute(state: &State, memory: &Allocation, attribute: CUpointer_attribute, address: u64) -> Answer<Value> {
    let pool = match memory.origin {
        Origin::Pool(key) | Origin::Imported(key) => state.memory.pools.get(key),
        _ => None,
    };
    let managed = matches!(memory.origin, Origin::Managed(_)) || pool.is_some_and(|pool| pool.shape.managed);
    let on_host = !managed && memory.device.is_none();
    // What has to be given, and to whom: the device that asks, the host.
    let device = state.here().and_then(|here| state.context(here)).map_or(0, |context| context.device);
    let (given, shown) = match memory.origin {
        Origin::Pool(key) | Origin::Imported(key) if on_host => (state.memory.pools.is_accessible(key, device), true),
        Origin::Virtual if on_host => state.memory.virtuals.is_given(address, device),
        _ => (true, true),
    };
    let flag = |yes: bool| Value::Word(u32::from(yes));
    Ok(match attribute {
        // Pool memory belongs to a device, not to a context.
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT if pool.is_some() => Value::Pointer(0),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT => Value::Pointer(memory.context.raw::<CUcontext>() as u64),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE if on_host => {
            Value::Word(CUmemorytype::CU_MEMORYTYPE_HOST.0)
        }
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Value::Word(CUmemorytype::CU_MEMORYTYPE_DEVICE.0),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER if given => Value::Pointer(address),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER if (on_host || managed) && shown => {
            Value::Pointer(address)
        }
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => flag(memory.sync_memops),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID => Value::Number(memory.id),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED => flag(managed),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
            let device = match memory.device {
                Some(device) => Some(device),
                // Measured: physical memory of the host says the first device.
                None if memory.origin == Origin::Virtual => Some(0),
                None => state.contexts.peek(memory.context).map(|context| context.device),
            };
            Value::Ordinal(device.map_or(-2, |device| device as i32))
        }
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => flag(memory.origin == Origin::Plain),
        // Measured.
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR if on_host && pool.is_some() => Value::Pointer(0),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
        | CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => Value::Pointer(memory.start),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE => Value::Number(memory.len),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE => Value::Number(memory.span),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPED => flag(true),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => {
            Value::Number(pool.map_or(0, |pool| u64::from(pool.shape.handle_types)))
        }
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => flag(!on_host && !managed),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS if memory.origin == Origin::Virtual && !given => {
            Value::Word(0)
        }
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => Value::Word(3),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => {
            Value::Pointer(pool.map_or(Handle::NULL, |pool| pool.handle).raw::<CUmemoryPool>() as u64)
        }
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => Value::Number(memory.id),
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => flag(false),
        _ => return Err(INVALID_VALUE),
    })
}

/// The memory that the program itself has at an address.
fn known(state: &State, address: u64) -> Option<&Allocation> {
    state.memory.find(address).filter(|memory| memory.origin != Origin::Heap)
}

pub fn cuPointerGetAttribute(data: Untyped, which: CUpointer_attribute, dptr: CUdeviceptr) -> Answer {
    if data.is_null() {
        return Err(INVALID_VALUE);
    }
    let state = state::lock()?;
    // Programs ask this of any pointer to learn whether it is CUDA's: no report if it is not.
    let memory = known(&state, dptr).ok_or(INVALID_VALUE)?;
    attribute(&state, memory, which, dptr)?.write(data)
}

pub fn cuPointerGetAttributes(
    count: c_uint,
    attributes: In<CUpointer_attribute>,
    data: In<*mut c_void>,
    dptr: CUdeviceptr,
) -> Answer {
    let attributes = attributes.read_many(count as usize)?;
    let data = data.places(count as usize)?;
    let state = state::lock()?;
    for (which, place) in attributes.into_iter().zip(data) {
        let nothing = Value::nothing(which)?;
        let value = match known(&state, dptr) {
            Some(memory) => attribute(&state, memory, which, dptr).unwrap_or(nothing),
            None => nothing,
        };
        value.write(place)?;
    }
    Ok(())
}

pub fn cuPointerSetAttribute(value: Untyped, which: CUpointer_attribute, dptr: CUdeviceptr) -> Answer {
    let flag = value.of::<c_uint>().read()?;
    if which != CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS {
        return Err(INVALID_VALUE);
    }
    let mut state = state::lock()?;
    let start = state.memory.find(dptr).ok_or(INVALID_VALUE)?.start;
    let memory = state.memory.at_mut(start).ok_or(INVALID_VALUE)?;
    memory.sync_memops = flag != 0;
    Ok(())
}
